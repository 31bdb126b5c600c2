"""The error catalogue: complete, unambiguous, documented."""

import typing
from pathlib import Path

from ckpt.contract.errors import BY_NUMBER, CATALOGUE, CkptError, Code
from support.errors_document import document

_ROOT = Path(__file__).parents[2]


def test_every_code_has_an_entry_and_every_entry_a_code() -> None:
    assert set(typing.get_args(Code)) == set(CATALOGUE)


def test_numbers_are_unique() -> None:
    assert len(BY_NUMBER) == len(CATALOGUE)


def test_exit_statuses_are_those_of_the_command_line() -> None:
    assert {entry.exit_status for entry in CATALOGUE.values()} == {1, 2, 3, 4, 5, 6, 70}


def test_every_code_is_raised_somewhere() -> None:
    sources = [*(_ROOT / "client").rglob("*.py"), *(_ROOT / "daemon").rglob("*.py")]
    text = "".join(path.read_text() for path in sources if path.name != "errors.py" or path.parent.name == "engine")
    assert [code for code in CATALOGUE if f'"{code}"' not in text] == []


def test_the_document_is_made_from_the_table() -> None:
    assert (_ROOT / "docs/errors.md").read_text() == document(), (
        "run `python tests/support/errors_document.py > docs/errors.md`"
    )


def test_an_error_knows_its_exit_status() -> None:
    assert CkptError("not-found", "No checkpoint x.").exit_status == 3
