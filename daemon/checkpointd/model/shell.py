"""A shell command line as a tree: what would run, in which order, with which words.

Enough of POSIX sh and bash to tell what is run from what is only quoted, commented,
echoed or kept in a here-document. Nothing is executed and nothing is expanded except
braces; broken input is read as far as it goes and never raises.
"""

import re
from typing import Literal

from msgspec import Struct

PartKind = Literal["text", "glob", "variable", "command", "process", "other"]

_MAX_DEPTH = 24
_MAX_BRACES = 64
_OPERATORS = ("&&", "||", ";;&", ";;", ";&", "|&", ";", "|", "&", "\n")
_REDIRECTIONS = ("<<<", "<<-", "&>>", "<<", ">>", ">|", "<>", ">&", "<&", "&>", ">", "<")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_FUNCTION = re.compile(r"(?:function[ \t]+([\w.:-]+)[ \t]*(?:\([ \t]*\))?|([\w.:-]+)[ \t]*\([ \t]*\))\s*(?=[{(])")
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "0": "\0",
}
_CLOSERS = frozenset({"then", "do", "done", "fi", "elif", "else", "esac", "}"})
_BLOCKS = frozenset({"if", "while", "until", "for", "select", "case", "{", "[["})


class Part(Struct, frozen=True):
    """A piece of a word. `text` is the literal text, the variable's name, or the source that is substituted."""

    kind: PartKind
    text: str
    quoted: bool = False


class Word(Struct, frozen=True):
    parts: tuple[Part, ...]

    @property
    def literal(self) -> str | None:
        """The word's text where nothing of it depends on expansion."""
        if any(part.kind != "text" for part in self.parts):
            return None
        return "".join(part.text for part in self.parts)


class Redirection(Struct, frozen=True):
    operator: str
    target: Word
    descriptor: str = ""
    heredoc: Word | None = None


class Assignment(Struct, frozen=True):
    name: str
    value: Word
    append: bool = False


