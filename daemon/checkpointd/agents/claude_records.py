"""Shapes of the records in Claude Code's logs, as far as they are read. Every field may be missing."""

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct


class Usage(Struct, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class Block(Struct, gc=False):
    """One part of a message: text, a call, a result."""

    type: str = ""
    text: str | None = None
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    tool_use_id: str = ""
    content: "str | list[Block] | None" = None
    is_error: bool | None = None


class Message(Struct, gc=False):
    id: str = ""
    model: str = ""
    content: str | list[Block] | None = None
    stop_reason: str | None = None
    usage: Usage | None = None


class Kind(Struct, gc=False):
    kind: str | None = None


class Fork(Struct, gc=False):
    sessionId: str | None = None  # noqa: N815 - the log's spelling


class Compact(Struct, gc=False):
    trigger: str | None = None


class Permission(Struct, gc=False):
    decision: str | None = None


class Todo(Struct, gc=False):
    content: str = ""
    status: str = ""
    id: str | int | None = None


class Input(Struct, gc=False):
    """What a tool was called with."""

    command: str | None = None
    file_path: str | None = None
    notebook_path: str | None = None
    todos: list[Todo] | None = None
    subject: str | None = None
    taskId: str | int | None = None  # noqa: N815
    status: str | None = None


class Task(Struct, gc=False):
    id: str | int | None = None
    subject: str | None = None


class Diff(Struct, gc=False):
    changedFiles: list[Any] | None = None  # noqa: N815


class Result(Struct, gc=False):
    """The object beside a tool's result, where the log has one."""

    filePath: str | None = None  # noqa: N815
    interrupted: bool | None = None
    backgroundTaskId: str | None = None  # noqa: N815
    returnCodeInterpretation: str | None = None  # noqa: N815
    bashEditDiff: Diff | None = None  # noqa: N815
    task: Task | None = None


class Line(Struct, gc=False):
    """One record of any type."""

    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parentUuid: str | None = None  # noqa: N815
    isSidechain: bool | None = None  # noqa: N815
    agentId: str | None = None  # noqa: N815
    sessionId: str | None = None  # noqa: N815
    timestamp: datetime | None = None
    cwd: str | None = None
    version: str | None = None
    gitBranch: str | None = None  # noqa: N815
    isMeta: bool | None = None  # noqa: N815
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    message: Message | None = None
    # A short text, or an object; the tools of others give lists, too.
    toolUseResult: str | Result | list[Raw] | None = None  # noqa: N815
    toolDenialKind: str | None = None  # noqa: N815
    permissionDecision: Permission | None = None  # noqa: N815
    origin: Kind | None = None
    turnOrigin: str | None = None  # noqa: N815
    forkedFrom: Fork | None = None  # noqa: N815
    operation: str | None = None
    content: Raw = Raw(b"")
    customTitle: str | None = None  # noqa: N815
    aiTitle: str | None = None  # noqa: N815
    compactMetadata: Compact | None = None  # noqa: N815
    error: Raw = Raw(b"")
    totalCostUSD: float | None = None  # noqa: N815
    modelUsage: Raw = Raw(b"")  # noqa: N815


class ModelUsage(Struct, gc=False):
    inputTokens: int = 0  # noqa: N815
    outputTokens: int = 0  # noqa: N815
    cacheReadInputTokens: int = 0  # noqa: N815
    cacheCreationInputTokens: int = 0  # noqa: N815


class Failure(Struct, gc=False):
    """The error of a request to the model."""

    message: str | None = None
    status: int | None = None
