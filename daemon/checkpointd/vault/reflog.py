"""Where HEAD went, by the reflog that git itself keeps; read as a file."""

import os
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from checkpointd.vault import repository

_TAIL = 8192
_FORWARD = (
    b"commit:",
    b"commit (initial):",
    b"commit (merge):",
    b"merge",
    b"pull",
    b"clone",
    b"cherry-pick",
    b"revert",
)


class Move(Struct, frozen=True, kw_only=True):
    """One step of HEAD. `line` identifies it; `sideways`: the old commit is not an ancestor of the new one, or need not
    be (reset, checkout, rebase, amend)."""

    line: bytes
    at: datetime
    sideways: bool


def last_move(root: Path) -> Move | None:
    """HEAD's newest step in the repository at `root`; None where no reflog tells."""
    found = repository.find(root)
    if found is None:
        return None
    try:
        descriptor = os.open(
            found.git_dir / "logs" / "HEAD", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _TAIL, max(0, size - _TAIL))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    lines = tail.splitlines()
    return parse(lines[-1]) if lines else None


def parse(line: bytes) -> Move | None:
    """One line of a reflog (gitformat-reflog): old id, new id, who, seconds, zone, tab, what."""
    head, _, action = line.partition(b"\t")
    words = head.split(b" ")
    if len(words) < 5 or not words[-2].isdigit():
        return None
    moved = words[0] != words[1]
    return Move(
        line=line,
        at=datetime.fromtimestamp(int(words[-2]), UTC),
        sideways=moved and not action.startswith(_FORWARD),
    )