class Command(Struct, frozen=True):
    """A simple command."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    redirections: tuple[Redirection, ...] = ()


class Group(Struct, frozen=True):
    """`( )` (a subshell) or `{ }`."""

    body: "Script"
    subshell: bool
    redirections: tuple[Redirection, ...] = ()


class Loop(Struct, frozen=True):
    """for, select, while, until. `words` is None where the loop has no list."""

    condition: "Script"
    body: "Script"
    variable: str = ""
    words: tuple[Word, ...] | None = None
    redirections: tuple[Redirection, ...] = ()


class Choice(Struct, frozen=True):
    """if and case: every part may run, in this order."""

    parts: tuple["Script", ...]
    redirections: tuple[Redirection, ...] = ()


class Function(Struct, frozen=True):
    name: str
    body: "Script"


Node = Command | Group | Loop | Choice | Function


class Pipeline(Struct, frozen=True):
    """Commands joined by `|`; `joined` is what stands before it: "&&", "||", ";", "&" or ""."""

    stages: tuple[Node, ...]
    joined: str = ""


class Script(Struct, frozen=True):
    pipelines: tuple[Pipeline, ...] = ()


def parse(line: str, *, fish: bool = False) -> Script:
    """The tree of a command line."""
    return _Parser(line.replace("\\\r\n", "\\\n").replace("\r\n", "\n"), fish=fish).script()


class _Parser:
    def __init__(self, text: str, *, fish: bool = False, depth: int = 0) -> None:
        self.text = text
        self.at = 0
        self.fish = fish
        self.depth = depth
        self.pending: list[tuple[int, str, bool, bool]] = []  # here-documents: number, end word, quoted, tabs stripped
        self.heredocs: dict[int, Word] = {}
        self.heredoc_count = 0

    # --- scripts

    def script(self, closers: frozenset[str] = frozenset(), closing: str = "") -> Script:
        """Pipelines up to one of `closers` at command position, the character `closing`, or the end."""
        pipelines: list[Pipeline] = []
        joined = ""
        while True:
            self.blanks(newlines=True)
            if self.at >= len(self.text) or (closing and self.text[self.at] == closing):
                break
            if self.peek_word() in closers:
                break
            start = self.at
            pipeline = self.pipeline(joined, closing)
            if pipeline.stages:
                pipelines.append(pipeline)
            joined = self.operator(closing)
            if joined in (";;", ";&", ";;&"):
                break
            if self.at == start:
                self.at += 1  # a stray closer: skip it
        return Script(tuple(self.resolved(pipeline) for pipeline in pipelines))

    def pipeline(self, joined: str, closing: str) -> Pipeline:
        stages: list[Node] = []
        while True:
            node = self.node(closing)
            if node is not None:
                stages.append(node)
            self.blanks()
            operator = next((o for o in _OPERATORS if self.text.startswith(o, self.at)), "")
            if operator not in ("|", "|&"):
                return Pipeline(tuple(stages), joined)
            self.at += len(operator)
            self.blanks(newlines=True)
            if self.at >= len(self.text):
                return Pipeline(tuple(stages), joined)

    def operator(self, closing: str) -> str:
        self.blanks()
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.at):
                if operator == closing:
                    return ""
                if operator == "\n":
                    self.newline()
                    return ";"
                self.at += len(operator)
                return operator
        return ""

    def node(self, closing: str) -> Node | None:
        self.blanks()
        if self.at >= len(self.text):
            return None
        char = self.text[self.at]
        if self.depth >= _MAX_DEPTH:
            self.at = len(self.text)
            return None
        self.depth += 1
        try:
            if char == "(" and not self.fish:
                return self.parenthesis()
            word = self.peek_word()
            if word in ("!", "coproc"):
                self.at += len(word)
                return self.node(closing)
            if function := self.function():
                return function
            if word in _BLOCKS and not self.fish:
                return self.block(word)
            return self.command(closing)
        finally:
            self.depth -= 1

    def parenthesis(self) -> Node:
        if self.text.startswith("((", self.at):
            end = self.text.find("))", self.at)
            if end >= 0:
                self.at = end + 2
                return Command()
        self.at += 1
        body = self.script(closing=")")
        self.skip(")")
        return Group(body, subshell=True, redirections=self.redirections())

    def block(self, word: str) -> Node | None:
        if word == "[[":
            end = re.compile(r"\]\](?=[\s;&|)]|$)").search(self.text, self.at)
            inner = self.text[self.at : end.end() if end else len(self.text)]
            self.at += len(inner)
            return Command(words=_Parser(inner[2:].removesuffix("]]"), depth=self.depth).condition_words())
        self.at += len(word)
        if word == "{":
            body = self.script(closers=frozenset({"}"}))
            self.skip("}")
            return Group(body, subshell=False, redirections=self.redirections())
        if word == "if":
            return self.choice()
        if word == "case":
            return self.case()
        return self.loop(word)

    def condition_words(self) -> tuple[Word, ...]:
        """`[[ ... ]]` compares and never redirects; only what its words substitute matters."""
        words = [Word((Part("text", "["),))]
        while self.at < len(self.text):
            self.blanks(newlines=True)
            start = self.at
            word = self.word()
            if word is not None:
                words.append(word)
            if self.at == start:
                self.at += 1
        return tuple(words)

    def choice(self) -> Choice:
        parts: list[Script] = []
        while True:
            parts.append(self.script(closers=_CLOSERS))
            word = self.peek_word()
            if word not in ("then", "elif", "else"):
                break
            self.at += len(word)
        self.skip("fi")
        return Choice(tuple(parts), self.redirections())

    def case(self) -> Choice:
        self.blanks()
        self.word()
        self.blanks(newlines=True)
        self.skip("in")
        parts: list[Script] = []
        while True:
            self.blanks(newlines=True)
            if self.at >= len(self.text) or self.peek_word() == "esac":
                break
            end = self.text.find(")", self.at)
            if end < 0:
                self.at = len(self.text)
                break
            self.at = end + 1
            parts.append(self.script(closers=frozenset({"esac"})))
        self.skip("esac")
        return Choice(tuple(parts), self.redirections())

    def loop(self, word: str) -> Loop:
        variable, words, condition = "", None, Script()
        if word in ("for", "select"):
            self.blanks()
            if self.text.startswith("((", self.at):
                end = self.text.find("))", self.at)
                self.at = end + 2 if end >= 0 else len(self.text)
            else:
                variable = self.peek_word()
                self.at += len(variable)
                self.blanks(newlines=True)
                if self.peek_word() == "in":
                    self.at += 2
                    words = self.words()
        else:
            condition = self.script(closers=frozenset({"do"}))
        self.operator("")
        self.blanks(newlines=True)
        self.skip("do")
        body = self.script(closers=frozenset({"done"}))
        self.skip("done")
        return Loop(condition, body, variable, words, self.redirections())

    def function(self) -> Function | None:
        match = _FUNCTION.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        body = self.node("")
        stages = (body,) if body is not None else ()
        return Function(match[1] or match[2], Script((Pipeline(stages),)))

    # --- simple commands

    def command(self, closing: str) -> Command:
        words: list[Word] = []
        assignments: list[Assignment] = []
        redirections: list[Redirection] = []
        while True:
            self.blanks()
            if self.at >= len(self.text) or (closing and self.text[self.at] == closing):
                break
            if redirection := self.redirection():
                redirections.append(redirection)
                continue
            if any(self.text.startswith(o, self.at) for o in _OPERATORS):
                break
            if self.text[self.at] in "()" and not (self.fish and self.text[self.at] == "("):
                break
            if not words and (assignment := self.assignment()):
                assignments.append(assignment)
                continue
            word = self.word()
            if word is None:
                break
            words += _braces(word)
        return Command(tuple(words), tuple(assignments), tuple(redirections))

    def assignment(self) -> Assignment | None:
        match = _ASSIGNMENT.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        name = match[0].rstrip("=").rstrip("+").partition("[")[0]
        if self.text.startswith("(", self.at):
            self.at += 1
            items = self.words()
            self.skip(")")
            parts: list[Part] = []
            for item in items:
                parts += [*item.parts, Part("text", " ")]
            return Assignment(name, Word(tuple(parts[:-1])), match[0].endswith("+="))
        return Assignment(name, self.word() or Word(()), match[0].endswith("+="))

    def words(self) -> tuple[Word, ...]:
        words: list[Word] = []
        while True:
            self.blanks()
            word = self.word()
            if word is None:
                return tuple(words)
            words += _braces(word)

    def redirections(self) -> tuple[Redirection, ...]:
        found: list[Redirection] = []
        self.blanks()
        while redirection := self.redirection():
            found.append(redirection)
            self.blanks()
        return tuple(found)

    def redirection(self) -> Redirection | None:
        match = re.compile(r"\d{1,3}|\{[A-Za-z_]\w*\}").match(self.text, self.at)
        descriptor = match[0] if match and self.text[match.end() : match.end() + 1] in ("<", ">") else ""
        start = self.at + len(descriptor)
        operator = next((o for o in _REDIRECTIONS if self.text.startswith(o, start)), "")
        if not operator or self.text.startswith(("<(", ">("), start):
            return None
        self.at = start + len(operator)
        self.blanks()
        target = self.word() or Word(())
        if operator not in ("<<", "<<-"):
            return Redirection(operator, target, descriptor)
        self.heredoc_count += 1
        quoted = any(part.quoted for part in target.parts)
        end = "".join(part.text if part.kind != "variable" else f"${part.text}" for part in target.parts)
        self.pending.append((self.heredoc_count, end, quoted, operator == "<<-"))
        return Redirection(operator, target, descriptor, Word((Part("other", str(self.heredoc_count)),)))

    def newline(self) -> None:
        """Passes a line end; the here-documents that wait for it are read here."""
        self.at += 1
        for number, end, quoted, strip in self.pending:
            lines: list[str] = []
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                line = self.text[self.at : stop if stop >= 0 else len(self.text)]
                self.at = stop + 1 if stop >= 0 else len(self.text)
                if (line.lstrip("\t") if strip else line) == end:
                    break
                lines.append(line.lstrip("\t") if strip else line)
            body = "".join(line + "\n" for line in lines)
            if quoted:
                self.heredocs[number] = Word((Part("text", body, quoted=True),))
            else:
                self.heredocs[number] = Word(tuple(_Parser(body, depth=self.depth).double_quoted(until="")))
        self.pending.clear()

    def resolved(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with the here-documents that were read after it."""
        return Pipeline(tuple(self.with_heredocs(stage) for stage in pipeline.stages), pipeline.joined)

    def with_heredocs(self, node: Node) -> Node:
        if isinstance(node, Function) or not any(r.heredoc for r in node.redirections):
            return node
        filled = tuple(
            Redirection(r.operator, r.target, r.descriptor, self.heredocs.get(int(r.heredoc.parts[0].text), Word(())))
            if r.heredoc and r.heredoc.parts and r.heredoc.parts[0].kind == "other"
            else r
            for r in node.redirections
        )
        match node:
            case Command():
                return Command(node.words, node.assignments, filled)
            case Group():
                return Group(node.body, node.subshell, filled)
            case Loop():
                return Loop(node.condition, node.body, node.variable, node.words, filled)
            case Choice():
                return Choice(node.parts, filled)

    # --- words

    def word(self) -> Word | None:
        parts: list[Part] = []
        start = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char.isspace() or char in ";|&":
                break
            if char in "<>":
                if not self.text.startswith("(", self.at + 1):
                    break
                self.at += 1
                parts.append(Part("process", self.nested()))
            elif char == "(":
                if not self.fish:
                    if not parts or not (parts[-1].kind == "glob" or parts[-1].text.endswith(("@", "+", "!"))):
                        break
                    parts.append(Part("glob", "(" + self.nested() + ")"))
                else:
                    parts.append(Part("command", self.nested()))
            elif char == ")":
                break
            else:
                self.piece(parts)
        return Word(_merged(parts)) if self.at > start else None

    def piece(self, parts: list[Part]) -> None:
        """One quoted run, one substitution or one character of a word."""
        char = self.text[self.at]
        if char == "'":
            end = self.text.find("'", self.at + 1)
            end = len(self.text) if end < 0 else end
            parts.append(Part("text", self.text[self.at + 1 : end], quoted=True))
            self.at = end + 1
        elif char == '"':
            self.at += 1
            inner = self.double_quoted(until='"')
            parts.extend(inner or [Part("text", "", quoted=True)])
        elif char == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            if following != "\n":
                parts.append(Part("text", following, quoted=True))
            self.at += 2
        elif char == "$":
            parts.append(self.dollar(quoted=False))
        elif char == "`":
            parts.append(self.backticks(quoted=False))
        elif char in "*?" or (char == "[" and "]" in self.text[self.at : self.at + 64]):
            parts.append(Part("glob", char))
            self.at += 1
        else:
            parts.append(Part("text", char))
            self.at += 1

    def double_quoted(self, until: str) -> list[Part]:
        """The parts up to the quote `until` ("": to the end, as in a here-document)."""
        parts: list[Part] = []
        buffer: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if until and char == until:
                self.at += 1
                break
            if char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                if following in ("$", "`", '"', "\\"):
                    buffer.append(following)
                elif following != "\n":
                    buffer.append("\\" + following)
                self.at += 2
            elif char in "$`":
                parts.append(Part("text", "".join(buffer), quoted=True))
                buffer.clear()
                parts.append(self.dollar(quoted=True) if char == "$" else self.backticks(quoted=True))
            else:
                stop = re.compile(r'[\\$`"]').search(self.text, self.at + 1)
                end = stop.start() if stop else len(self.text)
                buffer.append(self.text[self.at : end])
                self.at = end
        parts.append(Part("text", "".join(buffer), quoted=True))
        return [part for part in parts if part.text or part.kind != "text"]

    def dollar(self, *, quoted: bool) -> Part:
        rest = self.text[self.at + 1 : self.at + 3]
        if rest.startswith("'") and not quoted:
            return self.ansi_quoted()
        if rest.startswith('"') and not quoted:
            self.at += 1
            return Part("text", "", quoted=True)
        if rest == "((":
            end = self.text.find("))", self.at)
            if end >= 0:
                source = self.text[self.at + 3 : end]
                self.at = end + 2
                return Part("other", source, quoted)
        if rest.startswith("("):
            self.at += 1
            return Part("command", self.nested(), quoted)
        if rest.startswith("{"):
            end = self.closing_brace(self.at + 1)
            source = self.text[self.at + 2 : end]
            self.at = end + 1
            name = _NAME.match(source)
            return Part("variable", source, quoted) if name else Part("other", source, quoted)
        if name := _NAME.match(self.text, self.at + 1):
            self.at = name.end()
            return Part("variable", name[0], quoted)
        self.at += 1
        return Part("text", "$", quoted)

    def closing_brace(self, start: int) -> int:
        level = 0
        for index in range(start, len(self.text)):
            if self.text[index] == "{":
                level += 1
            elif self.text[index] == "}":
                level -= 1
                if level == 0:
                    return index
        return len(self.text)

    def ansi_quoted(self) -> Part:
        out: list[str] = []
        self.at += 2
        while self.at < len(self.text) and self.text[self.at] != "'":
            if self.text[self.at] == "\\":
                out.append(_ESCAPES.get(self.text[self.at + 1 : self.at + 2], self.text[self.at + 1 : self.at + 2]))
                self.at += 2
            else:
                out.append(self.text[self.at])
                self.at += 1
        self.at += 1
        return Part("text", "".join(out), quoted=True)

    def backticks(self, *, quoted: bool) -> Part:
        out: list[str] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != "`":
            if self.text[self.at] == "\\" and self.text[self.at + 1 : self.at + 2] in ("`", "\\", "$"):
                self.at += 1
            out.append(self.text[self.at])
            self.at += 1
        self.at += 1
        return Part("command", "".join(out), quoted)

    def nested(self) -> str:
        """The source between the parenthesis at `at` and the one that closes it."""
        start = self.at + 1
        inner = _Parser(self.text[start:], fish=self.fish, depth=self.depth + 1)
        if self.depth >= _MAX_DEPTH:
            self.at = len(self.text)
            return ""
        inner.script(closing=")")
        self.at = start + inner.at + 1
        return self.text[start : start + inner.at]

    # --- small steps

    def blanks(self, *, newlines: bool = False) -> None:
        """Passes blanks, continuation lines and comments."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r" or (char == "\n" and newlines):
                if char == "\n":
                    self.newline()
                else:
                    self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
            elif char == "#" and (self.at == 0 or self.text[self.at - 1] in " \t\n;|&()"):
                end = self.text.find("\n", self.at)
                self.at = end if end >= 0 else len(self.text)
            else:
                return

    def peek_word(self) -> str:
        match = re.compile(r"[^\s;|&()<>]+").match(self.text, self.at)
        return match[0] if match else ""

    def skip(self, token: str) -> None:
        self.blanks(newlines=True)
        if self.text.startswith(token, self.at):
            self.at += len(token)


def _merged(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring text joined, quoted and unquoted apart (only unquoted braces and tildes mean something)."""
    out: list[Part] = []
    for part in parts:
        if out and part.kind in ("text", "glob") and out[-1].kind == part.kind and out[-1].quoted == part.quoted:
            out[-1] = Part(part.kind, out[-1].text + part.text, part.quoted)
        else:
            out.append(part)
    return tuple(out)


