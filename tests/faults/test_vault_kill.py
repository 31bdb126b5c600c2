"""A vault whose writer is killed, or whose disk fails, at any moment: what was finished is there, and whole."""

import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointd.vault import disk
from checkpointd.vault.errors import ReadOnlyStore, StoreError, StoreFull
from checkpointd.vault.eventlog import EventLog
from checkpointd.vault.store import TreeRef, Vault
from support import vault_writer
from support.vault_writer import files_of
from support.vaults import WHEN, capture, checkpoint, contents, fsck_complaints, packs_folder

TESTS = Path(vault_writer.__file__).parent.parent


def written_until_killed(folder: Path, seed: int, mode: str) -> list[str]:
    """The ids that a writer finished before it was killed, at a moment that `seed` chooses."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "support.vault_writer", str(folder), str(seed), mode]
    rng = random.Random(f"{seed} {mode}")
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)
    assert child.stdout is not None
    finished = [child.stdout.readline().strip() for _ in range(rng.randrange(1, 25))]
    killer = threading.Timer(rng.random() * 0.012, child.kill)
    killer.start()
    finished += child.stdout.read().split()
    killer.join()
    child.stdout.close()
    assert child.wait(30) == -signal.SIGKILL
    return finished


def wait_for_orphans(path: Path) -> None:
    """A git child may outlive its daemon by a moment; it holds this lock, and the start leaves its files alone."""
    with (path / "maintenance").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def assert_clean(path: Path) -> None:
    """No file is left that belongs to unfinished work."""
    assert [keep.name for keep in packs_folder(path).glob("*.keep") if keep.read_text() != "base\n"] == []
    names = [file.name for file in path.rglob("*") if "quarantine" not in file.parts]
    assert [name for name in names if name.endswith((".lock", ".tmp")) or name.startswith("tmp_")] == []
    packs = {file.stem for file in packs_folder(path).glob("*.pack")}
    assert {file.stem for file in packs_folder(path).glob("*.idx")} == packs


@pytest.mark.parametrize("mode", ["small", "large", "roll-up"])
@pytest.mark.parametrize("seed", range(3))
def test_b067_every_finished_checkpoint_survives_kill_9(tmp_path: Path, seed: int, mode: str) -> None:
    finished: list[str] = []
    for turn in range(3):
        finished += written_until_killed(tmp_path, seed * 100 + turn, mode)
        vault = Vault.open(tmp_path / "vault.git")
        assert vault.problems == []
        assert set(finished) <= set(vault.checkpoint_ids())
        for id_ in vault.checkpoint_ids():
            assert contents(vault, id_) == files_of(id_)
            assert vault.checkpoint(id_).document("record.yaml") == id_.encode()
        if mode == "roll-up":
            wait_for_orphans(vault.path)
            vault = Vault.open(vault.path)
            assert vault.problems == []
        assert_clean(vault.path)
        assert fsck_complaints(vault.path) == []
        log = EventLog(tmp_path / "events.jsonl")
        assert log.verify_chain() == []
        assert set(finished) <= {event["id"] for event in log.read()}
        log.recover(vault.saved_events())
        assert log.problems == []
        vault.close()


class FailingSystem(disk.System):
    """The system calls of writing, of which the n-th fails, and all after it while `stuck`."""

    def __init__(self, fail_at: int, code: int, *, stuck: bool) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.code = code
        self.stuck = stuck

    def _turn(self, name: str) -> None:
        self.calls += 1
        hit = self.calls == self.fail_at or (self.stuck and self.calls > self.fail_at)
        # A full disk refuses what needs room; removing works all the same.
        if hit and not (self.stuck and name == "unlink"):
            raise OSError(self.code, os.strerror(self.code))

    def __getattribute__(self, name: str) -> object:
        if name not in ("open", "write", "fsync", "rename", "unlink", "mkdir"):
            return object.__getattribute__(self, name)
        real: Callable[..., object] = getattr(os, name)

        def call(*args: object, **kwargs: object) -> object:
            self._turn(name)
            return real(*args, **kwargs)

        return call


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FailingSystem]]:
    def start(fail_at: int, code: int, *, stuck: bool = False) -> FailingSystem:
        system = FailingSystem(fail_at, code, stuck=stuck)
        monkeypatch.setattr(disk, "system", system)
        return system

    yield start
    monkeypatch.undo()


BEFORE = {b"a": b"a" * 3000, b"src/b": b"b"}
AFTER = {b"a": b"changed" * 300, b"src/b": b"b", b"new": bytes(range(256)) * 8}


@pytest.mark.parametrize(("code", "stuck"), [(errno.ENOSPC, True), (errno.ENOSPC, False), (errno.EIO, False)])
def test_a_disk_that_fails_at_any_call_leaves_no_partial_checkpoint(
    tmp_path: Path, failing: Callable[..., FailingSystem], code: int, stuck: bool
) -> None:
    for fail_at in range(1, 200):
        folder = tmp_path / str(fail_at)
        vault = Vault.create(folder / "vault.git")
        log = EventLog(folder / "events.jsonl")
        checkpoint(vault, "ckpt-1", BEFORE)
        log.append({"event": "save", "id": "ckpt-1"})
        system = failing(fail_at, code, stuck=stuck)
        failed = saved(vault, log)
        disk.system = disk.System()
        if failed:
            assert isinstance(failed, StoreFull) == (code == errno.ENOSPC)
        else:
            assert contents(vault, "ckpt-2") == AFTER
        assert vault.checkpoint_ids() == (["ckpt-1"] if failed else ["ckpt-1", "ckpt-2"])
        assert contents(vault, "ckpt-1") == BEFORE
        if not failed or code == errno.ENOSPC:
            assert not [
                f for f in vault.path.rglob("*") if f.name.startswith("tmp_") or f.name.endswith((".lock", ".tmp"))
            ]
        if failed:  # the same vault goes on as soon as the disk does
            assert saved(vault, log, event={"event": "retry"}) is None
            assert contents(vault, "ckpt-2") == AFTER
        again = Vault.open(vault.path)
        assert again.problems == []
        assert again.checkpoint_ids() == ["ckpt-1", "ckpt-2"]
        assert contents(again, "ckpt-2") == AFTER
        assert EventLog(log.path).verify_chain() == []
        assert_clean(vault.path)
        if fail_at % 5 == 0:
            assert fsck_complaints(vault.path) == []
        if system.calls < fail_at:
            return
    pytest.fail("there is no end to the calls")


def saved(vault: Vault, log: EventLog, event: dict[str, str] | None = None) -> StoreError | None:
    """Captures, logs and commits; the error that came of it."""
    try:
        tree = TreeRef(capture(vault, AFTER))
        log.append(event or {"event": "save", "id": "ckpt-2"})
        vault.commit_checkpoint("ckpt-2", {b"files": tree}, message="", when=WHEN, events=log)
    except StoreError as error:
        return error
    return None


def test_b039_a_vault_that_cannot_be_written_is_read_and_says_so(
    tmp_path: Path, failing: Callable[..., FailingSystem]
) -> None:
    vault = Vault.create(tmp_path / "vault.git")
    checkpoint(vault, "ckpt-1", BEFORE)
    (vault.path / "HEAD").unlink()
    failing(1, errno.EROFS, stuck=True)
    again = Vault.open(vault.path)
    assert contents(again, "ckpt-1") == BEFORE
    assert any("cannot be written" in problem.what for problem in again.problems)
    with pytest.raises(ReadOnlyStore, match="cannot be written"):
        checkpoint(again, "ckpt-2", AFTER)
    assert again.checkpoint_ids() == ["ckpt-1"]


def test_a_full_disk_does_not_keep_a_vault_from_opening(tmp_path: Path, failing: Callable[..., FailingSystem]) -> None:
    vault = Vault.create(tmp_path / "vault.git")
    checkpoint(vault, "ckpt-1", BEFORE)
    failing(1, errno.ENOSPC, stuck=True)
    again = Vault.open(vault.path)
    assert contents(again, "ckpt-1") == BEFORE
    assert again.problems


def test_a_power_loss_takes_what_was_not_synced_and_no_checkpoint(tmp_path: Path) -> None:
    """Rolling packs are the only files that nobody waits for; the worst a power loss does is to empty them all."""
    vault = Vault.create(tmp_path / "vault.git")
    expected = {}
    for number in range(6):
        capture(vault, {b"between": b"%d" % number * 500, b"kept": b"same"})
        expected[f"ckpt-{number}"] = {b"kept": b"same", b"n": b"%d" % number * 500}
        checkpoint(vault, f"ckpt-{number}", expected[f"ckpt-{number}"])
    for keep in packs_folder(vault.path).glob("*.keep"):
        for file in packs_folder(vault.path).glob(f"{keep.stem}.*"):
            os.truncate(file, 0)
    os.truncate(vault.path / "refs/rolling/w1", 0)
    again = Vault.open(vault.path)
    assert {id_: contents(again, id_) for id_ in again.checkpoint_ids()} == expected
    assert again.rolling("w1") == {}
    assert fsck_complaints(vault.path) == []
    assert_clean(vault.path)
