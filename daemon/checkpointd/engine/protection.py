"""Which work trees are under protection now: each is watched and captured by one LiveTree."""

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import WorktreeRow
from checkpointd.clock import Clock
from checkpointd.config import Config
from checkpointd.engine.errors import Refused
from checkpointd.engine.projects import NoRoot, Project, Projects, Root
from checkpointd.engine.tree import Listener, LiveTree
from checkpointd.model.capture import Captured
from checkpointd.model.paths import unquote
from checkpointd.summaries import documents
from checkpointd.vault import scan
from checkpointd.vault.capture import CaptureCancelled, CaptureFailed
from checkpointd.vault.errors import StoreError
from checkpointd.vault.run import GitError
from checkpointd.watch.project import ProjectWatch
from checkpointd.watch.tree import Hub

log = logging.getLogger(__name__)
T = TypeVar("T")

_PAUSES = (1.0, 5.0, 30.0)  # seconds between two tries to start a tree


def path_of(text: str) -> Path:
    """The path that a record spells."""
    return Path(os.fsdecode(unquote(text)))


class Protection:
    """Starts and stops the LiveTrees. Used from the event loop."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        projects: Projects,
        hub: Hub,
        clock: Clock,
        pool: Executor,
        config: Callable[[], Config],
        listener: Listener,
    ) -> None:
        self._catalog = catalog
        self._projects = projects
        self._hub = hub
        self._clock = clock
        self._pool = pool
        self._config = config
        self._listener = listener
        self._trees: dict[str, LiveTree] = {}
        self._starts: dict[str, asyncio.Task[None]] = {}
        self.refusals: dict[str, str] = {}  # directory → why nothing is protected there

    def trees(self) -> list[LiveTree]:
        """The trees that are watched, or about to be."""
        return list(self._trees.values())

    def get(self, worktree: str) -> LiveTree | None:
        return self._trees.get(worktree)

    async def enter(self, directory: Path) -> LiveTree | None:
        """The tree that work in `directory` belongs to, under protection from now on; None where none may be.

        Returns as soon as the watch is begun: the first capture goes on in the background.
        """
        found = await self._entered(directory)
        if isinstance(found, NoRoot):
            self.refusals[str(directory)] = found.why
            return None
        self.refusals.pop(str(directory), None)
        return found

    async def _entered(self, directory: Path) -> LiveTree | NoRoot | None:
        root = await self._projects.root(directory)
        if isinstance(root, NoRoot):
            return root
        if await self._run(lambda: self.excluded(root.path)):
            return None
        row = await self._projects.worktree(root)
        project = self._catalog.project(row.project)
        if project is None or project.paused or self._config().paused or self._catalog.value("paused") == "1":
            return None
        return await self.protect(row, root)

    def excluded(self, root: Path) -> bool:
        """Whether the user's config leaves this project, or a folder that it lies in, out. Blocks."""
        out = [_spelled_out(text) for text in self._config().exclude_projects]
        return any(path == root or path in root.parents for path in out)

    async def protect(self, row: WorktreeRow, root: Root) -> LiveTree:
        """The work tree's LiveTree, started where it is not running. Raises StoreError."""
        tree = self._trees.get(row.id)
        if tree is not None and tree.root == root.path:
            return tree
        if tree is not None:  # its directory was renamed, and nobody has noticed yet
            await self.stop(row.id)
        project = await self._projects.open(row.project)
        if row.id in self._trees:  # somebody else was faster while the vault was opened
            return self._trees[row.id]
        tree = LiveTree(
            project_id=project.id,
            worktree_id=row.id,
            root=root.path,
            vault=project.vault,
            limits=self._config().capture,
            clock=self._clock,
            pool=self._pool,
            lock=project.lock,
            listener=self._listener,
        )
        self._trees[row.id] = tree
        task = asyncio.get_running_loop().create_task(self._begin(tree, project, root))
        self._starts[row.id] = task
        task.add_done_callback(lambda _: self._starts.pop(row.id, None))
        return tree

    async def _begin(self, tree: LiveTree, project: Project, root: Root) -> None:
        """Starts a tree; again and again where that fails before it is watched, as on a full disk."""
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            await self._start(tree, project, root)
            if tree.watched:
                return  # what fails from here on is tried again by the tree itself
            await asyncio.sleep(pause)
            await self._projects.open(project.id)

    async def _start(self, tree: LiveTree, project: Project, root: Root) -> None:
        try:
            newest = self._catalog.newest(tree.worktree_id)
            resumed = await self._run(lambda: _held(project, newest.record.id)) if newest is not None else None
            if resumed is not None:
                tree.resume(resumed)
            ignored = await self._run(lambda: scan.ignored_folders(project.vault, root.path, root.repository))

            def skip(folder: bytes) -> bool:
                return folder in ignored or tree.skips(folder)

            watch = ProjectWatch(self._hub, root.path, tree, skip=skip, clock=self._clock)
            git_dirs = []
            if root.repository is not None:
                git_dirs = list(dict.fromkeys((root.repository.git_dir, root.repository.common_dir)))
            captured = await tree.start(watch, git_dirs)
            log.info("protected worktree=%s files=%d", tree.worktree_id, captured.coverage.captured)
        except (CaptureFailed, StoreError, GitError, OSError) as error:
            tree.failed(error)
        except CaptureCancelled:
            return
        except Exception as error:  # a bug must not pass for protection
            log.exception("protection failed worktree=%s", tree.worktree_id)
            tree.failed(error)

    async def stop(self, worktree: str) -> None:
        """Ends the protection of one work tree."""
        tree = self._trees.pop(worktree, None)
        if tree is not None:
            await self._ended(worktree, tree)

    async def close(self) -> None:
        """Ends all protection; running captures are cancelled."""
        for worktree, tree in list(self._trees.items()):
            await self._ended(worktree, tree)
        self._trees.clear()

    async def _ended(self, worktree: str, tree: LiveTree) -> None:
        await tree.stop()
        if (task := self._starts.get(worktree)) is not None:
            if not tree.watched:
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def for_client(self, directory: Path) -> LiveTree:
        """The tree that a client means by `directory`. Raises Refused where nothing may be protected."""
        tree = await self._entered(directory)
        if isinstance(tree, NoRoot):
            raise Refused(f"{tree.why}.", hint="`cd` into a project first.")
        if tree is None:
            raise Refused(
                f"Nothing is captured in {directory}: it is paused or excluded.",
                hint="`ckpt resume` captures again what is paused; `exclude_projects` is a setting.",
            )
        return tree

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _spelled_out(text: str) -> Path:
    """The path that a setting means; as it stands there where a `~name` or a circle of links leads nowhere."""
    try:
        return Path(text).expanduser().resolve()
    except (OSError, RuntimeError):
        return Path(text)


def _held(project: Project, checkpoint: str) -> Captured | None:
    """The state that a checkpoint holds, to go on from; None where it cannot be read. Blocks."""
    try:
        held = project.vault.checkpoint(checkpoint)
        coverage = documents.parse_coverage(held.document("coverage.json"))
        taken_at = documents.parse_record(held.document("record.yaml")).record.created_at
        return Captured(files=held.files, modes=held.document("modes.json"), coverage=coverage, taken_at=taken_at)
    except (StoreError, KeyError, documents.BadDocument) as error:
        log.warning("resume failed id=%s error=%s", checkpoint, type(error).__name__)
        return None
