"""What holds for every sequence of inputs."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model.events import (
    AssistantText,
    Compacted,
    Event,
    Interrupted,
    Position,
    SessionEnded,
    ToolCall,
    ToolResult,
    TurnEnded,
    UserTurn,
    is_work,
)
from checkpointd.model.session import (
    BootChanged,
    Burst,
    Entered,
    HeadMoved,
    Input,
    LogEvent,
    Policy,
    ProcessBound,
    ProcessGone,
    Seen,
    SessionState,
    Tick,
    advance,
)
from checkpointd.model.triggers import TriggerRequest, coalesce, strength

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
POLICY = Policy()
COMMANDS = ("rm -rf src", "true", "git status", "pytest -q")


@st.composite
def inputs(draw: st.DrawFn) -> list[Input]:
    """A life of up to 25 inputs in which time never goes back; now and then a record has no time."""
    made: list[Input] = [Seen(now=START, replay=draw(st.booleans()))]
    now, offset = START, 0
    for _ in range(draw(st.integers(0, 25))):
        now += timedelta(seconds=draw(st.sampled_from([0.01, 0.4, 3, 60, 1000, 8000])))
        kind = draw(st.sampled_from(["log"] * 12 + ["seen", "tick", "burst", "head", "bind", "gone", "boot", "enter"]))
        match kind:
            case "seen":
                made.append(Seen(now=now, replay=draw(st.booleans())))
            case "tick":
                made.append(Tick(now=now))
            case "burst":
                made.append(Burst(at=now, deleted=9, worktree=draw(st.sampled_from(["", "w1"]))))
            case "head":
                made.append(HeadMoved(at=now, sideways=draw(st.booleans())))
            case "bind":
                made.append(ProcessBound(pid=draw(st.sampled_from([7, 8])), started=1.0))
            case "gone":
                made.append(ProcessGone(at=now, pid=draw(st.sampled_from([7, 8, None]))))
            case "boot":
                made.append(BootChanged(now=now))
            case "enter":
                made.append(Entered(worktree=draw(st.sampled_from(["w1", "w2"])), root="/p", now=now))
            case _:
                offset += 1
                at = draw(st.sampled_from([now, now, now, None]))
                made.append(LogEvent(event=draw(events(Position(0, offset), at)), now=now))
    return made


@st.composite
def events(draw: st.DrawFn, position: Position, at: datetime | None) -> Event:
    side = draw(st.sampled_from(["", "", "", "a1"]))
    common = {"position": position, "at": at, "sidechain": side}
    kind = draw(
        st.sampled_from(
            [UserTurn, AssistantText, ToolCall, ToolResult, TurnEnded, SessionEnded, Compacted, Interrupted]
        )
    )
    if kind in (UserTurn, AssistantText):
        return kind(**common, text="text")
    if kind is ToolCall:
        command = draw(st.sampled_from(COMMANDS))
        return ToolCall(**common, call_id=f"c{position.offset}", tool="Bash", kind="shell", command=command, cwd="/p")
    if kind is ToolResult:
        outcome = draw(st.sampled_from(["ok", "failed"]))
        return ToolResult(**common, call_id=f"c{position.offset - 1}", outcome=outcome, exit_code=outcome == "failed")
    return kind(**common)


def run(state: SessionState, given_inputs: list[Input]) -> tuple[SessionState, list[tuple[TriggerRequest, ...]]]:
    made = []
    for one in given_inputs:
        state, requests = advance(state, one, POLICY)
        made.append(requests)
    return state, made


@settings(deadline=None, max_examples=60)
@given(inputs())
def test_turn_numbers_never_fall(life: list[Input]) -> None:
    state, turn = SessionState(), 0
    for one in life:
        state, requests = advance(state, one, POLICY)
        assert state.turn >= turn
        assert all(turn <= request.turn <= state.turn for request in requests)
        turn = state.turn


@settings(deadline=None, max_examples=60)
@given(inputs())
def test_between_two_ends_there_is_work(life: list[Input]) -> None:
    _, made = run(SessionState(), life)
    worked = False
    for one, requests in zip(life, made, strict=True):
        worked = worked or (isinstance(one, LogEvent) and is_work(one.event))
        ends = [request for request in requests if request.trigger == "session-end"]
        assert len(ends) <= worked
        worked = worked and not ends


@settings(deadline=None, max_examples=60)
@given(inputs())
def test_nothing_is_asked_for_while_old_records_are_read(life: list[Input]) -> None:
    _, made = run(SessionState(), life)
    live = False
    for one, requests in zip(life, made, strict=True):
        live = not one.replay if isinstance(one, Seen) else live
        assert live or not requests


@settings(deadline=None, max_examples=60)
@given(inputs())
def test_every_destructive_call_of_a_live_session_makes_one_request(life: list[Input]) -> None:
    _, made = run(SessionState(), life)
    asked = [request.call_id for requests in made for request in requests if request.call_id]
    live = False
    expected = []
    for one in life:
        live = not one.replay if isinstance(one, Seen) else live
        if live and isinstance(one, LogEvent) and isinstance(one.event, ToolCall) and one.event.command == COMMANDS[0]:
            expected.append(one.event.call_id)
    assert asked == expected


@settings(deadline=None, max_examples=60)
@given(inputs())
def test_no_cause_is_asked_for_twice_even_when_all_is_read_again(life: list[Input]) -> None:
    log = [one for one in life if isinstance(one, LogEvent)]
    _, made = run(SessionState(), [Seen(now=START, replay=False), *log[:15], *log[:15]])
    keys = [request.key() for requests in made for request in requests]
    assert len(keys) == len(set(keys))


@settings(deadline=None, max_examples=50)
@given(inputs(), st.data())
def test_a_stored_and_restored_state_goes_on_the_same(life: list[Input], data: st.DataObject) -> None:
    end, made = run(SessionState(), life)
    cut = data.draw(st.integers(0, len(life)))
    state, first = run(SessionState(), life[:cut])
    state = msgspec.json.decode(msgspec.json.encode(state), type=SessionState)
    state, second = run(state, life[cut:])
    assert first + second == made
    assert state == end


@settings(deadline=None, max_examples=50)
@given(inputs())
def test_coalescing_loses_no_trigger(life: list[Input]) -> None:
    _, made = run(SessionState(), life)
    requests = [request for each in made for request in each]
    records = coalesce(requests)
    named = {trigger for record in records for trigger in (record.request.trigger, *record.also)}
    assert named == {request.trigger for request in requests}
    for record in records:
        order = [strength(trigger) for trigger in (record.request.trigger, *record.also)]
        assert order == sorted(set(order))
