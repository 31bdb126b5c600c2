"""Following sessions: logs that grow become events, events become requests, requests become records."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from checkpointd.agents.base import Adapter
from checkpointd.agents.registry import adapter_of, discover, open_log
from checkpointd.agents.tail import QUIET, Batch, Cursor
from checkpointd.catalog import rows
from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import SessionFilter
from checkpointd.clock import Clock
from checkpointd.config import SessionConfig
from checkpointd.engine.answers import Happening
from checkpointd.engine.bus import Bus
from checkpointd.engine.conversation import Conversation, Reader, restored
from checkpointd.engine.errors import EngineError
from checkpointd.engine.history import History, counted, cursor_row
from checkpointd.engine.projects import Projects
from checkpointd.engine.protection import Protection, path_of
from checkpointd.engine.recorder import Draft, Recorder
from checkpointd.engine.tree import LiveTree
from checkpointd.model.capture import Captured
from checkpointd.model.checkpoint import Cause, Taken, Trigger
from checkpointd.model.events import ToolResult
from checkpointd.model.paths import quote
from checkpointd.model.session import (
    BootChanged,
    Burst,
    Entered,
    HeadMoved,
    Input,
    Policy,
    ProcessBound,
    ProcessGone,
    Seen,
    Tick,
)
from checkpointd.model.triggers import WINDOW, Coalesced, TriggerRequest, coalesce
from checkpointd.vault import reflog
from checkpointd.vault.capture import CaptureCancelled, CaptureFailed
from checkpointd.vault.errors import StoreError

log = logging.getLogger(__name__)
T = TypeVar("T")

_SAVE_AFTER = 1.0
_UNPLACED = 20
_FORGET_AFTER = timedelta(minutes=30)  # an ended session leaves memory
_RECENT = timedelta(minutes=15)  # a log written so lately may be of a session that runs
_PATIENCE = 2.0  # seconds that a client waits for records that are being made
_UNSEEN = timedelta(seconds=5)
_GRACE = 15.0  # and a daemon that stops


class Files(Struct, frozen=True):
    """The state that a request gets, and how it was taken."""

    captured: Captured
    taken: Taken | None = None


class Pending(Struct):
    """Requests of one session that wait for others of the same moment."""

    requests: list[TriggerRequest]
    files: dict[str, asyncio.Task[Files]]
    timer: asyncio.TimerHandle | None = None


class Sessions:
    """Everything runs on the event loop; old logs are read in a worker of their own."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        projects: Projects,
        protection: Protection,
        recorder: Recorder,
        clock: Clock,
        spans: Callable[[], SessionConfig],
        env: Mapping[str, str],
        pool: Executor,
        history: History,
        bus: Bus,
        disabled: Callable[[], Iterable[str]],
        boot: str,
    ) -> None:
        self._catalog = catalog
        self._projects = projects
        self._protection = protection
        self._recorder = recorder
        self._clock = clock
        self._spans = spans
        self._env = env
        self._pool = pool
        self._history = history
        self._bus = bus
        self._disabled = disabled
        self._boot = boot
        self._open: dict[tuple[str, str], Conversation] = {}
        self._by_log: dict[Path, Conversation] = {}
        self._following: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._again: set[Path] = set()
        self._pending: dict[tuple[str, str], Pending] = {}
        self._flushing: dict[asyncio.Task[None], tuple[str, str]] = {}  # requests that are becoming records
        self._tasks: set[asyncio.Task[None]] = set()
        self._old_sizes: dict[Path, int] = {}  # logs that were there at start, by the size they had
        self._save_timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self.unreadable = history.unreadable
        self.on_work: Callable[[Conversation], None] = lambda _: None  # a log grew: a process may be bound
        self.on_resumed: Callable[[Conversation], None] = lambda _: None  # is the process still there?

    # -- start and stop -----------------------------------------------------------------------

    async def start(self) -> None:
        """Finds what is there. Sessions that were live go on; old logs are read later, newest first."""
        logs = await self._run(lambda: discover(self._env))
        cursors = {path_of(cursor.path): cursor for cursor in self._catalog.cursors()}
        self._old_sizes = {found.path: found.size for found in logs}
        now = self._clock.now()
        live = {row.log for row in self._catalog.sessions(SessionFilter(states=("live", "idle")))}
        history = []
        for found in logs:
            cursor = cursors.get(found.path)
            recent = now.timestamp() - found.modified < _RECENT.total_seconds()
            if recent or quote(bytes(found.path)) in live:
                self.on_files({found.path})
            elif cursor is None or cursor.offset != found.size:
                history.append(found)
        self._spawn(self._protect_recent())
        self._spawn(self._history.read(history, self._by_log.__contains__))

    async def stop(self) -> None:
        """Finishes the records that were asked for, and stores where reading goes on."""
        self._stopping = True
        if self._save_timer is not None:
            self._save_timer.cancel()
        for task in list(self._following.values()):
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)
        await self.settle(_GRACE)
        for task in (*self._tasks, *self._flushing):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._flushing, return_exceptions=True)
        self.save()
        self._catalog.set_value("boot", self._boot)

    def _policy(self) -> Policy:
        spans = self._spans()
        return Policy(idle=spans.idle, idle_open_turn=spans.idle_open_turn)

    def conversations(self) -> list[Conversation]:
        """The sessions that are followed now."""
        return list(self._open.values())

    def live_in(self, tree: LiveTree) -> list[Conversation]:
        """The live sessions that work in a tree."""
        return [c for c in self._open.values() if c.live and tree.worktree_id in c.trees]

    async def _protect_recent(self) -> None:
        """Work trees with a session in the last days stay captured."""
        for row in self._catalog.worktrees():
            sessions = self._catalog.sessions(SessionFilter(worktree=row.id, limit=1))
            kept = self._spans().keep_captured
            if not sessions or sessions[0].last_at is None or self._clock.now() - sessions[0].last_at > kept:
                continue
            root = path_of(row.root)
            if await self._run(root.is_dir):
                await self._enter_quietly(root)

    async def _enter_quietly(self, directory: Path) -> LiveTree | None:
        try:
            return await self._protection.enter(directory)
        except (StoreError, EngineError, OSError) as error:
            log.error("project cannot be protected error=%s", type(error).__name__)
            self._protection.refusals[str(directory)] = str(error)
            return None

    # -- logs ---------------------------------------------------------------------------------

    def on_files(self, paths: Iterable[Path]) -> None:
        """Logs changed, or may have."""
        for path in paths:
            adapter = adapter_of(path)
            if adapter is None or adapter.name in self._disabled() or self._stopping:
                continue
            conversation = self._by_log.get(path) or self._opened(path, adapter)
            self._follow(conversation, path)

    def _opened(self, path: Path, adapter: Adapter) -> Conversation:
        session = adapter.session_of(path) or path.stem
        conversation = self._open.get((adapter.name, session))
        if conversation is None:
            stored = restored(self._catalog.value(f"session:{adapter.name}:{session}"))
            row = self._catalog.session(adapter.name, session)
            main = path_of(row.log) if row is not None else path
            conversation = Conversation(adapter, session, main, stored)
            self._open[conversation.key] = conversation
        row_cursor = self._catalog.cursor(quote(bytes(path)))
        known = row_cursor is not None and self._catalog.value(f"session:{adapter.name}:{session}") is not None
        # Without the session's state its past is read again, as history: it makes no records.
        cursor = _cursor(row_cursor) if known and row_cursor is not None else None
        live_from = max(self._old_sizes.get(path, 0), row_cursor.offset if row_cursor is not None else 0)
        conversation.readers[path] = Reader(log=open_log(path, adapter, cursor), live_from=live_from)
        self._by_log[path] = conversation
        return conversation

    def _follow(self, conversation: Conversation, path: Path) -> None:
        self._again.add(path)
        task = self._following.get(conversation.key)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._read(conversation))
            self._following[conversation.key] = task
            task.add_done_callback(_reported)

    async def _read(self, conversation: Conversation) -> None:
        """Reads what the session's logs have grown by, until there is nothing more."""
        while due := [path for path in conversation.readers if path in self._again]:
            for path in due:
                self._again.discard(path)
                await self._read_log(conversation, path, conversation.readers[path])
        await self._entered(conversation)
        if conversation.went_on:
            conversation.went_on = False
            self._go_on(conversation)
        self.on_work(conversation)
        self._save_later()

    def _go_on(self, conversation: Conversation) -> None:
        """A session that a daemon before this one followed: what happened meanwhile makes at most one record."""
        now = self._clock.now()
        self._feed(conversation, Seen(now=now, replay=False))
        if self._catalog.value("boot") not in (None, self._boot):
            self._feed(conversation, BootChanged(now=now))
        elif conversation.live:
            for tree in conversation.trees.values():
                request = TriggerRequest(
                    trigger="scheduled",
                    reason="Files changed while the daemon was away",
                    position=f"away:{now.isoformat()}",
                    at=now,
                    turn=conversation.state.turn,
                    worktree=tree.worktree_id,
                )
                self._ask(conversation, (request,))
        self.on_resumed(conversation)

    async def _read_log(self, conversation: Conversation, path: Path, reader: Reader) -> None:
        while True:
            batch = reader.log.read(now=self._clock.monotonic())
            await self._take(conversation, reader, batch)
            self._count(conversation.adapter.name, reader)
            if batch.status == "unreadable":
                self.unreadable[str(path)] = batch.error
            else:
                self.unreadable.pop(str(path), None)
            if batch.waiting and not batch.more:
                asyncio.get_running_loop().call_later(QUIET + 0.1, self.on_files, {path})
            if not batch.more:
                return
            await asyncio.sleep(0)  # others are served between two slices

    async def _take(self, conversation: Conversation, reader: Reader, batch: Batch) -> None:
        if batch.restarted:
            reader.live_from = 0
        now, policy = self._clock.now(), self._policy()
        for event in batch.events:
            history = event.position.offset < reader.live_from
            requests = conversation.observe(event, history=history, now=now, policy=policy)
            if not history and not conversation.trees:
                await self._entered(conversation)
            self._ask(conversation, requests)
            if isinstance(event, ToolResult) and event.outcome == "denied":
                self._retract(conversation, event.call_id)

    def _retract(self, conversation: Conversation, call_id: str) -> None:
        """A command that was refused destroyed nothing: what it asked for and is not recorded yet is let go."""
        pending = self._pending.get(conversation.key)
        if pending is not None:
            pending.requests = [request for request in pending.requests if request.call_id != call_id]

    async def _entered(self, conversation: Conversation) -> None:
        """Puts the directories that the session works in under protection."""
        if not conversation.state.live and conversation.state.phase == "quiet" and not self._may_run(conversation):
            return
        for name in conversation.directories():
            tree = await self._enter_quietly(Path(name))
            if tree is None or tree.worktree_id in conversation.trees:
                continue
            conversation.trees[tree.worktree_id] = tree
            given = Entered(worktree=tree.worktree_id, root=str(tree.root), now=self._clock.now())
            unplaced, conversation.unplaced = conversation.unplaced, []
            self._ask(conversation, [*unplaced, *conversation.feed(given, self._policy())])
            self._bus.publish(
                Happening(
                    at=self._clock.now(),
                    kind="session",
                    text=f"{conversation.adapter.title} works in {tree.root}",
                    project=tree.project_id,
                    session=conversation.session,
                )
            )

    def _may_run(self, conversation: Conversation) -> bool:
        last = conversation.digest.last_at
        return last is not None and self._clock.now() - last < _RECENT

    def _count(self, agent: str, reader: Reader) -> None:
        totals = counted(reader.log.counts)
        new = {name: n - reader.counted.get(name, 0) for name, n in totals.items() if n > reader.counted.get(name, 0)}
        if new:
            reader.counted = totals
            self._catalog.count(agent, new)

    # -- requests -----------------------------------------------------------------------------

    def _ask(self, conversation: Conversation, requests: Iterable[TriggerRequest]) -> None:
        """Takes the files of each request at once; records follow when others of the same moment had time to come."""
        for request in requests:
            for one in self._for_each_tree(conversation, request):
                tree = conversation.trees.get(one.worktree) or conversation.primary
                if tree is None:
                    if not conversation.digest.cwd:
                        # The log has not said yet where the session works: its first lines often do not.
                        conversation.unplaced = [*conversation.unplaced, one][-_UNPLACED:]
                    continue
                pending = self._pending.get(conversation.key)
                if pending is None:
                    pending = self._pending[conversation.key] = Pending(requests=[], files={})
                    pending.timer = asyncio.get_running_loop().call_later(
                        WINDOW.total_seconds(), self._begin_flush, conversation.key
                    )
                # Named in full: requests for the session's own tree come with its id and without.
                one = msgspec.structs.replace(one, worktree=tree.worktree_id)
                pending.requests.append(one)
                if not one.amends and one.key() not in pending.files:
                    task = asyncio.get_running_loop().create_task(self._files(tree, one))
                    task.add_done_callback(_looked_at)  # its request may be let go before anybody asks for the files
                    pending.files[one.key()] = task
                log.debug("trigger session=%s trigger=%s", conversation.session, one.trigger)

    def _for_each_tree(self, conversation: Conversation, request: TriggerRequest) -> list[TriggerRequest]:
        """A turn and an end concern every work tree that the session wrote in, everything else the one it names."""
        if request.worktree or request.trigger not in ("turn", "session-end"):
            return [request]
        others = list(conversation.trees)[1:]
        return [request, *(msgspec.structs.replace(request, worktree=worktree) for worktree in others)]

    async def _files(self, tree: LiveTree, request: TriggerRequest) -> Files:
        if request.state == "now":
            return Files(await tree.now())
        at = request.before or request.at or self._clock.now()
        if request.call_id and tree.quiet_since(at):
            # Nothing has changed since the call was logged: what is there now is from before it, to the last byte.
            captured = await tree.now()
            if tree.quiet_since(at):
                return Files(captured, "before")
        if (held := await tree.before(at)) is not None:
            return Files(held, "rolling")
        return Files(await tree.now(), "after")

    def _begin_flush(self, key: tuple[str, str]) -> None:
        """Makes records of a session's requests, in a task of its own: whoever waits for it may leave."""
        pending = self._pending.pop(key, None)
        conversation = self._open.get(key)
        if pending is None or conversation is None:
            return
        if pending.timer is not None:
            pending.timer.cancel()
        earlier = [task for task, other in self._flushing.items() if other == key]
        task = asyncio.get_running_loop().create_task(self._flush(conversation, pending, earlier))
        self._flushing[task] = key
        task.add_done_callback(self._flushed)
        task.add_done_callback(_reported)

    async def _flush(self, conversation: Conversation, pending: Pending, earlier: Iterable[asyncio.Task[None]]) -> None:
        await asyncio.gather(*earlier, return_exceptions=True)
        for made in coalesce(pending.requests):
            await self._record(conversation, made, pending)

    def _flushed(self, task: asyncio.Task[None]) -> None:
        del self._flushing[task]
        if not self._stopping:
            self.save()  # at once: a daemon that is killed now must know that these records were made

    async def _record(self, conversation: Conversation, made: Coalesced, pending: Pending) -> None:
        request = made.request
        tree = conversation.trees.get(request.worktree) or conversation.primary
        task = pending.files.get(request.key())
        if tree is None or task is None:
            return
        try:
            files = await task
            project = await self._projects.open(tree.project_id)
            record = await self._recorder.write(
                project, tree, files.captured, self._draft(conversation, tree, made, files)
            )
        except (CaptureFailed, CaptureCancelled, StoreError) as error:
            log.error(
                "checkpoint failed session=%s trigger=%s error=%s",
                conversation.session,
                request.trigger,
                type(error).__name__,
            )
            return
        if record is not None:
            conversation.last_records[tree.worktree_id] = record.created_at
        conversation.changed = True
        self._save_later()

    def _draft(self, conversation: Conversation, tree: LiveTree, made: Coalesced, files: Files) -> Draft:
        request, digest = made.request, conversation.digest
        title = request.reason
        if request.trigger in ("turn", "session-end") and digest.last_request:
            title = f"turn {request.turn or conversation.state.turn}: {digest.last_request}"
        elif request.trigger == "baseline":
            title = f"before: {digest.first_request}" if digest.first_request else request.reason
        return Draft(
            trigger=request.trigger,
            also=made.also,
            cause=Cause(
                worktree=tree.worktree_id,
                agent=conversation.adapter.name,
                session=conversation.session,
                trigger=request.trigger,
                position=request.position,
            ),
            reason=request.reason,
            taken=files.taken,
            session=conversation.reference(),
            turn=request.turn or conversation.state.turn or None,
            title=title.partition("\n")[0],
            digest=msgspec.json.decode(msgspec.json.encode(digest), type=type(digest)),  # it goes on changing
            native=tuple(conversation.adapter.resume(conversation.session)),
            lost=request.paths if files.taken == "after" else (),
        )

    async def settle(self, seconds: float = _PATIENCE) -> None:
        """Waits until every request so far is a record, so that what a client sees next includes them.

        Not for longer than `seconds`: the first capture of a large project takes its time.
        """
        for key in list(self._pending):
            self._begin_flush(key)
        if self._flushing:
            await asyncio.wait(list(self._flushing), timeout=seconds)

    # -- what others observe ------------------------------------------------------------------

    def on_burst(self, tree: LiveTree, at: datetime, deleted: int, examples: tuple[bytes, ...]) -> None:
        """Many files went at once in a tree."""
        if tree.is_own(at):
            return  # a restore deletes what its pre-restore checkpoint holds
        if not self.live_in(tree):
            shown = ", ".join(map(quote, examples[:3]))
            self._spawn(self._unattended(tree, "pre-destructive", at, f"{deleted} paths deleted at once: {shown}"))
            return
        given = Burst(at=at, deleted=deleted, paths=tuple(map(quote, examples)), worktree=tree.worktree_id)
        for conversation in self.live_in(tree):
            self._ask(conversation, conversation.feed(given, self._policy()))

    def on_repository(self, tree: LiveTree) -> None:
        """HEAD or a ref of a tree's repository may have moved."""
        self._spawn(self._head(tree))

    async def _head(self, tree: LiveTree) -> None:
        now = self._clock.now()
        seen = tree.last_move
        moves = await self._run(lambda: reflog.moves(tree.root, seen))
        if moves:
            tree.last_move = moves[-1].line
        if seen is None:
            moves = [move for move in moves if move.at >= now - _UNSEEN]  # it moved before anybody looked
        jump = next((move for move in moves if move.sideways), None)
        if jump is None:
            return
        at = max(jump.at, tree.unrest_since(now))
        if not self.live_in(tree):
            await self._unattended(tree, "head-moved", at, "HEAD moved backwards or sideways while no session was live")
            return
        given = HeadMoved(at=at, sideways=True, worktree=tree.worktree_id)
        for conversation in self.live_in(tree):
            self._ask(conversation, conversation.feed(given, self._policy()))

    async def _unattended(self, tree: LiveTree, trigger: Trigger, at: datetime, reason: str) -> None:
        """Files went while no session that we read was live: a person, or an agent whose log we cannot read."""
        try:
            files = await tree.before(at)
            newest = self._catalog.newest(tree.worktree_id)
            if files is None or (newest is not None and newest.record.tree == files.files):
                return  # nothing is held that a checkpoint does not hold already
            project = await self._projects.open(tree.project_id)
            cause = Cause(worktree=tree.worktree_id, trigger=trigger, position=at.isoformat())
            await self._recorder.write(
                project, tree, files, Draft(trigger=trigger, cause=cause, reason=reason, taken="rolling")
            )
        except (CaptureFailed, CaptureCancelled, StoreError) as error:
            log.error("checkpoint failed trigger=%s error=%s", trigger, type(error).__name__)

    def on_overflow(self) -> None:
        """Log events were lost: every log that grew is found by its size."""
        self._spawn(self._find_grown())

    async def _find_grown(self) -> None:
        logs = await self._run(lambda: discover(self._env))
        sizes = {path_of(cursor.path): cursor.offset for cursor in self._catalog.cursors()}
        self.on_files(found.path for found in logs if sizes.get(found.path) != found.size)

    async def read_all_again(self) -> None:
        """Old logs are read anew, as after a lost catalog; those that are followed go on."""
        await self._history.read(await self._run(lambda: discover(self._env)), self._by_log.__contains__)

    def trees_changed(self) -> None:
        """Protection was turned on or off: sessions enter their work trees anew."""
        kept = {tree.worktree_id for tree in self._protection.trees()}
        for conversation in self._open.values():
            conversation.trees = {i: tree for i, tree in conversation.trees.items() if i in kept}
            conversation.asked_directories.clear()
            self._spawn(self._entered(conversation))

    def on_gone(self, tree: LiveTree) -> None:
        """A tree's root is no longer there: its checkpoints stay, its watch ends."""
        log.warning("root gone worktree=%s", tree.worktree_id)
        for conversation in self._open.values():
            if conversation.trees.get(tree.worktree_id) is tree:
                conversation.asked_directories.clear()
        self._spawn(self._left(tree))

    async def _left(self, tree: LiveTree) -> None:
        await self.settle()
        await self._protection.stop(tree.worktree_id)
        for conversation in self._open.values():
            if conversation.trees.get(tree.worktree_id) is tree:
                del conversation.trees[tree.worktree_id]

    def on_process_bound(self, conversation: Conversation, pid: int, started: float) -> None:
        conversation.process = (pid, started)
        self._feed(conversation, ProcessBound(pid=pid, started=started))

    async def on_process_gone(self, conversation: Conversation, pid: int | None) -> None:
        """What held the session ended; its log is read to the end first."""
        self.on_files(list(conversation.readers))
        task = self._following.get(conversation.key)
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)
        conversation.process = None
        self._feed(conversation, ProcessGone(at=self._clock.now(), pid=pid))
        self._save_later()

    def _feed(self, conversation: Conversation, given: Input) -> None:
        self._ask(conversation, conversation.feed(given, self._policy()))

    def tick(self) -> None:
        """Once a second: silence, the schedule, and what may leave memory."""
        now = self._clock.now()
        for conversation in list(self._open.values()):
            if conversation.live:
                self._feed(conversation, Tick(now=now))
                self._schedule(conversation, now)
            elif self._is_over(conversation, now):
                self._close(conversation)

    def _schedule(self, conversation: Conversation, now: datetime) -> None:
        spans = self._spans()
        for tree in conversation.trees.values():
            newest = self._catalog.newest(tree.worktree_id, conversation.session)
            last = conversation.last_records.get(tree.worktree_id) or (newest.record.created_at if newest else None)
            if last is None or tree.last_capture is None or tree.last_capture <= last or now - last < spans.scheduled:
                continue
            if newest is not None and tree.state is not None and newest.record.tree == tree.state.files:
                conversation.last_records[tree.worktree_id] = now
                continue
            request = TriggerRequest(
                trigger="scheduled",
                reason=f"Changes since the last checkpoint, {_seconds(now - last)} ago",
                position=now.isoformat(),
                at=now,
                turn=conversation.state.turn,
                worktree=tree.worktree_id,
            )
            conversation.last_records[tree.worktree_id] = now
            self._ask(conversation, (request,))

    def _is_over(self, conversation: Conversation, now: datetime) -> bool:
        last = conversation.state.last_at or conversation.digest.last_at
        quiet = last is None or now - last > _FORGET_AFTER
        return quiet and conversation.key not in self._pending and conversation.process is None

    def _close(self, conversation: Conversation) -> None:
        self._store(conversation)
        self._catalog.set_value(f"session:{conversation.adapter.name}:{conversation.session}", None)
        del self._open[conversation.key]
        self._following.pop(conversation.key, None)
        for path in conversation.readers:
            self._by_log.pop(path, None)

    # -- what is remembered -------------------------------------------------------------------

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_reported)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _save_later(self) -> None:
        if self._save_timer is None and not self._stopping:
            self._save_timer = asyncio.get_running_loop().call_later(_SAVE_AFTER, self.save)

    def save(self) -> None:
        """Stores sessions and how far their logs were read."""
        if self._save_timer is not None:
            self._save_timer.cancel()
            self._save_timer = None
        with self._catalog.batch():
            for conversation in self._open.values():
                if conversation.changed and self._is_settled(conversation):
                    conversation.changed = False
                    self._store(conversation)

    def _is_settled(self, conversation: Conversation) -> bool:
        """Whether what was read is acted on: else a crash would leave requests behind that nobody makes again."""
        task = self._following.get(conversation.key)
        busy = conversation.key in self._pending or conversation.key in self._flushing.values()
        return not busy and (task is None or task.done())

    def _store(self, conversation: Conversation) -> None:
        agent, session = conversation.key
        self._catalog.put_session(conversation.row())
        self._catalog.set_value(f"session:{agent}:{session}", conversation.stored().decode())
        self._catalog.put_cursors(
            cursor_row(path, agent, session, reader.log.cursor()) for path, reader in conversation.readers.items()
        )


def _cursor(row: rows.Cursor) -> Cursor:
    return Cursor(
        device=row.device,
        inode=row.inode,
        offset=row.offset,
        tail_hash=row.tail_hash,
        generation=row.generation,
        state=row.state,
    )


def _looked_at(task: asyncio.Task[Files]) -> None:
    if not task.cancelled():
        task.exception()


def _reported(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task failed", exc_info=error)


def _seconds(span: timedelta) -> str:
    return f"{int(span.total_seconds())} s"
