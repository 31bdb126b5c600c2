"""git, Mercurial, Jujutsu and Subversion: what discards edits, untracked files or history."""

import re
from collections.abc import Sequence

from checkpointd.model.danger.call import Call, Value, options
from checkpointd.model.danger.files import Handler
from checkpointd.model.danger.findings import UNKNOWN, Danger, destroys, history, outside

_EVERYWHERE = (".",)
_OVERWRITES = [destroys(("overwrites",), _EVERYWHERE)]
_GIT_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"})
_GIT_COMMANDS = frozenset(
    re.findall(
        r"\S+",
        """
        add am annotate apply archive bisect blame branch bugreport bundle cat-file check-attr check-ignore
        check-mailmap check-ref-format checkout checkout-index cherry cherry-pick citool clean clone column commit
        commit-graph commit-tree config count-objects credential daemon describe diagnose diff diff-files diff-index
        diff-tree difftool fast-export fast-import fetch fetch-pack filter-branch filter-repo fmt-merge-msg for-each-ref
        for-each-repo format-patch fsck gc get-tar-commit-id grep gui hash-object help hook imap-send index-pack init
        instaweb interpret-trailers lfs log ls-files ls-remote ls-tree mailinfo mailsplit maintenance merge merge-base
        merge-file merge-index merge-tree mergetool mktag mktree multi-pack-index mv name-rev notes pack-objects
        pack-redundant pack-refs patch-id prune prune-packed pull push range-diff read-tree rebase reflog refs remote
        repack replace replay request-pull rerere reset restore rev-list rev-parse revert rm send-email send-pack shell
        shortlog show show-branch show-index show-ref sparse-checkout stage stash status stripspace submodule subtree
        svn switch symbolic-ref tag unpack-file unpack-objects update-index update-ref update-server-info upload-archive
        upload-pack var verify-commit verify-pack verify-tag version whatchanged worktree write-tree flow town crypt
        secret annex absorb machete gone
        """,
    )
)


def _git(call: Call) -> list[Danger]:
    args = list(call.args)
    cwd = call.cwd
    aliases: dict[str, str] = {}
    while args and args[0].text.startswith("-"):
        option = args.pop(0).text
        if option in ("--help", "--version", "-h", "-v"):
            return []
        if option not in _GIT_VALUED or not args:
            continue
        value = args.pop(0)
        if option == "-C":
            path = call.path(value) if value.known else None
            cwd = call.scene.root if path == "." else f"{call.scene.root}/{path}" if path else None
            cwd = path if path and path.startswith("/") else cwd
        elif option == "-c" and (match := re.match(r"alias\.([\w-]+)=(.*)", value.text, re.DOTALL)):
            aliases[match[1]] = match[2]
    if not args:
        return []
    name, rest = args[0], args[1:]
    if not name.known:
        return [UNKNOWN]
    if name.text in aliases:
        source = aliases[name.text]
        return call.shell(source[1:] if source.startswith("!") else f"git {source}")
    if any(value.text in ("--help", "-h") for value in rest):
        return []
    inner = Call(name.text, tuple(rest), cwd, call.scene, call.shell, call.again, call.stdin, call.upstream)
    handler = _GIT.get(name.text)
    if handler is not None:
        return handler(inner)
    return [] if name.text in _GIT_COMMANDS else [UNKNOWN]


def _reset(call: Call) -> list[Danger]:
    given = options(call.args)
    if not given.has("hard", "merge"):
        return []
    revision = given.operands[0].text if given.operands else "HEAD"
    moved = revision not in ("HEAD", "@") and given.has("hard")
    return [destroys(("overwrites", "history") if moved else ("overwrites",), _EVERYWHERE)]


def _clean(call: Call) -> list[Danger]:
    given = options(call.args, "e exclude")
    if given.has("n", "dry-run") or not given.has("f", "force"):
        return []
    return _in_place(call, given.operands, "cleans")


