"""Where the daemon may be: the same rules as the daemon's own, without its imports; a test keeps them equal."""

import json
import os
import sys
from collections.abc import Iterator, Mapping

from ckpt.contract.paths import unquote

# sun_path holds 108 bytes on Linux and 104 on macOS, the ending NUL included.
_SOCKET_LIMIT = 103


def _home(env: Mapping[str, str]) -> str:
    return env.get("HOME") or os.path.expanduser("~")


def data_folder(env: Mapping[str, str]) -> str:
    if sys.platform == "darwin":
        return os.path.join(_home(env), "Library/Application Support/checkpointd")
    return os.path.join(env.get("XDG_DATA_HOME") or os.path.join(_home(env), ".local/share"), "checkpointd")


def state_folder(env: Mapping[str, str]) -> str:
    if sys.platform == "darwin":
        return os.path.join(_home(env), "Library/Logs/checkpointd")
    return os.path.join(env.get("XDG_STATE_HOME") or os.path.join(_home(env), ".local/state"), "checkpointd")


def discovery_file(env: Mapping[str, str]) -> str:
    return os.path.join(data_folder(env), "daemon.json")


def lock_file(env: Mapping[str, str]) -> str:
    return os.path.join(data_folder(env), "lock")


def default_socket(env: Mapping[str, str]) -> str:
    """Where a daemon of this environment binds its socket."""
    override = env.get("CHECKPOINTD_SOCKET")
    if override:
        return override
    base = env.get("XDG_RUNTIME_DIR") if sys.platform != "darwin" else None
    data = data_folder(env)
    runtime = os.path.join(base, "checkpointd") if base and os.path.isdir(base) else os.path.join(data, "run")
    socket = os.path.join(runtime, "socket")
    if len(os.fsencode(socket)) <= _SOCKET_LIMIT:
        return socket
    # hashlib costs 3 ms to import; almost no path is that long.
    import hashlib

    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    return f"/tmp/checkpointd-{digest}/socket"  # noqa: S108 - the daemon makes the folder 0700, the client checks the peer


class Discovery:
    """What `daemon.json` says; a field that is missing or wrong is None."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        socket, pid, start = fields.get("socket"), fields.get("pid"), fields.get("start")
        self.socket = _path(socket) if isinstance(socket, str) else None
        self.pid = pid if isinstance(pid, int) and not isinstance(pid, bool) and pid > 1 else None
        self.start = start if isinstance(start, int) and not isinstance(start, bool) else None


def _path(text: str) -> bytes | None:
    try:
        return unquote(text)
    except (ValueError, UnicodeError):
        return None


def discover(env: Mapping[str, str]) -> Discovery:
    """What the last daemon left in its discovery file; nothing where it cannot be read."""
    try:
        with open(discovery_file(env), "rb") as file:
            fields = json.loads(file.read(65536))
    except (OSError, ValueError, RecursionError):
        fields = None
    return Discovery(fields if isinstance(fields, dict) else {})


def sockets(env: Mapping[str, str]) -> Iterator[bytes]:
    """Where to look, in this order: the override alone, else the discovery file's place, then the default."""
    if override := env.get("CHECKPOINTD_SOCKET"):
        yield os.fsencode(override)
        return
    found = discover(env).socket
    default = os.fsencode(default_socket(env))
    if found is not None and found != default:
        yield found
    yield default
