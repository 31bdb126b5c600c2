"""Opening a vault after something happened to it: leftovers go, damage is set aside and named, the rest is there."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointd.vault.objects import BLOB
from checkpointd.vault.store import Vault
from support.vaults import capture, checkpoint, contents, fsck_complaints, packs_folder

FILES = {b"a": b"a" * 3000, b"src/b": bytes(range(256)) * 20, b"src/c": b"c"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A vault with three checkpoints, closed."""
    vault = Vault.create(tmp_path / "vault.git")
    for number in range(3):
        checkpoint(vault, f"ckpt-{number}", {**FILES, b"n": b"%d" % number * 100})
    vault.close()
    return tmp_path / "vault.git"


def pack_of(path: Path, id_: str) -> Path:
    """The pack that holds the commit of a checkpoint."""
    vault = Vault.open(path)
    place = vault._packs.find(bytes.fromhex(vault.checkpoint(id_).commit))
    assert place is not None
    return place.pack.path


def texts(vault: Vault) -> str:
    return "\n".join(f"{problem.what} {problem.hint}" for problem in vault.problems)


def test_a_vault_that_is_whole_has_no_problems(path: Path) -> None:
    vault = Vault.open(path)
    assert vault.problems == []
    assert contents(vault, "ckpt-2")[b"n"] == b"2" * 100


@pytest.mark.parametrize("name", ["HEAD", "config", "checkpointd-layout", "info/attributes"])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_lost_file_of_the_vault_is_put_back(path: Path, name: str, how: str) -> None:
    before = (path / name).read_bytes()
    (path / name).unlink()
    if how == "empty":
        (path / name).touch(0o600)
    vault = Vault.open(path)
    assert name in texts(vault)
    assert (path / name).read_bytes() == before
    assert len(vault.checkpoint_ids()) == 3
    assert fsck_complaints(path) == []
    assert Vault.open(path).problems == []


@pytest.mark.parametrize("name", ["info", "objects/info", "quarantine", "incoming"])
def test_a_lost_folder_is_put_back(path: Path, name: str) -> None:
    shutil.rmtree(path / name)
    assert len(Vault.open(path).checkpoint_ids()) == 3
    assert (path / name).is_dir()


@pytest.mark.parametrize(
    "name",
    ["refs/checkpoints/ckpt-9.lock", "refs/rolling/w1.lock", "packed-refs.lock", "HEAD.lock", "config.lock",
     "index.lock",
     "objects/pack/tmp_pack_abcdef", "objects/pack/tmp_idx_abcdef", "objects/pack/.tmp-12-pack-ab.pack",
     "objects/pack/pack-ab.pack.tmp", "objects/pack/pack-ab.idx.tmp", "incoming/pack-ab.pack"],
)  # fmt: skip
def test_leftovers_of_a_writer_that_is_gone_are_removed(path: Path, name: str) -> None:
    (path / name).write_bytes(b"half")
    vault = Vault.open(path)
    assert not (path / name).exists()
    assert vault.problems == []
    checkpoint(vault, "ckpt-9", FILES)


