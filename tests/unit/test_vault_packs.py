"""Packs: what is written is what git reads, and what git writes is read."""

import os
import random
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.vault import packs
from checkpointd.vault.errors import ChangedWhileRead, DamagedPack
from checkpointd.vault.objects import BLOB, TREE, blob_id, object_id
from checkpointd.vault.packs import Pack, PackBuilder, apply_delta, index_bytes
from checkpointd.vault.store import Vault
from support.vaults import fsck_complaints, packs_folder, real_git


def lay(builder: PackBuilder, folder: Path) -> Pack:
    return Pack(builder.lay(folder, keep=None, sync=False))


@given(st.lists(st.binary(max_size=400), max_size=30))
@settings(deadline=None, max_examples=60)
def test_every_object_is_read_back(tmp_path_factory: pytest.TempPathFactory, blobs: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("packs")
    builder = PackBuilder()
    for blob in blobs:
        assert builder.add(BLOB, blob) == blob_id(blob)
    assert len(builder) == len(set(blobs))
    pack = lay(builder, folder)
    for blob in blobs:
        offset = pack.find(blob_id(blob))
        assert offset is not None
        assert pack.read(offset) == (BLOB, blob)
    assert pack.find(bytes(19) + b"\1") is None
    assert pack.whole()


def test_git_verifies_our_pack_and_its_index(tmp_path: Path) -> None:
    builder = PackBuilder()
    for number in range(300):
        builder.add(BLOB, b"%d" % number * number)
    path = lay(builder, tmp_path).path
    subprocess.run(["git", "verify-pack", str(path)], check=True)
    again = tmp_path / "again.idx"
    subprocess.run(["git", "index-pack", "-o", str(again), str(path)], check=True, capture_output=True)
    assert again.read_bytes() == path.with_suffix(".idx").read_bytes()


@pytest.mark.parametrize("size", [0, 1, packs.CHUNK - 1, packs.CHUNK, packs.CHUNK + 1, 3 * packs.CHUNK + 7])
def test_a_file_is_taken_in_chunks(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    builder = PackBuilder()
    with (tmp_path / "file").open("rb") as file:
        oid = builder.add_file(file.fileno(), size)
    assert oid == blob_id(data)
    pack = lay(builder, tmp_path)
    assert pack.read(pack.find(oid) or 0) == (BLOB, data)


@pytest.mark.parametrize("announced", [0, 999, 1001, 10_000_000])
def test_a_file_of_another_size_leaves_the_builder_as_it_was(tmp_path: Path, announced: int) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    builder = PackBuilder()
    builder.add(BLOB, b"before")
    size = builder.size
    with (tmp_path / "file").open("rb") as file, pytest.raises(ChangedWhileRead):
        builder.add_file(file.fileno(), announced)
    assert (builder.size, len(builder)) == (size, 1)
    builder.add(BLOB, b"after")
    pack = lay(builder, tmp_path)
    assert [pack.read(pack.find(blob_id(b)) or 0)[1] for b in (b"before", b"after")] == [b"before", b"after"]


def test_much_is_spooled_to_a_file_and_failing_there_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "_SPOOL_ABOVE", 100_000)
    monkeypatch.setattr(packs, "_FLUSH_ABOVE", 10_000)
    rng = random.Random(1)
    blobs = [rng.randbytes(30_000) for _ in range(20)]
    builder = PackBuilder(tmp_path)
    for blob in blobs:
        builder.add(BLOB, blob)
    (tmp_path / "big").write_bytes(rng.randbytes(500_000))
    with (tmp_path / "big").open("rb") as file, pytest.raises(ChangedWhileRead):
        builder.add_file(file.fileno(), 500_001)
    for blob in blobs:
        builder.add(BLOB, blob)  # known
    pack = lay(builder, tmp_path)
    assert all(pack.read(pack.find(blob_id(blob)) or 0)[1] == blob for blob in blobs)
    assert pack.whole()
    assert not list(tmp_path.glob("tmp_*"))
    subprocess.run(["git", "verify-pack", str(pack.path)], check=True)
    gone = PackBuilder(tmp_path)
    for blob in blobs:
        gone.add(BLOB, blob)
    assert list(tmp_path.glob("tmp_*"))
    gone.discard()
    assert not list(tmp_path.glob("tmp_*"))


def test_far_offsets_get_their_own_table() -> None:
    objects = {bytes([n]) * 20: (n << 30, n) for n in range(1, 9)}
    index = index_bytes(objects, bytes(20))
    assert len(index) == 1032 + 28 * 8 + 8 * 7 + 40
    fields = [int.from_bytes(index[1032 + 24 * 8 + 4 * i :][:4], "big") for i in range(8)]
    assert fields[0] == 1 << 30
    assert fields[1:] == [(1 << 31) | i for i in range(7)]


def test_packs_with_deltas_are_read(tmp_path: Path) -> None:
    work = tmp_path / "work"
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    rng = random.Random(7)
    lines = [rng.randbytes(20).hex() for _ in range(2000)]
    versions = []
    for number in range(30):
        lines[rng.randrange(len(lines))] = f"changed {number}"
        lines.insert(rng.randrange(len(lines)), f"new {number}")
        versions.append("\n".join(lines).encode())
        hash_object = ["git", "hash-object", "-w", "--stdin"]
        subprocess.run(hash_object, cwd=work, input=versions[-1], check=True, capture_output=True)
    ids = "\n".join(blob_id(version).hex() for version in versions)
    pack_objects = ["git", "pack-objects", "-q", "--depth=50", "--window=50"]
    for form in ("--delta-base-offset", "--no-delta-base-offset"):
        base = str(tmp_path / f"pack{form}")
        done = subprocess.run(
            [*pack_objects, form, base], cwd=work, input=ids.encode(), check=True, capture_output=True
        )
        pack = Pack(Path(f"{base}-{done.stdout.decode().strip()}.pack"))
        assert pack.size < len(versions[0]) * 3
        for version in versions:
            assert pack.read(pack.find(blob_id(version)) or 0) == (BLOB, version)


def test_a_large_index_is_searched_where_it_lies(tmp_path: Path) -> None:
    builder = PackBuilder()
    blobs = [b"%d" % number for number in range(5000)]
    for blob in blobs:
        builder.add(BLOB, blob)
    pack = lay(builder, tmp_path)
    assert all(pack.read(pack.find(blob_id(blob)) or 0)[1] == blob for blob in blobs[::97])
    assert pack.find(bytes(20)) is None
    assert pack.find(b"\xff" * 20) is None
    assert {oid for oid, _ in pack.places()} == {blob_id(blob) for blob in blobs}


def test_records_are_repeated_as_they_are(tmp_path: Path) -> None:
    first = PackBuilder()
    oids = [first.add(BLOB, b"x" * n) for n in range(50)] + [first.add(TREE, b"")]
    pack = lay(first, tmp_path)
    second = PackBuilder()
    for oid in oids:
        second.add_record(oid, pack.whole_record(pack.find(oid) or 0) or b"")
    copy = lay(second, tmp_path)
    assert copy.path != pack.path
    subprocess.run(["git", "verify-pack", str(copy.path)], check=True)
    assert copy.read(copy.find(oids[-1]) or 0) == (TREE, b"")


@pytest.mark.parametrize("suffix", [".pack", ".idx"])
@pytest.mark.parametrize("keep", [0, 10, 1000, -1])
def test_a_cut_off_file_is_noticed_when_opened(tmp_path: Path, suffix: str, keep: int) -> None:
    builder = PackBuilder()
    for number in range(40):
        builder.add(BLOB, os.urandom(100) + b"%d" % number)
    path = lay(builder, tmp_path).path
    victim = path.with_suffix(suffix)
    os.truncate(victim, keep if keep >= 0 else victim.stat().st_size - 1)
    with pytest.raises(DamagedPack):
        Pack(path)


def test_changed_bytes_are_never_given_as_the_object(tmp_path: Path) -> None:
    builder = PackBuilder()
    data = random.Random(3).randbytes(3000)
    oid = builder.add(BLOB, data)
    path = lay(builder, tmp_path).path
    raw = path.read_bytes()
    for place in range(12, len(raw) - 20, 37):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 0x55]) + raw[place + 1 :])
        pack = Pack(path)
        assert not pack.whole()
        try:
            kind, read = pack.read(pack.find(oid) or 0)
        except (DamagedPack, IndexError):
            continue
        assert object_id(kind, read) != oid if kind in (1, 2, 3, 4) else True


