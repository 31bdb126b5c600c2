"""However a log comes in, its events are the same."""

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpointd.agents.tail import Tail
from checkpointd.model.events import Event
from support.logs import LOGS, adapter_for, drain


def whole(log: Path) -> list[Event]:
    return drain(Tail(log, adapter_for(log)))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
@given(data=st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_split_gives_the_same_events(tmp_path: Path, log: Path, data: st.DataObject) -> None:
    content = log.read_bytes()
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=6).map(sorted))
    limit = data.draw(st.integers(60, 5000))
    restart = data.draw(st.booleans())
    growing, adapter = tmp_path / log.name, adapter_for(log)
    growing.write_bytes(b"")
    tail, events = Tail(growing, adapter), []
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with growing.open("ab") as file:
            file.write(content[start:end])
        while (batch := tail.read(limit, now=0.0)).more:
            events += batch.events
        events += batch.events
        if restart:
            tail = Tail(growing, adapter, tail.cursor())
    assert events == whole(log)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_split_at_every_byte_of_the_end_gives_the_same_events(tmp_path: Path, log: Path) -> None:
    content = log.read_bytes()[-3000:]
    content = content[content.index(b"\n") + 1 :] if len(content) == 3000 else content
    growing, adapter = tmp_path / log.name, adapter_for(log)
    growing.write_bytes(content)
    expected = drain(Tail(growing, adapter))
    for cut in range(max(1, len(content) - 2048), len(content)):
        tail = Tail(growing, adapter)
        assert tail.read(cut, now=0.0).events + tail.read(now=0.0).events == expected, cut


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_damage_raises_nothing_and_loses_no_earlier_event(tmp_path: Path, log: Path) -> None:
    content, chance = log.read_bytes(), random.Random(log.name)
    damaged, adapter = tmp_path / log.name, adapter_for(log)
    expected = whole(log)
    for _ in range(25):
        at = chance.randrange(len(content))
        junk = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 40)))
        damaged.write_bytes(content[:at] + junk + content[at + chance.randrange(60) :])
        events = drain(Tail(damaged, adapter))
        start = content.rfind(b"\n", 0, at) + 1
        before = [event for event in expected if event.position.offset < start]
        assert events[: len(before)] == before
