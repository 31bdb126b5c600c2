"""One pass of a capture: paths that may have changed in, edits of the tree and of the account out."""

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from checkpointd.model.capture import ChangeKind, PathChange, SkipReason
from checkpointd.vault import repository
from checkpointd.vault.editing import Leaf, Lookup, TreeEditor
from checkpointd.vault.errors import CaptureCancelled
from checkpointd.vault.ignoring import surely_kept
from checkpointd.vault.index import Entry, Head, head_of, pack_entry, unpack_entry
from checkpointd.vault.limits import Limits, ReadBudget
from checkpointd.vault.objects import MODE_SYMLINK, forbidden_name
from checkpointd.vault.packs import PackBuilder
from checkpointd.vault.reading import Gone, Known, NotTaken, Root, Taken
from checkpointd.vault.state import State
from checkpointd.vault.walking import Top, Walker
from checkpointd.vault.zones import Zone, above, below

MODE_GITLINK = 0o160000
_NO_LIMIT = 1 << 62
_WORTH_ASKING = 100  # new files; more are asked about faster than their rules are read
_SETTLED = ("ignored", "default-folder", "config", "secret")  # only other rules or another index make a difference


class Pass:
    """Works on copies; `State` is as before until somebody takes the results over."""

    def __init__(
        self,
        state: State,
        root: Root,
        base: Path,
        editor: TreeEditor,
        limits: Limits,
        builder: PackBuilder,
        *,
        new_zone: Callable[[bytes, repository.Repository], Zone],
        cancel: Callable[[], bool],
        budget: ReadBudget,
        known: Known = lambda _: False,
        force: Collection[bytes] = (),
        reconsider: bool = False,
    ) -> None:
        self.edits: dict[bytes, Leaf | None] = {}  # against the last capture; of a first one `fresh` says it all
        self.fresh: dict[bytes, Head | None] = {}
        self.ledger = state.ledger.copy()
        self.reread: set[bytes] = set()
        self.turned: set[bytes] = set()  # folders where files were to be read
        self.new_zones: dict[bytes, Zone] = {}
        self.tracked: set[bytes] = set()  # known to be in a user's index
        self.builder = builder
        self.reconsider = reconsider  # rules have changed: what was left out is asked about again
        self._state = state
        self._root = root
        self._base = base
        self._editor = editor
        self._before = Lookup(editor, state.tree) if state.tree else None
        self._limits = limits
        self._new_zone = new_zone
        self._cancel = cancel
        self._budget = budget
        self.known = known
        self._force = frozenset(force)
        self._tracked_folders: set[bytes] = set()
        self._placed: set[bytes] = set()
        self._candidates: list[bytes] = []
        self._folders: set[bytes] = set()
        self._wanted: set[bytes] = set()
        self._gone: set[bytes] = set()
        self._visited: set[bytes] = set()

    def check(self) -> None:
        """Raises CaptureCancelled when nobody wants the capture any more."""
        if self._cancel():
            raise CaptureCancelled

    # Where paths belong

    def zone_of(self, path: bytes) -> Zone:
        """The innermost zone that holds a path (the top of a nested one belongs to it)."""
        return next(self._zones_around(path))

    def _zones_around(self, path: bytes) -> Iterator[Zone]:
        zones = self._state.zones
        if len(zones) > 1 or self.new_zones:
            folder = path
            while folder:
                zone = self.new_zones.get(folder) or zones.get(folder)
                if zone is not None:
                    yield zone
                folder = folder.rpartition(b"/")[0]
        yield zones[b""]

    def entry(self, path: bytes) -> Entry | None:
        """What was captured at a path, and from which stat data."""
        for fresh in (self.fresh, self._state.fresh):
            if path in fresh:
                head = fresh[path]
                return None if head is None else unpack_entry(head)
        if not self._state.tree:
            return None
        for zone in self._zones_around(path):
            found = zone.index.find(below(zone, path))
            if found is not None:
                return found
        return None

    def leaf(self, path: bytes) -> Leaf | None:
        """What the last capture's tree holds."""
        return self._before.find(path) if self._before is not None else None

    def _kept(self, path: bytes, folder: bool) -> bool:
        if path in (self._tracked_folders if folder else self.tracked):
            return True
        leaf = self.leaf(path)
        return leaf is not None and leaf.is_tree == folder

    def add_tracked(self, paths: Iterable[bytes]) -> None:
        """Notes paths that are in a user's index."""
        for path in paths:
            self.tracked.add(path)
            folder = path.rpartition(b"/")[0]
            while folder and folder not in self._tracked_folders:
                self._tracked_folders.add(folder)
                folder = folder.rpartition(b"/")[0]

    # Sorting what may have changed

    def find(self, paths: Iterable[bytes]) -> list[bytes]:
        """Looks at what now stands at these paths (files, folders, nothing); the files that are to be read, sorted."""
        self._placed, self._candidates, self._folders, self._wanted = set(), [], set(), set()
        for path in sorted(set(paths) | self._force):
            self.check()
            self._place(path)
        self._admit(self._candidates)
        self._walk_folders()
        return sorted(self._wanted)

    def read(self, path: bytes) -> None:
        """Reads a file that `find` named."""
        self.check()
        leaf, entry = self.leaf(path), self.entry(path)
        try:
            if self._limits.excluded(path) and not self._is_forced(path):
                raise NotTaken("config")
            if leaf is not None and entry is not None and self._is_unchanged(path, leaf, entry):
                return
            taken = self._take(path, leaf, entry)
        except Gone:
            self._drop(path, leaf)
            if self._is_folder(path):
                self.turned.add(path)
        except NotTaken as error:
            self._drop(path, leaf)
            self.ledger.skip(path, error.reason, error.detail)
        else:
            self._put(path, taken, leaf, entry)

    def _is_folder(self, path: bytes) -> bool:
        try:
            place = self._root.look(path)
        except PermissionError:
            return False
        return place.path == path and place.info is not None and stat.S_ISDIR(place.info.st_mode)

    def captured(self) -> Iterator[tuple[bytes, Leaf]]:
        """What was read, sorted by path."""
        for path in sorted(self.fresh):
            head = self.fresh[path]
            if head is not None:
                entry = unpack_entry(head)
                yield path, Leaf(entry.mode, entry.oid)

    def changes(self) -> tuple[PathChange, ...]:
        """What differs from the last capture, sorted."""
        found = []
        for path, leaf in sorted(self.edits.items()):
            old = self.leaf(path)
            if old is not None and old.is_tree:
                old = None
            if old == leaf:
                continue
            change: ChangeKind = "delete" if leaf is None else "add" if old is None else "modify"
            found.append(PathChange(path=path, change=change))
        return tuple(found)

    def _place(self, path: bytes) -> None:
        if b".git" in path.split(b"/"):
            return
        skip = self.ledger.skipping(path)
        forced = path in self._force
        if skip is not None and skip.path != path and not forced and not self.reconsider:
            return
        try:
            place = self._root.look(path)
        except PermissionError as error:
            self._close_off(path, os.strerror(error.errno or 0))
            return
        path, info = place
        if path in self._placed:
            return
        self._placed.add(path)
        if info is None:
            self._vanish(path)
        elif stat.S_ISDIR(info.st_mode):
            self._folders.add(path)
        elif not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
            self._vanish(path)
            self.ledger.skip(path, "special")
        elif forced or path in self.tracked:
            self._replace_folder(path)
            self._wanted.add(path)
        else:
            self._place_file(path, skip.reason if skip is not None and not skip.folder else None)

    def _place_file(self, path: bytes, skipped: SkipReason | None) -> None:
        leaf = self.leaf(path)
        if leaf is not None and not leaf.is_tree:
            self._wanted.add(path)
        elif skipped not in _SETTLED or self.reconsider:
            self._replace_folder(path)
            top = self._highest_new(path)
            if top == path:
                self._candidates.append(path)
            else:
                self._folders.add(top)

    def _replace_folder(self, path: bytes) -> None:
        """A file stands where a folder was."""
        leaf = self.leaf(path)
        if leaf is not None and leaf.is_tree:
            self._vanish(path)
        else:
            self.ledger.forget_below(path)

    def _highest_new(self, path: bytes) -> bytes:
        """The highest folder above a path that holds nothing captured or tracked; else the path itself."""
        end = path.find(b"/")
        while end > 0:
            folder = path[:end]
            leaf = self.leaf(folder)
            if (leaf is None or not leaf.is_tree) and folder not in self._tracked_folders:
                return folder
            end = path.find(b"/", end + 1)
        return path

    def _vanish(self, path: bytes) -> None:
        """Nothing is at or below a path any more."""
        self._gone.add(path)
        self._remove_below(path)
        self.ledger.forget_below(path)

    def _remove_below(self, path: bytes) -> None:
        if self._state.tree:
            for found, _ in list(self._editor.files(self._state.tree, path)):
                self._remove(found)

    def _close_off(self, path: bytes, why: str) -> None:
        """The folder above a path cannot be entered: what is in it is not known any more."""
        folder = path.rpartition(b"/")[0] or path
        self._remove_below(folder)
        self.ledger.forget_below(folder)
        self.ledger.skip(folder, "unreadable", why, folder=True)

    # Rules

    def _admit(self, paths: list[bytes]) -> None:
        """Decides about new files in folders that are captured."""
        by_zone: dict[bytes, list[bytes]] = {}
        for path in paths:
            by_zone.setdefault(self.zone_of(path).prefix, []).append(path)
        for prefix, found in by_zone.items():
            zone = self.new_zones.get(prefix) or self._state.zones[prefix]
            asked = [below(zone, path) for path in self._unclear(zone, found)]
            ignored = {above(zone, path) for path in zone.ignored(asked)}
            self._choose(zone, {path: self._objection(path, ignored=path in ignored) for path in found})
            self._trim(zone, found)

    def _unclear(self, zone: Zone, paths: list[bytes]) -> list[bytes]:
        """Those of the paths that git has to be asked about. A child costs more than all the rest of a capture."""
        if len(paths) > _WORTH_ASKING:
            return paths
        return [path for path in paths if not self._surely_kept(zone, path)]

    def _surely_kept(self, zone: Zone, path: bytes) -> bool:
        rules = list(zone.everywhere)
        folder = path.rpartition(b"/")[0]
        while len(folder) >= len(zone.prefix):
            found = self._root.rules(folder)
            if found is None:
                return False
            rules.append(found)
            if folder == zone.prefix:
                break
            folder = folder.rpartition(b"/")[0]
        return surely_kept(below(zone, path), rules)

    def _trim(self, zone: Zone, paths: list[bytes]) -> None:
        """Leaves out new files of untracked folders that hold enough."""
        rooms: dict[bytes, int] = {}
        for path in paths:
            folder = path.rpartition(b"/")[0]
            if not folder or path not in self._wanted or path in self.tracked:
                continue
            if folder not in rooms:
                rooms[folder] = self._room(zone, folder)
            rooms[folder] -= 1
            if rooms[folder] < 0:
                self._wanted.discard(path)
                self._leave_out(path, "over-budget", f"more than {self._limits.config.max_folder_files} files")

    def _objection(self, path: bytes, *, ignored: bool, folder: bool = False) -> SkipReason | None:
        above_it, _, name = path.rpartition(b"/")
        if forbidden_name(name):
            return "name"
        if self._limits.excluded(path):
            return "config"
        if self._limits.default_folder(path if folder else above_it) is not None and not self._limits.included(path):
            return "default-folder"
        if ignored and not self._limits.included(path):
            return "ignored"
        return "secret" if self._limits.secret(path) else None

    def _choose(self, zone: Zone, objections: dict[bytes, SkipReason | None]) -> None:
        """Wants what nothing speaks against, or what is tracked; leaves the rest out."""
        doubtful = [path for path, reason in objections.items() if reason not in (None, "name", "config")]
        tracked = {path for path in doubtful if path in self.tracked}
        asked = [below(zone, path) for path in doubtful if path not in tracked]
        tracked |= {above(zone, path) for path in zone.tracked_of(asked)}
        self.tracked |= tracked
        for path, reason in objections.items():
            if reason is None or path in tracked:
                self._wanted.add(path)
            else:
                self._leave_out(path, reason)

    def _leave_out(self, path: bytes, reason: SkipReason, detail: str = "") -> None:
        if path in self.ledger.empty:
            self.ledger.drop_empty((path,))
        self.ledger.skip(path, reason, detail)

    # Folders

    def _walk_folders(self) -> None:
        pending = _outermost(self._folders)
        while pending:
            by_zone: dict[bytes, list[bytes]] = {}
            for path in self._open_folders(pending):
                by_zone.setdefault(self.zone_of(path).prefix, []).append(path)
            pending = []
            for prefix, tops in by_zone.items():
                zone = self.new_zones.get(prefix) or self._state.zones[prefix]
                pending += self._walk(zone, tops)

    def _open_folders(self, folders: Iterable[bytes]) -> Iterator[bytes]:
        """Those of the folders that no rule leaves out as a whole."""
        plain = [path for path in folders if path not in self._state.zones and path not in self.new_zones]
        asked = [path for path in plain if not self._kept(path, True) and not self._is_forced(path)]
        closed: dict[bytes, SkipReason] = {}
        by_zone: dict[bytes, list[bytes]] = {}
        for path in asked:
            by_zone.setdefault(self.zone_of(path).prefix, []).append(path)
        for prefix, found in by_zone.items():
            zone = self.new_zones.get(prefix) or self._state.zones[prefix]
            ignored = {above(zone, path) for path in zone.ignored([below(zone, path) for path in found])}
            for path in found:
                reason = self._objection(path, ignored=path in ignored, folder=True)
                if reason is not None and reason != "secret":
                    closed[path] = reason
        for path in folders:
            if path in closed:
                self._close(path, closed[path])
            else:
                yield path

    def _close(self, path: bytes, reason: SkipReason) -> None:
        if (leaf := self.leaf(path)) is not None and not leaf.is_tree:
            self._remove(path)
        self.ledger.forget_below(path)
        nested = reason == "ignored" and repository.at(self._base / os.fsdecode(path)) is not None
        self.ledger.skip(path, "nested" if nested else reason, "an ignored repository" if nested else "", folder=True)

    def _is_forced(self, path: bytes) -> bool:
        return bool(self._force) and any(path == top or path.startswith(top + b"/") for top in self._force)

    def _walk(self, zone: Zone, tops: list[bytes]) -> list[bytes]:
        """Walks folders of one zone; the nested repositories in them, which are to be walked next."""
        before: set[bytes] = set()
        for top in tops:
            if (leaf := self.leaf(top)) is not None and not leaf.is_tree:
                self._remove(top)
            elif self._state.tree:
                before.update(path for path, _ in self._editor.files(self._state.tree, top))
            self.ledger.forget_below(top)
        walker = Walker(self._root, self._base, self.ledger, self._limits, self._kept, self.check)
        forced = [top for top in tops if self._is_forced(top)]
        ruled = [top for top in tops if top not in forced]
        walked = [walker.walk(zone, [Top(top, self._room(zone, top)) for top in ruled])]
        walked.append(walker.walk(zone, [Top(top, _NO_LIMIT) for top in forced], force=True))
        found: set[bytes] = set()
        nested: list[bytes] = []
        for part in walked:
            nested += part.nested
            self._visited.update(part.folders)
            found.update(part.kept)
            self._wanted.update(part.kept)
        for files in walked[1].new.values():
            self._wanted.update(files)
        for top, files in walked[0].new.items():
            found.update(files)
            if self._fits(zone, top, files):
                self._choose(zone, {path: "secret" if self._limits.secret(path) else None for path in files})
            else:
                self._leave_out_all(walker, top, files)
        inside = [path for path in nested if self._enter(zone, path)]
        for path in before - found - self._wanted:
            if not any(path.startswith(top + b"/") for top in inside):
                self._remove(path)
        return inside

    def _room(self, zone: Zone, top: bytes) -> int:
        config = self._limits.config
        if not zone.tracked_folders and not self._tracked_folders:
            return max(0, config.max_tree_files - self.ledger.captured)
        budget = self._budget_folder(zone, top)
        if budget is None:
            return config.max_tree_files
        fresh = sum(head is not None and path.startswith(budget + b"/") for path, head in self._all_fresh())
        return max(0, config.max_folder_files - zone.index.count_below(below(zone, budget)) - fresh)

    def _all_fresh(self) -> Iterator[tuple[bytes, Head | None]]:
        yield from self._state.fresh.items()
        yield from self.fresh.items()

    def _budget_folder(self, zone: Zone, top: bytes) -> bytes | None:
        """The highest folder at or above `top` that holds nothing tracked; None where there is none."""
        end = len(zone.prefix) if zone.prefix else -1
        while (end := top.find(b"/", end + 1)) > 0:
            if not self._is_tracked_folder(zone, top[:end]):
                return top[:end]
        return None if self._is_tracked_folder(zone, top) else top

    def _is_tracked_folder(self, zone: Zone, path: bytes) -> bool:
        return path in self._tracked_folders or below(zone, path) in zone.tracked_folders

    def _fits(self, zone: Zone, top: bytes, files: list[bytes]) -> bool:
        """Whether new files of an untracked folder stay within its budget of bytes."""
        if not (zone.tracked_folders or self._tracked_folders) or self._budget_folder(zone, top) is None:
            return True
        size, limit = 0, self._limits.config.max_folder_bytes
        for path in files:
            self.check()
            try:
                info = self._root.look(path).info
            except PermissionError:
                continue
            # A file that is too large by itself is left out by itself.
            if info is not None and info.st_size <= self._limits.largest(tracked=False):
                size += info.st_size
        return size <= limit

    def _leave_out_all(self, walker: Walker, top: bytes, files: list[bytes]) -> None:
        detail = f"more than {self._limits.config.max_folder_bytes} bytes"
        if self._kept(top, True):
            walker.leave_out(top, files, detail)
        else:
            self.ledger.forget_below(top)
            self.ledger.skip(top, "over-budget", detail, folder=True)

    def _enter(self, zone: Zone, path: bytes) -> bool:
        """Makes a nested repository a zone; whether it is part of the capture."""
        found = repository.at(self._base / os.fsdecode(path))
        if found is None:
            return False
        commons = [around.repository.common_dir for around in self._zones_around(path) if around.repository is not None]
        if found.common_dir in commons and path not in self._state.zones:
            self._remove_below(path)
            self.ledger.skip(path, "nested", "a work tree of the same repository", folder=True)
            return False
        if path not in self._state.zones and path not in self.new_zones:
            nested = self._new_zone(path, found)
            self.new_zones[path] = nested
            tracked = [entry.path for entry in nested.tracked() if entry.mode != MODE_GITLINK]
            nested.note_tracked(tracked)
            self.add_tracked(path + b"/" + name for name in tracked)
        return True

    # Files

    def _remove(self, path: bytes) -> None:
        self.edits[path] = None
        entry = self.entry(path)
        if entry is not None:
            self.ledger.captured -= 1
            self.ledger.size -= entry.size
        self.fresh[path] = None
        self.ledger.unskip(path)
        self.ledger.set_mode(path, None)
        self._gone.add(path)

    def _drop(self, path: bytes, leaf: Leaf | None) -> None:
        self._gone.add(path)
        self.ledger.unskip(path)
        if leaf is not None and not leaf.is_tree:
            self._remove(path)

    def _is_unchanged(self, path: bytes, leaf: Leaf, entry: Entry) -> bool:
        try:
            info = self._root.look(path).info
        except PermissionError as error:
            raise NotTaken("unreadable", os.strerror(error.errno or 0)) from error
        if info is None or not entry.matches(info) or leaf != (entry.mode, entry.oid):
            return False
        if self.zone_of(path).prefix in self.new_zones:
            self.fresh[path] = pack_entry(entry)
        self._note_mode(path, entry.mode, info)
        return True

    def _take(self, path: bytes, leaf: Leaf | None, entry: Entry | None) -> Taken:
        def known(oid: bytes) -> bool:
            return (leaf is not None and leaf.oid == oid) or self.known(oid)

        if self._is_forced(path):
            return self._root.take(path, self.builder, known, _NO_LIMIT)
        self._check_budgets(path, new=entry is None)
        if path in self.tracked:
            return self._root.take(path, self.builder, known, self._limits.largest(tracked=True))
        try:
            return self._root.take(path, self.builder, known, self._limits.largest(tracked=False))
        except NotTaken as error:
            zone = self.zone_of(path)
            if error.reason != "too-large" or not zone.tracked_of([below(zone, path)]):
                raise
        return self._root.take(path, self.builder, known, self._limits.largest(tracked=True))

    def _check_budgets(self, path: bytes, *, new: bool) -> None:
        config = self._limits.config
        if new and path not in self.tracked:
            if self.ledger.captured >= config.max_tree_files:
                raise NotTaken("over-budget", f"the work tree has more than {config.max_tree_files} files")
            if self.ledger.size >= config.max_tree_bytes:
                raise NotTaken("over-budget", f"the work tree has more than {config.max_tree_bytes} bytes")
        if self._budget.exhausted:
            info = self._root.look(path).info
            if info is not None and info.st_size > ReadBudget.SMALL:
                raise NotTaken("over-budget", f"{config.max_read_per_day} bytes were read today")

    def _put(self, path: bytes, taken: Taken, leaf: Leaf | None, entry: Entry | None) -> None:
        if forbidden_name(path.rpartition(b"/")[2], taken.mode):
            self._drop(path, leaf)
            self.ledger.skip(path, "name")
            return
        self._budget.add(taken.size)
        new = Leaf(taken.mode, taken.oid)
        if leaf != new and self._state.tree:
            self.edits[path] = new
        self.ledger.captured += entry is None
        self.ledger.size += taken.size - (entry.size if entry is not None else 0)
        read_ns = taken.started_ns if taken.proved else 0
        self.fresh[path] = head_of(taken.oid, taken.mode, taken.info, read_ns=read_ns)
        if taken.torn:
            self.ledger.skip(path, "torn")
        else:
            self.ledger.unskip(path)
        if not taken.proved:
            self.reread.add(path)
        self._note_mode(path, taken.mode, taken.info)

    def _note_mode(self, path: bytes, mode: int, info: os.stat_result) -> None:
        bits = stat.S_IMODE(info.st_mode)
        usual = mode == MODE_SYMLINK or bits == self.ledger.usual.of(mode)
        self.ledger.set_mode(path, None if usual else bits)

    # Folders again, when the new tree is known

    def settle(self, captured: Callable[[bytes], bool]) -> None:
        """Notes folders that were left empty, and the permission bits of those on the way to what changed. `captured`
        says whether the new tree has a folder."""
        seen: set[bytes] = set()
        for path in sorted(self._gone, key=len):
            folder = path.rpartition(b"/")[0]
            while folder and folder not in seen:
                seen.add(folder)
                if self._settle_folder(folder, captured):
                    break
                folder = folder.rpartition(b"/")[0]
        for path in self._visited - seen:
            seen.add(path)
            self._settle_folder(path, captured)
        for path in self.edits or self.fresh:
            folder = path.rpartition(b"/")[0]
            while folder and folder not in seen:
                seen.add(folder)
                self._settle_folder(folder, captured)
                folder = folder.rpartition(b"/")[0]

    def _settle_folder(self, folder: bytes, captured: Callable[[bytes], bool]) -> bool:
        """Whether there is a folder."""
        try:
            info = self._root.look(folder).info
        except PermissionError:
            return False
        if info is None or not stat.S_ISDIR(info.st_mode):
            return False
        bits = stat.S_IMODE(info.st_mode)
        if captured(folder):
            self.ledger.drop_empty((folder,))
            self.ledger.set_mode(folder, None if bits == self.ledger.usual.folder else bits)
        elif self.ledger.skipping(folder) is None and self._is_empty(folder):
            self.ledger.add_empty(folder, bits)
        else:
            self.ledger.drop_empty((folder,))
            self.ledger.set_mode(folder, None)
        return True

    def _is_empty(self, folder: bytes) -> bool:
        try:
            return not self._root.entries(folder)
        except OSError:
            return False


def _outermost(folders: Iterable[bytes]) -> list[bytes]:
    """The folders that lie below no other."""
    found: list[bytes] = []
    for path in sorted(folders):
        folder = path.rpartition(b"/")[0]
        while folder and folder not in folders:
            folder = folder.rpartition(b"/")[0]
        if not folder:
            found.append(path)
    return found
