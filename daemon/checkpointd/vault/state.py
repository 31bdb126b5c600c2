"""What a work tree was at its last capture: in memory, and as much of it on the disk as a restart needs."""

from collections.abc import Iterator, Mapping

from checkpointd.model import modes
from checkpointd.model.capture import Captured
from checkpointd.vault import disk, index
from checkpointd.vault.editing import Leaf, TreeEditor
from checkpointd.vault.errors import StoreError
from checkpointd.vault.index import Entry, Head, StatIndex, pack_entry
from checkpointd.vault.ledger import Ledger
from checkpointd.vault.store import Vault
from checkpointd.vault.zones import Zone, above, below


class State:
    """The last capture of a work tree."""

    def __init__(self, zone: Zone) -> None:
        self.tree = b""  # its id; empty: none yet
        self.ledger = Ledger()
        self.zones: dict[bytes, Zone] = {b"": zone}
        self.fresh: dict[bytes, Head | None] = {}  # read since the zones' indexes were written; None: not there
        self.ignore_files: dict[bytes, bytes] = {}  # captured .gitignore files and their ids

    def note_ignore_files(self, fresh: Mapping[bytes, Head | None]) -> None:
        """Keeps the ids of .gitignore files."""
        for path, head in fresh.items():
            if is_ignore_file(path):
                if head is None:
                    self.ignore_files.pop(path, None)
                else:
                    self.ignore_files[path] = index.unpack_entry(head).oid

    def _zone_prefixes(self, path: bytes) -> Iterator[bytes]:
        """The zones that a path lies in, innermost first."""
        while path:
            if path in self.zones:
                yield path
            path = path.rpartition(b"/")[0]
        yield b""

    def write_indexes(self) -> None:
        """Brings every zone's index up to the capture. Costs time with the number of files, so after scans only."""
        changes: dict[bytes, dict[bytes, Head | None]] = {prefix: {} for prefix in self.zones}
        for path, head in self.fresh.items():
            found: Head | None = head
            for prefix in self._zone_prefixes(path):
                changes[prefix][below(self.zones[prefix], path)] = found
                found = None  # an outer zone may have had it before the inner one came to be
        for prefix, changed in changes.items():
            zone = self.zones[prefix]
            if changed or not zone.index.tree:
                zone.index = index.write(zone.index_path, zone.index, changed, self.tree.hex())
        self.fresh = {}

    def drop_zone(self, prefix: bytes) -> None:
        """A nested repository is none any more: its files belong to the zone around it."""
        zone = self.zones.pop(prefix)
        for path, entry in zone.index.below(b""):
            self.fresh.setdefault(above(zone, path), pack_entry(entry))


def is_ignore_file(path: bytes) -> bool:
    """Whether a file holds ignore rules."""
    return path == b".gitignore" or path.endswith(b"/.gitignore")


def load(zone: Zone, captured: Captured, vault: Vault, editor: TreeEditor) -> State:
    """The state of a work tree whose newest capture is known, from what its index still says about the files."""
    state = State(zone)
    state.tree = bytes.fromhex(captured.files)
    state.ledger.take_modes(modes.decode(captured.modes))
    found = index.load(zone.index_path)
    unproved = None if found is None else _differences(found, captured.files, vault)
    if found is None or unproved is None:
        disk.remove(str(zone.index_path))  # git would stumble over a damaged one
        state.fresh = {path: _unread(leaf) for path, leaf in editor.files(state.tree, b"")}
    else:
        zone.index = found
        state.fresh = unproved
    for path, entry in _captured(state, zone):
        state.ledger.captured += 1
        state.ledger.size += entry.size
        if is_ignore_file(path):
            state.ignore_files[path] = entry.oid
    return state


def _differences(found: StatIndex, tree: str, vault: Vault) -> dict[bytes, Head | None] | None:
    """The files that differ between the tree of an index and a newer one; None where that cannot be known."""
    try:
        return {
            path: None if new is None else _unread(Leaf(*new)) for path, _, new in vault.diff(found.tree, tree)
        }  # fmt: skip
    except (StoreError, ValueError):
        return None


def _unread(leaf: Leaf) -> Head:
    """An entry that matches no file, so that the file is read."""
    return pack_entry(Entry(leaf.oid, leaf.mode, 0, 0, 0, 0, 0, 0, 0))


def _captured(state: State, zone: Zone) -> Iterator[tuple[bytes, Entry]]:
    for path, entry in zone.index.below(b""):
        if path not in state.fresh:
            yield path, entry
    for path, head in state.fresh.items():
        if head is not None:
            yield path, index.unpack_entry(head)
