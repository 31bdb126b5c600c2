"""Running git: the only child processes of the daemon."""

import contextlib
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

FLOOR = (2, 34)
"""The oldest git that is good enough."""

_SLICE = 0.1  # seconds between two looks at whether the work is still wanted
_NICENESS = 10
_BLOCK = 64 << 10


class GitError(Exception):
    """git could not be run to its end."""


class GitMissing(GitError):
    """There is no git, or it is too old."""


class GitTimeout(GitError):
    """git took too long and was killed."""


class GitCancelled(GitError):
    """Nobody wanted the answer any more, and git was killed."""


class GitTooMuch(GitError):
    """git wrote more than was allowed for, and was killed."""


class GitFailed(GitError):
    """git ended with an error."""

    def __init__(self, command: str, returncode: int, stderr: bytes) -> None:
        text = stderr.decode("utf-8", "replace").strip()
        super().__init__(f"git {command} ended with {returncode}: {text[-500:]}")
        self.returncode = returncode
        self.stderr = stderr


class Completed(Struct, frozen=True):
    """How a git child ended."""

    stdout: bytes
    stderr: bytes
    returncode: int


class GitEnv(Struct, frozen=True, kw_only=True):
    """The whole environment of a git child, built from nothing: no GIT_* of ours is inherited, and no configuration
    is read but that of `git_dir`, which is a vault or a scratch directory and never the user's."""

    git_dir: Path
    work_tree: Path | None = None
    index: Path | None = None
    alternates: Path | None = None  # an objects folder to read from, for this child only
    home: Path | None = None  # where git finds the user's own ignore file
    config_home: Path | None = None  # XDG_CONFIG_HOME, where the user has set it

    def variables(self, git: str) -> dict[str, str]:
        """The environment for the git at this path."""
        found = {
            "PATH": os.pathsep.join(dict.fromkeys((os.path.dirname(git), "/usr/bin", "/bin"))),
            "HOME": str(self.home or self.git_dir),
            "LC_ALL": "C",
            "GIT_DIR": str(self.git_dir),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
        }
        optional = {
            "GIT_WORK_TREE": self.work_tree,
            "GIT_INDEX_FILE": self.index,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": self.alternates,
            "XDG_CONFIG_HOME": self.config_home,
        }
        return found | {name: os.fsdecode(value) for name, value in optional.items() if value is not None}


@functools.cache
def find_git() -> str:
    """The git to run. Raises GitMissing."""
    path = shutil.which("git") or shutil.which("git", path="/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin")
    if path is None:
        raise GitMissing("There is no git on this machine's PATH.")
    return os.path.abspath(path)


@functools.cache
def check_git() -> tuple[int, ...]:
    """The version of git. Raises GitMissing when there is none, or only one that is too old."""
    done = git(("version",), env=GitEnv(git_dir=Path(os.devnull)), timeout=10)
    match = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    version = tuple(int(part) for part in match.groups(b"0")) if match else (0,)
    if version < FLOOR:
        text = ".".join(map(str, version))
        raise GitMissing(f"git {text} is too old: {'.'.join(map(str, FLOOR))} or newer is needed.")
    return version


def git(
    args: Sequence[str | bytes],
    *,
    env: GitEnv,
    timeout: float,
    stdin: bytes | None = None,
    limit: int = 64 << 20,
    nice: bool = False,
    cancel: Callable[[], bool] = lambda: False,
    cwd: Path | None = None,
    check: bool = True,
    pass_fds: Sequence[int] = (),
) -> Completed:
    """Runs git to its end. Raises GitTimeout, GitCancelled, GitTooMuch (more than `limit` bytes of output) after
    killing it and all its children; with `check`, GitFailed when it ends with an error."""
    output = []
    size = 0
    with _Child(
        args, env=env, timeout=timeout, stdin=stdin, nice=nice, cancel=cancel, cwd=cwd, pass_fds=pass_fds
    ) as child:
        for block in child.blocks():
            size += len(block)
            if size > limit:
                raise GitTooMuch(f"git {_word(args)} wrote more than {limit} bytes.")
            output.append(block)
        done = Completed(b"".join(output), child.stderr(), child.returncode())
    if check and done.returncode:
        raise GitFailed(_word(args), done.returncode, done.stderr)
    return done


