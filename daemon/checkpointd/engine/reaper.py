"""The reaper: forgets what retention does not keep, and more where bytes or disk run short."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from msgspec import Struct

from checkpointd.clock import Clock
from checkpointd.model.retention import RetentionItem, RetentionPolicy, Verdict, decide, pressure_groups
from checkpointd.vault.errors import StoreError
from checkpointd.vault.store import Vault

log = logging.getLogger(__name__)
T = TypeVar("T")

_FRACTION = 10  # of what may go under pressure, at a time
_LEAST = 10  # checkpoints


class ReaperProject(Struct, frozen=True, kw_only=True):
    """One project's checkpoints. What is in use is marked as pinned in `items`."""

    id: str
    vault: Vault
    items: tuple[RetentionItem, ...]


class Budget(Struct, frozen=True, kw_only=True):
    """Limits over all vaults: their bytes, and the part of the disk that is to stay free."""

    max_bytes: int = 10 << 30
    free_fraction: float = 0.05


class DiskUsage(Struct, frozen=True, kw_only=True):
    total: int
    free: int


class Reaped(Struct, frozen=True, kw_only=True):
    """What became of one project: the verdicts that were carried out, or why none was."""

    project: str
    forgotten: tuple[Verdict, ...] = ()
    refused: str = ""


class ReaperReport(Struct, frozen=True, kw_only=True):
    """`pressed`: which limit was passed, empty for none. `capture_must_stop`: it still is, and nothing more may go."""

    projects: tuple[Reaped, ...]
    size_before: int
    size_after: int
    pressed: str = ""
    capture_must_stop: bool = False

    @property
    def forgotten(self) -> int:
        return sum(len(project.forgotten) for project in self.projects)


class Reaper:
    """Runs on the event loop, its slow parts in `pool`.

    `refusal` says why nothing of a project may be forgotten, given the ids that would remain (their last verification
    failed), and is empty where it may. `forgotten` is told what is gone, to write events and the catalog; a run that is
    killed between the two repeats itself, since forgetting what is gone does nothing.
    """

    def __init__(
        self,
        *,
        policy: RetentionPolicy,
        budget: Budget,
        clock: Clock,
        disk_usage: Callable[[], DiskUsage],
        refusal: Callable[[str, Collection[str]], str],
        forgotten: Callable[[str, Sequence[Verdict]], Awaitable[None]],
        pool: Executor,
    ) -> None:
        self._policy = policy
        self._budget = budget
        self._clock = clock
        self._disk_usage = disk_usage
        self._refusal = refusal
        self._forgotten = forgotten
        self._pool = pool

    async def run(self, projects: Sequence[ReaperProject]) -> ReaperReport:
        """Forgets what no rule keeps, then, while a limit is passed, what may go first."""
        before = await self._size(projects)
        tally = _Tally(projects)
        for project in projects:
            verdicts = decide(project.items, self._policy, self._clock.now())
            await self._forget(project, [verdict for verdict in verdicts if not verdict.keep], tally)
        pressed = first = await self._pressure(projects)
        if pressed:
            pressed = await self._relieve(projects, pressed, tally)
        after = await self._size(projects)
        if first:
            log.warning("reaper pressed by=%s forgotten=%d still=%s", first, tally.count(), bool(pressed))
        return ReaperReport(
            projects=tally.reaped(),
            size_before=before,
            size_after=after,
            pressed=first,
            capture_must_stop=bool(pressed),
        )

    async def _relieve(self, projects: Sequence[ReaperProject], pressed: str, tally: "_Tally") -> str:
        """Forgets, a part at a time, until no limit is passed; the one that still is, if nothing more may go."""
        home = {item.id: project for project in projects for item in project.items}
        groups = pressure_groups([item for project in projects for item in tally.left(project)])
        groups = [group for group in groups if not tally.refused(home[group[0]])]
        size = max(_LEAST, len(groups) // _FRACTION)
        for start in range(0, len(groups), size):
            before = await self._size(projects)
            going: dict[str, list[Verdict]] = {}
            for group in groups[start : start + size]:
                verdicts = (Verdict(id=id_, keep=False, reason=f"room is needed: {pressed}") for id_ in group)
                going.setdefault(home[group[0]].id, []).extend(verdicts)
            for project in projects:
                await self._forget(project, going.get(project.id, []), tally)
            pressed = await self._pressure(projects)
            if not pressed:
                return ""
            if await self._size(projects) >= before:
                return pressed  # nothing came free: to go on would lose history for nothing
        return pressed

    async def _forget(self, project: ReaperProject, verdicts: Sequence[Verdict], tally: "_Tally") -> None:
        if not verdicts:
            return
        ids = [verdict.id for verdict in verdicts]
        remaining = [item.id for item in tally.left(project) if item.id not in set(ids)]
        if why := self._refusal(project.id, remaining):
            tally.refuse(project, why)
            return
        try:
            await self._run(lambda: project.vault.forget(ids))
        except (StoreError, OSError) as error:
            log.warning("reaper could not forget project=%s error=%s", project.id, error)
            tally.refuse(project, str(error))
            # Some may be gone all the same: refs go first, their bytes with the next roll-up that works.
            there = await self._run(lambda: set(project.vault.checkpoint_ids()))
            verdicts = [verdict for verdict in verdicts if verdict.id not in there]
        if verdicts:
            await self._forgotten(project.id, verdicts)
            tally.note(project, verdicts)
            log.info("reaper forgot project=%s checkpoints=%d", project.id, len(verdicts))

    async def _pressure(self, projects: Sequence[ReaperProject]) -> str:
        """Which limit is passed; empty for none."""
        size = await self._size(projects)
        if size > self._budget.max_bytes:
            return f"{size >> 20} MiB kept, {self._budget.max_bytes >> 20} allowed"
        usage = await self._run(self._disk_usage)
        if usage.free < usage.total * self._budget.free_fraction:
            return f"{usage.free >> 20} MiB of the disk are free, less than {self._budget.free_fraction:.0%}"
        return ""

    async def _size(self, projects: Sequence[ReaperProject]) -> int:
        return await self._run(lambda: sum(project.vault.size_bytes() for project in projects))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


class _Tally:
    """What was forgotten so far, and where nothing may be."""

    def __init__(self, projects: Sequence[ReaperProject]) -> None:
        self._forgotten: dict[str, list[Verdict]] = {project.id: [] for project in projects}
        self._refused: dict[str, str] = {}

    def note(self, project: ReaperProject, verdicts: Sequence[Verdict]) -> None:
        self._forgotten[project.id] += verdicts

    def refuse(self, project: ReaperProject, why: str) -> None:
        self._refused[project.id] = why

    def refused(self, project: ReaperProject) -> bool:
        return project.id in self._refused

    def left(self, project: ReaperProject) -> list[RetentionItem]:
        gone = {verdict.id for verdict in self._forgotten[project.id]}
        return [item for item in project.items if item.id not in gone]

    def count(self) -> int:
        return sum(map(len, self._forgotten.values()))

    def reaped(self) -> tuple[Reaped, ...]:
        return tuple(
            Reaped(project=id_, forgotten=tuple(verdicts), refused=self._refused.get(id_, ""))
            for id_, verdicts in self._forgotten.items()
        )
