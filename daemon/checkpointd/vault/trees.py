"""Reading what a vault holds: blobs, trees, paths in them, differences between them."""

from collections.abc import Iterator
from typing import NamedTuple

from checkpointd.vault.errors import DamagedObject, MissingObject
from checkpointd.vault.objects import (
    BLOB,
    COMMIT,
    MODE_TREE,
    TREE,
    Commit,
    Oid,
    TreeEntry,
    object_id,
    parse_commit,
    parse_tree,
    raw_id,
    tree_entries,
)
from checkpointd.vault.packdir import PackFolder

EMPTY_TREE = object_id(TREE, b"")

Side = tuple[int, bytes]
"""Mode and id of a path on one side of a difference."""


class TreeDifference(NamedTuple):
    """One path (no folder) that two trees do not have in common."""

    path: bytes
    old: Side | None
    new: Side | None


class Trees:
    """The objects of a vault, for reading. Ids are taken as 40 hex digits or 20 raw bytes, and given as raw bytes.

    Every content is proved by its id before it is given. Everything raises MissingObject for what the vault lacks
    and DamagedObject for what it holds no longer whole: absence is never an answer.
    """

    def __init__(self, packs: PackFolder) -> None:
        self._packs = packs

    def has(self, oid: Oid) -> bool:
        """Whether an object is there. Not a reason to leave it out of a new pack: what no ref reaches goes at the next
        roll-up."""
        return raw_id(oid) == EMPTY_TREE or self._packs.has(raw_id(oid))

    def read_blob(self, oid: Oid) -> bytes:
        """The content of a file."""
        return self._read(raw_id(oid), BLOB)

    def blob_chunks(self, oid: Oid) -> Iterator[bytes]:
        """The content of a file in pieces, so that a large one need not be in memory. Damage may show only after the
        last piece: what was done with them is to be undone then."""
        return self._packs.chunks(raw_id(oid))

    def read_tree(self, oid: Oid) -> list[TreeEntry]:
        """The entries of a folder."""
        oid = raw_id(oid)
        try:
            return parse_tree(self._raw_tree(oid))
        except ValueError as error:
            raise DamagedObject(oid, str(error)) from error

    def read_commit(self, oid: Oid) -> Commit:
        """A commit's tree, parents and message."""
        oid = raw_id(oid)
        try:
            return parse_commit(self._read(oid, COMMIT))
        except ValueError as error:
            raise DamagedObject(oid, str(error)) from error

    def _read(self, oid: bytes, expected: int) -> bytes:
        kind, data = self._packs.read(oid)
        if kind != expected:
            raise DamagedObject(oid, "it is of another kind")
        return data

    def _raw_tree(self, oid: bytes) -> bytes:
        return b"" if oid == EMPTY_TREE else self._packs.read_tree(oid)

    def _entries(self, oid: bytes) -> dict[bytes, Side]:
        try:
            return {name: (mode, child) for mode, name, child in tree_entries(self._raw_tree(oid))}
        except ValueError as error:
            raise DamagedObject(oid, str(error)) from error

    def resolve(self, tree: Oid, path: bytes) -> TreeEntry | None:
        """The entry at a path below a tree; None where the tree has no such path."""
        oid = raw_id(tree)
        entry: TreeEntry | None = None
        for name in path.split(b"/"):
            if entry is not None and entry.mode != MODE_TREE:
                return None
            found = self._entries(oid).get(name)
            if found is None:
                return None
            entry = TreeEntry(found[0], name, found[1])
            oid = found[1]
        return entry

    def walk(self, tree: Oid, prefix: bytes = b"") -> Iterator[tuple[bytes, int, bytes]]:
        """Path, mode and id of every file below a tree, in git's order."""
        for mode, name, oid in self.read_tree(tree):
            path = prefix + name
            if mode == MODE_TREE:
                yield from self.walk(oid, path + b"/")
            else:
                yield path, mode, oid

    def diff(self, old: Oid | None, new: Oid | None) -> list[TreeDifference]:
        """The files that two trees do not have in common, by path; None is the tree without any. Only folders that
        differ are read."""
        found: list[TreeDifference] = []
        start = tuple((MODE_TREE, raw_id(side)) if side is not None else None for side in (old, new))
        pending: list[tuple[bytes, Side | None, Side | None]] = [(b"", start[0], start[1])]
        while pending:
            path, before, after = pending.pop()
            if before == after:
                continue
            below_before = before is not None and before[0] == MODE_TREE
            below_after = after is not None and after[0] == MODE_TREE
            if below_before or below_after:
                pending += self._differing(path, before if below_before else None, after if below_after else None)
            file_before = None if below_before else before
            file_after = None if below_after else after
            if file_before is not None or file_after is not None:
                found.append(TreeDifference(path, file_before, file_after))
        found.sort()
        return found

    def _differing(
        self, path: bytes, before: Side | None, after: Side | None
    ) -> Iterator[tuple[bytes, Side | None, Side | None]]:
        old = self._entry_set(before[1]) if before is not None else frozenset()
        new = self._entry_set(after[1]) if after is not None else frozenset()
        prefix = path + b"/" if path else b""
        come: dict[bytes, Side] = {name: (mode, oid) for mode, name, oid in new - old}
        for mode, name, oid in old - new:
            yield prefix + name, (mode, oid), come.pop(name, None)
        for name, side in come.items():
            yield prefix + name, None, side

    def _entry_set(self, oid: bytes) -> frozenset[tuple[int, bytes, bytes]]:
        try:
            return frozenset(tree_entries(self._raw_tree(oid)))
        except ValueError as error:
            raise DamagedObject(oid, str(error)) from error

    def unreadable(self, commit: Oid) -> str:
        """What of a commit's own objects cannot be read: commit, documents, the top of its trees; "" for nothing."""
        try:
            for entry in self.read_tree(self.read_commit(commit).tree):
                if entry.is_tree:
                    self.read_tree(entry.oid)
                else:
                    self.read_blob(entry.oid)
        except (MissingObject, DamagedObject) as error:
            return str(error).rstrip(".")
        return ""

    def lack(self, commit: Oid, known: set[bytes]) -> str:
        """What a commit reaches and the vault does not hold; "" for nothing. `known` is what other calls have found,
        and grows."""
        lack = self.unreadable(commit)
        if lack:
            return lack
        missing = self._missing_below(self.read_commit(commit).tree, known)
        return f"it lacks the object {missing.hex()}" if missing else ""

    def _missing_below(self, tree: bytes, known: set[bytes]) -> bytes | None:
        pending = [tree]
        while pending:
            oid = pending.pop()
            if oid in known:
                continue
            try:
                entries = self._entries(oid)
            except (MissingObject, DamagedObject):
                return oid
            known.add(oid)
            for mode, child in entries.values():
                if mode == MODE_TREE:
                    pending.append(child)
                elif child not in known:
                    if not self.has(child):
                        return child
                    known.add(child)
        return None
