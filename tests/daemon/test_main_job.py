"""The main job with played agents: they work and destroy, checkpoints appear by themselves, the right ones."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from support import repositories
from support.daemons import Daemon
from support.homes import Home
from support.playing import AGENTS, Actor, Claude, Codex, Pi

FILES: dict[str, str | bytes] = {"a.py": "a = 1\n", "src/b.py": "b = 1\n", "src/c.py": "c = 1\n"}


@pytest.fixture
def repo(home: Home) -> Path:
    return repositories.make(home.path / "shop", FILES)


def configure(home: Home, text: str) -> Path:
    file = home.path / ".config/checkpointd/config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def begin(daemon: Daemon, agent: Actor, cwd: Path | None = None) -> dict[str, Any]:
    """The session's first words; its baseline."""
    agent.says("please work")
    return daemon.checkpoint(cwd or agent.cwd, "baseline", agent.session)


def triggers(daemon: Daemon, cwd: Path) -> list[str]:
    """All records' triggers, oldest first."""
    return [row["trigger"] for row in reversed(daemon.checkpoints(cwd, "-n", "100"))]


@pytest.mark.parametrize("name", AGENTS)
def test_a_session_from_its_first_word_to_its_end(daemon: Daemon, repo: Path, name: str) -> None:
    untouched = repositories.fingerprint(repo / ".git")
    agent = AGENTS[name](daemon.home.path, repo)
    baseline = begin(daemon, agent)
    assert daemon.content(baseline["id"], "a.py", repo) == "a = 1\n"
    assert baseline["session"]["agent"] == name

    agent.writes("a.py", "a = 2\n")
    agent.answers()
    turn = daemon.checkpoint(repo, "turn", agent.session)
    assert daemon.content(turn["id"], "a.py", repo) == "a = 2\n"
    assert turn["turn"] == 1
    assert "please work" in turn["title"]
    assert [(c["path"], c["session"], c["certainty"]) for c in turn["files_changed"]] == [
        ("a.py", agent.session, "certain")
    ]

    agent.says("make the tests pass")
    agent.fails_tests()
    failure = daemon.checkpoint(repo, "repeated-failure", agent.session)
    assert failure["tests"][0]["colour"] == "red"
    assert "3 times" in failure["reason"]

    agent.writes("a.py", "a = 3\n")
    agent.compacts()
    compact = daemon.checkpoint(repo, "pre-compact", agent.session)
    assert daemon.content(compact["id"], "a.py", repo) == "a = 3\n"

    daemon.captured(repo)
    agent.runs("rm -rf src", lambda: shutil.rmtree(repo / "src"))
    before = daemon.checkpoint(repo, "pre-destructive", agent.session)
    assert before["taken"] in ("before", "rolling")
    assert daemon.content(before["id"], "src/b.py", repo) == "b = 1\n"
    assert "rm -rf src" in before["reason"]
    agent.answers()
    daemon.checkpoint(repo, "turn", agent.session, count=2)

    daemon.ckpt("restore", before["id"], "src", "--yes", cwd=repo)
    assert (repo / "src/b.py").read_text() == "b = 1\n"
    assert repositories.fingerprint(repo / ".git") == untouched
    assert daemon.json("status")["problems"] == []


