"""The restore plan: what a restore would write, delete and keep, and why. Pure.

Every rule here leans to the safe side: a path is deleted only where the target observed that it was absent, a path that
the present capture did not take is overwritten only once a forced capture holds it, and what stands in the way of a
kept path stays as well.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, structs

from checkpointd.model.capture import Coverage
from checkpointd.model.modes import Modes
from checkpointd.model.paths import quote

DIRECTORY = 0o040000
FILE = 0o100644
EXECUTABLE = 0o100755
SYMLINK = 0o120000

_MASS_FRACTION = 0.5
_MASS_FILES = 500


Node = tuple[int, str]
"""An entry of a git tree: mode and object id."""


class PathRefused(ValueError):
    """A path that was asked for lies outside the project."""


class Entry(Struct, frozen=True, kw_only=True):
    """What is at a path. A directory has no object id; the permission bits of a symlink mean nothing."""

    mode: int  # git's: DIRECTORY, FILE, EXECUTABLE, SYMLINK
    oid: str = ""
    permissions: int = 0o777

    @property
    def is_directory(self) -> bool:
        return self.mode == DIRECTORY

    def same_content(self, other: "Entry | None") -> bool:
        """Whether only permission bits can differ."""
        if other is None or self.oid != other.oid:
            return False
        return self.mode == other.mode or {self.mode, other.mode} == {FILE, EXECUTABLE}

    def same(self, other: "Entry | None") -> bool:
        """Whether nothing differs."""
        return self.same_content(other) and (
            self.mode == SYMLINK or (other is not None and self.permissions == other.permissions)
        )


class Difference(Struct, frozen=True, kw_only=True):
    """One path at which the target and the present differ: files, symlinks, empty directories, and directories that
    both have with other permissions."""

    path: bytes
    target: Entry | None
    present: Entry | None


class Side(Struct, frozen=True, kw_only=True):
    """One of the two states that are compared: its modes, and what its tree has at a path. `above_empty`: directories
    that hold nothing but empty ones, which neither tree nor modes name."""

    modes: Modes
    at: Callable[[bytes], Node | None]
    above_empty: frozenset[bytes]

    @classmethod
    def of(cls, modes: Modes, at: Callable[[bytes], Node | None]) -> "Side":
        """The side with these modes and this tree."""
        above = frozenset(above for path in modes.empty for above in ancestors(path))
        return cls(modes=modes, at=at, above_empty=above)

    def entry(self, path: bytes, node: Node | None) -> Entry | None:
        """What this side has at a path whose tree entry is `node`; a directory only if it is an empty one."""
        if node is None and path in self.modes.empty:
            node = (DIRECTORY, "")
        if node is None:
            return None
        return Entry(mode=node[0], oid=node[1], permissions=self.permissions(path, node[0]))

    def directory(self, path: bytes) -> int | None:
        """The permission bits of a directory, empty or not; None where there is none."""
        if path not in self.modes.empty and path not in self.above_empty:
            node = self.at(path)
            if node is None or node[0] != DIRECTORY:
                return None
        return self.permissions(path, DIRECTORY)

    def permissions(self, path: bytes, mode: int) -> int:
        """The permission bits at a path; never setuid, setgid or sticky."""
        return 0o777 if mode == SYMLINK else self.modes.permissions(path, mode) & 0o777


class Step(Struct, frozen=True, kw_only=True):
    """One path that a plan changes. `unproved`: the present capture did not look here, so `present` is not known."""

    path: bytes
    target: Entry | None
    present: Entry | None
    why: str
    unproved: bool = False


class Keep(Struct, frozen=True, kw_only=True):
    """One path that differs, or was asked for, and is left alone."""

    path: bytes
    why: str


class Directory(Struct, frozen=True, kw_only=True):
    path: bytes
    permissions: int


class Plan(Struct, frozen=True, kw_only=True):
    """What a restore would do. Everything is sorted by path.

    `make`: directories that restored paths need, made where they are missing. `remove`: directories that the target
    does not have, removed where the deletions leave them empty.
    """

    restore: tuple[Step, ...] = ()
    delete: tuple[Step, ...] = ()
    keep: tuple[Keep, ...] = ()
    make: tuple[Directory, ...] = ()
    remove: tuple[bytes, ...] = ()
    unchanged: int = 0
    head_moved: bool = False
    mass_delete: bool = False

    @property
    def paths(self) -> tuple[bytes, ...]:
        """Every path whose bytes it would change, sorted."""
        return tuple(sorted(step.path for steps in (self.restore, self.delete) for step in steps))


class Found(Struct, frozen=True, kw_only=True):
    """One planned path just before it is changed: what the pre-restore checkpoint holds of it, and whether anything was
    there when that capture began. `why_not`: why it is there and not held."""

    held: Entry | None
    there: bool
    why_not: str = ""


def selection(asked: bytes, root: bytes) -> bytes:
    """The project-relative path that a user means; empty for the whole project. Raises PathRefused."""
    if b"\0" in asked:
        raise PathRefused(f"{quote(asked)} holds a NUL byte")
    if asked.startswith(b"/"):
        base = root.rstrip(b"/")
        if asked.rstrip(b"/") != base and not asked.startswith(base + b"/"):
            raise PathRefused(f"{quote(asked)} lies outside the project")
        asked = asked[len(base) :]
    parts = [part for part in asked.split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise PathRefused(f"{quote(asked)} has `..` in it")
    return b"/".join(parts)


def ancestors(path: bytes) -> Iterator[bytes]:
    """The directories above a path, nearest first, without the root."""
    while (cut := path.rfind(b"/")) > 0:
        path = path[:cut]
        yield path


def differences(
    changed: Iterable[tuple[bytes, Node | None, Node | None]],
    target: Side,
    present: Side,
    all_paths: Callable[[], Iterable[bytes]],
) -> list[Difference]:
    """Every path at which two states differ, permissions and empty directories included, sorted.

    `changed` are the leaves that differ between the trees (path, target, present). `all_paths`, the target's leaves, is
    asked only when the usual permissions of the project changed between the two.
    """
    found: dict[bytes, Difference] = {}
    for path, wanted, now in changed:
        found[path] = Difference(path=path, target=target.entry(path, wanted), present=present.entry(path, now))
    for path in (target.modes.empty ^ present.modes.empty) - found.keys():
        if target.directory(path) is None or present.directory(path) is None:
            found[path] = Difference(
                path=path, target=target.entry(path, target.at(path)), present=present.entry(path, present.at(path))
            )
    for path in _other_permissions(target.modes, present.modes, all_paths) - found.keys():
        then, now_there = _whatever(target, path), _whatever(present, path)
        if then is not None and now_there is not None and not then.same(now_there):
            found[path] = Difference(path=path, target=then, present=now_there)
    return [found[path] for path in sorted(found)]


def make_plan(
    differences: Iterable[Difference],
    *,
    target: Coverage,
    present: Coverage,
    target_directory: Callable[[bytes], int | None],
    files_in_scope: int,
    selected: Sequence[bytes] | None = None,
    head_moved: bool = False,
    newer_repository: Callable[[bytes], bytes | None] = lambda _: None,
) -> Plan:
    """The plan that makes the present like the target.

    `target_directory` gives the permissions of a directory in the target, None where it has no such directory.
    `files_in_scope` counts the target's files below the selected paths. `newer_repository` gives the repository that
    holds a path and is not in the target: it is never taken apart.
    """
    restore: list[Step] = []
    delete: list[Step] = []
    keep: dict[bytes, str] = {}
    unselected: set[bytes] = set()
    for difference in differences:
        if selected is not None and not _within(difference.path, selected):
            unselected.add(difference.path)
        elif difference.target is not None:
            restore.append(_restoring(difference, present))
        elif (repository := newer_repository(difference.path)) is not None:
            keep[difference.path] = f"{quote(repository)} is a repository that the checkpoint does not have"
        elif target.observed(difference.path):
            delete.append(_step(difference, "the checkpoint has no such path"))
        else:
            keep[difference.path] = f"the checkpoint did not capture it: {not_captured(difference.path, target)}"
    plan = Plan(
        restore=tuple(sorted(restore, key=_path)),
        delete=tuple(sorted(delete, key=_path)),
        unchanged=max(0, files_in_scope - sum(1 for step in restore if not _is_directory(step.target))),
        head_moved=head_moved,
    )
    unheld = {skip.path for skip in present.skipped if not skip.folder and skip.reason != "torn"}
    plan = without(plan, keep | _blocked(plan, unheld | unselected | keep.keys(), present))
    return _with_directories(_guarded(plan, present.captured), target_directory)


def without(plan: Plan, dropped: Mapping[bytes, str]) -> Plan:
    """The plan without some of its paths, nor those that cannot be done without them; all of them kept by name."""
    restores = {step.path: step for step in plan.restore}
    deletes = {step.path: step for step in plan.delete}
    kept = dict(dropped)
    while more := _cannot(restores, deletes, kept):
        kept |= more
    if not kept:
        return plan
    known = {keep.path: keep.why for keep in plan.keep}
    return structs.replace(
        plan,
        restore=tuple(step for step in plan.restore if step.path not in kept),
        delete=tuple(step for step in plan.delete if step.path not in kept),
        keep=tuple(Keep(path=path, why=why) for path, why in sorted((known | kept).items())),
    )


def settle(plan: Plan, found: Mapping[bytes, Found]) -> Plan:
    """The plan as it can be carried out now that the pre-restore checkpoint exists: what changed since it was shown, or
    is not held, is kept; what is as wanted already leaves it without a word."""
    dropped: dict[bytes, str] = {}
    done: set[bytes] = set()
    settled: dict[bytes, Step] = {}
    for step in (*plan.restore, *plan.delete):
        now = found[step.path]
        if now.there and now.held is None:
            dropped[step.path] = now.why_not or "the pre-restore checkpoint could not hold it"
        elif (now.held is None and step.target is None) or (step.target is not None and step.target.same(now.held)):
            done.add(step.path)
        elif now.held is not None and not step.unproved and not _as_planned(step, now.held):
            dropped[step.path] = "changed after the plan was made"
        settled[step.path] = structs.replace(step, present=now.held, unproved=False)
    plan = structs.replace(
        plan,
        restore=tuple(settled[step.path] for step in plan.restore if step.path not in done),
        delete=tuple(settled[step.path] for step in plan.delete if step.path not in done),
        unchanged=plan.unchanged + sum(1 for step in plan.restore if step.path in done),
    )
    return without(plan, dropped)


def _other_permissions(target: Modes, present: Modes, all_paths: Callable[[], Iterable[bytes]]) -> set[bytes]:
    """Paths whose permissions can differ."""
    paths = {path for path, _ in set(target.exceptions.items()) ^ set(present.exceptions.items())}
    if target.usual != present.usual:
        for path in all_paths():
            paths.add(path)
            paths.update(ancestors(path))
        paths |= target.empty
    return paths


def _whatever(side: Side, path: bytes) -> Entry | None:
    """What a side has at a path, directories that are not empty included."""
    bits = side.directory(path)
    return side.entry(path, side.at(path)) if bits is None else Entry(mode=DIRECTORY, permissions=bits)


def _as_planned(step: Step, held: Entry) -> bool:
    return step.present is not None and (step.present.mode, step.present.oid) == (held.mode, held.oid)


def _restoring(difference: Difference, present: Coverage) -> Step:
    target, now = difference.target, difference.present
    if now is None and not present.observed(difference.path):
        reason = not_captured(difference.path, present)
        return structs.replace(_step(difference, f"not captured now: {reason}"), unproved=True)
    if now is None:
        return _step(difference, "missing")
    if target is not None and target.same_content(now):
        return _step(difference, "other permissions")
    return _step(difference, "differs")


def _step(difference: Difference, why: str) -> Step:
    return Step(path=difference.path, target=difference.target, present=difference.present, why=why)


def not_captured(path: bytes, coverage: Coverage) -> str:
    """Why a capture did not look at a path, in a word or two."""
    for skip in coverage.skipped:
        if skip.reason != "torn" and (path == skip.path or path.startswith(skip.path + b"/")):
            return skip.reason
    return "not looked at"


def _blocked(plan: Plan, stays: Collection[bytes], present: Coverage) -> dict[bytes, str]:
    """Restored paths where something stays that is not theirs: a path above or below, or skipped content below."""
    leaves = {step.path for step in plan.restore if not _is_directory(step.target)}
    blocked: dict[bytes, str] = {}
    for path in (*stays, *(skip.path for skip in present.skipped if skip.reason != "torn")):
        for above in ancestors(path):
            if above in leaves:
                blocked[above] = f"a directory that holds {quote(path)}, which stays"
    for step in plan.restore:
        for above in ancestors(step.path):
            if above in stays:
                blocked[step.path] = f"{quote(above)} is in the way and stays"
    return blocked


def _cannot(
    restores: Mapping[bytes, Step], deletes: Mapping[bytes, Step], kept: Mapping[bytes, str]
) -> dict[bytes, str]:
    """Steps that cannot be done because of paths that are kept, one round of it."""
    more: dict[bytes, str] = {}
    for path in restores:
        for above in ancestors(path):
            if path not in kept and above in kept and above in deletes:
                more[path] = f"{quote(above)} is in the way and stays"
    for path in deletes:
        for above in ancestors(path):
            if above not in restores or _is_directory(restores[above].target):
                continue
            if path in kept and above not in kept:
                more[above] = f"a directory that holds {quote(path)}, which stays"
            elif above in kept and path not in kept:
                more[path] = f"{quote(above)} stays a directory"
    return more


def _guarded(plan: Plan, files_present: int) -> Plan:
    files = sum(1 for step in plan.delete if not _is_directory(step.present))
    mass = files > _MASS_FILES or files > files_present * _MASS_FRACTION
    return structs.replace(plan, mass_delete=files > 0 and mass)


def _with_directories(plan: Plan, target_directory: Callable[[bytes], int | None]) -> Plan:
    needed = {above for step in plan.restore for above in ancestors(step.path)}
    needed |= {step.path for step in plan.restore if _is_directory(step.target)}
    left = {above for step in plan.delete for above in ancestors(step.path)}
    make = ((path, target_directory(path)) for path in sorted(needed))
    return structs.replace(
        plan,
        make=tuple(Directory(path=path, permissions=bits) for path, bits in make if bits is not None),
        remove=tuple(path for path in sorted(left) if target_directory(path) is None),
    )


def _within(path: bytes, selected: Sequence[bytes]) -> bool:
    return any(not prefix or path == prefix or path.startswith(prefix + b"/") for prefix in selected)


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.is_directory


def _path(step: Step) -> bytes:
    return step.path
