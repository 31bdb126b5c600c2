"""One command about to run: its words after expansion, and what it would take from the files it names."""

from collections.abc import Callable, Iterable, Sequence
from posixpath import basename, dirname

from msgspec import Struct

from checkpointd.model.danger.findings import Danger, Effect, destroys
from checkpointd.model.danger.scene import UNKNOWN_PIECE, Scene

_EVERYTHING = frozenset({"*", ".*", "**", ".[!.]*", ".[^.]*", "..?*", "*.*", "**/*", "{*,.*}"})


class Value(Struct, frozen=True):
    """A word after expansion. Pieces that are not known are UNKNOWN_PIECE in `text`."""

    text: str
    known: bool = True
    glob: bool = False


UNKNOWN_VALUE = Value(UNKNOWN_PIECE, known=False)


class Stdin(Struct, frozen=True):
    """What a command reads: its text where the line shows it, and the paths a finder upstream prints."""

    text: str | None = None
    items: tuple[Value, ...] = (UNKNOWN_VALUE,)


class Call(Struct, frozen=True):
    """`cwd` is None where the line does not show it; `shell` and `program` judge further source text."""

    name: str
    args: tuple[Value, ...]
    cwd: str | None
    scene: Scene
    shell: Callable[[str], list[Danger]]
    again: Callable[[Sequence[Value], Stdin | None], list[Danger]]
    stdin: Stdin | None = None
    upstream: bool = False

    @property
    def texts(self) -> list[str]:
        return [value.text for value in self.args]

    def has(self, *names: str) -> bool:
        return any(text in names for text in self.texts)

    def lost(self, values: Iterable[Value], *effects: Effect) -> list[Danger]:
        """What is gone when the files that the values name are gone."""
        return [finding for value in values for finding in self._lost(value, effects)]

    def written(self, values: Iterable[Value], *effects: Effect) -> list[Danger]:
        """What is gone when the files that the values name are replaced; nothing where they are new."""
        found: list[Danger] = []
        for value in values:
            path = self.path(value)
            if path is None:
                found += self._lost(value, effects) if self.scene.speaks_of_work() else []
            elif not self.scene.is_present(path):
                self.scene.created.add(path)
            else:
                found += self._lost(value, effects)
        return found

    def path(self, value: Value) -> str | None:
        """A value as a path; None where that is not known."""
        if not value.known or value.glob:
            return None
        if self.cwd is None and not value.text.startswith(("/", "~")):
            return None
        return self.scene.path(value.text, self.cwd or "/")

    def _lost(self, value: Value, effects: tuple[Effect, ...]) -> list[Danger]:
        if not value.text:
            return []
        path = self.path(value)
        if path is not None:
            if not self.scene.is_worth(path) or path in self.scene.created:
                return []
            return [self._loss(path, effects)]
        shown = self.scene.path(value.text, self.cwd or "/" + UNKNOWN_PIECE)
        if value.glob and value.known and basename(value.text) in _EVERYTHING and self.cwd is not None:
            folder = dirname(value.text) or "."
            if not any(c in folder for c in "*?["):
                path = self.scene.path(folder, self.cwd)
                return [self._loss(path, effects)] if self.scene.is_worth(path) else []
        if not self.scene.is_worth(shown) or (self.cwd is None and self.scene.is_scratch(value.text)):
            return []
        return [destroys(effects, None)]

    def _loss(self, path: str, effects: tuple[Effect, ...]) -> Danger:
        more: list[Effect] = list(effects)
        if path == ".git" or path.endswith("/.git"):
            more.append("history")
        if self.scene.is_outside(path):
            more.append("leaves-tree")
        return destroys(more, (path,))


class Options(Struct, frozen=True):
    """Arguments taken apart: flags without their dashes, the values of those that take one, and the rest."""

    flags: frozenset[str]
    values: dict[str, list[Value]]
    operands: list[Value]

    def has(self, *names: str) -> bool:
        return any(name in self.flags for name in names)


def options(args: Sequence[Value], valued: str = "", *, stop: bool = False) -> Options:
    """Takes arguments apart. `valued`: names (no dashes, a blank between) that take a value; `stop`: at an operand."""
    takes = frozenset(valued.split())
    flags: set[str] = set()
    values: dict[str, list[Value]] = {}
    operands: list[Value] = []
    index = 0
    while index < len(args):
        value = args[index]
        text = value.text
        index += 1
        if text == "--":
            operands += args[index:]
            break
        if text.startswith("--"):
            name, equals, given = text[2:].partition("=")
            flags.add(name)
            if equals:
                values.setdefault(name, []).append(Value(given, value.known, value.glob))
            elif name in takes and index < len(args):
                values.setdefault(name, []).append(args[index])
                index += 1
        elif text.startswith("-") and len(text) > 1:
            index = _cluster(value, takes, args, index, flags, values)
        else:
            operands.append(value)
            if stop:
                operands += args[index:]
                break
    return Options(frozenset(flags), values, operands)


def _cluster(
    value: Value,
    takes: frozenset[str],
    args: Sequence[Value],
    index: int,
    flags: set[str],
    values: dict[str, list[Value]],
) -> int:
    """`-rf`, `-n10`, `-o file` and single-dash long options such as `-delete`."""
    text = value.text[1:]
    flags.add(text)
    if text in takes and len(text) > 1:
        if index < len(args):
            values.setdefault(text, []).append(args[index])
        return index + 1
    for at, letter in enumerate(text):
        flags.add(letter)
        if letter in takes:
            rest = text[at + 1 :]
            if rest:
                values.setdefault(letter, []).append(Value(rest, value.known, value.glob))
            elif index < len(args):
                values.setdefault(letter, []).append(args[index])
                return index + 1
            break
    return index
