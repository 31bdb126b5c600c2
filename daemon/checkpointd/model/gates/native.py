"""Readers of Rust, Go, C and C++ tools and of the builders that run compilers."""

import json
import re

from checkpointd.model.gates.reading import Reading, number, unique, verdict

# --- Rust

_CARGO_RESULT = re.compile(r"(?m)^test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored")
_PANIC = re.compile(r"(?m)^thread '[^']*'(?: \(\d+\))? panicked at (?:'(?P<old>.+?)', |[^\n]*:\d+:\d+:\n(?P<new>.+))")
_RUST_ERROR = re.compile(r"(?m)^error(?:\[(?P<code>E\d+)\])?: (?P<message>.+)(?:\n\s*--> (?P<file>[^:\n]+):\d+:\d+)?")
_RUST_SUMMARY = re.compile(
    r"could not compile|aborting due to|test failed|test run failed|\d+ targets? failed|build failed"
)


def _rust_problems(text: str) -> list[tuple[str, str]]:
    return [
        (m["file"] or "", m["message"]) for m in _RUST_ERROR.finditer(text) if not _RUST_SUMMARY.search(m["message"])
    ]


def _panic(text: str) -> str:
    found = _PANIC.search(text)
    return (found["old"] or found["new"]) if found else ""


def cargo_test(text: str) -> Reading | None:
    results = [tuple(map(int, m.groups())) for m in _CARGO_RESULT.finditer(text)]
    problems = _rust_problems(text)
    if not results and not problems and not re.search(r"(?m)^error: could not compile|^running \d+ tests?$", text):
        return None
    names = re.findall(r"(?m)^test (.+?) \.\.\. FAILED$", text)
    for block in re.findall(r"(?m)^failures:\n((?:    \S.*\n?)+)", text):
        names += [line.strip() for line in block.split("\n")]
    if not results:
        broken = bool(problems) or "could not compile" in text
        return Reading(
            colour="red" if broken or names else None,
            errors=len(problems) or None,
            failing=unique([file for file, _ in problems] + names),
            error=problems[0][1] if problems else _panic(text),
        )
    passed, failed, ignored = (sum(column) for column in zip(*results, strict=True))
    return Reading(
        colour=verdict(failed > 0 or bool(problems), passed > 0 or ignored > 0),
        passed=passed,
        failed=failed,
        skipped=ignored,
        failing=unique(names),
        error=_panic(text) or (problems[0][1] if problems else ""),
    )


def nextest(text: str) -> Reading | None:
    summary = re.search(r"(?m)^[ \t]*Summary \[.*?\] +(?:\d+/)?\d+ tests? run: (.+)$", text)
    if summary is None:
        problems = _rust_problems(text)
        if not problems or "nextest" not in text.lower():
            return cargo_test(text) if "could not compile" in text else None
        return Reading(colour="red", error=problems[0][1], failing=unique(file for file, _ in problems))
    counts = {
        word: int(amount)
        for amount, word in re.findall(r"(\d+) (passed|failed|skipped|timed out|exec failed)", summary[1])
    }
    names = re.findall(r"(?m)^[ \t]*(?:FAIL|TIMEOUT|SIGABRT|SIGSEGV) \[.*?\] (?:\([ \d/]+\) )?\S+ (\S.*)$", text)
    failed = counts.get("failed", 0) + counts.get("timed out", 0)
    return Reading(
        colour=verdict(failed > 0, counts.get("passed", 0) > 0),
        passed=counts.get("passed", 0),
        failed=failed,
        skipped=counts.get("skipped", 0),
        failing=unique(names),
        error=_panic(text),
    )


def cargo_build(text: str) -> Reading | None:
    """cargo check, build and clippy: errors count, warnings do not."""
    problems = _rust_problems(text)
    finished = re.search(r"(?m)^[ \t]+Finished ", text)
    if not problems and not finished and "could not compile" not in text:
        return None
    red = bool(problems) or "could not compile" in text
    return Reading(
        colour="red" if red else "green",
        errors=len(problems),
        failing=unique(file for file, _ in problems),
        error=problems[0][1] if problems else "",
    )


# --- Go

