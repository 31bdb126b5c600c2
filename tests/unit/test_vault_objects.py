"""Trees and names: what our writer makes, git accepts; what git refuses, our writer does too."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from checkpointd.vault.errors import BadTree
from checkpointd.vault.objects import (
    BLOB,
    MODE_FILE,
    MODE_SYMLINK,
    MODE_TREE,
    TREE,
    build_commit,
    build_tree,
    forbidden_name,
    object_id,
    parse_commit,
    parse_tree,
)
from checkpointd.vault.packs import PackBuilder
from checkpointd.vault.store import Vault
from support.vaults import WHEN, fsck_complaints

BLOB_ID = object_id(BLOB, b"")


def refused_by_fsck(path: Path, names: list[bytes], mode: int) -> list[bytes]:
    """Those of these names of which git's fsck complains, each in a tree of its own."""
    vault = Vault.create(path)
    builder = vault.new_pack()
    builder.add(BLOB, b"")
    trees = {}
    for name in names:
        raw = b"%o %s\0%s" % (mode, name, BLOB_ID)
        trees[builder.add(TREE, raw).hex()] = name
    vault.write_rolling(builder)
    complained = {line.split()[3].rstrip(":") for line in fsck_complaints(path) if line.startswith("error in tree")}
    return [name for tree, name in trees.items() if tree in complained]


SPELLINGS = [
    b".git", b".GIT", b".Git", b"git~1", b"GIT~1", b"git~2", b".git.", b".git ", b".git. .", b".git...x", b".git\\x",
    b".git:x", b".git::$INDEX_ALLOCATION", b"a\\.git", b"a\\.git\\b", b"a\\git~1", b".gitmodules", b".gitignore",
    b".gitx",
    b"x.git",
    ".g\u200cit".encode(), "\u200d.git".encode(), ".git\ufeff".encode(), ".gi\u206at".encode(), ".g\u2010it".encode(),
    b".git\xff", b".git\xc3", b".git\xef\xbf\xbe", b".git\xc3\xa9", b".g\xffit", b"...", b"CON", b"a\nb", b"caf\xe9",
    b" ",
    b"-",
    b"git~1 .", b"git~1x", b"git~10", b".git\n", b".git\t", b".git .:", b"gi7eba~1", b".gitattributes",
]  # fmt: skip
MODULE_SPELLINGS = [
    b".gitmodules", b".GITMODULES", b".gitmodules ", b".gitmodules.", b".gitmodules:x", b"gitmod~1", b"gitmod~4",
    b"gitmod~5",
    b"gi7eba~1", b"gi7eb~10", b"gi7d29~1", b"~1000000", b"~9999999", b"g~100000", b".gitmodulesx", b"a\\.gitmodules",
    ".gitmod\u200cules".encode(), b".gitmodules\xff", b"x.gitmodules", b"gi7eba~0", b"gi7ebA~1",
]  # fmt: skip


@pytest.mark.parametrize(("names", "mode"), [(SPELLINGS, MODE_FILE), (MODULE_SPELLINGS, MODE_SYMLINK)])
def test_a_name_is_forbidden_exactly_when_fsck_complains(tmp_path: Path, names: list[bytes], mode: int) -> None:
    refused = refused_by_fsck(tmp_path / "vault.git", names, mode)
    assert [name for name in names if forbidden_name(name, mode)] == refused
    assert refused


NAME_PARTS = st.lists(
    st.sampled_from(
        [b".", b"g", b"G", b"i", b"t", b"git", b".git", b"~", b"1", b" ", b":", b"\\", b"modules", b"gi7eba", b"\xff",
         b"\xe2",
         "\u200c".encode(), "\ufeff".encode(), "\uffff".encode(), "\u00e9".encode()]
    ),
    min_size=1,
    max_size=6,
).map(b"".join)  # fmt: skip


@given(
    st.lists(NAME_PARTS, min_size=200, max_size=200),
    st.sampled_from([MODE_FILE, MODE_SYMLINK]),
)
@settings(deadline=None, max_examples=15)
def test_any_spelling_is_judged_as_fsck_does(
    tmp_path_factory: pytest.TempPathFactory, names: list[bytes], mode: int
) -> None:
    names = list(dict.fromkeys(names))
    refused = refused_by_fsck(tmp_path_factory.mktemp("v") / "vault.git", names, mode)
    ours = {name for name in names if forbidden_name(name, mode)}
    assert ours >= set(refused)
    # A name with a backslash is judged by each of its parts: stricter than git is, on the safe side.
    assert {name for name in ours if b"\\" not in name} == {name for name in refused if b"\\" not in name}


