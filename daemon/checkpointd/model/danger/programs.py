"""Code that a command line hands to an interpreter: which files its calls would destroy.

Python is read with its own parser; other languages by their tokens: a name, an opening
parenthesis or a string, and the first arguments. Text in strings and comments is not code.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from posixpath import join
from typing import NamedTuple

from checkpointd.model.danger.call import UNKNOWN_VALUE, Call, Value
from checkpointd.model.danger.findings import Danger, Effect, destroys
from checkpointd.model.danger.scene import UNKNOWN_PIECE


class Language(NamedTuple):
    """`calls`: what a function does to the file that its first argument names."""

    comment: str
    calls: dict[str, tuple[Effect, ...]]
    writes: frozenset[str]
    moves: frozenset[str]
    shells: frozenset[str]
    bare: bool = False  # arguments may come without parentheses


_DELETES: tuple[Effect, ...] = ("deletes",)
_TRUNCATES: tuple[Effect, ...] = ("truncates",)


def _language(
    comment: str, deletes: str, truncates: str, writes: str, moves: str, shells: str, *, bare: bool = False
) -> Language:
    calls = dict.fromkeys(deletes.split(), _DELETES) | dict.fromkeys(truncates.split(), _TRUNCATES)
    return Language(
        comment, calls, frozenset(writes.split()), frozenset(moves.split()), frozenset(shells.split()), bare
    )


_JAVASCRIPT = _language(
    "//",
    "rmSync rm unlinkSync unlink rmdirSync removeSync remove emptyDirSync emptyDir rimraf rimrafSync removeSync"
    " deleteAsync deleteSync",
    "truncateSync truncate ftruncateSync",
    "writeFileSync writeFile createWriteStream writeTextFileSync writeTextFile outputFileSync",
    "renameSync rename moveSync move copyFileSync copyFile cpSync",
    "execSync exec execa",
)
_RUBY = _language(
    "#",
    "rm rm_f rm_r rm_rf remove remove_dir remove_file remove_entry remove_entry_secure rmtree delete unlink"
    " safe_unlink",
    "truncate",
    "write binwrite",
    "mv move rename cp copy",
    "system exec spawn sh",
    bare=True,
)
_PERL = _language("#", "unlink rmtree remove_tree", "truncate", "", "rename move copy", "system exec", bare=True)
_PHP = _language("//", "unlink", "ftruncate", "file_put_contents", "rename copy", "exec shell_exec system passthru")
_LUA = _language("--", "remove", "", "", "rename", "execute")
_R = _language("#", "unlink file.remove", "", "writeLines", "file.rename", "system")

_LANGUAGES = {
    **dict.fromkeys(("node", "nodejs", "bun", "deno", "tsx", "ts-node", "qjs"), _JAVASCRIPT),
    "ruby": _RUBY, "perl": _PERL, "php": _PHP, "lua": _LUA, "luajit": _LUA, "Rscript": _R, "R": _R,
}  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<template>`(?:[^`\\]|\\.)*`)"""
    r"""|(?P<quote>%[qQwW]?(?:\{[^}]*\}|\([^)]*\)|\[[^\]]*\])|\bqw?\([^)]*\)|\bq[qw]?\{[^}]*\})|(?P<name>[A-Za-z_$@][\w$.]*[?!]?)|(?P<other>\S)""",
    re.DOTALL,
)


def judge(call: Call, interpreter: str, source: str) -> list[Danger]:
    """What the source would destroy when the interpreter ran it."""
    if interpreter.startswith(("python", "pypy")):
        return _python(call, source)
    language = _LANGUAGES.get(interpreter)
    return _tokens(call, language, source) if language else []


# --- by tokens


class _Token(NamedTuple):
    kind: str
    text: str


def _tokenized(source: str, comment: str) -> list[_Token]:
    tokens = []
    position = 0
    while match := _TOKEN.search(source, position):
        position = match.end()
        text = match[0]
        if (comment == "#" and text == "#") or (text == comment[0] and source.startswith(comment, match.start())):
            end = source.find("\n", match.start())
            position = end if end >= 0 else len(source)
            continue
        if comment == "//" and source.startswith("/*", match.start()):
            end = source.find("*/", match.start())
            position = end + 2 if end >= 0 else len(source)
            continue
        kind = match.lastgroup or "other"
        if kind in ("string", "template"):
            text = re.sub(r"\\(.)", r"\1", text[1:-1])
        elif kind == "quote":
            text = re.sub(r"^(?:%[qQwW]?|q[qw]?).|.$", "", text)
        tokens.append(_Token(kind, text))
    return tokens


