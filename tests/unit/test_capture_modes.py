"""modes.json: what a git tree cannot say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointd.model import modes

names = st.binary(min_size=1, max_size=20).filter(lambda name: b"\0" not in name)


@given(st.dictionaries(names, st.integers(0, 0o7777)), st.frozensets(names))
def test_every_name_comes_back(exceptions, empty):
    usual = modes.Usual(file=0o664, executable=0o775, folder=0o775)
    back = modes.decode(modes.encode(usual, exceptions, empty))
    assert (back.usual, back.exceptions, back.empty) == (usual, exceptions, empty)


def test_a_path_without_an_exception_has_the_usual_bits():
    read = modes.decode(modes.encode(modes.Usual(), {b"key": 0o600}, ()))
    assert read.permissions(b"key", 0o100644) == 0o600
    assert read.permissions(b"a", 0o100644) == 0o644
    assert read.permissions(b"run", 0o100755) == 0o755
    assert read.permissions(b"src", 0o040000) == 0o755


def test_bits_out_of_range_are_refused():
    with pytest.raises(ValueError, match="permission bits"):
        modes.decode(b'{"usual":{},"modes":{"a":"17777"},"empty":[]}')


def test_an_empty_document_says_nothing():
    assert modes.decode(b"") == modes.Modes()
