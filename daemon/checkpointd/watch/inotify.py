"""Watching on Linux: one inotify instance and one thread for all trees.

Built on watchdog's InotifyFD and its WatchCallback, and not on its emitters: those watch ignored directories too,
tell nobody of an overflow, hold events back for half a second after a rename out of the tree, add a thread for each
tree, and would carry the cookie of a barrier past events that wait in another thread's queue.
"""

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import threading
from pathlib import Path

from watchdog.observers.inotify_c import CallbackId, InotifyConstants, InotifyEvent, InotifyFD, Mask, WatchDescriptor

from checkpointd.watch.handover import hand_over
from checkpointd.watch.tree import RootGone, Skip, TreeListener, WatchLimit

log = logging.getLogger(__name__)

# One mask for every watch: adding a watch to a directory that has one replaces its mask for all trees.
# Neither IN_OPEN nor IN_CLOSE_NOWRITE: walking a tree would then make two events a directory and overflow the queue.
_MASK = Mask(
    InotifyConstants.IN_MODIFY
    | InotifyConstants.IN_ATTRIB
    | InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_MOVE
    | InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
    | InotifyConstants.IN_ONLYDIR
    | InotifyConstants.IN_DONT_FOLLOW
    | InotifyConstants.IN_EXCL_UNLINK
)
_ROOT_LEFT = InotifyConstants.IN_DELETE_SELF | InotifyConstants.IN_MOVE_SELF | InotifyConstants.IN_UNMOUNT
_LIMITS = {errno.ENOSPC: "fs.inotify.max_user_watches", errno.ENOMEM: "kernel memory", errno.EMFILE: "open files"}
_ids = itertools.count(1)

Held = tuple[WatchDescriptor, CallbackId]


