"""Where the parts meet: start and stop of the daemon."""

import asyncio
import getpass
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

from checkpointd import config as configs
from checkpointd import logs, places
from checkpointd.agents.registry import ADAPTERS, discover
from checkpointd.api import endpoint
from checkpointd.api.dispatch import Dispatcher
from checkpointd.api.handlers import Handlers
from checkpointd.api.server import Server
from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.errors import CatalogError
from checkpointd.clock import Clock, SystemClock
from checkpointd.config import Config, ConfigError
from checkpointd.engine import answers
from checkpointd.engine.binding import Binding
from checkpointd.engine.bus import Bus
from checkpointd.engine.history import History
from checkpointd.engine.lookup import Lookup
from checkpointd.engine.operations import Operations
from checkpointd.engine.overview import Overview
from checkpointd.engine.projects import Projects
from checkpointd.engine.protection import Protection
from checkpointd.engine.rebuilding import Rebuilder
from checkpointd.engine.recorder import Author, Recorder
from checkpointd.engine.requests import AgentProcess
from checkpointd.engine.restores import Restores
from checkpointd.engine.retainer import Retainer
from checkpointd.engine.sessions import Sessions
from checkpointd.engine.tree import LiveTree
from checkpointd.jobs.schedule import Jobs
from checkpointd.notify import Notifier
from checkpointd.places import Places
from checkpointd.processes.table import agent_ancestor, boot_id, self_usage
from checkpointd.processes.wait import ProcessWait
from checkpointd.vault.errors import StoreError
from checkpointd.vault.run import GitError, check_git
from checkpointd.watch.hubs import hub
from checkpointd.watch.logs import LogWatch

log = logging.getLogger(__name__)

_SWITCH = 0.0005  # seconds: a worker in Python code must not hold the event loop for the default 5 ms
_WORKERS = 6
_GRACE = 20.0


class _Relay:
    """Hands what trees observe to the sessions, which are made after the trees' owner."""

    sessions: Sessions

    def on_burst(self, tree: LiveTree, at: datetime, deleted: int, examples: tuple[bytes, ...]) -> None:
        self.sessions.on_burst(tree, at, deleted, examples)

    def on_repository(self, tree: LiveTree) -> None:
        self.sessions.on_repository(tree)

    def on_gone(self, tree: LiveTree) -> None:
        self.sessions.on_gone(tree)


