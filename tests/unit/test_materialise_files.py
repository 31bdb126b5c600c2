"""Files below a root: written whole, removed only while they are what is held, never outside it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.model.restore import DIRECTORY, FILE, SYMLINK, Entry
from checkpointd.vault.errors import DamagedObject
from checkpointd.vault.materialise import Held, OpenTree, Refusal
from checkpointd.vault.objects import blob_id

NOTHING = Held(entry=None)


class Contents:
    """Blobs in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.damaged = False

    def add(self, content: bytes) -> str:
        oid = blob_id(content).hex()
        self.blobs[oid] = content
        return oid

    def read_blob(self, oid: str) -> bytes:
        return self.blobs[oid]

    def blob_chunks(self, oid: str) -> Iterator[bytes]:
        yield self.blobs[oid]
        if self.damaged:
            raise DamagedObject(bytes.fromhex(oid), "for the test")


@pytest.fixture
def contents():
    return Contents()


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def tree(root):
    with OpenTree(root, "t") as opened:
        yield opened


def file(contents, content=b"new", permissions=0o640):
    return Entry(mode=FILE, oid=contents.add(content), permissions=permissions)


def test_a_file_appears_whole_with_its_permissions_and_its_folders(root, tree, contents):
    tree.write(b"a/b/f", file(contents), contents, NOTHING, {b"a": 0o700, b"a/b": 0o755})
    assert (root / "a/b/f").read_bytes() == b"new"
    assert stat.S_IMODE((root / "a/b/f").stat().st_mode) == 0o640
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o700
    assert os.listdir(root / "a/b") == ["f"]


def test_a_file_that_appeared_meanwhile_is_not_replaced(root, tree, contents):
    (root / "f").write_bytes(b"theirs")
    with pytest.raises(Refusal):
        tree.write(b"f", file(contents), contents, NOTHING, {})
    assert (root / "f").read_bytes() == b"theirs"
    assert os.listdir(root) == ["f"]


def test_a_file_is_replaced_only_while_it_is_what_is_held(root, tree, contents):
    (root / "f").write_bytes(b"old")
    held = Held(entry=file(contents, b"old", 0o644))
    (root / "f").chmod(0o644)
    tree.write(b"f", file(contents), contents, held, {})
    assert (root / "f").read_bytes() == b"new"
    with pytest.raises(Refusal):
        tree.write(b"f", file(contents, b"newer"), contents, held, {})
    with pytest.raises(Refusal):
        tree.remove(b"f", held)
    assert (root / "f").read_bytes() == b"new"


def test_an_open_reader_keeps_the_old_file(root, tree, contents):
    (root / "f").write_bytes(b"old")
    (root / "f").chmod(0o644)
    with (root / "f").open("rb") as reader:
        tree.write(b"f", file(contents), contents, Held(entry=file(contents, b"old", 0o644)), {})
        assert reader.read() == b"old"


@pytest.mark.parametrize("path", [b"../f", b"a/../../f", b"/etc/f", b"", b"a//b", b"a\0b"])
def test_b171_a_path_that_is_none_of_the_root_is_refused(tree, contents, path):
    with pytest.raises(Refusal):
        tree.write(path, file(contents), contents, NOTHING, {b"a": 0o755})


@pytest.mark.parametrize("path", [b".git/config", b"a/.GIT/hooks/x", b"git~1/x", b".git"])
def test_b174_no_spelling_of_dot_git_is_written(root, tree, contents, path):
    with pytest.raises(Refusal, match="not allowed"):
        tree.write(path, file(contents), contents, NOTHING, {b"a": 0o755, b".git": 0o755, b"git~1": 0o755})
    assert not os.listdir(root)


