"""The refs of a vault: loose files and packed-refs, read and written without git."""

import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path

from checkpointd.vault import disk
from checkpointd.vault.errors import CheckpointExists, StoreError

CHECKPOINTS = "refs/checkpoints/"
ROLLING = "refs/rolling/"
PINS = "refs/pins/"
EVENTS = "refs/events"

_ID = re.compile(rb"[0-9a-f]{40}\n?")
_BAD_NAME = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|(^|/)\.|\.$|/$|^/")
_PACKED_HEAD = "# pack-refs with: peeled fully-peeled sorted \n"


class BadRef(StoreError):
    """A ref's file does not hold an id."""


class Refs:
    """The refs of one vault. Names are written out (`refs/checkpoints/<id>`), ids are 40 hex digits."""

    def __init__(self, vault: Path) -> None:
        self._vault = str(vault)
        self._lock = threading.RLock()
        self._packed_stamp: tuple[int, int, int] | None = None
        self._packed: dict[str, str] = {}

    def read(self, name: str) -> str | None:
        """The id that a ref holds; None where there is no such ref. Raises BadRef."""
        try:
            with open(self._file(name), "rb") as file:
                text = file.read(64)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return self._read_packed().get(name)
        if not _ID.fullmatch(text):
            raise BadRef(f"The ref {name} holds no id.")
        return text[:40].decode()

    def under(self, prefix: str) -> dict[str, str]:
        """All refs whose name begins with `prefix`, a folder such as `refs/checkpoints/`, in order of their names.
        A damaged one is left out."""
        found = {name: oid for name, oid in self._read_packed().items() if name.startswith(prefix)}
        for name in self.files(prefix):
            try:
                oid = self.read(name)
            except BadRef:
                found.pop(name, None)
                continue
            if oid is not None:
                found[name] = oid
        # Once more: maintenance may have moved refs from files to packed-refs in between.
        for name, oid in self._read_packed().items():
            if name.startswith(prefix) and not os.path.exists(self._file(name)):
                found.setdefault(name, oid)
        return dict(sorted(found.items()))

    def files(self, prefix: str) -> list[str]:
        """The names of all refs that are files, below a folder."""
        top = os.path.join(self._vault, prefix.rstrip("/"))
        names = []
        for folder, _, files in os.walk(top):
            below = os.path.relpath(folder, self._vault)
            names += [f"{below}/{file}" for file in files if not file.endswith(".lock")]
        return sorted(names)

    def create(self, name: str, oid: str) -> None:
        """Makes a ref that must not be there, synced. Raises CheckpointExists."""
        with self._lock:
            if os.path.lexists(self._file(name)) or name in self._read_packed():
                raise CheckpointExists(f"{name} is there already.")
            self._write(name, oid, sync=True, undo=True)

    def set(self, name: str, oid: str, *, sync: bool = True) -> None:
        """Makes or moves a ref."""
        with self._lock:
            self._write(name, oid, sync=sync, undo=False)

    def _write(self, name: str, oid: str, *, sync: bool, undo: bool) -> None:
        if _BAD_NAME.search(name) or not name.startswith("refs/"):
            raise StoreError(f"{name!r} is no name for a ref.")
        path = self._file(name)
        folder = os.path.dirname(path)
        # After a power loss a ref that was replaced is the old one or the new one, both whole; a new one must be there.
        sync_folder = sync and not os.path.lexists(path)
        with disk.translated(path):
            disk.make_directories(Path(folder))
            disk.replace_file(path, oid.encode() + b"\n", sync=sync)
            try:
                if sync_folder:
                    disk.sync_path(folder)
            except OSError:
                if undo:
                    disk.remove(path)
                raise

    def delete(self, names: Iterable[str]) -> None:
        """Removes refs; those that are not there do not matter."""
        with self._lock:
            gone = set(names)
            packed = self._read_packed()
            if gone & packed.keys():
                self._write_packed({name: oid for name, oid in packed.items() if name not in gone})
            folders = set()
            for name in gone:
                path = self._file(name)
                with disk.translated(path):
                    try:
                        disk.system.unlink(path)
                    except FileNotFoundError:
                        continue
                folders.add(os.path.dirname(path))
            for folder in folders:
                with disk.translated(folder):
                    disk.sync_path(folder)

    def pack(self, prefixes: Iterable[str]) -> None:
        """Moves refs below these folders from files into packed-refs; a file a ref costs a disk block each."""
        with self._lock:
            loose = {name: oid for prefix in prefixes for name, oid in self.under(prefix).items()}
            loose = {name: oid for name, oid in loose.items() if os.path.exists(self._file(name))}
            if not loose:
                return
            self._write_packed({**self._read_packed(), **loose})
            for name in loose:
                disk.remove(self._file(name))

    def _file(self, name: str) -> str:
        return f"{self._vault}/{name}"

    def _read_packed(self) -> dict[str, str]:
        path = f"{self._vault}/packed-refs"
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return {}
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp != self._packed_stamp:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                lines = [line.rstrip("\n").split(" ", 1) for line in file if line[0] not in "#^"]
            self._packed = {line[1]: line[0] for line in lines if len(line) == 2 and len(line[0]) == 40}
            self._packed_stamp = stamp
        return self._packed

    def _write_packed(self, refs: dict[str, str]) -> None:
        lines = [_PACKED_HEAD, *(f"{oid} {name}\n" for name, oid in sorted(refs.items()))]
        path = f"{self._vault}/packed-refs"
        with disk.translated(path):
            disk.replace_file(path, "".join(lines).encode("utf-8", "surrogateescape"), sync=True)
            disk.sync_path(self._vault)
