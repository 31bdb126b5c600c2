"""The daemon's engine around one repository, without its socket and its logs."""

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from checkpointd.catalog.catalog import Catalog
from checkpointd.clock import SystemClock
from checkpointd.config import CaptureConfig, Config
from checkpointd.engine.bus import Bus
from checkpointd.engine.projects import NoRoot, Project, Projects, Root
from checkpointd.engine.protection import Protection
from checkpointd.engine.recorder import Author, Recorder
from checkpointd.engine.tree import LiveTree
from checkpointd.vault.capture import WorkTree
from checkpointd.vault.rolling import Rolling
from checkpointd.watch.hubs import hub


class Deaf:
    """Listens to nothing."""

    def on_burst(self, tree: LiveTree, at: datetime, deleted: int, examples: tuple[bytes, ...]) -> None: ...

    def on_repository(self, tree: LiveTree) -> None: ...

    def on_gone(self, tree: LiveTree) -> None: ...


class Engine:
    """A catalog, projects, a recorder and their workers in a scratch folder; to be made on a running loop."""

    def __init__(self, folder: Path) -> None:
        self.clock = SystemClock()
        self.pool = ThreadPoolExecutor(6)
        data = folder / "data"  # beside the repositories: what holds the checkpoints is never captured
        self.catalog = Catalog(data / "catalog.sqlite")
        self.catalog.open()
        self.projects = Projects(
            folder=data / "projects", home=folder, catalog=self.catalog, clock=self.clock, pool=self.pool,
            random_hex=_hex,
        )  # fmt: skip
        self.recorder = Recorder(
            catalog=self.catalog, clock=self.clock, pool=self.pool, bus=Bus(), random_hex=_hex,
            author=Author(user="dev", host="bench"),
        )  # fmt: skip
        self._cookies = data / "cookies"

    async def root(self, top: Path) -> Root:
        """The root at a repository's top."""
        root = await self.projects.root(top)
        if isinstance(root, NoRoot):
            raise RuntimeError(root.why)
        return root

    async def protected(self, top: Path) -> LiveTree:
        """The repository under protection: watched, and captured whole."""
        watching = hub(asyncio.get_running_loop(), self._cookies)
        watching.open()
        protection = Protection(
            catalog=self.catalog, projects=self.projects, hub=watching, clock=self.clock, pool=self.pool,
            config=Config, listener=Deaf(),
        )  # fmt: skip
        tree = await protection.enter(top)
        if tree is None:
            raise RuntimeError(f"{top} is not protected: {protection.refusals}")
        while not tree.ready:
            if tree.failure is not None:
                raise RuntimeError(tree.failure.what)
            await asyncio.sleep(0.05)
        self._protection, self._watching = protection, watching
        return tree

    async def close(self) -> None:
        """Ends watching, closes what is open."""
        if hasattr(self, "_protection"):
            await self._protection.close()
            self._watching.close()
        await self.projects.close()
        self.catalog.close()
        self.pool.shutdown()


class Site:
    """One repository whose capture is driven by hand: nobody watches, the dirty paths are told."""

    def __init__(self, engine: Engine, project: Project, tree: LiveTree, capture: WorkTree) -> None:
        self.engine = engine
        self.project = project
        self.tree = tree
        self.capture = capture
        self.rolling = Rolling(project.vault, tree.worktree_id, engine.clock)

    @classmethod
    async def of(cls, top: Path, folder: Path) -> "Site":
        """The site of a repository; nothing is captured yet."""
        engine = Engine(folder)
        row = await engine.projects.worktree(await engine.root(top))
        project = await engine.projects.open(row.project)
        tree = LiveTree(
            project_id=project.id, worktree_id=row.id, root=top, vault=project.vault, limits=CaptureConfig(),
            clock=engine.clock, pool=engine.pool, lock=project.lock, listener=Deaf(),
        )  # fmt: skip
        capture = WorkTree(project.vault, top, row.id, limits=CaptureConfig(), clock=engine.clock, cancel=lambda: False)
        return cls(engine, project, tree, capture)


def _hex() -> str:
    return secrets.token_hex(16)
