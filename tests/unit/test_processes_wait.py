"""Waiting for the end of real processes."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from checkpointd.processes import wait as waiting
from checkpointd.processes.table import start_time
from checkpointd.processes.wait import KqueueNotices, Notices, PidfdNotices, ProcessWait


class Refusing:
    """A way that is not open: an old kernel, or no descriptors left."""

    def begin(self, pid: int, ended: Callable[[], None]) -> Callable[[], None]:
        raise OSError(errno.ENOSYS, "not here")

    def close(self) -> None:
        """Nothing was begun."""


class Event:
    """select.kevent, as far as it is used."""

    def __init__(self, ident: int, filter: int = 0, flags: int = 0, fflags: int = 0) -> None:  # noqa: A002
        self.ident = ident
        self.flags = flags
        assert (filter, fflags) == (-5, 0x80000000)


class FakeQueue:
    """A kernel queue that is told by pidfds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reader, self._writer = os.pipe()
        self._fds: dict[int, int] = {}
        self._ended: list[Event] = []

    def fileno(self) -> int:
        return self._reader

    def control(self, changes: Any, maximum: int, timeout: float | None = None) -> list[Any]:
        for change in changes or ():
            if change.flags & 2:
                self._drop(change.ident)
            elif change.ident not in self._fds:
                self._fds[change.ident] = os.pidfd_open(change.ident)
                self._loop.add_reader(self._fds[change.ident], self._end, change.ident)
        if not maximum:
            return []
        os.read(self._reader, 64)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        for pid in list(self._fds):
            self._drop(pid)
        os.close(self._reader)
        os.close(self._writer)

    def _end(self, pid: int) -> None:
        self._drop(pid)
        self._ended.append(Event(pid, -5, 0, 0x80000000))
        os.write(self._writer, b"!")

    def _drop(self, pid: int) -> None:
        descriptor = self._fds.pop(pid)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)


def pidfd(loop: asyncio.AbstractEventLoop) -> Notices:
    return PidfdNotices(loop)


def kqueue(loop: asyncio.AbstractEventLoop) -> Notices:
    return KqueueNotices(loop, FakeQueue(loop), Event)


def poll(loop: asyncio.AbstractEventLoop) -> Notices:
    return Refusing()


ways = pytest.mark.parametrize("way", [pidfd, kqueue, poll])
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fakes stand on pidfds")
Way = Callable[[asyncio.AbstractEventLoop], Notices]


@pytest.fixture(autouse=True)
def quick_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_POLL", 0.02)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def ended(event: asyncio.Event) -> None:
    async with asyncio.timeout(5):
        await event.wait()


@ways
def test_the_end_is_noticed_within_100_ms(child: subprocess.Popen[bytes], way: Way) -> None:
    async def run() -> float:
        processes = ProcessWait(asyncio.get_running_loop(), way(asyncio.get_running_loop()))
        event, calls = asyncio.Event(), []
        started = start_time(child.pid)
        assert started is not None

        def gone() -> None:
            calls.append(time.monotonic())
            event.set()

        wait = processes.watch(child.pid, started, gone)
        await asyncio.sleep(0)
        assert not wait.done
        os.kill(child.pid, signal.SIGKILL)
        begin = time.monotonic()
        await ended(event)
        await asyncio.sleep(0)
        assert wait.done
        wait.cancel()
        processes.close()
        assert len(calls) == 1
        return calls[0] - begin

    before = descriptors()
    assert asyncio.run(run()) < 0.1
    assert descriptors() == before


@ways
def test_a_process_that_was_gone_is_told_soon(child: subprocess.Popen[bytes], way: Way) -> None:
    started = start_time(child.pid)
    assert started is not None
    child.kill()
    child.communicate()

    async def run() -> None:
        processes = ProcessWait(asyncio.get_running_loop(), way(asyncio.get_running_loop()))
        event = asyncio.Event()
        processes.watch(child.pid, started, event.set)
        assert not event.is_set()
        await ended(event)
        processes.close()

    asyncio.run(run())


@ways
def test_somebody_else_with_the_pid_is_not_waited_for(child: subprocess.Popen[bytes], way: Way) -> None:
    started = start_time(child.pid)
    assert started is not None

    async def run() -> None:
        processes = ProcessWait(asyncio.get_running_loop(), way(asyncio.get_running_loop()))
        event = asyncio.Event()
        processes.watch(child.pid, started - 1, event.set)
        await ended(event)
        processes.close()

    before = descriptors()
    asyncio.run(run())
    assert descriptors() == before


@ways
def test_a_cancelled_waiting_is_silent(child: subprocess.Popen[bytes], way: Way) -> None:
    started = start_time(child.pid)
    assert started is not None

    async def run() -> None:
        processes = ProcessWait(asyncio.get_running_loop(), way(asyncio.get_running_loop()))
        calls: list[str] = []
        other = asyncio.Event()
        cancelled = processes.watch(child.pid, started, lambda: calls.append("cancelled"))
        processes.watch(child.pid, started, other.set)
        cancelled.cancel()
        child.kill()
        await ended(other)
        assert calls == []
        processes.close()

    asyncio.run(run())


@ways
def test_closing_ends_all_waiting(child: subprocess.Popen[bytes], way: Way) -> None:
    started = start_time(child.pid)
    assert started is not None

    async def run() -> None:
        processes = ProcessWait(asyncio.get_running_loop(), way(asyncio.get_running_loop()))
        calls: list[str] = []
        processes.watch(child.pid, started, lambda: calls.append("called"))
        processes.close()
        child.kill()
        await asyncio.to_thread(child.wait)
        assert calls == []

    before = descriptors()
    asyncio.run(run())
    assert descriptors() == before
