"""Watching a project with real inotify."""

import asyncio
import errno
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from watchdog.observers import inotify_c

from checkpointd.clock import SystemClock
from checkpointd.watch.handover import Changes
from checkpointd.watch.inotify import InotifyHub
from checkpointd.watch.project import ProjectWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify")


class Owner:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.paths: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self.deleted_folders: set[bytes] = set()
        self.batches: list[Changes] = []
        self.told: list[str] = []
        self.news = asyncio.Event()

    def on_changes(self, changes: Changes) -> None:
        self.batches.append(changes)
        self.paths |= changes.paths
        self.deleted |= changes.deleted
        self.deleted_folders |= changes.deleted_folders
        self.news.set()

    def on_overflow(self) -> None:
        self.tell("overflow")

    def on_limit(self, reason: str) -> None:
        self.tell(f"limit {reason}")

    def on_repository(self) -> None:
        self.tell("repository")

    def on_gone(self) -> None:
        self.tell("gone")

    def tell(self, what: str) -> None:
        self.told.append(what)
        self.news.set()

    def covers(self, path: bytes) -> bool:
        """Whether the path or a folder above it was told."""
        return any(told == path or path.startswith(told + b"/") for told in self.paths)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.news.clear()
                await self.news.wait()


class Scene:
    """A project under watch."""

    def __init__(self, hub: InotifyHub, root: Path, owner: Owner, watch: ProjectWatch) -> None:
        self.hub = hub
        self.root = root
        self.owner = owner
        self.watch = watch

    async def settled(self) -> None:
        """Everything done so far was told."""
        assert await self.watch.drain(5)


@asynccontextmanager
async def watched(
    tmp_path: Path, *, skip: Callable[[bytes], bool] = lambda folder: folder == b"ignored", budget: int | None = None
) -> AsyncIterator[Scene]:
    root = tmp_path / "project"
    root.mkdir(exist_ok=True)
    hub = InotifyHub(asyncio.get_running_loop(), tmp_path / "run" / "cookies", budget=budget)
    hub.open()
    owner = Owner()
    watch = ProjectWatch(hub, root, owner, skip=skip, clock=SystemClock())
    watch.start([root / ".git"] if (root / ".git").is_dir() else [])
    try:
        yield Scene(hub, root, owner, watch)
    finally:
        watch.stop()
        assert hub.watches == 0
        hub.close()


def play(tmp_path: Path, act: Callable[[Scene], Awaitable[None]], **options: object) -> None:
    async def run() -> None:
        async with watched(tmp_path, **options) as scene:  # type: ignore[arg-type]
            await act(scene)

    asyncio.run(run())


