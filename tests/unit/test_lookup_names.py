"""What a client can call a checkpoint, a session, a project."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import ProjectRow, SessionRow, WorktreeRow
from checkpointd.engine.errors import Ambiguous, NotFound
from checkpointd.engine.lookup import Lookup
from checkpointd.engine.projects import text_of
from checkpointd.engine.requests import Scope
from checkpointd.model.checkpoint import Cause, ProjectRef, Record, SessionRef

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE, TWO = "0f3e1a2b-77aa-4c1d-9e1f-000000000001", "0f3e1a2b-88bb-4c1d-9e1f-000000000002"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "catalog.sqlite")
    opened.open()
    yield opened
    opened.close()


class Shelf:
    """A project `shop` with a nested one, two sessions, and five checkpoints of the first."""

    def __init__(self, catalog: Catalog, top: Path) -> None:
        self.catalog = catalog
        self.root, self.inner = top / "shop", top / "shop/vendor/lib"
        self.inner.mkdir(parents=True)
        for number, (name, root) in enumerate((("shop", self.root), ("lib", self.inner)), 1):
            catalog.put_project(ProjectRow(id=f"aaaa{number}", name=name, kind="git", created_at=START))
            catalog.put_worktree(
                WorktreeRow(
                    id=f"w{number}", project=f"aaaa{number}", root=text_of(root), first_seen=START, last_seen=START
                )
            )
        for session in (ONE, TWO):
            catalog.put_session(
                SessionRow(agent="claude", id=session, log=f"/l/{session}", state="live", last_at=START)
            )
        self.ids = [
            self.add(1, "before", None, 0),
            self.add(2, "first", ONE, 1),
            self.add(3, "first-again", ONE, 1),
            self.add(4, "second", ONE, 2),
            self.add(5, "other", TWO, 1),
        ]
        self.lookup = Lookup(catalog)
        self.here = Scope(cwd=bytes(self.root))

    def add(self, seq: int, name: str, session: str | None, turn: int) -> str:
        when = START + timedelta(minutes=seq)
        record = Record(
            id=f"ckpt-{when:%Y%m%d-%H%M%S}-{seq:08x}", seq=seq, name=name, title="", created_at=when, source="s",
            trigger="turn" if session else "manual", reason="", tree="0" * 40, turn=turn or None,
            cause=Cause(worktree="w1", position=str(seq)),
            project=ProjectRef(id="aaaa1", root=text_of(self.root), name="shop", kind="git", worktree="w1"),
            session=SessionRef(agent="claude", id=session) if session else None,
        )  # fmt: skip
        self.catalog.add_checkpoint(record, "c" * 40, 1)
        return record.id

    def named(self, text: str, scope: Scope | None = None) -> str:
        return self.lookup.checkpoint(scope or self.here, text).record.name


@pytest.fixture
def shelf(catalog: Catalog, tmp_path: Path) -> Shelf:
    return Shelf(catalog, tmp_path)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("@", "other"),
        ("@0", "other"),
        ("@1", "second"),
        ("@4", "before"),
        ("@session-start", "other"),
        ("second", "second"),
        ("first", "first"),
        ("ckpt-20260301-120400", "second"),
        ("20260301-120400-0000", "second"),
        (f"{ONE}:1", "first-again"),
        ("0f3e1a2b-77:2", "second"),
        ("0f3e1a2b-88:1", "other"),
    ],
)
def test_names_for_a_checkpoint(shelf: Shelf, text: str, name: str) -> None:
    assert shelf.named(text) == name


def test_the_start_of_the_session_is_its_first_checkpoint_here(shelf: Shelf) -> None:
    shelf.add(6, "third", ONE, 3)
    assert shelf.named("@session-start") == "first"


@pytest.mark.parametrize(
    "text", ["", "nonsense", "@5", "@x", "@-1", "@ 1", "@session", "ffff:1", f"{ONE}:9", f"{ONE}:", ":1"]
)
def test_what_names_none_is_not_found_and_told_by_name(shelf: Shelf, text: str) -> None:
    with pytest.raises(NotFound) as caught:
        shelf.named(text)
    assert text.rpartition(":")[0] in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", ["ckpt-", "ckpt-2026", "0f3e1a2b:1"])
def test_what_names_several_is_ambiguous_and_lists_some(shelf: Shelf, text: str) -> None:
    with pytest.raises(Ambiguous) as caught:
        shelf.named(text)
    assert text.partition(":")[0] in caught.value.message
    assert caught.value.hint
    assert "ckpt-20260301" in caught.value.hint or ONE in caught.value.hint


def test_the_innermost_root_holds_a_directory(shelf: Shelf) -> None:
    def at(directory: Path) -> str | None:
        row = shelf.lookup.worktree(Scope(cwd=bytes(directory)))
        return row.id if row is not None else None

    assert at(shelf.root) == at(shelf.root / "vendor") == at(shelf.root / "not/there") == "w1"
    assert at(shelf.inner) == at(shelf.inner / "src") == "w2"
    assert at(shelf.root.parent) is None
    assert at(shelf.root.with_name("shopping")) is None
    (shelf.root.parent / "link").symlink_to(shelf.inner)
    assert at(shelf.root.parent / "link") == "w2"
    (shelf.root.parent / "loop").symlink_to("loop")
    assert at(shelf.root.parent / "loop") is None


def test_the_work_tree_seen_last_stands_for_a_root_that_two_had(shelf: Shelf) -> None:
    later = START + timedelta(days=1)
    shelf.catalog.put_worktree(
        WorktreeRow(id="w3", project="aaaa2", root=text_of(shelf.root), first_seen=later, last_seen=later)
    )
    found = shelf.lookup.worktree(shelf.here)
    assert found is not None
    assert found.id == "w3"


@pytest.mark.parametrize("text", ["shop", "aaaa1"])
def test_a_project_has_a_name_and_an_id(shelf: Shelf, text: str) -> None:
    assert shelf.lookup.required_project(Scope(cwd=b"/", project=text)).id == "aaaa1"


def test_a_project_is_named_by_its_root_or_the_beginning_of_its_id(shelf: Shelf) -> None:
    assert shelf.lookup.required_project(Scope(cwd=b"/", project=f"{shelf.inner}/")).id == "aaaa2"
    shelf.catalog.put_project(ProjectRow(id="bbbb", name="x", kind="plain", created_at=START))
    assert shelf.lookup.required_project(Scope(cwd=b"/", project="bb")).id == "bbbb"


def test_names_of_projects_that_are_none_or_several(shelf: Shelf) -> None:
    with pytest.raises(NotFound, match="nonsense"):
        shelf.lookup.project(Scope(cwd=b"/", project="nonsense"))
    with pytest.raises(NotFound):
        shelf.lookup.project(Scope(cwd=b"/", project=""))
    with pytest.raises(Ambiguous, match="aaaa names 2 projects"):
        shelf.lookup.project(Scope(cwd=b"/", project="aaaa"))
    with pytest.raises(NotFound, match="/nowhere"):
        shelf.lookup.required_project(Scope(cwd=b"/nowhere"))
    assert shelf.lookup.project(Scope(cwd=bytes(shelf.root), all=True)) is None


def test_roots_that_are_not_text_are_found(shelf: Shelf) -> None:
    odd = shelf.root.parent / os.fsdecode(b"caf\xe9\n")
    odd.mkdir()
    shelf.catalog.put_worktree(
        WorktreeRow(id="w9", project="aaaa2", root=text_of(odd), first_seen=START, last_seen=START)
    )
    found = shelf.lookup.worktree(Scope(cwd=bytes(odd / "deep")))
    assert found is not None
    assert found.id == "w9"
