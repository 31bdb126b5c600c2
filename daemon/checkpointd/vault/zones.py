"""One repository's share of a work tree: its ignore rules, its index, and the git children that answer for it.

A nested repository has its own rules, so it is a zone of its own; a plain directory is a zone without a repository.
No child ever runs in the user's git dir: a scratch one stands in for it.
"""

import hashlib
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from checkpointd.vault import disk, index
from checkpointd.vault.packs import CHUNK
from checkpointd.vault.repository import Repository, read_file, settings
from checkpointd.vault.run import GitEnv, GitFailed, GitTimeout, GitTooMuch, git, git_records

PREFIX_FILE = "prefix"
"""In a zone's folder: where in the work tree its top is."""

_TIMEOUT = 300.0
_RULES = 1 << 20  # bytes of one file of ignore rules
_ARGUMENTS = 96 << 10  # bytes of paths on one command line
_UNOPENED = re.compile(rb"could not open directory '(.*?)/?': (.*)", re.DOTALL)
_ATTRIBUTES = b"* -text -eol -crlf -ident -filter -working-tree-encoding\n"


class Tracked(NamedTuple):
    """One entry of the user's index."""

    path: bytes
    oid: bytes  # raw; of the repository's own format
    mode: int
    tag: bytes  # git's letter for its state

    @property
    def absent(self) -> bool:
        """Whether a sparse checkout may leave it out (skip-worktree)."""
        return self.tag == b"S"

    @property
    def line(self) -> bytes:
        """It as the short listing has it."""
        return b"%s %s\0" % (self.tag, self.path)


class Others(NamedTuple):
    """What is in the work tree and not in an index: files, and folders of which nothing is in it (they end in a slash).
    `unopened`: folders that git could not enter, and why."""

    names: frozenset[bytes]
    unopened: dict[bytes, bytes]


class Home(NamedTuple):
    """Where the user's own git configuration lies."""

    path: Path
    config: Path | None = None  # XDG_CONFIG_HOME

    @property
    def config_path(self) -> Path:
        return self.config or self.path / ".config"


def home_of(env: Mapping[str, str]) -> Home:
    """The home that an environment names."""
    config = env.get("XDG_CONFIG_HOME")
    return Home(Path(env.get("HOME") or Path.home()), Path(config) if config else None)


def below(zone: "Zone", path: bytes) -> bytes:
    """A path of the work tree as its zone has it."""
    return path[len(zone.prefix) + 1 :] if zone.prefix else path


def above(zone: "Zone", path: bytes) -> bytes:
    """A zone's path as the work tree has it."""
    return zone.prefix + b"/" + path if zone.prefix else path