def _in_place(call: Call, operands: Sequence[Value], first: str = "overwrites") -> list[Danger]:
    """What becomes of the named paths, of everything below the working directory where none is named."""
    effects = ("cleans", "deletes") if first == "cleans" else ("overwrites",)
    paths: list[str] = []
    for value in operands or [Value(".")]:
        path = call.path(Value(re.sub(r"^:(?:/|\(top\))", "", value.text) or ".", value.known, value.glob))
        if path is None or "*" in path:
            return [destroys(effects, None)]  # type: ignore[arg-type]
        paths.append(path)
    return [destroys(effects, paths)]  # type: ignore[arg-type]


def _checkout(call: Call) -> list[Danger]:
    given = options(call.args, "b B orphan conflict pathspec-from-file")
    if "--" in call.texts:
        paths = call.args[call.texts.index("--") + 1 :]
        return _in_place(call, paths) if paths else []
    if given.has("pathspec-from-file"):
        return [destroys(("overwrites",), None)]
    if given.has("f", "force"):
        return _OVERWRITES
    if given.has("B"):
        return [history()]
    if given.has("b", "orphan", "detach", "d", "t", "track"):
        return []
    if given.has("ours", "theirs", "2", "3") and given.operands:
        return _in_place(call, given.operands)
    if len(given.operands) > 1:
        first, *others = given.operands
        return _in_place(call, given.operands if _is_pathlike(call, first) else others)
    return _in_place(call, given.operands) if given.operands and _is_pathlike(call, given.operands[0]) else []


def _is_pathlike(call: Call, value: Value) -> bool:
    """Whether `git checkout X` would take X as a path: it has an ending, or ends as folders do, or is there."""
    text = value.text
    if (
        text in (".", "..", "./")
        or text.startswith(("./", "../", ":/", ":(", ":!"))
        or text.endswith("/")
        or value.glob
    ):
        return True
    if re.search(r"(?:^|/)[^/]*[^/\d.]\.[A-Za-z][A-Za-z0-9]{0,9}$", text):
        return True
    path = call.path(value)
    if text in ("HEAD", "-", "main", "master") or path is None:
        return False
    return call.scene.exists is not None and call.scene.exists(path)


def _restore(call: Call) -> list[Danger]:
    given = options(call.args, "s source pathspec-from-file conflict")
    if given.has("S", "staged") and not given.has("W", "worktree"):
        return []
    return _in_place(call, given.operands) if given.operands else []


def _switch(call: Call) -> list[Danger]:
    given = options(call.args, "c C orphan create force-create")
    if given.has("discard-changes", "f", "force"):
        return _OVERWRITES
    return [history()] if given.has("C", "force-create") else []


def _stash(call: Call) -> list[Danger]:
    return [history()] if call.texts[:1] in (["drop"], ["clear"]) else []


def _branch(call: Call) -> list[Danger]:
    given = options(call.args, "u set-upstream-to contains no-contains merged no-merged points-at sort format")
    forced = given.has("f", "force")
    if given.has("r", "remotes"):
        return []
    if given.has("D", "M", "C") or (forced and given.operands):
        return [history()]
    return []


def _tag(call: Call) -> list[Danger]:
    given = options(call.args, "m F u message file local-user contains sort format points-at n l")
    return [history()] if given.has("d", "delete", "f", "force") and not given.has("l", "list") else []


def _push(call: Call) -> list[Danger]:
    given = options(call.args, "o push-option repo receive-pack exec")
    if given.has("n", "dry-run"):
        return []
    forced = given.has("f", "force", "force-with-lease", "mirror", "d", "delete", "prune")
    refs = given.operands[1:]
    if forced or any(ref.text.startswith(("+", ":")) and len(ref.text) > 1 for ref in refs):
        return [outside("history")]
    return []


def _rebase(call: Call) -> list[Danger]:
    given = options(call.args, "onto s X strategy strategy-option exec x C keep-base empty")
    if given.has("abort"):
        return _OVERWRITES
    if given.has("show-current-patch", "continue", "quit", "edit-todo"):
        return []
    return [history()]


