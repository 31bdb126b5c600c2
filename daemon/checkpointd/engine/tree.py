"""One work tree under protection: watched, captured while it changes, ready for any trigger."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from checkpointd.clock import Clock
from checkpointd.config import CaptureConfig
from checkpointd.model.capture import Captured
from checkpointd.vault.capture import CaptureCancelled, CaptureFailed, WorkTree
from checkpointd.vault.errors import StoreError
from checkpointd.vault.limits import DEFAULT_FOLDERS
from checkpointd.vault.rolling import Rolling
from checkpointd.vault.store import Vault
from checkpointd.watch.debounce import BurstDetector, Debounce
from checkpointd.watch.handover import Changes
from checkpointd.watch.project import ProjectWatch

log = logging.getLogger(__name__)
T = TypeVar("T")

_DRAIN = 1.0  # seconds for the cookie to come back before a scan takes its place
_RETRY = (1.0, 5.0, 30.0, 120.0)
_PAUSE = timedelta(milliseconds=120)  # shorter than files rest before a capture: none of those is passed over
_LOOKED_UP = 200  # deleted paths that are looked up in the newest state
_TOLD = 20
_POLL = 5.0  # between scans of a tree that cannot be watched


class Listener(Protocol):
    """Is told what happens in a work tree that is more than changed files."""

    def on_burst(self, tree: "LiveTree", at: datetime, deleted: int, examples: tuple[bytes, ...]) -> None: ...

    def on_repository(self, tree: "LiveTree") -> None: ...

    def on_gone(self, tree: "LiveTree") -> None: ...


class Failure(Struct, frozen=True, kw_only=True):
    """Why the last capture failed, and since when captures fail."""

    what: str
    hint: str
    since: datetime


class LiveTree:
    """Owns the capture state of one work tree. Every method runs on the event loop; slow work in `pool`.

    `lock` is shared by all work trees of a vault: two of them never write it at once.
    """

    def __init__(
        self,
        *,
        project_id: str,
        worktree_id: str,
        root: Path,
        vault: Vault,
        limits: CaptureConfig,
        clock: Clock,
        pool: Executor,
        lock: asyncio.Lock,
        listener: Listener,
    ) -> None:
        self.project_id = project_id
        self.worktree_id = worktree_id
        self.root = root
        self.vault = vault
        self.failure: Failure | None = None
        self.last_capture: datetime | None = None
        self.missed = 0
        self.no_room: str | None = None  # why nothing more may be written to the vault
        self.last_move: bytes | None = None  # the line of the reflog that was seen last
        self._restoring = asyncio.Lock()  # one restore at a time
        self._restored: tuple[datetime, datetime | None] | None = None  # when the last restore of ours began and ended
        self._clock = clock
        self._pool = pool
        self._lock = lock
        self._listener = listener
        self._stopping = False
        self._capture = WorkTree(vault, root, worktree_id, limits=limits, clock=clock, cancel=lambda: self._stopping)
        self._rolling = Rolling(vault, worktree_id, clock)
        self._debounce = Debounce(rest=limits.rest.total_seconds(), longest=limits.longest_wait.total_seconds())
        self._bursts = BurstDetector()
        self._changed: deque[datetime] = deque(maxlen=4096)  # when changes were seen
        self._dirty_since: datetime | None = None
        self._watch: ProjectWatch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._scan_due = False
        self._polling = ""
        self._failures = 0
        # Whoever asks before the first capture is done waits for it: nobody may begin one of his own beside it.
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # -- life ---------------------------------------------------------------------------------

    def resume(self, captured: Captured) -> None:
        """Goes on from a state that the vault holds. Called before the start."""
        self._capture.resume(captured)

    async def start(self, watch: ProjectWatch, git_dirs: Sequence[Path]) -> Captured:
        """Watches, then captures whole; what changes meanwhile is dirty and comes next.

        Raises CaptureFailed, CaptureCancelled or StoreError.
        """
        self._watch = watch
        try:
            await self._run(lambda: watch.start(git_dirs))
            captured = await self._whole()
        except BaseException as error:
            self._not_ready(error)
            raise
        self._schedule()
        return captured

    def _not_ready(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # read here: nobody else may be waiting

    async def stop(self) -> None:
        """Stops watching; a capture that runs is cancelled, what it wrote stays."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            await self._run(self._watch.stop)
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _whole(self) -> Captured:
        """The first capture, or after a restart a scan against what the vault already holds."""
        async with self._lock:
            whole = self._capture.first if self._capture.state is None else self._capture.scan
            captured = await self._captured(whole)
            self._took(captured)
        return captured

    # -- what the watcher says ----------------------------------------------------------------

    def on_changes(self, changes: Changes) -> None:
        """Paths changed: they are captured as soon as they rest."""
        at = self._wall(changes.at)
        self._changed.append(at)
        if self._dirty_since is None:
            self._dirty_since = at
        self._debounce.add(changes.paths, self._clock.monotonic())
        files, folders = self._captured_among(changes.deleted), self._captured_among(changes.deleted_folders)
        burst = self._bursts.add(changes.at, len(files), len(folders))
        if burst is not None:
            start = self._wall(burst.at)
            self._protect_state_before(start)
            examples = tuple(sorted(folders | files))[:20]
            self._listener.on_burst(self, start, burst.deletions + burst.folders, examples)
        self._schedule()

    def skips(self, folder: bytes) -> bool:
        """Whether a new folder is not worth watching: of a name that is skipped by default, and not captured.

        Called on the watching thread.
        """
        state = self._capture.state
        if state is None or folder.rpartition(b"/")[2] not in DEFAULT_FOLDERS:
            return False
        return self.vault.resolve(state.files, folder) is None

    def on_overflow(self) -> None:
        """Events were lost: a scan finds what they would have told."""
        log.warning("watch overflow worktree=%s", self.worktree_id)
        self._scan_due = True
        self._schedule()

    def on_limit(self, reason: str) -> None:
        """No watches to be had: scans on a timer take their place."""
        log.warning("watch limit worktree=%s reason=%s", self.worktree_id, reason)
        self._polling = reason
        self._scan_due = True
        self._schedule()

    def on_repository(self) -> None:
        """HEAD or a ref may have moved: other files may be tracked and other rules hold now."""
        self._scan_due = True
        self._protect_state_before(self._clock.now())
        self._listener.on_repository(self)
        self._schedule()

    def on_gone(self) -> None:
        """The root was deleted, renamed or replaced."""
        self._listener.on_gone(self)

    def _captured_among(self, paths: Collection[bytes]) -> set[bytes]:
        """Those of the deleted paths that the newest state holds; the first few are enough to tell a burst."""
        held: set[bytes] = set()
        state = self._capture.state
        if state is None:
            return held
        for path in sorted(paths)[:_LOOKED_UP]:
            if self._capture.in_scope(path) and self.vault.resolve(state.files, path) is not None:
                held.add(path)
            if len(held) > _TOLD:
                break
        return held

    def _protect_state_before(self, at: datetime) -> None:
        asyncio.get_running_loop().run_in_executor(self._pool, self._rolling.before_burst, at)

    def _wall(self, monotonic: float) -> datetime:
        return self._clock.now() - timedelta(seconds=self._clock.monotonic() - monotonic)

    # -- rolling capture ----------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._stopping or (self._task is not None and not self._task.done()):
            return  # the task that runs looks again when it is done
        due = self._clock.monotonic() if self._scan_due else self._debounce.next_due()
        if due is None and self._polling:
            due = self._clock.monotonic() + _POLL
        if due is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(0.0, due - self._clock.monotonic())
        if self._failures:
            delay = max(delay, _RETRY[min(self._failures, len(_RETRY)) - 1])
        self._timer = asyncio.get_running_loop().call_later(delay, self._roll)

    def _roll(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._rolled())
        self._task.add_done_callback(lambda _: self._schedule())

    async def _rolled(self) -> None:
        await asyncio.wait([self._ready])
        self._scan_due |= bool(self._polling)
        try:
            async with self._lock:
                await self._catch_up(self._debounce.due(self._clock.monotonic()))
        except (CaptureFailed, StoreError, CaptureCancelled):
            return  # kept in self.failure, shown in status, tried again with growing pauses

    async def _catch_up(
        self, paths: Collection[bytes], *, force: Collection[bytes] = (), empty: bool = False
    ) -> Captured:
        """Brings the vault up to `paths`, or to everything when a scan is due. The caller holds the lock."""
        if self.no_room is not None:
            self.failed(error := CaptureFailed(self.no_room, "Free some room, or raise `retention.max_bytes`."))
            raise error
        scan, self._scan_due = self._scan_due, False
        dirty = set(paths) | self._capture.reread
        state = self._capture.state
        try:
            if scan or state is None:
                captured = await self._captured(lambda: self._capture.scan(dirty, empty=empty))
                if force:
                    captured = await self._captured(lambda: self._capture.capture(dirty, force=force))
            elif dirty or force:
                captured = await self._captured(lambda: self._capture.capture(dirty, force=force))
            else:
                return state
        except (CaptureFailed, StoreError) as error:
            self.failed(error)
            raise
        self._took(captured)
        if self._capture.reread:
            self._debounce.add(self._capture.reread, self._clock.monotonic())
        return captured

    async def _captured(self, capture: Callable[[], Captured]) -> Captured:
        """Captures and keeps the state, in a worker."""

        def work() -> Captured:
            captured = capture()
            self._rolling.push(captured)
            return captured

        return await self._run(work)

    def _took(self, captured: Captured) -> None:
        self.last_capture = captured.taken_at
        self.missed += captured.missed
        self._failures, self.failure = 0, None
        if self._ready.done() and self._ready.exception() is not None:  # the start failed, a later try did not
            self._ready = asyncio.get_running_loop().create_future()
        if not self._ready.done():
            self._ready.set_result(None)
        if not len(self._debounce):
            self._dirty_since = None

    def failed(self, error: Exception) -> None:
        """Notes that a capture failed: whatever was dirty is found again by a scan, after a growing pause."""
        self._not_ready(error)
        self._scan_due = True
        self._failures += 1
        since = self.failure.since if self.failure else self._clock.now()
        self.failure = Failure(what=str(error), hint=getattr(error, "hint", "") or "", since=since)
        log.error("capture failed worktree=%s error=%s", self.worktree_id, type(error).__name__)
        self._schedule()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # -- what triggers ask --------------------------------------------------------------------

    async def now(self, *, force: Collection[bytes] = (), empty: bool = False) -> Captured:
        """The files as they are at this moment: every change so far is told, every dirty path read.

        `empty`: an empty folder is meant to be empty, and no disk that is not mounted.
        Raises CaptureFailed, CaptureCancelled or StoreError.
        """
        await asyncio.wait([self._ready])
        if self._watch is None or not await self._watch.drain(_DRAIN):
            self._scan_due = True
        async with self._lock:
            return await self._catch_up(self._debounce.take_all(), force=force, empty=empty)

    async def before(self, at: datetime) -> Captured | None:
        """The newest state of which no byte was read after `at`."""
        return await self._run(lambda: self._rolling.at(at))

    def quiet_since(self, at: datetime) -> bool:
        """Whether nothing was seen to change after `at`."""
        return not self._changed or self._changed[-1] <= at

    @property
    def state(self) -> Captured | None:
        """The newest state that the vault holds."""
        return self._capture.state

    @property
    def ready(self) -> bool:
        """Whether the first capture is done."""
        return self._ready.done() and self._ready.exception() is None

    @property
    def dirty(self) -> int:
        """Changed paths that are not in the vault yet."""
        return len(self._debounce)

    @property
    def dirty_since(self) -> datetime | None:
        """When the oldest change was seen that is not in the vault yet."""
        return self._dirty_since

    @property
    def watching(self) -> str:
        """`live`, `polling` with the reason, or `failed`."""
        if self.failure is not None:
            return "failed"
        return "polling" if self._polling else "live"

    @property
    def limit(self) -> str:
        """Why the tree cannot be watched; empty where it is."""
        return self._polling

    @property
    def watched(self) -> bool:
        """Whether the start got as far as the watch."""
        return self._watch is not None

    @property
    def watches(self) -> int:
        return self._watch.watches if self._watch is not None else 0

    async def thin(self) -> None:
        """Thins the rolling states by age."""
        if self.ready and not self._stopping:
            async with self._lock:
                await self._run(self._rolling.thin)

    @contextlib.asynccontextmanager
    async def restoring(self) -> AsyncIterator[None]:
        """Around a restore of ours: one at a time, and what it deletes is nobody's destruction."""
        async with self._restoring:
            began = self._clock.now()
            self._restored = began, None
            try:
                yield
            finally:
                self._restored = began, self._clock.now()

    def is_own(self, at: datetime) -> bool:
        """Whether what happened at that time falls into a restore of ours."""
        if self._restored is None:
            return False
        began, ended = self._restored
        return began - _PAUSE <= at and (ended is None or at <= ended + _PAUSE)

    def unrest_since(self, now: datetime) -> datetime:
        """When the changes began that have followed each other without a pause up to now."""
        start = now
        for at in reversed(self._changed):
            if start - at > _PAUSE:
                break
            start = at
        return start
