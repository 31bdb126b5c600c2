"""Restores of one work tree: planned, held by a pre-restore checkpoint, journalled, applied, verified, undone."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct, structs

from checkpointd.clock import Clock
from checkpointd.engine import journal as journals
from checkpointd.engine.application import Application
from checkpointd.engine.errors import Conflict, Failed, NotFound, Refused
from checkpointd.engine.journal import Entered, Intent, Journal
from checkpointd.engine.planning import Planner
from checkpointd.model.capture import Captured
from checkpointd.model.restore import Keep, Plan, Step, selection
from checkpointd.vault.errors import StoreError
from checkpointd.vault.materialise import Held
from checkpointd.vault.store import Vault

log = logging.getLogger(__name__)
T = TypeVar("T")

_WORTH_TWO_THREADS = 200
_SLICE = 128  # steps that one thread takes at a time


class RestoreJob(Struct, frozen=True, kw_only=True):
    """A plan with its name, and the checkpoint it goes to."""

    id: str
    target: str
    plan: Plan


class Outcome(Struct, frozen=True, kw_only=True):
    """What a restore did. `pre_restore` is the checkpoint that holds what was there, None where none was made.
    `keep`: paths that left the plan; `failed`: paths that are not as the target has them, each with its reason."""

    plan: str
    pre_restore: str | None = None
    restored: tuple[bytes, ...] = ()
    deleted: tuple[bytes, ...] = ()
    keep: tuple[Keep, ...] = ()
    failed: tuple[Keep, ...] = ()


class CheckpointBefore(Protocol):
    """Makes the pre-restore checkpoint. It must read every one of `paths` anew, whatever size, secret or ignore policy
    says, and be durable when it returns; raises where it could not be made."""

    async def __call__(self, paths: Collection[bytes], *, plan: str, target: str) -> tuple[str, Captured]: ...


class Restorer:
    """All restores of one work tree, one at a time: the caller sees to that. Blocking work runs in `pool`, in two
    threads where there is much of it. A call that is cancelled half way leaves an interrupted restore behind."""

    def __init__(
        self,
        *,
        vault: Vault,
        root: Path,
        worktree: str,
        journal_folder: Path,
        checkpoint_before: CheckpointBefore,
        clock: Clock,
        random_hex: Callable[[], str],
        pool: Executor,
    ) -> None:
        self._vault = vault
        self._root = root
        self._planner = Planner(vault, root)
        self._worktree = worktree
        self._folder = journal_folder
        self._checkpoint_before = checkpoint_before
        self._clock = clock
        self._random_hex = random_hex
        self._pool = pool

    async def plan(
        self,
        target_id: str,
        target: Captured,
        present: Captured,
        *,
        paths: Sequence[bytes] = (),
        head_moved: bool = False,
    ) -> RestoreJob:
        """What a restore to `target` would do; `paths` as a user gives them. Raises PathRefused, MissingObject."""
        selected = self._selected(paths)
        plan = await self._run(lambda: self._planner.plan(target, present, selected, head_moved=head_moved))
        return RestoreJob(id=self._new_id(), target=target_id, plan=plan)

    async def plan_undo(self, plan_id: str) -> RestoreJob:
        """What taking back a restore would do: its paths, as they were before it. What somebody changed since is kept.
        Raises NotFound where there is no such finished restore."""
        entered = await self._entered(plan_id)
        if entered is None or not entered.done:
            raise NotFound(f"There is no finished restore {plan_id}.")
        plan = await self._run(lambda: self._planner.remaining(inverted(entered.intent)))
        return RestoreJob(id=self._new_id(), target=entered.intent.pre_restore, plan=plan)

    async def plan_abort(self, plan_id: str) -> RestoreJob:
        """What `abort` of an interrupted restore would do. Raises NotFound where there is none."""
        entered = await self._entered(plan_id)
        if entered is None or entered.done:
            raise NotFound(f"There is no interrupted restore {plan_id}.")
        plan = await self._run(lambda: self._planner.remaining(inverted(entered.intent)))
        return RestoreJob(id=self._new_id(), target=entered.intent.pre_restore, plan=plan)

    async def apply(self, job: RestoreJob, *, allow_mass_delete: bool = False) -> Outcome:
        """Carries out a plan. Raises Refused, Failed or MissingObject with nothing touched; past that point every path
        that could not be done is named in the outcome."""
        if job.plan.mass_delete and not allow_mass_delete:
            raise Refused(
                f"This would delete {len(job.plan.delete)} paths.", hint="`--allow-mass-delete` if that is meant."
            )
        if not job.plan.paths:
            return Outcome(plan=job.id, keep=job.plan.keep)
        if await self._entered(job.id) is not None:
            raise Conflict(f"The plan {job.id} was carried out already.", hint="Make a new one.")
        await self._run(lambda: self._planner.check_blobs(job.plan))
        snapshot = await self._run(lambda: self._planner.look(job.plan, self._clock.now()))
        pre_restore, captured = await self._hold(job)
        plan, held = await self._run(lambda: self._planner.settle(job.plan, snapshot, captured))
        if not plan.paths:
            return Outcome(plan=job.id, pre_restore=pre_restore, keep=plan.keep)
        intent = await self._run(lambda: self._intent(job, plan, pre_restore))
        journal = await self._run(lambda: self._begin(intent))
        log.info("restore begins plan=%s target=%s paths=%d", job.id, job.target, len(intent.steps))
        return await self._carry_out(intent, plan, held, journal)

    async def preview(self, target: Captured, *, paths: Sequence[bytes] = ()) -> Plan:
        """What `to_directory` would write. Raises PathRefused or MissingObject."""
        selected = self._selected(paths)
        plan = await self._run(lambda: self._planner.everything(target, selected))
        await self._run(lambda: self._planner.check_blobs(plan))
        return plan

    async def to_directory(self, target: Captured, directory: Path, *, paths: Sequence[bytes] = ()) -> Outcome:
        """Writes a state, or some paths of it, into a new or empty directory. Raises Refused, Failed, PathRefused or
        MissingObject with nothing written. Nothing is overwritten, so there is nothing to hold or to undo."""
        plan = await self.preview(target, paths=paths)
        await self._run(lambda: _make_empty(directory))
        held = {step.path: Held(entry=None) for step in plan.restore}
        name = self._new_id()
        application = Application(directory, self._vault, plan, held, name, lambda paths: None)
        await self._run_steps(application, plan)
        return _outcome(name, None, plan, application)

    async def unfinished(self) -> list[Entered]:
        """Restores of this work tree that were interrupted, the oldest first."""
        return [entered for entered in await self._journals() if not entered.done]

    async def last(self) -> str | None:
        """The newest restore that `plan_undo` can take back."""
        finished = [entered for entered in await self._journals() if entered.done and not entered.aborted]
        return finished[-1].intent.plan if finished else None

    async def resume(self, plan_id: str) -> Outcome:
        """Finishes an interrupted restore. A path that is neither as before it nor as after it is kept and named."""
        return await self._go_on(plan_id, aborted=False)

    async def abort(self, plan_id: str) -> Outcome:
        """Reverts an interrupted restore. A path that is neither as before it nor as after it is kept and named."""
        return await self._go_on(plan_id, aborted=True)

    async def discard_journals(self, before: datetime) -> None:
        """Removes the journals of restores that were finished and begun before a time: for when their pre-restore
        checkpoints are gone too."""
        old = [entered.intent.plan for entered in await self._journals() if entered.done and entered.intent.at < before]
        await self._run(lambda: journals.discard(self._folder, old))

    async def _go_on(self, plan_id: str, *, aborted: bool) -> Outcome:
        entered = await self._entered(plan_id)
        if entered is None or entered.done:
            raise NotFound(f"There is no interrupted restore {plan_id}.")
        intent = inverted(entered.intent) if aborted else entered.intent
        await self._run(lambda: self._planner.sweep(intent))
        plan = await self._run(lambda: self._planner.remaining(intent))
        await self._run(lambda: self._planner.check_blobs(plan))
        held = {step.path: Held(entry=step.present) for step in (*plan.restore, *plan.delete)}
        journal = await self._run(lambda: Journal.reopen(self._folder, plan_id))
        log.info("restore goes on plan=%s aborted=%s paths=%d", plan_id, aborted, len(plan.paths))
        return await self._carry_out(intent, plan, held, journal, aborted=aborted)

    async def _hold(self, job: RestoreJob) -> tuple[str, Captured]:
        try:
            return await self._checkpoint_before(job.plan.paths, plan=job.id, target=job.target)
        except (StoreError, OSError) as error:
            raise Failed(f"Nothing was restored: the pre-restore checkpoint could not be made: {error}") from error

    async def _carry_out(
        self, intent: Intent, plan: Plan, held: Mapping[bytes, Held], journal: Journal, *, aborted: bool = False
    ) -> Outcome:
        application = Application(self._root, self._vault, plan, held, intent.plan, journal.applied)
        try:
            await self._run_steps(application, plan)
            await self._run(lambda: _finish(journal, application.failed, aborted=aborted))
        finally:
            journal.close()
        log.info("restore done plan=%s failed=%d aborted=%s", intent.plan, len(application.failed), aborted)
        return _outcome(intent.plan, intent.pre_restore, plan, application)

    async def _run_steps(self, application: Application, plan: Plan) -> None:
        await self._run(application.begin)
        await self._in_slices(application.write, plan.restore)
        await self._in_slices(application.verify, (*plan.restore, *plan.delete))
        await self._run(application.end)

    async def _in_slices(self, work: Callable[[Sequence[Step]], None], steps: Sequence[Step]) -> None:
        slices = iter([steps[start : start + _SLICE] for start in range(0, len(steps), _SLICE)])

        def take_turns() -> None:
            for part in slices:  # one iterator of a list for both threads: each slice is given out once
                work(part)

        threads = 2 if len(steps) >= _WORTH_TWO_THREADS else 1
        await asyncio.gather(*(self._run(take_turns) for _ in range(threads)))

    async def _entered(self, plan_id: str) -> Entered | None:
        entered = await self._run(lambda: journals.read(self._folder, plan_id))
        return entered if entered is not None and entered.intent.worktree == self._worktree else None

    async def _journals(self) -> list[Entered]:
        found = await self._run(lambda: journals.read_all(self._folder))
        return [entered for entered in found if entered.intent.worktree == self._worktree]

    def _intent(self, job: RestoreJob, plan: Plan, pre_restore: str) -> Intent:
        return self._planner.intent(
            plan,
            name=job.id,
            worktree=self._worktree,
            target=job.target,
            pre_restore=pre_restore,
            now=self._clock.now(),
        )

    def _begin(self, intent: Intent) -> Journal:
        try:
            return Journal.begin(self._folder, intent)
        except OSError as error:
            raise Failed(f"Nothing was restored: the journal could not be written: {error}") from error

    def _selected(self, paths: Sequence[bytes]) -> list[bytes] | None:
        return [selection(path, os.fsencode(self._root)) for path in paths] or None

    def _new_id(self) -> str:
        return f"restore-{self._clock.now():%Y%m%d-%H%M%S}-{self._random_hex()[:8]}"

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def inverted(intent: Intent) -> Intent:
    """The intent that takes this one back."""
    return structs.replace(
        intent,
        steps=tuple(
            structs.replace(step, target=step.present, present=step.target, why=_taken_back(step))
            for step in intent.steps
        ),
        made=intent.removed,
        removed=intent.made,
    )


def _taken_back(step: Step) -> str:
    """Why a path is in the plan that takes a restore back."""
    if step.present is None:
        return "was not there before"
    return "missing" if step.target is None else step.why


def _finish(journal: Journal, failed: Mapping[bytes, str], *, aborted: bool) -> None:
    try:
        journal.finish(failed, aborted=aborted)
    except OSError as error:
        # The files are done. A journal that could not be finished only means that they are looked at once more.
        log.warning("restore journal not finished error=%s", error)


def _outcome(name: str, pre_restore: str | None, plan: Plan, application: Application) -> Outcome:
    failed = application.failed
    return Outcome(
        plan=name,
        pre_restore=pre_restore,
        restored=tuple(step.path for step in plan.restore if step.path not in failed),
        deleted=tuple(step.path for step in plan.delete if step.path not in failed),
        keep=plan.keep,
        failed=application.not_done(),
    )


def _make_empty(directory: Path) -> None:
    """Makes a directory that nothing is in."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        names = os.listdir(directory)
    except OSError as error:
        raise Refused(f"{directory} cannot be used: {error.strerror}") from error
    if names:
        raise Refused(f"{directory} is not empty.", hint="Name a new or an empty directory.")
