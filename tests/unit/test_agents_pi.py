"""pi's logs as events."""

import json

from checkpointd.agents.pi import session_in
from checkpointd.agents.pi_parser import PiParser
from checkpointd.model.events import (
    ApiError,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    Position,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnEnded,
    Usage,
    UserTurn,
)
from support.logs import events_of, only


def feed(*records: dict[str, object]) -> list[Event]:
    parser = PiParser(session_in)
    return [
        event
        for number, record in enumerate(records)
        for event in parser.feed(json.dumps(record).encode(), Position(0, number))
    ]


def test_the_header_names_session_place_and_parent() -> None:
    (started,) = only(events_of("pi-current"), SessionStarted)
    assert (started.session_id[-4:], started.cwd, (started.parent or "")[-4:]) == ("0001", "/home/dev/project", "0000")


def test_an_old_log_without_ids_is_read() -> None:
    events = events_of("pi-old")
    assert only(events, SessionStarted)[0].model == "m0"
    assert [turn.text for turn in only(events, UserTurn)] == ["hello"]
    assert [call.paths for call in only(events, ToolCall)] == [("x.txt",)]
    assert len(only(events, TurnEnded)) == 1


def test_results_tell_failures_from_what_the_user_stopped() -> None:
    ends = {end.call_id: (end.outcome, end.exit_code) for end in only(events_of("pi-current"), ToolResult)}
    assert ends == {
        "c1": ("failed", 1),
        "c2": ("ok", None),
        "c3": ("ok", 0),
        "00000010": ("ok", 0),
        "c4": ("aborted", None),
    }


def test_a_command_of_the_user_is_a_call_and_its_result_at_one_place() -> None:
    events = events_of("pi-current")
    (call,) = [call for call in only(events, ToolCall) if call.tool == "bashExecution"]
    (end,) = [end for end in only(events, ToolResult) if end.call_id == call.call_id]
    assert (call.command, call.kind, call.position) == ("git status", "shell", end.position)


def test_an_answer_that_failed_is_final_only_when_it_was_never_tried_again() -> None:
    errors = [(error.message, error.final) for error in only(events_of("pi-current"), ApiError)]
    assert errors == [("503 overloaded", False), ("401 unauthorized", False), ("401 unauthorized", True)]


def test_turns_end_with_the_answer_and_interrupts_do_not() -> None:
    events = events_of("pi-current")
    assert len(only(events, TurnEnded)) == 2
    assert len(only(events, Interrupted)) == 1


def test_names_models_levels_and_compactions_are_told() -> None:
    events = events_of("pi-current")
    changes = only(events, ContextChanged)
    assert [change.model for change in changes if change.model] == ["m1"]
    assert [change.thinking for change in changes if change.thinking] == ["high"]
    assert [change.name for change in changes if change.name] == ["the fix"]
    assert len(only(events, Compacted)) == 1


def test_tokens_and_cost_come_with_each_answer() -> None:
    usage = only(events_of("pi-current"), Usage)[0]
    assert (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cost_usd) == (500, 42, 50, 1, 0.25)


def test_an_extension_that_blocked_a_call_is_a_refusal() -> None:
    message: dict[str, object] = {
        "role": "toolResult",
        "toolCallId": "c",
        "content": [{"type": "text", "text": "Tool execution was blocked: not today"}],
        "isError": True,
    }
    (end,) = only(feed({"type": "message", "id": "e", "message": message}), ToolResult)
    assert end.outcome == "denied"
