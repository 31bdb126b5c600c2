"""Work-tree files: written, removed and compared below one root, and never outside it.

Every path is walked from the root's descriptor, one component at a time and without following symlinks, so nothing that
is planted in the tree leads a write out of it. Files appear whole: a temporary file beside them is renamed into place.
What is there is replaced only while it still is what the caller holds a copy of.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from checkpointd.model.paths import quote
from checkpointd.model.restore import DIRECTORY, EXECUTABLE, FILE, SYMLINK, Entry
from checkpointd.vault import objects

TEMPORARY = b".ckpt-restore-"

_LIST_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_PATH (Linux) opens a directory that may be entered but not listed, too.
_DIRECTORY_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 256 << 10
_CACHED_DEPTH = 64  # directories kept open; below, they are opened anew for each path
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_ABSENT = (FileNotFoundError, NotADirectoryError)
"""Nothing at a path: no such name, or a component above it that is no directory."""


class Blobs(Protocol):
    """Where contents come from, proved by their ids. Raises where there is none or it is damaged, if need be after the
    last chunk."""

    def read_blob(self, oid: str) -> bytes: ...

    def blob_chunks(self, oid: str) -> Iterator[bytes]: ...


class Refusal(Exception):
    """A path that was left as it is; the message says why."""


class Seen(Struct, frozen=True, kw_only=True):
    """What lstat says of a path; within the clock's grain, two are equal only if nothing was written between them."""

    mode: int
    device: int
    inode: int
    size: int
    modified: int  # ns
    changed: int  # ns

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


class Held(Struct, frozen=True, kw_only=True):
    """What a checkpoint holds of a path; None: nothing was there. `seen` was taken before those bytes were read, and is
    None where it proves nothing (too fresh): then the bytes are compared."""

    entry: Entry | None
    seen: Seen | None = None


