"""Cutting a stream of bytes into lines, in bounded memory."""

# Lines of base64 images reach megabytes; above this a line is skipped.
MAX_LINE = 64 * 1024 * 1024
TRAIL = 256


class LineCutter:
    """Lines of a stream that comes in pieces; only the byte 0x0A ends a line.

    `start` is the offset where the unfinished line begins, `trail` the up to 256 bytes before it.
    """

    def __init__(self, start: int = 0, trail: bytes = b"", max_line: int = MAX_LINE) -> None:
        self.start = start
        self.trail = trail
        self.oversized: list[int] = []  # offsets of the lines that were skipped
        self._max_line = max_line
        self._pieces: list[bytes] = []
        self._size = 0
        self._skipping = False

    @property
    def end(self) -> int:
        """The offset of the next byte that is wanted."""
        return self.start + self._size

    @property
    def waiting(self) -> bool:
        """Whether a line has begun and not ended."""
        return self._size > 0

    @property
    def edge(self) -> bytes:
        """The up to 256 bytes before `end`."""
        edge = b""
        for piece in reversed(self._pieces):
            edge = piece[-TRAIL:] + edge
            if len(edge) >= TRAIL:
                break
        return (self.trail + edge)[-TRAIL:]

    def push(self, data: bytes) -> list[tuple[int, bytes]]:
        """The lines that `data` completes, each with its offset and without its newline."""
        head, *rest = data.split(b"\n")
        if not rest:
            self._hold(head)
            return []
        lines: list[tuple[int, bytes]] = []
        first = b"".join((*self._pieces, head))
        if self._skipping or len(first) > self._max_line:
            self.oversized.append(self.start)
        else:
            lines.append((self.start, first))
        offset = self.start + self._size + len(head) + 1
        for line in rest[:-1]:
            if len(line) > self._max_line:
                self.oversized.append(offset)
            else:
                lines.append((offset, line))
            offset += len(line) + 1
        self._forget(offset, self._trail_after(first, rest[:-1]))
        self._hold(rest[-1])
        return lines

    def pending(self) -> bytes | None:
        """The unfinished line; None where there is none, or it is too long."""
        return None if self._skipping or not self._size else b"".join(self._pieces)

    def take(self) -> tuple[int, bytes]:
        """The unfinished line, as if it had ended."""
        start, line = self.start, b"".join(self._pieces)
        self._forget(self.end, (self.trail + line)[-TRAIL:])
        return start, line

    def drop(self) -> None:
        """Forgets what is known of the unfinished line: it will come again."""
        self._forget(self.start, self.trail)

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        self._pieces.append(piece)
        if self._size > self._max_line:
            self._skipping = True
        if self._skipping:
            self._pieces = [b"".join(self._pieces)[-TRAIL:]]

    def _forget(self, start: int, trail: bytes) -> None:
        self.start, self.trail = start, trail
        self._pieces, self._size, self._skipping = [], 0, False

    def _trail_after(self, first: bytes, rest: list[bytes]) -> bytes:
        trail = b""
        for line in reversed(rest):
            trail = line[-TRAIL:] + b"\n" + trail
            if len(trail) >= TRAIL:
                return trail[-TRAIL:]
        return (self.trail + first[-TRAIL:] + b"\n" + trail)[-TRAIL:]