def _aborted(call: Call) -> list[Danger]:
    """merge, cherry-pick, revert and am: refuse to hurt, except when they are called off."""
    return _OVERWRITES if call.has("--abort") else []


def _commit(call: Call) -> list[Danger]:
    given = options(call.args, "m F C c t author date message file reuse-message fixup squash template trailer cleanup")
    return [history()] if given.has("amend") and not given.has("dry-run") else []


def _pull(call: Call) -> list[Danger]:
    for text in call.texts:
        if text in ("-r", "--rebase") or (text.startswith("--rebase=") and not text.endswith("=false")):
            return [history()]
    given = options(call.args)
    return [history()] if given.has("f", "force") and any(":" in o.text for o in given.operands) else []


def _fetch(call: Call) -> list[Danger]:
    given = options(call.args, "depth refmap upload-pack o j jobs")
    refs = [operand.text for operand in given.operands if re.fullmatch(r"\+?[^:]+:(?!refs/remotes/)\S+", operand.text)]
    forced = given.has("f", "force") or any(ref.startswith("+") for ref in refs)
    return [history()] if refs and forced and not given.has("dry-run") else []


def _git_rm(call: Call) -> list[Danger]:
    given = options(call.args, "pathspec-from-file")
    if given.has("cached", "n", "dry-run"):
        return []
    return call.lost(given.operands, "deletes")


def _git_mv(call: Call) -> list[Danger]:
    given = options(call.args)
    if not given.has("f", "force") or given.has("n", "dry-run") or len(given.operands) < 2:
        return []
    return call.written(given.operands[-1:], "overwrites", "deletes")


def _worktree(call: Call) -> list[Danger]:
    given = options(call.args, "b B reason expire")
    if given.operands and given.operands[0].text == "add":
        return [history()] if given.has("B") else []
    if not given.operands or given.operands[0].text != "remove" or not given.has("f", "force"):
        return []
    return call.lost(given.operands[1:], "deletes")


def _submodule(call: Call) -> list[Danger]:
    given = options(call.args, "reference depth b branch name j jobs")
    if not given.operands:
        return []
    action, rest = given.operands[0].text, given.operands[1:]
    if action == "foreach":
        return call.shell(" ".join(value.text for value in rest))
    if not given.has("f", "force"):
        return []
    if action == "deinit":
        return call.lost(rest, "deletes") if rest else [destroys(("deletes",), None)]
    if action == "update":
        return call.lost(rest, "overwrites") if rest else [destroys(("overwrites",), None)]
    return []


def _rewrites(call: Call) -> list[Danger]:
    given = options(call.args)
    if given.has("dry-run", "analyze"):
        return []
    return [destroys(("history", "overwrites"), _EVERYWHERE)]


def _update_ref(call: Call) -> list[Danger]:
    given = options(call.args, "m")
    if given.has("stdin") or given.has("d") or len(given.operands) >= 2:
        return [history()]
    return []


def _reflog(call: Call) -> list[Danger]:
    given = options(call.args, "expire expire-unreachable")
    if given.has("n", "dry-run"):
        return []
    return [history()] if given.operands and given.operands[0].text in ("expire", "delete", "drop") else []


def _gc(call: Call) -> list[Danger]:
    return [history()] if any(re.match(r"--prune=(?:now|all|\S*sec)", text) for text in call.texts) else []


def _prune(call: Call) -> list[Danger]:
    return [] if options(call.args).has("n", "dry-run") else [history()]


def _checkout_index(call: Call) -> list[Danger]:
    given = options(call.args, "prefix stage")
    if not given.has("f", "force") or given.has("prefix"):
        return []
    return _OVERWRITES if given.has("a", "all") else _in_place(call, given.operands)


def _read_tree(call: Call) -> list[Danger]:
    given = options(call.args, "prefix index-output exclude-per-directory")
    return _OVERWRITES if given.has("u") and given.has("reset") and not given.has("n", "dry-run") else []


