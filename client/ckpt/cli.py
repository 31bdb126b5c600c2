"""The commands by name, and the one place that prints errors and picks exit statuses."""

import os
import sys
from collections.abc import Callable

from ckpt import arguments
from ckpt.commands.context import Context
from ckpt.contract.errors import CkptError
from ckpt.contract.version import __version__
from ckpt.terminal import Terminal

Run = Callable[[arguments.Given, Context], int]
_INTERRUPTED = 130
_PIPE_CLOSED = 141
_BUG = 70

# Each command's module is imported when it runs: the others would only slow it down.


def _up(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import service

    return service.up(context)


def _down(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import service

    return service.down(context)


def _restart(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import service

    return service.restart(context)


def _status(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import status

    return status.status(context, check=given.check)


def _doctor(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import status

    return status.doctor(context, rebuild=given.rebuild)


def _save(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.save(
        context,
        name=given.name,
        title=given.title,
        reason=given.reason,
        pending=given.pending,
        tags=given.tag,
        pin=given.pin,
    )


def _list(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.list_checkpoints(
        context,
        session=given.session,
        trigger=given.trigger,
        agent=given.agent,
        since=given.since,
        until=given.until,
        limit=given.n,
    )


def _show(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import checkpoints

    if given.file is not None:
        return checkpoints.show_file(context, checkpoint=given.id, path=given.file)
    if given.part == "coverage":
        return checkpoints.show_coverage(context, checkpoint=given.id)
    if given.part is not None:
        return checkpoints.show_document(context, checkpoint=given.id, document=given.part)
    return checkpoints.show(context, checkpoint=given.id)


def _diff(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.diff(context, old=given.a, rest=given.rest, stat=given.stat, name_only=given.name_only)


def _last(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.last(context)


def _pin(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.pin(context, checkpoint=given.id)


def _unpin(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.unpin(context, checkpoint=given.id)


def _continue(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.continue_from(context, checkpoint=given.id, budget=given.budget)


def _restore(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import plans

    return plans.restore(
        context,
        checkpoint=given.id,
        paths=given.path,
        to=given.to,
        dry_run=given.dry_run,
        yes=given.yes,
        allow_mass_delete=given.allow_mass_delete,
    )


def _undo(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import plans

    return plans.undo(context, dry_run=given.dry_run, yes=given.yes)


def _forget(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import plans

    return plans.forget(context, what=given.what, yes=given.yes)


def _sessions(given: arguments.Given, context: Context) -> int:
    from ckpt.commands import work

    return work.sessions(context, limit=given.n)


def _projects(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import work

    return work.projects(context)


def _pause(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import work

    return work.pause(context)


def _resume(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import work

    return work.resume(context)


def _watch(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import work

    return work.watch(context)


def _demo(_: arguments.Given, context: Context) -> int:
    from ckpt.commands import work

    return work.demo()


RUN: dict[str, Run] = {
    "up": _up,
    "down": _down,
    "restart": _restart,
    "status": _status,
    "doctor": _doctor,
    "save": _save,
    "list": _list,
    "show": _show,
    "diff": _diff,
    "last": _last,
    "restore": _restore,
    "undo": _undo,
    "continue": _continue,
    "pin": _pin,
    "unpin": _unpin,
    "forget": _forget,
    "sessions": _sessions,
    "projects": _projects,
    "pause": _pause,
    "resume": _resume,
    "watch": _watch,
    "demo": _demo,
}


def main() -> int:
    """Runs one command; every way it can end has its status here."""
    given = arguments.parse(sys.argv[1:])
    terminal = Terminal(os.environ, as_json=given.json, colour=not given.no_color)
    context = Context(os.environ, terminal, project=given.project, everywhere=given.all)
    try:
        status = RUN[given.command](given, context)
        sys.stdout.flush()
    except CkptError as error:
        return _explain(error, terminal)
    except KeyboardInterrupt:
        terminal.note("Interrupted. What the daemon was asked for, it finishes.")
        return _INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except Exception:  # noqa: BLE001 - a bug is told with its traceback and a status of its own
        return _report_bug(terminal)
    finally:
        context.close()
    return status


def _explain(error: CkptError, terminal: Terminal) -> int:
    if terminal.json and error.code != "undecided":
        told = {"code": error.code, "message": error.message, "hint": error.hint}
        terminal.answer({"error": told}, [])
    terminal.error(error.message)
    if error.hint:
        terminal.hint(error.hint)
    return error.exit_status


def _report_bug(terminal: Terminal) -> int:
    import traceback

    terminal.note(
        f"This is a bug in ckpt {__version__} (Python {sys.version.split()[0]}, {sys.platform}); please report:"
    )
    traceback.print_exc()
    return _BUG


if __name__ == "__main__":
    sys.exit(main())
