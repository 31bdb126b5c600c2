"""Transcripts: `$ command` and the lines it prints, run and compared.

In an expected line `…` stands for any text. A line `? N` after a command is its exit status where it is not 0;
lines with `! ` are on stderr.
"""

import fnmatch
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

Run = Callable[[list[str]], "subprocess.CompletedProcess[str]"]


def play(transcript: Path, run: Run) -> None:
    """Runs every command of a transcript with `run` and fails where it prints something else."""
    for command, expected in _steps(transcript.read_text()):
        done = run(shlex.split(command))
        printed = done.stdout.splitlines() + [f"! {line}" for line in done.stderr.splitlines()]
        printed += [f"? {done.returncode}"] if done.returncode else []
        while expected and not expected[-1]:
            expected.pop()
        shown = "\n".join(printed)
        assert len(printed) == len(expected), f"$ {command}\n{shown}"
        for line, pattern in zip(printed, expected, strict=True):
            assert _matches(line, pattern), f"$ {command}\n{shown}\n\nexpected: {pattern}\ngot:      {line}"


def _steps(text: str) -> Iterator[tuple[str, list[str]]]:
    command, expected = "", []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], []
        elif command:
            expected.append(line)
    yield command, expected


def _matches(line: str, pattern: str) -> bool:
    escaped = pattern.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]").replace("…", "*")
    return fnmatch.fnmatchcase(line, escaped)
