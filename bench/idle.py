"""What the daemon takes while nothing happens, with projects and old logs."""

import json
import os
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.daemon import Daemon
from bench.measure import Report, until
from bench.trees import git
from checkpointd.demo import Stage
from ckpt.contract import methods


def run(folder: Path, report: Report) -> None:
    """Sessions in a few projects end their turns; the daemon starts anew, reads old logs, and is left alone."""
    projects, logs, seconds = (3, 300, 8.0) if report.short else (10, 5_000, 60.0)
    stage = Stage(folder)
    _old_logs(stage.home, logs)
    daemon = Daemon(stage.env, folder / "daemon.log")
    try:
        daemon.start()
        for number in range(projects):
            _work(stage, number)
        until(lambda: len(_status(daemon)["projects"]) >= projects, "all projects", within=60)
        begin = time.perf_counter()
        until(lambda: _backlog(daemon) == 0, "all old logs read", within=300, every=0.2)
        report.say(
            f"{logs} old logs were read {time.perf_counter() - begin:.1f} s later, {daemon.cpu():.1f} s of CPU in all"
        )
        daemon.stop()
        served = daemon.start()
        cpu = daemon.cpu()
        asked = time.perf_counter()
        _status(daemon)
        answered = time.perf_counter() - asked
        until(lambda: _settled(daemon, projects), "all work trees captured", within=120, every=0.2)
        time.sleep(2 if report.short else 10)
        _measure(daemon, report, projects, logs, seconds)
        report.say(
            f"start to serving {served:.2f} s ({cpu:.2f} s of CPU), the first status then in {answered * 1e3:.0f} ms"
        )
    finally:
        daemon.remove()


def _measure(daemon: Daemon, report: Report, projects: int, logs: int, seconds: float) -> None:
    before, start = daemon.cpu(), time.perf_counter()
    time.sleep(seconds)
    share = (daemon.cpu() - before) / (time.perf_counter() - start)
    rss = daemon.memory() / (1 << 20)
    threads = len(os.listdir(f"/proc/{daemon.pid}/task"))
    report.say(f"idle {seconds:.0f} s: {share:.2%} of a core, {rss:.0f} MiB resident, {threads} threads")
    full = logs >= 5_000
    where = f"{projects} projects, {logs} session files"
    report.number(f"idle CPU, {where}", f"{share:.2%} of a core", "under 0.5 %", share < 0.005 if full else None)
    report.number(f"idle memory, {where}", f"{rss:.0f} MiB", "under 80 MB", rss < 76.3)
    report.floor("an idle daemon is busy", holds=share < 0.1)
    report.floor("an idle daemon takes 200 MiB", holds=rss < 200)


def _status(daemon: Daemon) -> dict[str, Any]:
    connection = daemon.connect()
    try:
        return dict(connection.call(methods.STATUS, {}))
    finally:
        connection.close()


def _backlog(daemon: Daemon) -> int:
    return int(next(b["used"] for name, b in _status(daemon)["budgets"].items() if name == "old logs to read"))


def _settled(daemon: Daemon, projects: int) -> bool:
    status = _status(daemon)
    live = [p for p in status["projects"] if p["watch"] == "live" and p["last_capture"]]
    return len(live) >= projects and _backlog(daemon) == 0


def _work(stage: Stage, number: int) -> None:
    """One session in one project: a request, a written file, an answer."""
    project = stage.home / f"project{number}"
    project.mkdir()
    git("init", "-q", cwd=project)
    for i in range(50):
        (project / f"module{i}.py").write_text(f"value = {i}\n" * 40)
    session = str(uuid.uuid4())
    with _log(stage.home, project, session).open("w") as log:
        for record in _records(project, session, datetime.now(UTC), 2):
            log.write(record)


def _old_logs(home: Path, count: int) -> None:
    """Logs of sessions of the last months, in 60 folders that are gone."""
    dice = random.Random(3)
    now = datetime.now(UTC)
    for number in range(count):
        project, session = home / "old" / f"app{number % 60}", str(uuid.UUID(int=dice.getrandbits(128), version=4))
        when = now - timedelta(days=dice.uniform(1, 90))
        path = _log(home, project, session)
        path.write_text("".join(_records(project, session, when, dice.randint(3, 12))))
        os.utime(path, (when.timestamp(), when.timestamp()))


def _log(home: Path, project: Path, session: str) -> Path:
    safe = "".join(c if c.isascii() and c.isalnum() else "-" for c in str(project))
    folder = home / ".claude/projects" / safe
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{session}.jsonl"


def _records(project: Path, session: str, when: datetime, turns: int) -> list[str]:
    lines: list[str] = []

    def add(kind: str, message: dict[str, Any], **more: Any) -> None:
        at = (when + timedelta(seconds=len(lines))).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = {
            "parentUuid": None, "isSidechain": False, "type": kind, "message": message, "uuid": str(uuid.uuid4()),
            "timestamp": at, "userType": "external", "cwd": str(project), "sessionId": session,
            "version": "2.1.0", **more,
        }  # fmt: skip
        lines.append(json.dumps(record, separators=(",", ":")) + "\n")

    def says(*content: dict[str, Any], stop: str) -> None:
        add("assistant", {
            "id": f"msg_{uuid.uuid4().hex[:20]}", "type": "message", "role": "assistant", "model": "demo",
            "content": list(content), "stop_reason": stop, "usage": {"input_tokens": 10, "output_tokens": 5},
        })  # fmt: skip

    for turn in range(turns):
        add("user", {"role": "user", "content": f"Do part {turn} of the work, and mind the edge cases."})
        call = f"toolu_{uuid.uuid4().hex[:20]}"
        given = {"file_path": str(project / f"module{turn}.py"), "content": "value = 1\n" * 40}
        says({"type": "tool_use", "id": call, "name": "Write", "input": given}, stop="tool_use")
        result = {"tool_use_id": call, "type": "tool_result", "content": "File created successfully", "is_error": False}
        add("user", {"role": "user", "content": [result]}, toolUseResult={"stdout": "ok " * 100, "stderr": ""})
        says({"type": "text", "text": "Part done. " * 20}, stop="end_turn")
    return lines
