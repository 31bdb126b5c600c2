"""What one command may destroy, and how several such answers become one."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

Label = Literal["destroys", "outside", "harmless", "unknown"]
Effect = Literal["deletes", "overwrites", "truncates", "moves-away", "cleans", "history", "leaves-tree"]


class Danger(Struct, frozen=True):
    """What a command line may destroy.

    `paths` are relative to the root, absolute or `~/` outside of it, "." for anything below the
    root; None where they depend on what the line does not show. () goes with history only.
    """

    label: Label
    effects: tuple[Effect, ...] = ()
    paths: tuple[str, ...] | None = ()


HARMLESS = Danger("harmless")
UNKNOWN = Danger("unknown", ("deletes",), None)


def destroys(effects: Iterable[Effect], paths: Iterable[str] | None) -> Danger:
    return Danger("destroys", tuple(effects), None if paths is None else tuple(paths))


def history(*more: Effect, paths: tuple[str, ...] = ()) -> Danger:
    return Danger("destroys", ("history", *more), paths)


def outside(*effects: Effect) -> Danger:
    return Danger("outside", effects or ("deletes",), ())


def combined(findings: Iterable[Danger]) -> Danger:
    """One answer for a line: the strongest label, with the effects and paths of its findings."""
    found = list(findings)
    for label in ("destroys", "unknown", "outside"):
        chosen = [finding for finding in found if finding.label == label]
        if not chosen:
            continue
        effects = tuple(dict.fromkeys(effect for finding in chosen for effect in finding.effects))
        known = [finding.paths for finding in chosen]
        if any(paths is None for paths in known):
            return Danger(chosen[0].label, effects, None)
        return Danger(chosen[0].label, effects, _outermost(path for paths in known if paths for path in paths))
    return HARMLESS


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths in order, each once, without what lies below the root where the root itself is among them."""
    unique = tuple(dict.fromkeys(paths))
    if "." not in unique:
        return unique
    return tuple(path for path in unique if path == "." or path.startswith(("/", "~")))
