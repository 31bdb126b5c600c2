"""What a restore plan is made from: the vault's trees and the files as they are now. Blocking; for worker threads."""

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct, structs

from checkpointd.engine.journal import Intent
from checkpointd.model import modes
from checkpointd.model.capture import Captured, Coverage
from checkpointd.model.paths import quote
from checkpointd.model.restore import (
    DIRECTORY,
    Directory,
    Entry,
    Found,
    Keep,
    Node,
    Plan,
    Side,
    Step,
    ancestors,
    differences,
    make_plan,
    not_captured,
    settle,
    without,
)
from checkpointd.vault.errors import MissingObject
from checkpointd.vault.materialise import Held, OpenTree, Refusal, Seen, reason
from checkpointd.vault.store import Vault

_FRESH = timedelta(seconds=2)
"""File times younger than this at the moment of looking prove nothing: some file systems count in steps of it."""


class Snapshot(Struct, frozen=True, kw_only=True):
    """What lstat said of every planned path, taken before the pre-restore checkpoint read them: what still looks the
    same when it is written over has the bytes that were read in between."""

    at: datetime
    seen: Mapping[bytes, Seen | None]
    unseen: Mapping[bytes, str]  # paths out of reach, and why


class Planner:
    """Plans for one work tree."""

    def __init__(self, vault: Vault, root: Path) -> None:
        self._vault = vault
        self._root = root

    def plan(self, target: Captured, present: Captured, selected: Sequence[bytes] | None, *, head_moved: bool) -> Plan:
        """The plan from one captured state to another. Raises MissingObject."""
        then, now = self._side(target), self._side(present)
        changed = ((d.path, _node(d.new), _node(d.old)) for d in self._vault.diff(present.files, target.files))
        found = differences(changed, then, now, lambda: (path for path, _, _ in self._vault.walk(target.files)))
        plan = make_plan(
            found,
            target=target.coverage,
            present=present.coverage,
            target_directory=then.directory,
            files_in_scope=self._count(target, selected),
            selected=selected,
            head_moved=head_moved,
            newer_repository=_Newer(self._root, then).above,
        )
        return _naming_the_missing(plan, selected, then, target.coverage)

    def everything(self, target: Captured, selected: Sequence[bytes] | None) -> Plan:
        """The plan that writes a captured state where nothing is."""
        then = self._side(target)
        nothing = Side.of(modes.Modes(usual=then.modes.usual), lambda path: None)
        leaves = ((path, (mode, oid.hex()), None) for path, mode, oid in self._vault.walk(target.files))
        plan = make_plan(
            differences(leaves, then, nothing, lambda: ()),
            target=target.coverage,
            present=Coverage(),
            target_directory=then.directory,
            files_in_scope=0,
            selected=selected,
        )
        return _naming_the_missing(plan, selected, then, target.coverage)

    def check_blobs(self, plan: Plan) -> None:
        """Raises MissingObject unless every content that the plan writes is there: a missing one is never an absent
        file."""
        for step in plan.restore:
            if step.target is not None and step.target.oid and not self._vault.has(step.target.oid):
                raise MissingObject(bytes.fromhex(step.target.oid))

    def look(self, plan: Plan, now: datetime) -> Snapshot:
        """The planned paths as they are before the pre-restore checkpoint is made."""
        seen: dict[bytes, Seen | None] = {}
        unseen: dict[bytes, str] = {}
        with OpenTree(self._root, "") as tree:
            for path in plan.paths:
                try:
                    seen[path] = tree.look(path)
                except OSError as error:
                    unseen[path] = reason(error)
        return Snapshot(at=now, seen=seen, unseen=unseen)

    def settle(self, plan: Plan, snapshot: Snapshot, captured: Captured) -> tuple[Plan, dict[bytes, Held]]:
        """The plan as it can be carried out with this pre-restore checkpoint, and what that holds of each path."""
        held_side = self._side(captured)
        leaving = _Leaving(plan)
        found: dict[bytes, Found] = {}
        with OpenTree(self._root, "") as tree:
            for step in (*plan.restore, *plan.delete):
                if (why := snapshot.unseen.get(step.path)) is not None:
                    found[step.path] = Found(held=None, there=True, why_not=why)
                    continue
                seen = snapshot.seen[step.path]
                found[step.path] = self._found(tree, step, seen, held_side, captured.coverage, leaving)
        grain = int((snapshot.at - _FRESH).timestamp() * 1e9)
        held = {}
        for path, now in found.items():
            seen = snapshot.seen.get(path)
            proves = seen is not None and max(seen.modified, seen.changed) < grain
            held[path] = Held(entry=now.held, seen=seen if proves else None)
        return settle(plan, found), held

    def intent(self, plan: Plan, *, name: str, worktree: str, target: str, pre_restore: str, now: datetime) -> Intent:
        """What goes into the journal."""
        steps = sorted((*plan.restore, *plan.delete), key=lambda step: step.path)
        needed = {above for step in plan.restore for above in ancestors(step.path)}
        with OpenTree(self._root, "") as tree:
            made = [
                directory
                for directory in plan.make
                if directory.path in needed and ((seen := tree.look(directory.path)) is None or not seen.is_directory)
            ]
            removed = [
                Directory(path=path, permissions=seen.mode & 0o777)
                for path in plan.remove
                if (seen := tree.look(path)) is not None and seen.is_directory
            ]
        return Intent(
            plan=name,
            worktree=worktree,
            target=target,
            pre_restore=pre_restore,
            at=now,
            steps=tuple(steps),
            made=tuple(made),
            removed=tuple(removed),
        )

    def remaining(self, intent: Intent) -> Plan:
        """What of an intent is still to be done, judged by the files alone. A path is kept where it is neither as the
        intent found it nor as it wants it; where nothing is, nothing can be lost."""
        plan = _as_plan(intent)
        leaving = _Leaving(plan)
        folders = {directory.path for directory in plan.make}
        dropped: dict[bytes, str] = {}
        done: set[bytes] = set()
        with OpenTree(self._root, "") as tree:
            for step in (*plan.restore, *plan.delete):
                try:
                    now = tree.identify(step.path)
                except (Refusal, OSError):
                    dropped[step.path] = "changed since then"
                    continue
                if now is not None and now.is_directory:
                    makes_room = step.target is None and step.path in folders
                    now = None if makes_room or leaving.whole(tree, step.path) else now
                if (now is None and step.target is None) or (step.target is not None and step.target.same(now)):
                    done.add(step.path)
                elif now is not None and not now.same(step.present):
                    dropped[step.path] = "changed since then"
        plan = structs.replace(
            plan,
            restore=tuple(step for step in plan.restore if step.path not in done),
            delete=tuple(step for step in plan.delete if step.path not in done),
            unchanged=len(done),
        )
        return without(plan, dropped)

    def sweep(self, intent: Intent) -> None:
        """Removes the temporary files of an interrupted restore."""
        with OpenTree(self._root, intent.plan) as tree:
            for folder in {step.path.rpartition(b"/")[0] for step in intent.steps}:
                tree.sweep(folder)

    def _side(self, captured: Captured) -> Side:
        return Side.of(modes.decode(captured.modes), _Lookup(self._vault, captured.files).at)

    def _count(self, target: Captured, selected: Sequence[bytes] | None) -> int:
        """The target's files below the selected paths."""
        if selected is None or b"" in selected:
            return target.coverage.captured
        count = 0
        for path in set(selected):
            entry = self._vault.resolve(target.files, path)
            if entry is not None:
                count += sum(1 for _ in self._vault.walk(entry.oid.hex())) if entry.mode == DIRECTORY else 1
        return count

    def _found(
        self,
        tree: OpenTree,
        step: Step,
        seen: Seen | None,
        held_side: Side,
        coverage: Coverage,
        leaving: "_Leaving",
    ) -> Found:
        """One path: what the pre-restore checkpoint holds of what is there."""
        if seen is not None and seen.is_directory:
            return _found_directory(tree, step, seen, leaving)
        if seen is None and (above := leaving.in_the_way(tree, step.path)) is not None:
            return Found(held=None, there=True, why_not=f"{quote(above)} is in the way and stays")
        node = held_side.at(step.path)
        if node is None or node[0] == DIRECTORY:
            why = f"the pre-restore checkpoint could not hold it: {not_captured(step.path, coverage)}"
            return Found(held=None, there=seen is not None, why_not=why)
        if not self._vault.has(node[1]):
            return Found(held=None, there=True, why_not="the pre-restore checkpoint could not hold it")
        permissions = held_side.permissions(step.path, node[0]) if seen is None else seen.mode & 0o777
        return Found(held=Entry(mode=node[0], oid=node[1], permissions=permissions), there=True)


