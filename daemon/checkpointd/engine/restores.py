"""Restores that clients ask for: plans kept for a while, carried out once, taken back."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import CheckpointRow, WorktreeRow
from checkpointd.clock import Clock
from checkpointd.engine import answers
from checkpointd.engine.bus import Bus
from checkpointd.engine.errors import Conflict, Failed, NotFound, Refused
from checkpointd.engine.lookup import Lookup
from checkpointd.engine.projects import NoRoot, Project, Projects
from checkpointd.engine.protection import Protection, path_of
from checkpointd.engine.recorder import Draft, Recorder
from checkpointd.engine.requests import Asker, Progress, RestoreRequest, Scope
from checkpointd.engine.restorer import Outcome, RestoreJob, Restorer
from checkpointd.engine.tree import LiveTree
from checkpointd.model.capture import Captured, Coverage
from checkpointd.model.checkpoint import Cause
from checkpointd.model.restore import Keep, PathRefused, Step
from checkpointd.summaries import documents
from checkpointd.vault import repository
from checkpointd.vault.capture import CaptureCancelled, CaptureFailed
from checkpointd.vault.errors import MissingObject, StoreError
from checkpointd.vault.trees import EMPTY_TREE

log = logging.getLogger(__name__)
T = TypeVar("T")

_KEPT = timedelta(minutes=10)
_PLANS = 200


class Kept(Struct, frozen=True):
    """A plan that waits to be carried out."""

    answer: answers.RestorePlan
    job: RestoreJob | None  # None: into a directory
    restorer: Restorer
    target: Captured
    request: RestoreRequest | None
    tree: LiveTree | None
    project: Project
    undoes: str | None = None
    aborts: str | None = None  # the interrupted restore that is taken back


class Restores:
    """Plans and carries out restores. Used from the event loop."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        lookup: Lookup,
        projects: Projects,
        protection: Protection,
        recorder: Recorder,
        clock: Clock,
        pool: Executor,
        bus: Bus,
        random_hex: Callable[[], str],
    ) -> None:
        self._catalog = catalog
        self._lookup = lookup
        self._projects = projects
        self._protection = protection
        self._recorder = recorder
        self._clock = clock
        self._pool = pool
        self._bus = bus
        self._random_hex = random_hex
        self._plans: dict[str, Kept] = {}

    # -- planning -----------------------------------------------------------------------------

    async def plan(self, scope: Scope, request: RestoreRequest) -> answers.RestorePlan:
        """What a restore would do; kept for ten minutes."""
        row = self._lookup.checkpoint(scope, request.checkpoint)
        project = await self._projects.open(row.record.project.id)
        target = await self._captured(project, row)
        if request.to is not None:
            return await self._plan_to(project, row, target, request)
        worktree = self._catalog.worktree(row.record.project.worktree)
        if worktree is None:
            raise NotFound(
                f"The work tree of {row.record.id} is not known any more.", hint="`--to DIR` restores it elsewhere."
            )
        tree = await self._tree(worktree)
        restorer = self._restorer(project, tree.root, worktree.id, tree)
        present = await self._present(tree)
        head_moved = await self._head_moved(tree, row)
        try:
            job = await restorer.plan(row.record.id, target, present, paths=request.paths, head_moved=head_moved)
        except PathRefused as error:
            raise Refused(f"{error}.", hint=f"Name a path below {tree.root}.") from error
        except StoreError as error:
            raise Failed(f"{row.record.id} is damaged: {error}", hint="`ckpt list` for one before it.") from error
        return self._keep(Kept(self._answer(job, row, tree.root), job, restorer, target, request, tree, project))

    async def _plan_to(
        self, project: Project, row: CheckpointRow, target: Captured, request: RestoreRequest
    ) -> answers.RestorePlan:
        directory = path_of_bytes(request.to or b"")
        restorer = self._restorer(project, path_of(row.record.project.root), row.record.project.worktree, None)
        if await self._run(lambda: directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
            raise Refused(f"{directory} is not empty.", hint="Give a directory that is new or empty.")
        try:
            plan = await restorer.preview(target, paths=request.paths)
        except PathRefused as error:
            raise Refused(f"{error}.", hint=f"Name a path below {row.record.project.root}.") from error
        except StoreError as error:
            raise Failed(f"{row.record.id} is damaged: {error}", hint="`ckpt list` for one before it.") from error
        answer = answers.RestorePlan(
            id=self._random_hex()[:16], target=row.record, root=bytes(directory),
            restore=tuple(_planned(step) for step in plan.restore), expires_at=self._clock.now() + _KEPT,
        )  # fmt: skip
        return self._keep(Kept(answer, None, restorer, target, request, None, project))

    async def plan_undo(self, scope: Scope) -> answers.RestorePlan:
        """What taking back the last restore here would do."""
        worktree = self._lookup.worktree(scope)
        if worktree is None:
            raise NotFound("There is no project here.", hint="`ckpt projects` shows those that are known.")
        tree = await self._tree(worktree)
        project = await self._projects.open(worktree.project)
        restorer = self._restorer(project, tree.root, worktree.id, tree)
        interrupted = await restorer.unfinished()
        last = interrupted[-1].intent.plan if interrupted else await restorer.last()
        if last is None:
            raise NotFound("There is no restore to take back here.", hint="`ckpt restore` makes the first one.")
        job = await (restorer.plan_abort(last) if interrupted else restorer.plan_undo(last))
        row = self._catalog.checkpoint(job.target)
        if row is None:
            raise NotFound(f"The checkpoint before the last restore ({job.target}) is gone.")
        target = await self._captured(project, row)
        kept = Kept(self._answer(job, row, tree.root), job, restorer, target, None, tree, project, undoes=last,
                    aborts=last if interrupted else None)  # fmt: skip
        return self._keep(kept)

    def _answer(self, job: RestoreJob, row: CheckpointRow, root: Path) -> answers.RestorePlan:
        plan = job.plan
        return answers.RestorePlan(
            id=job.id,
            target=row.record,
            root=bytes(root),
            restore=tuple(_planned(step) for step in plan.restore),
            delete=tuple(_planned(step) for step in plan.delete),
            keep=tuple(answers.PlannedPath(path=keep.path, why=keep.why) for keep in plan.keep),
            unchanged=plan.unchanged,
            head_moved=plan.head_moved,
            mass_delete=plan.mass_delete,
            expires_at=self._clock.now() + _KEPT,
        )

    def _keep(self, kept: Kept) -> answers.RestorePlan:
        now = self._clock.now()
        self._plans = {i: k for i, k in self._plans.items() if k.answer.expires_at is None or k.answer.expires_at > now}
        while len(self._plans) >= _PLANS:
            del self._plans[next(iter(self._plans))]
        self._plans[kept.answer.id] = kept
        return kept.answer

    async def _tree(self, worktree: WorktreeRow) -> LiveTree:
        tree = self._protection.get(worktree.id)
        if tree is not None:
            return tree
        root = path_of(worktree.root)
        if not await self._run(root.is_dir):
            raise _gone(root)
        found = await self._projects.root(root)
        if isinstance(found, NoRoot) or found.path != root:
            raise Conflict(f"{root} is no project of its own any more.", hint="`--to DIR` restores elsewhere.")
        return await self._protection.protect(worktree, found)

    async def _present(self, tree: LiveTree) -> Captured:
        try:
            return await tree.now()
        except (CaptureFailed, CaptureCancelled, StoreError) as error:
            if isinstance(error, CaptureFailed) and await self._run(lambda: _is_empty(tree.root)):
                return Captured(files=EMPTY_TREE.hex(), modes=b"", coverage=Coverage(), taken_at=self._clock.now())
            if not await self._run(tree.root.is_dir):
                raise _gone(tree.root) from error
            raise Failed(
                f"The files as they are could not be captured: {error}", hint="Nothing was touched."
            ) from error

    async def _captured(self, project: Project, row: CheckpointRow) -> Captured:
        def read() -> Captured:
            held = project.vault.checkpoint(row.record.id)
            return Captured(
                files=held.files, modes=held.document("modes.json"), taken_at=row.record.created_at,
                coverage=documents.parse_coverage(held.document("coverage.json")),
            )  # fmt: skip

        try:
            return await self._run(read)
        except (StoreError, KeyError, documents.BadDocument) as error:
            raise Failed(f"{row.record.id} cannot be read: {error}", hint="`ckpt list` for one before it.") from error

    async def _head_moved(self, tree: LiveTree, row: CheckpointRow) -> bool:
        recorded = row.record.git
        if recorded is None:
            return False
        found = await self._run(lambda: repository.find(tree.root))
        return found is not None and (await self._run(found.state)).head != recorded.head

    # -- carrying out -------------------------------------------------------------------------

    async def apply(self, plan: str, asker: Asker, progress: Progress) -> answers.Restored:
        """Carries out exactly that plan."""
        kept = self._plans.pop(plan, None)
        if kept is None or (kept.answer.expires_at is not None and kept.answer.expires_at <= self._clock.now()):
            raise NotFound("That plan expired, or was carried out.", hint="Ask for the restore again.")
        progress("restoring", 0, len(kept.answer.restore) + len(kept.answer.delete))
        try:
            outcome = await self._carry_out(kept)
        except MissingObject as error:
            raise Failed(f"{kept.answer.target.id} is damaged: {error}", hint="Nothing was touched.") from error
        self._tell(kept, outcome, asker)
        return answers.Restored(
            restored=len(outcome.restored),
            deleted=len(outcome.deleted),
            undo=outcome.pre_restore,
            failed=tuple(_kept(keep) for keep in (*outcome.failed, *_dropped(kept, outcome))),
        )

    async def _carry_out(self, kept: Kept) -> Outcome:
        if kept.job is None or kept.tree is None:
            paths = kept.request.paths if kept.request is not None else ()
            return await kept.restorer.to_directory(kept.target, path_of_bytes(kept.answer.root), paths=paths)
        async with kept.tree.restoring():
            allowed = kept.request is not None and kept.request.allow_mass_delete
            if kept.aborts is not None:
                return await kept.restorer.abort(kept.aborts)
            return await kept.restorer.apply(kept.job, allow_mass_delete=allowed)

    def _tell(self, kept: Kept, outcome: Outcome, asker: Asker) -> None:
        now = self._clock.now()
        target = kept.answer.target
        event = {
            "ts": now.isoformat(), "event": "undo" if kept.undoes else "restore", "name": target.name, "id": target.id,
            "plan": outcome.plan, "files_changed": len(outcome.restored) + len(outcome.deleted),
            "pre_restore": outcome.pre_restore, "asked_by": asker.session,
        }  # fmt: skip
        try:
            kept.project.events.append(event, sync=True)
        except OSError as error:
            log.error("event not written plan=%s error=%s", outcome.plan, error.strerror)
        self._bus.publish(
            answers.Happening(
                at=now,
                kind="restore",
                text=f"restored {target.name}{_elsewhere(kept)}",
                project=target.project.id,
                checkpoint=target,
            )
        )

    def _restorer(self, project: Project, root: Path, worktree: str, tree: LiveTree | None) -> Restorer:
        async def before(paths: Collection[bytes], *, plan: str, target: str) -> tuple[str, Captured]:
            if tree is None:  # into a directory: nothing is overwritten there
                raise StoreError("There is no work tree to hold.")
            return await self._checkpoint_before(project, tree, paths, plan=plan, target=target)

        return Restorer(
            vault=project.vault, root=root, worktree=worktree, journal_folder=project.journal, checkpoint_before=before,
            clock=self._clock, random_hex=self._random_hex, pool=self._pool,
        )  # fmt: skip

    async def _checkpoint_before(
        self, project: Project, tree: LiveTree, paths: Collection[bytes], *, plan: str, target: str
    ) -> tuple[str, Captured]:
        try:
            captured = await tree.now(force=paths, empty=True)
        except (CaptureFailed, CaptureCancelled) as error:
            raise StoreError(str(error)) from error
        draft = Draft(
            trigger="pre-restore",
            cause=Cause(worktree=tree.worktree_id, trigger="pre-restore", position=plan),
            reason=f"The files before the restore of {target}",
            restore={"plan": plan, "target": target},
        )
        record = await self._recorder.write(project, tree, captured, draft)
        if record is None:
            raise StoreError("A restore of this plan was begun before.")
        return record.id, captured

    async def unfinished(self, worktree: WorktreeRow, project: Project) -> list[str]:
        """The plans of restores that were interrupted."""
        restorer = self._restorer(project, path_of(worktree.root), worktree.id, None)
        return [entered.intent.plan for entered in await restorer.unfinished()]

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _gone(root: Path) -> Conflict:
    return Conflict(f"{root} is not there any more.", hint="`ckpt restore ID --to DIR` writes the files into DIR.")


def path_of_bytes(path: bytes) -> Path:
    """A raw path."""
    return Path(os.fsdecode(path))


def _elsewhere(kept: Kept) -> str:
    return "" if kept.job is not None else f" into {os.fsdecode(kept.answer.root)}"


def _is_empty(folder: Path) -> bool:
    """Whether nothing at all is in a folder, so that there is nothing that a restore could harm."""
    try:
        return not any(folder.iterdir())
    except OSError:
        return False


def _planned(step: Step) -> answers.PlannedPath:
    return answers.PlannedPath(path=step.path, why=step.why)


def _kept(keep: Keep) -> answers.PlannedPath:
    return answers.PlannedPath(path=keep.path, why=keep.why)


def _dropped(kept: Kept, outcome: Outcome) -> list[Keep]:
    """Paths that left the plan on the way: the person who saw the plan is told."""
    known = {keep.path for keep in kept.answer.keep}
    return [keep for keep in outcome.keep if keep.path not in known]
