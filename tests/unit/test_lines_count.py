"""How many lines a change added and removed."""

from hypothesis import given
from hypothesis import strategies as st

from checkpointd.model.lines import count

_LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n"]), max_size=20)


def test_one_edited_region_is_counted_exactly() -> None:
    assert count(b"a\nb\nc\n", b"a\nX\nY\nc\n") == (2, 1)
    assert count(b"a\n", b"a\nb\n") == (1, 0)
    assert count(b"a\nb\n", b"b\n") == (0, 1)


def test_a_file_that_comes_or_goes() -> None:
    assert count(None, b"a\nb\n") == (2, 0)
    assert count(b"a\nb", None) == (0, 2)
    assert count(None, b"") == (0, 0)


def test_binary_and_very_large_ones_are_not_counted() -> None:
    assert count(b"a\0b", b"a") is None
    assert count(None, b"a" * 8000 + b"\0") == (1, 0)
    assert count(None, b"a\n" * (3 << 20)) is None


@given(_LINES, _LINES)
def test_the_difference_of_the_counts_is_that_of_the_lengths(old: list[bytes], new: list[bytes]) -> None:
    counted = count(b"".join(old), b"".join(new))
    assert counted is not None
    added, removed = counted
    assert added - removed == len(new) - len(old)
    assert 0 <= added <= len(new)
    assert 0 <= removed <= len(old)
    assert count(b"".join(new), b"".join(old)) == (removed, added)


@given(st.binary(max_size=100))
def test_nothing_changed_is_nothing_counted(content: bytes) -> None:
    assert count(content, content) in ((0, 0), None)


@given(_LINES, _LINES, _LINES, _LINES)
def test_what_is_the_same_around_it_does_not_matter(
    head: list[bytes], old: list[bytes], new: list[bytes], tail: list[bytes]
) -> None:
    alone = count(b"".join(old), b"".join(new))
    among = count(b"".join(head + old + tail), b"".join(head + new + tail))
    assert alone is not None
    assert among is not None
    assert among[0] <= alone[0]
