"""The event log of a project: one JSON line an event, each with the hash of the line before it."""

import contextlib
import hashlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from checkpointd.vault import disk
from checkpointd.vault.layout import Problem

SEGMENT = 256 << 10
"""Bytes of the log that the vault holds as one blob; only the last one is ever written again."""

_decode = msgspec.json.decode


def line_hash(line: bytes) -> str:
    """The hash that the line after this one names; `line` without its newline."""
    return hashlib.sha256(line).hexdigest()


class EventLog:
    """The log in one file; lines are only ever added. Any thread may use it."""

    def __init__(self, path: Path) -> None:
        """Opens the log, or begins one. What a power loss left of a last line goes to `<path>.torn`."""
        self.path = path
        self.problems: list[Problem] = []
        self._lock = threading.Lock()
        self._load()

    def _load(self) -> None:
        self._cuts = [0]  # where segments begin
        self._size = 0
        self._tail = ""
        data = self._bytes()
        end = _whole(data)
        if end < len(data):
            self._set_aside(data[end:], end)
        for line in _lines(data[:end]):
            self._count(line)

    def _bytes(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def _set_aside(self, rest: bytes, end: int) -> None:
        torn = self.path.with_name(self.path.name + ".torn")
        with disk.translated(self.path):
            self._write(str(torn), rest, sync=False)
            os.truncate(self.path, end)
        what = f"The last line of the event log {self.path} was torn ({len(rest)} bytes)."
        self.problems.append(Problem(what=what, hint=f"It was moved to {torn}; all lines before it are whole."))

    def _count(self, line: bytes) -> None:
        after = self._size + len(line) + 1
        if self._size > self._cuts[-1] and after - self._cuts[-1] > SEGMENT:
            self._cuts.append(self._size)
        self._size = after
        self._tail = line_hash(line)

    def append(self, event: Mapping[str, Any], *, sync: bool = True) -> str:
        """Adds one event, which gets `prev`; the hash of its line. Whole or not at all: raises StoreError."""
        with self._lock:
            line = msgspec.json.encode({**event, "prev": self._tail})
            with disk.translated(self.path):
                self._write(str(self.path), line + b"\n", sync=sync)
            self._count(line)
            return self._tail

    def _write(self, path: str, data: bytes, *, sync: bool) -> None:
        descriptor = disk.system.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            try:
                disk.write_all(descriptor, data)
                if sync:
                    disk.system.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        if sync and size == 0:
            disk.sync_path(os.path.dirname(path))

    def tail_hash(self) -> str:
        """The hash of the last line; "" where there is none."""
        return self._tail

    def read(self) -> Iterator[dict[str, Any]]:
        """All events, oldest first. A line that is no JSON object is left out; `verify_chain` names it."""
        for line in _lines(self._bytes()):
            with contextlib.suppress(msgspec.DecodeError):
                event = _decode(line)
                if isinstance(event, dict):
                    yield event

    def verify_chain(self) -> list[int]:
        """The numbers, from 1, of lines that do not name the hash of the line before them."""
        broken, before = [], ""
        for number, line in enumerate(_lines(self._bytes()), 1):
            if _previous(line) != before:
                broken.append(number)
            before = line_hash(line)
        return broken

    def segments(self, first: int) -> dict[bytes, bytes]:
        """The segments from number `first` (from 0) on, by the names under which the vault holds them."""
        with self._lock:
            cuts = [*self._cuts[first:], self._size]
            if len(cuts) < 2 or not self._size:
                return {}
            with self.path.open("rb") as file:
                file.seek(cuts[0])
                data = file.read(self._size - cuts[0])
        parts = [data[start - cuts[0] : end - cuts[0]] for start, end in itertools.pairwise(cuts)]
        return {segment_name(number): part for number, part in enumerate(parts, first)}

    def recover(self, saved: bytes) -> bool:
        """Takes over what the vault holds of this log, where the file has lost it. Whether the file goes on where the
        vault's copy ends; where the two tell different stories the file stays as it is, and that is a problem."""
        with self._lock:
            data = self._bytes()
            if data.startswith(saved):
                return True
            if not saved.startswith(data):
                what = f"The event log {self.path} and the vault's copy of it differ."
                self.problems.append(Problem(what=what, hint="Both are kept: the copy is refs/events in the vault."))
                return False
            with disk.translated(self.path):
                disk.replace_file(str(self.path), saved, sync=True, suffix=".tmp")
            self._load()
        lost = len(saved) - len(data)
        self.problems.append(
            Problem(what=f"The event log {self.path} lacked {lost} bytes.", hint="They were put back from the vault.")
        )
        return True


def segment_name(number: int) -> bytes:
    """The name of a segment in the tree of refs/events."""
    return b"%06d.jsonl" % (number + 1)


def _lines(data: bytes) -> list[bytes]:
    # Not splitlines, which would cut at carriage returns as well.
    return data.removesuffix(b"\n").split(b"\n") if data else []


def _whole(data: bytes) -> int:
    """Where the last whole line ends: one that has its newline and is JSON."""
    end = data.rfind(b"\n") + 1
    while end:
        start = data.rfind(b"\n", 0, end - 1) + 1
        if _previous(data[start : end - 1]) is not None:
            return end
        end = start
    return 0


def _previous(line: bytes) -> str | None:
    try:
        event = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event.get("prev") if isinstance(event, dict) else None