def fill(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(b"x")


def test_writes_are_told_and_what_was_there_is_not(tmp_path: Path) -> None:
    fill(tmp_path / "project", "old.txt", "src/old.py", "src/deep/er.py")

    async def act(scene: Scene) -> None:
        fill(scene.root, "src/deep/er.py", "new.txt")
        os.chmod(scene.root / "src/old.py", 0o700)
        await scene.settled()
        assert scene.owner.paths == {b"src/deep/er.py", b"new.txt", b"src/old.py"}
        assert not scene.owner.deleted

    play(tmp_path, act)


def test_names_are_raw_bytes(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        name = b"caf\xe9\n\\"
        fill(scene.root, os.fsdecode(name))
        await scene.settled()
        assert scene.owner.paths == {name}

    play(tmp_path, act)


def test_folders_left_out_have_no_watch_and_are_not_told(tmp_path: Path) -> None:
    fill(tmp_path / "project", "ignored/a/b/c.txt", "src/a.py")

    async def act(scene: Scene) -> None:
        assert scene.watch.watches == 2
        fill(scene.root, "ignored/a/b/c.txt", "ignored/new/d.txt")
        shutil.rmtree(scene.root / "ignored")
        fill(scene.root, "ignored/again.txt")
        await scene.settled()
        assert scene.owner.batches == []
        assert scene.watch.watches == 2

    play(tmp_path, act)


def test_an_atomic_save_is_no_deletion(tmp_path: Path) -> None:
    fill(tmp_path / "project", "a.py")

    async def act(scene: Scene) -> None:
        for _ in range(10):
            fill(scene.root, "a.py.tmp")
            os.replace(scene.root / "a.py.tmp", scene.root / "a.py")
        await scene.settled()
        assert b"a.py" in scene.owner.paths
        assert scene.owner.deleted == set()

    play(tmp_path, act)


def test_a_rename_is_no_deletion_however_slow_the_watching_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "project", "old/a.py")

    def slowly(descriptor: inotify_c.InotifyFD, event: inotify_c.InotifyEvent) -> None:
        time.sleep(0.06)  # not to wait for anything: the slowness is what is tested
        handle(descriptor, event)

    async def act(scene: Scene) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(inotify_c.InotifyFD, "handle_event", slowly)
            os.rename(scene.root / "old", scene.root / "new")
            await scene.settled()
            os.rename(scene.root / "new", tmp_path / "away")
            await scene.owner.until(lambda: bool(scene.owner.deleted_folders))
        assert scene.owner.deleted_folders == {b"new"}

    play(tmp_path, act)


def test_deletions_are_counted_from_the_first(tmp_path: Path) -> None:
    fill(tmp_path / "project", "src/a.py", "src/b/c.py", "keep.py")

    async def act(scene: Scene) -> None:
        before = time.monotonic()
        shutil.rmtree(scene.root / "src")
        after = time.monotonic()
        await scene.settled()
        assert scene.owner.deleted == {b"src/a.py", b"src/b/c.py"}
        assert scene.owner.deleted_folders == {b"src", b"src/b"}
        assert before <= scene.owner.batches[0].at <= after + 0.2
        assert b"src" in scene.owner.paths
        assert scene.watch.watches == 1

    play(tmp_path, act)


def test_a_folder_moved_out_counts_as_deleted_and_is_watched_no_longer(tmp_path: Path) -> None:
    fill(tmp_path / "project", "src/deep/a.py")

    async def act(scene: Scene) -> None:
        os.rename(scene.root / "src", tmp_path / "away")
        await scene.owner.until(lambda: scene.owner.deleted_folders == {b"src"})
        scene.owner.paths.clear()
        fill(tmp_path / "away", "deep/a.py", "deep/new.py")
        fill(scene.root, "then.txt")
        await scene.settled()
        assert scene.owner.paths == {b"then.txt"}
        assert scene.watch.watches == 1

    play(tmp_path, act)


def test_a_folder_moved_in_is_told_whole_and_watched(tmp_path: Path) -> None:
    fill(tmp_path / "outside", "a.py", "deep/b.py", "ignored-not/c.py")

    async def act(scene: Scene) -> None:
        os.rename(tmp_path / "outside", scene.root / "inside")
        await scene.settled()
        assert scene.owner.paths == {b"inside"}
        fill(scene.root, "inside/deep/b.py")
        await scene.settled()
        assert scene.owner.paths == {b"inside", b"inside/deep/b.py"}
        assert not scene.owner.deleted_folders

    play(tmp_path, act)


def test_a_renamed_folder_is_told_under_both_names(tmp_path: Path) -> None:
    fill(tmp_path / "project", "old/deep/a.py", "other/x.py")

    async def act(scene: Scene) -> None:
        os.rename(scene.root / "old", scene.root / "other/new")
        fill(scene.root, "other/new/deep/a.py")
        await scene.settled()
        assert {b"old", b"other/new"} <= scene.owner.paths
        scene.owner.paths.clear()
        fill(scene.root, "other/new/deep/a.py")
        os.rename(scene.root / "other/new", scene.root / "old")
        await scene.settled()
        scene.owner.paths.clear()
        fill(scene.root, "old/deep/b.py")
        await scene.settled()
        assert scene.owner.paths == {b"old/deep/b.py"}
        assert not scene.owner.deleted_folders

    play(tmp_path, act)


def test_folders_exchanged_keep_their_right_names(tmp_path: Path) -> None:
    fill(tmp_path / "project", "a/of-a", "b/of-b")

    async def act(scene: Scene) -> None:
        for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
            os.rename(scene.root / old, scene.root / new)
        await scene.settled()
        scene.owner.paths.clear()
        fill(scene.root, "a/of-b", "b/of-a")
        await scene.settled()
        assert scene.owner.paths == {b"a/of-b", b"b/of-a"}

    play(tmp_path, act)


def test_files_written_while_their_folders_are_new_are_all_told(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        files = [f"new{n}/a/b/file.txt" for n in range(400)]
        await asyncio.to_thread(fill, scene.root, *files)
        await scene.settled()
        assert [file for file in files if not scene.owner.covers(file.encode())] == []
        scene.owner.paths.clear()
        await asyncio.to_thread(fill, scene.root, *files)
        await scene.settled()
        assert scene.owner.paths == {file.encode() for file in files}

    play(tmp_path, act)


def test_a_burst_of_20000_files_is_told_whole_in_few_batches(tmp_path: Path) -> None:
    fill(tmp_path / "project", *[f"d{n}/keep" for n in range(20)])

    async def act(scene: Scene) -> None:
        def burst() -> set[bytes]:
            written = set()
            for n in range(20_000):
                path = f"d{n % 20}/f{n}"
                os.close(os.open(scene.root / path, os.O_CREAT | os.O_WRONLY))
                written.add(path.encode())
            return written

        written = await asyncio.to_thread(burst)
        # The reader may have been too slow for the kernel's queue; then it must be said.
        if not await scene.watch.drain(20):
            await scene.owner.until(lambda: "overflow" in scene.owner.told)
        assert "overflow" in scene.owner.told or scene.owner.paths == written
        scene.owner.paths.clear()
        fill(scene.root, "d3/last")
        await scene.settled()
        assert scene.owner.paths == {b"d3/last"}
        assert len(scene.owner.batches) < 20_000

    play(tmp_path, act)


handle = inotify_c.InotifyFD.handle_event


def overflow(hub: InotifyHub) -> None:
    """What watchdog's reader does with IN_Q_OVERFLOW."""
    assert hub._descriptor is not None
    lost = inotify_c.Mask(inotify_c.InotifyConstants.IN_Q_OVERFLOW)
    handle(hub._descriptor, inotify_c.InotifyEvent(inotify_c.WatchDescriptor(-1), lost, 0, b""))


def test_an_overflow_is_told_and_what_was_missed_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "project", "gone/a", "renamed/deep/b", "replaced/c", "stays/d")

    async def act(scene: Scene) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(inotify_c.InotifyFD, "handle_event", lambda descriptor, event: None)
            shutil.rmtree(scene.root / "gone")
            os.rename(scene.root / "renamed", scene.root / "new")
            shutil.rmtree(scene.root / "replaced")
            fill(scene.root, "replaced/c", "made/e/f")
            # The reader has thrown away all this once it is deaf to a cookie, too.
            assert not await scene.hub.barrier(0.2)
        overflow(scene.hub)
        await scene.owner.until(lambda: "overflow" in scene.owner.told)
        assert scene.watch.state == "watching"
        assert scene.watch.watches == 7
        fill(scene.root, "new/deep/b", "replaced/c", "made/e/f", "stays/d")
        await scene.settled()
        assert scene.owner.paths == {b"new/deep/b", b"replaced/c", b"made/e/f", b"stays/d"}

    play(tmp_path, act)


def test_a_barrier_fails_when_events_were_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(scene: Scene) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(inotify_c.InotifyFD, "handle_event", lambda descriptor, event: None)
            waiting = asyncio.create_task(scene.watch.drain(30))
            await asyncio.sleep(0)
            overflow(scene.hub)
            async with asyncio.timeout(10):
                assert not await waiting
        assert scene.owner.told == ["overflow"]

    play(tmp_path, act)


def test_many_overflows_do_not_feed_on_themselves(tmp_path: Path) -> None:
    fill(tmp_path / "project", *[f"d{n}/x" for n in range(300)])

    async def act(scene: Scene) -> None:
        for _ in range(5):
            overflow(scene.hub)
        await scene.owner.until(lambda: "overflow" in scene.owner.told)
        await scene.settled()
        assert scene.watch.watches == 301
        # Nothing was put into the queue by it: no watch was removed and no directory's opening is listened to.
        assert scene.owner.batches == []

    play(tmp_path, act)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.ENOMEM])
