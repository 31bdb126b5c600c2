"""The session state machine, case by case."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from checkpointd.model.events import (
    ApiError,
    AssistantText,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    Position,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnEnded,
    UserTurn,
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
    is_known,
)
from checkpointd.model.triggers import TriggerRequest

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
POLICY = Policy()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Session:
    """A session that is fed by hand: each record gets the next offset and second."""

    def __init__(self, *, live: bool = True) -> None:
        self.state = SessionState()
        self.offset = 0
        if live:
            self.give(Seen(now=START, replay=False))

    def give(self, *inputs: Input) -> list[TriggerRequest]:
        made: list[TriggerRequest] = []
        for given in inputs:
            self.state, requests = advance(self.state, given, POLICY)
            made += requests
        return made

    def log(self, *kinds: type[Event], seconds: float | None = None, **fields: object) -> list[str]:
        return [request.trigger for kind in kinds for request in self.event(kind, seconds, **fields)]

    def event(self, kind: type[Event], seconds: float | None = None, /, **fields: object) -> list[TriggerRequest]:
        self.offset += 1
        when = at(self.offset if seconds is None else seconds)
        defaults: dict[type[Event], dict[str, object]] = {
            UserTurn: {"text": "do it"},
            AssistantText: {"text": "done"},
            ToolCall: {"call_id": f"c{self.offset}", "tool": "Bash", "kind": "shell", "command": "true"},
            ToolResult: {"call_id": f"c{self.offset}", "outcome": "ok"},
            ApiError: {"message": "overloaded"},
            SessionStarted: {"session_id": "s"},
        }
        known = {"position": Position(0, self.offset), "at": when}
        return self.give(LogEvent(event=kind(**(known | defaults.get(kind, {}) | fields))))

    def remove(self, seconds: float, command: str = "rm -rf src") -> list[TriggerRequest]:
        return self.event(ToolCall, seconds, command=command)


@pytest.fixture
def session() -> Session:
    """A live session in its first turn."""
    session = Session()
    session.log(UserTurn, ToolCall, ToolResult)
    return session


# Baseline and turns


def test_first_work_makes_the_baseline() -> None:
    session = Session()
    assert session.log(SessionStarted, ContextChanged) == []
    assert session.log(UserTurn) == ["baseline"]
    assert session.state.phase == "working"
    assert session.state.turn == 1


def test_a_finished_answer_and_the_next_request_make_one_turn_record(session: Session) -> None:
    (request,) = session.event(TurnEnded)
    assert (request.trigger, request.turn) == ("turn", 1)
    assert session.log(UserTurn) == []
    assert session.state.turn == 2


def test_the_next_request_closes_a_turn_that_was_never_finished(session: Session) -> None:
    (request,) = session.event(UserTurn)
    assert (request.trigger, request.turn) == ("turn", 1)


def test_two_requests_with_nothing_between_make_no_record() -> None:
    session = Session()
    assert session.log(UserTurn, UserTurn) == ["baseline"]


def test_a_second_end_mark_of_one_answer_makes_no_record(session: Session) -> None:
    assert session.log(AssistantText, TurnEnded, AssistantText, TurnEnded, TurnEnded) == ["turn"]


def test_work_after_the_answer_makes_another_record_of_the_turn(session: Session) -> None:
    assert session.log(TurnEnded, ToolCall, ToolResult, TurnEnded) == ["turn", "turn"]


def test_an_interrupted_turn_is_recorded_when_the_user_speaks_again(session: Session) -> None:
    assert session.log(Interrupted) == []
    assert session.state.phase == "waiting"
    assert session.log(UserTurn) == ["turn"]


def test_a_model_that_cannot_be_reached_leaves_the_session_waiting(session: Session) -> None:
    session.log(ApiError)
    assert session.state.phase == "working"
    session.log(ApiError, final=True)
    assert session.state.phase == "waiting"


def test_sub_agents_have_no_turns(session: Session) -> None:
    assert session.log(UserTurn, TurnEnded, SessionEnded, Compacted, sidechain="a1") == []
    assert session.state.turn == 1
    assert session.state.phase == "working"


def test_compaction_is_recorded(session: Session) -> None:
    assert session.log(Compacted) == ["pre-compact"]


# Old logs


def test_an_old_log_makes_state_and_no_requests() -> None:
    session = Session(live=False)
    session.give(Seen(now=START, replay=True))
    assert session.log(UserTurn, ToolCall, TurnEnded, UserTurn, Compacted, SessionEnded) == []
    assert session.remove(7) == []
    assert session.state.phase == "quiet"
    assert session.state.turn == 2


def test_an_old_session_taken_up_again_gets_its_baseline_and_goes_on_counting() -> None:
    session = Session(live=False)
    session.log(UserTurn, ToolCall, TurnEnded)
    session.give(Seen(now=at(10), replay=False))
    assert session.log(UserTurn) == ["baseline"]
    assert session.state.turn == 2


def test_metadata_does_not_wake_an_old_session() -> None:
    session = Session()
    assert session.log(ContextChanged, SessionStarted) == []
    assert session.state.phase == "quiet"


def test_a_log_that_is_read_again_makes_nothing_twice(session: Session) -> None:
    session.event(TurnEnded)
    for offset, kind in enumerate((UserTurn, ToolCall, TurnEnded)):
        fields = {"text": "do it"} if kind is UserTurn else {}
        if kind is ToolCall:
            fields = {"call_id": "c", "tool": "Bash", "kind": "shell", "command": "rm -rf src"}
        event = kind(position=Position(1, offset), at=at(offset + 1), **fields)
        assert session.give(LogEvent(event=event)) == []
        assert is_known(session.state, event)
    assert session.state.turn == 1
    event = UserTurn(position=Position(1, 4), at=at(60), text="next")
    session.give(LogEvent(event=event))
    assert not is_known(session.state, event)
    assert session.state.turn == 2


def test_the_cause_is_the_records_own_id_where_it_has_one(session: Session) -> None:
    (request,) = session.event(TurnEnded, position=Position(0, 99, "u7"))
    assert request.position == "u7"
    session.event(ToolCall)
    (request,) = session.event(TurnEnded, position=Position(2, 120))
    assert request.position == "2:120"


# Destruction


def test_a_destructive_command_asks_for_the_files_from_before_it(session: Session) -> None:
    (request,) = session.remove(10)
    assert request.trigger == "pre-destructive"
    assert (request.state, request.before) == ("before", at(10))
    assert "rm -rf src" in request.reason


def test_overwriting_a_captured_file_is_destructive_and_writing_a_new_one_is_not(session: Session) -> None:
    session.give(Entered(worktree="w1", root="/p", now=at(4)))
    call = ToolCall(
        position=Position(0, 50), at=at(10), call_id="c", tool="b", kind="shell", command="> a.py", cwd="/p"
    )
    assert session.give(LogEvent(event=call, exists=lambda path: path == "b.py")) == []
    assert len(session.give(LogEvent(event=call, exists=lambda path: path == "a.py"))) == 1


def test_a_command_in_the_reason_holds_no_secret(session: Session) -> None:
    (request,) = session.remove(10, "rm -rf src && TOKEN=ghp_" + "a1B2" * 9 + " ./run")
    assert "a1B2a1B2" not in request.reason


def test_two_destructive_calls_of_one_record_are_two_causes(session: Session) -> None:
    calls = [
        ToolCall(position=Position(0, 50, "m"), at=at(10), call_id=name, tool="b", kind="shell", command="rm -rf src")
        for name in ("c1", "c2")
    ]
    requests = session.give(*(LogEvent(event=call) for call in calls))
    assert len({request.position for request in requests}) == 2


def test_a_burst_after_its_command_only_amends_it(session: Session) -> None:
    (call,) = session.remove(10)
    (burst,) = session.give(Burst(at=at(10.2), deleted=7, paths=("src/a.py",)))
    assert burst.amends == call.position
    assert burst.reason == "7 paths deleted at once: src/a.py, …"


def test_a_command_after_its_burst_only_amends_it(session: Session) -> None:
    (burst,) = session.give(Burst(at=at(9.8), deleted=7))
    assert (burst.trigger, burst.state, burst.before, burst.amends) == ("pre-destructive", "before", at(9.8), "")
    (call,) = session.remove(10)
    assert call.amends == burst.position
    assert call.before == at(9.8)


def test_each_of_two_commands_makes_its_record_whatever_bursts_come_between(session: Session) -> None:
    made = session.remove(10)
    made += session.give(Burst(at=at(10.1), deleted=7))
    made += session.remove(12)
    made += session.give(Burst(at=at(12.1), deleted=7))
    assert [bool(request.amends) for request in made] == [False, True, False, True]


def test_a_second_burst_after_a_pause_makes_a_record_of_its_own(session: Session) -> None:
    made = session.give(Burst(at=at(10), deleted=7))
    made += session.remove(10.2)
    made += session.give(Burst(at=at(13), deleted=7))
    made += session.remove(13.2)
    assert [bool(request.amends) for request in made] == [False, True, False, True]


def test_deletions_that_go_on_are_one_burst(session: Session) -> None:
    made = session.give(*(Burst(at=at(10 + step / 2), deleted=7) for step in range(20)))
    assert [bool(request.amends) for request in made] == [False] + [True] * 19


def test_a_burst_while_nobody_works_is_the_users_own(session: Session) -> None:
    session.log(TurnEnded)
    assert session.give(Burst(at=at(60), deleted=100)) == []


def test_a_burst_seen_after_the_end_of_the_turn_it_was_in_counts(session: Session) -> None:
    session.log(TurnEnded)
    session.give(ProcessGone(at=at(5)))
    assert len(session.give(Burst(at=at(3.5), deleted=100))) == 1


def test_a_destructive_command_read_after_the_process_was_gone_counts_but_wakes_nothing(session: Session) -> None:
    session.give(ProcessGone(at=at(20)))
    assert [request.trigger for request in session.remove(19)] == ["pre-destructive"]
    assert session.state.phase == "ended"


def test_the_work_tree_is_that_of_the_commands_directory(session: Session) -> None:
    session.give(Entered(worktree="w1", root="/p", now=at(4)), Entered(worktree="w2", root="/p/sub", now=at(4)))
    (request,) = session.event(ToolCall, command="rm -rf src", cwd="/p/sub/x")
    assert request.worktree == "w2"
    (request,) = session.event(ToolCall, command="rm -rf src", cwd="/elsewhere")
    assert request.worktree == "w1"


def test_head_moving_sideways_is_recorded_from_before(session: Session) -> None:
    assert session.give(HeadMoved(at=at(5), sideways=False)) == []
    (request,) = session.give(HeadMoved(at=at(6), sideways=True))
    assert (request.trigger, request.state, request.before) == ("head-moved", "before", at(6))


# Failures


def failing(session: Session, text: str, times: int = 3) -> list[TriggerRequest]:
    made = []
    for _ in range(times):
        session.offset += 1
        name = f"f{session.offset}"
        made += session.event(ToolCall, None, call_id=name, command=f"pytest -q  # {TOKEN}")
        made += session.event(ToolResult, None, call_id=name, outcome="failed", exit_code=1, text=text)
    return made


RED = "E   AssertionError: assert 1 == 2\nFAILED tests/test_a.py::test_x - assert 1 == 2\n1 failed in 0.1s"
TOKEN = "ghp_" + "a1B2" * 9


def test_the_third_failure_in_a_row_is_recorded_once(session: Session) -> None:
    assert failing(session, RED, 2) == []
    (request,) = failing(session, RED, 3)
    assert (request.trigger, request.state) == ("repeated-failure", "now")
    assert "assert 1 == 2" in request.reason


def test_what_is_stored_of_failures_holds_no_secret(session: Session) -> None:
    failing(session, f"Error: {TOKEN} was refused\n{RED.replace('1 == 2', TOKEN)}")
    session.event(ToolCall, None, command=f"curl -H 'Authorization: Bearer {TOKEN}' x")
    assert b"a1B2a1B2" not in msgspec.json.encode(session.state)


def test_a_review_that_asks_for_changes_is_recorded(session: Session) -> None:
    (request,) = session.event(AssistantText, None, text="Verdict: REQUEST_CHANGES")
    assert request.trigger == "request-changes"


# Ends


def test_an_end_mark_ends_once(session: Session) -> None:
    session.give(ProcessBound(pid=7, started=1.0))
    assert session.log(SessionEnded, SessionEnded, reason="exit") == ["session-end"]
    assert session.give(ProcessGone(at=at(60), pid=7)) == []
    assert session.state.ended == "marker"


def test_the_bound_process_ends_the_session_and_no_other_does(session: Session) -> None:
    session.give(ProcessBound(pid=7, started=1.0))
    assert session.give(ProcessGone(at=at(60), pid=8)) == []
    (request,) = session.give(ProcessGone(at=at(60), pid=7))
    assert (request.trigger, request.position) == ("session-end", at(60).isoformat())
    assert session.give(ProcessGone(at=at(61), pid=7)) == []


def test_a_finished_turn_ends_after_fifteen_minutes_of_silence(session: Session) -> None:
    session.log(TurnEnded, seconds=100)
    assert session.give(Tick(now=at(100 + 899))) == []
    (request,) = session.give(Tick(now=at(100 + 900)))
    assert request.trigger == "session-end"
    assert session.state.ended == "idle"


def test_an_open_turn_is_given_two_hours(session: Session) -> None:
    assert session.give(Tick(now=at(7100))) == []
    assert len(session.give(Tick(now=at(7300)))) == 1


def test_work_takes_the_end_back(session: Session) -> None:
    session.log(TurnEnded)
    session.give(Tick(now=at(2000)))
    assert session.log(UserTurn, seconds=2100) == []
    assert (session.state.phase, session.state.ended) == ("working", None)
    assert [request.trigger for request in session.give(Tick(now=at(20000)))] == ["session-end"]


def test_a_new_boot_ends_what_was_live(session: Session) -> None:
    assert [request.trigger for request in session.give(BootChanged(now=at(9)))] == ["session-end"]
    assert Session().give(BootChanged(now=at(9))) == []


def test_a_result_after_the_answer_opens_no_turn(session: Session) -> None:
    session.log(TurnEnded, ToolResult)
    assert session.state.phase == "waiting"


# Work trees


def test_every_work_tree_gets_one_baseline() -> None:
    session = Session()
    session.give(Entered(worktree="w1", root="/p", now=START))
    (first,) = session.event(UserTurn)
    (second,) = session.give(Entered(worktree="w2", root="/q", now=at(3)))
    assert (first.worktree, second.worktree) == ("w1", "w2")
    assert session.give(Entered(worktree="w2", root="/q", now=at(4))) == []


def test_a_work_tree_known_only_later_takes_the_baseline_over() -> None:
    session = Session()
    (first,) = session.event(UserTurn)
    assert first.worktree == ""
    assert session.give(Entered(worktree="w1", root="/p", now=at(2))) == []
