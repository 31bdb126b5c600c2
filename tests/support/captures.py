"""Work trees to capture, and what a capture holds."""

from collections.abc import Callable
from pathlib import Path

from checkpointd.clock import SystemClock
from checkpointd.config import CaptureConfig
from checkpointd.model import modes
from checkpointd.vault.capture import WorkTree
from checkpointd.vault.store import Vault
from checkpointd.vault.zones import Home


class Capturing:
    """One project folder `p` below `base`, and a vault beside it."""

    def __init__(self, base: Path, *, limits: CaptureConfig | None = None, top: Path | None = None) -> None:
        self.base = base
        self.top = top or base / "p"
        self.top.mkdir(exist_ok=True)
        self.home = base / "home"
        self.home.mkdir(exist_ok=True)
        self.limits = limits or CaptureConfig()
        self.vault = Vault.create(base / "vault" / "vault.git")
        self.cancelled: Callable[[], bool] = lambda: False
        self.tree = self.new_tree()

    def new_tree(self) -> WorkTree:
        """Another WorkTree of the same folder, as after a restart."""
        return WorkTree(
            self.vault,
            self.top,
            "w1",
            limits=self.limits,
            clock=SystemClock(),
            cancel=lambda: self.cancelled(),
            home=Home(self.home),
        )

    def restart(self) -> None:
        """What a new daemon does: nothing but the last state and the files beside the vault is known."""
        state = self.tree.state
        assert state is not None
        self.tree = self.new_tree()
        self.tree.resume(state)

    @property
    def files(self) -> dict[bytes, bytes]:
        """What the last capture holds: path to content."""
        state = self.tree.state
        assert state is not None
        return {path: self.vault.read_blob(oid) for path, _, oid in self.vault.walk(state.files)}

    @property
    def entries(self) -> dict[bytes, tuple[int, str, str]]:
        """What the last capture holds: path to git mode and permission bits (none for symlinks) and id."""
        state = self.tree.state
        assert state is not None
        said = modes.decode(state.modes)
        return {
            path: (mode, "" if mode == 0o120000 else f"{said.permissions(path, mode):o}", oid.hex())
            for path, mode, oid in self.vault.walk(state.files)
        }

    @property
    def empty(self) -> frozenset[bytes]:
        """The empty folders of the last capture."""
        state = self.tree.state
        assert state is not None
        return modes.decode(state.modes).empty

    @property
    def skipped(self) -> dict[bytes, str]:
        """What the last capture left out, and why."""
        state = self.tree.state
        assert state is not None
        return {skip.path: skip.reason for skip in state.coverage.skipped}
