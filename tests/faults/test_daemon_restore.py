"""Faults of restores, as users of other tools met them, shown on a real daemon."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from support import repositories
from support.daemons import Daemon
from support.homes import Home
from support.playing import Claude


@pytest.fixture
def repo(home: Home) -> Path:
    return repositories.make(home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n", "src/c.py": "c = 1\n"})


def contents(root: Path) -> dict[str, bytes]:
    """Every file below `root` but those of git."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


def held(home: Home, project: Path) -> list[Path]:
    """The vaults of a home."""
    return sorted((home.data / "projects").glob("*/vault.git"))


def test_b001_files_of_others_are_named_and_held_before_they_go(daemon: Daemon, repo: Path) -> None:
    daemon.ckpt("save", "before", cwd=repo)
    outputs = {f"output/run{number}.jsonl": f"{number}\n" * 50 for number in range(4)}
    repositories.write(repo, dict(outputs))
    repositories.write(repo, {"a.py": "a = 2\n"})
    plan = daemon.json("restore", "before", "--dry-run", cwd=repo)["plan"]
    assert {entry["path"] for entry in plan["delete"]} >= set(outputs) or not plan["delete"]
    daemon.ckpt("restore", "before", "--yes", "--allow-mass-delete", cwd=repo)
    assert (repo / "a.py").read_text() == "a = 1\n"
    daemon.ckpt("undo", "--yes", cwd=repo)
    assert {name: (repo / name).read_text() for name in outputs} == outputs


def test_b003_deletions_are_changes_and_both_kinds_of_files_come_back(daemon: Daemon, repo: Path) -> None:
    repositories.write(repo, {"new.sh": "#!/bin/sh\n"})
    (repo / "new.sh").chmod(0o750)
    agent = Claude(daemon.home.path, repo)
    agent.says("clean up")
    base = daemon.checkpoint(repo, "baseline")
    agent.runs("rm src/b.py new.sh", lambda: [(repo / name).unlink() for name in ("src/b.py", "new.sh")])
    agent.answers()
    done = daemon.checkpoint(repo, "turn")
    shown = daemon.ckpt("diff", base["id"], done["id"], "--name-only", cwd=repo)
    assert "src/b.py" in shown and "new.sh" in shown
    daemon.ckpt("restore", base["id"], "--yes", cwd=repo)
    assert (repo / "src/b.py").read_text() == "b = 1\n"
    assert stat.S_IMODE((repo / "new.sh").stat().st_mode) == 0o750


