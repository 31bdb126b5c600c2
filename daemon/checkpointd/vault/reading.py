"""Reading the files of a work tree: nothing followed, nothing blocking, nothing torn without saying so."""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from checkpointd.model.capture import SkipReason
from checkpointd.vault.errors import ChangedWhileRead
from checkpointd.vault.objects import BLOB, MODE_EXECUTABLE, MODE_FILE, MODE_SYMLINK, blob_id, hasher
from checkpointd.vault.packs import CHUNK, PackBuilder

# O_PATH (Linux) opens a directory that may be entered but not listed, too.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPEN_FOLDERS = 48  # descriptors kept on the way down
_SMALL = 1 << 20  # read in one piece
_TRIES = 3
# Kernels stamp files with the time of their last tick, up to 4 ms old (10 ms on the slowest): a file written that
# shortly before it was read can change again without a new time.
_TICK_NS = 10_000_000
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


Known = Callable[[bytes], bool]
"""Whether the content of this id is stored already."""


class Place(NamedTuple):
    """What stands at a path, or at the highest component above it that is no directory; no `info`: nothing does."""

    path: bytes
    info: os.stat_result | None


class Taken(NamedTuple):
    """One file as it was read. `proved`: no change can hide behind these times; `torn`: it changed at every try."""

    oid: bytes
    mode: int
    info: os.stat_result
    size: int
    started_ns: int  # when reading began, by the clock that stamps files
    proved: bool = True
    torn: bool = False


class NotTaken(Exception):
    """A file that is not read, and why."""

    def __init__(self, reason: SkipReason, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail


class Gone(Exception):
    """Nothing is there any more."""


class Listed(NamedTuple):
    """One name in a folder."""

    name: bytes
    folder: bool
    special: bool  # neither file, symlink nor folder


class Root:
    """The directory tree below one root, held open. Paths are relative to it; no symlink below it is followed.

    For one thread: the folders on the way to the last path stay open, since neighbours follow each other.
    """

    def __init__(self, path: bytes) -> None:
        self._root = os.open(path, _FOLDER & ~os.O_NOFOLLOW)
        self._open: list[tuple[bytes, int]] = []

    def close(self) -> None:
        """Lets go of every descriptor."""
        self._close_down_to(0)
        os.close(self._root)

    def info(self) -> os.stat_result:
        """The root's own."""
        return os.stat(self._root)

    def look(self, path: bytes) -> Place:
        """What stands at `path`. Raises PermissionError where a folder above it cannot be entered."""
        try:
            return Place(path, self._lstat(path))
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
        for end in _cuts(path):
            above = path[:end]
            try:
                info = self._lstat(above)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                return Place(above, None)
            if not stat.S_ISDIR(info.st_mode):
                return Place(above, info)
        return Place(path, None)

    def _lstat(self, path: bytes) -> os.stat_result:
        above, _, name = path.rpartition(b"/")
        return os.stat(name, dir_fd=self.folder(above), follow_symlinks=False)

    def folder(self, path: bytes) -> int:
        """A descriptor of the folder at `path`, good until the next call. Raises OSError where there is none."""
        kept = self._open
        while kept and not (path == kept[-1][0] or path.startswith(kept[-1][0] + b"/")):
            os.close(kept.pop()[1])
        at, descriptor = kept[-1] if kept else (b"", self._root)
        if path == at:
            return descriptor
        for name in path[len(at) + 1 if at else 0 :].split(b"/"):
            descriptor = os.open(name, _FOLDER, dir_fd=descriptor)
            at = at + b"/" + name if at else name
            if len(kept) >= _OPEN_FOLDERS:
                os.close(kept.pop()[1])
            kept.append((at, descriptor))
        return descriptor

    def _close_down_to(self, count: int) -> None:
        while len(self._open) > count:
            os.close(self._open.pop()[1])

    def entries(self, path: bytes) -> list[Listed]:
        """The names in the folder at `path`, sorted. Raises OSError where it cannot be listed."""
        descriptor = os.open(b".", _LIST, dir_fd=self.folder(path))
        try:
            with os.scandir(descriptor) as entries:
                found = [_listed(entry) for entry in entries]
        finally:
            os.close(descriptor)
        return sorted(found)

    def specials(self, path: bytes) -> list[bytes]:
        """The names in a folder that are neither file, symlink nor folder; git does not tell of them."""
        descriptor = os.open(b".", _LIST, dir_fd=self.folder(path))
        try:
            with os.scandir(descriptor) as entries:
                return [os.fsencode(entry.name) for entry in entries if _is_special(entry)]
        finally:
            os.close(descriptor)

    def rules(self, folder: bytes) -> bytes | None:
        """The ignore rules in a folder, as git would read them; None where they are not to be read here."""
        try:
            descriptor = os.open(b".gitignore", _FILE, dir_fd=self.folder(folder))
        except OSError as error:
            return b"" if error.errno in _NOT_THERE else None
        try:
            info = os.fstat(descriptor)
            return os.read(descriptor, _SMALL) if stat.S_ISREG(info.st_mode) and info.st_size < _SMALL else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def take(self, path: bytes, builder: PackBuilder, known: Known, limit: int) -> Taken:
        """Reads the file or symlink at `path` into `builder`, unless `known` says that its content is stored already.

        Raises NotTaken, and Gone where there is no file any more.
        """
        above, _, name = path.rpartition(b"/")
        try:
            folder = self.folder(above)
            try:
                return _take_file(folder, name, builder, known, limit)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
            return _take_link(folder, name, builder, known)
        except OSError as error:
            if error.errno in _NOT_THERE or error.errno == errno.EINVAL:  # EINVAL: readlink of what is no symlink now
                raise Gone from error
            raise NotTaken("unreadable", os.strerror(error.errno or 0)) from error


def _listed(entry: "os.DirEntry[str]") -> Listed:
    return Listed(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False), _is_special(entry))


