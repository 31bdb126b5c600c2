"""Projects, sessions, cursors, jobs and counters in the catalog."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import Cursor, ProjectRow, SessionFilter, SessionRow, WorktreeRow

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "catalog.sqlite")
    opened.open()
    yield opened
    opened.close()


def test_a_project_comes_back_with_its_marks(catalog: Catalog) -> None:
    row = ProjectRow(
        id="p1", name="one", kind="git", created_at=NOW, marks={"inode": 1 << 40, "remotes": ["a", "b"], "root": "/x"}
    )
    catalog.put_project(row)
    assert catalog.project("p1") == row
    catalog.set_paused("p1", paused=True)
    paused = catalog.project("p1")
    assert paused is not None
    assert paused.paused
    assert catalog.project("p2") is None


def test_the_work_tree_seen_last_at_a_path_counts(catalog: Catalog) -> None:
    old = WorktreeRow(id="w1", project="p1", root="/src/p", first_seen=NOW, last_seen=NOW)
    new = WorktreeRow(id="w2", project="p2", root="/src/p", gitdir="/g", first_seen=NOW, last_seen=NOW + timedelta(1))
    catalog.put_worktree(new)
    catalog.put_worktree(old)
    assert catalog.worktree_at("/src/p") == new
    assert catalog.worktree_at("/src") is None
    assert catalog.worktree("w1") == old
    assert catalog.worktrees() == [old, new]
    assert catalog.worktrees("p1") == [old]
    catalog.remove_project("p2")
    assert catalog.worktrees() == [old]


def session(identity: str, **fields: object) -> SessionRow:
    return SessionRow(**{"agent": "claude", "id": identity, "log": f"/logs/{identity}", "state": "live", **fields})  # type: ignore[arg-type]


def test_a_session_is_replaced_as_more_is_known(catalog: Catalog) -> None:
    catalog.put_session(session("s1"))
    known = session("s1", turns=3, title="Fix", pid=7, pid_started=1.5, started_at=NOW, last_at=NOW)
    catalog.put_session(known)
    assert catalog.session("claude", "s1") == known
    assert catalog.session("codex", "s1") is None
    assert catalog.session_of_log("/logs/s1") == known
    assert catalog.session_count() == 1
    catalog.remove_session("claude", "s1")
    assert catalog.sessions() == []


def test_sessions_are_counted_by_agent(catalog: Catalog) -> None:
    for agent, identity in (("claude", "s1"), ("claude", "s2"), ("pi", "s1")):
        catalog.put_session(session(identity, agent=agent))
    assert catalog.session_counts() == {"claude": 2, "pi": 1}


def test_a_session_is_found_by_the_beginning_of_its_id(catalog: Catalog) -> None:
    for identity in ("abc", "abcd", "abx%"):
        catalog.put_session(session(identity, last_at=NOW))
    assert [row.id for row in catalog.find_session("abc")] == ["abc"]
    assert [row.id for row in catalog.find_session("abcd")] == ["abcd"]
    assert sorted(row.id for row in catalog.find_session("ab")) == ["abc", "abcd", "abx%"]
    assert catalog.find_session("a%") == []
    assert catalog.find_session("") == []


def test_sessions_are_listed_by_last_activity(catalog: Catalog) -> None:
    catalog.put_session(session("a", last_at=NOW, project="p1"))
    catalog.put_session(session("b", last_at=NOW + timedelta(hours=1), state="ended", agent="pi"))
    catalog.put_session(session("c", state="old"))

    def ids(**wanted: object) -> list[str]:
        return [row.id for row in catalog.sessions(SessionFilter(**wanted))]  # type: ignore[arg-type]

    assert ids() == ["b", "a", "c"]
    assert ids(limit=1) == ["b"]
    assert ids(states=("live", "old")) == ["a", "c"]
    assert ids(project="p1") == ["a"]
    assert ids(agent="pi") == ["b"]
    assert ids(since=NOW + timedelta(minutes=1)) == ["b"]


def test_cursors_come_back_as_they_were(catalog: Catalog) -> None:
    odd = os.fsdecode(b"/logs/caf\xe9\n.jsonl")
    cursors = [
        Cursor(
            path="/logs/a", agent="claude", device=(1 << 64) - 1, inode=1 << 63, offset=5, state=b"\0{}", session="s"
        ),
        Cursor(path=odd, agent="pi", generation=2, tail_hash="ff"),
    ]
    catalog.put_cursors(cursors)
    assert {cursor.path: cursor for cursor in catalog.cursors()} == {cursor.path: cursor for cursor in cursors}
    assert catalog.cursor(odd) == cursors[1]
    catalog.remove_cursor(odd)
    assert catalog.cursor(odd) is None


def test_fifteen_thousand_cursors_are_read_at_once(catalog: Catalog) -> None:
    catalog.put_cursors(Cursor(path=f"/logs/{n}", agent="claude", inode=n, offset=n) for n in range(15_000))
    assert len(catalog.cursors()) == 15_000


def test_jobs_values_and_counters_are_remembered(catalog: Catalog) -> None:
    assert catalog.last_run("reap") is None
    catalog.set_run("reap", NOW)
    assert catalog.last_run("reap") == NOW
    catalog.set_value("boot", "x")
    catalog.set_value("open", "mine")
    assert catalog.value("boot") == "x"
    catalog.set_value("boot", None)
    assert catalog.value("boot") is None
    catalog.count("claude", {"records": 5, "unknown:x": 1})
    catalog.count("claude", {"records": 2})
    assert catalog.counts() == {"claude": {"records": 7, "unknown:x": 1}}
