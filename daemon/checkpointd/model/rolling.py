"""Which rolling states of a work tree are kept: the thinning policy. Pure."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

EVERY = timedelta(seconds=60)
"""Younger states are all kept."""

SLOT = timedelta(seconds=10)
"""Older ones: the newest of each slot of this length."""

LONGEST = timedelta(minutes=10)
"""How far back every moment can be asked for. So long, too, is a state before a burst protected after the burst."""

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def keep(times: Iterable[datetime], protected: Collection[datetime], now: datetime) -> set[datetime]:
    """The times of the states to keep; the protected ones among them stay whatever their age.

    Thinning what was thinned changes nothing, since slots are cut from the epoch. The newest state always stays, and
    so does the one that held when the last ten minutes began, however old it is: an idle project has no younger one.
    A time after `now` (a clock that was set back) counts as new.
    """
    ordered = sorted(set(times))
    kept = {time for time in ordered if time in protected} | set(ordered[-1:])
    slots: dict[int, datetime] = {}
    for time in ordered:
        age = now - time
        if age <= EVERY:
            kept.add(time)
        else:
            slots[(time - _EPOCH) // SLOT if age <= LONGEST else -1] = time  # ordered: the newest of a slot wins
    return kept | set(slots.values())


def newest_before(times: Iterable[datetime], when: datetime) -> datetime | None:
    """The newest of `times` at or before `when`."""
    return max((time for time in times if time <= when), default=None)
