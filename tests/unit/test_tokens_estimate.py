"""The estimate of tokens: the same everywhere, and never shrinking."""

from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.text.tokens import estimate


def test_known_texts() -> None:
    assert estimate("") == 0
    assert estimate("The quick brown fox jumps over the lazy dog.") == 10
    assert estimate("你好世界") == 4
    assert estimate("=" * 80) == 10
    assert estimate("internationalisation") == 4
    assert estimate("1234567") == 3


def test_prose_is_near_a_token_for_each_word() -> None:
    prose = "When a session ends, its state is kept so that the next one can go on from there. " * 50
    words = len(prose.split())
    assert words <= estimate(prose) <= 1.6 * words


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80), st.text(max_size=20))
def test_appending_never_lowers_it(text: str, more: str) -> None:
    assert estimate(text + more) >= estimate(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_it_is_bounded_by_the_length(text: str) -> None:
    assert 0 <= estimate(text) <= 2 * len(text)
