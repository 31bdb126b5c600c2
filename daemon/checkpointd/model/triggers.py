"""What a session asks the recorder for, and how requests of one moment become records."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Struct

from checkpointd.model.checkpoint import TRIGGERS, Trigger

WINDOW = timedelta(milliseconds=300)
"""Requests of one work tree that come within this span share a capture, and within one session a record."""

_REASON_LIMIT = 300
_STRENGTH = {trigger: place for place, trigger in enumerate(TRIGGERS)}


class TriggerRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reason to make a record of one session.

    `state` says which files: those of now, or the newest rolling tree from before `before`.
    `amends` is the position of an earlier request that this one only adds evidence to: it joins that request where
    that one still waits, and makes no record of its own.
    """

    trigger: Trigger
    reason: str
    position: str
    at: datetime | None = None  # when it happened, by the log or by the observer
    state: Literal["now", "before"] = "now"
    before: datetime | None = None
    turn: int = 0
    worktree: str = ""  # "": the session's first one
    paths: tuple[str, ...] = ()  # what a command names or a burst deleted: examples, not all
    call_id: str = ""
    amends: str = ""

    def key(self) -> str:
        """What makes two requests the same one."""
        return "\x1f".join((self.trigger, self.worktree, self.position))


class Coalesced(Struct, frozen=True, kw_only=True):
    """One record to be made: the request that names it, and the weaker triggers that it stands for."""

    request: TriggerRequest
    also: tuple[Trigger, ...] = ()


def strength(trigger: Trigger) -> int:
    """The place of a trigger in the order from strong (0) to weak."""
    return _STRENGTH[trigger]


def coalesce(requests: Sequence[TriggerRequest]) -> tuple[Coalesced, ...]:
    """The records that one session's requests of one moment make, strongest first.

    Requests share a record when they want the same files: one work tree, and both of now or both from before the same
    moment. `pre-restore` always stands alone. An amendment whose request is not among these is dropped.
    """
    groups: list[list[TriggerRequest]] = []
    for request in sorted(_amended(requests), key=_order):
        for group in groups:
            if _same_files(group[0], request):
                group.append(request)
                break
        else:
            groups.append([request])
    made = [_strongest(group) for group in groups]
    return tuple(sorted(made, key=lambda record: strength(record.request.trigger)))


def _amended(requests: Sequence[TriggerRequest]) -> list[TriggerRequest]:
    kept = {request.key(): request for request in requests if not request.amends}
    for request in requests:
        if not request.amends:
            continue
        for key, target in kept.items():
            if target.trigger == request.trigger and target.position == request.amends:
                kept[key] = _joined(target, request)
                break
    return list(kept.values())


def _joined(target: TriggerRequest, other: TriggerRequest) -> TriggerRequest:
    reason = target.reason if other.reason in target.reason else f"{target.reason}; {other.reason}"[:_REASON_LIMIT]
    befores = [time for time in (target.before, other.before) if time is not None]
    return msgspec.structs.replace(
        target,
        reason=reason,
        before=min(befores, default=None),
        paths=tuple(dict.fromkeys((*target.paths, *other.paths))),
    )


def _order(request: TriggerRequest) -> tuple[int, float]:
    return strength(request.trigger), request.before.timestamp() if request.before else 0.0


def _same_files(one: TriggerRequest, other: TriggerRequest) -> bool:
    if "pre-restore" in (one.trigger, other.trigger) or one.worktree != other.worktree or one.state != other.state:
        return False
    if one.before is None or other.before is None:
        return one.before is other.before
    return abs(one.before - other.before) <= WINDOW


def _strongest(group: Sequence[TriggerRequest]) -> Coalesced:
    first = group[0]
    for other in group[1:]:
        if other.trigger == first.trigger:
            first = _joined(first, other)
    return Coalesced(request=first, also=_by_strength({other.trigger for other in group} - {first.trigger}))


def _by_strength(triggers: Iterable[Trigger]) -> tuple[Trigger, ...]:
    return tuple(sorted(triggers, key=strength))
