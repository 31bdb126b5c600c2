"""The command line: what can be asked for, and how it is explained."""

import argparse
import os
from collections.abc import Callable

from ckpt.contract.version import __version__

Given = argparse.Namespace
_Add = Callable[[argparse.ArgumentParser], None]

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


class _Command:
    """One command: its help, an example, and what it takes beyond --json. `scope`: of a project."""

    def __init__(self, text: str, example: str, add: _Add | None = None, *, scope: bool = True) -> None:
        self.text = text
        self.example = example
        self.add = add
        self.scope = scope


def parse(words: list[str]) -> Given:
    """What was asked for; ends the process with help or, status 2, with what is wrong."""
    if words and words[0] in COMMANDS:
        # Only the command asked for: to build all of them would double what `ckpt list` costs.
        # Intermixed: `restore ID --yes PATH` is what people type, and the plain way knows no path after an option.
        given = _parser(words[0], COMMANDS[words[0]]).parse_intermixed_args(words[1:])
        given.command = words[0]
        return given
    return _overview().parse_args(words)


def _formatter(prog: str) -> argparse.HelpFormatter:
    # argparse would ask shutil for the width, which imports every compression there is.
    try:
        width = os.get_terminal_size().columns - 2
    except OSError:
        width = 78
    return argparse.RawDescriptionHelpFormatter(prog, width=max(width, 40))


def _overview() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ckpt", description="Checkpoints for coding agents.", epilog=_EPILOG, formatter_class=_formatter
    )
    parser.add_argument("--version", action="version", version=f"ckpt {__version__}")
    names = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        names.add_parser(name, help=command.text)
    return parser


def _parser(name: str, command: _Command) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"ckpt {name}",
        description=f"{command.text[0].upper()}{command.text[1:]}.",
        epilog=f"example:\n  {command.example}",
        formatter_class=_formatter,
    )
    parser.set_defaults(project=None, all=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-color", action="store_true", help="no colours")
    if command.scope:
        text = "id, name or root of a project, instead of this directory's"
        parser.add_argument("--project", metavar="P", help=text)
    if command.add is not None:
        command.add(parser)
    return parser


def _status(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="only problems; status 1 if there are any")


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rebuild", action="store_true", help="make the catalog anew from vaults and logs")


def _save(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("--title", help="one line")
    parser.add_argument("--reason", help="why it is made")
    parser.add_argument("--pending", help="what is still to do")
    parser.add_argument("--tag", action="append", default=[], help="a label; may be repeated")
    parser.add_argument("--pin", action="store_true", help="never remove it by itself")


def _list(parser: argparse.ArgumentParser) -> None:
    _many(parser)
    parser.add_argument("--session", metavar="ID", help="of one session")
    parser.add_argument("--trigger", help="made by this trigger")
    parser.add_argument("--agent", help="of one agent's sessions")
    parser.add_argument("--since", metavar="TIME", help="2h, 3d, 2026-11-30 or 2026-11-30T14:00")
    parser.add_argument("--until", metavar="TIME")


def _show(parser: argparse.ArgumentParser) -> None:
    _one(parser)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--doc", dest="part", action="store_const", const="doc", help="its checkpoint.md")
    part.add_argument("--summary", dest="part", action="store_const", const="summary", help="its summary.yaml")
    part.add_argument("--coverage", dest="part", action="store_const", const="coverage", help="what it left out")
    part.add_argument("--file", metavar="PATH", help="print a captured file")


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a checkpoint")
    parser.add_argument("rest", nargs="*", metavar="B or PATH", help="another, else the work tree as it is; paths")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--stat", action="store_true", help="lines added and removed")
    form.add_argument("--name-only", action="store_true", help="only paths")


def _one(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")


def _continue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID")
    parser.add_argument("--budget", type=int, default=2000, metavar="TOKENS", help="at most that long (2000)")


def _restore(parser: argparse.ArgumentParser) -> None:
    _one(parser)
    parser.add_argument("path", nargs="*", metavar="PATH", help="only these; else everything")
    parser.add_argument("--to", metavar="DIR", help="write into DIR; the project is left alone")
    parser.add_argument("--allow-mass-delete", action="store_true", help="also where it deletes most of the project")
    _undo(parser)


def _undo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show the plan, do nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _forget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="ID|SESSION|PROJECT")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _many(parser: argparse.ArgumentParser) -> None:
    _everywhere(parser)
    parser.add_argument("-n", type=int, default=20, metavar="N", help="at most N (20)")


def _everywhere(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="all projects")


COMMANDS = {
    "up": _Command("start the daemon and say what it watches", "ckpt up", scope=False),
    "down": _Command("stop the daemon; what it started is finished first", "ckpt down", scope=False),
    "restart": _Command("stop the daemon and start it again", "ckpt restart", scope=False),
    "status": _Command("how everything is; problems first", "ckpt status --check", _status, scope=False),
    "list": _Command("checkpoints, newest first", "ckpt list --since 2h --trigger pre-destructive", _list),
    "show": _Command("one checkpoint for people", "ckpt show @ --file src/app.py", _show),
    "diff": _Command("what differs", "ckpt diff @1 @ src", _diff),
    "last": _Command("what the agent just did", "ckpt last"),
    "save": _Command("make a checkpoint now", "ckpt save before-refactoring --reason 'tests green'", _save),
    "restore": _Command("bring files back; shows the plan and asks", "ckpt restore @1 src", _restore),
    "undo": _Command("take the last restore back", "ckpt undo", _undo),
    "continue": _Command("print the resume pack for a new session", 'claude "$(ckpt continue)"', _continue),
    "sessions": _Command("sessions of agents, newest first", "ckpt sessions --all", _many),
    "projects": _Command("what is watched", "ckpt projects", scope=False),
    "watch": _Command("what happens, line by line, until interrupted", "ckpt watch --all", _everywhere),
    "pause": _Command("stop capturing this project; off means off", "ckpt pause --all", _everywhere),
    "resume": _Command("capture again", "ckpt resume --all", _everywhere),
    "pin": _Command("never remove a checkpoint by itself", "ckpt pin @", _one),
    "unpin": _Command("let the policy decide again", "ckpt unpin @", _one),
    "forget": _Command("remove now, with its bytes", "ckpt forget ckpt-20261130-221900-1a2b3c4d", _forget),
    "doctor": _Command("find and explain faults", "ckpt doctor --rebuild", _doctor, scope=False),
    "demo": _Command("a show in a scratch directory, under 20 seconds", "ckpt demo", scope=False),
}
