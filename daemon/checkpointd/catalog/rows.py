"""What the catalog holds, row by row."""

from datetime import datetime
from typing import Literal

from msgspec import Struct, field

from checkpointd.model.checkpoint import Record, Status, Trigger

SessionState = Literal["live", "idle", "ended", "old"]
Mark = str | int | list[str] | None


class ProjectRow(Struct, frozen=True, kw_only=True):
    """A project; `marks` is what it is recognised by after a move."""

    id: str
    name: str
    kind: Literal["git", "plain"]
    created_at: datetime
    paused: bool = False
    marks: dict[str, Mark] = field(default_factory=dict)


class WorktreeRow(Struct, frozen=True, kw_only=True):
    """One work tree of a project. `root` and `gitdir` are paths as records spell them."""

    id: str
    project: str
    root: str
    first_seen: datetime
    last_seen: datetime
    gitdir: str | None = None


class CheckpointRow(Struct, frozen=True, kw_only=True):
    """A checkpoint as the catalog knows it; `statuses` are derived."""

    record: Record
    commit: str
    size: int  # bytes that its pack added
    pinned: bool = False
    statuses: tuple[Status, ...] = ()


class CheckpointFilter(Struct, frozen=True, kw_only=True):
    """Which checkpoints to list; None lets everything pass."""

    project: str | None = None
    worktree: str | None = None
    session: str | None = None  # a prefix of the session's id
    trigger: Trigger | None = None
    feature: str | None = None
    agent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None


class SessionRow(Struct, frozen=True, kw_only=True):
    """One conversation of an agent. `pid` and `pid_started` name the process bound to it; `log` and `cwd`
    are paths as records spell them."""

    agent: str
    id: str
    log: str
    state: SessionState
    project: str | None = None
    worktree: str | None = None
    cwd: str | None = None
    started_at: datetime | None = None
    last_at: datetime | None = None
    turns: int = 0
    title: str = ""
    model: str | None = None
    agent_version: str | None = None
    parent: str | None = None
    pid: int | None = None
    pid_started: float | None = None
    boot: str | None = None
    ended_reason: str | None = None


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions to list; None lets everything pass."""

    project: str | None = None
    worktree: str | None = None
    agent: str | None = None
    states: tuple[SessionState, ...] | None = None
    since: datetime | None = None
    limit: int | None = None


class Cursor(Struct, frozen=True, kw_only=True):
    """How far a log was read. `path` is as the system spells it (os.fsdecode); `tail_hash` is over the bytes
    before `offset`; `state` is the parser's own."""

    path: str
    agent: str
    device: int = 0
    inode: int = 0
    offset: int = 0
    generation: int = 0
    tail_hash: str = ""
    session: str | None = None
    state: bytes = b""
