"""Retention: which checkpoints are kept, which go, and why. Pure.

Every rule keeps; what no rule keeps goes. A rule counts the trigger that names a record and the others in `also`.
Deciding again on what was kept, at the same time, keeps all of it.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from checkpointd.model.checkpoint import Trigger

_ALWAYS: frozenset[Trigger] = frozenset({"manual", "handoff", "fork"})
_TELLING: frozenset[Trigger] = frozenset({"repeated-failure", "pre-destructive"})
_NOTABLE: frozenset[Trigger] = frozenset({"request-changes", "head-moved", "pre-compact", "gate"})
_CHEAP: frozenset[Trigger] = frozenset({"turn", "scheduled"})
_MIDDLING: frozenset[Trigger] = _CHEAP | {"gate", "pre-compact"}


class RetentionItem(Struct, frozen=True, kw_only=True):
    """What retention knows of a checkpoint. `forked`: a fork starts from it. What is in use, a pre-restore checkpoint
    of an unfinished restore for one, is given as pinned."""

    id: str
    worktree: str
    seq: int
    created_at: datetime
    trigger: Trigger
    also: tuple[Trigger, ...] = ()
    session: str | None = None
    turn: int | None = None
    pinned: bool = False
    forked: bool = False
    damaged: bool = False

    @property
    def triggers(self) -> frozenset[Trigger]:
        return frozenset((self.trigger, *self.also))


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    """For how long what is kept; `daily`, `weekly` and `monthly` count the newest slots that exist."""

    everything: timedelta = timedelta(hours=48)
    session: timedelta = timedelta(days=90)
    notable: timedelta = timedelta(days=30)
    pre_restore: timedelta = timedelta(days=30)
    daily: int = 30
    weekly: int = 12
    monthly: int = 12


class Verdict(Struct, frozen=True, kw_only=True):
    id: str
    keep: bool
    reason: str


def decide(checkpoints: Sequence[RetentionItem], policy: RetentionPolicy, now: datetime) -> list[Verdict]:
    """A verdict with its reason for every checkpoint, in the order given."""
    reasons: dict[str, str] = {}
    for item in checkpoints:
        if reason := _own_reason(item, policy, now):
            reasons[item.id] = reason
    for line in _grouped(checkpoints, lambda item: item.worktree).values():
        _keep_newest(line, reasons)
        _keep_slots(line, policy, reasons)
    for session in _sessions(checkpoints).values():
        _keep_session_ends(session, policy, now, reasons)
    _keep_turns_whole(checkpoints, reasons)
    return [
        Verdict(id=item.id, keep=item.id in reasons, reason=reasons.get(item.id, _why_it_goes(item, policy)))
        for item in checkpoints
    ]


def pressure_groups(items: Sequence[RetentionItem]) -> list[tuple[str, ...]]:
    """What may go when bytes or disk run short, in this order; ids of one group go together.

    Turns and scheduled ones first, then gates and pre-compacts, then the rest, each from old to new. Never: pinned,
    manual, handoffs, forks and their starts, baselines, the last of a session, pre-restores, the newest of a work tree.
    """
    spared = _spared_under_pressure(items)
    ends = _turn_ends(items)
    ranked: dict[frozenset[str], tuple[int, datetime]] = {}
    by_id = {item.id: item for item in items}
    for item in items:
        group = ends.get(item.id, frozenset({item.id}))
        if group & spared:
            continue
        members = [by_id[id_] for id_ in group]
        ranked[group] = (max(map(_pressure_rank, members)), min(member.created_at for member in members))
    order = sorted(ranked, key=lambda group: (*ranked[group], min(group)))
    return [tuple(sorted(group, key=lambda id_: (by_id[id_].seq, id_))) for group in order]


def pressure_order(items: Sequence[RetentionItem]) -> list[str]:
    """The ids of `pressure_groups`, one after the other."""
    return [id_ for group in pressure_groups(items) for id_ in group]


def _own_reason(item: RetentionItem, policy: RetentionPolicy, now: datetime) -> str:
    """Why a checkpoint is kept whatever else there is; empty where that gives no reason."""
    age = now - item.created_at
    if item.pinned:
        return "pinned"
    if item.forked:
        return "a fork starts here"
    if always := item.triggers & _ALWAYS:
        return f"{min(always)}: always kept"
    if age <= policy.everything:
        return f"younger than {_span(policy.everything)}"
    if (telling := item.triggers & _TELLING) and age <= policy.session:
        return f"{min(telling)}, younger than {_span(policy.session)}"
    if (notable := item.triggers & _NOTABLE) and age <= policy.notable:
        return f"{min(notable)}, younger than {_span(policy.notable)}"
    if "pre-restore" in item.triggers and age <= policy.pre_restore:
        return f"pre-restore, younger than {_span(policy.pre_restore)}"
    return ""


def _keep_newest(line: Sequence[RetentionItem], reasons: dict[str, str]) -> None:
    """The newest of a work tree stays, and the newest that can be read where that is another one."""
    for candidates in (line, [item for item in line if not item.damaged]):
        if candidates:
            reasons.setdefault(max(candidates, key=_age_order).id, "the newest of its work tree")


def _keep_slots(line: Sequence[RetentionItem], policy: RetentionPolicy, reasons: dict[str, str]) -> None:
    slots: tuple[tuple[str, int, Callable[[datetime], tuple[int, ...]]], ...] = (
        ("day", policy.daily, lambda at: (at.year, at.month, at.day)),
        ("week", policy.weekly, lambda at: at.isocalendar()[:2]),
        ("month", policy.monthly, lambda at: (at.year, at.month)),
    )
    for name, count, slot in slots:
        filled: dict[tuple[int, ...], RetentionItem] = {}
        for item in sorted(line, key=_age_order):
            if not item.damaged:
                filled[slot(item.created_at)] = item
        for key in sorted(filled, reverse=True)[:count]:
            reasons.setdefault(filled[key].id, f"the newest of its {name}")


def _keep_session_ends(
    session: Sequence[RetentionItem], policy: RetentionPolicy, now: datetime, reasons: dict[str, str]
) -> None:
    """The baseline, the last and the last green of a session: what its story is told by."""
    sound = [item for item in session if not item.damaged] or list(session)
    baselines = [item for item in sound if "baseline" in item.triggers] or [min(sound, key=_age_order)]
    green = [item for item in sound if "gate" in item.triggers]
    named = [(item, "baseline") for item in baselines]
    named.append((max(sound, key=_age_order), "last"))
    if green:
        named.append((max(green, key=_age_order), "last green"))
    for item, name in named:
        if now - item.created_at <= policy.session:
            reasons.setdefault(item.id, f"the {name} of its session, younger than {_span(policy.session)}")


def _keep_turns_whole(items: Sequence[RetentionItem], reasons: dict[str, str]) -> None:
    for group in set(_turn_ends(items).values()):
        if kept := sorted(id_ for id_ in group if id_ in reasons):
            for id_ in group:
                reasons.setdefault(id_, f"the other end of the turn of {kept[0]}")


def _turn_ends(items: Sequence[RetentionItem]) -> dict[str, frozenset[str]]:
    """First and last record of each turn, by either's id: they are kept or removed together."""
    turns = _grouped(
        (item for item in items if item.session is not None and item.turn is not None),
        lambda item: (item.worktree, item.session, item.turn),
    )
    ends: dict[str, frozenset[str]] = {}
    for turn in turns.values():
        first, last = min(turn, key=_age_order), max(turn, key=_age_order)
        group = frozenset((first.id, last.id))
        ends[first.id] = ends[last.id] = group
    return ends


