"""Claude Code's logs as events."""

import re

import msgspec
from msgspec import Raw, Struct, field

from checkpointd.agents import claude_outcomes
from checkpointd.agents.base import aware, cut, shorten
from checkpointd.agents.claude_records import (
    Block,
    Failure,
    Input,
    Line,
    Message,
    ModelUsage,
    Result,
    Todo,
)
from checkpointd.agents.records import JsonParser, Part, clean
from checkpointd.model.events import (
    ApiError,
    AssistantText,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    PlanItem,
    PlanUpdated,
    Position,
    PromptQueued,
    SessionEnded,
    SessionStarted,
    TaskState,
    ToolCall,
    ToolKind,
    ToolResult,
    TurnEnded,
    Usage,
    UserTurn,
)

_SHELLS = {"Bash", "PowerShell", "Monitor"}
_WRITES = {"Write", "Edit", "NotebookEdit", "MultiEdit"}
_STATES: dict[str, TaskState] = {
    "pending": "open",
    "in_progress": "doing",
    "completed": "done",
    "cancelled": "cancelled",
    "deleted": "cancelled",
}

# Records that never matter make up most of a log's bytes. `type` is not always the first key, and any of these may
# stand in an object inside a record of another type, so a line with a mark of a wanted type is never passed over.
_PASSED_OVER = re.compile(
    rb'"type":"(?:attachment|progress|api-request(?:-shape|-blob)?|file-history-snapshot|file-history-delta)"'
)
_WANTED = re.compile(rb'"type":"(?:user|assistant|system|queue-operation|custom-title|ai-title|cost-state)"')

_METADATA = {
    "agent-name", "api-request", "api-request-blob", "api-request-shape", "atis-latch", "attachment",
    "bridge-session", "content-replacement", "file-history-delta", "file-history-snapshot", "frame-link",
    "last-prompt", "mode", "permission-mode", "pr-link", "progress", "relocated", "result", "started", "summary",
    "tag", "tools-used", "worktree-state",
}  # fmt: skip
_SYSTEM = {
    "api_refusal", "error", "informational", "local_command", "microcompact_boundary", "model_refusal_fallback",
    "session_start", "stop_hook_summary",
}  # fmt: skip
_BLOCKS = {
    "text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document", "server_tool_use",
    "web_search_tool_result", "web_fetch_tool_result", "mcp_tool_use", "mcp_tool_result", "fallback",
}  # fmt: skip
# User records that begin like this were not typed by a person.
_NOT_A_PROMPT = (
    "Operation stopped by hook", "Implement the following plan:", "<command-name>", "<command-message>",
    "<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>",
    "Caveat: The messages below were generated", "<task-notification>", "<bash-input>", "<bash-stdout>",
    "<bash-stderr>", "[Request interrupted", "<ide_opened_file>", "<ide_selection>", "<ide_diagnostics>",
    "<system-reminder>",
)  # fmt: skip
_INTERRUPTED = "[Request interrupted"
_SYNTHETIC = "<synthetic>"
_INLINE = "sidechain"  # the id of a sub-agent in a log of the time before they had ids
_CALLS_LIMIT = 256
_CHAIN_LIMIT = 256


class _Call(Struct):
    """A call that has no result yet."""

    tool: str
    task: str = ""
    text: str = ""
    state: str = ""


class _Context(Struct):
    cwd: str | None = None
    branch: str | None = None
    version: str | None = None
    model: str | None = None


class _State(Struct):
    """What a parser has to remember between records."""

    session: str = ""
    placed: bool = False  # whether the session was told with its directory
    named: bool = False  # by the user, which a generated title does not change
    ended: bool = False
    contexts: dict[str, _Context] = field(default_factory=dict)  # by sidechain
    open: set[str] = field(default_factory=set)  # sidechains with a turn under way
    finished: str = ""  # the message that ended the last turn; it may have more lines
    calls: dict[str, _Call] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    tasks: dict[str, str] = field(default_factory=dict)
    chain: dict[str, str] = field(default_factory=dict)  # record of an inline sidechain → its first record
    message: str = ""
    usage: tuple[int, int, int, int] = (0, 0, 0, 0)