def _tokens(call: Call, language: Language, source: str) -> list[Danger]:
    found: list[Danger] = []
    tokens = _tokenized(source, language.comment)
    variables = _constants(tokens)
    for index, token in enumerate(tokens):
        if token.kind == "template" and language in (_RUBY, _PERL, _PHP):
            found += call.shell(token.text)
        if token.kind != "name":
            continue
        if index and tokens[index - 1].text in ("def", "function", "sub", "import", "fn"):
            continue
        name = token.text.split(".")[-1].split("::")[-1]
        arguments = _arguments(tokens, index + 1, variables, bare=language.bare)
        if arguments is not None:
            found += _called(call, language, name, token.text, arguments)
    return found


def _called(call: Call, language: Language, name: str, whole: str, arguments: list[Value]) -> list[Danger]:
    first = arguments[0] if arguments else UNKNOWN_VALUE
    if effects := language.calls.get(name) or language.calls.get(whole):
        many = arguments if language in (_RUBY, _PERL) else [first]
        return call.lost([a for a in many if a.text] or [UNKNOWN_VALUE], *effects)
    if name in language.writes:
        return call.written([first], "overwrites")
    if name in language.moves and len(arguments) > 1:
        return call.written([arguments[1]], "overwrites")
    if name in language.shells and first.known:
        return call.shell(" ".join(a.text for a in arguments))
    if name in ("spawnSync", "spawn", "execFileSync", "execFile") and first.known:
        return call.shell(" ".join(_quoted(a.text) for a in arguments if a.known))
    if name == "open" and language is _PERL and len(arguments) > 1:
        mode, target = arguments[-2], arguments[-1]
        if target.text.startswith(">") and not target.text.startswith(">>"):
            return call.written([Value(target.text.lstrip("> "), target.known)], "overwrites")
        return call.written([target], "overwrites") if mode.text.strip() == ">" else []
    return []


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _constants(tokens: Sequence[_Token]) -> dict[str, Value]:
    """Variables that are set to a literal string, once."""
    values: dict[str, Value] = {}
    for index in range(len(tokens) - 2):
        name, equals, value = tokens[index : index + 3]
        if name.kind == "name" and equals.text == "=" and value.kind in ("string", "quote"):
            values[name.text] = UNKNOWN_VALUE if name.text in values else Value(value.text)
    return values


def _arguments(tokens: Sequence[_Token], start: int, variables: dict[str, Value], *, bare: bool) -> list[Value] | None:
    """The arguments that follow a name; None where it is not called."""
    if start >= len(tokens):
        return None
    opened = tokens[start].text == "("
    if not opened and not (bare and tokens[start].kind in ("string", "quote", "name")):
        return None
    level = 1 if opened else 0
    arguments: list[Value] = []
    current: list[_Token] = []
    for token in tokens[start + 1 if opened else start :]:
        if token.kind == "other":
            if token.text in "([{":
                level += 1
            elif token.text in ")]}":
                level -= 1
                if level <= 0:
                    break
            elif token.text == ";" and level <= 1 and not opened:
                break
            elif token.text == "," and level <= (1 if opened else 0):
                arguments.append(_argument(current, variables))
                current = []
                continue
            if token.text in "[]" or (token.text == "," and level == 2):
                if token.text == "," and current and current[0].text == "[":
                    arguments.append(_argument(current[1:], variables))
                    current = [current[0]]
                elif token.text == "[":
                    current.append(token)
                continue
        current.append(token)
    if current:
        arguments.append(_argument(current, variables))
    return arguments


def _argument(tokens: Sequence[_Token], variables: dict[str, Value]) -> Value:
    tokens = [token for token in tokens if token.text != "["]
    if len(tokens) == 1:
        token = tokens[0]
        if token.kind in ("string", "quote"):
            return Value(token.text)
        if token.kind == "template" and "${" not in token.text:
            return Value(token.text)
        if token.kind == "name" and token.text in variables:
            return variables[token.text]
    strings = [token.text for token in tokens if token.kind == "string"]
    if strings and any(token.text.rsplit(".")[-1] in ("join", "resolve") for token in tokens if token.kind == "name"):
        known = not any(token.kind == "name" and token.text.split(".")[0] not in ("path",) for token in tokens)
        return Value(join(*strings), known)
    if strings and any(
        token.text.split(".")[-1] in ("glob", "globSync", "Dir") for token in tokens if token.kind == "name"
    ):
        return Value(strings[0], glob=True)
    return UNKNOWN_VALUE


