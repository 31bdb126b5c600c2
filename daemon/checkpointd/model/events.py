"""What an agent's log says, normalised: one event is one thing that happened.

Adapters in `agents/` make events from log bytes; the session state machine and the
summaries read nothing else. Events hold raw text: it passes the redaction gate
before anything of it is written anywhere.
"""

from datetime import datetime
from typing import Literal

from msgspec import Struct

ToolKind = Literal["shell", "write", "other"]
Outcome = Literal["ok", "failed", "denied", "aborted"]
TaskState = Literal["open", "doing", "done", "cancelled"]


class Position(Struct, frozen=True, order=True):
    """Where in a log a record begins. `generation` grows when the file was replaced or truncated."""

    generation: int
    offset: int
    record: str = ""  # the agent's own id of the record, where it has one


class Event(Struct, frozen=True, kw_only=True, tag=True):
    """The fields every event has. `at` is the log's own time, None where it has none.

    `sidechain` is the id of the sub-agent that the record belongs to, "" for the main conversation.
    """

    position: Position
    at: datetime | None = None
    sidechain: str = ""


class SessionStarted(Event, frozen=True, kw_only=True):
    """The log's header, or the first record that names the session; may come again with more known."""

    session_id: str
    cwd: str | None = None
    branch: str | None = None
    agent_version: str | None = None
    model: str | None = None
    parent: str | None = None  # the session or log this one was forked from
    name: str | None = None


class ContextChanged(Event, frozen=True, kw_only=True):
    """Something that holds from here on; fields that did not change are None."""

    cwd: str | None = None
    branch: str | None = None
    model: str | None = None
    thinking: str | None = None
    agent_version: str | None = None
    name: str | None = None


class UserTurn(Event, frozen=True, kw_only=True):
    """A person (or the command line's prompt) spoke: a new turn begins."""

    text: str


class PromptQueued(Event, frozen=True, kw_only=True):
    """A prompt was typed while the agent was busy; `taken` when it was sent or removed."""

    text: str
    taken: bool = False


class AssistantText(Event, frozen=True, kw_only=True):
    text: str


class PlanItem(Struct, frozen=True, kw_only=True):
    id: str
    text: str
    state: TaskState


class PlanUpdated(Event, frozen=True, kw_only=True):
    """The agent's own todo list, whole (`items` replaces) or in part (`partial`: upsert by id)."""

    items: tuple[PlanItem, ...]
    partial: bool = False


class ToolCall(Event, frozen=True, kw_only=True):
    """A tool was called. For agents that log a call only when it is done, call and result share a position."""

    call_id: str
    tool: str
    kind: ToolKind
    command: str | None = None  # the shell command line, for kind "shell"
    paths: tuple[str, ...] = ()  # files that a "write" names, as the log spells them
    cwd: str | None = None


class ToolResult(Event, frozen=True, kw_only=True):
    """A call ended. Only `failed` is a failure of the environment; denied and aborted are people's decisions."""

    call_id: str
    outcome: Outcome
    exit_code: int | None = None
    text: str = ""  # output, cut to 64 KiB: head and tail kept
    paths: tuple[str, ...] = ()  # files that the result says were written


class Usage(Event, frozen=True, kw_only=True):
    """Tokens of one model answer. `message` is its id: the greatest value of an id counts."""

    message: str
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost_usd: float | None = None
    cumulative: bool = False  # the figures are the session's totals, not one answer's


class Compacted(Event, frozen=True, kw_only=True):
    """The agent forgot, or is about to forget, its context."""

    trigger: str = ""


class ApiError(Event, frozen=True, kw_only=True):
    """The model could not be reached; `final` when the agent gave up."""

    message: str
    final: bool = False


class Interrupted(Event, frozen=True, kw_only=True):
    """The user stopped the agent in mid-turn."""


class TurnEnded(Event, frozen=True, kw_only=True):
    """The agent finished its answer and waits for the user."""


class SessionEnded(Event, frozen=True, kw_only=True):
    """The log itself says that the session is over; a later record takes it back."""

    reason: str = ""


_WORK = (
    UserTurn, PromptQueued, AssistantText, PlanUpdated, ToolCall, ToolResult, Compacted, ApiError, Interrupted,
    TurnEnded,
)  # fmt: skip


def is_work(event: Event) -> bool:
    """Whether the event shows that somebody is at work in the session now. Headers, titles, settings, totals and end
    marks do not: agents add them to old sessions as well."""
    return isinstance(event, _WORK)


def record_position(event: Event) -> str:
    """The event's place in words that stay the same when the log is read again: the record's own id, else
    `generation:offset`; sub-agents' logs count their own bytes."""
    place = event.position
    if place.record:
        return place.record
    where = f"{place.generation}:{place.offset}"
    return f"{event.sidechain}:{where}" if event.sidechain else where
