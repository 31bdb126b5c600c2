"""The event log: a chain of lines that a crash cannot break, and its copy in the vault."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.vault import eventlog
from checkpointd.vault.eventlog import EventLog
from checkpointd.vault.store import TreeRef, Vault
from support.vaults import WHEN, capture, fsck_complaints, real_git


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def fill(log: EventLog, count: int, size: int = 10) -> None:
    for number in range(count):
        log.append({"event": "save", "id": f"ckpt-{number}", "text": "x" * size}, sync=False)


def test_each_line_names_the_hash_of_the_one_before(path: Path) -> None:
    log = EventLog(path)
    assert log.tail_hash() == ""
    hashes = [log.append({"event": "save", "id": str(number)}) for number in range(3)]
    lines = path.read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert hashes == [hashlib.sha256(line).hexdigest() for line in lines]
    assert [json.loads(line)["prev"] for line in lines] == ["", *hashes[:-1]]
    assert log.tail_hash() == EventLog(path).tail_hash() == hashes[-1]
    assert [event["id"] for event in log.read()] == ["0", "1", "2"]
    assert log.verify_chain() == []


@given(cut=st.integers(min_value=0, max_value=400), junk=st.binary(max_size=20))
@settings(deadline=None, max_examples=100)
def test_a_torn_end_is_set_aside_and_the_rest_stands(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    fill(EventLog(path), 4)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] + junk)
    log = EventLog(path)
    kept = path.read_bytes()
    torn = path.with_name("events.jsonl.torn")
    assert kept + (torn.read_bytes() if torn.exists() else b"") == whole[:cut] + junk
    assert kept == whole[: len(kept)]
    assert bool(log.problems) == torn.exists()
    log.append({"event": "pin"})
    assert EventLog(path).problems == []
    assert EventLog(path).verify_chain() == []


def test_an_altered_line_breaks_the_chain_where_it_is(path: Path) -> None:
    log = EventLog(path)
    fill(log, 5)
    path.write_bytes(path.read_bytes().replace(b"ckpt-2", b"ckpt-9"))
    assert EventLog(path).verify_chain() == [4]


def test_segments_are_cut_at_lines_and_only_the_last_grows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventlog, "SEGMENT", 1000)
    log = EventLog(path)
    assert log.segments(0) == {}
    before: dict[bytes, bytes] = {}
    for _ in range(12):
        fill(log, 5, size=40)
        now = log.segments(0)
        assert b"".join(now.values()) == path.read_bytes()
        assert all(len(segment) <= 1000 and segment.endswith(b"\n") for segment in now.values())
        assert list(now) == sorted(now)
        assert all(now[name] == before[name] for name in list(before)[:-1])
        assert log.segments(len(now) - 1) == dict(list(now.items())[-1:])
        assert EventLog(path).segments(0) == now
        before = now
    log.append({"event": "save", "text": "y" * 5000})
    assert len(list(log.segments(0).values())[-1]) > 5000


def test_events_ride_in_the_pack_of_a_checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventlog, "SEGMENT", 1000)
    vault = Vault.create(path.parent / "vault.git")
    log = EventLog(path)
    tree = TreeRef(capture(vault, {b"a": b"a"}))
    for number in range(8):
        fill(log, 4)
        packs = vault.pack_count()
        vault.commit_checkpoint(f"ckpt-{number}", {b"files": tree}, message="", when=WHEN, events=log)
        assert vault.pack_count() == packs + 1
        assert vault.saved_events() == path.read_bytes()
    assert len(real_git(vault.path, "ls-tree", "refs/events").stdout.splitlines()) == len(log.segments(0))
    assert fsck_complaints(vault.path) == []
    before = vault.refs()["refs/events"]
    vault.commit_checkpoint("ckpt-8", {b"files": tree}, message="", when=WHEN, events=log)
    assert vault.refs()["refs/events"] == before


def test_a_lost_log_comes_back_from_the_vault(path: Path) -> None:
    vault = Vault.create(path.parent / "vault.git")
    log = EventLog(path)
    fill(log, 10)
    tree = TreeRef(capture(vault, {b"a": b"a"}))
    vault.commit_checkpoint("ckpt-1", {b"files": tree}, message="", when=WHEN, events=log)
    whole = path.read_bytes()
    for left in (b"", whole[: len(whole) // 2]):
        path.write_bytes(left)
        again = EventLog(path)
        again.recover(vault.saved_events())
        assert path.read_bytes() == whole
        assert again.tail_hash() == log.tail_hash()
        assert again.problems
    log = EventLog(path)
    log.append({"event": "pin"})
    log.recover(vault.saved_events())
    assert len(list(log.read())) == 11
    assert log.problems == []


def test_a_checkpoint_never_writes_over_events_that_the_file_has_lost(path: Path) -> None:
    vault = Vault.create(path.parent / "vault.git")
    log = EventLog(path)
    fill(log, 10)
    tree = TreeRef(capture(vault, {b"a": b"a"}))
    vault.commit_checkpoint("ckpt-1", {b"files": tree}, message="", when=WHEN, events=log)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"\n") + 1])
    log = EventLog(path)
    log_hash = log.tail_hash()
    vault.commit_checkpoint("ckpt-2", {b"files": tree}, message="", when=WHEN, events=log)
    assert vault.saved_events() == path.read_bytes() == whole
    assert log.tail_hash() != log_hash
    path.write_bytes(b'{"event":"other","prev":""}\n')
    again = Vault.open(vault.path)
    again.commit_checkpoint("ckpt-3", {b"files": tree}, message="", when=WHEN, events=EventLog(path))
    assert again.saved_events() == whole


def test_a_log_that_tells_another_story_is_left_alone(path: Path) -> None:
    log = EventLog(path)
    log.append({"event": "mine"})
    before = path.read_bytes()
    log.recover(b'{"event":"other","prev":""}\n')
    assert path.read_bytes() == before
    assert len(log.problems) == 1


def test_a_copy_that_power_loss_tore_is_made_again(path: Path) -> None:
    vault = Vault.create(path.parent / "vault.git")
    log = EventLog(path)
    fill(log, 3)
    tree = TreeRef(capture(vault, {b"a": b"a"}))
    vault.commit_checkpoint("ckpt-1", {b"files": tree}, message="", when=WHEN, events=log)
    vault.close()
    (vault.path / "refs/events").write_bytes(b"")
    vault = Vault.open(vault.path)
    assert [problem.what for problem in vault.problems] == ["The ref refs/events was not whole."]
    log = EventLog(path)
    vault.commit_checkpoint("ckpt-2", {b"files": tree}, message="", when=WHEN, events=log)
    assert vault.saved_events() == path.read_bytes()
