"""What Codex's calls say: command lines, patched files, and how a call ended."""

import re
import shlex
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Raw, Struct

from checkpointd.agents.codex_records import Change, Content, OldOutput, OutputObject
from checkpointd.model.events import Outcome

_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$", re.MULTILINE)
_EXITED = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)", re.MULTILINE)
_RUNNING = re.compile(r"^Process running with session ID (\d+)", re.MULTILINE)
_SHELLS = {"bash", "sh", "zsh", "dash", "ksh", "fish"}
_DENIED = re.compile(
    r"(?:exec_command failed|apply_patch failed|exec failed)\b.*\bRejected\(|rejected by user|User (?:denied|rejected)"
    r"|approval (?:was )?(?:denied|rejected)|rejected: ",
    re.IGNORECASE | re.DOTALL,
)
_ABORTED = re.compile(r"\s*aborted(?: by user)?\b", re.IGNORECASE)
_FAILED = (
    "exec_command failed", "write_stdin failed", "apply_patch verification failed", "unsupported call:",
    "failed to parse function arguments", "execution error", "failed in sandbox", "command timed out",
    "Script failed", "Error:", "collab spawn failed", "tool call failed",
)  # fmt: skip
_HEAD = 1000
_OUTPUT: msgspec.json.Decoder[str | list[Content] | OutputObject] = msgspec.json.Decoder(
    str | list[Content] | OutputObject
)
_OLD = msgspec.json.Decoder(OldOutput)


class End(Struct, frozen=True):
    """How a call ended, or that its command goes on (`running` is then its session)."""

    outcome: Outcome
    text: str
    exit_code: int | None = None
    running: str | None = None


def command_line(words: Sequence[str]) -> str:
    """The command as a person would type it: the script of a shell, or the words quoted."""
    if len(words) >= 3 and words[0].rsplit("/", 1)[-1] in _SHELLS and words[1].startswith("-") and "c" in words[1]:
        return words[2]
    return shlex.join(words)


def patched(text: str) -> tuple[str, ...]:
    """The files that a patch names, in its order."""
    return tuple(dict.fromkeys(_PATCHED.findall(text)))


def changed(changes: Mapping[str, Change] | None) -> tuple[str, ...]:
    """The files of a change, those they were moved to among them."""
    paths = [path for name, change in (changes or {}).items() for path in (name, change.move_path) if path]
    return tuple(dict.fromkeys(paths))


def local_path(text: str | None) -> str | None:
    """A directory that may be given as a `file:` address."""
    if text and text.startswith("file:"):
        return unquote(urlsplit(text).path)
    return text


def output_text(raw: Raw) -> tuple[str, bool | None]:
    """The text of a call's output (a string, a list of parts or an object), and whether it says that it succeeded."""
    try:
        value = _OUTPUT.decode(raw)
    except msgspec.MsgspecError:
        return "", None
    if isinstance(value, OutputObject):
        content = value.content if value.content is not None else value.output
        return content if isinstance(content, str) else joined(content), value.success
    return value if isinstance(value, str) else joined(value), None


def joined(parts: Sequence[Content] | None) -> str:
    """The text of a message's parts."""
    return "\n".join(part.text for part in parts or () if part.text)


def end_of(raw: Raw) -> End:
    """How a call ended, from its output alone."""
    text, success = output_text(raw)
    code: int | None = None
    if text.startswith("{"):
        try:
            old = _OLD.decode(text)
        except msgspec.MsgspecError:
            old = OldOutput()
        if old.metadata is not None:
            code, text = old.metadata.exit_code, old.output or ""
    # What a command printed comes after "Output:" and may say anything.
    head = text.split("\nOutput:", 1)[0][:_HEAD]
    if code is None:
        if running := _RUNNING.search(head):
            return End("ok", text, running=running[1])
        exited = _EXITED.search(head)
        code = int(exited[1]) if exited else None
    if code is not None:
        return End("failed" if code else "ok", text, code)
    if _DENIED.search(head):
        return End("denied", text)
    if _ABORTED.match(head):
        return End("aborted", text)
    return End("failed" if success is False or head.lstrip().startswith(_FAILED) else "ok", text)
