"""A real checkpointd in a scratch home, and the real ckpt beside it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.homes import Home


class Daemon:
    """`checkpointd run` as a child; ready when it says READY=1."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None
        self.prefix: tuple[str, ...] = ()  # a command that starts it, such as one that takes rights away
        self._ready: socket.socket | None = None

    @property
    def logged(self) -> str:
        """What it wrote into its log."""
        return self.home.log.read_text(errors="replace") if self.home.log.exists() else ""

    def start(self, deadline: float = 20.0) -> "Daemon":
        address = self.home.runtime / "notify"
        address.unlink(missing_ok=True)
        self._ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ready.bind(str(address))
        self._ready.settimeout(deadline)
        env = {**self.home.env, "NOTIFY_SOCKET": str(address)}
        self.process = subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "checkpointd", "run", "--log", str(self.home.log)],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            while not self._ready.recv(256).startswith(b"READY=1"):
                pass
        except TimeoutError:
            self.kill()
            raise AssertionError(f"the daemon did not get ready: {self.stderr[-2000:]}") from None
        return self

    stderr: str = ""

    @property
    def started(self) -> bool:
        """Whether it was started, and neither stopped nor killed by the test since."""
        return self._ready is not None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def stop(self, deadline: float = 20.0) -> int:
        """Asks it to end (SIGTERM) and returns its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        return self._collect(deadline)

    def kill(self) -> None:
        """kill -9, as a power cut would."""
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self._collect(10.0)

    def _collect(self, deadline: float) -> int:
        assert self.process is not None
        try:
            _, err = self.process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, err = self.process.communicate()
            raise AssertionError(f"the daemon did not end in {deadline} s: {err.decode()[-2000:]}") from None
        finally:
            if self._ready is not None:
                self._ready.close()
                self._ready = None
        self.stderr += err.decode(errors="replace")
        return self.process.returncode

    def ckpt(self, *args: str, cwd: Path | None = None, code: int | None = 0, text: str | None = None) -> str:
        """What `ckpt ARGS` prints; asserts its exit status unless `code` is None."""
        done = subprocess.run(
            [sys.executable, "-m", "ckpt.cli", *args],
            env=self.home.env,
            cwd=cwd or self.home.path,
            capture_output=True,
            text=True,
            input=text,
            timeout=120,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, (
                f"ckpt {' '.join(args)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        self.last_stderr = done.stderr
        self.last_code = done.returncode
        return done.stdout

    last_stderr = ""
    last_code = 0

    def json(self, *args: str, cwd: Path | None = None, code: int | None = 0) -> dict[str, Any]:
        answer = json.loads(self.ckpt(*args, "--json", cwd=cwd, code=code))
        assert isinstance(answer, dict)
        return answer

    def checkpoints(self, cwd: Path, *args: str) -> list[dict[str, Any]]:
        """`ckpt list --json`, newest first."""
        rows = self.json("list", *args, cwd=cwd)["checkpoints"]
        assert isinstance(rows, list)
        return rows

    def with_trigger(self, cwd: Path, trigger: str, *args: str) -> list[dict[str, Any]]:
        """The records that a trigger made or had a part in, newest first."""
        rows = self.checkpoints(cwd, "--trigger", trigger, "-n", "100", *args)
        return [self.record(row["id"], cwd) for row in rows]

    def record(self, checkpoint: str, cwd: Path) -> dict[str, Any]:
        record = self.json("show", checkpoint, cwd=cwd)["checkpoint"]
        assert isinstance(record, dict)
        return record

    def checkpoint(self, cwd: Path, trigger: str, session: str | None = None, *, count: int = 1) -> dict[str, Any]:
        """The newest record with that trigger (of that session), as soon as there are `count`."""
        which = ("--session", session) if session else ()

        def found() -> list[dict[str, Any]]:
            shown = self.ckpt("list", "--trigger", trigger, "-n", "100", *which, "--json", cwd=cwd, code=None)
            if self.last_code == 3:  # nobody knows the session yet
                return []
            assert self.last_code == 0, self.last_stderr
            rows: list[dict[str, Any]] = json.loads(shown)["checkpoints"]
            return rows if len(rows) >= count else []

        rows = self.wait_for(found, f"{count} {trigger} of {session or 'anybody'} in {cwd}")
        return self.record(rows[0]["id"], cwd)

    def captured(self, cwd: Path) -> None:
        """Returns when every change so far is in the vault; makes no record. Some checkpoint has to be there."""
        self.ckpt("diff", "@", cwd=cwd)

    def content(self, checkpoint: str, path: str, cwd: Path) -> str | None:
        """What a checkpoint holds of a file; None where it has no such file."""
        shown = self.ckpt("show", checkpoint, "--file", path, cwd=cwd, code=None)
        assert self.last_code in (0, 3), self.last_stderr
        return shown if self.last_code == 0 else None

    def wait_for(self, condition: Callable[[], Any], what: str, deadline: float = 15.0) -> Any:
        """The first true value of `condition`, asked again until the deadline. Fails with the daemon's log."""
        end = time.monotonic() + deadline
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not seen within {deadline} s: {what}\n{self.logged[-3000:]}")
            time.sleep(0.05)
