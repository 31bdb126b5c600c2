"""Commands that remove, move, replace or cut files."""

import re
from collections.abc import Callable, Sequence
from posixpath import basename, join

from checkpointd.model.danger.call import Call, Options, Value, options
from checkpointd.model.danger.findings import Danger, Effect, destroys, outside

Handler = Callable[[Call], list[Danger]]

_DRY = ("n", "dry-run", "dryrun")


def _remove(call: Call) -> list[Danger]:
    return call.lost(options(call.args).operands, "deletes")


def _trash(call: Call) -> list[Danger]:
    operands = options(call.args).operands
    if call.name == "gio":
        if not operands or operands[0].text != "trash":
            return []
        operands = operands[1:]
    if operands and operands[0].text == "put":
        operands = operands[1:]
    return call.lost(operands, "moves-away", "leaves-tree")


def _shred(call: Call) -> list[Danger]:
    given = options(call.args, "n s iterations size random-source")
    effects: tuple[Effect, ...] = ("deletes", "overwrites") if given.has("u", "remove", "z u") else ("overwrites",)
    return call.lost(given.operands, *effects)


def _truncate(call: Call) -> list[Danger]:
    given = options(call.args, "s size r reference")
    size = (given.values.get("s") or given.values.get("size") or [Value("")])[0].text
    return [] if size.startswith(("+", ">")) else call.lost(given.operands, "truncates")


def _destination(call: Call, given: Options) -> tuple[list[Value], Value | None]:
    """Sources and destination of mv, cp, install and ln."""
    folder = given.values.get("t") or given.values.get("target-directory")
    if folder:
        return given.operands, Value(folder[0].text.rstrip("/") + "/", folder[0].known)
    if len(given.operands) < 2:
        return given.operands, None
    return given.operands[:-1], given.operands[-1]


def _targets(call: Call, sources: Sequence[Value], destination: Value) -> list[Value]:
    """The paths that are written: the destination, or the names within it where it is a folder."""
    path = call.path(destination)
    folder = destination.text.endswith("/") or (path is not None and call.scene.is_folder(path)) or len(sources) > 1
    if not folder or not destination.known:
        return [destination]
    targets = []
    for source in sources:
        name = basename(source.text.rstrip("/"))
        if name in (".", "..", "") or source.glob or not source.known:
            targets.append(Value(destination.text.rstrip("/") or "/", destination.known))
        else:
            targets.append(Value(join(destination.text, name), destination.known))
    return targets


def _move(call: Call) -> list[Danger]:
    given = options(call.args, "t target-directory S suffix")
    if given.has("n", "no-clobber", "b", "backup"):
        return []
    sources, destination = _destination(call, given)
    if destination is None:
        return []
    if destination.text == "/dev/null":
        return call.lost(sources, "deletes")
    found: list[Danger] = []
    target = call.path(destination)
    if target is not None:
        leaves = call.scene.is_outside(target)
        hidden = not leaves and target != "." and not call.scene.is_worth(target)
        for source in sources:
            path = call.path(source)
            if path is not None and call.scene.is_outside(path):
                continue
            if leaves:
                found += call.lost([source], "moves-away", "leaves-tree")
            elif hidden:
                found += call.lost([source], "moves-away")
    found += call.written(_targets(call, sources, destination), "overwrites")
    return found


def _copy(call: Call) -> list[Danger]:
    given = options(call.args, "t target-directory S suffix")
    if given.has("n", "no-clobber", "b", "backup", "update=none"):
        return []
    sources, destination = _destination(call, given)
    if destination is None:
        return []
    whole = any(source.text.endswith(("/.", "/*")) for source in sources)
    targets = [destination] if whole else _targets(call, sources, destination)
    return call.written([Value(t.text.rstrip("/") or "/", t.known, t.glob) for t in targets], "overwrites")


def _install(call: Call) -> list[Danger]:
    given = options(call.args, "m o g t S mode owner group target-directory suffix")
    if given.has("d", "directory", "b", "backup"):
        return []
    sources, destination = _destination(call, given)
    return call.written(_targets(call, sources, destination), "overwrites") if destination else []


