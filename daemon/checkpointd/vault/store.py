"""The vault: the bare repository that holds all checkpoints of one project."""

import itertools
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from checkpointd.clock import Clock, SystemClock
from checkpointd.vault import disk, layout
from checkpointd.vault.errors import (
    CheckpointExists,
    MissingObject,
    NoCheckpoint,
    ReadOnlyStore,
    StoreError,
    StoreFull,
)
from checkpointd.vault.eventlog import EventLog
from checkpointd.vault.inspection import Inspection, quarantined, set_aside
from checkpointd.vault.layout import Problem
from checkpointd.vault.maintenance import Damage, Maintenance, RollUp
from checkpointd.vault.objects import (
    BLOB,
    COMMIT,
    MODE_FILE,
    MODE_TREE,
    TREE,
    Oid,
    build_commit,
    build_tree,
    raw_id,
)
from checkpointd.vault.packdir import PackFolder, Place
from checkpointd.vault.packs import KEEP_ROLLING, KEEP_WRITING, Pack, PackBuilder, packed, remove_pack, unkeep
from checkpointd.vault.refs import CHECKPOINTS, EVENTS, PINS, ROLLING, Refs
from checkpointd.vault.trees import EMPTY_TREE, Trees

log = logging.getLogger(__name__)

_CHECKPOINT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEFTOVERS = 16 << 20
"""Bytes of rolling packs that are copied when a vault is opened; more are synced where they lie."""

_KEPT_MODES = 16 << 10  # bytes of a modes.json that is kept packed

_UNREACHED = timedelta(minutes=2)
"""How long a rolling pack may be there before a state reaches it."""


class TreeRef(Struct, frozen=True):
    """A tree that the vault holds already, as an entry of a checkpoint."""

    oid: str


class RollingTree(Struct, frozen=True):
    """One state of a work tree: its files (tree id, 40 hex digits) and its modes.json."""

    files: str
    modes: bytes


Records = tuple[tuple[bytes, bytes], ...]
"""Ids and packed bytes of objects."""


class CheckpointTree:
    """A checkpoint as the vault holds it. Documents are read when they are asked for."""

    def __init__(self, id_: str, commit: str, trees: Trees) -> None:
        self.id = id_
        self.commit = commit
        self._trees = trees
        self._entries = {entry.name: entry for entry in trees.read_tree(trees.read_commit(commit).tree)}

    @property
    def files(self) -> str:
        """The tree of the project's files, 40 hex digits."""
        return self._entries[b"files"].oid.hex()

    @property
    def index(self) -> str | None:
        """The tree of staged bytes that differ from the files; None where there are none."""
        entry = self._entries.get(b"index")
        return entry.oid.hex() if entry else None

    def documents(self) -> list[str]:
        """The names of all documents."""
        return [entry.name.decode() for entry in self._entries.values() if not entry.is_tree]

    def document(self, name: str) -> bytes:
        """The bytes of a document, such as `record.yaml`. Raises KeyError when there is none of that name."""
        return self._trees.read_blob(self._entries[name.encode()].oid)


