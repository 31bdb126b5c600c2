"""Which gates a command line runs: their names, their normalised words, where, and whether their exit code shows."""

import re
from collections.abc import Callable, Iterator, Sequence
from posixpath import basename, join, normpath

from msgspec import Struct

from checkpointd.model.shell import Choice, Command, Function, Group, Loop, Node, Script, Word, parse

_MAX_DEPTH = 6


class Step(Struct, frozen=True):
    """One simple command of a line. `exposed`: its exit code is the line's."""

    words: tuple[str, ...]
    directory: str
    exposed: bool


class Invocation(Struct, frozen=True):
    """One run of a gate. `runs_others`: a runner whose output may be that of other gates."""

    gate: str
    words: tuple[str, ...]
    directory: str
    exposed: bool
    runs_others: bool = False
    quiet: bool = False  # silence is success


def steps(command: str, cwd: str) -> list[Step]:
    """The simple commands of a line, in order."""
    return list(_script(parse(command), [cwd], exposed=True, depth=0))


def _script(script: Script, cwd: list[str], *, exposed: bool, depth: int) -> Iterator[Step]:
    """`cwd` is a cell, for `cd` changes it for what follows."""
    pipelines = script.pipelines
    for index, pipeline in enumerate(pipelines):
        # What `&&` follows shows its exit code where it fails; what anything else follows does not.
        follows = [later.joined for later in pipelines[index + 1 :]]
        seen = exposed and all(joined == "&&" for joined in follows) and len(pipeline.stages) == 1
        for stage in pipeline.stages:
            own = cwd if len(pipeline.stages) == 1 else list(cwd)
            yield from _node(stage, own, exposed=seen, depth=depth)


def _node(node: Node, cwd: list[str], *, exposed: bool, depth: int) -> Iterator[Step]:
    match node:
        case Command():
            yield from _command(node, cwd, exposed=exposed, depth=depth)
        case Group():
            yield from _script(node.body, list(cwd) if node.subshell else cwd, exposed=exposed, depth=depth)
        case Loop():
            yield from _script(node.condition, cwd, exposed=False, depth=depth)
            yield from _script(node.body, cwd, exposed=False, depth=depth)
        case Choice():
            for part in node.parts:
                yield from _script(part, cwd, exposed=False, depth=depth)
        case Function():
            return


def _text(word: Word) -> str:
    return "".join(f"${part.text}" if part.kind == "variable" else part.text for part in word.parts)


def _command(node: Command, cwd: list[str], *, exposed: bool, depth: int) -> Iterator[Step]:
    words = unwrapped([_text(word) for word in node.words])
    if not words:
        return
    name = basename(words[0])
    if name in ("cd", "pushd"):
        target = next((word for word in words[1:] if not word.startswith("-")), "")
        if target and "$" not in target and not target.startswith("~"):
            cwd[0] = normpath(join(cwd[0], target))
        return
    if name in ("sh", "bash", "zsh", "dash") and depth < _MAX_DEPTH:
        flag = next((i for i, word in enumerate(words) if re.fullmatch(r"-[a-z]*c", word)), None)
        if flag is not None and flag + 1 < len(words):
            yield from _script(parse(words[flag + 1]), list(cwd), exposed=exposed, depth=depth + 1)
            return
    yield Step(tuple(words), cwd[0], exposed)


_PREFIX_VALUED = {
    "sudo": "ug", "timeout": "sk", "gtimeout": "sk", "nice": "n", "env": "uC", "nohup": "", "time": "fo",
    "stdbuf": "ioe",
    "xvfb-run": "sn", "command": "", "exec": "", "unbuffer": "", "caffeinate": "", "npx": "p", "bunx": "", "pnpx": "",
    "uvx": "", "watch": "nd", "ionice": "cn", "setsid": "", "cross-env": "", "dotenv": "ef", "script": "c",
    "chronic": "",
}  # fmt: skip
_RUN = {
    "poetry": ("run",), "uv": ("run",), "pipenv": ("run",), "pdm": ("run",), "hatch": ("run",), "rye": ("run",),
    "bundle": ("exec",), "pnpm": ("exec", "dlx"), "yarn": ("exec", "dlx"), "npm": ("exec",), "conda": ("run",),
    "mise": ("exec", "x"), "bun": ("x",), "coverage": ("run",), "nix": ("develop",),
}  # fmt: skip


