"""docs/errors.md from the contract's table: `python tests/support/errors_document.py > docs/errors.md`."""

import sys

from ckpt.contract.errors import CATALOGUE

_HEAD = """\
# Errors

Made from `client/ckpt/contract/errors.py`; a test compares them. `ckpt` prints what happened and a `hint:`; with
`--json` it prints `{"error": {"code", "message", "hint"}}` as well. On the wire an error is that of JSON-RPC 2.0: the
number is its `code`, the word is `data.code`, the way out `data.hint`.

| code | number | exit status | meaning | way out |
| --- | --- | --- | --- | --- |
"""
_TAIL = """
Exit status 0 is done, 130 interrupted, 141 that the reader of a pipe went away.
"""


def document() -> str:
    rows = (
        f"| `{code}` | {entry.number} | {entry.exit_status} | {entry.meaning} | {entry.way_out} |\n"
        for code, entry in sorted(CATALOGUE.items(), key=lambda item: (item[1].exit_status, -item[1].number))
    )
    return _HEAD + "".join(rows) + _TAIL


if __name__ == "__main__":
    sys.stdout.write(document())
