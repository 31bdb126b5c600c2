"""A log as a file: growing, torn, truncated, replaced, gone."""

import json
import os
from pathlib import Path

import pytest

from checkpointd.agents.registry import adapter_named
from checkpointd.agents.tail import QUIET, Batch, Tail, at_end
from checkpointd.model.events import Event, UserTurn
from support.logs import drain, only, sample

PI = adapter_named("pi")
CLAUDE = adapter_named("claude")


def entry(number: int, text: str | None = None) -> bytes:
    message = {"role": "user", "content": text or f"turn {number}"}
    record = {"type": "message", "id": f"e{number}", "timestamp": "2026-07-01T08:00:00Z", "message": message}
    return json.dumps(record).encode()


def lines(*numbers: int) -> bytes:
    return b"".join(entry(number) + b"\n" for number in numbers)


def turns(events: list[Event]) -> list[str]:
    return [turn.text for turn in only(events, UserTurn)]


def read(tail: Tail, now: float = 0.0) -> list[str]:
    return turns(tail.read(now=now).events)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "2026-07-01T08-00-00-000Z_s.jsonl"


def test_new_records_are_read_from_where_the_log_was_left(log: Path) -> None:
    log.write_bytes(lines(1, 2))
    tail = Tail(log, PI)
    assert read(tail) == ["turn 1", "turn 2"]
    assert read(tail) == []
    with log.open("ab") as file:
        file.write(lines(3))
    assert read(tail) == ["turn 3"]


def test_a_torn_last_line_waits_for_its_end(log: Path) -> None:
    log.write_bytes(lines(1) + entry(2)[:-5])
    tail = Tail(log, PI)
    batch = tail.read(now=0.0)
    assert turns(batch.events) == ["turn 1"]
    assert batch.waiting
    assert read(tail, now=100.0) == []
    with log.open("ab") as file:
        file.write(entry(2)[-5:] + b"\n")
    assert read(tail, now=101.0) == ["turn 2"]


def test_a_whole_last_line_without_its_newline_is_read_when_the_file_has_rested(log: Path) -> None:
    log.write_bytes(entry(1))
    tail = Tail(log, PI)
    assert read(tail, now=10.0) == []
    assert read(tail, now=10.0 + QUIET / 2) == []
    assert read(tail, now=10.0 + QUIET) == ["turn 1"]
    with log.open("ab") as file:
        file.write(b"\n" + lines(2))
    assert read(tail, now=20.0) == ["turn 2"]


def test_several_objects_on_one_line_are_several_records(log: Path) -> None:
    log.write_bytes(entry(1) + entry(2) + b"\n")
    events = Tail(log, PI).read(now=0.0).events
    assert turns(events) == ["turn 1", "turn 2"]
    assert [event.position.offset for event in events] == [0, len(entry(1))]


def test_a_record_after_a_torn_one_on_the_same_line_is_read(log: Path) -> None:
    torn = b'{"type":"message","id":"x","message":{"role":"user","content":[{"type":"text","te'
    log.write_bytes(torn + entry(2) + b"\n" + lines(3))
    tail = Tail(log, PI)
    events = tail.read(now=0.0).events
    assert turns(events) == ["turn 2", "turn 3"]
    assert tail.counts.undecodable.count == 1


def test_a_truncated_file_is_read_again_without_telling_anything_twice(log: Path) -> None:
    log.write_bytes(lines(1, 2, 3))
    tail = Tail(log, PI)
    read(tail)
    log.write_bytes(lines(1, 4))
    batch = tail.read(now=0.0)
    assert batch.restarted
    assert turns(batch.events) == ["turn 4"]
    assert [event.position.generation for event in batch.events] == [1]


def test_other_bytes_before_the_offset_are_another_log_even_when_it_is_longer(log: Path) -> None:
    log.write_bytes(lines(1, 2))
    tail = Tail(log, PI)
    read(tail)
    with log.open("r+b") as file:  # the same inode
        file.truncate(0)
        file.write(lines(5, 6, 7))
    assert read(tail) == ["turn 5", "turn 6", "turn 7"]
    assert tail.cursor().generation == 1


def test_a_replaced_file_is_read_again(log: Path, tmp_path: Path) -> None:
    log.write_bytes(lines(1, 2))
    tail = Tail(log, PI)
    read(tail)
    other = tmp_path / "other"
    other.write_bytes(lines(8, 9, 10))
    other.replace(log)
    assert read(tail) == ["turn 8", "turn 9", "turn 10"]


def test_a_copy_in_place_of_the_file_is_the_same_log(log: Path, tmp_path: Path) -> None:
    log.write_bytes(lines(1, 2))
    tail = Tail(log, PI)
    read(tail)
    other = tmp_path / "other"
    other.write_bytes(lines(1, 2, 3))
    other.replace(log)
    assert read(tail) == ["turn 3"]
    assert tail.cursor().generation == 0


def test_records_without_ids_are_told_once_when_the_file_is_read_again(log: Path) -> None:
    old = sample("pi-old").read_bytes()
    log.write_bytes(old)
    tail = Tail(log, PI)
    assert read(tail) == ["hello"]
    log.write_bytes(old[: old.index(b"\n") + 1])
    assert read(tail) == []
    log.write_bytes(old + lines(2))
    assert read(tail) == ["turn 2"]


