"""The hub for the platform that this is."""

import asyncio
import sys
from pathlib import Path

from checkpointd.watch.tree import Hub


def hub(loop: asyncio.AbstractEventLoop, cookies: Path) -> Hub:
    """The platform's hub, not yet open. `cookies` is a folder of our own for the barrier's files."""
    if sys.platform == "darwin":
        # Each platform's binding imports there only.
        from checkpointd.watch import fsevents_stream
        from checkpointd.watch.fsevents import FsEventsHub

        return FsEventsHub(loop, fsevents_stream.begin)
    from checkpointd.watch.inotify import InotifyHub

    return InotifyHub(loop, cookies)
