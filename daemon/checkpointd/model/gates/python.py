"""Readers of Python's test runners, linters and type checkers."""

import re

from checkpointd.model.gates.reading import Reading, number, unique, verdict

# --- pytest

_PYTEST_SUMMARY = re.compile(
    r"(?m)^(?:=+ )?((?:\d+ (?:failed|passed|skipped|deselected|xfailed|xpassed|errors?|warnings?|rerun"
    r"|subtests passed)(?:, )?)+)"
    r"(?: in [\d.]+s\b.*)?(?: =+)?$"
)
_PYTEST_NONE = re.compile(r"(?m)^(?:=+ )?no tests (?:ran|collected)")
_PYTEST_ITEM = re.compile(
    r"(?m)^(?:FAILED|ERROR) ((?:\S+?\.(?:py|pyx|md|rst|txt|yaml|yml|ipynb)|\S+?::)(?:(?! - ).)*?)(?: - (.*))?$"
)
_PYTEST_HEADER = re.compile(r"(?m)^_{3,} (?:ERROR at (?:setup|teardown) of |ERROR collecting )?(.+?) _{3,}$")
_PYTEST_PLACE = re.compile(r"(?m)^(\S+\.py):\d+: \S")
_PYTEST_START = re.compile(
    r"(?m)^(?:=+ test session starts =+|.* *\[ *\d+%\]|collected \d+ items?.*|=+ (?:FAILURES|ERRORS) =+)$"
)
_PYTEST_E = re.compile(r"(?m)^E   (?:    )?(?! )(.+)$")
_PYTEST_USAGE = re.compile(
    r"(?m)^(?:ERROR: (?!usage)(.+)|\S*(?:pytest|__main__\.py): error: (.+)|(ImportError while loading conftest.*))$"
)


def pytest(text: str) -> Reading | None:
    usage = _PYTEST_USAGE.search(text)
    summaries = list(_PYTEST_SUMMARY.finditer(text))
    items = [(m[1], m[2] or "") for m in _PYTEST_ITEM.finditer(text)]
    nothing = _PYTEST_NONE.search(text)
    started = _PYTEST_START.search(text) or re.search(r"(?m)^INTERNALERROR>", text)
    if not (summaries or items or nothing or started or usage):
        return None
    error = _pytest_error(text, items)
    counts = _pytest_counts(summaries[-1][1]) if summaries else {}
    failing = unique(name for name, _ in items) or _pytest_headers(text)
    if usage and not items and not summaries:
        missing = re.match(r"(?:file or directory not found|not found): (\S+)", usage[1] or "")
        return Reading(
            colour="red",
            passed=0,
            failed=0,
            skipped=0,
            failing=(missing[1],) if missing else (),
            error=usage[1] or usage[2] or usage[3],
        )
    failed = bool(items or counts.get("failed") or counts.get("error") or re.search(r"(?m)^INTERNALERROR>", text))
    if not summaries and not nothing:
        return Reading(colour="red" if failed or failing else None, failing=failing, error=error)
    ran = any(counts.get(word) for word in ("passed", "skipped", "xfailed", "xpassed"))
    return Reading(
        colour=verdict(failed, ran),
        passed=counts.get("passed", 0) + counts.get("xpassed", 0),
        failed=counts.get("failed", 0),
        errors=counts.get("error", 0),
        skipped=counts.get("skipped", 0),
        failing=failing,
        error=error,
    )


