"""The catalog made anew from what is primary: vaults and logs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import ProjectRow
from checkpointd.engine import answers
from checkpointd.engine.projects import Projects, read_records
from checkpointd.engine.requests import Progress
from checkpointd.model.checkpoint import Record
from checkpointd.vault.errors import StoreError
from checkpointd.vault.store import Vault

log = logging.getLogger(__name__)
T = TypeVar("T")


class Found(Struct):
    """What one project's folder holds."""

    project: ProjectRow | None
    records: list[tuple[Record, str]]  # with the commit
    pins: set[str]
    problems: list[answers.Problem]


class Rebuilder:
    """Reads every vault and every log again; what the catalog knew besides stays. Idempotent."""

    def __init__(
        self,
        *,
        folder: Path,
        catalog: Catalog,
        projects: Projects,
        read_logs: Callable[[], Awaitable[None]],
        pool: Executor,
    ) -> None:
        self._folder = folder
        self._catalog = catalog
        self._projects = projects
        self._read_logs = read_logs
        self._pool = pool

    async def run(self, progress: Progress) -> answers.Rebuilt:
        """Adds what is missing, and removes checkpoints that no vault holds."""
        folders = await self._run(lambda: sorted(p for p in self._folder.iterdir() if p.is_dir()))
        problems: list[answers.Problem] = []
        checkpoints = 0
        for number, folder in enumerate(folders):
            progress("reading vaults", number, len(folders))
            vault = next((p.vault for p in self._projects.opened() if p.id == folder.name), None)
            found = await self._run(lambda folder=folder, vault=vault: _read(folder, vault))  # type: ignore[misc]
            problems += found.problems
            checkpoints += self._add(folder.name, found)
        progress("reading logs", 0)
        await self._read_logs()
        return answers.Rebuilt(
            projects=len(self._catalog.projects()), checkpoints=checkpoints, sessions=self._catalog.session_count(),
            problems=tuple(problems),
        )  # fmt: skip

    def _add(self, project_id: str, found: Found) -> int:
        with self._catalog.batch():
            if self._catalog.project(project_id) is None and (project := _project(project_id, found)) is not None:
                self._catalog.put_project(project)
            self._projects.adopt(project_id, found.records)
            for record, _ in found.records:
                self._catalog.set_pinned(record.id, pinned=record.id in found.pins)
            if not found.problems:
                for gone in self._catalog.checkpoint_ids(project_id) - {record.id for record, _ in found.records}:
                    self._catalog.remove_checkpoint(gone)
        return len(found.records)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _project(project_id: str, found: Found) -> ProjectRow | None:
    if found.project is not None or not found.records:
        return found.project
    record = found.records[0][0]
    return ProjectRow(
        id=project_id, name=record.project.name, kind=record.project.kind, created_at=record.created_at,
    )  # fmt: skip


def _read(folder: Path, opened: Vault | None) -> Found:
    """Everything that one project's folder says. Blocks."""
    found = Found(project=None, records=[], pins=set(), problems=[])
    try:
        found.project = msgspec.json.decode((folder / "project.json").read_bytes(), type=ProjectRow)
    except (OSError, msgspec.MsgspecError):
        found.project = None  # the records name it, too
    try:
        vault = opened or Vault.open(folder / "vault.git")
    except (StoreError, OSError) as error:
        found.problems.append(answers.Problem(what=f"The vault in {folder} cannot be opened: {error}"))
        return found
    try:
        found.pins = set(vault.pins())
        found.records, unreadable = read_records(vault, vault.checkpoint_ids())
        found.problems += [
            answers.Problem(what=f"{identity} cannot be read: {why}", hint="`ckpt forget` removes it.")
            for identity, why in unreadable.items()
        ]
    finally:
        if opened is None:
            vault.close()
    return found
