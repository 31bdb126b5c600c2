"""The folder of packs: which there are, where an object lies, which of them are not synced yet."""

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from checkpointd.vault.errors import DamagedObject, DamagedPack, MissingObject
from checkpointd.vault.objects import KIND_NAMES, TREE, TREE_MODE_TEXT, hasher, object_id, tree_lines
from checkpointd.vault.packs import KEEP_BASE, KEEP_WRITING, Pack, keep_text

_MAPPED_ABOVE = 4096  # objects; smaller packs share one dict
_COPIED_BELOW = 4 << 20  # bytes; a larger rolling pack is synced where it lies instead of copied
_CACHE = 4 << 20  # bytes of trees kept unpacked
_BLOCK = 4 << 10  # bytes that a disk gives to a file at a time, as most do


class Place(NamedTuple):
    """Where an object lies."""

    pack: Pack
    offset: int


class PackFolder:
    """All packs of a vault. Reading is for any thread; packs come and go under a lock.

    A *rolling* pack (its .keep says so) is not synced. Its objects are *unsettled* until a checkpoint's pack has
    repeated them. Whatever a ref reaches is unsettled, or has all that it reaches itself in synced packs: so a
    checkpoint has to look at unsettled objects only, and a rolling pack may go when no state reaches one of its
    unsettled objects.
    """

    def __init__(self, objects: Path) -> None:
        self.path = objects / "pack"
        self._objects = str(objects)
        self._lock = threading.RLock()
        self._packs: dict[str, Pack] = {}
        self._large: tuple[Pack, ...] = ()
        self._where: dict[bytes, Place] = {}
        self._rolling: dict[str, Pack] = {}
        self._rolling_large: tuple[Pack, ...] = ()
        self._unsettled: dict[bytes, Place] = {}
        self._trees: OrderedDict[bytes, bytes] = OrderedDict()
        self._trees_size = 0

    def refresh(self) -> list[tuple[Path, DamagedPack]]:
        """Learns which packs came and went; those that cannot be used, and why."""
        damaged = []
        with self._lock:
            try:
                names = {entry[:-4] for entry in os.listdir(self.path) if entry.endswith(".idx")}
            except FileNotFoundError:  # somebody removed the folder: what was in it is missing
                names = set()
            self.forget(self._packs.keys() - names)
            # Where several rolling packs have an object the newest is taken for it: that one is needed longest.
            for path in sorted((self.path / f"{name}.pack" for name in names - self._packs.keys()), key=_written_at):
                try:
                    self.add(Pack(path), rolling=_is_rolling(path))
                except DamagedPack as error:
                    damaged.append((path, error))
                except FileNotFoundError:  # gone since it was listed, or an index without its pack
                    continue
        return damaged

    def add(self, pack: Pack, *, rolling: bool = False) -> None:
        """Makes the objects of a pack known."""
        with self._lock:
            if pack.name in self._packs:  # a reader was faster
                self.forget((pack.name,))
            self._packs[pack.name] = pack
            places = {}
            if pack.count > _MAPPED_ABOVE:
                self._large = (*self._large, pack)
            else:
                places = {oid: Place(pack, offset) for oid, offset in pack.places()}
                self._where.update(places)
            if not rolling:
                return
            self._rolling[pack.name] = pack
            if pack.count > _MAPPED_ABOVE:
                self._rolling_large = (*self._rolling_large, pack)
            self._unsettled.update(places)

    def forget(self, names: Iterable[str]) -> None:
        """Drops packs that are gone, or about to go, from what is known."""
        with self._lock:
            gone = [self._packs.pop(name) for name in set(names) if name in self._packs]
            if not gone:
                return
            self._unroll(gone)
            self._large = tuple(pack for pack in self._large if pack not in gone)
            # Made anew: an object of a pack that is gone may lie in another one too.
            self._where = {
                oid: Place(pack, offset)
                for pack in self._packs.values()
                if pack.count <= _MAPPED_ABOVE
                for oid, offset in pack.places()
            }

    def _unroll(self, packs: list[Pack]) -> None:
        for pack in packs:
            self._rolling.pop(pack.name, None)
        self._rolling_large = tuple(pack for pack in self._rolling_large if pack not in packs)
        gone = set(packs)
        without = {oid: place for oid, place in self._unsettled.items() if place.pack not in gone}
        for oid in self._unsettled.keys() - without.keys():
            # Another rolling pack may have it too, which had been passed over for this one.
            for pack in self._rolling.values():
                offset = pack.find(oid)
                if offset is not None:
                    without[oid] = Place(pack, offset)
        self._unsettled = without

    def packs(self) -> list[Pack]:
        """All packs."""
        return list(self._packs.values())

    @property
    def size(self) -> int:
        """What all packs and their indexes take on the disk, in whole blocks. Never waits for the disk."""
        return sum(_blocks(pack.size) + _blocks(pack.index_size) for pack in self.packs())

    def rolling(self) -> list[Pack]:
        """The packs that are not synced."""
        return list(self._rolling.values())

    def unsettled(self, oid: bytes) -> Place | None:
        """Where in a rolling pack an unsettled object lies; None for any other."""
        place = self._unsettled.get(oid)
        if place is None:
            for pack in self._rolling_large:
                offset = pack.find(oid)
                if offset is not None:
                    return Place(pack, offset)
        return place

    def unsettled_in(self, tree: bytes) -> list[tuple[bool, bytes]]:
        """Whether a tree, and the id, of those entries of a tree's bytes that are unsettled."""
        known = self._unsettled
        large = self._rolling_large
        return [
            (mode == TREE_MODE_TEXT, oid)
            for mode, _, oid in tree_lines(tree)
            if oid in known or (large and self.unsettled(oid) is not None)
        ]

    def must_sync(self, pack: Pack) -> bool:
        """Whether a checkpoint has to sync this rolling pack, rather than copy from it."""
        return pack.size > _COPIED_BELOW or pack.count > _MAPPED_ABOVE

    def has_large_rolling(self) -> bool:
        """Whether a first capture, or the like, is waiting for its checkpoint."""
        return bool(self._rolling_large)

    def settle(self, oids: Iterable[bytes]) -> None:
        """Notes that a checkpoint, its ref in place, has repeated these objects."""
        with self._lock:
            for oid in oids:
                self._unsettled.pop(oid, None)

    def settle_packs(self, packs: list[Pack]) -> None:
        """Notes that these rolling packs are synced, and ordinary ones from now on."""
        with self._lock:
            self._unroll(packs)

    def find(self, oid: bytes) -> Place | None:
        """Where an object lies; None when no known pack has it."""
        place = self._where.get(oid)
        if place is None:
            for pack in self._large:
                offset = pack.find(oid)
                if offset is not None:
                    return Place(pack, offset)
        return place

    def has(self, oid: bytes) -> bool:
        """Whether the object can be read, as far as the indexes know."""
        if self.find(oid) is not None:
            return True
        self.refresh()
        return self.find(oid) is not None or os.path.exists(self._loose_path(oid))

    def read(self, oid: bytes) -> tuple[int, bytes]:
        """Kind and content of an object, proved by its id. Raises MissingObject, DamagedObject."""
        for attempt in range(3):
            place = self.find(oid)
            if place is None:
                if attempt:
                    break
                self.refresh()  # maintenance has put it elsewhere, or a git child brought it
                continue
            try:
                kind, data = place.pack.read(place.offset)
            except FileNotFoundError:  # maintenance has just removed the pack
                self.refresh()
                continue
            except (DamagedPack, IndexError, OSError) as error:
                return self._read_elsewhere(oid, place.pack, str(error))
            if kind not in KIND_NAMES or object_id(kind, data) != oid:
                return self._read_elsewhere(oid, place.pack, "its bytes are not those it was named for")
            return kind, data
        return self._read_loose(oid)

    def _read_elsewhere(self, oid: bytes, damaged: Pack, why: str) -> tuple[int, bytes]:
        """A second copy where there is one: checkpoints often repeat an object."""
        for pack in self.packs():
            offset = pack.find(oid) if pack is not damaged else None
            if offset is None:
                continue
            try:
                kind, data = pack.read(offset)
            except (DamagedPack, IndexError, OSError):
                continue
            if object_id(kind, data) == oid:
                return kind, data
        raise DamagedObject(oid, why)

    def _loose_path(self, oid: bytes) -> str:
        text = oid.hex()
        return f"{self._objects}/{text[:2]}/{text[2:]}"

    def _read_loose(self, oid: bytes) -> tuple[int, bytes]:
        """An object that a git child left unpacked; we write none."""
        try:
            with open(self._loose_path(oid), "rb") as file:
                raw = zlib.decompress(file.read())
        except FileNotFoundError:
            raise MissingObject(oid) from None
        except zlib.error as error:
            raise DamagedObject(oid, str(error)) from error
        head, _, data = raw.partition(b"\0")
        for kind, name in KIND_NAMES.items():
            if head.startswith(name + b" ") and object_id(kind, data) == oid:
                return kind, data
        raise DamagedObject(oid, "its bytes are not those it was named for")

    def read_tree(self, oid: bytes) -> bytes:
        """The bytes of a tree; small ones are kept for the next time."""
        raw = self._trees.get(oid)
        if raw is not None:
            return raw
        kind, raw = self.read(oid)
        if kind != TREE:
            raise DamagedObject(oid, "it is no tree")
        if len(raw) < _CACHE // 16:
            self.keep_trees({oid: raw})
        return raw

    def keep_trees(self, trees: Mapping[bytes, bytes]) -> None:
        """Keeps the bytes of trees for the next reads; the oldest of too many go."""
        with self._lock:
            for oid, raw in trees.items():
                if oid not in self._trees:
                    self._trees[oid] = raw
                    self._trees_size += len(raw)
            while self._trees_size > _CACHE:
                self._trees_size -= len(self._trees.popitem(last=False)[1])

    def chunks(self, oid: bytes) -> Iterator[bytes]:
        """The content of a blob in pieces, so that a large one is never whole in memory. Raises MissingObject, and
        DamagedObject at the latest after the last piece."""
        place = self.find(oid)
        opened = None
        if place is not None:
            try:
                opened = place.pack.open_record(place.offset)
            except (DamagedPack, FileNotFoundError):
                opened = None
        if opened is None:
            yield self.read(oid)[1]
            return
        digest = hasher(opened.kind, opened.size)
        try:
            for piece in opened.pieces:
                digest.update(piece)
                yield piece
        except DamagedPack as error:
            raise DamagedObject(oid, str(error)) from error
        if digest.digest() != oid:
            raise DamagedObject(oid, "its bytes are not those it was named for")


def _blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _written_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _is_rolling(path: Path) -> bool:
    """Whether a pack is not known to be synced: also one whose .keep says nothing, after a power loss."""
    text = keep_text(path)
    return text is not None and not text.startswith((KEEP_BASE, KEEP_WRITING))
