"""The resume pack: the text that a new session starts with, within a token budget."""

import shlex
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from checkpointd.model.checkpoint import FileChange, GateState, Record
from checkpointd.model.digest import Command, Digest, working_commands
from checkpointd.text.tokens import estimate

BUDGET = 2000
RULE = "-" * 72

_FILES = 40
_COMMANDS = 12
_DONE = 15
# Nobody needs to be told that these work.
_TRIVIAL = frozenset([
    "ls", "cd", "pwd", "cat", "echo", "head", "tail", "wc", "which", "find", "grep", "rg", "sed", "true", "env",
    "export", "mkdir", "touch", "sleep",
])  # fmt: skip


class Drift(Struct, frozen=True, kw_only=True):
    """How the checkpoint's files look in the work tree of now."""

    unchanged: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class _Section(Struct, kw_only=True):
    """Lines under a heading. Under pressure the last lines go first, down to `keep`, then to none."""

    title: str
    lines: list[str]
    rank: int = 0  # 0: never cut; else the higher goes first
    keep: int = 1
    left_out: int = 0

    def text(self) -> list[str]:
        if not self.lines:
            return []
        more = [f"- ({self.left_out} more)"] if self.left_out else []
        return ["", f"{self.title}:", *self.lines, *more]


def build(
    record: Record,
    digest: Digest | None,
    drift: Drift | None,
    budget: int = BUDGET,
    related: Sequence[str] = (),
    *,
    native: Sequence[str] = (),
    guides: Sequence[str] = (),
) -> str:
    """The pack of one checkpoint, at most `budget` tokens by our estimate (what is never cut takes about 350).

    `drift` is None when the checkpoint is being made. `native` is the agent's own command line to resume the session,
    empty where the agent can no longer find it. `guides` are the project's files of rules for agents.
    """
    sections = _sections(record, digest, drift, related)
    steps = next_steps(record, digest)
    head = [RULE, *_head(record)]
    tail = _tail(record, drift, steps, native, guides)
    _fit(sections, budget - cost([*head, *tail]))
    return "\n".join([*head, *(line for section in sections for line in section.text()), *tail]) + "\n"


def next_steps(record: Record, digest: Digest | None) -> list[str]:
    """What to do next, most pressing first; never empty."""
    steps = [f"Finish the task: {task.text}" for task in record.tasks if task.state == "doing"]
    steps += [f"Make {_named_gate(gate)} green again" for gate in record.tests if gate.colour == "red"]
    steps += [task.text for task in record.tasks if task.state == "open"]
    steps += [f"The user had typed, but not sent: {prompt}" for prompt in record.undelivered]
    if digest is not None and digest.last_request and (digest.open_turn or (digest.turn and digest.turn.interrupted)):
        steps.insert(0, f"Finish what was asked last: {digest.last_request}")
    if steps:
        return steps
    answered = digest is not None and digest.turn_count
    return ["Wait for the user's next request: the last one was answered" if answered else "Ask the user what is next"]


def _head(record: Record) -> list[str]:
    lines = [f"You take over work from checkpoint {record.id} ({record.title})."]
    session = record.session
    if session is not None:
        turn = f", turn {record.turn}" if record.turn else ""
        lines.append(f"It was saved on {record.created_at:%Y-%m-%d %H:%M %Z} in a session of {session.agent}{turn}.")
    return lines


def _sections(record: Record, digest: Digest | None, drift: Drift | None, related: Sequence[str]) -> list[_Section]:
    tasks = {state: [task.text for task in record.tasks if task.state == state]
             for state in ("done", "doing", "open", "cancelled")}  # fmt: skip
    done = tasks["done"] or ([turn.request for turn in digest.turns[-_DONE:] if turn.files] if digest else [])
    return [
        _Section(title="What you are doing", lines=_doing(record, digest)),
        _Section(title="Where it stands", lines=_where(record, digest)),
        _Section(title="Done", lines=_items(done), rank=7),
        _Section(title="Open", lines=_items([*tasks["doing"], *tasks["open"]]), rank=2, keep=3),
        _Section(title="Cancelled, do not do it", lines=_items(tasks["cancelled"]), rank=4),
        _Section(title="Tried and failed", lines=_items(_failures(digest)), rank=3, keep=3),
        _Section(title="Decisions", lines=_items(d.text for d in (digest.decisions if digest else ())), rank=5, keep=2),
        _Section(title="Tests", lines=_items(map(_gate, record.tests)), rank=1, keep=2),
        _Section(title="Key files", lines=_items(_files(record, drift)), rank=6, keep=5),
        _Section(title="Commands that work here", lines=_items(_commands(digest)), rank=8, keep=2),
        _Section(title="Related sessions", lines=_items(related), rank=9, keep=0),
    ]


def _items(texts: Iterable[str]) -> list[str]:
    return [f"- {text}" for text in texts if text]