class InotifyHub:
    """The inotify instance, its reading thread and its barrier."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cookies: Path, *, budget: int | None = None) -> None:
        self.loop = loop
        self._budget = _default_budget() if budget is None else budget
        self._cookies = _Cookies(loop, cookies)
        self._descriptor: InotifyFD | None = None
        self._trouble: str | None = "not open"
        self._watches = 0
        self._lock = threading.Lock()

    def open(self) -> None:
        """Makes the instance and its thread; on failure `trouble` says why."""
        try:
            self._descriptor = InotifyFD()
            self._descriptor.start()
            self._cookies.watch(self._descriptor)
        except OSError as error:
            self._trouble = _reason(error, instance=True)
            log.warning("inotify not available reason=%s", self._trouble)
            return
        self._trouble = None

    def close(self) -> None:
        """Ends the thread and gives back every watch."""
        descriptor, self._descriptor = self._descriptor, None
        self._trouble = "not open"
        self._cookies.fail()
        if descriptor is not None and descriptor.is_alive():
            descriptor.stop()
            descriptor.join()

    def tree(self, root: bytes, listener: TreeListener, skip: Skip) -> "InotifyTree":
        """A tree, not yet started."""
        return InotifyTree(self, root, listener, skip)

    async def barrier(self, within: float) -> bool:
        """Waits for a cookie file to come back through the instance: all that happened before it was told then."""
        if self.trouble is not None:
            return False
        return await self._cookies.send(within)

    @property
    def trouble(self) -> str | None:
        """Why nothing is watched; None when all is well."""
        if self._trouble is None and (self._descriptor is None or not self._descriptor.is_alive()):
            return "the watching thread ended"
        return self._trouble

    @property
    def watches(self) -> int:
        """How many watches all trees hold; a directory in two trees counts twice."""
        return self._watches

    def add(self, path: bytes, tree: "InotifyTree") -> Held | None:
        """Watches one directory; None where there is none or it may not be read. Raises WatchLimit.

        Every call has an id of its own: were one used twice on a watch, watchdog would warn with the repr of all.
        """
        descriptor = self._descriptor
        if descriptor is None or self._trouble is not None:
            raise WatchLimit(self._trouble or "not open")
        if self._watches >= self._budget:
            raise WatchLimit(f"the budget of {self._budget} watches")
        identity = CallbackId(next(_ids))
        try:
            watch = descriptor.add_callback(path, _MASK, tree, identity)
        except OSError as error:
            if error.errno in _LIMITS:
                raise WatchLimit(_reason(error)) from error
            return None
        if watch < 0:
            # watchdog swallows EACCES and keeps books for a watch that is none.
            descriptor.remove_callbacks([(watch, identity)])
            return None
        self.count(1)
        return watch, identity

    def remove(self, held: list[Held]) -> None:
        """Gives watches back, as far as no other tree needs them."""
        if self._descriptor is not None and held:
            self._descriptor.remove_callbacks(held)
        self.count(-len(held))

    def count(self, difference: int) -> None:
        """Keeps the number of watches held."""
        with self._lock:
            self._watches += difference


class InotifyTree:
    """A directory tree, watched without what `skip` leaves out.

    Renames are not followed: the watches below the old name are given up and made again below the new one, and the
    folder is told as arrived, so that nothing rests on the order of a rename's events.
    """

    def __init__(self, hub: InotifyHub, root: bytes, listener: TreeListener, skip: Skip) -> None:
        self._hub = hub
        self._root = root
        self._listener = listener
        self._skip = skip
        self._lock = threading.RLock()
        self._active = False
        self._root_identity: tuple[int, int] | None = None
        self._folders: dict[WatchDescriptor, tuple[bytes, CallbackId]] = {}
        self._watch_of: dict[bytes, WatchDescriptor] = {}

    @property
    def watches(self) -> int:
        """How many directories are watched."""
        return len(self._folders)

    def start(self) -> None:
        """Watches the tree as it is. Raises RootGone or WatchLimit, and then watches nothing."""
        with self._lock:
            self.stop()
            self._root_identity = _identity_of(self._root)
            self._active = True
        self._watch_whole()

    def refresh(self) -> None:
        """Makes every watch anew and gives back those that are not needed any longer; a scan must follow.

        Known watches are made again too, since their end may have been among lost events, and an inode's number is
        soon used again. None is removed that stays: each removal is one more event in the queue, and with many the
        queue would overflow again and again.
        """
        with self._lock:
            if not self._active:
                return
            before = self._held()
            self._folders, self._watch_of = {}, {}
        try:
            self._watch_whole()
        finally:
            self._hub.remove(before)

    def stop(self) -> None:
        """Ends watching; does nothing when it was not begun."""
        with self._lock:
            self._active = False
            self._root_identity = None
            held = self._held()
            self._folders, self._watch_of = {}, {}
            self._hub.remove(held)

    def intact(self) -> bool:
        """Whether the root is still the directory that `start` found: renaming a parent makes no event."""
        return self._root_identity is not None and _identity_of(self._root) == self._root_identity

    def _watch_whole(self) -> None:
        try:
            self._watch_below(b"", tell=False)
            with self._lock:
                if b"" not in self._watch_of:
                    raise RootGone(os.fsdecode(self._root))
        except (RootGone, WatchLimit):
            self.stop()
            raise

    def _watch_below(self, top: bytes, *, tell: bool) -> None:
        """Watches a folder and all below it. A folder is listed after its watch is there: what is made meanwhile
        is either listed or told. The lock is held for one folder at a time, so that events go on."""
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            with self._lock:
                if not self._active or folder in self._watch_of or not self._add(folder):
                    continue
            try:
                with os.scandir(self._path(folder)) as entries:
                    for entry in entries:
                        path = _join(folder, entry.name)
                        if entry.is_dir(follow_symlinks=False):
                            if not self._skip(path):
                                waiting.append(path)
                        elif tell:
                            self._listener.found(path)
            except OSError:
                continue  # vanished since: its end is told by its parent

    def _add(self, folder: bytes) -> bool:
        held = self._hub.add(self._path(folder), self)
        if held is None:
            return False
        watch, identity = held
        if (known := self._folders.get(watch)) is not None:  # the same directory under an older name
            self._watch_of.pop(known[0], None)
            self._hub.remove([(watch, known[1])])
        self._folders[watch] = (folder, identity)
        self._watch_of[folder] = watch
        return True

    def _held(self) -> list[Held]:
        return [(watch, identity) for watch, (_, identity) in self._folders.items()]

    def _path(self, folder: bytes) -> bytes:
        return self._root + b"/" + folder if folder else self._root

    def on_event(self, event: InotifyEvent) -> None:
        """Takes an event from watchdog's reading thread, which an exception would end for all trees."""
        try:
            with self._lock:
                self._take(event)
        except WatchLimit as error:
            self._give_up(str(error))
        except Exception:
            log.exception("watching failed root=%r", self._root)
            self._listener.overflowed()

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """Takes the end of a watch: its directory was deleted or unmounted."""
        with self._lock:
            known = self._folders.pop(wd, None)
            if known is None:
                return
            folder = known[0]
            self._hub.count(-1)
            if self._watch_of.get(folder) == wd:
                del self._watch_of[folder]
            if folder == b"":
                self._leave()

    def on_queue_overflow(self) -> None:
        """Takes the news that the kernel dropped events: watches what was missed, then tells."""
        try:
            self.refresh()
        except WatchLimit as error:
            self._give_up(str(error))
        except RootGone:
            self._leave()
        except Exception:
            log.exception("watching again after an overflow failed root=%r", self._root)
        self._listener.overflowed()

    def _take(self, event: InotifyEvent) -> None:
        known = self._folders.get(event.wd)
        if known is None:
            return
        parent = known[0]
        if parent == b"" and event.mask & _ROOT_LEFT:
            self._leave()
            return
        if not event.name:
            return  # about the watched folder itself: its parent's watch tells the same
        path = _join(parent, event.name)
        if event.mask & InotifyConstants.IN_ISDIR:
            self._take_folder(event, path)
        else:
            self._tell(event, path, folder=False)

    def _take_folder(self, event: InotifyEvent, path: bytes) -> None:
        if event.mask & InotifyConstants.IN_MOVE:  # also to here: an empty folder may have been replaced
            self._forget_below(path)
        if self._skip(path):
            self._listener.skipped(path)
            return
        if event.mask & (InotifyConstants.IN_CREATE | InotifyConstants.IN_MOVED_TO):
            if event.mask & InotifyConstants.IN_CREATE and path in self._watch_of:
                return  # listed with its parent, which was told as new
            self._watch_below(path, tell=True)
        self._tell(event, path, folder=True)

    def _tell(self, event: InotifyEvent, path: bytes, *, folder: bool) -> None:
        if event.mask & InotifyConstants.IN_DELETE:
            self._listener.removed(path, folder=folder)
        elif event.mask & InotifyConstants.IN_MOVED_FROM:
            self._listener.left(path, event.cookie, folder=folder)
        elif event.mask & InotifyConstants.IN_MOVED_TO:
            self._listener.arrived(path, event.cookie, folder=folder)
        else:
            self._listener.changed(path, folder=folder)

    def _forget_below(self, top: bytes) -> None:
        below = top + b"/"
        folders = [folder for folder in self._watch_of if folder == top or folder.startswith(below)]
        held = []
        for folder in folders:
            watch = self._watch_of.pop(folder)
            held.append((watch, self._folders.pop(watch)[1]))
        self._hub.remove(held)

    def _leave(self) -> None:
        if self._active:
            self.stop()
            self._listener.gone()

    def _give_up(self, reason: str) -> None:
        self.stop()
        self._listener.limited(reason)


