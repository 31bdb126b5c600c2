"""The SQLite file under the catalog: opened, checked, set aside when damaged."""

import logging
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from checkpointd.catalog.errors import CatalogDamaged, CatalogError, CatalogTooNew, CatalogUnavailable
from checkpointd.catalog.schema import APPLICATION, DDL, VERSION

log = logging.getLogger(__name__)

Value = str | int | float | bytes | None

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SIDECARS = ("", "-wal", "-shm", "-journal")
# WAL needs shared memory that all readers see: https://www.sqlite.org/wal.html, "Disadvantages".
_REMOTE = ("nfs", "cifs", "smb", "9p", "fuse", "afs", "ceph", "gluster", "lustre", "vboxsf", "virtiofs", "prl_fs")


class _Unusable(Exception):
    """The file is damaged, foreign or of an older layout: it is set aside."""


def stamp(when: datetime | None) -> int | None:
    """A time as the database holds it: microseconds since 1970, UTC."""
    return None if when is None else (when - _EPOCH) // _MICROSECOND


def moment(value: int | None) -> datetime | None:
    """The time that `stamp` made."""
    return None if value is None else _EPOCH + value * _MICROSECOND


class Database:
    """One connection, used by one thread. Each statement is its own transaction outside of `batch`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rebuilt = False
        self._connection: sqlite3.Connection | None = None
        self._depth = 0
        self._damaged = False

    def open(self) -> None:
        """Opens the file, or makes it. Sets `rebuilt` when there was one that could not be used.

        Raises CatalogTooNew, and leaves the file alone, when a newer version wrote it.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._refuse_newer(_header_version(self.path))
        try:
            self._connection = self._connect()
        except _Unusable as error:
            aside = _set_aside(self.path)
            log.warning("catalog set aside file=%s reason=%s", aside, error)
            self.rebuilt = True
            self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        # The file is made by us so that it is never readable by others, not even for a moment.
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise CatalogUnavailable(f"{self.path}: {error.strerror}") from error
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=2.0, cached_statements=256)
        try:
            self._prepare(connection)
        except sqlite3.OperationalError as error:
            connection.close()
            raise CatalogUnavailable(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            connection.close()
            raise _Unusable(str(error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if tables or application or version:
            if application != APPLICATION:
                raise _Unusable("not a catalog")
            self._refuse_newer(version)
            if version < VERSION:
                raise _Unusable("older layout")
            if _unclean(connection):
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != "ok":
                    raise _Unusable(str(verdict))
        if _is_local(self.path):
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA temp_store=MEMORY")
        if not tables:
            connection.executescript(
                f"BEGIN; {DDL} PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION}; COMMIT;"
            )
        # A file that was not closed is checked whole by the next start.
        connection.execute("INSERT OR REPLACE INTO stat (key, value) VALUES ('open', '1')")

    def _refuse_newer(self, version: int) -> None:
        if version > VERSION:
            raise CatalogTooNew(f"{self.path}: written by a newer checkpointd (layout {version}, known {VERSION})")

    def close(self) -> None:
        """Closes the file; does nothing when it is not open."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            if not self._damaged:
                connection.execute("DELETE FROM stat WHERE key = 'open'")
        except sqlite3.Error as error:
            log.warning("catalog not closed cleanly file=%s reason=%s", self.path, error)
        finally:
            connection.close()

    def execute(self, statement: str, values: Sequence[Value] = ()) -> sqlite3.Cursor:
        """Runs one statement. Raises CatalogDamaged or CatalogUnavailable."""
        if self._connection is None:
            raise CatalogError(f"{self.path}: not open")
        try:
            return self._connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise CatalogUnavailable(f"{self.path}: {error}") from error
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            self._damaged = True
            raise CatalogDamaged(f"{self.path}: {error}") from error

    def rows(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        """All rows of a query."""
        return self.execute(statement, values).fetchall()

    def one(self, statement: str, values: Sequence[Value] = ()) -> tuple[Value, ...] | None:
        """The first row of a query."""
        row: tuple[Value, ...] | None = self.execute(statement, values).fetchone()
        return row

    def many(self, statement: str, values: Iterable[Sequence[Value]]) -> None:
        """Runs one statement for each row of values, in one transaction."""
        with self.batch():
            for row in values:
                self.execute(statement, row)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """One transaction for all that is done inside; nested ones join it. An exception undoes all."""
        if self._depth == 0:
            self.execute("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            if self._depth == 0 and self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._depth -= 1
        if self._depth == 0:
            self.execute("COMMIT")


def _header_version(path: Path) -> int:
    """user_version out of the file's header, without SQLite: opening alone would make sidecar files."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise CatalogUnavailable(f"{path}: {error.strerror}") from error
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        return 0
    application: int
    version: int
    (version,) = struct.unpack_from(">I", header, 60)
    (application,) = struct.unpack_from(">I", header, 68)
    return version if application == APPLICATION else 0


def _unclean(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM stat WHERE key = 'open'").fetchone() is not None


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in _SIDECARS:
        source = path.with_name(path.name + suffix)
        if source.exists():
            os.replace(source, aside.with_name(aside.name + suffix))
    return aside


def _is_local(path: Path) -> bool:
    """Whether the file system is one of this machine, as far as Linux tells; elsewhere it is taken to be."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    for line in mounts.splitlines():
        fields = line.split(" ")
        if fields[2] == number:
            kind = fields[fields.index("-") + 1]
            return not kind.startswith(_REMOTE)
    return True
