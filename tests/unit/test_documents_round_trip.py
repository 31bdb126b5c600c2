"""Documents are read as they were written, and keep what they do not know."""

from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model.capture import Coverage, Skip
from checkpointd.model.checkpoint import (
    Cause,
    CoverageCounts,
    FileChange,
    GateState,
    GitState,
    IndexEntry,
    ProjectRef,
    Record,
    SessionRef,
    Story,
    Task,
    Tokens,
)
from checkpointd.summaries.documents import (
    RECORD_ORDER,
    BadDocument,
    coverage_counts,
    coverage_json,
    parse_coverage,
    parse_record,
    record_yaml,
)

NOON = datetime(2026, 11, 30, 12, 0, 0, 250000, tzinfo=UTC)


def full_record() -> Record:
    return Record(
        id="ckpt-20261130-120000-0a1b2c3d",
        seq=7,
        name="2026-11-30-1200",
        title="yes: the parser — über alles",
        created_at=NOON,
        source="checkpointd:repeated-failure",
        trigger="repeated-failure",
        also=("turn",),
        cause=Cause(worktree="w1", agent="claude", session="s1", trigger="repeated-failure", position="0:120"),
        taken="rolling",
        reason='pytest failed 3 times: "E assert 1 == 2"',
        project=ProjectRef(id="p1", root="/home/u/p", name="p", kind="git", worktree="w1", user="u", host="h"),
        git=GitState(
            branch="main",
            head="1" * 40,
            state="merging",
            index=(IndexEntry(path='"caf\\351.txt"', mode="100644", blob="2" * 40, stage=2),),
            branches={"main": "1" * 40, "on": "3" * 40},
        ),
        session=SessionRef(
            agent="claude", id="s1", started_at=NOON, turns=3, tokens=Tokens(input=5, output=6), cost_usd=0.25
        ),
        turn=3,
        feature="F-012",
        story=Story(us_id="US-1", stage="green"),
        work_type="debugging",
        files_changed=(
            FileChange(path="src/a.py", change="modify", added=3, removed=1, session="s1", certainty="certain"),
        ),
        files_changed_total=1,
        session_files=("src/a.py",),
        tests=(GateState(gate="pytest", command="pytest -q", colour="red", at=NOON, failing=("t.py::x",)),),
        tasks=(Task(id="1", text="write it", state="doing"),),
        undelivered=("and then\nmore",),
        note={"pending": "review", "context": "null"},
        parent="ckpt-20261130-115900-00000001",
        tags=("1e5", "~"),
        coverage=CoverageCounts(captured=10, size=2048, skipped={"ignored": 2}),
        tree="4" * 40,
        event="5" * 64,
    )


def test_a_record_comes_back_whole() -> None:
    record = full_record()
    parsed = parse_record(record_yaml(record))
    assert parsed.record == record
    assert parsed.extras == {}


def test_keys_stand_in_their_order_and_every_field_has_a_place() -> None:
    keys = list(yaml.safe_load(record_yaml(full_record())))
    assert keys == [key for key in RECORD_ORDER if key in keys]
    assert set(RECORD_ORDER) == set(Record.__struct_fields__)


def test_what_must_be_stated_is_stated_though_it_says_nothing() -> None:
    record = full_record()
    needed = ["id", "seq", "name", "title", "created_at", "source", "trigger", "cause", "reason", "project", "tree"]
    bare = Record(**{name: getattr(record, name) for name in needed})
    written = yaml.safe_load(record_yaml(bare))
    assert written["schema"] == 1
    assert written["coverage"] == {}
    assert parse_record(record_yaml(bare)).record == bare


def test_times_have_an_offset() -> None:
    assert b"created_at: 2026-11-30T12:00:00.250000+00:00\n" in record_yaml(full_record())


def test_unknown_keys_are_kept_wherever_they_stand() -> None:
    data = yaml.safe_load(record_yaml(full_record()))
    data["mood"] = {"of": ["the", "day"]}
    data["git"]["submodules"] = 3
    data["files_changed"][0]["seam"] = "public"
    parsed = parse_record(yaml.safe_dump(data).encode())
    again = yaml.safe_load(record_yaml(parsed.record, parsed.extras))
    assert again["mood"] == {"of": ["the", "day"]}
    assert again["git"]["submodules"] == 3
    assert again["files_changed"][0]["seam"] == "public"
    assert parse_record(record_yaml(parsed.record, parsed.extras)) == parsed


@pytest.mark.parametrize("data", [b"", b"[1", b"a: b", b"\xff\xfe", b"- 1", b"id: [" + b"[" * 5000])
def test_what_is_no_record_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(BadDocument, match=r"record\.yaml"):
        parse_record(data)


def test_a_value_of_the_wrong_type_is_named() -> None:
    with pytest.raises(BadDocument, match=r"\$\.seq"):
        parse_record(record_yaml(full_record()).replace(b"seq: 7", b"seq: seven"))


_paths = st.binary(min_size=1, max_size=8).filter(lambda path: not path.startswith(b"/"))
_skips = st.builds(
    Skip,
    path=_paths,
    reason=st.sampled_from(["ignored", "too-large", "torn"]),
    detail=st.text(max_size=5).filter(str.isprintable),
    folder=st.booleans(),
)


@settings(deadline=None, max_examples=100)
@given(st.lists(_skips, max_size=4), st.lists(_paths, max_size=3))
def test_a_coverage_comes_back_whole(skipped: list[Skip], unobserved: list[bytes]) -> None:
    coverage = Coverage(
        captured=3,
        size=9,
        skipped=tuple(skipped),
        unobserved=tuple(unobserved),
        rules="r",
        first_read=NOON,
        last_read=NOON,
    )
    assert parse_coverage(coverage_json(coverage)) == coverage


def test_skips_are_counted_by_reason() -> None:
    skipped = tuple(
        Skip(path=name, reason=reason) for name, reason in ((b"a", "torn"), (b"b", "ignored"), (b"c", "torn"))
    )
    assert coverage_counts(Coverage(captured=1, size=2, skipped=skipped)).skipped == {"ignored": 1, "torn": 2}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"skipped":[{"path":"\\"x","reason":"torn"}]}'])
def test_what_is_no_coverage_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(BadDocument, match=r"coverage\.json"):
        parse_coverage(data)
