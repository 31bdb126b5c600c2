"""The vault: checkpoints whole or not at all, rolling states, reading, differences."""

import itertools
import random
import stat
import subprocess
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.clock import FakeClock
from checkpointd.vault import packdir
from checkpointd.vault.errors import (
    CheckpointExists,
    DamagedObject,
    MissingObject,
    NewerLayout,
    NoCheckpoint,
    NotAVault,
    StoreError,
    StoreFull,
)
from checkpointd.vault.objects import (
    BLOB,
    MODE_FILE,
    MODE_TREE,
    TREE,
    Oid,
    TreeEntry,
    blob_id,
    build_tree,
    raw_id,
)
from checkpointd.vault.packs import PackBuilder
from checkpointd.vault.store import RollingTree, TreeRef, Vault
from checkpointd.vault.trees import EMPTY_TREE
from support.vaults import (
    WHEN,
    add_files,
    capture,
    checkpoint,
    contents,
    fsck_complaints,
    packs_folder,
    real_git,
)

FILES = {b"README": b"hi\n", b"src/a.py": b"a\n", b"src/b.py": b"b\n", b"src/deep/c": b"c", b"caf\xe9": b"latin"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 3, 1, tzinfo=UTC))


@pytest.fixture
def vault(tmp_path: Path, clock: FakeClock) -> Vault:
    return Vault.create(tmp_path / "vault.git", clock=clock)


def rolling_packs(vault: Vault) -> int:
    return sum(keep.read_text() == "rolling\n" for keep in packs_folder(vault.path).glob("*.keep"))


def test_a_checkpoint_holds_its_files_and_documents(vault: Vault) -> None:
    commit = checkpoint(vault, "ckpt-1", FILES)
    found = vault.checkpoint("ckpt-1")
    assert (found.id, found.commit, found.document("record.yaml")) == ("ckpt-1", commit, b"ckpt-1")
    assert contents(vault, "ckpt-1") == FILES
    assert (found.index, found.documents()) == (None, ["record.yaml"])
    assert vault.checkpoint_ids() == ["ckpt-1"]
    with pytest.raises(KeyError):
        found.document("summary.yaml")


