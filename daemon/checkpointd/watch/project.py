"""Watching one project's work tree and its repository."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from checkpointd.clock import Clock
from checkpointd.watch.handover import Changes, Collector, hand_over
from checkpointd.watch.tree import Hub, RootGone, Skip, Tree, WatchLimit

WatchState = Literal["stopped", "watching", "polling", "gone"]


class ProjectOwner(Protocol):
    """Is told on the event loop what happens in a project."""

    def on_changes(self, changes: Changes) -> None:
        """Paths changed; they may change further."""

    def on_overflow(self) -> None:
        """Events were lost, watching goes on: a scan is due."""

    def on_limit(self, reason: str) -> None:
        """The project is not watched any longer: scans on a timer are due."""

    def on_repository(self) -> None:
        """HEAD, a branch or the stash may have moved, or `.git` itself came or went."""

    def on_gone(self) -> None:
        """The root was deleted, renamed or replaced: `start` again when there is a directory."""


class ProjectWatch:
    """Watches a work tree without what `skip` leaves out, and without any `.git` but for where HEAD points."""

    def __init__(self, hub: Hub, root: Path, owner: ProjectOwner, *, skip: Skip, clock: Clock) -> None:
        self._hub = hub
        self._owner = owner
        self._skip = skip
        self._state: WatchState = "stopped"
        self._collector = Collector(hub.loop, clock, self._deliver, hub.barrier)
        self._tree = hub.tree(os.fsencode(root), self, self._leave_out)
        self._repositories: list[Tree] = []
        self._repository_told = False

    @property
    def state(self) -> WatchState:
        """`watching`: changes are told. `polling`: no watches to be had. `gone`: the root is not there."""
        return self._state

    @property
    def watches(self) -> int:
        """How many watches of the system are held."""
        return self._tree.watches + sum(tree.watches for tree in self._repositories)

    def start(self, git_dirs: Sequence[Path] = ()) -> None:
        """Watches the project from here on; blocks for the walk, so it belongs into a worker thread.

        `git_dirs`: the repository's git dir, and for a linked work tree its common dir too. What is there already
        is not told: scan after this.
        """
        self._state = "watching"
        try:
            self._tree.start()
        except (RootGone, WatchLimit) as error:
            self._fail(error)
            return
        self.watch_repository(git_dirs)

    def watch_repository(self, git_dirs: Sequence[Path]) -> None:
        """Watches these git dirs instead of those before; blocks as `start` does."""
        for tree in self._repositories:
            tree.stop()
        self._repositories = []
        for git_dir in git_dirs:
            tree = self._hub.tree(os.fsencode(git_dir), _Repository(self), _beside_refs)
            try:
                tree.start()
            except RootGone:
                continue
            except WatchLimit as error:
                self._fail(error)
                return
            self._repositories.append(tree)

    def refresh(self) -> None:
        """Applies what `skip` says now; blocks as `start` does. Scan after this."""
        try:
            self._tree.refresh()
        except (RootGone, WatchLimit) as error:
            self._fail(error)

    def stop(self) -> None:
        """Ends watching, and gives the watches back; nothing is told after this."""
        self._state = "stopped"
        self._release()

    async def drain(self, within: float) -> bool:
        """Waits until all changes made before the call were told. False: unknown, only a scan tells."""
        if self._state != "watching":
            return False
        if not self._tree.intact():
            self.gone()
            return False
        return await self._hub.barrier(within) and self._state == "watching"

    # From here on: what the tree tells, on its thread.

    def changed(self, path: bytes, *, folder: bool) -> None:
        if path == b".git":
            self.repository_moved()
        else:
            self._collector.changed(path, whole=folder)

    def removed(self, path: bytes, *, folder: bool) -> None:
        if path == b".git":
            self.repository_moved()
        else:
            self._collector.removed(path, folder=folder)

    def left(self, path: bytes, cookie: int, *, folder: bool) -> None:
        self._collector.left(path, cookie, folder=folder)

    def arrived(self, path: bytes, cookie: int, *, folder: bool) -> None:
        self._collector.arrived(path, cookie, folder=folder)

    def found(self, path: bytes) -> None:
        """Nothing to do: its folder was told, and stands for all below it."""

    def skipped(self, path: bytes) -> None:
        if path == b".git":
            self.repository_moved()
        elif path.endswith(b"/.git"):
            # A nested repository came or went: other ignore rules hold there now.
            self._collector.changed(path[: -len(b"/.git")], whole=True)

    def overflowed(self) -> None:
        hand_over(self._hub.loop, self._tell_overflow)

    def limited(self, reason: str) -> None:
        self._fail(WatchLimit(reason))

    def gone(self) -> None:
        self._fail(RootGone())

    def repository_moved(self) -> None:
        """Tells the owner once, however much moved."""
        if not self._repository_told:
            self._repository_told = True
            hand_over(self._hub.loop, self._tell_repository)

    def _leave_out(self, folder: bytes) -> bool:
        return folder == b".git" or folder.endswith(b"/.git") or self._skip(folder)

    def _fail(self, error: RootGone | WatchLimit) -> None:
        """A part of the tree watched is worse than none: its changes would pass for all there are."""
        if self._state != "watching":
            return
        self._state = "gone" if isinstance(error, RootGone) else "polling"
        self._release()
        hand_over(self._hub.loop, self._tell_failure, error)

    def _release(self) -> None:
        for tree in (self._tree, *self._repositories):
            tree.stop()
        self._repositories = []

    # From here on: on the loop.

    def _deliver(self, changes: Changes) -> None:
        if self._state != "stopped":
            self._owner.on_changes(changes)

    def _tell_overflow(self) -> None:
        if self._state != "stopped":
            self._owner.on_overflow()

    def _tell_repository(self) -> None:
        self._repository_told = False
        if self._state != "stopped":
            self._owner.on_repository()

    def _tell_failure(self, error: RootGone | WatchLimit) -> None:
        if self._state == "stopped":
            return
        if isinstance(error, RootGone):
            self._owner.on_gone()
        else:
            self._owner.on_limit(str(error))


class _Repository:
    """Listens to a git dir for what moves HEAD, a branch or the stash."""

    def __init__(self, watch: ProjectWatch) -> None:
        self._watch = watch

    def changed(self, path: bytes, *, folder: bool) -> None:
        if not folder and moves_repository(path):
            self._watch.repository_moved()

    def removed(self, path: bytes, *, folder: bool) -> None:
        self.changed(path, folder=folder)

    def left(self, path: bytes, cookie: int, *, folder: bool) -> None:
        self.changed(path, folder=folder)

    def arrived(self, path: bytes, cookie: int, *, folder: bool) -> None:
        if folder:
            self._watch.repository_moved()
        else:
            self.changed(path, folder=folder)

    def found(self, path: bytes) -> None:
        self.changed(path, folder=False)

    def skipped(self, path: bytes) -> None:
        """Nothing to do: objects, logs and the like."""

    def overflowed(self) -> None:
        self._watch.repository_moved()

    def limited(self, reason: str) -> None:
        self._watch.limited(reason)

    def gone(self) -> None:
        self._watch.repository_moved()


def moves_repository(path: bytes) -> bool:
    """Whether a file of a git dir says where HEAD, branches and stash are. Locks are left out: git writes `x.lock`
    and renames it to `x`."""
    if path.endswith(b".lock"):
        return False
    return path in {b"HEAD", b"ORIG_HEAD", b"packed-refs"} or path.startswith(b"refs/")


def _beside_refs(folder: bytes) -> bool:
    return folder != b"refs" and not folder.startswith(b"refs/")