class _Cookies:
    """Files made to be seen: one that comes back proves that all events before it came."""

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self._loop = loop
        self._folder = folder
        self._numbers = itertools.count(1)
        self._waiting: dict[bytes, asyncio.Future[bool]] = {}
        self._descriptor: InotifyFD | None = None
        self._lost = False

    def watch(self, descriptor: InotifyFD) -> None:
        """Watches the folder, which is made where it is missing."""
        self._descriptor = descriptor
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.iterdir():
            left.unlink(missing_ok=True)  # from a daemon that was killed
        descriptor.add_callback(os.fsencode(self._folder), _MASK, self, CallbackId(next(_ids)))
        self._lost = False

    async def send(self, within: float) -> bool:
        """Makes a cookie and waits for it."""
        name = f"{os.getpid()}-{next(self._numbers)}"
        future: asyncio.Future[bool] = self._loop.create_future()
        self._waiting[os.fsencode(name)] = future
        try:
            if self._lost and self._descriptor is not None:
                self.watch(self._descriptor)
            os.close(os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            async with asyncio.timeout(within):
                return await future
        except (OSError, TimeoutError):
            return False
        finally:
            del self._waiting[os.fsencode(name)]
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()

    def fail(self) -> None:
        """Ends all waiting without the proof."""
        for future in self._waiting.values():
            if not future.done():
                future.set_result(False)

    def on_event(self, event: InotifyEvent) -> None:
        """Takes a cookie on the reading thread. What was told before is before it in the loop's queue, too."""
        if event.mask & InotifyConstants.IN_CREATE:
            hand_over(self._loop, self._arrived, event.name)

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        """Takes the end of the folder; the next barrier makes it again."""
        self._lost = True
        hand_over(self._loop, self.fail)

    def on_queue_overflow(self) -> None:
        """Takes the news that events were dropped, cookies perhaps among them."""
        hand_over(self._loop, self.fail)

    def _arrived(self, name: bytes) -> None:
        future = self._waiting.get(name)
        if future is not None and not future.done():
            future.set_result(True)


def _join(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def _identity_of(root: bytes) -> tuple[int, int] | None:
    try:
        found = os.lstat(root)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _reason(error: OSError, *, instance: bool = False) -> str:
    if instance and error.errno == errno.EMFILE:
        return "fs.inotify.max_user_instances"
    return _LIMITS.get(error.errno or 0, error.strerror or "unknown")


def _default_budget() -> int:
    """Half of what the user may have: editors need watches as well."""
    try:
        return int(Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii")) // 2
    except (OSError, ValueError):
        return 8192
