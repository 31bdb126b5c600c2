"""When periodic work is due: APScheduler only ticks, what is done lives in the engine."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

from checkpointd.catalog.catalog import Catalog
from checkpointd.clock import Clock

log = logging.getLogger(__name__)


class Jobs:
    """Runs named jobs at intervals. Late ones run once, and never beside themselves; what a job raises is logged."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        # The defaults would skip a job that is a second late, as after sleep.
        self._scheduler = AsyncIOScheduler(
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}, timezone="UTC"
        )
        self.failures: dict[str, str] = {}

    def add(
        self, name: str, every: timedelta, work: Callable[[], Awaitable[None]], *, remembered: bool = False
    ) -> None:
        """Has `work` done every so often; a remembered job counts from its last run, also across restarts."""
        first = None
        if remembered:
            last = self._catalog.last_run(name)
            now = self._clock.now()
            first = max(now + timedelta(seconds=30), (last or datetime.min.replace(tzinfo=now.tzinfo)) + every)

        async def run() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.failures[name] = f"{type(error).__name__}: {error}"
                log.error("job failed name=%s", name, exc_info=error)
                return
            self.failures.pop(name, None)
            if remembered:
                self._catalog.set_run(name, self._clock.now())

        trigger = IntervalTrigger(seconds=every.total_seconds(), start_date=first, timezone="UTC")
        self._scheduler.add_job(run, trigger, id=name)

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        """No job begins after this."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
