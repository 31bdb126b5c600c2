"""Packs: building one, laying it on the disk, reading one."""

import array
import contextlib
import hashlib
import io
import mmap
import os
import secrets
import struct
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from checkpointd.vault import disk
from checkpointd.vault.errors import ChangedWhileRead, DamagedPack
from checkpointd.vault.objects import BLOB, TREE, hasher, object_id

_fast: ModuleType = zlib
with contextlib.suppress(ImportError):  # no wheel for this machine
    # Three times as fast as zlib at level 1, and packs a little tighter.
    from isal import isal_zlib

    _fast = isal_zlib

CHUNK = 256 << 10
"""Hashing or compressing more in one call makes other threads wait for the interpreter lock."""

KEEP_BASE, KEEP_ROLLING, KEEP_WRITING = "base", "rolling", "writing"
"""What the .keep beside a pack may begin with: large and rewritten seldom; not synced; its ref is not there yet."""

_SPOOL_ABOVE = 64 << 20
_FLUSH_ABOVE = 1 << 20
_OFS_DELTA, _REF_DELTA = 6, 7
_KEPT_TREE, _KEPT_TREES = 64 << 10, 64  # bytes of each, and how many
_SMALL_INDEX = 4096  # objects; above this an index is mapped, not read
_KEPT_OPEN = 1 << 20  # bytes; a pack larger than this keeps its descriptor
_FIRST_READ = 8 << 10


def record_header(kind: int, size: int) -> bytes:
    """What stands before the compressed bytes of a record."""
    byte, size = (kind << 4) | (size & 15), size >> 4
    out = bytearray()
    while size:
        out.append(byte | 128)
        byte, size = size & 127, size >> 7
    out.append(byte)
    return bytes(out)


def packed(kind: int, data: bytes) -> tuple[bytes, bytes]:
    """The id of a small object, and its record for `PackBuilder.add_record`."""
    return object_id(kind, data), record_header(kind, len(data)) + _fast.compress(data, 1)


