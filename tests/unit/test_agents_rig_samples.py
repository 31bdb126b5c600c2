"""The logs that real agents wrote in the rig: what happened there must be what is told."""

import os
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from checkpointd.agents.registry import adapter_named, discover
from checkpointd.agents.tail import Tail
from checkpointd.model.events import Event, SessionEnded, ToolCall, ToolResult, TurnEnded, UserTurn
from support.logs import drain, only

AGENTS = ("claude", "codex", "pi")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rig = os.environ.get("AGENT_RIG")
    if not rig:
        reason = "AGENT_RIG names no rig with samples of real logs"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("samples")
    with tarfile.open(Path(rig) / "samples/all.tar.xz") as archive:
        wanted = [member for member in archive.getmembers() if set(AGENTS) & set(Path(member.name).parts[:2])]
        archive.extractall(folder, members=wanted, filter="data")
    return folder


def events_in(samples: Path, agent: str, scenario: str) -> list[Event]:
    """The events of the one log of a run."""
    (home,) = samples.glob(f"**/{agent}/{scenario}")
    (log,) = discover({"HOME": str(home)})
    assert log.agent == agent
    tail = Tail(log.path, adapter_named(agent))
    events = drain(tail)
    counts = tail.counts
    assert counts.records > 0
    assert (counts.unknown, counts.irregular.count, counts.undecodable.count) == ({}, 0, 0)
    return events


GOLDEN = [
    # agent, scenario, shells, writes, results by outcome, turns ended, sessions ended
    ("claude", "feature", 2, 3, {"ok": 5}, 1, 1),
    ("claude", "feature-tui", 2, 3, {"ok": 5}, 1, 1),
    ("claude", "feature-kill", 1, 1, {"ok": 2}, 0, 0),  # killed before the third call was written
    ("claude", "failing-tests", 5, 5, {"ok": 5, "failed": 5}, 1, 1),
    ("claude", "destructive", 3, 1, {"ok": 4}, 1, 1),
    ("codex", "feature", 2, 3, {"ok": 5}, 1, 0),
    ("codex", "feature-gpt6", 2, 3, {"ok": 5}, 1, 0),
    ("codex", "feature-kill", 1, 2, {"ok": 3}, 0, 0),
    ("codex", "feature-tui-kill", 2, 3, {"ok": 5}, 1, 0),  # the daemon went on
    ("codex", "failing-tests", 5, 5, {"ok": 5, "failed": 5}, 1, 0),
    ("codex", "failing-tests-gpt6", 5, 5, {"ok": 5, "failed": 5}, 1, 0),
    ("codex", "destructive", 3, 1, {"ok": 3, "denied": 1}, 1, 0),
    ("pi", "feature", 2, 3, {"ok": 5}, 1, 0),
    ("pi", "feature-kill", 1, 2, {"ok": 3}, 0, 0),
    ("pi", "failing-tests", 5, 5, {"ok": 5, "failed": 5}, 1, 0),
    ("pi", "destructive", 3, 1, {"ok": 4}, 1, 0),
]


@pytest.mark.parametrize(("agent", "scenario", "shells", "writes", "outcomes", "turns", "ends"), GOLDEN)
def test_a_run_is_told_as_it_was(
    samples: Path,
    agent: str,
    scenario: str,
    shells: int,
    writes: int,
    outcomes: dict[str, int],
    turns: int,
    ends: int,
) -> None:
    events = events_in(samples, agent, scenario)
    kinds = Counter(call.kind for call in only(events, ToolCall))
    assert (kinds["shell"], kinds["write"]) == (shells, writes)
    assert Counter(end.outcome for end in only(events, ToolResult)) == outcomes
    assert len(only(events, UserTurn)) == 1
    assert len(only(events, TurnEnded)) == turns
    assert len(only(events, SessionEnded)) == ends


@pytest.mark.parametrize("agent", AGENTS)
def test_destructive_commands_are_told_word_for_word(samples: Path, agent: str) -> None:
    commands = [call.command for call in only(events_in(samples, agent, "destructive"), ToolCall) if call.command]
    assert commands == ["rm -rf src", "git reset --hard", "git clean -fd && git status --short"]


@pytest.mark.parametrize("agent", AGENTS)
def test_failures_have_their_exit_codes(samples: Path, agent: str) -> None:
    events = events_in(samples, agent, "failing-tests")
    codes = [end.exit_code for end in only(events, ToolResult) if end.outcome == "failed"]
    assert codes == [1, 1, 1, 1, 3]
