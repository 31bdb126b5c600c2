"""Events in, digest out: what a session did, counted as its log is read."""

import posixpath
import re
from collections.abc import Callable, Iterable
from typing import Any

from checkpointd.model import gates
from checkpointd.model.checkpoint import GateState, Task, Tokens
from checkpointd.model.digest import Attempt, Command, Decision, Digest, FileTouch, PendingCall, Spent, Turn
from checkpointd.model.events import (
    ApiError,
    AssistantText,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    PlanItem,
    PlanUpdated,
    PromptQueued,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnEnded,
    Usage,
    UserTurn,
    record_position,
)
from checkpointd.summaries.wording import error_head, line

REQUEST_LIMIT = 800
_ANSWER_LIMIT = 600
_COMMAND_LIMIT = 300
_ERROR_LIMIT = 300
_SHORT_LIMIT = 200
_RESULT_LIMIT = 120
_TURNS = 60
_TURN_FILES = 50
_TURN_RESULTS = 12
_FILES = 2000
_COMMANDS = 200
_ATTEMPTS = 50
_DECISIONS = 30
_GATES = 30
_TASKS = 100
_QUEUED = 20
_PENDING = 200
_ANSWERS = 50

_DECIDED = re.compile(
    r"(?im)^[\s*#>-]*(?:(?:\*\*)?(?:decision|decided|entscheidung|决定|決定)(?:\*\*)?\s*[:：].+|"
    r"(?:i|we)(?:'ve| have)? (?:decided|chose|opted)\b.+|(?:ich habe|wir haben) (?:mich|uns) (?:für|entschieden)\b.+|"
    r"我(?:们)?决定.+)$"
)


def observe(digest: Digest, event: Event) -> None:
    """Counts one event in. The order is the log's; each event comes once."""
    if event.at is not None and (digest.last_at is None or event.at > digest.last_at):
        digest.last_at = event.at
    rule = _RULES.get(type(event))
    if rule is not None:
        rule(digest, event)


# The session itself


def _started(digest: Digest, event: SessionStarted) -> None:
    if event.sidechain:
        return
    digest.session_id = digest.session_id or event.session_id
    digest.started_at = digest.started_at or event.at
    _context(digest, event)


def _context(digest: Digest, event: SessionStarted | ContextChanged) -> None:
    if event.sidechain:
        return
    digest.cwd = event.cwd or digest.cwd
    digest.branch = event.branch or digest.branch
    digest.agent_version = event.agent_version or digest.agent_version
    digest.name = line(event.name, _SHORT_LIMIT) if event.name else digest.name
    if isinstance(event, ContextChanged):
        digest.thinking = event.thinking or digest.thinking
    if event.model:
        digest.model = event.model
        if event.model not in digest.models:
            digest.models = [*digest.models, event.model][-_TURN_RESULTS:]


def _user(digest: Digest, event: UserTurn) -> None:
    if event.sidechain:
        return
    request = line(event.text, REQUEST_LIMIT)
    digest.turn_count += 1
    digest.open_turn = True
    digest.first_request = digest.first_request or request
    digest.last_request = request or digest.last_request
    turn = Turn(number=digest.turn_count, request=request, position=record_position(event), at=event.at)
    digest.turns = [*digest.turns, turn][-_TURNS:]
    _unqueue(digest, request)
    _decided(digest, event.text, record_position(event))


def _queued(digest: Digest, event: PromptQueued) -> None:
    text = line(event.text, REQUEST_LIMIT)
    if not event.taken:
        digest.queued = [*digest.queued, text][-_QUEUED:]
    elif text:
        _unqueue(digest, text)
    else:
        digest.queued = digest.queued[1:]


def _unqueue(digest: Digest, text: str) -> None:
    if text in digest.queued:
        digest.queued.remove(text)


def _text(digest: Digest, event: AssistantText) -> None:
    if event.sidechain or not event.text.strip():
        return
    digest.last_answer = line(event.text, _ANSWER_LIMIT)
    if digest.turn is not None:
        digest.turn.answer = digest.last_answer
    _decided(digest, event.text, record_position(event))


