"""The client against daemons that are gone, stopped, hostile or of another version."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checkpointd import places
from ckpt import connection
from ckpt.contract.errors import CkptError
from ckpt.contract.version import PROTOCOL, __version__
from support.served import ckpt, environment, private_home


@pytest.fixture
def home() -> Iterator[Path]:
    with private_home() as made:
        yield made


@contextmanager
def listening(home: Path, answer: Callable[[socket.socket], None] | None) -> Iterator[dict[str, str]]:
    """A socket where the daemon's should be; `answer` speaks to each client, None: nobody accepts."""
    env = environment(home)
    path = places.find(env).socket
    path.parent.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)
        if answer is not None:
            threading.Thread(target=_serve, args=(server, answer), daemon=True).start()
        yield env
        server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            answer(client)


def replies(*lines: object) -> Callable[[socket.socket], None]:
    def answer(client: socket.socket) -> None:
        with client.makefile("rb") as requests:
            for line in lines:
                if not requests.readline():
                    return
                client.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")

    return answer


def hello(**changed: object) -> dict[str, object]:
    result = {"version": __version__, "protocol": PROTOCOL, "pid": 1, "alarm": None, **changed}
    return {"jsonrpc": "2.0", "id": 1, "result": result}


def test_no_daemon_is_status_5_and_names_the_way_out(home: Path) -> None:
    done = ckpt(environment(home), "list")
    assert done.returncode == 5
    assert done.stdout == ""
    assert done.stderr == "ckpt: The daemon is not running.\nhint: Start it with `ckpt up`.\n"


def test_errors_are_json_where_json_was_asked_for(home: Path) -> None:
    done = ckpt(environment(home), "list", "--json")
    assert json.loads(done.stdout)["error"]["code"] == "not-running"


def test_a_dead_daemons_socket_is_no_daemon(home: Path) -> None:
    with listening(home, None) as env:
        pass
    assert ckpt(env, "status").returncode == 5


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


def test_a_daemon_of_another_protocol_is_status_6(home: Path) -> None:
    with listening(home, replies(hello(version="9.9.9", protocol=PROTOCOL + 1))) as env:
        done = ckpt(env, "list")
    assert done.returncode == 6
    assert "9.9.9" in done.stderr
    assert "hint: `ckpt restart`" in done.stderr


def test_status_of_a_daemon_of_another_protocol_is_shown_with_the_problem(home: Path) -> None:
    daemon = {"version": "9.9.9", "protocol": 2, "pid": 1, "uptime_s": 1, "rss_bytes": 1, "cpu_s": 1, "paused": False}
    result = {"daemon": daemon, "agents": [], "projects": [], "sessions": [], "budgets": {}, "problems": []}
    status = {"jsonrpc": "2.0", "id": 2, "result": result}
    with listening(home, replies(hello(version="9.9.9", protocol=PROTOCOL + 1), status)) as env:
        done = ckpt(env, "status")
    assert done.returncode == 6
    assert done.stdout.startswith("1 problem\nThe daemon is version 9.9.9")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([b"garbage\n"], 70),
        ([b"[]\n"], 70),
        ([b"[" * 100_000 + b"\n"], 70),
        ([b"\xff\n"], 70),
        ([hello(), b""], 5),
        ([hello(), {"jsonrpc": "2.0", "id": 2, "error": "odd"}], 70),
        ([hello(), {"jsonrpc": "2.0", "id": 2, "error": {"code": -32011, "message": "No such."}}], 3),
        ([hello(), {"jsonrpc": "2.0", "id": 2, "error": {"code": -1, "message": "?", "data": {"code": "new"}}}], 70),
        ([{"jsonrpc": "2.0", "id": None, "error": {"code": -32003, "message": "Busy.", "data": {"code": "busy"}}}], 1),
    ],
)
def test_a_daemon_that_talks_nonsense_is_an_error_with_a_status(home: Path, lines: list[object], status: int) -> None:
    with listening(home, replies(*lines)) as env:
        done = ckpt(env, "list")
    assert done.returncode == status
    assert done.stderr.startswith("ckpt: ")
    assert "Traceback" not in done.stderr


def test_what_everybody_must_know_is_told_beside_any_answer(home: Path) -> None:
    rows = {"jsonrpc": "2.0", "id": 2, "result": {"checkpoints": []}}
    with listening(home, replies(hello(alarm="the disk is full: nothing is captured"), rows)) as env:
        done = ckpt(env, "list", "--json")
    assert json.loads(done.stdout) == {"checkpoints": []}
    assert done.stderr == "ckpt: warning: the disk is full: nothing is captured\n"


def test_the_agents_own_session_is_named_before_the_general_one(home: Path) -> None:
    said: list[dict[str, object]] = []

    def answer(client: socket.socket) -> None:
        with client.makefile("rb") as requests:
            said.append(json.loads(requests.readline())["params"])

    with listening(home, answer) as env:
        ckpt({**env, "AGENT_SESSION_ID": "general", "CLAUDE_CODE_SESSION_ID": "own"}, "list")
        ckpt({**env, "AGENT_SESSION_ID": "general"}, "list")
        ckpt(env, "list")
    assert [each["asking"] for each in said] == [
        {"agent": "claude", "session": "own"}, {"agent": "", "session": "general"}, None,
    ]  # fmt: skip


def test_a_daemon_of_another_user_is_not_talked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        connection.check_owner(ours)
        monkeypatch.setattr(connection, "_credentials", lambda channel: (1, os.getuid() + 1))
        monkeypatch.setattr(os, "getuid", lambda: 4321)
        with pytest.raises(CkptError, match="belongs to user") as refusal:
            connection.check_owner(ours)
        assert refusal.value.code == "not-running"
