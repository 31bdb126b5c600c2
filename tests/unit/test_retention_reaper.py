"""The reaper: what retention says is done, within the budget, and never beside a failed verification."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from checkpointd.clock import FakeClock
from checkpointd.engine.reaper import Budget, DiskUsage, Reaper, ReaperProject
from checkpointd.model.retention import RetentionItem, RetentionPolicy
from checkpointd.vault.errors import StoreError
from checkpointd.vault.store import Vault

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
MIB = 1 << 20


class CountingVault:
    """A vault in which every checkpoint takes 1 MiB."""

    def __init__(self, ids) -> None:
        self.ids = list(ids)
        self.broken = ""
        self.frees = True
        self._kept = len(self.ids)

    def forget(self, ids) -> None:
        self.ids = [id_ for id_ in self.ids if id_ not in set(ids)]
        if self.frees:
            self._kept = len(self.ids)
        if self.broken:
            raise StoreError(self.broken)

    def checkpoint_ids(self):
        return self.ids

    def size_bytes(self) -> int:
        return self._kept * MIB


def item(id_, age_hours, trigger="turn", **fields):
    return RetentionItem(
        id=id_, worktree="w", seq=100_000 - int(age_hours), created_at=NOW - timedelta(hours=age_hours),
        trigger=trigger, **fields,
    )  # fmt: skip


class Setting:
    def __init__(self) -> None:
        self.told = []
        self.refuse = ""
        self.usage = DiskUsage(total=1000 * MIB, free=900 * MIB)
        self.asked = []

    def refusal(self, project, remaining):
        self.asked.append((project, set(remaining)))
        return self.refuse

    async def forgotten(self, project, verdicts):
        self.told += [(project, verdict.id, verdict.reason) for verdict in verdicts]

    def run(self, *projects, max_bytes=1 << 40, policy=RetentionPolicy(daily=0, weekly=0, monthly=0)):  # noqa: B008
        async def go():
            with ThreadPoolExecutor(1) as pool:
                reaper = Reaper(
                    policy=policy, budget=Budget(max_bytes=max_bytes), clock=FakeClock(NOW),
                    disk_usage=lambda: self.usage, refusal=self.refusal, forgotten=self.forgotten, pool=pool,
                )  # fmt: skip
                return await reaper.run(projects)

        return asyncio.run(go())


@pytest.fixture
def setting():
    return Setting()


def project(items, id_="p"):
    return ReaperProject(id=id_, vault=CountingVault(entry.id for entry in items), items=tuple(items))


def test_what_no_rule_keeps_is_forgotten_and_told_with_its_reason(setting):
    one = project([item("old", 100), item("new", 1)])
    report = setting.run(one)
    assert one.vault.ids == ["new"]
    assert [(name, id_) for name, id_, _ in setting.told] == [("p", "old")]
    assert "older than 48 h" in setting.told[0][2]
    assert (report.forgotten, report.size_after, report.pressed) == (1, MIB, "")


def test_b167_nothing_is_forgotten_while_what_would_remain_failed_its_verification(setting):
    setting.refuse = "c9 is damaged"
    one = project([item("old", 100), item("new", 1)])
    report = setting.run(one)
    assert setting.asked == [("p", {"new"})]
    assert one.vault.ids == ["old", "new"]
    assert report.projects[0].refused == "c9 is damaged"
    assert not setting.told


def test_past_the_bytes_turns_go_first_and_only_as_many_as_it_takes(setting):
    items = [item(f"t{number}", 40 - number) for number in range(30)] + [item("fail", 41, "repeated-failure")]
    one = project(items)
    report = setting.run(one, max_bytes=21 * MIB)
    assert len(one.vault.ids) == 21
    assert "fail" in one.vault.ids and "t0" not in one.vault.ids and "t29" in one.vault.ids
    assert report.pressed == "31 MiB kept, 21 allowed"
    assert not report.capture_must_stop


def test_b162_when_only_what_never_goes_is_left_capture_stops(setting):
    items = [item(f"m{number}", 10 + number, "manual") for number in range(5)]
    one = project([*items, item("new", 1)])
    report = setting.run(one, max_bytes=2 * MIB)
    assert len(one.vault.ids) == 6
    assert report.capture_must_stop


def test_b164_the_free_space_floor_counts_too(setting):
    setting.usage = DiskUsage(total=1000 * MIB, free=20 * MIB)
    one = project([item(f"t{number}", 40 - number) for number in range(12)])
    report = setting.run(one)
    assert "20 MiB of the disk are free" in report.pressed
    assert one.vault.ids == ["t11"]


def test_where_nothing_comes_free_no_more_is_forgotten(setting):
    setting.usage = DiskUsage(total=1000 * MIB, free=20 * MIB)
    one = project([item(f"t{number:02}", 40 - number) for number in range(39)])
    one.vault.frees = False
    report = setting.run(one)
    assert len(one.vault.ids) == 29
    assert report.capture_must_stop


def test_what_went_although_the_roll_up_failed_is_told_all_the_same(setting):
    one = project([item("old", 100), item("new", 1)])
    one.vault.broken = "no room"
    report = setting.run(one)
    assert [id_ for _, id_, _ in setting.told] == ["old"]
    assert report.projects[0].refused == "no room"


def test_one_project_that_is_refused_does_not_protect_another(setting):
    setting.refusal = lambda name, remaining: "damaged" if name == "bad" else ""
    bad, good = project([item("a", 100), item("b", 1)], "bad"), project([item("c", 100), item("d", 1)], "good")
    setting.run(bad, good)
    assert (bad.vault.ids, good.vault.ids) == (["a", "b"], ["d"])


def test_a_real_vault_forgets(setting, tmp_path):
    vault = Vault.create(tmp_path / "vault.git")
    ids = ["ckpt-20260501-120000-0000000a", "ckpt-20260601-110000-0000000b"]
    for id_ in ids:
        vault.commit_checkpoint(id_, {b"record.yaml": id_.encode()}, message=id_, when=NOW)
    items = (item(ids[0], 700), item(ids[1], 1))
    setting.run(ReaperProject(id="p", vault=vault, items=items))
    assert vault.checkpoint_ids() == ids[1:]
    assert vault.checkpoint(ids[1]).document("record.yaml") == ids[1].encode()
    vault.close()
