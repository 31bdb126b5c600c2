"""The life of a session: what its log, its process, the files and silence say becomes triggers.

A pure function: `advance(state, given, policy)` returns the next state and what it asks for. The state is one
value that can be stored at any moment; what is stored and read back goes on as if nothing had happened.

    quiet ──work──▶ working ──turn done──▶ waiting ──end, exit, silence──▶ ended
                       ▲                      │                             │
                       └───────────work───────┴────────────work─────────────┘
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from checkpointd.model import danger, failures
from checkpointd.model.events import (
    ApiError,
    AssistantText,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    PlanUpdated,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnEnded,
    UserTurn,
    is_work,
    record_position,
)
from checkpointd.model.triggers import TriggerRequest
from checkpointd.text.redaction import redact

Phase = Literal["quiet", "working", "waiting", "ended"]
Ending = Literal["marker", "process", "idle", "boot"]

_REMEMBERED = 32
_EXAMPLES = 10
_COMMAND_LIMIT = 160


class Policy(Struct, frozen=True, kw_only=True):
    """The spans that decide."""

    idle: timedelta = timedelta(minutes=15)  # of silence after a finished turn
    idle_open_turn: timedelta = timedelta(hours=2)
    same_destruction: timedelta = timedelta(seconds=5)  # between a command's log line and its effect
    burst_gap: timedelta = timedelta(seconds=1)  # a longer pause between deletions begins another burst


class Process(Struct, frozen=True, kw_only=True):
    """The agent's process that holds this session; `started` tells it from a later one with the same pid."""

    pid: int
    started: float


class WorkTree(Struct, frozen=True, kw_only=True):
    """A work tree that the session works in."""

    id: str
    root: str


class Destruction(Struct, frozen=True, kw_only=True):
    """The last destructive command or deletion burst, so that the two are known as one thing."""

    position: str
    worktree: str
    by: Literal["call", "burst"]
    since: datetime
    until: datetime
    paired: bool = False


class SessionState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that the next input's meaning depends on.

    `quiet`: only known from an old log. `working`: a turn is open. `waiting`: it is done. `ended` is taken back by the
    next work. `live` is false while old records are read: nothing is asked for then.
    """

    phase: Phase = "quiet"
    live: bool = False
    turn: int = 0  # turns begun so far
    turn_recorded: int = 0  # the last one that a finished answer made a record of
    fresh: bool = False  # the agent did something since the last turn record
    cwd: str = ""
    worktrees: tuple[WorkTree, ...] = ()
    baselines: tuple[str, ...] = ()  # ids of the work trees that have one; "" while no work tree is known
    process: Process | None = None
    ended: Ending | None = None
    ended_at: datetime | None = None
    last_at: datetime | None = None  # the last sign of life
    log_at: datetime | None = None  # the newest time in the log
    generation: int = 0
    reread_until: datetime | None = None  # records up to here were read before the log was replaced
    rereading: bool = False
    destruction: Destruction | None = None
    failing: failures.FailureState = failures.FailureState()
    asked: tuple[str, ...] = ()  # keys of the latest requests


class LogEvent(Struct, frozen=True, kw_only=True, tag=True):
    """The log says something; `now` is when it was read.

    `exists` tells whether a path below the root of the call's work tree is among the captured files; without it a
    write over an existing file is taken for a new one.
    """

    event: Event
    now: datetime | None = None
    exists: Callable[[str], bool] | None = None


class Seen(Struct, frozen=True, kw_only=True, tag=True):
    """What is read from here on is old (`replay`), or happens now."""

    now: datetime
    replay: bool


class Entered(Struct, frozen=True, kw_only=True, tag=True):
    """The session turned out to work in this work tree; the first one is its own."""

    worktree: str
    root: str
    now: datetime


class ProcessBound(Struct, frozen=True, kw_only=True, tag=True):
    pid: int
    started: float


class ProcessGone(Struct, frozen=True, kw_only=True, tag=True):
    """What held the session is gone: the process `pid`, or (None) a lock whose going means the same."""

    at: datetime
    pid: int | None = None


class Tick(Struct, frozen=True, kw_only=True, tag=True):
    now: datetime


class Burst(Struct, frozen=True, kw_only=True, tag=True):
    """Many deletions at once, or a directory's; `at` is before the first of them."""

    at: datetime
    deleted: int
    paths: tuple[str, ...] = ()  # examples
    worktree: str = ""


