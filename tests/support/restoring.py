"""A project, a vault and a restorer in one folder: small captures by plain walking, to test restores against."""

import asyncio
import os
import shutil
import stat
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from checkpointd.clock import SystemClock
from checkpointd.engine.restorer import Outcome, RestoreJob, Restorer
from checkpointd.model import modes
from checkpointd.model.capture import Captured, Coverage, Skip
from checkpointd.vault.objects import BLOB, MODE_EXECUTABLE, MODE_FILE, MODE_SYMLINK, MODE_TREE, TREE, build_tree
from checkpointd.vault.packs import PackBuilder
from checkpointd.vault.store import TreeRef, Vault

Content = bytes | None
"""A file's bytes; None stands for an empty directory."""


class World:
    """`root` is the project; `skips` are the paths that captures leave out. Where thousands of restores are tried,
    `durable` is off and pre-restore captures are not made checkpoints."""

    def __init__(self, base: Path, vault: Vault | None = None, *, durable: bool = True) -> None:
        self.root = base / "project"
        self.root.mkdir(parents=True, exist_ok=True)
        self.journals = base / "journal"
        self.vault = vault or Vault.create(base / "vault.git")
        self.durable = durable
        self.skips: frozenset[bytes] = frozenset()
        self.made: list[str] = []
        self.forced: list[bytes] = []
        self.pool = ThreadPoolExecutor(2)
        self.restorer = Restorer(
            vault=self.vault,
            root=self.root,
            worktree="w1",
            journal_folder=self.journals,
            checkpoint_before=self.checkpoint_before,
            clock=SystemClock(),
            random_hex=lambda: os.urandom(8).hex(),
            pool=self.pool,
        )

    def close(self) -> None:
        self.pool.shutdown()
        self.vault.close()

    def write(self, files: Mapping[str, str | bytes]) -> None:
        for name, content in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    def clear(self) -> None:
        for entry in self.root.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def capture(self, force: Collection[bytes] = ()) -> Captured:
        """The project as it is, without `skips` unless they are forced."""
        return _Capture(self.vault, self.root, self.skips, force).run()

    def checkpoint(self, captured: Captured, name: str = "") -> str:
        """Makes what was captured durable; the checkpoint's id."""
        id_ = name or f"ckpt-20260101-000000-{os.urandom(4).hex()}"
        entries = {b"files": TreeRef(captured.files), b"modes.json": captured.modes}
        self.vault.commit_checkpoint(id_, entries, message=id_, when=SystemClock().now())
        return id_

    async def checkpoint_before(self, paths: Collection[bytes], *, plan: str, target: str) -> tuple[str, Captured]:
        captured = self.capture(force=paths)
        self.forced = sorted(paths)
        self.made.append(self.checkpoint(captured) if self.durable else f"ckpt-{plan}")
        return self.made[-1], captured

    def plan(self, target: Captured, present: Captured | None = None, **options: object) -> RestoreJob:
        present = present or self.capture()
        return asyncio.run(self.restorer.plan("target", target, present, **options))  # type: ignore[arg-type]

    def restore(self, target: Captured, **options: object) -> Outcome:
        """Plan and apply."""
        return self.apply(self.plan(target, **options), allow_mass_delete=True)

    def apply(self, job: RestoreJob, *, allow_mass_delete: bool = False) -> Outcome:
        return asyncio.run(self.restorer.apply(job, allow_mass_delete=allow_mass_delete))

    def undo(self, plan: str) -> Outcome:
        async def run() -> Outcome:
            return await self.restorer.apply(await self.restorer.plan_undo(plan))

        return asyncio.run(run())

    def files(self) -> dict[str, object]:
        return state(self.root)


def state(root: Path) -> dict[str, object]:
    """Everything below a directory: bytes or symlink target, and permission bits; directories by their bits alone."""
    found: dict[str, object] = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder) / name
            info = path.lstat()
            bits = stat.S_IMODE(info.st_mode)
            key = os.fsdecode(os.path.relpath(path, root))
            if stat.S_ISLNK(info.st_mode):
                found[key] = ("link", os.readlink(path))
            elif stat.S_ISDIR(info.st_mode):
                found[key] = ("directory", bits)
            elif stat.S_ISREG(info.st_mode):
                found[key] = ("file", path.read_bytes(), bits)
            else:
                found[key] = ("special", stat.S_IFMT(info.st_mode))
    return found


