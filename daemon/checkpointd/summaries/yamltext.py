"""Writing YAML: plain data in, block style out.

PyYAML's emitter costs 15 µs a value, and a record with many files has thousands; records are written while an agent
works. What is written here is read back by PyYAML (the tests compare), and by people.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

# Plain only where no reader of YAML 1.1 or 1.2 could take it for anything but this text.
_PLAIN = re.compile(r"[A-Za-z_/](?:[A-Za-z0-9_./@+=(),-]|:(?=[A-Za-z0-9_./-])| (?=[A-Za-z0-9_./@+=(),-]))*")
_RESERVED = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_UNPRINTABLE = re.compile(r'[^\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029"\\]')
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0", "\x1b": "\\e", '"': '\\"', "\\": "\\\\"}


def dump(value: Mapping[str, object]) -> bytes:
    """The YAML text of a mapping: keys in their order, times as timestamps with offset."""
    lines: list[str] = []
    _mapping(value, "", lines)
    lines.append("")
    return "\n".join(lines).encode()


def _mapping(value: Mapping[str, object], indent: str, lines: list[str]) -> None:
    deeper = indent + "  "
    for key, item in value.items():
        name = f"{indent}{scalar(key)}:"
        if isinstance(item, Mapping) and item:
            lines.append(name)
            _mapping(item, deeper, lines)
        elif isinstance(item, list | tuple) and item:
            lines.append(name)
            _sequence(item, deeper, lines)
        else:
            lines.append(f"{name} {scalar(item)}")


def _sequence(value: Sequence[object], indent: str, lines: list[str]) -> None:
    for item in value:
        if isinstance(item, Mapping | list | tuple) and item:
            start = len(lines)
            if isinstance(item, Mapping):
                _mapping(item, indent + "  ", lines)
            else:
                _sequence(item, indent + "  ", lines)
            lines[start] = f"{indent}- {lines[start][len(indent) + 2 :]}"
        else:
            lines.append(f"{indent}- {scalar(item)}")


def scalar(value: object) -> str:
    """One value on one line."""
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    if isinstance(value, float):
        return _number(value)
    return str(value)


@lru_cache(4096)
def _text(value: str) -> str:
    # Cached: keys and words such as "modify" come back thousands of times.
    if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED:
        return value
    return _quoted(value)


def _number(value: float) -> str:
    text = repr(value)
    if text in ("inf", "-inf", "nan"):
        return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}[text]
    # 1e-05 is a text to YAML 1.1, which wants a point and a sign.
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _quoted(text: str) -> str:
    if text.isprintable() and text.isascii():
        return msgspec.json.encode(text).decode()
    return '"' + _UNPRINTABLE.sub(_escaped, text) + '"'


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    if 0xD800 <= code <= 0xDFFF:
        return "\\uFFFD"  # half a character, as agents' logs hold them; no text can
    if code < 0x100:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
