"""Projects and their work trees in the catalog."""

from typing import Any, cast

import msgspec

from checkpointd.catalog.database import Database, Value, moment, stamp
from checkpointd.catalog.rows import Mark, ProjectRow, WorktreeRow

_PROJECT = "id, name, kind, created_at, paused, marks"
_WORKTREE = "id, project, root, gitdir, first_seen, last_seen"
_MARKS = msgspec.json.Decoder(dict[str, Mark])


class Projects:
    """The part of the catalog that knows where projects are."""

    _database: Database

    def put_project(self, row: ProjectRow) -> None:
        """Adds the project, or replaces what was known of it."""
        marks = msgspec.json.encode(row.marks).decode()
        self._database.execute(
            f"INSERT OR REPLACE INTO project ({_PROJECT}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
            (row.id, row.name, row.kind, stamp(row.created_at), row.paused, marks),
        )

    def project(self, project: str) -> ProjectRow | None:
        row = self._database.one(f"SELECT {_PROJECT} FROM project WHERE id = ?", (project,))  # noqa: S608 - constants
        return None if row is None else _project(row)

    def projects(self) -> list[ProjectRow]:
        """All projects, by name."""
        rows = self._database.rows(f"SELECT {_PROJECT} FROM project ORDER BY name, id")  # noqa: S608 - constants
        return [_project(row) for row in rows]

    def set_paused(self, project: str, *, paused: bool) -> None:
        self._database.execute("UPDATE project SET paused = ? WHERE id = ?", (paused, project))

    def remove_project(self, project: str) -> None:
        """Removes the project and its work trees; checkpoints are removed one by one."""
        with self._database.batch():
            self._database.execute("DELETE FROM worktree WHERE project = ?", (project,))
            self._database.execute("DELETE FROM project WHERE id = ?", (project,))

    def put_worktree(self, row: WorktreeRow) -> None:
        """Adds the work tree, or replaces what was known of it."""
        self._database.execute(
            f"INSERT OR REPLACE INTO worktree ({_WORKTREE}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - constants
            (row.id, row.project, row.root, row.gitdir, stamp(row.first_seen), stamp(row.last_seen)),
        )

    def worktree(self, worktree: str) -> WorktreeRow | None:
        row = self._database.one(f"SELECT {_WORKTREE} FROM worktree WHERE id = ?", (worktree,))  # noqa: S608 - constants
        return None if row is None else _worktree(row)

    def worktrees(self, project: str | None = None) -> list[WorktreeRow]:
        """The work trees of one project, or of all."""
        statement = f"SELECT {_WORKTREE} FROM worktree WHERE ? IS NULL OR project = ? ORDER BY first_seen, id"  # noqa: S608 - constants
        return [_worktree(row) for row in self._database.rows(statement, (project, project))]

    def worktree_at(self, root: str) -> WorktreeRow | None:
        """The work tree seen last at this path."""
        statement = f"SELECT {_WORKTREE} FROM worktree WHERE root = ? ORDER BY last_seen DESC LIMIT 1"  # noqa: S608 - constants
        row = self._database.one(statement, (root,))
        return None if row is None else _worktree(row)


def _project(row: tuple[Value, ...]) -> ProjectRow:
    identity, name, kind, created_at, paused, marks = cast("tuple[Any, ...]", row)
    return ProjectRow(
        id=identity,
        name=name,
        kind=kind,
        created_at=cast("Any", moment(created_at)),
        paused=bool(paused),
        marks=_MARKS.decode(marks),
    )


def _worktree(row: tuple[Value, ...]) -> WorktreeRow:
    identity, project, root, gitdir, first_seen, last_seen = cast("tuple[Any, ...]", row)
    return WorktreeRow(
        id=identity,
        project=project,
        root=root,
        gitdir=gitdir,
        first_seen=cast("Any", moment(first_seen)),
        last_seen=cast("Any", moment(last_seen)),
    )
