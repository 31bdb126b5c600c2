"""Claude Code's logs as events."""

import json
from pathlib import Path

import pytest

from checkpointd.agents.claude import Claude
from checkpointd.agents.claude_parser import ClaudeParser
from checkpointd.model.events import (
    ApiError,
    AssistantText,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    PlanItem,
    PlanUpdated,
    Position,
    PromptQueued,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnEnded,
    Usage,
    UserTurn,
    is_work,
)
from support.logs import events_of, only

SESSION = "11111111-2222-4333-8444-555555555555"


def feed(*records: dict[str, object], parser: ClaudeParser | None = None) -> list[Event]:
    parser = parser or ClaudeParser()
    return [
        event
        for number, record in enumerate(records)
        for event in parser.feed(json.dumps(record, separators=(",", ":")).encode(), Position(0, number))
    ]


def user(content: object, **more: object) -> dict[str, object]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def result(text: object, *, error: bool = True, **more: object) -> dict[str, object]:
    return user([{"type": "tool_result", "tool_use_id": "t1", "content": text, "is_error": error}], **more)


def test_a_session_is_told_once_with_its_place() -> None:
    assert [
        (event.session_id, event.cwd, event.branch, event.agent_version)
        for event in only(events_of("claude-current"), SessionStarted)
    ] == [(SESSION, "/home/dev/project", "main", "2.1.332")]


def test_turns_are_what_a_person_typed() -> None:
    assert [turn.text for turn in only(events_of("claude-current"), UserTurn)] == [
        "add a greeting and test it",
        "and a farewell",
    ]
    assert [turn.text for turn in only(events_of("claude-older"), UserTurn)] == ["fix the parser"]


@pytest.mark.parametrize(
    "record",
    [
        user("x", isMeta=True),
        user("x", isCompactSummary=True),
        user("x", isSidechain=True),
        user("x", origin={"kind": "task-notification"}),
        user("x", turnOrigin="hook"),
        user("<command-name>/clear</command-name>"),
        user("<local-command-stdout>ok</local-command-stdout>"),
        user("Implement the following plan:\n1. x"),
        user([{"type": "text", "text": "<system-reminder>x</system-reminder>"}]),
    ],
)
def test_what_no_person_typed_is_no_turn(record: dict[str, object]) -> None:
    assert only(feed(record), UserTurn) == []


def test_a_prompt_from_the_command_line_or_with_only_an_image_is_a_turn() -> None:
    assert len(only(feed(user("go", turnOrigin="sdk", promptSource="sdk")), UserTurn)) == 1
    assert len(only(feed(user([{"type": "image", "source": {}}])), UserTurn)) == 1


def test_calls_name_their_commands_and_files() -> None:
    calls = {call.call_id: call for call in only(events_of("claude-current"), ToolCall)}
    assert (calls["toolu_1"].kind, calls["toolu_1"].paths) == ("write", ("/home/dev/project/hello.py",))
    assert (calls["toolu_2"].kind, calls["toolu_2"].command) == ("shell", "pytest -q")
    assert calls["toolu_5"].kind == "other"
    assert calls["toolu_7"].cwd == "/home/dev/project/docs"


def test_results_tell_failures_from_refusals_and_from_what_was_never_run() -> None:
    outcomes = {end.call_id: (end.outcome, end.exit_code) for end in only(events_of("claude-current"), ToolResult)}
    assert outcomes == {
        "toolu_1": ("ok", None),
        "toolu_2": ("failed", 2),
        "toolu_3": ("aborted", None),
        "toolu_4": ("denied", None),
        "toolu_5": ("ok", None),
        "toolu_6": ("ok", None),
        "toolu_7": ("ok", None),  # grep found nothing: no failure, and no code either
    }


