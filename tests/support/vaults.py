"""Filling a vault without a work tree to capture, and asking the real git about it."""

import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from checkpointd.vault.objects import BLOB, MODE_FILE, MODE_TREE, TREE, build_tree
from checkpointd.vault.packs import PackBuilder
from checkpointd.vault.store import RollingTree, TreeRef, Vault

WHEN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def add_files(builder: PackBuilder, files: Mapping[bytes, bytes]) -> str:
    """Adds files by their paths, and the trees above them; the root tree's id."""
    here: list[tuple[int, bytes, bytes]] = []
    below: dict[bytes, dict[bytes, bytes]] = {}
    for path, data in files.items():
        name, slash, rest = path.partition(b"/")
        if slash:
            below.setdefault(name, {})[rest] = data
        else:
            here.append((MODE_FILE, name, builder.add(BLOB, data)))
    here += [(MODE_TREE, name, bytes.fromhex(add_files(builder, inner))) for name, inner in below.items()]
    return builder.add(TREE, build_tree(here)).hex()


def capture(vault: Vault, files: Mapping[bytes, bytes], worktree: str = "w1") -> str:
    """What a rolling capture of these files does; the root tree's id."""
    builder = vault.new_pack()
    tree = add_files(builder, files)
    vault.set_rolling(worktree, {"now": RollingTree(tree, b"{}")}, builder)
    return tree


def checkpoint(vault: Vault, id_: str, files: Mapping[bytes, bytes]) -> str:
    """A checkpoint of these files; its commit."""
    tree = TreeRef(capture(vault, files))
    return vault.commit_checkpoint(id_, {b"files": tree, b"record.yaml": id_.encode()}, message=id_, when=WHEN)


def contents(vault: Vault, id_: str) -> dict[bytes, bytes]:
    """All files of a checkpoint, read back."""
    return {path: vault.read_blob(oid) for path, _, oid in vault.walk(vault.checkpoint(id_).files)}


def real_git(vault: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """git as a user would run it on a vault."""
    env = {"PATH": os.environ["PATH"], "HOME": str(vault), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", "--git-dir", str(vault), *args], env=env, capture_output=True, text=True, check=False)


def fsck_complaints(vault: Path) -> list[str]:
    """What the strictest fsck says, but for notices that HEAD has no branch."""
    done = real_git(vault, "fsck", "--strict", "--full", "--no-dangling", "--no-progress")
    lines = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("notice:")]
    return lines + ([f"rc {done.returncode}"] if done.returncode else [])


def packs_folder(vault: Path) -> Path:
    return vault / "objects" / "pack"
