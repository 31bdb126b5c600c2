"""What is one project: the root of a directory, and what a moved one is recognised by."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointd.catalog.rows import Mark
from checkpointd.engine.projects import NoRoot, Root, marks_of, moved, root_of
from support import repositories


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


def root(directory: Path, home: Path) -> Root:
    found = root_of(directory, home)
    assert isinstance(found, Root), found
    return found


def why(directory: Path, home: Path) -> str:
    found = root_of(directory, home)
    assert isinstance(found, NoRoot), found
    return found.why


def test_a_plain_directory_is_its_own_root(home: Path) -> None:
    (home / "notes/deep").mkdir(parents=True)
    assert root(home / "notes/deep", home) == Root(home / "notes/deep", None)
    assert root(home / "notes", home).repository is None


def test_a_folder_of_a_repository_has_its_top_level_as_root(home: Path) -> None:
    repo = repositories.make(home / "r", {"src/deep/a": "a\n"})
    for place in (repo, repo / "src", repo / "src/deep", repo / "src/deep/a"):
        assert root(place, home).path == repo
    (home / "link").symlink_to(repo / "src")
    assert root(home / "link", home).path == repo


def test_a_linked_work_tree_is_a_root_of_its_own(home: Path) -> None:
    repo = repositories.make(home / "r", {"a": "a\n"})
    repositories.git(repo, "worktree", "add", "-q", str(home / "linked"))
    found = root(home / "linked", home)
    assert found.path == home / "linked"
    assert marks_of(found)["common"] == marks_of(root(repo, home))["common"]


@pytest.mark.parametrize("place", [".", "..", "/", "/tmp", "/var/tmp"])
def test_homes_and_shared_folders_are_never_roots(home: Path, place: str) -> None:
    assert "never captured as a whole" in why(home / place, home)


def test_what_holds_the_checkpoints_is_never_a_root(home: Path) -> None:
    repo = repositories.make(home / "dotfiles", {"a": "a\n", "share/checkpointd/x": "x\n", "other/b": "b\n"})
    own = repo / "share/checkpointd"
    for place in (repo, repo / "other", own):
        found = root_of(place, home, own)
        assert isinstance(found, NoRoot)
        assert "checkpoints themselves" in found.why
    assert isinstance(root_of(repo, home, home / "elsewhere"), Root)


@pytest.mark.parametrize("place", [".claude", ".claude/projects/x", ".ssh"])
def test_hidden_folders_of_a_home_are_no_roots_unless_they_are_repositories(home: Path, place: str) -> None:
    folder = home / place
    folder.mkdir(parents=True)
    assert isinstance(root_of(folder, home), NoRoot)
    repositories.make(folder, {"init.lua": "x\n"})
    assert isinstance(root_of(folder, home), Root)


def test_the_system_is_no_root(home: Path) -> None:
    assert isinstance(root_of(Path("/etc"), home), NoRoot)


def test_a_home_that_is_a_repository_is_none_either(home: Path) -> None:
    repositories.make(home, {".bashrc": "x\n", "work/a": "a\n"})
    assert "home directory" in why(home / "work", home)
    inner = repositories.make(home / "work/inner", {"b": "b\n"})
    assert root(inner, home).path == inner


def test_a_home_behind_a_link_is_a_home(home: Path) -> None:
    link = home.parent / "link"
    link.symlink_to(home)
    assert "home directory" in why(link, home)
    assert "home directory" in why(home, link)


def test_what_is_not_there_is_told_by_name(home: Path) -> None:
    assert str(home / "gone") in why(home / "gone", home)
    (home / "loop").symlink_to("loop")
    assert str(home / "loop") in why(home / "loop", home)


@pytest.mark.parametrize("git", [True, False])
def test_a_renamed_project_is_recognised(home: Path, git: bool) -> None:
    place = home / "p"
    if git:
        repositories.make(place, {"a": "a\n"})
    else:
        repositories.write(place, {"a": "a\n"})
    before = marks_of(root(place, home))
    place.rename(home / "q")
    repositories.write(home / "q", {"more": "m\n"})
    assert moved(before, marks_of(root(home / "q", home)))


@pytest.mark.parametrize("git", [True, False])
def test_a_copy_is_another_project(home: Path, git: bool) -> None:
    place = repositories.make(home / "p", {"a": "a\n"}) if git else home / "p"
    repositories.write(place, {"a": "a\n"})
    before = marks_of(root(place, home))
    shutil.copytree(place, home / "q", symlinks=True)
    assert not moved(before, marks_of(root(home / "q", home)))


def test_a_second_clone_is_another_project(home: Path) -> None:
    repositories.make(home / "origin", {"a": "a\n"})
    for name in ("p", "q"):
        repositories.git(home, "clone", "-q", str(home / "origin"), name)
    marks = [marks_of(root(home / name, home)) for name in ("p", "q")]
    assert marks[0]["remotes"] == marks[1]["remotes"] != []
    assert not moved(*marks)


def test_a_recycled_inode_alone_says_nothing() -> None:
    old: dict[str, Mark] = {"device": 1, "inode": 7, "entries": ["8 a", "9 b"]}
    assert not moved(old, {"device": 1, "inode": 7, "entries": ["8 c", "10 a"]})
    assert not moved(old, {"device": 1, "inode": 7, "entries": []})
    assert moved(old, {"device": 1, "inode": 7, "entries": ["8 a"]})
    assert not moved(old, {"device": 2, "inode": 7, "entries": ["8 a"]})
    git: dict[str, Mark] = old | {"git_inode": 3, "remotes": []}
    assert not moved(git, git | {"entries": ["77 a"]})


def test_names_that_are_not_text_are_marks_as_well(home: Path) -> None:
    folder = home / "p"
    folder.mkdir()
    (folder / os.fsdecode(b"caf\xe9")).touch()
    (entry,) = marks_of(root(folder, home))["entries"]  # type: ignore[misc] # a list
    assert entry.endswith('"caf\\351"')


_MARKS = st.fixed_dictionaries(
    {"device": st.integers(1, 2), "inode": st.integers(1, 3), "entries": st.lists(st.sampled_from("abc"), max_size=2)},
    optional={"git_inode": st.integers(1, 3), "remotes": st.lists(st.sampled_from("xy"), max_size=1)},
)


@given(_MARKS)
def test_a_root_agrees_with_itself(marks: dict[str, Mark]) -> None:
    assert moved(marks, marks)


@given(_MARKS, _MARKS)
def test_nothing_in_common_is_never_a_move(one: dict[str, Mark], two: dict[str, Mark]) -> None:
    if all(one.get(key) != two.get(key) for key in ("inode", "git_inode", "remotes")):
        assert not moved(one, two)
