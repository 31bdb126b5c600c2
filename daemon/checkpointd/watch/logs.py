"""Watching the folders in which agents keep their logs."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from checkpointd.watch.handover import hand_over
from checkpointd.watch.tree import Hub, RootGone, Skip, Tree, WatchLimit

RootState = Literal["watching", "polling", "absent"]
_Look = tuple[int, int, int]


class LogWatch:
    """Tells which files below some roots changed. A root may appear later, vanish, or be impossible to watch:
    `poll` takes care of these.

    `skip` gets a folder's path below its root. Nothing is told of files that were there at the start.
    """

    def __init__(
        self,
        hub: Hub,
        roots: Sequence[Path],
        *,
        on_files: Callable[[set[Path]], None],
        on_overflow: Callable[[], None],
        skip: Skip = lambda folder: False,
    ) -> None:
        self._hub = hub
        self._on_files = on_files
        self._on_overflow = on_overflow
        self._lock = threading.Lock()
        self._files: set[Path] = set()
        self._overflow = False
        self._scheduled = False
        self._stopped = False
        self._roots = [_Root(self, hub, root, skip) for root in roots]

    def start(self) -> None:
        """Watches the roots that exist; blocks for the walk, so it belongs into a worker thread."""
        for root in self._roots:
            root.start()

    def poll(self) -> None:
        """Looks at the roots that are not watched: those that appeared are watched from here on and all their
        files are told, of those that cannot be watched the changed ones. Blocks; every few seconds in a worker
        thread."""
        for root in self._roots:
            root.poll()

    def stop(self) -> None:
        """Ends watching; nothing is told after this."""
        self._stopped = True
        for root in self._roots:
            root.finish()

    def states(self) -> dict[Path, RootState]:
        """How each root is taken care of."""
        return {root.path: root.state for root in self._roots}

    @property
    def watches(self) -> int:
        """How many watches of the system are held."""
        return sum(root.watches for root in self._roots)

    def look_again(self) -> None:
        """A root may have appeared: it is looked for at once, on any thread's word."""
        hand_over(self._hub.loop, lambda: self._hub.loop.run_in_executor(None, self.poll_absent))

    def poll_absent(self) -> None:
        """As `poll`, for the roots that were not there. Blocks."""
        if not self._stopped:
            for root in self._roots:
                if root.state == "absent":
                    root.poll()

    def note(self, files: set[Path]) -> None:
        """Collects changed files on any thread."""
        with self._lock:
            self._files |= files
            self._schedule()

    def note_overflow(self) -> None:
        """Collects that events were lost, on any thread."""
        with self._lock:
            self._overflow = True
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            hand_over(self._hub.loop, self._flush)

    def _flush(self) -> None:
        with self._lock:
            files, overflow = self._files, self._overflow
            self._files, self._overflow, self._scheduled = set(), False, False
        if self._stopped:
            return
        if files:
            self._on_files(files)
        if overflow:
            self._on_overflow()


