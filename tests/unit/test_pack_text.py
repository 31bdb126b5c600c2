"""The resume pack and the page, word for word and under pressure."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from checkpointd.model.checkpoint import (
    Cause,
    CoverageCounts,
    FileChange,
    GateState,
    GitState,
    ProjectRef,
    Record,
    SessionRef,
    Task,
)
from checkpointd.model.digest import Attempt, Command, Decision, Digest, Turn
from checkpointd.model.pack import RULE, Drift, build
from checkpointd.summaries.page import checkpoint_md
from checkpointd.summaries.summary import summary_yaml
from checkpointd.text.tokens import estimate

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def record() -> Record:
    return Record(
        id="ckpt-20261130-120000-0a1b2c3d",
        seq=7,
        name="2026-11-30-1200",
        title="2026-11-30 12:00",
        created_at=NOON,
        source="checkpointd:turn",
        trigger="turn",
        cause=Cause(worktree="w1"),
        reason="The agent finished its answer",
        project=ProjectRef(id="p1", root="/home/u/p", name="p", kind="git", worktree="w1"),
        git=GitState(branch="main", head="1234567890abcdef"),
        session=SessionRef(agent="claude", id="s1"),
        turn=2,
        work_type="code_change",
        files_changed=(
            FileChange(path="src/parser.py", change="add", added=40, removed=0, session="s1", certainty="certain"),
            FileChange(path="README.md", change="modify", added=1, removed=1),
        ),
        files_changed_total=2,
        tests=(
            GateState(
                gate="pytest", command="pytest -q", colour="red", failing=("t.py::test_x",), error="assert 1 == 2"
            ),
        ),
        tasks=(
            Task(id="1", text="Write the parser", state="done"),
            Task(id="2", text="Test it", state="doing"),
            Task(id="3", text="Speed it up", state="cancelled"),
        ),
        undelivered=("and document it",),
        coverage=CoverageCounts(captured=12, skipped={"ignored": 3}),
        tree="t",
    )


def digest() -> Digest:
    return Digest(
        first_request="add a parser",
        last_request="now test it",
        last_answer="One test is still red.",
        turn_count=2,
        turns=[
            Turn(number=1, request="add a parser", position="u1", files=["/home/u/p/src/parser.py"]),
            Turn(number=2, request="now test it", position="u2"),
        ],
        attempts=[
            Attempt(what="make", error="no rule", turn=1, position="r1", solved=True),
            Attempt(what="pytest -q", error="assert 1 == 2", turn=2, position="r2", times=2),
        ],
        commands={
            "ls": Command(command="ls", turn=1, position="r0", succeeded=1),
            "make": Command(command="make", turn=1, position="r1", succeeded=1, failed=1),
            "pytest -q": Command(command="pytest -q", turn=2, position="r2", failed=2, outcome="failed"),
        },
        decisions=[Decision(text="Decision: recursive descent, for its messages", turn=1, position="a1")],
    )


GOLDEN = f"""\
{RULE}
You take over work from checkpoint ckpt-20261130-120000-0a1b2c3d (2026-11-30 12:00).
It was saved on 2026-11-30 12:00 UTC in a session of claude, turn 2.

What you are doing:
> add a parser
> now test it

Where it stands:
- Branch main at 1234567890
- Saved because: The agent finished its answer (turn)
- The agent's last words: One test is still red.

Done:
- Write the parser

Open:
- Test it

Cancelled, do not do it:
- Speed it up

Tried and failed:
- `pytest -q` (2 times): assert 1 == 2
- `make`: no rule, solved since

Decisions:
- Decision: recursive descent, for its messages

Tests:
- `pytest -q` is red: t.py::test_x

Key files:
- RISK: docs/gone.md is missing
- README.md was modified since
- 1 as they were: src/parser.py

Commands that work here:
- `make`

Related sessions:
- s0: the lexer

Next steps:
- Make `pytest -q` green again
- The user had typed, but not sent: and document it

The same conversation can be opened again with: claude --resume s1

How to use this:
- Read CLAUDE.md first.
- Where a file was modified since the checkpoint, its content of now holds; this text is history.
- Trust the files that were not modified since; do not read them again to check.
- Decisions above are settled; do not verify them again. Do not repeat any of this to the user.
- Lost files come back with `ckpt restore ckpt-20261130-120000-0a1b2c3d`, which shows its plan first.

