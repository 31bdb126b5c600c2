"""The client against daemons that are gone, stopped, hostile or of another version."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt import connection
from ckpt.contract.errors import CkptError
from ckpt.contract.version import PROTOCOL
from support.odd_daemons import hello, listening, replies
from support.served import ckpt, environment, private_home


@pytest.fixture
def home() -> Iterator[Path]:
    with private_home() as made:
        yield made


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
