"""Faults with session logs, sessions and secrets, as users of other tools met them, shown on a real daemon."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support import repositories
from support.daemons import Daemon
from support.homes import Home
from support.playing import AGENTS, FAILURE, Actor, Claude, Codex, Pi


@pytest.fixture
def repo(home: Home) -> Path:
    return repositories.make(home.path / "shop", {"a.py": "a = 1\n", "src/b.py": "b = 1\n"})


def everything_written(home: Home) -> bytes:
    """All that the daemon wrote as text, and every blob of the vaults that is one of its documents."""
    files = [path for top in (home.data, home.path / ".local/state") for path in top.rglob("*") if path.is_file()]
    found = [path.read_bytes() for path in files if path.suffix not in (".pack", ".idx")]
    for vault in (home.data / "projects").glob("*/vault.git"):
        env = {"PATH": os.environ["PATH"], "HOME": str(home.path), "GIT_CONFIG_NOSYSTEM": "1", "GIT_DIR": str(vault)}
        listing = subprocess.run(
            ["git", "cat-file", "--batch", "--batch-all-objects", "--buffer"], env=env, capture_output=True, check=True
        )
        found.append(listing.stdout)
    return b"\n".join(found)


SECRETS = [
    "sk-ant-api03-" + "Ab9" * 30, "sk-proj-" + "Zx8" * 16, "ghp_" + "a1B2" * 9,
    "github_pat_" + "11A" * 7 + "_" + "b2C" * 19,
    "glpat-" + "xY7" * 7, "AKIA" + "QZ7WJ3KD5M2N4P6R", "xox" + "b-123456789012-1234567890123-" + "aBc" * 8,
    "AIza" + "SyD" + "k9" * 16, "npm_" + "q8W" * 12, "hf_" + "LmN" * 12, "sk_live_" + "4eC" * 8,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
]  # fmt: skip
ASSIGNED = [
    "DB_PASSWORD=hunter2hunter2", "API_KEY=0a1b2c3d4e5f6a7b8c9d",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYzz",
]  # fmt: skip
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEAsecretsecretsecret\n-----END RSA PRIVATE KEY-----"
URL = "postgres://admin:s3cr3tpassw0rd@db.example.com/x"


@pytest.mark.parametrize("agent_name", AGENTS)
def test_b177_secrets_of_a_conversation_are_written_nowhere(daemon: Daemon, repo: Path, agent_name: str) -> None:
    agent = AGENTS[agent_name](daemon.home.path, repo)
    every = "\n".join([*SECRETS, *ASSIGNED, PEM, URL])
    agent.says(f"use these: {every}")
    daemon.checkpoint(repo, "baseline")
    for secret in SECRETS:
        agent.gets(agent.calls(f"curl -H 'Authorization: Bearer {secret}' https://example.com"), f"token {secret}")
    agent.gets(agent.calls(f"export {ASSIGNED[0]} && psql {URL}"), every)
    for number in range(3):
        text = FAILURE.replace("assert 1 == 2", f"assert '{SECRETS[0]}' == '{SECRETS[2]}' {ASSIGNED[1]}")
        agent.gets(agent.calls("python -m pytest -q tests/test_a.py"), text, 1)
        agent.writes("src/attempt.py", f"attempt = {number}\n")
    agent.answers(f"I used {every}")
    daemon.checkpoint(repo, "turn")
    agent.says(f"now with {SECRETS[1]}")
    agent.runs(f"rm -rf src # {SECRETS[3]}", lambda: repositories.git(repo, "rm", "-rq", "src", "--cached"))
    agent.compacts()
    agent.answers(SECRETS[4])
    daemon.ckpt("save", "x", "--reason", f"because {SECRETS[5]}", cwd=repo)
    for command in (["continue"], ["last"], ["sessions"], ["status"], ["list"]):
        shown = daemon.ckpt(*command, cwd=repo, code=None)
        assert not [secret for secret in (*SECRETS, "hunter2hunter2", "s3cr3tpassw0rd") if secret in shown], command
    daemon.stop()
    written = everything_written(daemon.home)
    told = [s for s in SECRETS if s.encode() in written]
    told += [s for s in ASSIGNED if s.partition("=")[2].encode() in written]
    told += [s for s in ("MIIEpAIBAAKCAQEAsecret", "s3cr3tpassw0rd") if s.encode() in written]
    daemon.start()
    assert not told


def test_b095_a_secret_file_is_in_no_vault(daemon: Daemon, repo: Path) -> None:
    repositories.write(repo, {".env": "KEY=verysecretvalue123\n", "deep/.env.local": "KEY=verysecretvalue123\n",
                              "id_rsa": "verysecretvalue123\n",
                              ".pgpass": "verysecretvalue123\n", "server.pem": "verysecretvalue123\n"})  # fmt: skip
    agent = Claude(daemon.home.path, repo)
    agent.works("a.py", "a = 2\n")
    daemon.checkpoint(repo, "turn")
    row = daemon.json("save", "x", cwd=repo)["checkpoint"]
    assert ".env" in daemon.ckpt("show", row["id"], "--coverage", cwd=repo)
    daemon.stop()
    assert b"verysecretvalue123" not in everything_written(daemon.home)
    daemon.start()
    (repo / "a.py").write_text("a = 3\n")
    daemon.ckpt("restore", "x", "--yes", cwd=repo)
    assert (repo / ".env").read_text() == "KEY=verysecretvalue123\n"


def test_b062_a_huge_line_costs_little_memory(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo)
    agent.says("work")
    daemon.checkpoint(repo, "baseline")
    process = psutil.Process(daemon.pid)
    before = process.memory_info().rss
    part = b"x" * (1 << 20)
    with agent.log.open("ab") as log:
        log.write(b'{"type":"user","message":{"role":"user","content":"')
        for _ in range(300):
            log.write(part)
        log.write(b'"}}\n')
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    turn = daemon.checkpoint(repo, "turn")
    assert daemon.content(turn["id"], "a.py", repo) == "a = 2\n"
    assert process.memory_info().rss - before < 150 << 20


@pytest.mark.parametrize("agent_name", AGENTS)
def test_b086_garbage_in_a_log_is_counted_and_the_next_line_is_read(
    daemon: Daemon, repo: Path, agent_name: str
) -> None:
    agent = AGENTS[agent_name](daemon.home.path, repo)
    agent.says("work")
    daemon.checkpoint(repo, "baseline")
    deep = b"[" * 100_000 + b"]" * 100_000
    for garbage in (b"\0\0\0\0\n", b"\xff\xfe{}\n", b"{\n", b"[]\n", b"null\n", b'"x"\n', b"{}\n", deep + b"\n",
                    b'{"type":null}\n', b'{"type":{"a":1}}\n', b'{"type":"user","message":5}\n',
                    b'{"type":"message","message":{"role":7,"content":{"x":[[]]}}}\n',
                    b'{"type":"event_msg","payload":[1]}\n',
                    b'{"type":"response_item","payload":{"type":"function_call"}}\n',
                    b'{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}\n',
                    b'{"type":"never-heard-of","timestamp":"yesterday"}\n', b'{"timestamp":1e999}\n',
                    b'{"type":"user","cwd":"/\\u0000","message":{"role":"user","content":"x"}}\n'):  # fmt: skip
        agent.append_raw(garbage)
    agent.writes("a.py", "a = 2\n")
    agent.answers()
    turn = daemon.checkpoint(repo, "turn")
    assert daemon.content(turn["id"], "a.py", repo) == "a = 2\n"
    assert "Traceback" not in daemon.home.log.read_text()


def test_b102_two_sessions_at_once_keep_their_own_records(daemon: Daemon, repo: Path) -> None:
    one, two = Claude(daemon.home.path, repo), Codex(daemon.home.path, repo)
    for agent in (one, two):
        agent.says("work")
    for agent in (one, two):
        daemon.checkpoint(repo, "baseline", agent.session)
    one.writes("one.py", "one\n")
    two.writes("two.py", "two\n")
    for agent in (one, two):
        agent.answers(f"I am {agent.session}")
    for agent, name in ((one, "claude"), (two, "codex")):
        record = daemon.checkpoint(repo, "turn", agent.session)
        assert record["session"]["agent"] == name
        assert record["session"]["id"] == agent.session


def test_b103_many_turns_have_ids_of_their_own(daemon: Daemon, repo: Path) -> None:
    agents: list[Actor] = [Claude(daemon.home.path, repo), Pi(daemon.home.path, repo), Codex(daemon.home.path, repo)]
    for turn in range(4):
        for number, agent in enumerate(agents):
            agent.works(f"f{number}.py", f"{turn}\n", f"turn {turn}")
            daemon.checkpoint(repo, "turn", agent.session, count=turn + 1)
    rows = daemon.checkpoints(repo, "-n", "100")
    assert len({row["id"] for row in rows}) == len(rows) >= 12
    records = [daemon.record(row["id"], repo) for row in rows]
    assert len({record["seq"] for record in records}) == len(records)
    for agent in agents:
        own = [record for record in records if record["session"]["id"] == agent.session]
        turns = [record["turn"] for record in own if "turn" in (record["trigger"], *record.get("also", ()))]
        assert sorted(turns) == [1, 2, 3, 4]


def test_b126_an_unknown_session_or_checkpoint_is_not_guessed(daemon: Daemon, repo: Path) -> None:
    agent = Claude(daemon.home.path, repo, session="11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa")
    other = Claude(daemon.home.path, repo, session="11111111-bbbb-4bbb-8bbb-bbbbbbbbbbbb")
    for each in (agent, other):
        each.works("a.py", f"a = '{each.session}'\n")
        daemon.checkpoint(repo, "turn", each.session)
    daemon.ckpt("list", "--session", "99999999", cwd=repo, code=3)
    daemon.ckpt("list", "--session", "11111111", cwd=repo, code=3)
    assert "11111111-aaaa" in daemon.last_stderr and "11111111-bbbb" in daemon.last_stderr
    daemon.ckpt("show", "no-such", cwd=repo, code=3)
    daemon.ckpt("show", "ckpt-2", cwd=repo, code=3)
    daemon.ckpt("restore", "ckpt-2", "--yes", cwd=repo, code=3)


@pytest.mark.parametrize("agent_name", AGENTS)
def test_b185_only_the_same_failure_counts(daemon: Daemon, repo: Path, agent_name: str) -> None:
    agent = AGENTS[agent_name](daemon.home.path, repo)
    agent.says("fix the tests")
    daemon.checkpoint(repo, "baseline")
    for number in range(4):
        text = FAILURE.replace("test_a - assert 1 == 2", f"test_{number} - assert {number} == 'x{number}'")
        agent.gets(agent.calls("python -m pytest -q tests/test_a.py"), text.replace("::test_a", f"::test_{number}"), 1)
        agent.writes("src/attempt.py", f"attempt = {number}\n")
    agent.answers()
    daemon.checkpoint(repo, "turn")
    assert not daemon.checkpoints(repo, "--trigger", "repeated-failure")
    agent.says("again")
    agent.fails_tests(5)
    agent.answers()
    daemon.checkpoint(repo, "turn", count=2)
    assert len(daemon.checkpoints(repo, "--trigger", "repeated-failure")) == 1


def test_b121_an_unknown_generation_of_codex_is_loud(daemon: Daemon, repo: Path) -> None:
    agent = Codex(daemon.home.path, repo)
    agent.works("a.py", "a = 2\n")
    daemon.checkpoint(repo, "turn")
    for number in range(5):
        agent._line("history_page_v9", {"opaque": number})
    agent.works("a.py", "a = 3\n")
    daemon.checkpoint(repo, "turn", count=2)
    assert "5 of 20 records of codex are not understood" in daemon.ckpt("status", cwd=repo)


class Stand:
    """A process that is found to be the agent of a session: Claude's registry names it."""

    def __init__(self, home: Path, session: str, cwd: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=cwd)
        folder = home / ".claude/sessions"
        folder.mkdir(parents=True, exist_ok=True)
        start = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        self.file = folder / f"{self.process.pid}.json"
        self.file.write_text(json.dumps({
            "pid": self.process.pid, "sessionId": session, "cwd": str(cwd), "startedAt": 0, "procStart": start,
        }))  # fmt: skip

    def end(self, how: str) -> None:
        if how == "kill":
            self.process.send_signal(signal.SIGKILL)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        if how == "exit":
            self.file.unlink(missing_ok=True)


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_b139_b140_the_end_of_the_process_is_the_end_of_the_session(daemon: Daemon, repo: Path, how: str) -> None:
    agent = Claude(daemon.home.path, repo)
    stand = Stand(daemon.home.path, agent.session, repo)
    agent.works("a.py", "a = 2\n")
    daemon.checkpoint(repo, "turn")
    agent.says("half way")
    agent.writes("half.py", "half\n")
    daemon.captured(repo)
    stand.end(how)
    end = daemon.checkpoint(repo, "session-end")
    assert daemon.content(end["id"], "half.py", repo) == "half\n"
    assert len(daemon.checkpoints(repo, "--trigger", "session-end")) == 1