@pytest.mark.parametrize(
    "entries",
    [
        [(MODE_FILE, b"", BLOB_ID)],
        [(MODE_FILE, b".", BLOB_ID)],
        [(MODE_FILE, b"..", BLOB_ID)],
        [(MODE_FILE, b"a/b", BLOB_ID)],
        [(MODE_FILE, b"a\0b", BLOB_ID)],
        [(MODE_TREE, b".git", BLOB_ID)],
        [(MODE_SYMLINK, b".gitmodules", BLOB_ID)],
        [(MODE_FILE, b"a", BLOB_ID), (MODE_TREE, b"a", BLOB_ID)],
        [(0o160000, b"a", BLOB_ID)],
        [(0o100600, b"a", BLOB_ID)],
        [(MODE_FILE, b"a", bytes(20))],
        [(MODE_FILE, b"a", b"short")],
    ],
)
def test_a_tree_that_git_would_refuse_is_not_built(entries: list[tuple[int, bytes, bytes]]) -> None:
    with pytest.raises(BadTree):
        build_tree(entries)


def test_entries_are_sorted_as_git_sorts_them() -> None:
    entries = [(MODE_FILE, b"a.txt", BLOB_ID), (MODE_TREE, b"a", BLOB_ID), (MODE_FILE, b"a-b", BLOB_ID)]
    assert [entry.name for entry in parse_tree(build_tree(entries))] == [b"a-b", b"a.txt", b"a"]


file_names = st.binary(min_size=1, max_size=12).filter(lambda n: b"/" not in n and b"\0" not in n)
trees = st.recursive(
    st.binary(max_size=40),
    lambda inner: st.dictionaries(file_names.filter(lambda n: not forbidden_name(n)), inner, max_size=5),
    max_leaves=25,
)


def written(builder: PackBuilder, node: object) -> tuple[int, bytes]:
    if isinstance(node, bytes):
        return MODE_FILE, builder.add(BLOB, node)
    assert isinstance(node, dict)
    entries = [(mode, name, oid) for name, below in node.items() for mode, oid in [written(builder, below)]]
    return MODE_TREE, builder.add(TREE, build_tree(entries))


@given(st.lists(st.dictionaries(file_names.filter(lambda n: not forbidden_name(n)), trees, max_size=6), max_size=6))
@example([{b"caf\xe9": b"", b"a\nb": {b"x": b"y"}, b"a": {b"a": {b"a": b""}}}])
@settings(deadline=None, max_examples=25)
def test_whatever_tree_we_write_fsck_strict_is_content(
    tmp_path_factory: pytest.TempPathFactory, roots: list[dict[bytes, object]]
) -> None:
    vault = Vault.create(tmp_path_factory.mktemp("v") / "vault.git")
    builder = vault.new_pack()
    ids = [written(builder, root)[1] for root in roots]
    vault.write_rolling(builder)
    for number, oid in enumerate(ids):
        builder = vault.new_pack()
        from_tree = builder.add(1, build_commit(oid, "a tree", WHEN))
        vault.write_rolling(builder)
        vault.set_ref(f"refs/test/{number}", from_tree)
    assert fsck_complaints(vault.path) == []


def test_trees_and_ids_are_those_of_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "b.txt").write_bytes(b"hello\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c").write_bytes(b"")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    expected = subprocess.run(["git", "write-tree"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    inner = object_id(TREE, build_tree([(MODE_FILE, b"c", BLOB_ID)]))
    ours = build_tree([(MODE_FILE, b"b.txt", object_id(BLOB, b"hello\n")), (MODE_TREE, b"a", inner)])
    assert object_id(TREE, ours).hex() == expected.strip()


def test_a_commit_is_read_back_as_it_was_built() -> None:
    commit = parse_commit(build_commit(BLOB_ID, "line one\n\nNUL \0 inside", WHEN, parents=[BLOB_ID]))
    assert (commit.tree, commit.parents, commit.message) == (BLOB_ID, [BLOB_ID], b"line one\n\nNUL   inside\n")


@pytest.mark.parametrize("raw", [b"", b"author x\n\nhi", b"tree zz\n\n"])
def test_bytes_that_are_no_commit_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_commit(raw)


@pytest.mark.parametrize("raw", [b"100644", b"100644 a\0short", b"x a\0" + bytes(20)])
def test_bytes_that_are_no_tree_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_tree(raw)
