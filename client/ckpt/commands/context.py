"""What every command works with: the environment, the terminal, the daemon, the scope."""

import os
import time
from collections.abc import Mapping

from ckpt import connection
from ckpt.contract.errors import CkptError
from ckpt.contract.paths import quote, unquote
from ckpt.terminal import Terminal


class Context:
    """One run of `ckpt`."""

    def __init__(self, env: Mapping[str, str], terminal: Terminal, *, project: str | None, everywhere: bool) -> None:
        self.env = env
        self.terminal = terminal
        self.project = project
        self.everywhere = everywhere
        self._daemon: connection.Connection | None = None

    @property
    def now(self) -> float:
        return time.time()

    @property
    def home(self) -> str | None:
        return self.env.get("HOME")

    def daemon(self, *, alarm: bool = True) -> connection.Connection:
        """The daemon, connected on first use. What it has to tell everybody is told once, if at all: `alarm`."""
        if self._daemon is None:
            self._daemon = connection.connect(self.env, self.terminal.note)
            if alarm and self._daemon.hello.get("alarm"):
                self.terminal.note(f"warning: {self._daemon.hello['alarm']}")
        return self._daemon

    def close(self) -> None:
        if self._daemon is not None:
            self._daemon.close()
            self._daemon = None

    @property
    def cwd(self) -> bytes:
        """The current directory, even when somebody deleted it: then the one that the shell remembers."""
        try:
            return os.getcwdb()
        except FileNotFoundError:
            remembered = os.fsencode(self.env.get("PWD", ""))
            if not remembered.startswith(b"/"):
                raise CkptError("usage", "The current directory is gone.", hint="Change to another one.") from None
            return os.path.normpath(remembered)

    @property
    def where(self) -> str:
        return quote(self.cwd)

    def path(self, argument: str) -> str:
        """A path of the command line as the daemon wants it: absolute, or relative to the root of `--project`."""
        try:
            raw = unquote(argument) if argument.startswith('"') else os.fsencode(argument)
        except ValueError as error:
            raise CkptError("usage", f"{error}.") from error
        if self.project is None or raw.startswith(b"/"):
            raw = os.path.join(self.cwd, raw)
        raw = os.path.normpath(raw)
        if raw.startswith(b".."):
            raise CkptError("usage", f"{argument} leads out of the project.")
        return quote(raw)

    def paths(self, arguments: list[str]) -> list[str]:
        """Several of them; the root itself means everything, so it is no path."""
        return [path for path in map(self.path, arguments) if path != "."]