class HeadMoved(Struct, frozen=True, kw_only=True, tag=True):
    """HEAD moved; `at` is before that, `sideways` when the old commit is not an ancestor of the new one."""

    at: datetime
    sideways: bool
    worktree: str = ""


class BootChanged(Struct, frozen=True, kw_only=True, tag=True):
    """The machine was started anew since the state was stored."""

    now: datetime


Input = LogEvent | Seen | Entered | ProcessBound | ProcessGone | Tick | Burst | HeadMoved | BootChanged
Step = tuple[SessionState, tuple[TriggerRequest, ...]]


def advance(state: SessionState, given: Input, policy: Policy) -> Step:
    """The state after one input, and the records that it asks for.

    No request is made twice: the latest are remembered, older ones have the same `position` again, which the
    catalog knows. Feed `ProcessGone` and `BootChanged` after the log was read to its end.
    """
    state, requests = _answer(state, given, policy)
    new = tuple({r.key(): r for r in requests if r.key() not in state.asked}.values())
    if not new:
        return state, ()
    asked = (*state.asked, *(request.key() for request in new))[-_REMEMBERED:]
    return replace(state, asked=asked), new


def is_known(state: SessionState, event: Event) -> bool:
    """Whether the event that `state` was just advanced by had been read before, from an older copy of the log."""
    return state.rereading and not event.sidechain


def is_live(state: SessionState) -> bool:
    """Whether the session's projects are to be kept captured because of it."""
    return state.phase in ("working", "waiting")


def _answer(state: SessionState, given: Input, policy: Policy) -> Step:
    match given:
        case LogEvent():
            return _log(state, given, policy)
        case Seen():
            return replace(state, live=not given.replay), ()
        case Entered():
            return _entered(state, given)
        case ProcessBound():
            return replace(state, process=Process(pid=given.pid, started=given.started)), ()
        case ProcessGone():
            return _process_gone(state, given)
        case Tick():
            return _tick(state, given, policy)
        case Burst():
            return _burst(state, given, policy)
        case HeadMoved():
            return _head_moved(state, given)
        case BootChanged():
            return _ended(state, "boot", given.now, given.now.isoformat(), "The machine was restarted")
        case _:
            assert_never(given)


# What the log says


def _log(state: SessionState, given: LogEvent, policy: Policy) -> Step:
    event = given.event
    state, known = _reread(state, event)
    if known:
        return state, ()
    state = _noted(state, given)
    requests: tuple[TriggerRequest, ...] = ()
    for rule in (_woken, _spoken, _closed, _compacted, _failed):
        state, more = rule(state, event)
        requests += more
    state, more = _destructive(state, given, policy)
    return state, requests + more


def _reread(state: SessionState, event: Event) -> tuple[SessionState, bool]:
    """Whether the event was seen before its log was replaced or truncated and read again from the start.

    Told by time, for the positions are new: what is not younger than the youngest record known is old. A record
    without a time goes with the one before it.
    """
    if event.sidechain:
        return state, False
    if event.position.generation > state.generation:
        again = state.log_at is not None
        state = replace(state, generation=event.position.generation, reread_until=state.log_at, rereading=again)
    if state.reread_until is not None and event.at is not None:
        known = event.at <= state.reread_until
        if known != state.rereading:
            state = replace(state, rereading=known)
    return state, state.rereading


def _noted(state: SessionState, given: LogEvent) -> SessionState:
    event = given.event
    cwd = state.cwd
    if not event.sidechain and isinstance(event, SessionStarted | ContextChanged) and event.cwd:
        cwd = event.cwd
    alive = (given.now or event.at) if state.live else event.at
    return replace(
        state,
        cwd=cwd,
        log_at=_later(state.log_at, event.at),
        last_at=_later(state.last_at, alive) if is_work(event) else state.last_at,
    )


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return max(one, other)


