"""JSON records of logs: decoded fast when regular, rescued when not."""

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec import Raw, Struct

from checkpointd.agents.base import Counts
from checkpointd.model.events import Event, Position

T = TypeVar("T", bound=Struct)
P = TypeVar("P", bound=Struct)

# What a decoder or encoder raises for data that it cannot take; RecursionError for nesting without end.
_REFUSED = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_SURROGATE = re.compile("[\ud800-\udfff]")
_SCANNER = json.JSONDecoder(strict=False)
_RESCUE_ATTEMPTS = 200


class Part(Generic[P]):
    """A kind of object inside records, with its decoder."""

    def __init__(self, kind: type[P]) -> None:
        self.kind = kind
        self.decoder = msgspec.json.Decoder(kind)


class JsonParser(Generic[T]):
    """The part of a parser that is the same for all logs of JSON lines.

    A line is decoded as `record_type`. What does not fit is decoded without types, several objects glued on a line one
    by one, and fields of unexpected types are dropped: one surprising key never costs the record.
    """

    record_type: type[T]
    decoder: ClassVar[msgspec.json.Decoder[Any]]

    def __init__(self) -> None:
        self.counts = Counts()

    def feed(self, record: bytes, position: Position) -> list[Event]:
        """The events of one line."""
        try:
            decoded = self.decoder.decode(record)
        except _REFUSED:
            return self._rescue(record, position)
        self.counts.records += 1
        return self.events(decoded, record, position)

    def events(self, record: T, raw: bytes, position: Position) -> list[Event]:
        """The events of one record; `raw` is its JSON."""
        raise NotImplementedError

    def read_as(self, part: "Part[P]", raw: bytes | Raw, position: Position) -> P:
        """A part of a record, whatever is in it."""
        try:
            return part.decoder.decode(raw)
        except _REFUSED:
            self.counts.irregular.add(position)
        value = next((value for value, _ in objects(bytes(raw))), None)
        return salvage(value, part.kind)

    def _rescue(self, line: bytes, position: Position) -> list[Event]:
        found: list[Event] = []
        parts = list(objects(line)) or [(None, 0)]
        for value, start in parts:
            at = msgspec.structs.replace(position, offset=position.offset + start)
            if value is None:
                self.counts.undecodable.add(at)
                continue
            self.counts.records += 1
            encoded, record = self._reread(value, at)
            found += self.events(record, encoded, at)
        return found

    def _reread(self, value: dict[str, Any], position: Position) -> tuple[bytes, T]:
        try:
            encoded = msgspec.json.encode(value)
            return encoded, self.decoder.decode(encoded)
        except _REFUSED:
            self.counts.irregular.add(position)
            return b"{}", salvage(value, self.record_type)


def is_whole(line: bytes) -> bool:
    """Whether the line is complete JSON, so that it may be read without its newline."""
    try:
        json.loads(line.decode("utf-8", "surrogateescape"), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def objects(line: bytes) -> Iterator[tuple[Any, int]]:
    """The JSON objects of a line with their offsets in it; None for a stretch that is none.

    After such a stretch (a record torn by a crash, then a whole one) only an object that reaches the line's end is
    believed: what is found earlier may be a part of the torn one.
    """
    text = line.decode("utf-8", "surrogateescape")
    at, torn, attempts = 0, False, 0
    while True:
        start = text.find("{", at)
        if start < 0:
            if text[at:].strip("\0 \t\r\n") and not torn:
                yield None, at
            return
        if text[at:start].strip("\0 \t\r\n") and not torn:
            torn = True
            yield None, at
        try:
            value, end = _SCANNER.raw_decode(text, start)
        except (ValueError, RecursionError):
            value, end = None, start + 1
        if value is not None and (not torn or not text[end:].strip("\0 \t\r\n")):
            yield clean(value), len(text[:start].encode("utf-8", "surrogateescape"))
            at = end
            continue
        attempts += 1
        if not torn:
            torn = True
            yield None, start
        at = text.find('{"', start + 1)
        if at < 0 or attempts > _RESCUE_ATTEMPTS:
            return


def clean(value: Any) -> Any:
    """The value with lone surrogates and undecodable bytes replaced, so that it can be written again."""
    if isinstance(value, str):
        return _SURROGATE.sub("�", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


def salvage(value: Any, kind: type[T]) -> T:
    """As much of the value as fits into `kind`; every field of `kind` has a default."""
    kept: dict[str, Any] = {}
    if isinstance(value, dict):
        for known in msgspec.structs.fields(kind):
            if known.encode_name in value:
                fits, part = _fit(value[known.encode_name], known.type)
                if fits:
                    kept[known.name] = part
    return kind(**kept)


def _fit(value: Any, wanted: Any) -> tuple[bool, Any]:
    try:
        return True, msgspec.json.decode(msgspec.json.encode(value), type=wanted)
    except _REFUSED:
        pass
    for option in (wanted, *get_args(wanted)):
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, Struct):
            return True, salvage(value, option)
        if isinstance(value, list) and get_origin(option) is list:
            (item,) = get_args(option)
            fitted = [_fit(part, item) for part in value]
            return True, [part for fits, part in fitted if fits]
    return False, None
