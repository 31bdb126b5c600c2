"""Handing what a watching thread saw to the event loop: one call a batch."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

from msgspec import Struct

from checkpointd.clock import Clock

_Values = TypeVarTuple("_Values")
# The two events of a rename follow each other within microseconds, but other processes' events may come between,
# and the watching thread may be held up between reading them.
_PAIRING = 0.02
_PATIENCE = 2.0


class Changes(Struct, frozen=True, kw_only=True):
    """What changed since the last batch. A folder among `paths` stands for all below it.

    `deleted` and `deleted_folders` are those of the paths that were seen to be deleted or renamed out of the tree;
    `at` is the monotonic time when the first of these was seen, or the first change where nothing was deleted.
    """

    paths: frozenset[bytes]
    deleted: frozenset[bytes]
    deleted_folders: frozenset[bytes]
    at: float


def hand_over(loop: asyncio.AbstractEventLoop, call: Callable[[*_Values], object], *values: *_Values) -> None:
    """Has the loop make the call; nothing happens when the loop is closed already."""
    try:
        loop.call_soon_threadsafe(call, *values)
    except RuntimeError:
        if not loop.is_closed():
            raise


class Collector:
    """Collects changes on watching threads and delivers them on the loop.

    A rename away is a deletion only if nothing arrived by the time that a barrier, begun a while after, came back.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        deliver: Callable[[Changes], None],
        barrier: Callable[[float], Awaitable[bool]],
    ) -> None:
        self._loop = loop
        self._barrier = barrier
        self._clock = clock
        self._deliver = deliver
        self._lock = threading.Lock()
        self._scheduled = False
        self._paths: set[bytes] = set()
        self._whole: set[bytes] = set()  # folders of which everything may have changed
        self._deleted: set[bytes] = set()
        self._deleted_folders: set[bytes] = set()
        self._first: float | None = None
        self._first_deletion: float | None = None
        self._leaving: dict[int, tuple[bytes, bool, float]] = {}
        self._settling: asyncio.TimerHandle | asyncio.Task[None] | None = None

    def changed(self, path: bytes, *, whole: bool) -> None:
        """Notes a path; `whole` when all below it is to be looked at."""
        with self._lock:
            self._note(path, whole=whole)

    def removed(self, path: bytes, *, folder: bool) -> None:
        """Notes a deletion."""
        with self._lock:
            self._remove(path, self._clock.monotonic(), folder=folder)
            self._note(path, whole=folder)

    def left(self, path: bytes, cookie: int, *, folder: bool) -> None:
        """Notes a rename away from here; a deletion if it does not arrive."""
        with self._lock:
            self._leaving[cookie] = (path, folder, self._clock.monotonic())
            self._note(path, whole=folder)

    def arrived(self, path: bytes, cookie: int, *, folder: bool) -> None:
        """Notes a rename to here."""
        with self._lock:
            self._leaving.pop(cookie, None)
            self._note(path, whole=folder)

    def _remove(self, path: bytes, at: float, *, folder: bool) -> None:
        (self._deleted_folders if folder else self._deleted).add(path)
        self._first_deletion = at if self._first_deletion is None else min(at, self._first_deletion)

    def _note(self, path: bytes, *, whole: bool) -> None:
        (self._whole if whole else self._paths).add(path)
        if self._first is None:
            self._first = self._clock.monotonic()
        if not self._scheduled:
            self._scheduled = True
            hand_over(self._loop, self._flush)

    def _flush(self) -> None:
        with self._lock:
            self._scheduled = False
            if self._leaving and self._settling is None:
                self._settling = self._loop.call_later(_PAIRING, self._begin_settling)
            if self._first is None:
                return
            at = self._first if self._first_deletion is None else self._first_deletion
            paths, whole = self._paths, self._whole
            deleted, folders = frozenset(self._deleted), frozenset(self._deleted_folders)
            self._paths, self._whole, self._deleted, self._deleted_folders = set(), set(), set(), set()
            self._first = self._first_deletion = None
        self._deliver(Changes(paths=frozenset(_topmost(paths, whole)), deleted=deleted, deleted_folders=folders, at=at))

    def _begin_settling(self) -> None:
        self._settling = self._loop.create_task(self._settle())

    async def _settle(self) -> None:
        with self._lock:
            cookies = list(self._leaving)
        await self._barrier(_PATIENCE)
        with self._lock:
            for cookie in cookies:
                if (entry := self._leaving.pop(cookie, None)) is not None:
                    path, folder, at = entry
                    self._remove(path, at, folder=folder)
                    self._note(path, whole=folder)
        self._settling = None
        self._flush()


def _topmost(paths: set[bytes], whole: set[bytes]) -> set[bytes]:
    """The paths without those that lie below a folder that is looked at whole anyway."""
    if not whole:
        return paths
    return {path for path in paths | whole if not _below(path, whole)}


def _below(path: bytes, folders: set[bytes]) -> bool:
    end = path.rfind(b"/")
    while end > 0:
        if path[:end] in folders:
            return True
        end = path.rfind(b"/", 0, end)
    return False
