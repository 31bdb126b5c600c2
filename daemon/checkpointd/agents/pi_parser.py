"""pi's logs as events."""

import re
from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec import Raw, Struct, field

from checkpointd.agents.base import aware, cut, shorten
from checkpointd.agents.records import JsonParser, Part
from checkpointd.model.events import (
    ApiError,
    AssistantText,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    Outcome,
    Position,
    SessionStarted,
    ToolCall,
    ToolKind,
    ToolResult,
    TurnEnded,
    Usage,
    UserTurn,
)

_EXIT_CODE = re.compile(r"Command exited with code (-?\d+)\s*$")
_ABORTED = re.compile(r"(?:Command|Operation|Request) (?:was )?aborted\s*$")
_DENIED = re.compile(
    r"(?:Tool execution was blocked|Blocked by (?:an )?extension|Blocked by user|User denied)", re.IGNORECASE
)
_WRITES = {"write", "edit"}
_METADATA = {"branch_summary", "custom", "custom_message", "label"}
_ROLES = {"system", "custom", "branchSummary", "compactionSummary", "hookMessage"}
_BLOCKS = {"text", "thinking", "toolCall", "image"}
_CALLS_LIMIT = 256


class _Block(Struct, gc=False):
    type: str = ""
    text: str | None = None
    id: str = ""
    name: str = ""
    arguments: Raw = Raw(b"{}")


class _Cost(Struct, gc=False):
    total: float | None = None


class _Usage(Struct, gc=False):
    input: int = 0
    output: int = 0
    cacheRead: int = 0  # noqa: N815 - the log's spelling
    cacheWrite: int = 0  # noqa: N815
    cost: _Cost | None = None


class _Message(Struct, gc=False):
    role: str = ""
    content: str | list[_Block] | None = None
    model: str | None = None
    usage: _Usage | None = None
    stopReason: str | None = None  # noqa: N815
    errorMessage: str | None = None  # noqa: N815
    toolCallId: str = ""  # noqa: N815
    isError: bool | None = None  # noqa: N815
    command: str | None = None
    output: str | None = None
    exitCode: int | None = None  # noqa: N815
    cancelled: bool | None = None


class _Entry(Struct, gc=False):
    """One record of any type."""

    type: str = ""
    id: str | None = None
    version: int | None = None
    timestamp: datetime | None = None
    cwd: str | None = None
    parentSession: str | None = None  # noqa: N815
    branchedFrom: str | None = None  # noqa: N815
    message: _Message | None = None
    modelId: str | None = None  # noqa: N815
    thinkingLevel: str | None = None  # noqa: N815
    name: str | None = None
    targetId: str | None = None  # noqa: N815
    usage: _Usage | None = None


class _Arguments(Struct, gc=False):
    command: str | None = None
    path: str | None = None


class _State(Struct):
    """What a parser has to remember between records."""

    session: str = ""
    cwd: str | None = None
    model: str | None = None
    shells: dict[str, bool] = field(default_factory=dict)  # open calls: whether they run commands
    failed: str | None = None  # the message of an answer that failed and may be tried again
    failed_entry: str | None = None


_ARGUMENTS = Part(_Arguments)


