"""The catalog of everything the daemon knows, in one SQLite file."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import cast

from checkpointd.catalog.checkpoints import Checkpoints
from checkpointd.catalog.database import Database, moment, stamp
from checkpointd.catalog.projects import Projects
from checkpointd.catalog.sessions import Sessions


class Catalog(Projects, Checkpoints, Sessions):
    """A derived index: checkpoints come again from the vaults, sessions and cursors from the logs.

    Belongs to the thread that opened it. Every method may raise CatalogDamaged or CatalogUnavailable.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path)

    @property
    def rebuilt(self) -> bool:
        """Whether the file that was there could not be used and lies beside the new one: fill it again."""
        return self._database.rebuilt

    def open(self) -> None:
        """Opens the file, or makes it. Raises CatalogTooNew when a newer version wrote it."""
        self._database.open()

    def close(self) -> None:
        """Closes the file; does nothing when it is not open."""
        self._database.close()

    def batch(self) -> AbstractContextManager[None]:
        """One transaction for all that is done inside; an exception undoes all. No await inside."""
        return self._database.batch()

    def last_run(self, job: str) -> datetime | None:
        """When the job ran last."""
        row = self._database.one("SELECT last_run FROM job WHERE name = ?", (job,))
        return None if row is None else moment(cast("int", row[0]))

    def set_run(self, job: str, when: datetime) -> None:
        self._database.execute("INSERT OR REPLACE INTO job (name, last_run) VALUES (?, ?)", (job, stamp(when)))

    def value(self, key: str) -> str | None:
        """A single remembered text."""
        row = self._database.one("SELECT value FROM stat WHERE key = ?", (f"user:{key}",))
        return None if row is None else str(row[0])

    def set_value(self, key: str, value: str | None) -> None:
        """Remembers a text, or forgets it."""
        if value is None:
            self._database.execute("DELETE FROM stat WHERE key = ?", (f"user:{key}",))
        else:
            self._database.execute("INSERT OR REPLACE INTO stat (key, value) VALUES (?, ?)", (f"user:{key}", value))

    def count(self, agent: str, counts: Mapping[str, int]) -> None:
        """Adds to an agent's counters: `records`, `unknown:<type>` and the like."""
        self._database.many(
            "INSERT INTO counter (agent, name, count) VALUES (?, ?, ?)"
            " ON CONFLICT (agent, name) DO UPDATE SET count = count + excluded.count",
            [(agent, name, number) for name, number in counts.items()],
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """All counters, by agent and name."""
        found: dict[str, dict[str, int]] = {}
        for agent, name, number in self._database.rows("SELECT agent, name, count FROM counter ORDER BY agent, name"):
            found.setdefault(str(agent), {})[str(name)] = cast("int", number)
        return found
