"""The methods of the protocol, each with its parameters and its result."""

from typing import Generic, Literal, NotRequired, TypedDict, TypeVar

from ckpt.contract.records import GateState, Record

P = TypeVar("P")
R = TypeVar("R")


class Method(Generic[P, R]):
    """One thing to ask for. Unknown fields are ignored on both sides, so that old and new can talk."""

    def __init__(self, name: str, params: type[P], result: type[R]) -> None:
        self.name = name
        self.params = params
        self.result = result


class Nothing(TypedDict):
    """No parameters."""


class ScopeParams(TypedDict):
    """`cwd` is the client's directory, absolute; `project` an id, unique prefix, name or root."""

    cwd: str
    project: NotRequired[str | None]
    all: NotRequired[bool]


# The first exchange, status and shutdown: these never change, since upgrading a daemon needs them.


class Asking(TypedDict):
    """The agent session that the client's environment names."""

    agent: str
    session: str


class HelloParams(TypedDict):
    version: str
    protocol: int
    asking: NotRequired[Asking | None]


class Hello(TypedDict):
    """`alarm` is one line for the user while protection is off or hurt."""

    version: str
    protocol: int
    pid: int
    alarm: str | None


class Problem(TypedDict):
    what: str
    hint: str


class Daemon(TypedDict):
    version: str
    protocol: int
    pid: int
    uptime_s: float
    rss_bytes: int
    cpu_s: float
    paused: bool


class Agent(TypedDict):
    agent: str
    sessions: int
    records: int
    unknown_records: int
    unknown_kinds: NotRequired[list[str]]
    state: str


class Project(TypedDict):
    id: str
    name: str
    root: str
    kind: str
    checkpoints: int
    paused: bool
    watch: str
    dirty: int
    last_capture: str | None
    loss_window_s: float | None
    size_bytes: int | None


class Session(TypedDict):
    agent: str
    id: str
    state: str
    source: str
    project: str | None
    root: str | None
    title: str | None
    model: str | None
    pid: int | None
    turns: int
    checkpoints: int
    started_at: str | None
    last_at: str | None


class Budget(TypedDict):
    used: float
    limit: float | None
    unit: str


class Status(TypedDict):
    daemon: Daemon
    agents: list[Agent]
    projects: list[Project]
    sessions: list[Session]
    budgets: dict[str, Budget]
    problems: list[Problem]


class Stopping(TypedDict):
    """The daemon's process, to wait for."""

    pid: int


# Checkpoints


class SaveParams(ScopeParams):
    """`key` is the client's own id of this wish: asked twice, it makes one checkpoint."""

    key: str
    name: NotRequired[str | None]
    title: NotRequired[str | None]
    reason: NotRequired[str | None]
    pending: NotRequired[str | None]
    tags: NotRequired[list[str]]
    pin: NotRequired[bool]


class Saved(TypedDict):
    checkpoint: Record
    status: list[str]
    pinned: bool


class ListParams(ScopeParams):
    """`since` and `until` are ISO 8601 with offset."""

    session: NotRequired[str | None]
    trigger: NotRequired[str | None]
    agent: NotRequired[str | None]
    since: NotRequired[str | None]
    until: NotRequired[str | None]
    limit: NotRequired[int]


class Gate(TypedDict):
    gate: str
    colour: str


class Row(TypedDict):
    id: str
    name: str
    title: str
    created_at: str
    trigger: str
    also: list[str]
    reason: str
    status: list[str]
    pinned: bool
    project: str
    agent: str | None
    session_id: str | None
    turn: int | None
    branch: str | None
    files_changed: int
    tests: list[Gate]


class Rows(TypedDict):
    checkpoints: list[Row]


class CheckpointParams(ScopeParams):
    checkpoint: str


class Skip(TypedDict):
    path: str
    reason: str
    detail: str
    folder: bool


class Coverage(TypedDict):
    captured: int
    size: int
    skipped: list[Skip]
    unobserved: list[str]
    rules: str
    first_read: str | None
    last_read: str | None


class Shown(TypedDict):
    checkpoint: Record
    status: list[str]
    pinned: bool
    coverage: Coverage


class DocumentParams(CheckpointParams):
    document: Literal["checkpoint.md", "record.yaml", "summary.yaml", "coverage.json"]


class Document(TypedDict):
    text: str


class FileParams(CheckpointParams):
    """One part of a captured file, at most 4 MiB of it, from `offset` on."""

    path: str
    offset: NotRequired[int]


class File(TypedDict):
    """`data` is base64; `size` that of the whole file; `mode` git's."""

    data: str
    size: int
    mode: int


class DiffParams(ScopeParams):
    """Without `new`: against the work tree as it is now. `patch`: unified diffs are wanted."""

    old: str
    new: NotRequired[str | None]
    paths: NotRequired[list[str]]
    patch: NotRequired[bool]


