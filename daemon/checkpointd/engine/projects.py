"""Which directory belongs to which project, and the open vaults of projects."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import Mark, ProjectRow, WorktreeRow
from checkpointd.clock import Clock
from checkpointd.engine.errors import Failed
from checkpointd.model.checkpoint import Record
from checkpointd.model.paths import quote, unquote
from checkpointd.summaries import documents
from checkpointd.vault import repository
from checkpointd.vault.errors import StoreError
from checkpointd.vault.eventlog import EventLog
from checkpointd.vault.repository import Repository
from checkpointd.vault.store import Vault

log = logging.getLogger(__name__)
T = TypeVar("T")

_ENTRIES = 200


class Root(Struct, frozen=True):
    """The directory that is protected for somebody who works in `asked`."""

    path: Path
    repository: Repository | None


class NoRoot(Struct, frozen=True):
    """Why nothing is protected for a directory."""

    why: str


class VaultUnusable(Failed, StoreError):
    """The vault of a project cannot be opened."""


class Project:
    """One project with its vault open. `lock` is held by whoever writes the vault."""

    def __init__(self, row: ProjectRow, folder: Path, vault: Vault, events: EventLog) -> None:
        self.row = row
        self.folder = folder
        self.vault = vault
        self.events = events
        self.lock = asyncio.Lock()
        self.lost: frozenset[str] = frozenset()  # checkpoints that are listed, and that the vault does not hold

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def journal(self) -> Path:
        return self.folder / "journal"


def text_of(path: Path) -> str:
    """A path as records spell it."""
    return quote(os.fsencode(path))


def _path_of(text: str) -> Path:
    return Path(os.fsdecode(unquote(text)))


_SYSTEM = tuple(
    map(Path, ("/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/dev", "/proc", "/sys", "/run"))
)


def root_of(directory: Path, home: Path, own: Path | None = None) -> Root | NoRoot:
    """The git top level that holds `directory`, else the directory itself; never a home, `/` or a folder of them, nor
    what holds `own`, the daemon's data: each capture of it would be a change to capture.

    Reads the file system: call it in a worker.
    """
    try:
        real = directory.resolve(strict=True)
    except OSError as error:
        return NoRoot(f"{directory} cannot be reached: {error.strerror}")
    except RuntimeError:  # before Python 3.13
        return NoRoot(f"{directory} cannot be reached: its links run in a circle")
    if not real.is_dir():
        real = real.parent
    found = repository.find(real)
    path = found.top if found is not None else real
    home = home.resolve()
    if path == home or path in home.parents:
        return NoRoot(f"{path} is a home directory or holds one: it is never captured as a whole")
    own = own.resolve() if own is not None else None
    if own is not None and (path == own or path in own.parents or own in path.parents):
        return NoRoot(f"{path} holds the checkpoints themselves: it is never captured as a whole")
    if any(path == folder or folder in path.parents for folder in _SYSTEM):
        return NoRoot(f"{path} is part of the system: it is never captured")
    if found is None and home in path.parents and path.relative_to(home).parts[0].startswith("."):
        # ~/.claude, ~/.ssh, ~/.config: settings, keys and the agents' own logs. A repository there is meant as work.
        return NoRoot(f"{path} is in a hidden folder of a home and no repository: it is never captured")
    if path in (Path("/tmp"), Path("/var/tmp")):  # noqa: S108 - shared by everybody, so it is nobody's project
        return NoRoot(f"{path} is shared by everything: it is never captured as a whole")
    return Root(path, found)


def marks_of(root: Root) -> dict[str, Mark]:
    """What a work tree is recognised by after a move: device and inode of the root, of what is in it and of its
    git dir, and its remotes."""
    info = root.path.stat()
    marks: dict[str, Mark] = {"device": info.st_dev, "inode": info.st_ino, "entries": _entries(root.path)}
    if root.repository is not None:
        git = root.repository.git_dir.stat()
        marks |= {"git_inode": git.st_ino, "common": text_of(root.repository.common_dir)}
        marks["remotes"] = list(root.repository.remotes())
    return marks


def _entries(folder: Path) -> list[str]:
    """The inodes and names of the first things in a folder."""
    with os.scandir(folder) as found:
        return [f"{entry.inode()} {quote(os.fsencode(entry.name))}" for entry in islice(found, _ENTRIES)]


def moved(marks: dict[str, Mark], candidate: dict[str, Mark]) -> bool:
    """Whether two marks of a vanished root agree with those of a new one, and something in them does.

    File systems give the inode of a removed directory to the next one that is made, so alone it says little.
    """
    held, there = marks.get("entries"), candidate.get("entries")
    if isinstance(held, list) and held and not set(held) & set(there if isinstance(there, list) else ()):
        return False
    agree = 0
    if marks.get("inode") == candidate.get("inode") and marks.get("device") == candidate.get("device"):
        agree += 1
    for key in ("git_inode", "remotes"):
        if candidate.get(key) and marks.get(key) == candidate.get(key):
            agree += 1
    if "git_inode" not in candidate and "git_inode" not in marks:
        agree *= 2  # a plain directory has nothing but its inode and what is in it
    return agree >= 2


class Projects:
    """Finds, makes and opens projects. Used from the event loop; the file system is read in workers."""

    def __init__(
        self, *, folder: Path, home: Path, catalog: Catalog, clock: Clock, pool: Executor, random_hex: Callable[[], str]
    ) -> None:
        self._folder = folder
        self._home = home
        self._catalog = catalog
        self._clock = clock
        self._pool = pool
        self._random_hex = random_hex
        self._open: dict[str, Project] = {}
        self._making = asyncio.Lock()  # two sessions that start in one new directory make one project

    async def root(self, directory: Path) -> Root | NoRoot:
        """The root that a session in `directory` works in."""
        return await self._run(lambda: root_of(directory, self._home, self._folder.parent))

    def known(self, root: Path) -> WorktreeRow | None:
        """The work tree at exactly this root, if it is known."""
        return self._catalog.worktree_at(text_of(root))

    async def worktree(self, root: Root) -> WorktreeRow:
        """The work tree at `root`: known, moved here, one more of its repository, or new."""
        async with self._making:
            marks = await self._run(lambda: marks_of(root))
            row = self.known(root.path)
            if row is not None:
                return self._seen(row, root, marks)
            return await self._moved_here(root, marks) or await self._made(root, marks)

    def _seen(self, row: WorktreeRow, root: Root, marks: dict[str, Mark]) -> WorktreeRow:
        now = self._clock.now()
        row = msgspec.structs.replace(row, root=text_of(root.path), last_seen=now)
        self._catalog.put_worktree(row)
        project = self._catalog.project(row.project)
        if project is not None:
            known = {**project.marks, **{f"{row.id}.{key}": value for key, value in marks.items()}}
            self._catalog.put_project(msgspec.structs.replace(project, marks=known))
        return row

    async def _moved_here(self, root: Root, marks: dict[str, Mark]) -> WorktreeRow | None:
        for row in self._catalog.worktrees():
            project = self._catalog.project(row.project)
            if project is None:
                continue
            own = {k.removeprefix(f"{row.id}."): v for k, v in project.marks.items() if k.startswith(f"{row.id}.")}
            if moved(own, marks) and not await self._run(_path_of(row.root).exists):
                log.info("project moved project=%s worktree=%s", row.project, row.id)
                return self._seen(row, root, marks)
        return None

    async def _made(self, root: Root, marks: dict[str, Mark]) -> WorktreeRow:
        now = self._clock.now()
        project = self._sibling(marks)
        if project is None:
            project = ProjectRow(
                id=self._random_hex()[:12],
                name=root.path.name,
                kind="git" if root.repository else "plain",
                created_at=now,
            )
            self._catalog.put_project(project)
            log.info("project new project=%s kind=%s", project.id, project.kind)
        row = WorktreeRow(
            id=self._random_hex()[:12], project=project.id, root=text_of(root.path), first_seen=now, last_seen=now,
            gitdir=text_of(root.repository.git_dir) if root.repository else None,
        )  # fmt: skip
        row = self._seen(row, root, marks)
        self._adopt_sessions(row)
        return row

    def _adopt_sessions(self, row: WorktreeRow) -> None:
        """Sessions that old logs told of, and that worked below this root, belong to it from now on."""
        with self._catalog.batch():
            for session in self._catalog.sessions():
                if session.project is None and session.cwd and f"{session.cwd}/".startswith(f"{row.root}/"):
                    self._catalog.put_session(msgspec.structs.replace(session, project=row.project, worktree=row.id))

    def _sibling(self, marks: dict[str, Mark]) -> ProjectRow | None:
        """The project that another work tree of the same repository belongs to."""
        common = marks.get("common")
        if common is None:
            return None
        for project in self._catalog.projects():
            if any(key.endswith(".common") and value == common for key, value in project.marks.items()):
                return project
        return None

    async def open(self, project_id: str) -> Project:
        """The project with its vault open; made where it has none yet. Raises VaultUnusable."""
        project = self._open.get(project_id)
        if project is not None:
            if project.vault.half_open:
                async with project.lock:
                    await self._run(project.vault.start_again)
            return project
        async with self._making:
            if project_id in self._open:
                return self._open[project_id]
            row = self._catalog.project(project_id)
            if row is None:
                raise KeyError(project_id)
            folder = self._folder / project_id
            try:
                vault, events = await self._run(lambda: _opened(folder, row))
            except (StoreError, OSError) as error:
                raise VaultUnusable(
                    f"The vault of {row.name} ({folder}) cannot be opened: {error}",
                    hint="Other projects are not concerned; `ckpt doctor` looks into it.",
                ) from error
            project = Project(row, folder, vault, events)
            await self._compare(project)
            self._open[project_id] = project
            return project

    async def _compare(self, project: Project) -> None:
        """Has the catalog list what the vault holds: a daemon may be killed between the commit and the row."""
        held, listed = set(await self._run(project.vault.checkpoint_ids)), self._catalog.checkpoint_ids(project.id)
        missed, project.lost = held - listed, frozenset(listed - held)
        if not missed:
            return
        found, unreadable = await self._run(lambda: read_records(project.vault, missed))
        log.warning("checkpoints adopted project=%s read=%d unreadable=%d", project.id, len(found), len(unreadable))
        with self._catalog.batch():
            self.adopt(project.id, found)

    def adopt(self, project_id: str, found: Iterable[tuple[Record, str]]) -> None:
        """Lists records with their commits, as far as the catalog has not got them, and the work trees they name."""
        ordered = sorted(found, key=lambda item: (item[0].project.worktree, item[0].seq))
        newest = {record.project.worktree: record for record, _ in ordered}
        for record, commit in ordered:
            if self._catalog.checkpoint(record.id) is None:
                self._catalog.add_checkpoint(record, commit, 0)
        for worktree, record in newest.items():
            if self._catalog.worktree(worktree) is None:
                self._catalog.put_worktree(
                    WorktreeRow(
                        id=worktree, project=project_id, root=record.project.root,
                        first_seen=record.created_at, last_seen=record.created_at,
                    )
                )  # fmt: skip

    def opened(self) -> list[Project]:
        """The projects whose vaults are open."""
        return list(self._open.values())

    async def remove(self, project_id: str) -> None:
        """Deletes the project's vault, events and rows."""
        project = self._open.pop(project_id, None)
        if project is not None:
            await self._run(project.vault.close)
        await self._run(lambda: shutil.rmtree(self._folder / project_id, ignore_errors=True))
        for checkpoint in self._catalog.checkpoint_ids(project_id):
            self._catalog.remove_checkpoint(checkpoint)
        self._catalog.remove_project(project_id)

    async def close(self) -> None:
        for project in self._open.values():
            await self._run(project.vault.close)
        self._open.clear()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def read_records(vault: Vault, ids: Iterable[str]) -> tuple[list[tuple[Record, str]], dict[str, str]]:
    """The records of these checkpoints with their commits, and why others cannot be read. Blocks."""
    found, unreadable = [], {}
    for identity in ids:
        try:
            held = vault.checkpoint(identity)
            found.append((documents.parse_record(held.document("record.yaml")).record, held.commit))
        except (StoreError, KeyError, documents.BadDocument) as error:
            unreadable[identity] = str(error)
    return found, unreadable