def unwrapped(words: list[str]) -> list[str]:
    """The words without assignments and prefix commands: `FOO=1 timeout 60 poetry run pytest -q` is `pytest -q`."""
    for _ in range(8):
        while words and re.match(r"[A-Za-z_]\w*=", words[0]):
            words = words[1:]
        if not words:
            return words
        name = basename(words[0])
        rest = words[1:]
        if name in _PREFIX_VALUED:
            words = _operands(rest, _PREFIX_VALUED[name])
            if name in ("timeout", "gtimeout"):
                words = words[1:]
        elif name in _RUN and rest[:1] and rest[0] in _RUN[name]:
            words = _operands(rest[1:], "np")
            if name == "coverage" and rest[1:2] == ["-m"]:
                words = rest[2:]
        elif re.fullmatch(r"(?:python|pypy)[\d.]*", name):
            at = next((i for i, word in enumerate(rest[:4]) if word == "-m"), None)
            if at is None or at + 1 >= len(rest) or any(not word.startswith("-") for word in rest[:at]):
                return words
            words = rest[at + 1 :]
            if words[:1] == ["coverage"] and words[1:3] == ["run", "-m"]:
                words = words[3:]
        elif name in ("docker", "podman", "docker-compose") and (inner := _in_container(rest)):
            words = inner
        else:
            return [
                name
                if words[0].startswith(("/", "./node_modules", "node_modules", ".venv", "venv", "./vendor", "vendor"))
                else words[0],
                *rest,
            ]
    return words


def _operands(words: Sequence[str], valued: str) -> list[str]:
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index].lstrip("-") in (valued or "\0") and words[index] != "-" else 1
    return list(words[index:])


def _in_container(words: Sequence[str]) -> list[str]:
    """`docker compose run --rm app pytest`: the command within, where it is a gate."""
    if not any(word in ("run", "exec") for word in words[:6]):
        return []
    for index in range(1, len(words)):
        rest = list(words[index:])
        if (
            not rest[0].startswith("-")
            and basename(rest[0]) in _GATES
            and words[index - 1] not in ("run", "exec", "-w", "-v", "-e")
        ):
            return rest
    return []


# --- which command is which gate

_ASKING = frozenset({"--version", "--help", "-h", "-V", "help", "version", "--usage", "-version"})


def _plain(gate: str, *more: str, quiet: bool = False) -> Callable[[Sequence[str]], tuple[str, bool, bool] | None]:
    """A tool that runs unless it is asked about itself or for a list."""
    asking = _ASKING | frozenset(more)

    def judge(args: Sequence[str]) -> tuple[str, bool, bool] | None:
        return None if any(arg in asking for arg in args) else (gate, False, quiet)

    return judge


_Verdict = tuple[str, bool, bool]  # gate, runs others, silence is success


def _words(args: Sequence[str]) -> list[str]:
    return [arg for arg in args if not arg.startswith(("-", "+"))]


def _go(args: Sequence[str]) -> _Verdict | None:
    verb = _words(args)[:1]
    if verb == ["test"]:
        listing = any(re.match(r"--?(?:list|help|n)\b", arg) or arg in ("-c",) for arg in args)
        return None if listing else ("go-test", False, False)
    return ("other", False, True) if verb in (["build"], ["vet"]) and "-n" not in args else None


def _cargo(args: Sequence[str]) -> _Verdict | None:
    words = _words(args)
    if any(arg in _ASKING or arg in ("--list", "list") for arg in args) or not words:
        return None
    verb = words[0]
    if verb == "nextest":
        return ("nextest", False, False) if words[1:2] in (["run"], ["r"]) else None
    named = {
        "test": "cargo-test",
        "t": "cargo-test",
        "clippy": "clippy",
        "build": "other",
        "b": "other",
        "check": "other",
        "c": "other",
    }
    if verb == "fmt":
        return ("other", False, True) if "--check" in args else None
    return (named[verb], False, False) if verb in named else None


