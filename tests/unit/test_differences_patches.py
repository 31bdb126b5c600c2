"""Differences for people: patches that git applies, counts, and the paths that were asked for."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.clock import SystemClock
from checkpointd.config import CaptureConfig
from checkpointd.engine.differences import compared, unified
from checkpointd.vault.capture import WorkTree
from checkpointd.vault.store import Vault
from checkpointd.vault.trees import TreeDifference
from support import repositories

_TEXT = st.lists(
    st.sampled_from(["a\n", "b\n", "é\n", "\n", "x\x0cy\n", "x\u2028y\n", "x\x85y\n", "x\x1cy\n", "last"]), max_size=8
).map(lambda lines: "".join(lines).encode())


def changed(path: bytes = b"f") -> TreeDifference:
    return TreeDifference(path=path, old=(0o100644, "0" * 40), new=(0o100644, "1" * 40))


@given(_TEXT, _TEXT)
@settings(deadline=None, max_examples=40)
def test_git_applies_what_is_shown(tmp_path_factory: pytest.TempPathFactory, old: bytes, new: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "patched"
    folder.mkdir(exist_ok=True)
    (folder / "f").write_bytes(old)
    patch = unified(changed(), old, new)
    assert patch is not None
    assert bool(patch) is (old != new)
    if patch:
        subprocess.run(
            ["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, input=patch.encode(), check=True,
            env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(folder.parent), "HOME": str(folder)},
        )  # fmt: skip
    assert (folder / "f").read_bytes() == new


def test_a_missing_line_end_is_told() -> None:
    patch = unified(changed(), b"a", b"a\n")
    assert patch == "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"


def test_names_that_are_not_text_are_quoted() -> None:
    patch = unified(changed(b"caf\xe9\n"), None, b"a\n")
    assert patch is not None
    assert patch.startswith('--- /dev/null\n+++ b/"caf\\351\\n"\n')


def test_very_large_files_have_no_patch() -> None:
    assert unified(changed(), None, b"a\n" * (1 << 20)) is None


@pytest.fixture
def states(tmp_path: Path) -> tuple[Vault, str, str]:
    """A vault with two states of one repository."""
    repo = repositories.make(tmp_path / "r", {"a.txt": "1\n2\n", "src/b.txt": "b\n", "src.txt": "s\n", "x.bin": b"\0"})
    vault = Vault.create(tmp_path / "vault.git")
    tree = WorkTree(vault, repo, "w", limits=CaptureConfig(), clock=SystemClock(), cancel=lambda: False)
    old = tree.first().files
    repositories.write(repo, {"a.txt": "1\n2\n3\n", "new.txt": "n\n", "x.bin": b"\0\1", "src.txt": "t\n"})
    (repo / "src/b.txt").unlink()
    return vault, old, tree.scan().files


def test_every_path_that_differs_is_told_once_and_in_order(states: tuple[Vault, str, str]) -> None:
    vault, old, new = states
    found = [(d.path, d.change, d.added, d.removed) for d in compared(vault, old, new, [], patch=False)]
    assert found == [
        (b"a.txt", "modify", 1, 0),
        (b"new.txt", "add", 1, 0),
        (b"src.txt", "modify", 1, 1),
        (b"src/b.txt", "delete", 0, 1),
        (b"x.bin", "modify", None, None),
    ]
    vault.close()


def test_only_what_is_asked_for_and_below_it(states: tuple[Vault, str, str]) -> None:
    vault, old, new = states
    assert [d.path for d in compared(vault, old, new, [b"src"], patch=False)] == [b"src/b.txt"]
    assert compared(vault, old, new, [b"sr"], patch=True) == []
    assert compared(vault, old, old, [], patch=True) == []
    vault.close()


def test_patches_are_for_text(states: tuple[Vault, str, str]) -> None:
    vault, old, new = states
    patches = {d.path: d.patch for d in compared(vault, old, new, [], patch=True)}
    assert patches[b"x.bin"] is None
    assert patches[b"src/b.txt"] == "--- a/src/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
    assert all(d.patch is None for d in compared(vault, old, new, [], patch=False))
    vault.close()