def test_a_truncated_unfinished_line_does_not_mix_with_what_follows(log: Path) -> None:
    log.write_bytes(lines(1) + entry(2)[:40])
    tail = Tail(log, PI)
    read(tail)
    log.write_bytes(lines(1) + lines(3))
    assert read(tail) == ["turn 3"]
    assert tail.counts.undecodable.count == 0


def test_reading_goes_on_at_the_cursor_after_a_restart(log: Path) -> None:
    log.write_bytes(lines(1, 2) + entry(3)[:10])
    tail = Tail(log, PI)
    read(tail)
    cursor = tail.cursor()
    assert cursor.offset == len(lines(1, 2))
    log.write_bytes(lines(1, 2, 3))
    assert read(Tail(log, PI, cursor)) == ["turn 3"]


def test_a_log_that_changed_while_the_daemon_was_away_is_read_from_its_start(log: Path) -> None:
    log.write_bytes(lines(1, 2))
    tail = Tail(log, PI)
    read(tail)
    log.write_bytes(lines(7, 8, 9))
    batch = Tail(log, PI, tail.cursor()).read(now=0.0)
    assert batch.restarted
    assert turns(batch.events) == ["turn 7", "turn 8", "turn 9"]


def test_a_cursor_at_the_end_is_known_without_reading(log: Path) -> None:
    log.write_bytes(lines(1))
    tail = Tail(log, PI)
    assert not at_end(tail.cursor(), log.stat())
    read(tail)
    assert at_end(tail.cursor(), log.stat())


def test_a_missing_log_is_a_status_and_may_come_back(log: Path) -> None:
    tail = Tail(log, PI)
    assert tail.read(now=0.0).status == "missing"
    log.write_bytes(lines(1))
    assert read(tail) == ["turn 1"]
    log.unlink()
    assert tail.read(now=0.0).status == "missing"


def test_what_is_no_file_is_unreadable(log: Path) -> None:
    log.mkdir()
    assert Tail(log, PI).read(now=0.0).status == "unreadable"
    log.rmdir()
    os.mkfifo(log)
    assert Tail(log, PI).read(now=0.0) == Batch(events=[], status="unreadable", error="not a regular file")
    log.unlink()
    log.symlink_to(log)
    assert Tail(log, PI).read(now=0.0).status == "unreadable"


def test_a_line_that_is_too_long_is_counted_and_the_next_is_read(log: Path) -> None:
    log.write_bytes(lines(1) + entry(2, "x" * 5000) + b"\n" + lines(3))
    tail = Tail(log, PI, max_line=1000)
    events: list[Event] = []
    while (batch := tail.read(100, now=0.0)).more:
        events += batch.events
    assert turns(events + batch.events) == ["turn 1", "turn 3"]
    assert tail.counts.oversized.count == 1
    assert tail.counts.oversized.first is not None
    assert tail.counts.oversized.first.offset == len(lines(1))


def test_a_slice_holds_no_more_than_was_asked_for(log: Path) -> None:
    log.write_bytes(lines(*range(100)))
    tail = Tail(log, PI)
    batch = tail.read(1000, now=0.0)
    assert batch.more
    assert len(turns(batch.events)) < 10
    assert len(drain(tail)) + len(batch.events) == 100


@pytest.mark.parametrize(
    "damage",
    [
        b"\x00" * 500,
        b"\xff\xfe\xfd garbage",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'"just a string"',
        b"[1, 2]",
        b'{"type":"message","message":' + b"9" * 5000 + b"}",
        b'{"type":7,"message":"x"}',
        b'{"type":"message","message":{"role":"user","content":12}}',
    ],
    ids=["nuls", "bytes", "arrays", "objects", "string", "list", "number", "types", "content"],
)
def test_garbage_costs_no_other_record(log: Path, damage: bytes) -> None:
    log.write_bytes(lines(1) + damage + b"\n" + lines(2))
    tail = Tail(log, PI)
    assert [text for text in turns(drain(tail)) if text] == ["turn 1", "turn 2"]
    counts = tail.counts
    assert counts.undecodable.count + counts.irregular.count + len(counts.unknown) > 0


def test_bytes_that_are_no_text_and_lone_surrogates_are_replaced(log: Path) -> None:
    bad = b'{"type":"message","id":"b1","message":{"role":"user","content":"bytes \xff\x00 here"}}\n'
    lone = b'{"type":"message","id":"b2","message":{"role":"user","content":"lone \\ud83d here"}}\n'
    log.write_bytes(bad + lone)
    texts = read(Tail(log, PI))
    assert texts == ["bytes \ufffd\x00 here", "lone \ufffd here"]
    assert all(text.encode() for text in texts)


def test_nuls_before_a_record_do_not_hide_it(log: Path) -> None:
    log.write_bytes(lines(1) + b"\x00" * 300 + lines(2))
    assert read(Tail(log, PI)) == ["turn 1", "turn 2"]


def test_unknown_records_are_counted_with_their_first_place(log: Path) -> None:
    log.write_bytes(lines(1) + b'{"type":"brand-new"}\n{"type":"brand-new"}\n')
    tail = Tail(log, CLAUDE)
    read(tail)
    sighting = tail.counts.unknown["brand-new"]
    assert sighting.count == 2
    assert sighting.first is not None
    assert sighting.first.offset == len(lines(1))
    assert tail.counts.records == 3
