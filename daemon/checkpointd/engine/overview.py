"""The state of everything, from memory and the catalog: what `ckpt status` shows."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from checkpointd.agents.registry import ADAPTERS
from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import ProjectRow, SessionFilter, SessionRow
from checkpointd.clock import Clock
from checkpointd.config import Config
from checkpointd.engine import answers
from checkpointd.engine.history import History
from checkpointd.engine.projects import Projects
from checkpointd.engine.protection import Protection
from checkpointd.engine.sessions import Sessions
from checkpointd.engine.tree import LiveTree
from checkpointd.model.paths import unquote

_SESSIONS = 50
_MUCH_UNKNOWN = 0.05
_NAMED = 5


class Usage(Protocol):
    """What the process itself takes."""

    def __call__(self) -> tuple[int, float, int]: ...  # bytes resident, seconds of CPU, descriptors


class Overview:
    """Never waits for a disk, a child or a lock."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        projects: Projects,
        protection: Protection,
        sessions: Sessions,
        history: History,
        clock: Clock,
        config: Callable[[], Config],
        usage: Usage,
        started: float,
        log_roots: Callable[[], Iterable[tuple[str, bool]]],
        notices: Callable[[], Iterable[answers.Problem]],
    ) -> None:
        self._catalog = catalog
        self._projects = projects
        self._protection = protection
        self._sessions = sessions
        self._history = history
        self._clock = clock
        self._config = config
        self._usage = usage
        self._started = started
        self._log_roots = log_roots
        self._notices = notices

    def whole(self) -> answers.Overview:
        """Everything."""
        rss, cpu, descriptors = self._usage()
        sessions = self._catalog.sessions(SessionFilter(states=("live", "idle"), limit=_SESSIONS))
        projects = self.projects()
        vaults = sum(project.size or 0 for project in projects)
        watches = sum(tree.watches for tree in self._protection.trees())
        return answers.Overview(
            daemon=answers.DaemonState(
                uptime=timedelta(seconds=self._clock.monotonic() - self._started),
                rss=rss,
                cpu=timedelta(seconds=cpu),
                paused=self._paused(),
            ),
            agents=tuple(self.agents()),
            projects=tuple(projects),
            sessions=tuple(self.session(row) for row in sessions),
            budgets={
                "vaults": answers.Budget(used=vaults, limit=int(self._config().retention.max_bytes), unit="bytes"),
                "memory": answers.Budget(used=rss, limit=None, unit="bytes"),
                "descriptors": answers.Budget(used=descriptors, limit=None, unit=""),
                "watches": answers.Budget(used=watches, limit=None, unit=""),
                "old logs to read": answers.Budget(used=self._history.backlog, limit=None, unit=""),
            },
            problems=tuple(self.problems()),
        )

    def alarm(self) -> str | None:
        """The worst problem that hurts protection, in one line."""
        if self._paused():
            return "checkpointd is paused: nothing is captured. `ckpt resume --all` turns it on."
        for tree in self._protection.trees():
            if tree.failure is not None:
                return f"{tree.root} is not captured: {tree.failure.what}"
        return None

    def _paused(self) -> bool:
        return self._config().paused or self._catalog.value("paused") == "1"

    def agents(self) -> list[answers.AgentState]:
        """One row an agent that was ever seen."""
        counts = self._catalog.counts()
        sessions = self._catalog.session_counts()
        roots = dict(self._log_roots())
        found = []
        for adapter in ADAPTERS:
            own = counts.get(adapter.name, {})
            records = own.get("records", 0)
            unknown = sum(n for name, n in own.items() if name.startswith("unknown:")) + own.get("undecodable", 0)
            state: str = "ok"
            if adapter.name in self._config().agents.disabled:
                state = "disabled"
            elif not roots.get(adapter.name):
                state = "absent"
            elif records and unknown > records * _MUCH_UNKNOWN:
                state = "partly" if unknown < records else "not-understood"
            found.append(
                answers.AgentState(
                    agent=adapter.name,
                    sessions=sessions.get(adapter.name, 0),
                    records=records,
                    unknown_records=unknown,
                    unknown_kinds=_kinds(own),
                    state=state,  # type: ignore[arg-type] # one of the literals above
                )
            )
        return found

    def projects(self) -> list[answers.Project]:
        """All projects, the one worked in last first."""
        rows = {row.id: row for row in self._catalog.projects()}
        newest: dict[str, float] = {}
        for tree in self._catalog.worktrees():
            newest[tree.project] = max(newest.get(tree.project, 0.0), tree.last_seen.timestamp())
        order = sorted(rows, key=lambda project: newest.get(project, 0.0), reverse=True)
        return [self._project(rows[project]) for project in order]

    def _project(self, row: ProjectRow) -> answers.Project:
        trees = [tree for tree in self._protection.trees() if tree.project_id == row.id]
        worktrees = self._catalog.worktrees(row.id)
        root = max(worktrees, key=lambda tree: tree.last_seen).root if worktrees else ""
        opened = next((project for project in self._projects.opened() if project.id == row.id), None)
        captures = [tree.last_capture for tree in trees if tree.last_capture is not None]
        since = [tree.dirty_since for tree in trees if tree.dirty_since is not None]
        return answers.Project(
            id=row.id,
            name=row.name,
            root=unquote(root),
            kind=row.kind,
            checkpoints=self._catalog.checkpoint_count(row.id),
            paused=row.paused,
            watch=_watch(row, trees),
            dirty=sum(tree.dirty for tree in trees),
            last_capture=max(captures, default=None),
            loss_window=self._clock.now() - min(since) if since else None,
            size=opened.vault.size if opened is not None else None,
        )

    def session(self, row: SessionRow, *, log_exists: bool = True) -> answers.Session:
        """A session as clients see it."""
        worktree = self._catalog.worktree(row.worktree) if row.worktree else None
        return answers.Session(
            agent=row.agent,
            id=row.id,
            state=row.state,
            source="live" if log_exists else "gone",
            project=row.project,
            root=unquote(worktree.root)
            if worktree is not None
            else (row.cwd or "").encode("utf-8", "surrogateescape") or None,
            title=row.title or None,
            model=row.model,
            pid=row.pid,
            turns=row.turns,
            checkpoints=self._catalog.session_checkpoints(row.id),
            started_at=row.started_at,
            last_at=row.last_at,
        )

    def problems(self) -> list[answers.Problem]:
        """What is wrong now, worst first, each with the way out."""
        found = list(self._notices())
        for tree in self._protection.trees():
            if tree.failure is not None:
                ago = (
                    f" The last capture was at {tree.last_capture:%Y-%m-%d %H:%M:%S} UTC." if tree.last_capture else ""
                )
                found.append(
                    answers.Problem(
                        what=f"{tree.root} is not captured: {tree.failure.what}{ago}", hint=tree.failure.hint
                    )
                )
            elif tree.watching.startswith("polling"):
                found.append(
                    answers.Problem(
                        what=f"{tree.root} is scanned every few seconds, since it cannot be watched: {tree.limit}.",
                        hint="Raise the limit: sysctl fs.inotify.max_user_watches=524288",
                    )
                )
        for path, why in list(self._sessions.unreadable.items())[:5]:
            found.append(answers.Problem(what=f"The log {path} cannot be read: {why}.", hint="Check its permissions."))
        for agent in self.agents():
            if agent.state in ("partly", "not-understood"):
                what = f"{agent.unknown_records} of {agent.records} records of {agent.agent} are not understood."
                hint = "A newer version of checkpointd may read them; files are captured all the same."
                found += [answers.Problem(what=what, hint=hint)]
        for directory, why in list(self._protection.refusals.items())[:5]:
            found.append(answers.Problem(what=f"Nothing is captured for work in {directory}: {why}."))
        for project in self._projects.opened():
            if lost := project.lost & self._catalog.checkpoint_ids(project.id):
                found.append(
                    answers.Problem(
                        what=f"Missing from the vault of {project.row.name}: {len(lost)} of its listed checkpoints.",
                        hint=f"Bring {project.folder} back from a backup, or `ckpt doctor --rebuild` to drop them.",
                    )
                )
            found += [
                answers.Problem(what=f"{project.row.name}: {p.what}", hint=p.hint) for p in project.vault.problems
            ]
        return found


def _kinds(counts: Mapping[str, int]) -> tuple[str, ...]:
    """The kinds of records that were not understood, the most frequent first."""
    named = {name.removeprefix("unknown:"): n for name, n in counts.items() if name.startswith("unknown:") and n}
    if counts.get("undecodable"):
        named["not JSON"] = counts["undecodable"]
    return tuple(sorted(named, key=lambda name: -named[name])[:_NAMED])


def _watch(row: ProjectRow, trees: list[LiveTree]) -> answers.Watch:
    if row.paused:
        return "paused"
    if not trees:
        return "idle"
    states = {tree.watching for tree in trees}
    if "failed" in states:
        return "failed"
    return "polling" if "polling" in states else "live"


def free_space(path: Path) -> tuple[int, int]:
    """(bytes free, bytes in all) of the disk that holds `path`."""
    usage = shutil.disk_usage(path)
    return usage.free, usage.total
