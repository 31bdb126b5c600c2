"""When the same failure again and again is a finding, and when a review's refusal is one."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model.events import (
    AssistantText,
    Event,
    Interrupted,
    Outcome,
    Position,
    ToolCall,
    ToolResult,
    UserTurn,
)
from checkpointd.model.failures import FailureState, Finding, observe

CWD = "/home/ann/shop"
RED = "FAILED tests/a.py::test_x - assert 1 == 2\n1 failed in 0.1s"
OTHER_RED = "FAILED tests/a.py::test_y - KeyError: 'k'\n1 failed in 0.1s"
GREEN = "2 passed in 0.1s"


class Session:
    """Plays calls and results, and keeps what was found."""

    def __init__(self) -> None:
        self.state = FailureState()
        self.findings: list[tuple[int, Finding]] = []
        self.number = 0

    def feed(self, event: Event) -> None:
        self.number += 1
        self.state, findings = observe(self.state, event)
        self.findings += [(self.number, finding) for finding in findings]

    def call(self, call: ToolCall, text: str, outcome: Outcome, code: int | None) -> None:
        self.feed(call)
        self.feed(
            ToolResult(
                position=place(),
                call_id=call.call_id,
                outcome=outcome,
                exit_code=code,
                text=text,
                sidechain=call.sidechain,
            )
        )

    def shell(
        self, command: str, text: str, code: int | None = 1, *, outcome: Outcome | None = None, side: str = ""
    ) -> None:
        call = ToolCall(
            position=place(),
            call_id=f"c{self.number}",
            tool="Bash",
            kind="shell",
            command=command,
            cwd=CWD,
            sidechain=side,
        )
        self.call(call, text, outcome or ("failed" if code else "ok"), code)

    def edit(self, path: str, text: str, outcome: Outcome = "failed") -> None:
        call = ToolCall(position=place(), call_id=f"c{self.number}", tool="Edit", kind="write", paths=(path,))
        self.call(call, text, outcome, None)

    def agent(self, text: str) -> None:
        self.call(ToolCall(position=place(), call_id=f"c{self.number}", tool="Agent", kind="other"), text, "ok", None)

    def say(self, text: str, side: str = "") -> None:
        self.feed(AssistantText(position=place(), text=text, sidechain=side))

    @property
    def triggers(self) -> list[str]:
        return [finding.trigger for _, finding in self.findings]


def place() -> Position:
    return Position(0, 0)


@pytest.fixture
def session() -> Session:
    return Session()


def test_three_in_a_row_fire_once_at_the_third(session: Session) -> None:
    for _ in range(5):
        session.shell("pytest -q", RED)
    assert [number for number, _ in session.findings] == [6]
    finding = session.findings[0][1]
    assert (finding.trigger, finding.gate, finding.failing) == ("repeated-failure", "pytest", ("tests/a.py::test_x",))
    assert "assert 1 == 2" in finding.reason


def test_a_success_begins_the_row_anew(session: Session) -> None:
    for text, code in ((RED, 1), (RED, 1), (GREEN, 0), (RED, 1), (RED, 1)):
        session.shell("pytest -q", text, code)
    assert session.findings == []
    session.shell("pytest -q", RED)
    assert session.triggers == ["repeated-failure"]


def test_another_failure_of_the_gate_begins_the_row_anew(session: Session) -> None:
    for text in (RED, RED, OTHER_RED, RED, RED):
        session.shell("pytest", text)
    assert session.findings == []


def test_other_work_in_between_does_not_matter(session: Session) -> None:
    session.shell("pytest", RED)
    session.edit("a.py", "ok", "ok")
    session.shell("npx eslint .", "", 0)
    session.shell("pytest", RED)
    session.feed(UserTurn(position=place(), text="go on"))
    session.feed(Interrupted(position=place()))
    session.shell("cat nope", "cat: nope: No such file or directory")
    session.shell("pytest", RED)
    assert session.triggers == ["repeated-failure"]


def test_spellings_of_one_command_count_together(session: Session) -> None:
    session.shell("pytest tests/a.py -q", RED)
    session.shell("cd /home/ann/shop && python -m pytest tests/a.py -v 2>&1 | tail -20", RED)
    session.shell("timeout 60 pytest -x tests/a.py", RED)
    assert session.triggers == ["repeated-failure"]


def test_another_selection_does_not_count(session: Session) -> None:
    session.shell("pytest tests/a.py", RED)
    session.shell("pytest tests/b.py", RED)
    session.shell("pytest tests/a.py", RED)
    assert session.findings == []


def test_a_falling_number_of_lint_errors_is_progress(session: Session) -> None:
    for number in (9, 5, 2):
        session.shell("ruff check .", f"F401 `os` imported but unused\n --> a.py:1:8\n\nFound {number} errors.")
    assert session.findings == []
    for _ in range(3):
        session.shell("ruff check .", "F401 `os` imported but unused\n --> a.py:1:8\n\nFound 1 error.")
    assert session.triggers == ["repeated-failure"]


@pytest.mark.parametrize("outcome", ["denied", "aborted"])
def test_refusals_and_aborts_neither_count_nor_reset(session: Session, outcome: Outcome) -> None:
    for _ in range(3):
        session.shell("pytest", "The user doesn't want to proceed", None, outcome=outcome)
    assert session.findings == []
    session.shell("pytest", RED)
    session.shell("pytest", RED)
    session.shell("pytest", "Sibling tool call errored", None, outcome=outcome)
    session.shell("pytest", RED)
    assert session.triggers == ["repeated-failure"]


@pytest.mark.parametrize("command", ["grep -rn x src", "diff a b", "git diff --quiet", "[ -f x ]", "cd src && rg nope"])
def test_an_exit_code_that_answers_is_no_failure(session: Session, command: str) -> None:
    for _ in range(4):
        session.shell(command, "")
    assert session.findings == []


def test_any_other_command_counts_by_its_error(session: Session) -> None:
    for port in (50001, 50002, 50003):
        session.shell("./deploy.sh staging", f"connecting\nerror: 127.0.0.1:{port} refused the connection")
    assert session.findings[0][1].gate == "other"
    for word in ("one", "two", "three"):
        session.shell("./deploy.sh live", f"error: {word}")
    assert len(session.findings) == 1


def test_an_edit_that_cannot_be_applied_counts_by_file_and_message(session: Session) -> None:
    for old in ("a", "b", "c"):
        session.edit(
            "src/a.py", f"<tool_use_error>String to replace not found in file.\nString: {old}</tool_use_error>"
        )
    finding = session.findings[0][1]
    assert (finding.gate, finding.command, finding.error) == (
        "edit",
        "src/a.py",
        "String to replace not found in file.",
    )


def test_edits_of_other_files_are_other_rows(session: Session) -> None:
    for path in ("a.py", "b.py", "a.py"):
        session.edit(path, "<tool_use_error>String to replace not found in file.</tool_use_error>")
    session.edit("a.py", "ok", "ok")
    session.edit("a.py", "<tool_use_error>String to replace not found in file.</tool_use_error>")
    assert session.findings == []


def test_sub_agents_are_counted_apart(session: Session) -> None:
    session.shell("pytest", RED, side="a1")
    session.shell("pytest", RED, side="a2")
    session.shell("pytest", RED)
    session.shell("pytest", RED, side="a1")
    assert session.findings == []
    session.shell("pytest", RED, side="a1")
    assert session.triggers == ["repeated-failure"]


def test_status_lines_count_by_stage(session: Session) -> None:
    for second in range(3):
        session.shell("./ci.sh", f"STAGE=build STATUS=OK\nSTAGE=unit STATUS=FAIL {second}s", 0)
    finding = session.findings[0][1]
    assert (finding.gate, finding.error) == ("STATUS", "STATUS=FAIL stage=unit")


def test_a_stage_that_passes_begins_anew(session: Session) -> None:
    for status in ("FAIL", "FAIL", "PASS", "FAIL", "FAIL"):
        session.shell("./ci.sh", f"[stage: unit] STATUS={status}", 0)
    assert session.findings == []


def test_a_printed_log_is_history(session: Session) -> None:
    for _ in range(3):
        session.shell("cat old.log", "STAGE=unit STATUS=FAIL", 0)
        session.shell("./show", "STAGE=unit STATUS=FAIL\nSTAGE=unit STATUS=FAIL", 0)
    assert session.findings == []


def test_an_agent_that_repeats_a_status_does_not_count_it_twice(session: Session) -> None:
    for _ in range(2):
        session.shell("./ci.sh", "STAGE=unit STATUS=FAIL", 0)
        session.say("STAGE=unit STATUS=FAIL")
    assert session.findings == []


def test_status_lines_of_the_agents_own_text_count(session: Session) -> None:
    for _ in range(3):
        session.shell("./ci.sh", "see the report", 0)
        session.say("STATUS=FAIL stage=unit")
    assert session.triggers == ["repeated-failure"]


@pytest.mark.parametrize(
    "text",
    [
        "**Verdict: BLOCK**\n\n- floats for money",
        "Verdict: REQUEST_CHANGES\n1. no test",
        "## Urteil: REQUEST_CHANGES",
        "REQUEST_CHANGES\n\n- a",
        'Summary.\n"verdict": "REQUEST_CHANGES",',
        "Final verdict: CHANGES REQUESTED",
    ],
)
def test_a_given_verdict_is_a_finding(session: Session, text: str) -> None:
    session.say(text)
    assert session.triggers == ["request-changes"]


@pytest.mark.parametrize(
    "text",
    [
        "A review with REQUEST_CHANGES blocks the merge.",
        "Verdict: APPROVE | REQUEST_CHANGES | BLOCK",
        "Verdict: APPROVE",
        "> Verdict: REQUEST_CHANGES\n\nThat was the last round; both points are fixed.",
        "```\nVerdict: REQUEST_CHANGES\n```",
        "Verdict: REQUEST_CHANGES\n...\nVerdict: APPROVE",
        "I will not block on this.",
    ],
)
def test_talk_about_verdicts_is_none(session: Session, text: str) -> None:
    session.say(text)
    assert session.findings == []


def test_a_reviewing_sub_agents_verdict_counts_in_its_result(session: Session) -> None:
    session.say("Verdict: BLOCK", side="a1")
    assert session.findings == []
    session.agent("Verdict: BLOCK\n- x")
    session.say("Verdict: BLOCK, says the reviewer")
    assert session.triggers == ["request-changes"]


def test_a_pasted_verdict_and_a_posted_one_count(session: Session) -> None:
    session.feed(UserTurn(position=place(), text="Jo says:\n\nVerdict: REQUEST_CHANGES\n1. x"))
    session.shell("gh pr review 12 --request-changes -b 'see comments'", "", 0)
    assert session.triggers == ["request-changes", "request-changes"]


def test_files_that_are_read_give_no_verdict(session: Session) -> None:
    session.call(ToolCall(position=place(), call_id="r", tool="Read", kind="other"), "Verdict: BLOCK", "ok", None)
    assert session.findings == []


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["pytest", "ruff check .", "./x.sh"]),
        st.sampled_from([RED, OTHER_RED, GREEN, "STATUS=FAIL"]),
        st.sampled_from([0, 1]),
        st.sampled_from(["", "a"]),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_a_state_that_was_stored_goes_on_the_same(events: list[tuple[str, str, int, str]]) -> None:
    straight, stored = Session(), Session()
    for command, text, code, side in events:
        straight.shell(command, text, code, side=side)
        stored.shell(command, text, code, side=side)
        stored.state = msgspec.msgpack.decode(msgspec.msgpack.encode(stored.state), type=FailureState)
    assert stored.findings == straight.findings
    assert stored.state == straight.state


def test_the_state_stays_small(session: Session) -> None:
    for number in range(500):
        session.shell(f"./job{number}.sh", f"error: {number}")
        session.feed(ToolCall(position=place(), call_id=f"x{number}", tool="Bash", kind="shell", command="sleep 1"))
    assert len(session.state.rows) <= 200
    assert len(session.state.calls) <= 200
