"""up, down, restart: the daemon's life."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from ckpt import connection, places, render
from ckpt.commands.context import Context
from ckpt.contract import methods
from ckpt.contract.errors import CkptError

_START_SECONDS = 30.0
_STOP_SECONDS = 60.0
_KILL_SECONDS = 10.0
_ATTEMPTS = 2
_POLL = 0.02
_REASON_LINES = 8


def up(context: Context) -> int:
    """Starts the daemon unless it answers, and says what it watches."""
    try:
        context.daemon()
        begun = False
    except CkptError as error:
        if error.code != "not-running":
            raise
        _start(context)
        begun = True
    return _report(context, "started" if begun else "is running")


def down(context: Context) -> int:
    """Stops the daemon; every started checkpoint is finished first."""
    try:
        context.daemon()
    except CkptError as error:
        if error.code != "not-running":
            raise
        context.terminal.answer({"stopped": False, "pid": None}, ["The daemon is not running."])
        return 0
    pid = _stop(context)
    context.terminal.answer({"stopped": True, "pid": pid}, [f"checkpointd stopped (pid {pid})"])
    return 0


def restart(context: Context) -> int:
    """Stops the daemon, by force if it does not answer, and starts it again."""
    try:
        context.daemon()
        _stop(context)
    except CkptError as error:
        if error.code == "not-responding":
            _end_by_force(context)
        elif error.code != "not-running":
            raise
    _start(context)
    return _report(context, "started")


def _report(context: Context, verb: str) -> int:
    daemon = context.daemon()
    reply = daemon.call(methods.STATUS, methods.Nothing())
    lines = [f"checkpointd {render.plain(reply['daemon']['version'])} {verb} (pid {reply['daemon']['pid']})"]
    lines += [
        f"agent    {render.plain(agent['agent'])}, {render.counted(agent['sessions'], 'session')}"
        for agent in reply["agents"]
    ]
    lines += [f"project  {line}" for line in render.projects(reply["projects"], context.now, None, context.home)]
    lines += render.problems(reply["problems"], context.terminal.width)
    if not reply["agents"]:
        lines.append("No agent's logs found yet; they are noticed when they appear.")
    context.terminal.answer({key: reply[key] for key in ("daemon", "agents", "projects")}, lines)
    if not daemon.fits:
        raise connection.incompatible(daemon.hello)
    return 0


def _start(context: Context) -> None:
    """Starts a detached daemon and connects to it. Two that start at once end in one: the other finds the lock held
    and leaves, and its `up` reaches the first."""
    folder = places.state_folder(context.env)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    log = os.path.join(folder, "checkpointd.log")
    seen = _size(log)
    # What it says before its own log is set up, a traceback for one, would be lost otherwise.
    early = os.path.join(folder, f"start-{os.getpid()}.log")
    try:
        _await_answer(context, lambda: _spawn(early, log), lambda: _reason(early, log, seen))
    finally:
        os.unlink(early)


def _spawn(early: str, log: str) -> "subprocess.Popen[bytes]":
    with open(early, "wb", opener=_private) as output:
        return subprocess.Popen(
            [sys.executable, "-m", "checkpointd", "run", "--log", log],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _await_answer(context: Context, spawn: "Callable[[], subprocess.Popen[bytes]]", reason: Callable[[], str]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    child, attempts = spawn(), _ATTEMPTS
    while True:
        ended = child.poll() is not None
        try:
            reply = context.daemon().call(methods.STATUS, methods.Nothing())
        except CkptError as error:
            context.close()
            if error.code not in ("not-running", "not-responding"):
                raise
        else:
            if reply["daemon"]["pid"] != child.pid:
                _let_go(child)
            return
        if ended and not _locked(places.lock_file(context.env)) and (attempts := attempts - 1):
            # The lock may have been held by one that was about to end, and is free by now.
            child = spawn()
        elif ended and not attempts:
            raise CkptError("failed", f"The daemon did not start (exit status {child.returncode}).{reason()}",
                            hint="Correct the cause, then `ckpt up`.")  # fmt: skip
        if time.monotonic() > deadline:
            raise CkptError("failed", f"The daemon did not answer within {_START_SECONDS:.0f} s.{reason()}",
                            hint="`ckpt status` shows whether it does now.")  # fmt: skip
        time.sleep(_POLL)


def _let_go(child: "subprocess.Popen[bytes]") -> None:
    """Waits until a daemon that came second has left. It would take the place of the first if that were asked to stop
    while this one still starts, and `ckpt down` would never see the end of it."""
    try:
        child.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        child.terminate()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _reason(early: str, log: str, seen: int) -> str:
    """The last lines that the daemon said since it was started."""
    lines = _lines(early, 0) or _lines(log, seen)
    return "".join(f"\n  {render.plain(line)}" for line in lines[-_REASON_LINES:])


def _lines(path: str, offset: int) -> list[str]:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return [line for line in file.read(1 << 20).decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return []


def _locked(path: str) -> bool:
    """Whether some daemon holds the lock: one that is starting, then."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _stop(context: Context) -> int:
    """Asks it to end, and waits until its process is gone and its socket closed."""
    pid = context.daemon().call(methods.SHUTDOWN, methods.Nothing())["pid"]
    found = connection.process(pid)
    context.close()
    deadline = time.monotonic() + _STOP_SECONDS
    while _there(pid, found[1] if found else None) or _answers(context):
        if time.monotonic() > deadline:
            raise CkptError("failed", f"The daemon (pid {pid}) is still finishing what it started.",
                            hint="`ckpt status` shows whether it is gone.")  # fmt: skip
        time.sleep(_POLL)
    return pid


def _there(pid: int, start: int | None) -> bool:
    """Whether the process is there: the same one, and not only waiting to be collected."""
    found = connection.process(pid)
    if found is not None:
        return found[0] != "Z" and start in (None, found[1])
    if os.path.isdir("/proc/self"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _answers(context: Context) -> bool:
    try:
        connection.connect(context.env, context.terminal.note).close()
    except CkptError as error:
        return error.code != "not-running"
    return True


def _end_by_force(context: Context) -> None:
    """Ends a daemon that does not answer: asked first, then killed. Only the very process that wrote the
    discovery file, told by its start time, since a pid may be somebody else's by now."""
    found = places.discover(context.env)
    seen = connection.process(found.pid) if found.pid is not None else None
    if found.pid is None or found.start is None or seen is None or seen[1] != found.start:
        raise CkptError("not-responding", "A daemon holds the socket but does not answer, and which process it is"
                        " cannot be told.", hint="Find it with `ps -ef | grep checkpointd` and end it.")  # fmt: skip
    context.terminal.note(f"The daemon (pid {found.pid}) does not answer; ending it.")
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGKILL):
        os.kill(found.pid, number)
        deadline = time.monotonic() + (_KILL_SECONDS if number != signal.SIGTERM else 0)
        while time.monotonic() < deadline:
            if not _there(found.pid, found.start):
                return
            time.sleep(_POLL)
    raise CkptError("failed", f"The daemon (pid {found.pid}) cannot be ended.", hint="It may wait for a disk.")
