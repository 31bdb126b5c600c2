"""Restores under attack: each test is named for the fault that it keeps out."""

import asyncio
import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from checkpointd.engine.errors import Conflict, Failed, NotFound, Refused
from checkpointd.engine.journal import Journal
from checkpointd.model.restore import PathRefused
from checkpointd.vault import materialise
from checkpointd.vault.errors import MissingObject, StoreFull
from checkpointd.vault.objects import blob_id
from support import killed_restore
from support.restoring import World, identities, state


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def whys(keeps) -> dict[bytes, str]:
    return {keep.path: keep.why for keep in keeps}


def test_b001_files_that_the_target_did_not_observe_survive(world):
    world.write({"src/a.py": "one"})
    world.skips = frozenset({b"output"})
    world.write({"output/.keep": ""})
    target = world.capture()
    world.skips = frozenset()
    world.write({"src/a.py": "two", "output/run.jsonl": "results"})
    outcome = world.restore(target)
    assert world.files()["output/run.jsonl"] == ("file", b"results", 0o644)
    assert "did not capture it: ignored" in whys(outcome.keep)[b"output/run.jsonl"]
    assert outcome.restored == (b"src/a.py",)


def test_b001_what_was_observed_absent_is_deleted_named_first_and_held(world):
    world.write({"a": "one"})
    target = world.capture()
    world.write({"output/run.jsonl": "results"})
    job = world.plan(target)
    assert [step.path for step in job.plan.delete] == [b"output/run.jsonl"]
    outcome = world.apply(job)
    assert set(world.files()) == {"a"}
    pre_restore = world.vault.checkpoint(outcome.pre_restore)
    assert world.vault.resolve(pre_restore.files, b"output/run.jsonl").oid == blob_id(b"results")


def test_b003_deleted_files_come_back_with_mode_and_bytes(world):
    world.write({"run.sh": "#!/bin/sh\n", "notes/secret.txt": b"\xff\x00"})
    (world.root / "run.sh").chmod(0o750)
    (world.root / "notes/secret.txt").chmod(0o600)
    (world.root / "link").symlink_to("run.sh")
    before, target = world.files(), world.capture()
    world.clear()
    assert not world.restore(target).failed
    assert world.files() == before


def test_b008_one_path_that_cannot_be_written_does_not_stop_the_others(world):
    if os.geteuid() == 0:
        # Permissions mean nothing to root: the folder is put out of reach by a file in its place instead.
        def block(folder: Path) -> None:
            shutil.rmtree(folder)
            folder.write_text("in the way")
    else:

        def block(folder: Path) -> None:
            folder.chmod(0o500)

    world.write({f"dir{number}/file": "old" for number in range(10)})
    target = world.capture()
    world.write({f"dir{number}/file": "new" for number in range(10)})
    job = world.plan(target)
    original = world.checkpoint_before

    async def blocking(paths, **options):
        held = await original(paths, **options)
        block(world.root / "dir3")
        return held

    world.restorer._checkpoint_before = blocking
    outcome = world.apply(job)
    assert len(outcome.restored) == 9
    named = {**whys(outcome.keep), **whys(outcome.failed)}
    assert list(named) == [b"dir3/file"]


def test_b014_a_missing_content_is_an_error_and_nothing_is_touched(world):
    world.write({"a": "one", "b": "two"})
    target = world.capture()
    world.write({"a": "changed", "b": "changed", "new": "file"})
    before, inodes = world.files(), identities(world.root)
    job = world.plan(target)
    world.vault.has = lambda oid: oid != blob_id(b"two").hex()  # as after the loss of one object
    with pytest.raises(MissingObject):
        world.apply(job)
    assert (world.files(), identities(world.root)) == (before, inodes)
    assert not world.made


def test_b021_a_file_that_the_target_saw_deleted_is_deleted(world):
    world.write({"kept": "x", "gone": "x", "other": "y"})
    (world.root / "gone").unlink()
    target = world.capture()
    world.write({"gone": "back again"})
    world.restore(target)
    assert set(world.files()) == {"kept", "other"}


