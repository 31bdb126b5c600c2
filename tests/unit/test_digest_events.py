"""What a digest counts."""

from datetime import UTC, datetime, timedelta
from itertools import count

import msgspec
import pytest

from checkpointd.model.digest import Digest, relative, touched, working_commands
from checkpointd.model.events import (
    ApiError,
    AssistantText,
    ContextChanged,
    Event,
    Interrupted,
    PlanItem,
    PlanUpdated,
    Position,
    PromptQueued,
    SessionStarted,
    ToolCall,
    ToolResult,
    TurnEnded,
    Usage,
    UserTurn,
)
from checkpointd.summaries.digest import observe
from checkpointd.summaries.wording import error_head, line
from checkpointd.summaries.worktype import guess

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
TOKEN = "ghp_" + "a1B2" * 9


class Log:
    """Events one after the other into one digest."""

    def __init__(self) -> None:
        self.digest = Digest()
        self.offsets = count()

    def say(self, kind: type[Event], /, **fields: object) -> "Log":
        offset = next(self.offsets)
        known = {"position": Position(0, offset, f"r{offset}"), "at": START + timedelta(seconds=offset)}
        observe(self.digest, kind(**(known | fields)))
        return self

    def run(self, command: str, outcome: str = "ok", text: str = "", exit_code: int | None = None) -> "Log":
        name = f"c{next(self.offsets)}"
        self.say(ToolCall, call_id=name, tool="Bash", kind="shell", command=command)
        return self.say(ToolResult, call_id=name, outcome=outcome, text=text, exit_code=exit_code)

    def write(self, path: str, outcome: str | None = "ok") -> "Log":
        name = f"c{next(self.offsets)}"
        self.say(ToolCall, call_id=name, tool="Write", kind="write", paths=(path,))
        return self.say(ToolResult, call_id=name, outcome=outcome) if outcome else self


@pytest.fixture
def log() -> Log:
    return Log().say(SessionStarted, session_id="s", cwd="/p").say(UserTurn, text="add a parser")


def test_first_and_last_words_of_the_user_are_kept(log: Log) -> None:
    log.say(UserTurn, text="and test it").say(UserTurn, text="sub-agent's task", sidechain="a1")
    assert (log.digest.first_request, log.digest.last_request) == ("add a parser", "and test it")
    assert [turn.number for turn in log.digest.turns] == [1, 2]


def test_no_secret_gets_in(log: Log) -> None:
    log.say(UserTurn, text=f"use {TOKEN}").say(AssistantText, text=f"Decision: use {TOKEN}")
    log.say(PromptQueued, text=f"and {TOKEN}").say(ApiError, message=TOKEN)
    log.run(f"curl -H 'Authorization: {TOKEN}' x", "failed", f"Error: bad token {TOKEN}", 1)
    log.say(PlanUpdated, items=(PlanItem(id="1", text=f"rotate {TOKEN}", state="open"),))
    assert b"a1B2a1B2" not in msgspec.json.encode(log.digest)


def test_a_secret_that_the_cut_goes_through_is_not_kept_in_half() -> None:
    for length in range(370, 440):
        assert "a1B2" not in line(" " * length + TOKEN + " and more" * 20, 100)


def test_a_write_is_likely_until_its_result_makes_it_certain(log: Log) -> None:
    log.write("a.py", None)
    assert log.digest.files["/p/a.py"].certainty == "likely"
    log.write("a.py")
    assert log.digest.files["/p/a.py"].certainty == "certain"
    assert log.digest.turns[-1].files == ["/p/a.py"]


def test_a_refused_write_touched_nothing(log: Log) -> None:
    log.write("a.py", "denied")
    assert log.digest.files == {}
    assert log.digest.turns[-1].files == []


def test_files_are_told_by_their_path_below_the_root(log: Log) -> None:
    log.write("src/../a.py").write("/elsewhere/b.py").write("/p/src/c.py")
    assert set(touched(log.digest, "/p/")) == {"a.py", "src/c.py"}
    assert relative("../x", "/p") is None


def test_a_command_is_known_by_its_last_run(log: Log) -> None:
    log.run("make", "failed", "gcc: fatal error: no input files\nExit code 4", 4).run("make").run("ls", "failed", "", 2)
    assert [command.command for command in working_commands(log.digest)] == ["make"]
    attempt = log.digest.attempts[0]
    assert (attempt.what, attempt.error, attempt.solved) == ("make", "gcc: fatal error: no input files", True)
    assert not log.digest.attempts[1].solved
    assert log.digest.turns[-1].results == ["make: exit 4", "make: ok", "ls: exit 2"]


def test_the_same_failure_is_counted_not_listed(log: Log) -> None:
    for _ in range(3):
        log.run("make", "failed", "error: x", 2)
    assert [(attempt.what, attempt.times) for attempt in log.digest.attempts] == [("make", 3)]


def test_refusals_and_aborts_are_not_failures(log: Log) -> None:
    log.run("make", "denied").run("make", "aborted")
    assert log.digest.attempts == []
    assert list(working_commands(log.digest)) == []


