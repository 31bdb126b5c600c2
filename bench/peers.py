"""What other tools run for a checkpoint: their git commands, in a git directory beside the user's."""

import os
import shutil
from pathlib import Path

from bench.trees import Repository, git, git_env


class Shadow:
    """A git directory of its own for the same files, made by copying the user's (so its index is warm)."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        self._top = repository.top
        shutil.copytree(repository.top / ".git", folder, copy_function=_linked)
        self._env = git_env(GIT_DIR=str(folder), GIT_WORK_TREE=str(repository.top))
        # git writes beside what it has, never into it: linked objects are safe. An index is replaced by a rename.
        self.write_tree()

    def write_tree(self) -> None:
        """`git add . && git write-tree`, as OpenCode does."""
        self._run("add", ".")
        self._run("write-tree")

    def commit(self) -> None:
        """`git add . && git commit`, as Cline and Gemini CLI do."""
        self._run("add", ".")
        self._run("commit", "-q", "--allow-empty", "--no-verify", "-m", "snap")

    def _run(self, *args: str) -> None:
        git("-c", "gc.auto=0", *args, cwd=self._top, env=self._env)


def _linked(source: str, target: str) -> str:
    if "/objects/" in source:
        os.link(source, target)
    else:
        shutil.copy(source, target)
    return target
