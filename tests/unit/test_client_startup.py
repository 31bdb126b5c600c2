"""The client is thin: what it imports and what it costs."""

import compileall
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ckpt
from support.served import Served, serving

_HEAVY = ["asyncio", "msgspec", "yaml", "rich", "subprocess", "pathlib", "dataclasses", "logging", "datetime", "shutil",
          "platformdirs", "checkpointd", "inspect", "tempfile", "hashlib"]  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as made:
        yield made


@pytest.mark.parametrize("command", ["status", "list"])
def test_a_usual_command_imports_nothing_heavy(served: Served, command: str) -> None:
    code = (
        f"import sys; before = set(sys.modules); sys.argv = ['ckpt', '{command}'];"
        "from ckpt.cli import main; status = main();"
        f"print(*sorted((set(sys.modules) - before) & set({_HEAVY})), file=sys.stderr); sys.exit(status)"
    )
    # -S: the site module's .pth files may import what they like.
    env = {**served.env, "PYTHONPATH": str(Path(ckpt.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == ""


def _cpu(arguments: list[str], env: dict[str, str]) -> float:
    """Seconds of CPU that the child used, as the kernel counts them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=env, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("command", ["status", "list"])
def test_a_usual_command_costs_at_most_four_bare_interpreters(served: Served, command: str, tmp_path: Path) -> None:
    env = {**served.env, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONWARNINGS": ""}
    before, sys.pycache_prefix = sys.pycache_prefix, str(tmp_path)
    try:
        compileall.compile_dir(os.path.dirname(ckpt.__file__), quiet=1)
    finally:
        sys.pycache_prefix = before
    _cpu(["-m", "ckpt.cli", command], env)
    bare, asked = [], []
    for _ in range(20):
        bare.append(_cpu(["-c", "pass"], env))
        asked.append(
            _cpu(["-c", f"import sys; sys.argv = ['ckpt', '{command}']; import ckpt.cli; ckpt.cli.main()"], env)
        )
    assert min(asked) <= 4 * min(bare), f"{min(asked) / min(bare):.2f} times"
