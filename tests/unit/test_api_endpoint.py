"""Lock, socket and discovery file: where clients find the daemon."""

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.api import endpoint
from support.served import private_home


@pytest.fixture
def folder() -> Iterator[Path]:
    with private_home() as home:
        yield home


def test_the_lock_has_one_holder(folder: Path) -> None:
    held = endpoint.acquire_lock(folder / "data" / "lock")
    with pytest.raises(endpoint.AlreadyRunning):
        endpoint.acquire_lock(folder / "data" / "lock")
    os.close(held)
    os.close(endpoint.acquire_lock(folder / "data" / "lock"))


def test_a_pid_in_the_lock_file_means_nothing(folder: Path) -> None:
    (folder / "lock").write_text(f"{os.getppid()}\n")
    os.close(endpoint.acquire_lock(folder / "lock"))


def test_a_dead_daemons_lock_is_free(folder: Path) -> None:
    code = "import os, sys, pathlib; from checkpointd.api import endpoint; " \
           "endpoint.acquire_lock(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"  # fmt: skip
    subprocess.run([sys.executable, "-c", code, str(folder / "lock")], check=False)
    os.close(endpoint.acquire_lock(folder / "lock"))


def test_socket_and_folder_are_for_us_alone(folder: Path) -> None:
    with endpoint.bind(folder / "run" / "socket"):
        assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "run/socket").stat().st_mode) == 0o600
        assert [path.name for path in (folder / "run").iterdir()] == ["socket"]


def test_a_dead_daemons_socket_is_replaced_by_one_that_listens(folder: Path) -> None:
    endpoint.bind(folder / "socket").close()
    (folder / "socke~").write_text("left behind")
    with endpoint.bind(folder / "socket"), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / "socket"))


def test_a_folder_that_others_can_enter_is_refused(folder: Path) -> None:
    (folder / "run").mkdir(mode=0o755)
    with pytest.raises(endpoint.UnsafePlace, match="chmod 700"):
        endpoint.bind(folder / "run" / "socket")


def test_a_link_in_the_folders_place_is_refused(folder: Path) -> None:
    (folder / "elsewhere").mkdir(mode=0o700)
    (folder / "run").symlink_to(folder / "elsewhere")
    with pytest.raises(endpoint.UnsafePlace, match="not a folder"):
        endpoint.bind(folder / "run" / "socket")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a folder away")
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    (folder / "run").mkdir(mode=0o700)
    os.chown(folder / "run", 12345, 12345)
    with pytest.raises(endpoint.UnsafePlace, match="12345"):
        endpoint.bind(folder / "run" / "socket")


def test_the_discovery_file_says_where_and_who(folder: Path) -> None:
    file = folder / "daemon.json"
    endpoint.announce(file, folder / "socket")
    found = json.loads(file.read_text())
    assert found["socket"] == str(folder / "socket")
    assert found["pid"] == os.getpid()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    endpoint.withdraw(file)
    assert not file.exists()


def test_another_daemons_discovery_file_stays(folder: Path) -> None:
    file = folder / "daemon.json"
    endpoint.announce(file, folder / "socket")
    text = file.read_text().replace(f'"pid":{os.getpid()}', '"pid":1')
    file.write_text(text)
    endpoint.withdraw(file)
    assert file.read_text() == text


def test_without_a_service_manager_nothing_is_inherited() -> None:
    assert endpoint.inherited({}) is None
    assert endpoint.inherited({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None


def test_the_service_managers_socket_is_taken(folder: Path) -> None:
    code = (
        "import os, socket, sys; from checkpointd.api import endpoint;"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); os.dup2(s.fileno(), 3);"
        "passed = endpoint.inherited({'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'});"
        "print(passed.getsockname())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "s")], capture_output=True, text=True, check=True, close_fds=True
    )
    assert done.stdout.strip() == str(folder / "s")
