"""The rolling states of a work tree: what its files were at any moment of the last minutes."""

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from checkpointd.clock import Clock
from checkpointd.model import rolling
from checkpointd.model.capture import Captured, Coverage
from checkpointd.vault.errors import StoreError
from checkpointd.vault.store import RollingTree, Vault

_UNKNOWN = Coverage(unobserved=(b"",))
"""Of a state read back from the vault: no absence in it is knowledge."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Rolling:
    """The states, thinned by age. Any thread may ask; `push` and `thin` write the vault, so they block."""

    def __init__(self, vault: Vault, worktree_id: str, clock: Clock) -> None:
        self._vault = vault
        self._worktree = worktree_id
        self._clock = clock
        self._lock = threading.Lock()
        self._states: dict[datetime, Captured] = {}
        self._bursts: dict[datetime, datetime] = {}  # the state before a burst, and when the burst was
        self._written: frozenset[datetime] = frozenset()
        self._restore()

    def _restore(self) -> None:
        try:
            states = self._vault.rolling(self._worktree)
        except StoreError:  # not synced, so power loss may have taken them; checkpoints are what is promised
            return
        for name, state in states.items():
            folder, _, moment = name.rpartition("/")
            if folder == "at" and moment.isdigit():
                at = _EPOCH + timedelta(milliseconds=int(moment))
                self._states[at] = Captured(
                    files=state.files, modes=state.modes, coverage=_UNKNOWN, taken_at=at, changes=None
                )

    def push(self, captured: Captured) -> None:
        """Adds the newest state, and makes the vault hold it. One equal to the last changes nothing."""
        with self._lock:
            newest = self._newest()
            if newest is not None and newest.coverage is not _UNKNOWN and _same(newest, captured):
                return
            self._states[captured.taken_at] = captured
            self._thin_and_write()

    def before_burst(self, at: datetime) -> None:
        """Keeps the state before a burst of deletions that began at `at` for ten minutes."""
        with self._lock:
            before = rolling.newest_before(self._states, at)
            if before is not None:
                self._bursts[before] = max(at, self._bursts.get(before, at))

    def at(self, when: datetime) -> Captured | None:
        """The newest state that was taken at or before `when`."""
        with self._lock:
            found = rolling.newest_before(self._states, when)
            return None if found is None else self._states[found]

    @property
    def now(self) -> Captured | None:
        """The newest state."""
        with self._lock:
            return self._newest()

    def _newest(self) -> Captured | None:
        return self._states[max(self._states)] if self._states else None

    def thin(self) -> None:
        """Lets go of what age has made superfluous, in the vault as well."""
        with self._lock:
            self._thin_and_write()
        self._vault.prune_rolling()

    def _thin_and_write(self) -> None:
        now = self._clock.now()
        self._bursts = {state: burst for state, burst in self._bursts.items() if now - burst <= rolling.LONGEST}
        kept = rolling.keep(self._states, self._bursts, now)
        self._states = {at: state for at, state in self._states.items() if at in kept}
        if not self._states or frozenset(self._states) == self._written:
            return
        self._vault.set_rolling(self._worktree, _named(self._states))
        self._written = frozenset(self._states)


def _same(one: Captured, other: Captured) -> bool:
    return (one.files, one.modes, one.coverage.skipped) == (other.files, other.modes, other.coverage.skipped)


def _named(states: Mapping[datetime, Captured]) -> dict[str, RollingTree]:
    named = {
        f"at/{(at - _EPOCH) // timedelta(milliseconds=1)}": RollingTree(state.files, state.modes)
        for at, state in sorted(states.items())
    }
    newest = states[max(states)]
    return {"now": RollingTree(newest.files, newest.modes), **named}