def _apply(call: Call) -> list[Danger]:
    given = options(call.args, "p C directory exclude include whitespace build-fake-ancestor")
    if given.has("check", "stat", "numstat", "summary") and not given.has("apply"):
        return []
    return [] if given.has("cached") else [destroys(("overwrites",), None)]


def _refs_of(call: Call) -> list[Danger]:
    """notes and replace."""
    return [history()] if call.texts[:1] in (["remove"], ["prune"]) or call.has("-d", "--delete") else []


_GIT: dict[str, Handler] = {
    "reset": _reset, "clean": _clean, "checkout": _checkout, "restore": _restore, "switch": _switch, "stash": _stash,
    "branch": _branch, "tag": _tag, "push": _push, "rebase": _rebase, "merge": _aborted, "cherry-pick": _aborted,
    "revert": _aborted, "am": _aborted, "commit": _commit, "pull": _pull, "fetch": _fetch, "rm": _git_rm, "mv": _git_mv,
    "worktree": _worktree, "submodule": _submodule, "filter-branch": _rewrites, "filter-repo": _rewrites,
    "update-ref": _update_ref, "reflog": _reflog, "gc": _gc, "prune": _prune, "checkout-index": _checkout_index,
    "read-tree": _read_tree, "apply": _apply, "notes": _refs_of, "replace": _refs_of,
}  # fmt: skip


def _hg(call: Call) -> list[Danger]:
    given = options(call.args, "R r rev cwd config m message I X include exclude d date")
    if not given.operands or given.has("n", "dry-run", "help", "h"):
        return []
    action, rest = given.operands[0].text, given.operands[1:]
    if action in ("update", "up", "checkout", "co", "merge"):
        return _OVERWRITES if given.has("C", "clean", "abort") else []
    if action == "revert":
        return _OVERWRITES if given.has("a", "all") or not rest else _in_place(call, rest)
    if action == "purge":
        return [] if given.has("p", "print") else _in_place(call, rest, "cleans")
    if action in ("remove", "rm"):
        return call.lost(rest, "deletes")
    if action in ("strip", "rollback", "histedit", "rebase") or given.has("amend"):
        return [history()]
    if (action == "shelve" and given.has("delete", "d", "cleanup")) or (
        action == "bookmark" and given.has("delete", "d")
    ):
        return [history()]
    return []


def _jj(call: Call) -> list[Danger]:
    given = options(call.args, "R repository at-op from f to t changes-in c r revision m message")
    if not given.operands or given.has("help", "h", "dry-run"):
        return []
    action, rest = given.operands[0].text, given.operands[1:]
    second = rest[0].text if rest else ""
    if action == "restore":
        return _in_place(call, rest)
    if action in ("abandon", "undo"):
        return [history()]
    if action in ("op", "operation") and second in ("restore", "undo", "revert", "abandon"):
        return [history()]
    if action in ("bookmark", "branch", "b") and second in ("delete", "forget", "d", "f"):
        return [history()]
    if action == "util" and second == "gc":
        return [history()]
    if action == "git" and second == "push" and given.has("deleted", "delete"):
        return [outside("history")]
    return []


def _svn(call: Call) -> list[Danger]:
    given = options(call.args, "m r F")
    if not given.operands:
        return []
    action, rest = given.operands[0].text, given.operands[1:]
    if action == "revert":
        return _in_place(call, rest)
    if action == "cleanup" and given.has("remove-unversioned", "remove-ignored", "vacuum"):
        return _in_place(call, rest, "cleans")
    if action in ("delete", "del", "remove", "rm"):
        remote = any("://" in value.text for value in rest)
        return [outside("deletes")] if remote else call.lost(rest, "deletes")
    return []


def _bfg(call: Call) -> list[Danger]:
    return [history()]


REPOSITORIES: dict[str, Handler] = {
    "git": _git, "hg": _hg, "jj": _jj, "svn": _svn, "bfg": _bfg, "git-filter-repo": _rewrites,
}  # fmt: skip
