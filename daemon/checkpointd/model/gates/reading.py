"""What the text of one tool says: colour, counts, names, first error. Shared by the readers."""

import re
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

Colour = Literal["red", "green", "unknown"]

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CLAUDE_EXIT = re.compile(r"\A\s*(?:Error: )?Exit code \d+[ \t]*\n?")
_SILENT = "(Bash completed with no output)"
_LONGEST_LINE = 2000
_EMPTY_LINES = re.compile(r"\n{4,}")
_BUILDKIT = re.compile(r"(?m)^#\d+ [\d.]+ ")


class Reading(Struct, frozen=True, kw_only=True):
    """`colour` None: the text alone does not tell. Counts are None where the text does not give them."""

    colour: Colour | None = None
    passed: int | None = None
    failed: int | None = None
    errors: int | None = None
    skipped: int | None = None
    failing: tuple[str, ...] = ()
    error: str = ""


Reader = Callable[[str], Reading | None]
"""Reads the text of one tool; None where the text shows nothing of that tool."""


def plain(output: str) -> str:
    """The output without colours, carriage returns, the agent's own exit line and build prefixes."""
    text = _ANSI.sub("", output).replace("\r\n", "\n")
    text = _CLAUDE_EXIT.sub("", text)
    if text.strip() == _SILENT:
        return ""
    # Bounded lines and no long runs of empty ones: the readers' patterns stay linear on any output.
    lines = "\n".join(line[:_LONGEST_LINE].rstrip() for line in _BUILDKIT.sub("", text).split("\n"))
    return _EMPTY_LINES.sub("\n\n\n", lines)


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names in order, each once, empty ones left out."""
    return tuple(dict.fromkeys(name for name in (each.strip() for each in names) if name))


def number(pattern: str, text: str) -> int | None:
    """The last number that a pattern's first group finds."""
    found = re.findall(pattern, text)
    return int(found[-1]) if found else None


def verdict(failed: bool, ran: bool) -> Colour:
    """Red when something failed, green when something ran, else unknown."""
    if failed:
        return "red"
    return "green" if ran else "unknown"


def relative(path: str, cwd: str = "") -> str:
    """A path as the project spells it: without what leads to the usual source folders."""
    return path.removeprefix(cwd.rstrip("/") + "/") if cwd else path


_PLACES = re.compile(r"(?<=\.[A-Za-z])(?P<rest>\w{0,9}):\d+(?::\d+)?")
_VOLATILE = (
    (re.compile(r"/(?:tmp|var/folders|private/tmp)/\S*?(?=[\s'\":,)\]]|$)"), "<tmp>"),
    (re.compile(r"\btmp[a-z0-9_]{6,}\b"), "<tmp>"),
    (re.compile(r"0x[0-9a-fA-F]{4,}"), "<addr>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}:\d+|\[::1?\]:\d+|\blocalhost:\d+"), "<addr>"),
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "<time>"),
    (re.compile(r"\b\d{10,13}\b"), "<time>"),
    (re.compile(r"\b(pid|PID|process|worker|port|thread) \d+"), r"\1 <n>"),
    (re.compile(r"(?i)\b(?:on )?line \d+"), "line <n>"),
    (re.compile(r"\((\d+(?:\.\d+)?) ?m?s\)"), "<time>"),
    (re.compile(r"\b(?:after|in|took) \d+(?:\.\d+)? ?(?:ms|s|sec|seconds)\b"), "<time>"),
)  # fmt: skip
_ABSOLUTE = re.compile(r"(?<![\w:/.])/(?:[\w.@+-]+/)+([\w.@+-]+)")


def normalised(error: str, limit: int = 300) -> str:
    """An error message without what changes from run to run: places, times, addresses, temporary names."""
    text = " ".join(error.split())
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    text = _ABSOLUTE.sub(r"\1", text)
    return _PLACES.sub(r"\g<rest>", text)[:limit].strip()
