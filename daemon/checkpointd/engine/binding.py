"""Which process holds a session, so that its end is noticed at once."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

from checkpointd.agents.claude import config_folders
from checkpointd.agents.codex import state_folder
from checkpointd.agents.liveness import claude_processes, codex_writer
from checkpointd.clock import Clock
from checkpointd.engine.conversation import Conversation
from checkpointd.engine.sessions import Sessions
from checkpointd.processes.table import agent_processes
from checkpointd.processes.wait import ProcessWait

log = logging.getLogger(__name__)
T = TypeVar("T")

_AGAIN = 2.0  # seconds between two looks for the same session
_LOCK_EVERY = 2  # ticks between two looks at a writer lock


class Binding:
    """Binds live sessions to processes: by the agent's own registry or lock, else by the one process with that folder.

    The process list is read only when a log grows for which no process is bound.
    """

    def __init__(
        self, *, sessions: Sessions, wait: ProcessWait, env: Mapping[str, str], clock: Clock, pool: Executor
    ) -> None:
        self._sessions = sessions
        self._wait = wait
        self._env = env
        self._clock = clock
        self._pool = pool
        self._looked: dict[tuple[str, str], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticks = 0

    def on_work(self, conversation: Conversation) -> None:
        """A session's log grew."""
        if not conversation.live or conversation.process is not None or conversation.lock_held:
            return
        now = self._clock.monotonic()
        if now - self._looked.get(conversation.key, -_AGAIN) < _AGAIN:
            return
        self._looked[conversation.key] = now
        self._spawn(conversation)

    def on_resumed(self, conversation: Conversation) -> None:
        """A session goes on after a restart of the daemon: its process may have ended meanwhile."""
        process = conversation.state.process
        if conversation.live and process is not None:
            conversation.process = (process.pid, process.started)
            self._wait.watch(process.pid, process.started, lambda: self._ended(conversation, process.pid))

    def tick(self) -> None:
        """Once a second: locks are looked at, and sessions that work without a process bound."""
        self._ticks += 1
        for conversation in self._sessions.conversations():
            if conversation.lock_held and self._ticks % _LOCK_EVERY == 0:
                self._check_lock(conversation)
            elif conversation.state.phase == "working":
                self.on_work(conversation)
        live = {conversation.key for conversation in self._sessions.conversations()}
        self._looked = {key: when for key, when in self._looked.items() if key in live}

    def _spawn(self, conversation: Conversation) -> None:
        task = asyncio.get_running_loop().create_task(self._bind(conversation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bind(self, conversation: Conversation) -> None:
        if conversation.adapter.name == "codex":
            held = await self._run(lambda: codex_writer(state_folder(self._env), conversation.session))
            if held == "held":
                conversation.lock_held = True
                return
        found = await self._run(lambda: self._find(conversation))
        if found is None or conversation.process is not None:
            return
        pid, started = found
        log.info("session bound session=%s pid=%d", conversation.session, pid)
        self._sessions.on_process_bound(conversation, pid, started)
        self._wait.watch(pid, started, lambda: self._ended(conversation, pid))

    def _find(self, conversation: Conversation) -> tuple[int, float] | None:
        if conversation.adapter.name == "claude":
            for process in claude_processes(config_folders(self._env)):
                if process.session == conversation.session and process.alive and process.start:
                    return process.pid, float(process.start)
        adapter, cwd = conversation.adapter, _real(conversation.digest.cwd)
        candidates = [
            process
            for process in agent_processes()
            if adapter.is_process(process.comm, process.cmdline) and process.cwd is not None and process.cwd == cwd
        ]
        return (candidates[0].pid, candidates[0].started) if len(candidates) == 1 else None

    def _check_lock(self, conversation: Conversation) -> None:
        # Opening a lock file and asking for its lock takes microseconds: no worker needed.
        if codex_writer(state_folder(self._env), conversation.session) == "held":
            return
        conversation.lock_held = False
        self._gone(conversation, None)

    def _ended(self, conversation: Conversation, pid: int) -> None:
        log.info("process gone session=%s pid=%d", conversation.session, pid)
        self._gone(conversation, pid)

    def _gone(self, conversation: Conversation, pid: int | None) -> None:
        task = asyncio.get_running_loop().create_task(self._sessions.on_process_gone(conversation, pid))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _real(cwd: str) -> str:
    try:
        return str(Path(cwd).resolve())
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return cwd
