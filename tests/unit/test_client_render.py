"""Answers as lines: what a tired person reads."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt import render
from ckpt.contract.methods import PlannedPath

_CONTROL = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))}


@given(st.text())
@settings(deadline=None)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not _CONTROL & set(render.plain(text))
    assert not (_CONTROL - {"\n", "\t"}) & set(render.block(text))
    assert not _CONTROL & set(render.one_line(text))


def test_an_escape_sequence_is_shown_not_obeyed() -> None:
    assert render.plain("a\x1b[31mred\u202egnp") == "a\\x1b[31mred\\u202egnp"


@given(
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)),  # noqa: DTZ001 - zones come below
    st.integers(-14 * 60, 14 * 60),
)
@settings(deadline=None)
def test_times_are_read_as_datetime_reads_them(moment: datetime, minutes: int) -> None:
    at = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert render.seconds(at.isoformat()) == pytest.approx(at.timestamp(), abs=1e-3)
    assert render.seconds(at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")) == int(at.timestamp())


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (0.2, "now"),
        (-3, "now"),
        (42, "42 s ago"),
        (180, "3 min ago"),
        (7300, "2 h ago"),
        (5 * 86400, "5 days ago"),
        (90 * 86400, "30 Nov 2026"),
    ],
)
def test_an_age_has_one_unit(passed: float, text: str) -> None:
    assert render.age("2026-11-30T12:00:00Z", render.seconds("2026-11-30T12:00:00Z") + passed) == text


def test_columns_are_cut_where_the_line_would_break() -> None:
    rows = [("a", "short", "x" * 100), ("longer", "b", "y")]
    assert render.columns(rows, 30) == ["a       short  " + "x" * 14 + "…", "longer  b      y"]
    assert render.columns(rows, None)[0].endswith("x" * 100)


def test_a_long_list_is_folded_and_says_how_many_more() -> None:
    lines = render.folded([str(n) for n in range(132)])
    assert len(lines) == 13
    assert lines[-1] == "  … and 120 more (--json lists all)"
    assert render.folded([str(n) for n in range(13)]) == [str(n) for n in range(13)]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (45 << 20, "45 MiB"), (3 << 40, "3072 GiB")]
)
def test_sizes_have_a_unit(count: int, text: str) -> None:
    assert render.size(count) == text


def test_the_home_folder_is_a_tilde() -> None:
    assert render.home("/home/me/shop", "/home/me") == "~/shop"
    assert render.home("/home/me", "/home/me/") == "/home/me"
    assert render.home("/home/meow/shop", "/home/me") == "/home/meow/shop"


def test_a_plan_names_what_is_restored_deleted_and_kept() -> None:
    def paths(*names: str) -> list[PlannedPath]:
        return [PlannedPath(path=name, why="because") for name in names]

    plan = render.methods.Plan(
        id="p", checkpoint="c", name="before", created_at="2026-11-30T22:19:00Z", root="/home/me/shop",
        restore=paths(*(f"f{n}" for n in range(132))), delete=paths("new"), keep=paths('"caf\\351"'), unchanged=1204,
        trigger="turn", head_moved=True, mass_delete=False, expires_at=None,
    )  # fmt: skip
    lines = render.plan(plan, render.seconds("2026-11-30T22:22:00Z"), 80, "/home/me")
    assert lines[0] == "from before (3 min ago) into ~/shop"
    assert "restore 132 files" in lines
    assert "  … and 120 more (--json lists all)" in lines
    assert lines[lines.index("delete 1 file") + 1] == "  new  because"
    assert lines[lines.index("keep 1 file") + 1] == '  "caf\\351"  because'
    assert "unchanged 1,204 files" in lines
    assert any("HEAD has moved" in line for line in lines)