def test_a_project_without_watches_is_polled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    fill(tmp_path / "project", "a/b/c", "d/e/f")

    async def run() -> None:
        real = inotify_c.inotify_add_watch

        def scarce(descriptor: int, path: bytes, mask: int) -> inotify_c.WatchDescriptor:
            if path.endswith((b"/b", b"/e", b"/late")):
                inotify_c.ctypes.set_errno(error)
                return inotify_c.WatchDescriptor(-1)
            return real(descriptor, path, mask)

        with monkeypatch.context() as patch:
            patch.setattr(inotify_c, "inotify_add_watch", scarce)
            async with watched(tmp_path) as scene:
                await scene.owner.until(lambda: bool(scene.owner.told))
                assert scene.owner.told[0].startswith("limit ")
                assert scene.watch.state == "polling"
                assert scene.watch.watches == 0
                assert not await scene.watch.drain(0.1)
        async with watched(tmp_path) as scene:
            assert scene.watch.state == "watching"
            with monkeypatch.context() as patch:
                patch.setattr(inotify_c, "inotify_add_watch", scarce)
                (scene.root / "late").mkdir()
                await scene.owner.until(lambda: bool(scene.owner.told))
            assert scene.watch.state == "polling"
            scene.watch.start()
            assert scene.watch.state == "watching"
            fill(scene.root, "late/x")
            await scene.settled()
            assert b"late/x" in scene.owner.paths

    asyncio.run(run())


