"""Claude Code: where its logs are, and how its processes look."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpointd.agents.base import base_name, home
from checkpointd.agents.claude_parser import ClaudeParser

_SESSION = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def config_folders(env: Mapping[str, str]) -> list[Path]:
    """The folders that Claude Code may keep its state in.

    The daemon's environment need not be that of the user's shell, so the default is always among them.
    """
    folders = [Path(env["CLAUDE_CONFIG_DIR"])] if env.get("CLAUDE_CONFIG_DIR") else []
    folders += [home(env) / ".claude", home(env) / ".config/claude"]
    return list(dict.fromkeys(folders))


class Claude:
    """The adapter of Claude Code."""

    name = "claude"
    title = "Claude Code"
    markers = ("CLAUDECODE",)
    session_variables = ("CLAUDE_CODE_SESSION_ID",)

    def roots(self, env: Mapping[str, str]) -> list[Path]:
        return [folder / "projects" for folder in config_folders(env)]

    def is_log(self, path: Path) -> bool:
        if path.suffix != ".jsonl":
            return False
        return _SESSION.fullmatch(path.stem) is not None or path.stem.startswith("agent-")

    def session_of(self, path: Path) -> str | None:
        if not path.stem.startswith("agent-"):
            return path.stem
        if "subagents" in path.parts:
            return path.parts[path.parts.index("subagents") - 1]
        return None

    def parser(self) -> ClaudeParser:
        return ClaudeParser()

    def resume(self, session: str) -> list[str]:
        return ["claude", "--resume", session]

    def is_process(self, name: str, argv: Sequence[str]) -> bool:
        if name == "claude" or (argv and base_name(argv[0]) == "claude"):
            return True
        return len(argv) > 1 and (
            base_name(argv[1]) == "claude" or argv[1].replace("\\", "/").endswith("claude-code/cli.js")
        )
