"""Running git: a scrubbed environment, nothing left behind."""

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointd.vault import run
from checkpointd.vault.run import (
    GitCancelled,
    GitEnv,
    GitFailed,
    GitMissing,
    GitTimeout,
    GitTooMuch,
    check_git,
    git,
    git_records,
)
from checkpointd.vault.store import Vault
from support.vaults import capture


@pytest.fixture
def env(tmp_path: Path) -> GitEnv:
    return GitEnv(git_dir=Vault.create(tmp_path / "vault.git").path)


def alias(command: str) -> list[str]:
    """A git that runs a shell, to see what its children see."""
    return ["-c", f"alias.probe=!{command}", "probe"]


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_git_is_new_enough() -> None:
    assert check_git() >= run.FLOOR


def test_a_git_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "FLOOR", (99, 0))
    with pytest.raises(GitMissing, match="too old"):
        check_git.__wrapped__()


def test_nothing_of_our_environment_is_inherited(env: GitEnv, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_COUNT", "GIT_TRACE",
                 "GIT_NAMESPACE", "GIT_CONFIG_PARAMETERS", "EDITOR", "LD_LIBRARY_PATH"):  # fmt: skip
        monkeypatch.setenv(name, "/evil")
    text = git(alias("env -0"), env=env, timeout=20).stdout.decode()
    seen = dict(line.split("=", 1) for line in text.split("\0") if line)
    assert "/evil" not in seen.values()
    assert seen["GIT_DIR"] == str(env.git_dir)
    assert (seen["GIT_CONFIG_GLOBAL"], seen["GIT_CONFIG_NOSYSTEM"]) == (os.devnull, "1")
    assert (seen["GIT_OPTIONAL_LOCKS"], seen["GIT_TERMINAL_PROMPT"], seen["LC_ALL"]) == ("0", "0", "C")
    assert seen["HOME"] == str(env.git_dir)


def test_paths_reach_the_child(env: GitEnv, tmp_path: Path) -> None:
    full = GitEnv(git_dir=env.git_dir, work_tree=tmp_path, index=tmp_path / "i", alternates=tmp_path / "o",
                  home=tmp_path / "h", config_home=tmp_path / "c")  # fmt: skip
    variables = full.variables("/opt/git/bin/git")
    assert variables["PATH"] == "/opt/git/bin:/usr/bin:/bin"
    assert variables["GIT_WORK_TREE"] == str(tmp_path)
    assert variables["GIT_INDEX_FILE"] == str(tmp_path / "i")
    assert variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] == str(tmp_path / "o")
    assert (variables["HOME"], variables["XDG_CONFIG_HOME"]) == (str(tmp_path / "h"), str(tmp_path / "c"))


def test_stdin_is_closed_unless_given(env: GitEnv) -> None:
    assert git(alias("cat"), env=env, timeout=20).stdout == b""
    big = b"0123456789" * 200_000
    assert git(alias("cat"), env=env, timeout=20, stdin=big).stdout == big


def test_an_error_carries_what_git_said(env: GitEnv) -> None:
    with pytest.raises(GitFailed, match="rev-parse ended with 128: fatal: Needed") as caught:
        git(["rev-parse", "--verify", "no-such-thing"], env=env, timeout=20)
    assert caught.value.returncode == 128
    assert git(["rev-parse", "--verify", "x"], env=env, timeout=20, check=False).stderr


def test_much_on_stderr_does_not_stop_the_child(env: GitEnv) -> None:
    done = git(alias("head -c 3000000 /dev/zero >&2; echo end"), env=env, timeout=20)
    assert done.stdout == b"end\n"
    assert len(done.stderr) == 64 << 10


@pytest.mark.parametrize("how", ["timeout", "cancel", "limit"])
def test_the_whole_group_is_killed(env: GitEnv, tmp_path: Path, how: str) -> None:
    pid_file = tmp_path / "pid"
    flood = "cat /dev/zero" if how == "limit" else "sleep 1000"
    command = alias(f"sh -c 'sleep 1000 & echo $! > {pid_file}.tmp; mv {pid_file}.tmp {pid_file}; {flood}'")
    wanted: dict[str, tuple[type[Exception], dict[str, object]]] = {
        "timeout": (GitTimeout, {"timeout": 0.5}),
        "cancel": (GitCancelled, {"timeout": 60.0, "cancel": pid_file.exists}),
        "limit": (GitTooMuch, {"timeout": 60.0, "limit": 1 << 20}),
    }
    error, options = wanted[how]
    with pytest.raises(error):
        git(command, env=env, **options)  # type: ignore[arg-type]
    if pid_file.exists():
        pid = int(pid_file.read_text())
        wait_until(lambda: gone(pid))


def test_a_child_that_closes_its_output_and_stays_is_killed(env: GitEnv) -> None:
    with pytest.raises(GitTimeout):
        git(alias("exec >&- 2>&-; sleep 1000"), env=env, timeout=0.4)


def test_children_are_niced_when_asked(env: GitEnv) -> None:
    before = int(git(alias("nice"), env=env, timeout=20).stdout)
    # The priority is set from outside, an instant after the start.
    niced = git(alias("sleep 0.2; nice"), env=env, timeout=20, nice=True)
    assert int(niced.stdout) in (min(19, before + 10), 10, before)


def test_records_come_one_by_one(env: GitEnv) -> None:
    vault = Vault.open(env.git_dir)
    names = [b"a\nb", b"caf\xe9", *(b"%d" % n for n in range(3000))]
    tree = capture(vault, dict.fromkeys(names, b""))
    warnings: list[bytes] = []
    listing = git_records(["ls-tree", "-z", "--name-only", tree], env=env, timeout=20, warnings=warnings)
    assert sorted(listing) == sorted(names)
    assert warnings == []


def test_a_listing_that_fails_is_an_error_and_warnings_are_kept(env: GitEnv) -> None:
    with pytest.raises(GitFailed):
        list(git_records(["ls-tree", "-z", "nothing"], env=env, timeout=20))
    warnings: list[bytes] = []
    assert list(git_records(alias("echo careful >&2; printf 'a\\0b'"), env=env, timeout=20, warnings=warnings)) == [
        b"a",
        b"b",
    ]
    assert warnings == [b"careful"]


def test_a_listing_that_is_left_early_leaves_no_child(env: GitEnv, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    listing = git_records(alias(f"echo $$ > {pid_file}; while :; do printf 'x\\0'; done"), env=env, timeout=60)
    assert next(listing) == b"x"
    listing.close()  # type: ignore[attr-defined]
    wait_until(lambda: gone(int(pid_file.read_text())))


def test_children_run_in_threads_side_by_side(env: GitEnv) -> None:
    answers: list[bytes] = []

    def ask(number: int) -> None:
        answers.append(git(alias(f"echo {number}"), env=env, timeout=30).stdout)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == [b"%d\n" % number for number in range(8)]


def test_no_descriptor_is_left_open(env: GitEnv) -> None:
    git(["version"], env=env, timeout=20)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        git(["version"], env=env, timeout=20, stdin=b"x")
        with pytest.raises(GitTooMuch):
            git(["version"], env=env, timeout=20, limit=1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_git_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(GitMissing):
        run.find_git.__wrapped__()


def test_real_git_is_what_is_found() -> None:
    assert subprocess.run([run.find_git(), "version"], capture_output=True, check=True).stdout.startswith(
        b"git version"
    )