def _spared_under_pressure(items: Sequence[RetentionItem]) -> set[str]:
    spared = {
        item.id
        for item in items
        if item.pinned or item.forked or item.triggers & (_ALWAYS | {"baseline", "pre-restore"})
    }
    for session in _sessions(items).values():
        spared.add(max(session, key=_age_order).id)
    newest: dict[str, str] = {}
    for line in _grouped(items, lambda item: item.worktree).values():
        _keep_newest(line, newest)
    return spared | newest.keys()


def _pressure_rank(item: RetentionItem) -> int:
    if item.triggers <= _CHEAP:
        return 0
    return 1 if item.triggers <= _MIDDLING else 2


def _why_it_goes(item: RetentionItem, policy: RetentionPolicy) -> str:
    return f"{item.trigger}, older than {_span(policy.everything)}, and no other rule keeps it"


def _sessions(items: Iterable[RetentionItem]) -> Mapping[Hashable, list[RetentionItem]]:
    return _grouped((item for item in items if item.session is not None), lambda item: (item.worktree, item.session))


def _grouped(
    items: Iterable[RetentionItem], key: Callable[[RetentionItem], Hashable]
) -> dict[Hashable, list[RetentionItem]]:
    groups: dict[Hashable, list[RetentionItem]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def _age_order(item: RetentionItem) -> tuple[int, datetime, str]:
    """From old to new within a work tree: by sequence, since clocks jump."""
    return item.seq, item.created_at, item.id


def _span(span: timedelta) -> str:
    hours = int(span.total_seconds() // 3600)
    return f"{hours // 24} days" if hours % 24 == 0 and hours > 48 else f"{hours} h"
