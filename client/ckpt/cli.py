"""The command line: the parser, and the one place that prints errors and picks exit statuses."""

import argparse
import os
import sys
from collections.abc import Callable

from ckpt.commands.context import Context
from ckpt.contract.errors import CkptError
from ckpt.contract.version import __version__
from ckpt.terminal import Terminal

Run = Callable[[argparse.Namespace, Context], int]
_INTERRUPTED = 130
_PIPE_CLOSED = 141
_BUG = 70

_EPILOG = """\
A checkpoint is named by id, unique id prefix, name, or @ (newest), @1 (one before), @session-start.

examples:
  ckpt up                      start the daemon; agents are noticed by themselves
  ckpt list                    the checkpoints of this project, newest first
  ckpt diff @                  what changed since the newest checkpoint
  ckpt restore @1 src          bring a directory back; shows the plan and asks

exit status: 0 done, 1 refused or failed, 2 usage, 3 not found or ambiguous, 4 needs a decision,
5 daemon not reachable, 6 versions do not fit, 70 a bug
"""


# Each command's module is imported when it runs: the others would only slow it down.


def _up(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import service

    return service.up(context)


def _down(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import service

    return service.down(context)


def _restart(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import service

    return service.restart(context)


def _status(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import status

    return status.status(context, check=given.check)


def _doctor(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import status

    return status.doctor(context, rebuild=given.rebuild)


def _save(given: argparse.Namespace, context: Context) -> int:
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


def _list(given: argparse.Namespace, context: Context) -> int:
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


def _show(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import checkpoints

    if given.file is not None:
        return checkpoints.show_file(context, checkpoint=given.id, path=given.file)
    if given.part == "coverage":
        return checkpoints.show_coverage(context, checkpoint=given.id)
    if given.part is not None:
        return checkpoints.show_document(context, checkpoint=given.id, document=given.part)
    return checkpoints.show(context, checkpoint=given.id)


def _diff(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.diff(context, old=given.a, rest=given.rest, stat=given.stat, name_only=given.name_only)


def _last(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.last(context)


def _pin(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.pin(context, checkpoint=given.id)


def _unpin(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.unpin(context, checkpoint=given.id)


def _continue(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import checkpoints

    return checkpoints.continue_from(context, checkpoint=given.id, budget=given.budget)


def _restore(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import plans

    return plans.restore(
        context, checkpoint=given.id, paths=given.path, to=given.to, dry_run=given.dry_run, yes=given.yes
    )


def _undo(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import plans

    return plans.undo(context, dry_run=given.dry_run, yes=given.yes)


def _forget(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import plans

    return plans.forget(context, what=given.what, yes=given.yes)


def _sessions(given: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import work

    return work.sessions(context, limit=given.n)


def _projects(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import work

    return work.projects(context)


def _pause(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import work

    return work.pause(context)


def _resume(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import work

    return work.resume(context)


def _watch(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import work

    return work.watch(context)


def _demo(_: argparse.Namespace, context: Context) -> int:
    from ckpt.commands import work

    return work.demo()


class _Parser:
    """The parser while it is put together."""

    def __init__(self) -> None:
        raw = argparse.RawDescriptionHelpFormatter
        self.top = argparse.ArgumentParser(
            prog="ckpt", description="Checkpoints for coding agents.", epilog=_EPILOG, formatter_class=raw
        )
        self.top.add_argument("--version", action="version", version=f"ckpt {__version__}")
        self._commands = self.top.add_subparsers(metavar="COMMAND", required=True)

    def command(self, name: str, run: Run, text: str, example: str, *, scope: bool = True) -> argparse.ArgumentParser:
        parser = self._commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=run, project=None, all=False)
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument("--no-color", action="store_true", help="no colours")
        if scope:
            parser.add_argument(
                "--project", metavar="P", help="id, name or root of a project instead of this directory's"
            )
        return parser


def _everywhere(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--all", action="store_true", help=text)


def _planned(parser: argparse.ArgumentParser, *, dry_run: bool = True) -> None:
    if dry_run:
        parser.add_argument("--dry-run", action="store_true", help="show the plan, do nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    made = _Parser()
    _life_commands(made)
    _checkpoint_commands(made)
    _plan_commands(made)
    _work_commands(made)
    return made.top


def _life_commands(made: _Parser) -> None:
    made.command("up", _up, "start the daemon and say what it watches", "ckpt up", scope=False)
    made.command("down", _down, "stop the daemon; what it started is finished first", "ckpt down", scope=False)
    made.command("restart", _restart, "stop the daemon and start it again", "ckpt restart", scope=False)
    status = made.command("status", _status, "how everything is; problems first", "ckpt status --check", scope=False)
    status.add_argument("--check", action="store_true", help="only problems; status 1 if there are any")
    doctor = made.command("doctor", _doctor, "find and explain faults", "ckpt doctor --rebuild", scope=False)
    doctor.add_argument("--rebuild", action="store_true", help="make the catalog anew from vaults and logs")
    made.command("demo", _demo, "a show in a scratch directory, under 20 seconds", "ckpt demo", scope=False)


def _checkpoint_commands(made: _Parser) -> None:
    save = made.command("save", _save, "make a checkpoint now", "ckpt save before-refactoring --reason 'tests green'")
    save.add_argument("name", nargs="?", metavar="NAME")
    save.add_argument("--title", help="one line")
    save.add_argument("--reason", help="why it is made")
    save.add_argument("--pending", help="what is still to do")
    save.add_argument("--tag", action="append", default=[], help="a label; may be repeated")
    save.add_argument("--pin", action="store_true", help="never remove it by itself")

    rows = made.command("list", _list, "checkpoints, newest first", "ckpt list --since 2h --trigger pre-destructive")
    _everywhere(rows, "of all projects")
    rows.add_argument("--session", metavar="ID", help="of one session")
    rows.add_argument("--trigger", help="made by this trigger")
    rows.add_argument("--agent", help="of one agent's sessions")
    rows.add_argument("--since", metavar="TIME", help="2h, 3d, 2026-11-30 or 2026-11-30T14:00")
    rows.add_argument("--until", metavar="TIME")
    rows.add_argument("-n", type=int, default=20, metavar="N", help="at most N (20)")

    show = made.command("show", _show, "one checkpoint for people", "ckpt show @ --file src/app.py")
    show.add_argument("id", metavar="ID")
    part = show.add_mutually_exclusive_group()
    part.add_argument("--doc", dest="part", action="store_const", const="doc", help="its checkpoint.md")
    part.add_argument("--summary", dest="part", action="store_const", const="summary", help="its summary.yaml")
    part.add_argument("--coverage", dest="part", action="store_const", const="coverage", help="what it left out")
    part.add_argument("--file", metavar="PATH", help="print a captured file")

    diff = made.command("diff", _diff, "what differs", "ckpt diff @1 @ src")
    diff.add_argument("a", metavar="A", help="a checkpoint")
    diff.add_argument("rest", nargs="*", metavar="[B] [PATH...]", help="another, else the work tree as it is; paths")
    form = diff.add_mutually_exclusive_group()
    form.add_argument("--stat", action="store_true", help="lines added and removed")
    form.add_argument("--name-only", action="store_true", help="only paths")

    made.command("last", _last, "what the agent just did", "ckpt last")
    for name, run, text in (
        ("pin", _pin, "never remove a checkpoint by itself"),
        ("unpin", _unpin, "let the policy decide again"),
    ):
        made.command(name, run, text, f"ckpt {name} @").add_argument("id", metavar="ID")
    resume = made.command("continue", _continue, "print the resume pack for a new session", "ckpt continue | claude")
    resume.add_argument("id", nargs="?", metavar="ID")
    resume.add_argument("--budget", type=int, default=2000, metavar="TOKENS", help="at most that long (2000)")


def _plan_commands(made: _Parser) -> None:
    restore = made.command("restore", _restore, "bring files back; shows the plan and asks", "ckpt restore @1 src")
    restore.add_argument("id", metavar="ID")
    restore.add_argument("path", nargs="*", metavar="PATH", help="only these; else everything")
    restore.add_argument("--to", metavar="DIR", help="write into DIR; the project is left alone")
    _planned(restore)
    _planned(made.command("undo", _undo, "take the last restore back", "ckpt undo"))
    forget = made.command("forget", _forget, "remove now, with its bytes", "ckpt forget ckpt-20261130-221900-1a2b3c4d")
    forget.add_argument("what", metavar="ID|SESSION|PROJECT")
    _planned(forget, dry_run=False)


def _work_commands(made: _Parser) -> None:
    sessions = made.command("sessions", _sessions, "sessions of agents, newest first", "ckpt sessions --all")
    _everywhere(sessions, "of all projects")
    sessions.add_argument("-n", type=int, default=20, metavar="N", help="at most N (20)")
    made.command("projects", _projects, "what is watched", "ckpt projects", scope=False)
    for name, run, text in (
        ("pause", _pause, "stop capturing this project; off means off"),
        ("resume", _resume, "capture again"),
        ("watch", _watch, "what happens, line by line, until interrupted"),
    ):
        _everywhere(made.command(name, run, text, f"ckpt {name} --all"), "all projects")


def main() -> int:
    """Runs one command; every way it can end has its status here."""
    given = parser().parse_args()
    terminal = Terminal(os.environ, as_json=given.json, colour=not given.no_color)
    context = Context(os.environ, terminal, project=given.project, everywhere=given.all)
    try:
        status: int = given.run(given, context)
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
