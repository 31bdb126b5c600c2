"""Editing git trees in memory: only the trees on the way to a changed path are made anew."""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from checkpointd.vault.objects import MODE_TREE, TREE, TreeEntry, build_tree
from checkpointd.vault.packs import PackBuilder
from checkpointd.vault.trees import EMPTY_TREE

_KEPT_ENTRIES = 200_000  # over all kept trees; some 30 MB at worst


class Leaf(NamedTuple):
    """What a tree holds at a path."""

    mode: int
    oid: bytes

    @property
    def is_tree(self) -> bool:
        return self.mode == MODE_TREE


class Node:
    """One tree, its entries in git's order: the sort key (a folder's name ends in a slash) beside the raw record.

    Two plain lists, since a folder of 50,000 names must be edited and joined in a millisecond or two.
    """

    __slots__ = ("keys", "records")

    def __init__(self, keys: list[bytes], records: list[bytes]) -> None:
        self.keys = keys
        self.records = records

    @classmethod
    def of(cls, entries: list[TreeEntry]) -> "Node":
        return cls(
            [entry.name + b"/" if entry.mode == MODE_TREE else entry.name for entry in entries],
            [b"%o %s\0%s" % entry for entry in entries],
        )

    def raw(self) -> bytes:
        return b"".join(self.records)

    def copy(self) -> "Node":
        return Node(self.keys.copy(), self.records.copy())

    def _place(self, name: bytes) -> int | None:
        for key in (name, name + b"/"):
            at = bisect_left(self.keys, key)
            if at < len(self.keys) and self.keys[at] == key:
                return at
        return None

    def find(self, name: bytes) -> Leaf | None:
        at = self._place(name)
        return None if at is None else _leaf(self.records[at])

    def remove(self, name: bytes) -> None:
        at = self._place(name)
        if at is not None:
            del self.keys[at], self.records[at]

    def put(self, name: bytes, leaf: Leaf) -> None:
        """Puts an entry in the place of whatever has its name. Raises BadTree where git forbids it."""
        record = build_tree([(leaf.mode, name, leaf.oid)])
        key = name + b"/" if leaf.is_tree else name
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            self.records[at] = record
            return
        self.remove(name)  # a file where a folder was, or the reverse
        at = bisect_left(self.keys, key)
        self.keys.insert(at, key)
        self.records.insert(at, record)

    def entries(self) -> Iterator[tuple[bytes, Leaf]]:
        for key, record in zip(self.keys, self.records, strict=True):
            yield key.rstrip(b"/"), _leaf(record)


def _leaf(record: bytes) -> Leaf:
    return Leaf(int(record[: record.index(b" ")], 8), record[-20:])


class TreeEditor:
    """The trees of a vault for finding and editing, the last used ones kept. Ids name contents, so nothing kept can be
    stale; but what is kept need not be in the vault, so every tree that an edit makes is written again."""

    def __init__(self, read: Callable[[bytes], list[TreeEntry]]) -> None:
        self._read = read
        self._kept: OrderedDict[bytes, Node] = OrderedDict()
        self._entries = 0

    def node(self, oid: bytes) -> Node:
        """The tree with this id; not to be changed, copy it."""
        if oid == EMPTY_TREE:
            return Node([], [])
        found = self._kept.get(oid)
        if found is None:
            found = Node.of(self._read(oid))
            self._keep(oid, found)
        else:
            self._kept.move_to_end(oid)
        return found

    def _keep(self, oid: bytes, node: Node) -> None:
        if oid in self._kept:
            return
        self._kept[oid] = node
        self._entries += len(node.keys)
        while self._entries > _KEPT_ENTRIES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._entries -= len(dropped.keys)

    def find(self, root: bytes, path: bytes) -> Leaf | None:
        """What the tree `root` holds at `path`."""
        leaf: Leaf | None = Leaf(MODE_TREE, root)
        for name in path.split(b"/"):
            if leaf is None or not leaf.is_tree:
                return None
            leaf = self.node(leaf.oid).find(name)
        return leaf

    def files(self, root: bytes, below: bytes) -> Iterator[tuple[bytes, Leaf]]:
        """Every file and symlink at or below `below`."""
        leaf = self.find(root, below) if below else Leaf(MODE_TREE, root)
        pending = [(below, leaf)] if leaf else []
        while pending:
            path, leaf = pending.pop()
            if not leaf.is_tree:
                yield path, leaf
                continue
            for name, child in self.node(leaf.oid).entries():
                pending.append((path + b"/" + name if path else name, child))

    def edit(self, root: bytes, edits: Mapping[bytes, Leaf | None], builder: PackBuilder) -> bytes:
        """The tree `root` with these files put, or (None) whatever is there removed; its id. New trees go to `builder`.

        A path may be removed and others below it put. Iterative: a project may nest deeper than Python recurses.
        """
        work = _by_folder(edits)
        nodes = self._nodes(root, work)
        for folder in sorted(work, key=_depth, reverse=True):
            oid = self._edited(nodes[folder], work[folder], builder)
            if not folder:
                return oid
            above, _, name = folder.rpartition(b"/")
            if oid != EMPTY_TREE:
                work[above][name] = Leaf(MODE_TREE, oid)
            elif name not in work[above] and nodes[folder].keys:
                work[above][name] = None
        raise AssertionError("the root comes last")

    def _nodes(self, root: bytes, work: Mapping[bytes, Mapping[bytes, Leaf | None]]) -> dict[bytes, Node]:
        nodes = {b"": self.node(root)}
        for folder in sorted(work, key=_depth):
            if folder:
                above, _, name = folder.rpartition(b"/")
                leaf = None if name in work[above] else nodes[above].find(name)
                nodes[folder] = self.node(leaf.oid) if leaf is not None and leaf.is_tree else Node([], [])
        return nodes

    def _edited(self, node: Node, edits: Mapping[bytes, Leaf | None], builder: PackBuilder) -> bytes:
        node = node.copy()
        for name, leaf in edits.items():
            if leaf is None:
                node.remove(name)
            else:
                node.put(name, leaf)
        if not node.keys:
            return EMPTY_TREE
        oid = builder.add(TREE, node.raw())
        self._keep(oid, node)
        return oid