class _Root:
    """One folder of logs, and the listener to its tree."""

    def __init__(self, watch: LogWatch, hub: Hub, path: Path, skip: Skip) -> None:
        self.path = path
        self.state: RootState = "absent"
        self._watch = watch
        self._hub = hub
        self._skip = skip
        self._tree: Tree | None = None
        self._approach: _Approach | None = None
        self._real = ""
        self._looks: dict[Path, _Look] = {}
        self._finished = False
        self._polling = threading.Lock()  # the timer and the way to an absent root may look at the same moment

    @property
    def watches(self) -> int:
        return self._tree.watches if self._tree else 0

    def start(self) -> None:
        """Watches the root where there is one. A symbolic link to a folder counts: people keep stores elsewhere."""
        self.stop()
        self.state = "watching"
        self._real = os.path.realpath(self.path)
        self._tree = self._hub.tree(os.fsencode(self._real), self, self._skip)
        try:
            self._tree.start()
        except RootGone:
            self.state = "absent"
            self._await()
        except WatchLimit:
            self.state = "polling"

    def _await(self) -> None:
        """Watches the way to a root that is not there yet: an agent's first session makes it and is worth the most."""
        self._approach = _Approach(self._hub, self.path, self._watch.look_again)
        try:
            self._approach.start()
        except (RootGone, WatchLimit):
            self._approach = None  # `poll` looks for it

    def finish(self) -> None:
        """Ends watching for good: a look that is under way ends first, and none comes after it."""
        with self._polling:
            self._finished = True
            self.stop()

    def poll(self) -> None:
        with self._polling:
            if not self._finished:
                self._poll()

    def _poll(self) -> None:
        if self.state == "watching":
            if self._tree is not None and self._tree.intact() and os.path.realpath(self.path) == self._real:
                return
            self.stop()
            self.gone()
        if self.state == "absent":
            if not self.path.is_dir():
                return
            self.start()
        looks = dict(_looks(self.path, self._skip))
        changed = {path for path, look in looks.items() if self._looks.get(path) != look}
        self._looks = looks if self.state == "polling" else {}
        if changed:
            self._watch.note(changed)

    def stop(self) -> None:
        if self._tree is not None:
            self._tree.stop()
        if self._approach is not None:
            self._approach.stop()
            self._approach = None

    def changed(self, path: bytes, *, folder: bool) -> None:
        if not folder:
            self._watch.note({self.path / os.fsdecode(path)})

    def removed(self, path: bytes, *, folder: bool) -> None:
        self.changed(path, folder=folder)

    def left(self, path: bytes, cookie: int, *, folder: bool) -> None:
        self.changed(path, folder=folder)

    def arrived(self, path: bytes, cookie: int, *, folder: bool) -> None:
        self.changed(path, folder=folder)

    def found(self, path: bytes) -> None:
        self.changed(path, folder=False)

    def skipped(self, path: bytes) -> None:
        """Nothing to do: no logs there."""

    def overflowed(self) -> None:
        self._watch.note_overflow()

    def limited(self, reason: str) -> None:
        self.state = "polling"

    def gone(self) -> None:
        self.state = "absent"
        self._watch.note_overflow()


class _Approach:
    """Watches the folders on the way to one that does not exist, and nothing beside it."""

    def __init__(self, hub: Hub, path: Path, nearer: Callable[[], None]) -> None:
        top = next(folder for folder in path.parents if folder.is_dir())
        self._rest = os.fsencode(path.relative_to(top))
        self._nearer = nearer
        self._tree = hub.tree(os.fsencode(os.path.realpath(top)), self, self._beside)

    def _beside(self, folder: bytes) -> bool:
        return folder != self._rest and not self._rest.startswith(folder + b"/")

    def start(self) -> None:
        self._tree.start()

    def stop(self) -> None:
        self._tree.stop()

    def changed(self, path: bytes, *, folder: bool) -> None:
        if folder and not self._beside(path):
            self._nearer()

    def removed(self, path: bytes, *, folder: bool) -> None:
        """Nothing came nearer."""

    def left(self, path: bytes, cookie: int, *, folder: bool) -> None:
        """Nothing came nearer."""

    def arrived(self, path: bytes, cookie: int, *, folder: bool) -> None:
        self.changed(path, folder=folder)

    def found(self, path: bytes) -> None:
        """A file on the way is none of ours."""

    def skipped(self, path: bytes) -> None:
        """Beside the way."""

    def overflowed(self) -> None:
        self._nearer()

    def limited(self, reason: str) -> None:
        """`poll` looks for the root."""

    def gone(self) -> None:
        """`poll` looks for the root."""


def _looks(root: Path, skip: Skip) -> Iterator[tuple[Path, _Look]]:
    """What tells a file from what it was before: inode, size, time."""
    for folder, folders, files in os.walk(root):
        below = os.path.relpath(folder, root)
        prefix = b"" if below == "." else os.fsencode(below) + b"/"
        folders[:] = [name for name in folders if not skip(prefix + os.fsencode(name))]
        for name in files:
            path = Path(folder, name)
            try:
                found = path.stat()
            except OSError:
                continue
            yield path, (found.st_ino, found.st_size, found.st_mtime_ns)
