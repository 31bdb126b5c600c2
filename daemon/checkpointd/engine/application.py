"""A restore plan being carried out on a directory tree."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from checkpointd.model.paths import quote
from checkpointd.model.restore import Directory, Keep, Plan, Step, ancestors
from checkpointd.vault.errors import StoreError
from checkpointd.vault.materialise import Blobs, Held, OpenTree, Refusal, reason

_OWNER = 0o700
_FAILURES = (OSError, Refusal, StoreError)


class Application:
    """The steps of one plan, in the order that makes them safe: `begin`, `write` for all of `plan.restore`, `verify`
    for all steps (both from several threads if wanted), `end`. What could not be done is in `failed`; others go on."""

    def __init__(
        self,
        root: Path,
        blobs: Blobs,
        plan: Plan,
        held: Mapping[bytes, Held],
        token: str,
        applied: Callable[[Iterable[bytes]], None],
    ) -> None:
        self.failed: dict[bytes, str] = {}
        self._root = root
        self._blobs = blobs
        self._plan = plan
        self._held = dict(held)
        self._token = token
        self._applied = applied
        self._make = {directory.path: directory.permissions for directory in plan.make}

    def begin(self) -> None:
        """Removes what the target does not have, and what is of another kind there."""
        plan = self._plan
        with self._open() as tree:
            self._open_directories(tree)
            removed = [step.path for step in reversed(plan.delete) if self._removed(tree, step)]
            for path in reversed(plan.remove):
                tree.remove_empty(path)
            for step in plan.restore:
                if _changes_kind(step) and self._removed(tree, step):
                    self._held[step.path] = Held(entry=None)
        self._applied(removed)

    def write(self, steps: Sequence[Step]) -> None:
        """Writes some of the plan's restored paths, sorted; directories get their final permissions in `end`."""
        with self._open() as tree:
            done = [step.path for step in steps if step.path not in self.failed and self._written(tree, step)]
        self._applied(done)

    def verify(self, steps: Sequence[Step]) -> None:
        """Compares restored paths with the target, byte for byte; directories, whose turn comes last, left out."""
        with self._open() as tree:
            for step in steps:
                if step.path in self.failed or _is_directory(step):
                    continue
                try:
                    if not self._as_wanted(tree, step):
                        self.failed[step.path] = "differs from the checkpoint after the restore"
                except _FAILURES as error:
                    self.failed[step.path] = reason(error)

    def end(self) -> None:
        """Sets the permissions of directories, the deepest first, now that nothing more is written into them."""
        closed = [directory for directory in self._plan.make if directory.permissions & _OWNER != _OWNER]
        changed = [_directory(step) for step in self._plan.restore if _is_directory(step)]
        with self._open() as tree:
            for directory in sorted((*closed, *changed), key=lambda directory: directory.path, reverse=True):
                try:
                    tree.set_permissions(directory.path, directory.permissions)
                except _FAILURES as error:
                    self.failed.setdefault(directory.path, reason(error))

    def not_done(self) -> tuple[Keep, ...]:
        """The failures, sorted."""
        return tuple(Keep(path=path, why=why) for path, why in sorted(self.failed.items()))

    def _open(self) -> OpenTree:
        return OpenTree(self._root, self._token)

    def _open_directories(self, tree: OpenTree) -> None:
        """Directories that the plan changes or removes must let their owner in while it does so."""
        for step in self._plan.restore:
            if _is_directory(step) and step.present is not None and step.present.is_directory:
                self._let_owner_in(tree, step.path)
        for path in self._plan.remove:
            self._let_owner_in(tree, path)

    def _let_owner_in(self, tree: OpenTree, path: bytes) -> None:
        try:
            seen = tree.look(path)
            if seen is not None and seen.is_directory and seen.mode & _OWNER != _OWNER:
                tree.set_permissions(path, seen.mode | _OWNER)
        except _FAILURES as error:
            self.failed[path] = reason(error)

    def _removed(self, tree: OpenTree, step: Step) -> bool:
        try:
            tree.remove(step.path, self._held[step.path])
        except _FAILURES as error:
            self.failed[step.path] = reason(error)
            return False
        return True

    def _written(self, tree: OpenTree, step: Step) -> bool:
        if step.target is None:
            return False
        try:
            tree.write(step.path, step.target, self._blobs, self._held[step.path], self._make)
        except NotADirectoryError:
            self.failed[step.path] = self._obstacle(tree, step.path)
            return False
        except _FAILURES as error:
            self.failed[step.path] = reason(error)
            return False
        return True

    def _obstacle(self, tree: OpenTree, path: bytes) -> str:
        for above in reversed(list(ancestors(path))):
            seen = tree.look(above)
            if seen is not None and not seen.is_directory:
                return f"{quote(above)} is in the way"
        return "something is in the way"

    def _as_wanted(self, tree: OpenTree, step: Step) -> bool:
        if step.target is not None:
            return tree.unchanged(step.path, Held(entry=step.target))
        seen = tree.look(step.path)
        return seen is None or (seen.is_directory and step.present is not None and not step.present.is_directory)


def _is_directory(step: Step) -> bool:
    return step.target is not None and step.target.is_directory


def _directory(step: Step) -> Directory:
    return Directory(path=step.path, permissions=step.target.permissions if step.target else _OWNER)


def _changes_kind(step: Step) -> bool:
    """Whether a directory takes the place of a file, or the other way round."""
    return (
        step.present is not None
        and step.target is not None
        and step.present.is_directory is not step.target.is_directory
    )
