"""Who is at the other end of a socket, as the kernel says."""

import os
import socket
import struct
import sys

from msgspec import Struct

# <sys/un.h> and <sys/ucred.h> of macOS; Python names none of them.
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1
_LOCAL_PEERPID = 2
_XUCRED = struct.Struct("=IIhxx16I")
_UCRED = struct.Struct("3i")


class Peer(Struct, frozen=True):
    """A connected process. `pid` 0: unknown."""

    uid: int
    pid: int

    @property
    def trusted(self) -> bool:
        """Whether it may talk to this daemon at all: our own user, or root."""
        return self.uid in (os.getuid(), 0)


def peer_of(connection: socket.socket) -> Peer:
    """The process that connected. Raises OSError where the kernel does not say."""
    if sys.platform == "darwin":
        return from_macos(
            connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size),
            connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4),
        )
    return from_linux(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))


def from_linux(ucred: bytes) -> Peer:
    """A `struct ucred`: pid, uid, gid. The pid is 0 for a process of another pid namespace."""
    pid, uid, _gid = _UCRED.unpack(ucred)
    return Peer(uid, pid)


def from_macos(xucred: bytes, pid: bytes) -> Peer:
    """A `struct xucred` and a pid_t. Raises OSError for a structure of another version."""
    version, uid, *_groups = _XUCRED.unpack(xucred.ljust(_XUCRED.size, b"\0"))
    if version != 0:
        raise OSError(f"xucred version {version} is not known")
    return Peer(uid, struct.unpack("=i", pid)[0])
