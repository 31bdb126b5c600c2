"""Requests in, answers out: one line each, and no line ends the daemon."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from checkpointd.api.peer import Peer
from checkpointd.engine import errors
from ckpt.contract import frames, methods
from ckpt.contract.errors import CATALOGUE, CkptError, Code
from ckpt.contract.methods import Method
from ckpt.contract.version import PROTOCOL, __version__

log = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")
Id = int | str | None

_RUNNING_LIMIT = 64
_PROGRESS_INTERVAL = 0.1
_CODES: dict[type[errors.EngineError], Code] = {
    errors.EngineError: "failed",
    errors.NotFound: "not-found",
    errors.Ambiguous: "ambiguous",
    errors.Conflict: "conflict",
    errors.Refused: "refused",
    errors.Busy: "busy",
    errors.Failed: "failed",
}
# These answer whatever the versions are, before any hello, and however busy the daemon is.
_ALWAYS = {methods.HELLO.name, methods.STATUS.name, methods.SHUTDOWN.name}


class _Request(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    method: str
    id: Id | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _OnlyId(msgspec.Struct):
    id: Id = None


class Connection:
    """What is known of one client between its requests."""

    def __init__(self, peer: Peer, notify: Callable[[bytes], None]) -> None:
        self.peer = peer
        self.notify = notify
        self.asking: methods.Asking | None = None
        self.protocol: int | None = None  # what the client said; None before its hello
        self.subscription: tuple[Id, AsyncGenerator[methods.Happening, None]] | None = None


class Call:
    """One request while it runs."""

    def __init__(self, request_id: Id, connection: Connection) -> None:
        self.id = request_id
        self.connection = connection
        self.told = time.monotonic()  # when progress was last made
        self._sent = ("", 0.0)

    def progress(self, stage: str, done: int, total: int | None = None) -> None:
        """Tells the client how far it is, at most ten times a second and at once for a new stage."""
        now = self.told = time.monotonic()
        if self._sent[0] == stage and now - self._sent[1] < _PROGRESS_INTERVAL:
            return
        self._sent = (stage, now)
        params = {"id": self.id, "stage": stage, "done": done, "total": total}
        self.connection.notify(notification(frames.PROGRESS, params))


class _Entry(Generic[P, R]):
    def __init__(self, method: Method[P, R], handler: Callable[[P, Call], Awaitable[R]]) -> None:
        self.decoder = msgspec.json.Decoder(method.params)
        self.handler = handler

    async def run(self, params: msgspec.Raw, call: Call) -> object:
        try:
            decoded = self.decoder.decode(params)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CkptError("invalid-params", _params_message(error)) from error
        return await self.handler(decoded, call)


class Dispatcher:
    """Finds the handler of a request and turns whatever comes of it into one answer."""

    def __init__(self, *, seconds: float = frames.REQUEST_SECONDS) -> None:
        self._entries: dict[str, _Entry[Any, Any]] = {}
        self._running: set[asyncio.Task[object]] = set()
        self._seconds = seconds

    @property
    def methods(self) -> set[str]:
        return set(self._entries)

    def add(self, method: Method[P, R], handler: Callable[[P, Call], Awaitable[R]]) -> None:
        self._entries[method.name] = _Entry(method, handler)

    async def answer(self, line: bytes, connection: Connection) -> bytes | None:
        """The answer to one line; None for a notification, which has none. Never raises, except when cancelled."""
        request_id: Id = None
        try:
            request = _parse(line)
            if request.id is msgspec.UNSET:
                return None
            request_id = request.id
            result = await self._perform(request, Call(request_id, connection))
            return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})
        except CkptError as error:
            return error_answer(request_id if error.code != "invalid-request" else _id_of(line), error)
        except Exception:
            # A bug in one request must not end the others.
            log.exception("request failed")
            return error_answer(request_id, CkptError("internal", "A bug in the daemon; its log has the traceback."))

    async def drain(self, seconds: float) -> None:
        """Waits until every request that was started is finished, at most for `seconds`."""
        running = self._running - {asyncio.current_task()}
        if running:
            await asyncio.wait(running, timeout=seconds)

    async def _perform(self, request: _Request, call: Call) -> object:
        entry = self._entries.get(request.method)
        if entry is None:
            raise CkptError("unknown-method", f"No method {request.method!r:.80}.", hint="`ckpt restart`")
        if request.method not in _ALWAYS:
            _check_greeting(call.connection)
            if len(self._running) >= _RUNNING_LIMIT:
                raise CkptError("busy", f"{_RUNNING_LIMIT} requests are running.", hint="Try again in a moment.")
        task: asyncio.Task[object] = asyncio.ensure_future(_translated(entry, request, call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await self._wait(task, call, request.method)

    async def _wait(self, task: asyncio.Task[object], call: Call, method: str) -> object:
        # Neither a client that leaves nor the time limit cancels the task: what was started is finished.
        while not task.done():
            left = call.told + self._seconds - time.monotonic()
            if left <= 0:
                task.add_done_callback(_log_late_failure)
                raise CkptError("timed-out", f"`{method}` takes longer than {self._seconds:.0f} s; it goes on.",
                                hint="`ckpt status` shows how it ended.")  # fmt: skip
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError:
                task.add_done_callback(_log_late_failure)
                raise
        return task.result()


async def _translated(entry: _Entry[Any, Any], request: _Request, call: Call) -> object:
    """Runs the handler; foreign errors become errors of the catalogue."""
    try:
        return await entry.run(request.params, call)
    except errors.EngineError as error:
        raise CkptError(_code_of(error), error.message, hint=error.hint) from error
    except OSError as error:
        # A full or read-only disk, a vanished folder: not a bug, but the log should say where.
        log.warning("request failed method=%s", request.method, exc_info=True)
        raise CkptError("failed", _os_message(error), hint="`ckpt status` names what stands in the way.") from error


def _log_late_failure(task: asyncio.Task[object]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, CkptError):
        log.error("request failed after its client had gone", exc_info=error)


def _code_of(error: errors.EngineError) -> Code:
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def _os_message(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename is not None else ""
    return f"{name}{error.strerror or error}"


def _params_message(error: Exception) -> str:
    """msgspec's words, with the field's name as the client knows it."""
    text = str(error) or type(error).__name__
    message, _, place = text.partition(" - at `$.")
    return f"Parameter `{place.rstrip('`')}`: {message}" if place else f"Parameters: {text}"


def _check_greeting(connection: Connection) -> None:
    if connection.protocol is None:
        raise CkptError("invalid-request", "The first request of a connection is `hello`.")
    if connection.protocol != PROTOCOL:
        raise CkptError(
            "incompatible",
            f"The client speaks protocol {connection.protocol}, the daemon ({__version__}) speaks {PROTOCOL}.",
            hint="`ckpt restart`",
        )


def _parse(line: bytes) -> _Request:
    try:
        return msgspec.json.decode(line, type=_Request)
    except msgspec.ValidationError as error:
        raise CkptError("invalid-request", f"Not a JSON-RPC 2.0 request: {error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CkptError("parse-error", f"Not a JSON object on one line: {error}.") from error


def _id_of(line: bytes) -> Id:
    """The id of an object that is no request, so that its sender can tell which one it was."""
    try:
        return msgspec.json.decode(line, type=_OnlyId).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _encode(message: object) -> bytes:
    encoded = msgspec.json.encode(message) + b"\n"
    if len(encoded) > frames.MAX_REPLY:
        raise CkptError("too-large", "The answer is larger than the protocol allows.", hint="Ask for less.")
    return encoded


def notification(method: str, params: object) -> bytes:
    """One line that answers nothing."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"


def error_answer(request_id: Id, error: CkptError) -> bytes:
    """One line that says what went wrong."""
    data = {"code": error.code, "hint": error.hint}
    body = {"code": CATALOGUE[error.code].number, "message": error.message, "data": data}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": body}) + b"\n"
