"""What `ckpt status` and `ckpt list` cost, beside a Python that does nothing."""

import os
import subprocess
import sys
from pathlib import Path

from bench.daemon import Daemon
from bench.measure import Report
from bench.trees import git
from checkpointd.demo import Stage

_ROUNDS = 20
_BOUND = 4.0
_FORBIDDEN = ("asyncio", "msgspec", "yaml", "rich")


def run(folder: Path, report: Report) -> None:
    """CPU of the child, user and system; best of 20, interleaved."""
    stage = Stage(folder)
    git("init", "-q", cwd=stage.project)
    (stage.project / "README.md").write_text("# Shop\n")
    daemon = Daemon(stage.env, folder / "daemon.log")
    daemon.start()
    try:
        for name in ("one", "two", "three"):
            _cpu(["-m", "ckpt.cli", "save", name], daemon, stage.project)
        _compare(daemon, stage.project, report)
    finally:
        daemon.remove()


def _compare(daemon: Daemon, cwd: Path, report: Report) -> None:
    # What pip's script does, without its file: the same in every installation.
    ckpt = ["-c", "import sys; from ckpt.cli import main; sys.exit(main())"]
    commands = {
        "pass": ["-c", "pass"], "ckpt status": [*ckpt, "status"], "ckpt list": [*ckpt, "list"],
    }  # fmt: skip
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(_ROUNDS):
        for name, args in commands.items():
            best[name] = min(best[name], _cpu(args, daemon, cwd))
    for name, seconds in best.items():
        report.say(f"{'python -c pass' if name == 'pass' else name:<16} CPU best {seconds * 1e3:6.2f} ms   n={_ROUNDS}")
    for name in ("ckpt status", "ckpt list"):
        ratio = best[name] / best["pass"]
        report.number(f"CPU of `{name}` against `python -c pass`", f"{ratio:.2f} x", "at most 4 x", ratio <= _BOUND)
        report.floor(f"`{name}` takes more than 8 times the CPU of `python -c pass`", holds=ratio < 8)
        loaded = _imports(commands[name], daemon, cwd)
        report.floor(f"`{name}` imports {loaded}", holds=not loaded)


def _cpu(args: list[str], daemon: Daemon, cwd: Path) -> float:
    child = subprocess.Popen(
        [sys.executable, *args], env=daemon.env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise RuntimeError(f"{args[-1]}: exit {child.returncode}")
    return usage.ru_utime + usage.ru_stime


def _imports(args: list[str], daemon: Daemon, cwd: Path) -> list[str]:
    """What it must not import, and did."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *args], env=daemon.env, cwd=cwd, capture_output=True, text=True, check=True
    )
    seen = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    return sorted(seen & set(_FORBIDDEN))
