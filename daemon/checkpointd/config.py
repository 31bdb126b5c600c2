"""The user's settings: YAML in, one frozen Config out."""

import difflib
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Struct, field

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZES = {"": 1, "B": 1, "K": 1 << 10, "KiB": 1 << 10, "M": 1 << 20, "MiB": 1 << 20, "G": 1 << 30, "GiB": 1 << 30}


class Size(int):
    """Bytes; written as a number or as 20MiB, 10GiB."""


class ConfigError(Exception):
    """The file cannot be used; the message names the file and the place in it."""


class CaptureConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is captured, and how much of it."""

    max_file: Size = Size(20 << 20)
    max_tracked_file: Size = Size(100 << 20)
    max_folder_files: int = 2000
    max_folder_bytes: Size = Size(200 << 20)
    max_tree_files: int = 300_000
    max_tree_bytes: Size = Size(5 << 30)
    max_read_per_day: Size = Size(20 << 30)
    exclude: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    rest: timedelta = timedelta(milliseconds=150)
    longest_wait: timedelta = timedelta(seconds=1)


class SessionConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a session counts as over."""

    idle: timedelta = timedelta(minutes=15)
    idle_open_turn: timedelta = timedelta(hours=2)
    scheduled: timedelta = timedelta(seconds=60)
    keep_captured: timedelta = timedelta(days=14)


class RetentionConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept, and for how long."""

    everything: timedelta = timedelta(hours=48)
    max_bytes: Size = Size(10 << 30)
    free_fraction: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.05
    every: timedelta = timedelta(hours=1)


class AgentsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which agents are read, and what they may ask for."""

    disabled: list[str] = field(default_factory=list)
    may: list[str] = field(default_factory=list)


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a user can set; each default is the right one for most."""

    capture: CaptureConfig = CaptureConfig()
    session: SessionConfig = SessionConfig()
    retention: RetentionConfig = RetentionConfig()
    agents: AgentsConfig = AgentsConfig()
    paused: bool = False
    exclude_projects: list[str] = field(default_factory=list)


def span(text: str) -> timedelta:
    """The span that a text such as 30s, 10m, 12h or 7d names. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", text.strip())
    if not match:
        raise ValueError(f"expected a span such as 30s, 10m, 12h or 7d, got {text!r}")
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError as error:
        raise ValueError(f"{text} is too long a span") from error


def size(value: str | int) -> Size:
    """The bytes that 20MiB or a number name. Raises ValueError."""
    if isinstance(value, int):
        if value < 0:
            raise ValueError(f"expected a size, got {value}")
        return Size(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", value.strip())
    if not match or match[2] not in _SIZES:
        raise ValueError(f"expected a size such as 500MiB or 10GiB, got {value!r}")
    try:
        return Size(float(match[1]) * _SIZES[match[2]])
    except OverflowError as error:
        raise ValueError(f"{value} is too large a size") from error


def _decode(kind: type[Any], value: Any) -> Any:
    if kind is Size and isinstance(value, str | int) and not isinstance(value, bool):
        return size(value)
    raise TypeError(f"expected a {kind.__name__.lower()}, got {type(value).__name__}")


def _spans(value: Any, kind: type[Struct], place: str = "") -> Any:
    """Spans in YAML text become timedeltas before msgspec looks, since it would read them as ISO 8601."""
    if not isinstance(value, dict):
        return value
    out = {}
    known = {f.name: f.type for f in msgspec.structs.fields(kind)}
    for key, item in value.items():
        expected = known.get(key)
        if expected is timedelta and isinstance(item, str):
            try:
                out[key] = span(item)
            except ValueError as error:
                raise ValueError(f"{place}{key}: {error}") from error
        elif isinstance(expected, type) and issubclass(expected, Struct):
            out[key] = _spans(item, expected, f"{place}{key}.")
        else:
            out[key] = item
    return out


def parse(text: str, name: str) -> Config:
    """The config that a YAML text spells. Raises ConfigError that names `name` and the place."""
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none, and the like
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    if data is None:
        return Config()
    try:
        return msgspec.convert(_spans(data, Config), Config, dec_hook=_decode)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"{name}: {error}{_suggestion(str(error))}") from error


def _suggestion(message: str) -> str:
    match = re.search(r"unknown field `([^`]+)`", message)
    if not match:
        return ""
    names = [f.name for kind in (Config, CaptureConfig, SessionConfig, RetentionConfig, AgentsConfig)
             for f in msgspec.structs.fields(kind)]  # fmt: skip
    close = difflib.get_close_matches(match[1], names, n=1)
    return f" (did you mean `{close[0]}`?)" if close else ""


def load(path: Path) -> Config:
    """The config file at `path`; the defaults where there is none. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse(text, str(path))
