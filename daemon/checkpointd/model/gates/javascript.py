"""Readers of JavaScript's and TypeScript's test runners, linters and compilers."""

import re

from checkpointd.model.gates.reading import Reading, number, unique, verdict


def _amounts(line: str) -> dict[str, int]:
    return {word: int(amount) for amount, word in re.findall(r"(\d+) (\w+)", line)}


# --- jest

_JEST_TESTS = re.compile(r"(?m)^Tests: +(.+)$")
_JEST_SUITES = re.compile(r"(?m)^Test Suites: +(.+)$")
_JEST_BULLET = re.compile(r"(?m)^[ \t]*● (?!Console$)(.+)$")

_JEST_BROKEN = "Test suite failed to run"


def jest(text: str) -> Reading | None:
    tests, suites = _JEST_TESTS.search(text), _JEST_SUITES.search(text)
    if re.search(r"(?m)^No tests found", text):
        return Reading(
            colour="unknown", passed=0, failed=0, errors=0, skipped=0, error="No tests found, exiting with code 1"
        )
    bullets = list(_JEST_BULLET.finditer(text))
    failed_files = re.findall(r"(?m)^[ \t]*FAIL\s+(?:\S+ )?(\S+\.[cm]?[jt]sx?)", text)
    if not (tests or suites) and not (failed_files and bullets):
        return None
    counts = _amounts(tests[1]) if tests else {}
    broken = suites is not None and "failed" in suites[1]
    names = [m[1] for m in bullets if (m[1] != "Test suite failed to run" and " › " in m[1]) or counts.get("failed")]
    names = [name for name in names if name != "Test suite failed to run"]
    if any(m[1] == "Test suite failed to run" for m in bullets) and not counts.get("failed"):
        names += failed_files
    if not tests:
        names = [m[1] for m in bullets if m[1] != _JEST_BROKEN] or failed_files
        return Reading(colour="red", failing=unique(names), error=_jest_error(text, bullets))
    return Reading(
        colour=verdict(bool(counts.get("failed")) or broken, bool(counts.get("passed") or counts.get("skipped"))),
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0),
        skipped=counts.get("skipped", 0),
        failing=unique(names),
        error=_jest_error(text, bullets),
    )


def _jest_error(text: str, bullets: list[re.Match[str]]) -> str:
    if not bullets:
        return ""
    lines = [line.strip() for line in text[bullets[0].end() :].split("\n")]
    message: list[str] = []
    for line in lines:
        if re.match(r">? ?\d+ \||at |●|\.\.\. \[|Tests?(?: Suites)?:|Time:", line) or len(message) >= 4:
            break
        if line and not re.match(r"(?:expect\(|-\s*Expected|\+\s*Received|@@)", line):
            message.append(line)
    return " ".join(message[:3])


# --- vitest

_VITEST_TESTS = re.compile(r"(?m)^[ \t]*Tests\s{2,}(.+?)(?: \(\d+\))?$")
_VITEST_FILES = re.compile(r"(?m)^[ \t]*Test Files\s{2,}(.+?)(?: \(\d+\))?$")
_VITEST_FAIL = re.compile(r"(?m)^[ \t]*FAIL\s+(?:\|[^|]+\| )?(\S+\.[cm]?[jt]sx?)(?: \[.*\]|((?: > .+)))?$")


def vitest(text: str) -> Reading | None:
    tests, files = _VITEST_TESTS.search(text), _VITEST_FILES.search(text)
    if re.search(r"(?m)^No test files found", text):
        return Reading(
            colour="unknown", passed=0, failed=0, errors=0, skipped=0, error="No test files found, exiting with code 1"
        )
    items = list(_VITEST_FAIL.finditer(text))
    if not (tests or files) and not (items and "Failed" in text):
        return None
    counts = _amounts(tests[1]) if tests else {}
    broken = files is not None and "failed" in files[1]
    names = [m[2].removeprefix(" > ") if m[2] else m[1] for m in items]
    if not names:
        names = re.findall(r"(?m)^[ \t]*[×✗] (?:\S+\.[cm]?[jt]sx? > )?(.+ > .+?)(?: \d+ ?ms)?$", text)
    error = ""
    if items:
        rest = [line.strip() for line in text[items[0].end() :].split("\n") if line.strip()]
        error = next((line for line in rest if not line.startswith("FAIL ")), "")
    return Reading(
        colour=verdict(
            bool(counts.get("failed")) or broken or bool(items), bool(counts.get("passed") or counts.get("skipped"))
        ),
        passed=counts.get("passed", 0) if tests else None,
        failed=counts.get("failed", 0) if tests else None,
        skipped=counts.get("skipped", 0) if tests else None,
        failing=unique(names),
        error=error,
    )