def test_the_budget_is_a_limit(tmp_path: Path) -> None:
    fill(tmp_path / "project", *[f"d{n}/x" for n in range(10)])

    async def act(scene: Scene) -> None:
        await scene.owner.until(lambda: bool(scene.owner.told))
        assert scene.owner.told == ["limit the budget of 5 watches"]
        assert scene.hub.watches == 0

    play(tmp_path, act, budget=5)


def test_no_instance_means_polling_and_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted() -> int:
        inotify_c.ctypes.set_errno(errno.EMFILE)
        return -1

    monkeypatch.setattr(inotify_c, "inotify_init", exhausted)

    async def act(scene: Scene) -> None:
        await scene.owner.until(lambda: bool(scene.owner.told))
        assert scene.hub.trouble == "fs.inotify.max_user_instances"
        assert scene.owner.told == ["limit fs.inotify.max_user_instances"]
        assert not await scene.hub.barrier(0.1)

    play(tmp_path, act)


def test_a_folder_that_may_not_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "project", "a/b", "secret/x", "secret2/x", "z/y")
    real = inotify_c.inotify_add_watch

    def guarded(descriptor: int, path: bytes, mask: int) -> inotify_c.WatchDescriptor:
        if b"/secret" in path:
            inotify_c.ctypes.set_errno(errno.EACCES)
            return inotify_c.WatchDescriptor(-1)
        return real(descriptor, path, mask)

    monkeypatch.setattr(inotify_c, "inotify_add_watch", guarded)

    async def act(scene: Scene) -> None:
        assert scene.watch.state == "watching"
        assert scene.watch.watches == 3
        fill(scene.root, "z/y")
        await scene.settled()
        assert scene.owner.paths == {b"z/y"}

    play(tmp_path, act)


def test_removing_the_root_is_told_and_a_new_one_can_be_watched(tmp_path: Path) -> None:
    fill(tmp_path / "project", "src/a.py")

    async def act(scene: Scene) -> None:
        shutil.rmtree(scene.root)
        await scene.owner.until(lambda: "gone" in scene.owner.told)
        assert scene.owner.deleted == {b"src/a.py"}
        assert scene.owner.deleted_folders == {b"src"}
        assert scene.watch.state == "gone"
        assert not await scene.watch.drain(1)
        scene.watch.start()
        assert scene.watch.state == "gone"
        fill(scene.root, "src/b.py")
        scene.watch.start()
        fill(scene.root, "src/b.py")
        await scene.settled()
        assert b"src/b.py" in scene.owner.paths
        assert scene.owner.told.count("gone") == 2

    play(tmp_path, act)


def test_a_root_replaced_by_a_link_is_gone(tmp_path: Path) -> None:
    fill(tmp_path / "project", "src/a.py")
    fill(tmp_path / "elsewhere", "src/a.py")

    async def act(scene: Scene) -> None:
        os.rename(scene.root, tmp_path / "moved")
        scene.root.symlink_to(tmp_path / "elsewhere")
        await scene.owner.until(lambda: "gone" in scene.owner.told)
        fill(tmp_path / "elsewhere", "src/a.py")
        fill(tmp_path / "moved", "src/a.py")
        scene.watch.start()
        assert scene.watch.state == "gone"
        assert scene.owner.paths == set()

    play(tmp_path, act)