# --- Python

_PY_DELETES = frozenset({"remove", "unlink", "rmtree", "removedirs", "send2trash"})
_PY_WRITES = frozenset({"write_text", "write_bytes"})
_PY_MOVES = frozenset({"rename", "replace", "renames"})
_PY_COPIES = frozenset({"copy", "copy2", "copyfile", "copytree", "move"})
_PY_SHELLS = frozenset(
    {"system", "popen", "run", "call", "check_call", "check_output", "Popen", "getoutput", "getstatusoutput"}
)
_SUSPICIOUS = re.compile(r"\b(?:os\.(?:remove|unlink)|shutil\.rmtree|rmtree|\.unlink)\s*\(")


def _python(call: Call, source: str) -> list[Danger]:
    # A shell variable in the code: its place is kept by a character that can stand in a string.
    text = source.replace(UNKNOWN_PIECE, "\ue000")
    try:
        tree = ast.parse(_dedented(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return [destroys(_DELETES, None)] if _SUSPICIOUS.search(text) else []
    return _Python(call, tree).findings()


def _dedented(text: str) -> str:
    lines = text.split("\n")
    first = next((line for line in lines if line.strip()), "")
    margin = first[: len(first) - len(first.lstrip())]
    return "\n".join(line.removeprefix(margin) for line in lines) if margin else text


class _Python:
    """Reads the calls of a module in source order; bodies of functions only where the function is called."""

    def __init__(self, call: Call, tree: ast.Module) -> None:
        self.call = call
        self.values: dict[str, Value] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.modules: dict[str, str] = {}
        self.imported: dict[str, tuple[str, str]] = {}  # name here: module, name there
        self.visited: set[str] = set()
        self.read_paths: set[str] = set()  # a file that was read is there: writing it replaces something
        self.found: list[Danger] = []
        self.tree = tree

    def findings(self) -> list[Danger]:
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[node.name] = node
            elif isinstance(node, ast.Import):
                self.modules.update({alias.asname or alias.name: alias.name for alias in node.names})
            elif isinstance(node, ast.ImportFrom):
                self.imported.update(
                    {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
                )
        self.read(self.tree.body)
        return self.found

    def read(self, body: Sequence[ast.AST]) -> None:
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                continue
            for node in self.outside_functions(statement):
                self.learn(node)
            # Innermost calls first, as they run: `p.write_text(p.read_text())`.
            for node in reversed(list(self.outside_functions(statement))):
                if isinstance(node, ast.Call):
                    self.judge(node)

    def outside_functions(self, statement: ast.AST) -> Iterator[ast.AST]:
        queue: list[ast.AST] = [statement]
        while queue:
            node = queue.pop(0)
            yield node
            queue += [
                child
                for child in ast.iter_child_nodes(node)
                if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            ]

    def learn(self, node: ast.AST) -> None:
        """What names stand for: constants, and what loops go over."""
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.values[node.targets[0].id] = self.value(node.value)
        elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            self.values[node.target.id] = self.item(node.iter)
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            self.values[node.optional_vars.id] = self.value(node.context_expr)

    def item(self, node: ast.expr) -> Value:
        """What one element of an iterable is."""
        if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) == 1:
            return self.value(node.elts[0])
        if isinstance(node, ast.Call) and node.args:
            name = self.name(node.func)
            if name in ("sorted", "list", "set", "reversed"):
                return self.item(node.args[0])
            if name in ("glob", "iglob", "rglob"):
                pattern = self.value(node.args[0])
                base = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else Value("")
                if (
                    isinstance(node.func, ast.Attribute)
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id == "glob"
                ):
                    base = Value("")
                inner = join("**", pattern.text) if name == "rglob" else pattern.text
                return Value(join(base.text, inner), pattern.known and base.known, glob=True)
        return UNKNOWN_VALUE

    def value(self, node: ast.expr) -> Value:
        """The path that an expression stands for."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            unknown = "\ue000" in node.value
            return Value(node.value.replace("\ue000", UNKNOWN_PIECE), known=not unknown)
        if isinstance(node, ast.Name):
            return self.values.get(node.id, UNKNOWN_VALUE)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
            left, right = self.value(node.left), self.value(node.right)
            text = join(left.text, right.text) if isinstance(node.op, ast.Div) else left.text + right.text
            return Value(text, left.known and right.known, left.glob or right.glob)
        if isinstance(node, ast.JoinedStr):
            parts = [self.value(v.value if isinstance(v, ast.FormattedValue) else v) for v in node.values]
            return Value("".join(p.text for p in parts), all(p.known for p in parts), any(p.glob for p in parts))
        if isinstance(node, ast.Call):
            name = self.name(node.func)
            if name in ("Path", "PurePath", "str", "PosixPath", "join", "abspath", "fspath", "realpath", "joinpath"):
                base = (
                    [self.value(node.func.value)] if name == "joinpath" and isinstance(node.func, ast.Attribute) else []
                )
                parts = base + [self.value(argument) for argument in node.args]
                if parts:
                    return Value(
                        join(*(p.text for p in parts)), all(p.known for p in parts), any(p.glob for p in parts)
                    )
            if name in ("mkdtemp", "mkstemp", "gettempdir", "TemporaryDirectory", "NamedTemporaryFile"):
                return Value("/tmp/python")  # noqa: S108
            if name in ("resolve", "absolute", "expanduser") and isinstance(node.func, ast.Attribute):
                return self.value(node.func.value)
        return UNKNOWN_VALUE

    def name(self, function: ast.expr) -> str:
        if isinstance(function, ast.Attribute):
            return function.attr
        if isinstance(function, ast.Name):
            return self.imported.get(function.id, ("", function.id))[1]
        return ""

    def module(self, function: ast.expr) -> str:
        """The module that a function is called from, "" where it is a method of something else."""
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return self.modules.get(function.value.id, "")
        return self.imported.get(function.id, ("", ""))[0] if isinstance(function, ast.Name) else ""

    def judge(self, node: ast.Call) -> None:
        name, module = self.name(node.func), self.module(node.func)
        if isinstance(node.func, ast.Name) and name in self.functions:
            self.enter(name, node)
            return
        first = self.value(node.args[0]) if node.args else UNKNOWN_VALUE
        method = isinstance(node.func, ast.Attribute) and not module
        owner = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else UNKNOWN_VALUE
        if name in _PY_DELETES and (module in ("os", "shutil", "send2trash") or (method and name == "unlink")):
            self.found += self.call.lost([owner if method else first], "deletes")
        elif method and name == "rmtree":
            self.found += self.call.lost([owner], "deletes")
        elif method and name in _PY_WRITES:
            self.write(owner)
        elif method and name in ("read_text", "read_bytes"):
            self.read_paths.add(owner.text)
        elif name == "truncate" and module == "os":
            self.found += self.call.lost([first], "truncates")
        elif (name in _PY_MOVES and module == "os") or (name in _PY_COPIES and module == "shutil"):
            second = self.value(node.args[1]) if len(node.args) > 1 else UNKNOWN_VALUE
            self.found += self.call.written([second], "overwrites")
        elif method and name in ("rename", "replace") and len(node.args) == 1:
            self.found += self.call.written([first], "overwrites")
        elif name == "open":
            self.opened(node, owner if method else first, node.args if method else node.args[1:])
        elif name in _PY_SHELLS and module in ("os", "subprocess"):
            self.shell(node)

    def enter(self, name: str, node: ast.Call) -> None:
        if name in self.visited:
            return
        self.visited.add(name)
        parameters = self.functions[name].args.args
        for parameter, argument in zip(parameters, node.args, strict=False):
            self.values[parameter.arg] = self.value(argument)
        self.read(self.functions[name].body)

    def opened(self, node: ast.Call, path: Value, rest: Sequence[ast.expr]) -> None:
        modes = [k.value for k in node.keywords if k.arg == "mode"] + list(rest[:1])
        mode = modes[0].value if modes and isinstance(modes[0], ast.Constant) else "r"
        if isinstance(mode, str) and "w" in mode:
            self.write(path)
        elif isinstance(mode, str) and "r" in mode:
            self.read_paths.add(path.text)

    def write(self, path: Value) -> None:
        replaces = path.text in self.read_paths
        self.found += self.call.lost([path], "overwrites") if replaces else self.call.written([path], "overwrites")

    def shell(self, node: ast.Call) -> None:
        if not node.args:
            return
        command = node.args[0]
        if isinstance(command, (ast.List, ast.Tuple)):
            words = [self.value(element) for element in command.elts]
            self.found += self.call.again(words, None)
        elif (value := self.value(command)).known:
            self.found += self.call.shell(value.text)