def _is_special(entry: "os.DirEntry[str]") -> bool:
    return not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or entry.is_symlink())


def _cuts(path: bytes) -> Iterator[int]:
    end = path.find(b"/")
    while end > 0:
        yield end
        end = path.find(b"/", end + 1)


def _unchanged(before: os.stat_result, after: os.stat_result) -> bool:
    # Whatever changes a file or its mode changes its ctime, which nobody can set.
    return (
        before.st_ctime_ns == after.st_ctime_ns
        and before.st_mtime_ns == after.st_mtime_ns
        and before.st_size == after.st_size
        and before.st_ino == after.st_ino
    )


def _take_link(folder: int, name: bytes, builder: PackBuilder, known: Known) -> Taken:
    # A symlink's target cannot change in place: another target is another inode.
    started = time.time_ns()
    before = os.stat(name, dir_fd=folder, follow_symlinks=False)
    target = os.readlink(name, dir_fd=folder)
    oid = blob_id(target)
    if not known(oid):
        builder.add(BLOB, target)
    after = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return Taken(oid, MODE_SYMLINK, before, len(target), started, proved=_unchanged(before, after))


def _take_file(folder: int, name: bytes, builder: PackBuilder, known: Known, limit: int) -> Taken:
    for attempt in range(1, _TRIES + 1):
        started = time.time_ns()  # compared with file times, which are the system's
        descriptor = os.open(name, _FILE, dir_fd=folder)
        try:
            before = os.fstat(descriptor)
            if stat.S_ISDIR(before.st_mode):
                raise Gone
            if not stat.S_ISREG(before.st_mode):
                raise NotTaken("special")
            if before.st_size > limit:
                raise NotTaken("too-large", str(before.st_size))
            read = _store(descriptor, before.st_size, builder, known, last=attempt == _TRIES)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if read is None:
            continue
        oid, size = read
        mode = MODE_EXECUTABLE if after.st_mode & 0o100 else MODE_FILE
        if size == after.st_size and _unchanged(before, after):
            return Taken(oid, mode, after, size, started, proved=abs(started - after.st_ctime_ns) >= _TICK_NS)
        if attempt == _TRIES:
            return Taken(oid, mode, after, size, started, proved=False, torn=True)
    raise AssertionError("the last try returns")


def _store(descriptor: int, size: int, builder: PackBuilder, known: Known, *, last: bool) -> tuple[bytes, int] | None:
    """Reads an open file into the builder: its id and the bytes read. None: it changed its size, try again."""
    if size > _SMALL and not last:
        return _store_large(descriptor, size, builder, known)
    data = _all_of(descriptor, size, read_on=last)
    oid = blob_id(data) if len(data) <= _SMALL else b""
    if not oid or not known(oid):
        oid = builder.add(BLOB, data)
    return oid, len(data)


def _all_of(descriptor: int, size: int, *, read_on: bool) -> bytes:
    data = os.read(descriptor, size + 1)
    if len(data) in (size, 0):
        return data
    parts, total = [data], len(data)
    # A file that grows faster than it is read must not be read for ever.
    while total <= size + CHUNK and (part := os.read(descriptor, CHUNK)):
        parts.append(part)
        total += len(part)
    return b"".join(parts)[: size if read_on and total > size else None]


def _store_large(descriptor: int, size: int, builder: PackBuilder, known: Known) -> tuple[bytes, int] | None:
    # Hashing alone is several times faster than compressing, and a touched file is often the same.
    digest, left = hasher(BLOB, size), size
    while part := os.read(descriptor, CHUNK):
        digest.update(part)
        left -= len(part)
    if left:
        return None
    oid = digest.digest()
    if known(oid):
        return oid, size
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        return builder.add_file(descriptor, size), size
    except ChangedWhileRead:
        return None
