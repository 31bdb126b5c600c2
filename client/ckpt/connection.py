"""One connection to the daemon: the handshake, then one answer a request."""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from ckpt import places
from ckpt.contract import frames, methods
from ckpt.contract.errors import BY_NUMBER, CATALOGUE, CkptError, Code
from ckpt.contract.methods import Method
from ckpt.contract.version import PROTOCOL, __version__

P = TypeVar("P")
R = TypeVar("R")
Progress = Callable[[str, int, int | None], None]

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a disk",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "dead, not collected",
    "I": "idle",
}
# The agent's own variable first, then the one for everybody.
_SESSION_VARIABLES = (
    ("claude", "CLAUDE_CODE_SESSION_ID"),
    ("codex", "CODEX_THREAD_ID"),
    ("codex", "CODEX_SESSION_ID"),
    ("pi", "PI_SESSION_ID"),
    ("", "AGENT_SESSION_ID"),
)


def asking(env: Mapping[str, str]) -> methods.Asking | None:
    """The agent session that this environment belongs to."""
    for agent, variable in _SESSION_VARIABLES:
        if session := env.get(variable):
            return methods.Asking(agent=agent, session=session)
    return None


class Connection:
    """A connected, greeted daemon. `hello` is what it said; `fits` whether its protocol is ours."""

    def __init__(self, channel: socket.socket, env: Mapping[str, str], note: Callable[[str], None]) -> None:
        self._channel = channel
        self._buffer = bytearray()
        self._id = 0
        self.hello = self._greet(env, note)
        self.fits = self.hello["protocol"] == PROTOCOL

    def call(self, method: Method[P, R], params: P, progress: Progress | None = None) -> R:
        """The answer to one request. Raises CkptError for every way it can go wrong."""
        if not self.fits and method.name not in (methods.STATUS.name, methods.SHUTDOWN.name):
            raise incompatible(self.hello)
        self._send(method.name, params)
        return cast(R, self._result(progress, frames.REQUEST_SECONDS + 10))

    def happenings(self, params: methods.ScopeParams) -> Iterator[methods.Happening]:
        """What happens from now on, until the daemon ends it (CkptError) or the caller stops."""
        if not self.fits:
            raise incompatible(self.hello)
        self._send(methods.SUBSCRIBE.name, params)
        while True:
            message = self._message(None)
            told = message.get("params") or {}
            if message.get("method") == frames.EVENT:
                yield cast(methods.Happening, told["event"])
            elif message.get("method") == frames.CLOSED:
                raise CkptError("failed", f"The subscription ended: {told['reason']}", hint="Start it again.")
            elif "error" in message:
                raise _error_of(message["error"])

    def close(self) -> None:
        self._channel.close()

    def _greet(self, env: Mapping[str, str], note: Callable[[str], None]) -> methods.Hello:
        params = methods.HelloParams(version=__version__, protocol=PROTOCOL, asking=asking(env))
        self._send(methods.HELLO.name, params)
        try:
            return cast(methods.Hello, self._result(None, frames.HANDSHAKE_SECONDS))
        except _Silent:
            note(_waiting(_who(self._channel, env)))
        try:
            return cast(methods.Hello, self._result(None, frames.PATIENCE_SECONDS - frames.HANDSHAKE_SECONDS))
        except _Silent:
            raise not_responding(_who(self._channel, env)) from None

    def _send(self, method: str, params: object) -> None:
        self._id += 1
        request = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        # An argument that is not UTF-8 and no path (those are quoted) loses the bytes that are not.
        line = json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        if len(line) > frames.MAX_REQUEST:
            raise CkptError("too-large", "The request is larger than the protocol allows.", hint="Name fewer paths.")
        self._channel.settimeout(frames.PATIENCE_SECONDS)
        try:
            self._channel.sendall(line)
        except TimeoutError:
            raise not_responding("The daemon") from None
        except OSError:
            # It may have said why before it hung up: the next read shows it.
            return

    def _result(self, progress: Progress | None, seconds: float) -> object:
        deadline = time.monotonic() + seconds
        while True:
            message = self._message(deadline)
            if message.get("method") == frames.PROGRESS:
                deadline = time.monotonic() + seconds
                if progress is not None:
                    told = message["params"]
                    progress(told["stage"], told["done"], told["total"])
            elif message.get("id") in (self._id, None) and "error" in message:
                raise _error_of(message["error"])
            elif message.get("id") == self._id and "result" in message:
                return message["result"]

    def _message(self, deadline: float | None) -> dict[str, Any]:
        try:
            message = json.loads(self._line(deadline))
        except (ValueError, RecursionError) as error:
            raise CkptError("internal", "The daemon sent something that is no answer.") from error
        if not isinstance(message, dict):
            raise CkptError("internal", "The daemon sent something that is no answer.")
        return message

    def _line(self, deadline: float | None) -> bytes:
        seen = 0
        while (end := self._buffer.find(b"\n", seen)) < 0:
            seen = len(self._buffer)
            if seen > frames.MAX_REPLY:
                raise CkptError("too-large", "The daemon's answer is larger than the protocol allows.")
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise _Silent
            try:
                self._channel.settimeout(left)
                part = self._channel.recv(1 << 16)
            except TimeoutError:
                raise _Silent from None
            except OSError:
                part = b""
            if not part:
                raise CkptError("not-running", "The daemon hung up without an answer.", hint="`ckpt up`")
            self._buffer += part
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


