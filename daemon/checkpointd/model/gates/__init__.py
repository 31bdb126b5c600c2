"""Runs of tests, linters, type checkers and builds, read from a command and its output."""

import re
from collections.abc import Sequence

from msgspec import Struct

from checkpointd.model.events import Outcome
from checkpointd.model.gates import javascript, native, python, various
from checkpointd.model.gates.commands import Invocation, invocations, normalised
from checkpointd.model.gates.reading import Colour, Reader, Reading, plain
from checkpointd.model.gates.reading import normalised as normalised_error

__all__ = ["GateRun", "read_run"]

_LONGEST = 256 * 1024


class GateRun(Struct, frozen=True, kw_only=True):
    """One run of one gate. Counts and the exit code are None where they are not shown."""

    gate: str
    command: str  # normalised: without wrappers and output flags
    directory: str
    colour: Colour
    passed: int | None = None
    failed: int | None = None
    errors: int | None = None
    skipped: int | None = None
    failing: tuple[str, ...] = ()
    exit_code: int | None = None
    error: str = ""


_READERS: dict[str, Reader] = {
    "pytest": python.pytest, "unittest": python.unittest, "mypy": python.mypy, "pyright": python.pyright,
    "ruff": python.ruff,
    "flake8": python.flake8, "jest": javascript.jest, "vitest": javascript.vitest, "mocha": javascript.mocha,
    "node-test": javascript.node_test, "tsc": javascript.tsc, "eslint": javascript.eslint, "biome": javascript.biome,
    "go-test": native.go_test, "cargo-test": native.cargo_test, "nextest": native.nextest, "clippy": native.cargo_build,
    "golangci-lint": native.golangci_lint, "ctest": native.ctest, "make": native.make, "ninja": native.ninja,
    "maven": various.maven, "gradle": various.gradle, "dotnet-test": various.dotnet, "rspec": various.rspec,
    "minitest": various.minitest, "phpunit": various.phpunit, "bats": various.bats, "prove": various.prove,
    "docker-build": various.docker_build,
}  # fmt: skip
_OTHERS: dict[str, Reader] = {
    "cargo": native.cargo_build, "go": native.go_build, "dotnet": various.dotnet, "black": python.black,
    "pylint": python.pylint,
    "prettier": javascript.prettier, "playwright": javascript.playwright, "isort": native.compiled,
}  # fmt: skip
# The order in which a runner's output is searched for the tool that did the work.
_DETECTED = (
    "vitest", "jest", "mocha", "pytest", "unittest", "nextest", "cargo-test", "go-test", "rspec", "minitest", "phpunit",
    "maven", "gradle", "tsc", "dotnet-test", "ctest", "prove", "node-test", "mypy", "pyright", "ruff", "eslint",
    "biome", "golangci-lint", "flake8", "bats",
)  # fmt: skip
_PRINTED = re.compile(
    r"(?im)^\W*(?:[a-z_]{0,12}[ _-]?)?(?:exit(?:[ _-]?(?:code|status))?|rc|ret|status|code)\W{0,3}(\d{1,3})\W*$"
)


