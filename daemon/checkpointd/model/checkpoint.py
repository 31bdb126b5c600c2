"""The record of a checkpoint, field by field (docs/records.md)."""

from datetime import datetime
from typing import Literal

from msgspec import Struct, field

Trigger = Literal[
    "manual", "handoff", "fork", "pre-restore", "repeated-failure", "request-changes", "pre-destructive",
    "session-end", "gate", "pre-compact", "head-moved", "baseline", "turn", "scheduled",
]  # fmt: skip
TRIGGERS: tuple[Trigger, ...] = (
    "manual", "handoff", "fork", "pre-restore", "repeated-failure", "request-changes", "pre-destructive",
    "session-end", "gate", "pre-compact", "head-moved", "baseline", "turn", "scheduled",
)  # fmt: skip
"""From strong to weak: within one session the strongest names the record, the others go to `also`."""

Taken = Literal["before", "rolling", "after"]
WorkType = Literal["code_change", "review", "design", "question", "planning", "debugging"]
Certainty = Literal["certain", "likely", "unknown"]
RepositoryState = Literal["none", "merging", "rebasing", "cherry-picking", "reverting", "bisecting", "applying"]
Status = Literal["ACTIVE", "ROLLED_BACK", "SUPERSEDED", "CONSUMED", "ARCHIVED", "PRUNED", "QUARANTINED"]

SCHEMA = 1


class Cause(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What made a record: the same cause never makes a second one."""

    worktree: str
    agent: str = ""
    session: str = ""
    trigger: str = ""
    position: str = ""  # the log's record id, else "generation:offset", else a request id, else the time observed

    def key(self) -> str:
        """One string that identifies the cause."""
        return "\x1f".join((self.worktree, self.agent, self.session, self.trigger, self.position))


class ProjectRef(Struct, frozen=True, kw_only=True):
    id: str
    root: str
    name: str
    kind: Literal["git", "plain"]
    worktree: str
    user: str = ""
    host: str = ""


class IndexEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A staged entry whose bytes differ from the file's."""

    path: str
    mode: str
    blob: str
    stage: int = 0
    flags: tuple[str, ...] = ()


class GitState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The user's repository at the time of the capture, read from its files."""

    branch: str | None = None  # None: detached or unknown
    head: str | None = None  # None: unborn or unknown
    upstream: str | None = None
    state: RepositoryState = "none"
    index: tuple[IndexEntry, ...] = ()
    branches: dict[str, str] = field(default_factory=dict)
    stashes: tuple[str, ...] = ()
    object_format: str = "sha1"
    note: str = ""  # what could not be read, and why


class Tokens(Struct, frozen=True, kw_only=True, omit_defaults=True):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class SessionRef(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session as it was when the checkpoint was made."""

    agent: str
    id: str
    agent_version: str | None = None
    model: str | None = None
    thinking: str | None = None
    name: str | None = None
    log: str | None = None
    started_at: datetime | None = None
    turns: int = 0
    tokens: Tokens = Tokens()
    cost_usd: float | None = None


class FileChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    change: Literal["add", "modify", "delete", "rename"]
    added: int | None = None  # lines; None for binary files
    removed: int | None = None
    session: str | None = None
    certainty: Certainty = "unknown"


class GateState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last run of one gate."""

    gate: str
    command: str
    colour: Literal["red", "green", "unknown"]
    at: datetime | None = None
    failing: tuple[str, ...] = ()
    error: str = ""
    tree: str = ""
    clean: bool = False


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    text: str
    state: Literal["open", "doing", "done", "cancelled"]
    files: tuple[str, ...] = ()


class Story(Struct, frozen=True, kw_only=True, omit_defaults=True):
    us_id: str | None = None
    iter_id: str | None = None
    stage: str | None = None
    resume_step: str | None = None


class CoverageCounts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    captured: int = 0
    size: int = 0  # bytes
    skipped: dict[str, int] = field(default_factory=dict)


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One checkpoint. `tree` is the git tree id of `files/`; `event` the hash of the event before it."""

    id: str
    seq: int
    name: str
    title: str
    created_at: datetime
    source: str
    trigger: Trigger
    cause: Cause
    reason: str
    project: ProjectRef
    tree: str
    also: tuple[Trigger, ...] = ()
    taken: Taken | None = None
    git: GitState | None = None
    session: SessionRef | None = None
    turn: int | None = None
    feature: str | None = None
    platform: str | None = None
    story: Story | None = None
    work_type: WorkType | None = None
    files_changed: tuple[FileChange, ...] = ()
    files_changed_total: int = 0
    session_files: tuple[str, ...] = ()
    tests: tuple[GateState, ...] = ()
    tasks: tuple[Task, ...] = ()
    undelivered: tuple[str, ...] = ()
    note: dict[str, str] = field(default_factory=dict)
    parent: str | None = None
    session_parent: str | None = None
    continued_from: str | None = None
    late: tuple[str, ...] = ()  # baseline: paths changed before they were read
    lost: tuple[str, ...] = ()  # pre-destructive taken `after`: what was already gone
    restore: dict[str, str] = field(default_factory=dict)  # pre-restore: plan id, target checkpoint
    tags: tuple[str, ...] = ()
    coverage: CoverageCounts = CoverageCounts()
    event: str = ""
    schema: int = SCHEMA