Go on at: Finish the task: Test it
Begin your first answer with the line [RESUMED FROM ckpt-20261130-120000-0a1b2c3d]
{RULE}
"""


def test_the_pack_word_for_word() -> None:
    drift = Drift(unchanged=("src/parser.py",), modified=("README.md",), missing=("docs/gone.md",))
    text = build(
        record(),
        digest(),
        drift,
        related=("s0: the lexer",),
        native=("claude", "--resume", "s1"),
        guides=("CLAUDE.md",),
    )
    assert text == GOLDEN


def test_a_pack_without_a_session_still_says_how_to_go_on() -> None:
    bare = replace(record(), session=None, turn=None, tasks=(), tests=(), undelivered=(), note={"context": "half done"})
    text = build(bare, None, None)
    assert "- Note for you: half done" in text
    assert "Go on at: Ask the user what is next" in text
    assert "Done:" not in text


def test_an_interrupted_turn_goes_on_with_its_request() -> None:
    interrupted = digest()
    interrupted.turns[-1].interrupted = True
    assert "Go on at: Finish what was asked last: now test it" in build(record(), interrupted, None)


@pytest.mark.parametrize("budget", [500, 800, 2000])
def test_a_full_session_fits_the_budget_and_keeps_what_matters(budget: int) -> None:
    full = digest()
    full.attempts = [Attempt(what=f"make t{n}", error="x " * 60, turn=1, position="r") for n in range(50)]
    full.decisions = [Decision(text="because " * 30 + str(n), turn=1, position="a") for n in range(30)]
    full.commands = {str(n): Command(command=f"make c{n}", turn=1, position="r", succeeded=1) for n in range(100)}
    changes = tuple(FileChange(path=f"src/module/file{n}.py", change="modify") for n in range(500))
    tasks = tuple(Task(id=str(n), text=f"do the thing number {n}", state="open") for n in range(100))
    text = build(replace(record(), files_changed=changes, tasks=tasks), full, None, budget, related=["x " * 50] * 5)
    assert estimate(text) <= budget
    assert "> add a parser" in text
    assert text.endswith(f"[RESUMED FROM ckpt-20261130-120000-0a1b2c3d]\n{RULE}\n")
    assert "more)" in text


def test_what_was_left_out_is_counted() -> None:
    full = digest()
    full.attempts = [Attempt(what=f"make t{n}", error="x " * 60, turn=1, position="r") for n in range(50)]
    text = build(record(), full, None, 1000)
    shown = text.count("`make t")
    assert 3 <= shown < 50
    assert f"({50 - shown} more)" in text


PAGE = """\
# 2026-11-30 12:00

`ckpt-20261130-120000-0a1b2c3d` · 2026-11-30 12:00:00 UTC · claude session `s1`, turn 2

**turn**: The agent finished its answer

## What we were working on

> add a parser

and last, in turn 2:

> now test it

The agent's last words: One test is still red.

## Key decisions

- Decision: recursive descent, for its messages

## Files changed

- `src/parser.py`: added, +40 -0, by `s1` (certain)
- `README.md`: changed, +1 -1

## Tests

- `pytest -q`: red: t.py::test_x (assert 1 == 2)

## Issues met and fixes tried

- turn 1: `make`: no rule; solved later
- turn 2: `pytest -q` (2 times): assert 1 == 2

## Tasks

- [x] Write the parser
- [>] Test it
- [-] Speed it up

## Open questions and next steps

- Finish the task: Test it
- Make `pytest -q` green again
- The user had typed, but not sent: and document it

## Not captured

- ignored: 3

`coverage.json` beside this page names each path.

## How to restore

    ckpt restore ckpt-20261130-120000-0a1b2c3d            # shows what it would do, then asks
    ckpt restore ckpt-20261130-120000-0a1b2c3d --to DIR   # into another directory

## Resume pack

```text
PACK
```

"""


def test_the_page_word_for_word() -> None:
    assert checkpoint_md(record(), digest(), "PACK\n").decode() == PAGE


def test_a_page_without_a_session_has_only_what_it_can_say() -> None:
    bare = replace(
        record(), session=None, turn=None, tasks=(), tests=(), undelivered=(), files_changed=(), files_changed_total=0
    )
    page = checkpoint_md(bare, None, "PACK").decode()
    assert "## Tasks" not in page
    assert "## Files changed" not in page
    assert "No session's request is known" in page


SUMMARY = """\
session_id: s1
work_type: code_change
created_at: 2026-11-30T12:00:00+00:00
requests:
  - add a parser
  - now test it
summary:
  files_changed:
    - path: src/parser.py
      change: add
    - path: README.md
      change: modify
  decisions:
    - "Decision: recursive descent, for its messages"
  tests:
    - gate: pytest
      command: pytest -q
      colour: red
dropped:
  - Speed it up
token_size: {size}
relevance_tags:
  - src
sources:
  requests:
    - u1
    - u2
  attempts:
    - r1
    - r2
  decisions:
    - a1
"""


def test_the_summary_word_for_word() -> None:
    text = summary_yaml(record(), digest()).decode()
    size = next(line.split()[1] for line in text.splitlines() if line.startswith("token_size"))
    assert text == SUMMARY.format(size=size)
    assert 30 < int(size) < 200


@pytest.mark.parametrize("kind", ["review", "design", "question", "planning", "debugging"])
def test_every_work_type_has_its_summary(kind: str) -> None:
    text = summary_yaml(replace(record(), work_type=kind), digest()).decode()  # type: ignore[arg-type]
    assert f"work_type: {kind}" in text
    assert "summary:\n" in text
