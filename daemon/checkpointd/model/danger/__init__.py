"""What a shell command line may destroy, read from its tree and never by text search."""

from collections.abc import Callable

from checkpointd.model.danger import powershell
from checkpointd.model.danger.findings import Danger, combined
from checkpointd.model.danger.scene import Scene
from checkpointd.model.danger.walk import Walker
from checkpointd.model.shell import parse

__all__ = ["Danger", "assess"]

_LONGEST = 200_000


def assess(command: str, cwd: str, root: str, context: str = "", exists: Callable[[str], bool] | None = None) -> Danger:
    """What the command line may destroy when it runs in `cwd`, for the project at `root`.

    `context` is free text about the files, where there is any. `exists` is asked about the targets of
    writes, with paths spelled as in the answer; without it a target counts as new unless the context speaks of it.
    """
    scene = Scene(root, context, exists)
    walker = Walker(scene, cwd or root)
    line = command[:_LONGEST]
    if "PowerShell" in context and not line.lstrip().startswith(("pwsh", "powershell")):
        return combined(powershell.judge(walker.call("pwsh", [], None), line))
    walker.script(parse(line, fish="fish" in context.lower().split()))
    return combined(walker.found)
