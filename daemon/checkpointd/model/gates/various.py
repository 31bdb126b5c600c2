"""Readers of the JVM's, .NET's, Ruby's, PHP's, Perl's and the shell's test runners, and of image builds."""

import re

from checkpointd.model.gates.reading import Reading, number, unique, verdict


def _after(text: str, position: int) -> str:
    """The first line with something on it after a position."""
    return next((line.strip() for line in text[position:].split("\n") if line.strip()), "")


# --- JVM

_MAVEN_TOTAL = re.compile(r"(?m)^(?:\[\w+\] )?Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)$")
_MAVEN_ITEM = re.compile(
    r"(?m)^(?:\[ERROR\] )?(?:(?P<name>[\w.$]+\.[\w$]+)(?:\([^)]*\))? -- Time elapsed"
    r"|(?P<method>[\w$]+)(?:\([^)]*\))?\((?P<class>[\w.$]+)\) +Time elapsed).*<<< (?:FAILURE|ERROR)!.*$"
)
_MAVEN_COMPILE = re.compile(
    r"(?m)^\[ERROR\] (?P<file>\S+\.(?:java|kt|scala|groovy)):\[\d+,\d+\] (?:error: )?(?P<message>.+)$"
)


def maven(text: str) -> Reading | None:
    totals = _MAVEN_TOTAL.findall(text)
    ended = re.search(r"BUILD (SUCCESS|FAILURE)", text)
    items = list(_MAVEN_ITEM.finditer(text))
    compile_errors = list(dict.fromkeys((m["file"], m["message"]) for m in _MAVEN_COMPILE.finditer(text)))
    if not totals and not ended and not items and not compile_errors:
        return None
    names = [m["name"] or f"{m['class']}.{m['method']}" for m in items]
    if not names:
        names = re.findall(r"(?m)^\[ERROR\] +([\w$]+\.[\w$]+):\d+", text)
    counts = [int(value) for value in totals[-1]] if totals else None
    failed = bool(counts and (counts[1] or counts[2])) or (ended is not None and ended[1] == "FAILURE") or bool(items)
    error = _after(text, items[0].end()) if items else compile_errors[0][1] if compile_errors else ""
    if not error and failed:
        found = re.search(r"(?m)^\[ERROR\] (?!Failures|Errors|Tests run|COMPILATION)\s*(.+)$", text)
        error = found[1] if found else ""
    return Reading(
        colour=verdict(
            failed or bool(compile_errors), bool((counts and counts[0]) or (ended and ended[1] == "SUCCESS"))
        ),
        passed=counts[0] - counts[1] - counts[2] - counts[3] if counts else None,
        failed=counts[1] if counts else None,
        errors=counts[2] if counts else len(compile_errors) or None,
        skipped=counts[3] if counts else None,
        failing=unique(names) or unique(file for file, _ in compile_errors),
        error=error,
    )


def gradle(text: str) -> Reading | None:
    total = re.search(r"(?m)^(\d+) tests? completed(?:, (\d+) failed)?(?:, (\d+) skipped)?", text)
    ended = re.search(r"(?m)^BUILD (SUCCESSFUL|FAILED)", text)
    items = list(re.finditer(r"(?m)^(?!> Task)(\S.* > .+?) FAILED$", text))
    compile_errors = list(
        re.finditer(
            r"(?m)^(?:e: )?(?:file://)?(?P<file>\S+\.(?:java|kt|kts|groovy"
            r"|scala)):\d+(?::\d+)?:? (?:error: )?(?P<message>.+)$",
            text,
        )
    )
    if not total and not ended and not items and "FAILURE: Build failed" not in text:
        return None
    failed = int(total[2] or 0) if total else None
    skipped = int(total[3] or 0) if total else None
    went_wrong = re.search(r"(?m)^\* What went wrong:\n(.+(?:\n> .+)?)", text)
    task = re.search(r"(?m)^> Task (\S+) FAILED$", text)
    error = (
        _after(text, items[0].end())
        if items
        else compile_errors[0]["message"]
        if compile_errors
        else went_wrong[1]
        if went_wrong
        else ""
    )
    red = bool(failed or items) or (ended is not None and ended[1] == "FAILED") or "FAILURE: Build failed" in text
    names = unique(m[1] for m in items) or unique(m["file"] for m in compile_errors) if red else ()
    return Reading(
        colour=verdict(red, ended is not None),
        passed=int(total[1]) - (failed or 0) - (skipped or 0) if total else None,
        failed=failed,
        errors=len(compile_errors) if red and compile_errors and not items else None,
        skipped=skipped,
        failing=names or ((task[1],) if task and red else ()),
        error=error if red else "",
    )


