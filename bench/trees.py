"""Repositories of any size, and the small changes that an agent makes in them."""

import os
import random
import subprocess
from pathlib import Path

_FOLDER = 20  # files in each
_WORDS = ("self", "return", "value", "index", "for", "in", "range", "total", "name", "=", "(", ")", ":", "if", "not")
_CLEAN = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
_WHO = {
    "GIT_AUTHOR_NAME": "Dev", "GIT_AUTHOR_EMAIL": "dev@example.com",
    "GIT_COMMITTER_NAME": "Dev", "GIT_COMMITTER_EMAIL": "dev@example.com",
}  # fmt: skip


def git_env(**more: str) -> dict[str, str]:
    """An environment for git that holds nothing of the developer's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {**kept, **_CLEAN, **_WHO, **more}


def git(*args: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    """Runs git, which must succeed."""
    subprocess.run(["git", *args], cwd=cwd, env=env or git_env(), check=True, stdout=subprocess.DEVNULL)


class Repository:
    """A repository of generated source-like files (0.5 to 5 KB, 20 in a folder, four folders deep), in one pack."""

    def __init__(self, top: Path, files: int, seed: int = 1) -> None:
        self.top = top
        self.files = files
        self._random = random.Random(seed)
        self._text = self._pool()
        self._round = 0
        self._written = 0
        top.mkdir(parents=True)
        git("init", "-q", "-b", "main", cwd=top)
        self._import()
        git("reset", "-q", "--hard", cwd=top)
        git("status", cwd=top)

    def path(self, number: int) -> str:
        """Where a file lies."""
        folder = number // _FOLDER
        return f"src/p{folder // 400:03}/m{folder // 20 % 20:02}/c{folder % 20:02}/file{number % _FOLDER:02}.py"

    def change(self) -> list[bytes]:
        """What an agent does between two checkpoints: rewrites 10 files in 10 folders, makes 5. Their paths."""
        self._round += 1
        step = max(1, self.files // 10)
        # The same folders again and again, as agents do; other files of them each time.
        changed = [self.path((i * step + self._round % _FOLDER) % self.files) for i in range(10)]
        made = [f"src/p000/m00/c{i:02}/new{self._round:04}.py" for i in range(5)]
        for path in (*changed, *made):
            file = self.top / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.content())
        return [path.encode() for path in (*changed, *made)]

    def content(self) -> bytes:
        """A file that is like no other."""
        self._written += 1
        size = self._random.randint(500, 5000)
        start = self._random.randrange(len(self._text) - size)
        return b"# %d\n" % self._written + self._text[start : start + size] + b"\n"

    def _pool(self) -> bytes:
        words = (self._random.choice(_WORDS) + str(self._random.randrange(1000)) for _ in range(100_000))
        lines = [" ".join(next(words) for _ in range(10)) for _ in range(10_000)]
        return "\n".join(lines).encode()

    def _import(self) -> None:
        child = subprocess.Popen(["git", "fast-import", "--quiet"], cwd=self.top, env=git_env(), stdin=subprocess.PIPE)
        assert child.stdin is not None
        with child.stdin as out:
            out.write(b"commit refs/heads/main\ncommitter Dev <dev@example.com> 1700000000 +0000\ndata 5\nStart\n")
            for number in range(self.files):
                data = self.content()
                out.write(b"M 100644 inline %s\ndata %d\n%s\n" % (self.path(number).encode(), len(data), data))
        if child.wait() != 0:
            raise RuntimeError("git fast-import failed")
