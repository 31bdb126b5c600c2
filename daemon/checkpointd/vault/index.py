"""The vault's index: path, stat data and blob id of every captured file, as git's own format, so that git can compare
a work tree with it (`diff-files`)."""

import array
import hashlib
import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from checkpointd.vault import disk
from checkpointd.vault.packs import CHUNK

_HEAD = struct.Struct(">4sII")
_ENTRY = struct.Struct(">10I20sH")  # ctime, mtime (s, ns each), device, inode, mode, uid, gid, size, id, flags
_NAME = _ENTRY.size  # where the name begins
_TREE_SIGNATURE = b"CKPT"  # an extension git does not know and, by its capital letter, skips
_EXTENSION = struct.Struct(">4sI")
_LONG = 0xFFF
_U32 = 0xFFFFFFFF
_SECOND = 1_000_000_000


Head = bytes
"""A packed entry without its path, as it is kept in memory: a tenth of what an Entry takes."""


class Entry(NamedTuple):
    """One file as it was read. Without a time (`mtime_ns` 0) it is read again whatever its stat data say."""

    oid: bytes
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    uid: int
    gid: int

    def matches(self, info: os.stat_result) -> bool:
        """Whether a file with this stat data still has the bytes that were read."""
        return (
            self.mtime_ns == info.st_mtime_ns
            and self.ctime_ns == info.st_ctime_ns
            and self.size == info.st_size & _U32
            and self.inode == info.st_ino & _U32
            and (self.uid, self.gid) == (info.st_uid & _U32, info.st_gid & _U32)
        )


def head_of(oid: bytes, mode: int, info: os.stat_result, *, read_ns: int) -> Head:
    """The entry of a file that was read at `read_ns`, packed.

    git may have been built to compare whole seconds only. A file that was changed in the second in which it was read
    could change once more unseen, so its time is left out and the next scan reads it again.
    """
    changed, written = info.st_ctime_ns, info.st_mtime_ns
    if max(changed, written) // _SECOND >= read_ns // _SECOND:
        written = 0
    return _ENTRY.pack(
        changed // _SECOND & _U32, changed % _SECOND, written // _SECOND & _U32, written % _SECOND, info.st_dev & _U32,
        info.st_ino & _U32, mode, info.st_uid & _U32, info.st_gid & _U32, info.st_size & _U32, oid, 0,
    )  # fmt: skip


def pack_entry(entry: Entry) -> Head:
    """The entry packed; the length of its path is filled in when it is written."""
    mtime, ctime = divmod(entry.mtime_ns, _SECOND), divmod(entry.ctime_ns, _SECOND)
    return _ENTRY.pack(
        ctime[0] & _U32, ctime[1], mtime[0] & _U32, mtime[1], entry.device, entry.inode, entry.mode, entry.uid,
        entry.gid, entry.size, entry.oid, 0,
    )  # fmt: skip


def unpack_entry(head: "Head | mmap.mmap", at: int = 0) -> Entry:
    """The entry that was packed."""
    c, cn, m, mn, device, inode, mode, uid, gid, size, oid, _ = _ENTRY.unpack_from(head, at)
    return Entry(oid, mode, size, m * _SECOND + mn, c * _SECOND + cn, inode, device, uid, gid)


def _record(path: bytes, head: Head) -> bytes:
    return head[:-2] + min(len(path), _LONG).to_bytes(2, "big") + path + bytes(8 - (_NAME + len(path)) % 8)


