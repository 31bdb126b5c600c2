"""How late the event loop wakes while a worker captures."""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.engine import Site
from bench.measure import Report, percentile
from bench.trees import Repository

_SLEEP = 0.002
_BOUND = 0.002


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
    """Known dirty paths again and again, a scan, a first capture; and nothing, for what the machine adds."""
    sys.setswitchinterval(0.0005)  # as the daemon does
    asyncio.run(_run(folder, report))


async def _run(folder: Path, report: Report) -> None:
    files, seconds = (2_000, 2.0) if report.short else (100_000, 10.0)
    repository = Repository(folder / "repo", files)
    site = await Site.of(repository.top, folder)

    def captures() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            dirty = repository.change()
            time.sleep(0.02)
            site.rolling.push(site.capture.capture(dirty))

    parts: dict[str, Callable[[], object]] = {
        "nothing": lambda: time.sleep(seconds),
        "a first capture": site.capture.first,
        "known dirty paths": captures,
        "a scan": site.capture.scan,
    }
    quiet = 0.0
    for what, work in parts.items():
        lags = await _while(work)
        p99 = percentile(lags, 0.99)
        report.say(
            f"{what:<18} p50 {percentile(lags, 0.5) * 1e3:6.2f} ms   p99 {p99 * 1e3:6.2f}   "
            f"max {max(lags) * 1e3:7.2f}   n={len(lags)}"
        )
        if what == "nothing":
            quiet = p99
            continue
        report.number(
            f"lag of the loop beside {what}, p99", f"{p99 * 1e3:.2f} ms ({quiet * 1e3:.2f} idle)", "under 2 ms",
            p99 < _BOUND,
        )  # fmt: skip
        report.floor(f"the loop stands still beside {what}", holds=percentile(lags, 0.95) < 0.1)
    await site.engine.close()
