"""checkpoint.md: one checkpoint for a person, and for a session that is given the file."""

from collections.abc import Iterable, Mapping

from checkpointd.model.checkpoint import FileChange, Record
from checkpointd.model.digest import Digest
from checkpointd.model.pack import next_steps

_FILES = 200
_TURNS = 20
_ATTEMPTS = 20
_MARKS = {"done": "x", "doing": ">", "open": " ", "cancelled": "-"}


def checkpoint_md(record: Record, digest: Digest | None, pack: str) -> bytes:
    """The page of one checkpoint. Parts with nothing to say are left out."""
    parts = [_title(record), _worked_on(record, digest)]
    parts += _part("Key decisions", (f"- {decision.text}" for decision in (digest.decisions if digest else ())))
    parts += _part("Files changed", _files(record, digest))
    parts += _part("Tests", _tests(record))
    parts += _part("Issues met and fixes tried", _issues(digest))
    parts += _part("Tasks", (f"- [{_MARKS[task.state]}] {task.text}" for task in record.tasks))
    parts += _part("Open questions and next steps", _next(record, digest))
    parts += _part("Not captured", _left_out(record.coverage.skipped))
    parts += _part("How to restore", _restore(record))
    parts += _part("Resume pack", ["```text", pack.replace("```", "'''").rstrip("\n"), "```"])
    return ("\n".join(parts) + "\n").encode("utf-8", "replace")


def _part(title: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return [f"## {title}", "", *found, ""] if found else []


def _title(record: Record) -> str:
    session = record.session
    by = f" · {session.agent} session `{session.id}`" if session else ""
    turn = f", turn {record.turn}" if record.turn else ""
    also = f" (also {', '.join(record.also)})" if record.also else ""
    return (
        f"# {record.title}\n\n"
        f"`{record.id}` · {record.created_at:%Y-%m-%d %H:%M:%S %Z}{by}{turn}\n\n"
        f"**{record.trigger}**{also}: {record.reason}\n"
    )


def _worked_on(record: Record, digest: Digest | None) -> str:
    lines = ["## What we were working on", ""]
    asked = [turn for turn in digest.turns if turn.request][-_TURNS:] if digest else []
    if not asked or digest is None:
        lines.append(record.note.get("context") or "No session's request is known for this checkpoint.")
        return "\n".join([*lines, ""])
    lines.append(f"> {digest.first_request}")
    if digest.last_request != digest.first_request:
        lines += ["", f"and last, in turn {asked[-1].number}:", "", f"> {digest.last_request}"]
    if digest.last_answer:
        lines += ["", f"The agent's last words: {digest.last_answer}"]
    return "\n".join([*lines, ""])


def _files(record: Record, digest: Digest | None) -> list[str]:
    lines = [f"- `{change.path}`: {_note(change)}" for change in record.files_changed[:_FILES]]
    total = max(record.files_changed_total, len(record.files_changed))
    if total > len(lines):
        lines.append(f"- and {total - len(lines)} more")
    if not lines and digest is not None:
        lines = ["No file differs from the checkpoint before this one."]
    return lines


def _note(change: FileChange) -> str:
    verb = {"add": "added", "modify": "changed", "delete": "deleted", "rename": "renamed"}[change.change]
    lines = "" if change.added is None else f", +{change.added} -{change.removed or 0}"
    who = f", by `{change.session}` ({change.certainty})" if change.session else ""
    return f"{verb}{lines}{who}"


def _tests(record: Record) -> Iterable[str]:
    for gate in record.tests:
        failing = f": {', '.join(gate.failing[:10])}" if gate.failing else ""
        error = f" ({gate.error})" if gate.error and gate.colour == "red" else ""
        yield f"- `{gate.command}`: {gate.colour}{failing}{error}"


def _issues(digest: Digest | None) -> Iterable[str]:
    if digest is None:
        return
    for attempt in digest.attempts[-_ATTEMPTS:]:
        times = f" ({attempt.times} times)" if attempt.times > 1 else ""
        solved = "; solved later" if attempt.solved else ""
        yield f"- turn {attempt.turn}: `{attempt.what}`{times}: {attempt.error or 'failed'}{solved}"
    if digest.attempts_left_out:
        yield f"- {digest.attempts_left_out} earlier ones are not listed"
    if digest.api_errors:
        yield f"- the model could not be reached {digest.api_errors} times, last: {digest.api_error}"


def _next(record: Record, digest: Digest | None) -> list[str]:
    pending = [f"- {record.note['pending']}"] if record.note.get("pending") else []
    return pending + [f"- {step}" for step in next_steps(record, digest)]


def _left_out(skipped: Mapping[str, int]) -> list[str]:
    lines = [f"- {reason}: {count}" for reason, count in sorted(skipped.items())]
    return [*lines, "", "`coverage.json` beside this page names each path."] if lines else []


def _restore(record: Record) -> list[str]:
    lines = [
        f"    ckpt restore {record.id}            # shows what it would do, then asks",
        f"    ckpt restore {record.id} --to DIR   # into another directory",
    ]
    if record.lost:
        lines += ["", f"Already gone when it was taken: {', '.join(f'`{path}`' for path in record.lost[:20])}"]
    return lines
