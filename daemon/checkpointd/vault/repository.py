"""The user's repository, read from its files: never executed, never written, never git's current directory."""

import functools
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from checkpointd.model.checkpoint import GitState, RepositoryState
from checkpointd.vault.run import GitEnv, GitError, git

_SMALL = 64 << 10
_PACKED_REFS = 64 << 20
_MOST_REFS = 10_000
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OWN_REFS = ("refs/bisect/", "refs/worktree/", "refs/rewritten/")  # each linked work tree has these for itself
_HEX = frozenset("0123456789abcdef")


class Repository(Struct, frozen=True, kw_only=True):
    """One work tree of a repository. `foreign`: it belongs to another user, and git itself would refuse it."""

    top: Path
    git_dir: Path
    common_dir: Path
    object_format: str = "sha1"
    reference_format: str = "files"
    foreign: bool = False

    @property
    def linked(self) -> bool:
        """Whether this is a linked work tree (`git worktree add`)."""
        return self.git_dir != self.common_dir

    @property
    def index_path(self) -> Path:
        return self.git_dir / "index"

    @property
    def exclude_path(self) -> Path:
        return self.common_dir / "info" / "exclude"

    @property
    def objects_path(self) -> Path:
        return self.common_dir / "objects"

    def settings(self) -> dict[str, str]:
        """The repository's own configuration, includes left out; keys in lower case but for a subsection."""
        return settings(self.common_dir / "config")

    def remotes(self) -> tuple[str, ...]:
        """The URLs of its remotes, as text."""
        found = self.settings().items()
        return tuple(sorted({value for key, value in found if key.startswith("remote.") and key.endswith(".url")}))

    def head(self) -> tuple[str | None, str | None]:
        """The branch (None: detached) and the commit (None: unborn) of HEAD; both None where it cannot be known."""
        text = _line(self.git_dir / "HEAD")
        if text is None or self.reference_format != "files":
            return None, None
        if not text.startswith("ref:"):
            return None, text if _is_oid(text) else None
        name = text[4:].strip()
        branch = name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None
        return branch, self.reference(name)

    def reference(self, name: str) -> str | None:
        """The object that a ref names, through symbolic refs."""
        for _ in range(5):
            if ".." in name or not name.startswith("refs/"):
                return None
            base = self.git_dir if name.startswith(_OWN_REFS) else self.common_dir
            text = _line(base / name)
            if text is None:
                return self._packed().get(name)
            if not text.startswith("ref:"):
                return text if _is_oid(text) else None
            name = text[4:].strip()
        return None

    def _packed(self) -> dict[str, str]:
        path = self.common_dir / "packed-refs"
        try:
            info = path.lstat()
        except OSError:
            return {}
        return _packed_refs(path, info.st_mtime_ns, info.st_size, info.st_ino)

    def branches(self) -> dict[str, str]:
        """The local branches and their commits."""
        found = {
            name.removeprefix("refs/heads/"): oid
            for name, oid in self._packed().items()
            if name.startswith("refs/heads/")
        }
        top = self.common_dir / "refs" / "heads"
        for name in _names_below(top):
            oid = self.reference(f"refs/heads/{name}")
            if oid:
                found[name] = oid
        return dict(sorted(found.items())[:_MOST_REFS])

    def stashes(self) -> tuple[str, ...]:
        """The commits of the stashes, newest first."""
        log = read_file(self.common_dir / "logs" / "refs" / "stash", _PACKED_REFS) or b""
        lines = [
            line.split(b" ", 2)[1].decode("ascii", "replace") for line in log.splitlines() if line.count(b" ") >= 2
        ]
        return tuple(oid for oid in reversed(lines) if _is_oid(oid))

    def operation(self) -> RepositoryState:
        """What is under way in the work tree."""
        if (self.git_dir / "rebase-merge").is_dir():
            return "rebasing"
        if (self.git_dir / "rebase-apply").is_dir():
            return "applying" if (self.git_dir / "rebase-apply" / "applying").exists() else "rebasing"
        states: tuple[tuple[str, RepositoryState], ...] = (
            ("MERGE_HEAD", "merging"), ("CHERRY_PICK_HEAD", "cherry-picking"), ("REVERT_HEAD", "reverting"),
            ("BISECT_LOG", "bisecting"),
        )  # fmt: skip
        return next((state for name, state in states if (self.git_dir / name).exists()), "none")

    def state(self) -> GitState:
        """HEAD, branches, stashes and what is under way. Staged entries are not looked at."""
        if self.reference_format != "files":
            return GitState(
                state=self.operation(),
                object_format=self.object_format,
                note=f"HEAD and branches are unknown: references are kept as {self.reference_format}",
            )
        branch, head = self.head()
        return GitState(
            branch=branch,
            head=head,
            upstream=self._upstream(branch) if branch else None,
            state=self.operation(),
            branches=self.branches(),
            stashes=self.stashes(),
            object_format=self.object_format,
            note="the repository belongs to another user" if self.foreign else "",
        )

    def _upstream(self, branch: str) -> str | None:
        found = self.settings()
        remote, merge = found.get(f"branch.{branch}.remote"), found.get(f"branch.{branch}.merge")
        if not remote or not merge:
            return None
        name = merge.removeprefix("refs/heads/")
        return name if remote == "." else f"{remote}/{name}"

    def head_fingerprint(self) -> str:
        """A text that changes when HEAD, its branch's commit, or the stash moves. Costs a few small reads."""
        head = _line(self.git_dir / "HEAD") or ""
        parts = [head, *(self.head() if self.reference_format == "files" else self._reftable())]
        parts.append(self.reference("refs/stash"))
        return hashlib.sha1("\0".join(part or "" for part in parts).encode("utf-8", "surrogateescape")).hexdigest()

    def _reftable(self) -> tuple[str, str]:
        # Every change of a reference makes a new table and a new list of them.
        return tuple(
            (read_file(folder / "reftable" / "tables.list", _SMALL) or b"").decode("utf-8", "replace")
            for folder in (self.git_dir, self.common_dir)
        )  # type: ignore[return-value]