def identities(root: Path) -> dict[bytes, tuple[int, int]]:
    """Inode and mtime of everything but directories."""
    found = {}
    for folder, names, files in os.walk(os.fsencode(root)):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if not stat.S_ISDIR(info.st_mode):
                found[os.path.relpath(path, os.fsencode(root))] = (info.st_ino, info.st_mtime_ns)
    return found


class _Capture:
    def __init__(self, vault: Vault, root: Path, skips: Collection[bytes], force: Collection[bytes]) -> None:
        self._vault = vault
        self._root = os.fsencode(root)
        self._skips = skips
        self._force = frozenset(force)
        self._builder: PackBuilder = vault.new_pack()
        self._usual = modes.Usual()
        self._exceptions: dict[bytes, int] = {}
        self._empty: set[bytes] = set()
        self._skipped: list[Skip] = []
        self._count = 0

    def run(self) -> Captured:
        tree = self._tree(b"")
        files = tree or self._builder.add(TREE, b"")
        self._vault.write_rolling(self._builder)
        return Captured(
            files=files.hex(),
            modes=modes.encode(self._usual, self._exceptions, self._empty),
            coverage=Coverage(captured=self._count, skipped=tuple(self._skipped)),
            taken_at=SystemClock().now(),
        )

    def _tree(self, folder: bytes) -> bytes | None:
        names = sorted(os.listdir(os.path.join(self._root, folder)))
        if folder and not names:
            self._empty.add(folder)
        entries = [entry for name in names if (entry := self._entry(folder + b"/" + name if folder else name, name))]
        return self._builder.add(TREE, build_tree(entries)) if entries else None

    def _entry(self, path: bytes, name: bytes) -> tuple[int, bytes, bytes] | None:
        full = os.path.join(self._root, path)
        info = os.lstat(full)
        skipped = path in self._skips and path not in self._force
        if name == b".git":
            return None
        if skipped:
            self._skipped.append(Skip(path=path, reason="ignored", folder=stat.S_ISDIR(info.st_mode)))
            # A forced path below a skipped folder is taken all the same.
            if not stat.S_ISDIR(info.st_mode) or not any(forced.startswith(path + b"/") for forced in self._force):
                return None
            return self._forced_below(path, name)
        if stat.S_ISDIR(info.st_mode):
            self._note(path, info, MODE_TREE)
            tree = self._tree(path)
            return None if tree is None else (MODE_TREE, name, tree)
        return self._leaf(path, name, info)

    def _forced_below(self, path: bytes, name: bytes) -> tuple[int, bytes, bytes] | None:
        entries = []
        for below in sorted(os.listdir(os.path.join(self._root, path))):
            full = path + b"/" + below
            info = os.lstat(os.path.join(self._root, full))
            if stat.S_ISDIR(info.st_mode):
                entry = self._forced_below(full, below)
            else:
                entry = self._leaf(full, below, info) if full in self._force else None
            if entry is not None:
                entries.append(entry)
        return (MODE_TREE, name, self._builder.add(TREE, build_tree(entries))) if entries else None

    def _leaf(self, path: bytes, name: bytes, info: os.stat_result) -> tuple[int, bytes, bytes] | None:
        full = os.path.join(self._root, path)
        if stat.S_ISLNK(info.st_mode):
            self._count += 1
            return MODE_SYMLINK, name, self._builder.add(BLOB, os.readlink(full))
        if not stat.S_ISREG(info.st_mode):
            self._skipped.append(Skip(path=path, reason="special"))
            return None
        self._count += 1
        mode = MODE_EXECUTABLE if info.st_mode & 0o100 else MODE_FILE
        self._note(path, info, mode)
        with open(full, "rb") as file:
            return mode, name, self._builder.add(BLOB, file.read())

    def _note(self, path: bytes, info: os.stat_result, mode: int) -> None:
        bits = stat.S_IMODE(info.st_mode)
        if bits != self._usual.of(mode):
            self._exceptions[path] = bits
