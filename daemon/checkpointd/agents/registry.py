"""The agents that are understood, and the logs that they left."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from checkpointd.agents.archive import CompressedLog
from checkpointd.agents.base import Adapter, LogFile
from checkpointd.agents.claude import Claude
from checkpointd.agents.codex import Codex
from checkpointd.agents.pi import Pi
from checkpointd.agents.tail import Cursor, Log, Tail

ADAPTERS: tuple[Adapter, ...] = (Claude(), Codex(), Pi())


def adapter_named(name: str) -> Adapter:
    """The adapter of that name; KeyError where there is none."""
    return {adapter.name: adapter for adapter in ADAPTERS}[name]


def adapter_of(path: Path) -> Adapter | None:
    """The adapter whose log this is, by the file's name: no two agents' names are alike."""
    return next((adapter for adapter in ADAPTERS if adapter.is_log(path)), None)


def open_log(path: Path, adapter: Adapter, cursor: Cursor | None = None) -> Log:
    """A reader of a log, live or compressed."""
    if path.suffix == ".zst":
        return CompressedLog(path, adapter, cursor)
    return Tail(path, adapter, cursor)


def discover(env: Mapping[str, str]) -> list[LogFile]:
    """All logs on disk, the most recently written first."""
    found: dict[Path, LogFile] = {}
    for adapter in ADAPTERS:
        for root in adapter.roots(env):
            found |= {log.path: log for log in _logs(root, adapter)}
    # A plain log wins over its compressed copy: the switch leaves both for a moment.
    logs = [log for log in found.values() if log.path.suffix != ".zst" or log.path.with_suffix("") not in found]
    return sorted(logs, key=lambda log: log.modified, reverse=True)


def _logs(root: Path, adapter: Adapter) -> Iterator[LogFile]:
    """The logs below a folder. What vanishes or may not be read meanwhile is left out."""
    folders = [str(root)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                listed = list(entries)
        except OSError:
            continue
        for entry in listed:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif adapter.is_log(path := Path(entry.path)):
                try:
                    status = entry.stat()
                except OSError:
                    continue
                yield LogFile(
                    path=path,
                    agent=adapter.name,
                    session=adapter.session_of(path),
                    size=status.st_size,
                    modified=status.st_mtime,
                )
