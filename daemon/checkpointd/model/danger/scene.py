"""What is known of the files a command line names: where they are and whether losing them is a loss."""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from posixpath import basename, join, normpath

from checkpointd.text.redaction import secret_name

UNKNOWN_PIECE = "\0"  # stands in a path for what is not known before the line runs

_SCRATCH = ("/tmp/", "/var/tmp/", "/dev/", "/private/tmp/", "/var/folders/", "/proc/", "/run/user/")  # noqa: S108
_REBUILT = (
    "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox", ".nox", ".gradle", ".next",
    ".nuxt", ".turbo", ".parcel-cache", ".svelte-kit", ".angular", ".vite", ".venv", "venv", "Pods", "target", "dist",
    "build", ".eggs", "*.egg-info", ".cache", "coverage", "htmlcov", ".nyc_output", ".hypothesis", "DerivedData",
    ".dart_tool", ".terraform", "storybook-static", ".coverage", ".coverage.*", "coverage.xml", "lcov.info", "*.py[co]",
    "*.o", "*.class", ".DS_Store", ".eslintcache", "*.tsbuildinfo", ".stylelintcache", ".sass-cache", "bazel-*",
    "cmake-build-*", ".ipynb_checkpoints", "*.pid",
)  # fmt: skip
_PERSONAL = ("*.db", "*.sqlite", "*.sqlite3", "*.local", "*.local.*", "local.*")
_HOME_CACHES = ("~/.cache/", "~/Library/Caches/", "~/.npm/_cacache", "~/.local/share/Trash/")

_ABSENT = re.compile(
    r"(?:does|do|did) not (?:yet )?exist|doesn't exist|not yet|no such|only written|is new\b|new file|absent"
)
_REBUILDABLE = re.compile(
    r"ignored|caches? only|only caches?|build output|throw-?away|__pycache__ only|temporary|regenerated|rebuilt"
)
_NOT_REBUILDABLE = re.compile(r"\bnot (?:a cache|git-?ignored|ignored|in \.gitignore)|never ignored")
_KEPT = re.compile(
    r"tracked|dirty|edit|uncommit|unsaved|uncaptured|\bexists?\b|by hand|hand-|\bwork\b|modified|golden|local changes"
    r"|\bhas\b|\bhold|older copy|only copy|changed|notes|untracked|written by"
)
_PATH_TOKEN = re.compile(r"[~\w.*/@+-]*[\w*]/?")


class Scene:
    """The project, seen from one command line.

    `exists` is asked with paths spelled as in `Danger.paths`, and only about targets of writes;
    `p + "/."` asks whether p is a folder.
    """

    def __init__(self, root: str, context: str = "", exists: Callable[[str], bool] | None = None) -> None:
        self.root = normpath(root)
        self.exists = exists
        self.created: set[str] = set()
        self._clauses = [c.strip() for c in re.split(r"[;,]\s", context) if c.strip()]

    def path(self, text: str, cwd: str) -> str:
        """A path as `Danger.paths` spells it."""
        if text.startswith("~"):
            return text if text in ("~", "~/") else "~/" + normpath(text[2:]) if text.startswith("~/") else text
        whole = normpath(join(cwd, text))
        if whole.startswith("//"):
            whole = whole[1:]
        if whole == self.root:
            return "."
        return whole.removeprefix(self.root.rstrip("/") + "/")

    def home(self) -> str:
        """The home folder that the root's place suggests."""
        match = re.match(r"/(?:home|Users)/[^/]+|/root", self.root)
        return match[0] if match else "~"

    def is_outside(self, path: str) -> bool:
        return path.startswith(("/", "~"))

    def is_scratch(self, path: str) -> bool:
        """Whether a path lies where nothing is kept. A root below /tmp is a project all the same."""
        if not path.startswith("/"):
            return any(path.startswith(cache) for cache in _HOME_CACHES)
        whole = path.rstrip("/") + "/"
        if (self.root + "/").startswith(whole):
            return False
        return whole.startswith(_SCRATCH) and whole not in ("/dev/", "/run/user/")

    def is_worth(self, path: str) -> bool:
        """Whether losing what is at a path may lose work: not for scratch files, caches and build output."""
        if self.is_scratch(path):
            return False
        said = self._said(path)
        if said is False and not self._is_personal(path):
            return False
        if said or self._is_personal(path):
            return True
        return not any(fnmatchcase(part, name) for part in path.split("/") for name in _REBUILT)

    def is_present(self, path: str) -> bool:
        """Whether a write to a path replaces something."""
        if path in self.created:
            return False
        for clause in self._clauses:
            if self._is_about(clause, path, below=False) is not False and _ABSENT.search(clause):
                return False
        if self.exists is not None:
            return self.exists(path)
        return any(
            self._is_about(clause, path, below=True) is not False
            and (_KEPT.search(clause) or _REBUILDABLE.search(clause))
            for clause in self._clauses
        )

    def speaks_of_work(self) -> bool:
        """Whether the context says that there is something to lose, wherever it is."""
        return any(_KEPT.search(clause) and not _ABSENT.search(clause) for clause in self._clauses)

    def is_folder(self, path: str) -> bool:
        return path == "." or (self.exists is not None and self.exists(path + "/."))

    def _said(self, path: str) -> bool | None:
        """What the context says of a path: worth keeping, not, or nothing."""
        general: bool | None = None
        for clause in self._clauses:
            about = self._is_about(clause, path, below=True)
            if about is False or _ABSENT.search(clause):
                continue
            verdict: bool | None = None
            if _REBUILDABLE.search(clause) and not _NOT_REBUILDABLE.search(clause):
                verdict = False
            elif _NOT_REBUILDABLE.search(clause) or _KEPT.search(clause):
                verdict = True
            if about and verdict is not None:
                return verdict
            general = verdict if general is None else general
        return general

    def _is_about(self, clause: str, path: str, *, below: bool) -> bool | None:
        """True: it names the path, a folder above it or (`below`) a file in it; None: it names no path at all."""
        named = False
        for token in _PATH_TOKEN.findall(clause):
            bare = token.rstrip("/")
            looks = "/" in token or "*" in token or ("." in bare and not bare.endswith("."))
            named = named or looks
            if not bare:
                continue
            if path == bare or path.startswith(bare + "/") or (below and bare.startswith(path + "/")):
                return True
            if looks and (fnmatchcase(basename(path), basename(bare)) or fnmatchcase(path, bare)):
                return True
        return False if named else None

    def _is_personal(self, path: str) -> bool:
        """Files that people make and often ignore: settings, keys, local databases."""
        name = basename(path)
        return secret_name(name.encode("utf-8", "surrogateescape")) or any(fnmatchcase(name, p) for p in _PERSONAL)
