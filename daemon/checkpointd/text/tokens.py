"""An estimate of how many tokens a model would count in a text.

No tokenizer is at hand, and each model has its own; what is needed is a budget that errs a
little on the high side and does not depend on the machine. Rules of thumb, added up:

- a run of ASCII letters is one token for each six letters begun;
- a run of digits is one for each three begun;
- a mark is one each, but a run of the same mark (`=====`) is one for each eight begun;
- a line end is one, blanks are free (they ride with the word that follows), but a run of more
  than two costs one for each eight begun;
- other alphabets (accents, Greek, Cyrillic, Arabic, ...) are one for each two letters begun;
- Chinese, Japanese and Korean are one for each character, emoji and the rest two.

Appending text never lowers the estimate.
"""

import re

_RUN = re.compile(
    r"(?P<letters>[A-Za-z]+)|(?P<digits>[0-9]+)|(?P<line>\n)|(?P<blanks>[ \t\r\f\v]+)|(?P<mark>([!-/:-@\[-`{-~])\6*)"
    r"|(?P<wide>[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff])"
    r"|(?P<other>[\u00a0-\u10ff\u1200-\u1fff]+)|(?P<rest>.)",
    re.DOTALL,
)


def estimate(text: str) -> int:
    """How many tokens the text is worth: the same on every machine, 0 for no text."""
    return sum(_cost(match) for match in _RUN.finditer(text))


def _cost(match: re.Match[str]) -> int:
    length = match.end() - match.start()
    match match.lastgroup:
        case "letters":
            return -(-length // 6)
        case "digits":
            return -(-length // 3)
        case "blanks":
            return 0 if length <= 2 else -(-length // 8)
        case "other":
            return -(-length // 2)
        case "rest":
            return 2
        case "line" | "wide":
            return 1
        case _:
            return -(-length // 8)  # a run of one mark
