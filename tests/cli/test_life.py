"""up, down, restart: real processes, from start to end, in good order and in bad."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointd import places
from support.served import ckpt, environment, private_home

_STAND_IN = Path(__file__).parents[1] / "support" / "stand_in"


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """A private home whose daemon is the stand-in; none is left running."""
    with private_home() as home:
        made = environment(home, PYTHONPATH=str(_STAND_IN))
        yield made
        discovery = places.find(made).discovery
        if discovery.exists():
            os.kill(json.loads(discovery.read_text())["pid"], signal.SIGKILL)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pid_of(env: dict[str, str]) -> int:
    pid = json.loads(places.find(env).discovery.read_text())["pid"]
    assert isinstance(pid, int)
    return pid


def test_up_starts_a_daemon_and_down_ends_it(env: dict[str, str]) -> None:
    up = ckpt(env, "up")
    assert up.returncode == 0, up.stderr
    pid = pid_of(env)
    assert up.stdout.splitlines()[0] == f"checkpointd 0.1.0 started (pid {pid})"
    assert "agent    claude, 12 sessions" in up.stdout
    assert "project  /home/me/shop" in up.stdout
    assert os.getsid(pid) == pid != os.getsid(0)
    again = ckpt(env, "up")
    assert f"is running (pid {pid})" in again.stdout
    down = ckpt(env, "down")
    assert (down.returncode, down.stdout) == (0, f"checkpointd stopped (pid {pid})\n")
    assert not places.find(env).socket.exists()
    assert not places.find(env).discovery.exists()
    assert not [path for path in places.find(env).state.iterdir() if path.name.startswith("start")]
    assert ckpt(env, "status").returncode == 5


def test_up_and_down_as_json(env: dict[str, str]) -> None:
    up = json.loads(ckpt(env, "up", "--json").stdout)
    assert set(up) == {"daemon", "agents", "projects"}
    assert json.loads(ckpt(env, "down", "--json").stdout) == {"stopped": True, "pid": up["daemon"]["pid"]}
    assert json.loads(ckpt(env, "down", "--json").stdout) == {"stopped": False, "pid": None}


def test_two_that_start_at_once_end_in_one_daemon(env: dict[str, str]) -> None:
    both = [
        subprocess.Popen([sys.executable, "-m", "ckpt.cli", "up", "--json"], env=env, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    answers = [json.loads(each.communicate(timeout=60)[0]) for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert answers[0]["daemon"]["pid"] == answers[1]["daemon"]["pid"]
    assert ckpt(env, "down").returncode == 0


def test_a_daemon_that_does_not_start_tells_why(env: dict[str, str]) -> None:
    done = ckpt({**env, "STAND_IN": "crash"}, "up")
    assert done.returncode == 1
    assert "did not start (exit status 1).\n  the catalog cannot be opened\n" in done.stderr


def test_after_kill_9_up_starts_a_new_one(env: dict[str, str]) -> None:
    ckpt(env, "up")
    first = pid_of(env)
    os.kill(first, signal.SIGKILL)
    assert places.find(env).socket.exists()
    assert ckpt(env, "up").returncode == 0
    assert pid_of(env) != first
    assert ckpt(env, "down").returncode == 0


def test_a_foreign_process_with_the_daemons_old_pid_is_left_alone(env: dict[str, str]) -> None:
    ckpt(env, "up")
    ckpt(env, "down")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as foreign:
        left = {"socket": str(places.find(env).socket), "pid": foreign.pid, "start": 1}
        places.find(env).discovery.write_text(json.dumps(left))
        places.find(env).lock.write_text(str(foreign.pid))
        assert ckpt(env, "restart").returncode == 0
        assert foreign.poll() is None
        foreign.kill()
    assert ckpt(env, "down").returncode == 0


def test_restart_gives_a_new_process(env: dict[str, str]) -> None:
    ckpt(env, "up")
    first = pid_of(env)
    done = ckpt(env, "restart")
    assert done.returncode == 0, done.stderr
    assert pid_of(env) != first
    assert ckpt(env, "down").returncode == 0


@pytest.mark.slow
def test_restart_ends_a_daemon_that_stands_still_and_nothing_else_does(env: dict[str, str]) -> None:
    wedged = {**env, "STAND_IN": "wedge"}
    assert ckpt(wedged, "up").returncode == 0
    first = pid_of(env)
    until(places.find(env).data.joinpath("wedged").exists)
    assert ckpt(env, "up").returncode == 5
    os.kill(first, 0)
    done = ckpt(env, "restart")
    assert done.returncode == 0, done.stderr
    assert f"The daemon (pid {first}) does not answer; ending it." in done.stderr
    assert pid_of(env) != first
    assert ckpt(env, "down").returncode == 0


def test_demo_and_a_doctor_without_daemon_are_the_daemons_own_program(env: dict[str, str]) -> None:
    child = {**env, "STAND_IN": "child"}
    assert ckpt(child, "demo").stdout == "checkpointd demo\n"
    assert ckpt(child, "doctor", "--rebuild", "--json").stdout == "checkpointd doctor --rebuild --json\n"
