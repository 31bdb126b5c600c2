"""Where state lives on this machine."""

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import platformdirs
from msgspec import Struct

# sun_path holds 108 bytes on Linux and 104 on macOS, the ending NUL included.
_SOCKET_LIMIT = 103


class Places(Struct, frozen=True, kw_only=True):
    """The files and folders of one daemon. Nothing is created by naming it."""

    home: Path
    data: Path  # vaults, catalog, lock, daemon.json
    runtime: Path  # socket, cookie files
    state: Path  # the daemon's log
    config: Path  # config.yaml
    socket: Path

    @property
    def projects(self) -> Path:
        return self.data / "projects"

    @property
    def catalog(self) -> Path:
        return self.data / "catalog.sqlite"

    @property
    def lock(self) -> Path:
        return self.data / "lock"

    @property
    def discovery(self) -> Path:
        return self.data / "daemon.json"

    @property
    def log(self) -> Path:
        return self.state / "checkpointd.log"

    @property
    def cookies(self) -> Path:
        return self.runtime / "cookies"


def find(env: Mapping[str, str]) -> Places:
    """The places for this environment (HOME and XDG_* as platformdirs reads them)."""
    home = Path(env.get("HOME") or Path.home())
    if sys.platform == "darwin":
        data = Path(platformdirs.user_data_dir("checkpointd"))
        state = Path(platformdirs.user_log_dir("checkpointd"))
        config = Path(platformdirs.user_config_dir("checkpointd"))
        runtime_base: Path | None = None
    else:
        data = Path(env.get("XDG_DATA_HOME") or home / ".local/share") / "checkpointd"
        state = Path(env.get("XDG_STATE_HOME") or home / ".local/state") / "checkpointd"
        config = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "checkpointd"
        base = env.get("XDG_RUNTIME_DIR")
        runtime_base = Path(base) if base and Path(base).is_dir() else None
    runtime = runtime_base / "checkpointd" if runtime_base else data / "run"
    override = env.get("CHECKPOINTD_SOCKET")
    socket = Path(override) if override else runtime / "socket"
    if not override and len(os.fsencode(socket)) > _SOCKET_LIMIT:
        digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
        socket = Path("/tmp") / f"checkpointd-{digest}" / "socket"  # noqa: S108 - the folder is made 0700 and its owner checked
    file = env.get("CHECKPOINTD_CONFIG")
    return Places(home=home, data=data, runtime=runtime, state=state,
                  config=Path(file) if file else config / "config.yaml", socket=socket)  # fmt: skip