def _pytest_counts(summary: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for amount, word in re.findall(r"(\d+) (\w+)", summary):
        counts[word.removesuffix("s") if word in ("errors", "warnings") else word] = int(amount)
    return counts


def _pytest_headers(text: str) -> tuple[str, ...]:
    """Names from the headers of the failure sections, where the short summary is missing."""
    names = []
    headers = list(_PYTEST_HEADER.finditer(text))
    for index, header in enumerate(headers):
        end = headers[index + 1].start() if index + 1 < len(headers) else len(text)
        places = _PYTEST_PLACE.findall(text, header.end(), end)
        name = header[1]
        if name.endswith(".py"):
            names.append(name)
        elif places:
            test, bracket, parameters = name.partition("[")
            names.append(f"{_test_file(places)}::{test.replace('.', '::')}{bracket}{parameters}")
    return unique(names)


def _test_file(places: list[str]) -> str:
    return next((place for place in places if re.search(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$", place)), places[0])


def _pytest_error(text: str, items: list[tuple[str, str]]) -> str:
    found = _PYTEST_E.search(text)
    if found:
        return found[1]
    whole = next((message for _, message in items if message), "")
    if whole:
        return whole.removesuffix("...")
    internal = re.search(r"(?m)^INTERNALERROR> (\w*(?:Error|Exception)\b.*)$", text)
    return internal[1] if internal else ""


# --- unittest

_UNITTEST_RAN = re.compile(r"(?m)^Ran (\d+) tests? in ")
_UNITTEST_END = re.compile(r"(?m)^(OK|FAILED|NO TESTS RAN)(?: \((.+)\))?$")
_UNITTEST_ITEM = re.compile(
    r"(?m)^(?:(?:FAIL|ERROR): (\S+)(?: \(([^)]+)\))?|\s*(\S+) \(([\w.<>]+)\)(?: \(.*\)"
    r"| \[.*\])?(?:\n.*)? \.\.\. (?:FAIL|ERROR))"
)


def unittest(text: str) -> Reading | None:
    ran = _UNITTEST_RAN.search(text)
    ends = list(_UNITTEST_END.finditer(text))
    if ran is None and not (ends and re.search(r"(?m)^(?:FAIL|ERROR): ", text)):
        return None
    names = unique(_unittest_name(m[1] or m[3], m[2] or m[4] or "") for m in _UNITTEST_ITEM.finditer(text))
    numbers = (
        dict(re.findall(r"(failures|errors|skipped|expected failures|unexpected successes)=(\d+)", ends[-1][2] or ""))
        if ends
        else {}
    )
    counted = {word: int(amount) for word, amount in numbers.items()}
    failures, errors = counted.get("failures", 0) + counted.get("unexpected successes", 0), counted.get("errors", 0)
    # A test with several failing subtests failed once.
    failing_tests = unique(
        _unittest_name(m[1], m[2] or "") for m in re.finditer(r"(?m)^FAIL: (\S+)(?: \(([^)]+)\))?", text)
    )
    if failing_tests and len(failing_tests) < failures and "truncated]" not in text:
        failures = len(failing_tests)
    total = int(ran[1]) if ran else None
    skipped = counted.get("skipped", 0)
    passed = (
        max(0, total - failures - errors - skipped - counted.get("expected failures", 0)) if total is not None else None
    )
    failed = bool(ends and ends[-1][1] == "FAILED") or bool(failures or errors)
    if not ends:
        return Reading(colour="red" if names else None, failing=names, error=_traceback_end(text))
    return Reading(
        colour=verdict(failed, bool(total)),
        passed=passed,
        failed=failures,
        errors=errors,
        skipped=skipped,
        failing=names,
        error=_traceback_end(text),
    )


def _unittest_name(test: str, owner: str) -> str:
    owner = owner.removeprefix("unittest.loader._FailedTest.").removeprefix("unittest.loader._FailedTest")
    if not owner:
        return test
    return owner if owner == test or owner.endswith("." + test) else f"{owner}.{test}"


def _traceback_end(text: str) -> str:
    """The first line after a traceback's frames: the exception."""
    found = re.search(r"(?m)^Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<error>[A-Za-z_].*)$", text)
    return found["error"] if found else ""


# --- linters and type checkers

_MYPY = re.compile(r"(?m)^(?P<file>[^\s:][^:\n]*\.pyi?):(?:\d+:)*(?:\d+:)? error: (?P<message>.+)$")


def mypy(text: str) -> Reading | None:
    problems = list(_MYPY.finditer(text))
    count = number(r"(?m)^Found (\d+) errors? in ", text)
    if re.search(r"(?m)^Success: no issues found", text):
        return Reading(colour="green", errors=0)
    fatal = re.search(r"(?m)^mypy: (?:error: )?(?!  )(.+)$", text)
    if not problems and count is None:
        return Reading(colour="red", error=fatal[1]) if fatal and "can't" in fatal[1] else None
    return Reading(
        colour="red",
        errors=len(problems) if count is None else count,
        failing=unique(m["file"] for m in problems),
        error=problems[0]["message"] if problems else "",
    )


_PYRIGHT = re.compile(r"(?m)^[ \t]*(?P<file>\S.*?\.pyi?):\d+:\d+ - error: (?P<message>.+)$")


_PYRIGHT_JSON = re.compile(r'"file": "([^"]+)",\s*"severity": "error",\s*"message": "((?:[^"\\]|\\.)*)')


def pyright(text: str) -> Reading | None:
    count = number(r"(?m)^(\d+) errors?, \d+ warnings?", text)
    if count is None:
        count = number(r'"errorCount": (\d+)', text)
    problems = [(m["file"], m["message"]) for m in _PYRIGHT.finditer(text)]
    problems += [(m[1], re.sub(r"\\(.)", r"\1", m[2].split("\\n")[0])) for m in _PYRIGHT_JSON.finditer(text)]
    if count is None and not problems:
        return None
    return Reading(
        colour=verdict(bool(count or problems), count == 0),
        errors=count,
        failing=unique(file for file, _ in problems),
        error=problems[0][1] if problems else "",
    )


_RUFF_LINE = re.compile(
    r"(?m)^(?P<file>[^\s:][^:\n]*):\d+:\d+: (?P<message>(?:[A-Z]{1,6}\d{2,4}|SyntaxError:?|invalid-syntax:?) .+)$"
)
_RUFF_FULL = re.compile(
    r"(?m)^(?P<message>(?:[A-Z]{1,6}\d{2,4}|invalid-syntax|unformatted):? .+)\n\s*--> (?P<file>[^\s:][^:\n]*):\d+:\d+"
)


def ruff(text: str) -> Reading | None:
    problems = [
        (m["file"], m["message"].replace("[*] ", "")) for m in (*_RUFF_FULL.finditer(text), *_RUFF_LINE.finditer(text))
    ]
    formatted = re.search(r"(?m)^\d+ files? (?:would be|already|left unchanged|reformatted)", text)
    would = re.findall(r"(?m)^Would reformat: (.+)$", text)
    if formatted or would or re.search(r"(?m)^unformatted: ", text):
        names = unique([file for file, _ in problems] + would)
        red = bool(names) or "would be reformatted" in text
        error = problems[0][1].removeprefix("unformatted: ") if problems else "File would be reformatted" if red else ""
        return Reading(colour="red" if red else "green", failing=names, error=error)
    remaining = number(r"(?m)^Found \d+ errors? \(\d+ fixed, (\d+) remaining\)", text)
    count = number(r"(?m)^Found (\d+) errors?", text) if remaining is None else remaining
    if re.search(r"(?m)^All checks passed!", text) or remaining == 0:
        return Reading(colour="green", errors=0)
    fatal = re.search(r"(?m)^(?:ruff failed|error: (.+))$", text)
    if not problems and count is None:
        return Reading(colour="red", error=fatal[1] or "") if fatal else None
    return Reading(
        colour="red",
        errors=len(problems) if count is None else count,
        failing=unique(file for file, _ in problems),
        error=problems[0][1] if problems else "",
    )


_FLAKE8 = re.compile(r"(?m)^(?P<file>[^\s:][^:\n]*):\d+:\d+: (?P<message>[A-Z]{1,3}\d{2,4} .+)$")


def flake8(text: str) -> Reading | None:
    problems = list(_FLAKE8.finditer(text))
    if not problems:
        return None
    return Reading(
        colour="red", errors=len(problems), failing=unique(m["file"] for m in problems), error=problems[0]["message"]
    )


def pylint(text: str) -> Reading | None:
    problems = list(re.finditer(r"(?m)^(?P<file>\S+\.py):\d+:\d+: (?P<message>[EFCRW]\d{4}: .+)$", text))
    rated = re.search(r"Your code has been rated", text)
    if not problems and not rated:
        return None
    return Reading(
        colour="red" if problems else "green",
        errors=len(problems),
        failing=unique(m["file"] for m in problems),
        error=problems[0]["message"] if problems else "",
    )


def black(text: str) -> Reading | None:
    names = unique(re.findall(r"(?m)^would reformat (.+)$", text))
    if not names and not re.search(
        r"(?m)^(?:All done!|\d+ files? (?:would be|left unchanged|reformatted))|Oh no!", text
    ):
        return None
    broken = re.search(r"(?m)^error: cannot format ([^:]+): (.+)$", text)
    red = bool(names or broken) or "would be reformatted" in text
    error = broken[2] if broken else f"would reformat {names[0]}" if names else ""
    return Reading(colour="red" if red else "green", failing=names or ((broken[1],) if broken else ()), error=error)
