"""Small logs of every generation that is understood, and reading them as the daemon does."""

from pathlib import Path
from typing import TypeVar

from checkpointd.agents.base import Adapter
from checkpointd.agents.registry import adapter_named
from checkpointd.agents.tail import QUIET, Tail
from checkpointd.model.events import Event

T = TypeVar("T")

LOGS = sorted(Path(__file__).parent.glob("*.jsonl"))


def sample(name: str) -> Path:
    """The log of that name."""
    return Path(__file__).parent / f"{name}.jsonl"


def adapter_for(log: Path) -> Adapter:
    """The adapter that a sample's name begins with."""
    return adapter_named(log.name.partition("-")[0])


def drain(tail: Tail, now: float = 0.0) -> list[Event]:
    """Everything that a log holds, its unfinished last line too."""
    events: list[Event] = []
    while (batch := tail.read(now=now)).more:
        events += batch.events
    return events + batch.events + tail.read(now=now + QUIET).events


def events_of(name: str) -> list[Event]:
    """The events of a sample."""
    log = sample(name)
    return drain(Tail(log, adapter_for(log)))


def told(events: list[Event]) -> list[str]:
    """The kinds of the events, in order."""
    return [type(event).__name__ for event in events]


def only(events: list[Event], kind: type[T]) -> list[T]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]
