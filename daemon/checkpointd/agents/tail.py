"""Reading logs that grow: the new records of a file since the last look, as events."""

import hashlib
import os
import stat
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from checkpointd.agents.base import Adapter, Counts, LogParser
from checkpointd.agents.lines import MAX_LINE, TRAIL, LineCutter
from checkpointd.agents.records import is_whole
from checkpointd.model.events import Event, Position

# One slice parses in a millisecond or two, so the event loop is never held for long; larger ones are no faster.
SLICE = 256 * 1024
# A last line without its newline may be read when the file has rested this long, in seconds.
QUIET = 2.0
_REMEMBERED = 100_000


class Cursor(Struct, frozen=True, kw_only=True):
    """Where reading goes on after a restart."""

    device: int = 0
    inode: int = 0
    offset: int = 0
    tail_hash: str = ""  # of the up to 256 bytes before the offset
    generation: int = 0
    state: bytes = b""  # the parser's


class Batch(Struct, frozen=True, kw_only=True):
    """What one look at a log gave."""

    events: list[Event]
    status: Literal["ok", "missing", "unreadable"] = "ok"
    error: str = ""
    more: bool = False  # bytes are left: read again
    waiting: bool = False  # the last line is not finished: read again when the file has rested
    restarted: bool = False  # the file was truncated or replaced and is read from its start again


class Log(Protocol):
    """A log that is read in slices, live or finished."""

    path: Path

    @property
    def counts(self) -> Counts:
        """What was understood since this reader was made."""
        ...

    def read(self, limit: int = SLICE, *, now: float) -> Batch:
        """The events of the next `limit` bytes; `now` is monotonic."""
        ...

    def cursor(self) -> Cursor:
        """Where a new reader would go on."""
        ...


