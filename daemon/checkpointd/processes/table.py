"""The table of processes: which are agents, who started whom, and how we are ourselves."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from msgspec import Struct

from checkpointd.processes.programs import PROGRAMS, agent_of, may_be_agent


class Process(Struct, frozen=True, kw_only=True):
    """A process as it was a moment ago. `started` with `pid` names it for good; it has no other meaning."""

    pid: int
    started: float
    comm: str
    cmdline: tuple[str, ...] = ()


class AgentProcess(Process, frozen=True, kw_only=True):
    """A running agent; `cwd` is None where it may not be read."""

    agent: str
    cwd: str | None = None


class Usage(Struct, frozen=True, kw_only=True):
    """What this process uses: bytes in memory, CPU seconds so far, open descriptors, threads."""

    rss: int
    cpu: float
    descriptors: int
    threads: int


def agent_processes(programs: Mapping[str, str] = PROGRAMS) -> list[AgentProcess]:
    """All running agents that we may look at, in one pass; those that end meanwhile are left out."""
    found = []
    for process in psutil.process_iter():
        try:
            agent = _agent(process, programs)
        except (psutil.Error, OSError):
            continue
        if agent is not None:
            found.append(agent)
    return found


def _agent(process: psutil.Process, programs: Mapping[str, str]) -> AgentProcess | None:
    comm = process.name()
    if not may_be_agent(comm, programs):
        return None
    cmdline = tuple(process.cmdline())
    agent = agent_of(comm, cmdline, programs)
    started = None if agent is None else start_time(process.pid)
    if agent is None or started is None:
        return None
    try:
        cwd = process.cwd() or None
    except (psutil.AccessDenied, OSError):
        cwd = None
    return AgentProcess(pid=process.pid, started=started, comm=comm, cmdline=cmdline, agent=agent, cwd=cwd)


def ancestors(pid: int) -> list[Process]:
    """The process itself, its parent, and so on, as far up as may be seen."""
    return list(_upwards(pid))


def _upwards(pid: int) -> Iterator[Process]:
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        started = start_time(pid)
        if started is None:
            return
        try:
            process = psutil.Process(pid)
            parent, comm = process.ppid(), process.name()
        except (psutil.Error, OSError):
            return
        try:
            cmdline = tuple(process.cmdline())
        except (psutil.Error, OSError):
            cmdline = ()
        yield Process(pid=pid, started=started, comm=comm, cmdline=cmdline)
        pid = parent


def agent_ancestor(pid: int, programs: Mapping[str, str] = PROGRAMS) -> str | None:
    """The nearest agent that the process is, or was started by; None where none is seen."""
    for process in _upwards(pid):
        agent = agent_of(process.comm, process.cmdline, programs)
        if agent is not None:
            return agent
    return None


def start_time(pid: int) -> float | None:
    """When the process began, in the system's own count; None when it is not there or has ended.

    On Linux clock ticks since boot, which agents note as well and no clock change moves.
    """
    if not sys.platform.startswith("linux"):
        try:
            return psutil.Process(pid).create_time()
        except psutil.Error:
            return None
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may hold anything, parentheses too: proc(5).
    state, *fields = status[status.rindex(b")") + 2 :].split(b" ")
    return None if state in (b"Z", b"X") else float(fields[18])


def boot_id() -> str:
    """A text that changes with every boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"boot-{psutil.boot_time():.0f}"


def self_usage() -> Usage:
    """What the daemon uses just now."""
    process = psutil.Process()
    with process.oneshot():
        times = process.cpu_times()
        return Usage(
            rss=process.memory_info().rss,
            cpu=times.user + times.system,
            descriptors=process.num_fds(),
            threads=process.num_threads(),
        )
