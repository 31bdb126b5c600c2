"""What differs between two states, for people: changes, line counts, patches."""

import difflib
from collections.abc import Collection, Sequence

from checkpointd.engine.answers import Difference
from checkpointd.model import lines
from checkpointd.model.paths import quote
from checkpointd.vault.store import Vault
from checkpointd.vault.trees import TreeDifference

_PATCHES = 4 << 20
_PATCHED_FILE = 1 << 20


def compared(vault: Vault, old: str | None, new: str, paths: Collection[bytes], *, patch: bool) -> list[Difference]:
    """The paths that differ, sorted; only `paths` and what is below them where any are given.

    Blocks: runs in a worker. Patches are made until 4 MiB of them are there. Raises StoreError.
    """
    found = []
    room = _PATCHES if patch else 0
    for difference in vault.diff(old, new):
        if paths and not any(difference.path == path or difference.path.startswith(path + b"/") for path in paths):
            continue
        before = vault.read_blob(difference.old[1]) if difference.old is not None else None
        after = vault.read_blob(difference.new[1]) if difference.new is not None else None
        counted = lines.count(before, after)
        text = unified(difference, before, after) if room > 0 and counted is not None else None
        room -= len(text or "")
        found.append(
            Difference(
                path=difference.path,
                change="add" if difference.old is None else "delete" if difference.new is None else "modify",
                added=counted[0] if counted else None,
                removed=counted[1] if counted else None,
                patch=text,
            )
        )
    return found


def unified(difference: TreeDifference, before: bytes | None, after: bytes | None) -> str | None:
    """A unified diff of one path; None where it is too large to compare."""
    if len(before or b"") > _PATCHED_FILE or len(after or b"") > _PATCHED_FILE:
        return None
    name = quote(difference.path)
    made = difflib.unified_diff(
        _lines(before), _lines(after),
        fromfile=f"a/{name}" if before is not None else "/dev/null",
        tofile=f"b/{name}" if after is not None else "/dev/null",
    )  # fmt: skip
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in made)


def _lines(content: bytes | None) -> Sequence[str]:
    # Not splitlines: a form feed or a line separator ends no line of a patch.
    text = (content or b"").decode("utf-8", "replace")
    return [line + "\n" for line in text.split("\n")[:-1]] + [last for last in (text.rpartition("\n")[2],) if last]
