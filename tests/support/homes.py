"""A scratch HOME with everything below it, and its environment."""

import os
import sys
import tempfile
from pathlib import Path


class Home:
    """One private HOME; the environment holds nothing of the developer's but PATH."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in (".config", ".local/share", ".local/state", ".cache"):
            (path / name).mkdir(parents=True, exist_ok=True)
        # Short on purpose: a Unix socket's path ends at 108 bytes, and pytest's folders come near that.
        self.runtime = Path(tempfile.mkdtemp(prefix="ckr-"))
        self.runtime.chmod(0o700)

    @property
    def env(self) -> dict[str, str]:
        return {
            "HOME": str(self.path),
            "XDG_CONFIG_HOME": str(self.path / ".config"),
            "XDG_DATA_HOME": str(self.path / ".local/share"),
            "XDG_STATE_HOME": str(self.path / ".local/state"),
            "XDG_CACHE_HOME": str(self.path / ".cache"),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Dev",
            "GIT_AUTHOR_EMAIL": "dev@example.com",
            "GIT_COMMITTER_NAME": "Dev",
            "GIT_COMMITTER_EMAIL": "dev@example.com",
        }

    @property
    def data(self) -> Path:
        return self.path / ".local/share/checkpointd"

    @property
    def log(self) -> Path:
        return self.path / ".local/state/checkpointd/checkpointd.log"
