"""The rolling states of a work tree."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkpointd.clock import FakeClock
from checkpointd.model.capture import Captured, Coverage
from checkpointd.vault.rolling import Rolling
from checkpointd.vault.store import Vault
from support.vaults import add_files

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Timeline:
    """A vault, a clock, and captures made from contents."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock(START)
        self.vault = Vault.create(path / "vault.git", clock=self.clock)
        self.rolling = Rolling(self.vault, "w1", self.clock)

    def push(self, content: bytes) -> Captured:
        builder = self.vault.new_pack()
        tree = add_files(builder, {b"f": content})
        self.vault.write_rolling(builder)
        captured = Captured(files=tree, modes=b"{}", coverage=Coverage(captured=1), taken_at=self.clock.now())
        self.rolling.push(captured)
        return captured

    def content(self, captured: Captured | None) -> bytes | None:
        if captured is None:
            return None
        entry = self.vault.resolve(captured.files, b"f")
        return self.vault.read_blob(entry.oid) if entry else None


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return Timeline(tmp_path)


def test_a_moment_is_answered_by_the_state_that_held_then(timeline):
    timeline.push(b"one")
    timeline.clock.advance(10)
    timeline.push(b"two")
    assert timeline.content(timeline.rolling.now) == b"two"
    assert timeline.content(timeline.rolling.at(START + timedelta(seconds=9))) == b"one"
    assert timeline.content(timeline.rolling.at(START + timedelta(seconds=10))) == b"two"
    assert timeline.rolling.at(START - timedelta(seconds=1)) is None


def test_an_idle_state_is_still_there_when_the_next_change_destroys(timeline):
    timeline.push(b"precious")
    timeline.clock.advance(3 * 3600)
    before = timeline.clock.now()
    timeline.clock.advance(1)
    timeline.push(b"")
    assert timeline.content(timeline.rolling.at(before)) == b"precious"


def test_the_state_before_a_burst_outlives_thinning_by_ten_minutes(timeline):
    for second in range(5):
        timeline.push(b"%d" % second)
        timeline.clock.advance(1)
    timeline.rolling.before_burst(START + timedelta(seconds=2, milliseconds=500))
    timeline.clock.advance(500)
    timeline.push(b"later")
    timeline.rolling.thin()
    assert timeline.content(timeline.rolling.at(START + timedelta(seconds=3) - timedelta(milliseconds=1))) == b"2"
    timeline.clock.advance(700)
    timeline.push(b"last")
    timeline.rolling.thin()
    assert timeline.rolling.at(START + timedelta(seconds=3)) is None


def test_an_equal_state_is_not_kept_twice(timeline):
    first = timeline.push(b"same")
    refs = timeline.vault.refs("refs/rolling/")
    timeline.clock.advance(5)
    timeline.push(b"same")
    assert timeline.vault.refs("refs/rolling/") == refs
    assert timeline.rolling.at(timeline.clock.now()) == first


def test_states_come_back_after_a_restart_without_any_claim_about_absence(timeline):
    timeline.push(b"one")
    timeline.clock.advance(10)
    timeline.push(b"two")
    again = Rolling(Vault.open(timeline.vault.path, clock=timeline.clock), "w1", timeline.clock)
    found = again.at(START + timedelta(seconds=5))
    assert timeline.content(found) == b"one"
    assert found is not None
    assert not found.coverage.observed(b"anything")
    assert timeline.content(again.now) == b"two"


def test_packs_that_no_state_needs_are_let_go(timeline):
    for second in range(40):
        timeline.push(b"%d" % second)
        timeline.clock.advance(1)
    timeline.clock.advance(2000)
    timeline.push(b"last")
    timeline.rolling.thin()
    packs = list((timeline.vault.path / "objects/pack").glob("*.pack"))
    assert len(packs) < 10
    assert timeline.content(timeline.rolling.now) == b"last"
