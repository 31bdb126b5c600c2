"""When periodic work is done."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from checkpointd.catalog.catalog import Catalog
from checkpointd.clock import SystemClock
from checkpointd.jobs.schedule import Jobs

SOON = timedelta(milliseconds=20)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = Catalog(tmp_path / "catalog.sqlite")
    opened.open()
    yield opened
    opened.close()


def run(catalog: Catalog, play: Callable[[Jobs], Awaitable[None]]) -> Jobs:
    async def whole() -> Jobs:
        jobs = Jobs(catalog, SystemClock())
        try:
            await asyncio.wait_for(play(jobs), 10)
        finally:
            jobs.stop()
        return jobs

    return asyncio.run(whole())


def test_a_job_is_done_again_and_again_and_never_beside_itself(catalog: Catalog) -> None:
    running, most, done = 0, 0, asyncio.Event()
    count = 0

    async def work() -> None:
        nonlocal running, most, count
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)  # longer than the interval
        running -= 1
        count += 1
        if count == 3:
            done.set()

    async def play(jobs: Jobs) -> None:
        jobs.add("work", SOON, work)
        jobs.start()
        await done.wait()

    run(catalog, play)
    assert most == 1


def test_what_a_job_raises_is_kept_until_it_works_again(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[dict[str, str]] = []

    async def play(jobs: Jobs) -> None:
        done = asyncio.Event()

        async def work() -> None:
            seen.append(dict(jobs.failures))
            if len(seen) == 1:
                raise ValueError("no luck")
            if len(seen) == 3:
                done.set()

        jobs.add("work", SOON, work)
        jobs.start()
        await done.wait()

    with caplog.at_level(logging.ERROR):
        jobs = run(catalog, play)
    assert seen == [{}, {"work": "ValueError: no luck"}, {}]
    assert jobs.failures == {}
    assert "job failed name=work" in caplog.text


def test_nothing_begins_after_the_stop(catalog: Catalog) -> None:
    count = 0

    async def play(jobs: Jobs) -> None:
        nonlocal count
        done = asyncio.Event()

        async def work() -> None:
            nonlocal count
            count += 1
            done.set()

        jobs.add("work", SOON, work)
        jobs.start()
        await done.wait()
        jobs.stop()
        jobs.stop()
        before = count
        await asyncio.sleep(0.1)
        assert count <= before

    run(catalog, play)