def _node_runner(args: Sequence[str]) -> _Verdict | None:
    return ("node-test", False, False) if "--test" in args and not any(arg in _ASKING for arg in args) else None


def _maven(args: Sequence[str]) -> _Verdict | None:
    if any(arg in _ASKING or arg == "-v" for arg in args):
        return None
    goals = set(_words(args))
    wanted = {"test", "verify", "package", "install", "compile", "integration-test", "test-compile", "deploy", "site"}
    return (
        ("maven", False, True)
        if goals & wanted or any("surefire" in goal or "failsafe" in goal or ":check" in goal for goal in goals)
        else None
    )


def _gradle(args: Sequence[str]) -> _Verdict | None:
    if any(
        arg in _ASKING or arg in ("--dry-run", "-m", "tasks", "dependencies", "properties", "projects", "--stop")
        for arg in args
    ):
        return None
    return ("gradle", False, True)


def _dotnet(args: Sequence[str]) -> _Verdict | None:
    if any(arg in _ASKING or arg in ("--list-tests", "-t") for arg in args):
        return None
    verb = _words(args)[:1]
    if verb in (["test"], ["vstest"]):
        return ("dotnet-test", False, False)
    return ("other", False, False) if verb in (["build"], ["publish"], ["format"]) else None


def _ruff(args: Sequence[str]) -> _Verdict | None:
    if any(arg in _ASKING for arg in args):
        return None
    words = _words(args)
    if words[:1] == ["format"]:
        return ("ruff", False, False) if "--check" in args or "--diff" in args else None
    return None if words[:1] in (["rule"], ["config"], ["linter"], ["clean"], ["server"]) else ("ruff", False, True)


def _biome(args: Sequence[str]) -> _Verdict | None:
    if any(arg in _ASKING for arg in args):
        return None
    return ("biome", False, False) if _words(args)[:1] in (["check"], ["lint"], ["ci"], ["format"]) else None


def _vitest(args: Sequence[str]) -> _Verdict | None:
    if any(arg in _ASKING for arg in args) or _words(args)[:1] in (["list"], ["init"]):
        return None
    return ("vitest", False, False)


def _golangci(args: Sequence[str]) -> _Verdict | None:
    return (
        ("golangci-lint", False, True)
        if _words(args)[:1] == ["run"] and not any(arg in _ASKING for arg in args)
        else None
    )


def _make(args: Sequence[str]) -> _Verdict | None:
    if any(arg in ("-n", "--dry-run", "--just-print", "-p", "-q", "--help", "--version", "-v", "-h") for arg in args):
        return None
    targets = [word for word in _words(args) if "=" not in word]
    if targets and all(
        re.search(r"clean|^help$|^run|serve|^dev|start|deploy|^install|shell|^fmt$|^format$|^docs?$|^watch", t)
        for t in targets
    ):
        return None
    return ("make", True, True)


def _ninja(args: Sequence[str]) -> _Verdict | None:
    return (
        None
        if any(arg in ("-n", "-t", "--version", "-h") for arg in args) or "clean" in args
        else ("ninja", True, True)
    )


_NPM_NOT_GATES = re.compile(
    r"dev|start|serve|watch|preview|clean|deploy|release|publish|storybook|^format$|^fmt$|install|postinstall|prepare|seed|migrate|generate"
)
_NPM_OWN = frozenset(
    re.findall(
        r"\S+",
        """
        install i ci add remove rm uninstall ls list view info init create config cache audit outdated update upgrade
        link publish pack login whoami version help root bin why fund dedupe prune search set get start dlx exec x
        import store pm explain docs repo
        """,
    )
)