def _woken(state: SessionState, event: Event) -> Step:
    """Work makes a session live. Work from before its end, read late, does not."""
    if not is_work(event) or is_live(state) or (state.phase == "quiet" and not state.live):
        return state, ()
    if state.ended_at is not None and event.at is not None and event.at <= state.ended_at:
        return state, ()
    if state.phase == "quiet":
        state = replace(state, fresh=False, turn_recorded=state.turn)
    state = replace(state, phase="waiting", ended=None, ended_at=None)
    turn = state.turn + (isinstance(event, UserTurn) and not event.sidechain)
    return _baselines(state, record_position(event), event.at, turn)


def _baselines(state: SessionState, position: str, at: datetime | None, turn: int) -> Step:
    if not state.live:
        return state, ()
    ids = [tree.id for tree in state.worktrees] or [""]
    missing = tuple(tree for tree in ids if tree not in state.baselines)
    requests = tuple(
        TriggerRequest(
            trigger="baseline",
            reason="The session is first seen working here",
            position=position,
            at=at,
            turn=turn,
            worktree=tree,
        )
        for tree in missing
    )
    return replace(state, baselines=state.baselines + missing), requests


def _spoken(state: SessionState, event: Event) -> Step:
    """A user turn begins the next turn, and closes the one before where something came of it."""
    if not isinstance(event, UserTurn) or event.sidechain:
        return state, ()
    requests: tuple[TriggerRequest, ...] = ()
    if state.live and is_live(state) and state.fresh:
        requests = (_turn(state, event, "The user spoke again"),)
    phase: Phase = "working" if is_live(state) else state.phase
    return replace(state, turn=state.turn + 1, fresh=False, phase=phase), requests


def _closed(state: SessionState, event: Event) -> Step:
    """Work opens a turn, the agent's or the user's word closes it, and an end mark closes the session."""
    if event.sidechain:
        return replace(state, fresh=state.fresh or isinstance(event, ToolCall | ToolResult)), ()
    match event:
        case TurnEnded() if is_live(state):
            return _answered(state, event)
        case SessionEnded():
            why = f" ({event.reason})" if event.reason else ""
            return _ended(
                state, "marker", event.at, record_position(event), f"The log says that the session is over{why}"
            )
        case Interrupted() | ApiError(final=True) if is_live(state):
            return replace(state, phase="waiting"), ()
        case AssistantText() if is_live(state):
            # A text after the recorded end of a turn changes nothing that the record has not.
            fresh = state.fresh or state.phase == "working"
            return replace(state, phase="working", fresh=fresh), ()
        case ToolCall() | PlanUpdated() if is_live(state):
            return replace(state, phase="working", fresh=True), ()
        case ToolResult() if is_live(state):
            # A result may come after the answer's end (a command left running): it opens no turn.
            return replace(state, fresh=True), ()
    return state, ()


def _answered(state: SessionState, event: TurnEnded) -> Step:
    requests: tuple[TriggerRequest, ...] = ()
    if state.live and (state.fresh or state.turn_recorded < state.turn):
        requests = (_turn(state, event, "The agent finished its answer"),)
    return replace(state, phase="waiting", fresh=False, turn_recorded=state.turn), requests


def _turn(state: SessionState, event: Event, reason: str) -> TriggerRequest:
    return TriggerRequest(trigger="turn", reason=reason, position=record_position(event), at=event.at, turn=state.turn)


def _compacted(state: SessionState, event: Event) -> Step:
    if not isinstance(event, Compacted) or event.sidechain or not _asking(state):
        return state, ()
    how = f" ({event.trigger})" if event.trigger else ""
    request = TriggerRequest(
        trigger="pre-compact",
        reason=f"The agent compacts its context{how}",
        position=record_position(event),
        at=event.at,
        turn=state.turn,
    )
    return replace(state, fresh=True), (request,)