class OpenTree:
    """One root, opened; use from one thread.

    `token` is part of the name of every temporary file, so that what a killed process left can be swept up.
    """

    def __init__(self, root: Path, token: str) -> None:
        self._root = os.open(root, _DIRECTORY_FLAGS)
        self._prefix = TEMPORARY + token.encode() + b"-"
        self._stack: list[tuple[bytes, int]] = []
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pop(0)
        os.close(self._root)

    def look(self, path: bytes) -> Seen | None:
        """What is at a path; None where nothing is, or where a component above it is no directory."""
        try:
            with self._parent(path) as (directory, name):
                return _lstat(name, directory)
        except _ABSENT:
            return None

    def names(self, path: bytes) -> list[bytes]:
        """The names in a directory, sorted; none where it is no directory."""
        try:
            with self._parent(path + b"/.") as (directory, _):
                return _names(directory)
        except _ABSENT:
            return []

    def identify(self, path: bytes) -> Entry | None:
        """What is at a path, by its bytes. Raises Refusal for what can be no part of a checkpoint."""
        try:
            with self._parent(path) as (directory, name):
                seen = _lstat(name, directory)
                return None if seen is None else _identify(name, directory, seen)
        except _ABSENT:
            return None

    def unchanged(self, path: bytes, held: Held) -> bool:
        """Whether a path is still as it is held."""
        try:
            with self._parent(path) as (directory, name):
                return _is_held(name, directory, _lstat(name, directory), held)
        except _ABSENT:
            return held.entry is None

    def write(self, path: bytes, entry: Entry, blobs: Blobs, held: Held, make: Mapping[bytes, int]) -> None:
        """Puts `entry` at `path`, where nothing is or what is `held`. Directories above it are made with the
        permissions in `make`. Raises Refusal or OSError; the path is then what it was."""
        try:
            self._write(path, entry, blobs, held, make)
        except FileNotFoundError:  # a directory that is kept open was removed meanwhile
            self._pop(0)
            self._write(path, entry, blobs, held, make)

    def remove(self, path: bytes, held: Held) -> None:
        """Removes what is `held`. Nothing there: nothing to do. Raises Refusal or OSError."""
        try:
            with self._parent(path) as (directory, name):
                seen = _lstat(name, directory)
                if seen is None:
                    return
                if not _is_held(name, directory, seen, held):
                    raise Refusal("changed after the pre-restore checkpoint")
                if seen.is_directory:
                    os.rmdir(name, dir_fd=directory)
                else:
                    os.unlink(name, dir_fd=directory)
        except _ABSENT:
            return

    def remove_empty(self, path: bytes) -> bool:
        """Removes a directory if nothing is in it; says whether it is gone."""
        try:
            with self._parent(path) as (directory, name):
                os.rmdir(name, dir_fd=directory)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def set_permissions(self, path: bytes, permissions: int) -> None:
        """Sets the permission bits of a file or directory; never follows a symlink."""
        with self._parent(path) as (directory, name):
            _chmod(name, directory, permissions)

    def sweep(self, directory: bytes) -> None:
        """Removes the temporary files that a killed process with this token left in a directory."""
        try:
            with self._parent(directory + b"/." if directory else b".") as (opened, _):
                for name in _names(opened):
                    if name.startswith(self._prefix):
                        os.unlink(name, dir_fd=opened)
        except OSError:  # gone, or out of reach: then nothing was written there either
            return

    def _write(self, path: bytes, entry: Entry, blobs: Blobs, held: Held, make: Mapping[bytes, int]) -> None:
        _check_name(path, entry.mode)
        with self._parent(path, make) as (directory, name):
            seen = _lstat(name, directory)
            if seen is not None and not _is_held(name, directory, seen, held):
                raise Refusal("changed after the pre-restore checkpoint")
            if entry.is_directory:
                _make_directory(name, directory, seen, entry.permissions)
            elif seen is not None and held.entry is not None and entry.same_content(held.entry):
                _chmod(name, directory, entry.permissions)
            elif entry.mode == SYMLINK:
                self._put_symlink(name, directory, entry, blobs, held if seen else None)
            else:
                self._put_file(name, directory, entry, blobs, held if seen else None)

    def _put_symlink(self, name: bytes, directory: int, entry: Entry, blobs: Blobs, held: Held | None) -> None:
        target = blobs.read_blob(entry.oid)
        temporary = self._temporary()
        os.symlink(target, temporary, dir_fd=directory)
        _into_place(temporary, name, directory, held)

    def _put_file(self, name: bytes, directory: int, entry: Entry, blobs: Blobs, held: Held | None) -> None:
        temporary = self._temporary()
        fd = os.open(temporary, _WRITE_FLAGS, 0o600, dir_fd=directory)
        try:
            for chunk in blobs.blob_chunks(entry.oid):
                _write_all(fd, chunk)
            os.fchmod(fd, entry.permissions & 0o777)
        except BaseException:  # whatever it was, damage in the vault among it: nothing half written may stay
            os.unlink(temporary, dir_fd=directory)
            raise
        finally:
            os.close(fd)
        _into_place(temporary, name, directory, held)

    def _temporary(self) -> bytes:
        self._count += 1
        return self._prefix + b"%d-%d" % (id(self), self._count)

    def _parent(self, path: bytes, make: Mapping[bytes, int] | None = None) -> "_Parent":
        parts = path.split(b"/")
        if any(part in (b"", b"..") or b"\0" in part for part in parts):
            raise Refusal("no path inside a project")
        name = parts.pop()
        if len(parts) > _CACHED_DEPTH:
            return _Parent(self._open_deep(parts, make or {}), name, owned=True)
        return _Parent(self._enter(parts, make or {}), name, owned=False)

    def _enter(self, parts: list[bytes], make: Mapping[bytes, int]) -> int:
        common = 0
        while common < min(len(parts), len(self._stack)) and self._stack[common][0] == parts[common]:
            common += 1
        self._pop(common)
        fd = self._stack[-1][1] if self._stack else self._root
        for depth in range(common, len(parts)):
            fd = _open_directory(parts, depth, fd, make)
            self._stack.append((parts[depth], fd))
        return fd

    def _open_deep(self, parts: list[bytes], make: Mapping[bytes, int]) -> int:
        fd = os.dup(self._root)
        for depth in range(len(parts)):
            try:
                deeper = _open_directory(parts, depth, fd, make)
            finally:
                os.close(fd)
            fd = deeper
        return fd

    def _pop(self, length: int) -> None:
        while len(self._stack) > length:
            os.close(self._stack.pop()[1])


class _Parent:
    """An open directory and a name in it; closed at the end if it is nobody else's."""

    def __init__(self, directory: int, name: bytes, *, owned: bool) -> None:
        self._directory = directory
        self._name = name
        self._owned = owned

    def __enter__(self) -> tuple[int, bytes]:
        return self._directory, self._name

    def __exit__(self, *_: object) -> None:
        if self._owned:
            os.close(self._directory)


def reason(error: Exception) -> str:
    """Why a path could not be restored, in words for people."""
    if isinstance(error, Refusal):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return f"{type(error).__name__}: {error}"


def seen_from(info: os.stat_result) -> Seen:
    """The fields of a stat result that tell whether a file was changed."""
    return Seen(
        mode=info.st_mode,
        device=info.st_dev,
        inode=info.st_ino,
        size=info.st_size,
        modified=info.st_mtime_ns,
        changed=info.st_ctime_ns,
    )


def _open_directory(parts: list[bytes], depth: int, parent: int, make: Mapping[bytes, int]) -> int:
    name = parts[depth]
    try:
        return os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        path = b"/".join(parts[: depth + 1])
        if path not in make:
            raise
        _check_name(path, DIRECTORY)
        # Open to its owner while it is filled; a mode that forbids that is set at the end.
        with contextlib.suppress(FileExistsError):  # another thread of the same restore was faster
            os.mkdir(name, 0o700, dir_fd=parent)
        fd = os.open(name, _LIST_FLAGS, dir_fd=parent)
        os.fchmod(fd, make[path] & 0o777 | 0o700)
        return fd
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            where = quote(b"/".join(parts[: depth + 1]))
            raise NotADirectoryError(errno.ENOTDIR, f"{where} is in the way") from error
        raise


