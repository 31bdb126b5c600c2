"""What clients ask the engine for."""

from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from checkpointd.model.checkpoint import Trigger

Guarded = Literal["forget", "shutdown", "pause", "restore"]
"""What an agent may ask for only if `agents.may` in the user's config names it."""

Document = Literal["checkpoint.md", "record.yaml", "summary.yaml", "coverage.json"]


class Asker(Struct, frozen=True, kw_only=True):
    """Who asks: the process at the other end of the socket, and the agent session that its environment names."""

    uid: int
    pid: int  # 0: unknown
    agent: str | None = None
    session: str | None = None


class AgentProcess(Struct, frozen=True, kw_only=True):
    """A coding agent in the process tree of an asker."""

    agent: str
    pid: int
    session: str | None = None


class Scope(Struct, frozen=True, kw_only=True):
    """Which projects are meant: `all` of them, else the one that `project` names (id, unique prefix, name or
    root), else the one that holds `cwd`. Raises NotFound or Ambiguous where that is none or several."""

    cwd: bytes  # absolute
    project: str | None = None
    all: bool = False


class SaveRequest(Struct, frozen=True, kw_only=True):
    """What a person gave on saving. `key` makes a repeated request find its first record."""

    key: str
    name: str | None = None
    title: str | None = None
    reason: str | None = None
    pending: str | None = None
    tags: tuple[str, ...] = ()
    pin: bool = False


class ListRequest(Struct, frozen=True, kw_only=True):
    """Which checkpoints are wanted, newest first. `session` may be a unique prefix."""

    session: str | None = None
    trigger: Trigger | None = None  # matches `trigger` and `also`
    agent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 20


class RestoreRequest(Struct, frozen=True, kw_only=True):
    """What is to come back. No paths: everything. `to`: into that directory, the project is left alone."""

    checkpoint: str
    paths: tuple[bytes, ...] = ()  # absolute, or relative to the project's root; never with `..`
    to: bytes | None = None  # absolute
    allow_mass_delete: bool = False


class Progress(Protocol):
    """Told how far long work is; costs next to nothing, may be called as often as one likes, from the loop only."""

    def __call__(self, stage: str, done: int, total: int | None = None) -> None: ...