def _link(call: Call) -> list[Danger]:
    given = options(call.args, "t target-directory S suffix")
    if not given.has("f", "force") or given.has("b", "backup"):
        return []
    sources, destination = _destination(call, given)
    if destination is None:
        destination = Value(basename(sources[0].text), sources[0].known) if sources else Value("")
        return call.written([destination], "overwrites")
    return call.written(_targets(call, sources, destination), "overwrites")


def _rsync(call: Call) -> list[Danger]:
    given = options(
        call.args,
        "e rsh exclude include filter f exclude-from include-from files-from rsync-path out-format log-file T temp-dir"
        " backup-dir suffix chmod bwlimit max-size min-size compare-dest link-dest copy-dest port password-file",
    )
    if given.has(*_DRY, "ignore-existing", "list-only") or len(given.operands) < 2:
        return []
    destination = given.operands[-1]
    deletes = any(flag.startswith(("delete", "del")) and flag != "delete-excluded-never" for flag in given.flags)
    if re.match(r"(?:[\w.@-]+:|rsync://)", destination.text):
        return [outside("deletes", "overwrites")] if deletes else []
    target = Value(destination.text.rstrip("/") or "/", destination.known, destination.glob)
    found = call.lost(given.operands[:-1], "moves-away") if given.has("remove-source-files") else []
    if deletes:
        return found + call.lost([target], "deletes", "overwrites")
    if given.has("b", "backup"):
        return found
    return found + call.written([target], "overwrites")


def _dd(call: Call) -> list[Danger]:
    given = dict(text.split("=", 1) for text in call.texts if "=" in text)
    target = given.get("of")
    if not target or target.startswith("/dev/"):
        return [outside("overwrites")] if target and re.match(r"/dev/(?:sd|nvme|disk|hd|mmcblk|vd)", target) else []
    value = next(value for value in call.args if value.text.startswith("of="))
    effects: tuple[Effect, ...] = ("overwrites",) if "notrunc" in given.get("conv", "") else ("overwrites", "truncates")
    return call.written([Value(target, value.known, value.glob)], *effects)


def _tee(call: Call) -> list[Danger]:
    given = options(call.args)
    return [] if given.has("a", "append") else call.written(given.operands, "overwrites")


def _sponge(call: Call) -> list[Danger]:
    given = options(call.args)
    return [] if given.has("a") else call.written(given.operands, "overwrites")


def _sed(call: Call) -> list[Danger]:
    """`sed -i`; with a suffix the old bytes stay beside the file."""
    if not any(re.match(r"-[nErsuz]*i|--in-place", text) for text in call.texts):
        return []
    if any(re.match(r"--in-place=.|-[nErsuz]*i[^nErsuz']", text) for text in call.texts):
        return []
    given = options(call.args, "e f expression file l line-length")
    operands = given.operands
    if operands and operands[0].text == "":
        operands = operands[1:]  # BSD: -i ''
    if not given.has("e", "f", "expression", "file"):
        operands = operands[1:]
    return call.lost(operands, "overwrites")


def _awk(call: Call) -> list[Danger]:
    given = options(call.args, "i include F v f e field-separator assign file source")
    if not any(value.text == "inplace" for value in given.values.get("i", []) + given.values.get("include", [])):
        return []
    operands = given.operands if given.has("f", "file", "e", "source") else given.operands[1:]
    return call.lost(operands, "overwrites")


def _editor(call: Call) -> list[Danger]:
    """ed, ex and `vim -es`: only where they cannot be interactive and can write."""
    given = options(call.args, "c cmd S u p")
    script = " ".join(value.text for value in given.values.get("c", []) + given.values.get("cmd", []))
    fed = call.stdin.text if call.stdin and call.stdin.text is not None else ""
    if call.name in ("vi", "vim", "nvim") and not (given.has("e", "es", "s") or re.search(r"\b(?:wq?|x)\b", script)):
        return []
    if call.name == "ed" and not fed and not call.upstream and call.stdin is None:
        return []
    if fed and not re.search(r"(?m)^\s*(?:\d*,?\$?)?(?:w|wq|x|update)\b", fed):
        return []
    return call.lost([o for o in given.operands if not o.text.startswith("+")], "overwrites")