# --- mocha

_MOCHA_DETAIL = re.compile(r"(?m)^  (\d+)\) (.+)\n((?:       .+\n)*?)((?:       .+):)\n", re.MULTILINE)


def mocha(text: str) -> Reading | None:
    passing = number(r"(?m)^[ \t]*(\d+) passing\b", text)
    failing = number(r"(?m)^[ \t]*(\d+) failing\b", text)
    pending = number(r"(?m)^[ \t]*(\d+) pending\b", text)
    listed = re.search(r"(?m)^[ \t]+[✔✓] ", text) and re.search(r"(?m)^[ \t]+\d+\) ", text)
    if passing is None and failing is None and not listed:
        return None
    details = list(_MOCHA_DETAIL.finditer(text))
    names = [
        " ".join(part.strip() for part in [m[2], *m[3].split("\n"), m[4].strip().removesuffix(":")] if part.strip())
        for m in details
    ]
    error = ""
    if details:
        rest = [line.strip() for line in text[details[0].end() :].split("\n") if line.strip()]
        error = rest[0] if rest else ""
    failed = bool(failing or names or (failing is None and re.search(r"(?m)^[ \t]+\d+\) ", text)))
    known = passing is not None or failing is not None
    return Reading(
        colour=verdict(failed, bool(passing or pending)),
        passed=(passing or 0) if known else None,
        failed=(failing or 0) if known else None,
        skipped=(pending or 0) if known else None,
        failing=unique(names or _mocha_listing(text)),
        error=error,
    )


def _mocha_listing(text: str) -> list[str]:
    """Names from the indented listing, where the details are cut off."""
    names: list[str] = []
    suites: list[tuple[int, str]] = []
    for line in text.split("\n"):
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if not stripped or indent == 0:
            continue
        if re.match(r"\d+ (?:passing|failing|pending)", stripped):
            break
        suites = [suite for suite in suites if suite[0] < indent]
        if item := re.match(r"\d+\) (.+)", stripped):
            names.append(" ".join([*(title for _, title in suites), item[1]]))
        elif not re.match(r"[✔✓-] ", stripped):
            suites.append((indent, stripped))
    return names


# --- node:test


def node_test(text: str) -> Reading | None:
    passed = number(r"(?m)^(?:#|ℹ) pass (\d+)", text)
    failed = number(r"(?m)^(?:#|ℹ) fail (\d+)", text)
    if passed is None and failed is None and not re.search(r"(?m)^TAP version 1\d\n# Subtest", text):
        return None
    skipped = number(r"(?m)^(?:#|ℹ) skipped (\d+)", text)
    lines = [
        (len(m[1]), m[2].strip()) for m in re.finditer(r"(?m)^( *)not ok \d+ - (.+?)(?: # (?:TODO|SKIP).*)?$", text)
    ]
    names = [name for at, (indent, name) in enumerate(lines) if at == 0 or lines[at - 1][0] <= indent]
    if not names:
        section = text.partition("failing tests:")[2] or text
        names = re.findall(r"(?m)^[ \t]*✖ (?!failing tests)(.+?) \([\d.]+m?s\)$", section)
    return Reading(
        colour=verdict(bool(failed or names), bool(passed or skipped)),
        passed=passed,
        failed=failed,
        errors=0,
        skipped=skipped,
        failing=unique(names),
        error=_node_error(text),
    )


def _node_error(text: str) -> str:
    if block := re.search(r"(?m)^[ \t]+error: \|-\n((?:\s+.*\n)+?)(?=\s+(?:code|name|expected|stack|\.\.\.))", text):
        return " ".join(block[1].split("\n")[0].split())
    if line := re.search(r"(?m)^[ \t]+error: ['\"]?(.+?)['\"]?$", text):
        return line[1]
    found = re.search(r"(?m)^[ \t]+((?:\w*Error|AssertionError)\b.*)$", text)
    return found[1] if found else ""


# --- compilers and linters

_TSC = re.compile(r"(?m)^(?:(?P<file>[^\s(:][^(:\n]*?)(?:\(\d+,\d+\):|:\d+:\d+ -) )?error (?P<message>TS\d+: .+)$")


def tsc(text: str) -> Reading | None:
    problems = list(_TSC.finditer(text))
    if problems:
        return Reading(
            colour="red",
            errors=len(problems),
            failing=unique(m["file"] for m in problems if m["file"]),
            error=problems[0]["message"],
        )
    count = number(r"Found (\d+) errors?(?:\. Watching| in \S+:\d+| in the same file| in \d+ files\.)", text)
    if count is None:
        return None
    return Reading(colour=verdict(count > 0, count == 0), errors=count)


