"""The same failure again and again, and reviews that ask for changes: a pure tracker over a session's events.

Three failures in a row of one gate, with the same normalised command and the same normalised failure,
make a finding; a success of that gate, or another failure of it, begins the row anew. Refusals, interrupts
and commands that say "no" with their exit code are no failures. Sub-agents are counted apart.
"""

import re
from collections.abc import Iterator
from posixpath import basename
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from checkpointd.model import gates
from checkpointd.model.events import AssistantText, Event, ToolCall, ToolResult, UserTurn
from checkpointd.model.gates.commands import normalised as normalised_command
from checkpointd.model.gates.commands import steps
from checkpointd.model.gates.reading import normalised as normalised_error
from checkpointd.model.gates.reading import plain

LIMIT = 3
_CALLS_LIMIT = 200
_ROWS_LIMIT = 200

# Their exit code 1 is an answer.
_ANSWERS = frozenset(
    {
        "grep",
        "egrep",
        "fgrep",
        "rg",
        "ag",
        "ack",
        "diff",
        "cmp",
        "test",
        "[",
        "which",
        "type",
        "pgrep",
        "command",
        "comm",
        "jq",
        "false",
    }
)
_PRINTERS = frozenset(
    {"cat", "tail", "head", "less", "more", "bat", "grep", "rg", "sed", "awk", "echo", "printf", "journalctl", "zcat"}
)
_LINTERS = frozenset(
    {"mypy", "pyright", "ruff", "flake8", "eslint", "biome", "tsc", "golangci-lint", "clippy", "other", "make", "ninja"}
)
_REVIEWERS = re.compile(r"(?i)agent|task|review|subagent|delegate")


class Finding(Struct, frozen=True, kw_only=True):
    """Something that a session did and that wants a checkpoint."""

    trigger: Literal["repeated-failure", "request-changes"]
    reason: str
    gate: str = ""
    command: str = ""
    failing: tuple[str, ...] = ()
    error: str = ""


class PendingCall(Struct, frozen=True):
    """A call whose result has not come yet."""

    tool: str
    kind: str
    command: str = ""
    cwd: str = ""
    path: str = ""


class Row(Struct, frozen=True):
    """Failures of one gate that are the same, one after the other."""

    signature: tuple[str, ...]
    count: int = 1


class FailureState(Struct, frozen=True):
    calls: dict[str, PendingCall] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    reported: tuple[str, ...] = ()  # stages whose status was counted since the last command
    verdict_given: bool = False  # the verdict that a text repeats was counted already


Observed = tuple[FailureState, tuple[Finding, ...]]


def observe(state: FailureState, event: Event) -> Observed:
    """The state after an event, and what it brings to light. The state is the same object where nothing changed."""
    match event:
        case ToolCall():
            return _called(state, event)
        case ToolResult():
            return _ended(state, event)
        case AssistantText():
            return _said(state, event)
        case UserTurn():
            return _verdict(replace(state, verdict_given=False), event.text)
        case _:
            return state, ()


def _called(state: FailureState, call: ToolCall) -> Observed:
    pending = PendingCall(call.tool, call.kind, call.command or "", call.cwd or "", call.paths[0] if call.paths else "")
    calls = {**state.calls, f"{call.sidechain}\x1f{call.call_id}": pending}
    while len(calls) > _CALLS_LIMIT:
        del calls[next(iter(calls))]
    reported = () if call.kind == "shell" else state.reported
    state = replace(state, calls=calls, reported=reported, verdict_given=False)
    if call.kind == "shell" and _posts_refusal(pending.command):
        return replace(state, verdict_given=True), (_request_changes(),)
    return state, ()


def _ended(state: FailureState, result: ToolResult) -> Observed:
    key = f"{result.sidechain}\x1f{result.call_id}"
    call = state.calls.get(key)
    if call is None:
        return state, ()
    state = replace(state, calls={name: other for name, other in state.calls.items() if name != key})
    if result.outcome in ("denied", "aborted"):
        return state, ()
    if call.kind == "write":
        return _edited(state, call, result)
    if call.kind == "shell":
        return _ran(state, call, result)
    if _REVIEWERS.search(call.tool) and not result.sidechain:
        return _verdict(state, result.text)
    return state, ()


def _said(state: FailureState, event: AssistantText) -> Observed:
    state, findings = _stages(state, event.text, event.sidechain, own=True)
    if event.sidechain:
        return state, findings  # what a reviewing sub-agent finds counts in its result
    state, verdicts = _verdict(state, event.text)
    return state, findings + verdicts