def read_run(command: str, cwd: str | None, output: str, exit_code: int | None, outcome: Outcome) -> GateRun | None:
    """The run of a gate that a shell call was; None where it ran none.

    Several gates in one line: the first red one, else the last. `exit_code` None with outcome "ok" is 0.
    """
    runs = invocations(command, cwd or "/")
    if not runs:
        return None
    text = plain(output if len(output) <= _LONGEST else output[: _LONGEST // 2] + "\n" + output[-_LONGEST // 2 :])
    code = exit_code if exit_code is not None else 0 if outcome == "ok" else None
    candidates = [_run(run, text, code, outcome, alone=len(runs) == 1) for run in runs]
    shown = [run for run in candidates if run is not None]
    red = next((run for run in shown if run.colour == "red"), None)
    return red or (shown[-1] if shown else None)


def _run(run: Invocation, text: str, code: int | None, outcome: Outcome, *, alone: bool) -> GateRun | None:
    gate, reading = _read(run, text)
    if not gate:
        return None  # a script of which nothing is known but its name
    exit_code = code if run.exposed else _printed(text)
    colour = _colour(run, reading, exit_code, outcome, text, alone=alone)
    if colour is None:
        return None
    error = reading.error if reading else ""
    failing = reading.failing if reading else ()
    if colour == "red" and reading is None:
        error = _first_error(text)
        failing = _script_name(run, text)
    return GateRun(
        gate=gate,
        command=normalised(run.words),
        directory=run.directory,
        colour=colour,
        passed=reading.passed if reading else None,
        failed=reading.failed if reading else None,
        errors=reading.errors if reading else None,
        skipped=reading.skipped if reading else None,
        failing=tuple(_relative(name, run.directory) for name in failing),
        exit_code=exit_code,
        error=normalised_error(error) if colour != "green" else "",
    )


def _read(run: Invocation, text: str) -> tuple[str, Reading | None]:
    """The gate that did the work, and what its text says."""
    reader = _READERS.get(run.gate) or _OTHERS.get(run.words[0].rpartition("/")[2])
    own = reader(text) if reader else None
    if not run.runs_others:
        return run.gate, own
    if run.gate == "docker-build":
        inner = _detected(text)
        if own is None or inner is None or own.colour != "red":
            return run.gate, own
        found = inner[1]
        return run.gate, Reading(
            colour="red",
            passed=found.passed,
            failed=found.failed,
            failing=found.failing,
            error=found.error or own.error,
        )
    if run.gate in ("make", "ninja") and own is not None and own.errors:
        return run.gate, own
    inner = _detected(text)
    if inner is not None:
        return inner
    return run.gate, own


def _detected(text: str) -> tuple[str, Reading] | None:
    """The gate whose output a text is: the first red one, else the last of those that tell."""
    found: tuple[str, Reading] | None = None
    for gate in _DETECTED:
        reading = _READERS[gate](text)
        if reading is None or not (reading.failing or _counts(reading)):
            continue
        if reading.colour == "red":
            return gate, reading
        if found is None:
            found = gate, reading
    return found


def _counts(reading: Reading) -> bool:
    return any(n is not None for n in (reading.passed, reading.failed, reading.errors, reading.skipped))


def _printed(text: str) -> int | None:
    """An exit code that the line itself printed (`rc=1`)."""
    found = _PRINTED.findall(text[-400:])
    return int(found[-1]) if found else None


def _colour(
    run: Invocation, reading: Reading | None, exit_code: int | None, outcome: Outcome, text: str, *, alone: bool
) -> Colour | None:
    """Red, green, unknown; None where this gate of several left no sign that it ran."""
    said = reading.colour if reading else None
    if outcome in ("denied", "aborted"):
        return said or "unknown"
    if said == "red":
        return "red"
    if said == "unknown":
        return "unknown"
    if exit_code:
        # Another gate of the line may have failed: then this one is what its text says.
        return "red" if alone or (said is None and _last_word(run, text)) else said
    if said == "green":
        return "green"
    if exit_code == 0:
        return "green" if reading is not None or run.quiet or run.runs_others else "unknown"
    return "unknown" if alone else None


def _last_word(run: Invocation, text: str) -> bool:
    """Whether the text speaks of the tool: `mypy: error: ...`."""
    return re.search(rf"(?m)^{re.escape(run.words[0])}\b", text) is not None


def _first_error(text: str) -> str:
    """The first line that calls itself an error, else the first line."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    named = next(
        (line for line in lines if re.search(r"(?i)\b(?:error|failed|fatal|cannot|missing|not found)\b", line)), ""
    )
    return re.sub(r"^(?:npm (?:error|ERR!)|error:?|ERROR:?|yarn error)\s*", "", named or (lines[0] if lines else ""))


def _script_name(run: Invocation, text: str) -> tuple[str, ...]:
    if run.gate != "npm-script":
        return ()
    words: Sequence[str] = [
        word for word in run.words[1:] if not word.startswith("-") and word not in ("run", "run-script")
    ]
    return tuple(words[:1])


def _relative(name: str, directory: str) -> str:
    prefix = directory.rstrip("/") + "/"
    return name.removeprefix(prefix) if name.startswith("/") else name.removeprefix("./")
