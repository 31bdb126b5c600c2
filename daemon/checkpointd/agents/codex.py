"""Codex: where its logs are, and how its processes look."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpointd.agents.base import base_name, home
from checkpointd.agents.codex_parser import CodexParser

_LOG = re.compile(r"rollout-.+?(?P<session>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})?\.jsonl(?:\.zst)?")


def state_folder(env: Mapping[str, str]) -> Path:
    """The folder that Codex keeps its state in."""
    return Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else home(env) / ".codex"


class Codex:
    """The adapter of Codex."""

    name = "codex"
    title = "Codex"
    markers = ("CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_CI", "CODEX_SANDBOX")
    session_variables = ("CODEX_THREAD_ID", "CODEX_SESSION_ID")

    def roots(self, env: Mapping[str, str]) -> list[Path]:
        folders = dict.fromkeys((state_folder(env), home(env) / ".codex"))
        return [folder / part for folder in folders for part in ("sessions", "archived_sessions")]

    def is_log(self, path: Path) -> bool:
        return _LOG.fullmatch(path.name) is not None

    def session_of(self, path: Path) -> str | None:
        found = _LOG.fullmatch(path.name)
        return found["session"] if found else None

    def parser(self) -> CodexParser:
        return CodexParser()

    def resume(self, session: str) -> list[str]:
        return ["codex", "resume", session]

    def is_process(self, name: str, argv: Sequence[str]) -> bool:
        # The daemon and its helpers outlive the sessions that they served.
        if "app-server" in argv or "pid-update-loop" in argv:
            return False
        if name == "codex" or (argv and base_name(argv[0]) == "codex"):
            return True
        return len(argv) > 1 and base_name(argv[1]) in ("codex", "codex.js")
