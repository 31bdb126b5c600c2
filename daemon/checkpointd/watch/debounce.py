"""When changed paths have rested, and when deletions are a burst: pure decisions on times that are given."""

from collections import OrderedDict, deque
from collections.abc import Iterable

from msgspec import Struct


class Debounce:
    """Holds changed paths until each has rested, or has waited long enough."""

    def __init__(self, *, rest: float = 0.150, longest: float = 1.0) -> None:
        self._rest = rest
        self._longest = longest
        # Both in order of time, so that what is due first is in front.
        self._first: OrderedDict[bytes, float] = OrderedDict()
        self._last: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def add(self, paths: Iterable[bytes], now: float) -> None:
        """Notes that the paths changed at `now`; times must not go backwards."""
        for path in paths:
            self._first.setdefault(path, now)
            self._last[path] = now
            self._last.move_to_end(path)

    def due(self, now: float) -> set[bytes]:
        """Takes out the paths that rested, or that changed first too long ago to wait further."""
        taken = set()
        while self._last and now - (entry := next(iter(self._last.items())))[1] >= self._rest:
            taken.add(self._take(entry[0]))
        while self._first and now - (entry := next(iter(self._first.items())))[1] >= self._longest:
            taken.add(self._take(entry[0]))
        return taken

    def take_all(self) -> set[bytes]:
        """Takes out everything, rested or not: a trigger does not wait."""
        taken = set(self._last)
        self._first.clear()
        self._last.clear()
        return taken

    def next_due(self) -> float | None:
        """When `due` will give something next; None when nothing is held."""
        if not self._last:
            return None
        return min(next(iter(self._last.values())) + self._rest, next(iter(self._first.values())) + self._longest)

    def _take(self, path: bytes) -> bytes:
        del self._first[path], self._last[path]
        return path


class Burst(Struct, frozen=True, kw_only=True):
    """Much was deleted at once. `at` is the time of the first of these deletions."""

    at: float
    deletions: int
    folders: int


class BurstDetector:
    """Tells once that a burst of deletions began; it goes on until a second passes without any."""

    def __init__(self, *, more_than: int = 5, within: float = 1.0) -> None:
        self._more_than = more_than
        self._within = within
        self._recent: deque[tuple[float, int, int]] = deque()
        self._bursting = False

    def add(self, at: float, deletions: int, folders: int) -> Burst | None:
        """Notes deletions at `at`; a Burst with the first of them that makes it one."""
        if not deletions and not folders:
            return None
        if self._recent and at - self._recent[-1][0] > self._within:
            self._bursting = False
        self._recent.append((at, deletions, folders))
        while at - self._recent[0][0] > self._within:
            self._recent.popleft()
        deletions = sum(entry[1] for entry in self._recent)
        folders = sum(entry[2] for entry in self._recent)
        if self._bursting or (deletions <= self._more_than and not folders):
            return None
        self._bursting = True
        return Burst(at=self._recent[0][0], deletions=deletions, folders=folders)
