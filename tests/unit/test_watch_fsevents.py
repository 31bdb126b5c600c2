"""What FSEvents tells, from recorded cases."""

import asyncio
import os
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointd.watch.fsevents import FsEventsHub, FsEventsTree, Stream, Told, spellings
from checkpointd.watch.tree import RootGone

CREATED, REMOVED, RENAMED, MODIFIED, INODE = 0x100, 0x200, 0x800, 0x1000, 0x400
FILE, FOLDER = 0x10000, 0x20000


class FakeStream:
    """A stream that tells what the test says."""

    def __init__(self, root: bytes, told: Told) -> None:
        self.root = root
        self.told = told
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def tell(self, *records: tuple[str, int]) -> None:
        paths = [self.root + b"/" + os.fsencode(path) if path else self.root for path, _ in records]
        self.told(paths, [flags for _, flags in records])


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def changed(self, path: bytes, *, folder: bool) -> None:
        self.lines.append(f"changed {os.fsdecode(path)}{'/' if folder else ''}")

    def removed(self, path: bytes, *, folder: bool) -> None:
        self.lines.append(f"removed {os.fsdecode(path)}{'/' if folder else ''}")

    def left(self, path: bytes, cookie: int, *, folder: bool) -> None:
        raise AssertionError

    def arrived(self, path: bytes, cookie: int, *, folder: bool) -> None:
        raise AssertionError

    def found(self, path: bytes) -> None:
        self.lines.append(f"found {os.fsdecode(path)}")

    def skipped(self, path: bytes) -> None:
        self.lines.append(f"skipped {os.fsdecode(path)}")

    def overflowed(self) -> None:
        self.lines.append("overflowed")

    def limited(self, reason: str) -> None:
        raise AssertionError

    def gone(self) -> None:
        self.lines.append("gone")


class Scene:
    """A tree behind a fake stream."""

    def __init__(self, root: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.root = root
        self.streams: list[FakeStream] = []
        self.hub = FsEventsHub(loop, self.begin)
        self.listener = Listener()
        self.tree = FsEventsTree(
            self.hub, os.fsencode(root), self.listener, lambda folder: folder in {b"ignored", b"src/.git"}
        )

    def begin(self, root: bytes, told: Told) -> Stream:
        self.streams.append(FakeStream(root, told))
        return self.streams[-1]

    def told(self, *records: tuple[str, int]) -> list[str]:
        self.streams[-1].tell(*records)
        lines, self.listener.lines = self.listener.lines, []
        return lines

    def write(self, *files: str) -> None:
        for file in files:
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            (self.root / file).write_bytes(b"x")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "project").mkdir()
    loop = asyncio.new_event_loop()
    made = Scene(tmp_path / "project", loop)
    made.tree.start()
    yield made
    made.hub.close()
    loop.close()


def test_a_write_is_told(scene: Scene) -> None:
    scene.write("src/a.py")
    assert scene.told(("src/a.py", CREATED | MODIFIED | FILE)) == ["changed src/a.py"]
    assert scene.told(("src/a.py", INODE | FILE)) == ["changed src/a.py"]


def test_flags_summed_up_are_settled_by_looking(scene: Scene) -> None:
    scene.write("back.py")
    created_and_removed = CREATED | REMOVED | MODIFIED | FILE
    assert scene.told(("back.py", created_and_removed), ("away.py", created_and_removed)) == [
        "changed back.py",
        "removed away.py",
    ]


def test_a_rename_is_one_name_less_and_one_more(scene: Scene) -> None:
    scene.write("new/a.py", "new/deep/b.py")
    lines = scene.told(("old", RENAMED | FOLDER), ("new", RENAMED | FOLDER))
    assert lines[:2] == ["removed old/", "changed new/"]
    assert sorted(lines[2:]) == ["found new/a.py", "found new/deep/b.py"]


def test_what_is_left_out_is_dropped(scene: Scene) -> None:
    scene.write("ignored/a/b", "src/.git/HEAD", "ignored2")
    assert scene.told(
        ("ignored/a/b", CREATED | FILE),
        ("ignored", CREATED | FOLDER),
        ("src/.git/HEAD", MODIFIED | FILE),
        ("src/.git", CREATED | FOLDER),
        ("ignored2", MODIFIED | FILE),
    ) == ["skipped ignored", "skipped src/.git", "changed ignored2"]


@pytest.mark.parametrize("flag", [0x1, 0x2 | 0x1, 0x4 | 0x1])
def test_dropped_events_lead_to_a_scan(scene: Scene, flag: int) -> None:
    assert scene.told(("", flag)) == ["overflowed"]


def test_a_root_that_went_is_told(scene: Scene) -> None:
    assert scene.told(("", 0x20)) == []
    shutil.rmtree(scene.root)
    assert scene.told(("", 0x20)) == ["gone"]
    assert scene.streams[-1].stopped
    assert not scene.tree.intact()
    with pytest.raises(RootGone):
        scene.tree.start()


def test_there_is_no_barrier(scene: Scene) -> None:
    assert scene.hub.watches == 1
    assert not asyncio.run(scene.hub.barrier(0.1))


@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
@pytest.mark.parametrize("told", ["NFC", "NFD"])
def test_a_name_is_told_as_the_disk_spells_it(scene: Scene, on_disk: str, told: str) -> None:
    form: Callable[[str, str], str] = unicodedata.normalize  # type: ignore[assignment]
    scene.write(f"{form(on_disk, 'Ordner ü')}/{form(on_disk, 'café')}.txt")
    path = os.fsencode(form(told, "Ordner ü/café.txt"))
    assert spellings(os.fsencode(scene.root), path) == {os.fsencode(form(on_disk, "Ordner ü/café.txt"))}


def test_a_name_that_is_gone_is_told_in_both_forms(scene: Scene) -> None:
    assert len(scene.told(("café", REMOVED | FILE))) == 2
    both = {os.fsencode(unicodedata.normalize(form, "café")) for form in ("NFC", "NFD")}  # type: ignore[arg-type]
    assert spellings(os.fsencode(scene.root), os.fsencode("café")) == both
