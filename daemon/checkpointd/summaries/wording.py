"""Cutting text out of logs: what is kept is redacted, short and on one line."""

import re

from checkpointd.text.redaction import redact

_READ = 4  # so many times the limit is read and redacted; the rest of a text is never looked at
_ERROR = re.compile(
    r"(?i)\b(?:\w*error|\w*exception|failed|failure|fatal|panicked|denied|not found|no such|cannot|can't|undefined)\b"
)
_NOISE = re.compile(
    r"(?i)^(?:exit code:? -?\d+|command (?:exited|failed) with .*|process exited with code \d+|=+.*=+|-+)$"
)


def line(text: str, limit: int) -> str:
    """The text's beginning as one redacted line. Redacted before it is cut, or half a secret would pass."""
    head = text[: limit * _READ]
    if len(head) < len(text):
        # The cut may have gone through a secret, which nobody would know by its half.
        head = head[: len(head) - len(head.split()[-1])] if head.split() else ""
    words = " ".join(redact(head).split())
    return words if len(words) <= limit else words[: limit - 1].rstrip() + "…"


def error_head(output: str, limit: int) -> str:
    """The line of a failed command's output that says most: pytest's `E` line, else the last that names an error,
    else the last one."""
    lines = [
        stripped for raw in output[-8192:].splitlines() if (stripped := raw.strip()) and not _NOISE.match(stripped)
    ]
    if not lines:
        return ""
    for candidate in lines:
        if candidate.startswith("E   "):
            return line(candidate[4:], limit)
    for candidate in reversed(lines):
        if _ERROR.search(candidate[:500]):
            return line(candidate, limit)
    return line(lines[-1], limit)