def test_b172_a_symlink_on_the_way_is_not_followed(root, tree, contents, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(b"theirs")
    (root / "d").symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        tree.write(b"d/f", file(contents), contents, NOTHING, {b"d": 0o755})
    tree.remove(b"d/f", Held(entry=file(contents, b"theirs", 0o644)))
    assert tree.look(b"d/f") is None
    assert (outside / "f").read_bytes() == b"theirs"


def test_b172_a_symlink_at_the_end_is_replaced_and_not_written_through(root, tree, contents, tmp_path):
    (tmp_path / "outside").write_bytes(b"theirs")
    (root / "f").symlink_to(tmp_path / "outside")
    target = os.fsencode(tmp_path / "outside")
    tree.write(b"f", file(contents), contents, Held(entry=Entry(mode=SYMLINK, oid=blob_id(target).hex())), {})
    assert (root / "f").read_bytes() == b"new"
    assert (tmp_path / "outside").read_bytes() == b"theirs"


def test_a_root_that_became_a_symlink_is_refused(root, tmp_path):
    root.rmdir()
    root.symlink_to(tmp_path)
    with pytest.raises(OSError):
        OpenTree(root, "t")


def test_damage_in_the_vault_leaves_nothing_behind(root, tree, contents):
    contents.damaged = True
    with pytest.raises(DamagedObject):
        tree.write(b"f", file(contents), contents, NOTHING, {})
    assert not os.listdir(root)


def test_a_name_of_any_bytes_comes_back(root, tree, contents):
    name = b"caf\xe9\n\x01\xff"
    tree.write(name, file(contents), contents, NOTHING, {})
    assert os.listdir(os.fsencode(root)) == [name]


def test_a_path_deeper_than_descriptors_are_kept_is_written(root, tree, contents):
    parts = [b"d"] * 150
    make = {b"/".join(parts[:depth]): 0o755 for depth in range(1, 151)}
    path = b"/".join([*parts, b"f"])
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    tree.write(path, file(contents), contents, NOTHING, make)
    assert tree.identify(path) == file(contents)
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before


def test_a_symlink_with_the_same_target_is_told_by_its_bytes(root, tree, contents):
    link = Entry(mode=SYMLINK, oid=contents.add(b"to\xff"))
    tree.write(b"l", link, contents, NOTHING, {})
    assert os.readlink(os.fsencode(root) + b"/l") == b"to\xff"
    assert tree.identify(b"l").same(link)


def test_special_files_are_never_part_of_it(root, tree, contents):
    os.mkfifo(root / "fifo")
    with pytest.raises(Refusal):
        tree.identify(b"fifo")
    with pytest.raises(Refusal):
        tree.write(b"fifo", file(contents), contents, Held(entry=file(contents)), {})
    assert stat.S_ISFIFO((root / "fifo").lstat().st_mode)


def test_a_folder_is_removed_only_if_it_is_empty(root, tree):
    (root / "d/e").mkdir(parents=True)
    assert not tree.remove_empty(b"d")
    assert tree.remove_empty(b"d/e") and tree.remove_empty(b"d") and tree.remove_empty(b"d")
    assert not os.listdir(root)


def test_sweeping_takes_only_what_carries_the_token(root, tree):
    (root / "d").mkdir()
    for name in (".ckpt-restore-t-1-1", ".ckpt-restore-other-1-1", "mine"):
        (root / "d" / name).touch()
    tree.sweep(b"d")
    tree.sweep(b"nowhere")
    assert sorted(os.listdir(root / "d")) == [".ckpt-restore-other-1-1", "mine"]


def test_what_cannot_be_read_gets_its_permissions_all_the_same(root, tree):
    (root / "f").write_bytes(b"x")
    (root / "d").mkdir()
    for name in ("f", "d"):
        (root / name).chmod(0)
        tree.set_permissions(name.encode(), 0o700)
        assert stat.S_IMODE((root / name).stat().st_mode) == 0o700


def test_permissions_are_never_set_through_a_symlink(root, tree, tmp_path):
    (tmp_path / "outside").write_bytes(b"x")
    (tmp_path / "outside").chmod(0o600)
    (root / "l").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError):
        tree.set_permissions(b"l", 0o777)
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o600


def test_a_folder_entry_makes_a_folder(root, tree, contents):
    tree.write(b"d", Entry(mode=DIRECTORY, permissions=0o711), contents, NOTHING, {})
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o711
