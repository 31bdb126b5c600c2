"""Repositories in repositories, and repositories that are not as usual."""

import os
import shutil
from pathlib import Path

import pytest

from support.captures import Capturing
from support.repositories import fingerprint, git, make, write
from support.vaults import fsck_complaints


@pytest.fixture
def project(tmp_path: Path) -> Capturing:
    capturing = Capturing(tmp_path)
    make(capturing.top, {"a": "1", ".gitignore": "*.log\n"})
    return capturing


def test_a_nested_repository_has_its_own_rules(project):
    make(project.top / "in/ner", {"x": "1", ".gitignore": "*.tmp\n", "kept.log": "not ignored here"})
    write(project.top / "in/ner", {"y": "2", "z.tmp": "no"})
    (project.top / "in/ner/.git/info/exclude").write_text("w\n")
    write(project.top / "in/ner", {"w": "no"})
    project.tree.first()
    inside = {path for path in project.files if path.startswith(b"in/ner/")}
    assert inside == {b"in/ner/x", b"in/ner/.gitignore", b"in/ner/kept.log", b"in/ner/y"}
    assert project.skipped == {b"in/ner/z.tmp": "ignored", b"in/ner/w": "ignored"}
    write(project.top / "in/ner", {"new.log": "yes", "new.tmp": "no", "x": "changed"})
    project.tree.capture([b"in/ner/new.log", b"in/ner/new.tmp", b"in/ner/x"])
    assert project.files[b"in/ner/new.log"] == b"yes"
    assert project.files[b"in/ner/x"] == b"changed"
    assert b"in/ner/new.tmp" not in project.files
    write(project.top / "in/ner", {"x": "again", "late": "found by scan"})
    captured = project.tree.scan()
    assert {change.path for change in captured.changes or ()} == {b"in/ner/x", b"in/ner/late"}
    project.restart()
    assert project.tree.scan().changes == ()
    assert fsck_complaints(project.vault.path) == []


def test_a_repository_without_commits_is_captured_like_any_folder(project):
    (project.top / "young").mkdir()
    git(project.top / "young", "init", "-q")
    write(project.top / "young", {"f": "1"})
    project.tree.first()
    assert project.files[b"young/f"] == b"1"


def test_a_repository_that_appears_is_entered_with_its_rules(project):
    project.tree.first()
    make(project.top / "cloned", {"f": "1", ".gitignore": "o\n"})
    write(project.top / "cloned", {"o": "no"})
    project.tree.capture([b"cloned"])
    assert {path for path in project.files if path.startswith(b"cloned/")} == {b"cloned/f", b"cloned/.gitignore"}
    assert project.skipped == {b"cloned/o": "ignored"}
    assert project.tree.scan().changes == ()
    shutil.rmtree(project.top / "cloned")
    captured = project.tree.capture([b"cloned"])
    assert {change.change for change in captured.changes or ()} == {"delete"}
    assert project.tree.scan().changes == ()


def test_a_repository_that_is_none_any_more_belongs_to_the_outer_one(project):
    make(project.top / "sub", {"f": "1", "x.log": "1"})
    project.tree.first()
    shutil.rmtree(project.top / "sub/.git")
    captured = project.tree.capture([b"sub/.git"])
    assert captured.changes == ()
    write(project.top, {"sub/y.log": "no", "sub/g": "1", "sub/f": "2"})
    project.tree.capture([b"sub/y.log", b"sub/g", b"sub/f"])
    assert {path for path in project.files if path.startswith(b"sub/")} == {b"sub/f", b"sub/g", b"sub/x.log"}
    project.restart()
    assert project.tree.scan().changes == ()


def test_submodules_are_captured_as_files_and_not_touched(project, tmp_path):
    source = make(tmp_path / "source", {"s": "1"})
    git(project.top, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(source), "mod")
    git(project.top, "commit", "-qm", "submodule")
    write(project.top / "mod", {"s": "dirty", "new": "1"})
    before = fingerprint(project.top / ".git")
    project.tree.first()
    assert project.files[b"mod/s"] == b"dirty"
    assert project.files[b"mod/new"] == b"1"
    write(project.top / "mod", {"s": "dirtier"})
    assert {change.path for change in project.tree.scan().changes or ()} == {b"mod/s"}
    assert fingerprint(project.top / ".git") == before
    assert fsck_complaints(project.vault.path) == []


def test_an_ignored_repository_and_a_linked_work_tree_are_named(project):
    make(project.top / "ignored", {"f": "1"})
    write(project.top, {".gitignore": "/ignored/\n"})
    git(project.top, "worktree", "add", "-q", "linked", "-b", "other")
    project.tree.first()
    assert project.skipped == {b"ignored": "nested", b"linked": "nested"}
    assert set(project.files) == {b"a", b".gitignore"}
    assert project.tree.scan().changes == ()


def test_a_linked_work_tree_is_a_root_of_its_own(tmp_path):
    main = make(tmp_path / "main", {"a": "1", ".gitignore": "*.o\n"})
    (main / ".git/info/exclude").write_text("by-exclude\n")
    git(main, "worktree", "add", "-q", str(tmp_path / "p"), "-b", "other")
    project = Capturing(tmp_path)
    write(project.top, {"by-exclude": "", "b.o": "", "c": ""})
    before = fingerprint(main / ".git")
    project.tree.first()
    assert set(project.files) == {b"a", b".gitignore", b"c"}
    assert project.tree.scan().changes == ()
    assert fingerprint(main / ".git") == before