_GO_TEST = re.compile(r"(?m)^--- (PASS|FAIL|SKIP): (\S+)")
_GO_PACKAGE = re.compile(r"(?m)^(ok  |FAIL|\?   |---)\t(\S+)(?:\t(.*)| (\[.*\]))?$")
_GO_MESSAGE = re.compile(
    r"(?m)^(?:vet: )?(?:\./)?(?P<file>[\w./-]+\.go):\d+:\d+: (?P<compile>.+)$"
    r"|^[ \t]+[\w./-]+_test\.go:\d+: ?(?P<test>.*)$|^(?P<panic>panic: .+?)(?: \[recovered\])?$"
)


def go_test(text: str) -> Reading | None:
    if text.lstrip().startswith('{"') and '"Action":' in text:
        text, counted = _go_json(text)
    else:
        counted = "--- PASS" in text
    tests = _GO_TEST.findall(text)
    packages = _GO_PACKAGE.findall(text)
    if not tests and not packages and not re.search(r"(?m)^(?:FAIL|PASS|panic: )", text):
        return _go_compile(text)
    failing = [name for kind, name in tests if kind == "FAIL"]
    broken = any(kind == "FAIL" for kind, *_ in packages) or bool(re.search(r"(?m)^(?:FAIL$|panic: )", text))
    ran = any(kind == "ok  " and "[no test" not in rest + more for kind, _, rest, more in packages)
    ran = ran or any(kind == "PASS" for kind, _ in tests) or bool(re.search(r"(?m)^PASS$", text))
    if any("no tests to run" in rest + more for _, _, rest, more in packages) and not any(
        kind == "PASS" for kind, _ in tests
    ):
        ran = any(kind == "ok  " and "no test" not in rest + more for kind, _, rest, more in packages)
    names = failing or [package for kind, package, *_ in packages if kind == "FAIL"]
    return Reading(
        colour=verdict(bool(failing) or broken, ran),
        passed=sum(kind == "PASS" for kind, _ in tests) if counted else None,
        failed=len(unique(failing)) if tests or packages else None,
        skipped=sum(kind == "SKIP" for kind, _ in tests) if counted else None,
        failing=unique(names),
        error=_go_error(text),
    )


def _go_json(text: str) -> tuple[str, bool]:
    """The text inside `go test -json` events, and the tests' ends as lines where the output does not hold them."""
    parts: list[str] = []
    for line in text.split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            parts.append(line + "\n")
            continue
        if isinstance(event, dict) and event.get("Action") == "output":
            parts.append(str(event.get("Output", "")))
    return "".join(parts), True


def _go_error(text: str) -> str:
    for found in _GO_MESSAGE.finditer(text):
        message = found["compile"] or found["test"] or found["panic"]
        if message and message.strip():
            return message
        detail = re.match(
            r"\s*\n(?:\s+Error Trace:.*\n(?:\s+\S+:\d+\n)*)?\s+Error:\s+(.+(?:\n\s+(?:expected|actual)\s*: .+)*)",
            text[found.end() :],
        )
        if detail:
            return detail[1]
    return ""


def _go_compile(text: str) -> Reading | None:
    problems = [(m["file"], m["compile"]) for m in _GO_MESSAGE.finditer(text) if m["compile"]]
    if not problems:
        return None
    return Reading(
        colour="red", errors=len(problems), failing=unique(file for file, _ in problems), error=problems[0][1]
    )


def go_build(text: str) -> Reading | None:
    return _go_compile(text)


def golangci_lint(text: str) -> Reading | None:
    problems = list(re.finditer(r"(?m)^(?P<file>[\w./-]+\.go):\d+(?::\d+)?: (?P<message>.+)$", text))
    count = number(r"(?m)^(\d+) issues[.:]", text)
    if not problems and count is None:
        fatal = re.search(r"(?m)^(?:level=error msg=\"?|Error: )(.+?)\"?$", text)
        return Reading(colour="red", error=fatal[1]) if fatal else None
    errors = count if count is not None else len(problems)
    return Reading(
        colour=verdict(errors > 0, True),
        errors=errors,
        failing=unique(m["file"] for m in problems),
        error=problems[0]["message"] if problems else "",
    )


# --- C, C++ and builders

