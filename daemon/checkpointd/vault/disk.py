"""Writing to a disk that may be full, failing or read-only: the few calls that change a vault's files."""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from checkpointd.vault.errors import ReadOnlyStore, StoreError, StoreFull

_CHUNK = 256 << 10  # a write this long is cut, so that other threads get their turn


class System:
    """The system calls that write, in one place, so that a test can make any of them fail."""

    open = staticmethod(os.open)
    write = staticmethod(os.write)
    fsync = staticmethod(os.fsync)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    mkdir = staticmethod(os.mkdir)


system = System()


@contextlib.contextmanager
def translated(path: Path | str) -> Iterator[None]:
    """Turns an OSError of writing below `path` into the vault's own error."""
    try:
        yield
    except OSError as error:
        raise _translation(error, path) from error


def _translation(error: OSError, path: Path | str) -> StoreError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(f"No room to write to the vault {path}: {reason}.")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyStore(f"The vault {path} cannot be written: {reason}.")
    return StoreError(f"Writing to the vault {path} failed: {reason}.")


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Writes all of `data`, in chunks."""
    position = 0
    # Released at once, also after an error: a buffer that is looked at cannot be emptied.
    with memoryview(data) as view:
        while position < len(view):
            with view[position : position + _CHUNK] as part:
                position += system.write(descriptor, part)


def write_new(path: str, parts: Iterable[bytes | bytearray], *, sync: bool) -> None:
    """A new private file holding `parts`; nothing stays behind when it fails. Raises FileExistsError."""
    descriptor = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            for part in parts:
                write_all(descriptor, part)
            if sync:
                system.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        remove(path)
        raise


def replace_file(path: str, data: bytes | bytearray, *, sync: bool, suffix: str = ".lock") -> None:
    """Puts `data` at `path` whole or not at all. The suffix `.lock` keeps git's own writers out meanwhile."""
    write_new(path + suffix, (data,), sync=sync)
    try:
        system.rename(path + suffix, path)
    except BaseException:
        remove(path + suffix)
        raise


def sync_path(path: str) -> None:
    """Waits until a file's bytes, or a directory's names, are on the disk."""
    descriptor = system.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        system.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(paths: Iterable[str]) -> None:
    """Waits until the bytes of several files are on the disk.

    All of them are on their way before the first is waited for: a journal then takes them together, and the waits for
    the others are short.
    """
    with contextlib.ExitStack() as opened:
        descriptors = []
        for path in paths:
            descriptors.append(system.open(path, os.O_RDONLY | os.O_CLOEXEC))
            opened.callback(os.close, descriptors[-1])
        if hasattr(os, "posix_fadvise"):  # not on macOS
            for descriptor in reversed(descriptors):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        for descriptor in descriptors:
            system.fsync(descriptor)


def make_directories(path: Path) -> None:
    """Makes `path` and what leads to it, private."""
    if not path.is_dir():
        make_directories(path.parent)
        with contextlib.suppress(FileExistsError):
            system.mkdir(path, 0o700)


def remove(path: str) -> bool:
    """Removes a file where it can be; whether it is gone. For clean-up: never raises."""
    try:
        system.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
