"""The walk over a command line: what runs, where, with which words; commands are judged by their tables."""

import re
from collections.abc import Sequence
from posixpath import basename, join, normpath

from checkpointd.model.danger import powershell, programs
from checkpointd.model.danger.call import UNKNOWN_VALUE, Call, Stdin, Value, options
from checkpointd.model.danger.files import FILES, Handler, hits
from checkpointd.model.danger.findings import UNKNOWN, Danger
from checkpointd.model.danger.remote import REMOTE, is_database_task
from checkpointd.model.danger.repositories import REPOSITORIES
from checkpointd.model.danger.scene import UNKNOWN_PIECE, Scene
from checkpointd.model.shell import (
    Choice,
    Command,
    Function,
    Group,
    Loop,
    Node,
    Pipeline,
    Redirection,
    Script,
    Word,
    parse,
)

_TABLE: dict[str, Handler] = {**FILES, **REPOSITORIES, **REMOTE}
_MAX_DEPTH = 12
_MAX_COMMANDS = 2000

_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "rbash"})
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|node|nodejs|bun|deno|tsx|ts-node|ruby|perl|php|lua|luajit|Rscript|R")
# Prefix commands: the options that take a value, and how many operands come before the command.
_WRAPPERS: dict[str, tuple[str, int]] = {
    "sudo": ("u g h p C r t T D R user group chdir", 0), "doas": ("u C", 0), "nohup": ("", 0),
    "time": ("f o format output", 0),
    "timeout": ("s k signal kill-after", 1), "gtimeout": ("s k signal kill-after", 1), "nice": ("n adjustment", 0),
    "ionice": ("c n p", 0), "stdbuf": ("i o e", 0), "setsid": ("", 0), "command": ("", 0), "builtin": ("", 0),
    "exec": ("a", 0), "unbuffer": ("", 0), "caffeinate": ("t w", 0), "chronic": ("", 0), "strace": ("o e p", 0),
    "busybox": ("", 0), "npx": ("p package c call", 0), "bunx": ("", 0), "pnpx": ("", 0), "uvx": ("from with p", 0),
    "chpst": ("u", 0), "flock": ("w E timeout", 1), "watch": ("n d interval", 0), "and": ("", 0), "or": ("", 0),
    "not": ("", 0), "begin": ("", 0), "else": ("", 0), "noglob": ("", 0), "nocorrect": ("", 0),
    "systemd-run": ("p u", 0),
    "catchsegv": ("", 0), "taskset": ("", 1), "direnv": ("", 1), "proxychains4": ("f", 0), "dotenv": ("e f", 0),
    "cross-env": ("", 0), "entr": ("", 0), "env-cmd": ("f", 0), "xvfb-run": ("s n", 0),
}  # fmt: skip
_RUNNERS: dict[str, tuple[str, ...]] = {
    "poetry": ("run",), "uv": ("run",), "pipenv": ("run",), "pdm": ("run",), "hatch": ("run",), "rye": ("run",),
    "pnpm": ("exec", "dlx"), "yarn": ("exec", "dlx"), "npm": ("exec",), "bundle": ("exec",), "mise": ("exec", "x"),
    "asdf": ("exec",), "nix": ("run",), "conda": ("run",), "micromamba": ("run",), "rbenv": ("exec",),
    "pyenv": ("exec",),
    "volta": ("run",), "composer": ("exec",), "bun": ("x",), "op": ("run",), "doppler": ("run",),
}  # fmt: skip
_TASKS = frozenset({"make", "gmake", "just", "task", "rake", "invoke", "inv", "nox", "tox", "ant", "mage", "doit"})
_SCRIPTS = frozenset(
    {"npm", "pnpm", "yarn", "bun", "composer", "deno", "nx", "turbo", "lerna", "hatch", "pdm", "poe", "moon"}
)
_DESTRUCTIVE_WORD = re.compile(
    r"(?:^|[-_:./])(?:clean(?:up|all)?|dist-?clean|real-?clean|mr-?proper|mostlyclean|maintainer-clean|very-?clean|clobber|reset|purge"
    r"|wipe|nuke|clear|destroy|drop|prune|delete|remove|rm|tear-?down|scrub|fresh|undo|rollback|restore|revert|uninstall|reinit"
    r"|obliterate|trash|erase|unlink|pristine)(?=$|[-_:./])",
    re.IGNORECASE,
)
_GATE_WORD = re.compile(
    r"(?:^|[-_:./])(?:tests?|lint|build|check|checks|ci|serve|dev|format|fmt|bench|start|configure|gradlew|mvnw|activate|env|verify"
    r"|bootstrap|typecheck|manage|watch|preview|version|coverage|e2e|unit|run-tests|runtests|validate|docs?|nvm|bashrc|profile|zshrc|venv)"
    r"(?=$|[-_:./])",
    re.IGNORECASE,
)
_SCRIPT_NAME = re.compile(r"\.(?:sh|bash|zsh|command|fish)$")
# `eval "$(direnv hook bash)"`: these print settings.
_ENVIRONMENT = re.compile(
    r"\s*(?:\S*/)?(?:ssh-agent|direnv|\w+env|fnm|brew|conda|mise|asdf|opam|starship|zoxide|docker-machine|minikube|luarocks"
    r"|dircolors|gpg-agent|nvm|mamba|micromamba|thefuck|register-python-argcomplete)\b"
)
_SILENT = frozenset({":", "true"})
_FILTERS = frozenset({"grep", "egrep", "head", "tail", "sort", "uniq", "tr", "awk", "cut", "tee", "rg"})


