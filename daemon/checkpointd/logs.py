"""Logging: key=value lines; ids, counts, paths and durations only, never user content."""

import logging
import logging.handlers
import sys
from pathlib import Path


class _KeyValue(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        # A path that is not UTF-8 must not make logging about it fail.
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def set_up(file: Path | None, *, debug: bool = False) -> None:
    """Logs to a rotated file (5 files of 2 MiB), or to stderr where `file` is None."""
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = logging.handlers.RotatingFileHandler(file, maxBytes=2 << 20, backupCount=4, encoding="utf-8")
    handler.setFormatter(_KeyValue("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    for noisy in ("apscheduler", "watchdog", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