def _doing(record: Record, digest: Digest | None) -> list[str]:
    asked = [digest.first_request, digest.last_request] if digest else []
    lines = [f"> {text}" for text in dict.fromkeys(asked) if text]
    lines += [f"- Note for you: {text}" for text in (record.note.get("context"), record.note.get("pending")) if text]
    return lines or [f"- {record.title}"]


def _where(record: Record, digest: Digest | None) -> list[str]:
    lines = []
    if record.git is not None and (record.git.branch or record.git.head):
        head = f" at {record.git.head[:10]}" if record.git.head else ""
        state = f", in the middle of {record.git.state}" if record.git.state != "none" else ""
        lines.append(f"- Branch {record.git.branch or '(detached)'}{head}{state}")
    if record.feature or record.platform:
        lines.append(f"- Feature {record.feature}" if record.feature else f"- Platform topic {record.platform}")
    if record.story is not None:
        parts = (record.story.us_id, record.story.iter_id, record.story.stage, record.story.resume_step)
        lines.append(f"- Story {', '.join(part for part in parts if part)}")
    lines.append(f"- Saved because: {record.reason} ({record.trigger})")
    if digest is not None and digest.last_answer:
        lines.append(f"- The agent's last words: {digest.last_answer}")
    return lines


def _failures(digest: Digest | None) -> list[str]:
    if digest is None:
        return []
    lines = []
    for attempt in reversed(digest.attempts):
        times = f" ({attempt.times} times)" if attempt.times > 1 else ""
        solved = ", solved since" if attempt.solved else ""
        lines.append(f"`{attempt.what}`{times}: {attempt.error or 'failed'}{solved}")
    return lines


def _named_gate(gate: GateState) -> str:
    return f"`{gate.command}`"


def _gate(gate: GateState) -> str:
    failing = f": {', '.join(gate.failing[:5])}" if gate.failing else f": {gate.error}" if gate.error else ""
    return f"{_named_gate(gate)} is {gate.colour}{failing}"


def _files(record: Record, drift: Drift | None) -> list[str]:
    if drift is None:
        return [_change(change) for change in record.files_changed[:_FILES]]
    lines = [f"RISK: {path} is missing" for path in drift.missing]
    lines += [f"{path} was modified since" for path in drift.modified]
    if drift.unchanged:
        names = ", ".join(drift.unchanged[:8]) + (", ..." if len(drift.unchanged) > 8 else "")
        lines.append(f"{len(drift.unchanged)} as they were: {names}")
    return lines


def _change(change: FileChange) -> str:
    verb = {"add": "added", "modify": "changed", "delete": "deleted", "rename": "renamed"}[change.change]
    lines = "" if change.added is None else f" (+{change.added} -{change.removed or 0})"
    return f"{change.path} {verb}{lines}"


def _commands(digest: Digest | None) -> list[str]:
    if digest is None:
        return []
    useful = (command for command in working_commands(digest) if _worth_telling(command))
    return [f"`{command.command}`" for command, _ in zip(useful, range(_COMMANDS), strict=False)]


def _worth_telling(command: Command) -> bool:
    words = command.command.split()
    return bool(words) and words[0] not in _TRIVIAL


def _tail(
    record: Record, drift: Drift | None, steps: Sequence[str], native: Sequence[str], guides: Sequence[str]
) -> list[str]:
    lines = ["", "Next steps:", *(f"- {step}" for step in steps[1:4])] if len(steps) > 1 else []
    if native:
        lines += ["", f"The same conversation can be opened again with: {shlex.join(native)}"]
    lines += ["", "How to use this:"]
    if guides:
        lines.append(f"- Read {' and '.join(guides)} first.")
    if drift is None or drift.modified or drift.missing:
        lines.append(
            "- Where a file was modified since the checkpoint, its content of now holds; this text is history."
        )
    lines += [
        "- Trust the files that were not modified since; do not read them again to check.",
        "- Decisions above are settled; do not verify them again. Do not repeat any of this to the user.",
        f"- Lost files come back with `ckpt restore {record.id}`, which shows its plan first.",
        "",
        f"Go on at: {steps[0]}",
        f"Begin your first answer with the line [RESUMED FROM {record.id}]",
        RULE,
    ]
    return lines


def cost(lines: Iterable[str]) -> int:
    """The tokens of a text made of these lines; the estimate is one line's after the other."""
    return sum(map(_tokens, lines))


@lru_cache(4096)
def _tokens(line: str) -> int:
    # Cached: one checkpoint's lines are mostly those of the one before it.
    return estimate(line + "\n")


def _fit(sections: Sequence[_Section], allowance: int) -> None:
    """Takes lines from the least important sections until the rest fits."""
    total = sum(cost(section.text()) for section in sections)
    by_rank = sorted((section for section in sections if section.rank), key=lambda section: -section.rank)
    for floor in (True, False):
        for section in by_rank:
            least = section.keep if floor else 0
            while total > allowance and len(section.lines) > least:
                total -= cost(section.text())
                section.lines.pop()
                section.left_out += 1
                total += cost(section.text())
