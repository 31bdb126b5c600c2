"""The files a vault consists of, beside objects and refs: laid out by us, never by `git init`."""

from pathlib import Path

from msgspec import Struct

from checkpointd.vault import disk
from checkpointd.vault.errors import NewerLayout, NotAVault

VERSION = 1
VERSION_FILE = "checkpointd-layout"
QUARANTINE = "quarantine"
INCOMING = "incoming"
"""Where a git child may leave a pack before the vault adopts it."""

_FOLDERS = ("objects/pack", "objects/info", "refs", "info", QUARANTINE, INCOMING)
# Findings of fsck about what the *content* of a project's files would do to a clone; contents are not ours to judge.
_CONTENT_FINDINGS = (
    "gitmodulesBlob", "gitmodulesLarge", "gitmodulesMissing", "gitmodulesName", "gitmodulesParse", "gitmodulesPath",
    "gitmodulesUpdate", "gitmodulesUrl",
)  # fmt: skip
_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfilemode = true
\tuntrackedCache = true
\tlogAllRefUpdates = false
\tquotePath = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[status]
\tshowUntrackedFiles = all
[fsck]
""" + "".join(f"\t{finding} = ignore\n" for finding in _CONTENT_FINDINGS)
_FILES = {
    VERSION_FILE: f"{VERSION}\n",
    "HEAD": "ref: refs/heads/none\n",
    "config": _CONFIG,
    # Raw bytes, whatever the project's .gitattributes say.
    "info/attributes": "* -text -eol -crlf -ident -filter -working-tree-encoding\n",
}


class Problem(Struct, frozen=True, kw_only=True):
    """Something that was found wrong with a vault when it was opened, and what to know or do about it."""

    what: str
    hint: str


def lay_out(path: Path) -> None:
    """Makes the folders and files of a new vault; those that are there are left alone."""
    with disk.translated(path):
        disk.make_directories(path)
        for folder in _FOLDERS:
            disk.make_directories(path / folder)
        for name, text in _FILES.items():
            if not (path / name).exists():
                disk.replace_file(str(path / name), text.encode(), sync=True)
        for folder in ("", "info", "objects", "refs"):
            disk.sync_path(str(path / folder))


def check_version(path: Path) -> None:
    """Raises NotAVault when there is none at `path`, NewerLayout when this program is too old for it."""
    if not (path / "objects").is_dir() and not (path / VERSION_FILE).is_file():
        raise NotAVault(f"There is no vault at {path}.")
    try:
        text = (path / VERSION_FILE).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return
    if text.isdigit() and int(text) > VERSION:
        raise NewerLayout(f"The vault {path} has layout {text}; this checkpointd knows {VERSION}. It was not touched.")


def heal(path: Path) -> list[Problem]:
    """Puts back what is missing or altered of the vault's own files; what that was."""
    problems = []
    for folder in _FOLDERS:
        if not (path / folder).is_dir():
            with disk.translated(path):
                disk.make_directories(path / folder)
            if folder not in (QUARANTINE, INCOMING):
                problems.append(Problem(what=f"The vault {path} had lost its folder {folder}.", hint=_HEALED))
    for name, text in _FILES.items():
        if name == "HEAD" and _is_head(path / name):
            continue
        if _text(path / name) != text:
            with disk.translated(path):
                disk.replace_file(str(path / name), text.encode(), sync=True)
            problems.append(Problem(what=f"The vault {path} had lost or altered its file {name}.", hint=_HEALED))
    return problems


_HEALED = "It was put back; nothing else is needed."


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is_head(path: Path) -> bool:
    text = _text(path)
    return text.startswith("ref: refs/") or (len(text.strip()) == 40 and text.strip().isalnum())
