"""Checkpoints in the catalog: added, found by what people type, listed."""

from typing import Any, cast

import msgspec

from checkpointd.catalog.database import Database, Value, stamp
from checkpointd.catalog.rows import CheckpointFilter, CheckpointRow
from checkpointd.model.checkpoint import Record, Status

_RECORD = msgspec.json.Decoder(Record)
_CANDIDATES = 20
_KEPT_AWAY: frozenset[Status] = frozenset({"SUPERSEDED", "CONSUMED", "PRUNED", "QUARANTINED"})
_SELECT = """
SELECT c.record, c.commit_id, c.size, c.pinned,
    (SELECT group_concat(m.status) FROM mark AS m WHERE m.checkpoint = c.id),
    c.thread IS NOT NULL AND EXISTS (
        SELECT 1 FROM checkpoint AS n WHERE n.project = c.project AND n.thread = c.thread
        AND (n.created_at, n.seq) > (c.created_at, c.seq))
FROM checkpoint AS c
"""
# A record stands for the triggers in `also` as well. SQLite reads no JSON from a BLOB.
_TRIGGER = """(c.trigger_name = ? OR EXISTS (
    SELECT 1 FROM json_each(CAST(c.record AS TEXT), '$.also') AS a WHERE a.value = ?))"""


class Checkpoints:
    """The part of the catalog that indexes what the vaults hold."""

    _database: Database

    def add_checkpoint(self, record: Record, commit: str, size: int) -> None:
        """Adds the checkpoint, or replaces the row of the same id: a rebuild may add it again."""
        session = record.session
        with self._database.batch():
            self._database.execute(
                "INSERT INTO checkpoint (id, project, worktree, seq, created_at, name, trigger_name, feature, agent,"
                " session, cause, thread, commit_id, size, record) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET project = excluded.project, worktree = excluded.worktree,"
                " seq = excluded.seq, created_at = excluded.created_at, name = excluded.name,"
                " trigger_name = excluded.trigger_name, feature = excluded.feature, agent = excluded.agent,"
                " session = excluded.session, cause = excluded.cause, thread = excluded.thread,"
                " commit_id = excluded.commit_id, size = excluded.size, record = excluded.record",
                (
                    record.id,
                    record.project.id,
                    record.project.worktree,
                    record.seq,
                    stamp(record.created_at),
                    record.name,
                    record.trigger,
                    record.feature,
                    session.agent if session else None,
                    session.id if session else None,
                    record.cause.key(),
                    _thread(record),
                    commit,
                    size,
                    msgspec.json.encode(record),
                ),
            )
            # The highest number ever given is kept apart, so that forgetting the newest does not give it out again.
            self._database.execute(
                "INSERT INTO line (worktree, seq) VALUES (?, ?)"
                " ON CONFLICT (worktree) DO UPDATE SET seq = max(seq, excluded.seq)",
                (record.project.worktree, record.seq),
            )

    def remove_checkpoint(self, checkpoint: str) -> None:
        """Forgets the row and its marks; nothing happens when there is none."""
        with self._database.batch():
            self._database.execute("DELETE FROM mark WHERE checkpoint = ?", (checkpoint,))
            self._database.execute("DELETE FROM checkpoint WHERE id = ?", (checkpoint,))

    def set_pinned(self, checkpoint: str, *, pinned: bool) -> None:
        self._database.execute("UPDATE checkpoint SET pinned = ? WHERE id = ?", (pinned, checkpoint))

    def mark(self, checkpoint: str, status: Status) -> None:
        """Notes a status that an event gave: ROLLED_BACK, CONSUMED, ARCHIVED, PRUNED or QUARANTINED."""
        self._database.execute("INSERT OR IGNORE INTO mark (checkpoint, status) VALUES (?, ?)", (checkpoint, status))

    def unmark(self, checkpoint: str, status: Status) -> None:
        self._database.execute("DELETE FROM mark WHERE checkpoint = ? AND status = ?", (checkpoint, status))

    def statuses(self, checkpoint: str) -> tuple[Status, ...]:
        """All that holds for a checkpoint; none when it is not known."""
        row = self.checkpoint(checkpoint)
        return row.statuses if row else ()

    def checkpoint(self, checkpoint: str) -> CheckpointRow | None:
        rows = self._select("WHERE c.id = ?", (checkpoint,))
        return rows[0] if rows else None

    def find(self, text: str, project: str | None = None) -> list[CheckpointRow]:
        """What `text` may mean: an id, else the one id that begins so (with or without `ckpt-`), else a name in the
        project, else a name anywhere, else all ids that begin so. More than one means ambiguous, none not found."""
        if not text:
            return []
        if exact := self.checkpoint(text):
            return [exact]
        begun = self._begun(text)
        if len(begun) == 1:
            return begun
        newest = "ORDER BY c.created_at DESC, c.seq DESC LIMIT ?"
        if project is not None and (
            named := self._select(f"WHERE c.name = ? AND c.project = ? {newest}", (text, project, _CANDIDATES))
        ):
            return named
        return self._select(f"WHERE c.name = ? {newest}", (text, _CANDIDATES)) or begun

    def _begun(self, text: str) -> list[CheckpointRow]:
        prefix = text if text.startswith("ckpt-") else f"ckpt-{text}"
        return self._select(
            "WHERE c.id >= ? AND c.id < ? ORDER BY c.created_at DESC, c.seq DESC LIMIT ?",
            (prefix, f"{prefix}\x7f", _CANDIDATES),  # ids are ASCII: all that begin so sort below this
        )

    def checkpoints(self, wanted: CheckpointFilter | None = None) -> list[CheckpointRow]:
        """The checkpoints that pass the filter, newest first."""
        where, values = _conditions(wanted or CheckpointFilter())
        return self._select(where, values)

    def by_cause(self, key: str) -> str | None:
        """The id of the checkpoint that this cause made."""
        row = self._database.one("SELECT id FROM checkpoint WHERE cause = ? ORDER BY seq LIMIT 1", (key,))
        return None if row is None else str(row[0])

    def name_taken(self, project: str, name: str) -> bool:
        """Whether a checkpoint of the project has this name."""
        statement = "SELECT 1 FROM checkpoint WHERE name = ? AND project = ? LIMIT 1"
        return self._database.one(statement, (name, project)) is not None

    def next_seq(self, worktree: str) -> int:
        """The number that the work tree's next checkpoint gets; numbers of forgotten ones are not given again."""
        row = self._database.one("SELECT seq FROM line WHERE worktree = ?", (worktree,))
        return 1 if row is None else cast("int", row[0]) + 1

    def newest(self, worktree: str, session: str | None = None) -> CheckpointRow | None:
        """The last checkpoint of the work tree's line, or of one session in it."""
        rows = self._select(
            "WHERE c.worktree = ? AND (? IS NULL OR c.session = ?) ORDER BY c.seq DESC LIMIT 1",
            (worktree, session, session),
        )
        return rows[0] if rows else None

    def nth_newest(self, worktree: str, n: int) -> CheckpointRow | None:
        """`@` is 0, `@1` is 1: counted by number in the line, not by the clock."""
        rows = self._select("WHERE c.worktree = ? ORDER BY c.seq DESC LIMIT 1 OFFSET ?", (worktree, n))
        return rows[0] if rows else None

    def checkpoint_ids(self, project: str) -> set[str]:
        """All ids that the catalog knows of a project, to compare with its vault."""
        return {str(row[0]) for row in self._database.rows("SELECT id FROM checkpoint WHERE project = ?", (project,))}

    def checkpoint_count(self, project: str | None = None) -> int:
        statement = "SELECT count(*) FROM checkpoint WHERE ? IS NULL OR project = ?"
        row = self._database.one(statement, (project, project))
        return cast("int", row[0]) if row else 0

    def session_checkpoints(self, session: str) -> int:
        """How many checkpoints a session has."""
        row = self._database.one("SELECT count(*) FROM checkpoint WHERE session = ?", (session,))
        return cast("int", row[0]) if row else 0

    def _select(self, where: str, values: tuple[Value, ...]) -> list[CheckpointRow]:
        return [_row(row) for row in self._database.rows(_SELECT + where, values)]


