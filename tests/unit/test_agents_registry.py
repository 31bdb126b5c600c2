"""Which agents are known, and which logs are on disk."""

import os
from pathlib import Path

import pytest

from checkpointd.agents.registry import ADAPTERS, adapter_named, adapter_of, discover
from checkpointd.model import events
from checkpointd.model.events import Position, is_work

SESSION = "01a00000-0000-7000-8000-000000000001"
PLACES = {
    "claude": f".claude/projects/-p/{SESSION}.jsonl",
    "codex": f".codex/sessions/2026/11/30/rollout-2026-11-30T20-15-06-{SESSION}.jsonl",
    "pi": f".pi/agent/sessions/--p--/2026-11-30T20-42-41-906Z_{SESSION}.jsonl",
}


def put(path: Path, modified: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    os.utime(path, (modified, modified))
    return path


def test_all_logs_of_all_agents_are_found_newest_first(tmp_path: Path) -> None:
    for number, place in enumerate(PLACES.values()):
        put(tmp_path / place, 1000 + number)
    put(tmp_path / ".claude/projects/-p/memory/notes.jsonl", 9)
    put(tmp_path / ".codex/history.jsonl", 9)
    found = discover({"HOME": str(tmp_path)})
    assert [(log.agent, log.session, log.size) for log in found] == [
        (agent, SESSION, 3) for agent in ("pi", "codex", "claude")
    ]


def test_moved_stores_are_found_too(tmp_path: Path) -> None:
    env = {
        "HOME": str(tmp_path / "home"),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "c"),
        "CODEX_HOME": str(tmp_path / "x"),
        "PI_CODING_AGENT_DIR": str(tmp_path / "p"),
        "PI_CODING_AGENT_SESSION_DIR": str(tmp_path / "s"),
    }
    put(tmp_path / "c/projects/-p" / f"{SESSION}.jsonl", 1)
    put(tmp_path / f"x/archived_sessions/rollout-2026-11-30T20-15-06-{SESSION}.jsonl", 1)
    put(tmp_path / f"p/sessions/--p--/2026-11-30T20-42-41-906Z_{SESSION}.jsonl", 1)
    put(tmp_path / f"s/2026-11-30T20-42-41-907Z_{SESSION}.jsonl", 1)
    put(tmp_path / "home" / PLACES["claude"], 1)
    assert sorted(log.agent for log in discover(env)) == ["claude", "claude", "codex", "pi", "pi"]


def test_a_plain_rollout_wins_over_its_compressed_copy(tmp_path: Path) -> None:
    plain = put(tmp_path / PLACES["codex"], 5)
    put(plain.with_name(plain.name + ".zst"), 6)
    old = put(plain.with_name(f"rollout-2026-11-29T20-15-06-{SESSION}.jsonl.zst"), 4)
    assert [log.path for log in discover({"HOME": str(tmp_path)})] == [plain, old]


def test_no_stores_and_folders_in_the_way_are_no_logs(tmp_path: Path) -> None:
    assert discover({"HOME": str(tmp_path)}) == []
    (tmp_path / PLACES["claude"]).mkdir(parents=True)
    assert discover({"HOME": str(tmp_path)}) == []


@pytest.mark.parametrize("agent", PLACES)
def test_a_log_tells_its_agent_by_its_name(agent: str) -> None:
    adapter = adapter_of(Path(PLACES[agent]))
    assert adapter is adapter_named(agent)
    assert sum(other.is_log(Path(PLACES[agent])) for other in ADAPTERS) == 1
    assert adapter.session_of(Path(PLACES[agent])) == SESSION
    assert SESSION in adapter.resume(SESSION)


@pytest.mark.parametrize(
    ("agent", "name", "argv", "expected"),
    [
        ("claude", "claude", ["claude"], True),
        ("claude", "node", ["node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"], True),
        ("claude", "node", ["node", "server.js"], False),
        ("codex", "codex", ["codex", "exec", "fix"], True),
        ("codex", "node", ["node", "/usr/bin/codex"], True),
        ("codex", "codex", ["codex", "app-server", "--listen", "unix://x", "--managed-daemon"], False),
        ("pi", "pi", ["pi"], True),
        ("pi", "node", ["node", "/x/pi-coding-agent/dist/cli.js"], True),
        ("pi", "pip", ["pip", "install"], False),
    ],
)
def test_processes_that_sessions_run_in_are_known_by_name_and_arguments(
    agent: str, name: str, argv: list[str], *, expected: bool
) -> None:
    assert adapter_named(agent).is_process(name, argv) is expected


def test_only_work_counts_as_activity() -> None:
    here = Position(0, 0)
    assert is_work(events.UserTurn(position=here, text="go"))
    assert is_work(events.ToolResult(position=here, call_id="c", outcome="denied"))
    assert not is_work(events.SessionStarted(position=here, session_id="s"))
    assert not is_work(events.ContextChanged(position=here, name="title"))
    assert not is_work(events.SessionEnded(position=here))
    assert not is_work(events.Usage(position=here, message="m"))