class Walker:
    """One walk. `found` collects what the commands would destroy."""

    def __init__(self, scene: Scene, cwd: str | None, *, depth: int = 0) -> None:
        self.scene = scene
        self.cwd = cwd
        self.depth = depth
        self.variables: dict[str, str] = {"TMPDIR": "/tmp"}  # noqa: S108
        self.functions: dict[str, Script] = {}
        self.found: list[Danger] = []
        self.stdin: Stdin | None = None
        self.budget = [_MAX_COMMANDS]
        self.ended = False
        self.substituted_source = ""  # the command whose output was last put into a word

    # --- structure

    def script(self, script: Script) -> bool | None:
        """Runs every pipeline; returns whether the last one surely succeeds or fails, where that is known."""
        status: bool | None = None
        for pipeline in script.pipelines:
            if self.ended or self.budget[0] <= 0:
                break
            if (pipeline.joined == "&&" and status is False) or (pipeline.joined == "||" and status is True):
                continue
            certain = pipeline.joined in ("", ";")
            status = self.pipeline(pipeline)
            if certain and len(pipeline.stages) == 1 and _is_exit(pipeline.stages[0]):
                self.ended = True
        return status

    def pipeline(self, pipeline: Pipeline) -> bool | None:
        if len(pipeline.stages) == 1:
            return self.node(pipeline.stages[0])
        upstream: Stdin | None = self.stdin
        for stage in pipeline.stages:
            inner = self.copy()
            inner.stdin = upstream
            inner.node(stage)
            upstream = inner.output(stage, upstream)
        return None

    def copy(self) -> "Walker":
        """A subshell: it shares what was found, and nothing else that it changes."""
        inner = Walker(self.scene, self.cwd, depth=self.depth)
        inner.variables = dict(self.variables)
        inner.functions = dict(self.functions)
        inner.found = self.found
        inner.stdin = self.stdin
        inner.budget = self.budget
        return inner

    def node(self, node: Node) -> bool | None:
        match node:
            case Command():
                return self.command(node)
            case Group():
                inner = self.copy() if node.subshell else self
                inner.redirected(node.redirections, ())
                return inner.script(node.body)
            case Loop():
                self.redirected(node.redirections, ())
                self.loop(node)
            case Choice():
                self.redirected(node.redirections, ())
                self.choice(node)
            case Function():
                self.functions[node.name] = node.body
        return None

    def loop(self, loop: Loop) -> None:
        status = self.script(loop.condition)
        if status is False:
            return
        values = [value for word in loop.words or () for value in self.values(word)]
        if loop.words is None or len(values) > 50:
            values = [UNKNOWN_VALUE]
        before = self.variables.get(loop.variable)
        for value in values if loop.variable else [UNKNOWN_VALUE]:
            if loop.variable:
                self.assign(loop.variable, value)
            self.script(loop.body)
        if loop.variable and before is not None:
            self.variables[loop.variable] = before

    def choice(self, choice: Choice) -> None:
        status: bool | None = None
        for index, part in enumerate(choice.parts):
            if index == 1 and status is False:
                continue  # `if false; then ...`
            inner = self.copy() if index else self
            inner.stdin = self.stdin
            status = inner.script(part)

    # --- words

    def values(self, word: Word) -> list[Value]:
        """The words that expansion makes of one."""
        texts: list[str] = []
        glob, splits = False, False
        for part in word.parts:
            if part.kind == "text":
                texts.append(part.text)
            elif part.kind == "glob":
                glob = True
                texts.append(part.text)
            else:
                text = self.substituted(part.kind, part.text)
                glob = glob or any(c in text for c in "*?")
                splits = splits or (not part.quoted or part.text == "@")
                texts.append(text)
        text = "".join(texts)
        if splits and " " in text.strip():
            return [Value(piece, UNKNOWN_PIECE not in piece, glob) for piece in text.split()]
        return [Value(text, UNKNOWN_PIECE not in text, glob)]

    def substituted(self, kind: str, source: str) -> str:
        if kind == "variable":
            return self.variables.get(source, UNKNOWN_PIECE)
        if kind == "command":
            self.substituted_source = source
            self.inner().script(parse(source))
            return "/tmp/made" if re.match(r"\s*mktemp\b(?!.*-p\s*\.)", source) else UNKNOWN_PIECE  # noqa: S108
        if kind == "process":
            self.inner().script(parse(source))
            return "/dev/fd/63"
        return UNKNOWN_PIECE

    def inner(self) -> "Walker":
        inner = self.copy()
        inner.depth += 1
        inner.stdin = None
        inner.ended = self.depth >= _MAX_DEPTH
        return inner

    def text(self, word: Word) -> str:
        return " ".join(value.text for value in self.values(word))

    def assign(self, name: str, value: Value) -> None:
        self.variables[name] = value.text

    # --- commands

    def command(self, command: Command) -> bool | None:
        self.budget[0] -= 1
        for assignment in command.assignments:
            text = self.text(assignment.value)
            before = self.variables.get(assignment.name, "") if assignment.append else ""
            self.variables[assignment.name] = before + text
        words = [value for word in command.words for value in self.values(word)]
        stdin = self.fed(command)
        self.redirected(command.redirections, words)
        return self.run(words, stdin)

    def fed(self, command: Command) -> Stdin | None:
        """What the command reads: its here-document or here-string, a file, or what is upstream."""
        stdin = self.stdin
        for redirection in command.redirections:
            if redirection.heredoc is not None:
                stdin = Stdin(self.whole(redirection.heredoc))
            elif redirection.operator == "<<<":
                stdin = Stdin(self.text(redirection.target))
            elif redirection.operator == "<":
                stdin = Stdin()
        return stdin

    def whole(self, word: Word) -> str:
        """A here-document's text: never split into words."""
        return "".join(p.text if p.kind == "text" else self.substituted(p.kind, p.text) for p in word.parts)

    def redirected(self, redirections: Sequence[Redirection], words: Sequence[Value]) -> None:
        for redirection in redirections:
            if redirection.operator not in (">", ">|", "&>", ">&") or redirection.heredoc is not None:
                continue
            values = self.values(redirection.target)
            if redirection.operator == ">&" and values and re.fullmatch(r"\d+|-", values[0].text):
                continue
            effect = "truncates" if _prints_nothing(words) and redirection.descriptor in ("", "1") else "overwrites"
            call = self.call("", [], None)
            self.found += call.written(values[:1], "truncates" if effect == "truncates" else "overwrites")

    def call(self, name: str, args: Sequence[Value], stdin: Stdin | None) -> Call:
        return Call(
            name, tuple(args), self.cwd, self.scene, self.judged, self.judged_words, stdin, self.stdin is not None
        )

    def judged(self, source: str) -> list[Danger]:
        """What a further command line would destroy, run from here."""
        inner = self.inner()
        inner.found = []
        inner.script(parse(source))
        return inner.found

    def judged_words(self, words: Sequence[Value], stdin: Stdin | None) -> list[Danger]:
        inner = self.inner()
        inner.found = []
        if not inner.ended:
            inner.run(list(words), stdin)
        return inner.found

    def run(self, words: list[Value], stdin: Stdin | None) -> bool | None:
        """Judges one command by its words. Returns its status where that is certain."""
        if not words or self.depth > _MAX_DEPTH:
            return None
        first, args = words[0], words[1:]
        if not first.known:
            if len(words) > 1 or first.text == UNKNOWN_PIECE:
                self.found.append(UNKNOWN)
            return None
        name = basename(first.text) or first.text
        if name in ("true", ":"):
            return True
        if name == "false":
            return False
        if first.text in self.functions:
            self.enter(first.text, args)
            return None
        if name in _BUILTINS:
            _BUILTINS[name](self, args, stdin)
            return None
        if (inner := self.unwrapped(name, args)) is not None:
            self.unwrap(name, inner, args, stdin)
            return None
        self.judge(first.text, name, args, stdin)
        return None

    def judge(self, whole: str, name: str, args: list[Value], stdin: Stdin | None) -> None:
        call = self.call(name, args, stdin)
        if name in _SHELLS:
            self.shell(name, args, stdin)
        elif name in ("pwsh", "powershell", "pwsh.exe", "powershell.exe"):
            self.found += _powershell(call)
        elif _INTERPRETER.fullmatch(name):
            self.interpret(call)
        elif name in _TABLE:
            if not any(value.text in ("--help", "--version") for value in args):
                self.found += _TABLE[name](call)
        elif name in _TASKS or name in _SCRIPTS:
            self.task(call)
        elif "/" in whole and not whole.startswith(("/usr/", "/bin/", "/opt/", "/sbin/")):
            self.script_file(whole)

    def enter(self, name: str, args: Sequence[Value]) -> None:
        inner = self.copy()
        inner.depth += 1
        if inner.depth > _MAX_DEPTH:
            return
        for index, value in enumerate(args, 1):
            inner.variables[str(index)] = value.text
        inner.variables["@"] = inner.variables["*"] = " ".join(value.text for value in args)
        inner.script(self.functions[name])

    # --- prefixes

    def unwrapped(self, name: str, args: Sequence[Value]) -> list[Value] | None:
        """The command that a prefix command runs; None for all others."""
        if name in _WRAPPERS:
            if name == "command" and any(value.text in ("-v", "-V") for value in args):
                return []
            valued, skipped = _WRAPPERS[name]
            given = options(args, valued, stop=True)
            if name == "npx" and (given.has("c", "call")):
                return []
            words = given.operands[skipped:]
            while words and re.match(r"[A-Za-z_]\w*=", words[0].text):
                words = words[1:]
            return words
        if name in _RUNNERS:
            given = options(args, "C with from n name p project directory filter w", stop=True)
            if given.operands and given.operands[0].text in _RUNNERS[name] and name not in _SCRIPTS | {"composer"}:
                return options(given.operands[1:], "with from p python n", stop=True).operands
            if given.operands and given.operands[0].text in ("exec", "dlx", "x"):
                return options(given.operands[1:], "p package", stop=True).operands
        return None

    def unwrap(self, name: str, words: list[Value], args: Sequence[Value], stdin: Stdin | None) -> None:
        if name == "npx":
            for value in options(args, "p package c call", stop=True).values.get("c", []):
                self.found += self.judged(value.text)
        if words:
            self.run(words, stdin)

    def shell(self, name: str, args: Sequence[Value], stdin: Stdin | None) -> None:
        given = options(args, "c o O rcfile init-file", stop=True)
        sources = given.values.get("c", [])
        inner = self.inner()
        inner.found = self.found
        if not sources and any(re.fullmatch(r"-[a-z]*c", value.text) for value in args) and given.operands:
            sources = given.operands[:1]
        if sources:
            if not sources[0].known and sources[0].text.strip(UNKNOWN_PIECE) == "":
                self.found.append(UNKNOWN)
            inner.script(parse(sources[0].text, fish=name == "fish"))
        elif given.operands and not given.has("s"):
            if not given.has("n"):
                self.script_file(given.operands[0].text, sourced=True)
        elif stdin is not None:
            if stdin.text is None:
                self.found.append(UNKNOWN)
            else:
                inner.script(parse(stdin.text, fish=name == "fish"))

    def interpret(self, call: Call) -> None:
        given = options(call.args, "c e E p print eval execute r m input-type W X M I l i")
        language = call.name
        if re.match(r"python|pypy", language):
            given = options(call.args, "c m W X", stop=True)
        source = next(
            (given.values[key][0] for key in ("c", "e", "E", "p", "print", "eval", "r") if given.values.get(key)), None
        )
        if language in ("perl", "ruby") and _edits_in_place(call):
            self.found += call.lost(_operands_after_code(call), "overwrites")
            return
        if language in ("perl", "ruby"):
            source = _code_of(call) or source
        elif language == "deno" and given.operands[:1] and given.operands[0].text == "eval":
            source = given.operands[1] if len(given.operands) > 1 else None
        if source is not None and not (language.startswith(("python", "pypy")) and "c" not in given.values):
            self.found += programs.judge(call, language, source.text)
            return
        operands = [value for value in given.operands if value.text != "-"]
        if given.values.get("m"):
            self.found += [] if not is_database_task(call) else REMOTE["django-admin"](call)
            return
        if not operands or "<" in operands[0].text:
            if call.stdin is not None and call.stdin.text is not None:
                self.found += programs.judge(call, language, call.stdin.text)
            return
        if is_database_task(call):
            self.found += REMOTE["django-admin"](call)
        elif language in _SCRIPTS:
            self.task(call)
        elif _DESTRUCTIVE_WORD.search(operands[0].text):
            self.found.append(UNKNOWN)

    def task(self, call: Call) -> None:
        """make targets and package scripts: their text is not shown, so the name has to tell."""
        given = options(call.args, "C f j file directory o W I prefix filter w workspace cwd")
        if given.has(
            "n", "dry-run", "just-print", "recon", "q", "question", "help", "h", "version", "list", "l", "summary"
        ):
            return
        words = [value.text for value in given.operands if "=" not in value.text]
        if call.name in _SCRIPTS:
            manages = (
                "ci",
                "install",
                "i",
                "add",
                "remove",
                "rm",
                "uninstall",
                "prune",
                "update",
                "cache",
                "ls",
                "view",
                "un",
                "link",
            )
            if words[:1] and words[0] in manages:
                return
            words = [word for word in words if word not in ("run", "run-script")][:1]
            if words == ["unpublish"]:
                self.found += REMOTE["npm-unpublish"](call)
                return
        if call.name == "rake" and is_database_task(call):
            self.found += REMOTE["django-admin"](call)
        elif any(_DESTRUCTIVE_WORD.search(word) for word in words):
            self.found.append(UNKNOWN)

    def script_file(self, path: str, *, sourced: bool = False) -> None:
        name = path.rstrip("/")
        if path.startswith("/dev/"):
            return
        if _DESTRUCTIVE_WORD.search(basename(name)) or (
            (sourced or _SCRIPT_NAME.search(name)) and not _GATE_WORD.search(basename(name))
        ):
            self.found.append(UNKNOWN)

    # --- pipes

    def output(self, node: Node, upstream: Stdin | None) -> Stdin:
        """What a stage of a pipeline prints, as far as the line shows it."""
        if not isinstance(node, Command):
            return Stdin()
        words = [value for word in node.words for value in self.values(word)]
        while words and (inner := self.unwrapped(basename(words[0].text), words[1:])):
            words = inner
        if not words:
            return Stdin()
        name = basename(words[0].text)
        if name in ("echo", "printf"):
            printed = [v for v in words[1:] if not re.fullmatch(r"-[neE]+", v.text)]
            text = " ".join(v.text for v in printed)
            if name == "printf" and len(printed) > 1 and re.fullmatch(r"(?:%[sb](?:\\n)?)+", printed[0].text):
                text = "\n".join(v.text for v in printed[1:])
            known = all(v.known for v in printed)
            return Stdin(text.replace("\\n", "\n") if known else None)
        if name == "cat" and len(words) == 1:
            return self.fed(node) or Stdin()
        if name == "find":
            return Stdin(None, tuple(hits(self.call(name, words[1:], None))))
        if name in ("ls", "fd", "fdfind"):
            globs = tuple(v for v in words[1:] if v.glob)
            return Stdin(None, globs or (UNKNOWN_VALUE,))
        if name in _FILTERS and upstream is not None:
            return Stdin(None, upstream.items)
        return Stdin()


