"""The documents that a checkpoint's tree holds for programs: record.yaml and coverage.json."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from checkpointd.model.capture import Coverage, Skip, SkipReason
from checkpointd.model.checkpoint import CoverageCounts, Record
from checkpointd.model.paths import quote, unquote
from checkpointd.summaries import yamltext

RECORD_ORDER: tuple[str, ...] = (
    "id", "seq", "name", "title", "created_at", "source", "trigger", "also", "cause", "taken", "reason", "project",
    "git", "session", "turn", "feature", "platform", "story", "work_type", "files_changed", "files_changed_total",
    "session_files", "tests", "tasks", "undelivered", "note", "parent", "session_parent", "continued_from", "late",
    "lost", "restore", "tags", "coverage", "tree", "event", "schema",
)  # fmt: skip
"""The keys of record.yaml, in the order they are written in."""

# Stated even when they say nothing new: nobody should have to guess whether they were forgotten.
_ALWAYS = frozenset({"reason", "coverage", "event", "schema"})


class BadDocument(Exception):
    """A document cannot be read; the message names the place in it."""


class ParsedRecord(Struct, frozen=True, kw_only=True):
    """A record as read. `extras` are keys that this version does not know; writing it again keeps them."""

    record: Record
    extras: Mapping[str, Any]


def record_yaml(record: Record, extras: Mapping[str, Any] | None = None) -> bytes:
    """record.yaml of a record, with the unknown keys that it was read with."""
    known: dict[str, Any] = msgspec.to_builtins(record, builtin_types=(datetime,))
    ordered = {}
    for key in RECORD_ORDER:
        if key in known:
            ordered[key] = known[key]
        elif key in _ALWAYS:
            ordered[key] = msgspec.to_builtins(getattr(record, key))
    return yamltext.dump(_merged(ordered, extras) if extras else ordered)


def parse_record(data: bytes) -> ParsedRecord:
    """The record that record.yaml holds. Raises BadDocument."""
    try:
        raw = yaml.load(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe loaders
        record = msgspec.convert(raw, Record)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise BadDocument(f"record.yaml: {error}") from error
    return ParsedRecord(record=record, extras=_unknown(raw, record))


def _unknown(raw: Any, known: Any) -> dict[Any, Any]:
    """What of `raw` has no place in `known`: by key, and by index in lists."""
    if isinstance(known, tuple) and isinstance(raw, list):
        pairs = ((index, _unknown(item, known[index])) for index, item in enumerate(raw))
        return {index: extras for index, extras in pairs if extras}
    if not isinstance(known, Struct) or not isinstance(raw, dict):
        return {}
    extras = {}
    for key, item in raw.items():
        if key not in known.__struct_fields__:
            extras[key] = item
        elif deeper := _unknown(item, getattr(known, key)):
            extras[key] = deeper
    return extras


def _merged(known: Any, extras: Any) -> Any:
    if isinstance(known, list | tuple) and isinstance(extras, Mapping):
        return [_merged(item, extras[index]) if index in extras else item for index, item in enumerate(known)]
    if isinstance(known, dict) and isinstance(extras, Mapping):
        deeper = {key: _merged(item, extras[key]) if key in extras else item for key, item in known.items()}
        return deeper | {key: item for key, item in extras.items() if key not in known}
    return known


class _SkipEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    reason: SkipReason
    detail: str = ""
    folder: bool = False


class _CoverageFile(Struct, frozen=True, kw_only=True):
    captured: int = 0
    size: int = 0
    counts: dict[str, int] = {}
    rules: str = ""
    first_read: datetime | None = None
    last_read: datetime | None = None
    skipped: tuple[_SkipEntry, ...] = ()
    unobserved: tuple[str, ...] = ()


def coverage_counts(coverage: Coverage) -> CoverageCounts:
    """What the record says of the coverage: how much was captured, and how many paths were skipped for which reason."""
    skipped = Counter(skip.reason for skip in coverage.skipped)
    return CoverageCounts(captured=coverage.captured, size=coverage.size, skipped=dict(sorted(skipped.items())))


def coverage_json(coverage: Coverage) -> bytes:
    """coverage.json: the whole coverage, paths as records spell them."""
    skipped = tuple(
        _SkipEntry(path=quote(skip.path), reason=skip.reason, detail=skip.detail, folder=skip.folder)
        for skip in coverage.skipped
    )
    return msgspec.json.encode(
        _CoverageFile(
            captured=coverage.captured,
            size=coverage.size,
            counts=coverage_counts(coverage).skipped,
            rules=coverage.rules,
            first_read=coverage.first_read,
            last_read=coverage.last_read,
            skipped=skipped,
            unobserved=tuple(quote(path) for path in coverage.unobserved),
        )
    )


def parse_coverage(data: bytes) -> Coverage:
    """The coverage that coverage.json holds. Raises BadDocument."""
    try:
        read = msgspec.json.decode(data, type=_CoverageFile)
        return Coverage(
            captured=read.captured,
            size=read.size,
            skipped=tuple(
                Skip(path=unquote(skip.path), reason=skip.reason, detail=skip.detail, folder=skip.folder)
                for skip in read.skipped
            ),
            unobserved=tuple(unquote(path) for path in read.unobserved),
            rules=read.rules,
            first_read=read.first_read,
            last_read=read.last_read,
        )
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise BadDocument(f"coverage.json: {error}") from error
