"""What is captured by default, and how much of it: skipped folders, sizes, secrets, the user's own patterns."""

import functools
import re
from collections.abc import Sequence
from datetime import date, datetime

from checkpointd.config import CaptureConfig
from checkpointd.text.redaction import secret_name

DEFAULT_FOLDERS = frozenset(
    (
        b"node_modules", b".venv", b"venv", b"target", b"dist", b"build", b"__pycache__", b".mypy_cache", b".tox",
        b".gradle", b".next", b"Pods",
    )
)  # fmt: skip
"""Skipped unless tracked."""

DEEPEST = 2000
"""Levels of folders; newer git refuses to read trees that nest deeper."""


class Limits:
    """The capture settings of one project, asked by path."""

    def __init__(self, config: CaptureConfig) -> None:
        self.config = config
        self._exclude = _matcher(tuple(config.exclude))
        self._include = _matcher(tuple(config.include))

    def excluded(self, path: bytes) -> bool:
        """Whether the user's config leaves it out, whatever else holds."""
        return self._exclude is not None and self._exclude.match(path) is not None

    def included(self, path: bytes) -> bool:
        """Whether the user's config takes it in, although ignored, in a default folder, or of a secret's name."""
        return self._include is not None and self._include.match(path) is not None

    def default_folder(self, path: bytes) -> bytes | None:
        """The highest folder at or above `path` that is skipped by default."""
        at = 0
        for name in path.split(b"/"):
            at += len(name)
            if name in DEFAULT_FOLDERS and not self.included(path[:at]) and not self.included(path):
                return path[:at]
            at += 1
        return None

    def secret(self, path: bytes) -> bool:
        """Whether an untracked file of this name is left out."""
        return secret_name(path) and not self.included(path)

    def largest(self, *, tracked: bool) -> int:
        """The most bytes that a file may have."""
        return self.config.max_tracked_file if tracked else self.config.max_file

    @property
    def rules(self) -> str:
        """A text that changes with the user's patterns."""
        return "\n".join((*self.config.exclude, "", *self.config.include))


@functools.lru_cache(maxsize=16)
def _matcher(patterns: Sequence[str]) -> re.Pattern[bytes] | None:
    """One expression for patterns written as in .gitignore, without `!`: it matches a path that one of them names, or
    that lies below a folder that one of them names."""
    wanted = [_expression(text.strip().encode("utf-8", "surrogateescape")) for text in patterns]
    wanted = [text for text in wanted if text]
    return re.compile(b"(?:%s)(?:/|\\Z)" % b"|".join(wanted), re.DOTALL) if wanted else None


def _expression(pattern: bytes) -> bytes:
    anchored = b"/" in pattern.rstrip(b"/")
    pattern = pattern.strip(b"/")
    if not pattern:
        return b""
    out, at = [b"" if anchored else b"(?:.*/)?"], 0
    while at < len(pattern):
        if pattern.startswith(b"**/", at):
            out.append(b"(?:.*/)?")
            at += 3
        elif pattern.startswith(b"**", at):
            out.append(b".*")
            at += 2
        else:
            out.append({b"*": b"[^/]*", b"?": b"[^/]"}.get(pattern[at : at + 1], re.escape(pattern[at : at + 1])))
            at += 1
    return b"".join(out)


class ReadBudget:
    """Bytes read a day. Once it is used up only small files are read: a log that grows all day must not wear out a
    disk, and source code must stay protected."""

    SMALL = 1 << 20

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._day: date | None = None
        self._read = 0

    def begin(self, now: datetime) -> None:
        """Starts anew when another day has begun."""
        if now.date() != self._day:
            self._day, self._read = now.date(), 0

    def add(self, size: int) -> None:
        """Notes bytes that were read."""
        self._read += size

    @property
    def exhausted(self) -> bool:
        """Whether today's bytes are used up."""
        return self._read >= self._limit
