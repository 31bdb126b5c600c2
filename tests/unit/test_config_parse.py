"""The user's settings: what can be written, and what a mistake is told as."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.config import Config, ConfigError, Size, load, parse, size, span


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("150ms", timedelta(milliseconds=150)),
        ("1.5h", timedelta(minutes=90)),
        (" 7d ", timedelta(days=7)),
        ("2w", timedelta(days=14)),
        ("0s", timedelta()),
    ],
)
def test_spans(text: str, expected: timedelta) -> None:
    assert span(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "5", "-5s", "5 s", "5S", "PT5M", "1e3s", f"{'9' * 30}w", f"{'9' * 400}s"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(ValueError, match="span"):
        span(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (1024, 1024), ("20MiB", 20 << 20), ("1.5 GiB", 3 << 29), ("10K", 10240), ("7", 7), ("7B", 7)],
)
def test_sizes(value: str | int, expected: int) -> None:
    assert size(value) == expected


@pytest.mark.parametrize("value", ["", "many", "-1", -1, "1TB", "1e9", "MiB", f"{'9' * 400}G"])
def test_what_is_no_size(value: str | int) -> None:
    with pytest.raises(ValueError, match="size"):
        size(value)


def test_no_file_and_an_empty_one_are_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path / "config.yaml") == Config()
    (tmp_path / "config.yaml").write_text("# nothing set\n")
    assert load(tmp_path / "config.yaml") == Config()


def test_what_is_set_is_set_and_the_rest_stays() -> None:
    found = parse("session: {idle: 5m}\ncapture:\n  max_file: 1MiB\n  exclude: [data/]\npaused: true\n", "f")
    assert found.session.idle == timedelta(minutes=5)
    assert found.session.idle_open_turn == Config().session.idle_open_turn
    assert found.capture.max_file == Size(1 << 20)
    assert found.capture.exclude == ["data/"]
    assert found.paused


def test_the_readmes_example_is_understood() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    example = readme.partition("```yaml\n")[2].partition("```")[0]
    found = parse(example, "README.md")
    assert found.capture.include == ["build/report/"]
    assert found.agents.may == ["restore"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pausd: true", "did you mean `paused`"),
        ("capture: {max_files: 1}", "did you mean `max_file`"),
        ("agents: {disabled: pi}", "$.agents.disabled"),
        ("session: {idle: soon}", "session.idle: expected a span"),
        ("session: {idle: 15}", "$.session.idle"),
        ("capture: {max_file: many}", "$.capture.max_file"),
        ("capture: {max_file: [1]}", "$.capture.max_file"),
        ("capture: {max_file: true}", "$.capture.max_file"),
        ("capture: {max_file: 1.5}", "$.capture.max_file"),
        ("capture: 5", "$.capture"),
        ("retention: {max_bytes: -1}", "$.retention.max_bytes"),
        ("retention: {free_fraction: 5}", "$.retention.free_fraction"),
        ("paused: 2001-99-99", "not valid YAML"),
        ("a: b: c", "not valid YAML"),
        ("[" * 5000, "not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("1: 2", "f: "),
        ("? [a]\n: b", "f: "),
        ("- 1", "f: "),
        ("text", "f: "),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    assert str(caught.value).startswith("f: ")
    assert told in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="folder"):
        load(tmp_path / "folder")
    (tmp_path / "latin").write_bytes(b"paused: \xe9\n")
    with pytest.raises(ConfigError, match="latin"):
        load(tmp_path / "latin")
    os.symlink("loop", tmp_path / "loop")
    with pytest.raises(ConfigError, match="loop"):
        load(tmp_path / "loop")


_KEYS = st.sampled_from(
    ["capture", "session", "retention", "agents", "paused", "exclude_projects", "idle", "max_file", "disabled", "x", 1]
)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["5m", "1GiB"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(_VALUES)
@settings(deadline=None, max_examples=200)
def test_any_yaml_is_a_config_or_a_config_error(value: object) -> None:
    try:
        parse(yaml.safe_dump(value, allow_unicode=True), "f")
    except ConfigError as error:
        assert str(error).startswith("f: ")


@given(st.text(max_size=40))
@settings(deadline=None, max_examples=200)
def test_any_text_is_a_config_or_a_config_error(text: str) -> None:
    try:
        parse(text, "f")
    except ConfigError as error:
        assert str(error).startswith("f: ")