def test_the_newest_plan_holds(log: Log) -> None:
    log.say(PlanUpdated, items=(PlanItem(id="1", text="a", state="open"), PlanItem(id="2", text="b", state="open")))
    log.say(PlanUpdated, items=(PlanItem(id="2", text="b", state="done"),), partial=True)
    assert [(task.id, task.state) for task in log.digest.tasks] == [("1", "open"), ("2", "done")]
    log.say(PlanUpdated, items=())
    assert log.digest.tasks == []


def test_a_prompt_is_undelivered_until_it_is_sent_or_removed(log: Log) -> None:
    log.say(PromptQueued, text="one").say(PromptQueued, text="two").say(PromptQueued, text="three")
    log.say(UserTurn, text="one").say(PromptQueued, text="two", taken=True)
    assert log.digest.queued == ["three"]


def test_of_one_answers_token_counts_the_greatest_counts(log: Log) -> None:
    for output in (10, 40, 25):
        log.say(Usage, message="m1", input=100, output=output, cost_usd=output / 100)
    log.say(Usage, message="m2", input=1, output=2)
    assert (log.digest.tokens.input, log.digest.tokens.output) == (101, 42)
    assert log.digest.cost_usd == pytest.approx(0.4)


def test_totals_replace_what_was_counted(log: Log) -> None:
    log.say(Usage, message="m1", input=100, output=10).say(Usage, message="", cumulative=True, cost_usd=0.5)
    log.say(Usage, message="", cumulative=True, input=500)
    assert (log.digest.tokens.input, log.digest.tokens.output, log.digest.cost_usd) == (500, 10, 0.5)


def test_context_and_ends_are_followed(log: Log) -> None:
    log.say(ContextChanged, model="m1", branch="main").say(ContextChanged, model="m2", cwd="/p/sub")
    assert (log.digest.models, log.digest.model, log.digest.branch) == (["m1", "m2"], "m2", "main")
    assert log.digest.open_turn
    log.say(Interrupted)
    assert (log.digest.interruptions, log.digest.open_turn, log.digest.turns[-1].interrupted) == (1, False, True)


@pytest.mark.parametrize(
    "text",
    [
        "Decision: sqlite, since one writer is enough",
        "I've decided to use sqlite because one writer is enough.",
        "Entscheidung: sqlite",
        "决定：使用 sqlite",
    ],
)
def test_a_decision_is_kept_as_it_was_said(log: Log, text: str) -> None:
    log.say(AssistantText, text=f"Looking at it.\n{text}\nNow the code.")
    assert [decision.text for decision in log.digest.decisions] == [text]


@pytest.mark.parametrize(
    ("output", "head"),
    [
        ("E       AssertionError: assert 1 == 2\nFAILED t.py::x - Assert", "AssertionError: assert 1 == 2"),
        ("compiling\nsrc/a.c:3: error: expected ';'\nmake: *** [all]\nExit code 2", "src/a.c:3: error: expected ';'"),
        ("all is odd\n\n", "all is odd"),
        ("", ""),
    ],
)
def test_the_telling_line_of_an_output_is_found(output: str, head: str) -> None:
    assert error_head(output, 200) == head


def test_memory_is_bounded(log: Log) -> None:
    for number in range(300):
        log.say(UserTurn, text=f"turn {number}").run(f"make {number}", "failed", f"error: {number}", 1)
        log.write(f"f{number}.py").say(Usage, message=f"m{number}", input=1)
    digest = log.digest
    assert (digest.turn_count, len(digest.turns)) == (301, 60)
    assert len(digest.commands) + digest.commands_left_out == 300
    assert len(digest.attempts) + digest.attempts_left_out == 300
    assert digest.tokens.input == 300
    for number in range(2100):
        log.write(f"g{number}.py")
    assert len(digest.files) == 2000


def test_a_stored_digest_goes_on_the_same(log: Log) -> None:
    log.write("a.py", None).run("make", "failed", "error: x", 2).say(Usage, message="m", output=3)
    other = Log()
    other.digest = msgspec.json.decode(msgspec.json.encode(log.digest), type=Digest)
    for one in (log, other):
        one.offsets = count(1000)
        one.run("make").say(Usage, message="m", output=5).say(TurnEnded)
    assert log.digest == other.digest


@pytest.mark.parametrize(
    ("request_text", "path", "kind"),
    [
        ("add a parser", "a.py", "code_change"),
        ("fix the failing test", "a.py", "debugging"),
        ("please review PR #12", None, "review"),
        ("what does this do?", None, "question"),
        ("wie funktioniert das?", None, "question"),
        ("write a design for the store", "docs/store.md", "design"),
        ("make a plan for the release", None, "planning"),
        ("请审查这段代码", None, "review"),
    ],
)
def test_the_work_type_follows_from_words_and_files(request_text: str, path: str | None, kind: str) -> None:
    log = Log().say(SessionStarted, session_id="s", cwd="/p").say(UserTurn, text=request_text)
    if path:
        log.write(path)
    assert guess(log.digest) == kind


def test_without_a_request_there_is_no_work_type() -> None:
    assert guess(Digest()) is None