def test_b022_no_pre_restore_checkpoint_no_restore(world):
    world.write({"a": "one"})
    target = world.capture()
    world.write({"a": "two"})

    async def full(paths, **options):
        raise StoreFull("no room")

    world.restorer._checkpoint_before = full
    before = identities(world.root)
    with pytest.raises(Failed, match="Nothing was restored"):
        world.restore(target)
    assert identities(world.root) == before


def test_b023_a_mass_deletion_needs_its_own_word(world):
    world.write({f"base{number}": "x" for number in range(3)})
    target = world.capture()
    world.write({f"work/{number}": "x" for number in range(40)})
    job = world.plan(target)
    assert job.plan.mass_delete
    before = world.files()
    with pytest.raises(Refused, match="40 paths"):
        world.apply(job)
    assert world.files() == before
    outcome = world.apply(job, allow_mass_delete=True)
    assert len(world.files()) == 3
    world.undo(outcome.plan)
    assert world.files() == before


def test_b025_absence_needs_proof_from_the_target(world):
    world.write({"a": "one"})
    world.skips = frozenset({b"big.bin"})
    world.write({"big.bin": "data"})
    target = world.capture()
    world.skips = frozenset()
    job = world.plan(target, paths=[b"big.bin"])
    assert not job.plan.paths
    assert "did not capture it" in whys(job.plan.keep)[b"big.bin"]


def test_b047_b020_a_path_that_the_pre_restore_cannot_hold_leaves_the_plan(world):
    world.write({"a": "one", "b": "one"})
    target = world.capture()
    (world.root / "a").unlink()
    os.mkfifo(world.root / "a")
    world.write({"b": "two"})
    outcome = world.restore(target)
    assert stat.S_ISFIFO((world.root / "a").lstat().st_mode)
    assert whys(outcome.keep)[b"a"].startswith("the pre-restore checkpoint could not hold it")
    assert outcome.restored == (b"b",)


def test_b171_paths_that_leave_the_project_are_refused(world):
    world.write({"a": "one"})
    target = world.capture()
    for path in (b"../../x", b"a/../../x", b"/etc/passwd", bytes(world.root) + b"-beside/x", b"a\0b"):
        with pytest.raises(PathRefused):
            world.plan(target, paths=[path])
    assert world.plan(target, paths=[bytes(world.root) + b"/a", b"./a/", b"."]).plan.unchanged == 1


