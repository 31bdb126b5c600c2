"""Real agents work, the daemon notices by itself, lost work comes back, nothing else changes."""

import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from support import repositories, rig
from support.daemons import Daemon
from support.homes import Home

pytestmark = pytest.mark.agents

SCENARIOS = Path(__file__).parent / "scenarios"


@functools.cache
def undisturbed(agent: str, scenario: str, *extra: str) -> dict[str, object]:
    """The state of the repository after the same run without a daemon."""
    folder = Path(tempfile.mkdtemp(prefix="ckp-alone-"))
    home = Home(folder / "home")
    try:
        repo = home.path / "project"
        rig.play(agent, scenario, home, repo, *extra)
        return repositories.state(repo)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(home.runtime, ignore_errors=True)


class Played:
    """One run beside a daemon, with what the daemon made of it."""

    def __init__(self, daemon: Daemon, agent: str, scenario: str, *extra: str) -> None:
        rig.needs_agent(agent)
        self.daemon = daemon
        self.repo = daemon.home.path / "project"
        self.summary = rig.play(agent, scenario, daemon.home, self.repo, *extra)
        self.ended = daemon.wait_for(self._end, f"a session-end checkpoint of {agent} {scenario}", 20)
        self.rows = daemon.checkpoints(self.repo, "-n", "100")
        assert repositories.state(self.repo) == undisturbed(agent, scenario, *extra)
        # The rig ends what its own tmux and Codex's daemon leave.
        left = [process for process in self.summary["left_running"] if not process.startswith("tmux ")]
        assert left == [] or agent == "codex"
        assert children_of(daemon.pid) == []

    def _end(self) -> dict[str, Any] | None:
        rows = self.daemon.checkpoints(self.repo, "-n", "100") if self.repo.exists() else []
        return next((r for r in rows if "session-end" in (r["trigger"], *r.get("also", ()))), None)

    def having(self, trigger: str) -> list[dict[str, Any]]:
        """Checkpoints with that trigger, named by it or among `also`; oldest first."""
        found = []
        for row in reversed(self.rows):
            record = self.daemon.json("show", row["id"], cwd=self.repo)["checkpoint"]
            if trigger in (record["trigger"], *record.get("also", ())):
                found.append(record)
        return found

    def files(self, checkpoint: str, folder: Path) -> dict[str, bytes]:
        """What the checkpoint holds, restored beside the project."""
        self.daemon.ckpt("restore", checkpoint, "--to", str(folder), "--yes", cwd=self.repo)
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def children_of(pid: int) -> list[str]:
    """Processes that the daemon left: git children come and go, so they are waited for."""
    children = psutil.Process(pid).children(recursive=True)
    _, alive = psutil.wait_procs(children, timeout=10)
    return [" ".join(p.cmdline()) for p in alive]


# CHECKPOINTD_E2E_RUNS=20 plays it twenty times with each agent: every one must pass.
@pytest.mark.parametrize("run", range(int(os.environ.get("CHECKPOINTD_E2E_RUNS", "1"))))
@pytest.mark.parametrize("agent", ["claude", "pi"])
def test_what_rm_rf_destroyed_comes_back(daemon: Daemon, agent: str, run: int, tmp_path: Path) -> None:
    played = Played(daemon, agent, "destructive", "--delay", "0.5")
    before = played.having("pre-destructive")
    assert before, played.rows
    assert all(r["taken"] in ("before", "rolling") for r in before), before
    files = played.files(before[0]["id"], tmp_path / "out")
    assert files["src/app.py"] == b'print("hello")\n'
    assert "src/__init__.py" in files
    assert not (played.repo / "src/app.py").exists()
    daemon.ckpt("restore", before[0]["id"], "--yes", cwd=played.repo)
    assert (played.repo / "src/app.py").read_bytes() == b'print("hello")\n'
    daemon.ckpt("undo", "--yes", cwd=played.repo)
    assert not (played.repo / "src/app.py").exists()


def test_codex_tree_from_before_reset_and_clean_comes_back(daemon: Daemon, tmp_path: Path) -> None:
    played = Played(daemon, "codex", "destructive", "--delay", "0.5")
    before = played.having("pre-destructive")
    assert before, played.rows
    assert any(played.files(r["id"], tmp_path / r["id"]).get("src/app.py") == b'print("hello")\n' for r in before)
    assert all("rm -rf" not in r["reason"] for r in before), "Codex refused rm -rf: nothing was destroyed"


@pytest.mark.parametrize("agent", ["claude", "pi", "codex"])
def test_the_same_failure_three_times_makes_one_checkpoint(daemon: Daemon, agent: str) -> None:
    played = Played(daemon, agent, str(SCENARIOS / "same-failure.json"), "--delay", "0.3")
    failures = played.having("repeated-failure")
    assert len(failures) == 1, [(r["trigger"], r["title"]) for r in played.rows]
    assert "pytest" in failures[0]["reason"]
    assert "3 times" in failures[0]["reason"]
    assert len(played.having("baseline")) == 1


def test_failures_that_differ_each_time_are_no_circle(daemon: Daemon) -> None:
    """The rig's failing-tests fails with other values after each attempt: that is progress, or at least change."""
    played = Played(daemon, "claude", "failing-tests", "--delay", "0.3")
    assert played.having("repeated-failure") == []
    tests = played.having("session-end")[0]["tests"]
    assert [(t["gate"], t["colour"]) for t in tests] == [("pytest", "red")]


@pytest.mark.parametrize("agent", ["claude", "pi", "codex"])
def test_an_interactive_session_has_baseline_turn_and_end(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    played = Played(daemon, agent, "feature", "--interactive", "--delay", "0.5", "--linger", "6")
    assert len(played.having("baseline")) == 1
    turns = played.having("turn")
    assert turns and turns[0]["trigger"] == "turn", "the answer's end and the session's end are seconds apart"
    assert "src/slugify.py" in played.files(turns[0]["id"], tmp_path / "turn")
    end = played.having("session-end")
    assert len(end) == 1
    assert "src/slugify.py" in played.files(end[0]["id"], tmp_path / "out")


@pytest.mark.parametrize(("agent", "extra"), [("claude", ()), ("pi", ()), ("claude", ("--interactive",))])
def test_kill_9_ends_the_session_with_a_checkpoint(
    daemon: Daemon, agent: str, extra: tuple[str, ...], tmp_path: Path
) -> None:
    played = Played(daemon, agent, "feature", "--kill-at", "4", "--delay", "0.5", *extra)
    assert played.summary["ended"] == "killed"
    end = played.having("session-end")
    assert len(end) == 1
    assert "src/slugify.py" in played.files(end[0]["id"], tmp_path / "out")


def test_codex_code_mode_is_understood(daemon: Daemon, tmp_path: Path) -> None:
    played = Played(daemon, "codex", "feature", "--model", "gpt-6.2-sol", "--delay", "0.3")
    assert "src/slugify.py" in played.files(played.having("session-end")[0]["id"], tmp_path / "out")
    sessions = daemon.json("sessions", cwd=played.repo)["sessions"]
    assert [s["agent"] for s in sessions] == ["codex"]
    assert sessions[0]["turns"] == 1