def test_b004_b005_edits_through_the_shell_are_captured(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    agent.says("use sed")
    daemon.checkpoint(repo, "baseline")
    agent.runs("sed -i s/1/2/ a.py", lambda: (repo / "a.py").write_text("a = 2\n"))
    agent.runs("python gen.py", lambda: repositories.write(repo, {"made/x.py": "x\n"}))
    agent.answers()
    turn = daemon.checkpoint(repo, "turn")
    assert daemon.content(turn["id"], "a.py", repo) == "a = 2\n"
    assert daemon.content(turn["id"], "made/x.py", repo) == "x\n"
    assert daemon.ckpt("show", turn["id"], "--coverage", cwd=repo).strip()


def test_b007_nothing_changes_without_a_yes(daemon: Daemon, repo: Path) -> None:
    daemon.ckpt("save", "before", cwd=repo)
    (repo / "a.py").write_text("a = 2\n")
    daemon.ckpt("restore", "before", cwd=repo, code=4, text="y\n")
    assert (repo / "a.py").read_text() == "a = 2\n"


def test_b014_b025_a_lost_object_is_an_error_and_never_absence(asleep: Daemon, repo: Path) -> None:
    daemon = asleep.start()
    daemon.ckpt("save", "before", cwd=repo)
    (repo / "a.py").write_text("a = 2\n")
    daemon.ckpt("save", "after", cwd=repo)
    daemon.stop()
    # Every pack loses its middle: the newest objects, or all of them, cannot be read any more.
    for vault in held(daemon.home, repo):
        for pack in vault.glob("objects/pack/*.pack"):
            data = bytearray(pack.read_bytes())
            data[12:-20] = b"\0" * (len(data) - 32)
            pack.chmod(0o600)
            pack.write_bytes(bytes(data))
    daemon.start()
    before = contents(repo)
    daemon.ckpt("restore", "before", "--yes", "--allow-mass-delete", cwd=repo, code=None)
    assert daemon.last_code != 0
    daemon.ckpt("restore", "before", "a.py", "src/b.py", "--yes", cwd=repo, code=None)
    assert daemon.last_code != 0
    daemon.ckpt("restore", "ckpt-20000101-0000", "a.py", "--yes", cwd=repo, code=3)
    assert contents(repo) == before
    assert daemon.json("status")["projects"]


def test_b014_a_vault_that_vanished_under_the_daemon_deletes_nothing(asleep: Daemon, repo: Path) -> None:
    daemon = asleep.start()
    daemon.ckpt("save", "before", cwd=repo)
    (repo / "a.py").write_text("a = 2\n")
    daemon.captured(repo)
    for vault in held(daemon.home, repo):
        shutil.rmtree(vault / "objects")
    before = contents(repo)
    daemon.ckpt("restore", "before", "--yes", cwd=repo, code=None)
    assert daemon.last_code != 0
    assert contents(repo) == before
    daemon.ckpt("status", cwd=repo, code=None)
    assert daemon.last_code in (0, 1)


def test_b021_what_the_checkpoint_saw_absent_goes_though_head_has_it(daemon: Daemon, repo: Path) -> None:
    (repo / "src/b.py").unlink()
    daemon.ckpt("save", "without", cwd=repo)
    repositories.git(repo, "checkout", "--", "src/b.py")
    daemon.ckpt("restore", "without", "--yes", cwd=repo)
    assert not (repo / "src/b.py").exists()
    assert (repo / "src/c.py").exists()


def test_b022_no_identity_is_needed(asleep: Daemon, repo: Path) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        assert name not in os.environ or os.environ.pop(name)
    daemon = asleep.start()
    daemon.ckpt("save", "before", cwd=repo)
    (repo / "a.py").write_text("a = 2\n")
    done = daemon.json("restore", "before", "--yes", cwd=repo)
    assert done["applied"]
    assert daemon.checkpoints(repo, "--trigger", "pre-restore")


def test_b023_deleting_most_of_a_project_needs_a_word(daemon: Daemon, home: Home) -> None:
    repo = repositories.make(home.path / "small", {f"{n}.txt": "x" for n in range(3)})
    daemon.ckpt("save", "three", cwd=repo)
    repositories.write(repo, {f"d{n % 10}/f{n}.py": str(n) for n in range(3000)})
    daemon.captured(repo)
    before = contents(repo)
    daemon.ckpt("restore", "three", "--yes", cwd=repo, code=None)
    assert daemon.last_code not in (0, 2)
    assert "--allow-mass-delete" in daemon.last_stderr
    assert contents(repo) == before
    daemon.ckpt("restore", "three", "--yes", "--allow-mass-delete", cwd=repo)
    assert len(contents(repo)) == 3
    daemon.ckpt("undo", "--yes", cwd=repo)
    assert contents(repo) == before


def test_b043_a_repository_that_came_later_is_never_removed(daemon: Daemon, repo: Path) -> None:
    daemon.ckpt("save", "before", cwd=repo)
    inner = repositories.make(repo / "vendor/inner", {"i.py": "i = 1\n"})
    (inner / "i.py").write_text("dirty\n")
    (inner / "untracked").write_text("u\n")
    daemon.captured(repo)
    git_dir = repositories.fingerprint(inner / ".git")
    before = contents(repo)
    daemon.ckpt("restore", "before", "--yes", "--allow-mass-delete", cwd=repo)
    assert contents(repo) == before
    assert repositories.fingerprint(inner / ".git") == git_dir


@pytest.mark.parametrize("tracked", [True, False])
def test_b049_b172_nothing_is_written_through_a_link(daemon: Daemon, repo: Path, home: Home, tracked: bool) -> None:
    outside = home.path / "outside"
    repositories.write(outside, {"b.py": "precious\n", "c.py": "precious\n"})
    folder = "src" if tracked else "made"
    repositories.write(repo, {f"{folder}/b.py": "captured\n"})
    daemon.ckpt("save", "before", cwd=repo)
    shutil.rmtree(repo / folder)
    (repo / folder).symlink_to(outside)
    repositories.write(repo, {".gitignore": f"{folder}\n"})
    daemon.captured(repo)
    # The link is ignored, so no checkpoint holds it: it stays, and what it hides is named.
    shown = daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert f"{folder}/b.py" in shown and "in the way" in shown
    assert contents(outside) == {"b.py": b"precious\n", "c.py": b"precious\n"}
    # The rule is gone with that restore: now the link can be held, and makes room.
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert (repo / folder / "b.py").read_text() == "captured\n"
    assert not (repo / folder).is_symlink()
    daemon.ckpt("undo", "--yes", cwd=repo)
    assert os.readlink(repo / folder) == str(outside)
    assert contents(outside) == {"b.py": b"precious\n", "c.py": b"precious\n"}


@pytest.mark.parametrize("path", ["../x", "../../x", "/etc/passwd", "src/../../x", ".git/config", ".git"])
def test_b171_paths_outside_the_project_are_refused(daemon: Daemon, repo: Path, home: Home, path: str) -> None:
    (home.path / "x").write_text("outside\n")
    daemon.ckpt("save", "before", cwd=repo)
    git_dir = repositories.fingerprint(repo / ".git")
    daemon.ckpt("restore", "before", path, "--yes", cwd=repo, code=None)
    assert daemon.last_code in (0, 1, 2, 3), daemon.last_stderr  # 0: nothing to do
    assert (home.path / "x").read_text() == "outside\n"
    assert repositories.fingerprint(repo / ".git") == git_dir


def test_b187_a_project_that_is_gone_whole_comes_back_elsewhere(daemon: Daemon, repo: Path, home: Home) -> None:
    repositories.write(repo, {"untracked.txt": "u\n", "src/b.py": "dirty\n"})
    (repo / "empty/within").mkdir(parents=True)
    daemon.ckpt("save", "all", cwd=repo)
    before = contents(repo)
    shutil.rmtree(repo)
    daemon.ckpt("list", "--all", cwd=home.path)
    daemon.ckpt("restore", "all", "--to", str(home.path / "back"), "--yes", "--all", cwd=home.path)
    assert contents(home.path / "back") == before
    assert (home.path / "back/empty/within").is_dir()


def test_b187_rm_rf_of_everything_by_an_agent_comes_back_in_place(daemon: Daemon, repo: Path, home: Home) -> None:
    repositories.write(repo, {"untracked.txt": "u\n"})
    agent = Claude(home.path, repo)
    agent.says("work")
    daemon.checkpoint(repo, "baseline")
    agent.writes("late.py", "late\n")
    agent.answers()
    daemon.checkpoint(repo, "turn")
    before = contents(repo)
    agent.says("destroy")
    agent.runs("rm -rf ../shop", lambda: shutil.rmtree(repo))
    agent.answers()
    rows = daemon.wait_for(
        lambda: daemon.json("list", "--all", "--trigger", "pre-destructive", cwd=home.path)["checkpoints"],
        "a checkpoint of the files before the command",
    )
    daemon.ckpt("restore", rows[0]["id"], "--to", str(home.path / "back"), "--yes", "--all", cwd=home.path)
    assert contents(home.path / "back") == before
    repo.mkdir()
    daemon.ckpt("restore", rows[0]["id"], "--yes", cwd=repo)
    assert contents(repo) == before


def test_b189_git_clean_loses_no_untracked_file(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    agent.says("work")
    daemon.checkpoint(repo, "baseline")
    repositories.write(repo, {"notes/today.md": "notes\n", "draft.txt": "draft\n"})
    daemon.captured(repo)
    agent.runs("git clean -fd", lambda: repositories.git(repo, "clean", "-fdq"))
    agent.answers()
    record = daemon.checkpoint(repo, "pre-destructive")
    assert not (repo / "draft.txt").exists()
    daemon.ckpt("restore", record["id"], "--yes", cwd=repo)
    assert (repo / "draft.txt").read_text() == "draft\n"
    assert (repo / "notes/today.md").read_text() == "notes\n"


def test_b192_only_differing_paths_are_touched(daemon: Daemon, repo: Path) -> None:
    repositories.write(repo, {f"many/f{n:03}": str(n) for n in range(100)})
    daemon.ckpt("save", "before", cwd=repo)
    before = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (repo / "many").iterdir()}
    (repo / "many/f007").write_text("changed")
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    after = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (repo / "many").iterdir()}
    assert {p.name for p in before if before[p] != after[p]} == {"f007"}