def _package(args: Sequence[str]) -> _Verdict | None:
    """npm, pnpm, yarn, bun: scripts by name. `npm run` alone lists them."""
    words: list[str] = []
    skip = False
    for arg in args:
        if arg == "--":
            break
        if skip:
            skip = False
        elif arg in ("--prefix", "-w", "--workspace", "-C", "--filter", "--cwd", "-F"):
            skip = True
        elif arg in ("--version", "--help", "-v"):
            return None
        elif not arg.startswith("-"):
            words.append(arg)
    if words[:1] in (["run"], ["run-script"], ["workspace"]):
        words = words[2:] if words[0] == "workspace" else words[1:]
        if not words or _NPM_NOT_GATES.search(words[0]):
            return None
        return _inner_gate(words) or ("npm-script", True, True)
    if not words or words[0] in _NPM_OWN or _NPM_NOT_GATES.search(words[0]):
        return None
    return _inner_gate(words) or ("npm-script", True, True)


def _inner_gate(words: Sequence[str]) -> _Verdict | None:
    """`yarn jest`, `pnpm vitest run`: a binary of the project, not a script."""
    if words[0] in ("jest", "vitest", "mocha", "tsc", "eslint", "biome", "playwright", "prettier", "pyright"):
        return _GATES[words[0]](words[1:])
    return None


def _docker(args: Sequence[str]) -> _Verdict | None:
    words = _words(args)
    if any(arg in _ASKING or arg == "--print" for arg in args):
        return None
    builds = words[:1] == ["build"] or words[:2] in (
        ["buildx", "build"],
        ["buildx", "bake"],
        ["image", "build"],
        ["compose", "build"],
        ["builder", "build"],
    )
    return ("docker-build", True, True) if builds else None


def _cmake(args: Sequence[str]) -> _Verdict | None:
    return ("other", True, True) if "--build" in args and "clean" not in args else None


def _checked(*flags: str) -> Callable[[Sequence[str]], _Verdict | None]:
    """Formatters: a gate only where they check."""

    def judge(args: Sequence[str]) -> _Verdict | None:
        return ("other", False, True) if any(arg.split("=")[0] in flags for arg in args) else None

    return judge


def _prettier(args: Sequence[str]) -> _Verdict | None:
    return ("other", False, True) if any(arg in ("--check", "-c", "-l", "--list-different") for arg in args) else None


def _ruby(args: Sequence[str]) -> _Verdict | None:
    scripts = [arg for arg in args if arg.endswith(".rb")]
    tests = any(
        re.search(r"(?:^|/)(?:test|spec)s?/|_(?:test|spec)\.rb$|(?:^|/)test_[^/]*\.rb$", script) for script in scripts
    )
    return ("minitest", False, False) if tests else None


def _rails(args: Sequence[str]) -> _Verdict | None:
    verb = (_words(args) or [""])[0]
    return ("minitest", True, False) if verb == "test" or verb.startswith("test:") else None


def _rake(args: Sequence[str]) -> _Verdict | None:
    words = _words(args)
    if any(arg in ("-T", "--tasks", "-n", "--dry-run") for arg in args):
        return None
    return (
        ("minitest", True, False) if not words or any(re.match(r"test|spec|default", word) for word in words) else None
    )


def _python(args: Sequence[str]) -> _Verdict | None:
    """A script: Django's and setuptools' test commands, and test files that run themselves."""
    if not args:
        return None
    first = next((arg for arg in args if not arg.startswith("-")), "")
    rest = list(args[args.index(first) + 1 :]) if first else []
    if basename(first) in ("manage.py", "setup.py", "runtests.py") and rest[:1] == ["test"]:
        return ("unittest", True, False)
    if re.search(r"(?:^|/)(?:test_[^/]*|[^/]*_test|tests?)\.py$", first):
        return ("unittest", True, False)
    return None


def _playwright(args: Sequence[str]) -> _Verdict | None:
    return (
        ("other", False, False)
        if _words(args)[:1] == ["test"] and not any(a in ("--list", *_ASKING) for a in args)
        else None
    )