class _Lookup:
    """One tree, its folders read once: planned paths are neighbours, thousands of them at times."""

    def __init__(self, vault: Vault, root: str) -> None:
        self._vault = vault
        self._root = bytes.fromhex(root)
        self._folders: dict[bytes, dict[bytes, tuple[int, bytes]]] = {}

    def at(self, path: bytes) -> Node | None:
        """The tree's entry at a path; None where it has none."""
        mode, oid = DIRECTORY, self._root
        for name in path.split(b"/"):
            if mode != DIRECTORY or (found := self._folder(oid).get(name)) is None:
                return None
            mode, oid = found
        return mode, oid.hex()

    def _folder(self, oid: bytes) -> dict[bytes, tuple[int, bytes]]:
        if oid not in self._folders:
            self._folders[oid] = {entry.name: (entry.mode, entry.oid) for entry in self._vault.read_tree(oid)}
        return self._folders[oid]


class _Newer:
    """Repositories in the work tree that came after the target. Their `.git` is in no checkpoint, so that without their
    files nothing of use would be left of them."""

    def __init__(self, root: Path, then: Side) -> None:
        self._root = os.fsencode(root)
        self._then = then
        self._found: dict[bytes, bytes | None] = {b"": None}

    def above(self, path: bytes) -> bytes | None:
        """The outermost of them that holds a path."""
        folder = path.rpartition(b"/")[0]
        if folder not in self._found:
            outer = self.above(folder)
            newer = self._then.directory(folder) is None and os.path.lexists(b"/".join((self._root, folder, b".git")))
            self._found[folder] = folder if outer is None and newer else outer
        return self._found[folder]


