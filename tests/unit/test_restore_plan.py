"""The restore plan as a pure decision."""

import pytest

from checkpointd.model.capture import Coverage, Skip
from checkpointd.model.modes import Modes, Usual
from checkpointd.model.restore import (
    DIRECTORY,
    EXECUTABLE,
    FILE,
    SYMLINK,
    Difference,
    Entry,
    Found,
    PathRefused,
    Side,
    differences,
    make_plan,
    selection,
    settle,
)  # fmt: skip

A, B = "a" * 40, "b" * 40


def file(oid=A, permissions=0o644):
    return Entry(mode=FILE, oid=oid, permissions=permissions)


def link(oid=A):
    return Entry(mode=SYMLINK, oid=oid)


def planned(*changes, target=None, present=None, folders=(), **options):
    """The plan for (path, target, present) triples."""
    return make_plan(
        [Difference(path=path, target=wanted, present=now) for path, wanted, now in changes],
        target=target or Coverage(),
        present=present or Coverage(captured=100),
        target_directory=lambda path: 0o755 if path in folders else None,
        files_in_scope=options.pop("files_in_scope", 10),
        **options,
    )


def paths(steps):
    return [step.path for step in steps]


def ignored(*names, folder=False):
    return Coverage(captured=100, skipped=tuple(Skip(path=name, reason="ignored", folder=folder) for name in names))


def test_what_is_missing_or_differs_is_restored_and_what_is_new_deleted():
    plan = planned((b"m", file(), None), (b"d", file(), file(B)), (b"n", None, file()), files_in_scope=10)
    assert [(step.path, step.why) for step in plan.restore] == [(b"d", "differs"), (b"m", "missing")]
    assert paths(plan.delete) == [b"n"]
    assert plan.unchanged == 8


def test_a_new_path_that_the_target_did_not_observe_is_kept_with_its_reason():
    plan = planned((b"out/x", None, file()), target=ignored(b"out", folder=True))
    assert not plan.delete
    assert plan.keep[0].why == "the checkpoint did not capture it: ignored"


def test_a_path_that_is_not_captured_now_asks_for_a_forced_capture():
    plan = planned((b"a", file(), None), present=ignored(b"a"))
    assert plan.restore[0].unproved


def test_a_torn_path_counts_as_observed():
    torn = Coverage(captured=9, skipped=(Skip(path=b"a", reason="torn"),))
    assert paths(planned((b"a", None, file()), target=torn).delete) == [b"a"]


def test_a_file_does_not_replace_a_folder_that_holds_skipped_content():
    plan = planned((b"d", file(), None), (b"d/x", None, file()), present=ignored(b"d/cache", folder=True))
    assert not plan.paths
    assert {keep.path: keep.why for keep in plan.keep} == {
        b"d": "a directory that holds d/cache, which stays",
        b"d/x": "d stays a directory",
    }


def test_what_lies_below_a_path_that_stays_is_kept():
    plan = planned((b"l", None, link()), (b"l/x", file(), None), selected=[b"l/x"])
    assert not plan.paths
    assert plan.keep[0].why == "l is in the way and stays"


def test_a_folder_takes_the_place_of_a_symlink_when_both_are_planned():
    plan = planned((b"l", None, link()), (b"l/x", file(), None), folders={b"l"})
    assert (paths(plan.delete), paths(plan.restore)) == ([b"l"], [b"l/x"])
    assert [made.path for made in plan.make] == [b"l"]


def test_folders_that_the_target_does_not_have_are_to_go_if_empty():
    plan = planned((b"src/new/x", None, file()), (b"src/y", None, file()), folders={b"src"})
    assert plan.remove == (b"src/new",)


def test_mass_deletion_is_over_half_of_the_files_or_over_500():
    many = [(b"n%d" % number, None, file()) for number in range(501)]
    assert planned(*many[:501], present=Coverage(captured=100_000)).mass_delete
    assert not planned(*many[:500], present=Coverage(captured=100_000)).mass_delete
    assert planned(*many[:6], present=Coverage(captured=10)).mass_delete
    assert not planned(*many[:5], present=Coverage(captured=10)).mass_delete


