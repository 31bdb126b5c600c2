"""The journal of a restore: what it set out to do and how far it came, so that it can be finished, reverted or undone.

One file a plan, JSON lines: `planned` (synced before anything is touched), `applied` as paths are done, `done` (synced)
at the end. A journal without `done` is that of a restore that was interrupted.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Self

import msgspec
from msgspec import Struct

from checkpointd.model.paths import quote, unquote
from checkpointd.model.restore import Directory, Entry, Step

_SUFFIX = ".jsonl"


class Intent(Struct, frozen=True, kw_only=True):
    """What a restore set out to do. `made`: directories that were missing and that it makes; `removed`: directories
    that were there and that it removes if they end up empty."""

    plan: str
    worktree: str
    target: str  # checkpoint
    pre_restore: str  # checkpoint
    at: datetime
    steps: tuple[Step, ...]
    made: tuple[Directory, ...] = ()
    removed: tuple[Directory, ...] = ()


class Entered(Struct, frozen=True, kw_only=True):
    """A journal as it was read: the intent and how far it came."""

    intent: Intent
    applied: frozenset[bytes] = frozenset()
    done: bool = False
    aborted: bool = False
    failed: Mapping[bytes, str] = {}


_Node = tuple[int, str, int] | None


class _Planned(Struct, tag="planned", tag_field="event"):
    plan: str
    worktree: str
    target: str
    pre_restore: str
    at: datetime
    steps: list[tuple[str, _Node, _Node, str]]
    made: list[tuple[str, int]]
    removed: list[tuple[str, int]]


class _Applied(Struct, tag="applied", tag_field="event"):
    paths: list[str]


class _Done(Struct, tag="done", tag_field="event"):
    aborted: bool = False
    failed: dict[str, str] = {}


_DECODER = msgspec.json.Decoder(_Planned | _Applied | _Done)


class Journal:
    """One journal, open for writing; `applied` may be called from several threads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()  # two writers must not mix their lines

    @classmethod
    def begin(cls, folder: Path, intent: Intent) -> Self:
        """Writes and syncs the intent: from here on the restore can be finished or reverted."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(_file(folder, intent.plan), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        journal = cls(open(fd, "ab", buffering=0))  # noqa: SIM115 - closed by `finish` or `close`
        journal._write(_planned(intent), sync=True)
        _sync_folder(folder)
        return journal

    @classmethod
    def reopen(cls, folder: Path, plan: str) -> Self:
        """Goes on writing the journal of an interrupted restore."""
        journal = cls(open(_file(folder, plan), "ab", buffering=0))  # noqa: SIM115 - closed by `finish` or `close`
        journal._file.write(b"\n")  # a last line that was cut off by the interruption ends here
        return journal

    def applied(self, paths: Iterable[bytes]) -> None:
        """These paths are done. It only says how far a restore came: not synced, and no harm if the disk is full, since
        whoever finishes or reverts it looks at the files."""
        with contextlib.suppress(OSError):
            self._write(_Applied(paths=[quote(path) for path in paths]))

    def finish(self, failed: Mapping[bytes, str], *, aborted: bool = False) -> None:
        """The restore is over; synced and closed."""
        self._write(_Done(aborted=aborted, failed={quote(path): why for path, why in failed.items()}), sync=True)
        self.close()

    def close(self) -> None:
        self._file.close()

    def _write(self, line: Struct, *, sync: bool = False) -> None:
        with self._lock:
            self._file.write(msgspec.json.encode(line) + b"\n")
            if sync:
                os.fsync(self._file.fileno())


def read(folder: Path, plan: str) -> Entered | None:
    """The journal of a plan; None where there is none, or where it never got as far as its intent."""
    try:
        lines = _file(folder, plan).read_bytes().split(b"\n")
    except FileNotFoundError:
        return None
    entered: Entered | None = None
    for line in lines:
        try:
            entry = _DECODER.decode(line)
        except msgspec.DecodeError:  # empty, or torn by an interruption
            continue
        entered = _advance(entered, entry)
    return entered


def read_all(folder: Path) -> list[Entered]:
    """Every journal in a folder, the oldest first."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except FileNotFoundError:
        return []
    journals = (read(folder, name.removesuffix(_SUFFIX)) for name in names)
    return sorted((entered for entered in journals if entered is not None), key=lambda entered: entered.intent.at)


def discard(folder: Path, plans: Iterable[str]) -> None:
    """Removes journals that nothing will be undone by any more."""
    for plan in plans:
        _file(folder, plan).unlink(missing_ok=True)


def _advance(entered: Entered | None, entry: _Planned | _Applied | _Done) -> Entered | None:
    if isinstance(entry, _Planned):
        return Entered(intent=_intent(entry))
    if entered is None:
        return None
    if isinstance(entry, _Applied):
        return msgspec.structs.replace(entered, applied=entered.applied | set(map(unquote, entry.paths)))
    failed = {unquote(path): why for path, why in entry.failed.items()}
    return msgspec.structs.replace(entered, done=True, aborted=entry.aborted, failed=failed)


def _planned(intent: Intent) -> _Planned:
    return _Planned(
        plan=intent.plan,
        worktree=intent.worktree,
        target=intent.target,
        pre_restore=intent.pre_restore,
        at=intent.at,
        steps=[(quote(s.path), _node(s.target), _node(s.present), s.why) for s in intent.steps],
        made=_listed(intent.made),
        removed=_listed(intent.removed),
    )


def _intent(line: _Planned) -> Intent:
    return Intent(
        plan=line.plan,
        worktree=line.worktree,
        target=line.target,
        pre_restore=line.pre_restore,
        at=line.at,
        steps=tuple(
            Step(path=unquote(path), target=_entry(target), present=_entry(present), why=why)
            for path, target, present, why in line.steps
        ),
        made=_directories(line.made),
        removed=_directories(line.removed),
    )


def _node(entry: Entry | None) -> _Node:
    return None if entry is None else (entry.mode, entry.oid, entry.permissions)


def _entry(node: _Node) -> Entry | None:
    return None if node is None else Entry(mode=node[0], oid=node[1], permissions=node[2])


def _listed(directories: Sequence[Directory]) -> list[tuple[str, int]]:
    return [(quote(directory.path), directory.permissions) for directory in directories]


def _directories(listed: Sequence[tuple[str, int]]) -> tuple[Directory, ...]:
    return tuple(Directory(path=unquote(path), permissions=bits) for path, bits in listed)


def _file(folder: Path, plan: str) -> Path:
    return folder / (plan + _SUFFIX)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
