"""What a session did, as far as its log tells: requests, files, commands, failures, tasks, costs.

Filled event by event by `summaries.digest`. Every text in it is redacted and cut, every list is bounded and counts
what it left out, so that a digest can be stored beside the log's cursor.
"""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct, field

from checkpointd.model.checkpoint import Certainty, GateState, Task, Tokens
from checkpointd.model.events import Outcome, ToolKind


class Turn(Struct, kw_only=True, omit_defaults=True):
    """One turn: what was asked, what was done for it."""

    number: int
    request: str
    position: str
    at: datetime | None = None
    tools: int = 0
    failures: int = 0
    files: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)  # the last commands, each with its outcome
    answer: str = ""  # how the agent's last text begins
    interrupted: bool = False


class FileTouch(Struct, kw_only=True, omit_defaults=True):
    """A file that the session wrote. `likely` until the tool's result confirms the write."""

    path: str  # absolute where the log's cwd is known, else as the log spells it
    first_turn: int
    last_turn: int
    position: str
    writes: int = 0
    certainty: Certainty = "likely"


class Command(Struct, kw_only=True, omit_defaults=True):
    """A shell command, its runs counted together; outcome and error are the last run's."""

    command: str
    turn: int
    position: str
    succeeded: int = 0
    failed: int = 0
    outcome: Outcome = "ok"
    exit_code: int | None = None
    error: str = ""


class Attempt(Struct, kw_only=True, omit_defaults=True):
    """Something tried that failed. `solved` when the same succeeded later."""

    what: str
    error: str
    turn: int
    position: str
    times: int = 1
    solved: bool = False


class Decision(Struct, kw_only=True, omit_defaults=True):
    """A sentence in which the agent or the user says what was settled."""

    text: str
    turn: int
    position: str


class PendingCall(Struct, kw_only=True, omit_defaults=True):
    """A call whose result is not known yet."""

    kind: ToolKind
    what: str  # the command, or tool and path
    turn: int
    position: str
    command: str = ""
    cwd: str = ""
    paths: list[str] = field(default_factory=list)


class Spent(Struct, kw_only=True, omit_defaults=True):
    """Tokens and cost of one model answer, as last told."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float = 0.0


class Digest(Struct, kw_only=True, omit_defaults=True):
    """One session so far."""

    agent: str = ""
    session_id: str = ""
    agent_version: str | None = None
    model: str | None = None
    models: list[str] = field(default_factory=list)
    thinking: str | None = None
    name: str | None = None
    cwd: str = ""
    branch: str | None = None
    started_at: datetime | None = None
    last_at: datetime | None = None
    first_request: str = ""
    last_request: str = ""
    last_answer: str = ""
    turns: list[Turn] = field(default_factory=list)  # the newest ones
    turn_count: int = 0
    files: dict[str, FileTouch] = field(default_factory=dict)
    files_left_out: int = 0
    commands: dict[str, Command] = field(default_factory=dict)
    commands_left_out: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    attempts_left_out: int = 0
    decisions: list[Decision] = field(default_factory=list)
    gates: dict[str, GateState] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)
    pending: dict[str, PendingCall] = field(default_factory=dict)
    tokens: Tokens = Tokens()
    cost_usd: float | None = None
    answers: dict[str, Spent] = field(default_factory=dict)  # of the newest model answers
    interruptions: int = 0
    api_errors: int = 0
    api_error: str = ""
    compactions: int = 0
    plan_updates: int = 0
    open_turn: bool = False

    @property
    def turn(self) -> Turn | None:
        """The newest turn."""
        return self.turns[-1] if self.turns else None


def relative(path: str, root: str) -> str | None:
    """The path below `root`; None for one outside. A path that is not absolute counts from the root."""
    if not path.startswith("/"):
        return None if path == ".." or path.startswith("../") else path
    prefix = root.rstrip("/") + "/"
    return path[len(prefix) :] if path.startswith(prefix) and len(path) > len(prefix) else None


def touched(digest: Digest, root: str) -> dict[str, FileTouch]:
    """The files below `root` that the session wrote, by their path there."""
    found = ((relative(path, root), touch) for path, touch in digest.files.items())
    return {path: touch for path, touch in found if path is not None}


def working_commands(digest: Digest) -> Iterator[Command]:
    """Commands whose last run succeeded, newest first."""
    return (command for command in reversed(digest.commands.values()) if command.outcome == "ok" and command.succeeded)
