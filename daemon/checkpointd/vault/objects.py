"""Git objects as bytes: ids, trees, commits, and the names git forbids."""

import hashlib
import re
import stat
from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from checkpointd.vault.errors import BadTree

COMMIT, TREE, BLOB, TAG = 1, 2, 3, 4
KIND_NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}

TREE_MODE_TEXT = b"40000"
MODE_TREE, MODE_FILE, MODE_EXECUTABLE, MODE_SYMLINK = 0o040000, 0o100644, 0o100755, 0o120000
_MODE_TEXTS = {MODE_TREE: TREE_MODE_TEXT, MODE_FILE: b"100644", MODE_EXECUTABLE: b"100755", MODE_SYMLINK: b"120000"}

_MODES = {text: mode for mode, text in _MODE_TEXTS.items()}
# Most names: none of the beginnings that forbidden_name knows, and nothing that is forbidden anywhere.
_PLAIN = re.compile(rb"[^./\0\\~gG\xe2\xef][^/\0\\]*", re.DOTALL)
_LINE = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)

_WHO = b"checkpointd <checkpointd@localhost>"
_NULL = bytes(20)

Oid = bytes | str
"""An object's id as callers have it: 20 raw bytes, or 40 hex digits."""


def raw_id(oid: Oid) -> bytes:
    """The 20 raw bytes of an id."""
    return oid if isinstance(oid, bytes) else bytes.fromhex(oid)


class TreeEntry(NamedTuple):
    """One line of a tree; `oid` is 20 raw bytes."""

    mode: int
    name: bytes
    oid: bytes

    @property
    def is_tree(self) -> bool:
        return self.mode == MODE_TREE


def hasher(kind: int, size: int) -> "hashlib._Hash":
    """A hash that the `size` bytes of an object of this kind are fed to."""
    return hashlib.sha1(b"%s %d\0" % (KIND_NAMES[kind], size))


def object_id(kind: int, data: bytes) -> bytes:
    """The 20 raw bytes that name an object."""
    digest = hasher(kind, len(data))
    digest.update(data)
    return digest.digest()


def blob_id(data: bytes) -> bytes:
    """The 20 raw bytes that name a file's content."""
    return object_id(BLOB, data)


