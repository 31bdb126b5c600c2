"""The wire's shapes against the daemon's own: nothing of a record is lost on the way."""

import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.api import wire
from checkpointd.api.dispatch import Dispatcher
from checkpointd.api.handlers import Handlers
from checkpointd.model import checkpoint, paths
from ckpt.contract import methods, records
from ckpt.contract.paths import quote, unquote
from support.fake_operations import FakeOperations

_PAIRS = [
    (checkpoint.Cause, records.Cause),
    (checkpoint.ProjectRef, records.ProjectRef),
    (checkpoint.IndexEntry, records.IndexEntry),
    (checkpoint.GitState, records.GitState),
    (checkpoint.Tokens, records.Tokens),
    (checkpoint.SessionRef, records.SessionRef),
    (checkpoint.FileChange, records.FileChange),
    (checkpoint.GateState, records.GateState),
    (checkpoint.Task, records.Task),
    (checkpoint.Story, records.Story),
    (checkpoint.CoverageCounts, records.CoverageCounts),
    (checkpoint.Record, records.Record),
]


@pytest.mark.parametrize(("ours", "wired"), _PAIRS, ids=lambda kind: kind.__name__)
def test_a_record_has_the_same_fields_on_the_wire(ours: type[msgspec.Struct], wired: type) -> None:
    assert set(ours.__struct_fields__) == set(typing.get_type_hints(wired))


def test_a_record_goes_over_the_wire_whole() -> None:
    made = FakeOperations().records[0]
    assert msgspec.json.encode(wire.record(made)) == msgspec.json.encode(made)


def test_every_method_of_the_contract_has_a_handler() -> None:
    dispatcher = Dispatcher()
    Handlers(FakeOperations()).register(dispatcher)
    defined = {value.name for value in vars(methods).values() if isinstance(value, methods.Method)}
    assert dispatcher.methods == defined


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_both_sides_spell_paths_alike(path: bytes) -> None:
    assert quote(path) == paths.quote(path)
    assert unquote(quote(path)) == path


@given(st.text(max_size=30))
@settings(deadline=None)
def test_both_sides_read_paths_alike(text: str) -> None:
    def outcome(read: typing.Callable[[str], bytes]) -> bytes | str:
        try:
            return read(text)
        except ValueError:
            return "refused"

    assert outcome(unquote) == outcome(paths.unquote)