class App:
    """One daemon."""

    def __init__(self, found: Places, env: Mapping[str, str], clock: Clock) -> None:
        self._places = found
        self._env = env
        self._clock = clock
        self._notifier = Notifier(env)
        self._config = Config()
        self._config_seen: int | None = None
        self._config_problem: str | None = None
        self._stop = asyncio.Event()

    @property
    def config(self) -> Config:
        return self._config

    async def run(self) -> None:
        """Starts, serves until it is asked to stop, and finishes what was started."""
        await self._load_config()
        catalog = Catalog(self._places.catalog)
        catalog.open()
        try:
            await self._serve(catalog)
        finally:
            catalog.close()

    async def _serve(self, catalog: Catalog) -> None:
        loop = asyncio.get_running_loop()
        started = self._clock.monotonic()
        pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="worker")
        history_pool = ThreadPoolExecutor(1, thread_name_prefix="history")
        bus, relay = Bus(), _Relay()
        history = History(catalog=catalog, pool=history_pool)
        watching = hub(loop, self._places.cookies)
        watching.open()
        projects = Projects(
            folder=self._places.projects, home=self._places.home, catalog=catalog, clock=self._clock, pool=pool,
            random_hex=_random_hex,
        )  # fmt: skip
        protection = Protection(
            catalog=catalog, projects=projects, hub=watching, clock=self._clock, pool=pool,
            config=lambda: self._config, listener=relay,
        )  # fmt: skip
        recorder = Recorder(
            catalog=catalog, clock=self._clock, pool=pool, bus=bus, random_hex=_random_hex,
            author=Author(user=_user(), host=socket.gethostname()),
        )  # fmt: skip
        sessions = relay.sessions = Sessions(
            catalog=catalog, projects=projects, protection=protection, recorder=recorder, clock=self._clock,
            spans=lambda: self._config.session, env=self._env, pool=pool, history=history, bus=bus,
            disabled=lambda: self._config.agents.disabled, boot=boot_id(),
        )  # fmt: skip
        wait = ProcessWait(loop)
        binding = Binding(sessions=sessions, wait=wait, env=self._env, clock=self._clock, pool=pool)
        sessions.on_work = binding.on_work
        sessions.on_resumed = binding.on_resumed
        lookup = Lookup(catalog)
        restores = Restores(
            catalog=catalog, lookup=lookup, projects=projects, protection=protection, recorder=recorder,
            clock=self._clock, pool=pool, bus=bus, random_hex=_random_hex,
        )  # fmt: skip
        log_watch = LogWatch(
            watching, self._log_roots(), on_files=sessions.on_files,
            on_overflow=sessions.on_overflow,
        )  # fmt: skip
        jobs = Jobs(catalog, self._clock)
        retainer = Retainer(
            catalog=catalog, projects=projects, protection=protection, clock=self._clock, pool=pool,
            config=lambda: self._config, data=self._places.data, bus=bus,
        )  # fmt: skip
        rebuilder = Rebuilder(
            folder=self._places.projects, catalog=catalog, projects=projects, read_logs=sessions.read_all_again,
            pool=pool,
        )  # fmt: skip
        notices = _Notices(self, catalog, jobs, restores, projects, watching_trouble=lambda: watching.trouble)
        overview = Overview(
            catalog=catalog, projects=projects, protection=protection, sessions=sessions, history=history,
            clock=self._clock, config=lambda: self._config, usage=_usage, started=started,
            log_roots=self._log_stores, notices=notices.now,
        )  # fmt: skip
        operations = Operations(
            catalog=catalog, lookup=lookup, projects=projects, protection=protection, recorder=recorder,
            restores=restores, sessions=sessions, overview=overview, bus=bus, clock=self._clock,
            config=lambda: self._config, pool=pool, random_hex=_random_hex, agent_of=_agent_of, stop=self._stop.set,
            rebuild=rebuilder.run,
        )  # fmt: skip
        dispatcher = Dispatcher()
        Handlers(operations).register(dispatcher)
        server = Server(dispatcher)
        listening = endpoint.inherited(self._env) or endpoint.bind(self._places.socket)
        await server.start(listening)
        endpoint.announce(self._places.discovery, self._places.socket)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: asyncio.ensure_future(self._load_config()))
        if catalog.rebuilt:
            await rebuilder.run(_no_progress)
        await loop.run_in_executor(pool, log_watch.start)
        await sessions.start()
        self._add_jobs(jobs, sessions, binding, retainer, log_watch, pool)
        jobs.start()
        await notices.look()
        jobs.add("notices", timedelta(seconds=30), notices.look)
        self._notifier.send("READY=1", f"STATUS=watching {len(protection.trees())} work trees")
        log.info("serving pid=%d projects=%d", os.getpid(), len(catalog.projects()))
        await self._stop.wait()
        self._notifier.send("STOPPING=1")
        log.info("stopping pid=%d", os.getpid())
        jobs.stop()
        log_watch.stop()
        endpoint.withdraw(self._places.discovery)  # first: a client must not go to a daemon that leaves
        await binding.stop()
        wait.close()
        await sessions.stop()
        await server.close(_GRACE)
        bus.close()
        await protection.close()
        await projects.close()
        watching.close()
        endpoint.remove(self._places.socket, listening)
        pool.shutdown(wait=True)
        history_pool.shutdown(wait=True, cancel_futures=True)

    def _add_jobs(
        self, jobs: Jobs, sessions: Sessions, binding: Binding, retainer: Retainer, log_watch: LogWatch,
        pool: ThreadPoolExecutor,
    ) -> None:  # fmt: skip
        loop = asyncio.get_running_loop()

        async def tick() -> None:
            sessions.tick()
            binding.tick()

        async def poll_logs() -> None:
            await loop.run_in_executor(pool, log_watch.poll)

        jobs.add("tick", timedelta(seconds=1), tick)
        jobs.add("poll-logs", timedelta(seconds=5), poll_logs)
        jobs.add("config", timedelta(seconds=10), self._load_config)
        jobs.add("thin", timedelta(minutes=1), retainer.thin)
        jobs.add("retention", self._config.retention.every, retainer.run, remembered=True)

    async def _load_config(self) -> None:
        """Reads the config where it changed; a bad file is a problem in status, and the running config stays."""
        file = self._places.config
        try:
            seen = file.stat().st_mtime_ns
        except OSError:
            seen = 0
        if seen == self._config_seen:
            return
        self._config_seen = seen
        try:
            self._config = configs.load(file)
        except ConfigError as error:
            self._config_problem = str(error)
            log.warning("config refused file=%s", file)
            return
        self._config_problem = None

    @property
    def config_problem(self) -> str | None:
        return self._config_problem

    def _log_roots(self) -> list[Path]:
        return [root for adapter in ADAPTERS for root in adapter.roots(self._env)]

    def _log_stores(self) -> Iterable[tuple[str, bool]]:
        for adapter in ADAPTERS:
            yield adapter.name, any(root.is_dir() for root in adapter.roots(self._env))