def _is_exit(node: Node) -> bool:
    return isinstance(node, Command) and bool(node.words) and node.words[0].literal in ("exit", "return")


def _prints_nothing(words: Sequence[Value]) -> bool:
    texts = [value.text for value in words]
    if not texts or texts[0] in _SILENT:
        return True
    return texts in (["cat", "/dev/null"], ["echo", "-n"], ["printf", ""], ["echo", "-n", ""])


def _powershell(call: Call) -> list[Danger]:
    for index, text in enumerate(call.texts):
        if re.fullmatch(r"-c(?:o(?:m(?:m(?:a(?:n(?:d)?)?)?)?)?)?", text, re.IGNORECASE):
            return powershell.judge(call, " ".join(call.texts[index + 1 :]))
        if re.fullmatch(r"-f(?:ile)?", text, re.IGNORECASE):
            return [UNKNOWN]
    if call.stdin and call.stdin.text:
        return powershell.judge(call, call.stdin.text)
    if call.args and not call.args[0].text.startswith("-"):
        return [UNKNOWN] if call.args[0].text.endswith(".ps1") else powershell.judge(call, " ".join(call.texts))
    return []


# --- perl and ruby one-liners

_ONE_LINER = re.compile(r"-[a-zA-Z0-9]*")


def _edits_in_place(call: Call) -> bool:
    """`-i` without a suffix; with one the old bytes stay beside the file."""
    for text in call.texts:
        if not text.startswith("-") or text.startswith("--"):
            continue
        if re.fullmatch(r"-[plnaw0sS]*i[plnawe]*", text):
            return True
    return False


