"""What yamltext writes is what PyYAML reads."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.summaries import yamltext

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False)
    | _texts
    | st.sampled_from(
        ["yes", "No", "null", "~", "1e5", "0x1f", "12:30", "2026-01-02", "a: b", "a #b", "- a", "a:", "=", "<<"]
    )
    | st.datetimes(timezones=st.just(UTC))
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4), max_leaves=15
)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(_texts, _values, max_size=6))
def test_anything_plain_comes_back(data: dict[str, object]) -> None:
    text = yamltext.dump(data)
    assert (yaml.load(text, Loader=yaml.CSafeLoader) or {}) == data


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff"])
def test_half_a_character_becomes_the_replacement_character(text: str) -> None:
    back = yaml.safe_load(yamltext.dump({"text": text}))["text"]
    assert back == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_times_keep_their_offset() -> None:
    zone = timezone(timedelta(hours=2))
    assert yamltext.dump({"at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=zone)}) == b"at: 2026-01-02T03:04:05+02:00\n"


def test_usual_texts_are_written_without_quotes() -> None:
    data = {
        "source": "checkpointd:turn",
        "reason": "pytest failed 3 times",
        "path": "src/a.py",
        "files": ["a.py", "b.py"],
    }
    assert yamltext.dump(data).decode() == (
        "source: checkpointd:turn\nreason: pytest failed 3 times\npath: src/a.py\nfiles:\n  - a.py\n  - b.py\n"
    )