def _patch(call: Call) -> list[Danger]:
    given = options(call.args, "p i d o input directory output strip D r B z V F fuzz")
    if given.has("dry-run", "C", "check", "help", "version", "b", "backup"):
        return []
    if out := given.values.get("o") or given.values.get("output"):
        return call.written(out, "overwrites")
    return call.lost(given.operands[:1], "overwrites") if given.operands else [destroys(("overwrites",), None)]


def _sort(call: Call) -> list[Danger]:
    given = options(call.args, "o output k t T S key field-separator parallel batch-size")
    return call.written(given.values.get("o", []) + given.values.get("output", []), "overwrites")


def _download(call: Call) -> list[Danger]:
    if call.name == "curl":
        given = options(
            call.args, "o output H d X u F A e b c T header data request user form user-agent cookie data-raw"
        )
        method = (given.values.get("X") or given.values.get("request") or [Value("")])[0].text.upper()
        if method == "DELETE":
            return [outside("deletes")]
        return call.written(given.values.get("o", []) + given.values.get("output", []), "overwrites")
    given = options(call.args, "O output-document o P header U user-agent post-data")
    if given.has("delete") or any(value.text == "DELETE" for value in given.values.get("method", [])):
        return [outside("deletes")]
    return call.written(given.values.get("O", []) + given.values.get("output-document", []), "overwrites")


def _tar(call: Call) -> list[Danger]:
    args = list(call.args)
    if args and re.fullmatch(r"[A-Za-z]+", args[0].text):
        args[0] = Value("-" + args[0].text)
    given = options(
        args, "f file C directory X exclude exclude-from I use-compress-program T files-from strip-components"
    )
    extracts = given.has("x", "extract", "get")
    if given.has("remove-files") and given.has("c", "create", "r", "u"):
        return call.lost(given.operands, "deletes")
    if not extracts:
        archive = given.values.get("f", []) + given.values.get("file", [])
        return call.written(archive, "overwrites") if given.has("c", "create") else []
    if given.has("k", "keep-old-files", "skip-old-files", "keep-newer-files", "O", "to-stdout"):
        return []
    folder = (given.values.get("C") or given.values.get("directory") or [Value(".")])[-1]
    return call.written([folder], "overwrites")


def _unzip(call: Call) -> list[Danger]:
    """Without -o it asks, and without a terminal it then stops."""
    given = options(call.args, "d x P")
    if call.name in ("7z", "7za", "7zz"):
        if not given.operands or given.operands[0].text not in ("x", "e"):
            return []
        folder = next((Value(text[2:]) for text in call.texts if text.startswith("-o") and len(text) > 2), Value("."))
        return call.written([folder], "overwrites") if given.has("y", "aoa") else []
    if not given.has("o") or given.has("l", "t", "p", "Z", "n"):
        return []
    return call.written(given.values.get("d") or [Value(".")], "overwrites")


def _zip(call: Call) -> list[Danger]:
    given = options(call.args, "x i b t n P")
    return call.lost(given.operands[1:], "deletes") if given.has("m", "move") else []


def _sqlite(call: Call) -> list[Danger]:
    """A database that is a file of the project: a checkpoint holds it."""
    given = options(call.args, "cmd separator init newline nullvalue")
    if given.has("readonly") or not given.operands:
        return []
    statements = " ".join([value.text for value in given.operands[1:] + given.values.get("cmd", [])])
    statements += " " + (call.stdin.text or "") if call.stdin else ""
    if not re.search(
        r"(?i)\b(?:delete\s+from|drop\s+\w+|update\s+\S+\s+set|replace\s+into|alter\s+table|vacuum\s+into)\b|\.restore",
        statements,
    ):
        return []
    return call.lost(given.operands[:1], "overwrites")