def tree_lines(raw: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """The (mode as text, name, oid) of a tree's bytes that are known to be a tree: fast, and without any check."""
    return _LINE.findall(raw)


def tree_entries(raw: bytes) -> list[tuple[int, bytes, bytes]]:
    """The (mode, name, oid) of a tree's bytes, in its order. Raises ValueError on bytes that are no tree."""
    lines = _LINE.findall(raw)
    # Nothing may be left over between lines, nor at the end.
    if sum(map(len, chain.from_iterable(lines))) + 2 * len(lines) != len(raw):
        raise ValueError("tree is cut off")
    return [(_MODES.get(mode) or int(mode, 8), name, oid) for mode, name, oid in lines]


def parse_tree(raw: bytes) -> list[TreeEntry]:
    """The entries of a tree's bytes, in its order. Raises ValueError on bytes that are no tree."""
    return [TreeEntry(*entry) for entry in tree_entries(raw)]


def build_tree(entries: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The bytes of a tree with these entries, in git's order. Raises BadTree for what git would not accept."""
    lines: list[tuple[bytes, bytes]] = []
    names: set[bytes] = set()
    for mode, name, oid in entries:
        text = _MODE_TEXTS.get(mode)
        if text is None:
            raise BadTree(f"mode {mode:o} of {name!r}")
        if len(oid) != 20 or oid == _NULL:
            raise BadTree(f"id {oid!r} of {name!r}")
        if not _PLAIN.fullmatch(name) and (not name or b"/" in name or b"\0" in name or forbidden_name(name, mode)):
            raise BadTree(f"name {name!r}")
        if name in names:
            raise BadTree(f"name {name!r} twice")
        names.add(name)
        lines.append((name + b"/" if mode == MODE_TREE else name, b"%s %s\0%s" % (text, name, oid)))
    lines.sort()
    return b"".join(line for _, line in lines)


# What follows is fsck's and the index's idea of a dangerous name (path.c: is_ntfs_dotgit; utf8.c: is_hfs_dotgit):
# a name that Windows or macOS would resolve to `.git`.
_NTFS_DOTGIT = re.compile(rb"(?:\.git|git~1)[. ]*(?:[\\/:]|\Z)", re.IGNORECASE | re.DOTALL)
_SHORT_NAMES = b"|".join(b"%s~[1-9][0-9]{%d}" % (b"gi7eba"[:k], 6 - k) for k in range(7))
_NTFS_DOTGITMODULES = re.compile(
    rb"(?:\.gitmodules|gitmod~[1-4]|%s)[. ]*(?::|\Z)" % _SHORT_NAMES, re.IGNORECASE | re.DOTALL
)
_HFS_IGNORED = [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
_HFS_ANY = b"(?:%s)*" % b"|".join(chr(code).encode() for code in _HFS_IGNORED)


def _hfs_spelling(word: str) -> re.Pattern[bytes]:
    letters = [b"[%s]" % re.escape(c + c.upper()).encode() for c in word]
    return re.compile(_HFS_ANY + _HFS_ANY.join(letters) + _HFS_ANY)


_HFS_DOTGIT, _HFS_DOTGITMODULES = _hfs_spelling(".git"), _hfs_spelling(".gitmodules")


_DANGEROUS_STARTS = frozenset((b".", b"g", b"G", b"~", *(bytes((chr(code).encode()[0],)) for code in _HFS_IGNORED)))


def forbidden_name(name: bytes, mode: int = MODE_FILE) -> bool:
    """Whether git refuses this name in a tree: `.`, `..`, and every spelling of `.git` (and, for a symlink, of
    `.gitmodules`) that Windows or macOS would take for it."""
    if name[:1] not in _DANGEROUS_STARTS and b"\\" not in name:
        return False  # nearly every name, and every name of every capture comes by here
    if name in (b".", b".."):
        return True
    symlink = stat.S_ISLNK(mode)
    for part in name.split(b"\\"):
        if _NTFS_DOTGIT.match(part) or (symlink and _NTFS_DOTGITMODULES.match(part)):
            return True
    return _hfs_spells(_HFS_DOTGIT, name) or (symlink and _hfs_spells(_HFS_DOTGITMODULES, name))


def _hfs_spells(spelling: re.Pattern[bytes], name: bytes) -> bool:
    match = spelling.match(name)
    if not match:
        return False
    rest = name[match.end() : match.end() + 4]
    # git's reader of UTF-8 answers "end of string" for what is no character, so such a name counts as well.
    return not rest or _no_character(rest)


def _no_character(start: bytes) -> bool:
    for length in range(1, len(start) + 1):
        try:
            return ord(start[:length].decode("utf-8")) & 0xFFFE == 0xFFFE
        except UnicodeDecodeError:
            continue
    return True


class Commit(NamedTuple):
    """What of a commit is used here."""

    tree: bytes
    parents: list[bytes]
    message: bytes


def build_commit(tree: bytes, message: str, when: datetime, parents: Iterable[bytes] = ()) -> bytes:
    """The bytes of a commit in our own name."""
    stamp = b"%d +0000" % int(when.timestamp())
    lines = [b"tree " + tree.hex().encode()]
    lines += [b"parent " + parent.hex().encode() for parent in parents]
    lines += [b"author %s %s" % (_WHO, stamp), b"committer %s %s" % (_WHO, stamp)]
    text = message.encode("utf-8", "replace").replace(b"\0", b" ").strip(b"\n")
    return b"\n".join(lines) + b"\n\n" + text + b"\n"


def parse_commit(raw: bytes) -> Commit:
    """The tree, parents and message of a commit's bytes. Raises ValueError on bytes that are no commit."""
    head, _, message = raw.partition(b"\n\n")
    tree, parents = None, []
    for line in head.split(b"\n"):
        key, _, value = line.partition(b" ")
        if key == b"tree" and tree is None:
            tree = bytes.fromhex(value.decode("ascii"))
        elif key == b"parent":
            parents.append(bytes.fromhex(value.decode("ascii")))
    if tree is None or len(tree) != 20:
        raise ValueError("commit without a tree")
    return Commit(tree, parents, message)