def _pre_commit(args: Sequence[str]) -> _Verdict | None:
    return ("other", True, True) if _words(args)[:1] == ["run"] else None


def _runner(args: Sequence[str]) -> _Verdict | None:
    """tox, nox, just, task: only what they run can be named."""
    if any(arg in ("-l", "--list", "--listenvs", "-n", "--dry-run", *_ASKING) for arg in args):
        return None
    words = _words(args)
    return (
        ("other", True, True)
        if not words or any(re.search(r"test|lint|check|ci|build|type|verify|py\d", w) for w in words)
        else None
    )


_GATES: dict[str, Callable[[Sequence[str]], _Verdict | None]] = {
    "pytest": _plain("pytest", "--collect-only", "--co", "--fixtures", "--markers", "--setup-plan", "--cache-show"),
    "py.test": _plain("pytest", "--collect-only", "--co"),
    "unittest": _plain("unittest"), "nose2": _plain("unittest"), "trial": _plain("unittest"),
    "mypy": _plain("mypy", quiet=True), "dmypy": _plain("mypy", "start", "stop", "status", quiet=True),
    "pyright": _plain("pyright"), "basedpyright": _plain("pyright"), "ruff": _ruff,
    "flake8": _plain("flake8", quiet=True),
    "pylint": _plain("other", "--list-msgs"), "black": _checked("--check"),
    "isort": _checked("--check", "--check-only", "-c"),
    "compileall": _plain("other", quiet=True), "py_compile": _plain("other", quiet=True),
    "jest": _plain("jest", "--listTests", "--showConfig", "--clearCache", "--init"), "vitest": _vitest,
    "mocha": _plain("mocha", "--dry-run", "--list-files"), "node": _node_runner,
    "tsc": _plain("tsc", "--init", "--showConfig", "--listFilesOnly", "--all", quiet=True),
    "vue-tsc": _plain("tsc", quiet=True),
    "eslint": _plain("eslint", "--print-config", "--init", "--env-info", quiet=True), "biome": _biome,
    "prettier": _prettier, "playwright": _playwright, "cypress": _plain("other"), "ava": _plain("other"),
    "tap": _plain("other"),
    "go": _go, "gotestsum": _plain("go-test"), "golangci-lint": _golangci, "cargo": _cargo,
    "cargo-nextest": _plain("nextest"),
    "staticcheck": _plain("other", quiet=True),
    "mvn": _maven, "mvnw": _maven, "mvnd": _maven, "gradle": _gradle, "gradlew": _gradle, "dotnet": _dotnet,
    "rspec": _plain("rspec", "--dry-run", "--init", "-v"), "ruby": _ruby, "rails": _rails, "rake": _rake, "m": _ruby,
    "phpunit": _plain("phpunit", "--list-tests", "--list-suites", "--list-groups", "--generate-configuration"),
    "pest": _plain("phpunit"),
    "ctest": _plain("ctest", "-N", "--show-only", "--print-labels"), "bats": _plain("bats", "-c", "--count"),
    "prove": _plain("prove", "-D", "--dry"),
    "make": _make, "gmake": _make, "ninja": _ninja, "cmake": _cmake, "npm": _package, "yarn": _package,
    "pnpm": _package, "bun": _package,
    "docker": _docker, "podman": _docker,
    "docker-compose": lambda args: ("docker-build", True, True) if _words(args)[:1] == ["build"] else None,
    "buildah": _docker, "pre-commit": _pre_commit, "tox": _runner, "nox": _runner, "just": _runner, "task": _runner,
    "composer": _runner,
    "shellcheck": _plain("other", quiet=True), "rubocop": _plain("other"), "stylelint": _plain("other", quiet=True),
    "hadolint": _plain("other", quiet=True),
    "yamllint": _plain("other", quiet=True),
    "swift": lambda args: ("other", False, False) if _words(args)[:1] in (["test"], ["build"]) else None,
    "xcodebuild": _plain("other", "-list", "-version"),
    "zig": lambda args: ("other", False, True) if _words(args)[:1] in (["test"], ["build"]) else None,
    "mix": lambda args: ("other", False, False) if _words(args)[:1] in (["test"], ["compile"], ["credo"]) else None,
    "gcc": _plain("other", quiet=True), "cc": _plain("other", quiet=True), "g++": _plain("other", quiet=True),
    "clang": _plain("other", quiet=True),
    "clang++": _plain("other", quiet=True), "rustc": _plain("other", quiet=True), "javac": _plain("other", quiet=True),
    "next": lambda args: ("other", False, False) if _words(args)[:1] in (["build"], ["lint"]) else None,
    "vite": lambda args: ("other", False, False) if _words(args)[:1] == ["build"] else None,
    "webpack": _plain("other"),
    "sbt": lambda args: ("other", True, False) if any("test" in a or "compile" in a for a in args) else None,
    "bazel": lambda args: ("other", True, False) if _words(args)[:1] in (["test"], ["build"]) else None,
    "deno": lambda args: ("other", False, False) if _words(args)[:1] in (["test"], ["check"], ["lint"]) else None,
}  # fmt: skip
_SCRIPT = re.compile(r"(?:^|[-_./])(?:tests?|check|lint|ci|verify|build)(?=$|[-_./])")