def _decided(digest: Digest, text: str, position: str) -> None:
    known = {decision.text for decision in digest.decisions}
    for match in _DECIDED.finditer(text):
        sentence = line(match[0].strip(" \t*#>-"), _ERROR_LIMIT)
        if sentence not in known:
            known.add(sentence)
            digest.decisions.append(Decision(text=sentence, turn=digest.turn_count, position=position))
    del digest.decisions[:-_DECISIONS]


def _interrupted(digest: Digest, event: Interrupted) -> None:
    if event.sidechain:
        return
    digest.interruptions += 1
    digest.open_turn = False
    if digest.turn is not None:
        digest.turn.interrupted = True


def _turn_over(digest: Digest, event: TurnEnded | SessionEnded) -> None:
    if not event.sidechain:
        digest.open_turn = False


def _api_error(digest: Digest, event: ApiError) -> None:
    digest.api_errors += 1
    digest.api_error = line(event.message, _SHORT_LIMIT)


def _compacted(digest: Digest, event: Compacted) -> None:
    digest.compactions += not event.sidechain


def _usage(digest: Digest, event: Usage) -> None:
    if event.cumulative:
        total = digest.tokens
        digest.tokens = Tokens(
            input=event.input or total.input,
            output=event.output or total.output,
            cache_read=event.cache_read or total.cache_read,
            cache_write=event.cache_write or total.cache_write,
        )
        digest.cost_usd = event.cost_usd if event.cost_usd is not None else digest.cost_usd
        return
    old = digest.answers.pop(event.message, Spent()) if event.message else Spent()
    new = Spent(
        input=max(old.input, event.input),
        output=max(old.output, event.output),
        cache_read=max(old.cache_read, event.cache_read),
        cache_write=max(old.cache_write, event.cache_write),
        cost_usd=max(old.cost_usd, event.cost_usd or 0.0),
    )
    if event.message:
        digest.answers[event.message] = new
        _bound(digest.answers, _ANSWERS)
    total = digest.tokens
    digest.tokens = Tokens(
        input=total.input + new.input - old.input,
        output=total.output + new.output - old.output,
        cache_read=total.cache_read + new.cache_read - old.cache_read,
        cache_write=total.cache_write + new.cache_write - old.cache_write,
    )
    if event.cost_usd is not None:
        digest.cost_usd = (digest.cost_usd or 0.0) + new.cost_usd - old.cost_usd


def _planned(digest: Digest, event: PlanUpdated) -> None:
    if event.sidechain:
        return
    digest.plan_updates += 1
    items = [_task(item) for item in event.items]
    if not event.partial:
        digest.tasks = items[:_TASKS]
        return
    merged = {task.id: task for task in digest.tasks}
    merged.update((task.id, task) for task in items)
    digest.tasks = list(merged.values())[-_TASKS:]


def _task(item: PlanItem) -> Task:
    return Task(id=item.id, text=line(item.text, _SHORT_LIMIT), state=item.state)


# Tools


def _called(digest: Digest, event: ToolCall) -> None:
    cwd = event.cwd or digest.cwd
    command = line(event.command, _COMMAND_LIMIT) if event.command else ""
    call = PendingCall(
        kind=event.kind,
        what=command or " ".join((event.tool, *event.paths[:1])),
        turn=digest.turn_count,
        position=record_position(event),
        command=command,
        cwd=cwd,
        paths=[_joined(cwd, path) for path in event.paths[:_TURN_FILES]],
    )
    digest.pending[event.call_id] = call
    _bound(digest.pending, _PENDING)
    if digest.turn is not None:
        digest.turn.tools += 1
    if event.kind == "write":
        _wrote(digest, call, call.paths, confirmed=False)


def _joined(cwd: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(cwd, path)) if path else path


def _resulted(digest: Digest, event: ToolResult) -> None:
    call = digest.pending.pop(event.call_id, None)
    if call is None:
        return
    if event.outcome == "ok":
        paths = [_joined(call.cwd, path) for path in event.paths]
        _wrote(digest, call, [*(call.paths if call.kind == "write" else ()), *paths], confirmed=True)
    elif call.kind == "write":
        _unwrote(digest, call)
    error = error_head(event.text, _ERROR_LIMIT) if event.outcome == "failed" else ""
    if call.kind == "shell":
        _ran(digest, call, event, error)
    if event.outcome == "failed":
        _attempted(digest, call, error)
        if digest.turn is not None:
            digest.turn.failures += 1
    elif event.outcome == "ok":
        _solved(digest, call)