_INPUT = Part(Input)
_FAILURE = Part(Failure)


class ClaudeParser(JsonParser[Line]):
    """The parser of one log: a session's, or a sub-agent's."""

    record_type = Line
    decoder = msgspec.json.Decoder(Line)

    def __init__(self) -> None:
        super().__init__()
        self._state = _State()

    def feed(self, record: bytes, position: Position) -> list[Event]:
        if not _WANTED.search(record) and _PASSED_OVER.search(record):
            self.counts.records += 1
            return []
        return super().feed(record, position)

    def state(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, blob: bytes) -> None:
        try:
            self._state = msgspec.msgpack.decode(blob, type=_State)
        except msgspec.MsgspecError:
            self._state = _State()

    def events(self, record: Line, raw: bytes, position: Position) -> list[Event]:
        place = _Place(record, position, self._sidechain(record))
        found: list[Event] = []
        match record.type:
            case "assistant":
                self._note_session(record, place, found)
                self._assistant(record, place, found)
            case "user":
                self._note_session(record, place, found)
                self._user(record, place, found)
            case "system":
                self._note_session(record, place, found)
                self._system(record, place, found)
            case "queue-operation":
                self._note_session(record, place, found)
                self._queue(record, place, found)
            case "custom-title" | "ai-title":
                self._title(record, place, found)
            case "cost-state":
                self._end(record, place, found)
            case known if known in _METADATA:
                pass
            case other:
                self.counts.meet(other or "(no type)", position)
        return found

    # Who and where

    def _sidechain(self, record: Line) -> str:
        """The id of the sub-agent that a record belongs to."""
        if not record.isSidechain:
            return ""
        if record.agentId:
            return record.agentId
        chain, uuid = self._state.chain, record.uuid or ""
        root = uuid if record.parentUuid is None else chain.get(record.parentUuid, _INLINE)
        chain[uuid] = root
        shorten(chain, _CHAIN_LIMIT)
        return root

    def _note_session(self, record: Line, place: "_Place", found: list[Event]) -> None:
        """Tells of the session when it is first named, and of what changed around it."""
        state = self._state
        if record.sessionId and (not state.session or (record.cwd and not state.placed)):
            state.session, state.placed = record.sessionId, bool(record.cwd)
            state.contexts[place.sidechain] = _Context(record.cwd, record.gitBranch, record.version)
            found.append(
                SessionStarted(
                    position=place.position,
                    at=place.at,
                    sidechain=place.sidechain,
                    session_id=record.sessionId,
                    cwd=record.cwd,
                    branch=record.gitBranch or None,
                    agent_version=record.version,
                    parent=record.forkedFrom.sessionId if record.forkedFrom else None,
                )
            )
            return
        if record.cwd is None and record.gitBranch is None and record.version is None:
            return
        context = state.contexts.get(place.sidechain)
        if context is None:
            state.contexts[place.sidechain] = _Context(record.cwd, record.gitBranch, record.version)
            shorten(state.contexts, _CHAIN_LIMIT)
            return
        self._note_changes(record, context, place, found)

    def _note_changes(self, record: Line, context: _Context, place: "_Place", found: list[Event]) -> None:
        cwd = record.cwd if record.cwd and record.cwd != context.cwd else None
        branch = record.gitBranch if record.gitBranch and record.gitBranch != context.branch else None
        version = record.version if record.version and record.version != context.version else None
        if cwd is None and branch is None and version is None:
            return
        context.cwd, context.branch, context.version = (
            cwd or context.cwd,
            branch or context.branch,
            version or context.version,
        )
        found.append(
            ContextChanged(
                position=place.position,
                at=place.at,
                sidechain=place.sidechain,
                cwd=cwd,
                branch=branch,
                agent_version=version,
            )
        )

    # The agent

    def _assistant(self, record: Line, place: "_Place", found: list[Event]) -> None:
        message = record.message or Message()
        if record.isApiErrorMessage:
            found.append(place.api_error(_text(message.content), final=True))
            self._end_turn(place, found)
            return
        if message.model == _SYNTHETIC:
            return
        self._note_model(message, place, found)
        told = self._blocks(message, record.cwd, place, found)
        self._usage(message, place, found)
        if message.id != self._state.finished or not message.id:
            self._begin_turn(place)
        if message.stop_reason in ("end_turn", "stop_sequence", "max_tokens", "refusal") and told:
            self._state.finished = message.id
            self._end_turn(place, found)

    def _note_model(self, message: Message, place: "_Place", found: list[Event]) -> None:
        context = self._state.contexts.setdefault(place.sidechain, _Context())
        if message.model and message.model != context.model:
            context.model = message.model
            found.append(
                ContextChanged(position=place.position, at=place.at, sidechain=place.sidechain, model=message.model)
            )

    def _blocks(self, message: Message, cwd: str | None, place: "_Place", found: list[Event]) -> bool:
        """The events of an answer's parts; whether any of them is more than thinking."""
        content = message.content
        blocks = [Block(type="text", text=content)] if isinstance(content, str) else content or []
        told = False
        for block in blocks:
            if block.type == "text" and block.text:
                told = True
                found.append(
                    AssistantText(position=place.position, at=place.at, sidechain=place.sidechain, text=block.text)
                )
            elif block.type == "tool_use":
                told = True
                self._call(block, cwd, place, found)
            elif block.type not in _BLOCKS:
                self.counts.meet(f"assistant/{block.type}", place.position)
        return told

    def _call(self, block: Block, cwd: str | None, place: "_Place", found: list[Event]) -> None:
        given = self.read_as(_INPUT, block.input, place.position)
        kind: ToolKind = "shell" if block.name in _SHELLS else "write" if block.name in _WRITES else "other"
        path = given.file_path or given.notebook_path
        found.append(
            ToolCall(
                position=place.position,
                at=place.at,
                sidechain=place.sidechain,
                call_id=block.id,
                tool=block.name,
                kind=kind,
                command=given.command if kind == "shell" else None,
                paths=(path,) if kind == "write" and path else (),
                cwd=cwd,
            )
        )
        call = _Call(block.name)
        if block.name == "TodoWrite" and given.todos is not None:
            found.append(place.plan(tuple(_todo(todo, number) for number, todo in enumerate(given.todos, 1))))
        elif block.name in ("TaskCreate", "TaskUpdate"):
            call.task = "" if given.taskId is None else str(given.taskId)
            call.text, call.state = given.subject or "", given.status or ""
        self._state.calls[block.id] = call
        shorten(self._state.calls, _CALLS_LIMIT)

    def _usage(self, message: Message, place: "_Place", found: list[Event]) -> None:
        """The tokens of an answer, told again when a later line of it has more."""
        usage, state = message.usage, self._state
        if usage is None or not message.id:
            return
        figures = (
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
        )
        before = state.usage if state.message == message.id else (0, 0, 0, 0)
        greatest = tuple(map(max, before, figures))
        if greatest == before:
            return
        state.message, state.usage = message.id, (greatest[0], greatest[1], greatest[2], greatest[3])
        found.append(
            Usage(
                position=place.position,
                at=place.at,
                sidechain=place.sidechain,
                message=message.id,
                input=greatest[0],
                output=greatest[1],
                cache_read=greatest[2],
                cache_write=greatest[3],
            )
        )

    # The user, and results

    def _user(self, record: Line, place: "_Place", found: list[Event]) -> None:
        content = record.message.content if record.message else None
        blocks = [Block(type="text", text=content)] if isinstance(content, str) else content or []
        results = [block for block in blocks if block.type == "tool_result"]
        for block in results:
            self._result(block, record, place, found)
        for block in blocks:
            if block.type not in _BLOCKS:
                self.counts.meet(f"user/{block.type}", place.position)
        if any(block.text and block.text.startswith(_INTERRUPTED) for block in blocks if block.type == "text"):
            self._state.open.discard(place.sidechain)
            found.append(Interrupted(position=place.position, at=place.at, sidechain=place.sidechain))
        elif not results and _is_human(record):
            text = "\n".join(
                block.text for block in blocks if block.text and not block.text.lstrip().startswith(_NOT_A_PROMPT)
            )
            if text.strip() or (blocks and all(block.type == "image" for block in blocks)):
                self._begin_turn(place)
                found.append(UserTurn(position=place.position, at=place.at, text=text))

    def _result(self, block: Block, record: Line, place: "_Place", found: list[Event]) -> None:
        given = record.toolUseResult
        note = given if isinstance(given, str) else ""
        beside = given if isinstance(given, Result) else Result()
        text = _text(block.content)
        decision = record.permissionDecision.decision if record.permissionDecision else None
        outcome = claude_outcomes.outcome(
            text,
            note,
            is_error=bool(block.is_error),
            interrupted=bool(beside.interrupted),
            refused=bool(record.toolDenialKind) or decision in ("reject", "deny"),
        )
        call = self._state.calls.pop(block.tool_use_id, None)
        code = claude_outcomes.exit_code(text) if outcome == "failed" else None
        if outcome == "ok" and call and call.tool in _SHELLS and not beside.backgroundTaskId:
            # Codes above 0 that are no failure (grep without a match) have a word instead of the number.
            code = None if beside.returnCodeInterpretation else 0
        self._begin_turn(place)
        found.append(
            ToolResult(
                position=place.position,
                at=place.at,
                sidechain=place.sidechain,
                call_id=block.tool_use_id,
                outcome=outcome,
                exit_code=code,
                text=cut(text),
                paths=_written(beside),
            )
        )
        if call and outcome == "ok" and call.tool in ("TaskCreate", "TaskUpdate"):
            self._task(call, beside, text, place, found)

    def _task(self, call: _Call, beside: Result, text: str, place: "_Place", found: list[Event]) -> None:
        tasks = self._state.tasks
        task = call.task
        if call.tool == "TaskCreate":
            given = beside.task.id if beside.task else None
            numbered = re.search(r"#(\d+)", text)
            task = str(given) if given is not None else numbered[1] if numbered else ""
        if not task:
            return
        tasks[task] = call.text or tasks.get(task, "")
        shorten(tasks, _CHAIN_LIMIT)
        if call.tool == "TaskCreate" or call.state or call.text:
            item = PlanItem(id=task, text=tasks[task], state=_STATES.get(call.state or "pending", "open"))
            found.append(place.plan((item,), partial=True))

    def _queue(self, record: Line, place: "_Place", found: list[Event]) -> None:
        text = _string(record.content) if bytes(memoryview(record.content)[:1]) == b'"' else ""
        queue, taken = self._state.queue, record.operation != "enqueue"
        if not taken:
            queue.append(text)
            del queue[:-_CALLS_LIMIT]
            texts = [text]
        elif record.operation == "popAll":
            texts, queue[:] = queue[:] or [text], []
        else:
            if text in queue:
                queue.remove(text)
                texts = [text]
            else:
                texts = [queue.pop(0)] if queue else [text]
        found += [
            PromptQueued(position=place.position, at=place.at, text=prompt, taken=taken)
            for prompt in texts
            if prompt and not prompt.lstrip().startswith(_NOT_A_PROMPT)
        ]

    # Turns, and the end

    def _begin_turn(self, place: "_Place") -> None:
        self._state.open.add(place.sidechain)
        self._state.ended = False

    def _end_turn(self, place: "_Place", found: list[Event]) -> None:
        if place.sidechain in self._state.open:
            self._state.open.discard(place.sidechain)
            found.append(TurnEnded(position=place.position, at=place.at, sidechain=place.sidechain))

    def _system(self, record: Line, place: "_Place", found: list[Event]) -> None:
        match record.subtype:
            case "turn_duration":
                self._end_turn(place, found)
            case "compact_boundary":
                trigger = record.compactMetadata.trigger if record.compactMetadata else None
                found.append(
                    Compacted(position=place.position, at=place.at, sidechain=place.sidechain, trigger=trigger or "")
                )
            case "api_error":
                failure = self.read_as(_FAILURE, record.error or Raw(b"{}"), place.position)
                found.append(place.api_error(failure.message or f"status {failure.status}", final=False))
            case known if known in _SYSTEM:
                pass
            case other:
                self.counts.meet(f"system/{other}", place.position)

    def _title(self, record: Line, place: "_Place", found: list[Event]) -> None:
        name = record.customTitle or (None if self._state.named else record.aiTitle)
        if name:
            self._state.named = self._state.named or bool(record.customTitle)
            found.append(ContextChanged(position=place.position, at=place.at, name=name))

    def _end(self, record: Line, place: "_Place", found: list[Event]) -> None:
        """The session's totals, which Claude Code writes when it leaves the session."""
        models = _model_usages(record.modelUsage)
        found.append(
            Usage(
                position=place.position,
                at=place.at,
                message="",
                input=sum(model.inputTokens for model in models),
                output=sum(model.outputTokens for model in models),
                cache_read=sum(model.cacheReadInputTokens for model in models),
                cache_write=sum(model.cacheCreationInputTokens for model in models),
                cost_usd=record.totalCostUSD,
                cumulative=True,
            )
        )
        if not self._state.ended:
            self._state.ended = True
            self._state.open.clear()
            found.append(SessionEnded(position=place.position, at=place.at, reason="exit"))


