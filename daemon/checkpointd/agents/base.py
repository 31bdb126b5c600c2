"""What every agent's adapter offers, and what a parser of its logs counts."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from checkpointd.model.events import Event, Position

# ToolResult promises no more text than this; errors stand at the head or at the tail of an output.
_TEXT_LIMIT = 64 * 1024
_NAMES_LIMIT = 200
_NAME_LENGTH = 80


class Sighting(Struct):
    """How often something was met, and where it was first."""

    count: int = 0
    first: Position | None = None

    def add(self, position: Position) -> None:
        """Counts one more."""
        if self.first is None:
            self.first = position
        self.count += 1


class Counts(Struct, kw_only=True):
    """How much of a log was understood, so that a format change never looks like silence."""

    records: int = 0
    unknown: dict[str, Sighting] = field(default_factory=dict)
    irregular: Sighting = field(default_factory=Sighting)  # read after fields of unexpected types were dropped
    undecodable: Sighting = field(default_factory=Sighting)  # not JSON
    oversized: Sighting = field(default_factory=Sighting)  # lines too long to read

    def meet(self, name: str, position: Position) -> None:
        """Counts a kind of record that the parser does not know."""
        name = name[:_NAME_LENGTH]
        if name not in self.unknown and len(self.unknown) >= _NAMES_LIMIT:
            name = "(more)"
        self.unknown.setdefault(name, Sighting()).add(position)


class LogParser(Protocol):
    """Turns the records of one log, in order, into events.

    Nothing in a record makes it raise. `state` is small and, given to `restore` of a new parser, lets
    it go on at the next record.
    """

    counts: Counts

    def feed(self, record: bytes, position: Position) -> list[Event]:
        """The events of one line, usually one JSON object."""
        ...

    def state(self) -> bytes:
        """What is to be remembered to go on after a restart."""
        ...

    def restore(self, blob: bytes) -> None:
        """Takes over what `state` of an earlier parser gave; a blob of another version is ignored."""
        ...


class Adapter(Protocol):
    """One agent: where its logs are, how they are read, and how its processes look."""

    @property
    def name(self) -> str:
        """The agent's short name, as records have it."""
        ...

    @property
    def title(self) -> str:
        """The agent's name for people."""
        ...

    @property
    def markers(self) -> tuple[str, ...]:
        """Environment variables that only commands run by this agent have."""
        ...

    @property
    def session_variables(self) -> tuple[str, ...]:
        """Environment variables that hold the session's id in the agent's commands."""
        ...

    def roots(self, env: Mapping[str, str]) -> list[Path]:
        """The folders that hold its logs; they need not exist."""
        ...

    def is_log(self, path: Path) -> bool:
        """Whether a file below a root is a session's log, by its name alone."""
        ...

    def session_of(self, path: Path) -> str | None:
        """The id of the session that a log belongs to, where the path tells."""
        ...

    def parser(self) -> LogParser:
        """A new parser, for one log."""
        ...

    def resume(self, session: str) -> list[str]:
        """The command that goes on with a session."""
        ...

    def is_process(self, name: str, argv: Sequence[str]) -> bool:
        """Whether this is a process that sessions run in; daemons that outlive their sessions are not."""
        ...


class LogFile(Struct, frozen=True, kw_only=True):
    """A log as found on disk."""

    path: Path
    agent: str
    session: str | None  # None when only the content tells
    size: int
    modified: float


def home(env: Mapping[str, str]) -> Path:
    """The home directory of this environment."""
    return Path(env.get("HOME") or Path.home())


def base_name(text: str) -> str:
    """The last part of a path, of either kind of separator."""
    return text.replace("\\", "/").rsplit("/", 1)[-1]


def cut(text: str) -> str:
    """The text with its middle left out, when it is longer than a result's text may be."""
    if len(text) <= _TEXT_LIMIT:
        return text
    half = _TEXT_LIMIT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def aware(at: datetime | None) -> datetime | None:
    """A log's time with its zone, UTC where it names none."""
    return at.replace(tzinfo=UTC) if at and at.tzinfo is None else at


def shorten(items: dict[str, Any], limit: int) -> None:
    """Forgets the oldest of what a parser remembers, so that its state stays small."""
    while len(items) > limit:
        del items[next(iter(items))]