def invocations(command: str, cwd: str) -> list[Invocation]:
    """The gates that a command line runs, in order."""
    found: list[Invocation] = []
    for step in steps(command, cwd):
        name, args = basename(step.words[0]), list(step.words[1:])
        judge = _python if re.fullmatch(r"(?:python|pypy)[\d.]*", name) else _GATES.get(name)
        verdict = judge(args) if judge else None
        if verdict is None and judge is None:
            script = step.words[1] if name in ("bash", "sh", "zsh") and args else step.words[0]
            if (
                ("/" in script or name in ("bash", "sh"))
                and _SCRIPT.search(script)
                and not script.startswith(("/usr/", "/bin/"))
            ):
                verdict = ("", True, False)
        if verdict is not None:
            gate, others, quiet = verdict
            found.append(Invocation(gate, step.words, step.directory, step.exposed, others, quiet))
    return found


# --- normalised spelling

_NOISE = re.compile(
    r"-(?:q+|v+|s|l|ra?|r[A-Za-z]+|x|B|ff|lf)$|--(?:verbose|quiet|silent|no-header|no-summary|color|colour|no-color|no-colour|colors|tb|show-capture"
    r"|reporter|format|output-format|output-on-failure|console|nocapture|no-cov|no-coverage|coverage|cov|cov-report|maxfail|exitfirst|forceExit"
    r"|runInBand|ci|stacktrace|info|debug|durations|output-file|pretty|no-pretty|verbosity|no-progress|progress|failed-first|last-failed|failfast"
    r"|no-error-summary|show-error-codes|error-format|message-format|plain|no-ansi|batch-mode|no-transfer-progress|loglevel|log-level|reporters"
    r"|detectOpenHandles|passWithNoTests|bail|testdox|seed|nologo|logger)(?:=.*)?$"
)
_NOISE_VALUED = frozenset(
    {
        "--tb",
        "--reporter",
        "--format",
        "--output-format",
        "--maxfail",
        "--color",
        "--durations",
        "--seed",
        "--logger",
        "-p",
        "-n",
        "--verbosity",
    }
)


def normalised(words: Sequence[str]) -> str:
    """The words of a run without what changes only how much it prints."""
    words = list(words)
    name = basename(words[0])
    if name in ("npm", "pnpm", "yarn", "bun") and words[1:2] in (["run"], ["run-script"]):
        words = [words[0], *words[2:]]
    if name == "py.test":
        words[0] = "pytest"
    out = [words[0]]
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
        elif word in _NOISE_VALUED and not (name == "make" or (word in ("-p", "-n") and name != "pytest")):
            skip = True
        elif not _NOISE.match(word):
            out.append(word.rstrip("/") or word)
    return " ".join(out)