def _note(file: Path, content: bytes) -> None:
    """Keeps the project's row beside its vault, for a rebuild. A vault that can only be read is read without."""
    try:
        if file.exists() and file.read_bytes() == content:
            return
        beside = file.with_name(file.name + "~")
        beside.write_bytes(content)
        beside.replace(file)
    except OSError as error:
        log.warning("project not noted file=%s error=%s", file, error.strerror)


def _opened(folder: Path, row: ProjectRow) -> tuple[Vault, EventLog]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / "vault.git"
    vault = Vault.open(path) if path.exists() else Vault.create(path)
    _note(folder / "project.json", msgspec.json.encode(row))
    events = EventLog(folder / "events.jsonl")
    events.recover(vault.saved_events())
    _tell_missing(vault, events)
    return vault, events


def _tell_missing(vault: Vault, events: EventLog) -> None:
    """Adds the `save` of checkpoints that have none: the daemon was killed between the two."""
    told = {event.get("id") for event in events.read() if event.get("event") == "save"}
    missing = [identity for identity in vault.checkpoint_ids() if identity not in told]
    for record, _ in read_records(vault, missing)[0]:
        try:
            events.append(save_event(record), sync=False)
        except OSError as error:
            log.warning("event not written id=%s error=%s", record.id, error.strerror)


def save_event(record: Record) -> dict[str, Any]:
    """The event of a checkpoint that was made."""
    return {
        "ts": record.created_at.isoformat(),
        "event": "save",
        "name": record.name,
        "id": record.id,
        "parent": record.parent,
        "branch": record.git.branch if record.git else None,
        "files_changed": record.files_changed_total,
    }
