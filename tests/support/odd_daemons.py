"""Sockets where the daemon's should be, and what is wrong with them."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpointd import places
from ckpt.contract.version import PROTOCOL, __version__
from support.served import environment


@contextmanager
def listening(home: Path, answer: Callable[[socket.socket], None] | None) -> Iterator[dict[str, str]]:
    """A socket where the daemon's should be; `answer` speaks to each client, None: nobody accepts."""
    env = environment(home)
    path = places.find(env).socket
    path.parent.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)
        if answer is not None:
            threading.Thread(target=_serve, args=(server, answer), daemon=True).start()
        yield env
        server.shutdown(socket.SHUT_RDWR)


def _serve(server: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            answer(client)


def replies(*lines: object) -> Callable[[socket.socket], None]:
    def answer(client: socket.socket) -> None:
        with client.makefile("rb") as requests:
            for line in lines:
                if not requests.readline():
                    return
                client.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")

    return answer


def hello(**changed: object) -> dict[str, object]:
    result = {"version": __version__, "protocol": PROTOCOL, "pid": 1, "alarm": None, **changed}
    return {"jsonrpc": "2.0", "id": 1, "result": result}