@pytest.mark.parametrize("delta", [b"\x05\x03\x03abc", b"\x04\x09\x03abc"])
def test_a_delta_that_does_not_fit_is_refused(delta: bytes) -> None:
    with pytest.raises(DamagedPack):
        apply_delta(b"base", delta)


def test_without_isal_zlib_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "_fast", zlib)
    vault = Vault.create(tmp_path / "vault.git")
    builder = vault.new_pack()
    oid = builder.add(BLOB, b"text" * 100)
    vault.write_rolling(builder)
    assert vault.read_blob(oid) == b"text" * 100
    assert fsck_complaints(vault.path) == []


def test_a_pack_removed_while_it_is_read_can_be_read_to_its_end(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "vault.git")
    builder = vault.new_pack()
    data = random.Random(5).randbytes(2 << 20)
    oid = builder.add(BLOB, data)
    vault.write_rolling(builder)
    pieces = vault.blob_chunks(oid)
    first = next(pieces)
    for file in packs_folder(vault.path).iterdir():
        file.unlink()
    assert first + b"".join(pieces) == data


def test_real_git_reads_our_objects(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "vault.git")
    builder = vault.new_pack()
    oid = builder.add(BLOB, b"hello\n")
    vault.write_rolling(builder)
    assert real_git(vault.path, "cat-file", "-p", oid.hex()).stdout == "hello\n"
