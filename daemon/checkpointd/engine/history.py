"""Old logs: each becomes a row of the catalog, never a checkpoint."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from checkpointd.agents.base import Counts, LogFile
from checkpointd.agents.registry import adapter_named, open_log
from checkpointd.agents.tail import Cursor
from checkpointd.catalog import rows
from checkpointd.catalog.catalog import Catalog
from checkpointd.engine.conversation import Conversation
from checkpointd.model.paths import quote
from checkpointd.model.session import Policy

log = logging.getLogger(__name__)

_AT_ONCE = 8
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Old(Struct):
    """What an old log tells."""

    conversation: Conversation
    cursor: Cursor
    counts: dict[str, int]
    error: str = ""


class History:
    """Reads old logs in a worker of its own, a few at a time, so that live ones never wait."""

    def __init__(self, *, catalog: Catalog, pool: Executor) -> None:
        self._catalog = catalog
        self._pool = pool
        self.backlog = 0  # logs still to be read
        self.unreadable: dict[str, str] = {}

    async def read(self, logs: Sequence[LogFile], followed: Callable[[Path], bool]) -> None:
        """Reads these logs, in their order; those that are `followed` by then are left out."""
        self.backlog += len(logs)
        for start in range(0, len(logs), _AT_ONCE):
            part = [found for found in logs[start : start + _AT_ONCE] if not followed(found.path)]
            olds = await asyncio.get_running_loop().run_in_executor(self._pool, partial(_read_all, part))
            with self._catalog.batch():
                for found, old in zip(part, olds, strict=True):
                    if not followed(found.path):  # it may have come to life meanwhile
                        self._remember(found, old)
            self.backlog -= len(logs[start : start + _AT_ONCE])

    def _remember(self, found: LogFile, old: Old) -> None:
        if old.error:
            self.unreadable[str(found.path)] = old.error
            return
        conversation = old.conversation
        row = conversation.row()
        known = self._catalog.worktree_at(row.cwd) if row.cwd else None
        if known is not None:
            row = msgspec.structs.replace(row, project=known.project, worktree=known.id)
        before = self._catalog.session(*conversation.key)
        # A sub-agent's log belongs to a session whose own log says more.
        if before is None or before.log == row.log or row.turns > before.turns:
            self._catalog.put_session(row)
        cursor = cursor_row(found.path, found.agent, conversation.session, old.cursor)
        if self._catalog.cursor(cursor.path) is None:  # else its records were counted, and are only read anew
            self._catalog.count(found.agent, old.counts)
        self._catalog.put_cursors([cursor])


def _read_all(logs: Sequence[LogFile]) -> list[Old]:
    return [_read(found) for found in logs]


def _read(found: LogFile) -> Old:
    """Reads one log to its end."""
    adapter = adapter_named(found.agent)
    reader = open_log(found.path, adapter)
    conversation = Conversation(adapter, found.session or found.path.stem, found.path)
    policy, error = Policy(), ""
    while True:
        batch = reader.read(now=0.0)
        for event in batch.events:
            conversation.observe(event, history=True, now=event.at or _LONG_AGO, policy=policy)
        if batch.status == "unreadable":
            error = batch.error
        if not batch.more or batch.status != "ok":
            return Old(conversation, reader.cursor(), counted(reader.counts), error)


def counted(counts: Counts) -> dict[str, int]:
    """A reader's counters by name, as the catalog keeps them."""
    found = {
        "records": counts.records,
        "irregular": counts.irregular.count,
        "undecodable": counts.undecodable.count,
        "oversized": counts.oversized.count,
    }
    return found | {f"unknown:{name}": sighting.count for name, sighting in counts.unknown.items()}


def cursor_row(path: Path, agent: str, session: str, cursor: Cursor) -> rows.Cursor:
    """How far a log was read, as the catalog keeps it."""
    return rows.Cursor(
        path=quote(bytes(path)),
        agent=agent,
        device=cursor.device,
        inode=cursor.inode,
        offset=cursor.offset,
        generation=cursor.generation,
        tail_hash=cursor.tail_hash,
        session=session,
        state=cursor.state,
    )