class Zone:
    """One zone. Paths that its methods take and give are relative to its top."""

    def __init__(
        self,
        prefix: bytes,
        top: Path,
        repository: Repository | None,
        folder: Path,
        home: Home,
        cancel: Callable[[], bool],
    ) -> None:
        self.prefix = prefix
        self.repository = repository
        self.index = index.EMPTY
        self.others: frozenset[bytes] = frozenset()
        self.rules = ""
        self.everywhere: tuple[bytes, ...] = ()  # the rules that do not stand in a .gitignore
        self.index_stamp: tuple[int, ...] | None = None
        self.tracked_folders: set[bytes] = set()
        self.tracked_digest = b""
        self.folder = folder
        self._top = top
        self._copying = threading.Lock()
        self._home = home
        self._cancel = cancel

    def lay_out(self) -> None:
        """Makes the scratch git dirs and brings the ignore rules in them up to date; `rules` names those in force."""
        disk.make_directories(self.folder)
        _put(self.folder / PREFIX_FILE, self.prefix)
        _lay_scratch(self._own, "sha1")
        if self._of_user != self._own and self.repository is not None:
            _lay_scratch(self._of_user, self.repository.object_format)
        exclude = (read_file(self.repository.exclude_path, _RULES) if self.repository else None) or b""
        self._excludes = self._excludes_file()
        files = [self._excludes, self._home.config_path / "git" / "ignore"]
        named = [b"%s\0%s" % (os.fsencode(path), read_file(path, _RULES) or b"") for path in files if path is not None]
        self.rules = hashlib.sha1(b"\0".join((exclude, *named))).hexdigest()
        self.everywhere = (exclude, *(rules.partition(b"\0")[2] for rules in named))
        for scratch in {self._own, self._of_user}:
            _put(scratch / "info" / "exclude", exclude)

    @property
    def index_path(self) -> Path:
        return self.folder / "index"

    @property
    def _own(self) -> Path:
        return self.folder / "git"

    @property
    def _of_user(self) -> Path:
        """The scratch git dir that reads the user's index: of its format, beside a copy of its shared part."""
        plain = self.repository is None or self.repository.object_format == "sha1"
        return self._own if plain else self.folder / "git-of-user"

    def _excludes_file(self) -> Path | None:
        found = None
        places = [self._home.config_path / "git" / "config", self._home.path / ".gitconfig"]
        if self.repository is not None:
            places.append(self.repository.common_dir / "config")
        for place in places:
            found = settings(place).get("core.excludesfile", found)
        if not found:
            return None
        path = self._home.path / found[2:] if found.startswith("~/") else Path(found)
        # A device or a pipe would keep git reading for ever.
        return path if path.is_absolute() and path.is_file() and path.stat().st_size <= _RULES else None

    def _env(self, scratch: Path, index_path: Path, *, objects: bool = False) -> GitEnv:
        alternates = self.repository.objects_path if objects and self.repository else None
        return GitEnv(
            git_dir=scratch, work_tree=self._top, index=index_path, alternates=alternates, home=self._home.path,
            config_home=self._home.config,
        )  # fmt: skip

    def _options(self) -> tuple[str, ...]:
        return () if self._excludes is None else ("-c", f"core.excludesFile={self._excludes}")

    # The user's index

    def stamp(self) -> tuple[int, ...] | None:
        """What changes when the user's index does."""
        if self.repository is None:
            return None
        try:
            info = self.repository.index_path.stat()
        except OSError:
            return None
        return info.st_mtime_ns, info.st_size, info.st_ino

    @property
    def _user_index(self) -> Path:
        return self.repository.index_path if self.repository is not None else self.folder / "none"

    def tracked(self) -> Iterator[Tracked]:
        """The entries of the user's index."""
        if self.stamp() is None:
            return
        self._copy_shared_index()
        env = self._env(self._of_user, self._user_index, objects=True)
        args = ("ls-files", "--cached", "--stage", "-t", "-z")
        for record in git_records(args, env=env, timeout=_TIMEOUT, cancel=self._cancel, cwd=self._top):
            head, _, path = record.partition(b"\t")
            tag, mode, oid, _stage = head.split(b" ")
            yield Tracked(path, bytes.fromhex(oid.decode("ascii")), int(mode, 8), tag)

    def listing_digest(self) -> bytes:
        """The hash of the short listing of the user's index. It stays the same when only stat data or contents change,
        as with every `git status`, and costs a tenth of the long one."""
        digest = hashlib.sha1()
        if self.stamp() is not None:
            self._copy_shared_index()
            env = self._env(self._of_user, self._user_index, objects=True)
            args = ("ls-files", "--cached", "-t", "-z")
            output = git(args, env=env, timeout=_TIMEOUT, limit=1 << 30, cancel=self._cancel, cwd=self._top).stdout
            view = memoryview(output)
            for start in range(0, len(view), CHUNK):
                digest.update(view[start : start + CHUNK])
        return digest.digest()

    def note_tracked(self, paths: Iterable[bytes]) -> None:
        """Remembers which folders hold something tracked."""
        self.tracked_folders = set()
        for path in paths:
            folder = path.rpartition(b"/")[0]
            while folder and folder not in self.tracked_folders:
                self.tracked_folders.add(folder)
                folder = folder.rpartition(b"/")[0]

    def tracked_of(self, paths: Collection[bytes]) -> set[bytes]:
        """Which of these paths are in the user's index."""
        found: set[bytes] = set()
        if not paths or self.stamp() is None:
            return found
        self._copy_shared_index()
        env = self._env(self._of_user, self._user_index, objects=True)
        for part in _parts(paths):
            args: tuple[str | bytes, ...] = ("--literal-pathspecs", "ls-files", "--cached", "-z", "--", *part)
            done = git(args, env=env, timeout=_TIMEOUT, cancel=self._cancel, cwd=self._top)
            found.update(done.stdout.split(b"\0"))
        return found & set(paths)

    def _copy_shared_index(self) -> None:
        # A split index is looked up beside the git dir. git refreshes the time of one it reads, so never the original;
        # its name is its hash, so a copy never ages.
        git_dir = self._user_index.parent
        try:
            shared = [name for name in os.listdir(git_dir) if name.startswith("sharedindex.")]
        except OSError:
            return
        with self._copying:  # two children may be about to start at once
            for name in shared:
                if not (self._of_user / name).exists():
                    data = read_file(git_dir / name, 1 << 30)
                    if data is not None:
                        _put(self._of_user / name, data)

    # The work tree

    def look(self, *, users_index: bool) -> Others:
        """What is in the work tree and not in an index, ignore rules aside: the user's index, else our own."""
        scratch, path = (self._of_user, self._user_index) if users_index else (self._own, self.index_path)
        if users_index and self.stamp() is not None:
            self._copy_shared_index()
        warnings: list[bytes] = []
        names = git_records(
            ("ls-files", "--others", "--directory", "-z"),
            env=self._env(scratch, path, objects=users_index),
            timeout=_TIMEOUT,
            cancel=self._cancel,
            cwd=self._top,
            warnings=warnings,
        )
        found = frozenset(names)
        matches = map(_UNOPENED.search, warnings)
        return Others(found, {match[1]: match[2] for match in matches if match})

    def stale(self) -> list[bytes]:
        """The paths of our index whose files are gone, or may have other bytes than when they were read."""
        if not len(self.index):
            return []
        env = self._env(self._own, self.index_path)
        args = ("diff-files", "--raw", "-z")
        records = git_records(args, env=env, timeout=_TIMEOUT, cancel=self._cancel, cwd=self._top)
        return [record for record in records if not record.startswith(b":")]

    def ignored(self, paths: Collection[bytes]) -> set[bytes]:
        """Which of these paths the ignore rules leave out, tracked or not."""
        if not paths:
            return set()
        args = (*self._options(), "check-ignore", "--no-index", "--stdin", "-z")
        done = git(
            args,
            env=self._env(self._own, self.folder / "none"),
            stdin=b"\0".join(paths) + b"\0",
            timeout=_TIMEOUT,
            cancel=self._cancel,
            cwd=self._top,
            check=False,
        )
        if done.returncode not in (0, 1):  # 1: none of them
            raise GitFailed("check-ignore", done.returncode, done.stderr)
        return set(done.stdout.split(b"\0")) - {b""}

    def ignored_folders(self, defaults: Collection[bytes]) -> set[bytes]:
        """The highest folders without anything tracked that a rule, or one of these names, leaves out as a whole."""
        self._copy_shared_index()
        args: list[str | bytes] = [*self._options()]
        args += ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
        args += (b"--exclude=" + name + b"/" for name in sorted(defaults))
        env = self._env(self._of_user, self._user_index, objects=True)
        records = git_records(args, env=env, timeout=_TIMEOUT, cancel=self._cancel, cwd=self._top)
        folders = {record.rstrip(b"/") for record in records if record.endswith(b"/")}
        named = {folder for folder in folders if folder.rpartition(b"/")[2] in defaults}
        # git folds a folder whose files are all ignored, too; a new one in it need not be.
        return named | self.ignored(folders - named)

    def copy_objects(self, listing: Iterable[bytes], into: Path) -> Path | None:
        """Copies objects (given by id) out of the user's repository into a pack of our own below `into`; its path.
        None where that cannot be done: a SHA-256 repository, objects that are not there. Their deltas are kept."""
        if self.repository is None or self.repository.object_format != "sha1":
            return None
        stdin = b"".join(b"%s\n" % oid.hex().encode() for oid in listing)
        if not stdin:
            return None
        # The user's objects are an alternate of this one child, so nothing of the vault comes to depend on them.
        env = self._env(self._own, self.folder / "none", objects=True)
        args = ("-c", "pack.threads=2", "pack-objects", "-q", "--window=0", os.fsencode(into / "pack"))
        try:
            done = git(args, env=env, stdin=stdin, timeout=_TIMEOUT, cancel=self._cancel, nice=True)
        except (GitFailed, GitTimeout, GitTooMuch):
            return None
        pack = into / f"pack-{done.stdout.decode('ascii').strip()}.pack"
        return pack if pack.is_file() else None


def _lay_scratch(path: Path, object_format: str) -> None:
    if (path / "HEAD").exists():
        return
    for folder in ("objects", "refs", "info"):
        disk.make_directories(path / folder)
    extension = "" if object_format == "sha1" else f"[extensions]\n\tobjectFormat = {object_format}\n"
    version = 0 if object_format == "sha1" else 1
    _put(path / "config", f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n{extension}".encode())
    _put(path / "info" / "attributes", _ATTRIBUTES)
    _put(path / "HEAD", b"ref: refs/heads/none\n")


def _put(path: Path, data: bytes) -> None:
    if read_file(path, len(data) + 1) == data:
        return
    disk.remove(f"{path}.new")  # of a run that was killed
    with disk.translated(path):
        disk.replace_file(str(path), data, sync=False, suffix=".new")


def _parts(paths: Collection[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for path in paths:
        if size > _ARGUMENTS:
            yield part
            part, size = [], 0
        part.append(path)
        size += len(path) + 1
    yield part
