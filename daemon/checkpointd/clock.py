"""The clock, so that nothing else asks the system for the time."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Wall time for records, monotonic time for spans."""

    def now(self) -> datetime:
        """The present, with zone UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class FakeClock:
    """A clock that moves only when it is told to; for tests and simulations."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Moves both times forward by `seconds`."""
        self._now = datetime.fromtimestamp(self._now.timestamp() + seconds, UTC)
        self._monotonic += seconds