def test_what_a_living_maintenance_child_writes_is_left_alone(path: Path) -> None:
    (path / "objects/pack/tmp_pack_living").write_bytes(b"half")
    descriptor = os.open(path / "maintenance", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        vault = Vault.open(path)
        assert (path / "objects/pack/tmp_pack_living").exists()
        assert not vault.roll_up().done
    finally:
        os.close(descriptor)
    assert vault.roll_up().done


def test_a_pack_whose_checkpoint_got_no_ref_is_removed(path: Path) -> None:
    pack = pack_of(path, "ckpt-2")
    commit = (path / "refs/checkpoints/ckpt-2").read_text().strip()
    (path / "refs/checkpoints/ckpt-2").unlink()
    pack.with_suffix(".keep").write_text(f"writing {commit}\n")
    vault = Vault.open(path)
    assert not pack.exists()
    assert not pack.with_suffix(".keep").exists()
    assert vault.checkpoint_ids() == ["ckpt-0", "ckpt-1"]
    assert vault.problems == []
    assert contents(vault, "ckpt-1")[b"n"] == b"1" * 100
    assert fsck_complaints(path) == []


def test_a_pack_whose_checkpoint_got_its_ref_is_finished(path: Path) -> None:
    pack = pack_of(path, "ckpt-2")
    commit = (path / "refs/checkpoints/ckpt-2").read_text().strip()
    pack.with_suffix(".keep").write_text(f"writing {commit}\n")
    vault = Vault.open(path)
    assert pack.exists()
    assert not pack.with_suffix(".keep").exists()
    assert contents(vault, "ckpt-2")[b"n"] == b"2" * 100


def test_rolling_packs_of_before_are_ordinary_afterwards(path: Path) -> None:
    vault = Vault.open(path)
    tree = capture(vault, {b"rolling": b"state"})
    builder = vault.new_pack()
    builder.add(BLOB, b"nobody needs this")
    vault.write_rolling(builder)
    again = Vault.open(path)
    assert not list(packs_folder(path).glob("*.keep"))
    assert again.rolling("w1")["now"].files == tree
    assert [path for path, _, _ in again.walk(tree)] == [b"rolling"]
    assert again.problems == []


def test_a_torn_rolling_pack_costs_only_the_rolling_state(path: Path) -> None:
    vault = Vault.open(path)
    known = set(packs_folder(path).glob("*.pack"))
    capture(vault, {b"rolling": os.urandom(5000)})
    (new,) = set(packs_folder(path).glob("*.pack")) - known
    os.truncate(new, new.stat().st_size - 3000)
    again = Vault.open(path)
    assert again.rolling("w1") == {}
    assert "refs/rolling/w1" in texts(again)
    assert len(again.checkpoint_ids()) == 3
    assert fsck_complaints(path) == []
    assert Vault.open(path).problems == []


def test_a_rolling_pack_with_the_right_size_and_wrong_bytes_is_found(path: Path) -> None:
    vault = Vault.open(path)
    known = set(packs_folder(path).glob("*.pack"))
    capture(vault, {b"rolling": os.urandom(5000)})
    (new,) = set(packs_folder(path).glob("*.pack")) - known
    raw = bytearray(new.read_bytes())
    raw[40:3000] = bytes(2960)  # blocks that the disk never got
    new.write_bytes(raw)
    again = Vault.open(path)
    assert again.rolling("w1") == {}
    assert fsck_complaints(path) == []


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def garble(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    file.write_bytes(raw)


@pytest.mark.parametrize("how", [cut, empty, garble, Path.unlink])
def test_a_damaged_newest_pack_falls_back_to_the_checkpoints_before(path: Path, how: Callable[[Path], None]) -> None:
    how(pack_of(path, "ckpt-2"))
    vault = Vault.open(path)
    assert vault.problems
    for id_ in vault.checkpoint_ids():
        assert contents(vault, id_)[b"n"] == id_[-1:].encode() * 100
    assert set(vault.checkpoint_ids()) | set(vault.quarantined()) == {"ckpt-0", "ckpt-1", "ckpt-2"}
    assert {"ckpt-0", "ckpt-1"} <= set(vault.checkpoint_ids())
    assert list((path / "quarantine").iterdir())
    assert fsck_complaints(path) == []
    checkpoint(vault, "ckpt-9", FILES)
    again = Vault.open(path)
    assert again.problems == []
    assert contents(again, "ckpt-9") == FILES


@pytest.mark.parametrize("how", [cut, empty, garble, Path.unlink])
def test_a_damaged_index_is_made_again_and_nothing_is_lost(path: Path, how: Callable[[Path], None]) -> None:
    how(pack_of(path, "ckpt-2").with_suffix(".idx"))
    vault = Vault.open(path)
    assert vault.checkpoint_ids() == ["ckpt-0", "ckpt-1", "ckpt-2"]
    assert contents(vault, "ckpt-2")[b"n"] == b"2" * 100
    assert vault.quarantined() == []
    assert fsck_complaints(path) == []


def test_one_bad_object_in_a_pack_of_many_costs_only_what_needs_it(path: Path) -> None:
    Vault.open(path).roll_up(full=True)
    vault = Vault.open(path)
    blob = vault.resolve(vault.checkpoint("ckpt-1").files, b"n")
    assert blob is not None
    place = vault._packs.find(blob.oid)
    assert place is not None
    raw = bytearray(place.pack.path.read_bytes())
    raw[place.offset + 4] ^= 0xFF
    os.chmod(place.pack.path, 0o600)
    place.pack.path.write_bytes(raw)
    again = Vault.open(path)
    assert again.checkpoint_ids() == ["ckpt-0", "ckpt-2"]
    assert again.quarantined() == ["ckpt-1"]
    assert "ckpt-1" in texts(again)
    assert contents(again, "ckpt-2")[b"n"] == b"2" * 100
    assert fsck_complaints(path) == []


@pytest.mark.parametrize("text", [b"", b"abc\n", b"\0" * 41])
def test_a_ref_that_is_not_whole_is_quarantined(path: Path, text: bytes) -> None:
    (path / "refs/checkpoints/ckpt-1").write_bytes(text)
    vault = Vault.open(path)
    assert vault.checkpoint_ids() == ["ckpt-0", "ckpt-2"]
    assert vault.quarantined() == ["ckpt-1"]
    assert "refs/checkpoints/ckpt-1" in texts(vault)
    assert fsck_complaints(path) == []
    assert Vault.open(path).problems == []


def test_a_rolling_ref_that_is_not_whole_is_dropped(path: Path) -> None:
    (path / "refs/rolling/w1").write_bytes(b"")
    vault = Vault.open(path)
    assert vault.rolling("w1") == {}
    assert len(vault.checkpoint_ids()) == 3


def test_a_pin_of_what_was_quarantined_goes_with_it(path: Path) -> None:
    vault = Vault.open(path)
    vault.pin("ckpt-2")
    vault.quarantine("ckpt-2")
    assert (vault.checkpoint_ids(), vault.pins()) == (["ckpt-0", "ckpt-1"], set())
    assert Vault.open(path).quarantined() == ["ckpt-2"]


def test_a_second_copy_answers_for_a_damaged_one(path: Path) -> None:
    vault = Vault.open(path)
    builder = vault.new_pack()
    oid = builder.add(BLOB, FILES[b"a"])
    vault.write_rolling(builder)
    place = vault._packs.find(oid)
    assert place is not None
    raw = bytearray(place.pack.path.read_bytes())
    raw[place.offset + 5] ^= 0xFF
    place.pack.path.write_bytes(raw)
    assert vault.read_blob(oid) == FILES[b"a"]
