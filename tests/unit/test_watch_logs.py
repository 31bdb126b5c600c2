"""Watching the agents' log folders."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from checkpointd.watch.inotify import InotifyHub
from checkpointd.watch.logs import LogWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify")


def fill(*files: Path, text: str = "x") -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as log:
            log.write(text)


class Scene:
    """Log roots under watch."""

    def __init__(self, hub: InotifyHub, roots: list[Path], skip: Callable[[bytes], bool]) -> None:
        self.hub = hub
        self.files: set[Path] = set()
        self.overflows = 0
        self.watch = LogWatch(hub, roots, on_files=self.on_files, on_overflow=self.on_overflow, skip=skip)

    def on_files(self, files: set[Path]) -> None:
        self.files |= files

    def on_overflow(self) -> None:
        self.overflows += 1

    async def told(self) -> set[Path]:
        """What was told since the last call."""
        if self.hub.trouble is None:
            assert await self.hub.barrier(5)
        await asyncio.sleep(0)  # what a poll told is in the loop's queue, before this
        files, self.files = self.files, set()
        return files


@asynccontextmanager
async def watched(
    tmp_path: Path,
    *roots: Path,
    skip: Callable[[bytes], bool] = lambda folder: folder == b"cache",
    budget: int | None = None,
) -> AsyncIterator[Scene]:
    hub = InotifyHub(asyncio.get_running_loop(), tmp_path / "run", budget=budget)
    hub.open()
    scene = Scene(hub, list(roots), skip)
    scene.watch.start()
    try:
        yield scene
    finally:
        scene.watch.stop()
        assert hub.watches == 0
        hub.close()


def test_growing_and_new_logs_are_told_and_old_ones_are_not(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root / "a" / "old.jsonl", root / "cache" / "big")

    async def run() -> None:
        async with watched(tmp_path, root) as scene:
            assert await scene.told() == set()
            fill(root / "a" / "old.jsonl", root / "new" / "deep" / "log.jsonl", root / "cache" / "big")
            assert await scene.told() == {root / "a" / "old.jsonl", root / "new" / "deep" / "log.jsonl"}
            os.rename(root / "a", root / "b")
            assert await scene.told() == {root / "b" / "old.jsonl"}
            (root / "b" / "old.jsonl").unlink()
            assert await scene.told() == {root / "b" / "old.jsonl"}

    asyncio.run(run())


def test_a_root_that_appears_later_is_watched_at_once(tmp_path: Path) -> None:
    root = tmp_path / "home" / ".agent" / "sessions"

    async def run() -> None:
        async with watched(tmp_path, root) as scene:
            assert scene.watch.states() == {root: "absent"}
            scene.watch.poll()
            fill(root / "2026" / "log.jsonl")
            async with asyncio.timeout(10):
                while not (told := await scene.told()):
                    pass  # `told` waits for the barrier, so others get their turn
            assert told == {root / "2026" / "log.jsonl"}
            assert scene.watch.states() == {root: "watching"}
            await scene.told()  # the look at the new root and its first event may both tell the file
            scene.watch.poll()
            assert await scene.told() == set()
            fill(root / "2026" / "log.jsonl")
            assert await scene.told() == {root / "2026" / "log.jsonl"}

    asyncio.run(run())


def test_a_root_that_vanished_is_found_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root / "log.jsonl")

    async def run() -> None:
        async with watched(tmp_path, root) as scene:
            shutil.rmtree(root)
            await scene.told()
            assert scene.watch.states() == {root: "absent"}
            assert scene.overflows == 1
            fill(root / "log.jsonl")
            scene.watch.poll()
            assert await scene.told() == {root / "log.jsonl"}

    asyncio.run(run())


def test_a_root_behind_a_link_is_told_by_the_link_s_name(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(tmp_path / "one" / "log.jsonl", tmp_path / "two" / "log.jsonl")
    root.symlink_to(tmp_path / "one")

    async def run() -> None:
        async with watched(tmp_path, root) as scene:
            fill(tmp_path / "one" / "log.jsonl")
            assert await scene.told() == {root / "log.jsonl"}
            root.unlink()
            root.symlink_to(tmp_path / "two")
            scene.watch.poll()
            assert await scene.told() == {root / "log.jsonl"}
            fill(tmp_path / "two" / "log.jsonl")
            assert await scene.told() == {root / "log.jsonl"}

    asyncio.run(run())


def test_a_root_that_cannot_be_watched_is_looked_at(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root / "a" / "one.jsonl", root / "b" / "two.jsonl", root / "cache" / "big")

    async def run() -> None:
        async with watched(tmp_path, root, budget=1) as scene:
            assert scene.watch.states() == {root: "polling"}
            scene.watch.poll()
            assert await scene.told() == {root / "a" / "one.jsonl", root / "b" / "two.jsonl"}
            scene.watch.poll()
            assert await scene.told() == set()
            fill(root / "a" / "one.jsonl", root / "c" / "three.jsonl", root / "cache" / "big")
            scene.watch.poll()
            assert await scene.told() == {root / "a" / "one.jsonl", root / "c" / "three.jsonl"}

    asyncio.run(run())