def test_b172_a_planted_symlink_in_place_of_a_folder_is_not_followed(world, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config").write_text("precious")
    world.write({"dir/config": "captured", "other": "x"})
    target = world.capture()
    shutil.rmtree(world.root / "dir")
    (world.root / "dir").symlink_to(outside)
    outcome = world.restore(target)
    assert (outside / "config").read_text() == "precious"
    assert not outcome.failed
    assert world.files()["dir/config"] == ("file", b"captured", 0o644)
    world.undo(outcome.plan)
    assert os.readlink(world.root / "dir") == str(outside)
    assert (outside / "config").read_text() == "precious"


def test_b172_a_symlink_planted_between_plan_and_apply_is_not_followed(world, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "config").write_text("precious")
    world.write({"dir/config": "captured", "other": "x"})
    target = world.capture()
    world.write({"dir/config": "changed", "other": "y"})
    job = world.plan(target)
    original = world.checkpoint_before

    async def planting(paths, **options):
        held = await original(paths, **options)
        shutil.rmtree(world.root / "dir")
        (world.root / "dir").symlink_to(outside)
        return held

    world.restorer._checkpoint_before = planting
    outcome = world.apply(job)
    assert (outside / "config").read_text() == "precious"
    assert os.listdir(outside) == ["config"]
    assert outcome.restored == (b"other",)
    assert b"dir/config" in {**whys(outcome.keep), **whys(outcome.failed)}


def test_b192_only_what_differs_is_touched(world):
    world.write({f"src/file{number}": "same" for number in range(100)})
    target = world.capture()
    before = identities(world.root)
    world.write({"src/file50": "changed"})
    outcome = world.restore(target)
    after = identities(world.root)
    assert outcome.restored == (b"src/file50",)
    assert {path for path in before if before[path] != after[path]} == {b"src/file50"}


def test_other_permissions_alone_keep_the_inode(world):
    world.write({"run": "x"})
    target = world.capture()
    before = identities(world.root)
    (world.root / "run").chmod(0o755)
    assert world.restore(target).restored == (b"run",)
    assert identities(world.root) == before
    assert world.files()["run"] == ("file", b"x", 0o644)


def test_a_full_disk_stops_only_what_does_not_fit(world, monkeypatch):
    world.write({f"f{number}": "one" for number in range(5)})
    target = world.capture()
    world.write({f"f{number}": "two" for number in range(5)})
    fits, written = materialise._write_all, []

    def write(fd, content):
        written.append(content)
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        fits(fd, content)

    monkeypatch.setattr(materialise, "_write_all", write)
    outcome = world.restore(target)
    assert len(outcome.restored) == 4
    assert list(whys(outcome.failed).values()) == ["no space left on device"]
    assert sorted(world.files()) == [f"f{number}" for number in range(5)]
    (failed,) = whys(outcome.failed)
    assert world.files()[failed.decode()] == ("file", b"two", 0o644)


def test_files_in_folders_that_are_closed_to_writing_come_and_go(world):
    world.write({"a": "x", "b": "y"})
    target = world.capture()
    world.write({"cache/module/file": "x"})
    for folder in ("cache/module", "cache"):
        (world.root / folder).chmod(0o500)
    before = world.files()
    outcome = world.restore(target)
    assert not outcome.failed
    assert set(world.files()) == {"a", "b"}
    assert not world.undo(outcome.plan).failed
    assert world.files() == before
    (world.root / "cache").chmod(0o700)
    (world.root / "cache/module").chmod(0o700)


def test_setuid_never_comes_back(world):
    world.write({"run": "x"})
    (world.root / "run").chmod(0o4755)
    target = world.capture()
    (world.root / "run").unlink()
    world.restore(target)
    assert world.files()["run"] == ("file", b"x", 0o755)


def test_a_file_changed_between_plan_and_apply_is_kept_and_named(world):
    world.write({"a": "one", "b": "one"})
    target = world.capture()
    world.write({"a": "two", "b": "two"})
    job = world.plan(target)
    world.write({"a": "a person's edit"})
    outcome = world.apply(job)
    assert whys(outcome.keep) == {b"a": "changed after the plan was made"}
    assert world.files()["a"] == ("file", b"a person's edit", 0o644)
    assert outcome.restored == (b"b",)


def test_a_file_changed_after_the_pre_restore_checkpoint_is_kept_and_named(world):
    world.write({"a": "one", "b": "one", "c": "one"})
    target = world.capture()
    world.write({"a": "two", "b": "two", "new": "file"})
    (world.root / "c").unlink()
    job = world.plan(target)
    original = world.checkpoint_before

    async def editing(paths, **options):
        held = await original(paths, **options)
        world.write({"a": "edit", "c": "edit", "new": "edit"})
        return held

    world.restorer._checkpoint_before = editing
    outcome = world.apply(job)
    assert outcome.restored == (b"b",)
    assert set(whys(outcome.failed)) == {b"a", b"c", b"new"}
    assert {world.files()[name] for name in ("a", "c", "new")} == {("file", b"edit", 0o644)}


def test_a_path_that_is_not_captured_now_is_forced_into_the_pre_restore_checkpoint(world):
    world.write({"build/out": "old"})
    target = world.capture()
    world.write({"build/out": "precious now"})
    world.skips = frozenset({b"build"})
    job = world.plan(target)
    assert [(step.path, step.unproved) for step in job.plan.restore] == [(b"build/out", True)]
    outcome = world.apply(job)
    assert world.files()["build/out"] == ("file", b"old", 0o644)
    world.undo(outcome.plan)
    assert world.files()["build/out"] == ("file", b"precious now", 0o644)


@pytest.mark.parametrize("inside", ["nested/.git/HEAD", "nested/ignored/data"])
def test_b043_b044_a_folder_with_content_that_is_not_captured_is_never_removed(world, inside):
    world.write({"a": "x", "b": "y"})
    target = world.capture()
    world.write({"nested/file": "x", inside: "theirs"})
    world.skips = frozenset({b"nested/ignored"})
    outcome = world.restore(target)
    # A repository stays whole: its history is in no checkpoint, and without it its files say little.
    assert (world.root / "nested/file").exists() == (inside == "nested/.git/HEAD")
    assert (world.root / inside).read_text() == "theirs"
    assert not outcome.failed


def test_b049_a_file_does_not_replace_a_folder_that_holds_a_repository(world):
    world.write({"nested": "was a file", "other": "x"})
    target = world.capture()
    (world.root / "nested").unlink()
    world.write({"nested/.git/HEAD": "ref: refs/heads/main\n", "nested/work": "w", "other": "y"})
    before = world.files()
    outcome = world.restore(target)
    assert set(whys(outcome.keep)) == {b"nested", b"nested/work"}
    assert {name: what for name, what in world.files().items() if name != "other"} == {
        name: what for name, what in before.items() if name != "other"
    }


def test_selected_paths_alone_are_restored(world):
    world.write({"src/a": "one", "src/b": "one", "doc": "one"})
    target = world.capture()
    world.write({"src/a": "two", "src/b": "two", "doc": "two", "src/new": "x"})
    outcome = world.restore(target, paths=[b"src"])
    assert outcome.restored == (b"src/a", b"src/b")
    assert outcome.deleted == (b"src/new",)
    assert world.files()["doc"] == ("file", b"two", 0o644)
    job = world.plan(target, paths=[b"no/such"])
    assert whys(job.plan.keep) == {b"no/such": "neither the checkpoint nor the project has it"}


def test_undo_keeps_what_was_changed_since(world):
    world.write({"a": "one", "b": "one"})
    target = world.capture()
    world.write({"a": "two", "b": "two"})
    outcome = world.restore(target)
    world.write({"a": "new work"})
    undone = world.undo(outcome.plan)
    assert whys(undone.keep) == {b"a": "changed since then"}
    assert world.files()["a"] == ("file", b"new work", 0o644)
    assert world.files()["b"] == ("file", b"two", 0o644)


def test_undo_says_why_of_its_own_and_not_of_what_it_takes_back(world):
    world.write({"a": "one", "gone": "x"})
    target = world.capture()
    (world.root / "gone").unlink()
    world.write({"a": "two", "late": "x"})
    outcome = world.restore(target)
    job = asyncio.run(world.restorer.plan_undo(outcome.plan))
    assert whys(job.plan.restore) == {b"a": "differs", b"late": "missing"}
    assert whys(job.plan.delete) == {b"gone": "was not there before"}


def test_a_plan_is_carried_out_once(world):
    world.write({"a": "one"})
    target = world.capture()
    world.write({"a": "two"})
    job = world.plan(target)
    world.apply(job)
    world.write({"a": "two"})
    with pytest.raises(Conflict):
        world.apply(job)
    assert len(world.made) == 1


def test_undo_of_nothing_is_not_found(world):
    with pytest.raises(NotFound):
        asyncio.run(world.restorer.plan_undo("restore-none"))
    assert asyncio.run(world.restorer.last()) is None


def test_many_files_are_restored_by_two_threads(world):
    world.write({f"d{number % 17}/sub/f{number}": str(number) for number in range(600)})
    target, before = world.capture(), world.files()
    shutil.rmtree(world.root)
    world.root.mkdir()
    outcome = world.restore(target)
    assert len(outcome.restored) == 600
    assert world.files() == before


def test_a_state_is_written_into_a_new_directory(world, tmp_path):
    world.write({"src/a": "one", "run": "x"})
    (world.root / "run").chmod(0o755)
    (world.root / "empty/within").mkdir(parents=True)
    (world.root / "closed").mkdir()
    world.write({"closed/file": "x"})
    (world.root / "closed").chmod(0o500)
    target, wanted = world.capture(), world.files()
    (world.root / "closed").chmod(0o700)
    shutil.rmtree(world.root)
    outcome = asyncio.run(world.restorer.to_directory(target, tmp_path / "new/place"))
    assert not outcome.failed
    assert state(tmp_path / "new/place") == wanted
    with pytest.raises(Refused, match="not empty"):
        asyncio.run(world.restorer.to_directory(target, tmp_path / "new/place"))
    asyncio.run(world.restorer.to_directory(target, tmp_path / "part", paths=[b"src"]))
    assert set(state(tmp_path / "part")) == {"src", "src/a"}


TARGET = {"a": "one", "dir/b": "one", "dir/c": "one", "swap": "a file", "folder/x": "x", "gone/deep/file": "x"}


def _prepare_to_be_killed(world: World) -> tuple[dict, dict]:
    world.write(TARGET)
    target, wanted = world.capture(), world.files()
    world.checkpoint(target)
    world.write({"a": "two", "dir/b": "two", "new/file": "n", "new2": "n"})
    (world.root / "swap").unlink()
    world.write({"swap/inside": "s"})
    shutil.rmtree(world.root / "folder")
    (world.root / "folder").symlink_to("dir")
    shutil.rmtree(world.root / "gone")
    (world.root / "base.json").parent.mkdir(exist_ok=True)
    (world.root.parent / "target.json").write_bytes(msgspec.json.encode(target))
    return wanted, world.files()


def _kill(world: World, steps: int) -> None:
    tests = Path(killed_restore.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, killed_restore.__file__, str(world.root.parent), str(steps)],
        env={**os.environ, "PYTHONPATH": str(tests)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr.decode()
    world.vault.close()


@pytest.mark.parametrize("steps", [0, 2, 4, 6, 8])
@pytest.mark.parametrize("way", ["resume", "abort"])
def test_a_restore_that_was_killed_is_finished_or_reverted(tmp_path, steps, way):
    world = World(tmp_path)
    wanted, before = _prepare_to_be_killed(world)
    _kill(world, steps)
    found = World(tmp_path)
    (interrupted,) = asyncio.run(found.restorer.unfinished())
    plan = interrupted.intent.plan
    (found.root / "dir" / f".ckpt-restore-{plan}-1").write_text("left behind")
    going = found.restorer.resume(plan) if way == "resume" else found.restorer.abort(plan)
    outcome = asyncio.run(going)
    assert not outcome.failed and not outcome.keep
    assert found.files() == (wanted if way == "resume" else before)
    assert not asyncio.run(found.restorer.unfinished())
    if way == "resume":
        found.undo(plan)
        assert found.files() == before
    found.close()


def test_what_was_changed_while_a_restore_lay_interrupted_is_kept(tmp_path):
    world = World(tmp_path)
    wanted, _ = _prepare_to_be_killed(world)
    _kill(world, 5)
    found = World(tmp_path)
    found.write({"dir/b": "a person's edit"})
    (interrupted,) = asyncio.run(found.restorer.unfinished())
    outcome = asyncio.run(found.restorer.resume(interrupted.intent.plan))
    assert whys(outcome.keep) == {b"dir/b": "changed since then"}
    assert found.files() == {**wanted, "dir/b": ("file", b"a person's edit", 0o644)}
    found.close()


def test_a_journal_that_never_got_its_intent_is_no_restore(world):
    world.journals.mkdir()
    (world.journals / "restore-x.jsonl").write_bytes(b'{"event":"planned","plan":"res')
    assert asyncio.run(world.restorer.unfinished()) == []


def test_a_full_disk_for_the_journal_means_that_nothing_is_touched(world, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    world.write({"a": "one"})
    target = world.capture()
    world.write({"a": "two"})
    monkeypatch.setattr(Journal, "begin", full)
    with pytest.raises(Failed, match="Nothing was restored"):
        world.restore(target)
    assert world.files()["a"] == ("file", b"two", 0o644)
