"""Roll-ups and verification: bytes come back, nothing that a ref reaches goes, damage is named."""

import os
import random
import threading
from pathlib import Path

import pytest

from checkpointd.vault import maintenance
from checkpointd.vault.errors import StoreError
from checkpointd.vault.objects import BLOB
from checkpointd.vault.store import Vault
from support.vaults import capture, checkpoint, contents, fsck_complaints, packs_folder


def noise(seed: int, size: int = 20_000) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault.create(tmp_path / "vault.git")


def fill(vault: Vault, count: int, first: int = 0) -> dict[str, dict[bytes, bytes]]:
    made = {}
    for number in range(first, first + count):
        made[f"ckpt-{number:03}"] = {b"common": noise(999), b"own": noise(number), b"d/n": b"%d" % number}
        checkpoint(vault, f"ckpt-{number:03}", made[f"ckpt-{number:03}"])
    return made


def test_many_packs_become_one_and_nothing_is_lost(vault: Vault) -> None:
    made = fill(vault, 12)
    assert vault.pack_count() == 12
    result = vault.roll_up()
    assert (result.done, vault.pack_count()) == (True, 1)
    assert result.after < result.before
    assert {id_: contents(vault, id_) for id_ in vault.checkpoint_ids()} == made
    assert not list((vault.path / "refs/checkpoints").glob("*"))
    again = Vault.open(vault.path)
    assert again.problems == []
    assert {id_: contents(again, id_) for id_ in again.checkpoint_ids()} == made
    assert fsck_complaints(vault.path) == []


def test_the_base_is_left_alone_while_the_rest_is_small(vault: Vault) -> None:
    fill(vault, 20)
    vault.roll_up()
    (keep,) = [keep for keep in packs_folder(vault.path).glob("*.keep") if keep.read_text() == "base\n"]
    base = keep.with_suffix(".pack")
    made = fill(vault, 3, first=20)
    assert vault.roll_up().done
    assert base.exists()
    assert vault.pack_count() == 2
    assert all(contents(vault, id_) == files for id_, files in made.items())
    fill(vault, 10, first=30)
    assert vault.roll_up().done
    assert not base.exists()
    assert vault.pack_count() == 1
    assert fsck_complaints(vault.path) == []


def test_forgetting_gives_the_bytes_back(vault: Vault) -> None:
    made = fill(vault, 80)
    vault.roll_up()
    vault.prune_rolling()
    before = vault.size_bytes()
    vault.pin("ckpt-005")
    result = vault.forget([id_ for id_ in made if id_ != "ckpt-079"])
    assert result.done
    assert vault.size_bytes() < before / 5
    assert vault.checkpoint_ids() == ["ckpt-079"]
    assert vault.pins() == set()
    assert contents(vault, "ckpt-079") == made["ckpt-079"]
    assert fsck_complaints(vault.path) == []


def test_rolling_states_survive_a_roll_up(vault: Vault) -> None:
    fill(vault, 4)
    tree = capture(vault, {b"common": noise(999), b"live": b"work"})
    vault.forget(vault.checkpoint_ids())
    vault.prune_rolling()
    assert {path for path, _, _ in Vault.open(vault.path).walk(tree)} == {b"common", b"live"}
    assert fsck_complaints(vault.path) == []


def test_an_unfinished_pack_may_go_after_a_roll_up(vault: Vault) -> None:
    """A roll-up must not leave out what a kept pack has as well: that pack may never be finished."""
    made = fill(vault, 2)
    builder = vault.new_pack()
    for data in made["ckpt-000"].values():
        builder.add(BLOB, data)
    unfinished = builder.lay(packs_folder(vault.path), keep="writing " + "12" * 20, sync=True)
    vault.roll_up()
    again = Vault.open(vault.path)
    assert not unfinished.exists()
    assert contents(again, "ckpt-000") == made["ckpt-000"]
    assert fsck_complaints(vault.path) == []


def test_checkpoints_go_on_during_roll_ups(vault: Vault) -> None:
    made = fill(vault, 3)
    failed: list[BaseException] = []

    def roll() -> None:
        try:
            for _ in range(6):
                vault.roll_up(full=True)
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            failed.append(error)

    roller = threading.Thread(target=roll)
    roller.start()
    number = 100
    while roller.is_alive():
        made |= fill(vault, 1, first=number)
        number += 1
        if number % 7 == 0:
            gone = vault.checkpoint_ids()[0]
            vault._refs.delete([f"refs/checkpoints/{gone}"])
            del made[gone]
            vault.prune_rolling()
    roller.join()
    assert failed == []
    assert {id_: contents(vault, id_) for id_ in vault.checkpoint_ids()} == made
    assert fsck_complaints(vault.path) == []
    assert Vault.open(vault.path).problems == []


def test_without_room_nothing_is_done_and_the_reason_said(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fill(vault, 2)

    class Usage:
        free = 10

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    result = vault.roll_up()
    assert not result.done
    assert "free disk" in result.reason
    assert contents(vault, "ckpt-000") == made["ckpt-000"]


def test_a_roll_up_can_be_stopped(vault: Vault) -> None:
    made = fill(vault, 4)
    vault.roll_up()
    with pytest.raises(StoreError):
        vault.roll_up(full=True, cancel=lambda: True)
    assert [keep.read_text() for keep in packs_folder(vault.path).glob("*.keep")].count("base\n") == 1
    assert {id_: contents(vault, id_) for id_ in vault.checkpoint_ids()} == made
    assert Vault.open(vault.path).problems == []


def test_verification_of_a_whole_vault_finds_nothing(vault: Vault) -> None:
    fill(vault, 3)
    assert vault.verify() == []


def test_verification_names_the_checkpoints_that_are_damaged(vault: Vault) -> None:
    made = fill(vault, 3)
    entry = vault.resolve(vault.checkpoint("ckpt-001").files, b"own")
    assert entry is not None
    vault.close()
    vault = Vault.open(vault.path)
    vault.delete_ref("refs/rolling/w1")
    place = vault._packs.find(entry.oid)
    assert place is not None
    os.unlink(place.pack.path)
    os.unlink(place.pack.path.with_suffix(".idx"))
    damaged = {id_ for damage in vault.verify() for id_ in damage.checkpoints}
    assert "ckpt-001" in damaged
    assert "ckpt-000" not in damaged
    assert contents(vault, "ckpt-000") == made["ckpt-000"]


def test_what_files_say_is_not_damage(vault: Vault) -> None:
    checkpoint(vault, "ckpt-1", {b".gitmodules": b'[submodule "-x"]\nurl = -u\npath = -p\n', b"d/.gitmodules/x": b"",
                                 b".gitattributes": b"x" * 5000 + b" text\n", b"e/.gitattributes/x": b"",
                                 b"f/.gitmodules": b"\0\1 garbage ["})  # fmt: skip
    assert vault.verify() == []


def test_git_children_of_a_roll_up_are_niced_and_leave_no_index_alone(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(vault, 2)
    (vault.path / "index").write_bytes(b"an index that names blobs which are gone")
    asked: list[dict[str, object]] = []
    real = maintenance.git
    monkeypatch.setattr(maintenance, "git", lambda args, **kw: asked.append(kw) or real(args, **kw))
    assert vault.roll_up().done
    assert asked
    assert all(kw["nice"] for kw in asked)