def test_claudes_mark_of_the_end_makes_a_session_end(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    daemon.checkpoint(repo, "turn", agent.session)
    agent.leaves()
    end = daemon.checkpoint(repo, "session-end", agent.session)
    assert daemon.content(end["id"], "a.py", repo) == "a = 2\n"
    (session,) = daemon.json("sessions", cwd=repo)["sessions"]
    assert session["state"] == "ended"


@pytest.mark.parametrize(
    ("name", "death"), [("claude", signal.SIGKILL), pytest.param("pi", signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_the_end_of_its_process_ends_a_session(daemon: Daemon, repo: Path, name: str, death: int) -> None:
    # A process of the agent's name, in the session's directory, is how an agent looks that keeps no registry.
    program = daemon.home.path / name
    program.symlink_to(shutil.which("sleep") or "/bin/sleep")
    with subprocess.Popen([program, "600"], cwd=repo) as process:
        try:
            agent = AGENTS[name](daemon.home.path, repo)
            begin(daemon, agent)
            daemon.wait_for(
                lambda: any(s["pid"] == process.pid for s in daemon.json("sessions", "--all")["sessions"]),
                "the session bound to its process",
            )
            agent.writes("a.py", "a = 2\n")
        finally:
            process.send_signal(death)
    end = daemon.checkpoint(repo, "session-end", agent.session)
    assert str(process.pid) in end["reason"]
    assert daemon.content(end["id"], "a.py", repo) == "a = 2\n"
    # It is taken back by the next work.
    agent.writes("a.py", "a = 3\n")
    agent.answers()
    last = daemon.checkpoint(repo, "turn", agent.session)
    assert daemon.content(last["id"], "a.py", repo) == "a = 3\n"
    assert daemon.json("sessions", cwd=repo)["sessions"][0]["state"] in ("live", "idle")


def test_silence_ends_a_session(asleep: Daemon, repo: Path) -> None:
    configure(asleep.home, "session:\n  idle: 1s\n")
    daemon = asleep.start()
    agent = Pi(daemon.home.path, repo)
    begin(daemon, agent)
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    end = daemon.checkpoint(repo, "session-end", agent.session)
    assert "heard" in end["reason"]
    assert "0 minutes" not in end["reason"]


def test_long_turns_are_recorded_on_a_schedule(asleep: Daemon, repo: Path) -> None:
    configure(asleep.home, "session:\n  scheduled: 1s\n")
    daemon = asleep.start()
    agent = Codex(daemon.home.path, repo)
    begin(daemon, agent)
    agent.writes("a.py", "a = 2\n")
    scheduled = daemon.checkpoint(repo, "scheduled", agent.session)
    assert daemon.content(scheduled["id"], "a.py", repo) == "a = 2\n"
    agent.writes("a.py", "a = 3\n")
    daemon.checkpoint(repo, "scheduled", agent.session, count=2)
    assert triggers(daemon, repo) == ["baseline", "scheduled", "scheduled"]


def test_head_jumping_back_is_recorded_with_the_files_from_before(daemon: Daemon, repo: Path) -> None:
    repositories.write(repo, {"a.py": "a = 2\n"})
    repositories.git(repo, "commit", "-qam", "second")
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    # Commits, merges and a stash go forward, or nowhere: nothing is recorded.
    repositories.write(repo, {"a.py": "a = 3\n"})
    daemon.captured(repo)
    repositories.git(repo, "commit", "-qam", "third")
    repositories.git(repo, "checkout", "-qb", "side")
    repositories.write(repo, {"d.py": "d = 1\n"})
    repositories.git(repo, "add", "d.py")
    repositories.git(repo, "stash", "-q")
    repositories.git(repo, "stash", "pop", "-q")
    repositories.git(repo, "commit", "-qm", "fourth")
    repositories.write(repo, {"a.py": "a = 4, and not committed\n"})
    daemon.captured(repo)
    agent.thinks()
    assert "head-moved" not in triggers(daemon, repo)

    repositories.git(repo, "reset", "-q", "--hard", "HEAD~1")
    moved = daemon.checkpoint(repo, "head-moved", agent.session)
    assert daemon.content(moved["id"], "a.py", repo) == "a = 4, and not committed\n"
    assert daemon.content(moved["id"], "d.py", repo) == "d = 1\n"
    assert not (repo / "d.py").exists()
    # The same again in one breath with a commit after it: the newest line of the reflog looks innocent.
    repositories.write(repo, {"a.py": "a = 5, and not committed\n"})
    daemon.captured(repo)
    agent.thinks()
    repositories.git(repo, "reset", "-q", "--hard", "HEAD~1")
    repositories.git(repo, "commit", "-q", "--allow-empty", "-m", "innocent")
    again = daemon.checkpoint(repo, "head-moved", agent.session, count=2)
    assert daemon.content(again["id"], "a.py", repo) == "a = 5, and not committed\n"


def test_without_a_session_only_what_would_be_lost_is_recorded(daemon: Daemon, repo: Path) -> None:
    daemon.ckpt("save", "mine", cwd=repo)
    shutil.rmtree(repo / "src")
    daemon.captured(repo)
    assert triggers(daemon, repo) == ["manual"], "what went was held by a checkpoint already"
    repositories.git(repo, "checkout", "-q", "--", "src")
    (repo / "b.py").write_text("b = 6, and committed nowhere\n")
    daemon.captured(repo)
    time.sleep(0.3)  # a person is no faster
    repositories.git(repo, "add", "b.py")
    repositories.git(repo, "commit", "-q", "--allow-empty", "-m", "one more")
    repositories.git(repo, "reset", "-q", "--hard", "HEAD~1")
    assert not (repo / "b.py").exists()
    found = daemon.wait_for(lambda: [r for r in daemon.checkpoints(repo) if r["trigger"] == "head-moved"], "a record")
    assert daemon.content(found[0]["id"], "b.py", repo) == "b = 6, and committed nowhere\n"


def test_files_deleted_at_once_are_recorded_though_no_log_says_so(daemon: Daemon, repo: Path) -> None:
    repositories.write(repo, {f"data/{n}.txt": f"{n}\n" for n in range(30)})
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    call = agent.calls("make clean")
    daemon.captured(repo)
    shutil.rmtree(repo / "data")
    before = daemon.checkpoint(repo, "pre-destructive", agent.session)
    assert before["taken"] == "rolling"
    assert daemon.content(before["id"], "data/7.txt", repo) == "7\n"
    agent.gets(call, "")


def test_a_command_that_was_refused_makes_no_record(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    agent.denied(agent.calls("rm -rf src"))
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    daemon.checkpoint(repo, "turn", agent.session)
    assert "rm -rf" not in daemon.ckpt("list", cwd=repo)


def test_two_sessions_at_once_have_records_of_their_own(daemon: Daemon, repo: Path) -> None:
    """B102."""
    one, two = Claude(daemon.home.path, repo), Pi(daemon.home.path, repo)
    for agent in (one, two):
        agent.says(f"I am {agent.session}")
    for agent in (one, two):
        daemon.checkpoint(repo, "baseline", agent.session)
    one.writes("one.py", "1\n")
    two.writes("two.py", "2\n")
    one.answers()
    two.answers()
    for agent, path in ((one, "one.py"), (two, "two.py")):
        record = daemon.checkpoint(repo, "turn", agent.session)
        assert agent.session in record["title"]
        own = [c["path"] for c in record.get("files_changed", ()) if c.get("certainty") == "certain"]
        assert set(own) <= {path}
        assert record["session_files"] == [path]
    rows = daemon.checkpoints(repo)
    assert sorted(row["session_id"] for row in rows) == sorted([one.session, two.session] * 2)
    assert len({row["id"] for row in rows}) == 4


def test_a_log_may_say_late_where_the_session_works(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    agent.append(
        {"type": "mode", "mode": "normal", "sessionId": agent.session},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False},
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "hello"}, "sessionId": agent.session},
    )
    daemon.wait_for(lambda: daemon.json("sessions", "--all")["sessions"], "the session")
    begin(daemon, agent)
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    daemon.checkpoint(repo, "turn", agent.session)
    assert triggers(daemon, repo) == ["baseline", "turn"]


def test_a_plain_directory_is_protected_as_well(daemon: Daemon) -> None:
    """B038."""
    plain = daemon.home.path / "notes"
    repositories.write(plain, {"a.txt": "one\n"})
    agent = Pi(daemon.home.path, plain)
    baseline = begin(daemon, agent)
    assert baseline["project"]["kind"] == "plain"
    agent.runs("rm a.txt", (plain / "a.txt").unlink)
    before = daemon.checkpoint(plain, "pre-destructive", agent.session)
    daemon.ckpt("restore", before["id"], "--yes", cwd=plain)
    assert (plain / "a.txt").read_text() == "one\n"
    assert sorted(p.name for p in plain.iterdir()) == ["a.txt"]


def test_work_in_a_folder_of_a_repository_belongs_to_the_repository(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo / "src")
    baseline = begin(daemon, agent)
    assert baseline["project"]["root"] == str(repo)
    agent.runs("rm -rf ../src/b.py", (repo / "src/b.py").unlink)
    before = daemon.checkpoint(repo, "pre-destructive", agent.session)
    assert daemon.content(before["id"], "b.py", repo / "src") == "b = 1\n"


def test_a_home_is_never_captured_and_status_says_so(daemon: Daemon) -> None:
    """B053."""
    home = daemon.home.path
    repositories.write(home, {"letter.txt": "private\n"})
    agent = Claude(home, home)
    agent.says("work")
    agent.writes("letter.txt", "changed\n")
    agent.answers()
    problems = daemon.wait_for(lambda: daemon.json("status", code=None)["problems"], "a problem in status")
    assert any(str(home) in p["what"] and "home directory" in p["what"] for p in problems)
    assert daemon.json("status")["projects"] == []
    assert not list((daemon.home.data / "projects").iterdir())
    daemon.ckpt("save", cwd=home, code=1)
    assert "home directory" in daemon.last_stderr


def test_being_asked_for_a_home_is_no_problem_of_the_daemons(daemon: Daemon) -> None:
    daemon.ckpt("save", cwd=daemon.home.path, code=1)
    assert "home directory" in daemon.last_stderr
    daemon.ckpt("status", "--check")


@pytest.mark.parametrize("git", [True, False])
def test_a_moved_project_keeps_its_checkpoints(daemon: Daemon, repo: Path, git: bool) -> None:
    """B136."""
    place = repo
    if not git:
        place = daemon.home.path / "plain"
        repositories.write(place, {"a.py": "a = 1\n", "src/b.py": "b = 1\n"})
    agent = Claude(daemon.home.path, place)
    begin(daemon, agent)
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    old = daemon.checkpoint(place, "turn", agent.session)
    moved = place.with_name("renamed")
    place.rename(moved)
    later = Claude(daemon.home.path, moved)
    begin(daemon, later)
    later.writes("a.py", "a = 3\n")
    later.answers()
    new = daemon.checkpoint(moved, "turn", later.session)
    assert daemon.content(new["id"], "a.py", moved) == "a = 3\n"
    assert new["project"]["id"] == old["project"]["id"]
    assert old["id"] in [row["id"] for row in daemon.checkpoints(moved)]
    # Old checkpoints serve the new place: paths are looked up, compared and restored there.
    assert daemon.content(old["id"], "a.py", moved) == "a = 2\n"
    changes = daemon.json("diff", old["id"], "a.py", cwd=moved)["changes"]
    assert [change["path"] for change in changes] == ["a.py"]
    daemon.ckpt("restore", old["id"], "a.py", "--yes", cwd=moved)
    assert (moved / "a.py").read_text() == "a = 2\n"
    assert not place.exists()
    assert len(daemon.json("projects")["projects"]) == 1


def test_a_new_directory_in_an_old_ones_place_is_no_moved_project(daemon: Daemon) -> None:
    """File systems give an inode number out again as soon as it is free."""
    old = daemon.home.path / "old"
    repositories.write(old, {"a.txt": "one\n"})
    daemon.ckpt("save", "old", cwd=old)
    inode = old.stat().st_ino
    shutil.rmtree(old)
    for number in range(200):
        new = daemon.home.path / f"new{number}"
        new.mkdir()
        if new.stat().st_ino == inode:
            break
    else:
        pytest.skip("this file system does not give the inode of a removed directory to a new one soon")
    repositories.write(new, {"something/else.txt": "two\n"})
    daemon.ckpt("save", cwd=new)
    assert {p["name"] for p in daemon.json("projects")["projects"]} == {"old", new.name}
    assert len(daemon.checkpoints(new)) == 1


def test_linked_work_trees_are_of_one_project_with_lines_of_their_own(daemon: Daemon, repo: Path) -> None:
    linked = daemon.home.path / "linked"
    repositories.git(repo, "worktree", "add", "-q", "-b", "topic", str(linked))
    untouched = repositories.fingerprint(repo / ".git")
    main, side = Claude(daemon.home.path, repo), Pi(daemon.home.path, linked)
    one, two = begin(daemon, main), begin(daemon, side)
    assert one["project"]["id"] == two["project"]["id"]
    assert one["project"]["worktree"] != two["project"]["worktree"]
    assert two["git"]["branch"] == "topic"
    main.writes("a.py", "a = main\n")
    side.writes("a.py", "a = side\n")
    main.answers()
    side.answers()
    for agent, text in ((main, "a = main\n"), (side, "a = side\n")):
        record = daemon.checkpoint(agent.cwd, "turn", agent.session)
        assert daemon.content(record["id"], "a.py", agent.cwd) == text
        assert daemon.record("@", agent.cwd)["id"] == record["id"]
    assert len(daemon.json("projects")["projects"]) == 1
    assert repositories.fingerprint(repo / ".git") == untouched


def test_what_a_session_writes_elsewhere_is_protected_there(daemon: Daemon, repo: Path) -> None:
    other = repositories.make(daemon.home.path / "library", {"lib.py": "x = 1\n"})
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    agent.writes(other / "lib.py", "x = 2\n")
    daemon.checkpoint(other, "baseline", agent.session)
    agent.writes(other / "lib.py", "x = 3\n")
    agent.answers()
    there = daemon.checkpoint(other, "turn", agent.session)
    assert daemon.content(there["id"], "lib.py", other) == "x = 3\n"
    assert there["project"]["root"] == str(other)


def test_a_session_that_ran_before_the_daemon_makes_records_from_now_on(asleep: Daemon, repo: Path) -> None:
    agent = Claude(asleep.home.path, repo)
    agent.says("the past")
    agent.fails_tests()
    agent.runs("rm -rf src", lambda: shutil.rmtree(repo / "src"))
    agent.answers()
    agent.compacts()
    daemon = asleep.start()
    (session,) = daemon.wait_for(lambda: daemon.json("sessions", "--all")["sessions"], "the session")
    assert session["turns"] == 1
    agent.says("the present")
    baseline = daemon.checkpoint(repo, "baseline", agent.session)
    assert baseline["turn"] == 2
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    daemon.checkpoint(repo, "turn", agent.session)
    assert triggers(daemon, repo) == ["baseline", "turn"]


@pytest.mark.parametrize("name", ["codex", *(pytest.param(n, marks=pytest.mark.slow) for n in ("claude", "pi"))])
def test_old_logs_make_sessions_and_no_records(asleep: Daemon, repo: Path, name: str) -> None:
    agent = AGENTS[name](asleep.home.path, repo)
    agent.says("long ago")
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    os.utime(agent.log, (1_700_000_000, 1_700_000_000))
    daemon = asleep.start()
    (session,) = daemon.wait_for(lambda: daemon.json("sessions", "--all")["sessions"], "the session")
    assert (session["agent"], session["id"], session["turns"]) == (name, agent.session, 1)
    assert daemon.json("projects")["projects"] == []
    assert daemon.json("status")["projects"] == []


def test_edits_while_the_daemon_was_down_are_in_the_next_checkpoint(asleep: Daemon, repo: Path) -> None:
    """B112."""
    daemon = asleep.start()
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    agent.leaves()
    daemon.checkpoint(repo, "session-end", agent.session)
    assert daemon.stop() == 0
    repositories.write(repo, {"a.py": "edited while nobody looked\n", "new/file.txt": "new\n"})
    shutil.rmtree(repo / "src")
    daemon.start()
    later = Pi(daemon.home.path, repo)
    found = begin(daemon, later)
    assert daemon.content(found["id"], "a.py", repo) == "edited while nobody looked\n"
    assert daemon.content(found["id"], "new/file.txt", repo) == "new\n"
    assert daemon.content(found["id"], "src/b.py", repo) is None


def test_paused_means_off(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    daemon.ckpt("pause", cwd=repo)
    size = vault_size(daemon)
    agent.works("a.py", "a = 2\n")
    agent.runs("rm -rf src", lambda: shutil.rmtree(repo / "src"))
    daemon.wait_for(
        lambda: daemon.json("sessions", "--all")["sessions"][0]["turns"] == 2, "the log to be read while paused"
    )
    assert vault_size(daemon) == size
    daemon.ckpt("resume", cwd=repo)
    agent.works("a.py", "a = 3\n")
    last = daemon.checkpoint(repo, "turn", agent.session)
    assert daemon.content(last["id"], "a.py", repo) == "a = 3\n"
    assert "pre-destructive" not in triggers(daemon, repo)


def vault_size(daemon: Daemon) -> int:
    return sum(path.stat().st_size for path in (daemon.home.data / "projects").rglob("*") if path.is_file())


@pytest.mark.parametrize("inside", [False, True])
def test_an_excluded_project_is_left_alone(asleep: Daemon, inside: bool) -> None:
    secret = asleep.home.path / "secret"
    repo = repositories.make(secret / "deep" if inside else secret, {"a.py": "a = 1\n"})
    other = repositories.make(asleep.home.path / "shop", FILES)
    configure(asleep.home, "exclude_projects: [~/secret]\n")
    daemon = asleep.start()
    agent = Claude(daemon.home.path, repo)
    agent.works("a.py", "a = 2\n")
    begin(daemon, Pi(daemon.home.path, other))
    daemon.ckpt("save", cwd=repo, code=1)
    assert "excluded" in daemon.last_stderr
    assert [p["name"] for p in daemon.json("projects")["projects"]] == ["shop"]


def test_a_disabled_agent_is_not_read(asleep: Daemon, repo: Path) -> None:
    configure(asleep.home, "agents:\n  disabled: [codex]\n")
    daemon = asleep.start()
    silent = Codex(daemon.home.path, repo)
    silent.says("hello")
    begin(daemon, Claude(daemon.home.path, repo))
    assert [s["agent"] for s in daemon.json("sessions", "--all")["sessions"]] == ["claude"]
    assert {a["agent"]: a["state"] for a in daemon.json("status")["agents"]}["codex"] == "disabled"


def test_secrets_do_not_get_into_texts(daemon: Daemon, repo: Path) -> None:
    token = "sk-ant-" + "api03-" + "a1B2c3D4" * 12
    agent = Claude(daemon.home.path, repo)
    agent.says(f"use ANTHROPIC_API_KEY={token}")
    daemon.checkpoint(repo, "baseline", agent.session)
    agent.runs(f"curl -H 'x-api-key: {token}' https://example.com && rm -rf src", lambda: shutil.rmtree(repo / "src"))
    daemon.checkpoint(repo, "pre-destructive", agent.session)
    agent.answers(f"The key is {token}")
    last = daemon.checkpoint(repo, "turn", agent.session)
    for args in (("show", last["id"], "--doc"), ("last",), ("continue",), ("list",), ("sessions",)):
        assert token not in daemon.ckpt(*args, cwd=repo), args
    assert daemon.stop() == 0
    for path in daemon.home.data.rglob("*"):
        if path.is_file():
            assert token.encode() not in path.read_bytes(), path


def test_every_question_of_a_session_has_an_answer(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    begin(daemon, agent)
    agent.writes("a.py", "a = 2\n")
    agent.answers("I changed a.")
    turn = daemon.checkpoint(repo, "turn", agent.session)
    last = daemon.json("last", cwd=repo)
    assert (last["request"], last["answer"], last["turn"]) == ("please work", "I changed a.", 1)
    assert [change["path"] for change in last["changes"]] == ["a.py"]
    assert daemon.record("@", repo)["id"] == turn["id"]
    assert daemon.record("@1", repo)["trigger"] == "baseline"
    assert daemon.record("@session-start", repo)["trigger"] == "baseline"
    assert daemon.record(f"{agent.session[:8]}:1", repo)["id"] == turn["id"]
    assert daemon.record(turn["id"][:-3], repo)["id"] == turn["id"]
    assert daemon.record(turn["name"], repo)["id"] == turn["id"]
    assert "please work" in daemon.ckpt("continue", cwd=repo)
