"""Which rolling states are kept."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from checkpointd.model import rolling

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
ages = st.lists(st.integers(min_value=0, max_value=900_000), max_size=60).map(
    lambda values: [NOW - timedelta(milliseconds=value) for value in values]
)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def test_every_state_of_the_last_minute_is_kept():
    times = [ago(second / 10) for second in range(600)]
    assert rolling.keep(times, (), NOW) == set(times)


def test_older_states_are_one_per_ten_seconds():
    times = [ago(120 + second) for second in range(100)]
    kept = rolling.keep([*times, NOW], (), NOW)
    assert len(kept) in (11, 12)  # 100 s, NOW, and a slot that is cut at both ends
    assert max(times) in kept


def test_of_states_past_ten_minutes_the_newest_stays():
    assert rolling.keep([ago(5000), ago(4000)], (), NOW) == {ago(4000)}
    assert rolling.keep([ago(5000), ago(4000), ago(1)], (), NOW) == {ago(4000), ago(1)}


def test_a_protected_state_stays_whatever_its_age():
    before, later = ago(300), ago(299.5)
    assert before in rolling.keep([before, later, NOW], {before}, NOW)
    assert before not in rolling.keep([before, later, NOW], (), NOW)
    assert ago(9000) in rolling.keep([ago(9000), ago(8000), NOW], {ago(9000)}, NOW)


@given(ages)
def test_thinning_twice_is_thinning_once(times):
    once = rolling.keep(times, (), NOW)
    assert rolling.keep(once, (), NOW) == once


@given(ages)
def test_there_is_a_state_within_ten_seconds_of_every_moment_that_had_one(times):
    kept = rolling.keep(times, (), NOW)
    for time in times:
        if NOW - time <= rolling.LONGEST:
            assert any(time <= other <= time + rolling.SLOT for other in kept)


@given(ages, st.integers(min_value=0, max_value=600))
def test_every_moment_of_the_last_ten_minutes_is_answered_as_before_but_for_a_slot(times, back):
    moment = ago(back)
    whole, kept = rolling.newest_before(times, moment), rolling.newest_before(rolling.keep(times, (), NOW), moment)
    if whole is not None:
        assert kept is None or kept <= whole
        assert rolling.newest_before(rolling.keep(times, (), NOW), moment + rolling.SLOT) is not None


def test_a_moment_is_answered_by_the_newest_state_before_it():
    times = [ago(30), ago(20), ago(10)]
    assert rolling.newest_before(times, ago(15)) == ago(20)
    assert rolling.newest_before(times, ago(10)) == ago(10)
    assert rolling.newest_before(times, ago(31)) is None
