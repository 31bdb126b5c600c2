"""From a log line to the trigger it causes, and from the end of an agent's process to the checkpoint."""

import json
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from bench.daemon import Daemon
from bench.measure import Report, milliseconds, percentile, until
from bench.trees import git
from checkpointd.demo import Stage


class Listener:
    """What `ckpt watch` would show, with the time it came."""

    def __init__(self, daemon: Daemon, cwd: Path) -> None:
        self._connection = daemon.connect()
        self.heard: list[tuple[float, dict[str, Any]]] = []
        threading.Thread(target=self._listen, args=(str(cwd),), daemon=True).start()

    def _listen(self, cwd: str) -> None:
        try:
            for happening in self._connection.happenings({"cwd": cwd, "all": True}):
                self.heard.append((time.time(), dict(happening)))
        except Exception as error:  # noqa: BLE001 - the daemon's end ends it
            self.heard.append((time.time(), {"kind": "closed", "text": str(error)}))

    def checkpoint(self, trigger: str, since: int, within: float = 20.0) -> float:
        """When a checkpoint of that trigger was told, after the first `since` happenings."""
        found: list[float] = []

        def there() -> bool:
            for when, happening in list(self.heard)[since:]:
                record = happening.get("checkpoint") or {}
                if trigger in (record.get("trigger"), *record.get("also", ())):
                    found.append(when)
            return bool(found)

        until(there, f"a {trigger} checkpoint", within=within, every=0.005)
        return found[0]


def run(folder: Path, report: Report) -> None:
    """A real daemon follows a log in Claude Code's format."""
    stage = Stage(folder)
    git("init", "-q", cwd=stage.project)
    (stage.project / "README.md").write_text("# Shop\n")
    daemon = Daemon(stage.env, folder / "daemon.log")
    daemon.start()
    try:
        listener = Listener(daemon, stage.project)
        stage.says("Begin.")
        listener.checkpoint("baseline", 0)
        _lines(stage, daemon, listener, report)
        _ends(stage, daemon, listener, report)
    finally:
        daemon.remove()


def _lines(stage: Stage, daemon: Daemon, listener: Listener, report: Report) -> None:
    rounds = 12 if report.short else 150
    triggers, records = [], []
    for number in range(rounds):
        stage.says(f"Do step {number}.")
        (stage.project / "step.txt").write_text(f"{number}\n")
        time.sleep(0.5)  # the requests of one moment make one record: each is to have its own
        since, heard = daemon.log.stat().st_size, len(listener.heard)
        written = time.time()
        stage.answers(f"Did step {number}.")
        triggers.append(daemon.hears("trigger=turn", since) - written)
        records.append(listener.checkpoint("turn", heard) - written)
    # The daemon's log has whole milliseconds, cut off: half of one is added.
    triggers = [seconds + 0.0005 for seconds in triggers]
    report.say(f"line to trigger           {milliseconds(triggers)}   p99 {percentile(triggers, 0.99) * 1e3:.1f}")
    report.say(
        f"line to finished record   {milliseconds(records)}   (300 ms of it wait for requests of the same moment)"
    )
    median, p99 = statistics.median(triggers), percentile(triggers, 0.99)
    report.number("log line to the trigger it causes, median", f"{median * 1e3:.1f} ms", "under 20 ms", median < 0.020)
    report.number("log line to the trigger it causes, p99", f"{p99 * 1e3:.1f} ms", "under 100 ms", p99 < 0.100)
    report.floor("a log line takes a second to be noticed", holds=median < 1)


def _ends(stage: Stage, daemon: Daemon, listener: Listener, report: Report) -> None:
    """A process that Claude Code's registry names for the session is killed."""
    samples = []
    registry = stage.home / ".claude/sessions"
    registry.mkdir(parents=True, exist_ok=True)
    for number in range(2 if report.short else 10):
        child = subprocess.Popen(["sleep", "600"])
        try:
            entry = registry / f"{child.pid}.json"
            start = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
            entry.write_text(json.dumps({
                "pid": child.pid, "sessionId": stage.session, "cwd": str(stage.project), "procStart": start,
            }))  # fmt: skip
            since = daemon.log.stat().st_size
            stage.says(f"Go on, {number}.")
            daemon.hears("session bound", since)
            stage.writes("end.txt", f"{number}\n")
            time.sleep(0.6)
            heard = len(listener.heard)
        finally:
            child.kill()
        gone = time.time()
        child.wait()
        samples.append(listener.checkpoint("session-end", heard) - gone)
        entry.unlink()
    report.say(f"process gone to record    {milliseconds(samples)}")
    worst = max(samples)
    report.number("agent process gone to session-end, worst", f"{worst:.2f} s", "under 3 s", worst < 3)
    report.floor("the end of a process is not noticed", holds=worst < 15)
