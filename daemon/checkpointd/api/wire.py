"""From the domain to the wire and back."""

import base64
from collections.abc import Iterable
from datetime import datetime

import msgspec

from checkpointd.engine import answers
from checkpointd.engine.requests import ListRequest, RestoreRequest, SaveRequest, Scope
from checkpointd.model.capture import Coverage
from checkpointd.model.checkpoint import TRIGGERS, GateState, Record
from checkpointd.model.paths import quote, unquote
from ckpt.contract import methods, records
from ckpt.contract.errors import CkptError

_LIST_LIMIT = 5000


def record(value: Record) -> records.Record:
    return msgspec.convert(msgspec.to_builtins(value), records.Record)


def gate_state(value: GateState) -> records.GateState:
    return msgspec.convert(msgspec.to_builtins(value), records.GateState)


def moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="milliseconds")


def row(value: answers.Checkpoint) -> methods.Row:
    made = value.record
    return methods.Row(
        id=made.id,
        name=made.name,
        title=made.title,
        created_at=made.created_at.isoformat(timespec="milliseconds"),
        trigger=made.trigger,
        also=list(made.also),
        reason=made.reason,
        status=list(value.statuses),
        pinned=value.pinned,
        project=made.project.name,
        agent=made.session.agent if made.session else None,
        session_id=made.session.id if made.session else None,
        turn=made.turn,
        branch=made.git.branch if made.git else None,
        files_changed=max(made.files_changed_total, len(made.files_changed)),
        tests=[methods.Gate(gate=gate.gate, colour=gate.colour) for gate in made.tests],
    )


def saved(value: answers.Checkpoint) -> methods.Saved:
    return methods.Saved(checkpoint=record(value.record), status=list(value.statuses), pinned=value.pinned)


def shown(value: answers.Shown) -> methods.Shown:
    checkpoint = value.checkpoint
    return methods.Shown(
        checkpoint=record(checkpoint.record),
        status=list(checkpoint.statuses),
        pinned=checkpoint.pinned,
        coverage=coverage(value.coverage),
    )


def coverage(value: Coverage) -> methods.Coverage:
    return methods.Coverage(
        captured=value.captured,
        size=value.size,
        skipped=[
            methods.Skip(path=quote(skip.path), reason=skip.reason, detail=skip.detail, folder=skip.folder)
            for skip in value.skipped
        ],
        unobserved=[quote(prefix) for prefix in value.unobserved],
        rules=value.rules,
        first_read=moment(value.first_read),
        last_read=moment(value.last_read),
    )


def contents(value: answers.Contents) -> methods.File:
    return methods.File(data=base64.b64encode(value.data).decode(), size=value.size, mode=value.mode)


def changes(values: Iterable[answers.Difference]) -> list[methods.Change]:
    return [
        methods.Change(
            path=quote(value.path), change=value.change, added=value.added, removed=value.removed, patch=value.patch
        )
        for value in values
    ]


def last(value: answers.LastTurn) -> methods.Last:
    return methods.Last(
        agent=value.agent,
        session_id=value.session,
        turn=value.turn,
        request=value.request,
        answer=value.answer,
        started_at=moment(value.started_at),
        ended_at=moment(value.ended_at),
        changes=changes(value.changes),
        tests=[gate_state(gate) for gate in value.results],
        checkpoint=record(value.checkpoint) if value.checkpoint else None,
    )


def planned(values: Iterable[answers.PlannedPath]) -> list[methods.PlannedPath]:
    return [methods.PlannedPath(path=quote(value.path), why=value.why) for value in values]


def plan(value: answers.RestorePlan) -> methods.Plan:
    return methods.Plan(
        id=value.id,
        checkpoint=value.target.id,
        name=value.target.name,
        trigger=value.target.trigger,
        created_at=value.target.created_at.isoformat(timespec="milliseconds"),
        root=quote(value.root),
        restore=planned(value.restore),
        delete=planned(value.delete),
        keep=planned(value.keep),
        unchanged=value.unchanged,
        head_moved=value.head_moved,
        mass_delete=value.mass_delete,
        expires_at=moment(value.expires_at),
    )


def restored(value: answers.Restored) -> methods.Restored:
    return methods.Restored(
        restored=value.restored, deleted=value.deleted, failed=planned(value.failed), undo=value.undo
    )


def forget_plan(value: answers.ForgetPlan) -> methods.ForgetPlan:
    return methods.ForgetPlan(
        id=value.id,
        checkpoints=[
            methods.Doomed(
                id=made.id,
                name=made.name,
                title=made.title,
                created_at=made.created_at.isoformat(timespec="milliseconds"),
                trigger=made.trigger,
            )
            for made in value.checkpoints
        ],
        keep=[methods.Kept(id=kept.id, why=kept.why) for kept in value.keep],
        project=value.project,
        size_bytes=value.size,
    )


def project(value: answers.Project) -> methods.Project:
    return methods.Project(
        id=value.id,
        name=value.name,
        root=quote(value.root),
        kind=value.kind,
        checkpoints=value.checkpoints,
        paused=value.paused,
        watch=value.watch,
        dirty=value.dirty,
        last_capture=moment(value.last_capture),
        loss_window_s=value.loss_window.total_seconds() if value.loss_window is not None else None,
        size_bytes=value.size,
    )


