"""The terminal: the answer to stdout, everything else to stderr."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from ckpt import render

_ANSI = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # how a shell says that there is no such program


class Terminal:
    """Where a command speaks. `json`: the answer is one JSON object instead of text for people."""

    def __init__(self, env: Mapping[str, str], *, as_json: bool, colour: bool) -> None:
        self.json = as_json
        self._env = env
        self._out, self._err = sys.stdout, sys.stderr
        for stream in (self._out, self._err):
            _never_fail(stream)
        self.shown = self._out.isatty()
        self._colour = colour and self.shown and "NO_COLOR" not in env and env.get("TERM") != "dumb"
        self._progressing = False

    @property
    def width(self) -> int | None:
        """Columns to keep to; None where nobody looks: then nothing is cut."""
        if not self.shown:
            return None
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except OSError:
            return 80

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_ANSI[style]}m{text}\x1b[0m" if self._colour else text

    def answer(self, reply: object, lines: Iterable[str], *, long: bool = False) -> None:
        """The command's answer, for programs or for people; `long` text goes to a pager where somebody looks."""
        self.clear_progress()
        if self.json:
            print(json.dumps(reply), file=self._out, flush=True)
        elif long and self.shown:
            self._page("\n".join(lines) + "\n")
        else:
            for line in lines:
                print(line, file=self._out)
            self._out.flush()

    def raw(self, data: bytes) -> None:
        """A captured file: its bytes, or, where somebody looks, its text without control characters."""
        if self.shown:
            self._page(render.block(data.decode("utf-8", "backslashreplace")))
        else:
            self._out.flush()
            self._out.buffer.write(data)
            self._out.buffer.flush()

    def note(self, text: str) -> None:
        """One line for the person, beside the answer."""
        self.clear_progress()
        print(f"ckpt: {render.plain(text)}", file=self._err, flush=True)

    def error(self, text: str) -> None:
        """What went wrong; may have lines below it, such as those of the daemon's log."""
        self.clear_progress()
        print(f"ckpt: {render.block(text)}", file=self._err, flush=True)

    def hint(self, text: str) -> None:
        self.clear_progress()
        print(f"hint: {render.plain(text)}", file=self._err, flush=True)

    def progress(self, stage: str, done: int, total: int | None) -> None:
        """How far long work is; only where somebody looks."""
        if not self._err.isatty():
            return
        of = f" of {total:,}" if total is not None else ""
        print(f"\r\x1b[K{render.plain(stage)}: {done:,}{of}", end="", file=self._err, flush=True)
        self._progressing = True

    def clear_progress(self) -> None:
        if self._progressing:
            print("\r\x1b[K", end="", file=self._err, flush=True)
            self._progressing = False

    @property
    def can_ask(self) -> bool:
        """Whether a person is there to read and to answer."""
        return not self.json and sys.stdin is not None and sys.stdin.isatty() and self._err.isatty()

    def ask(self, question: str) -> bool:
        """A yes, or anything else."""
        self.clear_progress()
        print(f"{render.plain(question)} [y/N] ", end="", file=self._err, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def _page(self, text: str) -> None:
        command = self._env.get("PAGER") or "less"
        if command == "cat" or text.count("\n") < _height(self._out):
            self._out.write(text)
            self._out.flush()
            return
        # Costs 10 ms to import; only long text on a terminal gets here.
        import subprocess

        env = {"LESS": "FRX", **self._env}
        try:
            # The user's own PAGER, which may hold options, as every program runs it.
            data = text.encode("utf-8", "backslashreplace")
            ran = subprocess.run(command, input=data, shell=True, env=env, check=False)  # noqa: S602
            missing = ran.returncode in (_NOT_EXECUTABLE, _NOT_FOUND)
        except OSError:
            missing = True
        if missing:
            self._out.write(text)
            self._out.flush()


def _height(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).lines
    except OSError:
        return 24


def _never_fail(stream: TextIO) -> None:
    """A name that the terminal's encoding lacks must not end a command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
