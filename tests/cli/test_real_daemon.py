"""What a person sees of a real daemon: transcripts, and the demo."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from support import repositories, transcripts
from support.daemons import Daemon
from support.homes import Home
from support.playing import Claude

_TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts" / "daemon").glob("*.txt"))
_SESSION = "0f3e1a2b-77aa-4c1d-9e1f-000000000001"


class Terminal:
    """Runs what a transcript has: `ckpt`, `play` (an agent has its first turn), and any shell command."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.repo = repositories.make(daemon.home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n"})

    def run(self, command: list[str]) -> "subprocess.CompletedProcess[str]":
        if command == ["play"]:
            return self._play()
        if command[0] == "ckpt":
            command = [sys.executable, "-m", "ckpt.cli", *command[1:]]
        return subprocess.run(
            command, env=self.daemon.home.env, cwd=self.repo, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    def _play(self) -> "subprocess.CompletedProcess[str]":
        agent = Claude(self.daemon.home.path, self.repo, _SESSION)
        agent.says("make it two")
        self.daemon.checkpoint(self.repo, "baseline", _SESSION)
        agent.writes("a.py", "a = 2\n")
        agent.fails_tests()
        self.daemon.checkpoint(self.repo, "repeated-failure", _SESSION)
        agent.writes("a.py", "a = 2.0\n")
        agent.answers("It is two.")
        self.daemon.checkpoint(self.repo, "turn", _SESSION)
        return subprocess.CompletedProcess(["play"], 0, "", "")


@pytest.mark.parametrize("transcript", _TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript_of_a_real_daemon(daemon: Daemon, transcript: Path) -> None:
    transcripts.play(transcript, Terminal(daemon).run)


def test_the_demo_shows_work_coming_back_and_leaves_nothing(home: Home) -> None:
    began = time.monotonic()
    done = Daemon(home).ckpt("demo")
    assert time.monotonic() - began < 20
    for told in ("repeated-failure", "pre-destructive", "is back, byte for byte"):
        assert told in done
    folder = next(word for word in done.split() if "ckpt-demo-" in word)
    assert not os.path.exists(folder)
    assert not [p for p in psutil.process_iter(["cmdline"]) if any(folder in a for a in p.info["cmdline"] or ())]
    assert not home.data.exists()
