"""Real git repositories, and proof that nobody touched them."""

import hashlib
import os
import subprocess
from pathlib import Path


def git(repo: Path, *args: str, env: dict[str, str] | None = None) -> str:
    """What `git ARGS` prints in `repo`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    clean |= {
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Dev", "GIT_AUTHOR_EMAIL": "dev@example.com",
        "GIT_COMMITTER_NAME": "Dev", "GIT_COMMITTER_EMAIL": "dev@example.com",
    }  # fmt: skip
    done = subprocess.run(["git", "-C", str(repo), *args], capture_output=True, check=True, env=clean | (env or {}))
    return done.stdout.decode(errors="surrogateescape")


def make(repo: Path, files: dict[str, str | bytes]) -> Path:
    """A repository with one commit of `files`."""
    repo.mkdir(parents=True, exist_ok=True)
    git(repo, "init", "-q", "-b", "main")
    write(repo, files)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "Start", "--allow-empty")
    return repo


def write(root: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def fingerprint(git_dir: Path) -> dict[str, tuple[int, int, int, str]]:
    """Every file of a git dir: mode, inode, mtime, content hash. Equal before and after means untouched."""
    found = {}
    for folder, _, names in os.walk(git_dir):
        for name in names:
            path = Path(folder) / name
            info = path.lstat()
            content = b"" if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(git_dir))] = (
                info.st_mode, info.st_ino, info.st_mtime_ns, hashlib.sha256(content).hexdigest(),
            )  # fmt: skip
    return found


def state(repo: Path) -> dict[str, object]:
    """What a repository is, independent of when: to compare a run beside the daemon with one without it."""
    objects = git(repo, "count-objects", "-v").splitlines()
    return {
        "head": (repo / ".git/HEAD").read_text(),
        "refs": sorted(line.split()[1] for line in git(repo, "show-ref").splitlines()),
        "config": (repo / ".git/config").read_text(),
        "hooks": sorted(p.name for p in (repo / ".git/hooks").iterdir()) if (repo / ".git/hooks").exists() else [],
        "index": git(repo, "ls-files", "-s", "-v"),
        "objects": [line for line in objects if line.startswith(("count", "in-pack", "packs", "garbage"))],
        "top": sorted(p.name for p in (repo / ".git").iterdir()),
    }
