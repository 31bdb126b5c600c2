"""Checkpoints in the catalog."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter

import msgspec
import pytest

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import CheckpointFilter
from checkpointd.model.checkpoint import Cause, FileChange, ProjectRef, Record, SessionRef, Story, Trigger

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "catalog.sqlite")
    opened.open()
    yield opened
    opened.close()


def record(
    seq: int,
    *,
    trigger: Trigger = "turn",
    session: str | None = "s1",
    worktree: str = "w1",
    project: str = "p1",
    name: str = "",
    feature: str | None = None,
    story: Story | None = None,
    files: int = 0,
    at: datetime | None = None,
) -> Record:
    when = at or START + timedelta(minutes=seq)
    return Record(
        id=f"ckpt-{when:%Y%m%d-%H%M%S}-{project[-1]}{worktree[-1]}{seq:06x}",
        seq=seq,
        name=name or f"name-{seq}",
        title=f"Step {seq}",
        created_at=when,
        source=f"checkpointd:{trigger}",
        trigger=trigger,
        cause=Cause(worktree=worktree, agent="claude", session=session or "", trigger=trigger, position=str(seq)),
        reason="because",
        project=ProjectRef(id=project, root="/src/p", name="p", kind="git", worktree=worktree),
        tree="0" * 40,
        session=SessionRef(agent="claude", id=session) if session else None,
        feature=feature,
        story=story,
        files_changed=tuple(FileChange(path=f"src/file{n}.py", change="modify") for n in range(files)),
    )


def seqs(catalog: Catalog, wanted: CheckpointFilter) -> list[int]:
    return [row.record.seq for row in catalog.checkpoints(wanted)]


def test_what_was_added_comes_back_whole(catalog: Catalog) -> None:
    added = record(1, files=3)
    catalog.add_checkpoint(added, "c" * 40, 4096)
    row = catalog.checkpoint(added.id)
    assert row is not None
    assert (row.record, row.commit, row.size, row.pinned) == (added, "c" * 40, 4096, False)


def test_adding_again_replaces_and_keeps_the_pin(catalog: Catalog) -> None:
    added = record(1)
    catalog.add_checkpoint(added, "c" * 40, 1)
    catalog.set_pinned(added.id, pinned=True)
    catalog.add_checkpoint(added, "d" * 40, 2)
    assert catalog.checkpoint_count() == 1
    row = catalog.checkpoint(added.id)
    assert row is not None
    assert (row.commit, row.size, row.pinned) == ("d" * 40, 2, True)


def test_the_list_is_newest_first_and_filtered(catalog: Catalog) -> None:
    catalog.add_checkpoint(record(1, trigger="baseline", session="abc-1"), "c", 1)
    catalog.add_checkpoint(record(2, session="abc-1", feature="F-1"), "c", 1)
    catalog.add_checkpoint(record(3, session="abd-2"), "c", 1)
    catalog.add_checkpoint(record(4, session=None, project="p2", worktree="w2"), "c", 1)
    assert seqs(catalog, CheckpointFilter()) == [4, 3, 2, 1]
    assert seqs(catalog, CheckpointFilter(project="p1")) == [3, 2, 1]
    assert seqs(catalog, CheckpointFilter(worktree="w1", limit=2)) == [3, 2]
    assert seqs(catalog, CheckpointFilter(session="abc")) == [2, 1]
    assert seqs(catalog, CheckpointFilter(session="ab%")) == []
    assert seqs(catalog, CheckpointFilter(trigger="baseline")) == [1]
    assert seqs(catalog, CheckpointFilter(feature="F-1")) == [2]
    assert seqs(catalog, CheckpointFilter(agent="claude")) == [3, 2, 1]
    assert seqs(catalog, CheckpointFilter(since=START + timedelta(minutes=2), until=START + timedelta(minutes=3))) == [
        3,
        2,
    ]


def test_a_record_is_found_by_every_trigger_that_it_stands_for(catalog: Catalog) -> None:
    catalog.add_checkpoint(msgspec.structs.replace(record(1, trigger="repeated-failure"), also=("turn",)), "c", 1)
    catalog.add_checkpoint(record(2, trigger="baseline"), "c", 1)
    assert seqs(catalog, CheckpointFilter(trigger="turn")) == [1]
    assert seqs(catalog, CheckpointFilter(trigger="repeated-failure")) == [1]
    assert seqs(catalog, CheckpointFilter(trigger="manual")) == []


def test_the_line_is_counted_by_number_and_not_by_the_clock(catalog: Catalog) -> None:
    catalog.add_checkpoint(record(1), "c", 1)
    catalog.add_checkpoint(record(2, at=START - timedelta(days=1)), "c", 1)
    newest, before = catalog.nth_newest("w1", 0), catalog.nth_newest("w1", 1)
    assert newest is not None
    assert before is not None
    assert (newest.record.seq, before.record.seq) == (2, 1)
    assert catalog.nth_newest("w1", 2) is None
    assert catalog.newest("w1") == newest
    assert seqs(catalog, CheckpointFilter(worktree="w1")) == [2, 1]


def test_the_newest_of_a_session(catalog: Catalog) -> None:
    catalog.add_checkpoint(record(1, session="a"), "c", 1)
    catalog.add_checkpoint(record(2, session="b"), "c", 1)
    newest = catalog.newest("w1", "a")
    assert newest is not None
    assert newest.record.seq == 1
    assert catalog.newest("w1", "c") is None


def test_a_number_is_not_given_out_twice(catalog: Catalog) -> None:
    assert catalog.next_seq("w1") == 1
    added = record(7)
    catalog.add_checkpoint(added, "c", 1)
    catalog.remove_checkpoint(added.id)
    assert catalog.checkpoint(added.id) is None
    assert catalog.next_seq("w1") == 8
    assert catalog.next_seq("w2") == 1


def test_a_cause_finds_its_checkpoint(catalog: Catalog) -> None:
    added = record(1)
    catalog.add_checkpoint(added, "c", 1)
    assert catalog.by_cause(added.cause.key()) == added.id
    assert catalog.by_cause("other") is None


@pytest.mark.parametrize("cut", [5, 14, 22])
def test_a_prefix_finds_the_one_that_begins_so(catalog: Catalog, cut: int) -> None:
    added = record(1)
    catalog.add_checkpoint(added, "c", 1)
    assert [row.record.id for row in catalog.find(added.id)] == [added.id]
    assert [row.record.id for row in catalog.find(added.id[:cut])] == [added.id]
    assert [row.record.id for row in catalog.find(added.id[5 : cut + 5])] == [added.id]


def test_an_ambiguous_prefix_gives_all_candidates(catalog: Catalog) -> None:
    catalog.add_checkpoint(record(1), "c", 1)
    catalog.add_checkpoint(record(2), "c", 1)
    assert [row.record.seq for row in catalog.find("ckpt-20260301")] == [2, 1]
    assert catalog.find("ckpt-2027") == []
    assert catalog.find("") == []


def test_a_name_is_sought_in_the_project_first(catalog: Catalog) -> None:
    catalog.add_checkpoint(record(1, name="before-rewrite"), "c", 1)
    catalog.add_checkpoint(record(2, name="before-rewrite", project="p2", worktree="w2"), "c", 1)
    assert [row.record.seq for row in catalog.find("before-rewrite", "p1")] == [1]
    assert [row.record.seq for row in catalog.find("before-rewrite", "p3")] == [2, 1]
    assert catalog.name_taken("p1", "before-rewrite")
    assert not catalog.name_taken("p3", "before-rewrite")


def test_a_name_that_looks_like_many_ids_is_a_name(catalog: Catalog) -> None:
    catalog.add_checkpoint(record(1), "c", 1)
    catalog.add_checkpoint(record(2, name="2026"), "c", 1)
    assert [row.record.seq for row in catalog.find("2026", "p1")] == [2]


def test_a_newer_record_of_session_and_trigger_supersedes(catalog: Catalog) -> None:
    older, newer, other = record(1), record(2), record(3, trigger="gate")
    for added in (older, newer, other):
        catalog.add_checkpoint(added, "c", 1)
    assert catalog.statuses(older.id) == ("SUPERSEDED",)
    assert catalog.statuses(newer.id) == ("ACTIVE",)
    assert catalog.statuses(other.id) == ("ACTIVE",)
    catalog.remove_checkpoint(newer.id)
    assert catalog.statuses(older.id) == ("ACTIVE",)


def test_a_story_is_superseded_by_its_own_stage_only(catalog: Catalog) -> None:
    build = Story(us_id="US-1", iter_id="I-1", stage="build")
    test = Story(us_id="US-1", iter_id="I-1", stage="test")
    added = [record(1, story=build), record(2, story=test), record(3, story=build, session="s2")]
    for each in added:
        catalog.add_checkpoint(each, "c", 1)
    assert [catalog.statuses(each.id) for each in added] == [("SUPERSEDED",), ("ACTIVE",), ("ACTIVE",)]


def test_marks_are_statuses(catalog: Catalog) -> None:
    added = record(1)
    catalog.add_checkpoint(added, "c", 1)
    catalog.mark(added.id, "ROLLED_BACK")
    catalog.mark(added.id, "ROLLED_BACK")
    assert catalog.statuses(added.id) == ("ACTIVE", "ROLLED_BACK")
    catalog.mark(added.id, "QUARANTINED")
    assert catalog.statuses(added.id) == ("QUARANTINED", "ROLLED_BACK")
    catalog.unmark(added.id, "QUARANTINED")
    assert catalog.statuses(added.id) == ("ACTIVE", "ROLLED_BACK")
    assert catalog.statuses("ckpt-none") == ()


def test_adding_takes_less_than_a_millisecond(catalog: Catalog) -> None:
    spans = []
    for seq in range(1, 60):
        added = record(seq, files=15)
        begin = perf_counter()
        catalog.add_checkpoint(added, "c" * 40, 1)
        spans.append(perf_counter() - begin)
    assert sorted(spans)[len(spans) // 2] < 0.001
