"""A checkpoint's record as it goes over the wire; paths quoted, times ISO 8601 with offset."""

from typing import TypedDict


class Cause(TypedDict, total=False):
    worktree: str
    agent: str
    session: str
    trigger: str
    position: str


class ProjectRef(TypedDict):
    id: str
    root: str
    name: str
    kind: str
    worktree: str
    user: str
    host: str


class IndexEntry(TypedDict, total=False):
    path: str
    mode: str
    blob: str
    stage: int
    flags: list[str]


class GitState(TypedDict, total=False):
    branch: str | None
    head: str | None
    upstream: str | None
    state: str
    index: list[IndexEntry]
    branches: dict[str, str]
    stashes: list[str]
    object_format: str
    note: str


class Tokens(TypedDict, total=False):
    input: int
    output: int
    cache_read: int
    cache_write: int


class SessionRef(TypedDict, total=False):
    agent: str
    id: str
    agent_version: str | None
    model: str | None
    thinking: str | None
    name: str | None
    log: str | None
    started_at: str | None
    turns: int
    tokens: Tokens
    cost_usd: float | None


class FileChange(TypedDict, total=False):
    path: str
    change: str
    added: int | None
    removed: int | None
    session: str | None
    certainty: str


class GateState(TypedDict, total=False):
    gate: str
    command: str
    colour: str
    at: str | None
    failing: list[str]
    error: str
    tree: str
    clean: bool


class Task(TypedDict, total=False):
    id: str
    text: str
    state: str
    files: list[str]


class Story(TypedDict, total=False):
    us_id: str | None
    iter_id: str | None
    stage: str | None
    resume_step: str | None


class CoverageCounts(TypedDict, total=False):
    captured: int
    size: int
    skipped: dict[str, int]


class _Always(TypedDict):
    id: str
    seq: int
    name: str
    title: str
    created_at: str
    source: str
    trigger: str
    cause: Cause
    reason: str
    project: ProjectRef
    tree: str


class Record(_Always, total=False):
    """docs/records.md says what each field holds; one that has nothing to say is left out."""

    also: list[str]
    taken: str | None
    git: GitState | None
    session: SessionRef | None
    turn: int | None
    feature: str | None
    platform: str | None
    story: Story | None
    work_type: str | None
    files_changed: list[FileChange]
    files_changed_total: int
    session_files: list[str]
    tests: list[GateState]
    tasks: list[Task]
    undelivered: list[str]
    note: dict[str, str]
    parent: str | None
    session_parent: str | None
    continued_from: str | None
    late: list[str]
    lost: list[str]
    restore: dict[str, str]
    tags: list[str]
    coverage: CoverageCounts
    event: str
    schema: int
