"""Faults in nested, odd and missing repositories, as users of other tools met them, shown on a real daemon."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from support import repositories
from support.daemons import Daemon
from support.homes import Home
from support.playing import Claude
from support.repositories import git


@pytest.fixture
def repo(home: Home) -> Path:
    return repositories.make(home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n"})


def contents(root: Path) -> dict[bytes, bytes]:
    """Every file below `root` but those of git."""
    found = {}
    for folder, folders, names in os.walk(os.fsencode(root)):
        folders[:] = [name for name in folders if name != b".git"]
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and name != b".git":
                with open(path, "rb") as file:
                    found[os.path.relpath(path, os.fsencode(root))] = file.read()
    return found


def cycle(daemon: Daemon, root: Path, path: str) -> None:
    """save, change, restore, undo of one file."""
    daemon.ckpt("save", "cycle", cwd=root)
    before = contents(root)
    (root / path).write_text("changed\n")
    changed = contents(root)
    daemon.ckpt("restore", "cycle", "--yes", cwd=root)
    assert contents(root) == before
    daemon.ckpt("undo", "--yes", cwd=root)
    assert contents(root) == changed


def test_b033_b035_repositories_below_a_plain_folder_come_back_together(daemon: Daemon, home: Home) -> None:
    parent = home.path / "work"
    for name in ("one", "two", "three"):
        repositories.make(parent / name, {"x.py": f"{name}\n"})
    repositories.write(parent, {"plain.txt": "p\n"})
    agent = Claude(home.path, parent)
    agent.says("work")
    daemon.checkpoint(parent, "baseline")
    agent.writes("one/x.py", "edited\n")
    agent.writes("two/new.py", "new\n")
    agent.writes("plain.txt", "edited\n")
    agent.answers()
    turn = daemon.checkpoint(parent, "turn")
    for path in ("one/x.py", "plain.txt"):
        assert daemon.content(turn["id"], path, parent) == "edited\n"
    assert daemon.content(turn["id"], "two/new.py", parent) == "new\n"
    assert daemon.content(turn["id"], "three/x.py", parent) == "three\n"
    git_dirs = [repositories.fingerprint(parent / name / ".git") for name in ("one", "two", "three")]
    shutil.rmtree(parent / "two")
    daemon.ckpt("restore", turn["id"], "--yes", cwd=parent)
    assert (parent / "two/new.py").read_text() == "new\n"
    assert repositories.fingerprint(parent / "one/.git") == git_dirs[0]


def test_b015_a_nested_repository_without_a_commit_is_captured(daemon: Daemon, repo: Path) -> None:
    git(repo, "init", "-q", "inner")
    repositories.write(repo, {"inner/i.py": "i\n", "a.py": "a = 2\n"})
    row = daemon.json("save", "x", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "a.py", repo) == "a = 2\n"
    assert daemon.content(row["id"], "inner/i.py", repo) == "i\n"


def test_b016_one_bad_name_does_not_cost_the_others(daemon: Daemon, repo: Path) -> None:
    os.mkfifo(repo / "fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        here = os.getcwd()
        os.chdir(repo)
        try:
            sock.bind("sock")
        finally:
            os.chdir(here)
        (repo / "loop").symlink_to("loop")
        (repo / "up").symlink_to("..")
        repositories.write(
            repo, {"GIT~1/x": "x", ".Git/config": "[core]\n\tfsmonitor = touch EVIL\n", "ok.txt": "ok\n"}
        )
        row = daemon.json("save", "x", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "ok.txt", repo) == "ok\n"
    coverage = daemon.ckpt("show", row["id"], "--coverage", cwd=repo)
    assert "fifo" in coverage and "sock" in coverage
    assert not (repo / "EVIL").exists()


@pytest.mark.parametrize("harm", ["head", "config", "objects", "file", "lock"])
def test_b037_a_broken_repository_stops_nobody(daemon: Daemon, repo: Path, harm: str) -> None:
    match harm:
        case "head":
            (repo / ".git/HEAD").write_bytes(b"\0garbage\n")
        case "config":
            (repo / ".git/config").write_text("[core\n\tbroken = \n[[[\n")
        case "objects":
            shutil.rmtree(repo / ".git/objects")
        case "file":
            shutil.rmtree(repo / ".git")
            (repo / ".git").write_text("gitdir: /nowhere/at/all\n")
        case "lock":
            (repo / ".git/index.lock").write_text("")
    (repo / "a.py").write_text("a = 2\n")
    row = daemon.json("save", "x", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "a.py", repo) == "a = 2\n"
    (repo / "a.py").write_text("a = 3\n")
    daemon.ckpt("restore", "x", "--yes", cwd=repo)
    assert (repo / "a.py").read_text() == "a = 2\n"


@pytest.mark.parametrize("content", [b"DIRC\0\0\0\x02\xff\xff\xff\xff" + b"\0" * 40, b"DIRC", b"\0" * 500, b""])
def test_b037_a_broken_index_is_told_and_captured_again_when_it_is_mended(
    daemon: Daemon, repo: Path, content: bytes
) -> None:
    whole = (repo / ".git/index").read_bytes()
    (repo / ".git/index").write_bytes(content)
    daemon.ckpt("save", "broken", cwd=repo, code=None)
    if daemon.last_code:
        assert daemon.last_code == 1 and "Nothing was saved" in daemon.last_stderr
        daemon.ckpt("status", "--check", cwd=repo, code=1)
        assert daemon.checkpoints(repo) == []
    (repo / ".git/index").write_bytes(whole)
    (repo / "a.py").write_text("a = 2\n")
    row = daemon.json("save", "mended", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "a.py", repo) == "a = 2\n"
    daemon.ckpt("status", "--check", cwd=repo)


def test_b037_hostile_settings_run_nothing(daemon: Daemon, home: Home, repo: Path) -> None:
    evil = f"touch {home.path}/EVIL"
    for key in ("core.fsmonitor", "core.hooksPath", "core.pager", "core.editor", "core.sshCommand", "core.askPass",
                "diff.external", "gpg.program", "core.attributesFile", "filter.x.clean", "filter.x.process",
                "merge.x.driver", "diff.x.textconv", "core.gitProxy", "core.alternateRefsCommand"):  # fmt: skip
        git(repo, "config", key, evil)
    git(repo, "config", "core.worktree", str(home.path / "elsewhere"))
    git(repo, "config", "core.excludesFile", "/dev/zero")
    git(repo, "config", "include.path", "/dev/stdin")
    git(repo, "config", "core.ignoreCase", "true")
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "index.sparse", "true")
    repositories.write(repo, {".gitattributes": "* filter=x diff=x merge=x text\n", "n.txt": "n\n"})
    hook = repo / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "fsmonitor-watchman", "post-index-change", "reference-transaction"):
        (hook.parent / name).write_text(f"#!/bin/sh\n{evil}\n")
        (hook.parent / name).chmod(0o755)
    cycle(daemon, repo, "n.txt")
    daemon.ckpt("diff", "@", cwd=repo)
    assert not (home.path / "EVIL").exists()


def test_b038_a_plain_folder_is_as_good(daemon: Daemon, home: Home) -> None:
    plain = home.path / "plain"
    repositories.write(plain, {"notes.txt": "n\n", "deep/er/x": "x\n"})
    agent = Claude(home.path, plain)
    agent.says("work")
    daemon.checkpoint(plain, "baseline")
    agent.writes("notes.txt", "edited\n")
    agent.answers()
    turn = daemon.checkpoint(plain, "turn")
    assert daemon.content(turn["id"], "notes.txt", plain) == "edited\n"
    cycle(daemon, plain, "deep/er/x")
    assert not (plain / ".git").exists()  # B059


def test_b044_outside_of_the_sparse_cone_is_not_absent(daemon: Daemon, home: Home) -> None:
    repo = repositories.make(home.path / "mono", {"one/x": "x\n", "two/y": "y\n", "top": "t\n"})
    git(repo, "sparse-checkout", "set", "one")
    assert not (repo / "two").exists()
    daemon.ckpt("save", "sparse", cwd=repo)
    git(repo, "sparse-checkout", "disable")
    assert (repo / "two/y").exists()
    (repo / "one/x").write_text("edited\n")
    daemon.ckpt("restore", "sparse", "--yes", "--allow-mass-delete", cwd=repo)
    assert (repo / "two/y").read_text() == "y\n"
    assert (repo / "one/x").read_text() == "x\n"


def test_b045_sha256_repositories_are_as_good(daemon: Daemon, home: Home) -> None:
    repo = home.path / "new"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main", "--object-format=sha256")
    repositories.write(repo, {"a.txt": "a\n", "d/b.txt": "b\n"})
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "Start")
    before = repositories.fingerprint(repo / ".git")
    cycle(daemon, repo, "a.txt")
    assert repositories.fingerprint(repo / ".git") == before


NAMES = [
    b"caf\xe9.txt", b"new\nline", b"tab\there", b"-rf", b"--help", b" lead", b"trail ", b"dot.", b'q"uote', b"b\\slash",
    b"x" * 255, b"*", b"?", b"[a]", b":(top)x", b":!x", b"#c", b"!n", b"\x01\x1b[31m", "e\u0301".encode(), b"\xc3\xa9",
    b"Case", b"case", b"@", b"HEAD", b"CON", b"a:b", b"%41", b"{}", b"$HOME", b"~", b"\xff\xfe",
]  # fmt: skip


def test_b046_any_name_is_a_name(daemon: Daemon, repo: Path) -> None:
    root = os.fsencode(repo)
    for name in NAMES:
        os.makedirs(root + b"/odd/" + name + (b"" if len(name) > 250 else b".d"), exist_ok=True)
        with open(root + b"/" + name, "wb") as file:
            file.write(b"1 " + name)
        inner = name if len(name) < 250 else b"long"
        with open(root + b"/odd/" + name + (b"" if len(name) > 250 else b".d") + b"/" + inner, "wb") as file:
            file.write(b"2 " + name)
    daemon.ckpt("save", "names", cwd=repo)
    before = contents(repo)
    assert len(before) == 2 + 2 * len(NAMES)
    daemon.json("list", cwd=repo)
    for name in NAMES[::2]:
        os.unlink(root + b"/" + name)
    shutil.rmtree(repo / "odd")
    shown = daemon.json("diff", "names", cwd=repo)
    assert len(shown["changes"]) >= len(NAMES), sorted(shown)
    daemon.ckpt("diff", "names", cwd=repo)
    daemon.ckpt("restore", "names", "--yes", cwd=repo)
    assert contents(repo) == before
    for name in (b"caf\xe9.txt", b"-rf", b" lead", b":(top)x"):
        with open(root + b"/" + name, "wb") as file:
            file.write(b"changed")
        done = subprocess.run(
            [b"ckpt", b"restore", b"--yes", b"names", b"--", name], cwd=repo, env=daemon.home.env, capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, (name, done.stderr, done.stdout)
        with open(root + b"/" + name, "rb") as file:
            assert file.read() == b"1 " + name


def test_b048_work_in_a_submodule_is_captured(daemon: Daemon, home: Home) -> None:
    lib = repositories.make(home.path / "lib", {"l.py": "l = 1\n"})
    repo = repositories.make(home.path / "app", {"m.py": "m\n"})
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib), "lib")
    git(repo, "commit", "-q", "-m", "Add lib")
    daemon.ckpt("save", "clean", cwd=repo)
    module = repositories.fingerprint(repo / ".git")
    (repo / "lib/l.py").write_text("l = 2\n")
    (repo / "lib/new.py").write_text("new\n")
    row = daemon.json("save", "dirty", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "lib/l.py", repo) == "l = 2\n"
    (repo / "lib/l.py").unlink()
    daemon.ckpt("restore", "dirty", "--yes", cwd=repo)
    assert (repo / "lib/l.py").read_text() == "l = 2\n"
    assert repositories.fingerprint(repo / ".git") == module


def _conflict(repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "other")
    (repo / "a.py").write_text("a = 'other'\n")
    git(repo, "commit", "-q", "-am", "Other")
    git(repo, "checkout", "-q", "main")
    (repo / "a.py").write_text("a = 'main'\n")
    git(repo, "commit", "-q", "-am", "Main")


@pytest.mark.parametrize("operation", ["merge", "rebase", "cherry-pick"])
def test_b100_a_merge_in_the_middle_stays_as_it_is(daemon: Daemon, repo: Path, operation: str) -> None:
    _conflict(repo)
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, operation, "other")
    before = repositories.fingerprint(repo / ".git")
    row = daemon.json("save", "middle", cwd=repo)["checkpoint"]
    record = daemon.record(row["id"], repo)
    assert record["git"]["state"] in ("merging", "rebasing", "cherry-picking")
    middle = (repo / "a.py").read_text()
    assert "<<<<<<<" in middle
    (repo / "a.py").write_text("resolved\n")
    daemon.ckpt("restore", "middle", "--yes", cwd=repo)
    assert (repo / "a.py").read_text() == middle
    assert repositories.fingerprint(repo / ".git") == before


def test_b097_the_users_git_never_meets_a_lock(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    agent.says("commit a lot")
    daemon.checkpoint(repo, "baseline")
    for number in range(60):
        agent.writes(f"gen/f{number % 7}.py", f"{number}\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", str(number))
        if number % 10 == 0:
            git(repo, "status", "--short")
            git(repo, "stash", "list")
            agent.answers()
            agent.says("more")
    agent.answers()
    daemon.checkpoint(repo, "turn")
    assert git(repo, "status", "--short") == ""
    assert not list((repo / ".git").rglob("*.lock"))
    git(repo, "fsck", "--strict")


def test_b194_b058_captures_add_nothing_to_the_repository(daemon: Daemon, repo: Path) -> None:
    before = repositories.state(repo)
    untouched = repositories.fingerprint(repo / ".git")
    for number in range(12):
        (repo / "big.bin").write_bytes(os.urandom(200_000))
        daemon.ckpt("save", f"s{number}", cwd=repo)
    assert repositories.state(repo) == before
    found = repositories.fingerprint(repo / ".git")
    found.pop("index", None), untouched.pop("index", None)
    assert found == untouched


def test_b099_a_held_index_lock_is_nothing_to_us(daemon: Daemon, repo: Path) -> None:
    (repo / ".git/index.lock").write_text("held")
    cycle(daemon, repo, "a.py")
    assert (repo / ".git/index.lock").read_text() == "held"


def test_b106_files_that_the_index_calls_unchanged_are_read(daemon: Daemon, repo: Path) -> None:
    git(repo, "update-index", "--assume-unchanged", "a.py")
    git(repo, "update-index", "--skip-worktree", "src/b.py")
    (repo / "a.py").write_text("a = 2\n")
    (repo / "src/b.py").write_text("b = 2\n")
    row = daemon.json("save", "x", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "a.py", repo) == "a = 2\n"
    assert daemon.content(row["id"], "src/b.py", repo) == "b = 2\n"


def test_stash_checkout_and_renames_are_followed(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    agent.says("work")
    daemon.checkpoint(repo, "baseline")
    agent.writes("a.py", "a = 2\n")
    agent.writes("untracked.txt", "u\n")
    daemon.captured(repo)
    agent.runs("git stash -u && git stash drop", lambda: (git(repo, "stash", "-u"), git(repo, "stash", "drop")))
    agent.answers()
    record = daemon.checkpoint(repo, "pre-destructive")
    assert daemon.content(record["id"], "a.py", repo) == "a = 2\n"
    assert daemon.content(record["id"], "untracked.txt", repo) == "u\n"
    daemon.ckpt("restore", record["id"], "--yes", cwd=repo)
    os.rename(repo / "src", repo / "lib")
    os.rename(repo / "a.py", repo / "A.py")
    row = daemon.json("save", "moved", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "lib/b.py", repo) == "b = 1\n"
    assert daemon.content(row["id"], "src/b.py", repo) is None
    assert daemon.content(row["id"], "A.py", repo) == "a = 2\n"
    assert daemon.content(row["id"], "a.py", repo) is None
    (repo / "lib/b.py").write_text("in the moved folder\n")
    row = daemon.json("save", "again", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "lib/b.py", repo) == "in the moved folder\n"