def _wrote(digest: Digest, call: PendingCall, paths: Iterable[str], *, confirmed: bool) -> None:
    for path in dict.fromkeys(paths):
        touch = digest.files.get(path)
        if touch is None:
            if len(digest.files) >= _FILES:
                digest.files_left_out += 1
                continue
            touch = FileTouch(path=path, first_turn=call.turn, last_turn=call.turn, position=call.position)
            digest.files[path] = touch
        touch.last_turn = call.turn
        if confirmed:
            touch.writes += 1
            touch.certainty = "certain"
            touch.position = call.position
        turn = digest.turn
        if turn is not None and path not in turn.files and len(turn.files) < _TURN_FILES:
            turn.files.append(path)


def _unwrote(digest: Digest, call: PendingCall) -> None:
    """A refused or failed write touched nothing; what other calls wrote stays."""
    for path in call.paths:
        touch = digest.files.get(path)
        if touch is not None and not touch.writes:
            del digest.files[path]
            if digest.turn is not None and path in digest.turn.files:
                digest.turn.files.remove(path)


def _ran(digest: Digest, call: PendingCall, result: ToolResult, error: str) -> None:
    old = digest.commands.pop(call.command, None)
    run = old or Command(command=call.command, turn=call.turn, position=call.position)
    run.turn, run.position, run.outcome, run.exit_code = call.turn, call.position, result.outcome, result.exit_code
    run.succeeded += result.outcome == "ok"
    run.failed += result.outcome == "failed"
    run.error = error
    digest.commands[call.command] = run  # at the end: the order is that of the last runs
    digest.commands_left_out += _bound(digest.commands, _COMMANDS)
    if digest.turn is not None:
        digest.turn.results = [*digest.turn.results, f"{call.command[:_RESULT_LIMIT]}: {_how(result)}"][-_TURN_RESULTS:]
    _gate(digest, call, result)


def _how(result: ToolResult) -> str:
    if result.outcome == "failed":
        return f"exit {result.exit_code}" if result.exit_code else "failed"
    return result.outcome


def _gate(digest: Digest, call: PendingCall, result: ToolResult) -> None:
    run = gates.read_run(call.command, call.cwd, result.text, result.exit_code, result.outcome)
    if run is None:
        return
    key = f"{run.gate}\x1f{run.directory}\x1f{run.command}"
    digest.gates.pop(key, None)
    digest.gates[key] = GateState(
        gate=run.gate,
        command=line(run.command, _COMMAND_LIMIT),
        colour=run.colour,
        at=result.at,
        failing=tuple(line(name, _SHORT_LIMIT) for name in run.failing[:20]),
        error=line(run.error, _ERROR_LIMIT),
    )
    _bound(digest.gates, _GATES)


def _attempted(digest: Digest, call: PendingCall, error: str) -> None:
    for attempt in digest.attempts:
        if attempt.what == call.what and attempt.error == error and not attempt.solved:
            attempt.times += 1
            attempt.turn, attempt.position = call.turn, call.position
            return
    digest.attempts.append(Attempt(what=call.what, error=error, turn=call.turn, position=call.position))
    surplus = len(digest.attempts) - _ATTEMPTS
    if surplus > 0:
        digest.attempts_left_out += surplus
        del digest.attempts[:surplus]


def _solved(digest: Digest, call: PendingCall) -> None:
    for attempt in digest.attempts:
        if attempt.what == call.what:
            attempt.solved = True


def _bound(entries: dict[str, Any], limit: int) -> int:
    """Drops the oldest entries past the limit; returns how many."""
    surplus = max(0, len(entries) - limit)
    for key in list(entries)[:surplus]:
        del entries[key]
    return surplus


_RULES: dict[type[Event], Callable[[Digest, Any], None]] = {
    SessionStarted: _started,
    ContextChanged: _context,
    UserTurn: _user,
    PromptQueued: _queued,
    AssistantText: _text,
    PlanUpdated: _planned,
    ToolCall: _called,
    ToolResult: _resulted,
    Usage: _usage,
    Compacted: _compacted,
    Interrupted: _interrupted,
    ApiError: _api_error,
    TurnEnded: _turn_over,
    SessionEnded: _turn_over,
}
