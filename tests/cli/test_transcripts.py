"""What a person sees: `$ ckpt ...` and the lines it prints, run against a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.engine import answers
from support import transcripts
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


@pytest.mark.parametrize("transcript", _TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(served: Served, transcript: Path) -> None:
    transcripts.play(transcript, lambda command: served.ckpt(*command[1:]))