def _row(row: tuple[Value, ...]) -> CheckpointRow:
    record, commit, size, pinned, marks, superseded = cast("tuple[Any, ...]", row)
    return CheckpointRow(
        record=_RECORD.decode(record),
        commit=commit,
        size=size,
        pinned=bool(pinned),
        statuses=_statuses(marks.split(",") if marks else [], superseded=bool(superseded)),
    )


def _statuses(marks: list[Status], *, superseded: bool) -> tuple[Status, ...]:
    found: set[Status] = set(marks)
    if superseded:
        found.add("SUPERSEDED")
    if not found & _KEPT_AWAY:
        found.add("ACTIVE")
    return tuple(sorted(found))


def _thread(record: Record) -> str | None:
    """What a newer record must share to supersede this one: its story's stage, else its session and trigger."""
    story = record.story
    if story and story.us_id:
        return "\x1f".join(("story", story.us_id, story.iter_id or "", story.stage or ""))
    if record.session:
        return "\x1f".join(("session", record.session.agent, record.session.id, record.trigger))
    return None


def _conditions(wanted: CheckpointFilter) -> tuple[str, tuple[Value, ...]]:
    pairs: list[tuple[str, Value]] = [
        ("c.project = ?", wanted.project),
        ("c.worktree = ?", wanted.worktree),
        (_TRIGGER, wanted.trigger),
        ("c.feature = ?", wanted.feature),
        ("c.agent = ?", wanted.agent),
        ("c.created_at >= ?", stamp(wanted.since)),
        ("c.created_at <= ?", stamp(wanted.until)),
        ("substr(c.session, 1, length(?)) = ?", wanted.session),
    ]
    texts, values = [], []
    for text, value in pairs:
        if value is not None:
            texts.append(text)
            values += [value] * text.count("?")
    where = f"WHERE {' AND '.join(texts)} " if texts else ""
    # Within one work tree the number decides, so that a clock set back does not hide what is newest.
    order = "c.seq DESC" if wanted.worktree is not None else "c.created_at DESC, c.seq DESC"
    values.append(-1 if wanted.limit is None else wanted.limit)
    return f"{where}ORDER BY {order} LIMIT ?", tuple(values)
