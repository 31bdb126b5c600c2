"""Keeping vaults small: retention, roll-ups, and rolling states that grew old."""

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import CheckpointFilter, CheckpointRow
from checkpointd.clock import Clock
from checkpointd.config import Config
from checkpointd.engine.bus import Bus
from checkpointd.engine.journal import discard, read_all
from checkpointd.engine.projects import Project, Projects
from checkpointd.engine.protection import Protection
from checkpointd.engine.reaper import Budget, DiskUsage, Reaper, ReaperProject
from checkpointd.model.retention import RetentionItem, RetentionPolicy, Verdict
from checkpointd.vault.errors import StoreError

log = logging.getLogger(__name__)
T = TypeVar("T")

_ROLL_UP_AT = 50  # checkpoint packs


class Retainer:
    """The bodies of the periodic jobs on vaults. Runs on the event loop, its slow parts in `pool`."""

    def __init__(
        self, *, catalog: Catalog, projects: Projects, protection: Protection, clock: Clock, pool: Executor,
        config: Callable[[], Config], data: Path, bus: Bus,
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._projects = projects
        self._protection = protection
        self._clock = clock
        self._pool = pool
        self._config = config
        self._data = data
        self._bus = bus
        self._pressed = ""  # the limit that is passed although nothing more may go

    async def thin(self) -> None:
        """Thins the rolling states of all trees, and looks whether there is room again where there was none."""
        if self._pressed:
            await self.run()
        self._stop_or_go_on()
        for tree in self._protection.trees():
            await tree.thin()

    async def run(self) -> None:
        """Forgets what no rule keeps, and rolls small packs up."""
        projects = [project for row in self._catalog.projects() if (project := await self._opened(row.id)) is not None]
        retention = self._config().retention
        reaper = Reaper(
            policy=RetentionPolicy(everything=retention.everything),
            budget=Budget(max_bytes=retention.max_bytes, free_fraction=retention.free_fraction),
            clock=self._clock,
            disk_usage=self._disk_usage,
            refusal=self._refusal,
            forgotten=self._forgotten,
            pool=self._pool,
        )
        report = await reaper.run([await self._items(project) for project in projects])
        self._pressed = report.pressed if report.capture_must_stop else ""
        self._stop_or_go_on()
        for project in projects:
            await self._discard_journals(project)
        for project in projects:
            if await self._run(project.vault.pack_count) >= _ROLL_UP_AT:
                await self._run(lambda project=project: project.vault.roll_up())  # type: ignore[misc]

    def _stop_or_go_on(self) -> None:
        """Capture stops where no room can be made: nothing pinned or manual goes, and a full disk helps nobody."""
        why = f"There is no room for checkpoints: {self._pressed}." if self._pressed else None
        for tree in self._protection.trees():
            tree.no_room = why

    async def _discard_journals(self, project: Project) -> None:
        """A journal serves to undo a restore, for as long as the checkpoint from before it is there."""
        kept = self._catalog.checkpoint_ids(project.id)
        journals = await self._run(lambda: read_all(project.journal))
        old = [e.intent.plan for e in journals if e.done and e.intent.pre_restore not in kept]
        await self._run(lambda: discard(project.journal, old))

    async def _opened(self, project_id: str) -> Project | None:
        try:
            return await self._projects.open(project_id)
        except StoreError as error:
            log.error("vault cannot be opened project=%s error=%s", project_id, type(error).__name__)
            return None

    async def _items(self, project: Project) -> ReaperProject:
        rows = self._catalog.checkpoints(CheckpointFilter(project=project.id))
        journals = await self._run(lambda: read_all(project.journal))
        in_use = {i for e in journals if not e.done for i in (e.intent.target, e.intent.pre_restore)}
        return ReaperProject(id=project.id, vault=project.vault, items=tuple(_item(row, in_use) for row in rows))

    def _disk_usage(self) -> DiskUsage:
        usage = shutil.disk_usage(self._data)
        return DiskUsage(total=usage.total, free=usage.free)

    def _refusal(self, project_id: str, remaining: Collection[str]) -> str:
        project = next((p for p in self._projects.opened() if p.id == project_id), None)
        if project is None or project.vault.problems:
            return "the vault has problems: `ckpt status` names them"
        return ""

    async def _forgotten(self, project_id: str, verdicts: Sequence[Verdict]) -> None:
        project = await self._projects.open(project_id)
        for verdict in verdicts:
            self._catalog.remove_checkpoint(verdict.id)
            line = {"ts": self._clock.now().isoformat(), "event": "prune", "id": verdict.id, "reason": verdict.reason}
            await self._run(lambda line=line: project.events.append(line, sync=False))  # type: ignore[misc]

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _item(row: CheckpointRow, in_use: Collection[str]) -> RetentionItem:
    record = row.record
    return RetentionItem(
        id=record.id,
        worktree=record.project.worktree,
        session=record.session.id if record.session is not None else None,
        turn=record.turn,
        trigger=record.trigger,
        also=record.also,
        created_at=record.created_at,
        pinned=row.pinned or record.id in in_use,
        damaged="QUARANTINED" in row.statuses,
        seq=record.seq,
    )
