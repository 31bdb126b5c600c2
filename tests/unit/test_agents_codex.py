"""Codex's rollouts as events."""

import json
from pathlib import Path

import pytest
import zstandard

from checkpointd.agents.codex import Codex
from checkpointd.agents.codex_outputs import command_line
from checkpointd.agents.codex_parser import CodexParser
from checkpointd.agents.registry import open_log
from checkpointd.model.events import (
    ApiError,
    AssistantText,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    PlanUpdated,
    Position,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnEnded,
    Usage,
    UserTurn,
)
from support.logs import events_of, only, sample

THREAD = "01900000-0000-7000-8000-000000000001"
ALL = ["codex-paginated", "codex-code-mode", "codex-legacy", "codex-bare"]


def feed(*records: tuple[str, dict[str, object]], parser: CodexParser | None = None) -> list[Event]:
    parser = parser or CodexParser()
    return [
        event
        for number, (kind, payload) in enumerate(records)
        for event in parser.feed(json.dumps({"type": kind, "payload": payload}).encode(), Position(0, number))
    ]


def ends(events: list[Event]) -> dict[str, tuple[str, int | None]]:
    return {end.call_id: (end.outcome, end.exit_code) for end in only(events, ToolResult)}


@pytest.mark.parametrize("name", ALL)
def test_every_generation_names_its_session_and_place(name: str) -> None:
    events = events_of(name)
    (started,) = only(events, SessionStarted)
    assert (started.session_id, started.branch) == (THREAD, "main" if name == "codex-bare" else "topic")
    places = [started.cwd, *(change.cwd for change in only(events, ContextChanged))]
    assert "/home/dev/project" in places


@pytest.mark.parametrize(
    ("name", "turns", "texts"),
    [
        ("codex-paginated", ["fix it"], ["Looking.", "# Plan\n1. rest", "Done."]),
        ("codex-code-mode", ["tidy up"], []),
        ("codex-legacy", ["run the tests"], ["Running."]),
        ("codex-bare", ["list the files"], ["There are none."]),
    ],
)
def test_what_is_written_twice_is_told_once(name: str, turns: list[str], texts: list[str]) -> None:
    events = events_of(name)
    assert [turn.text for turn in only(events, UserTurn)] == turns
    assert [text.text for text in only(events, AssistantText)] == texts


@pytest.mark.parametrize("name", ALL)
def test_each_call_is_told_once_and_before_its_one_result(name: str) -> None:
    events = events_of(name)
    calls = [call.call_id for call in only(events, ToolCall)]
    results = [end.call_id for end in only(events, ToolResult)]
    assert len(set(calls)) == len(calls)
    assert sorted(results) == sorted(calls)
    for end in only(events, ToolResult):
        (call,) = [call for call in only(events, ToolCall) if call.call_id == end.call_id]
        assert events.index(call) < events.index(end)


def test_paginated_results() -> None:
    events = events_of("codex-paginated")
    assert ends(events) == {
        "c0": ("ok", None),
        "c1": ("failed", 1),
        "c2": ("ok", None),
        "c3": ("denied", None),  # refused by its own rules: no item
        "c4": ("failed", None),  # a patch that does not apply: no item
        "c5": ("aborted", -1),  # killed when Codex left, after the turn
    }
    (patch,) = [end for end in only(events, ToolResult) if end.call_id == "c2"]
    assert patch.paths == ("/home/dev/project/src/a.py", "/home/dev/project/src/b.py")


def test_a_call_is_told_before_its_command_runs() -> None:
    call = {
        "type": "function_call",
        "name": "exec_command",
        "arguments": '{"cmd": "rm -rf src", "workdir": "/p"}',
        "call_id": "c1",
    }
    (told,) = feed(("response_item", call))
    assert isinstance(told, ToolCall)
    assert (told.kind, told.command, told.cwd) == ("shell", "rm -rf src", "/p")


def test_scripts_are_told_as_the_commands_they_ran() -> None:
    events = events_of("codex-code-mode")
    assert [(call.call_id, call.tool, call.command) for call in only(events, ToolCall)] == [
        ("exec-0001", "exec_command", "ls"),
        ("k2", "exec", None),  # failed before it ran anything
        ("exec-0002", "apply_patch", None),
    ]
    assert ends(events)["k2"] == ("failed", None)
    assert {event.position for event in events if getattr(event, "call_id", "") == "exec-0001"} == {
        only(events, ToolCall)[0].position
    }
    assert len(only(events, Interrupted)) == 1


def test_legacy_results() -> None:
    events = events_of("codex-legacy")
    assert ends(events) == {
        "c1": ("failed", 1),
        "c2": ("aborted", None),
        "c3": ("ok", None),
        "c4": ("failed", 2),  # in the background: its end is in the output of c5
        "c5": ("ok", None),
    }
    assert [call.command for call in only(events, ToolCall)][:2] == ["pytest", "sleep 60"]
    assert only(events, ToolCall)[1].cwd == "/home/dev/project/sub"
    assert only(events, SessionStarted)[0].parent == "01900000-0000-7000-8000-00000000000f"