def session(value: answers.Session) -> methods.Session:
    return methods.Session(
        agent=value.agent,
        id=value.id,
        state=value.state,
        source=value.source,
        project=value.project,
        root=quote(value.root) if value.root is not None else None,
        title=value.title,
        model=value.model,
        pid=value.pid,
        turns=value.turns,
        checkpoints=value.checkpoints,
        started_at=moment(value.started_at),
        last_at=moment(value.last_at),
    )


def problems(values: Iterable[answers.Problem]) -> list[methods.Problem]:
    return [methods.Problem(what=value.what, hint=value.hint) for value in values]


def status(value: answers.Overview, *, version: str, protocol: int, pid: int) -> methods.Status:
    return methods.Status(
        daemon=methods.Daemon(
            version=version,
            protocol=protocol,
            pid=pid,
            uptime_s=value.daemon.uptime.total_seconds(),
            rss_bytes=value.daemon.rss,
            cpu_s=value.daemon.cpu.total_seconds(),
            paused=value.daemon.paused,
        ),
        agents=[
            methods.Agent(
                agent=agent.agent,
                sessions=agent.sessions,
                records=agent.records,
                unknown_records=agent.unknown_records,
                unknown_kinds=list(agent.unknown_kinds),
                state=agent.state,
            )
            for agent in value.agents
        ],
        projects=[project(each) for each in value.projects],
        sessions=[session(each) for each in value.sessions],
        budgets={
            name: methods.Budget(used=budget.used, limit=budget.limit, unit=budget.unit)
            for name, budget in value.budgets.items()
        },
        problems=problems(value.problems),
    )


def happening(value: answers.Happening) -> methods.Happening:
    return methods.Happening(
        at=value.at.isoformat(timespec="milliseconds"),
        kind=value.kind,
        text=value.text,
        project=value.project,
        session=value.session,
        checkpoint=record(value.checkpoint) if value.checkpoint else None,
    )


def continuation(value: answers.Continuation) -> methods.Continuation:
    return methods.Continuation(
        checkpoint=value.checkpoint,
        drift=methods.Drift(
            unchanged=[quote(path) for path in value.drift.unchanged],
            modified=[quote(path) for path in value.drift.modified],
            missing=[quote(path) for path in value.drift.missing],
        ),
        pack=value.pack,
        native_resume=list(value.native_resume) if value.native_resume is not None else None,
    )


def rebuilt(value: answers.Rebuilt) -> methods.Rebuilt:
    return methods.Rebuilt(
        projects=value.projects,
        checkpoints=value.checkpoints,
        sessions=value.sessions,
        problems=problems(value.problems),
    )


# From the wire


def scope(params: methods.ScopeParams) -> Scope:
    return Scope(cwd=absolute("cwd", params["cwd"]), project=params.get("project"), all=params.get("all", False))


def save_request(params: methods.SaveParams) -> SaveRequest:
    return SaveRequest(
        key=params["key"],
        name=params.get("name"),
        title=params.get("title"),
        reason=params.get("reason"),
        pending=params.get("pending"),
        tags=tuple(params.get("tags", ())),
        pin=params.get("pin", False),
    )


def list_request(params: methods.ListParams) -> ListRequest:
    wanted = params.get("trigger")
    trigger = next((known for known in TRIGGERS if known == wanted), None)
    if wanted is not None and trigger is None:
        raise CkptError("invalid-params", f"Parameter `trigger`: no trigger {wanted!r}.", hint=", ".join(TRIGGERS))
    return ListRequest(
        session=params.get("session"),
        trigger=trigger,
        agent=params.get("agent"),
        since=_time("since", params.get("since")),
        until=_time("until", params.get("until")),
        limit=number("limit", params.get("limit", 20), 1, _LIST_LIMIT),
    )


def restore_request(params: methods.RestoreParams) -> RestoreRequest:
    to = params.get("to")
    return RestoreRequest(
        checkpoint=params["checkpoint"],
        paths=paths(params.get("paths", [])),
        to=absolute("to", to) if to is not None else None,
        allow_mass_delete=params.get("allow_mass_delete", False),
    )


def paths(texts: list[str]) -> tuple[bytes, ...]:
    return tuple(path("paths", text) for text in texts)


def path(field: str, text: str) -> bytes:
    """The raw path; what leads out of where it says it is, is refused here already."""
    try:
        raw = unquote(text)
    except (ValueError, UnicodeEncodeError) as error:
        raise CkptError("invalid-params", f"Parameter `{field}`: {error}.") from error
    if not raw or b"\0" in raw or b".." in raw.split(b"/"):
        raise CkptError("invalid-params", f"Parameter `{field}`: {text!r} is no path inside a project.")
    return raw


def absolute(field: str, text: str) -> bytes:
    raw = path(field, text)
    if not raw.startswith(b"/"):
        raise CkptError("invalid-params", f"Parameter `{field}`: {text!r} is not absolute.")
    return raw


def number(field: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise CkptError("invalid-params", f"Parameter `{field}`: {value} is not between {least} and {most}.")
    return value


def _time(field: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = msgspec.convert(text, datetime)
    except msgspec.ValidationError as error:
        raise CkptError("invalid-params", f"Parameter `{field}`: {text!r} is no ISO 8601 time.") from error
    if found.tzinfo is None:
        raise CkptError("invalid-params", f"Parameter `{field}`: {text!r} has no offset from UTC.")
    return found
