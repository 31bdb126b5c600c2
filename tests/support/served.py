"""A real server on a real socket in a private home, with an engine in memory behind it."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checkpointd import places
from checkpointd.api import endpoint
from checkpointd.api.dispatch import Dispatcher
from checkpointd.api.handlers import Handlers
from checkpointd.api.server import Limits, Server
from ckpt.contract.version import PROTOCOL, __version__
from support.fake_operations import FakeOperations

DEADLINE = 30.0


@contextmanager
def private_home() -> Iterator[Path]:
    """A home of our own with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="ck-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the developer's own: neither home, nor agents, nor terminal."""
    bare = {"HOME": str(home), "PATH": os.environ["PATH"], "TZ": "UTC", "LANG": "C.UTF-8", "PYTHONWARNINGS": "error"}
    return bare | more


class Served:
    """The server while it runs, in a loop of its own thread."""

    def __init__(self, home: Path, *, seconds: float = 20.0, limits: Limits | None = None) -> None:
        self.home = home
        self.env = environment(home)
        self.places = places.find(self.env)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.run(self._start(seconds, limits))

    async def _start(self, seconds: float, limits: Limits | None) -> None:
        self.operations = FakeOperations()
        self.dispatcher = Dispatcher(seconds=seconds)
        Handlers(self.operations).register(self.dispatcher)
        self.server = Server(self.dispatcher, limits)
        self.lock = endpoint.acquire_lock(self.places.lock)
        self.listening = endpoint.bind(self.places.socket)
        await self.server.start(self.listening)
        endpoint.announce(self.places.discovery, self.places.socket)

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE)

    def soon(self, call: Callable[[], object]) -> None:
        """Does something on the loop, where the engine's state lives."""

        async def there() -> None:
            call()

        self.run(there())

    def stop(self, grace: float = 5.0) -> None:
        endpoint.withdraw(self.places.discovery)
        self.places.socket.unlink(missing_ok=True)
        self.run(self.server.close(grace))
        self.run(self._settle())
        os.close(self.lock)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(DEADLINE)
        self.loop.close()

    async def _settle(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    def client(self) -> "Client":
        return Client(self.places.socket)

    def ckpt(self, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        return ckpt(self.env, *arguments, **more)


@contextmanager
def serving(*, seconds: float = 20.0, limits: Limits | None = None) -> Iterator[Served]:
    with private_home() as home:
        served = Served(home, seconds=seconds, limits=limits)
        try:
            yield served
        finally:
            served.stop()


def ckpt(env: dict[str, str], *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    """A real `ckpt`, without a terminal."""
    more = {"cwd": env["HOME"], "stdin": subprocess.DEVNULL, **more}
    return subprocess.run(
        [sys.executable, "-m", "ckpt.cli", *arguments],
        env=env, capture_output=True, text=True, timeout=DEADLINE, check=False, **more,
    )  # fmt: skip


class Client:
    """A client of raw lines, for good and bad manners alike."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # With a timeout set, connecting would not wait for its turn in the server's queue.
        self.socket.connect(str(path))
        self.socket.settimeout(DEADLINE)
        self.file = self.socket.makefile("rb")
        self.number = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Any:
        """The next line's object; None when the server hung up."""
        try:
            line = self.file.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None

    def ask(self, method: str, **params: object) -> Any:
        """One request and its answer; what comes between them is skipped."""
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.send(json.dumps(request).encode() + b"\n")
        while (answer := self.read()) is not None and answer.get("id") != self.number:
            continue
        return answer

    def hello(self, **more: object) -> Any:
        return self.ask("hello", **{"version": __version__, "protocol": PROTOCOL, **more})