def test_a_request_that_failed_ends_the_turn_with_a_final_error() -> None:
    events = events_of("codex-legacy")
    assert [(error.message, error.final) for error in only(events, ApiError)] == [("stream disconnected", True)]
    assert isinstance(events[-1], TurnEnded)


@pytest.mark.parametrize("name", ["codex-paginated", "codex-legacy"])
def test_a_compaction_is_told_once(name: str) -> None:
    assert len(only(events_of(name), Compacted)) == 1


def test_tokens_are_totals_without_what_was_cached() -> None:
    totals = only(events_of("codex-paginated"), Usage)
    assert [(usage.input, usage.cache_read, usage.output) for usage in totals] == [(60, 40, 9), (160, 140, 29)]
    assert all(usage.cumulative for usage in totals)


def test_plans_are_told_whole() -> None:
    (plan,) = only(events_of("codex-paginated"), PlanUpdated)
    assert [(item.text, item.state) for item in plan.items] == [("look", "done"), ("fix", "doing")]


def test_a_sub_agent_belongs_to_the_thread_that_spawned_it() -> None:
    meta: dict[str, object] = {
        "id": "child",
        "cwd": "/p",
        "source": {"subagent": {"thread_spawn": {"parent_thread_id": "parent", "depth": 1}}},
    }
    started, turn = feed(("session_meta", meta), ("event_msg", {"type": "user_message", "message": "look"}))
    assert isinstance(started, SessionStarted)
    assert (started.session_id, started.parent, started.sidechain, turn.sidechain) == (
        "parent", "parent", "child", "child",
    )  # fmt: skip
    other: dict[str, object] = {"id": "x", "source": {"subagent": {"other": "review"}}, "parent_thread_id": "parent"}
    assert feed(("session_meta", other))[0].sidechain == "x"
    assert feed(("session_meta", {"id": "x", "source": "vscode"}))[0].sidechain == ""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("Process exited with code 0\nOutput:\nProcess exited with code 1", ("ok", 0)),
        ("Exit code: 3\nWall time: 0 seconds\nOutput:\n", ("failed", 3)),
        ("exec command rejected by user", ("denied", None)),
        ("aborted by user after 3.2s", ("aborted", None)),
        ("unsupported call: frobnicate", ("failed", None)),
        ({"content": "no such tool", "success": False}, ("failed", None)),
        ([{"type": "input_text", "text": "fine"}], ("ok", None)),
        (17, ("ok", None)),
    ],
)
def test_ends_are_read_from_the_output_where_there_is_nothing_else(
    output: object, expected: tuple[str, int | None]
) -> None:
    call = {"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"x"}', "call_id": "c"}
    events = feed(
        ("response_item", call), ("response_item", {"type": "function_call_output", "call_id": "c", "output": output})
    )
    assert ends(events) == {"c": expected}


def test_a_shells_script_is_the_command() -> None:
    assert command_line(["/bin/bash", "-lc", "a && b"]) == "a && b"
    assert command_line(["git", "commit", "-m", "two words"]) == "git commit -m 'two words'"


def test_unknown_kinds_are_counted_by_where_they_are() -> None:
    parser = CodexParser()
    feed(
        ("event_msg", {"type": "item_completed", "item": {"type": "Hologram", "id": "h"}}),
        ("event_msg", {"type": "novelty"}),
        ("response_item", {"type": "novelty"}),
        ("novelty", {"x": 1}),
        parser=parser,
    )
    assert set(parser.counts.unknown) == {"item/Hologram", "event_msg/novelty", "response_item/novelty", "novelty"}


@pytest.mark.parametrize("limit", [50, 1 << 20])
def test_a_compressed_rollout_is_read_once_as_a_log_that_is_over(tmp_path: Path, limit: int) -> None:
    plain = sample("codex-paginated")
    packed = tmp_path / f"rollout-2026-06-01T10-00-00-{THREAD}.jsonl.zst"
    packed.write_bytes(zstandard.compress(plain.read_bytes()))
    adapter = Codex()
    log = open_log(packed, adapter)
    events: list[Event] = []
    while (batch := log.read(limit, now=0.0)).more:
        events += batch.events
    assert events + batch.events == events_of("codex-paginated")
    assert open_log(packed, adapter, log.cursor()).read(now=0.0).events == []


def test_a_damaged_compressed_rollout_is_unreadable(tmp_path: Path) -> None:
    packed = tmp_path / f"rollout-2026-06-01T10-00-00-{THREAD}.jsonl.zst"
    packed.write_bytes(b"not compressed at all")
    assert open_log(packed, Codex()).read(now=0.0).status == "unreadable"
    packed.unlink()
    assert open_log(packed, Codex()).read(now=0.0).status == "missing"
