"""Capturing a work tree: the first time whole, then by what changed."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path

from msgspec import structs

from checkpointd.clock import Clock
from checkpointd.config import CaptureConfig
from checkpointd.model.capture import Captured, PathChange
from checkpointd.vault import disk, repository
from checkpointd.vault import state as states
from checkpointd.vault.editing import Lookup, TreeEditor, TreeWriter
from checkpointd.vault.errors import CaptureCancelled, CaptureFailed, CaptureRefused
from checkpointd.vault.first import take_whole
from checkpointd.vault.layout import INCOMING
from checkpointd.vault.limits import Limits, ReadBudget
from checkpointd.vault.packs import remove_pack
from checkpointd.vault.passes import Pass
from checkpointd.vault.reading import Root
from checkpointd.vault.repository import Repository
from checkpointd.vault.run import GitCancelled, GitError
from checkpointd.vault.scan import (
    Looked,
    look,
    newly_tracked,
    note_sparse,
    note_unopened,
    suspects_in,
    unsteady,
)
from checkpointd.vault.state import State
from checkpointd.vault.store import Vault
from checkpointd.vault.trees import EMPTY_TREE
from checkpointd.vault.zones import PREFIX_FILE, Home, Zone, above, home_of

__all__ = ["CaptureCancelled", "CaptureFailed", "CaptureRefused", "Home", "WorkTree"]

_MOST_DIRTY = 1000  # past that git finds the changes faster than we look at each
_PACK = 64 << 20  # bytes after which a pack is closed and another begun


class WorkTree:
    """The capture state of one root. One call at a time, in a worker thread; `in_scope` from anywhere.

    Every capture is whole or raises: CaptureFailed (with the way out), CaptureCancelled, or the vault's StoreError.
    What was known before then still holds. `reread` names paths that were read too soon after they were written; the
    next capture reads them again, and somebody should ask for one soon.
    """

    def __init__(
        self,
        vault: Vault,
        root: Path,
        worktree_id: str,
        *,
        limits: CaptureConfig,
        clock: Clock,
        cancel: Callable[[], bool],
        home: Home | None = None,
    ) -> None:
        self.state: Captured | None = None
        self.reread: set[bytes] = set()
        self._vault = vault
        self._top = root
        self._folder = vault.path.parent / "worktrees" / worktree_id
        self._limits = Limits(limits)
        self._budget = ReadBudget(limits.max_read_per_day)
        self._clock = clock
        self._cancel = cancel
        self._home = home or home_of(os.environ)
        self._editor = TreeEditor(vault.read_tree)
        self._known: State | None = None
        self._device: int | None = None

    def first(self, urgent: Iterable[bytes] = ()) -> Captured:
        """Captures everything; `urgent` paths are read before the others."""
        with self._opened() as root:
            return self._first(root, urgent)

    def scan(self, urgent: Iterable[bytes] = (), *, empty: bool = False) -> Captured:
        """Finds every difference and captures it. `urgent` paths were told already: what else is found was missed.

        `empty`: an empty folder is meant to be empty, and no disk that is not mounted.
        """
        with self._opened(empty=empty) as root:
            return self._scan(root, set(urgent))

    def capture(self, dirty: Collection[bytes], *, force: Collection[bytes] = ()) -> Captured:
        """Captures what stands at the dirty paths, in a time that does not depend on the size of the work tree.

        `force` paths are taken whatever rules and limits say. Changed ignore rules, or very many paths, lead to a scan.
        """
        with self._opened() as root:
            state = self._known
            if state is not None and len(dirty) <= _MOST_DIRTY and not any(map(_changes_rules, dirty)):
                return self._capture(state, root, dirty, force)
            captured = self._scan(root, set(dirty))
            state = self._known
            if not force or state is None:
                return captured
            forced = self._capture(state, root, (), force)
            changes = _joined(captured.changes, forced.changes)
            self.state = structs.replace(captured, files=forced.files, modes=forced.modes, coverage=forced.coverage,
                                         taken_at=forced.taken_at, changes=changes)  # fmt: skip
            return self.state

    def resume(self, captured: Captured) -> None:
        """Starts from a state that the vault holds; the next scan tells what has changed since."""
        self.state = captured
        self._known = None

    def in_scope(self, path: bytes) -> bool:
        """Whether a change of this path can matter; cheap, to drop events early."""
        if b".git" in path.split(b"/"):
            return _changes_rules(path)
        known = self._known
        skip = known.ledger.skipping(path) if known is not None else None
        return skip is None or skip.reason not in ("ignored", "default-folder", "config", "nested", "over-budget")

    # Around every capture

    @contextlib.contextmanager
    def _opened(self, *, empty: bool = False) -> Iterator[Root]:
        self._refuse()
        try:
            root = Root(os.fsencode(self._top))
        except OSError as error:
            raise _vanished(self._top, os.strerror(error.errno or 0)) from error
        try:
            self._check_mounted(root, empty=empty)
            yield root
        except GitCancelled as error:
            raise CaptureCancelled from error
        except (GitError, OSError) as error:
            self._known = None  # the files beside the vault are looked through before they are used again
            hint = "It is tried again by itself; `ckpt doctor` looks for the reason."
            raise CaptureFailed(f"{self._top} was not captured: {error}", hint) from error
        finally:
            root.close()

    def _refuse(self) -> None:
        home = self._home.path
        if self._top == home or self._top in home.parents:
            raise CaptureRefused(
                f"{self._top} is a home directory or holds one: it is never captured as a whole.",
                "Work in a folder of its own below it.",
            )

    def _check_mounted(self, root: Root, *, empty: bool) -> None:
        """An empty folder in the place of a work tree is taken for a disk that is not mounted, unless it is meant."""
        info = root.info()
        if self._device is not None and self._device != info.st_dev:
            raise _vanished(self._top, "another disk is in its place")
        held = self.state is not None and self.state.files != EMPTY_TREE.hex()
        if self._known is None and held and not empty and not root.entries(b""):
            raise _vanished(self._top, "it is empty")
        self._device = info.st_dev

    def _check_there(self, root: Root) -> None:
        held = root.info()
        try:
            there = os.stat(self._top)
        except OSError as error:
            raise _vanished(self._top, os.strerror(error.errno or 0)) from error
        if (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise _vanished(self._top, "another folder took its place while it was read")

    @contextlib.contextmanager
    def _pass(self, state: State, root: Root, *, force: Collection[bytes] = ()) -> Iterator[Pass]:
        self._budget.begin(self._clock.now())
        work = Pass(
            state,
            root,
            self._top,
            self._editor,
            self._limits,
            self._vault.new_pack(),
            new_zone=self._zone,
            cancel=self._cancel,
            budget=self._budget,
            force=force,
        )
        try:
            yield work
        finally:
            work.builder.discard()

    def _zone(self, prefix: bytes, found: Repository | None) -> Zone:
        top = self._top / os.fsdecode(prefix) if prefix else self._top
        name = hashlib.sha1(prefix).hexdigest()[:16] if prefix else "root"
        zone = Zone(prefix, top, found, self._folder / name, self._home, self._cancel)
        zone.lay_out()
        return zone

    def _read(self, work: Pass, paths: Iterable[bytes]) -> None:
        for path in paths:
            work.read(path)
            if work.builder.size > _PACK:
                self._vault.write_rolling(work.builder)
                work.builder = self._vault.new_pack()

    def _take_over(self, state: State, work: Pass, tree: bytes) -> None:
        state.tree, state.ledger = tree, work.ledger
        state.zones |= work.new_zones
        state.fresh |= work.fresh
        state.note_ignore_files(work.fresh)
        self._known = state
        self.reread = work.reread | work.turned

    def _state(
        self,
        state: State,
        started: datetime,
        changes: tuple[PathChange, ...] | None,
        *,
        scanned: bool,
        missed: int = 0,
    ) -> Captured:
        now = self._clock.now()
        self.state = Captured(
            files=state.tree.hex(),
            modes=state.ledger.modes_document(),
            coverage=state.ledger.coverage(rules=self._rules(state), first_read=started, last_read=now),
            taken_at=now,
            changes=changes,
            scanned=scanned,
            missed=missed,
        )
        return self.state

    def _rules(self, state: State) -> str:
        digest = hashlib.sha1(self._limits.rules.encode("utf-8", "surrogateescape"))
        for prefix in sorted(state.zones):
            digest.update(prefix + b"\0" + state.zones[prefix].rules.encode())
        for path in sorted(state.ignore_files):
            digest.update(path + b"\0" + state.ignore_files[path])
        return digest.hexdigest()

    # The first capture

    def _first(self, root: Root, urgent: Iterable[bytes]) -> Captured:
        started = self._clock.now()
        shutil.rmtree(self._folder, ignore_errors=True)
        incoming = self._vault.path / INCOMING
        for leftover in incoming.iterdir():  # of a first capture that did not come to its end
            disk.remove(str(leftover))
        zone = self._zone(b"", repository.at(self._top))
        state = State(zone)
        with self._pass(state, root) as work:
            pack = take_whole(work, zone, root, urgent, incoming, lambda paths: self._read(work, paths))
            tree = _whole_tree(work)
            self._check_there(root)
            if pack is not None:
                self._adopt(pack)
            self._vault.write_rolling(work.builder)
            folders = _folders_of(path for path, head in work.fresh.items() if head is not None)
            work.settle(folders.__contains__)
            self._take_over(state, work, tree)
        state.write_indexes()
        return self._state(state, started, None, scanned=True)

    def _adopt(self, pack: Path) -> None:
        # The same objects make a pack of the same name: an earlier first capture may have brought it.
        if (self._vault.path / "objects" / "pack" / pack.name).exists():
            remove_pack(pack)
        else:
            self._vault.adopt_rolling(pack)

    # Known dirty paths

    def _capture(self, state: State, root: Root, dirty: Collection[bytes], force: Collection[bytes]) -> Captured:
        started = self._clock.now()
        with self._pass(state, root, force=force) as work:
            self._read(work, work.find([*dirty, *self.reread]))
            changes = self._finish(state, root, work)
        return self._state(state, started, changes, scanned=False)

    def _finish(self, state: State, root: Root, work: Pass) -> tuple[PathChange, ...]:
        """Lands what a pass found; the changes."""
        tree = self._editor.edit(state.tree, work.edits, work.builder) if work.edits else state.tree
        changes = work.changes()
        self._check_there(root)
        if tree != state.tree:
            self._vault.write_rolling(work.builder)
        work.settle(Lookup(self._editor, tree).has_folder)
        self._take_over(state, work, tree)
        return changes

    # The whole, by what git finds

    def _scan(self, root: Root, urgent: set[bytes]) -> Captured:
        resumed = self._known is None
        state = self._known or self._load()
        if state is None:
            return self._first(root, urgent)
        started = self._clock.now()
        rules = {prefix: zone.rules for prefix, zone in state.zones.items()}
        suspects = urgent | self.reread | state.fresh.keys() | self._refresh_zones(state)
        if resumed:  # the settings may be others than when these were captured
            suspects.update(path for path in state.zones[b""].index.paths() if self._limits.excluded(path))
        with self._pass(state, root) as work:
            looked = look(list(state.zones.values()))
            for found in looked:
                suspects.update(suspects_in(found, state.ledger))
                note_unopened(work.ledger, found.zone, found.others)
                self._note_tracked(state, work, root, found, suspects)
            suspects.update(unsteady(state.ledger))
            self._read(work, work.find(suspects))
            changed = any(rules.get(prefix) != zone.rules for prefix, zone in state.zones.items())
            if changed or any(map(_changes_rules, urgent | work.edits.keys())):
                work.reconsider = True
                again = {above(found.zone, name.rstrip(b"/")) for found in looked for name in found.others.names}
                self._read(work, work.find(again))
            changes = self._finish(state, root, work)
        for found in looked:
            found.zone.others, found.zone.index_stamp = found.others.names, found.stamp
        state.write_indexes()
        missed = 0 if resumed else sum(not _told(change.path, urgent) for change in changes)
        return self._state(state, started, changes, scanned=True, missed=missed)

    def _load(self) -> State | None:
        if self.state is None:
            return None
        zone = self._zone(b"", repository.at(self._top))
        return states.load(zone, self.state, self._vault, self._editor)

    def _refresh_zones(self, state: State) -> set[bytes]:
        """Looks again whether there are repositories, and which rules they have; the paths whose zone has changed."""
        moved = set(self._old_zones(state))
        for prefix, zone in list(state.zones.items()):
            found = repository.at(self._top / os.fsdecode(prefix))
            if found is None and prefix:
                state.drop_zone(prefix)
                shutil.rmtree(zone.folder, ignore_errors=True)
                moved.add(prefix)
                continue
            if found != zone.repository:
                zone.repository, zone.index_stamp = found, None
            zone.lay_out()
        return moved

    def _old_zones(self, state: State) -> Iterator[bytes]:
        """Nested zones from before a restart: they are found again, or what they held is found gone."""
        for folder in self._folder.iterdir():
            prefix = repository.read_file(folder / PREFIX_FILE, 1 << 16)
            if prefix is not None and prefix not in state.zones:
                shutil.rmtree(folder, ignore_errors=True)
                yield prefix

    def _note_tracked(self, state: State, work: Pass, root: Root, found: Looked, suspects: set[bytes]) -> None:
        """Takes in which paths the user's index has, where they are others than before."""
        if found.tracked is None:
            return
        zone = found.zone
        zone.tracked_digest = found.digest
        zone.note_tracked(entry.path for entry in found.tracked if not entry.absent)
        present, absent = newly_tracked(found, state)
        there = [path for path in absent if root.look(path).info is not None]
        work.add_tracked([*present, *there])
        suspects.update(present, there)
        out = sorted(set(absent) - set(there))
        inside = (above(zone, entry.path) for entry in found.tracked if not entry.absent)
        note_sparse(work.ledger, zone, out, inside)


