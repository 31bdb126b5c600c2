"""`checkpointd run` with an engine in memory: the real lock, socket, server and end, and faults on demand.

STAND_IN=crash: fails before it serves; STAND_IN=wedge: serves, then stands still; STAND_IN=child: prints its arguments.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

_STAND_IN = Path(__file__).parents[1]
sys.path[:] = [str(_STAND_IN.parents[1]), *(entry for entry in sys.path if entry != str(_STAND_IN))]
for _name in [name for name in sys.modules if name.partition(".")[0] == "checkpointd"]:
    del sys.modules[_name]

from checkpointd import places  # noqa: E402 - the real package is importable only now
from checkpointd.api import endpoint  # noqa: E402
from checkpointd.api.dispatch import Dispatcher  # noqa: E402
from checkpointd.api.handlers import Handlers  # noqa: E402
from checkpointd.api.server import Server  # noqa: E402
from support.fake_operations import FakeOperations  # noqa: E402


async def _serve(found: places.Places) -> None:
    operations = FakeOperations()
    dispatcher = Dispatcher()
    Handlers(operations).register(dispatcher)
    server = Server(dispatcher)
    listening = endpoint.bind(found.socket)
    await server.start(listening)
    endpoint.announce(found.discovery, found.socket)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, operations.stopping.set)
    if os.environ.get("STAND_IN") == "wedge" and not found.data.joinpath("wedged").exists():
        # Once: the one that `ckpt restart` starts in its place serves.
        asyncio.get_running_loop().call_later(0.3, _stand_still, found.data / "wedged")
    await operations.stopping.wait()
    await server.close()
    endpoint.withdraw(found.discovery)
    endpoint.remove(found.socket, listening)


def _stand_still(mark: Path) -> None:
    mark.touch()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(120)


def main() -> int:
    if os.environ.get("STAND_IN") == "child":
        sys.stdout.write(f"checkpointd {' '.join(sys.argv[1:])}\n")
        return 0
    found = places.find(os.environ)
    if os.environ.get("STAND_IN") == "crash":
        sys.stderr.write("the catalog cannot be opened\n")
        return 1
    try:
        lock = endpoint.acquire_lock(found.lock)
    except endpoint.AlreadyRunning as error:
        sys.stderr.write(f"not started: {error}\n")
        return 1
    asyncio.run(_serve(found))
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
