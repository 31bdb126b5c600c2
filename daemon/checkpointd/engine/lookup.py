"""Finding what a client means: a project, a checkpoint, a session, a turn."""

import os
import re
from pathlib import Path

from checkpointd.catalog.catalog import Catalog
from checkpointd.catalog.rows import CheckpointFilter, CheckpointRow, ProjectRow, SessionRow, WorktreeRow
from checkpointd.engine.errors import Ambiguous, NotFound
from checkpointd.engine.protection import path_of
from checkpointd.engine.requests import Asker, Scope

_NEWEST = re.compile(r"@(\d*)")
_TURN = re.compile(r"(.+):(\d+)")
_SHOWN = 5


class Lookup:
    """Answers from the catalog alone."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def worktree(self, scope: Scope) -> WorktreeRow | None:
        """The work tree that holds the scope's directory: the innermost known root; of a named project the newest."""
        if scope.project is not None:
            project = self.project(scope)
            trees = self._catalog.worktrees(project.id) if project is not None else []
            return max(trees, key=lambda row: row.last_seen, default=None)
        cwd = Path(os.fsdecode(scope.cwd))
        try:
            cwd = cwd.resolve()
        except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
            return None
        found: WorktreeRow | None = None
        depth = -1
        for row in self._catalog.worktrees():
            root = path_of(row.root)
            if (root == cwd or root in cwd.parents) and len(root.parts) >= depth:
                if found is not None and len(root.parts) == depth and row.last_seen < found.last_seen:
                    continue
                found, depth = row, len(root.parts)
        return found

    def project(self, scope: Scope) -> ProjectRow | None:
        """The project that the scope means; None for all, or where the directory belongs to none.

        Raises NotFound or Ambiguous for a project that is named.
        """
        if scope.all:
            return None
        if scope.project is None:
            row = self.worktree(scope)
            return self._catalog.project(row.project) if row is not None else None
        return self._named(scope.project)

    def _named(self, text: str) -> ProjectRow:
        projects = self._catalog.projects()
        exact = [p for p in projects if text in (p.id, p.name)]
        if not exact:
            rooted = {row.project for row in self._catalog.worktrees() if row.root == text.rstrip("/")}
            exact = [p for p in projects if p.id in rooted or (text and p.id.startswith(text))]
        if not exact:
            raise NotFound(f"There is no project {text}.", hint="`ckpt projects` shows them.")
        if len(exact) > 1:
            names = ", ".join(f"{p.id} ({p.name})" for p in exact[:_SHOWN])
            raise Ambiguous(f"{text} names {len(exact)} projects.", hint=f"Give an id: {names}")
        return exact[0]

    def required_project(self, scope: Scope) -> ProjectRow:
        """The project that the scope means. Raises NotFound where there is none."""
        project = self.project(scope)
        if project is None:
            where = os.fsdecode(scope.cwd)
            raise NotFound(f"There are no checkpoints of {where}.", hint="`ckpt save` makes the first one here.")
        return project

    def checkpoint(self, scope: Scope, text: str) -> CheckpointRow:
        """The checkpoint that `text` names. Raises NotFound or Ambiguous."""
        if text.startswith("@"):
            return self._relative(scope, text)
        if (match := _TURN.fullmatch(text)) is not None:
            return self._turn(match[1], int(match[2]))
        project = self.project(scope)
        found = self._catalog.find(text, project.id if project is not None else None)
        if not found:
            raise NotFound(
                f"There is no checkpoint {text}.", hint="`ckpt list` shows them, `ckpt list --all` everywhere."
            )
        if len(found) > 1:
            ids = ", ".join(row.record.id for row in found[:_SHOWN])
            raise Ambiguous(f"{text} names {len(found)} checkpoints.", hint=f"Give more of the id: {ids}")
        return found[0]

    def _relative(self, scope: Scope, text: str) -> CheckpointRow:
        row = self.worktree(scope)
        if row is None:
            raise NotFound(
                f"There are no checkpoints here for {text}.", hint="`ckpt list --all` shows those of all projects."
            )
        if text == "@session-start":
            return self._session_start(row)
        match = _NEWEST.fullmatch(text)
        if match is None:
            raise NotFound(
                f"{text} is not a name for a checkpoint.", hint="`@`, `@1`, `@session-start`, an id or a name."
            )
        found = self._catalog.nth_newest(row.id, int(match[1] or 0))
        if found is None:
            count = len(self._catalog.checkpoints(CheckpointFilter(worktree=row.id)))
            raise NotFound(
                f"There is no {text}: this work tree has {count} checkpoints.", hint="`ckpt list` shows them."
            )
        return found

    def _session_start(self, row: WorktreeRow) -> CheckpointRow:
        newest = next(
            (r for r in self._catalog.checkpoints(CheckpointFilter(worktree=row.id)) if r.record.session), None
        )
        if newest is None or newest.record.session is None:
            raise NotFound("No session has worked here yet.", hint="`ckpt list` shows the checkpoints made by hand.")
        of_session = self._catalog.checkpoints(CheckpointFilter(worktree=row.id, session=newest.record.session.id))
        return of_session[-1]

    def _turn(self, session: str, turn: int) -> CheckpointRow:
        row = self.session(session)
        found = [r for r in self._catalog.checkpoints(CheckpointFilter(session=row.id)) if r.record.turn == turn]
        if not found:
            raise NotFound(
                f"No checkpoint is of turn {turn} of session {row.id}.", hint=f"`ckpt list --session {row.id}`"
            )
        return found[0]

    def session(self, text: str) -> SessionRow:
        """The session of that id or unique prefix. Raises NotFound or Ambiguous."""
        found = self._catalog.find_session(text)
        if not found:
            raise NotFound(f"There is no session {text}.", hint="`ckpt sessions` shows them.")
        if len(found) > 1:
            ids = ", ".join(row.id for row in found[:_SHOWN])
            raise Ambiguous(f"{text} names {len(found)} sessions.", hint=f"Give more of the id: {ids}")
        return found[0]

    def asked_from(self, asker: Asker) -> SessionRow | None:
        """The session whose agent asks, where its environment named it."""
        if asker.session is None:
            return None
        found = self._catalog.find_session(asker.session)
        return found[0] if len(found) == 1 else None
