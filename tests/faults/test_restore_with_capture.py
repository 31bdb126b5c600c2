"""Restores on what the real capture saw: git and plain folders, ignore rules, nested repositories."""

import asyncio
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from checkpointd.clock import SystemClock
from checkpointd.config import CaptureConfig
from checkpointd.model.capture import Captured
from checkpointd.vault.capture import WorkTree
from support import repositories
from support.restoring import World


class CapturedWorld(World):
    """A world whose captures are those of the daemon."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.tree = WorkTree(
            self.vault, self.root, "w1", limits=CaptureConfig(), clock=SystemClock(), cancel=lambda: False
        )

    def capture(self, force: Collection[bytes] = ()) -> Captured:
        if force:
            return self.tree.capture(force, force=force)
        return self.tree.scan() if self.tree.state else self.tree.first()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CapturedWorld]:
    made = CapturedWorld(tmp_path)
    yield made
    made.close()


@pytest.fixture
def repository(world: CapturedWorld) -> CapturedWorld:
    repositories.make(world.root, {"src/a.py": "one\n", "src/b.py": "one\n", ".gitignore": "build/\n*.log\n"})
    return world


def project_files(world: World) -> dict[str, object]:
    return {name: what for name, what in world.files().items() if name != ".git" and not name.startswith(".git/")}


def test_b009_a_restore_in_a_repository_touches_nothing_of_git(repository):
    repository.write({"src/a.py": "two\n", "new.txt": "untracked\n"})
    target, wanted = repository.capture(), project_files(repository)
    before = repositories.fingerprint(repository.root / ".git")
    shutil.rmtree(repository.root / "src")
    (repository.root / "new.txt").unlink()
    repository.write({"other.txt": "later"})
    outcome = repository.restore(target)
    assert not outcome.failed and not outcome.keep
    assert project_files(repository) == wanted
    assert repositories.fingerprint(repository.root / ".git") == before
    present = project_files(repository)
    undone = repository.undo(outcome.plan)
    assert set(project_files(repository)) == {".gitignore", "other.txt"}
    repository.undo(undone.plan)
    assert project_files(repository) == present


def test_b001_ignored_files_are_never_deleted(repository):
    target = repository.capture()
    repository.write({"build/out.bin": "made", "debug.log": "said", "src/a.py": "two\n"})
    outcome = repository.restore(target)
    assert outcome.restored == (b"src/a.py",)
    assert (repository.root / "build/out.bin").read_text() == "made"
    assert (repository.root / "debug.log").read_text() == "said"


def test_a_path_that_is_ignored_by_now_is_held_before_it_is_overwritten(repository):
    repository.write({"notes.txt": "old"})
    target = repository.capture()
    (repository.root / "notes.txt").unlink()
    repository.write({".gitignore": "build/\n*.log\nnotes.txt\n"})
    repository.capture()
    repository.write({"notes.txt": "precious, and ignored"})
    outcome = repository.restore(target)
    assert (repository.root / "notes.txt").read_text() == "old"
    repository.undo(outcome.plan)
    assert (repository.root / "notes.txt").read_text() == "precious, and ignored"


def test_a_large_file_in_the_way_is_held_whatever_its_size(world):
    world.write({"data": "small", "keep": "x"})
    target = world.capture()
    world.write({"data": b"x" * (21 << 20)})
    outcome = world.restore(target)
    assert (world.root / "data").read_text() == "small"
    world.undo(outcome.plan)
    assert (world.root / "data").stat().st_size == 21 << 20


def test_b043_a_nested_repository_keeps_its_git_folder(repository):
    target = repository.capture()
    repositories.make(repository.root / "nested", {"n.py": "n\n"})
    before = repositories.fingerprint(repository.root / "nested/.git")
    job = repository.plan(target)
    assert b"nested/.git/HEAD" not in job.plan.paths
    repository.apply(job, allow_mass_delete=True)
    assert repositories.fingerprint(repository.root / "nested/.git") == before


def test_modes_symlinks_empty_folders_and_odd_names_come_back(world):
    world.write({"run.sh": "#!/bin/sh\n", "secret/key": "k"})
    (world.root / "run.sh").chmod(0o750)
    (world.root / "secret").chmod(0o700)
    (world.root / "link").symlink_to("nowhere")
    (world.root / "empty/inside").mkdir(parents=True)
    with open(os.fsencode(world.root) + b"/caf\xe9", "wb") as odd:
        odd.write(b"\xff")
    target, wanted = world.capture(), world.files()
    world.clear()
    world.write({"run.sh/inside": "a folder now"})
    outcome = world.restore(target)
    assert not outcome.failed and not outcome.keep
    assert world.files() == wanted
    world.undo(outcome.plan)
    assert set(world.files()) == {"run.sh", "run.sh/inside"}


def test_rm_rf_of_everything_comes_back_into_a_new_directory(repository, tmp_path):
    target, wanted = repository.capture(), project_files(repository)
    shutil.rmtree(repository.root)
    asyncio.run(repository.restorer.to_directory(target, tmp_path / "back"))
    repository.root = tmp_path / "back"
    assert project_files(repository) == wanted
