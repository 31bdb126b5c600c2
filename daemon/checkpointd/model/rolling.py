"""Which rolling states of a work tree are kept: the thinning policy. Pure."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

EVERY = timedelta(seconds=60)
"""Younger states are all kept."""

SLOT = timedelta(seconds=10)
"""Older ones: the newest of each slot of this length."""

LONGEST = timedelta(minutes=10)
"""Older states are let go, but for the newest of all; so is the protection of a state before a burst."""

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def keep(times: Iterable[datetime], protected: Collection[datetime], now: datetime) -> set[datetime]:
    """The times of the states to keep. `protected` are the states before a burst, kept while they are young enough.

    Thinning what was thinned changes nothing, since slots are cut from the epoch. The newest state always stays: it is
    what the next change is compared with. A time after `now` (a clock that was set back) counts as new.
    """
    ordered = sorted(set(times))
    kept: set[datetime] = set(ordered[-1:])
    slots: dict[int, datetime] = {}
    for time in ordered:
        age = now - time
        if age <= EVERY or (time in protected and age <= LONGEST):
            kept.add(time)
        elif age <= LONGEST:
            slots[(time - _EPOCH) // SLOT] = time  # ordered, so the newest of the slot wins
    return kept | set(slots.values())


def newest_before(times: Iterable[datetime], when: datetime) -> datetime | None:
    """The newest of `times` at or before `when`."""
    return max((time for time in times if time <= when), default=None)