def test_a_renamed_parent_is_noticed_by_the_barrier(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    fill(outer / "project", "a.py")

    async def act() -> None:
        async with watched(outer) as scene:
            os.rename(outer, tmp_path / "elsewhere")
            assert not await scene.watch.drain(1)
            assert scene.watch.state == "gone"

    asyncio.run(act())


def test_the_barrier_comes_after_all_that_was_before(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        for n in range(50):
            fill(scene.root, f"file{n}")
            assert await scene.watch.drain(5)
            assert f"file{n}".encode() in scene.owner.paths
        assert list((tmp_path / "run" / "cookies").iterdir()) == []

    play(tmp_path, act)


def test_a_lost_cookies_folder_is_made_again(tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        shutil.rmtree(tmp_path / "run")
        assert not await scene.watch.drain(0.2)
        assert await scene.watch.drain(5)

    play(tmp_path, act)


def test_what_the_predicate_says_now_is_applied(tmp_path: Path) -> None:
    fill(tmp_path / "project", "a/x", "b/deep/y")
    left_out: set[bytes] = {b"a"}

    async def act(scene: Scene) -> None:
        assert scene.watch.watches == 3
        left_out.clear()
        left_out.add(b"b")
        scene.watch.refresh()
        assert scene.watch.watches == 2
        fill(scene.root, "a/x", "b/deep/y")
        await scene.settled()
        assert scene.owner.paths == {b"a/x"}

    play(tmp_path, act, skip=left_out.__contains__)


def test_two_projects_one_in_the_other_are_told_each(tmp_path: Path) -> None:
    fill(tmp_path / "project", "inner/deep/a.py")

    async def act(scene: Scene) -> None:
        owner = Owner()
        inner = ProjectWatch(scene.hub, scene.root / "inner", owner, skip=lambda folder: False, clock=SystemClock())
        inner.start()
        fill(scene.root, "inner/deep/a.py")
        await scene.settled()
        assert (scene.owner.paths, owner.paths) == ({b"inner/deep/a.py"}, {b"deep/a.py"})
        inner.stop()
        scene.owner.paths.clear()
        fill(scene.root, "inner/deep/a.py")
        await scene.settled()
        assert scene.owner.paths == {b"inner/deep/a.py"}
        assert len(owner.batches) == 1

    play(tmp_path, act)


def test_a_moving_head_is_told_and_git_s_other_doings_are_not(tmp_path: Path) -> None:
    fill(tmp_path / "project", ".git/HEAD", ".git/index", ".git/refs/heads/feature/x", ".git/objects/aa/b", "a.py")

    async def act(scene: Scene) -> None:
        git = scene.root / ".git"
        assert scene.watch.watches == 5
        fill(git, "index.lock", "objects/aa/c", "objects/bb/d", "logs/HEAD", "refs/heads/main.lock", "FETCH_HEAD")
        os.replace(git / "index.lock", git / "index")
        await scene.settled()
        assert scene.owner.told == []
        for move in ("HEAD", "refs/heads/main", "refs/heads/feature/x", "packed-refs"):
            fill(git, move + ".lock")
            os.replace(git / (move + ".lock"), git / move)
            await scene.settled()
            assert scene.owner.told == ["repository"]
            scene.owner.told.clear()
        fill(git, "refs/heads/new/branch")
        await scene.settled()
        assert set(scene.owner.told) == {"repository"}
        assert scene.owner.paths == set()

    play(tmp_path, act)


def test_a_repository_that_comes_or_goes_is_told(tmp_path: Path) -> None:
    fill(tmp_path / "project", "a.py")

    async def act(scene: Scene) -> None:
        fill(scene.root, ".git/HEAD", "sub/x")
        await scene.settled()
        assert scene.owner.told == ["repository"]
        scene.watch.watch_repository([scene.root / ".git"])
        scene.owner.told.clear()
        scene.owner.paths.clear()
        fill(scene.root, "sub/.git/HEAD")
        await scene.settled()
        assert scene.owner.told == []
        assert scene.owner.paths == {b"sub"}
        shutil.rmtree(scene.root / ".git")
        await scene.settled()
        assert set(scene.owner.told) == {"repository"}
        assert scene.owner.deleted_folders == set()

    play(tmp_path, act)


def test_a_failing_predicate_leads_to_a_scan_and_not_to_silence(tmp_path: Path) -> None:
    def skip(folder: bytes) -> bool:
        if folder == b"bad":
            raise ValueError
        return False

    async def act(scene: Scene) -> None:
        (scene.root / "bad").mkdir()
        await scene.owner.until(lambda: "overflow" in scene.owner.told)
        fill(scene.root, "good")
        await scene.settled()
        assert b"good" in scene.owner.paths

    play(tmp_path, act, skip=skip)