def test_only_selected_paths_are_planned():
    changes = ((b"a", file(), None), (b"ab", file(), None), (b"a/x", file(), None))
    assert paths(planned(*changes, selected=[b"a"]).restore) == [b"a", b"a/x"]
    assert len(planned(*changes, selected=[b""]).restore) == 3


def test_a_selection_is_normalised():
    assert selection(b"./a//b/", b"/p") == b"a/b"
    assert selection(b"/p/a", b"/p") == b"a"
    assert selection(b"/p/", b"/p") == b""
    assert selection(b"..a/b..", b"/p") == b"..a/b.."


@pytest.mark.parametrize("path", [b"/px", b"/", b"a/..", b"../p/a", b"/p/../x", b"a\0"])
def test_b171_a_selection_outside_the_project_is_refused(path):
    with pytest.raises(PathRefused):
        selection(path, b"/p")


def settled(plan, **found):
    return settle(plan, {name.encode(): what for name, what in found.items()})


def test_what_changed_since_the_plan_is_kept():
    plan = planned((b"a", file(), file(B)), (b"n", None, file(B)))
    now = settled(plan, a=Found(held=file("c" * 40), there=True), n=Found(held=file(B), there=True))
    assert (paths(now.restore), paths(now.delete)) == ([], [b"n"])
    assert now.keep[0].why == "changed after the plan was made"


def test_what_is_as_wanted_by_now_leaves_the_plan_without_a_word():
    plan = planned((b"a", file(), file(B)), (b"n", None, file(B)))
    now = settled(plan, a=Found(held=file(), there=True), n=Found(held=None, there=False))
    assert not now.paths and not now.keep


def test_what_is_there_and_not_held_is_kept():
    plan = planned((b"a", file(), None))
    now = settled(plan, a=Found(held=None, there=True, why_not="unreadable"))
    assert now.keep[0].why == "unreadable"


def test_a_step_that_needs_a_kept_path_gone_is_kept_too():
    plan = planned((b"l", None, link()), (b"l/x", file(), None), folders={b"l"})
    now = settled(plan, l=Found(held=link(B), there=True), **{"l/x": Found(held=None, there=False)})
    assert not now.paths
    assert [keep.path for keep in now.keep] == [b"l", b"l/x"]


def side(tree, **options):
    return Side.of(Modes(**options), lambda path: tree.get(path))


def found(changed, target, present, all_paths=()):
    return {d.path: (d.target, d.present) for d in differences(changed, target, present, lambda: all_paths)}


def test_permissions_and_empty_folders_are_differences_too():
    tree = {b"a": (FILE, A), b"run": (EXECUTABLE, A), b"d": (DIRECTORY, B)}
    target = side(tree, exceptions={b"a": 0o600, b"d": 0o700}, empty=frozenset({b"e", b"both"}))
    present = side(tree, exceptions={b"run": 0o700}, empty=frozenset({b"both", b"only/now"}))
    assert found([], target, present) == {
        b"a": (file(permissions=0o600), file()),
        b"run": (Entry(mode=EXECUTABLE, oid=A, permissions=0o755), Entry(mode=EXECUTABLE, oid=A, permissions=0o700)),
        b"d": (Entry(mode=DIRECTORY, permissions=0o700), Entry(mode=DIRECTORY, permissions=0o755)),
        b"e": (Entry(mode=DIRECTORY, permissions=0o755), None),
        b"only/now": (None, Entry(mode=DIRECTORY, permissions=0o755)),
    }


def test_a_folder_that_is_empty_on_one_side_only_is_no_difference():
    target = side({}, empty=frozenset({b"d"}))
    present = side({b"d": (DIRECTORY, B), b"d/x": (FILE, A)})
    assert found([(b"d/x", None, (FILE, A))], target, present) == {b"d/x": (None, file())}


def test_other_usual_permissions_are_found_on_every_path():
    tree = {b"d": (DIRECTORY, B), b"d/x": (FILE, A), b"l": (SYMLINK, A)}
    target, present = side(tree), side(tree, usual=Usual(file=0o664, folder=0o755))
    assert found([], target, present, [b"d/x", b"l"]) == {b"d/x": (file(), file(permissions=0o664))}


def test_setuid_and_sticky_bits_never_enter_a_plan():
    target = side({b"a": (FILE, A)}, exceptions={b"a": 0o6644})
    assert target.entry(b"a", (FILE, A)) == file()