def _asking(state: SessionState) -> bool:
    """Whether events make requests: also after the end, for a log may be read later than its process is seen gone."""
    return state.live and state.phase != "quiet"


def _failed(state: SessionState, event: Event) -> Step:
    """The same failure again and again, and a review's refusal. What was long over is not counted."""
    if state.phase == "quiet":
        return state, ()
    tracker, findings = failures.observe(state.failing, _without_secrets(event))
    if tracker is not state.failing:
        state = replace(state, failing=tracker)
    if not _asking(state):
        return state, ()
    requests = tuple(
        TriggerRequest(
            trigger=finding.trigger,
            reason=_line(finding.reason),
            position=record_position(event),
            at=event.at,
            turn=state.turn,
        )
        for finding in findings
    )
    return state, requests


def _without_secrets(event: Event) -> Event:
    """The event with its text redacted: the tracker keeps commands and errors, and its state is stored."""
    match event:
        case ToolCall() if event.command:
            return replace(event, command=redact(event.command))
        case ToolResult() if event.text:
            return replace(event, text=redact(event.text))
    return event


def _line(text: str, limit: int = _COMMAND_LIMIT * 2) -> str:
    """The text as one redacted line. Redacted before it is cut, or half a secret would pass."""
    line = " ".join(redact(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


# What destroys


def _destructive(state: SessionState, given: LogEvent, policy: Policy) -> Step:
    call = given.event
    if not isinstance(call, ToolCall) or call.kind != "shell" or not call.command or not _asking(state):
        return state, ()
    cwd = call.cwd or state.cwd
    tree = _work_tree(state, cwd)
    verdict = danger.assess(call.command, cwd, tree.root, exists=given.exists)
    if verdict.label != "destroys":
        return state, ()
    at = call.at or given.now
    # Several calls may stand in one record, each with a loss of its own.
    position = f"{record_position(call)}/{call.call_id}"
    request = TriggerRequest(
        trigger="pre-destructive",
        reason=f"`{_line(call.command, _COMMAND_LIMIT)}` ({', '.join(verdict.effects)})",
        position=position,
        at=at,
        state="before" if at else "now",
        before=at,
        turn=state.turn,
        worktree=tree.id,
        paths=(verdict.paths or ())[:_EXAMPLES],
        call_id=call.call_id,
    )
    if at is None:
        return state, (request,)
    last = state.destruction
    if (
        last is not None
        and last.by == "burst"
        and not last.paired
        and _same(last, at, tree.id, policy.same_destruction)
    ):
        state = replace(state, destruction=replace(last, paired=True))
        return state, (replace(request, amends=last.position, before=min(at, last.since)),)
    last = Destruction(position=position, worktree=tree.id, by="call", since=at, until=at)
    return replace(state, destruction=last), (request,)


def _work_tree(state: SessionState, cwd: str) -> WorkTree:
    """The innermost known work tree that holds `cwd`, else the session's first; its id is "" where none is known."""
    if not state.worktrees:
        return WorkTree(id="", root=cwd)
    holding = [tree for tree in state.worktrees if (cwd + "/").startswith(tree.root.rstrip("/") + "/")]
    return max(holding, key=lambda tree: len(tree.root), default=state.worktrees[0])


def _same(last: Destruction, at: datetime, worktree: str, span: timedelta) -> bool:
    near = last.since - span <= at <= last.until + span
    return near and (last.worktree == worktree or "" in (last.worktree, worktree))


def _burst(state: SessionState, given: Burst, policy: Policy) -> Step:
    if not state.live or not _worked_at(state, given.at, policy):
        return state, ()
    request = TriggerRequest(
        trigger="pre-destructive",
        reason=_deleted(given),
        position=given.at.isoformat(),
        at=given.at,
        state="before",
        before=given.at,
        turn=state.turn,
        worktree=given.worktree,
        paths=given.paths[:_EXAMPLES],
    )
    last = state.destruction
    if last is not None and _goes_on(last, given, policy):
        last = replace(last, until=max(last.until, given.at), paired=last.paired or last.by == "call")
        return replace(state, destruction=last), (replace(request, amends=last.position),)
    last = Destruction(position=request.position, worktree=given.worktree, by="burst", since=given.at, until=given.at)
    return replace(state, destruction=last), (request,)


def _goes_on(last: Destruction, burst: Burst, policy: Policy) -> bool:
    """Whether the burst is the effect of the last command, or the rest of the last burst.

    A command claims the first burst near it. After that only an unbroken run of deletions is still the same: some
    agents log a call when it is done, so a pause may hide a second command, and work done in it.
    """
    if last.by == "call" and not last.paired:
        return _same(last, burst.at, burst.worktree, policy.same_destruction)
    return _same(last, burst.at, burst.worktree, policy.burst_gap)


def _worked_at(state: SessionState, at: datetime, policy: Policy) -> bool:
    """Whether the session was at work at that moment; observations come later than what they tell of."""
    if state.phase == "working":
        return True
    if state.phase == "quiet" or state.last_at is None:
        return False
    return at <= state.last_at + (policy.same_destruction if state.phase == "waiting" else timedelta())


def _deleted(burst: Burst) -> str:
    what = "path" if burst.deleted == 1 else "paths"
    examples = ", ".join(burst.paths[:3]) + (", …" if burst.deleted > min(len(burst.paths), 3) else "")
    return _line(f"{burst.deleted} {what} deleted at once" + (f": {examples}" if examples else ""))


def _head_moved(state: SessionState, given: HeadMoved) -> Step:
    if not state.live or not is_live(state) or not given.sideways:
        return state, ()
    request = TriggerRequest(
        trigger="head-moved",
        reason="HEAD moved backwards or sideways",
        position=given.at.isoformat(),
        at=given.at,
        state="before",
        before=given.at,
        turn=state.turn,
        worktree=given.worktree,
    )
    return state, (request,)


# What ends a session, and where it works


def _entered(state: SessionState, given: Entered) -> Step:
    if any(tree.id == given.worktree for tree in state.worktrees):
        return state, ()
    first = not state.worktrees
    state = replace(state, worktrees=(*state.worktrees, WorkTree(id=given.worktree, root=given.root)))
    if first and "" in state.baselines:
        # Its baseline was asked for before anybody knew the tree's name.
        return replace(state, baselines=(given.worktree,)), ()
    if not is_live(state):
        return state, ()
    return _baselines(state, given.now.isoformat(), given.now, state.turn)


def _process_gone(state: SessionState, given: ProcessGone) -> Step:
    if given.pid is not None:
        if state.process is None or state.process.pid != given.pid:
            return state, ()
        state = replace(state, process=None)
    what = "The agent let go of the session" if given.pid is None else f"The agent's process {given.pid} ended"
    return _ended(state, "process", given.at, given.at.isoformat(), what)


def _tick(state: SessionState, given: Tick, policy: Policy) -> Step:
    if not state.live or not is_live(state):
        return state, ()
    if state.last_at is None:
        return replace(state, last_at=given.now), ()
    limit = policy.idle if state.phase == "waiting" else policy.idle_open_turn
    if given.now - state.last_at < limit:
        return state, ()
    where = "a finished turn" if state.phase == "waiting" else "an open turn"
    reason = f"Nothing was heard for {_spelled(limit)} in {where}"
    return _ended(state, "idle", given.now, given.now.isoformat(), reason)


def _spelled(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    return f"{seconds} seconds" if seconds < 120 else f"{seconds // 60} minutes"


def _ended(state: SessionState, ending: Ending, at: datetime | None, position: str, reason: str) -> Step:
    if not is_live(state):
        return state, ()
    requests: tuple[TriggerRequest, ...] = ()
    if state.live:
        requests = (
            TriggerRequest(trigger="session-end", reason=_line(reason), position=position, at=at, turn=state.turn),
        )
    return replace(state, phase="ended", ended=ending, ended_at=at), requests
