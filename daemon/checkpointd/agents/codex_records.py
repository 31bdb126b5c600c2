"""Shapes of the records in Codex's rollouts, as far as they are read. Every field may be missing."""

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct


class Line(Struct, gc=False):
    """One line: an envelope around a payload, or (before autumn 2025) a bare header or item."""

    type: str | None = None
    timestamp: datetime | None = None
    ordinal: int | None = None
    payload: Raw = Raw(b"")
    id: str | None = None
    record_type: str | None = None


class Git(Struct, gc=False):
    branch: str | None = None


class Meta(Struct, gc=False):
    """The header of a rollout."""

    id: str | None = None
    session_id: str | None = None
    cwd: str | None = None
    cli_version: str | None = None
    source: Raw = Raw(b"")
    thread_source: str | None = None
    history_mode: str | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    git: Git | None = None


class Spawn(Struct, gc=False):
    parent_thread_id: str | None = None


class SubagentKind(Struct, gc=False):
    thread_spawn: Spawn | None = None


class Source(Struct, gc=False):
    """Where a rollout comes from, when it was not a person."""

    subagent: Raw = Raw(b"")


class Context(Struct, gc=False):
    cwd: str | None = None
    model: str | None = None
    effort: str | None = None


class Content(Struct, gc=False):
    type: str = ""
    text: str | None = None


class Action(Struct, gc=False):
    type: str = ""
    command: list[str] | None = None
    working_directory: str | None = None


class Item(Struct, gc=False):
    """A `response_item`: what went to the model or came from it."""

    type: str = ""
    role: str | None = None
    content: list[Content] | str | None = None
    name: str = ""
    arguments: Raw = Raw(b"")
    input: str | None = None
    call_id: str | None = None
    id: str | None = None
    output: Raw = Raw(b"")
    action: Action | None = None


class Arguments(Struct, gc=False):
    """What a function was called with."""

    cmd: str | None = None
    command: str | list[str] | None = None
    workdir: str | None = None
    input: str | None = None
    plan: list["Step"] | None = None
    session_id: int | None = None


class Step(Struct, gc=False):
    step: str = ""
    status: str = ""


class Change(Struct, gc=False):
    move_path: str | None = None


class Problem(Struct, gc=False):
    message: str | None = None


class Thread(Struct, gc=False):
    """An item of the paginated history: something that is done."""

    type: str = ""
    id: str = ""
    text: str | None = None
    content: list[Content] | None = None
    command: list[str] | None = None
    cwd: str | None = None
    status: str | None = None
    exit_code: int | None = None
    aggregated_output: str | None = None
    changes: dict[str, Change] | None = None
    stdout: str | None = None
    stderr: str | None = None
    source: str | None = None
    tool: str | None = None
    server: str | None = None
    namespace: str | None = None
    query: str | None = None
    error: Problem | str | None = None


class Tokens(Struct, gc=False):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0


class TokenInfo(Struct, gc=False):
    total_token_usage: Tokens | None = None


class UsageRecord(Struct, gc=False):
    thread_token_usage: Tokens | None = None


class Invocation(Struct, gc=False):
    server: str | None = None
    tool: str | None = None


class Happening(Struct, gc=False):
    """An `event_msg`: what the screen showed."""

    type: str = ""
    turn_id: str | None = None
    message: str | None = None
    item: Thread | None = None
    info: TokenInfo | None = None
    error: Problem | str | None = None
    reason: str | None = None
    call_id: str | None = None
    changes: dict[str, Change] | None = None
    success: bool | None = None
    stdout: str | None = None
    stderr: str | None = None
    exit_code: int | None = None
    aggregated_output: str | None = None
    invocation: Invocation | None = None
    result: dict[str, Any] | None = None
    thread_name: str | None = None


class OldOutput(Struct, gc=False):
    """The JSON that stands in the text of an old command's output."""

    output: str | None = None
    metadata: "OldMetadata | None" = None


class OldMetadata(Struct, gc=False):
    exit_code: int | None = None


class OutputObject(Struct, gc=False):
    content: str | list[Content] | None = None
    output: str | None = None
    success: bool | None = None