class PackBuilder:
    """The objects of one pack to be. Each is kept once, compressed; above 64 MiB they go to a file in the folder
    `spool` (without one everything stays in memory). For one thread."""

    def __init__(self, spool: Path | None = None) -> None:
        self._spool = spool
        self._file: tuple[str, int] | None = None  # path and descriptor
        self._flushed = 0  # bytes in the file
        self._buffer = bytearray(12)  # bytes after those; the pack's header is known at the end
        self._index: dict[bytes, tuple[int, int]] = {}  # oid -> offset, CRC
        self.trees: dict[bytes, bytes] = {}  # small trees as they are: they are likely to be read soon

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, oid: object) -> bool:
        return oid in self._index

    @property
    def size(self) -> int:
        """Bytes of the pack so far."""
        return self._flushed + len(self._buffer)

    def add(self, kind: int, data: bytes) -> bytes:
        """Takes one object; its id."""
        if kind == BLOB and len(data) > CHUNK:
            return self._add_stream(io.BytesIO(data), len(data))
        oid = object_id(kind, data)
        if oid not in self._index:
            self.add_record(oid, record_header(kind, len(data)) + _fast.compress(data, 1))
            if kind == TREE and len(data) < _KEPT_TREE and len(self.trees) < _KEPT_TREES:
                self.trees[oid] = data
        return oid

    def add_record(self, oid: bytes, record: bytes) -> None:
        """Takes one object as another pack has it: header and compressed bytes, no delta."""
        if oid not in self._index:
            self._index[oid] = (self.size, zlib.crc32(record))
            self._append(record)

    def add_file(self, descriptor: int, size: int) -> bytes:
        """Takes what an open file holds from here on, `size` bytes, as a blob; its id. Raises ChangedWhileRead when
        there are fewer or more, and is then as it was before."""
        with open(descriptor, "rb", buffering=0, closefd=False) as source:
            return self._add_stream(source, size)

    def _add_stream(self, source: io.RawIOBase | io.BytesIO, size: int) -> bytes:
        start = self.size
        try:
            oid, crc = self._compress(source, size)
        except BaseException:
            self._cut(start)
            raise
        if oid in self._index:
            self._cut(start)
        else:
            self._index[oid] = (start, crc)
        return oid

    def _compress(self, source: io.RawIOBase | io.BytesIO, size: int) -> tuple[bytes, int]:
        digest, packer = hasher(BLOB, size), _fast.compressobj(1)
        head = record_header(BLOB, size)
        crc = zlib.crc32(head)
        self._append(head)
        left = size
        while data := source.read(CHUNK):
            left -= len(data)
            digest.update(data)
            part = packer.compress(data)
            crc = zlib.crc32(part, crc)
            self._append(part)
        if left:
            raise ChangedWhileRead
        part = packer.flush()
        self._append(part)
        return digest.digest(), zlib.crc32(part, crc)

    def _append(self, data: bytes) -> None:
        self._buffer += data
        if self._file is None and self._spool is not None and len(self._buffer) > _SPOOL_ABOVE:
            self._open_spool(self._spool)
        if self._file is not None and len(self._buffer) > _FLUSH_ABOVE:
            self._flush(self._file[1])

    def _open_spool(self, folder: Path) -> None:
        path = str(folder / f"tmp_pack_{secrets.token_hex(8)}")
        with disk.translated(folder):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = path, disk.system.open(path, flags, 0o600)

    def _flush(self, descriptor: int) -> None:
        with disk.translated(self._file[0] if self._file else ""):
            disk.write_all(descriptor, bytes(self._buffer))
        self._flushed += len(self._buffer)
        self._buffer.clear()

    def _cut(self, size: int) -> None:
        if size >= self._flushed:
            del self._buffer[size - self._flushed :]
        elif self._file is not None:
            os.ftruncate(self._file[1], size)
            os.lseek(self._file[1], size, os.SEEK_SET)
            self._buffer.clear()
            self._flushed = size

    def discard(self) -> None:
        """Lets go of everything; a spool file is removed."""
        if self._file is not None:
            path, descriptor = self._file
            os.close(descriptor)
            disk.remove(path)
            self._file = None
        self._buffer.clear()
        self._index.clear()
        self.trees = {}

    def __del__(self) -> None:
        self.discard()  # a builder that was given up leaves no file behind

    def lay(self, folder: Path, *, keep: str | None, sync: bool) -> Path:
        """Puts the pack and its index into `folder`; the path of the .pack. With `keep`, a .keep of that text is there
        before the pack is. The builder is empty afterwards, and nothing stays behind when it fails."""
        # A name of its own: the same objects laid twice must not share a file, one of them may be removed.
        base = str(folder / f"pack-{secrets.token_hex(20)}")
        try:
            with disk.translated(folder):
                index = index_bytes(self._index, self._finish())
                if keep is not None:
                    disk.write_new(base + ".keep", (keep.encode() + b"\n",), sync=False)
                self._write_pack(base + ".pack.tmp")
                disk.write_new(base + ".idx.tmp", (index,), sync=False)
                if sync:
                    disk.sync_files((base + ".pack.tmp", base + ".idx.tmp"))
                disk.system.rename(base + ".pack.tmp", base + ".pack")
                disk.system.rename(base + ".idx.tmp", base + ".idx")
                if sync:
                    disk.sync_path(str(folder))
        except BaseException:
            for suffix in (".idx.tmp", ".pack.tmp"):
                disk.remove(base + suffix)
            remove_pack(Path(base + ".pack"))
            raise
        finally:
            self.discard()
        return Path(base + ".pack")

    def _finish(self) -> bytes:
        """Writes the pack's header and checksum."""
        head = b"PACK" + struct.pack(">II", 2, len(self._index))
        if self._file is None:
            self._buffer[:12] = head
            digest = hashlib.sha1()
            with memoryview(self._buffer) as view:
                for start in range(0, len(view), CHUNK):
                    digest.update(view[start : start + CHUNK])
        else:
            digest = self._finish_spool(self._file[1], head)
        self._buffer += digest.digest()
        return digest.digest()

    def _finish_spool(self, descriptor: int, head: bytes) -> "hashlib._Hash":
        self._flush(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        with disk.translated(self._file[0] if self._file else ""):
            disk.write_all(descriptor, head)
        os.lseek(descriptor, 0, os.SEEK_SET)
        digest = hashlib.sha1()
        while data := os.read(descriptor, CHUNK):
            digest.update(data)
        return digest

    def _write_pack(self, path: str) -> None:
        if self._file is None:
            disk.write_new(path, (self._buffer,), sync=False)
            return
        spooled, descriptor = self._file
        self._flush(descriptor)
        disk.system.rename(spooled, path)


def remove_pack(path: Path) -> None:
    """Removes a pack, its index first (git reads no pack without one), its .keep last. For clean-up: never raises."""
    base = str(path).removesuffix(".pack")
    for suffix in (".idx", ".rev", ".pack", ".keep"):
        disk.remove(base + suffix)


def keep_text(path: Path) -> str | None:
    """What the .keep beside a pack says; None where there is none."""
    try:
        return path.with_suffix(".keep").read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None


def unkeep(path: Path) -> None:
    """Removes the .keep of a pack; where that fails, the next start does it."""
    disk.remove(str(path.with_suffix(".keep")))


def index_bytes(objects: dict[bytes, tuple[int, int]], checksum: bytes) -> bytes:
    """The .idx (version 2) of a pack: offset and CRC by id, and the pack's checksum."""
    oids = sorted(objects)
    counts = [0] * 256
    for oid in oids:
        counts[oid[0]] += 1
    crcs, offsets, far = [], [], []
    for oid in oids:
        offset, crc = objects[oid]
        crcs.append(crc)
        if offset >= 1 << 31:
            far.append(offset)
            offset = (1 << 31) | (len(far) - 1)
        offsets.append(offset)
    body = b"".join(
        (
            b"\xfftOc" + struct.pack(">I", 2),
            _numbers("I", list(accumulate(counts))),
            *oids,
            _numbers("I", crcs),
            _numbers("I", offsets),
            _numbers("Q", far),
            checksum,
        )
    )
    return body + hashlib.sha1(body).digest()


def _numbers(code: str, values: list[int]) -> bytes:
    numbers = array.array(code, values)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


class _Descriptor:
    """An open file that is closed when nobody reads it any more, even where its name is gone."""

    def __init__(self, path: str) -> None:
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        # Not there when the file could not be opened.
        if hasattr(self, "number"):
            os.close(self.number)


class Record(NamedTuple):
    """One record of a pack, unpacked: an object, or a delta against another."""

    kind: int
    data: bytes
    base: int  # offset of what a delta is against; 0 for an object


class Opened(NamedTuple):
    """An object that is read in pieces."""

    kind: int
    size: int
    pieces: Iterator[bytes]


class Pack:
    """One pack on the disk, for reading. Any thread may use it."""

    def __init__(self, path: Path, *, torn: bool = False) -> None:
        """Opens the pack whose .pack is `path`. Raises DamagedPack when pack and index are not whole or do not belong
        together, FileNotFoundError when one is not there. With `torn` only the index must be whole: for saving what
        can still be read."""
        self.path = path
        self.name = path.name.removesuffix(".pack")
        self._path = str(path)
        index = _Descriptor(str(path.with_suffix(".idx")))
        descriptor = _Descriptor(self._path)
        self.size = os.fstat(descriptor.number).st_size
        self._open = descriptor if self.size > _KEPT_OPEN else None
        self._offsets: dict[bytes, int] | None = None
        self._ends: list[int] | None = None
        self._read_index(index.number)
        if not torn:
            self._check(descriptor.number)

    def _read_index(self, descriptor: int) -> None:
        size = self.index_size = os.fstat(descriptor).st_size
        if size < 1072:
            raise DamagedPack(f"{self.name}.idx is cut off.")
        raw: bytes | mmap.mmap = (
            os.read(descriptor, size)
            if size <= 1072 + 36 * _SMALL_INDEX
            else mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        )
        if raw[:8] != b"\xfftOc\0\0\0\2":
            raise DamagedPack(f"{self.name}.idx is no index.")
        self._fan = struct.unpack(">256I", raw[8:1032])
        self.count = self._fan[255]
        self._far = 1032 + 28 * self.count
        if not 0 <= size - self._far - 40 <= 8 * self.count:
            raise DamagedPack(f"{self.name}.idx is cut off.")
        if hashlib.sha1(memoryview(raw)[: size - 20]).digest() != raw[size - 20 :]:
            raise DamagedPack(f"{self.name}.idx has changed.")
        self._checksum = raw[size - 40 : size - 20]
        self._raw = raw
        if self.count <= _SMALL_INDEX:
            start = 1032
            self._offsets = {raw[start + 20 * i : start + 20 * i + 20]: self._offset(i) for i in range(self.count)}
            self._raw = b""

    def _check(self, descriptor: int) -> None:
        head = os.pread(descriptor, 12, 0)
        if len(head) < 12 or head[:8] != b"PACK\0\0\0\2" or struct.unpack(">I", head[8:])[0] != self.count:
            raise DamagedPack(f"{self.name}.pack does not begin as its index says.")
        if self.size < 32 or os.pread(descriptor, 20, self.size - 20) != self._checksum:
            raise DamagedPack(f"{self.name}.pack does not end as its index says.")

    def _offset(self, place: int) -> int:
        at = 1032 + 24 * self.count + 4 * place
        offset = int.from_bytes(self._raw[at : at + 4], "big")
        if offset < 1 << 31:
            return offset
        at = self._far + 8 * (offset & 0x7FFFFFFF)
        return int.from_bytes(self._raw[at : at + 8], "big")

    def find(self, oid: bytes) -> int | None:
        """Where the object lies in the pack; None when it does not."""
        if self._offsets is not None:
            return self._offsets.get(oid)
        low, high = (self._fan[oid[0] - 1] if oid[0] else 0), self._fan[oid[0]]
        place = bisect_left(range(high), oid, low, high, key=self._oid)
        return self._offset(place) if place < high and self._oid(place) == oid else None

    def _oid(self, place: int) -> bytes:
        at = 1032 + 20 * place
        return self._raw[at : at + 20]

    def places(self) -> Iterator[tuple[bytes, int]]:
        """Id and offset of every object in the pack."""
        if self._offsets is not None:
            return iter(self._offsets.items())
        return ((self._oid(place), self._offset(place)) for place in range(self.count))

    def whole_record(self, offset: int) -> bytes | None:
        """The record at `offset` as it is stored, header included; None for a delta."""
        if self._ends is None:
            offsets = self._offsets.values() if self._offsets is not None else map(self._offset, range(self.count))
            self._ends = [*sorted(offsets), self.size - 20]
        end = self._ends[bisect_right(self._ends, offset)]
        descriptor = self._descriptor()  # named, so that it stays open during the call
        record = os.pread(descriptor.number, end - offset, offset)
        return None if (record[0] >> 4) & 7 in (_OFS_DELTA, _REF_DELTA) else record

    def open_record(self, offset: int) -> Opened | None:
        """The object at `offset`, to be read in pieces; None for a delta. Raises DamagedPack, also while read."""
        descriptor = self._descriptor()
        head = os.pread(descriptor.number, _FIRST_READ, offset)
        kind, size, used = self._parse_header(head)
        if kind in (_OFS_DELTA, _REF_DELTA):
            return None
        return Opened(kind, size, self._inflate(descriptor, offset, head, used))

    def _parse_header(self, head: bytes) -> tuple[int, int, int]:
        try:
            byte = head[0]
            kind, size, shift, used = (byte >> 4) & 7, byte & 15, 4, 1
            while byte & 128:
                byte = head[used]
                size |= (byte & 127) << shift
                shift, used = shift + 7, used + 1
        except IndexError:
            raise DamagedPack(f"{self.name} is cut off.") from None
        return kind, size, used

    def _inflate(self, descriptor: _Descriptor, offset: int, data: bytes, start: int) -> Iterator[bytes]:
        unpacker = _fast.decompressobj()
        position = offset + len(data)
        data = data[start:]
        while True:
            try:
                piece = unpacker.decompress(data)
            except (_fast.error, zlib.error) as error:
                raise DamagedPack(f"{self.name} is damaged near byte {offset}: {error}.") from error
            if piece:
                yield piece
            if unpacker.eof:
                return
            data = os.pread(descriptor.number, CHUNK, position)
            if not data:
                raise DamagedPack(f"{self.name} is cut off.")
            position += len(data)

    def record(self, offset: int) -> Record:
        """The record at `offset`, unpacked. Raises DamagedPack."""
        descriptor = self._descriptor()
        head = os.pread(descriptor.number, _FIRST_READ, offset)
        kind, size, used = self._parse_header(head)
        base = 0
        if kind == _OFS_DELTA:
            base, used = _base_distance(head, used)
            base = offset - base
        elif kind == _REF_DELTA:
            base = self.find(head[used : used + 20]) or -1
            used += 20
        if base < 0:
            raise DamagedPack(f"{self.name} lacks the base of a delta.")
        data = b"".join(self._inflate(descriptor, offset, head, used))
        if len(data) != size:
            raise DamagedPack(f"{self.name} has {len(data)} bytes for {size} at byte {offset}.")
        return Record(kind, data, base)

    def read(self, offset: int) -> tuple[int, bytes]:
        """Kind and content of the object at `offset`, deltas applied. Raises DamagedPack."""
        deltas = []
        record = self.record(offset)
        while record.base:
            deltas.append(record.data)
            record = self.record(record.base)
        data = record.data
        for delta in reversed(deltas):
            data = apply_delta(data, delta)
        return record.kind, data

    @property
    def is_from_git(self) -> bool:
        """Whether git made it: git names a pack by its checksum, we do not."""
        return self.name == f"pack-{self._checksum.hex()}"

    def whole(self) -> bool:
        """Whether the pack's bytes are those that its checksum was made of."""
        digest, position, end = hashlib.sha1(), 0, self.size - 20
        descriptor = self._descriptor()
        while position < end:
            data = os.pread(descriptor.number, min(CHUNK, end - position), position)
            if not data:
                return False
            digest.update(data)
            position += len(data)
        return digest.digest() == self._checksum

    def hold(self) -> None:
        """Keeps the file open until `release`, for many reads."""
        self._open = self._descriptor()

    def release(self) -> None:
        """Ends `hold`."""
        if self.size <= _KEPT_OPEN:
            self._open = None

    def _descriptor(self) -> _Descriptor:
        return self._open or _Descriptor(self._path)


def _base_distance(head: bytes, used: int) -> tuple[int, int]:
    byte = head[used]
    distance, used = byte & 127, used + 1
    while byte & 128:
        byte = head[used]
        distance = ((distance + 1) << 7) | (byte & 127)
        used += 1
    return distance, used


def apply_delta(base: bytes, delta: bytes) -> bytes:
    """The object that `delta` makes of `base`. Raises DamagedPack on a delta that does not fit."""
    expected, position = _varint(delta, 0)
    size, position = _varint(delta, position)
    if expected != len(base):
        raise DamagedPack("A delta is against another object.")
    parts = []
    end = len(delta)
    while position < end:
        code = delta[position]
        position += 1
        if code & 128:
            offset = length = 0
            for bit in range(4):
                if code & (1 << bit):
                    offset |= delta[position] << (8 * bit)
                    position += 1
            for bit in range(3):
                if code & (16 << bit):
                    length |= delta[position] << (8 * bit)
                    position += 1
            length = length or 0x10000
            parts.append(base[offset : offset + length])
        else:
            parts.append(delta[position : position + code])
            position += code
    result = b"".join(parts)
    if len(result) != size:
        raise DamagedPack("A delta does not make what it says.")
    return result


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, position
