"""What is looked at when a vault is opened: leftovers of a crash are removed, damage is set aside and named."""

import contextlib
import os
import secrets
from pathlib import Path

from checkpointd.vault import disk, layout
from checkpointd.vault.errors import DamagedPack
from checkpointd.vault.layout import Problem
from checkpointd.vault.packdir import PackFolder
from checkpointd.vault.packs import KEEP_BASE, KEEP_WRITING, Pack, PackBuilder, keep_text, remove_pack, unkeep
from checkpointd.vault.refs import CHECKPOINTS, EVENTS, PINS, ROLLING, BadRef, Refs
from checkpointd.vault.run import GitEnv, GitError, git
from checkpointd.vault.trees import Trees

_PROVED_PACKS = 3  # the newest packs are read whole, where they are small
_PROVED_SIZE = 8 << 20
_LOCKS = ("HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "index.lock")
_INDEX_TIMEOUT = 600.0


class Inspection:
    """One look at a vault that nobody writes to yet."""

    def __init__(self, vault: Path, packs: PackFolder, refs: Refs, trees: Trees) -> None:
        self._vault = vault
        self._packs = packs
        self._refs = refs
        self._trees = trees
        self._folder = packs.path
        self._quarantine = vault / layout.QUARANTINE
        self._damaged = False
        self.problems: list[Problem] = []

    def run(self, *, alone: bool) -> None:
        """Sets right what can be. `alone`: no maintenance child of an earlier daemon is still at work."""
        self._sweep(alone=alone)
        self._check_ref_files()
        self._settle_unfinished()
        self._find_indexes()
        for path, error in self._packs.refresh():
            self._salvage(path, str(error))
        self._prove_newest_packs()
        self._check_rolling()
        self._check_checkpoints()
        self._check_others()

    def _say(self, what: str, hint: str) -> None:
        self.problems.append(Problem(what=what, hint=hint))

    # Leftovers

    def _sweep(self, *, alone: bool) -> None:
        """Files that only a writer that is gone can have left."""
        stale = [str(self._vault / name) for name in _LOCKS]
        for folder, _, files in os.walk(self._vault / "refs"):
            stale += [os.path.join(folder, file) for file in files if file.endswith((".lock", ".tmp"))]
        if alone:
            stale += [str(path) for path in (self._vault / layout.INCOMING).iterdir()]
            stale += [str(path) for path in self._folder.iterdir() if _is_temporary(path.name)]
            stale += [str(path) for path in (self._vault / "objects").iterdir() if path.name.startswith("tmp_obj")]
        for path in stale:
            if os.path.lexists(path) and not os.path.isdir(path):
                disk.remove(path)

    def _settle_unfinished(self) -> None:
        """A pack that was being written for a commit goes, unless the commit got its ref: then it is finished."""
        held = set(self._refs.under("refs/").values())
        for keep in self._folder.glob("*.keep"):
            pack = keep.with_suffix(".pack")
            text = keep_text(pack) or ""
            whole = pack.exists() and pack.with_suffix(".idx").exists()
            if text.startswith(KEEP_BASE):
                continue
            if text.startswith(KEEP_WRITING) and held.intersection(text.split()):
                unkeep(pack)
            elif text.startswith(KEEP_WRITING) or not whole:
                remove_pack(pack)  # the crash came while it was laid down; nothing names it

    # Damage

    def _check_ref_files(self) -> None:
        for name in self._refs.files("refs/"):
            try:
                self._refs.read(name)
            except BadRef:
                if name == EVENTS or name.startswith(ROLLING):  # these are not synced
                    disk.remove(str(self._vault / name))
                    self._say(f"The ref {name} was not whole.", "It was dropped, and is soon made again.")
                else:
                    self._move(self._vault / name, _aside(self._vault, name).name)
                    self._say(f"The ref {name} was not whole.", f"It was moved to {self._quarantine}.")

    def _find_indexes(self) -> None:
        """A pack without an index, or an index without a pack: git would pass over both in silence."""
        packs = {path.stem for path in self._folder.glob("pack-*.pack")}
        indexes = {path.stem for path in self._folder.glob("pack-*.idx")}
        for name in sorted(indexes - packs):
            self._damaged = True
            self._move(self._folder / f"{name}.idx", f"{name}.idx")
            self._say(f"{name}.pack is gone.", "What only it held is lost; the checkpoints concerned are named.")
        for name in sorted(packs - indexes):
            self._salvage(self._folder / f"{name}.pack", "its index is gone")

    def _prove_newest_packs(self) -> None:
        times = {}
        for pack in self._packs.packs():
            with contextlib.suppress(FileNotFoundError):
                times[pack] = pack.path.stat().st_mtime_ns
        newest = sorted(times, key=lambda pack: times[pack], reverse=True)[:_PROVED_PACKS]
        # A rolling pack was never synced: after a power loss any of them may be torn.
        suspects = {pack for pack in newest if pack.size <= _PROVED_SIZE} | set(self._packs.rolling())
        for pack in suspects:
            if not pack.whole():
                self._salvage(pack.path, "its bytes have changed")

    def _salvage(self, path: Path, why: str) -> None:
        """Saves what can be read of a damaged pack into a new one, and sets the damaged one aside."""
        self._damaged = True
        self._packs.forget((path.stem,))
        if self._index_anew(path):
            self._say(f"{path.name} had a damaged index ({why}).", "It was made again from the pack; nothing is lost.")
            return
        saved, lost = 0, []
        builder = PackBuilder(self._folder)
        try:
            pack = Pack(path, torn=True)
        except (DamagedPack, FileNotFoundError):
            pack = None
        for oid, offset in pack.places() if pack else ():
            if self._copy(pack, oid, offset, builder):
                saved += 1
            else:
                lost.append(oid)
        if saved:
            self._packs.add(Pack(builder.lay(self._folder, keep=None, sync=True)))
        builder.discard()
        for suffix in (".idx", ".pack"):
            self._move(path.with_suffix(suffix), path.with_suffix(suffix).name)
        unkeep(path)
        gone = sum(not self._packs.has(oid) for oid in lost)
        self._say(f"{path.name} was damaged ({why}): {saved} objects were saved, {gone} are lost.",
                  f"It was moved to {self._quarantine}; checkpoints that are no longer whole are named.")  # fmt: skip

    def _copy(self, pack: Pack | None, oid: bytes, offset: int, builder: PackBuilder) -> bool:
        if pack is None:
            return False
        try:
            kind, data = pack.read(offset)
            return kind in (1, 2, 3, 4) and builder.add(kind, data) == oid
        except (DamagedPack, IndexError, OSError):
            return False

    def _index_anew(self, path: Path) -> bool:
        """Whether the pack is whole and got a new index."""
        index, made = path.with_suffix(".idx"), self._vault / layout.INCOMING / f"{secrets.token_hex(8)}.idx"
        try:
            git(["index-pack", "-o", str(made), str(path)], env=GitEnv(git_dir=self._vault), timeout=_INDEX_TIMEOUT)
        except GitError:
            disk.remove(str(made))
            return False
        with disk.translated(self._vault):
            os.chmod(made, 0o600)
            disk.system.rename(str(made), str(index))
            disk.sync_path(str(index))
            disk.sync_path(str(self._folder))
        try:
            self._packs.add(Pack(path))
        except DamagedPack:
            return False
        return True

    def _move(self, path: Path, name: str) -> None:
        with disk.translated(self._vault), contextlib.suppress(FileNotFoundError):
            disk.system.rename(str(path), str(self._quarantine / name))

    # Refs whose objects are not there

    def _check_rolling(self) -> None:
        known: set[bytes] = set()
        for name, commit in self._refs.under(ROLLING).items():
            if self._lack(commit, known):
                self._refs.delete((name,))
                self._say(f"{name} was not whole after a crash.", "It was dropped; the next capture makes it again.")

    def _check_checkpoints(self) -> None:
        """The newest checkpoints down to the first that is whole; all of them once damage was found."""
        known: set[bytes] = set()
        for name, commit in reversed(self._refs.under(CHECKPOINTS).items()):
            lack = self._lack(commit, known)
            if lack:
                self._damaged = True
                id_ = name.removeprefix(CHECKPOINTS)
                set_aside(self._vault, self._refs, id_)
                hint = "It was quarantined; the checkpoints before it are kept. `ckpt list` shows them."
                self._say(f"The checkpoint {id_} is damaged: {lack}.", hint)
            elif not self._damaged:
                return

    def _check_others(self) -> None:
        for name, commit in self._refs.under("refs/").items():
            if not name.startswith((CHECKPOINTS, ROLLING)) and not self._trees.has(commit):
                self._refs.delete((name,))
                self._say(f"{name} named an object that is gone.", "It was dropped.")

    def _lack(self, commit: str, known: set[bytes]) -> str:
        """Once damage was found, everything that a commit reaches is looked for."""
        return self._trees.lack(commit, known) if self._damaged else self._trees.unreadable(commit)


def _is_temporary(name: str) -> bool:
    return name.startswith(("tmp_", ".tmp-")) or name.endswith((".tmp", ".lock"))


def set_aside(vault: Path, refs: Refs, id_: str) -> None:
    """Takes a checkpoint's ref, and its pin, out of use; what they held stays readable in the quarantine folder."""
    for name in (CHECKPOINTS + id_, PINS + id_):
        commit = refs.read(name)
        if commit is not None:
            with disk.translated(vault):
                disk.replace_file(str(_aside(vault, name)), f"{commit}\n".encode(), sync=True, suffix=".tmp")
            refs.delete((name,))


def quarantined(vault: Path) -> list[str]:
    """The ids of the checkpoints that were set aside."""
    start = _aside(vault, CHECKPOINTS).name
    return sorted(path.name.removeprefix(start) for path in (vault / layout.QUARANTINE).glob(f"{start}*"))


def _aside(vault: Path, ref: str) -> Path:
    return vault / layout.QUARANTINE / ref.replace("/", "-")
