"""Sessions and log cursors in the catalog."""

import os
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from checkpointd.catalog.database import Database, Value, stamp
from checkpointd.catalog.rows import Cursor, SessionFilter, SessionRow
from checkpointd.model.paths import quote, unquote

_ROW = msgspec.json.Decoder(SessionRow)
_CANDIDATES = 20
_CURSOR = "path, agent, device, inode, offset, generation, tail_hash, session, state"


class Sessions:
    """The part of the catalog that knows the agents' conversations and how far each log was read."""

    _database: Database

    def put_session(self, row: SessionRow) -> None:
        """Adds the session, or replaces what was known of it."""
        self._database.execute(
            "INSERT OR REPLACE INTO session (agent, id, project, worktree, state, last_at, log, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.agent,
                row.id,
                row.project,
                row.worktree,
                row.state,
                stamp(row.last_at),
                row.log,
                msgspec.json.encode(row),
            ),
        )

    def session(self, agent: str, identity: str) -> SessionRow | None:
        rows = self._sessions("WHERE agent = ? AND id = ?", (agent, identity))
        return rows[0] if rows else None

    def find_session(self, text: str) -> list[SessionRow]:
        """The session of this id, else all whose id begins so; more than one means ambiguous."""
        if not text:
            return []
        exact = self._sessions("WHERE id = ?", (text,))
        return exact or self._sessions(
            "WHERE substr(id, 1, length(?)) = ? ORDER BY last_at DESC LIMIT ?", (text, text, _CANDIDATES)
        )

    def session_of_log(self, log: str) -> SessionRow | None:
        """The session written last into this log."""
        rows = self._sessions("WHERE log = ? ORDER BY last_at DESC LIMIT 1", (log,))
        return rows[0] if rows else None

    def sessions(self, wanted: SessionFilter | None = None) -> list[SessionRow]:
        """The sessions that pass the filter, the one active last first."""
        where, values = _conditions(wanted or SessionFilter())
        return self._sessions(where, values)

    def session_count(self) -> int:
        row = self._database.one("SELECT count(*) FROM session")
        return cast("int", row[0]) if row else 0

    def session_counts(self) -> dict[str, int]:
        """How many sessions each agent has."""
        rows = self._database.rows("SELECT agent, count(*) FROM session GROUP BY agent")
        return dict(cast("list[tuple[str, int]]", rows))

    def remove_session(self, agent: str, identity: str) -> None:
        self._database.execute("DELETE FROM session WHERE agent = ? AND id = ?", (agent, identity))

    def _sessions(self, where: str, values: tuple[Value, ...]) -> list[SessionRow]:
        rows = self._database.rows(f"SELECT body FROM session {where}", values)  # noqa: S608 - constants
        return [_ROW.decode(cast("bytes", body)) for (body,) in rows]

    def put_cursor(self, cursor: Cursor) -> None:
        """Remembers how far a log was read; many at once belong into `batch`."""
        self._database.execute(
            f"INSERT OR REPLACE INTO log_cursor ({_CURSOR}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
            (
                _spelled(cursor.path),
                cursor.agent,
                _signed(cursor.device),
                _signed(cursor.inode),
                cursor.offset,
                cursor.generation,
                cursor.tail_hash,
                cursor.session,
                cursor.state,
            ),
        )

    def put_cursors(self, cursors: Iterable[Cursor]) -> None:
        """Remembers many cursors in one transaction."""
        with self._database.batch():
            for cursor in cursors:
                self.put_cursor(cursor)

    def cursor(self, path: str) -> Cursor | None:
        row = self._database.one(f"SELECT {_CURSOR} FROM log_cursor WHERE path = ?", (_spelled(path),))  # noqa: S608 - constants
        return None if row is None else _cursor(row)

    def cursors(self) -> list[Cursor]:
        """All cursors; read once, at the start."""
        return [_cursor(row) for row in self._database.rows(f"SELECT {_CURSOR} FROM log_cursor")]  # noqa: S608 - constants

    def remove_cursor(self, path: str) -> None:
        self._database.execute("DELETE FROM log_cursor WHERE path = ?", (_spelled(path),))


def _conditions(wanted: SessionFilter) -> tuple[str, tuple[Value, ...]]:
    texts: list[str] = []
    values: list[Value] = []
    for text, value in (
        ("project = ?", wanted.project),
        ("worktree = ?", wanted.worktree),
        ("agent = ?", wanted.agent),
        ("last_at >= ?", stamp(wanted.since)),
    ):
        if value is not None:
            texts.append(text)
            values.append(value)
    if wanted.states is not None:
        texts.append(f"state IN ({', '.join('?' * len(wanted.states))})")
        values += wanted.states
    values.append(-1 if wanted.limit is None else wanted.limit)
    where = f"WHERE {' AND '.join(texts)} " if texts else ""
    return f"{where}ORDER BY last_at DESC, id LIMIT ?", tuple(values)


def _cursor(row: tuple[Value, ...]) -> Cursor:
    path, agent, device, inode, offset, generation, tail_hash, session, state = cast("tuple[Any, ...]", row)
    return Cursor(
        path=os.fsdecode(unquote(path)),
        agent=agent,
        device=device % _WORD,
        inode=inode % _WORD,
        offset=offset,
        generation=generation,
        tail_hash=tail_hash,
        session=session,
        state=state,
    )


def _spelled(path: str) -> str:
    """SQLite's text is UTF-8; a path of the file system need not be."""
    return quote(os.fsencode(path))


_WORD = 1 << 64


def _signed(number: int) -> int:
    """Device and inode numbers have 64 bits without a sign; SQLite's integers have one."""
    return number - _WORD if number >= _WORD >> 1 else number