# --- rows


def _failed(
    state: FailureState,
    key: str,
    signature: tuple[str, ...],
    *,
    gate: str,
    command: str,
    failing: tuple[str, ...],
    error: str,
) -> Observed:
    row = state.rows.get(key)
    count = row.count + 1 if row is not None and row.signature == signature else 1
    rows = {name: other for name, other in state.rows.items() if name != key}
    rows[key] = Row(signature, count)
    while len(rows) > _ROWS_LIMIT:
        del rows[next(iter(rows))]
    state = replace(state, rows=rows)
    if count != LIMIT:
        return state, ()
    what = error or ", ".join(failing) or command
    reason = f"{command or gate} failed {LIMIT} times in a row: {what}"
    finding = Finding(
        trigger="repeated-failure", reason=reason, gate=gate, command=command, failing=failing, error=error
    )
    return state, (finding,)


def _succeeded(state: FailureState, key: str) -> FailureState:
    if key not in state.rows:
        return state
    return replace(state, rows={name: row for name, row in state.rows.items() if name != key})


# --- edits


def _edited(state: FailureState, call: PendingCall, result: ToolResult) -> Observed:
    key = f"{result.sidechain}\x1fedit\x1f{call.path}"
    if result.outcome == "ok":
        return _succeeded(state, key), ()
    error = _edit_error(result.text)
    return _failed(state, key, (error,), gate="edit", command=call.path, failing=(), error=error)


def _edit_error(text: str) -> str:
    """The message without what was to be replaced, which differs from try to try."""
    inner = re.sub(r"</?tool_use_error>", "", text).strip()
    return normalised_error(inner.split("\n", 1)[0])


# --- commands


def _ran(state: FailureState, call: PendingCall, result: ToolResult) -> Observed:
    printed = _only_prints(call)
    findings: tuple[Finding, ...] = ()
    staged = False
    if not printed:
        before = state
        state, findings = _stages(state, result.text, result.sidechain, own=False)
        staged = state is not before
    run = gates.read_run(call.command, call.cwd, result.text, result.exit_code, result.outcome)
    if run is not None and run.colour != "unknown":
        state, more = _gated(state, run, result.sidechain)
        return state, findings + more
    if staged or run is not None:
        return state, findings
    return _other(state, call, result)


def _gated(state: FailureState, run: gates.GateRun, sidechain: str) -> Observed:
    key = f"{sidechain}\x1f{run.gate}" if run.gate != "other" else f"{sidechain}\x1fother\x1f{run.command}"
    if run.colour == "green":
        return _succeeded(state, key), ()
    # Fewer lint errors are progress; for tests the names tell it, and their number where names are missing.
    amount = run.errors if run.gate in _LINTERS else None if run.failing else run.failed
    signature = (run.directory, run.command, *sorted(run.failing), run.error, str(amount))
    return _failed(state, key, signature, gate=run.gate, command=run.command, failing=run.failing, error=run.error)


def _other(state: FailureState, call: PendingCall, result: ToolResult) -> Observed:
    ran = steps(call.command, call.cwd or "/")
    if not ran:
        return state, ()
    last = ran[-1]
    command = normalised_command(last.words)
    key = f"{result.sidechain}\x1fother\x1f{last.directory}\x1f{command}"
    if result.outcome == "ok":
        return _succeeded(state, key), ()
    if _is_answer(last.words, result.exit_code):
        return state, ()
    error = normalised_error(_error_line(plain(result.text)))
    return _failed(state, key, (error,), gate="other", command=command, failing=(), error=error)


def _is_answer(words: tuple[str, ...], exit_code: int | None) -> bool:
    if exit_code not in (1, None):
        return False
    name = basename(words[0])
    return name in _ANSWERS or (
        name == "git" and bool({"grep", "diff", "--is-ancestor", "check-ignore", "show-ref"} & set(words[1:4]))
    )


def _only_prints(call: PendingCall) -> bool:
    """Whether a command shows what is written somewhere and runs nothing."""
    return all(basename(step.words[0]) in _PRINTERS for step in steps(call.command, call.cwd or "/"))