@pytest.mark.parametrize(
    ("record", "outcome", "code"),
    [
        (result("Exit code 137\nkilled"), "failed", 137),
        (result("Error: Exit code 1"), "failed", 1),
        (result("ls: no such file"), "failed", None),  # 1.0.x
        (result("<tool_use_error>File has not been read yet.</tool_use_error>"), "failed", None),
        (result("<tool_use_error>Cancelled: parallel tool call Bash(x) errored</tool_use_error>"), "aborted", None),
        (result("x", toolUseResult="User rejected tool use"), "denied", None),
        (result("x", toolDenialKind="user-rejected"), "denied", None),
        (result("Claude requested permissions to use Bash, but you haven't granted it yet."), "denied", None),
        (result("x", permissionDecision={"decision": "reject"}), "denied", None),
        (result("[Request interrupted by user for tool use]"), "aborted", None),
        (result("half", error=False, toolUseResult={"stdout": "half", "interrupted": True}), "aborted", None),
        (result([{"type": "text", "text": "Exit code 4"}]), "failed", 4),
        (result("ok", error=False, toolUseResult=[{"type": "text", "text": "ok"}]), "ok", None),
    ],
)
def test_outcomes(record: dict[str, object], outcome: str, code: int | None) -> None:
    (end,) = only(feed(record), ToolResult)
    assert (end.outcome, end.exit_code) == (outcome, code)


def test_a_successful_command_has_exit_code_0_unless_it_runs_on() -> None:
    call = {
        "type": "assistant",
        "message": {
            "id": "m",
            "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "x"}}],
        },
    }
    done = result("", error=False, toolUseResult={"stdout": "", "interrupted": False})
    later = result("", error=False, toolUseResult={"stdout": "", "backgroundTaskId": "b1"})
    assert [end.exit_code for end in only(feed(call, done, call, later), ToolResult)] == [0, None]


def test_a_result_names_the_files_it_wrote() -> None:
    changed = result(
        "", error=False, toolUseResult={"stdout": "", "bashEditDiff": {"changedFiles": ["/p/a", {"path": "/p/b"}]}}
    )
    assert only(feed(changed), ToolResult)[0].paths == ("/p/a", "/p/b")
    assert only(events_of("claude-current"), ToolResult)[0].paths == ("/home/dev/project/hello.py",)


def test_long_output_keeps_its_head_and_its_tail() -> None:
    (end,) = only(feed(result("Exit code 1\n" + "x" * 200_000 + "the end")), ToolResult)
    assert len(end.text) < 70_000
    assert end.text.startswith("Exit code 1")
    assert end.text.endswith("the end")


def test_tokens_count_by_message_and_the_greatest_figure_is_told() -> None:
    usages = [usage for usage in only(events_of("claude-current"), Usage) if not usage.cumulative]
    assert [usage.output for usage in usages if usage.message == "msg_1"] == [3, 12, 40]
    assert [usage.output for usage in usages if usage.message == "msg_2"] == [10]


def test_the_end_of_the_log_holds_the_totals() -> None:
    events = events_of("claude-current")
    (total,) = [usage for usage in only(events, Usage) if usage.cumulative]
    assert (total.input, total.output, total.cache_read, total.cache_write, total.cost_usd) == (700, 90, 350, 49, 0.25)
    assert isinstance(events[-1], SessionEnded)


def test_a_turn_ends_once_and_after_its_last_text() -> None:
    events = events_of("claude-current")
    (ended,) = only(events, TurnEnded)
    text = only(events, AssistantText)[-1]
    assert text.text == "All done."
    assert events.index(ended) > events.index(text)


def test_a_session_that_goes_on_can_end_again() -> None:
    parser = ClaudeParser()
    end = {"type": "cost-state", "totalCostUSD": 1.0}
    assert len(only(feed(end, end, parser=parser), SessionEnded)) == 1
    assert len(only(feed(user("more"), end, parser=parser), SessionEnded)) == 1


def test_an_interrupt_is_told_and_is_no_turn() -> None:
    assert len(only(events_of("claude-current"), Interrupted)) == 1
    assert len(only(events_of("claude-older"), Interrupted)) == 1


def test_compaction_is_told_with_its_trigger_and_its_summary_is_no_turn() -> None:
    assert [event.trigger for event in only(events_of("claude-current"), Compacted)] == ["auto"]


