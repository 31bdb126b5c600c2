"""A writer to be killed: captures and checkpoints in a loop, telling each one that is finished. Run as a program."""

import random
import sys
from pathlib import Path

from checkpointd.vault import packdir, packs
from checkpointd.vault.eventlog import EventLog
from checkpointd.vault.store import TreeRef, Vault
from support.vaults import WHEN, capture


def files_of(id_: str) -> dict[bytes, bytes]:
    """The files of a checkpoint, known from its id alone."""
    rng = random.Random(id_)
    return {b"%d/%d" % (rng.randrange(4), n): rng.randbytes(rng.randrange(3000)) for n in range(rng.randrange(1, 12))}


def main(folder: Path, seed: str, mode: str) -> None:
    """Writes until it is killed."""
    if mode == "large":  # everything is spooled, and synced where it lies
        packs._SPOOL_ABOVE = packs._FLUSH_ABOVE = 1000
        packdir._COPIED_BELOW = 1000
    vault = Vault.create(folder / "vault.git")
    log = EventLog(folder / "events.jsonl")
    number = 0
    while True:
        id_ = f"ckpt-{seed}-{number:05}"
        tree = TreeRef(capture(vault, files_of(id_)))
        log.append({"event": "save", "id": id_})
        entries = {b"files": tree, b"record.yaml": id_.encode()}
        vault.commit_checkpoint(id_, entries, message=id_, when=WHEN, events=log)
        sys.stdout.write(id_ + "\n")
        sys.stdout.flush()
        number += 1
        if number % 5 == 0:
            vault.prune_rolling()
        if mode == "roll-up" and number % 10 == 0:
            vault.roll_up(full=number % 20 == 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
