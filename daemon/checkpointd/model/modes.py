"""Permission bits and empty directories of a project: what a git tree cannot say (modes.json)."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from checkpointd.model.paths import quote, unquote

_TREE, _EXECUTABLE = 0o040000, 0o100755


class Usual(Struct, frozen=True, kw_only=True):
    """The permission bits that most files and folders of a project have."""

    file: int = 0o644
    executable: int = 0o755
    folder: int = 0o755

    def of(self, mode: int) -> int:
        """The usual bits of an entry with this git mode."""
        if mode == _TREE:
            return self.folder
        return self.executable if mode == _EXECUTABLE else self.file


class Modes(Struct, frozen=True, kw_only=True):
    """The usual bits once, the paths that differ from them, and the empty directories."""

    usual: Usual = Usual()
    exceptions: Mapping[bytes, int] = {}
    empty: frozenset[bytes] = frozenset()

    def permissions(self, path: bytes, mode: int) -> int:
        """The permission bits of the entry at `path`, whose git mode is `mode` (0o040000: a directory)."""
        return self.exceptions.get(path, self.usual.of(mode))


class _Document(Struct, kw_only=True):
    usual: dict[str, str]
    modes: dict[str, str]
    empty: list[str]
    schema: int = 1


def encode(usual: Usual, exceptions: Mapping[bytes, int], empty: Iterable[bytes]) -> bytes:
    """The bytes of modes.json."""
    document = _Document(
        usual={"file": f"{usual.file:o}", "executable": f"{usual.executable:o}", "folder": f"{usual.folder:o}"},
        modes={quote(path): f"{bits:o}" for path, bits in sorted(exceptions.items())},
        empty=[quote(path) for path in sorted(empty)],
    )
    return msgspec.json.encode(document) + b"\n"


def decode(data: bytes) -> Modes:
    """What modes.json says. Raises ValueError where it is not one."""
    if not data.strip():
        return Modes()
    document = msgspec.json.decode(data, type=_Document)
    return Modes(
        usual=Usual(**{name: _bits(text) for name, text in document.usual.items() if name in Usual.__struct_fields__}),
        exceptions={unquote(path): _bits(text) for path, text in document.modes.items()},
        empty=frozenset(map(unquote, document.empty)),
    )


def _bits(text: str) -> int:
    bits = int(text, 8)
    if not 0 <= bits <= 0o7777:
        raise ValueError(f"permission bits {text!r}")
    return bits