def test_queued_prompts_are_told_when_typed_and_when_taken() -> None:
    queued = only(events_of("claude-current"), PromptQueued)
    assert [(prompt.text, prompt.taken) for prompt in queued] == [("and a farewell", False), ("and a farewell", True)]


def test_titles_and_changes_of_place_are_told_and_a_typed_title_stays() -> None:
    changes = only(events_of("claude-current"), ContextChanged)
    assert [change.name for change in changes if change.name] == ["Greeting", "greet"]
    assert [(change.cwd, change.branch) for change in changes if change.cwd] == [("/home/dev/project/docs", "topic")]
    assert not any(is_work(change) for change in changes)


def test_plans_come_whole_or_task_by_task() -> None:
    assert [plan.items for plan in only(events_of("claude-current"), PlanUpdated)] == [
        (PlanItem(id="1", text="Say farewell", state="open"),),
        (PlanItem(id="1", text="Say farewell", state="done"),),
    ]
    (plan,) = only(events_of("claude-older"), PlanUpdated)
    assert [(item.text, item.state) for item in plan.items] == [("find it", "done"), ("fix it", "doing")]
    assert not plan.partial


def test_requests_that_failed_are_told_as_tried_again_or_final() -> None:
    assert [(error.message, error.final) for error in only(events_of("claude-current"), ApiError)] == [
        ("Overloaded", False)
    ]
    assert [error.final for error in only(events_of("claude-older"), ApiError)] == [True]


def test_sub_agents_are_told_apart() -> None:
    older = events_of("claude-older")
    (call,) = [call for call in only(older, ToolCall) if call.sidechain]
    (end,) = [end for end in only(older, ToolResult) if end.sidechain]
    assert call.sidechain == end.sidechain
    own = events_of("claude-subagent")
    assert {event.sidechain for event in own} == {"a7f3"}
    assert only(own, SessionStarted)[0].session_id == SESSION
    assert only(own, UserTurn) == []


def test_what_a_sub_agent_does_is_not_told_twice_from_its_progress() -> None:
    assert len([call for call in only(events_of("claude-older"), ToolCall) if call.call_id == "toolu_s"]) == 1


def test_keys_in_any_order_and_marks_inside_objects_hide_no_record() -> None:
    line = b'{"message":{"content":"hi","role":"user"},"extra":{"type":"attachment"},"type":"user","uuid":"u"}'
    assert [type(event) for event in ClaudeParser().feed(line, Position(0, 0))] == [UserTurn]


def test_a_parser_goes_on_with_what_another_remembered() -> None:
    first, second = ClaudeParser(), ClaudeParser()
    call = {
        "type": "assistant",
        "sessionId": "s",
        "cwd": "/p",
        "message": {
            "id": "m",
            "model": "x",
            "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "x"}}],
        },
    }
    feed(call, parser=first)
    blob = first.state()
    assert len(blob) < 1000
    second.restore(blob)
    done = result("", error=False, sessionId="s", cwd="/p", toolUseResult={"stdout": ""})
    assert [type(event) for event in feed(done, parser=second)] == [ToolResult]
    second.restore(b"of another version")
    assert only(feed(done, parser=second), SessionStarted)


def test_paths_tell_logs_and_sessions() -> None:
    project = Path("/home/dev/.claude/projects/-home-dev-project")
    main = project / f"{SESSION}.jsonl"
    sub = project / SESSION / "subagents/agent-a7.jsonl"
    deep = project / SESSION / "subagents/workflows/run1/agent-b2.jsonl"
    claude = Claude()
    assert all(claude.is_log(path) for path in (main, sub, deep, project / "agent-old.jsonl"))
    assert [claude.session_of(path) for path in (main, sub, deep)] == [SESSION] * 3
    assert claude.session_of(project / "agent-old.jsonl") is None
    for other in ("memory/notes.jsonl", f"{SESSION}/subagents/workflows/run1/journal.jsonl", f"{SESSION}.json"):
        assert not claude.is_log(project / other)
