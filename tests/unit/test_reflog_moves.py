"""Steps of HEAD, as git writes them down."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointd.vault.reflog import moves, parse
from support import repositories


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    made = repositories.make(tmp_path / "r", {"a": "1\n"})
    repositories.write(made, {"a": "2\n"})
    repositories.git(made, "commit", "-qam", "two")
    return made


def sideways(repo: Path, after: bytes | None) -> list[bool]:
    return [move.sideways for move in moves(repo, after)]


def last(repo: Path) -> bytes:
    return moves(repo, None)[-1].line


@pytest.mark.parametrize(
    "commands",
    [
        [["commit", "--allow-empty", "-qm", "three"]],
        [["checkout", "-qb", "side"]],
        [["stash", "-q"], ["stash", "pop", "-q"]],
        [["checkout", "-q", "--", "a"]],
        [["reset", "-q", "--hard", "HEAD"]],
        [["branch", "other", "HEAD~1"], ["tag", "x"]],
        [["revert", "--no-edit", "HEAD"]],
    ],
)
def test_what_goes_forward_or_nowhere(repo: Path, commands: list[list[str]]) -> None:
    start = last(repo)
    repositories.write(repo, {"a": "dirty\n"} if commands[0][0] in ("stash", "checkout", "reset") else {})
    for command in commands:
        repositories.git(repo, *command)
    assert not any(sideways(repo, start))


def test_merges_cherry_picks_and_mail_go_forward(repo: Path) -> None:
    repositories.git(repo, "checkout", "-qb", "side", "HEAD~1")
    repositories.write(repo, {"b": "b\n"})
    repositories.git(repo, "add", "b")
    repositories.git(repo, "commit", "-qm", "b")
    patch = repositories.git(repo, "format-patch", "-1", "--stdout")
    repositories.git(repo, "checkout", "-q", "main")
    start = last(repo)
    repositories.git(repo, "cherry-pick", "side")
    repositories.git(repo, "reset", "-q", "--hard", "HEAD~1")
    assert sideways(repo, start) == [False, True]
    start = last(repo)
    repositories.git(repo, "merge", "-q", "--no-edit", "side")
    repositories.git(repo, "checkout", "-qb", "mail", "HEAD~1")
    (repo / "../p").write_text(patch)
    repositories.git(repo, "am", "-q", "../p")
    assert sideways(repo, start) == [False, True, False]


@pytest.mark.parametrize(
    "command",
    [
        ["reset", "-q", "--hard", "HEAD~1"],
        ["reset", "-q", "--soft", "HEAD~1"],
        ["checkout", "-q", "HEAD~1"],
        ["commit", "-q", "--amend", "-m", "other"],
        ["switch", "-q", "-c", "old", "HEAD~1"],
    ],
)
def test_what_goes_back_or_sideways(repo: Path, command: list[str]) -> None:
    start = last(repo)
    repositories.git(repo, *command)
    assert sideways(repo, start) == [True]


def test_a_jump_is_seen_behind_an_innocent_step(repo: Path) -> None:
    start = last(repo)
    repositories.git(repo, "reset", "-q", "--hard", "HEAD~1")
    repositories.git(repo, "commit", "-q", "--allow-empty", "-m", "innocent")
    assert sideways(repo, start) == [True, False]
    assert sideways(repo, last(repo)) == []


def test_a_rebase_jumps(repo: Path) -> None:
    repositories.git(repo, "checkout", "-qb", "side", "HEAD~1")
    repositories.write(repo, {"b": "b\n"})
    repositories.git(repo, "add", "b")
    repositories.git(repo, "commit", "-qm", "b")
    start = last(repo)
    repositories.git(repo, "rebase", "-q", "main")
    assert any(sideways(repo, start))


def test_a_line_that_left_the_log_counts_as_never_seen(repo: Path) -> None:
    assert len(moves(repo, b"long expired")) == len(moves(repo, None)) == 2


def test_no_repository_no_log_and_half_a_line(tmp_path: Path, repo: Path) -> None:
    assert moves(tmp_path, None) == []
    log = repo / ".git/logs/HEAD"
    whole = moves(repo, None)
    with log.open("ab") as out:
        out.write(b"1111 2222 somebody")
    assert moves(repo, None) == whole
    log.unlink()
    log.symlink_to("/dev/zero")
    assert moves(repo, None) == []
    log.unlink()
    assert moves(repo, None) == []


def test_the_end_of_a_long_log_is_enough(repo: Path) -> None:
    log = repo / ".git/logs/HEAD"
    line = log.read_bytes().splitlines(keepends=True)[-1]
    log.write_bytes(line * 5000)
    found = moves(repo, None)
    assert 100 < len(found) < 1000
    assert {move.line for move in found} == {line[:-1]}


@given(st.binary(max_size=200))
def test_any_line_is_a_move_or_none(line: bytes) -> None:
    found = parse(line)
    assert found is None or found.line == line


@given(st.integers(0, 10**25), st.binary(max_size=20))
def test_any_time_is_a_move_or_none(seconds: int, action: bytes) -> None:
    found = parse(b"a b D <d@e> %d +0000\t" % seconds + action)
    assert found is None or found.at.timestamp() == seconds
