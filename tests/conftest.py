"""Fixtures that every suite shares, and the guard that keeps tests away from the real home."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon
from support.homes import Home


@pytest.fixture(scope="session", autouse=True)
def _no_real_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """HOME of the test process itself is a folder that nothing may appear in."""
    trap = tmp_path_factory.mktemp("real-home-trap")
    agents = os.environ.get("RIG_AGENTS", os.path.expanduser("~/.cache/agent-rig"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIG_AGENTS", agents)
        patch.setenv("HOME", str(trap))
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "NOTIFY_SOCKET",
                     "CHECKPOINTD_SOCKET", "CHECKPOINTD_CONFIG"):  # fmt: skip
            patch.delenv(name, raising=False)
        yield
    left = list(trap.rglob("*checkpointd*"))
    assert not left, f"a test wrote into the home of the test process: {left}"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    yield made
    shutil.rmtree(made.runtime, ignore_errors=True)


@pytest.fixture
def asleep(home: Home) -> Iterator[Daemon]:
    """A daemon that the test starts, stops and kills itself; where it runs at the end, it must stop cleanly."""
    made = Daemon(home)
    yield made
    if made.started:
        assert made.stop() == 0, made.stderr[-2000:]
    assert "Traceback" not in made.logged + made.stderr


@pytest.fixture
def daemon(asleep: Daemon) -> Daemon:
    """A running daemon; at the end it must stop cleanly."""
    return asleep.start()
