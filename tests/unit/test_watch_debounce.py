"""When changed paths have rested, and when deletions are a burst."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.watch.debounce import Burst, BurstDetector, Debounce


def test_a_path_is_due_when_it_has_rested() -> None:
    debounce = Debounce(rest=0.15, longest=1.0)
    debounce.add([b"a"], 10.0)
    assert debounce.next_due() == pytest.approx(10.15)
    assert debounce.due(10.1) == set()
    assert debounce.due(10.15) == {b"a"}
    assert debounce.next_due() is None


def test_a_path_that_changes_again_waits_again() -> None:
    debounce = Debounce(rest=0.15, longest=1.0)
    debounce.add([b"a", b"b"], 10.0)
    debounce.add([b"a"], 10.1)
    assert debounce.due(10.15) == {b"b"}
    assert debounce.next_due() == pytest.approx(10.25)
    assert debounce.due(10.26) == {b"a"}


def test_a_path_that_never_rests_is_due_after_the_longest_wait() -> None:
    debounce = Debounce(rest=0.15, longest=1.0)
    now = 0.0
    while not (due := debounce.due(now)):
        debounce.add([b"busy"], now)
        now += 0.1
    assert due == {b"busy"}
    assert 0.999 <= now <= 1.101


def test_a_trigger_takes_all() -> None:
    debounce = Debounce()
    debounce.add([b"a", b"b"], 1.0)
    assert len(debounce) == 2
    assert debounce.take_all() == {b"a", b"b"}
    assert len(debounce) == 0
    assert debounce.due(9.0) == set()


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.floats(0, 0.5)), max_size=40))
@settings(deadline=None, max_examples=200)
def test_nothing_is_lost_and_nothing_waits_too_long(steps: list[tuple[bytes, float]]) -> None:
    debounce = Debounce(rest=0.15, longest=1.0)
    now, first = 0.0, dict[bytes, float]()
    for path, pause in steps:
        until = now + pause
        while (due_at := debounce.next_due()) is not None and due_at <= until:
            now = max(now, due_at) + 1e-9
            for taken in debounce.due(now):
                assert now - first.pop(taken) <= 1.0 + 1e-6
        now = until
        debounce.add([path], now)
        first.setdefault(path, now)
    assert debounce.take_all() == set(first)


def test_more_than_five_deletions_within_a_second_are_a_burst() -> None:
    detector = BurstDetector()
    assert [detector.add(1 + n / 10, 1, 0) for n in range(5)] == [None] * 5
    assert detector.add(1.5, 1, 0) == Burst(at=1.0, deletions=6, folders=0)


def test_a_folder_alone_is_a_burst_and_begins_with_the_files_before_it() -> None:
    detector = BurstDetector()
    assert detector.add(1.0, 2, 0) is None
    assert detector.add(1.2, 0, 1) == Burst(at=1.0, deletions=2, folders=1)


def test_slow_deletions_are_none() -> None:
    detector = BurstDetector()
    assert [detector.add(float(n) / 4, 1, 0) for n in range(40)] == [None] * 40


def test_a_burst_is_told_once_until_it_pauses() -> None:
    detector = BurstDetector()
    assert detector.add(1.0, 10, 0) is not None
    assert detector.add(1.9, 10, 1) is None
    assert detector.add(2.8, 10, 1) is None
    assert detector.add(9.0, 0, 0) is None
    assert detector.add(9.5, 6, 0) == Burst(at=9.5, deletions=6, folders=0)
