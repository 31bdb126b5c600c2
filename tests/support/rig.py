"""Real coding agents from the rig, offline, in a scratch home."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.homes import Home


def rig_folder() -> Path:
    """The rig's folder, from AGENT_RIG or beside the checkout. Absent: a failure in CI, elsewhere a skip."""
    named = os.environ.get("AGENT_RIG")
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "agent-rig"
    for folder in ([Path(named)] if named else []) + [beside]:
        if (folder / "run_agent.py").exists():
            return folder
    message = "the agent rig is not here: set AGENT_RIG to its folder"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def needs_agent(agent: str) -> None:
    """Fails in CI, skips elsewhere, where the agent is not installed."""
    rig_folder()
    root = Path(os.environ.get("RIG_AGENTS", os.path.expanduser("~/.cache/agent-rig")))
    if not (root / "node" / agent).is_dir():
        message = f"{agent} is not installed: run the rig's install.sh {agent}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


class Run:
    """One agent playing one scenario, started in the background."""

    def __init__(self, agent: str, scenario: str, home: Home, repo: Path, *extra: str) -> None:
        folder = rig_folder()
        env = {**os.environ}
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "run_agent.py"), agent, scenario,
             "--home", str(home.path), "--repo", str(repo), "--offline", *extra],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def finish(self, deadline: float = 180.0) -> dict[str, Any]:
        """The rig's summary. Asserts that the run went as planned."""
        out, err = self.process.communicate(timeout=deadline)
        assert self.process.returncode == 0, f"the rig failed:\n{out.decode()}\n{err.decode()}"
        answer = json.loads(out)
        assert isinstance(answer, dict)
        return answer


def play(agent: str, scenario: str, home: Home, repo: Path, *extra: str) -> dict[str, Any]:
    return Run(agent, scenario, home, repo, *extra).finish()
