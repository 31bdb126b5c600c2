"""What a gate's output says: which gate, what colour, which names, which first error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model.gates import GateRun, read_run

CWD = "/home/ann/shop"


def run(command: str, output: str, code: int | None = 0) -> GateRun | None:
    return read_run(command, CWD, output, code, "failed" if code else "ok")


def found(command: str, output: str, code: int | None = 0) -> GateRun:
    result = run(command, output, code)
    assert result is not None
    return result


def counts(result: GateRun) -> tuple[int | None, int | None, int | None, int | None]:
    return (result.passed, result.failed, result.errors, result.skipped)


PYTEST = """\
F.s
=================================== FAILURES ===================================
__________________________________ test_total __________________________________

    def test_total():
>       assert total([1]) == 2
E       assert 1 == 2
E        +  where 1 = total([1])

tests/test_cart.py:7: AssertionError
=========================== short test summary info ============================
FAILED tests/test_cart.py::test_total - assert 1 == 2
1 failed, 1 passed, 1 skipped in 0.04s"""


def test_pytest_red() -> None:
    result = found("pytest -q", PYTEST, 1)
    assert (result.gate, result.colour, counts(result), result.exit_code) == ("pytest", "red", (1, 1, 0, 1), 1)
    assert result.failing == ("tests/test_cart.py::test_total",)
    assert result.error == "assert 1 == 2"


def test_names_come_from_the_headers_where_the_summary_is_missing() -> None:
    output = "\n".join(line for line in PYTEST.split("\n") if not line.startswith("FAILED"))
    assert found("pytest -q", output, 1).failing == ("tests/test_cart.py::test_total",)


@pytest.mark.parametrize(
    ("command", "output", "code", "gate", "colour"),
    [
        ("pytest -q", "3 passed in 0.1s", 0, "pytest", "green"),
        ("pytest -q", "no tests ran in 0.01s", 5, "pytest", "unknown"),
        ("pytest -k x", "3 deselected in 0.01s", 5, "pytest", "unknown"),
        ("pytest --nope", "__main__.py: error: unrecognized arguments: --nope", 4, "pytest", "red"),
        ("tox", "py311: commands[0]> pytest\n3 passed in 0.1s", 0, "pytest", "green"),
        ("npm test", "> x@1 test\n> jest\n\nTests:       2 passed, 2 total", 0, "jest", "green"),
        ("npm test", "> x@1 test\n> node t.js\n\nfine", 0, "npm-script", "green"),
        ("npm run nope", 'npm error Missing script: "nope"', 1, "npm-script", "red"),
        ("make test", "pytest -q\n1 failed in 1s\nmake: *** [Makefile:2: test] Error 1", 2, "pytest", "red"),
        ("make", "cc -o a a.c", 0, "make", "green"),
        ("make", "a.c:1:2: error: expected ';'\nmake: *** [Makefile:2: a] Error 1", 2, "make", "red"),
        ("npx tsc --noEmit", "(Bash completed with no output)", 0, "tsc", "green"),
        ("flake8", "", 0, "flake8", "green"),
        ("npx eslint .", "/a.js\n  1:1  warning  x  rule\n\n✖ 1 problem (0 errors, 1 warning)", 0, "eslint", "green"),
        ("go test ./...", "ok  \tacme/a\t0.01s [no tests to run]", 0, "go-test", "unknown"),
        ("cargo clippy", "warning: unused\n    Finished `dev` profile", 0, "clippy", "green"),
        ("ctest", "No tests were found!!!", 0, "ctest", "unknown"),
        ("mvn -q verify", "", 0, "maven", "green"),
        ("./gradlew test", "BUILD SUCCESSFUL in 1s", 0, "gradle", "green"),
        ("docker build .", "ERROR: failed to solve: x", 1, "docker-build", "red"),
        ("ruff check --fix .", "Found 3 errors (3 fixed, 0 remaining).", 0, "ruff", "green"),
        ("black --check .", "would reformat a.py", 1, "other", "red"),
        ("go vet ./...", "", 0, "other", "green"),
        ("docker compose run --rm app pytest -q", "1 passed in 0.1s", 0, "pytest", "green"),
        ("timeout 60 poetry run python -m pytest", "1 passed in 0.1s", 0, "pytest", "green"),
        ("./scripts/test.sh", "== tests\n2 passed in 0.1s", 0, "pytest", "green"),
    ],
)  # fmt: skip
def test_gates_and_colours(command: str, output: str, code: int, gate: str, colour: str) -> None:
    result = found(command, output, code)
    assert (result.gate, result.colour) == (gate, colour)


@pytest.mark.parametrize(
    "command",
    ["ls", "pytest --version", "pytest --collect-only", "npx jest --listTests", "go test -list .",
     "cargo test -- --list",
     "make -n test", "make clean", "npm run dev", "npm install", "git commit -m 'pytest: 3 passed'", "cat pytest.log",
     "echo '1 failed'", "grep -rn pytest .", "pip install pytest", "gh run view 1 --log", "black .",
     "./scripts/test.sh"],
)  # fmt: skip
def test_what_runs_no_gate_is_none(command: str) -> None:
    assert run(command, "all fine") is None


@pytest.mark.parametrize(
    ("command", "output", "names", "error"),
    [
        (
            "python -m unittest",
            "FAIL: test_x (test_m.T)\n----\nTraceback (most recent call last):\n"
            "  File \"m.py\", line 4, in test_x\n    x\n"
            "AssertionError: 1 != 2\n\nRan 1 test in 0.001s\n\nFAILED (failures=1)",
            ("test_m.T.test_x",),
            "AssertionError: 1 != 2",
        ),
        (
            "npx jest",
            "FAIL src/a.test.js\n  ● price › rounds\n\n    expect(received).toBe(expected)\n\n"
            "    Expected: 2\n    Received: 2.5\n\n"
            "Tests:       1 failed, 1 total",
            ("price › rounds",),
            "Expected: 2 Received: 2.5",
        ),
        (
            "npx vitest run",
            " FAIL  src/a.test.ts > slug > folds\nAssertionError: expected 'a' to be 'b'\n\n      Tests  1 failed (1)",
            ("slug > folds",),
            "AssertionError: expected 'a' to be 'b'",
        ),
        (
            "npx mocha",
            "  1 failing\n\n  1) Queue\n       pops in order:\n\n      AssertionError: nope\n      at x.js:3:1\n",
            ("Queue pops in order",),
            "AssertionError: nope",
        ),
        (
            "go test ./...",
            "--- FAIL: TestMod (0.00s)\n    --- FAIL: TestMod/a (0.00s)\n"
            "        m_test.go:14: got 1, want 2\nFAIL\nFAIL\tacme/m\t0.1s",
            ("TestMod",),
            "got 1, want 2",
        ),
        (
            "cargo test",
            "test tests::a ... FAILED\n\nthread 'tests::a' panicked at src/lib.rs:7:35:\n"
            "index out of bounds\n\nfailures:\n    tests::a\n\n"
            "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
            ("tests::a",),
            "index out of bounds",
        ),
        (
            "mypy .",
            "app/db.py:12: error: Missing return statement  [return]\nFound 1 error in 1 file (checked 2 source files)",
            ("app/db.py",),
            "Missing return statement [return]",
        ),
        (
            "ruff check .",
            "F401 [*] `os` imported but unused\n --> a.py:1:8\n\nFound 1 error.",
            ("a.py",),
            "F401 `os` imported but unused",
        ),
        (
            "npx eslint src",
            "/home/ann/shop/src/a.js\n  1:7  error  'x' is not used  no-unused-vars\n\n"
            "✖ 1 problem (1 error, 0 warnings)",
            ("src/a.js",),
            "'x' is not used no-unused-vars",
        ),
        (
            "bundle exec rspec",
            "  1) Cart adds tax\n     Failure/Error: expect(1).to eq(2)\n\n       expected: 2\n"
            "            got: 1\n\n1 example, 1 failure\n\n"
            "rspec ./spec/cart_spec.rb:3 # Cart adds tax",
            ("Cart adds tax",),
            "expected: 2 got: 1",
        ),
        (
            "mvn test",
            "[ERROR] com.acme.AppTest.greets -- Time elapsed: 0.006 s <<< FAILURE!\n"
            "org.opentest4j.AssertionFailedError: expected: <a>\n"
            "[ERROR] Tests run: 1, Failures: 1, Errors: 0, Skipped: 0",
            ("com.acme.AppTest.greets",),
            "org.opentest4j.AssertionFailedError: expected: <a>",
        ),
        (
            "dotnet test",
            "  Failed Shop.Tests.Rounds [5 ms]\n  Error Message:\n   Assert.Equal() Failure\n"
            "Failed!  - Failed:     1, Passed:    17, Skipped:     2, Total:    20",
            ("Shop.Tests.Rounds",),
            "Assert.Equal() Failure",
        ),
        (
            "vendor/bin/phpunit",
            "1) PriceTest::testParse\nFailed asserting that 1 is 2.\n\nFAILURES!\n"
            "Tests: 2, Assertions: 2, Failures: 1.",
            ("PriceTest::testParse",),
            "Failed asserting that 1 is 2.",
        ),
        (
            "ctest",
            "1/1 Test #1: ring ....***Failed    0.00 sec\nassertion failed: head == 0\n\n"
            "0% tests passed, 1 tests failed out of 1\n\n"
            "\t  1 - ring (Failed)",
            ("ring",),
            "assertion failed: head == 0",
        ),
        (
            "bats t.bats",
            "1..2\nok 1 a\nnot ok 2 b\n# (in test file t.bats, line 2)\n#   `false' failed",
            ("b",),
            "`false' failed",
        ),
        (
            "npx tsc",
            "src/a.ts(1,66): error TS2322: Type 'number' is not assignable to type 'string'.",
            ("src/a.ts",),
            "TS2322: Type 'number' is not assignable to type 'string'.",
        ),
    ],
)  # fmt: skip
def test_names_and_first_errors(command: str, output: str, names: tuple[str, ...], error: str) -> None:
    result = found(command, output, 1)
    assert (result.colour, result.failing, result.error) == ("red", names, error)


def test_the_first_red_gate_of_a_line_counts() -> None:
    output = "All checks passed!\napp.py:1: error: x  [misc]\nFound 1 error in 1 file (checked 1 source file)"
    assert found("ruff check . && mypy . && pytest -q", output, 1).gate == "mypy"


def test_a_pipe_hides_the_exit_code() -> None:
    result = found("pytest -q | tail -3", "1 failed in 0.1s", 0)
    assert (result.colour, result.exit_code) == ("red", None)


def test_a_printed_exit_code_counts() -> None:
    result = found('pytest -q; echo "rc=$?"', "1 failed in 0.1s\nrc=1", 0)
    assert (result.colour, result.exit_code) == ("red", 1)


def test_colours_are_stripped() -> None:
    result = found(
        "pytest",
        "Exit code 1\n\x1b[31mFAILED\x1b[0m t.py::\x1b[1mtest_a\x1b[0m - assert 0\n\x1b[31m1 failed\x1b[0m in 0.1s",
        1,
    )
    assert (result.failing, result.error) == (("t.py::test_a",), "assert 0")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pytest -q tests/a.py", "python -m pytest tests/a.py -vv --tb=short"),
        ("pytest tests/a.py", "timeout 60 pytest -q tests/a.py 2>&1 | tail -20"),
        ("npm test", "npm run test"),
        ("cd /home/ann/shop && pytest", "pytest"),
        ("ctest --test-dir b", "ctest --test-dir b --output-on-failure"),
        ("FOO=1 cargo test", "cargo test"),
    ],
)
def test_spellings_of_one_command_are_one(one: str, other: str) -> None:
    first, second = found(one, "1 failed in 1s", 1), found(other, "1 failed in 1s", 1)
    assert (first.command, first.directory) == (second.command, second.directory)


def test_the_place_and_the_selection_tell_runs_apart() -> None:
    runs = [found(command, "1 failed in 1s", 1) for command in ("pytest", "pytest a.py", "cd web && pytest")]
    assert len({(each.command, each.directory) for each in runs}) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("E   assert <A object at 0x7f88b38d9490> is None", "E   assert <A object at 0x7f0012345678> is None"),
        ("E   OSError: /tmp/pytest-1/test_a0/x missing", "E   OSError: /tmp/pytest-2/test_a0/x missing"),
        ("E   ConnectionError: 127.0.0.1:51234 refused", "E   ConnectionError: 127.0.0.1:49152 refused"),
        ("E   KeyError: 550e8400-e29b-41d4-a716-446655440000", "E   KeyError: 650e8400-e29b-41d4-a716-446655440001"),
        ("E   Error at 2026-05-03T09:14:34Z", "E   Error at 2026-05-04T10:00:00Z"),
        ("E   bad value in parser.py:12", "E   bad value in parser.py:99"),
    ],
)
def test_volatile_parts_do_not_make_a_new_error(one: str, other: str) -> None:
    assert found("pytest", f"{one}\n1 failed in 1s", 1).error == found("pytest", f"{other}\n1 failed in 1s", 1).error


def test_refused_and_aborted_runs_have_no_colour_of_their_own() -> None:
    result = read_run("pytest", CWD, "The user doesn't want to proceed", None, "denied")
    assert result is not None
    assert result.colour == "unknown"


COMMANDS = ["pytest", "npm test", "make test", "docker build .", "npx jest", "go test ./...", "mvn test", "npx mocha"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(COMMANDS), st.text(max_size=200), st.sampled_from([0, 1, None]))
def test_any_output_is_read(command: str, output: str, code: int | None) -> None:
    run(command, output, code)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(COMMANDS),
    st.lists(st.sampled_from(["FAILED t.py::a - b", "1 failed", "--- FAIL: A (0s)", "  1) a", "not ok 1 - x", "● a › b",
                              "", "   ",
                              "Traceback (most recent call last):", "error: x", "  File",
                              "Tests:  1 failed, 2 total"]), max_size=40),
)  # fmt: skip
def test_shuffled_output_is_read(command: str, lines: list[str]) -> None:
    run(command, "\n".join(lines), 1)
