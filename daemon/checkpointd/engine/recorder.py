"""Making records: captured files, documents and the event, committed as one checkpoint."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import msgspec
from msgspec import Struct

from checkpointd.catalog.catalog import Catalog
from checkpointd.clock import Clock
from checkpointd.engine.answers import Happening
from checkpointd.engine.bus import Bus
from checkpointd.engine.projects import Project, save_event
from checkpointd.engine.tree import LiveTree
from checkpointd.model import lines, linkage, naming
from checkpointd.model import pack as packs
from checkpointd.model.capture import Captured
from checkpointd.model.checkpoint import Cause, FileChange, ProjectRef, Record, SessionRef, Taken, Trigger
from checkpointd.model.digest import Digest, touched
from checkpointd.model.paths import quote
from checkpointd.summaries import documents, worktype
from checkpointd.summaries.page import checkpoint_md
from checkpointd.summaries.summary import summary_yaml
from checkpointd.text.redaction import redact
from checkpointd.vault import repository
from checkpointd.vault.errors import StoreError
from checkpointd.vault.store import TreeRef, Vault
from checkpointd.vault.trees import TreeDifference

log = logging.getLogger(__name__)
T = TypeVar("T")

_LISTED = 2000
_COUNTED_FILES = 200  # lines are counted for so many files of a change, so that a record stays cheap


class Author(Struct, frozen=True, kw_only=True):
    """Who works here: goes into every record's project."""

    user: str
    host: str


class Draft(Struct, frozen=True, kw_only=True):
    """What a record says beyond its files."""

    trigger: Trigger
    cause: Cause
    reason: str
    also: tuple[Trigger, ...] = ()
    source: str = ""
    taken: Taken | None = None
    session: SessionRef | None = None
    turn: int | None = None
    name: str | None = None
    title: str | None = None
    digest: Digest | None = None
    note: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    restore: dict[str, str] = {}
    late: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    continued_from: str | None = None
    native: tuple[str, ...] = ()  # the agent's own command line to resume the session
    pin: bool = False


