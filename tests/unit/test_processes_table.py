"""Which processes are agents, and who started whom."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from checkpointd.processes.programs import agent_of
from checkpointd.processes.table import (
    agent_ancestor,
    agent_processes,
    ancestors,
    boot_id,
    self_usage,
    start_time,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process that says when it runs and ends with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str | Path, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [str(argument) for argument in arguments], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A shell under an agent's name: the process is called as the file is."""
    agent = tmp_path / "bin" / "opencode"
    agent.parent.mkdir()
    shutil.copy(os.path.realpath("/bin/sh"), agent)
    return agent


@pytest.mark.parametrize(
    ("comm", "cmdline", "agent"),
    [
        ("claude", ["/home/u/.local/bin/claude", "--resume"], "claude"),
        ("node", ["node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"], "claude"),
        ("node", ["/usr/bin/node", "--no-warnings", "/opt/node_modules/@openai/codex/bin/codex.js"], "codex"),
        ("codex", ["/x/codex", "app-server"], "codex"),
        ("node", ["node", "--max-old-space-size=8192", "/usr/bin/gemini"], "gemini"),
        ("node", ["node", "/x/lib/node_modules/@qwen-code/qwen-code/cli.js"], "qwen"),
        ("MainThread", ["/usr/local/bin/copilot", "-p", "x"], "copilot"),
        ("pi", ["pi"], "pi"),
        ("python3.11", ["/usr/bin/python3.11", "/home/u/.local/bin/aider"], "aider"),
        ("node", ["node", "/src/claude-code/server.js"], None),
        ("node", ["node", "server.js", "claude"], None),
        ("node", ["node"], None),
        ("vim", ["vim", "codex"], None),
        ("bash", [], None),
    ],
)
def test_an_agent_is_told_by_name_program_or_script(comm: str, cmdline: list[str], agent: str | None) -> None:
    assert agent_of(comm, cmdline) == agent


@linux
def test_a_running_agent_is_found_with_its_folder(start: Start, shell: Path, tmp_path: Path) -> None:
    process = start(shell, "-c", "echo runs; read line", cwd=tmp_path)
    found = {agent.pid: agent for agent in agent_processes()}[process.pid]
    assert (found.agent, found.comm, found.cwd) == ("opencode", "opencode", str(tmp_path))
    assert found.started == start_time(process.pid)
    assert found.cmdline[0] == str(shell)


@linux
def test_processes_that_may_not_be_looked_at_are_passed_over(
    start: Start, shell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(shell, "-c", "echo runs; read line")

    def denied(self: psutil.Process) -> str:
        raise psutil.AccessDenied(self.pid)

    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "cwd", denied)
        assert [agent.cwd for agent in agent_processes() if agent.pid == process.pid] == [None]
    monkeypatch.setattr(psutil.Process, "cmdline", denied)
    assert process.pid not in {agent.pid for agent in agent_processes()}
    assert agent_ancestor(process.pid) == "opencode"


@linux
def test_the_line_of_parents_leads_to_the_agent(start: Start, shell: Path) -> None:
    # Three generations; the last is no agent itself.
    process = start(shell, "-c", "/bin/sh -c '/bin/sh -c \"echo runs; read line; :\"; :'; :")
    last = psutil.Process(process.pid).children(recursive=True)[-1].pid
    assert ancestors(last)[0].pid == last
    assert process.pid in {each.pid for each in ancestors(last)}
    assert os.getpid() in {each.pid for each in ancestors(last)}
    assert agent_ancestor(last) == "opencode"
    assert agent_ancestor(last, {"other": "other"}) is None


def test_nothing_is_known_of_a_process_that_is_not_there() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert start_time(process.pid) is None
    assert ancestors(process.pid) == []
    assert agent_ancestor(process.pid) is None
    assert ancestors(0) == []


@linux
def test_a_zombie_has_ended(start: Start) -> None:
    process = start("/bin/sh", "-c", "echo runs; read line")
    assert start_time(process.pid) is not None
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert start_time(process.pid) is None


@linux
def test_a_name_with_parentheses_does_not_confuse(start: Start, tmp_path: Path) -> None:
    odd = tmp_path / "a) Z 1 (b"
    shutil.copy(os.path.realpath("/bin/sh"), odd)
    process = start(odd, "-c", "echo runs; read line")
    ticks = start_time(process.pid)
    assert ticks is not None
    expected = psutil.Process(process.pid).create_time() - psutil.boot_time()
    assert abs(ticks / os.sysconf("SC_CLK_TCK") - expected) < 2


def test_the_boot_id_stays_the_same() -> None:
    assert boot_id() == boot_id() != ""


def test_our_own_usage_is_measured() -> None:
    usage = self_usage()
    assert usage.rss > 1 << 20
    assert usage.cpu > 0
    assert usage.descriptors > 2
    assert usage.threads >= 1
