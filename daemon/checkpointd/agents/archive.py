"""Logs that an agent compressed because they are old: read once, from start to end."""

import os
from pathlib import Path
from typing import BinaryIO

import zstandard

from checkpointd.agents.base import Adapter, Counts
from checkpointd.agents.lines import LineCutter
from checkpointd.agents.tail import SLICE, Batch, Cursor
from checkpointd.model.events import Event, Position


class CompressedLog:
    """A `.jsonl.zst` log.

    Positions are offsets in the text; a cursor is at the start or, when all was read, at the end.
    """

    def __init__(self, path: Path, adapter: Adapter, cursor: Cursor | None = None) -> None:
        self.path = path
        self._cursor = cursor or Cursor()
        self._parser = adapter.parser()
        self._lines = LineCutter()
        self._stream: BinaryIO | None = None
        self._identity = (0, 0, 0)  # device, inode, size of the file that is read
        self._done = False

    @property
    def counts(self) -> Counts:
        return self._parser.counts

    def cursor(self) -> Cursor:
        """The end of the file when all of it was read, else where this reader began."""
        if not self._done:
            return self._cursor
        device, inode, size = self._identity
        return Cursor(device=device, inode=inode, offset=size, generation=self._cursor.generation)

    def read(self, limit: int = SLICE, *, now: float) -> Batch:
        """The events of the next `limit` bytes of text. Damage ends the log; what came before it counts."""
        del now  # nothing is waited for in a file that does not grow
        if self._done:
            return Batch(events=[])
        try:
            stream = self._open()
            data = b"" if stream is None else stream.read(limit)
        except FileNotFoundError:
            return Batch(events=[], status="missing")
        except OSError as error:
            return Batch(events=[], status="unreadable", error=os.strerror(error.errno or 0))
        except zstandard.ZstdError as error:
            self._finish()
            return Batch(events=[], status="unreadable", error=str(error))
        if data:
            return Batch(events=self._parse(self._lines.push(data)), more=True)
        rest = [self._lines.take()] if self._lines.pending() else []
        self._finish()
        return Batch(events=self._parse(rest))

    def _open(self) -> BinaryIO | None:
        """The stream; None when an earlier reader was through with this very file."""
        if self._stream is None:
            file = self.path.open("rb")
            status = os.fstat(file.fileno())
            self._identity = (status.st_dev, status.st_ino, status.st_size)
            if self._identity == (self._cursor.device, self._cursor.inode, self._cursor.offset):
                file.close()
                return None
            self._stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=True)
        return self._stream

    def _finish(self) -> None:
        self._done = True
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _parse(self, lines: list[tuple[int, bytes]]) -> list[Event]:
        generation = self._cursor.generation
        events: list[Event] = []
        for offset, line in lines:
            if line and not line.isspace():
                events += self._parser.feed(line, Position(generation=generation, offset=offset))
        for offset in self._lines.oversized:
            self.counts.oversized.add(Position(generation=generation, offset=offset))
        self._lines.oversized.clear()
        return events
