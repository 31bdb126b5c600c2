"""The first capture of a work tree: exact bytes, stated gaps, an untouched repository."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from checkpointd.config import CaptureConfig, Size
from checkpointd.model import modes
from checkpointd.vault.capture import CaptureCancelled, CaptureFailed, CaptureRefused, WorkTree
from support.captures import Capturing
from support.repositories import fingerprint, git, make, write
from support.vaults import fsck_complaints


@pytest.fixture
def project(tmp_path: Path) -> Capturing:
    capturing = Capturing(tmp_path)
    make(capturing.top, {"a.txt": "one\n", "src/b.py": "two\n"})
    return capturing


def test_tracked_and_untracked_files_are_captured_and_ignored_ones_named(project):
    write(project.top, {".gitignore": "*.log\n/out/\n", "new/c": "three", "x.log": "no", "out/o": "no"})
    captured = project.tree.first()
    assert project.files == {
        b".gitignore": b"*.log\n/out/\n", b"a.txt": b"one\n", b"new/c": b"three", b"src/b.py": b"two\n",
    }  # fmt: skip
    assert project.skipped == {b"x.log": "ignored", b"out": "ignored"}
    assert captured.coverage.captured == 4
    assert captured.coverage.size == sum(map(len, project.files.values()))
    assert captured.changes is None
    assert not captured.coverage.observed(b"out/anything")
    assert captured.coverage.observed(b"src/absent")


def test_a_file_that_is_tracked_though_ignored_is_captured(project):
    write(project.top, {".gitignore": "*.log\n", "kept.log": "kept", "other.log": "no"})
    git(project.top, "add", "-f", "kept.log")
    project.tree.first()
    assert project.files[b"kept.log"] == b"kept"
    assert b"other.log" not in project.files


def test_every_source_of_ignore_rules_counts(project):
    (project.top / ".git/info").mkdir(exist_ok=True)
    (project.top / ".git/info/exclude").write_text("by-exclude\n")
    (project.home / ".config/git").mkdir(parents=True)
    (project.home / ".config/git/ignore").write_text("by-default\n")
    (project.home / "mine").write_text("by-config\n")
    write(
        project.top,
        {"by-exclude": "", "by-default": "", "by-config": "", "sub/.gitignore": "by-sub\n", "sub/by-sub": ""},
    )
    project.tree.first()
    assert set(project.skipped) == {b"by-exclude", b"by-default", b"sub/by-sub"}
    (project.home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n")
    project.tree.first()
    assert set(project.skipped) == {b"by-exclude", b"by-config", b"sub/by-sub"}


def test_bytes_are_raw_whatever_attributes_and_filters_say(project):
    git(project.top, "config", "core.autocrlf", "true")
    git(project.top, "config", "filter.upper.clean", "tr a-z A-Z")
    write(project.top, {".gitattributes": "* text=auto eol=crlf ident filter=upper\n", "crlf": b"a\r\n$Id$\r\n"})
    git(project.top, "add", "crlf")
    project.tree.first()
    assert project.files[b"crlf"] == b"a\r\n$Id$\r\n"
    assert project.tree.scan().changes == ()


def test_names_modes_symlinks_and_empty_folders_come_whole(project):
    top = os.fsencode(project.top)
    names = (b"caf\xe9", b"new\nline", b'quo"te', b" lead", b"-x", b"a" * 255)
    for name in names:
        Path(os.fsdecode(top + b"/" + name)).write_bytes(name)
    os.symlink("nowhere", project.top / "dangling")
    os.symlink("src", project.top / "to-folder")
    (project.top / "src/b.py").chmod(0o600)
    (project.top / "run").write_text("#!")
    (project.top / "run").chmod(0o755)
    (project.top / "e/f").mkdir(parents=True)
    (project.top / "private").mkdir(mode=0o700)
    captured = project.tree.first()
    assert all(
        project.files[name] == name for name in (b"caf\xe9", b"new\nline", b'quo"te', b" lead", b"-x", b"a" * 255)
    )
    assert project.files[b"dangling"] == b"nowhere"
    assert project.entries[b"to-folder"][0] == 0o120000
    assert project.entries[b"src/b.py"][:2] == (0o100644, "600")
    assert project.entries[b"run"][0] == 0o100755
    assert project.empty == {b"e/f", b"private"}
    assert modes.decode(captured.modes).permissions(b"private", 0o040000) == 0o700
    assert fsck_complaints(project.vault.path) == []


def test_one_bad_path_fails_nothing_and_is_named(project, monkeypatch):
    os.mkfifo(project.top / "src/fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(project.top)
        try:
            listener.bind("sock")
        finally:
            os.chdir(here)
        write(project.top, {".GIT/x": "no", "git~1": "no", "locked": "no"})
        opened = os.open

        def refuse(path, *args, **kwargs):
            if path == b"locked":
                raise PermissionError(13, "Permission denied")
            return opened(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", refuse)
        project.tree.first()
    assert set(project.files) == {b"a.txt", b"src/b.py"}
    assert project.skipped == {
        b"src/fifo": "special", b"sock": "special", b".GIT": "name", b"git~1": "name", b"locked": "unreadable",
    }  # fmt: skip
    assert fsck_complaints(project.vault.path) == []


def test_what_the_user_has_packed_is_copied_and_needs_no_second_look(tmp_path):
    project = Capturing(tmp_path)
    make(project.top, {f"d{i % 7}/f{i}": f"content {i}\n" * 20 for i in range(300)})
    git(project.top, "repack", "-adq")
    write(project.top, {"d1/f1": "changed"})
    for _ in range(2):  # the same pack comes twice
        project.tree.first()
        assert project.files[b"d1/f1"] == b"changed"
        assert len(project.files) == 300
    assert list((project.vault.path / "incoming").iterdir()) == []
    shutil.rmtree(project.top)
    assert project.files[b"d2/f2"] == b"content 2\n" * 20  # nothing borrowed
    assert fsck_complaints(project.vault.path) == []


def test_missing_objects_of_the_user_only_cost_the_copy(tmp_path):
    project = Capturing(tmp_path)
    make(project.top, {f"f{i}": f"content {i}\n" for i in range(250)})
    shutil.rmtree(project.top / ".git/objects")
    (project.top / ".git/objects").mkdir()
    project.tree.first()
    assert project.files[b"f7"] == b"content 7\n"
    assert fsck_complaints(project.vault.path) == []


@pytest.mark.parametrize("copied", [False, True])
def test_the_repository_is_never_written_and_nothing_of_it_runs(tmp_path, copied):
    project = Capturing(tmp_path)
    make(project.top, {f"f{i}": str(i) for i in range(300 if copied else 3)})
    evil = tmp_path / "evil"
    evil.write_text(f'#!/bin/sh\necho ran "$0" "$@" >> {tmp_path}/ran\ncat\n')
    evil.chmod(0o755)
    for key in (
        "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "diff.external", "gpg.program",
        "filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.textconv", "diff.x.command",
        "core.alternateRefsCommand", "credential.helper", "uploadpack.packObjectsHook",
    ):  # fmt: skip
        git(project.top, "config", key, str(evil))
    git(project.top, "config", "core.hooksPath", str(tmp_path / "hooks"))
    git(project.top, "config", "include.path", str(tmp_path / "included"))
    (tmp_path / "hooks").mkdir()
    for hook in ("post-index-change", "pre-commit", "reference-transaction", "post-checkout", "fsmonitor-watchman"):
        shutil.copy(evil, tmp_path / "hooks" / hook)
    write(project.top, {".gitattributes": "* filter=x diff=x\n"})
    before = fingerprint(project.top / ".git")
    project.tree.first()
    project.tree.scan()
    write(project.top, {"f1": "changed", "new/g": "new", ".gitignore": "*.o\n"})
    project.tree.capture([b"f1", b"new"])
    project.tree.capture([b".gitignore"])
    project.restart()
    project.tree.scan()
    assert not (tmp_path / "ran").exists()
    assert fingerprint(project.top / ".git") == before
    assert project.files[b"new/g"] == b"new"


def test_a_plain_directory_is_captured_without_git(tmp_path):
    project = Capturing(tmp_path)
    write(
        project.top,
        {"a": "1", "b/c": "2", "node_modules/x": "no", "deep/__pycache__/y": "no", ".gitignore": "*.o\n", "z.o": ""},
    )
    project.tree.first()
    assert set(project.files) == {b"a", b"b/c", b".gitignore"}
    assert project.skipped == {
        b"node_modules": "default-folder",
        b"deep/__pycache__": "default-folder",
        b"z.o": "ignored",
    }
    assert not (project.top / ".git").exists()


def test_secrets_by_name_are_left_out_unless_tracked(project):
    write(project.top, {".env": "KEY=1", "server.pem": "x", "config/.env.local": "x", ".env.example": "KEY="})
    git(project.top, "add", "-f", "server.pem")
    project.tree.first()
    assert {b"server.pem", b".env.example"} <= set(project.files)
    assert project.skipped == {b".env": "secret", b"config/.env.local": "secret"}


def test_large_files_are_not_read(tmp_path):
    project = Capturing(tmp_path, limits=CaptureConfig(max_file=Size(1000), max_tracked_file=Size(3000)))
    make(project.top, {"tracked": b"t" * 2000, "over": b"o" * 4000})
    write(project.top, {"new": b"n" * 2000, "small": b"s" * 999})
    with open(project.top / "sparse", "wb") as file:
        file.truncate(5 << 30)
    captured = project.tree.first()
    assert set(project.files) == {b"tracked", b"small"}
    assert project.skipped == {b"over": "too-large", b"new": "too-large", b"sparse": "too-large"}
    assert captured.coverage.size < 4000
    write(project.top, {"tracked": b"t" * 2500, "small": b"s" * 1001})
    project.tree.capture([b"tracked", b"small"])
    assert set(project.files) == {b"tracked"}
    assert project.skipped[b"small"] == "too-large"


def test_an_untracked_folder_over_its_budget_is_left_out_as_a_whole(tmp_path):
    project = Capturing(tmp_path, limits=CaptureConfig(max_folder_files=10, max_folder_bytes=Size(5000)))
    make(project.top, {"src/a": "1"})
    write(project.top, {f"many/d{i % 3}/{i}": "x" for i in range(11)})
    write(project.top, {f"few/{i}": "x" for i in range(10)})
    write(project.top, {f"fat/{i}": b"x" * 2000 for i in range(3)})
    project.tree.first()
    assert {path.split(b"/")[0] for path in project.files} == {b"src", b"few"}
    assert project.skipped == {b"many": "over-budget", b"fat": "over-budget"}
    write(project.top, {"few/10": "x", "many/new": "x"})
    project.tree.capture([b"few/10", b"many/new"])
    assert project.skipped == {b"many": "over-budget", b"fat": "over-budget", b"few/10": "over-budget"}


def test_a_tree_over_its_budget_keeps_what_is_tracked(tmp_path):
    project = Capturing(tmp_path, limits=CaptureConfig(max_tree_files=5))
    make(project.top, {f"t{i}": "x" for i in range(7)})
    write(project.top, {"new": "x"})
    project.tree.first()
    assert len(project.files) == 7
    assert project.skipped == {b"new": "over-budget"}


def test_the_users_own_patterns_come_first(tmp_path):
    project = Capturing(tmp_path, limits=CaptureConfig(exclude=["*.csv", "/data/"], include=["build/kept", ".env"]))
    make(project.top, {"a.csv": "no", "src/b.csv": "no", "data/x": "no", "src/data/y": "yes"})
    write(project.top, {".env": "yes"})
    project.tree.first()
    assert set(project.files) == {b"src/data/y", b".env"}
    assert set(project.skipped.values()) == {"config"}


def test_a_home_directory_is_refused(tmp_path):
    project = Capturing(tmp_path, top=tmp_path / "home")
    with pytest.raises(CaptureRefused, match="home directory"):
        project.tree.first()
    for top in (Path("/"), tmp_path):
        tree = WorkTree(
            project.vault, top, "w", limits=project.limits, clock=project.tree._clock, cancel=lambda: False,
            home=project.tree._home,
        )  # fmt: skip
        with pytest.raises(CaptureRefused):
            tree.scan()


def test_a_vanished_root_is_a_failure_and_not_a_deletion(project):
    before = project.tree.first()
    project.top.rename(project.base / "away")
    for call in (project.tree.scan, lambda: project.tree.capture([b"a.txt"])):
        with pytest.raises(CaptureFailed, match="Nothing is taken for deleted") as failure:
            call()
        assert failure.value.hint
    assert project.tree.state == before
    project.restart()
    project.top.mkdir()  # a mount point without its disk
    with pytest.raises(CaptureFailed, match="it is empty"):
        project.tree.scan()
    project.top.rmdir()
    (project.base / "away").rename(project.top)
    assert project.tree.scan().files == before.files


def test_cancelling_leaves_what_was_known(project):
    before = project.tree.first()
    write(project.top, {"a.txt": "changed"})
    project.cancelled = lambda: True
    for call in (project.tree.first, project.tree.scan, lambda: project.tree.capture([b"a.txt"])):
        with pytest.raises(CaptureCancelled):
            call()
    assert project.tree.state == before
    project.cancelled = lambda: False
    assert [change.path for change in project.tree.scan().changes or ()] == [b"a.txt"]


def test_a_git_that_fails_fails_the_capture(project, monkeypatch):
    before = project.tree.first()
    from checkpointd.vault import run

    monkeypatch.setattr(run, "find_git", lambda: "/bin/false")
    with pytest.raises(CaptureFailed) as failure:
        project.tree.scan()
    assert failure.value.hint
    assert project.tree.state == before


def test_urgent_paths_are_read_first(tmp_path, monkeypatch):
    project = Capturing(tmp_path)
    make(project.top, {f"f{i}": str(i) for i in range(5)})
    write(project.top, {"new/x": "1", "f3": "changed"})
    from checkpointd.vault.reading import Root

    order = []
    take = Root.take

    def noted(self, path, *args):
        order.append(path)
        return take(self, path, *args)

    monkeypatch.setattr(Root, "take", noted)
    project.tree.first(urgent=[b"new/x", b"f3", b"absent"])
    assert order[:2] == [b"new/x", b"f3"]
    assert len(order) == 6
