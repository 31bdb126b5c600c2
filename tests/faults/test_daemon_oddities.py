"""Odd things that agents do to a project, shown on a real daemon."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support import repositories
from support.daemons import Daemon
from support.homes import Home
from support.playing import Claude
from support.repositories import git


@pytest.fixture
def repo(home: Home) -> Path:
    return repositories.make(home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n", "src/c.py": "c = 1\n"})


def test_a_pipe_in_the_place_of_a_tracked_file(daemon: Daemon, repo: Path) -> None:
    daemon.ckpt("save", "before", cwd=repo)
    (repo / "a.py").unlink()
    os.mkfifo(repo / "a.py")
    row = daemon.json("save", "pipe", cwd=repo)["checkpoint"]
    assert "a.py" in daemon.ckpt("show", row["id"], "--coverage", cwd=repo)
    shown = daemon.ckpt("restore", "before", "--yes", cwd=repo, code=None)
    assert stat.S_ISFIFO((repo / "a.py").lstat().st_mode) or (repo / "a.py").read_text() == "a = 1\n"
    if stat.S_ISFIFO((repo / "a.py").lstat().st_mode):
        assert "a.py" in shown + daemon.last_stderr
    os.unlink(repo / "a.py")
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert (repo / "a.py").read_text() == "a = 1\n"


def test_loops_of_links_and_deep_folders(daemon: Daemon, repo: Path) -> None:
    (repo / "self").symlink_to(".")
    (repo / "up").symlink_to("../shop/self/up")
    (repo / "one").symlink_to("two")
    (repo / "two").symlink_to("one")
    (repo / "null").symlink_to("/dev/zero")
    (repo / "home").symlink_to(daemon.home.path)
    deep = repo / "/".join(["d"] * 300)
    deep.mkdir(parents=True)
    (deep / "end").write_text("end\n")
    row = daemon.json("save", "before", cwd=repo)["checkpoint"]
    assert daemon.record(row["id"], repo)["coverage"]["captured"] < 20
    for name in ("self", "up", "one", "two", "null", "home"):
        (repo / name).unlink()
    shutil.rmtree(repo / "d")
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert os.readlink(repo / "self") == "." and os.readlink(repo / "null") == "/dev/zero"
    assert (deep / "end").read_text() == "end\n"


@pytest.mark.parametrize("name", [".git ", ".GIT", "git~1", ".git.", ".git::$INDEX_ALLOCATION", ".g\u200cit"])
def test_spellings_of_git_are_named_and_harm_nothing(daemon: Daemon, repo: Path, name: str) -> None:
    repositories.write(repo, {f"sub/{name}/config": "[core]\n\tfsmonitor = touch EVIL\n", "ok": "ok\n"})
    row = daemon.json("save", "before", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "ok", repo) == "ok\n"
    (repo / "ok").unlink()
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert (repo / f"sub/{name}/config").exists()
    daemon.stop()
    (vault,) = (daemon.home.data / "projects").glob("*/vault.git")
    env = {"PATH": os.environ["PATH"], "HOME": str(vault), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", "--git-dir", str(vault), "fsck", "--strict"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    daemon.start()


def test_hostile_settings_of_the_project_are_files_and_no_orders(daemon: Daemon, home: Home, repo: Path) -> None:
    evil = f"touch {home.path}/EVIL"
    shadow = f"import os; os.system('{evil}')\n"
    repositories.write(repo, {
        ".gitmodules": f'[submodule "x"]\n\tpath = src\n\turl = -u./{evil}\n\tupdate = !{evil}\n',
        ".gitconfig": f"[core]\n\tfsmonitor = {evil}\n", "HEAD": "ref: refs/heads/main\n",
        "config": f"[core]\n\tfsmonitor = {evil}\n\tbare = true\n", "objects/x": "x", "refs/x": "x",
        ".gitignore": "*\n!*.py\n" + "a" * 70_000 + "\n" + "[" * 5000 + "\n\\\n!\n", ".mailmap": "\0",
        ".claude/settings.json": "{}", "pyproject.toml": "[", "pyvenv.cfg": "home = /nowhere\n",
        **dict.fromkeys(("ckpt.py", "checkpointd/__init__.py", "json.py", "os.py", "sitecustomize.py"), shadow),
    })  # fmt: skip
    ckpt = Path(sys.executable).parent / "ckpt"  # as people call it; `python -m` would look here first
    subprocess.run([ckpt, "save", "x"], cwd=repo, env=daemon.home.env, check=True, capture_output=True)
    (repo / "src/b.py").write_text("changed\n")
    subprocess.run([ckpt, "restore", "x", "--yes"], cwd=repo, env=daemon.home.env, check=True, capture_output=True)
    daemon.stop()
    subprocess.run([ckpt, "doctor"], cwd=repo, env=daemon.home.env, check=False, capture_output=True)
    assert not (home.path / "EVIL").exists()
    subprocess.run([ckpt, "up"], cwd=repo, env=daemon.home.env, check=True, capture_output=True)
    subprocess.run([ckpt, "down"], cwd=repo, env=daemon.home.env, check=True, capture_output=True)
    daemon.start()
    assert (repo / "src/b.py").read_text() == "b = 1\n"
    assert not (home.path / "EVIL").exists()


def test_case_only_renames_and_moved_folders(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    agent.says("rename")
    base = daemon.checkpoint(repo, "baseline")
    agent.runs("mv src lib", lambda: os.rename(repo / "src", repo / "lib"))
    agent.runs("mv lib/b.py lib/B.py", lambda: os.rename(repo / "lib/b.py", repo / "lib/B.py"))
    agent.writes("lib/c.py", "c = 2\n")
    agent.answers()
    turn = daemon.checkpoint(repo, "turn")
    assert [daemon.content(turn["id"], p, repo) for p in ("src/b.py", "lib/B.py", "lib/c.py", "lib/b.py")] == [
        None, "b = 1\n", "c = 2\n", None,
    ]  # fmt: skip
    daemon.ckpt("restore", base["id"], "--yes", "--allow-mass-delete", cwd=repo)
    assert (repo / "src/b.py").exists() and not (repo / "lib").exists()


def test_branches_change_under_a_live_session(daemon: Daemon, repo: Path) -> None:
    git(repo, "checkout", "-q", "-b", "other")
    repositories.write(repo, {f"other/{n}.py": f"{n}\n" for n in range(50)})
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "Other")
    git(repo, "checkout", "-q", "main")
    agent = Claude(daemon.home.path, repo)
    agent.says("look at other")
    daemon.checkpoint(repo, "baseline")
    agent.writes("a.py", "a = 'mine'\n")
    daemon.captured(repo)
    agent.runs("git checkout other", lambda: git(repo, "checkout", "-q", "other"))
    row = daemon.json("save", "there", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "other/7.py", repo) == "7\n"
    assert daemon.record(row["id"], repo)["git"]["branch"] == "other"
    agent.runs("git checkout main", lambda: git(repo, "checkout", "-q", "main"))
    agent.runs("git reset --hard", lambda: git(repo, "reset", "-q", "--hard"))
    agent.answers()
    record = daemon.checkpoint(repo, "pre-destructive")
    assert daemon.content(record["id"], "a.py", repo) == "a = 'mine'\n"
    row = daemon.json("save", "back", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "other/7.py", repo) is None


def test_a_restore_while_the_project_changes_loses_no_byte(daemon: Daemon, repo: Path) -> None:
    names = [f"many/f{n}" for n in range(300)]
    repositories.write(repo, dict.fromkeys(names, "one\n"))
    daemon.ckpt("save", "one", cwd=repo)
    repositories.write(repo, dict.fromkeys(names, "two\n"))
    daemon.captured(repo)
    code = (
        "import sys, itertools, pathlib\n"
        "print('on', flush=True)\n"
        "for n in itertools.count():\n"
        "    pathlib.Path('many/f299').write_text(f'{n}\\n'); pathlib.Path('fresh').write_text(f'{n}\\n')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=repo, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            daemon.ckpt("restore", "one", "--yes", cwd=repo, code=None)
            assert daemon.last_code in (0, 1)
        finally:
            writer.kill()
    now = {name: (repo / name).read_text() for name in names[:-1]}
    assert set(now.values()) == {"one\n"}
    assert psutil.pid_exists(daemon.pid)
    daemon.ckpt("undo", "--yes", cwd=repo, code=None)
    assert {(repo / name).read_text() for name in names[:-1]} == {"two\n"}


def test_a_restore_to_a_place_that_cannot_be_written(daemon: Daemon, repo: Path, home: Home) -> None:
    daemon.ckpt("save", "x", cwd=repo)
    (home.path / "file").write_text("f\n")
    full = home.path / "full"
    repositories.write(full, {"theirs": "t\n"})
    for place in (home.path / "file", home.path / "file/below", full, Path("/proc/nowhere"), repo):
        daemon.ckpt("restore", "x", "--to", str(place), "--yes", cwd=repo, code=1)
        assert "Traceback" not in daemon.last_stderr and daemon.last_stderr.strip()
    assert (home.path / "file").read_text() == "f\n"
    assert [path.name for path in full.iterdir()] == ["theirs"]


def test_no_words_of_a_client_end_the_daemon(daemon: Daemon, repo: Path) -> None:
    daemon.ckpt("save", "x", cwd=repo)
    for words in (["show", "\udcff"], ["show", "x" * 5000], ["diff", "@99"], ["diff", "@-1"], ["show", "@" * 50],
                  ["list", "--since", "never"], ["list", "-n", "-5"], ["list", "-n", "99999999999999999999"],
                  ["list", "--session", "%"], ["list", "--trigger", "'"], ["show", "x", "--file", "../../etc/passwd"],
                  ["show", "x", "--file", ""], ["save", "a\nb"], ["save", "x" * 3000], ["save", ""], ["pin", "nothing"],
                  ["forget", "nothing", "--yes"], ["restore", "x", "", "--yes"], ["restore", "x", "\udce9", "--yes"],
                  ["continue", "--budget", "-1"], ["continue", "--budget", "0"], ["undo", "--yes"]):  # fmt: skip
        daemon.ckpt(*words, cwd=repo, code=None)
        assert daemon.last_code in (0, 1, 2, 3, 4), (words, daemon.last_code, daemon.last_stderr)
        assert "Traceback" not in daemon.last_stderr, words
    assert "Traceback" not in daemon.home.log.read_text()


def test_paths_may_follow_options(daemon: Daemon, repo: Path) -> None:
    daemon.ckpt("save", "x", cwd=repo)
    repositories.write(repo, {"a.py": "a = 2\n", "src/b.py": "b = 2\n"})
    daemon.ckpt("restore", "x", "--yes", "a.py", cwd=repo)
    assert ((repo / "a.py").read_text(), (repo / "src/b.py").read_text()) == ("a = 1\n", "b = 2\n")
    assert "b.py" in daemon.ckpt("diff", "x", "--name-only", "src", cwd=repo)
