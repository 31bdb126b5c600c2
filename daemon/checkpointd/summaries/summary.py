"""summary.yaml: what a session came to, in the shape of its work type, for looking up."""

from collections.abc import Callable, Iterable

from checkpointd.model.checkpoint import FileChange, Record, WorkType
from checkpointd.model.digest import Digest
from checkpointd.model.pack import cost
from checkpointd.summaries import yamltext

_FILES = 100
_ITEMS = 30
_TAGS = 12

Fields = dict[str, object]


def summary_yaml(record: Record, digest: Digest | None) -> bytes:
    """summary.yaml of one checkpoint. Only fields that events and files can fill are written; the rest is absent, not
    empty, so that "not known" is never read as "none"."""
    kind: WorkType = record.work_type or "code_change"
    digest = digest or Digest()
    summary = {key: value for key, value in _BY_WORK_TYPE[kind](record, digest).items() if value}
    fields: Fields = {
        "session_id": record.session.id if record.session else None,
        "work_type": kind,
        "created_at": record.created_at,
        "requests": [turn.request for turn in digest.turns[-_ITEMS:] if turn.request],
        "summary": summary,
        "dropped": [task.text for task in record.tasks if task.state == "cancelled"],
        "token_size": cost(yamltext.dump(summary).decode().splitlines()),
        "relevance_tags": _tags(record),
        "sources": _sources(digest),
    }
    return yamltext.dump({key: value for key, value in fields.items() if value is not None and value != []})


def _changes(record: Record, _: Digest) -> Fields:
    return {"files_changed": [_file(change) for change in record.files_changed[:_FILES]]}


def _file(change: FileChange) -> Fields:
    return {"path": change.path, "change": change.change}


def _code_change(record: Record, digest: Digest) -> Fields:
    return {**_changes(record, digest), "decisions": _decisions(digest), "tests": _tests(record)}


def _debugging(record: Record, digest: Digest) -> Fields:
    solved = [
        {"description": attempt.what, "verification": "succeeded later"}
        for attempt in digest.attempts
        if attempt.solved
    ]
    return {
        "symptoms": [_failure(attempt.what, attempt.error, attempt.times) for attempt in digest.attempts[-_ITEMS:]],
        "fixes": solved[-_ITEMS:],
        "files_touched": [change.path for change in record.files_changed[:_FILES]],
        "tests": _tests(record),
    }


def _failure(what: str, error: str, times: int) -> Fields:
    return {"command": what, "error": error, "times": times}


def _planning(record: Record, digest: Digest) -> Fields:
    goals = [{"text": task.text, "state": task.state} for task in record.tasks if task.state != "cancelled"]
    return {"goals": goals, "decisions": _decisions(digest)}


def _design(record: Record, digest: Digest) -> Fields:
    return {"choices": [{"what": text} for text in _decisions(digest)], **_changes(record, digest)}


def _answer(_: Record, digest: Digest) -> Fields:
    return {"answer": digest.last_answer}


def _review(_: Record, digest: Digest) -> Fields:
    return {"observations": [digest.last_answer] if digest.last_answer else []}


_BY_WORK_TYPE: dict[WorkType, Callable[[Record, Digest], Fields]] = {
    "code_change": _code_change,
    "debugging": _debugging,
    "planning": _planning,
    "design": _design,
    "question": _answer,
    "review": _review,
}


def _decisions(digest: Digest) -> list[str]:
    return [decision.text for decision in digest.decisions]


def _tests(record: Record) -> list[Fields]:
    return [{"gate": gate.gate, "command": gate.command, "colour": gate.colour} for gate in record.tests]


def _tags(record: Record) -> list[str]:
    """The folders that the most changed files lie in, two levels deep, and the feature."""
    folders: dict[str, int] = {}
    for change in record.files_changed:
        folder = "/".join(change.path.split("/")[:-1][:2])
        if folder:
            folders[folder] = folders.get(folder, 0) + 1
    names = sorted(folders, key=lambda folder: (-folders[folder], folder))
    return [*filter(None, (record.feature, record.platform)), *names[:_TAGS]]


def _sources(digest: Digest) -> dict[str, list[str]] | None:
    """Where in the log each part was read."""
    found: dict[str, Iterable[str]] = {
        "requests": (turn.position for turn in digest.turns[-_ITEMS:] if turn.request),
        "attempts": (attempt.position for attempt in digest.attempts[-_ITEMS:]),
        "decisions": (decision.position for decision in digest.decisions),
        "files": (touch.position for touch in list(digest.files.values())[-_ITEMS:]),
    }
    places = {part: list(dict.fromkeys(positions)) for part, positions in found.items()}
    return {part: positions for part, positions in places.items() if positions} or None
