"""The user's repository, read from its files."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from checkpointd.vault import repository
from support.repositories import fingerprint, git, make, write


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return make(tmp_path / "r", {"a": "1", "d/b": "2"})


def head_of(top: Path) -> str:
    return git(top, "rev-parse", "HEAD").strip()


def test_the_top_is_found_from_anywhere_inside(top):
    found = repository.find(top / "d")
    assert found is not None
    assert (found.top, found.git_dir, found.common_dir) == (top, top / ".git", top / ".git")
    assert (found.object_format, found.reference_format, found.linked, found.foreign) == ("sha1", "files", False, False)
    assert repository.find(top.parent) is None


def test_a_folder_called_git_is_no_repository(tmp_path):
    (tmp_path / ".git").mkdir()
    assert repository.at(tmp_path) is None
    (tmp_path / ".git").rmdir()
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert repository.at(tmp_path) is None


@pytest.mark.parametrize("packed", [False, True])
def test_head_branches_stashes_and_upstream(top, packed):
    git(top, "branch", "feature/x")
    git(top, "config", "branch.main.remote", "origin")
    git(top, "config", "branch.main.merge", "refs/heads/main")
    git(top, "config", "remote.origin.url", "https://example.com/r.git")
    for content in ("first", "second"):
        write(top, {"a": content})
        git(top, "stash", "-q")
    stashes = git(top, "stash", "list", "--format=%H").split()
    if packed:
        git(top, "pack-refs", "--all")
    found = repository.at(top)
    assert found is not None
    state = found.state()
    assert (state.branch, state.head, state.upstream) == ("main", head_of(top), "origin/main")
    assert state.branches == {"main": head_of(top), "feature/x": head_of(top)}
    assert list(state.stashes) == stashes
    assert found.remotes() == ("https://example.com/r.git",)


def test_unborn_and_detached_heads(tmp_path):
    top = tmp_path / "r"
    top.mkdir()
    git(top, "init", "-q", "-b", "trunk")
    found = repository.at(top)
    assert found is not None
    assert (found.state().branch, found.state().head) == ("trunk", None)
    write(top, {"a": "1"})
    git(top, "add", "a")
    git(top, "commit", "-qm", "x")
    git(top, "checkout", "-q", "--detach")
    assert (found.state().branch, found.state().head) == (None, head_of(top))


def test_what_is_under_way_is_named(top):
    found = repository.at(top)
    assert found is not None
    git(top, "checkout", "-qb", "side")
    write(top, {"a": "side"})
    git(top, "commit", "-qam", "side")
    git(top, "checkout", "-q", "main")
    write(top, {"a": "main"})
    git(top, "commit", "-qam", "main")
    assert found.state().state == "none"
    for args, name in (
        (("merge", "side"), "merging"), (("rebase", "side"), "rebasing"), (("cherry-pick", "side"), "cherry-picking"),
        (("revert", "--no-commit", "HEAD~1"), "reverting"), (("bisect", "start"), "bisecting"),
    ):  # fmt: skip
        with contextlib.suppress(subprocess.CalledProcessError):
            git(top, *args)
        assert found.state().state == name
        git(top, args[0], "reset" if args[0] == "bisect" else "--abort")
        assert found.state().state == "none"


def test_the_fingerprint_moves_with_head_branch_and_stash(top):
    found = repository.at(top)
    assert found is not None
    seen = [found.head_fingerprint()]
    assert found.head_fingerprint() == seen[0]
    for args in (("commit", "--allow-empty", "-qm", "x"), ("checkout", "-qb", "other"), ("checkout", "-q", "--detach")):
        git(top, *args)
        seen.append(found.head_fingerprint())
    write(top, {"a": "dirty"})
    git(top, "stash", "-q")
    seen.append(found.head_fingerprint())
    assert len(set(seen)) == len(seen)


def test_a_linked_work_tree_shares_refs_and_has_its_own_head(top):
    git(top, "worktree", "add", "-q", str(top.parent / "w"), "-b", "other")
    found = repository.at(top.parent / "w")
    assert found is not None
    assert found.linked
    assert found.common_dir == top / ".git"
    assert found.state().branch == "other"
    assert set(found.state().branches) == {"main", "other"}
    assert found.exclude_path == top / ".git/info/exclude"


def test_other_formats_are_said(top):
    git(top, "config", "extensions.refStorage", "reftable")
    (top / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")
    found = repository.at(top)
    assert found is not None
    state = found.state()
    assert (state.branch, state.head) == (None, None)
    assert "reftable" in state.note


def test_nothing_is_run_followed_or_written(top):
    evil = top.parent / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {top.parent}/ran\n")
    evil.chmod(0o755)
    git(top, "config", "core.fsmonitor", str(evil))
    git(top, "config", "alias.config", f"!{evil}")
    git(top, "config", "include.path", str(evil))
    os.symlink("/etc/passwd", top / ".git/refs/heads/link")
    os.mkfifo(top / ".git/MERGE_MSG")
    (top / ".git/refs/heads/up").write_text("ref: ../../../../etc/passwd\n")
    before = fingerprint_without_pipes(top)
    found = repository.at(top)
    assert found is not None
    assert set(found.state().branches) == {"main"}
    found.head_fingerprint()
    assert fingerprint_without_pipes(top) == before
    assert not (top.parent / "ran").exists()


def fingerprint_without_pipes(top: Path) -> object:
    pipe = top / ".git/MERGE_MSG"
    pipe.unlink()
    found = fingerprint(top / ".git")
    os.mkfifo(pipe)
    return found