class Change(TypedDict):
    """Lines are None for binary files; `patch` is None where it was not asked for, binary, or too much."""

    path: str
    change: str
    added: int | None
    removed: int | None
    patch: str | None


class Changes(TypedDict):
    changes: list[Change]


class Last(TypedDict):
    agent: str
    session_id: str
    turn: int
    request: str
    answer: str
    started_at: str | None
    ended_at: str | None
    changes: list[Change]
    tests: list[GateState]
    checkpoint: Record | None


class Pinned(TypedDict):
    checkpoint: Record
    pinned: bool


# Restore: a plan first, then exactly that plan


class RestoreParams(CheckpointParams):
    """Paths absolute, or relative to the project's root. `to`: an absolute directory to write into instead."""

    paths: NotRequired[list[str]]
    to: NotRequired[str | None]
    allow_mass_delete: NotRequired[bool]


class PlannedPath(TypedDict):
    path: str
    why: str


class Plan(TypedDict):
    """`id` is for `restore.apply`, until `expires_at`. `root` is where files are written."""

    id: str
    checkpoint: str
    name: str
    trigger: str
    created_at: str
    root: str
    restore: list[PlannedPath]
    delete: list[PlannedPath]
    keep: list[PlannedPath]
    unchanged: int
    head_moved: bool
    mass_delete: bool
    expires_at: str | None


class Planned(TypedDict):
    plan: Plan


class ApplyParams(TypedDict):
    """`interactive`: a person read the plan on a terminal and said yes."""

    plan: str
    interactive: NotRequired[bool]


class Restored(TypedDict):
    """`undo` is the checkpoint that holds what was there before."""

    restored: int
    deleted: int
    failed: list[PlannedPath]
    undo: str | None


class ForgetParams(ScopeParams):
    """A checkpoint, a session or a project."""

    what: str


class Kept(TypedDict):
    id: str
    why: str


class Doomed(TypedDict):
    id: str
    name: str
    title: str
    created_at: str
    trigger: str


class ForgetPlan(TypedDict):
    id: str
    checkpoints: list[Doomed]
    keep: list[Kept]
    project: str | None
    size_bytes: int | None


class ForgetPlanned(TypedDict):
    plan: ForgetPlan


class Forgotten(TypedDict):
    forgotten: list[str]
    freed_bytes: int


# Sessions, projects, the rest


class SessionsParams(ScopeParams):
    limit: NotRequired[int]


class Sessions(TypedDict):
    sessions: list[Session]


class Projects(TypedDict):
    projects: list[Project]


class Subscribed(TypedDict):
    """What follows comes as notifications `event`, each with a Happening, until one `closed`."""

    subscribed: bool


class Happening(TypedDict):
    at: str
    kind: str
    text: str
    project: str | None
    session: str | None
    checkpoint: Record | None


class ContinueParams(ScopeParams):
    """Without `checkpoint`: the one that the asking session, else the project's newest work, goes on from."""

    checkpoint: NotRequired[str | None]
    budget: NotRequired[int]


class Drift(TypedDict):
    unchanged: list[str]
    modified: list[str]
    missing: list[str]


class Continuation(TypedDict):
    checkpoint: str
    drift: Drift
    pack: str
    native_resume: list[str] | None


class Rebuilt(TypedDict):
    projects: int
    checkpoints: int
    sessions: int
    problems: list[Problem]


HELLO = Method("hello", HelloParams, Hello)
STATUS = Method("status", Nothing, Status)
SHUTDOWN = Method("shutdown", Nothing, Stopping)
SAVE = Method("save", SaveParams, Saved)
LIST = Method("list", ListParams, Rows)
SHOW = Method("show", CheckpointParams, Shown)
SHOW_DOCUMENT = Method("show.document", DocumentParams, Document)
SHOW_FILE = Method("show.file", FileParams, File)
DIFF = Method("diff", DiffParams, Changes)
LAST = Method("last", ScopeParams, Last)
RESTORE_PLAN = Method("restore.plan", RestoreParams, Planned)
RESTORE_APPLY = Method("restore.apply", ApplyParams, Restored)
UNDO_PLAN = Method("undo.plan", ScopeParams, Planned)
PIN = Method("pin", CheckpointParams, Pinned)
UNPIN = Method("unpin", CheckpointParams, Pinned)
FORGET_PLAN = Method("forget.plan", ForgetParams, ForgetPlanned)
FORGET_APPLY = Method("forget.apply", ApplyParams, Forgotten)
SESSIONS = Method("sessions", SessionsParams, Sessions)
PROJECTS = Method("projects", Nothing, Projects)
PAUSE = Method("pause", ScopeParams, Projects)
RESUME = Method("resume", ScopeParams, Projects)
SUBSCRIBE = Method("subscribe", ScopeParams, Subscribed)
CONTINUE = Method("continue", ContinueParams, Continuation)
REBUILD = Method("doctor.rebuild", Nothing, Rebuilt)