class _Place:
    """What the events of one record have in common."""

    def __init__(self, record: Line, position: Position, sidechain: str) -> None:
        self.position = Position(position.generation, position.offset, record.uuid or "")
        self.at = aware(record.timestamp)
        self.sidechain = sidechain

    def api_error(self, message: str, *, final: bool) -> ApiError:
        return ApiError(position=self.position, at=self.at, sidechain=self.sidechain, message=cut(message), final=final)

    def plan(self, items: tuple[PlanItem, ...], *, partial: bool = False) -> PlanUpdated:
        return PlanUpdated(position=self.position, at=self.at, sidechain=self.sidechain, items=items, partial=partial)


def _is_human(record: Line) -> bool:
    if record.isMeta or record.isCompactSummary or record.isSidechain:
        return False
    if record.origin and record.origin.kind not in (None, "human"):
        return False
    return record.turnOrigin in (None, "human", "sdk")


def _text(content: str | list[Block] | None) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content or () if block.text)


def _string(raw: Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return str(clean(bytes(raw).decode("utf-8", "replace").strip('"')))


def _model_usages(raw: Raw) -> list[ModelUsage]:
    try:
        return list(msgspec.json.decode(raw or b"{}", type=dict[str, ModelUsage]).values())
    except msgspec.MsgspecError:
        return []


def _todo(todo: Todo, number: int) -> PlanItem:
    identity = str(number) if todo.id is None else str(todo.id)
    return PlanItem(id=identity, text=todo.content, state=_STATES.get(todo.status, "open"))


def _written(result: Result) -> tuple[str, ...]:
    paths = [result.filePath] if result.filePath else []
    for changed in (result.bashEditDiff.changedFiles if result.bashEditDiff else None) or ():
        path = changed if isinstance(changed, str) else None
        if isinstance(changed, dict):
            path = changed.get("filePath") or changed.get("path")
        if isinstance(path, str):
            paths.append(path)
    return tuple(dict.fromkeys(paths))
