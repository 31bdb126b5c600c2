"""Codex's rollouts as events: paginated, legacy, and bare ones."""

import re
from datetime import datetime

import msgspec
from msgspec import Raw, Struct, field

from checkpointd.agents import codex_outputs
from checkpointd.agents.base import aware, cut, shorten
from checkpointd.agents.codex_records import (
    Arguments,
    Context,
    Happening,
    Item,
    Line,
    Meta,
    Problem,
    Source,
    SubagentKind,
    Thread,
    Tokens,
    UsageRecord,
)
from checkpointd.agents.records import JsonParser, Part
from checkpointd.model.events import (
    ApiError,
    AssistantText,
    Compacted,
    ContextChanged,
    Event,
    Interrupted,
    Outcome,
    PlanItem,
    PlanUpdated,
    Position,
    SessionStarted,
    TaskState,
    ToolCall,
    ToolKind,
    ToolResult,
    TurnEnded,
    Usage,
    UserTurn,
)

_STATES: dict[str, TaskState] = {"pending": "open", "in_progress": "doing", "completed": "done"}
_SHELLS = {"exec_command", "shell", "shell_command", "container.exec", "local_shell"}
_ITEMS = {
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "local_shell_call", "web_search_call", "tool_search_call", "tool_search_output", "image_generation_call",
    "compaction", "compaction_summary", "ghost_snapshot", "additional_tools", "other",
}  # fmt: skip
_HAPPENINGS = {
    "agent_message_delta", "agent_reasoning", "agent_reasoning_raw_content", "background_event",
    "collab_agent_interaction_end", "collab_agent_spawn_end", "collab_close_end", "collab_resume_end",
    "collab_waiting_end", "dynamic_tool_call_request", "dynamic_tool_call_response", "entered_review_mode",
    "exec_approval_request", "exec_command_begin", "exited_review_mode", "guardian_assessment",
    "image_generation_end", "item_started", "mcp_tool_call_begin", "patch_apply_begin", "session_configured",
    "sub_agent_activity", "thread_goal_updated", "thread_rolled_back", "thread_settings_applied",
    "view_image_tool_call", "web_search_begin", "web_search_end", "warning",
}  # fmt: skip
_THREAD_ITEMS = {
    "CollabAgentToolCall", "HookPrompt", "ImageGeneration", "ImageView", "Reasoning", "Sleep", "SubAgentActivity",
}  # fmt: skip
_LINES = {"world_state", "inter_agent_communication", "inter_agent_communication_metadata"}
# A user message that begins like this was written by Codex.
_INJECTED = (
    "<environment_context>", "<user_instructions>", "<turn_aborted>", "<skill>", "<permissions instructions>",
    "# AGENTS.md instructions", "<user_shell_command>", "<subagent_notification>",
)  # fmt: skip
_CWD = re.compile(r"<cwd>(.+?)</cwd>|Current working directory: (.+)")
_CALLS_LIMIT = 256
_SCRIPT = "exec"  # the tool of code mode: JavaScript that calls the others


class _Call(Struct):
    """A call that has no result yet."""

    tool: str
    kind: ToolKind
    paths: tuple[str, ...] = ()


class _State(Struct):
    """What a parser has to remember between records."""

    session: str = ""
    sidechain: str = ""
    bare: bool = False
    paginated: bool = False
    cwd: str | None = None
    model: str | None = None
    thinking: str | None = None
    turn: bool = False
    compacted: bool = False  # told; the same is written in up to three ways
    calls: dict[str, _Call] = field(default_factory=dict)
    done: dict[str, bool] = field(default_factory=dict)  # calls whose result was told
    running: dict[str, str] = field(default_factory=dict)  # command session → the call that began it
    scripts: dict[str, bool] = field(default_factory=dict)  # open scripts: whether a command of theirs was seen
    tokens: tuple[int, int, int, int] = (0, 0, 0, 0)


_META = Part(Meta)
_SOURCE = Part(Source)
_SUBAGENT = Part(SubagentKind)
_CONTEXT = Part(Context)
_ITEM = Part(Item)
_HAPPENING = Part(Happening)
_ARGUMENTS = Part(Arguments)
_USAGE = Part(UsageRecord)