_ESLINT_ROW = re.compile(r"^\s+\d+:\d+\s+(error|warning)\s+(.+)$")


def eslint(text: str) -> Reading | None:
    summary = re.search(r"(?m)^✖ \d+ problems? \((\d+) errors?, (\d+) warnings?\)", text)
    too_many = re.search(r"(?m)^ESLint found too many warnings.*$", text)
    files: dict[str, list[tuple[str, str]]] = {}
    file = ""
    for line in text.split("\n"):
        row = _ESLINT_ROW.match(line)
        if row and file:
            files[file].append((row[1], row[2]))
        elif line and not line[0].isspace() and re.search(r"\.\w+$", line.strip()):
            file = line.strip()
            files.setdefault(file, [])
    rows = [(name, kind, message) for name, found in files.items() for kind, message in found]
    crash = re.search(
        r"(?m)^(?:Oops! Something went wrong.*|(?:Error|TypeError): .+|ESLint couldn't find .+"
        r"|.*No files matching .+)$",
        text,
    )
    if not (summary or too_many or rows):
        return Reading(colour="red", error=crash[0]) if crash and "ESLint" in text else None
    errors = int(summary[1]) if summary else sum(kind == "error" for _, kind, _ in rows)
    wanted = "error" if errors else "warning"
    names = unique(name for name, kind, _ in rows if kind == wanted) if errors or too_many else ()
    first = next((message for _, kind, message in rows if kind == "error"), "")
    red = bool(errors or too_many)
    return Reading(
        colour="red" if red else None,
        errors=errors,
        failing=names,
        error=first or (too_many[0] if too_many else ""),
    )


_BIOME_HEADER = re.compile(
    r"(?m)^(?P<file>[^\s:]+?)(?::\d+:\d+)? (?:lint|format|assist|organizeImports|parse|suppressions|syntax|check"
    r"|ci)(?:/\S+)?(?: +FIXABLE)? *━+.*$"
)


def biome(text: str) -> Reading | None:
    count = number(r"(?m)^Found (\d+) errors?\.", text)
    checked = re.search(r"(?m)^(?:Checked|Formatted) \d+ files? in |Found \d+ (?:warning|info)", text)
    if count is None and not checked:
        return None
    names: list[str] = []
    headers = list(_BIOME_HEADER.finditer(text))
    for index, header in enumerate(headers):
        end = headers[index + 1].start() if index + 1 < len(headers) else len(text)
        if re.search(r"(?m)^[ \t]*[×✖] ", text[header.end() : end]) and (
            "." in header["file"] or "/" in header["file"]
        ):
            names.append(header["file"])
    first = re.search(r"(?m)^[ \t]*[×✖] (.+?)[.:]?$", text)
    red = bool(count)
    return Reading(
        colour="red" if red else None if re.search(r"(?m)^check ━", text) else "green",
        errors=count or 0,
        failing=unique(names) if red else (),
        error=first[1] if first and red else "",
    )


def prettier(text: str) -> Reading | None:
    names = [
        n
        for n in re.findall(r"(?m)^\[(?:warn|error)\] (.+)$", text)
        if not n.startswith(("Code style", "Error occurred"))
    ]
    if re.search(r"All matched files use Prettier code style", text):
        return Reading(colour="green")
    problem = re.search(r"(?m)^\[warn\] (Code style issues (?:found )?in .+?)\. ?(?:Run|Forgot).*$", text)
    if not names and not problem:
        return None
    return Reading(colour="red", failing=unique(names), error=problem[1] if problem else names[0])


def playwright(text: str) -> Reading | None:
    passed = number(r"(?m)^[ \t]*(\d+) passed\b", text)
    failed = number(r"(?m)^[ \t]*(\d+) failed$", text)
    if not re.search(r"(?m)^Running \d+ tests? using \d+ workers?", text) and not (failed and " › " in text):
        return None
    skipped = number(r"(?m)^[ \t]*(\d+) skipped$", text)
    heads = list(re.finditer(r"(?m)^[ \t]*\d+\) (?:\[[^\]]+\] › )?(\S+?):\d+:\d+ › (.+?)(?: ─+)?$", text))
    error = ""
    if heads:
        rest = [line.strip() for line in text[heads[0].end() :].split("\n") if line.strip()]
        error = rest[0] if rest else ""
    return Reading(
        colour=verdict(bool(failed or heads), bool(passed)),
        passed=passed,
        failed=failed,
        skipped=skipped,
        failing=unique(f"{m[1]} › {m[2].strip()}" for m in heads),
        error=error,
    )
