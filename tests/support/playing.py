"""Agents that are played: each does in a project what it writes into a log of its own format, as the real one would."""

import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FAILURE = (
    "F                                                                        [100%]\n"
    "tests/test_a.py:4: AssertionError: assert 1 == 2\n"
    "=========================== short test summary info ============================\n"
    "FAILED tests/test_a.py::test_a - assert 1 == 2\n"
    "1 failed in 0.02s\n"
)


class Actor:
    """What every played agent does. The log comes into being with the first line."""

    log: Path

    def __init__(self, home: Path, cwd: Path, session: str | None = None) -> None:
        self.home = home
        self.cwd = cwd
        self.session = session or str(uuid.uuid4())

    def append(self, *records: dict[str, Any]) -> None:
        """Adds lines to the log, in one write."""
        self.append_raw("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records).encode())

    def append_raw(self, data: bytes) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab", buffering=0) as log:
            log.write(data)

    def says(self, text: str) -> None:
        """The user speaks."""
        raise NotImplementedError

    def calls(self, command: str) -> str:
        """The agent begins a shell command; returns the call's id."""
        raise NotImplementedError

    def gets(self, call: str, text: str, code: int = 0) -> None:
        """The command ends."""
        raise NotImplementedError

    def writes(self, path: str | Path, text: str) -> None:
        """The agent writes a file, relative to its directory."""
        raise NotImplementedError

    def answers(self, text: str = "Done.") -> None:
        """The agent finishes its answer: the turn ends."""
        raise NotImplementedError

    def compacts(self) -> None:
        """The agent forgets its context."""
        raise NotImplementedError

    def thinks(self) -> None:
        """The pause that no model does without between two steps."""
        time.sleep(0.3)

    # What is built of these.

    def runs(self, command: str, work: Callable[[], object], text: str = "", code: int = 0) -> None:
        """A shell command with its effect."""
        call = self.calls(command)
        work()
        self.gets(call, text, code)

    def fails_tests(self, times: int = 3) -> None:
        """The same test fails again and again, with an edit between."""
        for attempt in range(times):
            self.gets(self.calls("python -m pytest -q tests/test_a.py"), FAILURE, 1)
            if attempt < times - 1:
                self.writes("src/attempt.py", f"attempt = {attempt}\n")

    def works(self, path: str, text: str, request: str = "go on") -> None:
        """One whole turn that writes one file."""
        self.says(request)
        self.writes(path, text)
        self.answers()

    def _write(self, path: str | Path, text: str) -> Path:
        file = self.cwd / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file


class Claude(Actor):
    """Claude Code."""

    def __init__(self, home: Path, cwd: Path, session: str | None = None) -> None:
        super().__init__(home, cwd, session)
        safe = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(cwd))
        self.log = home / ".claude/projects" / safe / f"{self.session}.jsonl"
        self._parent: str | None = None

    def _record(self, kind: str, **more: Any) -> None:
        identity = str(uuid.uuid4())
        self.append({
            "parentUuid": self._parent, "isSidechain": False, "type": kind, "uuid": identity, "timestamp": _now(),
            "userType": "external", "entrypoint": "cli", "cwd": str(self.cwd), "sessionId": self.session,
            "version": "2.1.332", "gitBranch": "main", **more,
        })  # fmt: skip
        self._parent = identity

    def _assistant(self, block: dict[str, Any], stop: str) -> None:
        self._record("assistant", message={
            "id": f"msg_{uuid.uuid4().hex[:20]}", "type": "message", "role": "assistant", "model": "claude-played",
            "content": [block], "stop_reason": stop, "usage": {"input_tokens": 10, "output_tokens": 5},
        })  # fmt: skip

    def _tool(self, name: str, given: dict[str, Any]) -> str:
        call = f"toolu_{uuid.uuid4().hex[:20]}"
        self._assistant({"type": "tool_use", "id": call, "name": name, "input": given}, "tool_use")
        return call

    def says(self, text: str) -> None:
        self._record("user", message={"role": "user", "content": text}, permissionMode="default")

    def calls(self, command: str) -> str:
        return self._tool("Bash", {"command": command})

    def gets(self, call: str, text: str, code: int = 0) -> None:
        text = f"Exit code {code}\n{text}" if code else text
        block = {"tool_use_id": call, "type": "tool_result", "content": text, "is_error": bool(code)}
        result: Any = f"Error: {text}" if code else {"stdout": text, "stderr": "", "interrupted": False}
        self._record("user", message={"role": "user", "content": [block]}, toolUseResult=result)

    def denied(self, call: str) -> None:
        """The user says no to a call."""
        text = "The user doesn't want to proceed with this tool use. The tool use was rejected."
        block = {"tool_use_id": call, "type": "tool_result", "content": text, "is_error": True}
        self._record("user", message={"role": "user", "content": [block]}, toolUseResult="User rejected tool use")

    def writes(self, path: str | Path, text: str) -> None:
        call = self._tool("Write", {"file_path": str(self.cwd / path), "content": text})
        self.gets(call, f"File created successfully at: {self._write(path, text)}")

    def answers(self, text: str = "Done.") -> None:
        self._assistant({"type": "text", "text": text}, "end_turn")

    def compacts(self) -> None:
        self._record("system", subtype="compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 1559})

    def leaves(self) -> None:
        """`/exit`: the mark of the end."""
        self.append({"type": "cost-state", "sessionId": self.session, "totalCostUSD": 0.1, "modelUsage": {}})


class Pi(Actor):
    """pi."""

    def __init__(self, home: Path, cwd: Path, session: str | None = None) -> None:
        super().__init__(home, cwd, session)
        folder = "--" + str(cwd).strip("/").replace("/", "-") + "--"
        stamp = _now().replace(":", "-").replace(".", "-")
        self.log = home / ".pi/agent/sessions" / folder / f"{stamp}_{self.session}.jsonl"

    def _entry(self, kind: str, **more: Any) -> None:
        if not self.log.exists():
            self.append(
                {"type": "session", "version": 3, "id": self.session, "timestamp": _now(), "cwd": str(self.cwd)}
            )
        self.append({"type": kind, "id": uuid.uuid4().hex[:8], "parentId": None, "timestamp": _now(), **more})

    def _assistant(self, block: dict[str, Any], stop: str) -> None:
        self._entry("message", message={
            "role": "assistant", "content": [block], "provider": "p", "model": "pi-played", "stopReason": stop,
        })  # fmt: skip

    def _tool(self, name: str, given: dict[str, Any]) -> str:
        call = uuid.uuid4().hex[:8]
        self._assistant({"type": "toolCall", "id": call, "name": name, "arguments": given}, "toolUse")
        return call

    def says(self, text: str) -> None:
        self._entry("message", message={"role": "user", "content": [{"type": "text", "text": text}]})

    def calls(self, command: str) -> str:
        return self._tool("bash", {"command": command})

    def gets(self, call: str, text: str, code: int = 0) -> None:
        self._result(call, "bash", f"{text}\n\nCommand exited with code {code}" if code else text, failed=bool(code))

    def _result(self, call: str, tool: str, text: str, *, failed: bool = False) -> None:
        self._entry("message", message={
            "role": "toolResult", "toolCallId": call, "toolName": tool, "content": [{"type": "text", "text": text}],
            "isError": failed, "details": {},
        })  # fmt: skip

    def writes(self, path: str | Path, text: str) -> None:
        call = self._tool("write", {"path": str(path), "content": text})
        self._write(path, text)
        self._result(call, "write", f"Successfully wrote {path}")

    def answers(self, text: str = "Done.") -> None:
        self._assistant({"type": "text", "text": text}, "stop")

    def compacts(self) -> None:
        self._entry("compaction", summary="what was", firstKeptEntryId="x", tokensBefore=1559)


class Codex(Actor):
    """Codex, with paginated rollouts."""

    def __init__(self, home: Path, cwd: Path, session: str | None = None) -> None:
        super().__init__(home, cwd, session)
        now = datetime.now(UTC)
        name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{self.session}.jsonl"
        self.log = home / f".codex/sessions/{now:%Y/%m/%d}" / name
        self._turn = 0
        self._lines = 0

    def _line(self, kind: str, payload: dict[str, Any]) -> None:
        self.append({"timestamp": _now(), "ordinal": self._lines, "type": kind, "payload": payload})
        self._lines += 1

    def says(self, text: str) -> None:
        if not self._lines:
            self._line("session_meta", {
                "id": self.session, "session_id": self.session, "timestamp": _now(), "cwd": str(self.cwd),
                "originator": "codex-tui", "cli_version": "0.171.0", "source": "cli", "history_mode": "paginated",
            })  # fmt: skip
        self._turn += 1
        self._event(type="task_started", turn_id=self._id)
        self._line("turn_context", {"turn_id": self._id, "cwd": str(self.cwd), "model": "codex-played"})
        self._item({"type": "UserMessage", "id": uuid.uuid4().hex, "content": [{"type": "text", "text": text}]})

    @property
    def _id(self) -> str:
        return f"t{self._turn}"

    def _event(self, **payload: Any) -> None:
        self._line("event_msg", payload)

    def _item(self, item: dict[str, Any]) -> None:
        self._event(type="item_completed", thread_id=self.session, turn_id=self._id, item=item)

    def calls(self, command: str) -> str:
        call = f"call_{uuid.uuid4().hex[:12]}"
        arguments = json.dumps({"cmd": command, "workdir": str(self.cwd)})
        self._line("response_item", {
            "type": "function_call", "name": "exec_command", "arguments": arguments, "call_id": call,
        })  # fmt: skip
        return call

    def gets(self, call: str, text: str, code: int = 0) -> None:
        output = f"Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code {code}\nOutput:\n{text}"
        self._line("response_item", {"type": "function_call_output", "call_id": call, "output": output})

    def writes(self, path: str | Path, text: str) -> None:
        call, file = f"call_{uuid.uuid4().hex[:12]}", self.cwd / path
        patch = f"*** Begin Patch\n*** Add File: {path}\n+{text}*** End Patch\n"
        self._line("response_item", {
            "type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": call, "status": "completed",
        })  # fmt: skip
        self._write(path, text)
        changes = {str(file): {"type": "add", "content": text}}
        self._item({"type": "FileChange", "id": call, "changes": changes, "status": "completed", "stdout": "Success."})

    def answers(self, text: str = "Done.") -> None:
        self._item({"type": "AgentMessage", "id": uuid.uuid4().hex, "content": [{"type": "Text", "text": text}]})
        self._event(type="task_complete", turn_id=self._id)

    def compacts(self) -> None:
        self._line("compacted", {"message": ""})


AGENTS: dict[str, type[Actor]] = {"claude": Claude, "pi": Pi, "codex": Codex}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
