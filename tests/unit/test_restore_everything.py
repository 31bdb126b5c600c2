"""Restores of random trees: planned paths become the target, everything else stays as it is, undo brings all back."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpointd.vault.store import Vault
from support.restoring import World, identities

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
FILES = st.tuples(
    st.just("file"), st.sampled_from([b"", b"one", b"two"]), st.sampled_from([0o644, 0o755, 0o600, 0o400])
)
LINKS = st.tuples(st.just("link"), st.sampled_from(["a", "../b", "/etc", "nowhere"]))
FOLDERS = st.tuples(st.just("directory"), st.sampled_from([0o755, 0o700, 0o750]))
TREES = st.dictionaries(PATHS, st.one_of(FILES, LINKS, FOLDERS), max_size=8)
SKIPS = st.frozensets(PATHS.map(str.encode), max_size=2)


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    made = Vault.create(tmp_path_factory.mktemp("vault") / "vault.git")
    yield made
    made.close()


def build(root: Path, tree: dict) -> None:
    """What of a tree can be: a path below a file or symlink is left out."""
    for name, (kind, *rest) in sorted(tree.items()):
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            inside = path.parent.resolve().is_relative_to(root.resolve())
        except OSError:
            continue
        if not inside or os.path.lexists(path) or any(above.is_symlink() for above in path.parents if above != root):
            continue
        if kind == "file":
            path.write_bytes(rest[0])
            path.chmod(rest[1])
        elif kind == "link":
            path.symlink_to(rest[0])
        else:
            path.mkdir()
            path.chmod(rest[0])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(target=TREES, present=TREES)
def test_a_whole_restore_gives_the_target_and_undo_the_present(vault, target, present):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), vault, durable=False)
        build(world.root, target)
        wanted, captured = world.files(), world.capture()
        world.clear()
        build(world.root, present)
        before = world.files()

        outcome = world.restore(captured)
        assert not outcome.keep and not outcome.failed
        assert world.files() == wanted

        if outcome.restored or outcome.deleted:
            undone = world.undo(outcome.plan)
            assert not undone.keep and not undone.failed
            assert world.files() == before
            again = world.undo(undone.plan)
            assert not again.keep and not again.failed
            assert world.files() == wanted
        world.pool.shutdown()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(target=TREES, present=TREES, then=SKIPS, now=SKIPS)
def test_what_was_not_observed_or_not_planned_is_never_touched(vault, target, present, then, now):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), vault, durable=False)
        build(world.root, target)
        wanted, world.skips = world.files(), then
        captured = world.capture()
        world.clear()
        build(world.root, present)
        world.skips = now
        before, inodes = world.files(), identities(world.root)

        job = world.plan(captured)
        planned = set(job.plan.paths)
        outcome = world.apply(job, allow_mass_delete=True)
        after, left = world.files(), identities(world.root)

        assert not outcome.failed
        for path, identity in inodes.items():
            if path not in planned or path in {keep.path for keep in outcome.keep}:
                assert left.get(path) == identity, f"{path!r} was touched"
        for path in outcome.restored:
            assert after[os.fsdecode(path)] == wanted[os.fsdecode(path)]
        for path in outcome.deleted:
            assert captured.coverage.observed(path)
            assert after.get(os.fsdecode(path), ("directory",))[0] == "directory"

        if outcome.restored or outcome.deleted:
            undone = world.undo(outcome.plan)
            assert not undone.keep and not undone.failed
            assert world.files() == before
        world.pool.shutdown()
