"""Samples, what is said of them, and the report."""

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least this share of all samples does not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def milliseconds(samples: Sequence[float]) -> str:
    """Median, best and p95 of samples in seconds."""
    return (
        f"median {statistics.median(samples) * 1e3:8.2f} ms   best {min(samples) * 1e3:8.2f}   "
        f"p95 {percentile(samples, 0.95) * 1e3:8.2f}   n={len(samples)}"
    )


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def until(condition: Callable[[], object], what: str, *, within: float = 60.0, every: float = 0.02) -> None:
    """Waits for a condition. Raises TimeoutError, which ends the bench."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not seen within {within:.0f} s: {what}")
        time.sleep(every)


class Number(NamedTuple):
    """One measured number and what was promised of it; `met` is None where nothing was."""

    what: str
    measured: str
    bound: str
    met: bool | None


class Report:
    """Prints while it measures, and at the end every number against its bound."""

    def __init__(self, *, short: bool) -> None:
        self.short = short
        self._numbers: list[Number] = []
        self._broken: list[str] = []
        self._started = time.monotonic()
        self._load = os.getloadavg()[0]
        form = "short" if short else "long"
        print(
            f"checkpointd bench, {form} form: {os.cpu_count()} cores, load {self._load:.1f}, {platform.system()} "
            f"{platform.release()}, Python {platform.python_version()}"
        )

    def begin(self, name: str) -> None:
        """A part starts."""
        print(f"\n== {name}", flush=True)

    def say(self, text: str) -> None:
        """One line of what was measured."""
        print(f"  {text}", flush=True)

    def number(self, what: str, measured: str, bound: str = "", met: bool | None = None) -> None:
        """A number that was promised. One that is missed is named and breaks nothing: machines differ."""
        self._numbers.append(Number(what, measured, bound, met))

    def floor(self, what: str, *, holds: bool) -> None:
        """What must hold on any machine: else the run fails."""
        if not holds:
            self._broken.append(what)

    def finish(self) -> int:
        """Prints the table; the exit status."""
        print(f"\n== numbers ({time.monotonic() - self._started:.0f} s, load {self._load:.1f} at the start)")
        width = max((len(number.what) for number in self._numbers), default=0)
        for number in self._numbers:
            verdict = {True: "met", False: "MISSED", None: "" if not number.bound else "not judged"}[number.met]
            print(f"  {number.what:<{width}}  {number.measured:<34} {number.bound:<20} {verdict}")
        for what in self._broken:
            print(f"BROKEN: {what}")
        return 1 if self._broken else 0
