"""PowerShell lines, as far as agents write them: cmdlets that remove, clear, replace and move files."""

import re
from collections.abc import Sequence

from checkpointd.model.danger.call import UNKNOWN_VALUE, Call, Value
from checkpointd.model.danger.findings import Danger

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)|(?P<string>"(?:[^"`]|`.)*"|'(?:[^']|'')*')|(?P<separator>\|\||&&|[;|\n{}()])"""
    r"""|(?P<redirect>[0-9*]?>>?)|(?P<word>(?:[^\s;|{}()"'`>#]|`.)(?:[^\s;|{}()"'`>,]|`.)*)|(?P<comma>,)""",
    re.DOTALL,
)
_ALIASES = {
    **dict.fromkeys(("ri", "rm", "del", "erase", "rd", "rmdir", "remove-item"), "remove"),
    **dict.fromkeys(("clear-content", "clc"), "clear"),
    **dict.fromkeys(("set-content", "out-file", "sc", "export-csv", "tee-object"), "write"),
    **dict.fromkeys(("move-item", "mi", "mv", "move"), "move"),
    **dict.fromkeys(("rename-item", "rni", "ren"), "rename"),
    **dict.fromkeys(("copy-item", "cpi", "cp", "copy"), "copy"),
    **dict.fromkeys(("set-location", "cd", "sl", "chdir", "push-location"), "cd"),
    **dict.fromkeys(("write-host", "write-output", "echo", "get-content", "select-string", "get-childitem"), "quiet"),
}
_VALUED = frozenset(
    re.findall(
        r"\S+",
        """
        -path -literalpath -filter -include -exclude -destination -value -encoding -erroraction -newname -stream
        -filepath -depth -inputobject -ea -delimiter -width
        """,
    )
)
_DELETED = re.compile(r"""\[(?:System\.)?IO\.(?:File|Directory)\]::Delete$""", re.IGNORECASE)


def judge(call: Call, source: str) -> list[Danger]:
    """What a PowerShell line would destroy."""
    found: list[Danger] = []
    words: list[Value] = []
    piped = False
    targets: list[Value] = []
    redirected = False
    cwd = call.cwd
    for match in [*_TOKEN.finditer(source), None]:
        kind = match.lastgroup if match else "separator"
        if match and kind in ("word", "string"):
            value = _value(match[0], quoted=kind == "string")
            if redirected:
                targets.append(value)
                redirected = False
            else:
                words.append(value)
        elif match and kind == "redirect":
            redirected = match[0] in (">", "1>", "*>")
        elif kind == "separator":
            inner = Call(call.name, tuple(words), cwd, call.scene, call.shell, call.again)
            found += inner.written(targets, "overwrites")
            if words:
                cwd, more = _command(inner, words, piped=piped)
                found += more
            piped = match is not None and match[0] in ("|", "{") and (bool(words) or piped)
            words, targets, redirected = [], [], False
    return found


def _value(text: str, *, quoted: bool) -> Value:
    if quoted:
        inner = text[1:-1].replace("''", "'") if text.startswith("'") else re.sub(r"`(.)", r"\1", text[1:-1])
        return Value(inner.replace("\\", "/"), known=text.startswith("'") or "$" not in inner)
    plain = re.sub(r"`(.)", r"\1", text)
    glob = any(c in plain for c in "*?") and not plain.startswith("-")
    return Value(plain.replace("\\", "/"), known="$" not in plain, glob=glob)


def _command(call: Call, words: Sequence[Value], *, piped: bool) -> tuple[str | None, list[Danger]]:
    name = words[0].text.lower().rsplit("/", 1)[-1]
    if name in ("&", ".") and len(words) > 1:
        words = words[1:]
        name = words[0].text.lower()
    if _DELETED.search(words[0].text):
        return call.cwd, call.lost(words[1:] or [UNKNOWN_VALUE], "deletes")
    action = _ALIASES.get(name)
    if action is None:
        if re.match(r"[\w./-]+$", words[0].text) and "-" not in name:
            return call.cwd, call.again(words, None)
        return call.cwd, []
    named, operands = _parameters(words[1:])
    if any(word.text.lower().startswith("-whatif") for word in words):
        return call.cwd, []
    paths = named.get("-path", []) + named.get("-literalpath", []) + named.get("-filepath", [])
    return _act(
        call, action, paths or operands[:1] if action != "remove" else paths + operands, named, operands, piped=piped
    )


def _act(
    call: Call, action: str, paths: list[Value], named: dict[str, list[Value]], operands: list[Value], *, piped: bool
) -> tuple[str | None, list[Danger]]:
    if action == "cd":
        path = call.path(paths[0]) if paths else None
        if path is None:
            return None, []
        return path if path.startswith("/") else f"{call.scene.root}/{path}", []
    if piped and not paths:
        paths = [UNKNOWN_VALUE]
    if action == "remove":
        return call.cwd, call.lost(paths, "deletes")
    if action == "clear":
        return call.cwd, call.lost(paths, "truncates")
    if action == "write":
        return call.cwd, [] if "-append" in named else call.written(paths, "overwrites")
    destination = named.get("-destination") or named.get("-newname") or operands[len(paths) and 1 :][:1]
    found: list[Danger] = []
    if action == "move" and destination:
        target = call.path(destination[0])
        if target is not None and call.scene.is_outside(target):
            found += call.lost(paths, "moves-away", "leaves-tree")
    if action in ("move", "copy", "rename"):
        found += call.written(destination, "overwrites")
    return call.cwd, found


def _parameters(words: Sequence[Value]) -> tuple[dict[str, list[Value]], list[Value]]:
    named: dict[str, list[Value]] = {}
    operands: list[Value] = []
    index = 0
    while index < len(words):
        text = words[index].text.lower()
        index += 1
        if not (text.startswith("-") and len(text) > 1):
            operands.append(words[index - 1])
            continue
        named.setdefault(text, [])
        if text in _VALUED and index < len(words):
            named[text].append(words[index])
            index += 1
    return named, operands