def test_any_git_reads_a_checkpoint(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", FILES)
    assert real_git(vault.path, "show", "refs/checkpoints/ckpt-1:files/src/a.py").stdout == "a\n"
    assert fsck_complaints(vault.path) == []


def test_everything_of_a_vault_is_private(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", FILES)
    for path in (vault.path, *vault.path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_an_id_is_never_used_twice(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", FILES)
    tree = capture(vault, {b"other": b""})
    with pytest.raises(CheckpointExists):
        vault.commit_checkpoint("ckpt-1", {b"files": TreeRef(tree)}, message="again", when=WHEN)
    assert contents(vault, "ckpt-1") == FILES
    assert not [keep for keep in packs_folder(vault.path).glob("*.keep") if "writing" in keep.read_text()]


@pytest.mark.parametrize("id_", ["", "../x", "a/b", ".hidden", "a b"])
def test_an_id_that_is_no_name_for_a_ref_is_refused(vault: Vault, id_: str) -> None:
    tree = capture(vault, FILES)
    with pytest.raises(StoreError):
        vault.commit_checkpoint(id_, {b"files": TreeRef(tree)}, message="", when=WHEN)


def test_a_tree_that_the_vault_lacks_makes_no_checkpoint(vault: Vault) -> None:
    with pytest.raises(MissingObject):
        vault.commit_checkpoint("ckpt-1", {b"files": TreeRef("12" * 20)}, message="", when=WHEN)
    assert vault.checkpoint_ids() == []


def test_an_empty_project_is_a_checkpoint_too(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", {})
    assert contents(vault, "ckpt-1") == {}
    assert vault.checkpoint("ckpt-1").files == EMPTY_TREE.hex()
    assert fsck_complaints(vault.path) == []
    assert contents(Vault.open(vault.path), "ckpt-1") == {}


def test_an_unknown_checkpoint_is_an_error(vault: Vault) -> None:
    with pytest.raises(NoCheckpoint):
        vault.checkpoint("ckpt-9")
    with pytest.raises(NoCheckpoint):
        vault.pin("ckpt-9")


def test_pins_come_and_go(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", FILES)
    checkpoint(vault, "ckpt-2", FILES)
    vault.pin("ckpt-1")
    vault.pin("ckpt-1")
    assert Vault.open(vault.path).pins() == {"ckpt-1"}
    vault.unpin("ckpt-1")
    vault.unpin("ckpt-2")
    assert vault.pins() == set()


def test_a_missing_object_is_an_error_and_never_an_absence(vault: Vault) -> None:
    for read in (vault.read_blob, vault.read_tree, vault.read_commit, lambda oid: b"".join(vault.blob_chunks(oid))):
        with pytest.raises(MissingObject):
            read("34" * 20)
    assert not vault.has("34" * 20)


def test_an_object_of_another_kind_is_no_answer(vault: Vault) -> None:
    tree = capture(vault, FILES)
    with pytest.raises(DamagedObject):
        vault.read_blob(tree)
    with pytest.raises(DamagedObject):
        vault.diff(tree, vault.resolve(tree, b"README").oid)  # type: ignore[union-attr]


def test_paths_are_resolved(vault: Vault) -> None:
    tree = capture(vault, FILES)
    entry = vault.resolve(tree, b"src/deep/c")
    assert entry is not None
    assert (entry.mode, entry.name, vault.read_blob(entry.oid)) == (MODE_FILE, b"c", b"c")
    folder = vault.resolve(tree, b"src")
    assert folder is not None
    assert folder.mode == MODE_TREE
    assert vault.resolve(tree, b"src/none") is None
    assert vault.resolve(tree, b"README/x") is None


paths = st.lists(st.sampled_from([b"a", b"b", b"c", b"d\xff"]), min_size=1, max_size=3).map(b"/".join)


@st.composite
def file_sets(draw: st.DrawFn) -> dict[bytes, bytes]:
    files = draw(st.dictionaries(paths, st.sampled_from([b"", b"1", b"2"]), max_size=12))
    return {p: d for p, d in files.items() if not any(p != q and p.startswith(q + b"/") for q in files)}


@given(st.lists(file_sets(), min_size=2, max_size=2))
@settings(deadline=None, max_examples=60)
def test_a_difference_is_exactly_what_two_walks_do_not_share(
    tmp_path_factory: pytest.TempPathFactory, pair: list[dict[bytes, bytes]]
) -> None:
    vault = diff_vault(tmp_path_factory)
    old, new = (capture(vault, files) for files in pair)
    walked = [{path: (mode, oid) for path, mode, oid in vault.walk(tree)} for tree in (old, new)]
    assert [{path: vault.read_blob(oid) for path, (_, oid) in walk.items()} for walk in walked] == pair
    expected = {
        path: (walked[0].get(path), walked[1].get(path))
        for path in walked[0].keys() | walked[1].keys()
        if walked[0].get(path) != walked[1].get(path)
    }
    found = vault.diff(old, new)
    assert {d.path: (d.old, d.new) for d in found} == expected
    assert len(found) == len(expected)
    assert {d.path for d in vault.diff(None, new)} == walked[1].keys()
    assert {d.path for d in vault.diff(old, None)} == walked[0].keys()


_DIFF_VAULTS: list[Vault] = []


def diff_vault(factory: pytest.TempPathFactory) -> Vault:
    if not _DIFF_VAULTS:
        _DIFF_VAULTS.append(Vault.create(factory.mktemp("diff") / "vault.git"))
    return _DIFF_VAULTS[0]


def test_only_differing_folders_are_read(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {b"%d/%d" % (d, f): b"x%d" % f for d in range(30) for f in range(30)}
    old = capture(vault, files)
    new = capture(vault, {**files, b"7/7": b"changed"})
    reads: list[bytes] = []
    real = vault._packs.read_tree
    monkeypatch.setattr(vault._packs, "read_tree", lambda oid: reads.append(oid) or real(oid))
    assert [d.path for d in vault.diff(old, new)] == [b"7/7"]
    assert len(reads) == 4


def test_rolling_states_are_kept_by_name(vault: Vault) -> None:
    builder = vault.new_pack()
    trees = [add_files(builder, {b"n": b"%d" % number}) for number in range(3)]
    states = {
        "now": RollingTree(trees[2], b'{"m": 2}'),
        "at/1700000000000": RollingTree(trees[0], b"{}"),
        "at/1700000060000": RollingTree(trees[1], b"{}"),
    }
    vault.write_rolling(builder)
    vault.set_rolling("w1", states)
    assert vault.rolling("w1") == states
    assert vault.rolling("w2") == {}
    assert Vault.open(vault.path).rolling("w1") == states
    assert fsck_complaints(vault.path) == []


def test_rolling_packs_go_when_no_state_needs_them(vault: Vault, clock: FakeClock) -> None:
    for number in range(20):
        capture(vault, {b"same": b"same", b"n": b"%d" % number})
    assert rolling_packs(vault) == 20
    assert vault.prune_rolling() == 19
    assert rolling_packs(vault) == 1
    last = vault.rolling("w1")["now"].files
    assert {path for path, _, _ in vault.walk(last)} == {b"same", b"n"}
    assert fsck_complaints(vault.path) == []


def test_a_tree_that_the_caller_names_keeps_its_pack(vault: Vault) -> None:
    kept = capture(vault, {b"n": b"kept"})
    capture(vault, {b"n": b"newer"})
    assert vault.prune_rolling(keep_trees=[kept]) == 0
    assert vault.prune_rolling() == 1
    assert not vault.has(kept)


def test_a_pack_waits_for_the_state_that_will_reach_it(vault: Vault, clock: FakeClock) -> None:
    capture(vault, FILES)
    builder = vault.new_pack()
    tree = add_files(builder, {b"new": b"new"})
    vault.write_rolling(builder)
    assert vault.prune_rolling() == 0
    vault.set_rolling("w1", {"now": RollingTree(tree, b"{}")})
    vault.prune_rolling()
    assert [path for path, _, _ in vault.walk(tree)] == [b"new"]
    builder = vault.new_pack()
    builder.add(BLOB, b"never reached")
    vault.write_rolling(builder)
    clock.advance(119)
    assert vault.prune_rolling() == 0
    clock.advance(2)
    assert vault.prune_rolling() == 1


def test_a_checkpoint_does_not_need_the_rolling_packs(vault: Vault) -> None:
    for number in range(5):
        capture(vault, {**FILES, b"n": b"%d" % number, b"dir/n": b"%d" % number})
    checkpoint(vault, "ckpt-1", FILES)
    expected = {**FILES, b"src/a.py": b"changed", b"new/file": b"new"}
    checkpoint(vault, "ckpt-2", expected)
    for keep in packs_folder(vault.path).glob("*.keep"):
        assert keep.read_text() == "rolling\n"
        for file in packs_folder(vault.path).glob(f"{keep.stem}.*"):
            file.unlink()
    vault.delete_ref("refs/rolling/w1")
    again = Vault.open(vault.path)
    assert contents(again, "ckpt-1") == FILES
    assert contents(again, "ckpt-2") == expected
    assert fsck_complaints(vault.path) == []


def test_a_state_that_could_not_be_set_takes_nothing_of_others_with_it(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = vault.new_pack(), vault.new_pack()
    tree = add_files(first, FILES)
    assert add_files(second, FILES) == tree
    vault.write_rolling(first)
    with monkeypatch.context() as patch:
        patch.setattr(vault._refs, "set", no_room)
        with pytest.raises(StoreFull):
            vault.set_rolling("w1", {"now": RollingTree(tree, b"{}")}, second)
    vault.set_rolling("w1", {"now": RollingTree(tree, b"{}")})
    vault.commit_checkpoint("ckpt-1", {b"files": TreeRef(tree)}, message="", when=WHEN)
    vault.delete_ref("refs/rolling/w1")
    vault.prune_rolling()
    vault = Vault.open(vault.path)
    assert contents(vault, "ckpt-1") == FILES
    assert not list(packs_folder(vault.path).glob("*.keep"))


def no_room(*_: object, **__: object) -> None:
    raise StoreFull("no room")


class Model:
    """Random work on one vault, and what must come of it."""

    def __init__(self, vault: Vault, seed: int) -> None:
        self.vault = vault
        self.rng = random.Random(seed)
        self.files: dict[bytes, bytes] = {}
        self.trees: list[tuple[str, dict[bytes, bytes]]] = []
        self.kept: dict[str, dict[bytes, bytes]] = {}
        self.ids = map("ckpt-{}".format, itertools.count())
        self.parts: dict[bytes, str] = {}

    def change(self) -> None:
        """Few contents and few paths, so that the same objects come back again and again."""
        builder = self.vault.new_pack()
        touched = {b"%d/%d" % (self.rng.randrange(3), self.rng.randrange(3)) for _ in range(2)}
        for path in touched:
            self.files[path] = b"%d" % self.rng.randrange(3)
        # As a capture does: the changed files, and the trees above them; other folders by their ids alone.
        top = []
        for folder in {path.split(b"/")[0] for path in self.files}:
            below = {p.split(b"/")[1]: d for p, d in self.files.items() if p.startswith(folder + b"/")}
            if any(path.startswith(folder + b"/") for path in touched):
                self.parts[folder] = self.add_touched(builder, folder, below, touched)
            top.append((MODE_TREE, folder, bytes.fromhex(self.parts[folder])))
        tree = builder.add(TREE, build_tree(top)).hex()
        self.trees = [*self.trees, (tree, dict(self.files))][-3:]
        states = {f"at/{n}": RollingTree(t, b"{}") for n, (t, _) in enumerate(self.trees[:-1])}
        self.vault.set_rolling("w1", {**states, "now": RollingTree(tree, b"{}")}, builder)

    @staticmethod
    def add_touched(builder: PackBuilder, folder: bytes, below: dict[bytes, bytes], touched: set[bytes]) -> str:
        entries = []
        for name, data in below.items():
            if folder + b"/" + name in touched:
                builder.add(BLOB, data)
            entries.append((MODE_FILE, name, blob_id(data)))
        return builder.add(TREE, build_tree(entries)).hex()

    def save(self) -> None:
        if self.trees:
            tree, files = self.rng.choice(self.trees)
            id_ = next(self.ids)
            self.vault.commit_checkpoint(id_, {b"files": TreeRef(tree)}, message=id_, when=WHEN)
            self.kept[id_] = files

    def forget(self) -> None:
        if self.kept:
            id_ = self.rng.choice(sorted(self.kept))
            del self.kept[id_]
            self.vault._refs.delete([f"refs/checkpoints/{id_}"])

    def prune(self) -> None:
        self.vault.prune_rolling()

    def roll_up(self) -> None:
        self.vault.roll_up()

    def lose_power(self) -> None:
        """What was not synced is gone, and so is the daemon."""
        for keep in packs_folder(self.vault.path).glob("*.keep"):
            if keep.read_text() == "rolling\n":
                for file in packs_folder(self.vault.path).glob(f"{keep.stem}.*"):
                    file.unlink()
        self.reopen()
        self.files, self.trees, self.parts = {}, [], {}

    def reopen(self) -> None:
        self.vault = Vault.open(self.vault.path)

    def check(self) -> None:
        assert set(self.vault.checkpoint_ids()) == set(self.kept)
        for id_, files in self.kept.items():
            assert contents(self.vault, id_) == files
        for tree, files in self.trees:
            assert {p: self.vault.read_blob(oid) for p, _, oid in self.vault.walk(tree)} == files


@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_work_loses_a_file(tmp_path: Path, seed: int) -> None:
    model = Model(Vault.create(tmp_path / "vault.git"), seed)
    steps = [model.change] * 8 + [model.save] * 4 + [model.prune] * 3 + [model.forget] * 2
    steps += [model.reopen, model.lose_power]
    for number in range(60):
        model.rng.choice(steps)()
        if number % 30 == 19:
            model.roll_up()
        if number % 4 == 3:
            model.check()
    assert fsck_complaints(tmp_path / "vault.git") == []


def test_the_size_from_memory_is_nearly_that_of_the_disk(vault: Vault) -> None:
    rng = random.Random(5)
    for number in range(4):
        checkpoint(vault, f"ckpt-{number}", {b"%d" % n: rng.randbytes(4000) for n in range(20)})
    small_files = 40 * 4096  # refs, settings, .keep files
    assert 0 <= vault.size_bytes() - vault.size <= small_files


def test_a_first_capture_is_synced_where_it_lies(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packdir, "_COPIED_BELOW", 50_000)
    rng = random.Random(2)
    small = capture(vault, {b"early": b"early"}, worktree="w2")
    files = {b"%d" % n: rng.randbytes(2000) for n in range(50)}
    checkpoint(vault, "ckpt-1", files)
    assert rolling_packs(vault) == 0
    assert contents(vault, "ckpt-1") == files
    assert vault.size_bytes() < 400_000
    assert [path for path, _, _ in vault.walk(small)] == [b"early"]
    assert fsck_complaints(vault.path) == []


def test_a_pack_that_git_made_is_adopted(vault: Vault) -> None:
    source = Vault.create(vault.path.parent / "source.git")
    tree = capture(source, FILES)
    ids = [oid.hex() for _, _, oid in source.walk(tree)]
    target = vault.path / "incoming" / "pack"
    done = real_git_input(source.path, "\n".join(ids), "pack-objects", "-q", str(target))
    vault.adopt_rolling(Path(f"{target}-{done}.pack"))
    assert all(vault.has(oid) for oid in ids)
    trees = vault.new_pack()
    for tree_id in (tree, *(entry.oid for entry in walk_trees(source, tree))):
        trees.add(TREE, source._raw_tree(raw_id(tree_id)))
    vault.set_rolling("w1", {"now": RollingTree(tree, b"{}")}, trees)
    vault.commit_checkpoint("ckpt-1", {b"files": TreeRef(tree)}, message="", when=WHEN)
    again = Vault.open(vault.path)
    assert contents(again, "ckpt-1") == FILES
    assert again.problems == []


def walk_trees(vault: Vault, tree: Oid) -> list[TreeEntry]:
    below = [entry for entry in vault.read_tree(tree) if entry.is_tree]
    return below + [inner for entry in below for inner in walk_trees(vault, entry.oid)]


def real_git_input(vault: Path, text: str, *args: str) -> str:
    command = ["git", "--git-dir", str(vault), *args]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.strip()


def test_refs_are_found_in_files_and_packed(vault: Vault) -> None:
    for number in range(6):
        checkpoint(vault, f"ckpt-{number}", {b"n": b"%d" % number})
    before = vault.refs()
    assert real_git(vault.path, "pack-refs", "--all").returncode == 0
    assert vault.refs() == before
    vault._refs.delete(["refs/checkpoints/ckpt-3"])
    checkpoint(vault, "ckpt-6", {b"n": b"6"})
    vault._refs.pack(["refs/checkpoints/"])
    assert vault.checkpoint_ids() == [f"ckpt-{n}" for n in (0, 1, 2, 4, 5, 6)]
    listed = real_git(vault.path, "for-each-ref", "--format=%(refname) %(objectname)").stdout.splitlines()
    assert dict(line.split() for line in listed) == vault.refs()
    with pytest.raises(CheckpointExists):
        vault._refs.create("refs/checkpoints/ckpt-5", "12" * 20)


@pytest.mark.parametrize("name", ["HEAD", "refs/a..b", "refs/x.lock", "refs//x", "refs/../x", "refs/a b", "refs/x/"])
def test_a_ref_that_git_would_refuse_is_not_written(vault: Vault, name: str) -> None:
    with pytest.raises(StoreError):
        vault.set_ref(name, "12" * 20)


def test_no_vault_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotAVault):
        Vault.open(tmp_path / "nothing")
    with pytest.raises(NotAVault):
        Vault.open(tmp_path)


def test_a_newer_layout_is_left_alone(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", FILES)
    (vault.path / "checkpointd-layout").write_text("2\n")
    (vault.path / "config").write_text("of the future")
    before = {path: path.stat().st_mtime_ns for path in vault.path.rglob("*")}
    with pytest.raises(NewerLayout):
        Vault.open(vault.path)
    with pytest.raises(NewerLayout):
        Vault.create(vault.path)
    assert {path: path.stat().st_mtime_ns for path in vault.path.rglob("*")} == before


def test_a_vault_that_is_there_is_opened_by_create(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", FILES)
    again = Vault.create(vault.path)
    assert (again.checkpoint_ids(), again.problems) == (["ckpt-1"], [])


def test_reading_goes_on_while_others_write(vault: Vault) -> None:
    checkpoint(vault, "ckpt-0", FILES)
    failed: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                assert contents(vault, "ckpt-0") == FILES
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            failed.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 17):
        checkpoint(vault, f"ckpt-{number}", {**FILES, b"n": b"%d" % number})
        vault.prune_rolling()
        if number % 8 == 0:
            vault.roll_up()
    done.set()
    reader.join(30)
    assert failed == []


def test_a_ref_can_be_made_moved_and_removed(vault: Vault) -> None:
    commit = checkpoint(vault, "ckpt-1", FILES)
    vault.set_ref("refs/history/w1/main", commit)
    assert vault.refs("refs/history/") == {"refs/history/w1/main": commit}
    vault.set_ref("refs/history/w1/main", bytes.fromhex(checkpoint(vault, "ckpt-2", FILES)))
    vault.delete_ref("refs/history/w1/main")
    vault.delete_ref("refs/history/w1/main")
    assert vault.refs("refs/history/") == {}


def test_a_closed_vault_reads_no_more_but_can_be_opened_again(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", FILES)
    vault.close()
    assert contents(Vault.open(vault.path), "ckpt-1") == FILES
