"""The server: connections, their limits, and an orderly end."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator

from checkpointd.api import endpoint
from checkpointd.api.dispatch import Connection, Dispatcher, error_answer, notification
from checkpointd.api.peer import peer_of
from ckpt.contract import frames, methods
from ckpt.contract.errors import CkptError

log = logging.getLogger(__name__)

_CONNECTIONS = 512
_IDLE_SECONDS = 600.0
_SLOW_SECONDS = 30.0  # to take one answer
_QUEUE = 1 << 20  # bytes of notifications that may wait for a client


class Limits:
    """How much one client and all of them may take; tests make them small."""

    def __init__(
        self,
        *,
        connections: int = _CONNECTIONS,
        first_line: float = frames.FIRST_LINE_SECONDS,
        idle: float = _IDLE_SECONDS,
        slow: float = _SLOW_SECONDS,
        queue: int = _QUEUE,
    ) -> None:
        self.connections = connections
        self.first_line = first_line
        self.idle = idle
        self.slow = slow
        self.queue = queue


class Server:
    """Serves one listening socket; every client has a task of its own, so none waits for another."""

    def __init__(self, dispatcher: Dispatcher, limits: Limits | None = None) -> None:
        self._dispatcher = dispatcher
        self._limits = limits or Limits()
        self._clients: set[_Client] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answers from now on."""
        self._server = await asyncio.start_unix_server(
            self._connected, sock=listening, limit=frames.MAX_REQUEST, backlog=endpoint.BACKLOG
        )

    async def close(self, grace: float = 10.0) -> None:
        """Takes no more requests, finishes and answers those that were started, then lets all clients go."""
        if self._server is not None:
            self._server.close()
        for client in self._clients:
            client.close_when_idle()
        await self._dispatcher.drain(grace)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=min(grace, 1.0))
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Not a coroutine: asyncio would print a traceback for each client that is still there at SIGTERM.
        try:
            peer = peer_of(writer.get_extra_info("socket"))
        except OSError:
            writer.transport.abort()
            return
        if not peer.trusted:
            log.warning("client refused uid=%d pid=%d", peer.uid, peer.pid)
            writer.transport.abort()
            return
        if len(self._clients) >= self._limits.connections:
            busy = CkptError("busy", f"{len(self._clients)} clients are connected.", hint="Try again in a moment.")
            writer.write(error_answer(None, busy))
            writer.close()
            return
        client = _Client(reader, writer, self._dispatcher, self._limits)
        client.connection = Connection(peer, client.notify)
        task = asyncio.ensure_future(client.serve())
        client.task = task
        self._clients.add(client)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._gone(client, done))

    def _gone(self, client: "_Client", task: "asyncio.Task[None]") -> None:
        self._clients.discard(client)
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("connection failed", exc_info=task.exception())


class _Client:
    """One connection."""

    connection: Connection
    task: "asyncio.Task[None]"

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dispatcher: Dispatcher, limits: Limits
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._dispatcher = dispatcher
        self._limits = limits
        self._answering = False
        self._closing = False
        self._pump: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Answers line after line until the client leaves, breaks a limit, or the server closes."""
        try:
            await self._converse()
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # gone, too slow, or the daemon stops: nothing to tell
        finally:
            if self._pump is not None:
                # A task that is cancelled before its first step leaves the engine's side of the subscription open.
                await asyncio.sleep(0)
                self._pump.cancel()
            self._let_go()

    def close_when_idle(self) -> None:
        """Ends the conversation at once, or after the answer that is being made."""
        self._closing = True
        if not self._answering:
            self.task.cancel()

    def notify(self, line: bytes) -> None:
        """Sends a notification, or drops it: who does not read need not know how far it is."""
        transport = self._writer.transport
        if not transport.is_closing() and transport.get_write_buffer_size() <= self._limits.queue:
            self._writer.write(line)

    async def _converse(self) -> None:
        patience: float | None = self._limits.first_line
        while not self._closing and (line := await self._line(patience)):
            self._answering = True
            answer = await self._dispatcher.answer(line, self.connection)
            if self.connection.subscription is not None and self._pump is None:
                self._pump = asyncio.ensure_future(self._tell(*self.connection.subscription))
            if answer is not None:
                await self._send(answer)
            self._answering = False
            patience = self._limits.idle if self._pump is None else None

    async def _line(self, patience: float | None) -> bytes:
        """The next line; empty when there is none. What a client left unfinished is no request."""
        try:
            async with asyncio.timeout(patience):
                line = await self._reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError:
            refusal = CkptError("too-large", f"A request may have {frames.MAX_REQUEST} bytes.", hint="Ask for less.")
            await self._send(error_answer(None, refusal))
            return b""
        return line

    async def _send(self, line: bytes) -> None:
        self._writer.write(line)
        async with asyncio.timeout(self._limits.slow):
            await self._writer.drain()

    async def _tell(self, request_id: object, happenings: AsyncGenerator[methods.Happening, None]) -> None:
        """Passes on what happens until the client is gone or does not keep up."""
        reason = "The daemon ended the subscription."
        try:
            async for happening in happenings:
                if self._writer.transport.get_write_buffer_size() > self._limits.queue:
                    reason = "The client does not keep up."
                    break
                self._writer.write(notification(frames.EVENT, {"id": request_id, "event": happening}))
        except Exception:
            log.exception("subscription failed")
            reason = "A bug in the daemon; its log has the traceback."
        finally:
            await happenings.aclose()
        self._writer.write(notification(frames.CLOSED, {"id": request_id, "reason": reason}))
        self._closing = True
        self.task.cancel()

    def _let_go(self) -> None:
        """Closes after what is written has gone out; a client that does not take it is cut off."""
        transport = self._writer.transport
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(self._limits.slow, transport.abort)
        self._writer.close()