def _code_of(call: Call) -> Value | None:
    for index, text in enumerate(call.texts[:-1]):
        if re.fullmatch(r"-[a-zA-Z0-9]*[eE]", text):
            return call.args[index + 1]
    return None


def _operands_after_code(call: Call) -> list[Value]:
    operands: list[Value] = []
    skip = False
    for value in call.args:
        if skip:
            skip = False
        elif re.fullmatch(r"-[a-zA-Z0-9]*[eE]", value.text):
            skip = True
        elif not value.text.startswith("-"):
            operands.append(value)
    return operands


# --- builtins


def _cd(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    operands = options(args).operands
    if not operands:
        walker.cwd = walker.scene.home()
    elif not operands[0].known or operands[0].glob:
        walker.cwd = None
    elif operands[0].text == "-" or args[0].text == "-":
        walker.cwd = walker.variables.get("OLDPWD")
    else:
        before, text = walker.cwd, operands[0].text
        if text.startswith("~"):
            text = walker.scene.home() + text[1:]
        walker.cwd = None if before is None and not text.startswith("/") else normpath(join(before or "/", text))
        if before is not None:
            walker.variables["OLDPWD"] = before


def _dash(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    walker.cwd = None


def _eval(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    source = " ".join(value.text for value in args)
    if source.lstrip().startswith(UNKNOWN_PIECE):
        if not _ENVIRONMENT.match(walker.substituted_source):
            walker.found.append(UNKNOWN)
        return
    walker.depth += 1
    if walker.depth <= _MAX_DEPTH:
        walker.script(parse(source))
    walker.depth -= 1


def _source(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    if args and args[0].known:
        walker.script_file(args[0].text, sourced=True)


def _trap(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    if args and not args[0].text.startswith("-"):
        walker.copy().script(parse(args[0].text))


def _declare(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    for value in args:
        name, equals, text = value.text.partition("=")
        if equals:
            walker.variables[name] = text


def _read(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    names = options(args, "d n N p t u a i").operands
    item = stdin.items[0] if stdin is not None and len(stdin.items) == 1 else UNKNOWN_VALUE
    for value in names:
        walker.variables[value.text] = item.text if item.glob else UNKNOWN_PIECE


def _set(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    """fish's `set NAME value ...`; bash's `set -- a b`."""
    if args and args[0].text == "--":
        for index, value in enumerate(args[1:], 1):
            walker.variables[str(index)] = value.text
        walker.variables["@"] = " ".join(value.text for value in args[1:])
        return
    operands = options(args).operands
    if len(operands) > 1:
        walker.variables[operands[0].text] = " ".join(value.text for value in operands[1:])


def _env(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    given = options(args, "u unset C chdir S split-string", stop=True)
    for value in given.values.get("S", []) + given.values.get("split-string", []):
        walker.found += walker.judged(value.text)
    words = list(given.operands)
    while words and re.match(r"[A-Za-z_]\w*=", words[0].text):
        words.pop(0)
    inner = walker.copy()
    for folder in given.values.get("C", []) + given.values.get("chdir", []):
        _cd(inner, [folder], None)
    if words:
        inner.run(words, stdin)


def _xargs(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    given = options(args, "n I P L d a s E arg-file max-args max-procs max-lines delimiter replace", stop=True)
    items = list(stdin.items) if stdin is not None else [UNKNOWN_VALUE]
    template = given.operands
    place = given.values.get("I", [Value("{}")])[0].text if given.has("I", "replace") else None
    if not template:
        return
    for item in items:
        if place is None:
            walker.run([*template, item], None)
        else:
            walker.run([_replaced(word, place, item) for word in template], None)


def _replaced(word: Value, place: str, item: Value) -> Value:
    if place not in word.text:
        return word
    return Value(word.text.replace(place, item.text), known=item.known and word.known, glob=item.glob or word.glob)


def _parallel(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    texts = [value.text for value in args]
    split = next((i for i, text in enumerate(texts) if text.startswith(":::")), len(texts))
    given = options(args[:split], "j jobs n I a colsep", stop=True)
    items = list(args[split + 1 :]) if split < len(texts) and texts[split] == ":::" else [UNKNOWN_VALUE]
    template = list(given.operands)
    if not template or given.has("dry-run", "dryrun"):
        return
    for item in items:
        words = [_replaced(word, "{}", item) for word in template]
        if not any("{}" in word.text for word in template):
            words.append(item)
        if len(template) == 1 and " " in template[0].text:
            walker.found += walker.judged(" ".join(word.text for word in words))
        else:
            walker.run(words, None)


def _su(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    """su, script and nix-shell: a command line in one argument."""
    given = options(args, "c command s shell run")
    for value in [*given.values.get("c", []), *given.values.get("command", []), *given.values.get("run", [])]:
        walker.found += walker.judged(value.text)


def _cmd(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    """Windows: `cmd /c "rd /s /q src"`."""
    words = [value for value in args if value.text.lower() not in ("/c", "/s", "/q")]
    source = " ".join(value.text for value in words)
    call = walker.call("cmd", [], None)
    plain = re.sub(r"\s/[a-z]\b", "", source)
    walker.found += powershell.judge(call, plain)


def _nothing(walker: Walker, args: Sequence[Value], stdin: Stdin | None) -> None:
    """Commands that only speak of others."""


_BUILTINS = {
    "cd": _cd, "chdir": _cd, "pushd": _cd, "popd": _dash, "eval": _eval, "source": _source, ".": _source, "trap": _trap,
    "export": _declare, "local": _declare, "declare": _declare, "readonly": _declare, "typeset": _declare,
    "read": _read,
    "set": _set, "env": _env, "xargs": _xargs, "gxargs": _xargs, "parallel": _parallel, "su": _su, "runuser": _su,
    "script": _su, "nix-shell": _su, "cmd": _cmd,
    "cmd.exe": _cmd, "echo": _nothing, "printf": _nothing, "alias": _nothing, "which": _nothing, "type": _nothing,
    "man": _nothing, "help": _nothing, "history": _nothing, "[": _nothing, "test": _nothing, "exit": _nothing,
}  # fmt: skip