class Vault(Trees):
    """One vault, open. One writer at a time (a lock sees to it), any number of readers, in any threads.

    Writing is whole or not at all: StoreFull, ReadOnlyStore or StoreError mean that nothing has changed.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        """Use `Vault.open` or `Vault.create`."""
        super().__init__(PackFolder(path / "objects"))
        self.path = path
        self.problems: list[Problem] = []
        self._clock = clock
        self._refs = Refs(path)
        self._maintenance = Maintenance(path, self._packs)
        self._writer = threading.RLock()
        self._events: EventLog | None = None
        self._events_agree = False
        self._unstarted: Problem | None = None
        self._unreached: dict[str, float] = {}  # rolling packs that no state has reached yet, and since when
        self._states: dict[str, dict[RollingTree, Records]] = {}  # of each work tree, to be written again

    @classmethod
    def create(cls, path: Path, *, clock: Clock | None = None) -> "Vault":
        """Lays out a new vault at `path`, or opens the one that is there."""
        if not (path / layout.VERSION_FILE).exists():
            layout.lay_out(path)
        return cls.open(path, clock=clock)

    @classmethod
    def open(cls, path: Path, *, clock: Clock | None = None) -> "Vault":
        """Opens the vault at `path`, after setting right what a crash may have left; `problems` says what that was.
        Raises NotAVault, NewerLayout, ReadOnlyStore."""
        layout.check_version(path)
        vault = cls(path, clock or SystemClock())
        try:
            vault._start()
        except (ReadOnlyStore, StoreFull) as error:
            vault._packs.refresh()
            hint = "Checkpoints can be read; new ones need room, or the right to write there."
            vault.problems.append(Problem(what=str(error), hint=hint))
            vault._unstarted = vault.problems[-1]
        return vault

    @property
    def half_open(self) -> bool:
        """Whether a full or read-only disk has kept the start from being finished."""
        return self._unstarted is not None

    def start_again(self) -> None:
        """Finishes such a start, where that is possible by now. No capture may be under way."""
        with self._writer:
            if self._unstarted is None:
                return
            try:
                self._start()
            except (ReadOnlyStore, StoreFull):
                return
            self.problems.remove(self._unstarted)
            self._unstarted = None

    def _start(self) -> None:
        self.problems += layout.heal(self.path)
        with self._maintenance.alone() as held:
            inspection = Inspection(self.path, self._packs, self._refs, self)
            try:
                inspection.run(alone=held is not None)
            finally:
                self.problems += inspection.problems
        self._settle_leftovers()

    def _settle_leftovers(self) -> None:
        """Makes of all rolling packs of an earlier run one synced pack, of what the rolling states need."""
        leftovers = self._packs.rolling()
        if self._packs.has_large_rolling() or sum(pack.size for pack in leftovers) > _LEFTOVERS:
            for pack in self._sync_rolling():
                unkeep(pack.path)
            return
        builder = self.new_pack()
        commits = [raw_id(commit) for commit in self._refs.under(ROLLING).values()]
        trees = [self.read_commit(commit).tree for commit in commits]
        places = [(commit, place) for commit in commits if (place := self._packs.unsettled(commit))]
        self._repeat(builder, itertools.chain(places, self._unsettled_below(trees)))
        if len(builder):
            self._packs.add(Pack(builder.lay(self._packs.path, keep=None, sync=True)))
        self._remove_packs(leftovers)

    def close(self) -> None:
        """Lets go of all packs."""
        self._packs.forget([pack.name for pack in self._packs.packs()])

    # Writing

    def new_pack(self) -> PackBuilder:
        """An empty pack to fill for this vault."""
        return PackBuilder(self._packs.path)

    def write_rolling(self, builder: PackBuilder) -> None:
        """Lands a pack, unsynced, so that its objects can be read at once. They stay when a rolling state or a
        checkpoint comes to reach them within two minutes."""
        if not len(builder):
            builder.discard()
            return
        with self._writer:
            pack = self._lay_rolling(builder)
            self._unreached[pack.name] = self._clock.monotonic()

    def _lay_rolling(self, builder: PackBuilder) -> Pack:
        trees = builder.trees
        pack = Pack(builder.lay(self._packs.path, keep=KEEP_ROLLING, sync=False))
        self._packs.add(pack, rolling=True)
        self._packs.keep_trees(trees)
        return pack

    def adopt_rolling(self, pack: Path) -> None:
        """Takes a pack that a git child left, index beside it, in the vault's folder `incoming`; as `write_rolling`."""
        with self._writer:
            home = self._packs.path / pack.name
            try:
                with disk.translated(home):
                    disk.write_new(str(home.with_suffix(".keep")), (KEEP_ROLLING.encode() + b"\n",), sync=False)
                    disk.system.rename(str(pack), str(home))
                    disk.system.rename(str(pack.with_suffix(".idx")), str(home.with_suffix(".idx")))
                adopted = Pack(home)
            except BaseException:
                remove_pack(home)
                raise
            self._packs.add(adopted, rolling=True)
            self._unreached[adopted.name] = self._clock.monotonic()

    def set_rolling(self, worktree: str, states: Mapping[str, RollingTree], builder: PackBuilder | None = None) -> None:
        """Makes these the states of a work tree: `now`, and `at/<UTC ms>` for those before. Objects of `builder` ride
        in the same pack. Not synced."""
        builder = builder if builder is not None else self.new_pack()
        past: list[tuple[int, bytes, bytes]] = []
        top: list[tuple[int, bytes, bytes]] = []
        for name, state in states.items():
            folder, _, moment = name.rpartition("/")
            into = past if folder == "at" else top
            into.append((MODE_TREE, moment.encode(), self._add_state(builder, worktree, state)))
        if past:
            top.append((MODE_TREE, b"at", builder.add(TREE, build_tree(past))))
        tree = builder.add(TREE, build_tree(top))
        commit = builder.add(COMMIT, build_commit(tree, f"rolling {worktree}", self._clock.now()))
        known = self._states.get(worktree, {})
        self._states[worktree] = {state: known[state] for state in states.values() if state in known}
        with self._writer:
            pack = self._lay_rolling(builder)
            try:
                self._refs.set(ROLLING + worktree, commit.hex(), sync=False)
            except BaseException:
                self._remove_packs([pack])
                raise

    def _add_state(self, builder: PackBuilder, worktree: str, state: RollingTree) -> bytes:
        """Adds what a state has beside its files; its tree. Every push writes all states again, a hundred of them."""
        records = self._states.setdefault(worktree, {}).get(state)
        if records is None:
            files = raw_id(state.files)
            modes = packed(BLOB, state.modes)
            tree = build_tree(((MODE_TREE, b"files", files), (MODE_FILE, b"modes.json", modes[0])))
            empty = (packed(TREE, b""),) if files == EMPTY_TREE else ()
            records = (*empty, modes, packed(TREE, tree))
            if len(state.modes) < _KEPT_MODES:
                self._states[worktree][state] = records
        for oid, record in records:
            builder.add_record(oid, record)
        return records[-1][0]

    def rolling(self, worktree: str) -> dict[str, RollingTree]:
        """The states of a work tree by name, as they were set; empty where there are none."""
        commit = self._refs.read(ROLLING + worktree)
        if commit is None:
            return {}
        states: dict[str, RollingTree] = {}
        for entry in self.read_tree(self.read_commit(commit).tree):
            if entry.name == b"at":
                states |= {f"at/{e.name.decode()}": self._read_state(e.oid) for e in self.read_tree(entry.oid)}
            else:
                states[entry.name.decode()] = self._read_state(entry.oid)
        return states

    def _read_state(self, oid: bytes) -> RollingTree:
        entries = {entry.name: entry.oid for entry in self.read_tree(oid)}
        return RollingTree(files=entries[b"files"].hex(), modes=self.read_blob(entries[b"modes.json"]))

    def commit_checkpoint(
        self,
        id_: str,
        entries: Mapping[bytes, bytes | TreeRef],
        *,
        message: str,
        when: datetime,
        events: EventLog | None = None,
    ) -> str:
        """Makes a checkpoint: bytes are documents, TreeRefs are trees that a rolling state holds. It is on the disk,
        whole, when this returns; its commit id. What `events` has so far rides in the same pack, under refs/events.
        Raises CheckpointExists."""
        name = self._checkpoint_ref(id_)
        with self._writer:
            if self._refs.read(name) is not None:
                raise CheckpointExists(f"There is a checkpoint {id_} already.")
            builder = self.new_pack()
            try:
                roots = [raw_id(entry.oid) for entry in entries.values() if isinstance(entry, TreeRef)]
                repeated, synced = self._repeat_unsettled(builder, roots)
                tree = builder.add(TREE, build_tree(self._checkpoint_entry(builder, *item) for item in entries.items()))
                commit = builder.add(COMMIT, build_commit(tree, message, when))
                log_commit = self._add_events(builder, events, when) if events is not None else None
                path = builder.lay(self._packs.path, keep=f"{KEEP_WRITING} {commit.hex()}", sync=True)
            finally:
                builder.discard()
            try:
                pack = Pack(path)
                self._refs.create(name, commit.hex())
            except BaseException:
                remove_pack(path)
                raise
            self._packs.add(pack)
            self._packs.settle(repeated)
            self._move_events(log_commit)
            for settled in [pack, *synced]:
                unkeep(settled.path)
            return commit.hex()

    def _add_events(self, builder: PackBuilder, events: EventLog, when: datetime) -> bytes | None:
        """The commit of the event log's segments, of which only the last and what came after it are written."""
        if events is not self._events:
            # Once: what the vault holds and the file has lost must not be written over.
            self._events, self._events_agree = events, events.recover(self.saved_events())
        if not self._events_agree:
            return None
        saved = self._saved_segments()
        changed = events.segments(max(0, len(saved) - 1))
        merged = saved | {name: builder.add(BLOB, segment) for name, segment in changed.items()}
        if merged == saved:
            return None
        tree = builder.add(TREE, build_tree((MODE_FILE, name, oid) for name, oid in merged.items()))
        return builder.add(COMMIT, build_commit(tree, "events", when))

    def _move_events(self, commit: bytes | None) -> None:
        if commit is not None:
            try:
                # Not synced: the log's own file is, and from it the next checkpoint makes again what is lost here.
                self._refs.set(EVENTS, commit.hex(), sync=False)
            except StoreError as error:  # the checkpoint stands; the next one brings the events along
                log.warning("events not saved vault=%s reason=%s", self.path, error)

    def _saved_segments(self) -> dict[bytes, bytes]:
        commit = self._refs.read(EVENTS)
        if commit is None:
            return {}
        return {entry.name: entry.oid for entry in self.read_tree(self.read_commit(commit).tree)}

    def saved_events(self) -> bytes:
        """The event log as the vault holds it."""
        return b"".join(self.read_blob(oid) for _, oid in sorted(self._saved_segments().items()))

    def _checkpoint_ref(self, id_: str) -> str:
        if not _CHECKPOINT_ID.fullmatch(id_):
            raise StoreError(f"{id_!r} is no id of a checkpoint.")
        return CHECKPOINTS + id_

    def _checkpoint_entry(self, builder: PackBuilder, name: bytes, entry: bytes | TreeRef) -> tuple[int, bytes, bytes]:
        if isinstance(entry, bytes):
            return MODE_FILE, name, builder.add(BLOB, entry)
        oid = raw_id(entry.oid)
        if oid == EMPTY_TREE:
            builder.add(TREE, b"")
        elif not self.has(oid):
            raise MissingObject(oid)
        return MODE_TREE, name, oid

    def _repeat_unsettled(self, builder: PackBuilder, roots: list[bytes]) -> tuple[list[bytes], list[Pack]]:
        """Repeats in `builder` every unsettled object below these trees. Where a rolling pack is too large for that,
        all rolling packs are synced in their place, which settles everything."""
        found = []
        for oid, place in self._unsettled_below(roots):
            if self._packs.must_sync(place.pack):
                return [], self._sync_rolling()
            found.append((oid, place))
        self._repeat(builder, found)
        return [oid for oid, _ in found], []

    def _repeat(self, builder: PackBuilder, found: Iterable[tuple[bytes, Place]]) -> None:
        """Repeats objects of rolling packs in `builder`, as they are stored there where that is possible."""
        held: set[Pack] = set()
        try:
            for oid, place in found:
                if place.pack not in held:
                    held.add(place.pack)
                    place.pack.hold()
                record = place.pack.whole_record(place.offset)
                if record is not None:
                    builder.add_record(oid, record)
                else:
                    builder.add(*self._packs.read(oid))
        finally:
            for pack in held:
                pack.release()

    def _unsettled_below(self, trees: Iterable[bytes]) -> Iterator[tuple[bytes, Place]]:
        """Every unsettled object that these trees reach, themselves included."""
        seen: set[bytes] = set()
        pending = [(True, tree) for tree in trees]
        while pending:
            is_tree, oid = pending.pop()
            place = self._packs.unsettled(oid) if oid not in seen else None
            if place is None:
                continue
            seen.add(oid)
            yield oid, place
            if is_tree:
                pending += self._packs.unsettled_in(self._raw_tree(oid))

    def _sync_rolling(self) -> list[Pack]:
        packs = self._packs.rolling()
        with disk.translated(self.path):
            for pack in packs:
                disk.sync_path(str(pack.path))
                disk.sync_path(str(pack.path.with_suffix(".idx")))
            disk.sync_path(str(self._packs.path))
        self._packs.settle_packs(packs)
        return packs

    # Checkpoints and refs

    def checkpoint_ids(self) -> list[str]:
        """The ids of all checkpoints, in order of their names, which is that of their times."""
        return [name.removeprefix(CHECKPOINTS) for name in self._refs.under(CHECKPOINTS)]

    def checkpoint(self, id_: str) -> CheckpointTree:
        """The checkpoint of this id. Raises NoCheckpoint."""
        commit = self._refs.read(self._checkpoint_ref(id_))
        if commit is None:
            raise NoCheckpoint(f"The vault has no checkpoint {id_}.")
        return CheckpointTree(id_, commit, self)

    def refs(self, prefix: str = "refs/") -> dict[str, str]:
        """All refs below a folder such as `refs/checkpoints/`, and their ids."""
        return self._refs.under(prefix)

    def set_ref(self, name: str, oid: Oid, *, sync: bool = True) -> None:
        """Makes or moves a ref."""
        self._refs.set(name, raw_id(oid).hex(), sync=sync)

    def delete_ref(self, name: str) -> None:
        """Removes a ref, where it is there."""
        self._refs.delete((name,))

    def pin(self, id_: str) -> None:
        """Keeps a checkpoint from every retention. Raises NoCheckpoint."""
        commit = self._refs.read(self._checkpoint_ref(id_))
        if commit is None:
            raise NoCheckpoint(f"The vault has no checkpoint {id_}.")
        self._refs.set(PINS + id_, commit)

    def unpin(self, id_: str) -> None:
        """Takes a pin away, where there is one."""
        self._refs.delete((PINS + id_,))

    def pins(self) -> set[str]:
        """The ids of all pinned checkpoints."""
        return {name.removeprefix(PINS) for name in self._refs.under(PINS)}

    # Packs

    def prune_rolling(self, keep_trees: Iterable[Oid] = ()) -> int:
        """Removes the rolling packs that no rolling state and none of these trees needs; how many that were."""
        with self._writer, self._maintenance.alone() as held:
            if held is None:
                return 0  # a roll-up may be reading them
            if self._packs.has_large_rolling():
                return 0  # a first capture: the checkpoint to come settles it, and looking through it takes long
            needed = self._needed_packs(map(raw_id, keep_trees))
            now = self._clock.monotonic()
            span = _UNREACHED.total_seconds()
            unreached = self._unreached.items()
            self._unreached = {n: since for n, since in unreached if n not in needed and now - since < span}
            gone = [p for p in self._packs.rolling() if p.name not in needed and p.name not in self._unreached]
            self._remove_packs(gone)
            return len(gone)

    def _needed_packs(self, trees: Iterable[bytes]) -> set[str]:
        needed: set[str] = set()
        roots = list(trees)
        for commit in map(raw_id, self._refs.under(ROLLING).values()):
            place = self._packs.unsettled(commit)
            if place is not None:
                needed.add(place.pack.name)
            roots.append(self.read_commit(commit).tree)
        return needed | {place.pack.name for _, place in self._unsettled_below(roots)}

    def _remove_packs(self, packs: list[Pack]) -> None:
        self._packs.forget(pack.name for pack in packs)
        for pack in packs:
            self._unreached.pop(pack.name, None)
            remove_pack(pack.path)

    def forget(self, ids: Iterable[str], *, cancel: Callable[[], bool] = lambda: False) -> RollUp:
        """Removes checkpoints, pinned or not, and what only they held. The refs are gone even where the roll-up then
        could not be done."""
        ids = list(ids)
        with self._writer:
            self._refs.delete([self._checkpoint_ref(id_) for id_ in ids] + [PINS + id_ for id_ in ids])
        return self.roll_up(cancel=cancel)

    def roll_up(self, *, full: bool = False, cancel: Callable[[], bool] = lambda: False) -> RollUp:
        """Makes few packs of many, in a niced child; captures and checkpoints go on meanwhile. Raises StoreError."""
        with self._writer:
            self._refs.pack((CHECKPOINTS, PINS))
        return self._maintenance.roll_up(full=full, cancel=cancel)

    def verify(self, *, cancel: Callable[[], bool] = lambda: False) -> list[Damage]:
        """Proves every object and every link, and names the checkpoints that are no longer whole."""
        return self._maintenance.verify(self, self._refs, cancel)

    def quarantine(self, id_: str) -> None:
        """Takes a damaged checkpoint out of use; its id stays known."""
        with self._writer:
            set_aside(self.path, self._refs, id_)

    def quarantined(self) -> list[str]:
        """The ids of the checkpoints that were taken out of use."""
        return quarantined(self.path)

    def pack_count(self) -> int:
        """How many packs there are, rolling ones left out."""
        return len(self._packs.packs()) - len(self._packs.rolling())

    @property
    def size(self) -> int:
        """What the packs take on the disk, which is nearly all: known without looking."""
        return self._packs.size

    def size_bytes(self) -> int:
        """What the vault takes on the disk. Looks at every file: for a worker."""
        return sum(
            os.lstat(os.path.join(folder, file)).st_blocks * 512
            for folder, _, files in os.walk(self.path)
            for file in files
        )