def test_b047_modes_and_empty_folders_come_back(daemon: Daemon, repo: Path) -> None:
    repositories.write(repo, {"private.txt": "p\n", "tool": "#!/bin/sh\n"})
    (repo / "private.txt").chmod(0o600)
    (repo / "tool").chmod(0o4755)
    (repo / "empty").mkdir(mode=0o700)
    daemon.ckpt("save", "before", cwd=repo)
    (repo / "private.txt").unlink()
    (repo / "tool").unlink()
    (repo / "empty").rmdir()
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert stat.S_IMODE((repo / "private.txt").stat().st_mode) == 0o600
    assert stat.S_IMODE((repo / "tool").stat().st_mode) & 0o777 == 0o755
    assert stat.S_IMODE((repo / "empty").stat().st_mode) == 0o700


def test_b181_bytes_are_bytes(daemon: Daemon, repo: Path) -> None:
    blobs = {
        "crlf.txt": b"a\r\nb\r\n", "latin.txt": b"caf\xe9\n", "nul.bin": bytes(range(256)) * 300,
        "bom.txt": b"\xef\xbb\xbfx", "empty": b"", "noeol": b"x", "ident.txt": b"$Id$\n",
    }  # fmt: skip
    repositories.write(repo, {".gitattributes": "* text eol=crlf ident filter=evil\n", **blobs})
    repositories.git(repo, "config", "filter.evil.clean", "touch ../EVIL; cat")
    repositories.git(repo, "config", "filter.evil.smudge", "touch ../EVIL; cat")
    repositories.git(repo, "config", "core.autocrlf", "true")
    daemon.ckpt("save", "before", cwd=repo)
    for name in blobs:
        (repo / name).unlink()
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert {name: (repo / name).read_bytes() for name in blobs} == blobs
    assert not (repo.parent / "EVIL").exists()


