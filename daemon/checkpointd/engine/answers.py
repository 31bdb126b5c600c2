"""What the engine answers to clients, in the words of the domain."""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from checkpointd.model.capture import Coverage
from checkpointd.model.checkpoint import GateState, Record, Status

SessionState = Literal["live", "idle", "ended", "old"]
Watch = Literal["live", "idle", "polling", "paused", "failed"]


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A record with what is derived about it."""

    record: Record
    statuses: tuple[Status, ...] = ("ACTIVE",)
    pinned: bool = False


class Shown(Struct, frozen=True, kw_only=True):
    """One checkpoint with what its capture left out."""

    checkpoint: Checkpoint
    coverage: Coverage


class Contents(Struct, frozen=True, kw_only=True):
    """A part of one captured file or document. `size` is that of the whole."""

    data: bytes
    size: int
    mode: int = 0o100644


class Difference(Struct, frozen=True, kw_only=True):
    """One path that differs. `added` and `removed` count lines; None for binary files."""

    path: bytes
    change: Literal["add", "modify", "delete"]
    added: int | None = None
    removed: int | None = None
    patch: str | None = None  # unified diff of this path, where it was asked for and is text


class LastTurn(Struct, frozen=True, kw_only=True):
    """What an agent did in the newest turn of the newest session."""

    agent: str
    session: str
    turn: int
    request: str
    answer: str = ""  # the agent's own last words
    started_at: datetime | None = None
    ended_at: datetime | None = None  # None: still at it
    changes: tuple[Difference, ...] = ()
    results: tuple[GateState, ...] = ()
    checkpoint: Record | None = None


class PlannedPath(Struct, frozen=True, kw_only=True):
    path: bytes
    why: str = ""


class RestorePlan(Struct, frozen=True, kw_only=True):
    """What a restore or an undo would do; `id` names it until `expires_at`. Nothing is done yet."""

    id: str
    target: Record
    root: bytes  # where files are written
    restore: tuple[PlannedPath, ...] = ()
    delete: tuple[PlannedPath, ...] = ()
    keep: tuple[PlannedPath, ...] = ()
    unchanged: int = 0
    head_moved: bool = False
    mass_delete: bool = False  # it deletes most of the files: carried out only where the request allowed that
    expires_at: datetime | None = None


class Restored(Struct, frozen=True, kw_only=True):
    """What was done. `undo` is the pre-restore checkpoint; None where nothing in the project was touched."""

    restored: int
    deleted: int
    undo: str | None = None
    failed: tuple[PlannedPath, ...] = ()


class Kept(Struct, frozen=True, kw_only=True):
    id: str
    why: str


class ForgetPlan(Struct, frozen=True, kw_only=True):
    """What would be forgotten. `project`: the whole project with its vault. `size` is an estimate in bytes."""

    id: str
    checkpoints: tuple[Record, ...] = ()
    keep: tuple[Kept, ...] = ()
    project: str | None = None
    size: int | None = None


class Forgotten(Struct, frozen=True, kw_only=True):
    checkpoints: tuple[str, ...]
    size: int  # bytes that came free


class Session(Struct, frozen=True, kw_only=True):
    agent: str
    id: str
    state: SessionState
    source: Literal["live", "archived", "gone"] = "live"  # where its log is
    project: str | None = None
    root: bytes | None = None
    title: str | None = None
    model: str | None = None
    pid: int | None = None
    turns: int = 0
    checkpoints: int = 0
    started_at: datetime | None = None
    last_at: datetime | None = None


class Project(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    root: bytes
    kind: Literal["git", "plain"]
    checkpoints: int = 0
    paused: bool = False
    watch: Watch = "idle"
    dirty: int = 0  # paths changed and not captured yet
    last_capture: datetime | None = None
    loss_window: timedelta | None = None  # age of the oldest change that is not captured
    size: int | None = None  # bytes of its vault


class DaemonState(Struct, frozen=True, kw_only=True):
    uptime: timedelta
    rss: int  # bytes
    cpu: timedelta
    paused: bool = False


class AgentState(Struct, frozen=True, kw_only=True):
    """One agent, and how well its logs are understood."""

    agent: str
    sessions: int = 0
    records: int = 0
    unknown_records: int = 0
    unknown_kinds: tuple[str, ...] = ()  # the most frequent ones
    state: Literal["ok", "partly", "not-understood", "unreadable", "disabled", "absent"] = "ok"


class Budget(Struct, frozen=True, kw_only=True):
    """A measured value beside its limit; None: no limit."""

    used: float
    limit: float | None
    unit: str


class Problem(Struct, frozen=True, kw_only=True):
    """What is wrong, and the way out."""

    what: str
    hint: str = ""


class Overview(Struct, frozen=True, kw_only=True):
    """The state of everything: `sessions` are the live and idle ones."""

    daemon: DaemonState
    agents: tuple[AgentState, ...] = ()
    projects: tuple[Project, ...] = ()
    sessions: tuple[Session, ...] = ()
    budgets: dict[str, Budget] = {}
    problems: tuple[Problem, ...] = ()


class Happening(Struct, frozen=True, kw_only=True):
    """One thing that happened, for those who watch."""

    at: datetime
    kind: Literal["checkpoint", "session", "restore", "project", "problem"]
    text: str
    project: str | None = None
    session: str | None = None
    checkpoint: Record | None = None


class Drift(Struct, frozen=True, kw_only=True):
    """How the work tree differs from a checkpoint's key files."""

    unchanged: tuple[bytes, ...] = ()
    modified: tuple[bytes, ...] = ()
    missing: tuple[bytes, ...] = ()


class Continuation(Struct, frozen=True, kw_only=True):
    """What a new session starts with."""

    checkpoint: str
    pack: str
    drift: Drift = Drift()
    native_resume: tuple[str, ...] | None = None  # a command line, where the agent can still find the session


class Rebuilt(Struct, frozen=True, kw_only=True):
    projects: int
    checkpoints: int
    sessions: int
    problems: tuple[Problem, ...] = ()
