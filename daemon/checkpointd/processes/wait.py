"""Waiting for processes that are not our children to end."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from checkpointd.processes.table import start_time

log = logging.getLogger(__name__)

_POLL = 1.0
# <sys/event.h>; Python has these names on macOS and BSD only.
_FILTER_PROC = -5
_EV_ADD = 0x0001
_EV_DELETE = 0x0002
_EV_ONESHOT = 0x0010
_NOTE_EXIT = 0x80000000

Ended = Callable[[], None]


class Notices(Protocol):
    """A way to be told that a process ended."""

    def begin(self, pid: int, ended: Ended) -> Callable[[], None]:
        """Has `ended` called once on the loop; gives back what ends the waiting.

        Raises ProcessLookupError when there is no such process, other OSErrors when this way is not open.
        """

    def close(self) -> None:
        """Ends all waiting."""


class Wait:
    """One waiting; `cancel` may come at any time, more than once."""

    def __init__(self, pid: int, started: float, callback: Ended) -> None:
        self.pid = pid
        self.started = started
        self._callback: Ended | None = callback
        self._undo: Callable[[], None] = _nothing

    @property
    def done(self) -> bool:
        """Whether the callback was made, or never will be."""
        return self._callback is None

    def cancel(self) -> None:
        """Ends the waiting without the callback."""
        self._callback = None
        undo, self._undo = self._undo, _nothing
        undo()

    def begun(self, undo: Callable[[], None]) -> None:
        """Takes what ends the waiting."""
        self._undo = undo

    def end(self) -> None:
        """Makes the callback, once."""
        callback = self._callback
        self.cancel()
        if callback is not None:
            callback()


class ProcessWait:
    """Tells when processes end. Belongs to the loop's thread.

    A process is its pid and its start time: a pid alone may be somebody else's by now.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, notices: Notices | None = None) -> None:
        self._loop = loop
        self._notices = notices or _native(loop)
        self._waits: set[Wait] = set()
        self._polled: set[Wait] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, pid: int, started: float, callback: Ended) -> Wait:
        """Has `callback` called on the loop when the process has ended, soon also when it had before."""
        wait = Wait(pid, started, callback)
        try:
            # Begun first and looked at then: whoever has the pid now is who is waited for.
            wait.begun(self._notices.begin(pid, wait.end))
        except ProcessLookupError:
            self._loop.call_soon(wait.end)
            return wait
        except OSError as error:
            log.info("process polled pid=%d reason=%s", pid, error.strerror)
            self._poll(wait)
        if start_time(pid) != started:
            self._loop.call_soon(wait.end)
        self._waits = {each for each in self._waits if not each.done} | {wait}
        return wait

    def close(self) -> None:
        """Ends all waiting without callbacks."""
        for wait in self._waits:
            wait.cancel()
        self._waits.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._notices.close()

    def _poll(self, wait: Wait) -> None:
        self._polled.add(wait)
        wait.begun(lambda: self._polled.discard(wait))
        if self._timer is None:
            self._timer = self._loop.call_later(_POLL, self._look)

    def _look(self) -> None:
        self._timer = None
        for wait in list(self._polled):
            if start_time(wait.pid) != wait.started:
                wait.end()
        if self._polled and self._timer is None:
            self._timer = self._loop.call_later(_POLL, self._look)


class PidfdNotices:
    """Linux: a descriptor for each process, readable when it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: set[int] = set()

    def begin(self, pid: int, ended: Ended) -> Callable[[], None]:
        if sys.platform != "linux":
            raise OSError("no pidfd")
        descriptor = os.pidfd_open(pid)
        self._open.add(descriptor)
        self._loop.add_reader(descriptor, ended)
        return lambda: self._end(descriptor)

    def close(self) -> None:
        for descriptor in list(self._open):
            self._end(descriptor)

    def _end(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.remove(descriptor)
            self._loop.remove_reader(descriptor)
            os.close(descriptor)


class KernelQueue(Protocol):
    """What is used of select.kqueue."""

    def fileno(self) -> int: ...

    def control(self, changes: Any, maximum: int, timeout: float | None = None) -> list[Any]: ...

    def close(self) -> None: ...


class KqueueNotices:
    """macOS: one kernel queue for all processes. `event` is select.kevent."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: KernelQueue, event: Callable[..., Any]) -> None:
        self._loop = loop
        self._queue = queue
        self._event = event
        self._ended: dict[int, list[Ended]] = {}
        loop.add_reader(queue.fileno(), self._read)

    def begin(self, pid: int, ended: Ended) -> Callable[[], None]:
        # An OSError with ESRCH is a ProcessLookupError already.
        self._control(pid, _EV_ADD | _EV_ONESHOT)
        self._ended.setdefault(pid, []).append(ended)
        return lambda: self._end(pid, ended)

    def close(self) -> None:
        self._ended.clear()
        self._loop.remove_reader(self._queue.fileno())
        self._queue.close()

    def _read(self) -> None:
        for event in self._queue.control(None, 64, 0):
            for ended in self._ended.pop(event.ident, []):
                ended()

    def _end(self, pid: int, ended: Ended) -> None:
        waiting = self._ended.get(pid, [])
        if ended not in waiting:
            return
        waiting.remove(ended)
        if not waiting:
            del self._ended[pid]
            with contextlib.suppress(OSError):  # it ended in this moment
                self._control(pid, _EV_DELETE)

    def _control(self, pid: int, flags: int) -> None:
        self._queue.control([self._event(pid, filter=_FILTER_PROC, flags=flags, fflags=_NOTE_EXIT)], 0)


def _native(loop: asyncio.AbstractEventLoop) -> Notices:
    if sys.platform == "darwin":
        import select

        return KqueueNotices(loop, select.kqueue(), select.kevent)
    return PidfdNotices(loop)


def _nothing() -> None:
    """Nothing to undo."""
