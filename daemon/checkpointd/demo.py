"""A show in a scratch directory: a small agent session, its checkpoints, and the work coming back.

There is no demo code path: a real daemon runs in a scratch HOME and reads a log in Claude Code's format, which this
module writes while it does in the project what the log says.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_DEADLINE = 15.0
_FAILURE = (
    "Exit code 1\n"
    "F                                                                        [100%]\n"
    "tests/test_price.py:4: AssertionError: assert 0 == 0.3\n"
    "=========================== short test summary info ============================\n"
    "FAILED tests/test_price.py::test_total - assert 0 == 0.3\n"
    "1 failed in 0.02s\n"
)


class Stage:
    """The scratch HOME, the project in it, the daemon beside it, and the log that the agent would write."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = self.home / "shop"
        self.session = str(uuid.uuid4())
        self._parent: str | None = None
        safe = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(self.project.resolve()))
        self._log = self.home / ".claude/projects" / safe / f"{self.session}.jsonl"
        runtime = folder / "run"
        for path in (self.project / "src", self.project / "tests", self._log.parent, runtime):
            path.mkdir(parents=True)
        runtime.chmod(0o700)
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "GIT_", "CHECKPOINTD_", "CLAUDE"))}
        keep.pop("NOTIFY_SOCKET", None)
        self.env = {**keep, "HOME": str(self.home), "XDG_RUNTIME_DIR": str(runtime), "NO_COLOR": "1"}

    def ckpt(self, *args: str) -> str:
        """What `ckpt ARGS` prints in the project. Raises CalledProcessError."""
        done = subprocess.run(
            [sys.executable, "-m", "ckpt.cli", *args], cwd=self.project, env=self.env, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"`ckpt {' '.join(args)}` failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def rows(self) -> list[dict[str, Any]]:
        rows = json.loads(self.ckpt("list", "--json", "-n", "50"))["checkpoints"]
        return list(rows)

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """The first true value of `condition`. Raises RuntimeError after the deadline."""
        end = time.monotonic() + _DEADLINE
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(0.05)
        raise RuntimeError(f"{what} did not appear within {_DEADLINE:.0f} s")

    def checkpoint(self, trigger: str) -> dict[str, Any]:
        """Waits for a checkpoint of that trigger."""
        found = self.wait(
            lambda: next((r for r in self.rows() if r["trigger"] == trigger), None), f"a {trigger} checkpoint"
        )
        return dict(found)

    def captured(self) -> None:
        """Waits until every change so far is in the vault."""

        def clean() -> bool:
            projects = json.loads(self.ckpt("status", "--json"))["projects"]
            return bool(projects) and all(p["dirty"] == 0 and p["last_capture"] for p in projects)

        self.wait(clean, "a capture of the last change")

    # -- the agent ----------------------------------------------------------------------------

    def _record(self, kind: str, message: dict[str, Any], **more: Any) -> None:
        identity = str(uuid.uuid4())
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = {
            "parentUuid": self._parent, "isSidechain": False, "type": kind, "message": message, "uuid": identity,
            "timestamp": now, "userType": "external", "entrypoint": "cli", "cwd": str(self.project),
            "sessionId": self.session, "version": "2.1.0", "gitBranch": "main", **more,
        }  # fmt: skip
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(record, separators=(",", ":")) + "\n")
        self._parent = identity

    def says(self, text: str) -> None:
        """The user speaks."""
        self._record("user", {"role": "user", "content": text}, permissionMode="default")

    def calls(self, tool: str, given: dict[str, Any]) -> str:
        """The agent calls a tool; returns the call's id."""
        call = f"toolu_{uuid.uuid4().hex[:20]}"
        block = {"type": "tool_use", "id": call, "name": tool, "input": given}
        self._record("assistant", {
            "id": f"msg_{uuid.uuid4().hex[:20]}", "type": "message", "role": "assistant", "model": "demo",
            "content": [block], "stop_reason": "tool_use", "usage": {"input_tokens": 10, "output_tokens": 5},
        })  # fmt: skip
        return call

    def gets(self, call: str, text: str, *, failed: bool = False) -> None:
        """The tool answers."""
        block = {"tool_use_id": call, "type": "tool_result", "content": text, "is_error": failed}
        result: Any = f"Error: {text}" if failed else {"stdout": text, "stderr": "", "interrupted": False}
        self._record("user", {"role": "user", "content": [block]}, toolUseResult=result)

    def answers(self, text: str) -> None:
        """The agent finishes its answer."""
        self._record("assistant", {
            "id": f"msg_{uuid.uuid4().hex[:20]}", "type": "message", "role": "assistant", "model": "demo",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 10, "output_tokens": 5},
        })  # fmt: skip

    def writes(self, name: str, text: str) -> None:
        """The agent writes a file, in the log and in the project."""
        call = self.calls("Write", {"file_path": str(self.project / name), "content": text})
        (self.project / name).write_text(text, encoding="utf-8")
        self.gets(call, f"File created successfully at: {self.project / name}")


