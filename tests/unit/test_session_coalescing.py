"""Requests of one moment become records."""

from datetime import UTC, datetime, timedelta

from checkpointd.model.checkpoint import Trigger
from checkpointd.model.triggers import Coalesced, TriggerRequest, coalesce

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def request(trigger: Trigger, position: str = "p", **fields: object) -> TriggerRequest:
    return TriggerRequest(trigger=trigger, reason=trigger, position=position, **fields)  # type: ignore[arg-type]


def before(seconds: float, position: str = "p", **fields: object) -> TriggerRequest:
    time = NOON + timedelta(seconds=seconds)
    return request("pre-destructive", position, state="before", before=time, **fields)


def names(records: tuple[Coalesced, ...]) -> list[tuple[str, tuple[str, ...]]]:
    return [(record.request.trigger, record.also) for record in records]


def test_the_strongest_names_the_record_and_the_others_go_along() -> None:
    records = coalesce([request("turn"), request("session-end"), request("repeated-failure")])
    assert names(records) == [("repeated-failure", ("session-end", "turn"))]


def test_files_from_before_and_files_of_now_are_two_records() -> None:
    records = coalesce([request("session-end"), before(0)])
    assert names(records) == [("pre-destructive", ()), ("session-end", ())]


def test_two_losses_far_apart_are_two_records() -> None:
    assert len(coalesce([before(0, "a"), before(10, "b")])) == 2


def test_two_losses_at_once_are_one_record_with_both_reasons() -> None:
    one = before(0.2, "a")
    other = TriggerRequest(trigger="pre-destructive", reason="other", position="b", state="before", before=NOON)
    (record,) = coalesce([one, other])
    assert record.request.before == NOON
    assert record.request.reason == "other; pre-destructive"


def test_an_amendment_joins_its_request() -> None:
    amendment = TriggerRequest(
        trigger="pre-destructive", reason="7 paths deleted at once", position="b", state="before", amends="a",
        before=NOON - timedelta(seconds=1), paths=("src/a.py",),
    )  # fmt: skip
    (record,) = coalesce([before(0, "a"), amendment])
    assert record.request.position == "a"
    assert record.request.before == NOON - timedelta(seconds=1)
    assert record.request.reason == "pre-destructive; 7 paths deleted at once"
    assert record.request.paths == ("src/a.py",)


def test_an_amendment_that_comes_too_late_makes_nothing() -> None:
    assert coalesce([before(0, "b", amends="a")]) == ()


def test_other_work_trees_and_restores_stand_alone() -> None:
    records = coalesce([request("turn"), request("turn", worktree="w2"), request("pre-restore", "q")])
    assert names(records) == [("pre-restore", ()), ("turn", ()), ("turn", ())]
