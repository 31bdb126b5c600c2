"""FSEvents streams, by watchdog. Imports on macOS only."""

import os

from watchdog.observers.api import EventQueue, ObservedWatch
from watchdog.observers.fsevents import FSEventsEmitter

from checkpointd.watch.fsevents import Stream, Told


class _Emitter(FSEventsEmitter):
    """Takes the raw flags: watchdog's own translation knows neither dropped events nor MustScanSubDirs."""

    def __init__(self, root: bytes, told: Told) -> None:
        super().__init__(EventQueue(), ObservedWatch(os.fsdecode(root), recursive=True))
        self._told = told

    def events_callback(self, paths: list[bytes], inodes: list[int], flags: list[int], ids: list[int]) -> None:
        self._told([os.fsencode(path) for path in paths], flags)


def begin(root: bytes, told: Told) -> Stream:
    """A stream that runs: everything below `root`."""
    emitter = _Emitter(root, told)
    emitter.start()
    return emitter