def _make_directory(name: bytes, directory: int, seen: Seen | None, permissions: int) -> None:
    if seen is not None and not seen.is_directory:
        os.unlink(name, dir_fd=directory)
        seen = None
    if seen is None:
        os.mkdir(name, 0o700, dir_fd=directory)
    _chmod(name, directory, permissions)


def _into_place(temporary: bytes, name: bytes, directory: int, held: Held | None) -> None:
    """Gives a finished temporary file its name, over what is `held` or, where that is None, over nothing."""
    try:
        if held is None:
            _link(temporary, name, directory)
            return
        # Looked at again, as late as can be: writing took its time.
        if not _is_held(name, directory, _lstat(name, directory), held):
            raise Refusal("changed after the pre-restore checkpoint")
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except (OSError, Refusal):
        os.unlink(temporary, dir_fd=directory)
        raise


def _link(temporary: bytes, name: bytes, directory: int) -> None:
    """A rename that never replaces: what appeared at the name meanwhile stays."""
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError as error:
        raise Refusal("appeared after the pre-restore checkpoint") from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if _lstat(name, directory) is not None:
            raise Refusal("appeared after the pre-restore checkpoint") from error
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    os.unlink(temporary, dir_fd=directory)


def _is_held(name: bytes, directory: int, seen: Seen | None, held: Held) -> bool:
    if seen is None or held.entry is None:
        return seen is None and held.entry is None
    if held.seen is not None and seen == held.seen:
        return True
    try:
        return held.entry.same(_identify(name, directory, seen))
    except (Refusal, OSError):
        return False


def _identify(name: bytes, directory: int, seen: Seen) -> Entry:
    permissions = stat.S_IMODE(seen.mode) & 0o777
    if stat.S_ISDIR(seen.mode):
        return Entry(mode=DIRECTORY, permissions=permissions)
    if stat.S_ISLNK(seen.mode):
        return Entry(mode=SYMLINK, oid=objects.blob_id(os.readlink(name, dir_fd=directory)).hex())
    if not stat.S_ISREG(seen.mode):
        raise Refusal("not a regular file")
    mode = EXECUTABLE if permissions & 0o100 else FILE
    return Entry(mode=mode, oid=_hash_file(name, directory), permissions=permissions)


def _hash_file(name: bytes, directory: int) -> str:
    fd = os.open(name, _READ_FLAGS, dir_fd=directory)
    try:
        if not stat.S_ISREG((info := os.fstat(fd)).st_mode):
            raise Refusal("not a regular file")
        digest = objects.hasher(objects.BLOB, info.st_size)
        for chunk in _chunks(fd):
            digest.update(chunk)
        return digest.hexdigest()
    finally:
        os.close(fd)


def _chunks(fd: int) -> Iterator[bytes]:
    while chunk := os.read(fd, _CHUNK):
        yield chunk


def _lstat(name: bytes, directory: int) -> Seen | None:
    try:
        return seen_from(os.stat(name, dir_fd=directory, follow_symlinks=False))
    except FileNotFoundError:
        return None


def _names(directory: int) -> list[bytes]:
    fd = os.open(b".", _LIST_FLAGS, dir_fd=directory)
    try:
        return sorted(map(os.fsencode, os.listdir(fd)))
    finally:
        os.close(fd)


def _chmod(name: bytes, directory: int, permissions: int) -> None:
    try:
        fd = os.open(name, _READ_FLAGS, dir_fd=directory)
    except PermissionError:
        _chmod_unreadable(name, directory, permissions)
        return
    try:
        os.fchmod(fd, permissions & 0o777)
    finally:
        os.close(fd)


def _chmod_unreadable(name: bytes, directory: int, permissions: int) -> None:
    """What cannot be opened for reading: by a descriptor that reads nothing, where there are such, else by name."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, permissions & 0o777, dir_fd=directory, follow_symlinks=False)
        return
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            raise Refusal("a symlink has no permissions")
        os.chmod(f"/proc/self/fd/{fd}", permissions & 0o777)
    finally:
        os.close(fd)


def _write_all(fd: int, content: bytes) -> None:
    written = os.write(fd, content)
    while written < len(content):
        written += os.write(fd, memoryview(content)[written:])


def _check_name(path: bytes, mode: int) -> None:
    """No component may be a spelling of `.git`, whoever made the tree."""
    *above, last = path.split(b"/")
    if objects.forbidden_name(last, mode) or any(objects.forbidden_name(part) for part in above):
        raise Refusal("the name is not allowed")