class PiParser(JsonParser[_Entry]):
    """The parser of one session's log: a tree of entries, of which the last appended is where the session is."""

    record_type = _Entry
    decoder = msgspec.json.Decoder(_Entry)

    def __init__(self, session_in: Callable[[str], str | None]) -> None:
        super().__init__()
        self._state = _State()
        self._session_in = session_in

    def state(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, blob: bytes) -> None:
        try:
            self._state = msgspec.msgpack.decode(blob, type=_State)
        except msgspec.MsgspecError:
            self._state = _State()

    def events(self, record: _Entry, raw: bytes, position: Position) -> list[Event]:
        at = aware(record.timestamp)
        here = Position(position.generation, position.offset, record.id or "")
        match record.type:
            case "message":
                return self._message(record, here, at)
            case "session":
                return [self._session(record, here, at)]
            case "model_change":
                self._state.model = record.modelId
                return [ContextChanged(position=here, at=at, model=record.modelId)]
            case "thinking_level_change":
                return [ContextChanged(position=here, at=at, thinking=record.thinkingLevel)]
            case "session_info":
                return [ContextChanged(position=here, at=at, name=record.name)] if record.name else []
            case "compaction":
                return [Compacted(position=here, at=at)]
            case "context_edit":
                if record.targetId == self._state.failed_entry:
                    # The failed answer is taken out of the context: it is tried again.
                    self._state.failed = None
                return []
            case "usage":
                return self._usage(record.usage, here, at)
            case known if known in _METADATA:
                return []
            case other:
                self.counts.meet(other or "(no type)", here)
                return []

    def _session(self, record: _Entry, here: Position, at: datetime | None) -> SessionStarted:
        state, parent = self._state, record.parentSession or record.branchedFrom
        state.session, state.cwd, state.model = record.id or "", record.cwd, record.modelId
        return SessionStarted(
            position=here,
            at=at,
            session_id=state.session,
            cwd=record.cwd,
            model=record.modelId,
            parent=(self._session_in(parent) or parent) if parent else None,
        )

    def _message(self, record: _Entry, here: Position, at: datetime | None) -> list[Event]:
        message = record.message or _Message()
        match message.role:
            case "user":
                return [*self._gave_up(here, at), UserTurn(position=here, at=at, text=_text(message.content))]
            case "assistant":
                self._state.failed = None
                return self._assistant(message, here, at)
            case "toolResult":
                return [self._result(message, here, at)]
            case "bashExecution":
                return self._execution(message, here, at)
            case known if known in _ROLES:
                return []
            case other:
                self.counts.meet(f"message/{other}", here)
                return []

    def _gave_up(self, here: Position, at: datetime | None) -> list[Event]:
        """The user spoke and the failed answer was never tried again: it was the last try."""
        message, self._state.failed = self._state.failed, None
        if message is None:
            return []
        return [ApiError(position=here, at=at, message=message, final=True), TurnEnded(position=here, at=at)]

    def _assistant(self, message: _Message, here: Position, at: datetime | None) -> list[Event]:
        found: list[Event] = []
        if message.model and message.model != self._state.model:
            self._state.model = message.model
            found.append(ContextChanged(position=here, at=at, model=message.model))
        content = message.content
        for block in [_Block(type="text", text=content)] if isinstance(content, str) else content or []:
            if block.type == "text" and block.text:
                found.append(AssistantText(position=here, at=at, text=block.text))
            elif block.type == "toolCall":
                found.append(self._call(block, here, at))
            elif block.type not in _BLOCKS:
                self.counts.meet(f"assistant/{block.type}", here)
        found += self._usage(message.usage, here, at)
        match message.stopReason:
            case "stop" | "length":
                found.append(TurnEnded(position=here, at=at))
            case "aborted":
                found.append(Interrupted(position=here, at=at))
            case "error":
                self._state.failed, self._state.failed_entry = cut(message.errorMessage or ""), here.record
                found.append(ApiError(position=here, at=at, message=self._state.failed))
        return found

    def _call(self, block: _Block, here: Position, at: datetime | None) -> ToolCall:
        given = self.read_as(_ARGUMENTS, block.arguments, here)
        kind: ToolKind = "shell" if block.name == "bash" else "write" if block.name in _WRITES else "other"
        self._state.shells[block.id] = kind == "shell"
        shorten(self._state.shells, _CALLS_LIMIT)
        return ToolCall(
            position=here,
            at=at,
            call_id=block.id,
            tool=block.name,
            kind=kind,
            command=given.command if kind == "shell" else None,
            paths=(given.path,) if kind == "write" and given.path else (),
            cwd=self._state.cwd,
        )

    def _result(self, message: _Message, here: Position, at: datetime | None) -> ToolResult:
        text = _text(message.content)
        shell = self._state.shells.pop(message.toolCallId, False)
        outcome = _outcome(text, is_error=bool(message.isError))
        found = _EXIT_CODE.search(text) if outcome == "failed" else None
        code = int(found[1]) if found else 0 if shell and outcome == "ok" else None
        return ToolResult(
            position=here, at=at, call_id=message.toolCallId, outcome=outcome, exit_code=code, text=cut(text)
        )

    def _execution(self, message: _Message, here: Position, at: datetime | None) -> list[Event]:
        """A command that the user ran with `!`; the log has it when it is done."""
        outcome: Outcome = "aborted" if message.cancelled else "failed" if message.exitCode else "ok"
        call = here.record or f"bash-{here.offset}"
        return [
            ToolCall(
                position=here, at=at, call_id=call, tool="bashExecution", kind="shell", command=message.command,
                cwd=self._state.cwd,
            ),
            ToolResult(
                position=here, at=at, call_id=call, outcome=outcome, exit_code=message.exitCode,
                text=cut(message.output or ""),
            ),
        ]  # fmt: skip

    def _usage(self, usage: _Usage | None, here: Position, at: datetime | None) -> list[Event]:
        if usage is None:
            return []
        return [
            Usage(
                position=here,
                at=at,
                message=here.record or str(here.offset),
                input=usage.input,
                output=usage.output,
                cache_read=usage.cacheRead,
                cache_write=usage.cacheWrite,
                cost_usd=usage.cost.total if usage.cost else None,
            )
        ]


def _text(content: str | list[_Block] | None) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content or () if block.text)


def _outcome(text: str, *, is_error: bool) -> Outcome:
    if not is_error:
        return "ok"
    if _EXIT_CODE.search(text):
        return "failed"
    if _ABORTED.search(text):
        return "aborted"
    return "denied" if _DENIED.match(text) else "failed"
