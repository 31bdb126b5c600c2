"""From a write that rests to its bytes in the vault, with a real watcher."""

import asyncio
import random
import sys
import time
from pathlib import Path

from bench.engine import Engine
from bench.measure import Report, milliseconds, percentile
from bench.trees import Repository
from checkpointd.engine.tree import LiveTree
from checkpointd.vault.objects import blob_id

_BOUND = 0.5
_DEADLINE = 10.0


def run(folder: Path, report: Report) -> None:
    """One file at a time, at moments that do not fall into step with anything."""
    sys.setswitchinterval(0.0005)  # as the daemon does
    asyncio.run(_run(folder, report))


async def _run(folder: Path, report: Report) -> None:
    files, rounds = (3_000, 15) if report.short else (100_000, 100)
    repository = Repository(folder / "repo", files)
    engine = Engine(folder)
    tree = await engine.protected(repository.top)
    dice = random.Random(2)
    samples = []
    for number in range(rounds):
        path = repository.path(dice.randrange(files)) if number % 3 else f"src/p000/m00/c00/rest{number}.py"
        content = repository.content()
        (repository.top / path).write_bytes(content)
        samples.append(await _held(tree, path.encode(), blob_id(content)))
        await asyncio.sleep(dice.uniform(0.02, 0.2))
    await engine.close()
    report.say(f"{files} files, from the end of the write (150 ms of rest included): {milliseconds(samples)}")
    p95 = percentile(samples, 0.95)
    report.number(
        f"rested write to its bytes in the vault, {files} files, p95", f"{p95 * 1e3:.0f} ms", "under 500 ms",
        p95 < _BOUND,
    )  # fmt: skip
    report.floor("a write takes seconds to reach the vault", holds=p95 < 3)


async def _held(tree: LiveTree, path: bytes, oid: bytes) -> float:
    start = time.perf_counter()
    while time.perf_counter() - start < _DEADLINE:
        state = tree.state
        entry = tree.vault.resolve(state.files, path) if state is not None else None
        if entry is not None and entry.oid == oid:
            return time.perf_counter() - start
        await asyncio.sleep(0.002)
    raise TimeoutError(f"{path!r} did not reach the vault within {_DEADLINE:.0f} s")