class StatIndex:
    """One index file, for looking up. It is mapped; a rewrite makes another file and another StatIndex."""

    def __init__(self, data: "Head | mmap.mmap", offsets: "array.array[int]", end: int, tree: str) -> None:
        self._data = data
        self._offsets = offsets
        self._end = end  # of the entries
        self.tree = tree
        """The project's tree (40 hex digits) at the time it was written."""

    def __len__(self) -> int:
        return len(self._offsets)

    def _name(self, place: int) -> bytes:
        start = self._offsets[place] + _NAME
        end = self._offsets[place + 1] if place + 1 < len(self._offsets) else self._end
        return self._data[start:end].rstrip(b"\0")

    def _entry(self, place: int) -> Entry:
        return unpack_entry(self._data, self._offsets[place])

    def _place(self, path: bytes) -> int:
        return bisect_left(range(len(self._offsets)), path, key=self._name)

    def find(self, path: bytes) -> Entry | None:
        """The entry of a path."""
        place = self._place(path)
        return self._entry(place) if place < len(self._offsets) and self._name(place) == path else None

    def below(self, folder: bytes) -> Iterator[tuple[bytes, Entry]]:
        """All entries below a folder; every entry for the root (empty)."""
        start, end = self._span(folder)
        return ((self._name(place), self._entry(place)) for place in range(start, end))

    def count_below(self, folder: bytes) -> int:
        """How many entries lie below a folder."""
        start, end = self._span(folder)
        return end - start

    def _span(self, folder: bytes) -> tuple[int, int]:
        if not folder:
            return 0, len(self._offsets)
        return self._place(folder + b"/"), self._place(folder + b"0")  # "0" comes right after "/"

    def paths(self) -> Iterator[bytes]:
        """Every path, sorted."""
        return (self._name(place) for place in range(len(self._offsets)))

    def slices(self, changes: Mapping[bytes, Head | None]) -> Iterator[tuple[memoryview, "array.array[int]"]]:
        """The bytes of the entries after `changes`, and where entries begin within each piece."""
        view, done = memoryview(self._data), 0
        for path in sorted(changes):
            place = self._place(path)
            yield self._piece(view, done, place)
            head = changes[path]
            if head is not None:
                yield memoryview(_record(path, head)), array.array("I", (0,))
            done = place + (place < len(self._offsets) and self._name(place) == path)
        yield self._piece(view, done, len(self._offsets))

    def _piece(self, view: memoryview, first: int, last: int) -> tuple[memoryview, "array.array[int]"]:
        if first >= last:
            return view[:0], array.array("I")
        start = self._offsets[first]
        end = self._offsets[last] if last < len(self._offsets) else self._end
        return view[start:end], array.array("I", [offset - start for offset in self._offsets[first:last]])


EMPTY = StatIndex(b"", array.array("I"), 0, "")


def write(path: Path, old: StatIndex, changes: Mapping[bytes, Head | None], tree: str) -> StatIndex:
    """Writes `old` with `changes` (None removes) to `path`, whole or not at all. Not synced: a torn one is noticed when
    it is read, and costs no more than reading the files again."""
    return _write(path, old.slices(changes), tree)


def _write(path: Path, pieces: Iterable[tuple[memoryview, "array.array[int]"]], tree: str) -> StatIndex:
    body = bytearray(_HEAD.size)
    offsets = array.array("I")
    for piece, starts in pieces:
        base = len(body)
        body += piece
        if len(starts) == 1:
            offsets.append(base + starts[0])
        else:
            offsets.extend([base + start for start in starts])
    end = len(body)
    _HEAD.pack_into(body, 0, b"DIRC", 2, len(offsets))
    body += _EXTENSION.pack(_TREE_SIGNATURE, 20) + bytes.fromhex(tree)
    body += _checksum(body)
    disk.remove(str(path) + ".new")  # of a run that was killed
    with disk.translated(path):
        disk.replace_file(str(path), body, sync=False, suffix=".new")
    return StatIndex(_mapped(path), offsets, end, tree)


def _checksum(data: "bytes | bytearray | mmap.mmap | memoryview") -> bytes:
    digest = hashlib.sha1()
    view = memoryview(data)
    for start in range(0, len(view), CHUNK):
        digest.update(view[start : start + CHUNK])
    view.release()
    return digest.digest()


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


def load(path: Path) -> StatIndex | None:
    """The index at `path`; None where there is none that is whole and ours."""
    try:
        data = _mapped(path)
    except (OSError, ValueError):  # mmap refuses an empty file
        return None
    try:
        return _parse(data)
    except (struct.error, ValueError):
        return None


def _parse(data: mmap.mmap) -> StatIndex | None:
    magic, version, count = _HEAD.unpack_from(data, 0)
    tail = len(data) - 20
    if magic != b"DIRC" or version != 2 or tail < _HEAD.size:
        return None
    view = memoryview(data)
    whole = _checksum(view[:tail]) == bytes(view[tail:])
    view.release()
    if not whole:
        return None
    offsets, at = array.array("I", bytes(4 * count)), _HEAD.size
    for place in range(count):
        offsets[place] = at
        length = (data[at + _NAME - 2] & 0x0F) << 8 | data[at + _NAME - 1]
        end = at + _NAME + length if length < _LONG else data.find(b"\0", at + _NAME)
        at = end + 8 - (end - at) % 8
    signature, size = _EXTENSION.unpack_from(data, at)
    if signature != _TREE_SIGNATURE or size != 20:
        return None
    start = at + _EXTENSION.size
    return StatIndex(data, offsets, at, data[start : start + 20].hex())
