"""The vault's index: git reads it, and it finds what it wrote."""

import os
import subprocess
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.vault import index
from checkpointd.vault.index import EMPTY, Entry, head_of, pack_entry, unpack_entry

TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
names = st.lists(
    st.binary(min_size=1, max_size=9).filter(lambda name: not set(name) & {0, 47}), min_size=1, max_size=3
).map(b"/".join)
NEW = Entry(bytes(range(20)), 0o100644, 7, 10**18 + 5, 10**18 + 6, 11, 12, 13, 14)


def raw_git(index_path: Path, work_tree: Path, *args: str) -> bytes:
    git_dir = index_path.parent / "scratch.git"
    if not git_dir.exists():
        subprocess.run(["git", "init", "-q", "--bare", str(git_dir)], check=True)
    env = {
        "PATH": os.environ["PATH"], "GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(work_tree),
        "GIT_INDEX_FILE": str(index_path),
    }  # fmt: skip
    return subprocess.run(["git", *args], env=env, check=True, capture_output=True).stdout


@given(st.dictionaries(names, st.booleans(), max_size=20), st.dictionaries(names, st.booleans(), max_size=20))
@settings(max_examples=60, deadline=None)
def test_changes_are_merged_and_everything_is_found(tmp_path_factory, first, second):
    folder = tmp_path_factory.mktemp("index")
    wanted: dict[bytes, Entry] = {}
    found = EMPTY
    for changes in (first, second):
        heads = {path: pack_entry(NEW._replace(inode=len(path))) if there else None for path, there in changes.items()}
        found = index.write(folder / "index", found, heads, TREE)
        for path, there in changes.items():
            wanted.pop(path, None)
            if there:
                wanted[path] = NEW._replace(inode=len(path))
    read = index.load(folder / "index")
    assert read is not None
    for each in (found, read):
        assert list(each.below(b"")) == sorted(wanted.items())
        assert len(each) == len(wanted)
        assert each.tree == TREE
        for path in [*first, *second, b"absent"]:
            assert each.find(path) == wanted.get(path)
            assert each.count_below(path) == sum(name.startswith(path + b"/") for name in wanted)


def test_git_reads_it_and_compares_files_with_it(tmp_path):
    work = tmp_path / "work"
    (work / "d").mkdir(parents=True)
    heads = {}
    for name in (b"a", b"d/b", b"caf\xe9", b"n" * 255, b"d/" + b"m" * 250):
        path = os.path.join(os.fsencode(work), name)
        Path(os.fsdecode(path)).write_bytes(b"x")
        info = os.lstat(path)
        heads[name] = head_of(bytes(20)[:-1] + b"\1", 0o100644, info, read_ns=info.st_ctime_ns + 2 * 10**9)
    index.write(tmp_path / "index", EMPTY, heads, TREE)
    listed = raw_git(tmp_path / "index", work, "ls-files", "-z").split(b"\0")[:-1]
    assert listed == sorted(heads)
    os.utime(work / "a", ns=(1, 1))
    (work / "d/b").unlink()
    changed = raw_git(tmp_path / "index", work, "diff-files", "-z", "--name-only").split(b"\0")[:-1]
    assert {b"a", b"d/b"} <= set(changed)


def test_a_file_changed_in_the_second_in_which_it_was_read_is_not_trusted(tmp_path):
    (tmp_path / "f").write_text("x")
    info = (tmp_path / "f").stat()
    second = info.st_ctime_ns // 10**9 * 10**9
    assert not unpack_entry(head_of(bytes(20), 0o100644, info, read_ns=second + 999_999_999)).matches(info)
    assert unpack_entry(head_of(bytes(20), 0o100644, info, read_ns=second + 1_000_000_000)).matches(info)


def test_what_is_not_whole_is_no_index(tmp_path):
    path = tmp_path / "index"
    index.write(path, EMPTY, {b"a": pack_entry(NEW)}, TREE)
    data = path.read_bytes()
    for broken in (b"", data[:-1], data[:40], data.replace(b"a", b"b", 1), data + b"x"):
        path.write_bytes(broken)
        assert index.load(path) is None
    path.unlink()
    assert index.load(path) is None
