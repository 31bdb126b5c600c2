"""What watches a directory tree, whatever the platform: the Protocols of hub, tree and listener."""

import asyncio
from collections.abc import Callable
from typing import Protocol

Skip = Callable[[bytes], bool]
"""Whether a folder (path below the root) is left out with all below it. Called from any thread, so it must be
quick and safe for that."""


class WatchLimit(Exception):
    """The system or our own budget allows no more watches; the message says which limit."""


class RootGone(Exception):
    """The root is not there, or is no directory of its own any more."""


class TreeListener(Protocol):
    """Is told what happens in a tree, in order, on the watching thread: it must be quick.

    Paths are below the root, raw, `/`-separated. What holds for a folder holds for all below it.
    """

    def changed(self, path: bytes, *, folder: bool) -> None:
        """Created, written, or its attributes changed."""

    def removed(self, path: bytes, *, folder: bool) -> None:
        """Deleted."""

    def left(self, path: bytes, cookie: int, *, folder: bool) -> None:
        """Renamed away; `arrived` with the same cookie follows at once if it stays in the tree."""

    def arrived(self, path: bytes, cookie: int, *, folder: bool) -> None:
        """Renamed to here."""

    def found(self, path: bytes) -> None:
        """A file seen in a new folder that was told as changed or arrived."""

    def skipped(self, path: bytes) -> None:
        """A folder that is left out appeared, vanished or changed its attributes."""

    def overflowed(self) -> None:
        """Events were lost; the tree is watched whole again, but only a scan tells what changed."""

    def limited(self, reason: str) -> None:
        """No more watches are to be had; the tree is not watched any longer."""

    def gone(self) -> None:
        """The root was deleted, renamed or unmounted; the tree is not watched any longer."""


class Tree(Protocol):
    """One watched directory tree. The methods block; they may be called from any thread."""

    def start(self) -> None:
        """Watches the tree as it is; nothing is told about what is there already.

        Raises RootGone or WatchLimit, and then watches nothing.
        """

    def refresh(self) -> None:
        """Looks at the whole tree anew: watches what `skip` now lets pass and nothing else. Raises as `start`."""

    def stop(self) -> None:
        """Ends watching; does nothing when it was not begun."""

    def intact(self) -> bool:
        """Whether the root is still the directory that `start` found."""

    @property
    def watches(self) -> int:
        """How many watches of the system it holds."""


class Hub(Protocol):
    """The one link to the system's file events that all trees share."""

    loop: asyncio.AbstractEventLoop

    def open(self) -> None:
        """Begins; when the system refuses, `trouble` says why and every tree's start raises WatchLimit."""

    def close(self) -> None:
        """Ends all watching."""

    def tree(self, root: bytes, listener: TreeListener, skip: Skip) -> Tree:
        """A tree, not yet started."""

    async def barrier(self, within: float) -> bool:
        """Waits until everything that happened before the call was told. False: that cannot be said."""

    @property
    def trouble(self) -> str | None:
        """Why nothing is watched; None when all is well."""

    @property
    def watches(self) -> int:
        """How many watches of the system are held in all."""