def _whole_tree(work: Pass) -> bytes:
    writer = TreeWriter(work.builder.add)
    for path, leaf in work.captured():
        writer.add(path, leaf.mode, leaf.oid)
    return writer.finish()


def _folders_of(paths: Iterable[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for path in paths:
        folder = path.rpartition(b"/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition(b"/")[0]
    return found


def _changes_rules(path: bytes) -> bool:
    """Whether a change here may change which paths are ignored, or where repositories begin."""
    if states.is_ignore_file(path):
        return True
    _, found, after = (b"/" + path).partition(b"/.git")
    return bool(found) and after in (b"", b"/HEAD", b"/info/exclude")


def _told(path: bytes, urgent: set[bytes]) -> bool:
    while path:
        if path in urgent:
            return True
        path = path.rpartition(b"/")[0]
    return False


def _joined(
    before: tuple[PathChange, ...] | None, after: tuple[PathChange, ...] | None
) -> tuple[PathChange, ...] | None:
    if before is None or after is None:
        return None
    return tuple(sorted((*before, *after), key=lambda change: change.path))


def _vanished(root: Path, why: str) -> CaptureFailed:
    return CaptureFailed(
        f"{root} cannot be read: {why}. Nothing is taken for deleted.",
        "Mount its disk or put the folder back; what was captured before can be restored elsewhere with `--to`.",
    )
