"""pi: where its logs are, how they are read, and how its processes look."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from checkpointd.agents.base import base_name, home
from checkpointd.agents.pi_parser import PiParser

_LOG = re.compile(r"\d{4}-\d\d-\d\dT[\dA-Za-z.-]*_(?P<session>[^/]+)\.jsonl")


class Pi:
    """The adapter of pi."""

    name = "pi"
    title = "pi"
    markers = ("PI_CODING_AGENT",)
    session_variables = ("PI_SESSION_ID",)

    def roots(self, env: Mapping[str, str]) -> list[Path]:
        folders = [Path(env["PI_CODING_AGENT_SESSION_DIR"])] if env.get("PI_CODING_AGENT_SESSION_DIR") else []
        if env.get("PI_CODING_AGENT_DIR"):
            folders.append(Path(env["PI_CODING_AGENT_DIR"]) / "sessions")
        folders.append(home(env) / ".pi/agent/sessions")
        return list(dict.fromkeys(folders))

    def is_log(self, path: Path) -> bool:
        return _LOG.fullmatch(path.name) is not None

    def session_of(self, path: Path) -> str | None:
        return session_in(path.name)

    def parser(self) -> PiParser:
        return PiParser(session_in)

    def resume(self, session: str) -> list[str]:
        return ["pi", "--session", session]

    def is_process(self, name: str, argv: Sequence[str]) -> bool:
        if name == "pi" or (argv and base_name(argv[0]) == "pi"):
            return True
        return len(argv) > 1 and (base_name(argv[1]) == "pi" or "pi-coding-agent/" in argv[1].replace("\\", "/"))


def session_in(text: str) -> str | None:
    """The session id in the name of a log, which may be a path."""
    found = _LOG.fullmatch(base_name(text))
    return found["session"] if found else None
