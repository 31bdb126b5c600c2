"""save, list, show, diff, last, pin, unpin, continue: making checkpoints and reading them."""

import base64
import os
import time

from ckpt import render
from ckpt.commands.context import Context
from ckpt.contract import methods
from ckpt.contract.errors import CkptError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


def save(
    context: Context,
    *,
    name: str | None,
    title: str | None,
    reason: str | None,
    pending: str | None,
    tags: list[str],
    pin: bool,
) -> int:
    params = methods.SaveParams(
        cwd=context.where,
        project=context.project,
        key=os.urandom(8).hex(),
        name=name,
        title=title,
        reason=reason,
        pending=pending,
        tags=tags,
        pin=pin,
    )
    reply = context.daemon().call(methods.SAVE, params, context.terminal.progress)
    made = reply["checkpoint"]
    files = render.counted(made.get("coverage", {}).get("captured", 0), "file")
    line = f"saved {render.plain(made['name'])}  {render.plain(made['id'])}  ({files})"
    context.terminal.answer({"checkpoint": made}, [line])
    return 0


def list_checkpoints(
    context: Context,
    *,
    session: str | None,
    trigger: str | None,
    agent: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> int:
    params = methods.ListParams(
        cwd=context.where,
        project=context.project,
        all=context.everywhere,
        session=session,
        trigger=trigger,
        agent=agent,
        since=_moment(since, context.now),
        until=_moment(until, context.now),
        limit=limit,
    )
    reply = context.daemon().call(methods.LIST, params)
    terminal = context.terminal
    terminal.answer(
        reply, render.rows(reply["checkpoints"], context.now, terminal.width, projects=context.everywhere), long=True
    )
    if terminal.json:
        return 0
    if not reply["checkpoints"]:
        terminal.note("No checkpoints here. `ckpt save` makes one; `ckpt list --all` looks everywhere.")
    elif len(reply["checkpoints"]) == limit and terminal.shown:
        terminal.note(f"The newest {limit}; older ones with `-n {max(limit, 1) * 10}`, or `--since 3d`.")
    return 0


def show(context: Context, *, checkpoint: str) -> int:
    reply = context.daemon().call(methods.SHOW, _named(context, checkpoint))
    terminal = context.terminal
    terminal.answer(reply, render.record(reply, context.now, terminal.width, context.home), long=True)
    return 0


def show_coverage(context: Context, *, checkpoint: str) -> int:
    reply = context.daemon().call(methods.SHOW, _named(context, checkpoint))
    context.terminal.answer({"coverage": reply["coverage"]}, render.coverage(reply["coverage"]), long=True)
    return 0


def show_document(context: Context, *, checkpoint: str, document: str) -> int:
    params = methods.DocumentParams(
        cwd=context.where,
        project=context.project,
        all=context.everywhere,
        checkpoint=checkpoint,
        document="summary.yaml" if document == "summary" else "checkpoint.md",
    )
    reply = context.daemon().call(methods.SHOW_DOCUMENT, params)
    context.terminal.answer(reply, render.block(reply["text"]).rstrip("\n").split("\n"), long=True)
    return 0


def show_file(context: Context, *, checkpoint: str, path: str) -> int:
    """Prints a captured file: its bytes as they are, or, with --json, base64."""
    asked = methods.FileParams(
        cwd=context.where,
        project=context.project,
        all=context.everywhere,
        checkpoint=checkpoint,
        path=context.path(path),
        offset=0,
    )
    reply = context.daemon().call(methods.SHOW_FILE, asked)
    parts = [base64.b64decode(reply["data"])]
    # Bytes of a checkpoint never change, so its parts fit together.
    while (read := sum(map(len, parts))) < reply["size"] and parts[-1]:
        asked["offset"] = read
        parts.append(base64.b64decode(context.daemon().call(methods.SHOW_FILE, asked)["data"]))
    data = b"".join(parts)
    if context.terminal.json:
        whole = {"path": asked["path"], "mode": f"{reply['mode']:06o}", "size": len(data)}
        context.terminal.answer({**whole, "data": base64.b64encode(data).decode()}, [])
    else:
        context.terminal.raw(data)
    return 0


def diff(context: Context, *, old: str, rest: list[str], stat: bool, name_only: bool) -> int:
    patch = not (stat or name_only or context.terminal.json)
    reply = _difference(context, old, rest, patch=patch)
    terminal = context.terminal
    if name_only:
        lines = [render.plain(change["path"]) for change in reply["changes"]]
    elif stat:
        lines = render.stat(reply["changes"])
    else:
        lines = [line for change in reply["changes"] for line in _patch(context, change)]
    terminal.answer({"changes": [_without_patch(change) for change in reply["changes"]]}, lines, long=True)
    return 0


def _difference(context: Context, old: str, rest: list[str], *, patch: bool) -> methods.Changes:
    """`rest` may begin with a second checkpoint: what is one, is taken for one, `./NAME` is always a path."""

    def ask(new: str | None, paths: list[str]) -> methods.Changes:
        params = methods.DiffParams(
            cwd=context.where,
            project=context.project,
            all=context.everywhere,
            old=old,
            new=new,
            paths=context.paths(paths),
            patch=patch,
        )
        return context.daemon().call(methods.DIFF, params, context.terminal.progress)

    if not rest or "/" in rest[0]:
        return ask(None, rest)
    try:
        return ask(rest[0], rest[1:])
    except CkptError as error:
        if error.code != "not-found":
            raise
        found = ask(None, rest)
        if not found["changes"] and not os.path.lexists(rest[0]):
            raise
        return found


def _without_patch(change: methods.Change) -> dict[str, object]:
    return {key: value for key, value in change.items() if key != "patch"}


def _patch(context: Context, change: methods.Change) -> list[str]:
    if change["patch"] is None:
        return [f"{change['change']} {render.plain(change['path'])} (binary or large; no lines shown)"]
    terminal = context.terminal
    lines = change["patch"].removesuffix("\n").split("\n")
    if not terminal.shown:
        return lines  # a program may want to apply it: not one byte different
    return [_coloured(context, render.block(line)) for line in lines]


def _coloured(context: Context, line: str) -> str:
    style = {"+": "green", "-": "red", "@": "cyan", "d": "bold"}.get(line[:1])
    return context.terminal.paint(line, style) if style else line


def last(context: Context) -> int:
    params = methods.ScopeParams(cwd=context.where, project=context.project, all=context.everywhere)
    reply = context.daemon().call(methods.LAST, params)
    context.terminal.answer(reply, render.last(reply, context.now, context.terminal.width), long=True)
    return 0


def pin(context: Context, *, checkpoint: str) -> int:
    reply = context.daemon().call(methods.PIN, _named(context, checkpoint))
    name = render.plain(reply["checkpoint"]["name"])
    context.terminal.answer(reply, [f"pinned {name}: it stays until `ckpt unpin {name}`"])
    return 0


def unpin(context: Context, *, checkpoint: str) -> int:
    reply = context.daemon().call(methods.UNPIN, _named(context, checkpoint))
    context.terminal.answer(reply, [f"unpinned {render.plain(reply['checkpoint']['name'])}"])
    return 0


def continue_from(context: Context, *, checkpoint: str | None, budget: int) -> int:
    params = methods.ContinueParams(
        cwd=context.where, project=context.project, all=context.everywhere, checkpoint=checkpoint, budget=budget
    )
    reply = context.daemon().call(methods.CONTINUE, params)
    context.terminal.answer(reply, render.block(reply["pack"]).rstrip("\n").split("\n"))
    return 0


def _named(context: Context, checkpoint: str) -> methods.CheckpointParams:
    return methods.CheckpointParams(
        cwd=context.where, project=context.project, all=context.everywhere, checkpoint=checkpoint
    )


def _moment(text: str | None, now: float) -> str | None:
    """`2h`, `3d`, a local date or time, or ISO 8601 with its offset, as the latter."""
    if text is None:
        return None
    if text[:-1].isdigit() and text[-1] in _UNITS:
        return _iso(now - int(text[:-1]) * _UNITS[text[-1]])
    try:
        if text.endswith("Z") or "+" in text or text.count("-") > 2:
            return _iso(render.seconds(text))
        return _iso(_local(text))
    except (ValueError, OverflowError):
        raise CkptError(
            "usage", f"{text!r} is no time.", hint="Write 2h, 3d, 2026-11-30 or 2026-11-30T14:00."
        ) from None


def _local(text: str) -> float:
    for form in _FORMATS:
        try:
            return time.mktime(time.strptime(text.replace(" ", "T"), form))
        except ValueError:
            continue
    raise ValueError(text)


def _iso(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
