"""Which checkpoints are kept, and in which order they go when room is needed."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model.checkpoint import TRIGGERS
from checkpointd.model.retention import RetentionItem, RetentionPolicy, decide, pressure_groups, pressure_order

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
POLICY = RetentionPolicy()


def item(id_, age_hours, trigger="turn", **fields):
    fields.setdefault("worktree", "w1")
    fields.setdefault("seq", 100_000 - int(age_hours))
    return RetentionItem(id=id_, created_at=NOW - timedelta(hours=age_hours), trigger=trigger, **fields)


def kept(items, policy=POLICY):
    return {verdict.id for verdict in decide(items, policy, NOW) if verdict.keep}


def busy_day(days_ago, **fields):
    """Ten turns of one day, from `d-0` (the newest) to `d-9`."""
    noon = 24 * days_ago
    return [item(f"{days_ago}-{number}", noon + number / 2, **fields) for number in range(10)]


NO_SLOTS = RetentionPolicy(daily=0, weekly=0, monthly=0)


def test_everything_younger_than_two_days_is_kept():
    assert len(kept(busy_day(0) + busy_day(1))) == 20


def test_of_an_older_day_the_newest_is_kept():
    assert kept([*busy_day(5), item("new", 0)]) == {"5-0", "new"}


def test_a_machine_that_slept_for_months_keeps_its_newest_slots():
    old = [entry for days in range(300, 340) for entry in busy_day(days)]
    days = {id_.split("-")[0] for id_ in kept(old)}
    assert {str(number) for number in range(300, 330)} <= days


@pytest.mark.parametrize("trigger", ["manual", "handoff", "fork"])
def test_what_people_made_is_always_kept(trigger):
    assert "old" in kept([item("old", 24 * 3000, trigger), item("new", 0)], NO_SLOTS)


def test_a_pinned_one_and_the_start_of_a_fork_are_always_kept():
    old = [item("p", 24 * 3000, pinned=True), item("f", 24 * 3001, forked=True), item("x", 24 * 3002), item("new", 0)]
    assert kept(old, NO_SLOTS) == {"p", "f", "new"}


@pytest.mark.parametrize("trigger", ["repeated-failure", "pre-destructive"])
def test_what_tells_a_sessions_story_is_kept_for_90_days(trigger):
    assert "a" in kept([item("a", 24 * 89, trigger), item("new", 0)], NO_SLOTS)
    assert "a" not in kept([item("a", 24 * 91, trigger), item("new", 0)], NO_SLOTS)


@pytest.mark.parametrize("trigger", ["request-changes", "head-moved", "pre-compact", "gate", "pre-restore"])
def test_what_is_notable_is_kept_for_30_days(trigger):
    assert "a" in kept([item("a", 24 * 29, trigger), item("new", 0)], NO_SLOTS)
    assert "a" not in kept([item("a", 24 * 31, trigger), item("new", 0)], NO_SLOTS)


def test_a_rule_counts_what_is_in_also():
    assert "a" in kept([item("a", 24 * 60, "turn", also=("pre-destructive",)), item("new", 0)], NO_SLOTS)


def test_b028_a_session_keeps_its_baseline_its_last_and_its_last_green():
    session = [
        item("base", 24 * 60 + 5, "baseline", session="s"),
        item("g1", 24 * 60 + 4, "gate", session="s"),
        item("g2", 24 * 60 + 3, "gate", session="s"),
        item("t", 24 * 60 + 2, session="s"),
        item("end", 24 * 60, "session-end", session="s"),
        item("new", 0),
    ]
    assert kept(session, NO_SLOTS) == {"base", "g2", "end", "new"}


def test_b028_both_ends_of_a_turn_stay_or_go_together():
    turn = [
        item("first", 24 * 60 + 3, session="s", turn=4),
        item("middle", 24 * 60 + 2, session="s", turn=4),
        item("end", 24 * 60, "pre-destructive", session="s", turn=4),
        item("other", 24 * 60 - 1, session="t"),
        item("new", 0),
    ]
    assert kept(turn, NO_SLOTS) == {"first", "end", "other", "new"}


def test_the_newest_of_each_work_tree_is_kept_however_old():
    lines = [item("a", 24 * 2000, worktree="a"), item("b", 24 * 3000, worktree="b")]
    assert kept(lines, NO_SLOTS) == {"a", "b"}


def test_a_damaged_newest_does_not_stand_in_for_one_that_can_be_read():
    assert kept([item("good", 24 * 100), item("bad", 24 * 99, damaged=True)], NO_SLOTS) == {"good", "bad"}


def test_every_verdict_has_a_reason():
    assert all(verdict.reason for verdict in decide(busy_day(5), POLICY, NOW))


def test_under_pressure_turns_go_first_then_gates_then_the_rest_each_from_old_to_new():
    items = [
        item("failure", 9, "repeated-failure"), item("gate", 8, "gate"), item("t1", 7), item("s1", 6, "scheduled"),
        item("compact", 5, "pre-compact"), item("head", 4, "head-moved"), item("new", 0, "turn"),
    ]  # fmt: skip
    assert pressure_order(items) == ["t1", "s1", "gate", "compact", "failure", "head"]


def test_b162_under_pressure_nothing_pinned_or_made_by_people_goes():
    items = [
        item("pin", 9, pinned=True), item("manual", 8, "manual"), item("handoff", 7, "turn", also=("handoff",)),
        item("base", 6, "baseline", session="s"), item("t", 5, session="s"), item("last", 4, session="s"),
        item("before", 3, "pre-restore"), item("new", 0),
    ]  # fmt: skip
    assert pressure_order(items) == ["t"]


def test_under_pressure_a_turns_ends_go_together():
    items = [item("a", 9, session="s", turn=1), item("b", 8, "gate", session="s", turn=1), item("c", 7, session="s")]
    assert pressure_groups([*items, item("new", 0)]) == [("a", "b")]


@st.composite
def checkpoints(draw):
    count = draw(st.integers(1, 14))
    made = []
    for number in range(count):
        session = draw(st.sampled_from([None, "s1", "s2"]))
        made.append(
            RetentionItem(
                id=f"c{number}",
                worktree=draw(st.sampled_from(["w1", "w2"])),
                seq=draw(st.integers(0, 40)),
                created_at=NOW - timedelta(hours=draw(st.integers(-5, 24 * 500))),
                trigger=draw(st.sampled_from(TRIGGERS)),
                also=draw(st.lists(st.sampled_from(TRIGGERS), max_size=2).map(tuple)),
                session=session,
                turn=draw(st.none() | st.integers(1, 3)) if session else None,
                pinned=draw(st.booleans()) and draw(st.booleans()),
                damaged=draw(st.booleans()) and draw(st.booleans()),
            )
        )
    return made


POLICIES = st.builds(
    RetentionPolicy, daily=st.integers(0, 3), weekly=st.integers(0, 3), monthly=st.integers(0, 3)
)  # fmt: skip


@settings(deadline=None, max_examples=120)
@given(checkpoints(), POLICIES)
def test_deciding_is_repeatable_and_what_was_kept_stays_kept(items, policy):
    first = decide(items, policy, NOW)
    assert first == decide(items, policy, NOW)
    assert [verdict.id for verdict in first] == [entry.id for entry in items]
    stay = {verdict.id for verdict in first if verdict.keep}
    assert kept([entry for entry in items if entry.id in stay], policy) == stay
    assert kept(list(reversed(items)), policy) == stay


@settings(deadline=None, max_examples=120)
@given(checkpoints(), POLICIES)
def test_pinned_and_newest_never_go(items, policy):
    stay, under_pressure = kept(items, policy), set(pressure_order(items))
    for entry in items:
        if entry.pinned or entry.triggers & {"manual", "handoff", "fork"}:
            assert entry.id in stay
            assert entry.id not in under_pressure
    for worktree in {entry.worktree for entry in items}:
        newest = max((e for e in items if e.worktree == worktree), key=lambda e: (e.seq, e.created_at, e.id))
        assert newest.id in stay
        assert newest.id not in under_pressure


@settings(deadline=None, max_examples=60)
@given(checkpoints())
def test_under_pressure_nothing_is_named_twice(items):
    order = pressure_order(items)
    assert len(order) == len(set(order))