# --- .NET

_DOTNET_TOTAL = re.compile(r"(?:Passed|Failed|Skipped)!\s+- Failed:\s+(\d+), Passed:\s+(\d+), Skipped:\s+(\d+)")
_DOTNET_COMPILE = re.compile(
    r"(?m)^[ \t]*(?P<file>[^\s(][^(\n]*)\(\d+,\d+\): error (?P<message>\w+\d+: .+?)(?: \[.*\])?$"
)


def dotnet(text: str) -> Reading | None:
    totals = [tuple(map(int, found)) for found in _DOTNET_TOTAL.findall(text)]
    compile_errors = list(dict.fromkeys((m["file"], m["message"]) for m in _DOTNET_COMPILE.finditer(text)))
    ended = re.search(r"(?m)^[ \t]*Build (succeeded|FAILED)", text)
    items = list(re.finditer(r"(?m)^[ \t]+Failed (\S[^\n\[]*?) \[[^\]]*\]$", text))
    if not totals and not compile_errors and not ended and not items:
        return None
    failed, passed, skipped = (sum(column) for column in zip(*totals, strict=True)) if totals else (None, None, None)
    message = re.search(r"(?m)^[ \t]+Error Message:\n\s*(.+)$", text)
    red = bool(failed or compile_errors or items) or (ended is not None and ended[1] == "FAILED")
    return Reading(
        colour=verdict(red, bool(passed) or (ended is not None and not totals)),
        passed=passed,
        failed=failed,
        errors=len(compile_errors) if compile_errors or (ended and not totals) else None,
        skipped=skipped,
        failing=unique(m[1] for m in items) or unique(file for file, _ in compile_errors),
        error=message[1] if message else compile_errors[0][1] if compile_errors else "",
    )


# --- Ruby


def rspec(text: str) -> Reading | None:
    summary = re.search(
        r"(?m)^(\d+) examples?, (\d+) failures?(?:, (\d+) pending)?(?:, (\d+) errors? occurred outside)?", text
    )
    names = re.findall(r"(?m)^rspec \S+ # (.+)$", text)
    if summary is None and not names:
        return None
    block = re.search(r"(?m)^[ \t]+Failure/Error:.*\n((?:\s{5,}.+\n)*?)\s*\n?((?:\s{6,}\S.*\n)+)", text)
    error = " ".join(block[2].split()) if block else ""
    outside = re.search(
        r"(?m)^An error occurred while loading (\S+?)\.?\n(?:Failure/Error:.*\n)?(?:\s*\n)?(.+(?:\n\s{2}.+)?)", text
    )
    if outside and not error:
        error = outside[2]
    if summary is None:
        return Reading(colour="red", failing=unique(names), error=error)
    total, failed = int(summary[1]), int(summary[2])
    pending, broken = int(summary[3] or 0), int(summary[4] or 0)
    return Reading(
        colour=verdict(failed > 0 or broken > 0, total > 0),
        passed=total - failed - pending,
        failed=failed,
        errors=broken or None,
        skipped=pending,
        failing=unique(names) or (unique([outside[1]]) if outside else ()),
        error=error,
    )


def minitest(text: str) -> Reading | None:
    summary = re.search(
        r"(?m)^(\d+) (?:runs|tests), \d+ assertions, (\d+) failures, (\d+) errors(?:, (\d+) skips)?", text
    )
    items = list(
        re.finditer(
            r"(?m)^[ \t]*(?:\d+\) )?(?:Failure|Error):\n\s*(\S+#[^\s\[:]+)(?: \[[^\]]*\])?:?\n((?:.*\S.*\n?){1,3})",
            text,
        )
    )
    if summary is None and not items:
        return None
    error = " ".join(items[0][2].split()) if items else ""
    if summary is None:
        return Reading(colour="red", failing=unique(m[1] for m in items), error=error)
    total, failed, errors, skips = (int(value or 0) for value in summary.groups())
    return Reading(
        colour=verdict(failed + errors > 0, total > 0),
        passed=total - failed - errors - skips,
        failed=failed,
        errors=errors,
        skipped=skips,
        failing=unique(m[1] for m in items),
        error=error,
    )


# --- PHP


