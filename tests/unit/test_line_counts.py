"""Lines that a change added and removed."""

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model import lines

CONTENT = st.lists(st.sampled_from((b"a", b"b", b"c", b"")), max_size=12).map(lambda parts: b"\n".join(parts) + b"\n")


@pytest.mark.parametrize(
    ("old", "new", "counted"),
    [
        (None, b"a\nb\n", (2, 0)),
        (b"a\nb\n", None, (0, 2)),
        (b"a\nb\nc\n", b"a\nx\ny\nc\n", (2, 1)),
        (b"a\na\nb\n", b"a\nb\n", (0, 1)),
        (b"a\nb\n", b"a\nb\n", (0, 0)),
        (b"a\0", b"b\n", None),
    ],
)
def test_lines_are_counted(old: bytes | None, new: bytes | None, counted: tuple[int, int] | None) -> None:
    assert lines.count(old, new) == counted


@settings(deadline=None, max_examples=200)
@given(CONTENT, CONTENT)
def test_counts_balance_and_never_exceed_those_of_diff(old: bytes, new: bytes) -> None:
    counted = lines.count(old, new)
    assert counted is not None
    before, after = old.decode().splitlines(), new.decode().splitlines()
    said = list(difflib.ndiff(before, after))
    assert counted[0] - counted[1] == len(after) - len(before)
    assert counted[0] <= sum(line.startswith("+ ") for line in said)
    assert counted[1] <= sum(line.startswith("- ") for line in said)
