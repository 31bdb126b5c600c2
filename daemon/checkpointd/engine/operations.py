"""What clients can ask for, carried out."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from checkpointd.agents.registry import adapter_named
from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import CheckpointFilter, CheckpointRow, ProjectRow, SessionFilter, SessionRow, WorktreeRow
from checkpointd.clock import Clock
from checkpointd.config import Config
from checkpointd.engine import answers
from checkpointd.engine.bus import Bus
from checkpointd.engine.differences import compared
from checkpointd.engine.errors import Failed, NotFound, Refused
from checkpointd.engine.lookup import Lookup
from checkpointd.engine.overview import Overview
from checkpointd.engine.projects import Project, Projects
from checkpointd.engine.protection import Protection, path_of
from checkpointd.engine.recorder import Draft, Recorder
from checkpointd.engine.requests import (
    AgentProcess,
    Asker,
    Document,
    Guarded,
    ListRequest,
    Progress,
    RestoreRequest,
    SaveRequest,
    Scope,
)
from checkpointd.engine.restores import Restores
from checkpointd.engine.sessions import Sessions
from checkpointd.model import pack as packs
from checkpointd.model.checkpoint import Cause, Record
from checkpointd.model.paths import quote, unquote
from checkpointd.model.restore import PathRefused, selection
from checkpointd.summaries import documents
from checkpointd.vault.capture import CaptureCancelled, CaptureFailed
from checkpointd.vault.errors import StoreError
from checkpointd.vault.objects import MODE_TREE

log = logging.getLogger(__name__)
T = TypeVar("T")

_KEPT = timedelta(minutes=10)


class Forgetting(Struct, frozen=True):
    """A plan to forget that waits to be carried out."""

    answer: answers.ForgetPlan
    expires_at: datetime


class Operations:
    """Implements `api.operations.Operations`."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        lookup: Lookup,
        projects: Projects,
        protection: Protection,
        recorder: Recorder,
        restores: Restores,
        sessions: Sessions,
        overview: Overview,
        bus: Bus,
        clock: Clock,
        config: Callable[[], Config],
        pool: Executor,
        random_hex: Callable[[], str],
        agent_of: Callable[[int], AgentProcess | None],
        stop: Callable[[], None],
        rebuild: Callable[[Progress], Awaitable[answers.Rebuilt]],
    ) -> None:
        self._catalog = catalog
        self._lookup = lookup
        self._projects = projects
        self._protection = protection
        self._recorder = recorder
        self._restores = restores
        self._sessions = sessions
        self._overview = overview
        self._bus = bus
        self._clock = clock
        self._config = config
        self._pool = pool
        self._random_hex = random_hex
        self._agent_of = agent_of
        self._stop = stop
        self._rebuild = rebuild
        self._forgetting: dict[str, Forgetting] = {}

    # -- the daemon ---------------------------------------------------------------------------

    async def status(self) -> answers.Overview:
        return self._overview.whole()

    def alarm(self) -> str | None:
        return self._overview.alarm()

    async def shutdown(self, asker: Asker) -> None:
        self._stop()

    async def agent_of(self, pid: int) -> AgentProcess | None:
        return await self._run(lambda: self._agent_of(pid))

    def agents_may(self, action: Guarded) -> bool:
        return action in self._config().agents.may

    async def rebuild(self, progress: Progress) -> answers.Rebuilt:
        return await self._rebuild(progress)

    async def subscribe(self, scope: Scope) -> AsyncIterator[answers.Happening]:
        project = self._lookup.project(scope)
        subscription = self._bus.subscribe()

        async def happenings() -> AsyncIterator[answers.Happening]:
            try:
                async for happening in subscription:
                    if project is None or happening.project in (None, project.id):
                        yield happening
            finally:
                self._bus.drop(subscription)

        return happenings()

    # -- checkpoints --------------------------------------------------------------------------

    async def save(self, scope: Scope, request: SaveRequest, asker: Asker, progress: Progress) -> answers.Checkpoint:
        directory = Path(os.fsdecode(scope.cwd))
        if scope.project is not None:
            row = self._lookup.worktree(scope)
            if row is None:
                raise NotFound(f"There is no project {scope.project}.", hint="`ckpt projects` shows them.")
            directory = path_of(row.root)
        tree = await self._protection.for_client(directory)
        progress("capturing", 0)
        try:
            captured = await tree.now()
            project = await self._projects.open(tree.project_id)
            session = self._lookup.asked_from(asker)
            conversation = next(
                (c for c in self._sessions.conversations() if session and c.session == session.id), None
            )
            draft = Draft(
                trigger="manual",
                source="ckpt:save",
                cause=Cause(worktree=tree.worktree_id, trigger="manual", position=request.key),
                reason=request.reason or "Asked for by `ckpt save`",
                name=request.name,
                title=request.title or request.name or request.reason or "manual checkpoint",
                note={"pending": request.pending} if request.pending else {},
                tags=request.tags,
                session=conversation.reference() if conversation is not None else None,
                turn=conversation.state.turn if conversation is not None else None,
                digest=conversation.digest if conversation is not None else None,
                pin=request.pin,
            )
            record = await self._recorder.write(project, tree, captured, draft)
        except (CaptureFailed, CaptureCancelled, StoreError) as error:
            raise Failed(f"Nothing was saved: {error}", hint=getattr(error, "hint", None)) from error
        identity = record.id if record is not None else self._catalog.by_cause(draft.cause.key())
        return _checkpoint(self._known(identity or ""))

    def _known(self, identity: str) -> CheckpointRow:
        row = self._catalog.checkpoint(identity)
        if row is None:
            raise NotFound(f"There is no checkpoint {identity}.")
        return row

    async def checkpoints(self, scope: Scope, request: ListRequest) -> list[answers.Checkpoint]:
        await self._sessions.settle()
        project = self._lookup.project(scope)
        if project is None and not scope.all:
            return []
        session = self._lookup.session(request.session).id if request.session else None
        found = self._catalog.checkpoints(
            CheckpointFilter(
                project=project.id if project else None,
                session=session,
                trigger=request.trigger,
                agent=request.agent,
                since=request.since,
                until=request.until,
                limit=request.limit,
            )
        )
        return [_checkpoint(row) for row in found]

    async def show(self, scope: Scope, checkpoint: str) -> answers.Shown:
        await self._sessions.settle()
        row = self._lookup.checkpoint(scope, checkpoint)
        data = await self._document(row, "coverage.json")
        return answers.Shown(checkpoint=_checkpoint(row), coverage=documents.parse_coverage(data))

    async def document(self, scope: Scope, checkpoint: str, document: Document) -> str:
        row = self._lookup.checkpoint(scope, checkpoint)
        return (await self._document(row, document)).decode("utf-8", "replace")

    async def _document(self, row: CheckpointRow, name: str) -> bytes:
        project = await self._projects.open(row.record.project.id)
        try:
            return await self._run(lambda: project.vault.checkpoint(row.record.id).document(name))
        except (StoreError, KeyError) as error:
            raise Failed(
                f"{name} of {row.record.id} cannot be read: {error}", hint="`ckpt doctor` looks into it."
            ) from error

    async def contents(
        self, scope: Scope, checkpoint: str, path: bytes, *, offset: int, limit: int
    ) -> answers.Contents:
        row = self._lookup.checkpoint(scope, checkpoint)
        project = await self._projects.open(row.record.project.id)
        relative = self._relative(row, path)
        try:
            entry = await self._run(lambda: project.vault.resolve(row.record.tree, relative))
            if entry is None or entry.mode == MODE_TREE:
                what = "a folder" if entry is not None else "no file"
                raise NotFound(
                    f"{quote(relative)} is {what} in {row.record.id}.",
                    hint="`ckpt show ID --coverage` says what was left out.",
                )
            data = await self._run(lambda: project.vault.read_blob(entry.oid))
        except StoreError as error:
            raise Failed(f"{quote(relative)} of {row.record.id} cannot be read: {error}") from error
        return answers.Contents(data=data[offset : offset + limit], size=len(data), mode=entry.mode)

    def _relative(self, row: CheckpointRow, path: bytes) -> bytes:
        worktree = self._catalog.worktree(row.record.project.worktree)
        root = worktree.root if worktree is not None else row.record.project.root  # it may have moved since
        try:
            return selection(path, bytes(path_of(root)))
        except PathRefused as error:
            raise Refused(f"{error}.", hint=f"Name a path below {root}.") from error

    async def diff(
        self, scope: Scope, old: str, new: str | None, paths: tuple[bytes, ...], *, patch: bool
    ) -> list[answers.Difference]:
        row = self._lookup.checkpoint(scope, old)
        project = await self._projects.open(row.record.project.id)
        if new is not None:
            other = self._lookup.checkpoint(scope, new).record.tree
        else:
            worktree = self._catalog.worktree(row.record.project.worktree)
            other = await self._present(worktree)
        wanted = [self._relative(row, path) for path in paths]
        try:
            return await self._run(lambda: compared(project.vault, row.record.tree, other, wanted, patch=patch))
        except StoreError as error:
            raise Failed(f"The difference cannot be read: {error}") from error

    async def _present(self, worktree: WorktreeRow | None) -> str:
        if worktree is None:
            raise NotFound("That work tree is not known any more.", hint="Name a second checkpoint.")
        tree = self._protection.get(worktree.id) or await self._protection.for_client(path_of(worktree.root))
        try:
            return (await tree.now()).files
        except (CaptureFailed, CaptureCancelled, StoreError) as error:
            raise Failed(f"The files as they are could not be captured: {error}") from error

    async def last(self, scope: Scope) -> answers.LastTurn:
        await self._sessions.settle()
        project = self._lookup.project(scope)
        live = [
            c
            for c in self._sessions.conversations()
            if c.state.turn and (project is None or any(t.project_id == project.id for t in c.trees.values()))
        ]
        if not live:
            return await self._last_recorded(project)
        conversation = max(
            live, key=lambda c: c.digest.last_at or datetime.min.replace(tzinfo=self._clock.now().tzinfo)
        )
        digest, turn = conversation.digest, conversation.digest.turn
        tree = conversation.primary
        checkpoint = self._catalog.newest(tree.worktree_id, conversation.session) if tree is not None else None
        changes = (
            await self._turn_changes(tree.project_id, conversation.session, conversation.state.turn) if tree else []
        )
        return answers.LastTurn(
            agent=conversation.adapter.name,
            session=conversation.session,
            turn=conversation.state.turn,
            request=turn.request if turn else digest.last_request,
            answer=digest.last_answer,
            started_at=turn.at if turn else None,
            ended_at=digest.last_at if conversation.state.phase != "working" else None,
            changes=tuple(changes),
            results=tuple(digest.gates.values()),
            checkpoint=checkpoint.record if checkpoint else None,
        )

    async def _last_recorded(self, project: ProjectRow | None) -> answers.LastTurn:
        found = self._catalog.checkpoints(CheckpointFilter(project=project.id if project else None, limit=200))
        row = next((r for r in found if r.record.session is not None and r.record.turn), None)
        if row is None or row.record.session is None:
            raise NotFound("No session has had a turn here yet.", hint="`ckpt sessions --all` shows all sessions.")
        record = row.record
        session = row.record.session
        changes = await self._turn_changes(record.project.id, session.id, record.turn or 0)
        return answers.LastTurn(
            agent=session.agent,
            session=session.id,
            turn=record.turn or 0,
            request=record.title,
            ended_at=record.created_at,
            changes=tuple(changes),
            results=record.tests,
            checkpoint=record,
        )

    async def _turn_changes(self, project_id: str, session: str, turn: int) -> list[answers.Difference]:
        """What differs between the last checkpoint before the turn and the last one of it."""
        rows = [
            r for r in self._catalog.checkpoints(CheckpointFilter(project=project_id, session=session)) if r.record.turn
        ]
        of_turn = [r for r in rows if r.record.turn == turn]
        if not of_turn:
            return []
        last = of_turn[0].record
        before = next((r.record for r in rows if (r.record.turn or 0) < turn), of_turn[-1].record)
        project = await self._projects.open(project_id)
        try:
            return await self._run(lambda: compared(project.vault, before.tree, last.tree, [], patch=False))
        except StoreError:
            return []

    # -- restore ------------------------------------------------------------------------------

    async def plan_restore(
        self, scope: Scope, request: RestoreRequest, asker: Asker, progress: Progress
    ) -> answers.RestorePlan:
        await self._sessions.settle()
        progress("comparing", 0)
        return await self._restores.plan(scope, request)

    async def plan_undo(self, scope: Scope, asker: Asker, progress: Progress) -> answers.RestorePlan:
        return await self._restores.plan_undo(scope)

    async def apply_restore(self, plan: str, asker: Asker, progress: Progress) -> answers.Restored:
        return await self._restores.apply(plan, asker, progress)

    # -- keeping and forgetting ---------------------------------------------------------------

    async def pin(self, scope: Scope, checkpoint: str, asker: Asker) -> answers.Checkpoint:
        return await self._set_pinned(scope, checkpoint, asker, pinned=True)

    async def unpin(self, scope: Scope, checkpoint: str, asker: Asker) -> answers.Checkpoint:
        return await self._set_pinned(scope, checkpoint, asker, pinned=False)

    async def _set_pinned(self, scope: Scope, checkpoint: str, asker: Asker, *, pinned: bool) -> answers.Checkpoint:
        row = self._lookup.checkpoint(scope, checkpoint)
        project = await self._projects.open(row.record.project.id)
        change = project.vault.pin if pinned else project.vault.unpin
        try:
            await self._run(lambda: change(row.record.id))
        except StoreError as error:
            raise Failed(f"{row.record.id} could not be {'pinned' if pinned else 'unpinned'}: {error}") from error
        self._catalog.set_pinned(row.record.id, pinned=pinned)
        self._event(project, "pin" if pinned else "unpin", row.record, asker)
        return _checkpoint(self._known(row.record.id))

    async def plan_forget(self, scope: Scope, what: str, asker: Asker) -> answers.ForgetPlan:
        rows, project = self._to_forget(scope, what)
        now = self._clock.now()
        self._forgetting = {i: f for i, f in self._forgetting.items() if f.expires_at > now}
        keep = (
            ()
            if project
            else tuple(answers.Kept(id=r.record.id, why="pinned: `ckpt unpin` it first") for r in rows if r.pinned)
        )
        go = tuple(r.record for r in rows if project or not r.pinned)
        answer = answers.ForgetPlan(
            id=self._random_hex()[:16],
            checkpoints=go,
            keep=keep,
            project=project.name if project else None,
            size=sum(r.size for r in rows if project or not r.pinned),
        )
        self._forgetting[answer.id] = Forgetting(answer, now + _KEPT)
        return answer

    def _to_forget(self, scope: Scope, what: str) -> tuple[list[CheckpointRow], ProjectRow | None]:
        try:
            return [self._lookup.checkpoint(scope, what)], None
        except NotFound:
            pass
        if self._catalog.find_session(what):
            session = self._lookup.session(what)
            return self._catalog.checkpoints(CheckpointFilter(session=session.id)), None
        try:
            project = self._lookup.required_project(Scope(cwd=scope.cwd, project=what))
        except NotFound as error:
            raise NotFound(
                f"There is no checkpoint, session or project {what}.",
                hint="`ckpt list --all`, `ckpt sessions --all`, `ckpt projects`",
            ) from error
        return self._catalog.checkpoints(CheckpointFilter(project=project.id)), project

    async def apply_forget(self, plan: str, asker: Asker, progress: Progress) -> answers.Forgotten:
        kept = self._forgetting.pop(plan, None)
        if kept is None or kept.expires_at <= self._clock.now():
            raise NotFound("That plan expired, or was carried out.", hint="Ask for it again.")
        by_project: dict[str, list[Record]] = {}
        for record in kept.answer.checkpoints:
            by_project.setdefault(record.project.id, []).append(record)
        freed = 0
        for number, (project_id, records) in enumerate(by_project.items()):
            progress("forgetting", number, len(by_project))
            freed += await self._forget(project_id, records, asker, whole=kept.answer.project is not None)
        return answers.Forgotten(checkpoints=tuple(r.id for r in kept.answer.checkpoints), size=freed)

    async def _forget(self, project_id: str, records: list[Record], asker: Asker, *, whole: bool) -> int:
        project = await self._projects.open(project_id)
        before = project.vault.size_bytes()
        if whole:
            for worktree in self._catalog.worktrees(project_id):
                await self._protection.stop(worktree.id)
            await self._projects.remove(project_id)
            return before
        ids = [record.id for record in records]
        async with project.lock:
            try:
                await self._run(lambda: project.vault.forget(ids))
            except StoreError as error:
                raise Failed(
                    f"Not everything was forgotten: {error}", hint="`ckpt list` shows what is there."
                ) from error
            finally:
                held = set(await self._run(project.vault.checkpoint_ids))
                for record in records:
                    if record.id not in held:
                        self._catalog.remove_checkpoint(record.id)
                        self._event(project, "forget", record, asker)
        return max(0, before - project.vault.size_bytes())

    def _event(self, project: Project, event: str, record: Record, asker: Asker) -> None:
        line = {
            "ts": self._clock.now().isoformat(),
            "event": event,
            "name": record.name,
            "id": record.id,
            "asked_by": asker.session,
        }
        try:
            project.events.append(line, sync=True)
        except OSError as error:
            log.error("event not written id=%s error=%s", record.id, error.strerror)

    # -- sessions and projects ----------------------------------------------------------------

    async def sessions(self, scope: Scope, *, limit: int) -> list[answers.Session]:
        project = self._lookup.project(scope)
        if project is None and not scope.all:
            return []
        self._sessions.save()
        found = self._catalog.sessions(SessionFilter(project=project.id if project else None, limit=limit))
        return await self._run_here(found)

    async def _run_here(self, found: list[SessionRow]) -> list[answers.Session]:
        there = await self._run(lambda: [path_of(row.log).exists() for row in found])
        return [self._overview.session(row, log_exists=exists) for row, exists in zip(found, there, strict=True)]

    async def projects(self) -> list[answers.Project]:
        return self._overview.projects()

    async def pause(self, scope: Scope, asker: Asker) -> list[answers.Project]:
        return await self._set_paused(scope, asker, paused=True)

    async def resume(self, scope: Scope, asker: Asker) -> list[answers.Project]:
        return await self._set_paused(scope, asker, paused=False)

    async def _set_paused(self, scope: Scope, asker: Asker, *, paused: bool) -> list[answers.Project]:
        projects = self._catalog.projects() if scope.all else [self._lookup.required_project(scope)]
        if scope.all:
            self._catalog.set_value("paused", "1" if paused else None)
        await self._sessions.settle()
        for project in projects:
            self._catalog.set_paused(project.id, paused=paused)
            for worktree in self._catalog.worktrees(project.id):
                if paused:
                    await self._protection.stop(worktree.id)
                elif await self._run(lambda worktree=worktree: path_of(worktree.root).is_dir()):  # type: ignore[misc]
                    await self._protection.enter(path_of(worktree.root))
        self._sessions.trees_changed()
        wanted = {project.id for project in projects}
        return [project for project in self._overview.projects() if project.id in wanted]

    async def continuation(
        self, scope: Scope, checkpoint: str | None, *, budget: int, asker: Asker
    ) -> answers.Continuation:
        row = self._lookup.checkpoint(scope, checkpoint) if checkpoint is not None else self._to_continue(scope)
        record = row.record
        project = await self._projects.open(record.project.id)
        conversation = next(
            (c for c in self._sessions.conversations() if record.session and c.session == record.session.id), None
        )
        drift = await self._drift(project, record)
        native: tuple[str, ...] = ()
        if record.session is not None and record.session.log and await self._run(path_of(record.session.log).exists):
            native = tuple(adapter_named(record.session.agent).resume(record.session.id))
        pack = packs.build(
            record,
            conversation.digest if conversation is not None else None,
            packs.Drift(
                unchanged=tuple(map(quote, drift.unchanged)),
                modified=tuple(map(quote, drift.modified)),
                missing=tuple(map(quote, drift.missing)),
            ),
            budget,
            native=native,
        )
        return answers.Continuation(checkpoint=record.id, pack=pack, drift=drift, native_resume=native or None)

    def _to_continue(self, scope: Scope) -> CheckpointRow:
        """The newest session end, manual or failure checkpoint of the project."""
        project = self._lookup.required_project(scope)
        found = self._catalog.checkpoints(CheckpointFilter(project=project.id, limit=500))
        wanted = ("session-end", "manual", "handoff", "repeated-failure")
        of_work = [r for r in found if r.record.session is not None or r.record.note]
        # One by hand that knows of no session and has no note says nothing of the work.
        row = next(
            (r for r in (*of_work, *found) if {r.record.trigger, *r.record.also} & set(wanted)),
            found[0] if found else None,
        )
        if row is None:
            raise NotFound("There is no checkpoint here to go on from.", hint="`ckpt save` makes one.")
        return row

    async def _drift(self, project: Project, record: Record) -> answers.Drift:
        worktree = self._catalog.worktree(record.project.worktree)
        try:
            present = await self._present(worktree)
            differences = await self._run(lambda: project.vault.diff(record.tree, present))
        except (NotFound, Failed, Refused, StoreError):
            return answers.Drift()
        changed = {d.path: d for d in differences}
        key = [unquote(path) for path in (*(c.path for c in record.files_changed), *record.session_files)]
        unique = tuple(dict.fromkeys(key))
        return answers.Drift(
            unchanged=tuple(path for path in unique if path not in changed),
            modified=tuple(path for path in unique if path in changed and changed[path].new is not None),
            missing=tuple(path for path in unique if path in changed and changed[path].new is None),
        )

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _checkpoint(row: CheckpointRow) -> answers.Checkpoint:
    return answers.Checkpoint(record=row.record, statuses=row.statuses or ("ACTIVE",), pinned=row.pinned)