def phpunit(text: str) -> Reading | None:
    fine = re.search(r"(?m)^OK \((\d+) tests?, ", text)
    totals = re.search(r"(?m)^Tests: (\d+), Assertions: \d+(.*)$", text)
    if re.search(r"(?m)^No tests executed!", text):
        return Reading(colour="unknown", passed=0, failed=0, errors=0, skipped=0)
    items = list(re.finditer(r"(?m)^\d+\) (\S+::\S.*)$", text))
    titles = list(re.finditer(r"(?m)^[ \t]*✘ (.+?)(?: \[[\d.]+ ?m?s\])?$", text))
    if not (fine or totals or items or titles):
        return None
    if fine:
        return Reading(colour="green", passed=int(fine[1]), failed=0, errors=0, skipped=0)
    counts = {word.lower(): int(amount) for word, amount in re.findall(r"(\w+): (\d+)", totals[2])} if totals else {}
    failed, errors, skipped = counts.get("failures", 0), counts.get("errors", 0), counts.get("skipped", 0)
    total = int(totals[1]) if totals else None
    other = counts.get("incomplete", 0)
    if items:
        error = _after(text, items[0].end())
    else:
        found = re.search(r"(?m)^[ \t]*│ +(\S.*)$", text)
        error = found[1] if found else ""
    return Reading(
        colour=verdict(bool(failed or errors or items or titles), bool(total)),
        passed=total - failed - errors - skipped - other if total is not None else None,
        failed=failed if totals else None,
        errors=errors if totals else None,
        skipped=skipped if totals else None,
        failing=unique(m[1].split(" with data set")[0] for m in items) or unique(m[1] for m in titles),
        error=error,
    )


# --- TAP


def bats(text: str) -> Reading | None:
    rows = list(re.finditer(r"(?m)^(not ok|ok) (\d+) ?(?:- )?(.*?)(?: # (skip|SKIP|TODO|todo)\b.*)?$", text))
    summary = re.search(r"(?m)^(\d+) tests?, (\d+) failures?(?:, (\d+) skipped)?", text)
    if not rows and summary is None:
        return None
    quoted = re.search(r"(?m)^[ \t]*#?\s+(`.+' failed.*)$", text)
    if rows:
        failed = [m[3] for m in rows if m[1] == "not ok" and (m[4] or "").lower() != "todo"]
        skipped = sum((m[4] or "").lower() == "skip" for m in rows)
        return Reading(
            colour=verdict(bool(failed), True),
            passed=len(rows) - len(failed) - skipped,
            failed=len(failed),
            skipped=skipped,
            failing=unique(failed),
            error=quoted[1] if quoted else failed[0] if failed else "",
        )
    assert summary is not None  # noqa: S101  (one of the two was found)
    total, bad, skips = int(summary[1]), int(summary[2]), int(summary[3] or 0)
    names = re.findall(r"(?m)^[ \t]*✗ (.+?)(?: \[\d+\])?$", text)
    return Reading(
        colour=verdict(bad > 0, total > 0),
        passed=total - bad - skips,
        failed=bad,
        skipped=skips,
        failing=unique(names),
        error=quoted[1] if quoted else "",
    )


def prove(text: str) -> Reading | None:
    total = number(r"(?m)^Files=\d+, Tests=(\d+)", text)
    result = re.search(r"(?m)^Result: (PASS|FAIL|NOTESTS)", text)
    if total is None and result is None:
        return None
    failed = sum(int(found) for found in re.findall(r"Tests: \d+ Failed: (\d+)\)", text))
    names = re.findall(r"(?m)^not ok \d+ - (.+?)(?: # .*)?$", text) or re.findall(r"(?m)^#   Failed test '(.+?)'", text)
    scripts = re.findall(r"(?m)^(\S+\.t)\s+\(Wstat:", text)
    detail = re.search(r"(?m)^# +got: (.+)\n# +expected: (.+)$", text)
    first = re.search(r"(?m)^#   (Failed test .*)$|^(?!t/)(\S.* at \S+ line \d+\.)$", text)
    error = f"got: {detail[1]} expected: {detail[2]}" if detail else (first[1] or first[2]) if first else ""
    return Reading(
        colour=verdict(result is not None and result[1] == "FAIL", bool(total)),
        passed=total - failed if total is not None else None,
        failed=failed if total is not None else None,
        failing=unique(names) or unique(scripts),
        error=error,
    )


# --- image builds


def docker_build(text: str) -> Reading | None:
    problem = re.search(
        r"(?m)^(?:ERROR: |error: )?(?:failed to solve|failed to build|The command .* returned a non-zero code).*$", text
    )
    if problem is None and re.search(r"(?m)^ERROR: (.+)$", text):
        problem = re.search(r"(?m)^ERROR: (.+)$", text)
    if problem:
        return Reading(colour="red", error=problem[0])
    if re.search(
        r"(?m)naming to |^Successfully (?:built|tagged) |writing image sha256|exporting to image|^sha256:[0-9a-f]{64}$",
        text,
    ):
        return Reading(colour="green")
    return None
