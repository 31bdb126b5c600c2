"""What one capture saw: trees, coverage, changes."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

SkipReason = Literal[
    "ignored",  # an ignore rule, and not tracked
    "default-folder",  # node_modules and its like, untracked
    "too-large",
    "secret",  # looks like a secret by its name, untracked
    "unreadable",
    "special",  # FIFO, socket, device
    "over-budget",  # untracked folder or work tree over its budget
    "outside-sparse",  # outside a sparse checkout's cone, not on disk
    "torn",  # kept changing while it was read; its bytes are kept all the same
    "name",  # git forbids the name
    "nested",  # a nested repository or linked work tree with its own vault
    "config",  # the user's config excludes it
]
ChangeKind = Literal["add", "modify", "delete"]


class Skip(Struct, frozen=True, kw_only=True):
    """One path that a capture did not take, and why. `folder`: everything below it as well."""

    path: bytes
    reason: SkipReason
    detail: str = ""
    folder: bool = False


class Coverage(Struct, frozen=True, kw_only=True):
    """What was looked at and what was left out. A path is *observed* unless it is, or lies below, a skip
    (reason `torn` excepted) or an unobserved prefix."""

    captured: int = 0  # files, symlinks included
    size: int = 0  # bytes
    skipped: tuple[Skip, ...] = ()
    unobserved: tuple[bytes, ...] = ()  # prefixes never looked at
    rules: str = ""  # one id that changes when any ignore rule in force changes
    first_read: datetime | None = None
    last_read: datetime | None = None

    def observed(self, path: bytes) -> bool:
        """Whether "absent from the tree" is knowledge for this path."""
        for skip in self.skipped:
            if skip.reason == "torn":
                continue
            if path == skip.path or path.startswith(skip.path + b"/"):
                return False
        return not any(not p or path == p or path.startswith(p + b"/") for p in self.unobserved)


class PathChange(Struct, frozen=True, kw_only=True):
    """One path that differs between two captures."""

    path: bytes
    change: ChangeKind


class Captured(Struct, frozen=True, kw_only=True):
    """One state of a project's files, held by its vault.

    `files` is the git tree id (hex) of the project; `modes` is the whole modes.json.
    `changes` are against the capture before it in the same work tree; None where that is not known (the first).
    """

    files: str
    modes: bytes
    coverage: Coverage
    taken_at: datetime  # no byte of it was read after this moment
    changes: tuple[PathChange, ...] | None = None
    scanned: bool = False  # a full scan, not only known dirty paths
    missed: int = 0  # differences that a scan found and the watcher had not told
