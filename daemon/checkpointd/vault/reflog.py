"""Where HEAD went, by the reflog that git itself keeps; read as a file."""

import os
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from checkpointd.vault import repository

_TAIL = 64 * 1024  # a rebase of hundreds of commits
_FORWARD = (
    b"commit:",
    b"commit (initial):",
    b"commit (merge):",
    b"commit (cherry-pick):",
    b"merge",
    b"pull:",
    b"clone",
    b"cherry-pick",
    b"revert",
    b"am:",
)


class Move(Struct, frozen=True, kw_only=True):
    """One step of HEAD. `line` identifies it; `sideways`: the old commit is not an ancestor of the new one, or need not
    be (reset, checkout, rebase, amend)."""

    line: bytes
    at: datetime
    sideways: bool


def moves(root: Path, after: bytes | None) -> list[Move]:
    """HEAD's steps after the line `after`, oldest first; all that the end of the reflog tells where that is not in it.

    Empty where there is no reflog.
    """
    lines = [line for line in _tail(root).split(b"\n") if line]
    if after in lines:
        lines = lines[len(lines) - lines[::-1].index(after) :]
    return [move for line in lines if (move := parse(line)) is not None]


def _tail(root: Path) -> bytes:
    found = repository.find(root)
    if found is None:
        return b""
    try:
        descriptor = os.open(
            found.git_dir / "logs" / "HEAD", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError:
        return b""
    try:
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    # A line that git is still writing, or that the limit cut, is none.
    if size > _TAIL:
        tail = tail.partition(b"\n")[2]
    return tail[: tail.rfind(b"\n") + 1]


def parse(line: bytes) -> Move | None:
    """One line of a reflog (gitformat-reflog): old id, new id, who, seconds, zone, tab, what."""
    head, _, action = line.partition(b"\t")
    words = head.split(b" ")
    if len(words) < 5 or not words[-2].isdigit():
        return None
    try:
        at = datetime.fromtimestamp(int(words[-2]), UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return Move(line=line, at=at, sideways=words[0] != words[1] and not action.startswith(_FORWARD))
