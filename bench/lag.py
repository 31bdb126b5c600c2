"""How late the event loop wakes while a worker captures."""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.engine import Site
from bench.measure import Report, percentile
from bench.trees import Repository

_SLEEP = 0.002
_SLICE = 1.5
_BOUND = 2.0  # ms


async def _lags(stop: asyncio.Event) -> list[float]:
    found = []
    while not stop.is_set():
        due = time.perf_counter() + _SLEEP
        await asyncio.sleep(_SLEEP)
        found.append(time.perf_counter() - due)
    return found


async def _while(work: Callable[[], object]) -> list[float]:
    """The lags while a worker does `work`."""
    stop = asyncio.Event()
    task = asyncio.get_running_loop().create_task(_lags(stop))
    await asyncio.get_running_loop().run_in_executor(None, work)
    stop.set()
    return await task


def run(folder: Path, report: Report) -> None:
    """A first capture; then by turns known dirty paths, scans, and what is not ours: the machine's part."""
    sys.setswitchinterval(0.0005)  # as the daemon does
    asyncio.run(_run(folder, report))


async def _run(folder: Path, report: Report) -> None:
    files, slices = (2_000, 2) if report.short else (100_000, 6)
    repository = Repository(folder / "repo", files)
    site = await Site.of(repository.top, folder)

    def captures() -> None:
        end = time.perf_counter() + _SLICE
        while time.perf_counter() < end:
            dirty = repository.change()
            time.sleep(0.02)
            site.rolling.push(site.capture.capture(dirty))

    def scans() -> None:
        end = time.perf_counter() + _SLICE
        while time.perf_counter() < end:
            site.capture.scan()

    first = await _while(site.capture.first)
    _tell("a first capture", [first], report)
    parts: dict[str, Callable[[], object]] = {
        "nothing": lambda: time.sleep(_SLICE), "plain Python": _counting, "known dirty paths": captures, "scans": scans,
    }  # fmt: skip
    lags: dict[str, list[list[float]]] = {what: [] for what in parts}
    for _ in range(slices):
        for what, work in parts.items():
            lags[what].append(await _while(work))
    await site.engine.close()
    tails = {what: _tell(what, found, report) for what, found in lags.items()}
    machine = tails["plain Python"][0]
    for what, (median, best) in tails.items():
        ours = what in ("known dirty paths", "scans")
        # Where even a worker that only counts keeps the loop waiting, other processes do: nothing can be said of ours.
        judged = ours and (median < _BOUND or machine < _BOUND)
        report.number(
            f"lag of the loop beside {what}, p99", f"{median:.1f} ms (best {best:.1f})", "under 2 ms" if ours else "",
            median < _BOUND if judged else None,
        )  # fmt: skip
        report.floor(f"the loop stands still beside {what}", holds=best < 100)


def _counting() -> None:
    """A worker that shares the interpreter as often as a capture does, and touches nothing: the machine's part."""
    end = time.perf_counter() + _SLICE
    while time.perf_counter() < end:
        time.sleep(0.02)
        until = time.perf_counter() + 0.01
        while time.perf_counter() < until:
            pass


def _tell(what: str, slices: list[list[float]], report: Report) -> tuple[float, float]:
    """Says what a part's lags were; median and best of its slices' p99, in ms."""
    tails = [percentile(lags, 0.99) * 1e3 for lags in slices]
    every = [lag * 1e3 for lags in slices for lag in lags]
    report.say(
        f"{what:<18} p50 {percentile(every, 0.5):6.2f} ms   p99 of a slice: median {statistics.median(tails):6.2f}, "
        f"best {min(tails):6.2f}   max {max(every):7.2f}   n={len(every)} in {len(slices)}"
    )
    return statistics.median(tails), min(tails)
