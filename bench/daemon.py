"""A real daemon in a scratch home."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import until
from ckpt import places
from ckpt.connection import Connection

_STAMPED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) \S+ \S+ (.*)")
_TICKS = os.sysconf("SC_CLK_TCK")


class Daemon:
    """`checkpointd run`, told to log single files, in a home of its own."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self._runtime = Path(tempfile.mkdtemp(prefix="ckb-"))  # short: a socket's path ends at 108 bytes
        self._runtime.chmod(0o700)
        self.env = {**env, "XDG_RUNTIME_DIR": str(self._runtime), "TZ": "UTC"}
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, within: float = 60.0) -> float:
        """Starts it; seconds until it said that it serves."""
        address = self._runtime / "notify"
        address.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(str(address))
            ready.settimeout(0.5)
            begin = time.perf_counter()
            self._child = subprocess.Popen(
                [sys.executable, "-m", "checkpointd", "run", "--debug", "--log", str(self.log)],
                env={**self.env, "NOTIFY_SOCKET": str(address)}, cwd="/", stdin=subprocess.DEVNULL,
            )  # fmt: skip
            while not _said_ready(ready):
                if self._child.poll() is not None or time.perf_counter() - begin > within:
                    raise RuntimeError("the daemon did not get ready")
            return time.perf_counter() - begin

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    def stop(self) -> None:
        """Ends it, and removes its socket's folder."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(timeout=30)
        self._child = None

    def remove(self) -> None:
        """After the last stop."""
        self.stop()
        for left in sorted(self._runtime.rglob("*"), reverse=True):
            left.rmdir() if left.is_dir() else left.unlink()
        self._runtime.rmdir()

    def connect(self) -> Connection:
        """A greeted connection."""
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.connect(str(places.default_socket(self.env)))
        return Connection(channel, self.env, lambda text: None)

    def cpu(self) -> float:
        """Seconds of CPU so far, its threads included."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> int:
        """Bytes resident."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def said(self, since: int = 0) -> Iterator[tuple[float, str]]:
        """When each line of its log was written (to the millisecond), and what it says; from a byte on."""
        with self.log.open("rb") as file:
            file.seek(since)
            for line in file.read().decode("utf-8", "replace").splitlines():
                if found := _STAMPED.match(line):
                    when = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
                    yield when.timestamp(), found[2]

    def hears(self, text: str, since: int, within: float = 30.0) -> float:
        """When the first line after byte `since` that holds `text` was written."""
        found: list[float] = []

        def there() -> bool:
            found.extend(when for when, line in self.said(since) if text in line)
            return bool(found)

        until(there, f"{text!r} in the daemon's log", within=within, every=0.01)
        return found[0]


def _said_ready(ready: socket.socket) -> bool:
    try:
        return ready.recv(256).startswith(b"READY=1")
    except TimeoutError:
        return False
