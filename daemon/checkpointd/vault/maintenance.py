"""Keeping a vault small and sound: roll-ups of packs, and the proof that all is there."""

import contextlib
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from checkpointd.vault import disk
from checkpointd.vault.errors import StoreError
from checkpointd.vault.packdir import PackFolder
from checkpointd.vault.packs import KEEP_BASE, Pack, keep_text
from checkpointd.vault.refs import CHECKPOINTS, Refs
from checkpointd.vault.run import GitEnv, GitError, git
from checkpointd.vault.trees import Trees

log = logging.getLogger(__name__)

_TIMEOUT = 3600.0
# About the content of a project's file, which is not ours to judge. Not in the vault's configuration, as for
# .gitmodules, since a git that does not know these findings yet refuses to run then.
_CONTENT_FINDING = ": gitattributes"
_DEAD_FRACTION = 0.1  # of all packs: past it even the base is rewritten


class RollUp(Struct, frozen=True, kw_only=True):
    """What a roll-up did; `reason` says why where it did nothing."""

    done: bool
    reason: str = ""
    before: int = 0  # bytes of packs
    after: int = 0


class Damage(Struct, frozen=True, kw_only=True):
    """Something that a verification found, and the checkpoints it is part of, as far as known."""

    what: str
    checkpoints: tuple[str, ...] = ()


class Maintenance:
    """Maintenance of one vault: one at a time, in niced children, beside the writer and without stopping it.

    A roll-up never loses what is being written, without any lock against the writer. git lists the packs it is going to
    delete, those without a .keep, before it lists refs; a new pack has its .keep until its ref is there. And since
    kept packs are packed as well (`--pack-kept-objects`), nothing rests on a rolling or an unfinished pack, which
    may go later.
    """

    def __init__(self, vault: Path, packs: PackFolder) -> None:
        self._vault = vault
        self._packs = packs
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def alone(self, wait: float = 0.0) -> Iterator[int | None]:
        """Holds maintenance off while the block runs; gives a descriptor for a child to hold on to, or None where other
        maintenance runs (after `wait` seconds still), perhaps a child that outlived its daemon."""
        if not self._busy.acquire(timeout=wait):
            yield None
            return
        try:
            with disk.translated(self._vault):
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                descriptor = disk.system.open(str(self._vault / "maintenance"), flags, 0o600)
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    yield None
                    return
                yield descriptor
            finally:
                os.close(descriptor)
        finally:
            self._busy.release()

    def roll_up(self, *, full: bool, cancel: Callable[[], bool]) -> RollUp:
        """Makes few packs of many, leaving out what no ref reaches. The base stays as it is unless `full`, or when the
        rest has outgrown half of it, or a tenth of everything is dead."""
        with self.alone(wait=5.0) as held:
            if held is None:
                return RollUp(done=False, reason="other maintenance is running")
            before = self._size(self._ordinary())
            base = [pack for pack in self._ordinary() if self._is_base(pack)]
            rest = [pack for pack in self._ordinary() if pack not in base]
            whole = full or not base or 2 * self._size(rest) > self._size(base)
            if whole:
                refusal = self._repack_all(base, held, cancel)
            else:
                refusal = self._room(2 * self._size(rest)) or self._repack(["--keep-pack=" + p.path.name for p in base],
                                                                          held, cancel)  # fmt: skip
                if not refusal and self._dead_fraction(cancel) > _DEAD_FRACTION:
                    refusal = self._repack_all(base, held, cancel)
            after = self._size(self._ordinary())
            log.info("vault rolled up path=%s whole=%s before=%d after=%d", self._vault, whole, before, after)
            return RollUp(done=not refusal, reason=refusal, before=before, after=after)

    def _repack_all(self, base: list[Pack], held: int, cancel: Callable[[], bool]) -> str:
        """Rewrites everything into a new base."""
        refusal = self._room(2 * self._size(self._ordinary()))
        if refusal:
            return refusal
        for pack in base:
            disk.remove(str(pack.path.with_suffix(".keep")))
        known = {pack.name for pack in self._packs.packs()}
        try:
            # Between two whole objects of one pack git tries no delta unless it is told to begin anew (-f).
            self._repack(["-f"], held, cancel)
        finally:
            made = [pack for pack in self._ordinary() if pack.name not in known and pack.is_from_git]
            # After a failure the old base is the base.
            for pack in made or [pack for pack in base if pack.path.exists()]:
                with disk.translated(self._vault):
                    disk.replace_file(str(pack.path.with_suffix(".keep")), KEEP_BASE.encode() + b"\n", sync=False)
        return ""

    def _repack(self, options: list[str], held: int, cancel: Callable[[], bool]) -> str:
        command = ["-c", "pack.threads=1", "-c", "repack.writeBitmaps=false", "repack", "-a", "-d", "-n", "-q",
                   "--pack-kept-objects", *options]  # fmt: skip
        try:
            git(command, env=self._env(), timeout=_TIMEOUT, nice=True, cancel=cancel, pass_fds=(held,))
        except GitError as error:
            raise StoreError(f"The roll-up of {self._vault} failed: {error}") from error
        finally:
            self._packs.refresh()
        return ""

    def _env(self) -> GitEnv:
        # No index: what an index names may be gone, and must not stop a roll-up.
        return GitEnv(git_dir=self._vault, index=self._vault / "no-index")

    def _dead_fraction(self, cancel: Callable[[], bool]) -> float:
        done = git(["rev-list", "--objects", "--all", "--disk-usage"], env=self._env(), timeout=_TIMEOUT, nice=True,
                   cancel=cancel)  # fmt: skip
        total = self._size(self._ordinary())
        return 1 - int(done.stdout) / total if total > 1 << 20 else 0.0

    def _room(self, needed: int) -> str:
        free = shutil.disk_usage(self._vault).free
        return "" if free > needed else f"{needed >> 20} MiB of free disk are needed, there are {free >> 20}"

    def _ordinary(self) -> list[Pack]:
        rolling = {pack.name for pack in self._packs.rolling()}
        return [pack for pack in self._packs.packs() if pack.name not in rolling]

    def _is_base(self, pack: Pack) -> bool:
        return keep_text(pack.path) == KEEP_BASE

    @staticmethod
    def _size(packs: list[Pack]) -> int:
        return sum(pack.size for pack in packs)

    def verify(self, trees: Trees, refs: Refs, cancel: Callable[[], bool]) -> list[Damage]:
        """What `git fsck` has to complain of, and the checkpoints that lack something."""
        findings = self._fsck(cancel)
        found = [Damage(what=finding) for finding in findings]
        if not findings:
            return found
        known: set[bytes] = set()
        for name, commit in refs.under(CHECKPOINTS).items():
            lack = trees.lack(commit, known)
            if lack:
                found.append(Damage(what=lack, checkpoints=(name.removeprefix(CHECKPOINTS),)))
        return found

    def _fsck(self, cancel: Callable[[], bool]) -> list[str]:
        done = git(["fsck", "--strict", "--full", "--no-dangling", "--no-progress"], env=self._env(), timeout=_TIMEOUT,
                   nice=True, cancel=cancel, check=False)  # fmt: skip
        lines = (done.stdout + b"\n" + done.stderr).decode("utf-8", "backslashreplace").splitlines()
        lines = [line for line in lines if line and not line.startswith("notice:")]
        findings = [line for line in lines if _CONTENT_FINDING not in line]
        if done.returncode and not lines:
            findings.append(f"git fsck ended with {done.returncode}")
        return findings