_CC_ERROR = re.compile(r"(?m)^(?P<file>[^\s:][^:\n]*):\d+(?::\d+)?: (?:fatal )?error: (?P<message>.+)$")
_LINK_ERROR = re.compile(
    r"(?m)^.*?(undefined reference to .+|cannot find -l\S+|ld: .+ not found.*|Undefined symbols for architecture.*)$"
)
_MAKE_ERROR = re.compile(
    r"(?m)^(?:g?make|mingw32-make)(?:\[\d+\])?: \*\*\* (?:\[(?:[^\]]*?: )?(?P<target>[^\]:]+)\] )?(?P<message>.+)$"
)


def make(text: str) -> Reading | None:
    problems = list(_CC_ERROR.finditer(text))
    linking = _LINK_ERROR.search(text)
    stops = [m for m in _MAKE_ERROR.finditer(text) if "Waiting for" not in m["message"]]
    if not problems and not stops and not linking:
        return None
    error = problems[0]["message"] if problems else linking[1] if linking else stops[0]["message"]
    rule = re.search(r"No rule to make target [`'](.+?)'", stops[0]["message"]) if stops else None
    targets = [rule[1]] if rule else [m["target"] for m in stops if m["target"]][-1:]
    return Reading(
        colour="red",
        errors=len(problems) or (1 if linking else None),
        failing=unique(m["file"] for m in problems) or unique(targets),
        error=error,
    )


def ninja(text: str) -> Reading | None:
    if re.search(r"(?m)^ninja: (?:build stopped|error|fatal)|^FAILED: ", text):
        problems = list(_CC_ERROR.finditer(text))
        targets = re.findall(r"(?m)^FAILED: (?:\[code=\d+\] )?(\S+)", text)
        stop = re.search(r"(?m)^ninja: (?:error: )?(.+)$", text.partition("Entering directory")[2] or text)
        return Reading(
            colour="red",
            errors=len(problems) or None,
            failing=unique(m["file"] for m in problems) or unique(targets),
            error=problems[0]["message"] if problems else stop[1] if stop else "",
        )
    if re.search(r"(?m)^\[\d+/\d+\] |^ninja: no work to do", text):
        return Reading(colour="green")
    return None


def ctest(text: str) -> Reading | None:
    summary = re.search(r"(?m)^(\d+)% tests passed(?:, | \()(\d+) tests? failed out of (\d+)", text)
    if re.search(r"No tests were found!!!", text):
        return Reading(colour="unknown", passed=0, failed=0)
    rows = re.findall(r"(?m)^[ \t]*\d+/\d+ +Test +#\d+: (\S+) \.*(?: +Passed|\s*\*\*\*\S+)", text)
    if summary is None and not rows:
        return None
    names = re.findall(
        r"(?m)^[ \t]+\d+ - (.+?) \((?:Failed|Timeout|SEGFAULT|Not Run|Subprocess aborted|[A-Za-z ]+)\)", text
    )
    failed = int(summary[2]) if summary else None
    total = int(summary[3]) if summary else None
    return Reading(
        colour=verdict(bool(failed or names), bool(total)) if summary else None,
        passed=total - failed if total is not None and failed is not None else None,
        failed=failed,
        failing=unique(names),
        error=_ctest_error(text, names),
    )


def _ctest_error(text: str, names: list[str]) -> str:
    failure = re.search(r"(?m)^[ \t]*\d+/\d+ +Test.*\*\*\*.*\n", text)
    if failure:
        for line in text[failure.end() :].split("\n"):
            stripped = line.strip()
            if re.match(r"(?:Start|\d+/\d+ Test|\d+% tests|Total Test time|The following)", stripped):
                break
            if stripped:
                return stripped
    kind = re.search(r"(?m)^[ \t]+\d+ - (.+? \(.+?\))", text)
    return kind[1] if kind else names[0] if names else ""


def compiled(text: str) -> Reading | None:
    """Any compiler whose errors look like gcc's."""
    problems = list(_CC_ERROR.finditer(text))
    if not problems:
        return None
    return Reading(
        colour="red", errors=len(problems), failing=unique(m["file"] for m in problems), error=problems[0]["message"]
    )
