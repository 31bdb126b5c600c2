"""Telling agents by the names of their processes."""

import os
import re
from collections.abc import Mapping, Sequence

PROGRAMS: Mapping[str, str] = {
    "claude": "claude",
    "claude-code": "claude",
    "codex": "codex",
    "gemini": "gemini",
    "gemini-cli": "gemini",
    "qwen": "qwen",
    "qwen-code": "qwen",
    "opencode": "opencode",
    "pi": "pi",
    "pi-coding-agent": "pi",
    "copilot": "copilot",
    "cline": "cline",
    "aider": "aider",
    "vibe": "vibe",
    "kimi": "kimi",
}
"""The agent that a program, or the package that a script belongs to, is."""

_INTERPRETER = re.compile(r"(node|nodejs|bun|deno|python[0-9.]*|pypy[0-9.]*)")
_SCRIPT_ENDING = re.compile(r"\.(js|mjs|cjs|ts|py)$")
# Threads that some runtimes name before they name the process; the command line decides then.
_NAMELESS = frozenset({"MainThread"})


def may_be_agent(comm: str, programs: Mapping[str, str] = PROGRAMS) -> bool:
    """Whether the command line of a process so called is worth reading."""
    return comm in programs or comm in _NAMELESS or _INTERPRETER.fullmatch(comm) is not None


def agent_of(comm: str, cmdline: Sequence[str], programs: Mapping[str, str] = PROGRAMS) -> str | None:
    """The agent that a process is, by its name, its program, or the script that an interpreter runs."""
    if comm in programs:
        return programs[comm]
    if not cmdline:
        return None
    program = os.path.basename(cmdline[0])
    if program in programs:
        return programs[program]
    if _INTERPRETER.fullmatch(program):
        return _agent_of_script(cmdline[1:], programs)
    return None


def _agent_of_script(arguments: Sequence[str], programs: Mapping[str, str]) -> str | None:
    script = next((argument for argument in arguments if not argument.startswith("-")), None)
    if script is None:
        return None
    *folders, name = script.split("/")
    stem = _SCRIPT_ENDING.sub("", name)
    if stem in programs:
        return programs[stem]
    if "node_modules" not in folders:
        return None
    # .../node_modules/@scope/package/cli.js: the script's own name says nothing, its package does.
    packages = folders[len(folders) - folders[::-1].index("node_modules") :]
    return next((programs[package] for package in packages[:2] if package in programs), None)