class Lookup:
    """What one tree holds, each folder on the way looked at once."""

    def __init__(self, editor: TreeEditor, root: bytes) -> None:
        self._editor = editor
        self._found: dict[bytes, Leaf | None] = {b"": Leaf(MODE_TREE, root)}

    def find(self, path: bytes) -> Leaf | None:
        """What is at `path`."""
        if path in self._found:
            return self._found[path]
        names = []
        above = path
        while above not in self._found:  # a loop: a project may nest deeper than Python recurses
            above, _, name = above.rpartition(b"/")
            names.append(name)
        leaf = self._found[above]
        for name in reversed(names):
            above = above + b"/" + name if above else name
            leaf = self._editor.node(leaf.oid).find(name) if leaf is not None and leaf.is_tree else None
            self._found[above] = leaf
        return leaf

    def has_folder(self, path: bytes) -> bool:
        """Whether it has a folder at `path`."""
        leaf = self.find(path)
        return leaf is not None and leaf.is_tree


def _depth(folder: bytes) -> int:
    return folder.count(b"/") + 1 if folder else 0


def _by_folder(edits: Mapping[bytes, Leaf | None]) -> dict[bytes, dict[bytes, Leaf | None]]:
    work: dict[bytes, dict[bytes, Leaf | None]] = {b"": {}}
    for path, leaf in edits.items():
        above, _, name = path.rpartition(b"/")
        work.setdefault(above, {})[name] = leaf
        while above:
            above = above.rpartition(b"/")[0]
            if above in work:
                break
            work[above] = {}
    return work


class TreeWriter:
    """Builds trees from files that come sorted by path, keeping only the folders that are still open."""

    def __init__(self, add: Callable[[int, bytes], bytes]) -> None:
        self._add = add
        self._open: list[tuple[bytes, list[tuple[int, bytes, bytes]]]] = [(b"", [])]

    def add(self, path: bytes, mode: int, oid: bytes) -> None:
        """Takes the next file."""
        above, _, name = path.rpartition(b"/")
        while (at := self._open[-1][0]) and above != at and not above.startswith(at + b"/"):
            self._close()
        if above != at:
            for part in above[len(at) + 1 if at else 0 :].split(b"/"):
                at = at + b"/" + part if at else part
                self._open.append((at, []))
        self._open[-1][1].append((mode, name, oid))

    def _close(self) -> None:
        path, entries = self._open.pop()
        oid = self._add(TREE, build_tree(entries))
        self._open[-1][1].append((MODE_TREE, path.rpartition(b"/")[2], oid))

    def finish(self) -> bytes:
        """The root's id."""
        while len(self._open) > 1:
            self._close()
        entries = self._open[0][1]
        return self._add(TREE, build_tree(entries)) if entries else EMPTY_TREE