def _error_line(text: str) -> str:
    """The line that names the failure: a traceback's last, else the first that speaks of an error, else the last."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        return ""
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        ends = [
            line for line in lines if re.match(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b", line)
        ]
        if ends:
            return ends[-1]
    named = [
        line
        for line in lines
        if re.search(
            r"(?i)\b(?:error|failed|failure|fatal|cannot|can't|denied|not found|no such|refused|unable)\b", line
        )
    ]
    return named[0] if named else lines[-1]


# --- stages of a pipeline

_STATUS = re.compile(r"\bSTATUS\s*[=:]\s*\"?(FAIL(?:ED|URE)?|ERROR|PASS(?:ED)?|OK|SUCCESS|DONE)\b")
_STAGE = re.compile(r"(?i)\bstage\s*[=: ]\s*[\"'`]?([\w./-]+)")
_OWN_LINE = re.compile(r"^[\s>*#`-]*(?:\[|STAGE\b|STATUS\b|\d)")


def _stages(state: FailureState, text: str, sidechain: str, *, own: bool) -> Observed:
    """Counts `STAGE=x STATUS=FAIL` lines. Several lines of one stage in one text are history."""
    statuses: dict[str, list[str]] = {}
    if "STATUS" in text:
        for stage, status in _status_lines(text, own=own):
            statuses.setdefault(stage, []).append(status)
    findings: tuple[Finding, ...] = ()
    for stage, found in statuses.items():
        key = f"{sidechain}\x1fSTATUS\x1f{stage}"
        if len(found) > 1:
            continue
        if not found[0].startswith(("FAIL", "ERROR")):
            state = replace(_succeeded(state, key), reported=(*state.reported, key))
        elif key not in state.reported:
            state = replace(state, reported=(*state.reported, key))
            error = f"STATUS=FAIL stage={stage}" if stage else "STATUS=FAIL"
            state, more = _failed(
                state, key, (stage,), gate="STATUS", command=f"stage {stage}", failing=(), error=error
            )
            findings += more
    return state, findings


def _status_lines(text: str, *, own: bool) -> Iterator[tuple[str, str]]:
    for line in text.split("\n"):
        status = _STATUS.search(line)
        if status is None or (own and not _OWN_LINE.match(line)):
            continue
        stage = _STAGE.search(line)
        yield stage[1] if stage else "", status[1]


# --- verdicts of reviews

_REFUSAL = r"REQUEST[_ -]CHANGES|CHANGES[_ -]REQUESTED|BLOCK(?:ED|ING)?"
_VERDICT = re.compile(
    r"^[\s*_#`\"'{(\[-]*(?:(?:final|overall|my|review|reviewer|code|mr|pr)\s+)*"
    r"(?:verdict|urteil|decision|entscheidung|ergebnis|result|recommendation|empfehlung|review|bewertung|votum|结论|结果|审查结论)"
    r"[\s*_\"'`]*[:：=-]+[\s*_\"'`\[🔴❌⛔🚫]*(?P<word>[A-Z][A-Z_ -]{2,}[A-Z])(?P<rest>.*)$",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"^[\s*_#`🔴❌⛔🚫]*(?P<word>{_REFUSAL})[\s*_`.!:]*$")
_ALTERNATIVES = re.compile(r"\||/|\bor\b|\boder\b|\bapprove", re.IGNORECASE)
_POSTED = re.compile(r"\bREQUEST_CHANGES\b")


def _verdict(state: FailureState, text: str) -> Observed:
    """The last verdict that a text gives, where it asks for changes."""
    if state.verdict_given or not _refuses(text):
        return state, ()
    return replace(state, verdict_given=True), (_request_changes(),)


def _refuses(text: str) -> bool:
    refused = False
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced or line.lstrip().startswith(">"):
            continue  # a template, or a quotation of an earlier round
        given = _VERDICT.match(line)
        if given:
            if not _ALTERNATIVES.search(given["rest"]):
                refused = re.match(_REFUSAL, given["word"]) is not None
        elif _ALONE.match(line):
            refused = True
    return refused


def _posts_refusal(command: str) -> bool:
    """`gh pr review --request-changes`, and what posts the word to a forge."""
    for step in steps(command, "/") if "review" in command or "REQUEST_CHANGES" in command else ():
        name, words = basename(step.words[0]), step.words[1:]
        if name in ("gh", "glab") and "review" in words and any(word in ("--request-changes", "-r") for word in words):
            return True
        if (
            name in ("gh", "glab", "curl")
            and any("review" in word for word in words)
            and any(_POSTED.search(word) for word in words)
        ):
            return True
    return False


def _request_changes() -> Finding:
    return Finding(trigger="request-changes", reason="A review asks for changes.")
