"""Telling without a git child that no ignore rule can hold for a path.

A pattern matches text, so every run of plain characters in it is found in each path that it matches. Where no pattern
in force has all its runs in a path, the path is not ignored. For anything else git is asked: it alone knows its rules.
"""

import functools
import re
from collections.abc import Iterable

_KEPT = 256  # rule files whose patterns stay parsed
_SPECIAL = re.compile(rb"\\.?|[*?/]+", re.DOTALL)


def surely_kept(path: bytes, rules: Iterable[bytes]) -> bool:
    """Whether none of the patterns in these rule files can match a path, or a folder above it."""
    for text in rules:
        for runs in _patterns(text):
            if all(run in path for run in runs):
                return False
    return True


@functools.lru_cache(maxsize=_KEPT)
def _patterns(text: bytes) -> tuple[tuple[bytes, ...], ...]:
    """The plain runs of every pattern that leaves something out."""
    found = []
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        line = line.removesuffix(b"\r")
        if line and line[:1] not in (b"#", b"!"):
            found.append(_runs(line))
    return tuple(dict.fromkeys(found))


def _runs(pattern: bytes) -> tuple[bytes, ...]:
    # What stands in brackets, and after them, is left to git: fewer runs only mean asking more often. The same goes for
    # blanks at the end, of which git drops some.
    plain = pattern.partition(b"[")[0].rstrip()
    return tuple(sorted({run for run in _SPECIAL.split(plain) if run}, key=len, reverse=True))
