"""Finding what differs between a work tree and its last capture, with git children doing the walk."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from checkpointd.vault.ledger import Ledger
from checkpointd.vault.limits import DEFAULT_FOLDERS
from checkpointd.vault.passes import MODE_GITLINK
from checkpointd.vault.repository import Repository
from checkpointd.vault.run import GitFailed
from checkpointd.vault.state import State
from checkpointd.vault.store import Vault
from checkpointd.vault.zones import Others, Tracked, Zone, above, home_of

_CHILDREN = 3  # at once
_CLOSED = ("ignored", "default-folder", "config", "nested", "over-budget", "name")  # folders that are not walked again
_STEADY = ("ignored", "default-folder", "config", "nested", "name", "secret", "outside-sparse")


def ignored_folders(vault: Vault, top: Path, found: Repository | None) -> set[bytes]:
    """The folders of a work tree that are left out as a whole: not worth watching. Raises GitError."""
    with tempfile.TemporaryDirectory(prefix="look-", dir=vault.path.parent) as folder:
        zone = Zone(b"", top, found, Path(folder), home_of(os.environ), lambda: False)
        zone.lay_out()
        return zone.ignored_folders(DEFAULT_FOLDERS)


class Looked(Struct):
    """What git said about one zone. `tracked` is None where the same paths are tracked as before."""

    zone: Zone
    others: Others
    stale: list[bytes]
    stamp: tuple[int, ...] | None
    digest: bytes
    tracked: list[Tracked] | None


def look(zones: Iterable[Zone]) -> list[Looked]:
    """Asks git about every zone, some children at a time."""
    with ThreadPoolExecutor(_CHILDREN, thread_name_prefix="scan") as pool:
        asked = [_ask(pool, zone) for zone in zones]
        return [answer() for answer in asked]


def _ask(pool: ThreadPoolExecutor, zone: Zone) -> Callable[[], Looked]:
    stamp = zone.stamp()
    others, stale = pool.submit(zone.look, users_index=False), pool.submit(_stale, zone)
    tracked = pool.submit(_tracked, zone) if stamp != zone.index_stamp else None

    def answer() -> Looked:
        digest, listed = tracked.result() if tracked is not None else (zone.tracked_digest, None)
        return Looked(zone, others.result(), stale.result(), stamp, digest, listed)

    return answer


def _tracked(zone: Zone) -> tuple[bytes, list[Tracked] | None]:
    digest = zone.listing_digest()
    return digest, None if digest == zone.tracked_digest else list(zone.tracked())


def _stale(zone: Zone) -> list[bytes]:
    try:
        return zone.stale()
    except GitFailed:  # our index is damaged: every file is looked at
        return list(zone.index.paths())


def suspects_in(looked: Looked, ledger: Ledger) -> Iterator[bytes]:
    """The paths of the work tree that may differ from the last capture, going by what git said."""
    zone, names = looked.zone, looked.others.names
    yield from (above(zone, path) for path in looked.stale)
    yield from (above(zone, name.rstrip(b"/")) for name in names ^ zone.others)
    for name in names & zone.others:
        if name.endswith(b"/"):
            path = above(zone, name.rstrip(b"/"))
            skip = ledger.skips.get(path)
            # Nothing captured is in it, but no rule leaves it out as a whole: something may have been added.
            if skip is None or skip.reason not in _CLOSED:
                yield path


def unsteady(ledger: Ledger) -> Iterator[bytes]:
    """What may change without git noticing: empty folders, and what was left out for its size, its kind, or how it was
    read."""
    yield from ledger.empty
    yield from (path for path, skip in ledger.skips.items() if skip.reason not in _STEADY and not skip.folder)


def newly_tracked(looked: Looked, state: State) -> tuple[list[bytes], list[bytes]]:
    """Tracked paths that are not captured: those that may be on the disk, and those outside a sparse checkout."""
    zone = looked.zone
    present: list[bytes] = []
    absent: list[bytes] = []
    captured = set(zone.index.paths())
    for entry in looked.tracked or ():
        path = above(zone, entry.path)
        if entry.path in captured or state.fresh.get(path) is not None or entry.mode == MODE_GITLINK:
            continue
        (absent if entry.absent else present).append(path)
    return present, absent


def note_sparse(ledger: Ledger, zone: Zone, absent: list[bytes], present: Iterable[bytes]) -> None:
    """Notes what a sparse checkout leaves out, folded to the highest folders that are out as a whole."""
    prefix = zone.prefix + b"/" if zone.prefix else b""
    for path in [path for path, skip in ledger.skips.items() if skip.reason == "outside-sparse"]:
        if path.startswith(prefix):
            ledger.unskip(path)
    if not absent:
        return
    inside: set[bytes] = set()
    for path in present:
        folder = path.rpartition(b"/")[0]
        while folder and folder not in inside:
            inside.add(folder)
            folder = folder.rpartition(b"/")[0]
    for path in absent:
        end = len(prefix) - 1
        while (end := path.find(b"/", end + 1)) > 0 and path[:end] in inside:
            pass
        ledger.skip(path if end < 0 else path[:end], "outside-sparse", folder=end > 0)


def note_unopened(ledger: Ledger, zone: Zone, others: Others) -> None:
    """Notes the folders that git could not enter: too deep, or not readable."""
    for name, why in others.unopened.items():
        path = above(zone, name)
        if b"ermission" in why:
            ledger.skip(path, "unreadable", why.decode("utf-8", "replace"), folder=True)
        else:
            ledger.unobserved.add(path)
