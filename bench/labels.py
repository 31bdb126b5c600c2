"""Scores the readings of commands, outputs and failures against label sets.

usage: python bench/labels.py LABELS_DIR [--errors]

LABELS_DIR holds danger/, gates/, failures/ and score.py. Predictions go to a temporary file.
"""

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from checkpointd.agents import claude_outcomes
from checkpointd.agents.claude import Claude
from checkpointd.model import danger, failures, gates
from checkpointd.model.events import Outcome, Position

ROOT = "/home/dev/project"


def danger_predictions(folder: Path) -> Iterator[dict[str, Any]]:
    with (folder / "danger.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            answer = danger.assess(json.loads(row["command"]), row["cwd"], ROOT, json.loads(row["context"]))
            paths = "unknown" if answer.paths is None else list(answer.paths)
            yield {
                "set": "danger",
                "id": row["id"],
                "label": answer.label,
                "effects": list(answer.effects),
                "paths": paths,
            }


def gate_predictions(folder: Path) -> Iterator[dict[str, Any]]:
    for line in (folder / "gates.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        code = claude_outcomes.exit_code(case["output"]) if case["is_error"] else None
        outcome: Outcome = "failed" if case["is_error"] else "ok"
        run = gates.read_run(case["command"], case["cwd"], case["output"], code, outcome)
        found: dict[str, Any] = {"set": "gates", "id": case["id"], "gate": "none"}
        if run is not None:
            found |= {
                "gate": run.gate, "colour": run.colour, "passed": run.passed, "failed": run.failed,
                "errors": run.errors,
                "skipped": run.skipped, "failing": list(run.failing), "exit": run.exit_code, "error": run.error or None,
            }  # fmt: skip
        yield found


def failure_predictions(folder: Path) -> Iterator[dict[str, Any]]:
    for log in sorted((folder / "logs").glob("*.jsonl")):
        parser = Claude().parser()
        state = failures.FailureState()
        fired: list[dict[str, Any]] = []
        refused: list[str] = []
        offset = 0
        for line in log.read_bytes().splitlines(keepends=True):
            uuid = json.loads(line).get("uuid", "")
            for event in parser.feed(line, Position(0, offset, uuid)):
                state, findings = failures.observe(state, event)
                for finding in findings:
                    if finding.trigger == "request-changes":
                        refused.append(uuid)
                    else:
                        fired.append({"uuid": uuid, "gate": finding.gate, "error": finding.error})
            offset += len(line)
        yield {"set": "failures", "id": log.stem, "repeated_failure": fired, "request_changes": refused}


def main() -> None:
    labels = Path(sys.argv[1])
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as out:
        for predictions in (
            danger_predictions(labels / "danger"),
            gate_predictions(labels / "gates"),
            failure_predictions(labels / "failures"),
        ):
            for prediction in predictions:
                out.write(json.dumps(prediction) + "\n")
        out.flush()
        command = [sys.executable, str(labels / "score.py"), out.name]
        for name in ("danger", "gates", "failures"):
            command += ["--set", name]
        subprocess.run([*command, *sys.argv[2:]], check=True)


if __name__ == "__main__":
    main()
