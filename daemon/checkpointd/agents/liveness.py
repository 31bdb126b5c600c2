"""Whether an agent still has a session open, by what the agent itself leaves on disk."""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from checkpointd.agents.records import salvage

_NAMESPACE = re.compile(r"pid:\[\d+\]")


class LiveProcess(Struct, frozen=True, kw_only=True):
    """A process that says it runs a session.

    `alive` is None where that cannot be told from here: another pid namespace, or a system without /proc.
    """

    pid: int
    session: str
    start: str | None  # the agent's note of when the process began: on Linux, in clock ticks since boot
    cwd: str | None
    status: str | None
    alive: bool | None


class _Registered(Struct):
    pid: int = 0
    sessionId: str = ""  # noqa: N815 - the file's spelling
    cwd: str | None = None
    procStart: str | int | None = None  # noqa: N815
    status: str | None = None
    pidDomain: str | None = None  # noqa: N815


def claude_processes(folders: Iterable[Path], proc: Path = Path("/proc")) -> list[LiveProcess]:
    """The processes in Claude Code's registry; those that were killed stay in it.

    Only `sessions/<pid>.json` is read: the files beside it hold keys.
    """
    found: list[LiveProcess] = []
    for folder in folders:
        for file in sorted((folder / "sessions").glob("*.json")):
            registered = _registered(file)
            if registered is not None and registered.pid > 0 and registered.sessionId:
                found.append(_live(registered, proc))
    return found


def _registered(file: Path) -> _Registered | None:
    if not file.stem.isdigit():
        return None
    try:
        return salvage(msgspec.json.decode(file.read_bytes()), _Registered)
    except (OSError, msgspec.MsgspecError):
        return None  # gone, or just being written


def _live(registered: _Registered, proc: Path) -> LiveProcess:
    start = None if registered.procStart is None else str(registered.procStart)
    return LiveProcess(
        pid=registered.pid,
        session=registered.sessionId,
        start=start,
        cwd=registered.cwd,
        status=registered.status,
        alive=_is_alive(registered.pid, start, proc) if _is_here(registered.pidDomain, proc) else None,
    )


def _is_here(domain: str | None, proc: Path) -> bool:
    """Whether a pid of that domain means the same process to us."""
    wanted = _NAMESPACE.search(domain or "")
    if wanted is None:
        return True
    try:
        return str((proc / "self/ns/pid").readlink()) == wanted[0]
    except OSError:
        return False


def _is_alive(pid: int, start: str | None, proc: Path) -> bool | None:
    if not (proc / "self").exists():
        return None
    try:
        text = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return False
    # The name in the second field may hold anything; the rest begins after its last parenthesis.
    fields = text.rpartition(b")")[2].split()
    dead, began = fields[:1] in ([b"Z"], [b"X"]), fields[19].decode() if len(fields) > 19 else None
    return not dead and (start is None or began is None or began == start)


def codex_writer(home: Path, session: str) -> Literal["held", "free", "absent"]:
    """Whether a process has the thread loaded in this Codex home.

    The lock file is never made, and is there after a kill, too. Ours is a shared lock for a moment: ask rarely, since a
    Codex that opens the thread in that moment finds it taken.
    """
    file = home / "thread-writer-locks" / f"{session}.lock"
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return "absent"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "absent"  # a file system without locks tells nothing
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return "free"
