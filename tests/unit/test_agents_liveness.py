"""Whether an agent still has a session open."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkpointd.agents.liveness import claude_processes, codex_writer

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def register(folder: Path, **given: object) -> None:
    (folder / "sessions").mkdir(exist_ok=True)
    (folder / "sessions" / f"{given['pid']}.json").write_text(json.dumps({"sessionId": "s", "cwd": "/p", **given}))


def start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


@linux
def test_a_registered_process_is_alive_only_when_it_began_when_it_says(tmp_path: Path) -> None:
    pid = os.getpid()
    register(tmp_path, pid=pid, procStart=start_of(pid), status="busy")
    (live,) = claude_processes([tmp_path])
    assert (live.pid, live.session, live.cwd, live.status, live.alive) == (pid, "s", "/p", "busy", True)
    register(tmp_path, pid=pid, procStart="1")
    assert [process.alive for process in claude_processes([tmp_path])] == [False]


@linux
def test_a_process_that_is_gone_is_not_alive(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    register(tmp_path, pid=child.pid, procStart="5")
    assert [process.alive for process in claude_processes([tmp_path])] == [False]


@linux
def test_a_process_of_another_container_cannot_be_told(tmp_path: Path) -> None:
    register(tmp_path, pid=os.getpid(), pidDomain="linux:machine:pid:[1]")
    assert [process.alive for process in claude_processes([tmp_path])] == [None]
    own = Path("/proc/self/ns/pid").readlink()
    register(tmp_path, pid=os.getpid(), pidDomain=f"linux:machine:{own}")
    assert [process.alive for process in claude_processes([tmp_path])] == [True]


def test_keys_and_broken_files_are_passed_over(tmp_path: Path) -> None:
    register(tmp_path, pid=7)
    (tmp_path / "sessions/8.json").write_text('{"pid": 8, "sess')
    (tmp_path / "sessions/9.json").write_text("[]")
    (tmp_path / "sessions/7.ab12.key").write_text("secret")
    (tmp_path / "sessions/notes.json").write_text("{}")
    assert [process.pid for process in claude_processes([tmp_path, tmp_path / "missing"], tmp_path)] == [7]


def test_a_thread_is_held_while_a_process_has_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / "thread-writer-locks/t.lock"
    assert codex_writer(tmp_path, "t") == "absent"
    assert not lock.parent.exists()
    lock.parent.mkdir()
    lock.touch()
    assert codex_writer(tmp_path, "t") == "free"
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert codex_writer(tmp_path, "t") == "held"
    assert codex_writer(tmp_path, "t") == "free"
