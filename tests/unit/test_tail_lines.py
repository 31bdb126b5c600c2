"""Cutting a stream into lines."""

from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.agents.lines import TRAIL, LineCutter

PIECES = st.lists(st.text(alphabet="ab{}\n", max_size=12).map(str.encode), max_size=12)


def cut_into(pieces: list[bytes], max_line: int) -> tuple[list[tuple[int, bytes]], LineCutter]:
    cutter = LineCutter(max_line=max_line)
    return [line for piece in pieces for line in cutter.push(piece)], cutter


@given(PIECES)
@settings(max_examples=200, deadline=None)
def test_lines_do_not_depend_on_where_the_stream_is_split(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    lines, cutter = cut_into(pieces, max_line=100)
    *ended, rest = whole.split(b"\n")
    assert [line for _, line in lines] == ended
    assert all(whole[offset : offset + len(line)] == line for offset, line in lines)
    assert (cutter.pending() or b"") == rest
    assert cutter.end == len(whole)
    assert cutter.trail == whole[: cutter.start][-TRAIL:]
    assert cutter.edge == whole[-TRAIL:]


@given(PIECES)
@settings(max_examples=200, deadline=None)
def test_lines_that_are_too_long_are_skipped_wherever_the_stream_is_split(pieces: list[bytes]) -> None:
    lines, cutter = cut_into(pieces, max_line=5)
    expected, expected_cutter = cut_into([b"".join(pieces)], max_line=5)
    assert lines == expected
    assert cutter.oversized == expected_cutter.oversized
    assert all(len(line) <= 5 for _, line in lines)


def test_a_line_that_is_too_long_is_not_kept_in_memory() -> None:
    cutter = LineCutter(max_line=1000)
    for _ in range(1000):
        assert cutter.push(b"x" * 1000) == []
        assert len(cutter.edge) <= TRAIL
    assert cutter.pending() is None
    assert cutter.push(b"\nnext\n") == [(1_000_001, b"next")]
    assert cutter.oversized == [0]


def test_only_the_byte_0a_ends_a_line() -> None:
    text = "a\u2028b\u0085c\x0bd\re".encode()
    assert LineCutter().push(text + b"\n") == [(0, text)]