def git_records(
    args: Sequence[str | bytes],
    *,
    env: GitEnv,
    timeout: float,
    stdin: bytes | None = None,
    nice: bool = False,
    cancel: Callable[[], bool] = lambda: False,
    cwd: Path | None = None,
    warnings: list[bytes] | None = None,
) -> Iterator[bytes]:
    """The NUL-terminated records that git writes, as they come. Raises as `git` does; the lines of stderr of a git
    that ended well go to `warnings`."""
    with _Child(args, env=env, timeout=timeout, stdin=stdin, nice=nice, cancel=cancel, cwd=cwd) as child:
        rest = b""
        for block in child.blocks():
            *records, rest = (rest + block).split(b"\0")
            yield from records
        if rest:
            yield rest
        stderr, returncode = child.stderr(), child.returncode()
    if returncode:
        raise GitFailed(_word(args), returncode, stderr)
    if warnings is not None:
        warnings += stderr.splitlines()


def _word(args: Sequence[str | bytes]) -> str:
    """The subcommand, for messages: the first argument that is no option of git itself."""
    words = iter(args)
    for word in words:
        if word in ("-c", b"-c"):
            next(words, None)
        elif not os.fsdecode(word).startswith("-"):
            return os.fsdecode(word)
    return ""


class _Child:
    """One git in a process group of its own, which does not outlive the `with` block."""

    def __init__(
        self,
        args: Sequence[str | bytes],
        *,
        env: GitEnv,
        timeout: float,
        stdin: bytes | None,
        nice: bool,
        cancel: Callable[[], bool],
        cwd: Path | None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._name = _word(args)
        self._cancel = cancel
        self._deadline = time.monotonic() + timeout
        self._files = contextlib.ExitStack()
        # stdin and stderr are files, so that no pipe but stdout can fill up and stand still.
        source: int | object = subprocess.DEVNULL
        if stdin is not None:
            file = self._scratch()
            file.write(stdin)
            file.seek(0)
            source = file
        self._stderr = self._scratch()
        self._output, output = os.pipe()
        self._files.callback(os.close, self._output)
        git_path = find_git()
        command: list[str | bytes] = [git_path, *args]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=source,  # type: ignore[arg-type]
                stdout=output,
                stderr=self._stderr,
                env=env.variables(git_path),
                cwd=cwd or "/",
                start_new_session=True,
                pass_fds=pass_fds,
            )
        except OSError as error:
            self._files.close()
            raise GitError(f"git cannot be started: {error}") from error
        finally:
            os.close(output)
        if nice:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICENESS)

    def _scratch(self) -> BinaryIO:
        return self._files.enter_context(tempfile.TemporaryFile())

    def __enter__(self) -> "_Child":
        return self

    def __exit__(self, *_: object) -> None:
        # The group may have members left, even where git itself has ended; it is still ours to name, since its
        # leader has not been waited for.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._files.close()

    def blocks(self) -> Iterator[bytes]:
        """What git writes, until it closes its output."""
        poll = select.poll()
        poll.register(self._output, select.POLLIN | select.POLLHUP)
        while True:
            self._look()
            if poll.poll(_SLICE * 1000):
                block = os.read(self._output, _BLOCK)
                if not block:
                    return
                yield block

    def _look(self) -> None:
        if time.monotonic() > self._deadline:
            raise GitTimeout(f"git {self._name} took too long and was stopped.")
        if self._cancel():
            raise GitCancelled(f"git {self._name} was not wanted any more.")

    def returncode(self) -> int:
        """How git ended; waits for it."""
        while True:
            self._look()
            try:
                return self._process.wait(_SLICE)
            except subprocess.TimeoutExpired:
                continue

    def stderr(self) -> bytes:
        """What git complained of, at most 64 KiB of its end; waits for it to end."""
        self.returncode()
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _BLOCK))
        return self._stderr.read()
