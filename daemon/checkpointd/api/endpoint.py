"""The place where clients find the daemon: its lock, its socket, its discovery file."""

import fcntl
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ckpt.contract.paths import quote
from ckpt.contract.version import PROTOCOL, __version__

_FIRST_INHERITED = 3  # sd_listen_fds(3)
BACKLOG = 512


class AlreadyRunning(Exception):
    """Another daemon holds the lock."""


class UnsafePlace(Exception):
    """The socket's folder is not ours alone; the message names it and the way out."""


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """What `daemon.json` says. `start` is the process's start in clock ticks since boot, as /proc/PID/stat has it."""

    socket: str
    pid: int
    start: int | None
    version: str = __version__
    protocol: int = PROTOCOL


def acquire_lock(path: Path) -> int:
    """Takes the lock that makes this process the daemon; the descriptor holds it for as long as it is open.

    The file stays when the daemon goes: removing it would let two daemons lock two files of one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(f"another daemon holds {path}") from None
    return descriptor


def bind(path: Path) -> socket.socket:
    """A listening socket at `path`, mode 0600 in a folder of ours alone. Call it only while holding the lock.

    It is bound beside its place and renamed into it, so a client meets a listening socket or none,
    and the socket of a daemon that died goes in the same step.
    """
    _private_folder(path.parent)
    # As long as the name itself, since sun_path has a limit that places.find keeps for `path` only.
    beside = path.with_name(path.name[:-1] + "~")
    beside.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            listening.bind(str(beside))
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
        beside.replace(path)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


def _private_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePlace(f"{folder} is not a folder (or a link to one); remove it")
    if found.st_uid != os.getuid():
        raise UnsafePlace(f"{folder} belongs to user {found.st_uid}; remove it, or set CHECKPOINTD_SOCKET")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UnsafePlace(f"{folder} can be entered by others; `chmod 700 {folder}`")


def inherited(env: Mapping[str, str]) -> socket.socket | None:
    """The listening socket that the service manager passed (LISTEN_FDS); None where there is none."""
    if env.get("LISTEN_PID") != str(os.getpid()) or not env.get("LISTEN_FDS", "0").isdigit():
        return None
    if int(env.get("LISTEN_FDS", "0")) < 1:
        return None
    passed = socket.socket(fileno=_FIRST_INHERITED)
    if passed.family != socket.AF_UNIX or passed.type != socket.SOCK_STREAM:
        passed.detach()
        raise UnsafePlace("the socket that was passed in LISTEN_FDS is no Unix stream socket; see the socket unit")
    passed.set_inheritable(False)
    passed.setblocking(False)
    return passed


def announce(file: Path, socket_path: Path) -> None:
    """Writes the discovery file, whole or not at all."""
    found = Discovery(socket=quote(os.fsencode(socket_path)), pid=os.getpid(), start=_own_start())
    beside = file.with_name(file.name + "~")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(msgspec.json.encode(found) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    beside.replace(file)


def withdraw(file: Path) -> None:
    """Removes the discovery file, if it is still this process's."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Discovery)
    except (OSError, msgspec.DecodeError):
        return
    if found.pid == os.getpid() and found.start == _own_start():
        file.unlink(missing_ok=True)


def remove(path: Path, listening: socket.socket) -> None:
    """Removes the socket's name. The lock is still held, so nobody else can have put theirs there."""
    listening.close()
    path.unlink(missing_ok=True)


def _own_start() -> int | None:
    try:
        text = Path("/proc/self/stat").read_bytes()
    except OSError:
        return None
    return int(text.rpartition(b")")[2].split()[19])