class _Notices:
    """Problems of the daemon as a whole."""

    def __init__(
        self,
        app: App,
        catalog: Catalog,
        jobs: Jobs,
        restores: Restores,
        projects: Projects,
        *,
        watching_trouble: Callable[[], str | None],
    ) -> None:
        self._app = app
        self._catalog = catalog
        self._jobs = jobs
        self._restores = restores
        self._projects = projects
        self._watching_trouble = watching_trouble
        self._unfinished: list[answers.Problem] = []

    async def look(self) -> None:
        """Looks for vaults that cannot be opened, and restores that were interrupted."""
        found: list[answers.Problem] = []
        for worktree in self._catalog.worktrees():
            try:
                project = await self._projects.open(worktree.project)
                plans = await self._restores.unfinished(worktree, project)
            except (StoreError, OSError) as error:
                log.error("project cannot be opened project=%s error=%s", worktree.project, type(error).__name__)
                found.append(answers.Problem(what=f"{worktree.root} is not captured: {error}", hint="`ckpt doctor`"))
                continue
            except Exception as error:  # a bug in one project must not keep the others from being protected
                log.exception("project cannot be looked at project=%s", worktree.project)
                found.append(answers.Problem(what=f"{worktree.root} could not be looked at: {error!r}"))
                continue
            found += [
                answers.Problem(
                    what=f"A restore in {worktree.root} was interrupted ({plan}).",
                    hint="`ckpt undo` there takes back what it did; restoring again finishes it.",
                )
                for plan in plans
            ]
        self._unfinished = found

    def now(self) -> Iterable[answers.Problem]:
        if self._app.config_problem is not None:
            yield answers.Problem(what=self._app.config_problem, hint="The settings of before hold until it is mended.")
        trouble = self._watching_trouble()
        if trouble:
            yield answers.Problem(
                what=f"Files cannot be watched, so everything is scanned every few seconds: {trouble}",
                hint="Raise the limits: sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=524288",
            )
        for name, why in self._jobs.failures.items():
            yield answers.Problem(what=f"The job {name} fails: {why}", hint="The daemon's log has more.")
        yield from self._unfinished


def _random_hex() -> str:
    return secrets.token_hex(16)


def _user() -> str:
    """The user's name; the number where the machine has no name for it, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _usage() -> tuple[int, float, int]:
    usage = self_usage()
    return usage.rss, usage.cpu, usage.descriptors


def _agent_of(pid: int) -> AgentProcess | None:
    agent = agent_ancestor(pid) if pid > 0 else "unknown"
    return AgentProcess(agent=agent, pid=pid) if agent is not None else None


def _no_progress(stage: str, done: int, total: int | None = None) -> None:
    """Nobody is there to be told."""


def main(env: Mapping[str, str], *, log_file: str | None, debug: bool) -> int:
    """Runs the daemon until it is asked to stop; 0 then, 1 where it cannot start."""
    os.umask(0o077)
    found = places.find(env)
    logs.set_up(Path(log_file) if log_file else None, debug=debug)
    sys.setswitchinterval(_SWITCH)
    try:
        for folder in (found.data, found.projects, found.runtime, found.cookies):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_git()
        lock = endpoint.acquire_lock(found.lock)
    except endpoint.AlreadyRunning as error:
        log.error("not started: %s", error)
        return 1
    except (GitError, OSError) as error:
        log.error("not started: %s", error)
        return 1
    try:
        asyncio.run(App(found, env, SystemClock()).run())
    except (CatalogError, endpoint.UnsafePlace, OSError) as error:
        log.exception("stopped: %s", error)
        return 1
    finally:
        os.close(lock)
    return 0


def rebuild(env: Mapping[str, str]) -> answers.Rebuilt:
    """Makes the catalog anew while no daemon runs. Raises AlreadyRunning, CatalogError, OSError."""
    os.umask(0o077)
    found = places.find(env)
    found.projects.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = endpoint.acquire_lock(found.lock)
    try:
        return asyncio.run(_rebuilt(found, env))
    finally:
        os.close(lock)


async def _rebuilt(found: Places, env: Mapping[str, str]) -> answers.Rebuilt:
    catalog = Catalog(found.catalog)
    catalog.open()
    try:
        with ThreadPoolExecutor(2) as pool:
            projects = Projects(
                folder=found.projects, home=found.home, catalog=catalog, clock=SystemClock(), pool=pool,
                random_hex=_random_hex,
            )  # fmt: skip
            history = History(catalog=catalog, pool=pool)

            async def read_logs() -> None:
                logs = await asyncio.get_running_loop().run_in_executor(pool, discover, env)
                await history.read(logs, lambda path: False)

            rebuilder = Rebuilder(
                folder=found.projects, catalog=catalog, projects=projects, read_logs=read_logs, pool=pool
            )
            return await rebuilder.run(_no_progress)
    finally:
        catalog.close()
