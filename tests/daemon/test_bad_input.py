"""Bad input gets an answer that names it and the way out, ends nothing, and loses nothing."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckpt.contract.version import PROTOCOL
from support import repositories
from support.daemons import Daemon
from support.homes import Home
from support.playing import AGENTS, Actor, Claude, Pi
from support.served import Client

# A root user reads and writes everything, whatever a file's mode says, but for these two rights.
_RIGHTS = "-dac_override,-dac_read_search"


@pytest.fixture
def repo(home: Home) -> Path:
    return repositories.make(home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n"})


@pytest.fixture
def bound(asleep: Daemon) -> Daemon:
    """A daemon that file modes hold for."""
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("runs as root, for whom file modes do not count, and there is no setpriv to change that")
        asleep.prefix = ("setpriv", f"--bounding-set={_RIGHTS}", f"--inh-caps={_RIGHTS}")
    return asleep.start()


@pytest.fixture
def small_disk(home: Home) -> Iterator[Path]:
    """The data folder on a disk of a few megabytes."""
    home.data.mkdir(parents=True)
    size = ["-o", "size=12m,mode=700"]
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", *size, "none", home.data], check=False).returncode:
        pytest.skip("no small disk: mounting one takes root and the right to mount")
    yield home.data
    subprocess.run(["umount", "--lazy", home.data], check=True)


def begin(daemon: Daemon, agent: Actor) -> None:
    agent.says("please work")
    daemon.checkpoint(agent.cwd, "baseline", agent.session)


def problems(daemon: Daemon) -> str:
    return "\n".join(f"{p['what']} -> {p['hint']}" for p in daemon.json("status", code=None)["problems"])


def configure(home: Home, text: str) -> Path:
    file = home.path / ".config/checkpointd/config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


# -- logs -------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_read_is_named_and_read_later(bound: Daemon, repo: Path) -> None:
    agent = Claude(bound.home.path, repo)
    agent.log.parent.mkdir(parents=True)
    agent.log.touch(0o000)
    agent.says("in the dark")
    bound.wait_for(lambda: str(agent.log) in problems(bound), "the log among the problems")
    assert "permission" in problems(bound).lower()
    other = Pi(bound.home.path, repo)
    begin(bound, other)
    agent.log.chmod(0o600)
    agent.says("and in the light")
    bound.checkpoint(repo, "baseline", agent.session)
    bound.wait_for(lambda: not problems(bound), "no problem")
    bound.ckpt("status", "--check")


@pytest.mark.parametrize("name", ["claude", *(pytest.param(n, marks=pytest.mark.slow) for n in ("pi", "codex"))])
def test_garbage_in_a_log_is_counted_and_passed_over(daemon: Daemon, repo: Path, name: str) -> None:
    agent = AGENTS[name](daemon.home.path, repo)
    begin(daemon, agent)
    agent.append_raw(os.urandom(50_000).replace(b"\n", b"") + b"\n" + bytes(5000) + b"\n{\n[1, 2\n\xff\xfe\n")
    agent.append_raw(
        b'{"type": ["not", "text"], "timestamp": {"a": 1}, "message": 7}\n"text"\nnull\n' + b"[" * 3000 + b"\n"
    )
    agent.append_raw(b'{"type":"a kind of tomorrow"}\n')
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    turn = daemon.checkpoint(repo, "turn", agent.session)
    assert daemon.content(turn["id"], "a.py", repo) == "a = 2\n"
    (state,) = [a for a in daemon.json("status", code=None)["agents"] if a["agent"] == name]
    assert state["unknown_records"] >= 5
    assert state["unknown_kinds"]
    assert state["state"] in ("partly", "not-understood")
    assert f"of {name} are not understood" in problems(daemon)


def test_what_only_looks_like_a_log_does_no_harm(asleep: Daemon, repo: Path) -> None:
    agent = Claude(asleep.home.path, repo)
    folder = agent.log.parent
    folder.mkdir(parents=True)
    (folder / "11111111-2222-4333-8444-555555555551.jsonl").mkdir()
    os.mkfifo(folder / "11111111-2222-4333-8444-555555555552.jsonl")
    (folder / "11111111-2222-4333-8444-555555555553.jsonl").symlink_to("11111111-2222-4333-8444-555555555553.jsonl")
    (folder / "11111111-2222-4333-8444-555555555554.jsonl").symlink_to("/dev/zero")
    (folder / "11111111-2222-4333-8444-555555555555.jsonl").touch()
    daemon = asleep.start()
    os.mkfifo(folder / "11111111-2222-4333-8444-555555555556.jsonl")
    begin(daemon, agent)
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    daemon.checkpoint(repo, "turn", agent.session)


# -- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("agents: {disabled: [codex]\n  x", "not valid YAML"),
        ("agents:\n  disabld: [pi]\n", "did you mean `disabled`"),
    ],
)
def test_a_bad_config_is_named_and_the_running_one_stays(daemon: Daemon, repo: Path, text: str, told: str) -> None:
    file = configure(daemon.home, f"exclude_projects: [{repo}]\n")

    def reload() -> None:
        os.kill(daemon.pid, signal.SIGHUP)

    reload()
    daemon.wait_for(lambda: daemon.ckpt("save", cwd=repo, code=None) == "", "the project excluded")
    file.write_text(text)
    reload()
    daemon.wait_for(lambda: str(file) in problems(daemon), "the file among the problems")
    assert told in problems(daemon)
    daemon.ckpt("status", "--check", code=1)
    daemon.ckpt("save", cwd=repo, code=1)  # still excluded
    file.write_text("exclude_projects: []\n")
    reload()
    daemon.wait_for(lambda: not problems(daemon), "no problem")
    daemon.ckpt("save", cwd=repo)


def test_a_daemon_starts_with_a_bad_config(asleep: Daemon, repo: Path) -> None:
    file = configure(asleep.home, "paused: [maybe\n")
    daemon = asleep.start()
    assert str(file) in problems(daemon)
    daemon.ckpt("save", cwd=repo)


# -- requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("show", "nonsense"), 3, "nonsense"),
        (("show", "ckpt-20200101-000000-00000000"), 3, "ckpt-20200101-000000-00000000"),
        (("show", "@99"), 3, "@99"),
        (("show", "@-1"), 3, "@-1"),
        (("show", "0000:3"), 3, "0000"),
        (("show", "ckpt-"), 3, "2 checkpoints"),
        (("restore", "ckpt-", "--yes"), 3, "2 checkpoints"),
        (("forget", "nonsense", "--yes"), 3, "nonsense"),
        (("list", "--session", "nonsense"), 3, "nonsense"),
        (("list", "--project", "nonsense"), 3, "nonsense"),
        (("list", "--trigger", "nonsense"), 2, "nonsense"),
        (("show", "@", "--file", "nothing.py"), 3, "nothing.py"),
        (("show", "@", "--file", "src"), 3, "src"),
        (("show", "@", "--file", "/etc/passwd"), 1, "/etc/passwd"),
        (("restore", "@", "/etc/passwd", "--yes"), 1, "/etc/passwd"),
        (("restore", "@", "--to", "/dev/null", "--yes"), 1, "/dev/null"),
        (("undo", "--yes"), 3, "no restore"),
    ],
)
def test_a_request_that_means_nothing_is_told_so(
    both_saved: Daemon, args: tuple[str, ...], code: int, told: str
) -> None:
    repo = both_saved.home.path / "shop"
    both_saved.ckpt(*args, cwd=repo, code=code)
    assert told in both_saved.last_stderr
    assert "hint:" in both_saved.last_stderr or code == 2
    assert [row["name"] for row in both_saved.checkpoints(repo)] == ["two", "one"]


@pytest.fixture(scope="module")
def both_saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home = Home(tmp_path_factory.mktemp("saved") / "home")
    daemon = Daemon(home).start()
    repo = repositories.make(home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n"})
    daemon.ckpt("save", "one", cwd=repo)
    daemon.ckpt("save", "two", cwd=repo)
    yield daemon
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.logged
    shutil.rmtree(home.runtime)


@pytest.mark.parametrize("command", ["status", "list", "save", "last", "sessions", "projects", "continue", "watch"])
def test_without_a_daemon_every_command_says_how_to_start_one(asleep: Daemon, repo: Path, command: str) -> None:
    asleep.ckpt(command, cwd=repo, code=5)
    assert "ckpt up" in asleep.last_stderr


def test_a_newer_client_is_told_to_restart_the_daemon(daemon: Daemon) -> None:
    with Client(daemon.home.runtime / "checkpointd/socket") as client:
        client.ask("hello", version="99.0", protocol=PROTOCOL + 1)
        error = client.ask("list")["error"]
        assert error["data"]["code"] == "incompatible"
        assert "restart" in error["data"]["hint"]
        assert client.ask("status")["result"]["daemon"]["pid"] == daemon.pid


# -- disks ------------------------------------------------------------------------------------


def test_a_full_disk_loses_no_checkpoint_and_is_told(small_disk: Path, asleep: Daemon, repo: Path) -> None:
    daemon = asleep.start()
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    big = repo / "big.bin"
    big.write_bytes(os.urandom(15 << 20))
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    daemon.wait_for(lambda: f"{repo} is not captured" in problems(daemon), "the full disk among the problems")
    daemon.ckpt("save", cwd=repo, code=1)
    assert "No room" in daemon.last_stderr
    assert "hint: Free some room" in daemon.last_stderr
    daemon.ckpt("status", "--check", code=1)
    assert daemon.content("@", "a.py", repo) == "a = 1\n"
    big.unlink()
    daemon.wait_for(lambda: daemon.ckpt("save", "after", cwd=repo, code=None) != "", "room again", 40)
    assert daemon.content("after", "a.py", repo) == "a = 2\n"
    daemon.wait_for(lambda: not problems(daemon), "no problem")
    assert daemon.stop() == 0
    # And nothing half done is in the way of the next start.
    daemon.start()
    assert daemon.content("after", "a.py", repo) == "a = 2\n"


def test_a_vault_that_cannot_be_written_is_named_and_still_read(bound: Daemon, repo: Path) -> None:
    daemon = bound
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    (project,) = (daemon.home.data / "projects").iterdir()
    modes = {path: path.lstat().st_mode for path in (project, *project.rglob("*"))}
    try:
        for path in modes:
            path.chmod(0o500 if path.is_dir() else 0o400)
        agent.writes("a.py", "a = 2\n")
        agent.answers()
        daemon.wait_for(lambda: f"{repo} is not captured" in problems(daemon), "the vault among the problems")
        daemon.ckpt("save", cwd=repo, code=1)
        assert str(project) in daemon.last_stderr
        assert "hint: Make it writable" in daemon.last_stderr
        assert daemon.content("@", "a.py", repo) == "a = 1\n"
        daemon.ckpt("restore", "@", "--dry-run", "--to", str(daemon.home.path / "out"), cwd=repo)
        daemon.ckpt("pin", "@", cwd=repo, code=1)
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    daemon.wait_for(lambda: daemon.ckpt("save", "after", cwd=repo, code=None) != "", "a vault again", 40)
    assert daemon.content("after", "a.py", repo) == "a = 2\n"
    daemon.wait_for(lambda: not problems(daemon), "no problem")


def test_a_vault_that_could_not_be_written_at_the_start_is_tried_again(bound: Daemon, repo: Path) -> None:
    daemon = bound
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    assert daemon.stop() == 0
    (project,) = (daemon.home.data / "projects").iterdir()
    modes = {path: path.lstat().st_mode for path in (project, *project.rglob("*"))}
    try:
        for path in modes:
            path.chmod(0o500 if path.is_dir() else 0o400)
        daemon.start()
        daemon.wait_for(lambda: f"{repo} is not captured" in problems(daemon), "the vault among the problems")
        assert daemon.content("@", "a.py", repo) == "a = 1\n"
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    daemon.wait_for(lambda: f"{repo} is not captured" not in problems(daemon), "captured again")
    (state,) = daemon.wait_for(
        lambda: [p for p in daemon.json("status", code=None)["projects"] if p["watch"] == "live"], "the project watched"
    )
    assert state["last_capture"]
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    turn = daemon.checkpoint(repo, "turn", agent.session)
    assert daemon.content(turn["id"], "a.py", repo) == "a = 2\n"
    assert daemon.json("status", code=None)["budgets"]["watches"]["used"] > 0


@pytest.mark.parametrize("damage", ["gone", "garbage", pytest.param("unreachable", marks=pytest.mark.slow)])
def test_a_vault_that_cannot_be_opened_is_named(asleep: Daemon, repo: Path, damage: str) -> None:
    other = repositories.make(asleep.home.path / "other", {"x.py": "x = 1\n"})
    daemon = asleep.start()
    daemon.ckpt("save", "one", cwd=repo)
    daemon.ckpt("save", "two", cwd=other)
    identity = daemon.record("one", repo)["project"]["id"]
    assert daemon.stop() == 0
    vault = daemon.home.data / "projects" / identity / "vault.git"
    aside = vault.with_name("aside")
    vault.rename(aside)
    if damage == "garbage":
        vault.write_bytes(b"no vault")
    elif damage == "unreachable":
        vault.symlink_to("/proc/1/nothing")
    daemon.start()
    # Whatever happens to one project, the others are protected, and no answer is a bug.
    daemon.ckpt("save", "three", cwd=other)
    for args in (("show", "one"), ("show", "one", "--file", "a.py"), ("restore", "one", "--yes"), ("pin", "one")):
        daemon.ckpt(*args, cwd=repo, code=None)
        assert daemon.last_code in (1, 3), (args, daemon.last_stderr)
    assert ("vault of shop: 1 of its" if damage == "gone" else str(repo)) in problems(daemon)
    assert (repo / "a.py").read_text() == "a = 1\n"