class _Silent(CkptError):
    """Nothing came in the time allowed."""

    def __init__(self) -> None:
        super().__init__("timed-out", "The daemon did not answer in time; what it started goes on.",
                         hint="`ckpt status` shows how it ended.")  # fmt: skip


def connect(env: Mapping[str, str], note: Callable[[str], None]) -> Connection:
    """Finds the daemon and greets it. Raises CkptError: not-running, not-responding."""
    refused: CkptError | None = None
    for path in places.sockets(env):
        try:
            channel = _open(path, env, note)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            continue
        except CkptError as error:
            refused = refused or error
            continue
        except OSError as error:
            refused = refused or CkptError("not-running", f"{os.fsdecode(path)}: {error.strerror or error}.",
                                           hint="`ckpt up`")  # fmt: skip
            continue
        try:
            return Connection(channel, env, note)
        except BaseException:
            channel.close()
            raise
    raise refused or CkptError("not-running", "The daemon is not running.", hint="Start it with `ckpt up`.")


def _open(path: bytes, env: Mapping[str, str], note: Callable[[str], None]) -> socket.socket:
    begun, told = time.monotonic(), False
    while True:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            channel.settimeout(frames.PATIENCE_SECONDS)
            channel.connect(path)
            check_owner(channel)
        except BlockingIOError:
            # Its queue of clients is full: it does not take them, so it is as good as stopped.
            channel.close()
            waited = time.monotonic() - begun
            if waited > frames.PATIENCE_SECONDS:
                raise not_responding(_who(None, env)) from None
            if waited > frames.HANDSHAKE_SECONDS and not told:
                told = True
                note(_waiting(_who(None, env)))
            time.sleep(0.05)
        except BaseException:
            channel.close()
            raise
        else:
            return channel


def check_owner(channel: socket.socket) -> None:
    """Refuses a daemon of another user: it would be told what we keep, and tell us what it likes."""
    if sys.platform != "linux":
        return
    uid = _credentials(channel)[1]
    if uid not in (os.getuid(), 0) and os.getuid() != 0:
        raise CkptError("not-running", f"The daemon at this socket belongs to user {uid}, not to you.",
                        hint="Start yours with `ckpt up`.")  # fmt: skip


def _credentials(channel: socket.socket) -> tuple[int, int]:
    pid, uid, _gid = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def process(pid: int) -> tuple[str, int] | None:
    """A process's state letter and its start in clock ticks since boot, from /proc; None where it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[19])


def _who(channel: socket.socket | None, env: Mapping[str, str]) -> str:
    found = places.discover(env)
    pid = found.pid
    if pid is None and channel is not None and sys.platform == "linux":
        pid = _credentials(channel)[0] or None
    if pid is None:
        return "The daemon"
    seen = process(pid)
    if seen is None or (found.start is not None and found.start != seen[1]):
        return f"The daemon (pid {pid}, not there any more)" if sys.platform == "linux" else f"The daemon (pid {pid})"
    return f"The daemon (pid {pid}, {_STATES.get(seen[0], seen[0])})"


def _waiting(who: str) -> str:
    return f"{who} does not answer yet; waiting up to {frames.PATIENCE_SECONDS:.0f} s."


def not_responding(who: str) -> CkptError:
    seconds = f"{frames.PATIENCE_SECONDS:.0f} s"
    return CkptError("not-responding", f"{who} did not answer within {seconds}.",
                     hint="`ckpt restart` ends it and starts a new one.")  # fmt: skip


def incompatible(hello: methods.Hello) -> CkptError:
    return CkptError(
        "incompatible",
        f"This ckpt ({__version__}) speaks protocol {PROTOCOL}, the daemon ({hello['version']}) {hello['protocol']}.",
        hint="`ckpt restart`",
    )


def _error_of(body: Any) -> CkptError:
    """The error that an answer holds; whatever its shape, since the daemon may be of another version."""
    body = body if isinstance(body, dict) else {"message": str(body)}
    data = body["data"] if isinstance(body.get("data"), dict) else {}
    words: list[Code] = [known for known in CATALOGUE if known == data.get("code")]
    code = words[0] if words else BY_NUMBER.get(body.get("code"), "internal")
    hint = data.get("hint")
    return CkptError(code, str(body.get("message", "")), hint=hint if isinstance(hint, str) else None)
