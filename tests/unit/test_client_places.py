"""The client looks where the daemon is."""

import json
import os
from pathlib import Path

import pytest

from checkpointd import places as daemon_places
from ckpt import places


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"XDG_DATA_HOME": "/d", "XDG_STATE_HOME": "/s"},
        {"XDG_RUNTIME_DIR": "/"},
        {"XDG_RUNTIME_DIR": "/no/such/folder"},
        {"XDG_RUNTIME_DIR": ""},
        {"XDG_DATA_HOME": "/" + "long/" * 30},
        {"CHECKPOINTD_SOCKET": "/run/mine"},
        {"CHECKPOINTD_SOCKET": "/" + "long/" * 30},
    ],
    ids=str,
)
def test_client_and_daemon_agree_on_every_place(extra: dict[str, str]) -> None:
    env = {"HOME": "/home/me", **extra}
    theirs = daemon_places.find(env)
    assert places.data_folder(env) == str(theirs.data)
    assert places.state_folder(env) == str(theirs.state)
    assert places.discovery_file(env) == str(theirs.discovery)
    assert places.lock_file(env) == str(theirs.lock)
    assert Path(places.default_socket(env)) == theirs.socket


def _left(home: Path, text: str) -> dict[str, str]:
    env = {"HOME": str(home)}
    folder = Path(places.data_folder(env))
    folder.mkdir(parents=True)
    (folder / "daemon.json").write_text(text)
    return env


def test_the_discovery_file_comes_before_the_default(tmp_path: Path) -> None:
    env = _left(tmp_path, json.dumps({"socket": "/elsewhere", "pid": 12, "start": 5}))
    assert list(places.sockets(env)) == [b"/elsewhere", os.fsencode(places.default_socket(env))]


def test_the_override_stands_alone(tmp_path: Path) -> None:
    env = _left(tmp_path, json.dumps({"socket": "/elsewhere", "pid": 12, "start": 5}))
    assert list(places.sockets({**env, "CHECKPOINTD_SOCKET": "/mine"})) == [b"/mine"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "[" * 50_000, '{"socket": 5, "pid": "12", "start": null}', '{"pid": true, "start": 1.5}',
     '{"socket": "\\"/unfinished", "pid": -3}'],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_broken_discovery_file_tells_nothing(tmp_path: Path, text: str) -> None:
    env = _left(tmp_path, text)
    found = places.discover(env)
    assert (found.socket, found.pid, found.start) == (None, None, None)
    assert len(list(places.sockets(env))) == 1