def find(path: Path) -> Repository | None:
    """The repository whose work tree holds `path`; None outside of any."""
    for folder in (path, *path.parents):
        found = at(folder)
        if found is not None:
            return found
    return None


def at(top: Path) -> Repository | None:
    """The repository whose work tree has its top at `top`."""
    git_dir = _git_dir(top / ".git")
    if git_dir is None:
        return None
    text = _line(git_dir / "commondir")
    common = Path(os.path.normpath(git_dir / text)) if text else git_dir
    if not ((common / "objects").is_dir() and (common / "refs").is_dir() and os.path.lexists(git_dir / "HEAD")):
        return None
    found = settings(common / "config")
    return Repository(
        top=top,
        git_dir=git_dir,
        common_dir=common,
        object_format=found.get("extensions.objectformat", "sha1").lower(),
        reference_format=found.get("extensions.refstorage", "files").lower(),
        foreign=_is_foreign(top) or _is_foreign(git_dir),
    )


def _git_dir(link: Path) -> Path | None:
    try:
        info = link.lstat()
        if stat.S_ISLNK(info.st_mode):
            info = link.stat()
    except OSError:
        return None
    if stat.S_ISDIR(info.st_mode):
        return link
    text = _line(link)
    if text is None or not text.startswith("gitdir:"):
        return None
    return Path(os.path.normpath(link.parent / text[7:].strip()))


def _is_foreign(path: Path) -> bool:
    try:
        return path.stat().st_uid != os.geteuid()
    except OSError:
        return True


def read_file(path: Path, limit: int) -> bytes | None:
    """At most `limit` bytes of a regular file; None where there is none, or it cannot be read."""
    try:
        descriptor = os.open(path, _FILE)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        parts = []
        while limit > 0 and (part := os.read(descriptor, min(limit, 1 << 20))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _line(path: Path) -> str | None:
    data = read_file(path, _SMALL)
    return None if data is None else os.fsdecode(data).strip()


def _is_oid(text: str) -> bool:
    return len(text) in (40, 64) and set(text) <= _HEX


def _names_below(top: Path) -> Iterator[str]:
    count = 0
    for folder, _, files in os.walk(top):
        below = os.path.relpath(folder, top)
        for name in files:
            count += 1
            if count > _MOST_REFS:
                return
            yield name if below == "." else f"{below}/{name}"


@functools.lru_cache(maxsize=16)
def _packed_refs(path: Path, *_stamp: int) -> dict[str, str]:
    found = {}
    for line in (read_file(path, _PACKED_REFS) or b"").splitlines():
        oid, _, name = os.fsdecode(line).partition(" ")
        if name and _is_oid(oid):
            found[name] = oid
    return found


def settings(path: Path) -> dict[str, str]:
    """One configuration file, by `git config --file`: read, never obeyed, includes left out. Empty where it cannot be
    read."""
    try:
        info = path.stat()
    except OSError:
        return {}
    return _settings(path, info.st_mtime_ns, info.st_size, info.st_ino)


@functools.lru_cache(maxsize=256)
def _settings(path: Path, *_stamp: int) -> dict[str, str]:
    env = GitEnv(git_dir=Path(os.devnull))
    args = ("config", "--file", os.fsencode(path), "--no-includes", "--null", "--list")
    try:
        output = git(args, env=env, timeout=10, limit=4 << 20).stdout
    except GitError:
        return {}
    found = {}
    for entry in os.fsdecode(output).split("\0"):
        key, _, value = entry.partition("\n")
        if key:
            found[key] = value
    return found
