"""Who is at the other end, from the kernel's own structures."""

import os
import socket
import struct

import pytest

from checkpointd.api.peer import Peer, from_linux, from_macos, peer_of


def test_the_kernel_names_the_process_at_the_other_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert peer_of(ours) == Peer(os.getuid(), os.getpid())


def test_linux_tells_pid_before_uid() -> None:
    assert from_linux(struct.pack("3i", 321, 1000, 100)) == Peer(1000, 321)


def test_macos_tells_the_uid_in_an_xucred() -> None:
    recorded = struct.pack("=IIhxx16I", 0, 501, 1, 20, *[0] * 15)
    assert from_macos(recorded, struct.pack("=i", 77)) == Peer(501, 77)
    assert from_macos(recorded[:16], struct.pack("=i", 0)) == Peer(501, 0)


def test_an_xucred_of_another_version_is_not_guessed_at() -> None:
    with pytest.raises(OSError, match="version 9"):
        from_macos(struct.pack("=IIhxx16I", 9, 501, 1, *[0] * 16), struct.pack("=i", 77))


def test_only_our_user_and_root_are_trusted() -> None:
    assert Peer(os.getuid(), 1).trusted
    assert Peer(0, 1).trusted
    assert not Peer(os.getuid() + 4321, 1).trusted
