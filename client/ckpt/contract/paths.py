"""Paths on the wire: UTF-8 as it is, everything else in git's C-quoted form.

The daemon's model has the same two functions; a test keeps them equal. The client may not import the model.
"""

_ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}
_UNESCAPES = {letter: byte for byte, letter in _ESCAPES.items()}


def quote(path: bytes) -> str:
    """The text of a raw path."""
    try:
        text = path.decode("utf-8")
    except UnicodeDecodeError:
        return _c_quoted(path)
    if text.startswith('"') or any(ord(c) < 32 or ord(c) == 127 for c in text):
        return _c_quoted(path)
    return text


def _c_quoted(path: bytes) -> str:
    parts = ['"']
    for byte in path:
        if byte in _ESCAPES:
            parts.append("\\" + _ESCAPES[byte])
        elif 32 <= byte < 127:
            parts.append(chr(byte))
        else:
            parts.append(f"\\{byte:03o}")
    parts.append('"')
    return "".join(parts)


def unquote(text: str) -> bytes:
    """The raw path of a text made by `quote`. Raises ValueError on a broken quotation."""
    if not text.startswith('"'):
        return text.encode("utf-8", "surrogateescape")
    if len(text) < 2 or not text.endswith('"'):
        raise ValueError(f"unterminated quotation in path {text!r}")
    out = bytearray()
    body, i = text[1:-1], 0
    while i < len(body):
        char = body[i]
        if char != "\\":
            out += char.encode("utf-8")
            i += 1
            continue
        following = body[i + 1 : i + 2]
        if following in _UNESCAPES:
            out.append(_UNESCAPES[following])
            i += 2
        elif len(digits := body[i + 1 : i + 4]) == 3 and all(d in "01234567" for d in digits):
            out.append(int(digits, 8) & 0xFF)
            i += 4
        else:
            raise ValueError(f"unknown escape in path {text!r}")
    return bytes(out)
