"""How a tool call of Claude Code ended: failures of the environment apart from people's decisions."""

import re

from checkpointd.model.events import Outcome

_EXIT_CODE = re.compile(r"\s*(?:Error: )?Exit code (\d+)\b")
_DENIED = (
    "The user doesn't want to proceed",
    "The user doesn't want to take this action",
    "User rejected tool use",
    "Error: User rejected tool use",
    "Claude requested permissions",
    "Permission to use ",
    "Permission for this ",
    "Operation stopped by hook",
)
_DENIED_ANYWHERE = ("hook blocking error", "hook error:", "denied by the Claude Code auto mode")
_ABORTED = ("[Request interrupted by user", "Request interrupted by user", "Interrupted by user")
# A call that never ran, or was stopped, because another one of the same answer failed.
_SIBLING = ("Sibling tool call errored", "Cancelled: parallel tool call")
_HEAD = 400


def exit_code(text: str) -> int | None:
    """The exit code that the text of a failed shell command begins with."""
    found = _EXIT_CODE.match(text)
    return int(found[1]) if found else None


def outcome(text: str, note: str, *, is_error: bool, interrupted: bool, refused: bool) -> Outcome:
    """How a call ended; `note` is the short text beside the result's own, `refused` what the record's marks say."""
    if interrupted:
        return "aborted"
    if not is_error:
        return "ok"
    if refused:
        return "denied"
    head = text[:_HEAD].removeprefix("<tool_use_error>").lstrip()
    if any(mark in head for mark in _SIBLING):
        return "aborted"
    if exit_code(head) is not None:
        return "failed"
    if head.startswith(_DENIED) or note.startswith(_DENIED) or any(mark in head for mark in _DENIED_ANYWHERE):
        return "denied"
    return "aborted" if head.startswith(_ABORTED) else "failed"
