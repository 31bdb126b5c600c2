"""What a person sees: `$ ckpt ...` and the lines it prints, run against a real server.

In an expected line `…` stands for any text. A line `? N` after a command is its exit status where it is not 0;
lines with `! ` are on stderr.
"""

import fnmatch
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.engine import answers
from support.served import Served, serving

_TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as made:
        made.operations.differences = [
            answers.Difference(
                path=b"src/a.py", change="modify", added=1, removed=1,
                patch="--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-one\n+two\n",
            ),
            answers.Difference(path=b"caf\xe9.bin", change="add"),
        ]  # fmt: skip
        made.operations.plan = answers.RestorePlan(
            id="", target=made.operations.records[0], root=b"/home/me/shop",
            restore=tuple(answers.PlannedPath(path=b"src/f%03d.py" % n, why="gone") for n in range(132)),
            delete=(answers.PlannedPath(path=b"new.py", why="was not there"),),
            keep=(answers.PlannedPath(path=b".env", why="not observed"),),
            unchanged=1204, head_moved=True,
        )  # fmt: skip
        yield made


def _steps(text: str) -> Iterator[tuple[str, list[str]]]:
    command, expected = "", []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], []
        elif command:
            expected.append(line)
    yield command, expected


def _matches(line: str, pattern: str) -> bool:
    escaped = pattern.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]").replace("…", "*")
    return fnmatch.fnmatchcase(line, escaped)


@pytest.mark.parametrize("transcript", _TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(served: Served, transcript: Path) -> None:
    for command, expected in _steps(transcript.read_text()):
        done = served.ckpt(*shlex.split(command)[1:])
        printed = done.stdout.splitlines() + [f"! {line}" for line in done.stderr.splitlines()]
        printed += [f"? {done.returncode}"] if done.returncode else []
        while expected and not expected[-1]:
            expected.pop()
        shown = "\n".join(printed)
        assert len(printed) == len(expected), f"$ {command}\n{shown}"
        for line, pattern in zip(printed, expected, strict=True):
            assert _matches(line, pattern), f"$ {command}\n{shown}\n\nexpected: {pattern}\ngot:      {line}"
