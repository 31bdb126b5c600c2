"""A daemon that is there and does not answer: said at once, given up after five seconds, never ended."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd import places
from support.odd_daemons import listening
from support.served import ckpt, environment, private_home


@pytest.fixture
def home() -> Iterator[Path]:
    with private_home() as made:
        yield made


def test_a_daemon_that_never_answers_is_told_at_once_and_given_up_after_five_seconds(home: Path) -> None:
    with listening(home, None) as env, subprocess.Popen(
        [sys.executable, "-m", "ckpt.cli", "status"], env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:  # fmt: skip
        assert child.stderr is not None
        started = time.monotonic()
        first = child.stderr.readline().decode()
        assert f"pid {os.getpid()}" in first
        assert "does not answer yet" in first
        assert time.monotonic() - started < 4
        rest = child.stderr.read().decode()
        assert child.wait(20) == 5
        assert 4 < time.monotonic() - started < 12
        assert "did not answer within 5 s" in rest
        assert "ckpt restart" in rest


def test_a_stopped_daemon_is_called_stopped_and_lives(home: Path) -> None:
    env = environment(home)
    path = places.find(env).socket
    path.parent.mkdir(parents=True, mode=0o700)
    code = (
        "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen();"
        "print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as daemon:
        try:
            assert daemon.stdout is not None
            daemon.stdout.readline()
            daemon.send_signal(signal.SIGSTOP)
            done = ckpt(env, "list")
            assert done.returncode == 5
            assert f"The daemon (pid {daemon.pid}, stopped) did not answer" in done.stderr
            assert daemon.poll() is None
        finally:
            daemon.kill()


def test_a_daemon_whose_queue_is_full_is_given_up(home: Path) -> None:
    with listening(home, None) as env:
        path = str(places.find(env).socket)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(path)
        done = ckpt(env, "status")
        for each in waiting:
            each.close()
    assert done.returncode == 5
    assert "did not answer within 5 s" in done.stderr