class Tail:
    """One log file, read from where it was left.

    A file that shrank, or that no longer holds the bytes that were read last, is read again from its start under a
    new generation; records that come again then give no events. A file with another inode but the same bytes (moved,
    restored, on a device that was numbered anew) is the same log.
    """

    def __init__(
        self,
        path: Path,
        adapter: Adapter,
        cursor: Cursor | None = None,
        *,
        quiet: float = QUIET,
        max_line: int = MAX_LINE,
    ) -> None:
        self.path = path
        self._adapter = adapter
        self._quiet = quiet
        self._max_line = max_line
        self._cursor = cursor or Cursor()
        self._generation = self._cursor.generation
        self._identity = (self._cursor.device, self._cursor.inode)
        self._checked = False  # whether the bytes before the cursor were compared since start
        self._lines = LineCutter(self._cursor.offset, max_line=max_line)
        self._parser: LogParser = adapter.parser()
        if self._cursor.state:
            self._parser.restore(self._cursor.state)
        self._seen = _Seen()
        self._grew_at: float | None = None
        self._unfinished = 0  # size of the last line when it was last found not to be whole

    @property
    def counts(self) -> Counts:
        return self._parser.counts

    def cursor(self) -> Cursor:
        """Where a new Tail would go on: the start of the unfinished line."""
        if not self._checked:
            return self._cursor
        device, inode = self._identity
        return Cursor(
            device=device,
            inode=inode,
            offset=self._lines.start,
            tail_hash=_hash(self._lines.trail),
            generation=self._generation,
            state=self._parser.state(),
        )

    def read(self, limit: int = SLICE, *, now: float) -> Batch:
        """The events of the next `limit` bytes. A file that cannot be read is a status, never an exception."""
        try:
            # O_NONBLOCK: a pipe of that name must not hold us.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return Batch(events=[], status="missing")
        except OSError as error:
            return Batch(events=[], status="unreadable", error=os.strerror(error.errno or 0))
        try:
            return self._read(descriptor, limit, now)
        except OSError as error:
            return Batch(events=[], status="unreadable", error=os.strerror(error.errno or 0))
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, limit: int, now: float) -> Batch:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Batch(events=[], status="unreadable", error="not a regular file")
        restarted = self._place(descriptor, status)
        data = os.pread(descriptor, limit, self._lines.end)
        if data:
            self._grew_at = now
            lines = self._lines.push(data)
        else:
            lines = self._rested_line(now)
        events = self._parse(lines)
        more = self._lines.end < status.st_size
        return Batch(events=events, more=more, waiting=self._lines.waiting, restarted=restarted)

    def _place(self, descriptor: int, status: os.stat_result) -> bool:
        """Makes sure that what was read is still there; True when reading begins anew."""
        identity = (status.st_dev, status.st_ino)
        same, self._identity = identity == self._identity, identity
        if not self._checked:
            self._checked = True
            trail = os.pread(descriptor, min(TRAIL, self._lines.start), max(0, self._lines.start - TRAIL))
            if not self._cursor.offset or _hash(trail) == self._cursor.tail_hash:
                self._lines.trail = trail
                return False
            self._restart()
            return True
        if same and self._holds(descriptor, self._lines.end, self._lines.edge):
            return False
        self._lines.drop()
        if self._holds(descriptor, self._lines.start, self._lines.trail):
            return False
        self._restart()
        return True

    def _holds(self, descriptor: int, end: int, expected: bytes) -> bool:
        return os.pread(descriptor, len(expected), end - len(expected)) == expected

    def _restart(self) -> None:
        self._generation += 1
        self._lines = LineCutter(max_line=self._max_line)
        counts = self._parser.counts
        self._parser = self._adapter.parser()
        self._parser.counts = counts
        self._seen.begin_again()

    def _rested_line(self, now: float) -> list[tuple[int, bytes]]:
        """The last line, when nothing has come after it for a while and it is complete JSON."""
        if self._grew_at is None:
            self._grew_at = now
        line = self._lines.pending()
        if not line or now - self._grew_at < self._quiet or len(line) == self._unfinished:
            return []
        if not is_whole(line):
            self._unfinished = len(line)
            return []
        return [self._lines.take()]

    def _parse(self, lines: list[tuple[int, bytes]]) -> list[Event]:
        events: list[Event] = []
        generation, parser, seen = self._generation, self._parser, self._seen
        for offset, line in lines:
            if not line or line.isspace():
                continue
            found = parser.feed(line, Position(generation=generation, offset=offset))
            if found:
                events += seen.new(found, line)
        for offset in self._lines.oversized:
            parser.counts.oversized.add(Position(generation=generation, offset=offset))
        self._lines.oversized.clear()
        return events


class _Seen:
    """Which records gave events already, in a bounded memory.

    Records are known by their id. Those without one are compared, whole, only with what was read before the file was
    read again: two such records in one reading are two.
    """

    def __init__(self) -> None:
        self._records: dict[int, None] = {}
        self._lines: dict[int, None] = {}
        self._old_lines: dict[int, None] = {}

    def new(self, events: list[Event], line: bytes) -> list[Event]:
        """The events without those of records that were seen."""
        first = events[0].position
        if all(event.position is first for event in events):
            return events if self._is_new(first.record, line) else []
        kept: list[Event] = []
        fresh: dict[str, bool] = {}
        for event in events:
            record = event.position.record
            if record not in fresh:
                fresh[record] = self._is_new(record, line)
            if fresh[record]:
                kept.append(event)
        return kept

    def begin_again(self) -> None:
        """The file is read from its start again."""
        self._old_lines |= self._lines
        self._lines = {}

    def _is_new(self, record: str, line: bytes) -> bool:
        if record:
            return _remember(self._records, hash(record))
        key = hash(line)
        _remember(self._lines, key)
        return key not in self._old_lines


def _remember(keys: dict[int, None], key: int) -> bool:
    if key in keys:
        return False
    keys[key] = None
    if len(keys) > _REMEMBERED:
        del keys[next(iter(keys))]
    return True


def _hash(trail: bytes) -> str:
    return hashlib.blake2b(trail, digest_size=16).hexdigest()


def at_end(cursor: Cursor, status: os.stat_result) -> bool:
    """Whether a file has nothing that the cursor has not read, as far as its size and place tell."""
    return (cursor.device, cursor.inode, cursor.offset) == (status.st_dev, status.st_ino, status.st_size)
