"""Faults of a daemon's life, its disk and its watching, as users of other tools met them, shown on a real daemon."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
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
    return repositories.make(home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n"})


def contents(root: Path) -> dict[str, bytes]:
    """Every file below `root` but those of git."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }


def size_of(folder: Path) -> int:
    """The bytes on the disk below a folder."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def vault_of(home: Home) -> Path:
    (vault,) = (home.data / "projects").glob("*/vault.git")
    return vault


def complaints(vault: Path) -> list[str]:
    """What a strict fsck of a vault says."""
    env = {"PATH": os.environ["PATH"], "HOME": str(vault), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "--git-dir", str(vault), "fsck", "--strict", "--full", "--no-dangling", "--no-progress"],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("notice:")]


# Life


def test_b142_a_killed_daemon_is_replaced_within_a_second_or_two(asleep: Daemon, repo: Path) -> None:
    daemon = asleep.start()
    daemon.ckpt("save", "first", cwd=repo)
    daemon.kill()
    begun = time.monotonic()
    daemon.start()
    assert daemon.checkpoints(repo)[0]["name"] == "first"
    assert time.monotonic() - begun < 4


def test_b143_b144_a_stopped_daemon_fails_fast(daemon: Daemon, repo: Path) -> None:
    daemon.ckpt("save", "first", cwd=repo)
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        begun = time.monotonic()
        daemon.ckpt("list", cwd=repo, code=5)
        assert time.monotonic() - begun < 8
        assert f"(pid {daemon.pid}, stopped) does not answer" in daemon.last_stderr
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert daemon.checkpoints(repo)


def test_b146_b147_the_pid_of_a_stranger_holds_nobody_up(asleep: Daemon, home: Home, repo: Path) -> None:
    daemon = asleep.start()
    daemon.ckpt("save", "first", cwd=repo)
    daemon.kill()
    found = json.loads((home.data / "daemon.json").read_text()) if (home.data / "daemon.json").exists() else {}
    (home.data / "daemon.json").write_text(json.dumps({**found, "pid": os.getpid()}))
    (home.data / "lock").write_text(f"{os.getpid()}\n")
    daemon.start()
    assert daemon.json("status")["daemon"]["pid"] == daemon.pid
    assert daemon.checkpoints(repo)


def test_b112_what_changed_while_it_was_down_is_captured(asleep: Daemon, repo: Path) -> None:
    daemon = asleep.start()
    Claude(daemon.home.path, repo).works("a.py", "a = 2\n")
    daemon.checkpoint(repo, "turn")
    daemon.stop()
    (repo / "src/b.py").unlink()
    repositories.write(repo, {"a.py": "a = 3\n", "new/x": "x\n"})
    daemon.start()
    row = daemon.json("save", "x", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "a.py", repo) == "a = 3\n"
    assert daemon.content(row["id"], "new/x", repo) == "x\n"
    assert daemon.content(row["id"], "src/b.py", repo) is None


@pytest.mark.parametrize("harm", ["empty-pack", "short-idx", "no-head", "zero-ref", "garbage-events", "catalog"])
def test_b040_b170_a_torn_vault_does_not_keep_the_daemon_down(asleep: Daemon, repo: Path, harm: str) -> None:
    daemon = asleep.start()
    daemon.ckpt("save", "old", cwd=repo)
    daemon.ckpt("pin", "old", cwd=repo)
    (repo / "a.py").write_text("a = 2\n")
    daemon.ckpt("save", "new", cwd=repo)
    daemon.kill()
    vault = vault_of(daemon.home)
    packs = sorted(vault.glob("objects/pack/*.pack"), key=lambda path: path.stat().st_mtime_ns)
    match harm:
        case "empty-pack":
            packs[-1].chmod(0o600)
            packs[-1].write_bytes(b"")
        case "short-idx":
            idx = packs[-1].with_suffix(".idx")
            idx.chmod(0o600)
            idx.write_bytes(idx.read_bytes()[:100])
        case "no-head":
            (vault / "HEAD").unlink()
        case "zero-ref":
            newest = max((vault / "refs/checkpoints").iterdir(), key=lambda path: path.stat().st_mtime_ns)
            newest.write_bytes(b"")
        case "garbage-events":
            with (vault.parent / "events.jsonl").open("ab") as file:
                file.write(b"\0\0\0{torn")
        case "catalog":
            (daemon.home.data / "catalog.sqlite").write_bytes(b"\0" * 5000)
    (repo / "a.py").write_text("a = 3\n")
    daemon.start()
    daemon.json("status")
    daemon.ckpt("save", "after", cwd=repo)
    names = {row["name"] for row in daemon.checkpoints(repo, "-n", "50")}
    assert {"old", "after"} <= names, names
    daemon.ckpt("restore", "old", "--yes", cwd=repo)
    assert (repo / "a.py").read_text() == "a = 1\n"


def test_b029_b031_kill_during_captures_leaves_project_and_repository_alone(asleep: Daemon, home: Home) -> None:
    repo = repositories.make(home.path / "large", {f"d{n % 40}/f{n}.txt": f"{n}\n" * 40 for n in range(3000)})
    repositories.write(repo, {f"untracked/{n}": "u" * 2000 for n in range(500)})
    git_dir, files = repositories.fingerprint(repo / ".git"), contents(repo)
    daemon = asleep
    for delay in (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4):
        daemon.start()
        saving = subprocess.Popen(
            [sys.executable, "-m", "ckpt.cli", "save"], cwd=repo, env=home.env, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        # The moment of the kill is what is tried here, so a pause stands for it; nothing waits for it.
        time.sleep(0.15 + delay)
        daemon.kill()
        saving.wait(20)
        assert repositories.fingerprint(repo / ".git") == git_dir
    assert contents(repo) == files
    daemon.start()
    daemon.ckpt("save", "whole", cwd=repo)
    shutil.rmtree(repo / "d7")
    daemon.ckpt("restore", "whole", "--yes", cwd=repo)
    assert contents(repo) == files
    daemon.stop()
    assert not complaints(vault_of(home))
    assert not list((home.data / "projects").rglob("tmp_*"))


def test_b150_up_says_so_when_the_daemon_dies(home: Home) -> None:
    home.data.parent.mkdir(parents=True, exist_ok=True)
    home.data.write_text("a file where the data folder has to be")
    daemon = Daemon(home)
    daemon.ckpt("up", code=None)
    assert daemon.last_code not in (0, 70)
    assert daemon.last_stderr.strip() and "Traceback" not in daemon.last_stderr


def test_b088_git_variables_of_the_environment_are_nothing_to_us(home: Home, repo: Path) -> None:
    other = repositories.make(home.path / "other", {"o.py": "o\n"})
    before = repositories.fingerprint(other / ".git")
    own = repositories.fingerprint(repo / ".git")
    hostile = {
        "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / ".git/index"),
        "GIT_OBJECT_DIRECTORY": str(other / ".git/objects"), "GIT_NAMESPACE": "evil",
        "GIT_CEILING_DIRECTORIES": str(home.path), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": f"touch {home.path}/EVIL", "GIT_EXTERNAL_DIFF": f"touch {home.path}/EVIL",
        "GIT_TRACE": str(home.path / "TRACE"), "GIT_SSH_COMMAND": "false", "GIT_EXEC_PATH": "/nowhere",
    }  # fmt: skip

    class Hostile(Home):
        @property
        def env(self) -> dict[str, str]:
            return {**super().env, **hostile}

    daemon = Daemon(Hostile(home.path)).start()
    try:
        row = daemon.json("save", "x", cwd=repo)["checkpoint"]
        (repo / "a.py").write_text("changed\n")
        daemon.ckpt("restore", row["id"], "--yes", cwd=repo)
    finally:
        assert daemon.stop() == 0
        shutil.rmtree(daemon.home.runtime)
    assert (repo / "a.py").read_text() == "a = 1\n"
    assert repositories.fingerprint(other / ".git") == before
    assert repositories.fingerprint(repo / ".git") == own
    assert not (home.path / "EVIL").exists() and not (home.path / "TRACE").exists()


def test_an_empty_folder_after_a_restart_is_no_deletion(asleep: Daemon, home: Home, repo: Path) -> None:
    """A disk that is not mounted, and the first request comes while the work tree is still being looked at."""
    daemon = asleep.start()
    daemon.ckpt("save", "full", cwd=repo)
    daemon.stop()
    os.rename(repo, home.path / "elsewhere")
    repo.mkdir()
    daemon.start()
    daemon.ckpt("save", "empty", cwd=repo, code=1)
    daemon.ckpt("restore", "full", "--dry-run", cwd=repo)
    daemon.ckpt("save", "empty", cwd=repo, code=1)
    assert [row["name"] for row in daemon.checkpoints(repo)] == ["full"]
    assert daemon.json("status")["projects"][0]["watch"] == "failed"
    daemon.ckpt("restore", "full", "--yes", cwd=repo)
    assert (repo / "a.py").read_text() == "a = 1\n"
    (repo / "a.py").write_text("a = 2\n")
    row = daemon.json("save", "on", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "a.py", repo) == "a = 2\n"
    assert daemon.json("status")["projects"][0]["watch"] == "live"


# Disk


def test_b053_b059_a_home_is_never_captured(daemon: Daemon, home: Home) -> None:
    repositories.write(home.path, {f"stuff/{n}": "x" for n in range(50)})
    agent = Claude(home.path, home.path)
    agent.works("note.txt", "n\n")
    daemon.wait_for(lambda: daemon.json("sessions", "--all")["sessions"], "the session")
    daemon.ckpt("save", cwd=home.path, code=1)
    assert "home" in daemon.last_stderr
    assert daemon.checkpoints(home.path, "--all") == []
    assert not (home.path / ".git").exists()
    daemon.ckpt("save", cwd=Path("/"), code=1)


@pytest.mark.parametrize(
    "place", [".local/share", ".local", ".local/share/checkpointd", ".local/share/checkpointd/projects"]
)
def test_b052_it_never_captures_its_own_checkpoints(daemon: Daemon, home: Home, place: str) -> None:
    """Each capture would be a change to capture: 25 MB of packs a second."""
    agent = Claude(home.path, home.path / place)
    agent.works("note.txt", "n\n")
    daemon.wait_for(lambda: daemon.json("sessions", "--all")["sessions"], "the session")
    daemon.ckpt("save", cwd=home.path / place, code=1)
    assert "checkpoints themselves" in daemon.last_stderr
    assert not list((home.data / "projects").glob("*/vault.git"))
    assert "checkpoints themselves" in daemon.ckpt("status")


def test_b060_b061_a_sparse_giant_costs_nothing(daemon: Daemon, home: Home, repo: Path) -> None:
    daemon.ckpt("save", "before", cwd=repo)
    base = size_of(home.data)
    read = psutil.Process(daemon.pid).io_counters().read_chars
    for number in range(3):
        with (repo / "giant.bin").open("wb") as file:
            file.truncate(5 << 30)
            file.write(b"%d" % number)
        row = daemon.json("save", f"g{number}", cwd=repo)["checkpoint"]
    assert size_of(home.data) - base < 2 << 20
    assert psutil.Process(daemon.pid).io_counters().read_chars - read < 50 << 20
    assert "giant.bin" in daemon.ckpt("show", row["id"], "--coverage", cwd=repo)
    (repo / "a.py").write_text("a = 2\n")
    daemon.ckpt("restore", "before", "--yes", cwd=repo)
    assert (repo / "giant.bin").stat().st_size == 5 << 30


def test_b065_many_sessions_share_their_bytes(daemon: Daemon, home: Home) -> None:
    repo = repositories.make(home.path / "shop", {})
    for number in range(8):
        (repo / f"blob{number}").write_bytes(os.urandom(500_000))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "blobs")
    for number in range(6):
        agent = Claude(home.path, repo)
        agent.works("a.py", f"a = {number}\n")
        daemon.checkpoint(repo, "turn", agent.session)
    assert size_of(home.data / "projects") < 2.2 * 4_000_000


def test_b063_forgotten_bytes_are_gone(daemon: Daemon, home: Home, repo: Path) -> None:
    marker = os.urandom(3_000_000)
    (repo / "big.bin").write_bytes(marker)
    daemon.ckpt("save", "big", cwd=repo)
    (repo / "big.bin").unlink()
    daemon.ckpt("save", "small", cwd=repo)
    daemon.ckpt("forget", "big", "--yes", cwd=repo)
    assert [row["name"] for row in daemon.checkpoints(repo)] == ["small"]
    daemon.ckpt("restore", "small", "--dry-run", cwd=repo)


def test_b039_a_vault_that_cannot_be_written_is_told(daemon: Daemon, home: Home, repo: Path) -> None:
    daemon.ckpt("save", "first", cwd=repo)
    packs = vault_of(home) / "objects/pack"
    if subprocess.run(["chattr", "+i", str(packs)], check=False, capture_output=True).returncode:
        pytest.skip("no immutable folders on this file system")
    try:
        (repo / "a.py").write_text("a = 2\n")
        daemon.ckpt("save", "second", cwd=repo, code=1)
        assert "Traceback" not in daemon.last_stderr
        daemon.ckpt("status", "--check", cwd=repo, code=1)
        daemon.ckpt("restore", "first", "--yes", cwd=repo, code=1)
        assert (repo / "a.py").read_text() == "a = 2\n"
    finally:
        subprocess.run(["chattr", "-i", str(packs)], check=True)
    daemon.ckpt("save", "third", cwd=repo)
    daemon.wait_for(lambda: daemon.ckpt("status", "--check", code=None) is not None and daemon.last_code == 0, "health")


def test_b069_captures_beside_forgetting_leave_a_clean_vault(daemon: Daemon, home: Home, repo: Path) -> None:
    for number in range(12):
        repositories.write(repo, {f"f{number % 3}.txt": f"{number}\n" * 200})
        daemon.ckpt("save", f"s{number}", cwd=repo)
        if number % 3 == 2:
            forgetting = subprocess.Popen(
                [sys.executable, "-m", "ckpt.cli", "forget", f"s{number - 1}", "--yes"], cwd=repo, env=home.env,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            repositories.write(repo, {"a.py": f"a = {number}\n"})
            daemon.ckpt("save", cwd=repo)
            assert forgetting.wait(20) == 0
    daemon.ckpt("restore", "s0", "--yes", cwd=repo)
    assert (repo / "f0.txt").read_text() == "0\n" * 200
    daemon.stop()
    assert not complaints(vault_of(home))
    daemon.start()


# Watching


def test_b109_b110_a_burst_of_files_ends_in_the_right_state(daemon: Daemon, home: Home, repo: Path) -> None:
    daemon.ckpt("save", "before", cwd=repo)
    os.kill(daemon.pid, signal.SIGSTOP)  # the kernel's queue of 16,384 events runs over
    try:
        for folder in range(40):
            (repo / f"burst/{folder}").mkdir(parents=True)
            for number in range(250):
                (repo / f"burst/{folder}/{number}").write_text("x")
        git(repo, "add", "burst")  # tracked, so that no budget leaves them out
        git(repo, "commit", "-q", "-m", "Burst")
        for folder in range(0, 10, 2):
            shutil.rmtree(repo / f"burst/{folder}")
        for number in range(9000):
            path = repo / "burst/1" / str(number % 250)
            path.write_text(f"{number}")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    row = daemon.json("save", "after", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "burst/1/249", repo) == "8999"
    assert daemon.content(row["id"], "burst/0/1", repo) is None
    assert daemon.content(row["id"], "burst/3/7", repo) == "x"


def test_b117_what_was_written_while_it_was_read_is_read_again(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    agent.says("work")
    daemon.checkpoint(repo, "baseline")
    end = time.monotonic() + 1.5
    number = 0
    while time.monotonic() < end:
        number += 1
        (repo / "a.py").write_text(f"a = {number}\n")
    agent.answers()
    daemon.checkpoint(repo, "turn")
    row = daemon.json("save", "x", cwd=repo)["checkpoint"]
    assert daemon.content(row["id"], "a.py", repo) == f"a = {number}\n"
    projects = daemon.wait_for(
        lambda: [p for p in daemon.json("status")["projects"] if p["dirty"] == 0], "nothing left to read"
    )
    assert projects[0]["last_capture"]


@pytest.mark.slow  # for a while nobody else on this machine gets an instance
def test_b108_without_watches_it_looks_by_itself(asleep: Daemon, repo: Path) -> None:
    hoard: list[int] = []
    libc = ctypes.CDLL(None, use_errno=True)
    while (one := libc.inotify_init1(os.O_CLOEXEC)) >= 0 and len(hoard) < 5000:
        hoard.append(one)
    try:
        daemon = asleep.start()
        daemon.ckpt("save", "x", cwd=repo)
        (repo / "a.py").write_text("a = 2\n")
        row = daemon.json("save", "y", cwd=repo)["checkpoint"]
        assert daemon.content(row["id"], "a.py", repo) == "a = 2\n"
        assert daemon.json("status")["projects"][0]["watch"] != "live"
        Claude(daemon.home.path, repo).works("a.py", "a = 3\n")
        turn = daemon.checkpoint(repo, "turn")
        assert daemon.content(turn["id"], "a.py", repo) == "a = 3\n"
    finally:
        for one in hoard:
            os.close(one)


def test_b023_an_agent_that_edits_many_and_destroys_all(daemon: Daemon, home: Home, repo: Path) -> None:
    agent = Claude(home.path, repo)
    agent.says("refactor")
    daemon.checkpoint(repo, "baseline")
    for number in range(200):
        (repo / f"src/m{number}.py").write_text(f"m = {number}\n")
    daemon.captured(repo)
    before = contents(repo)
    agent.runs("rm -rf src *.py", lambda: (shutil.rmtree(repo / "src"), (repo / "a.py").unlink()))
    agent.answers()
    record = daemon.checkpoint(repo, "pre-destructive")
    daemon.ckpt("restore", record["id"], "--yes", cwd=repo)
    assert contents(repo) == before


def test_a_root_that_is_renamed_is_followed(daemon: Daemon, home: Home, repo: Path) -> None:
    daemon.ckpt("save", "before", cwd=repo)
    os.rename(repo, home.path / "store")
    moved = home.path / "store"
    (moved / "a.py").write_text("a = 2\n")
    daemon.ckpt("save", "after", cwd=moved)
    assert [row["name"] for row in daemon.checkpoints(moved)] == ["after", "before"]
    daemon.ckpt("restore", "before", "--yes", cwd=moved)
    assert (moved / "a.py").read_text() == "a = 1\n"
    assert not repo.exists()


def test_descriptors_do_not_leak(daemon: Daemon, home: Home, repo: Path) -> None:
    daemon.ckpt("save", cwd=repo)
    process = psutil.Process(daemon.pid)
    before = process.num_fds()
    for number in range(8):
        (repo / "a.py").write_text(f"a = {number}\n")
        daemon.ckpt("save", f"s{number}", cwd=repo)
        daemon.ckpt("restore", "@1", "--yes", cwd=repo)
        daemon.ckpt("list", cwd=repo)
    assert process.num_fds() <= before + 20
    assert process.num_threads() < 30