def _git(stage: Stage, *args: str) -> None:
    identity = ["-c", "user.name=Demo", "-c", "user.email=demo@example.com", "-c", "core.hooksPath=/dev/null"]
    subprocess.run(["git", *identity, *args], cwd=stage.project, env=stage.env, check=True, stdin=subprocess.DEVNULL,
                   capture_output=True)  # fmt: skip


def _say(text: str) -> None:
    print(text, flush=True)


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.rstrip().splitlines())


def main() -> int:
    """Plays the show; returns 0 when the work came back."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ckpt-demo-"))
    stage = Stage(folder)
    pid = 0
    try:
        _say(f"A scratch home in {folder} (removed at the end). Your own files and checkpoints are not touched.\n")
        (stage.project / "README.md").write_text("# Shop\n", encoding="utf-8")
        _git(stage, "init", "-q", "-b", "main")
        _git(stage, "add", "-A")
        _git(stage, "commit", "-q", "-m", "Start")
        stage.ckpt("up")
        pid = int(json.loads(stage.ckpt("status", "--json"))["daemon"]["pid"])
        return _play(stage, began)
    except (RuntimeError, OSError, subprocess.CalledProcessError, KeyError, ValueError) as error:
        print(f"ckpt demo: {error}\nhint: the daemon's log is kept below {folder}", file=sys.stderr)
        return 1
    finally:
        if pid:
            try:
                stage.ckpt("down")
            except RuntimeError:
                os.kill(pid, signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)


def _play(stage: Stage, began: float) -> int:
    _say("An agent starts to work: it writes a module and its test.")
    stage.says("Fix the rounding bug in src/price.py so that the tests pass.")
    stage.checkpoint("baseline")
    stage.writes("src/price.py", "def total(prices):\n    return int(sum(prices))\n")
    stage.writes(
        "tests/test_price.py",
        "from src.price import total\n\n\ndef test_total():\n    assert total([0.1, 0.2]) == 0.3\n",
    )

    _say("It runs the tests, and they fail three times in the same way.")
    for attempt in range(3):
        call = stage.calls("Bash", {"command": "python -m pytest -q tests/test_price.py"})
        stage.gets(call, _FAILURE, failed=True)
        if attempt < 2:
            stage.writes("src/price.py", f"def total(prices):\n    return int(sum(prices))  # attempt {attempt + 2}\n")
    failure = stage.checkpoint("repeated-failure")
    _say(f"  -> checkpoint {failure['id']}: {failure['title']}")
    stage.captured()

    _say("It decides to start over: rm -rf src")
    kept = (stage.project / "src/price.py").read_bytes()
    call = stage.calls("Bash", {"command": "rm -rf src"})
    shutil.rmtree(stage.project / "src")
    stage.gets(call, "(Bash completed with no output)")
    before = stage.checkpoint("pre-destructive")
    _say(f"  -> checkpoint {before['id']}: the files from before it\n")
    stage.answers("I removed the source folder.")

    _say("$ ckpt list")
    stage.wait(lambda: any("turn" in (r["trigger"], *r.get("also", ())) for r in stage.rows()), "a turn checkpoint")
    _say(_indented(stage.ckpt("list")))
    _say(f"$ ckpt restore {before['id']} src --yes")
    _say(_indented(stage.ckpt("restore", before["id"], "src", "--yes")))
    back = (stage.project / "src/price.py").read_bytes()
    if back != kept:
        raise RuntimeError("src/price.py is not what it was")
    _say(f"src/price.py is back, byte for byte ({len(back)} bytes), {time.monotonic() - began:.1f} s after the start.")
    return 0
