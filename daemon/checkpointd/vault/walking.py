"""Walking folders of a work tree with the ignore rules of the zone they lie in."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from checkpointd.vault import repository
from checkpointd.vault.ledger import Ledger
from checkpointd.vault.limits import DEEPEST, DEFAULT_FOLDERS, Limits
from checkpointd.vault.objects import forbidden_name
from checkpointd.vault.reading import Root
from checkpointd.vault.zones import Zone


class Top(NamedTuple):
    """One folder to walk. `room`: how many new files it may hold; past that it is left out as a whole."""

    path: bytes
    room: int


class Walked(NamedTuple):
    """What was found: files that are kept whatever the rules say, new files by their top, nested repositories, and the
    folders that were looked into."""

    kept: list[bytes]
    new: dict[bytes, list[bytes]]
    nested: list[bytes]
    folders: list[bytes]


class _Seen(NamedTuple):
    top: bytes
    path: bytes
    folder: bool


class Walker:
    """Walks below one root. What it leaves out goes into the ledger, and so do empty folders.

    `kept` says whether a file is captured or tracked, or a folder (True) holds what is: then no rule leaves it out.
    """

    def __init__(
        self,
        root: Root,
        base: Path,
        ledger: Ledger,
        limits: Limits,
        kept: Callable[[bytes, bool], bool],
        check: Callable[[], None],
    ) -> None:
        self._root = root
        self._base = base
        self._ledger = ledger
        self._limits = limits
        self._kept = kept
        self._check = check

    def walk(self, zone: Zone, tops: Iterable[Top], *, force: bool = False) -> Walked:
        """Everything below the tops, which are not ignored themselves. With `force` no rules hold but git's own.

        Level by level, so that git is asked once a level and not once a folder.
        """
        rooms = {top.path: top.room for top in tops}
        found = Walked([], {top: [] for top in rooms}, [], [])
        over: set[bytes] = set()
        level = [_Seen(top, top, folder=True) for top in rooms]
        while level:
            seen: list[_Seen] = []
            for folder in level:
                self._check()
                seen += self._list(zone, folder, found, force=force)
            level = self._sift(seen, self._ignored(zone, seen, force=force), found, over)
            for top in [top for top, files in found.new.items() if len(files) > rooms[top]]:
                over.add(top)
                rooms[top] = len(found.new[top])
                level = self._close(top, level, found)
        return found

    def _list(self, zone: Zone, folder: _Seen, found: Walked, *, force: bool) -> list[_Seen]:
        """What of one folder is worth asking about."""
        path = folder.path
        if path.count(b"/") >= DEEPEST:
            self._ledger.unobserved.add(path)
            return []
        try:
            entries = self._root.entries(path)
        except PermissionError as error:
            self._ledger.skip(path, "unreadable", os.strerror(error.errno or 0), folder=True)
            return []
        except OSError:  # gone, or no folder any more: the next event says so
            return []
        if path != zone.prefix and any(entry.name == b".git" for entry in entries) and self._is_repository(path):
            found.nested.append(path)
            return []
        found.folders.append(path)
        if not entries and path:
            self._ledger.add_empty(path, os.stat(self._root.folder(path)).st_mode & 0o7777)
        default = not force and self._limits.default_folder(path) is not None
        seen = []
        for entry in entries:
            below = path + b"/" + entry.name if path else entry.name
            if entry.name == b".git":
                continue
            if forbidden_name(entry.name):
                self._ledger.skip(below, "name", folder=entry.folder)
            elif entry.special:
                self._ledger.skip(below, "special")
            elif self._limits.excluded(below) and not force:
                self._ledger.skip(below, "config", folder=entry.folder)
            elif (default or (entry.folder and entry.name in DEFAULT_FOLDERS)) and not (
                force or self._wanted(below, entry.folder)
            ):
                self._ledger.skip(below, "default-folder", folder=entry.folder)
            else:
                seen.append(_Seen(folder.top, below, entry.folder))
        return seen

    def _is_repository(self, path: bytes) -> bool:
        return repository.at(self._base / os.fsdecode(path)) is not None

    def _wanted(self, path: bytes, folder: bool) -> bool:
        return self._limits.included(path) or self._kept(path, folder)

    def _ignored(self, zone: Zone, seen: list[_Seen], *, force: bool) -> set[bytes]:
        if force:
            return set()
        cut = len(zone.prefix) + 1 if zone.prefix else 0
        ignored = zone.ignored([entry.path[cut:] for entry in seen])
        return {zone.prefix + b"/" + path for path in ignored} if cut else ignored

    def _sift(self, seen: list[_Seen], ignored: set[bytes], found: Walked, over: set[bytes]) -> list[_Seen]:
        """Sorts what was seen into files to capture, what is left out, and the folders of the next level."""
        level = []
        for entry in seen:
            path = entry.path
            if path in ignored and not self._wanted(path, entry.folder):
                self._ledger.skip(path, "ignored", folder=entry.folder)
            elif entry.top in over and not self._kept(path, entry.folder):
                self._ledger.skip(path, "over-budget", folder=entry.folder)
            elif entry.folder:
                level.append(entry)
            elif self._kept(path, False):
                found.kept.append(path)
            else:
                found.new[entry.top].append(path)
        return level

    def _close(self, top: bytes, level: list[_Seen], found: Walked) -> list[_Seen]:
        """Leaves out what is new below a top that holds too much."""
        new, found.new[top] = found.new[top], []
        detail = f"more than {len(new)} files" if len(new) < 1000 else f"more than {len(new) // 1000},000 files"
        if not self._kept(top, True):
            self._ledger.forget_below(top)
            self._ledger.skip(top, "over-budget", detail, folder=True)
            found.nested[:] = [path for path in found.nested if not path.startswith(top + b"/")]
            return [entry for entry in level if entry.top != top]
        self.leave_out(top, new, detail)
        for entry in level:
            if entry.top == top and not self._kept(entry.path, entry.folder):
                self._ledger.skip(entry.path, "over-budget", detail, folder=True)
        return [entry for entry in level if entry.top != top or self._kept(entry.path, entry.folder)]

    def leave_out(self, top: bytes, paths: Iterable[bytes], detail: str) -> None:
        """Notes new files as over the budget, folded to the highest folders that hold nothing captured."""
        for path in paths:
            end = len(top)
            while (end := path.find(b"/", end + 1)) > 0 and self._kept(path[:end], True):
                pass
            if end > 0:
                self._ledger.forget_below(path[:end])
            self._ledger.skip(path if end < 0 else path[:end], "over-budget", detail, folder=end > 0)