def test_repositories_below_a_plain_directory_are_all_captured(tmp_path):
    project = Capturing(tmp_path)
    for name in ("one", "two"):
        make(project.top / name, {"f": name, ".gitignore": "*.o\n"})
        write(project.top / name, {"x.o": ""})
    write(project.top, {"plain": "1", "y.o": "not ignored here"})
    project.tree.first()
    assert set(project.files) == {
        b"one/f", b"one/.gitignore", b"two/f", b"two/.gitignore", b"plain", b"y.o",
    }  # fmt: skip
    assert project.tree.scan().changes == ()


def test_a_sha256_repository_is_captured(tmp_path):
    project = Capturing(tmp_path)
    git(project.top, "init", "-q", "--object-format=sha256")
    write(project.top, {"a": "1", "forced.log": "1", ".gitignore": "*.log\n", "b.log": ""})
    git(project.top, "add", "-f", "a", "forced.log", ".gitignore")
    git(project.top, "commit", "-qm", "x")
    before = fingerprint(project.top / ".git")
    project.tree.first()
    assert set(project.files) == {b"a", b"forced.log", b".gitignore"}
    write(project.top, {"a": "2", "c.log": "1"})
    git(project.top, "add", "-f", "c.log")
    before = fingerprint(project.top / ".git")
    assert {change.path for change in project.tree.scan().changes or ()} == {b"a", b"c.log"}
    assert fingerprint(project.top / ".git") == before


def test_a_split_index_is_read_and_its_shared_part_left_alone(project):
    write(project.top, {"forced.log": "1"})
    git(project.top, "add", "-f", "forced.log")
    git(project.top, "update-index", "--split-index")
    assert list((project.top / ".git").glob("sharedindex.*"))
    before = fingerprint(project.top / ".git")
    project.tree.first()
    assert project.files[b"forced.log"] == b"1"
    write(project.top, {"other.log": "1"})
    git(project.top, "add", "-f", "other.log")
    before = fingerprint(project.top / ".git")
    project.tree.scan()
    assert project.files[b"other.log"] == b"1"
    assert fingerprint(project.top / ".git") == before


@pytest.mark.parametrize("index", ["--no-sparse-index", "--sparse-index"])
def test_what_a_sparse_checkout_leaves_out_is_not_observed(tmp_path, index):
    project = Capturing(tmp_path)
    make(project.top, {"in/a": "1", "out/b": "2", "out/deep/c": "3", "top": "4"})
    git(project.top, "sparse-checkout", "init", "--cone", index)
    git(project.top, "sparse-checkout", "set", "in")
    captured = project.tree.first()
    assert set(project.files) == {b"in/a", b"top"}
    assert project.skipped == {b"out": "outside-sparse"}
    assert not captured.coverage.observed(b"out/deep/c")
    git(project.top, "sparse-checkout", "set", "in", "out")
    captured = project.tree.scan()
    assert {change.path for change in captured.changes or ()} == {b"out/b", b"out/deep/c"}
    assert captured.coverage.observed(b"out/deep/c")


def test_bits_of_the_users_index_are_not_believed(project):
    git(project.top, "update-index", "--assume-unchanged", "a")
    project.tree.first()
    write(project.top, {"a": "changed though assumed unchanged"})
    project.tree.scan()
    assert project.files[b"a"] == b"changed though assumed unchanged"


def test_a_merge_in_progress_is_captured_as_it_lies(project):
    git(project.top, "checkout", "-qb", "side")
    write(project.top, {"a": "side"})
    git(project.top, "commit", "-qam", "side")
    git(project.top, "checkout", "-q", "main")
    write(project.top, {"a": "main"})
    git(project.top, "commit", "-qam", "main")
    with pytest.raises(Exception, match="merge"):
        git(project.top, "merge", "-q", "side")
    before = fingerprint(project.top / ".git")
    project.tree.first()
    assert project.files[b"a"].startswith(b"<<<<<<<")
    assert project.tree.scan().changes == ()
    assert fingerprint(project.top / ".git") == before


@pytest.mark.parametrize("state", ["unborn", "detached", "no index"])
def test_unusual_heads_do_not_matter(tmp_path, state):
    project = Capturing(tmp_path)
    if state == "unborn":
        git(project.top, "init", "-q")
        write(project.top, {"a": "1"})
    else:
        make(project.top, {"a": "1"})
        git(project.top, "checkout", "-q", "--detach")
    if state == "no index":
        (project.top / ".git/index").unlink()
    project.tree.first()
    assert project.files == {b"a": b"1"}
    assert project.tree.scan().changes == ()


def test_a_repository_that_is_made_or_lost_under_a_capture(tmp_path):
    project = Capturing(tmp_path)
    write(project.top, {"a": "1", "b.log": "1"})
    project.tree.first()
    git(project.top, "init", "-q")
    write(project.top, {".git/info/exclude": "*.log\n", "c.log": "no"})
    captured = project.tree.capture([b".git", b"c.log"])
    assert captured.changes == ()
    assert project.skipped == {b"c.log": "ignored"}
    shutil.rmtree(project.top / ".git")
    project.tree.capture([b".git"])
    assert set(project.files) == {b"a", b"b.log", b"c.log"}


def test_paths_too_deep_for_git_are_not_observed(project):
    here = os.open(project.top, os.O_RDONLY)
    try:
        for _ in range(22):
            os.mkdir("d" * 200, dir_fd=here)
            below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    finally:
        os.close(here)
    captured = project.tree.first()
    assert project.files[b"a"] == b"1"
    path = b"/".join([b"d" * 200] * 22) + b"/file"
    assert path in project.files or not captured.coverage.observed(path)
    assert project.tree.scan().changes == ()