class Recorder:
    """Writes checkpoints. One at a time in a vault; everything slow runs in workers."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        clock: Clock,
        pool: Executor,
        bus: Bus,
        author: Author,
        random_hex: Callable[[], str],
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._pool = pool
        self._bus = bus
        self._author = author
        self._random_hex = random_hex

    async def write(self, project: Project, tree: LiveTree, captured: Captured, draft: Draft) -> Record | None:
        """The new record, or None where its cause already has one or nothing changed since (`turn`, `scheduled`).

        Raises StoreError; then there is no checkpoint.
        """
        async with project.lock:
            if self._catalog.by_cause(draft.cause.key()) is not None or self._nothing_new(tree, captured, draft):
                return None
            previous = self._catalog.newest(tree.worktree_id)
            drafted = self._drafted(project, tree, captured, draft)
            parent_tree = previous.record.tree if previous is not None else None
            record, commit, size = await self._run(
                lambda: _committed(project, tree, captured, drafted, draft, parent_tree)
            )
            self._catalog.add_checkpoint(record, commit, size)
            if draft.pin:
                await self._run(lambda: project.vault.pin(record.id))
                self._catalog.set_pinned(record.id, pinned=True)
        log.info(
            "checkpoint saved id=%s project=%s trigger=%s files=%d",
            record.id, project.id, record.trigger, record.files_changed_total,
        )  # fmt: skip
        self._bus.publish(
            Happening(at=record.created_at, kind="checkpoint", text=f"{record.trigger}: {record.title}",
                      project=project.id, session=draft.session.id if draft.session else None, checkpoint=record)
        )  # fmt: skip
        return record

    def _nothing_new(self, tree: LiveTree, captured: Captured, draft: Draft) -> bool:
        if draft.trigger not in ("turn", "scheduled") or draft.also:
            return False
        last = self._catalog.newest(tree.worktree_id, draft.session.id if draft.session else None)
        return last is not None and last.record.tree == captured.files

    def _drafted(self, project: Project, tree: LiveTree, captured: Captured, draft: Draft) -> Record:
        now = self._clock.now()
        previous = self._catalog.newest(tree.worktree_id)
        session_previous = self._catalog.newest(tree.worktree_id, draft.session.id) if draft.session else None
        title = redact(draft.title or draft.reason)[:200]
        wanted = naming.slug(draft.name) if draft.name else ""
        name = naming.unique_name(
            wanted or naming.default_name(now.astimezone(), None),
            lambda text: self._catalog.name_taken(project.id, text),
        )
        digest = draft.digest
        return Record(
            id=naming.checkpoint_id(now, self._random_hex()),
            seq=self._catalog.next_seq(tree.worktree_id),
            name=name,
            title=title,
            created_at=now,
            source=draft.source or f"checkpointd:{draft.trigger}",
            trigger=draft.trigger,
            also=draft.also,
            cause=draft.cause,
            taken=draft.taken,
            reason=redact(draft.reason)[:500],
            project=ProjectRef(
                id=project.id, root=quote(bytes(tree.root)), name=project.row.name, kind=project.row.kind,
                worktree=tree.worktree_id, user=self._author.user, host=self._author.host,
            ),
            session=draft.session,
            turn=draft.turn,
            work_type=worktype.guess(digest) if digest else None,
            session_files=tuple(sorted(touched(digest, str(tree.root))))[:_LISTED] if digest else (),
            tests=tuple(digest.gates.values()) if digest else (),
            tasks=tuple(digest.tasks) if digest else (),
            undelivered=tuple(digest.queued) if digest else (),
            note={key: redact(text) for key, text in draft.note.items()},
            tags=draft.tags,
            restore=draft.restore,
            late=draft.late,
            lost=draft.lost,
            continued_from=draft.continued_from,
            parent=previous.record.id if previous else None,
            session_parent=session_previous.record.id if session_previous else None,
            tree=captured.files,
            coverage=documents.coverage_counts(captured.coverage),
            event=project.events.tail_hash(),
        )  # fmt: skip

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def _committed(
    project: Project, tree: LiveTree, captured: Captured, record: Record, draft: Draft, parent_tree: str | None
) -> tuple[Record, str, int]:
    """Completes the record with what only files tell, and commits it; the record, its commit, bytes added.

    Blocks: runs in a worker.
    """
    differences = project.vault.diff(parent_tree, captured.files) if parent_tree is not None else []
    found = repository.find(tree.root)
    git = found.state() if found is not None else None
    record = msgspec.structs.replace(
        record,
        git=git,
        feature=linkage.resolve(branch=git.branch if git is not None else None).feature,
        files_changed=file_changes(project.vault, differences, draft, str(tree.root)),
        files_changed_total=len(differences),
    )
    pack = packs.build(record, draft.digest, None, native=draft.native, guides=_guides(project.vault, captured.files))
    before = project.vault.size
    commit = project.vault.commit_checkpoint(
        record.id,
        {
            b"files": TreeRef(captured.files),
            b"modes.json": captured.modes,
            b"coverage.json": documents.coverage_json(captured.coverage),
            b"record.yaml": documents.record_yaml(record),
            b"checkpoint.md": checkpoint_md(record, draft.digest, pack),
            b"summary.yaml": summary_yaml(record, draft.digest),
            b"refs.json": msgspec.json.encode(record.git.branches if record.git is not None else {}),
        },
        message=f"{record.trigger}: {record.name}",
        when=record.created_at,
        events=project.events,
    )
    _tell(project, record)
    return record, commit, max(0, project.vault.size - before)


def _tell(project: Project, record: Record) -> None:
    """Adds the `save` to the event log. The checkpoint stands without it: the start adds what is missing."""
    try:
        project.events.append(save_event(record), sync=True)
    except OSError as error:
        log.error("event not written id=%s error=%s", record.id, error.strerror)


def file_changes(vault: Vault, differences: list[TreeDifference], draft: Draft, root: str) -> tuple[FileChange, ...]:
    """The listed changes of a record, with lines counted for the first ones and each given to who made it.

    A path that a tool call of the session names is its own as surely as the digest says; any other path that changed
    while the session worked is likely its own where it ran commands, and unknown where it did not.
    """
    own = touched(draft.digest, root) if draft.digest is not None else {}
    ran_commands = bool(draft.digest is not None and draft.digest.commands)
    session = draft.session.id if draft.session is not None else None
    changes = []
    for number, difference in enumerate(differences[:_LISTED]):
        path = quote(difference.path)
        counted = _counted(vault, difference) if number < _COUNTED_FILES else None
        touch = own.get(path)
        certainty = touch.certainty if touch is not None else "likely" if session and ran_commands else "unknown"
        changes.append(
            FileChange(
                path=path,
                change="add" if difference.old is None else "delete" if difference.new is None else "modify",
                added=counted[0] if counted else None,
                removed=counted[1] if counted else None,
                session=session if certainty != "unknown" else None,
                certainty=certainty,
            )
        )
    return tuple(changes)


def _counted(vault: Vault, difference: TreeDifference) -> tuple[int, int] | None:
    try:
        old = vault.read_blob(difference.old[1]) if difference.old is not None else None
        new = vault.read_blob(difference.new[1]) if difference.new is not None else None
    except StoreError:
        return None  # a record is not lost for a count
    return lines.count(old, new)


def _guides(vault: Vault, files: str) -> list[str]:
    return [name for name in ("CLAUDE.md", "AGENTS.md") if vault.resolve(files, name.encode()) is not None]
