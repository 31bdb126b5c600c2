"""What a capture keeps beside the tree: what was left out and why, permission bits, empty folders."""

from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime

from checkpointd.model.capture import Coverage, Skip, SkipReason
from checkpointd.model.modes import Modes, Usual, encode


class Ledger:
    """The running account of one work tree. Changing a few paths is cheap; what is derived is kept until then."""

    def __init__(self, usual: Usual | None = None) -> None:
        self.usual = usual or Usual()
        self.skips: dict[bytes, Skip] = {}
        self.modes: dict[bytes, int] = {}
        self.empty: set[bytes] = set()
        self.unobserved: set[bytes] = set()
        self.captured = 0
        self.size = 0
        self._order: list[bytes] | None = []  # the paths of `skips`, sorted; None: to be made
        self._skipped: tuple[Skip, ...] | None = ()
        self._encoded: bytes | None = None

    def copy(self) -> "Ledger":
        """An independent one that says the same."""
        other = Ledger(self.usual)
        other.skips, other.modes = self.skips.copy(), self.modes.copy()
        other.empty, other.unobserved = self.empty.copy(), self.unobserved.copy()
        other.captured, other.size = self.captured, self.size
        other._order, other._skipped, other._encoded = self._order, self._skipped, self._encoded
        return other

    def take_modes(self, modes: Modes) -> None:
        """Starts from a modes.json."""
        self.usual, self.modes, self.empty = modes.usual, dict(modes.exceptions), set(modes.empty)
        self._encoded = None

    def skip(self, path: bytes, reason: SkipReason, detail: str = "", *, folder: bool = False) -> None:
        """Notes what is left out."""
        skip = Skip(path=path, reason=reason, detail=detail, folder=folder)
        if self.skips.get(path) != skip:
            self.skips[path] = skip
            self._order = self._skipped = None

    def unskip(self, path: bytes) -> None:
        """Notes that a path is captured whole, or gone."""
        if self.skips.pop(path, None) is not None:
            self._order = self._skipped = None

    def _sorted(self) -> list[bytes]:
        if self._order is None:
            self._order = sorted(self.skips)
        return self._order

    def forget_below(self, path: bytes) -> None:
        """Drops what is known of a path and of everything below it."""
        self.unskip(path)
        order = self._sorted()
        for found in order[bisect_left(order, path + b"/") : bisect_left(order, path + b"0")]:
            self.unskip(found)
        for found in _at_or_below(self.modes, path):
            self.set_mode(found, None)
        self.drop_empty(_at_or_below(self.empty, path))

    def drop_empty(self, paths: Iterable[bytes]) -> None:
        """These are not empty folders any more."""
        for path in paths:
            if path in self.empty:
                self.empty.discard(path)
                self.modes.pop(path, None)
                self._encoded = None

    def add_empty(self, path: bytes, bits: int) -> None:
        """Notes an empty folder."""
        if path not in self.empty:
            self.empty.add(path)
            self._encoded = None
        self.set_mode(path, None if bits == self.usual.folder else bits)

    def set_mode(self, path: bytes, bits: int | None) -> None:
        """Notes permission bits that are not the usual ones (None: they are)."""
        if self.modes.get(path) != bits:
            self._encoded = None
            if bits is None:
                del self.modes[path]
            else:
                self.modes[path] = bits

    def skipping(self, path: bytes) -> Skip | None:
        """The skip that a path is, or lies below."""
        found = self.skips.get(path)
        if found is not None:
            return found
        while (cut := path.rfind(b"/")) > 0:
            path = path[:cut]
            found = self.skips.get(path)
            if found is not None and found.folder:
                return found
        return None

    def modes_document(self) -> bytes:
        """modes.json."""
        if self._encoded is None:
            self._encoded = encode(self.usual, self.modes, self.empty)
        return self._encoded

    def coverage(self, *, rules: str, first_read: datetime, last_read: datetime) -> Coverage:
        """The statement of what was looked at."""
        if self._skipped is None:
            self._skipped = tuple(self.skips[path] for path in self._sorted())
        return Coverage(
            captured=self.captured,
            size=self.size,
            skipped=self._skipped,
            unobserved=tuple(sorted(self.unobserved)),
            rules=rules,
            first_read=first_read,
            last_read=last_read,
        )


def _at_or_below(paths: Iterable[bytes], top: bytes) -> list[bytes]:
    prefix = top + b"/"
    return [path for path in paths if path == top or path.startswith(prefix)]