class CodexParser(JsonParser[Line]):
    """The parser of one rollout.

    The same things are written twice: as items for the model and as events for the screen. Calls are told from
    the first, since they come before the command runs; messages and, where there are any, results from the second.
    """

    record_type = Line
    decoder = msgspec.json.Decoder(Line)

    def __init__(self) -> None:
        super().__init__()
        self._state = _State()

    def state(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def restore(self, blob: bytes) -> None:
        try:
            self._state = msgspec.msgpack.decode(blob, type=_State)
        except msgspec.MsgspecError:
            self._state = _State()

    def events(self, record: Line, raw: bytes, position: Position) -> list[Event]:
        record_id = "" if record.ordinal is None else str(record.ordinal)
        here = _Place(Position(position.generation, position.offset, record_id), aware(record.timestamp))
        payload = record.payload
        match record.type:
            case "response_item":
                self._item(self.read_as(_ITEM, payload, position), here)
            case "event_msg":
                self._happening(self.read_as(_HAPPENING, payload, position), here)
            case "session_meta":
                self._meta(self.read_as(_META, payload, position), here)
            case "turn_context":
                self._context(self.read_as(_CONTEXT, payload, position), here)
            case "compacted":
                self._compacted(here)
            case "token_usage_record":
                self._tokens(self.read_as(_USAGE, payload, position).thread_token_usage, here)
            case known if known in _LINES:
                pass
            case _ if not payload:
                self._bare(record, raw, here)
            case other:
                self.counts.meet(other or "(no type)", position)
        return here.finished(self._state.sidechain)

    # Who and where

    def _bare(self, record: Line, raw: bytes, here: "_Place") -> None:
        """A line of the time before lines had envelopes."""
        state = self._state
        if record.type is None and record.id:
            state.bare = True
            meta = self.read_as(_META, raw, here.position)
            state.session = record.id
            here.add(SessionStarted(position=here.position, at=here.at, session_id=record.id, branch=_branch(meta)))
        elif record.type in _ITEMS:
            state.bare = True
            self._item(self.read_as(_ITEM, raw, here.position), here)
        elif record.record_type is None:
            self.counts.meet(record.type or "(no type)", here.position)

    def _meta(self, meta: Meta, here: "_Place") -> None:
        """The header. Later ones repeat it, or are those of the rollout that this one was forked from."""
        state = self._state
        if state.session or not meta.id:
            return
        state.session, state.cwd = meta.id, meta.cwd
        state.paginated = meta.history_mode == "paginated"
        session, parent = meta.id, meta.forked_from_id
        if spawned := self._spawned(meta, here):
            state.sidechain = meta.id
            session = parent = meta.session_id if meta.session_id not in (None, meta.id) else spawned
        here.add(
            SessionStarted(
                position=here.position,
                at=here.at,
                session_id=session or meta.id,
                cwd=meta.cwd,
                branch=_branch(meta),
                agent_version=meta.cli_version,
                parent=parent,
            )
        )

    def _spawned(self, meta: Meta, here: "_Place") -> str | None:
        """The thread that a sub-agent's rollout belongs to; None for one that a person began."""
        source = self.read_as(_SOURCE, meta.source, here.position) if _is_object(meta.source) else Source()
        if not source.subagent:
            return None
        kind = (
            self.read_as(_SUBAGENT, source.subagent, here.position) if _is_object(source.subagent) else SubagentKind()
        )
        spawned_by = kind.thread_spawn.parent_thread_id if kind.thread_spawn else None
        return spawned_by or meta.parent_thread_id or meta.forked_from_id

    def _context(self, context: Context, here: "_Place") -> None:
        state = self._state
        cwd = context.cwd if context.cwd and context.cwd != state.cwd else None
        model = context.model if context.model and context.model != state.model else None
        thinking = context.effort if context.effort and context.effort != state.thinking else None
        state.cwd, state.model = cwd or state.cwd, model or state.model
        state.thinking = thinking or state.thinking
        if cwd or model or thinking:
            here.add(ContextChanged(position=here.position, at=here.at, cwd=cwd, model=model, thinking=thinking))

    # What went to the model and came from it

    def _item(self, item: Item, here: "_Place") -> None:
        match item.type:
            case "function_call" | "custom_tool_call" | "local_shell_call":
                self._call(item, here)
            case "function_call_output" | "custom_tool_call_output":
                self._output(item, here)
            case "message" if self._state.bare:
                self._bare_message(item, here)
            case known if known in _ITEMS:
                pass
            case other:
                self.counts.meet(f"response_item/{other}", here.position)

    def _bare_message(self, item: Item, here: "_Place") -> None:
        text = item.content if isinstance(item.content, str) else codex_outputs.joined(item.content)
        if item.role == "assistant" and text:
            here.add(AssistantText(position=here.position, at=here.at, text=text))
        elif item.role == "user":
            if not text.lstrip().startswith(_INJECTED):
                self._user(text, here)
            elif found := _CWD.search(text):
                self._context(Context(cwd=(found[1] or found[2]).strip()), here)

    def _call(self, item: Item, here: "_Place") -> None:
        call_id = item.call_id or item.id or ""
        self._state.compacted = False
        if item.name == _SCRIPT and item.type == "custom_tool_call":
            self._state.scripts[call_id] = False
            shorten(self._state.scripts, _CALLS_LIMIT)
            return
        given = self._arguments(item, here)
        call = _call(item, given)
        self._open(call_id, call, here)
        if call.tool == "update_plan" and given.plan is not None:
            items = tuple(
                PlanItem(id=str(number), text=step.step, state=_STATES.get(step.status, "open"))
                for number, step in enumerate(given.plan, 1)
            )
            here.add(PlanUpdated(position=here.position, at=here.at, items=items))

    def _arguments(self, item: Item, here: "_Place") -> Arguments:
        """The arguments of a function: JSON in a string, rarely an object."""
        if item.action is not None:
            return Arguments(command=item.action.command, workdir=item.action.working_directory)
        if item.type == "custom_tool_call" or not item.arguments:
            return Arguments(input=item.input)
        text: bytes | Raw = item.arguments
        if not _is_object(item.arguments):
            text = codex_outputs.output_text(item.arguments)[0].encode("utf-8", "replace") or b"{}"
        return self.read_as(_ARGUMENTS, text, here.position)

    def _open(self, call_id: str, call: "_Told", here: "_Place") -> None:
        state = self._state
        state.calls[call_id] = _Call(call.tool, call.kind, call.paths)
        shorten(state.calls, _CALLS_LIMIT)
        here.add(
            ToolCall(
                position=here.position,
                at=here.at,
                call_id=call_id,
                tool=call.tool,
                kind=call.kind,
                command=call.command,
                paths=call.paths,
                cwd=codex_outputs.local_path(call.cwd) or state.cwd,
            )
        )

    def _output(self, item: Item, here: "_Place") -> None:
        state, call_id = self._state, item.call_id or ""
        if call_id in state.scripts:
            self._script_output(item, call_id, here)
            return
        end = codex_outputs.end_of(item.output)
        call = state.calls.get(call_id)
        if call is not None and call.tool == "write_stdin":
            self._close(
                call_id, "ok" if end.exit_code is not None or end.running else end.outcome, None, end.text, here
            )
            self._running_ended(end, here)
            return
        if end.running is not None:
            # The command goes on: its result is an item later, or the output of a later look at it.
            state.running[end.running] = call_id
            shorten(state.running, _CALLS_LIMIT)
            return
        self._close(call_id, end.outcome, end.exit_code, end.text, here)

    def _running_ended(self, end: codex_outputs.End, here: "_Place") -> None:
        """The result of a command that went on in the background, where the log has no item for it."""
        state = self._state
        if end.exit_code is None or state.paginated or len(state.running) != 1:
            return
        _, call_id = state.running.popitem()
        self._close(call_id, end.outcome, end.exit_code, end.text, here)

    def _script_output(self, item: Item, call_id: str, here: "_Place") -> None:
        """A script is told only when it failed before it ran anything: else its commands are."""
        ran = self._state.scripts.pop(call_id)
        end = codex_outputs.end_of(item.output)
        if not ran and end.outcome != "ok":
            self._open(call_id, _Told(_SCRIPT, "other"), here)
            self._close(call_id, end.outcome, end.exit_code, end.text, here)

    def _close(
        self, call_id: str, outcome: Outcome, code: int | None, text: str, here: "_Place", paths: tuple[str, ...] = ()
    ) -> None:
        """Tells of a call's result, once."""
        state = self._state
        if call_id in state.done:
            return
        call = state.calls.pop(call_id, None)
        state.done[call_id] = True
        shorten(state.done, _CALLS_LIMIT)
        if call is not None and call.kind == "write" and outcome == "ok":
            paths = paths or call.paths
        here.add(
            ToolResult(
                position=here.position,
                at=here.at,
                call_id=call_id,
                outcome=outcome,
                exit_code=code,
                text=cut(text),
                paths=paths,
            )
        )

    # What the screen showed

    def _happening(self, event: Happening, here: "_Place") -> None:
        match event.type:
            case "item_completed":
                self._thread_item(event.item or Thread(), here)
            case "user_message":
                self._user(event.message or "", here)
            case "agent_message":
                self._says(event.message or "", here)
            case "task_started" | "turn_started":
                self._state.turn, self._state.compacted = True, False
            case "task_complete" | "turn_complete":
                self._turn_ended(event, here)
            case "turn_aborted":
                self._aborted(event, here)
            case "token_count":
                self._tokens(event.info.total_token_usage if event.info else None, here)
            case "context_compacted":
                self._compacted(here)
            case "error" | "stream_error":
                here.add(ApiError(position=here.position, at=here.at, message=cut(event.message or "")))
            case "thread_name_updated" if event.thread_name:
                here.add(ContextChanged(position=here.position, at=here.at, name=event.thread_name))
            case "patch_apply_end" | "exec_command_end" | "mcp_tool_call_end":
                self._tool_ended(event, here)
            case known if known in _HAPPENINGS:
                pass
            case other:
                self.counts.meet(f"event_msg/{other}", here.position)

    def _user(self, text: str, here: "_Place") -> None:
        self._state.turn, self._state.compacted = True, False
        here.add(UserTurn(position=here.position, at=here.at, text=text))

    def _says(self, text: str, here: "_Place") -> None:
        if text:
            self._state.compacted = False
            here.add(AssistantText(position=here.position, at=here.at, text=text))

    def _turn_ended(self, event: Happening, here: "_Place") -> None:
        if event.error:
            message = event.error.message if isinstance(event.error, Problem) else event.error
            here.add(ApiError(position=here.position, at=here.at, message=cut(message or ""), final=True))
        self._state.turn = False
        here.add(TurnEnded(position=here.position, at=here.at))

    def _aborted(self, event: Happening, here: "_Place") -> None:
        self._state.turn = False
        if event.reason == "review_ended":
            here.add(TurnEnded(position=here.position, at=here.at))
        else:
            here.add(Interrupted(position=here.position, at=here.at))

    def _compacted(self, here: "_Place") -> None:
        if not self._state.compacted:
            self._state.compacted = True
            here.add(Compacted(position=here.position, at=here.at))

    def _tokens(self, tokens: Tokens | None, here: "_Place") -> None:
        """The thread's totals; Codex counts what was cached as input too."""
        if tokens is None:
            return
        figures = (
            max(0, tokens.input_tokens - tokens.cached_input_tokens),
            tokens.output_tokens,
            tokens.cached_input_tokens,
            tokens.cache_write_input_tokens,
        )
        if figures == self._state.tokens:
            return
        self._state.tokens = figures
        here.add(
            Usage(
                position=here.position,
                at=here.at,
                message="",
                input=figures[0],
                output=figures[1],
                cache_read=figures[2],
                cache_write=figures[3],
                cumulative=True,
            )
        )

    def _tool_ended(self, event: Happening, here: "_Place") -> None:
        """The result of a call in a legacy rollout, richer than the output that the model got."""
        call_id, text = event.call_id or "", event.aggregated_output or event.stdout or ""
        self._known(call_id, _Told(_tool_of(event), "other"), here)
        match event.type:
            case "exec_command_end":
                outcome: Outcome = "failed" if event.exit_code else "ok"
                self._close(call_id, outcome, event.exit_code, text or event.stderr or "", here)
            case "patch_apply_end":
                outcome = "failed" if event.success is False else "ok"
                paths = codex_outputs.changed(event.changes) if outcome == "ok" else ()
                self._close(call_id, outcome, None, "\n".join(filter(None, (text, event.stderr))), here, paths)
            case _:
                result = event.result or {}
                ok = result.get("Ok")
                failed = "Err" in result or (isinstance(ok, dict) and bool(ok.get("is_error") or ok.get("isError")))
                self._close(call_id, "failed" if failed else "ok", None, str(result.get("Err", "")), here)

    def _thread_item(self, item: Thread, here: "_Place") -> None:
        match item.type:
            case "UserMessage":
                self._user(codex_outputs.joined(item.content), here)
            case "AgentMessage":
                self._says(codex_outputs.joined(item.content), here)
            case "Plan":
                self._says(item.text or "", here)
            case "ContextCompaction":
                self._compacted(here)
            case "CommandExecution":
                told = _Told("exec_command", "shell", codex_outputs.command_line(item.command or ()), cwd=item.cwd)
                self._item_ended(item, told, item.aggregated_output or item.stdout or item.stderr or "", here)
            case "FileChange":
                told = _Told("apply_patch", "write", paths=codex_outputs.changed(item.changes))
                self._item_ended(item, told, "\n".join(filter(None, (item.stdout, item.stderr))), here)
            case "McpToolCall" | "DynamicToolCall" | "WebSearch":
                error = item.error.message if isinstance(item.error, Problem) else item.error
                self._item_ended(item, _Told(_tool_name(item), "other"), error or "", here)
            case known if known in _THREAD_ITEMS:
                pass
            case other:
                self.counts.meet(f"item/{other}", here.position)

    def _item_ended(self, item: Thread, told: "_Told", text: str, here: "_Place") -> None:
        self._known(item.id, told, here)
        paths = told.paths if item.status not in ("failed", "declined") else ()
        self._close(item.id, self._outcome(item), item.exit_code, text, here, paths)

    def _known(self, call_id: str, told: "_Told", here: "_Place") -> None:
        """Tells of a call that was not told before: those of scripts, and those that the user made."""
        if call_id in self._state.calls or call_id in self._state.done:
            return
        for script in self._state.scripts:
            self._state.scripts[script] = True
        self._state.compacted = False
        self._open(call_id, told, here)

    def _outcome(self, item: Thread) -> Outcome:
        match item.status:
            case "declined":
                return "denied"
            case "failed":
                # Codex kills what still runs when it shuts down; nobody's command failed.
                killed = item.exit_code == -1 and not self._state.turn
                return "aborted" if killed else "failed"
            case _:
                return "failed" if item.exit_code or item.error else "ok"


class _Told(Struct, frozen=True):
    """A call, as it is to be told."""

    tool: str
    kind: ToolKind
    command: str | None = None
    paths: tuple[str, ...] = ()
    cwd: str | None = None


class _Place:
    """Where a record is, and what it says."""

    def __init__(self, position: Position, at: datetime | None) -> None:
        self.position = position
        self.at = at
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        self.events.append(event)

    def finished(self, sidechain: str) -> list[Event]:
        """The events, as those of a sub-agent where the rollout is one's."""
        if not sidechain:
            return self.events
        return [msgspec.structs.replace(event, sidechain=sidechain) for event in self.events]


def _call(item: Item, given: Arguments) -> _Told:
    tool = item.name or ("local_shell" if item.type == "local_shell_call" else item.type)
    words = given.command
    if tool == "apply_patch" or (isinstance(words, list) and words[:1] == ["apply_patch"]):
        patch = given.input or (words[-1] if isinstance(words, list) and words else "")
        return _Told("apply_patch", "write", paths=codex_outputs.patched(patch), cwd=given.workdir)
    if tool not in _SHELLS:
        return _Told(tool, "other", cwd=given.workdir)
    command = given.cmd or (codex_outputs.command_line(words) if isinstance(words, list) else words)
    paths = codex_outputs.patched(command) if command and "apply_patch" in command else ()
    return _Told(tool, "shell", command, paths, given.workdir)


def _tool_of(event: Happening) -> str:
    if event.invocation is not None:
        return "__".join(filter(None, (event.invocation.server, event.invocation.tool)))
    return "apply_patch" if event.type == "patch_apply_end" else "exec_command"


def _tool_name(item: Thread) -> str:
    if item.type == "WebSearch":
        return "web_search"
    return "__".join(filter(None, (item.server or item.namespace, item.tool)))


def _branch(meta: Meta) -> str | None:
    return meta.git.branch if meta.git else None


def _is_object(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"
