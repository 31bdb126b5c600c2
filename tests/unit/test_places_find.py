"""Where state lives, by the environment."""

import os
import sys
from pathlib import Path

import pytest

from checkpointd.places import find
from ckpt import places as of_the_client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="XDG folders are those of Linux")


def test_everything_is_below_home_without_xdg(tmp_path: Path) -> None:
    found = find({"HOME": str(tmp_path)})
    assert found.data == tmp_path / ".local/share/checkpointd"
    assert found.log == tmp_path / ".local/state/checkpointd/checkpointd.log"
    assert found.config == tmp_path / ".config/checkpointd/config.yaml"
    assert found.socket == found.data / "run/socket"
    assert found.cookies == found.data / "run/cookies"
    assert not list(tmp_path.iterdir())


def test_xdg_folders_are_used(tmp_path: Path) -> None:
    names = {f"XDG_{name}": str(tmp_path / name.lower()) for name in ("DATA_HOME", "STATE_HOME", "CONFIG_HOME")}
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    found = find({"HOME": "/nowhere", "XDG_RUNTIME_DIR": str(runtime), **names})
    assert found.data == tmp_path / "data_home/checkpointd"
    assert found.state == tmp_path / "state_home/checkpointd"
    assert found.config == tmp_path / "config_home/checkpointd/config.yaml"
    assert found.socket == runtime / "checkpointd/socket"


def test_a_runtime_folder_that_is_not_there_is_not_used(tmp_path: Path) -> None:
    found = find({"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "gone")})
    assert found.socket == found.data / "run/socket"


def test_overrides(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "CHECKPOINTD_SOCKET": "/x/" + "s" * 200, "CHECKPOINTD_CONFIG": "/x/c.yaml"}
    found = find(env)
    assert found.socket == Path("/x/" + "s" * 200)
    assert found.config == Path("/x/c.yaml")


@pytest.mark.parametrize("length", range(50, 120, 3))
def test_a_socket_path_always_fits_and_the_client_finds_the_same(length: int) -> None:
    env = {"HOME": "/home/" + "ü" * (length // 2) + "x" * (length % 2)}
    found = find(env)
    assert len(bytes(found.socket)) <= 103
    assert str(found.socket) == of_the_client.default_socket(env)


@pytest.mark.parametrize("length", [10, 120])
def test_a_home_need_not_be_utf_8(length: int) -> None:
    env = {"HOME": os.fsdecode(b"/home/" + b"\xe9" * length)}
    found = find(env)
    assert bytes(found.data).startswith(b"/home/\xe9")
    assert str(found.socket) == of_the_client.default_socket(env)


def test_two_long_homes_have_two_sockets() -> None:
    one, two = (find({"HOME": f"/home/{'x' * 100}{n}"}).socket for n in (1, 2))
    assert one != two
    assert one.parent.parent == Path("/tmp")
