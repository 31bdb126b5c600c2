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
        self._ready: socket.socket | None = None

    def start(self, deadline: float = 20.0) -> "Daemon":
        address = self.home.runtime / "notify"
        address.unlink(missing_ok=True)
        self._ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ready.bind(str(address))
        self._ready.settimeout(deadline)
        env = {**self.home.env, "NOTIFY_SOCKET": str(address)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "checkpointd", "run"],
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

    def wait_for(self, condition: Callable[[], Any], what: str, deadline: float = 15.0) -> Any:
        """The first true value of `condition`, asked again until the deadline. Fails with the daemon's log."""
        end = time.monotonic() + deadline
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                log = self.home.log.read_text()[-3000:] if self.home.log.exists() else ""
                raise AssertionError(f"not seen within {deadline} s: {what}\n{log}")
            time.sleep(0.05)
