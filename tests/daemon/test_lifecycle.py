"""The life of a daemon: one at a time, private, gone without a trace, and back after any death."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import repositories
from support.daemons import Daemon
from support.homes import Home
from support.playing import AGENTS, Actor, Claude
from support.served import Client


@pytest.fixture
def repo(home: Home) -> Path:
    return repositories.make(home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n"})


def causes(daemon: Daemon, cwd: Path) -> list[tuple[str, ...]]:
    """What made each record, oldest first."""
    rows = reversed(daemon.checkpoints(cwd, "-n", "100"))
    found = [daemon.record(row["id"], cwd)["cause"] for row in rows]
    return [(cause["worktree"], cause.get("session", ""), cause["trigger"], cause["position"]) for cause in found]


def one_turn(daemon: Daemon, agent: Actor, repo: Path) -> None:
    """A session begins and has its first turn."""
    agent.says("work")
    daemon.checkpoint(repo, "baseline")
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    daemon.checkpoint(repo, "turn")


def everything_in(home: Home) -> set[Path]:
    return {path.relative_to(home.path) for path in home.path.rglob("*")}


def test_it_serves_until_it_is_asked_to_stop_and_leaves_no_process(daemon: Daemon) -> None:
    assert daemon.json("status")["daemon"]["pid"] == daemon.pid
    group = psutil.Process(daemon.pid).children(recursive=True)
    assert daemon.stop() == 0
    assert not [process for process in group if process.is_running()]
    assert not (daemon.home.runtime / "checkpointd/socket").exists()
    assert not (daemon.home.data / "daemon.json").exists()
    daemon.ckpt("status", code=5)
    assert "ckpt up" in daemon.last_stderr


def test_no_child_is_left_after_work(daemon: Daemon, repo: Path) -> None:
    one_turn(daemon, Claude(daemon.home.path, repo), repo)
    children = psutil.Process(daemon.pid).children(recursive=True)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive
    assert daemon.stop() == 0
    for process in psutil.process_iter(["environ"]):
        assert (process.info["environ"] or {}).get("HOME") != str(daemon.home.path), process


def test_a_second_daemon_is_refused_and_the_first_goes_on(daemon: Daemon) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "checkpointd", "run"],
        env=daemon.home.env, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert second.returncode == 1
    assert str(daemon.home.data / "lock") in second.stderr
    assert "Traceback" not in second.stderr
    assert daemon.json("status")["daemon"]["pid"] == daemon.pid


def test_two_ups_at_once_start_one_daemon(home: Home) -> None:
    ups = [
        subprocess.Popen(
            [sys.executable, "-m", "ckpt.cli", "up"], env=home.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    try:
        errors = [up.communicate(timeout=30)[1] for up in ups]
        assert [up.returncode for up in ups] == [0, 0], errors
        pid = Daemon(home).json("status")["daemon"]["pid"]

        def running() -> list[int]:
            return [
                process.pid
                for process in psutil.process_iter(["environ", "cmdline"])
                if (process.info["environ"] or {}).get("HOME") == str(home.path)
                and "checkpointd" in (process.info["cmdline"] or [])
            ]

        # The one that found the lock held may still be on its way out.
        Daemon(home).wait_for(lambda: running() == [pid], "one daemon alone")
    finally:
        Daemon(home).ckpt("down", code=None)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_it_stops_with_clients_connected_and_tells_them(daemon: Daemon) -> None:
    idle = Client(daemon.home.runtime / "checkpointd/socket")
    watching = subprocess.Popen(
        [sys.executable, "-m", "ckpt.cli", "watch", "--all"],
        env=daemon.home.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    with idle, watching:
        assert "result" in idle.hello()
        daemon.wait_for(lambda: len(psutil.Process(daemon.pid).net_connections("unix")) >= 3, "both clients connected")
        assert daemon.stop(10.0) == 0
        assert idle.read() is None
        assert watching.wait(10) == 5


def test_sigint_and_shutdown_are_stops_as_well(asleep: Daemon) -> None:
    daemon = asleep.start()
    os.kill(daemon.pid, signal.SIGINT)
    assert daemon.stop() == 0
    daemon.start()
    daemon.ckpt("down")
    assert daemon.stop() == 0


def test_a_killed_daemon_leaves_checkpoints_and_the_session_goes_on(asleep: Daemon, repo: Path) -> None:
    daemon = asleep.start()
    agent = Claude(daemon.home.path, repo)
    one_turn(daemon, agent, repo)
    before = causes(daemon, repo)
    daemon.kill()
    socket_file = daemon.home.runtime / "checkpointd/socket"
    assert socket_file.exists()
    daemon.ckpt("status", code=5)
    # The agent does not wait for us.
    agent.works("src/b.py", "b = 2\n", "while nobody looks")

    daemon.start()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(socket_file))
    away = daemon.checkpoint(repo, "scheduled")
    assert daemon.content(away["id"], "src/b.py", repo) == "b = 2\n"
    agent.works("src/b.py", "b = 3\n", "and on")
    last = daemon.checkpoint(repo, "turn", count=2)
    assert daemon.content(last["id"], "src/b.py", repo) == "b = 3\n"
    after = causes(daemon, repo)
    assert after[: len(before)] == before
    assert [cause[2] for cause in after] == ["baseline", "turn", "scheduled", "turn"]
    assert len(set(after)) == len(after)
    assert len(daemon.json("sessions", "--all")["sessions"]) == 1
    assert daemon.stop() == 0


@pytest.mark.parametrize(
    "agent_name", ["claude", pytest.param("pi", marks=pytest.mark.slow), pytest.param("codex", marks=pytest.mark.slow)]
)
def test_a_restart_makes_no_record_where_nothing_happened(asleep: Daemon, repo: Path, agent_name: str) -> None:
    daemon = asleep.start()
    agent = AGENTS[agent_name](daemon.home.path, repo)
    one_turn(daemon, agent, repo)
    before = causes(daemon, repo)
    for end in (daemon.stop, daemon.kill):
        end()
        daemon.start()
        daemon.wait_for(lambda: daemon.json("status")["projects"][0]["last_capture"], "a scan after the start")
    agent.works("a.py", "a = 3\n")
    daemon.checkpoint(repo, "turn", count=2)
    after = causes(daemon, repo)
    assert after[:-1] == before, [daemon.record(r["id"], repo)["reason"] for r in daemon.checkpoints(repo)]
    assert after[-1][2] == "turn"
    assert daemon.stop() == 0


def test_a_record_that_the_catalog_missed_is_listed_after_a_restart(asleep: Daemon, repo: Path) -> None:
    """kill -9 between the vault's commit and the catalog's row."""
    daemon = asleep.start()
    daemon.ckpt("save", "first", cwd=repo)
    catalog = daemon.home.data / "catalog.sqlite"
    without = catalog.read_bytes()
    log = catalog.with_name("catalog.sqlite-wal").read_bytes()
    daemon.ckpt("save", "second", cwd=repo)
    daemon.kill()
    catalog.write_bytes(without)
    catalog.with_name("catalog.sqlite-wal").write_bytes(log)
    catalog.with_name("catalog.sqlite-shm").unlink(missing_ok=True)
    daemon.start()
    assert [row["name"] for row in daemon.checkpoints(repo)] == ["second", "first"]
    daemon.ckpt("save", "third", cwd=repo)
    rows = daemon.checkpoints(repo)
    assert [row["name"] for row in rows] == ["third", "second", "first"]
    assert [daemon.record(row["id"], repo)["seq"] for row in rows] == [3, 2, 1]
    assert daemon.stop() == 0


def test_a_checkpoint_whose_event_was_not_written_gets_it_at_the_start(asleep: Daemon, repo: Path) -> None:
    """kill -9 between the vault's commit and the event's line."""
    daemon = asleep.start()
    daemon.ckpt("save", "first", cwd=repo)
    daemon.ckpt("save", "second", cwd=repo)
    daemon.kill()
    (events,) = (daemon.home.data / "projects").glob("*/events.jsonl")
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join(lines[:-1]))
    daemon.start()
    daemon.ckpt("save", "third", cwd=repo)
    told = [json.loads(line) for line in events.read_bytes().splitlines()]
    assert [event["name"] for event in told if event["event"] == "save"] == ["first", "second", "third"]
    assert daemon.stop() == 0


def test_a_lost_catalog_is_made_anew_at_the_start(asleep: Daemon, repo: Path) -> None:
    daemon = asleep.start()
    daemon.ckpt("save", "kept", cwd=repo)
    daemon.ckpt("pin", "kept", cwd=repo)
    assert daemon.stop() == 0
    (daemon.home.data / "catalog.sqlite").write_bytes(b"this is no database" * 100)
    daemon.start()
    (row,) = daemon.checkpoints(repo)
    assert (row["name"], row["pinned"]) == ("kept", True)
    assert daemon.stop() == 0


def test_nothing_but_its_own_folders_is_written_in_a_home(asleep: Daemon, repo: Path) -> None:
    before = everything_in(asleep.home)
    daemon = asleep.start()
    daemon.ckpt("save", cwd=repo)
    daemon.ckpt("restore", "@", "--yes", cwd=repo)
    daemon.ckpt("sessions", "--all")
    assert daemon.stop() == 0
    own = {Path(".local/share/checkpointd"), Path(".local/state/checkpointd")}
    new = {path for path in everything_in(daemon.home) - before if not own & {path, *path.parents}}
    assert new == set()


def test_everything_is_private(home: Home, repo: Path) -> None:
    log = home.path / ".local/state/checkpointd/checkpointd.log"
    old = os.umask(0o022)
    try:
        Daemon(home).ckpt("up")
    finally:
        os.umask(old)
    daemon = Daemon(home)
    try:
        one_turn(daemon, Claude(home.path, repo), repo)
        daemon.ckpt("save", "--pin", cwd=repo)
        (repo / "a.py").unlink()
        daemon.ckpt("restore", "@", "a.py", "--yes", cwd=repo)
        assert log.exists()
        open_to_others: dict[str, Any] = {}
        for top in (home.data, log.parent, home.runtime / "checkpointd"):
            for path in (top, *top.rglob("*")):
                mode = stat.S_IMODE(path.lstat().st_mode)
                # Packs and loose objects are read-only for their owner, as git has them.
                if mode & 0o077 or (not path.is_dir() and mode not in (0o600, 0o400)):
                    open_to_others[str(path)] = oct(mode)
                if path.is_dir() and mode != 0o700:
                    open_to_others[str(path)] = oct(mode)
        assert open_to_others == {}
    finally:
        daemon.ckpt("down", code=None)


def test_a_daemon_whose_home_moved_says_where_it_is(daemon: Daemon) -> None:
    found = json.loads((daemon.home.data / "daemon.json").read_text())
    assert found["pid"] == daemon.pid
    assert found["socket"] == str(daemon.home.runtime / "checkpointd/socket")
