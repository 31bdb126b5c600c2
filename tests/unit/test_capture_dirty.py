"""Capturing what was told to be dirty, and what a scan finds."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from checkpointd.model.capture import Captured
from checkpointd.vault import reading, scan, zones
from checkpointd.vault.capture import CaptureFailed
from checkpointd.vault.repository import at
from support.captures import Capturing
from support.repositories import git, make, write


@pytest.fixture
def project(tmp_path: Path) -> Capturing:
    capturing = Capturing(tmp_path)
    make(capturing.top, {"a.txt": "one\n", "src/b.py": "two\n", "src/deep/c.py": "three\n"})
    capturing.tree.first()
    return capturing


def told(captured: Captured) -> dict[bytes, str]:
    assert captured.changes is not None
    return {change.path: change.change for change in captured.changes}


def test_changed_new_and_deleted_files_are_told(project):
    write(project.top, {"a.txt": "changed\n", "src/new.py": "new\n"})
    (project.top / "src/b.py").unlink()
    captured = project.tree.capture([b"a.txt", b"src/new.py", b"src/b.py", b"never/there"])
    assert told(captured) == {b"a.txt": "modify", b"src/new.py": "add", b"src/b.py": "delete"}
    assert project.files == {b"a.txt": b"changed\n", b"src/new.py": b"new\n", b"src/deep/c.py": b"three\n"}
    assert captured.coverage.captured == 3
    assert not captured.scanned


def test_existing_files_cost_no_child(project, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a git child was started")

    monkeypatch.setattr(zones, "git", refuse)
    monkeypatch.setattr(zones, "git_records", refuse)
    write(project.top, {"a.txt": "changed\n"})
    (project.top / "src/b.py").unlink()
    assert len(told(project.tree.capture([b"a.txt", b"src/b.py"]))) == 2


def test_a_touched_file_with_the_same_bytes_is_no_change(project):
    before = project.tree.state
    os.utime(project.top / "a.txt")
    captured = project.tree.capture([b"a.txt"])
    assert captured.changes == ()
    assert before is not None
    assert captured.files == before.files


def test_new_files_obey_the_rules(project):
    write(project.top, {".gitignore": "*.log\n"})
    project.tree.scan()
    write(project.top, {"x.log": "no", "y": "yes", ".env": "no", "node_modules/m/i.js": "no", "src/.git/config": "no"})
    project.tree.capture([b"x.log", b"y", b".env", b"node_modules/m/i.js", b"src/.git/config"])
    assert set(project.files) == {b".gitignore", b"a.txt", b"src/b.py", b"src/deep/c.py", b"y"}
    assert project.skipped == {b"x.log": "ignored", b".env": "secret", b"node_modules": "default-folder"}
    assert not project.tree.in_scope(b"x.log")
    assert not project.tree.in_scope(b"node_modules/any/thing")
    assert not project.tree.in_scope(b".git/objects/aa")
    assert project.tree.in_scope(b"y")


def test_a_file_captured_once_stays_when_a_rule_starts_to_ignore_it(project):
    write(project.top, {".gitignore": "a.txt\nb.py\n", "a.txt": "changed"})
    captured = project.tree.capture([b".gitignore"])
    assert captured.scanned
    assert project.files[b"a.txt"] == b"changed"
    write(project.top, {"a.txt": "again"})
    project.tree.capture([b"a.txt"])
    assert project.files[b"a.txt"] == b"again"
    project.restart()
    project.tree.scan()
    assert project.files[b"a.txt"] == b"again"


def test_a_rule_that_goes_lets_files_in(project):
    write(project.top, {".gitignore": "*.log\n/out/\n", "x.log": "x", "out/y": "y"})
    project.tree.scan()
    assert b"x.log" not in project.files
    write(project.top, {".gitignore": ""})
    project.tree.scan()
    assert project.files[b"x.log"] == b"x"
    assert project.files[b"out/y"] == b"y"
    assert project.skipped == {}


def test_folders_come_and_go(project):
    write(project.top, {"new/x": "1", "new/sub/y": "2"})
    (project.top / "new/empty").mkdir()
    assert told(project.tree.capture([b"new"])) == {b"new/x": "add", b"new/sub/y": "add"}
    assert project.empty == {b"new/empty"}
    (project.top / "new").rename(project.top / "moved")
    assert set(told(project.tree.capture([b"new", b"moved"]))) == {
        b"new/x", b"new/sub/y", b"moved/x", b"moved/sub/y",
    }  # fmt: skip
    assert project.empty == {b"moved/empty"}
    shutil.rmtree(project.top / "moved")
    shutil.rmtree(project.top / "src/deep")
    assert told(project.tree.capture([b"moved", b"src/deep"])) == {
        b"moved/x": "delete", b"moved/sub/y": "delete", b"src/deep/c.py": "delete",
    }  # fmt: skip
    assert project.empty == frozenset()


def test_a_folder_that_loses_its_last_file_is_empty(project):
    (project.top / "src/deep/c.py").unlink()
    project.tree.capture([b"src/deep/c.py"])
    assert project.empty == {b"src/deep"}
    write(project.top, {"src/deep/d": ""})
    project.tree.capture([b"src/deep/d"])
    assert project.empty == frozenset()


def test_a_file_becomes_a_folder_and_a_symlink_and_back(project):
    (project.top / "a.txt").unlink()
    write(project.top, {"a.txt/in": "x"})
    assert told(project.tree.capture([b"a.txt"])) == {b"a.txt": "delete", b"a.txt/in": "add"}
    shutil.rmtree(project.top / "a.txt")
    os.symlink("src", project.top / "a.txt")
    project.tree.capture([b"a.txt/in"])  # only the file below it is told
    assert project.entries[b"a.txt"][0] == 0o120000
    (project.top / "a.txt").unlink()
    write(project.top, {"a.txt": "file"})
    assert told(project.tree.capture([b"a.txt"])) == {b"a.txt": "modify"}


def test_nothing_is_read_through_a_symlinked_folder(project):
    outside = project.base / "outside"
    write(outside, {"b.py": "secret", "deep/c.py": "secret"})
    shutil.rmtree(project.top / "src")
    os.symlink(outside, project.top / "src")
    project.tree.capture([b"src/b.py", b"src/deep/c.py"])
    assert project.files == {b"a.txt": b"one\n", b"src": os.fsencode(outside)}


def test_modes_are_followed(project):
    (project.top / "a.txt").chmod(0o600)
    (project.top / "src/b.py").chmod(0o755)
    assert told(project.tree.capture([b"a.txt", b"src/b.py"])) == {b"src/b.py": "modify"}
    assert project.entries[b"a.txt"][:2] == (0o100644, "600")
    assert project.entries[b"src/b.py"][:2] == (0o100755, "755")
    (project.top / "a.txt").chmod(0o644)
    project.tree.scan()
    assert project.entries[b"a.txt"][:2] == (0o100644, "644")


def test_force_takes_what_rules_and_limits_leave_out(project):
    write(project.top, {".gitignore": "*.log\n", ".env": "KEY", "x.log": "log", "build/o": "out"})
    os.mkfifo(project.top / "build/fifo")
    project.tree.scan()
    project.tree.capture([], force=[b".env", b"x.log", b"build"])
    assert project.files[b".env"] == b"KEY"
    assert project.files[b"x.log"] == b"log"
    assert project.files[b"build/o"] == b"out"
    assert project.skipped == {b"build/fifo": "special"}


def test_very_many_dirty_paths_lead_to_a_scan(project):
    write(project.top, {f"many/{i}": "x" for i in range(1100)})
    captured = project.tree.capture([b"many/%d" % i for i in range(1100)])
    assert captured.scanned
    assert captured.missed == 0
    assert len(project.files) == 1103


def test_a_scan_counts_what_nobody_told(project):
    write(project.top, {"a.txt": "changed", "src/b.py": "changed", "new": ""})
    captured = project.tree.scan([b"a.txt"])
    assert set(told(captured)) == {b"a.txt", b"src/b.py", b"new"}
    assert captured.missed == 2
    assert project.tree.scan().changes == ()


def test_a_restart_goes_on_from_the_index(project):
    write(project.top, {"a.txt": "captured after the index was written"})
    project.tree.capture([b"a.txt"])
    write(project.top, {"src/b.py": "changed while nobody looked"})
    (project.top / "src/deep/c.py").unlink()
    project.restart()
    captured = project.tree.scan()
    assert told(captured) == {b"src/b.py": "modify", b"src/deep/c.py": "delete"}
    assert captured.missed == 0
    assert captured.coverage.captured == 2
    assert captured.coverage.size == sum(map(len, project.files.values()))


@pytest.mark.parametrize("damage", [b"", b"DIRC", None])
def test_a_damaged_index_only_costs_reading(project, damage):
    path = project.tree._folder / "root" / "index"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    write(project.top, {"a.txt": "changed"})
    project.restart()
    assert told(project.tree.scan()) == {b"a.txt": "modify"}
    assert len(project.files) == 3


def test_an_index_damaged_in_use_fails_one_scan_and_heals(project):
    (project.tree._folder / "root" / "index").write_bytes(b"DIRC")
    write(project.top, {"a.txt": "changed"})
    with pytest.raises(CaptureFailed):
        project.tree.scan()
    assert told(project.tree.scan()) == {b"a.txt": "modify"}


def test_a_file_that_changes_at_every_try_is_kept_and_called_torn(project, monkeypatch):
    path = project.top / "a.txt"
    read = os.read

    def racing(descriptor, size):
        data = read(descriptor, size)
        if data.startswith(b"v"):
            with path.open("ab") as file:
                file.write(b"more\n")
        return data

    path.write_bytes(b"v\n")
    monkeypatch.setattr(reading.os, "read", racing)
    project.tree.capture([b"a.txt"])
    monkeypatch.undo()
    assert project.skipped == {b"a.txt": "torn"}
    assert project.files[b"a.txt"].startswith(b"v\n")
    assert project.tree.reread == {b"a.txt"}
    state = project.tree.state
    assert state is not None
    assert state.coverage.observed(b"a.txt")
    project.tree.scan()
    assert project.skipped == {}
    assert project.files[b"a.txt"] == path.read_bytes()


def test_an_in_place_writer_never_tears_a_capture_silently(project):
    path, stop = project.top / "a.txt", threading.Event()

    def rewrite():
        letters = b"abcdefgh"
        with path.open("r+b", buffering=0) as file:
            turn = 0
            while not stop.is_set():
                file.seek(0)
                for _ in range(8):
                    file.write(letters[turn % 8 : turn % 8 + 1] * 65536)
                turn += 1

    path.write_bytes(b"x" * (8 * 65536))
    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(15):
            project.tree.capture([b"a.txt"])
            if b"a.txt" not in project.skipped and b"a.txt" not in project.tree.reread:
                assert len(set(project.files[b"a.txt"])) == 1
    finally:
        stop.set()
        writer.join()


def test_a_file_written_just_before_it_was_read_is_read_again(project, monkeypatch):
    write(project.top, {"a.txt": "now"})
    written = (project.top / "a.txt").stat().st_ctime_ns
    monkeypatch.setattr(reading.time, "time_ns", lambda: written + 5_000_000)
    project.tree.capture([b"a.txt"])
    assert project.tree.reread == {b"a.txt"}
    monkeypatch.setattr(reading.time, "time_ns", lambda: written + 50_000_000)
    assert project.tree.capture([]).changes == ()
    assert project.tree.reread == set()


def test_a_folder_that_cannot_be_entered_is_not_observed(project, monkeypatch):
    look = reading.Root.look

    def refuse(self, path):
        if path.startswith(b"src/deep/"):
            raise PermissionError(13, "Permission denied")
        return look(self, path)

    monkeypatch.setattr(reading.Root, "look", refuse)
    captured = project.tree.capture([b"src/deep/c.py"])
    assert project.skipped == {b"src/deep": "unreadable"}
    assert not captured.coverage.observed(b"src/deep/c.py")


def test_rules_are_named_by_an_id_that_changes_with_them(project):
    first = project.tree.scan().coverage.rules
    assert project.tree.scan().coverage.rules == first
    write(project.top, {".git/info/exclude": "x\n"})
    second = project.tree.scan().coverage.rules
    write(project.top, {"src/.gitignore": "y\n"})
    third = project.tree.capture([b"src/.gitignore"]).coverage.rules
    assert len({first, second, third}) == 3


def test_folders_not_worth_watching_are_named(project):
    write(project.top, {".gitignore": "/out/\n*.log\n", "out/x": "", "logs/a.log": "", "src/node_modules/m": ""})
    write(project.top, {"dist/tracked": ""})
    git(project.top, "add", "-f", "dist/tracked")
    found = scan.ignored_folders(project.vault, project.top, at(project.top))
    assert found == {b"out", b"src/node_modules"}
