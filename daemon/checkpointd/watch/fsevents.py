"""Watching on macOS: one FSEvents stream a tree.

FSEvents gives paths with flags summed up over a while, in no certain order: what it tells is where to look, and a
barrier is not to be had.
"""

import asyncio
import os
import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from checkpointd.watch.tree import RootGone, Skip, TreeListener, WatchLimit

# FSEventStreamEventFlags, CoreServices/FSEvents.h
_LOST = 0x1 | 0x2 | 0x4  # MustScanSubDirs, UserDropped, KernelDropped
_ROOT_CHANGED = 0x20
_CREATED = 0x100
_REMOVED = 0x200
_RENAMED = 0x800
_IS_FOLDER = 0x20000

Told = Callable[[Sequence[bytes], Sequence[int]], None]
"""Takes paths and their flags."""


class Stream(Protocol):
    """One FSEvents stream, running until it is stopped."""

    def stop(self) -> None: ...


class FsEventsHub:
    """Has nothing to share between trees but the way to make their streams."""

    trouble: str | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop, begin: Callable[[bytes, Told], Stream]) -> None:
        self.loop = loop
        self.begin = begin
        self.streams: set[Stream] = set()

    def open(self) -> None:
        """Nothing to do: streams are begun one by one."""

    def close(self) -> None:
        """Ends every stream."""
        for stream in list(self.streams):
            stream.stop()
        self.streams.clear()

    def tree(self, root: bytes, listener: TreeListener, skip: Skip) -> "FsEventsTree":
        """A tree, not yet started."""
        return FsEventsTree(self, root, listener, skip)

    async def barrier(self, within: float) -> bool:
        """Never: the order of events is not guaranteed."""
        return False

    @property
    def watches(self) -> int:
        """How many streams run."""
        return len(self.streams)


class FsEventsTree:
    """A directory tree behind one stream; what `skip` leaves out is dropped before anything is queued."""

    def __init__(self, hub: FsEventsHub, root: bytes, listener: TreeListener, skip: Skip) -> None:
        self._hub = hub
        self._root = root
        self._listener = listener
        self._skip = skip
        self._stream: Stream | None = None
        self._real = root
        self._identity: tuple[int, int] | None = None

    @property
    def watches(self) -> int:
        """One stream, or none."""
        return 0 if self._stream is None else 1

    def start(self) -> None:
        """Begins the stream. Raises RootGone or WatchLimit."""
        self.stop()
        self._identity = self._look()
        if self._identity is None:
            raise RootGone(os.fsdecode(self._root))
        self._real = os.path.realpath(self._root)  # as events spell it: /private/var, not /var
        try:
            self._stream = self._hub.begin(self._real, self.take)
        except (OSError, RuntimeError, SystemError) as error:
            raise WatchLimit(f"FSEvents: {error}") from error
        self._hub.streams.add(self._stream)

    def refresh(self) -> None:
        """Nothing to do: `skip` is asked at each event."""

    def stop(self) -> None:
        """Ends the stream; does nothing when none runs."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._hub.streams.discard(stream)
            stream.stop()

    def intact(self) -> bool:
        """Whether the root is still the directory that `start` found."""
        return self._identity is not None and self._look() == self._identity

    def take(self, paths: Sequence[bytes], flags: Sequence[int]) -> None:
        """Takes a batch from the stream."""
        for path, flag in zip(paths, flags, strict=True):
            if flag & _ROOT_CHANGED and not self.intact():
                self.stop()
                self._listener.gone()
                return
            if flag & _LOST:
                self._listener.overflowed()
            elif path.startswith(self._real + b"/"):
                self._take(path[len(self._real) + 1 :].rstrip(b"/"), flag)

    def _take(self, path: bytes, flag: int) -> None:
        folder = bool(flag & _IS_FOLDER)
        end = path.find(b"/")
        while end > 0:
            if self._skip(path[:end]):
                return
            end = path.find(b"/", end + 1)
        if folder and self._skip(path):
            self._listener.skipped(path)
            return
        for spelling in spellings(self._real, path):
            gone = flag & (_REMOVED | _RENAMED) and not os.path.lexists(self._real + b"/" + spelling)
            if gone:
                self._listener.removed(spelling, folder=folder)
            else:
                self._listener.changed(spelling, folder=folder)
                if folder and flag & (_CREATED | _RENAMED):
                    self._find(spelling)

    def _find(self, top: bytes) -> None:
        for folder, folders, files in os.walk(self._real + b"/" + top):
            below = folder[len(self._real) + 1 :]
            folders[:] = [name for name in folders if not self._skip(below + b"/" + name)]
            for name in files:
                self._listener.found(below + b"/" + name)

    def _look(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._root)
        except OSError:
            return None
        return found.st_dev, found.st_ino


def spellings(root: bytes, path: bytes) -> set[bytes]:
    """How the disk spells a path that an event names: a file made as NFD may be told as deleted in NFC.

    Where nothing is there to ask, both forms.
    """
    if path.isascii():
        return {path}
    found = b""
    for name in path.split(b"/"):
        spelled = name if name.isascii() else _on_disk(os.path.join(root, found), name)
        if spelled is None:
            return {_formed("NFC", path), _formed("NFD", path)}
        found = os.path.join(found, spelled)
    return {found}


def _on_disk(folder: bytes, name: bytes) -> bytes | None:
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    if name in names:
        return name
    wanted = _formed("NFC", name)
    return next((each for each in names if _formed("NFC", each) == wanted), None)


def _formed(form: Literal["NFC", "NFD"], name: bytes) -> bytes:
    return os.fsencode(unicodedata.normalize(form, os.fsdecode(name)))
