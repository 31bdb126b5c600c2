"""sessions, projects, pause, resume, watch, demo: what is worked on, and what is watched."""

import json
import os
import sys

from ckpt import render
from ckpt.commands.context import Context
from ckpt.contract import methods


def sessions(context: Context, *, limit: int) -> int:
    params = methods.SessionsParams(cwd=context.where, project=context.project, all=context.everywhere, limit=limit)
    reply = context.daemon().call(methods.SESSIONS, params)
    terminal = context.terminal
    lines = render.sessions(reply["sessions"], context.now, terminal.width, context.home)
    terminal.answer(reply, lines, long=True)
    if not lines and not terminal.json:
        terminal.note("No session worked here. `ckpt sessions --all` looks everywhere.")
    return 0


def projects(context: Context) -> int:
    reply = context.daemon().call(methods.PROJECTS, methods.Nothing())
    terminal = context.terminal
    lines = render.projects(reply["projects"], context.now, terminal.width, context.home)
    terminal.answer(reply, lines, long=True)
    if not lines and not terminal.json:
        terminal.note("No project yet: one begins where an agent works, or with `ckpt save`.")
    return 0


def pause(context: Context) -> int:
    reply = context.daemon().call(methods.PAUSE, _scope(context))
    return _switched(context, reply, "paused")


def resume(context: Context) -> int:
    # To hear that nothing is captured is no news for somebody who is about to change it.
    reply = context.daemon(alarm=not context.everywhere).call(methods.RESUME, _scope(context))
    return _switched(context, reply, "resumed")


def _switched(context: Context, reply: methods.Projects, verb: str) -> int:
    lines = [f"{verb} {render.home(each['root'], context.home)}" for each in reply["projects"]]
    if context.everywhere:
        lines.insert(0, f"{verb} everything")
    context.terminal.answer(reply, lines)
    return 0


def watch(context: Context) -> int:
    """Prints what happens, a line each, until it is interrupted: that is its normal end."""
    happenings = context.daemon().happenings(_scope(context))
    try:
        for happening in happenings:
            terminal = context.terminal
            line = render.happening(happening, terminal.width, context.home)
            print(json.dumps(happening) if terminal.json else line, flush=True)
    except KeyboardInterrupt:
        return 0
    return 0


def demo() -> int:
    """Becomes the daemon's own show: a real daemon in a scratch home."""
    # -P: else modules of the directory that we are asked in would be ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "checkpointd", "demo"])  # noqa: S606 - our own program


def _scope(context: Context) -> methods.ScopeParams:
    return methods.ScopeParams(cwd=context.where, project=context.project, all=context.everywhere)