def _find(call: Call) -> list[Danger]:
    """`find`'s own actions; what it prints for others is `hits`."""
    texts = call.texts
    found: list[Danger] = []
    values = hits(call)
    if "-delete" in texts:
        found += call.lost(values, "deletes")
    for index, text in enumerate(texts):
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(index + 1, len(texts)) if texts[i] in (";", "+")), len(texts))
            template = call.args[index + 1 : end]
            for value in values:
                found += call.again([_placed(word, value) for word in template], None)
        elif text in ("-fprint", "-fprint0", "-fls") and index + 1 < len(texts):
            found += call.written([call.args[index + 1]], "overwrites")
    return found


def _placed(word: Value, value: Value) -> Value:
    if word.text == "{}":
        return value
    if "{}" in word.text:
        return Value(word.text.replace("{}", value.text), known=value.known and not value.glob, glob=value.glob)
    return word


def hits(call: Call) -> list[Value]:
    """What a `find` can hit: its roots, with the names it looks for."""
    texts = call.texts
    start = 0
    while start < len(texts) and re.match(r"-[HLPDO]", texts[start]):
        start += 1
    end = next((i for i in range(start, len(texts)) if texts[i].startswith(("-", "(", "!", "\\"))), len(texts))
    roots = list(call.args[start:end]) or [Value(".")]
    expression = texts[end:]
    names = [
        expression[i + 1]
        for i, text in enumerate(expression[:-1])
        if text in ("-name", "-iname", "-path", "-wholename", "-ipath")
        and (i == 0 or expression[i - 1] not in ("!", "-not"))
    ]
    narrowing = (
        "-mtime",
        "-newer",
        "-mmin",
        "-size",
        "-empty",
        "-regex",
        "-iregex",
        "-user",
        "-perm",
        "-maxdepth",
        "-atime",
    )
    if not names:
        if any(text in narrowing or text in ("!", "-not") for text in expression):
            return [Value(join(root.text, "*?"), root.known, glob=True) for root in roots]
        return roots
    return [
        Value(join(root.text, "**", name.removeprefix("*/")), root.known, glob=True) for root in roots for name in names
    ]


def _rename(call: Call) -> list[Danger]:
    given = options(call.args)
    return [] if given.has("n", "nono", "no-act") or not given.has("f", "force") else [destroys(("overwrites",), None)]


def _makes(call: Call) -> list[Danger]:
    """mkdir and touch: what they make new in this line is no loss later in it."""
    for value in options(call.args, "m mode d t r").operands:
        path = call.path(value)
        if path is not None and call.scene.exists is not None and not call.scene.exists(path):
            call.scene.created.add(path)
    return []


FILES: dict[str, Handler] = {
    "rm": _remove, "unlink": _remove, "rimraf": _remove, "del-cli": _remove, "del": _remove, "srm": _remove,
    "grm": _remove,
    "trash": _trash, "trash-put": _trash, "gio": _trash, "rmtrash": _trash, "gvfs-trash": _trash,
    "shred": _shred, "truncate": _truncate, "mv": _move, "gmv": _move, "cp": _copy, "gcp": _copy, "install": _install,
    "ln": _link,
    "rsync": _rsync, "dd": _dd, "tee": _tee, "sponge": _sponge, "sed": _sed, "gsed": _sed,
    "awk": _awk, "gawk": _awk, "ed": _editor, "ex": _editor, "vi": _editor, "vim": _editor, "nvim": _editor,
    "patch": _patch, "sort": _sort, "curl": _download, "wget": _download, "tar": _tar, "gtar": _tar, "bsdtar": _tar,
    "unzip": _unzip, "7z": _unzip, "7za": _unzip, "7zz": _unzip, "zip": _zip,
    "sqlite3": _sqlite, "sqlite": _sqlite, "find": _find, "gfind": _find, "rename": _rename, "prename": _rename,
    "mkdir": _makes,
}  # fmt: skip