def test_a_file_and_a_folder_change_places_and_back(daemon: Daemon, repo: Path) -> None:
    repositories.write(repo, {"x": "file\n", "y/inside": "folder\n"})
    (repo / "z").symlink_to("x")
    daemon.ckpt("save", "before", cwd=repo)
    before = contents(repo)
    (repo / "x").unlink()
    shutil.rmtree(repo / "y")
    (repo / "z").unlink()
    repositories.write(repo, {"x/deep/er": "now a folder\n", "y": "now a file\n", "z/q": "no link\n"})
    daemon.captured(repo)
    changed = contents(repo)
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert contents(repo) == before and (repo / "z").is_symlink()
    daemon.ckpt("undo", "--yes", cwd=repo)
    assert contents(repo) == changed
    daemon.ckpt("undo", "--yes", cwd=repo)
    assert contents(repo) == before


def test_b008_what_cannot_be_restored_is_named(daemon: Daemon, repo: Path) -> None:
    names = [f"ten/f{n}" for n in range(10)]
    repositories.write(repo, dict.fromkeys(names, "one\n"))
    daemon.ckpt("save", "before", cwd=repo)
    for name in names:
        (repo / name).write_text("two\n")
    daemon.captured(repo)
    if subprocess.run(["chattr", "+i", str(repo / "ten/f3")], check=False, capture_output=True).returncode:
        pytest.skip("no immutable files on this file system")
    try:
        done = daemon.json("restore", "before", "--yes", cwd=repo, code=1)
    finally:
        subprocess.run(["chattr", "-i", str(repo / "ten/f3")], check=True)
    assert [each["path"] for each in done["failed"]] == ["ten/f3"]
    assert {name for name in names if (repo / name).read_text() == "one\n"} == set(names) - {"ten/f3"}


def test_files_that_change_during_a_restore_are_kept(daemon: Daemon, repo: Path) -> None:
    """Between plan and yes the agent writes on: its bytes are held or stay."""
    daemon.ckpt("save", "before", cwd=repo)
    (repo / "a.py").write_text("a = 2\n")
    (repo / "src/b.py").write_text("b = 2\n")
    plan = daemon.json("restore", "before", "--dry-run", cwd=repo)["plan"]
    assert {entry["path"] for entry in plan["restore"]} == {"a.py", "src/b.py"}
    (repo / "a.py").write_text("written meanwhile\n")
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    daemon.ckpt("undo", "--yes", cwd=repo)
    assert (repo / "a.py").read_text() == "written meanwhile\n"