class _Leaving:
    """Which directories a plan leaves empty."""

    def __init__(self, plan: Plan) -> None:
        self._paths = {step.path for step in plan.delete}
        self._directories = set(plan.remove)
        self._wanted = {step.path for step in plan.restore if step.target is not None and not step.target.is_directory}
        self._in_the_way: dict[bytes, bytes | None] = {}

    def in_the_way(self, tree: OpenTree, path: bytes) -> bytes | None:
        """What stays above a path that a directory would have to be at."""
        above = path.rpartition(b"/")[0]
        if not above:
            return None
        if above not in self._in_the_way:
            seen = tree.look(above)
            stays = seen is not None and not seen.is_directory and above not in self._paths
            self._in_the_way[above] = above if stays else self.in_the_way(tree, above)
        return self._in_the_way[above]

    def whole(self, tree: OpenTree, path: bytes) -> bool:
        """Whether a directory makes room for a file that the plan puts in its place."""
        return path in self._wanted and path in self._directories and self.first_left(tree, path) is None

    def first_left(self, tree: OpenTree, path: bytes) -> bytes | None:
        """Something in a directory that the plan does not remove."""
        try:
            names = tree.names(path)
        except OSError:  # what cannot be looked into stays
            return path
        for name in names:
            below = path + b"/" + name
            if below in self._paths:
                continue
            if below not in self._directories:
                return below
            if (left := self.first_left(tree, below)) is not None:
                return left
        return None


def _node(side: tuple[int, bytes] | None) -> Node | None:
    return None if side is None else (side[0], side[1].hex())


def _found_directory(tree: OpenTree, step: Step, seen: Seen, leaving: _Leaving) -> Found:
    entry = Entry(mode=DIRECTORY, permissions=seen.mode & 0o777)
    if step.target is not None and step.target.is_directory:
        return Found(held=entry, there=True)
    if leaving.whole(tree, step.path):
        return Found(held=None, there=False)
    left = leaving.first_left(tree, step.path)
    if left is not None:
        return Found(held=None, there=True, why_not=f"a directory that holds {quote(left)}, which stays")
    return Found(held=entry, there=True)


def _as_plan(intent: Intent) -> Plan:
    return Plan(
        restore=tuple(step for step in intent.steps if step.target is not None),
        delete=tuple(step for step in intent.steps if step.target is None),
        make=intent.made,
        remove=tuple(directory.path for directory in intent.removed),
    )


def _naming_the_missing(plan: Plan, selected: Collection[bytes] | None, then: Side, coverage: Coverage) -> Plan:
    """Paths that were asked for and that the target does not have, and the present neither, are named."""
    planned = {*plan.paths, *(keep.path for keep in plan.keep)}
    named = []
    for path in selected or ():
        touched = any(other == path or other.startswith(path + b"/") for other in planned)
        if not path or touched or then.at(path) is not None or then.directory(path) is not None:
            continue
        if coverage.observed(path):
            named.append(Keep(path=path, why="neither the checkpoint nor the project has it"))
        else:
            named.append(Keep(path=path, why=f"the checkpoint did not capture it: {not_captured(path, coverage)}"))
    if not named:
        return plan
    return structs.replace(plan, keep=tuple(sorted((*plan.keep, *named), key=lambda keep: keep.path)))
