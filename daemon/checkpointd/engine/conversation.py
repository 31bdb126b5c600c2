"""One session that is being followed: its logs, its state, its work trees, the requests that wait to become records."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from checkpointd.agents.base import Adapter
from checkpointd.agents.tail import Log
from checkpointd.catalog.rows import SessionRow
from checkpointd.engine.tree import LiveTree
from checkpointd.model.checkpoint import SessionRef
from checkpointd.model.digest import Digest
from checkpointd.model.events import Event
from checkpointd.model.paths import quote
from checkpointd.model.session import Input, LogEvent, Policy, Seen, SessionState, advance, is_known
from checkpointd.model.triggers import TriggerRequest
from checkpointd.summaries.digest import observe
from checkpointd.text.redaction import redact
from checkpointd.vault.errors import StoreError


class Stored(Struct, kw_only=True):
    """What a restarted daemon goes on with."""

    state: SessionState
    digest: Digest


class Reader(Struct, kw_only=True):
    """One log of a session. Bytes before `live_from` were there before the daemon looked: they are read as history."""

    log: Log
    live_from: int = 0
    counted: dict[str, int] = field(default_factory=dict)  # what the catalog's counters know of this reader already


class Conversation:
    """Belongs to the event loop. Holds no task and touches no disk."""

    def __init__(self, adapter: Adapter, session: str, main_log: Path, stored: Stored | None = None) -> None:
        self.adapter = adapter
        self.session = session
        self.main_log = main_log
        self.state = stored.state if stored else SessionState()
        self.digest = stored.digest if stored else Digest(agent=adapter.name, session_id=session)
        self.readers: dict[Path, Reader] = {}
        self.trees: dict[str, LiveTree] = {}  # the first one is the session's own
        self.asked_directories: set[str] = set()
        self.unplaced: list[TriggerRequest] = []  # requests from before it was known where the session works
        self.changed = True  # since it was stored
        self.last_records: dict[str, datetime] = {}  # by work tree
        self.process: tuple[int, float] | None = None
        self.lock_held = False
        self.went_on = stored is not None  # a daemon before this one followed it

    @property
    def key(self) -> tuple[str, str]:
        return self.adapter.name, self.session

    @property
    def live(self) -> bool:
        return self.state.phase in ("working", "waiting")

    @property
    def primary(self) -> LiveTree | None:
        return next(iter(self.trees.values()), None)

    def observe(self, event: Event, *, history: bool, now: datetime, policy: Policy) -> tuple[TriggerRequest, ...]:
        """Counts an event in; the requests it makes."""
        requests = self.feed(Seen(now=now, replay=history), policy)
        requests += self.feed(LogEvent(event=event, now=now, exists=self._is_captured), policy)
        if not is_known(self.state, event):
            observe(self.digest, event)
        return requests

    def _is_captured(self, path: str) -> bool:
        """Whether the session's own work tree has a file of this name in the vault."""
        tree = self.primary
        if tree is None or tree.state is None:
            return False
        try:
            return tree.vault.resolve(tree.state.files, path.encode("utf-8", "surrogateescape")) is not None
        except StoreError:
            return False

    def feed(self, given: Input, policy: Policy) -> tuple[TriggerRequest, ...]:
        """One step of the state machine."""
        if isinstance(given, Seen) and given.replay is not self.state.live:
            return ()
        self.state, requests = advance(self.state, given, policy)
        self.changed = True
        return requests

    def directories(self) -> Sequence[str]:
        """Directories that the log names and nobody looked at yet: where it works, and what it writes outside."""
        named = [self.digest.cwd] if self.digest.cwd else []
        roots = [str(tree.root) + "/" for tree in self.trees.values()]
        if roots:
            outside = (path for path in self.digest.files if not path.startswith(tuple(roots)))
            named += [path.rpartition("/")[0] for path in outside if path.startswith("/")]
        new = [name for name in dict.fromkeys(named) if name not in self.asked_directories]
        self.asked_directories.update(new)
        return new

    def reference(self) -> SessionRef:
        """The session as a record names it."""
        digest = self.digest
        return SessionRef(
            agent=self.adapter.name,
            id=self.session,
            agent_version=digest.agent_version,
            model=digest.model,
            thinking=digest.thinking,
            name=redact(digest.name) if digest.name else None,
            log=quote(bytes(self.main_log)),
            started_at=digest.started_at,
            turns=self.state.turn,
            tokens=digest.tokens,
            cost_usd=digest.cost_usd,
        )

    def row(self) -> SessionRow:
        """The session as the catalog lists it."""
        digest, primary = self.digest, self.primary
        return SessionRow(
            agent=self.adapter.name,
            id=self.session,
            log=quote(bytes(self.main_log)),
            state=self._row_state(),
            project=primary.project_id if primary else None,
            worktree=primary.worktree_id if primary else None,
            cwd=digest.cwd or None,
            started_at=digest.started_at,
            last_at=digest.last_at,
            turns=self.state.turn,
            title=digest.name or digest.first_request[:120],
            model=digest.model,
            agent_version=digest.agent_version,
            pid=self.process[0] if self.process else None,
            pid_started=self.process[1] if self.process else None,
            ended_reason=self.state.ended,
        )

    def _row_state(self) -> Literal["live", "idle", "ended", "old"]:
        match self.state.phase:
            case "working":
                return "live"
            case "waiting":
                return "idle"
            case "ended":
                return "ended"
            case "quiet":
                return "old"

    def stored(self) -> bytes:
        """What `restored` takes back."""
        return msgspec.json.encode(Stored(state=self.state, digest=self.digest))


def restored(text: str | None) -> Stored | None:
    """What was stored, or None where it is not there or of another version."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text.encode(), type=Stored)
    except msgspec.MsgspecError:
        return None