_BRACE = re.compile(r"\{([^{}]*,[^{}]*|-?\d{1,4}\.\.-?\d{1,4}|[A-Za-z]\.\.[A-Za-z])\}")


def _braces(word: Word) -> list[Word]:
    """The words that brace expansion makes of one, innermost first; the word itself where there are too many."""
    words = [word]
    for _ in range(8):
        expanded: list[Word] = []
        for each in words:
            expanded += _one_brace(each)
        if len(expanded) > _MAX_BRACES:
            return words
        if expanded == words:
            return words
        words = expanded
    return words


def _one_brace(word: Word) -> list[Word]:
    for index, part in enumerate(word.parts):
        if part.kind != "text" or part.quoted or not (match := _BRACE.search(part.text)):
            continue
        before, after = part.text[: match.start()], part.text[match.end() :]
        return [
            Word(_merged([*word.parts[:index], Part("text", before + choice + after), *word.parts[index + 1 :]]))
            for choice in _brace_choices(match[1])
        ]
    return [word]


def _brace_choices(inside: str) -> list[str]:
    if "," in inside:
        return inside.split(",")
    first, _, last = inside.partition("..")
    if first.lstrip("-").isdigit():
        low, high = int(first), int(last)
        step = 1 if low <= high else -1
        return [str(n) for n in range(low, high + step, step)][:_MAX_BRACES]
    step = 1 if first <= last else -1
    return [chr(n) for n in range(ord(first), ord(last) + step, step)][:_MAX_BRACES]
