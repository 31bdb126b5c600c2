"""status, doctor: how everything is."""

import os
import sys

from ckpt import render
from ckpt.commands.context import Context
from ckpt.contract import methods
from ckpt.contract.errors import CATALOGUE, CkptError
from ckpt.contract.version import PROTOCOL, __version__


def status(context: Context, *, check: bool) -> int:
    reply = _status(context)
    terminal = context.terminal
    if check:
        terminal.answer(reply, render.problems(reply["problems"], terminal.width))
    else:
        terminal.answer(reply, render.status(reply, context.now, terminal.width, context.home), long=True)
    if not context.daemon().fits:
        return CATALOGUE["incompatible"].exit_status
    return 1 if check and reply["problems"] else 0


def _status(context: Context) -> methods.Status:
    """The daemon's word, and what only the client can see: that the two do not fit."""
    daemon = context.daemon()
    reply = daemon.call(methods.STATUS, methods.Nothing())
    said = daemon.hello
    if (said["version"], said["protocol"]) != (__version__, PROTOCOL):
        what = f"The daemon is version {said['version']} (protocol {said['protocol']}), this ckpt {__version__}."
        reply["problems"].insert(0, methods.Problem(what=what, hint="`ckpt restart`"))
    return reply


def doctor(context: Context, *, rebuild: bool) -> int:
    """Asks the daemon; where none answers, the daemon's own program looks."""
    try:
        context.daemon()
    except CkptError as error:
        if error.code != "not-running":
            raise
        _become_doctor(context, rebuild=rebuild)
    return _rebuild(context) if rebuild else _examine(context)


def _examine(context: Context) -> int:
    found = _status(context)["problems"]
    lines = render.problems(found, context.terminal.width) or ["no problems found"]
    context.terminal.answer({"problems": found}, lines)
    return 1 if found else 0


def _rebuild(context: Context) -> int:
    reply = context.daemon().call(methods.REBUILD, methods.Nothing(), context.terminal.progress)
    what = (
        f"catalog rebuilt: {render.counted(reply['projects'], 'project')},"
        f" {render.counted(reply['checkpoints'], 'checkpoint')}, {render.counted(reply['sessions'], 'session')}"
    )
    context.terminal.answer(reply, [what, *render.problems(reply["problems"], context.terminal.width)])
    return 1 if reply["problems"] else 0


def _become_doctor(context: Context, *, rebuild: bool) -> None:
    options = ["--rebuild"] * rebuild + ["--json"] * context.terminal.json
    # -P: else modules of the directory that we are asked in would be ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "checkpointd", "doctor", *options])  # noqa: S606 - our own program
