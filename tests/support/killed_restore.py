"""A restore that kills its own process after so many paths: `python killed_restore.py BASE STEPS`, from tests only."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from checkpointd.model.capture import Captured
from checkpointd.vault.materialise import OpenTree
from support.restoring import World


def main(base: Path, steps: int) -> None:
    left = [steps]
    write, remove = OpenTree.write, OpenTree.remove

    def counting(original: Any) -> Any:
        def call(*args: Any) -> None:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            original(*args)

        return call

    OpenTree.write, OpenTree.remove = counting(write), counting(remove)  # type: ignore[method-assign]
    target = msgspec.json.decode((base / "target.json").read_bytes(), type=Captured)
    World(base).restore(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
