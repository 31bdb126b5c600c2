"""A capture of 10 changed and 5 new files whose paths are known, beside what peers run for the same."""

import asyncio
import os
import secrets
import statistics
import sys
import time
from pathlib import Path

from bench.engine import Site
from bench.measure import Report, milliseconds, timed
from bench.peers import Shadow
from bench.trees import Repository
from checkpointd.engine.recorder import Draft
from checkpointd.model import naming
from checkpointd.model.capture import Captured
from checkpointd.model.checkpoint import Cause
from checkpointd.vault.store import TreeRef

_DOCUMENTS = {
    b"record.yaml": 3000,
    b"checkpoint.md": 6000,
    b"summary.yaml": 3000,
    b"coverage.json": 1000,
    b"modes.json": 1000,
}


class Samples:
    """Seconds, by who made the checkpoint."""

    def __init__(self) -> None:
        self.capture: list[float] = []
        self.ours: list[float] = []
        self.write_tree: list[float] = []
        self.commit: list[float] = []


class Contest:
    """One size: our engine, and two peers, on the same changes."""

    def __init__(self, site: Site, repository: Repository, folder: Path) -> None:
        self.files = repository.files
        self.site = site
        self._repository = repository
        self._adding = Shadow(repository, folder / "adding.git")
        self._committing = Shadow(repository, folder / "committing.git")
        self.durable = Samples()
        self.whole = Samples()

    async def begin(self) -> float:
        """The first capture, settled by a first record; seconds of the capture."""
        seconds = timed(self.site.capture.first)
        captured = self.site.capture.state
        assert captured is not None
        self.site.rolling.push(captured)
        await self._record(captured)
        return seconds

    async def round(self, *, whole: bool, kept: bool) -> None:
        """One change, captured by everybody; ours without or with all that a checkpoint has."""
        dirty = self._repository.change()
        await asyncio.sleep(0.02)  # a file is proved read when it has rested for 10 ms
        os.sync()  # what the peers left unsynced would be written during our own waits for the disk
        start = time.perf_counter()
        captured = self._capture(dirty)
        middle = time.perf_counter()
        if whole:
            await self._record(captured)
        else:
            self._commit(captured)
        end = time.perf_counter()
        write_tree = timed(self._adding.write_tree)
        os.sync()
        commit = timed(self._committing.commit)
        if not kept:
            return
        samples = self.whole if whole else self.durable
        samples.capture.append(middle - start)
        samples.ours.append(end - start)
        samples.write_tree.append(write_tree)
        samples.commit.append(commit)

    def _capture(self, dirty: list[bytes]) -> Captured:
        captured = self.site.capture.capture(dirty)
        self.site.rolling.push(captured)
        return captured

    def _commit(self, captured: Captured) -> None:
        entries = {name: secrets.token_hex(size // 2).encode() for name, size in _DOCUMENTS.items()}
        now = self.site.engine.clock.now()
        self.site.project.vault.commit_checkpoint(
            naming.checkpoint_id(now, secrets.token_hex(16)), {b"files": TreeRef(captured.files), **entries},
            message="bench", when=now,
        )  # fmt: skip

    async def _record(self, captured: Captured) -> None:
        cause = Cause(worktree=self.site.tree.worktree_id, trigger="manual", position=secrets.token_hex(8))
        draft = Draft(trigger="manual", cause=cause, reason="Asked for by the bench")
        record = await self.site.engine.recorder.write(self.site.project, self.site.tree, captured, draft)
        if record is None or (record.parent is not None and record.files_changed_total < 15):
            raise RuntimeError("the checkpoint lacks what changed")


def run(folder: Path, report: Report) -> None:
    """Measures all sizes, interleaved."""
    sys.setswitchinterval(0.0005)  # as the daemon does
    asyncio.run(_run(folder, report))


async def _run(folder: Path, report: Report) -> None:
    sizes, rounds = ((1_000, 10_000), 6) if report.short else ((1_000, 20_000, 100_000), 25)
    contests = []
    for size in sizes:
        place = folder / str(size)
        repository = Repository(place / "repo", size)
        contest = Contest(await Site.of(repository.top, place), repository, place)
        report.say(f"{size} files: first capture {await contest.begin():.2f} s")
        contests.append(contest)
    for whole in (False, True):
        for number in range(-2, rounds):  # the first two warm up
            for contest in contests:
                await contest.round(whole=whole, kept=number >= 0)
    for contest in contests:
        _tell(contest, report)
        await contest.site.engine.close()
    _judge(contests[0], contests[-1], report)


def _tell(contest: Contest, report: Report) -> None:
    for what, samples in (("durable capture", contest.durable), ("whole checkpoint", contest.whole)):
        report.say(f"{contest.files} files, 10 changed and 5 new, {what}:")
        report.say(f"  captured, in the vault         {milliseconds(samples.capture)}")
        report.say(f"  {what:<30} {milliseconds(samples.ours)}")
        report.say(f"  git add . && git write-tree    {milliseconds(samples.write_tree)}")
        report.say(f"  git add . && git commit        {milliseconds(samples.commit)}")


def _judge(small: Contest, large: Contest, report: Report) -> None:
    full = large.files == 100_000
    for what, samples, least in (("durable capture", large.durable, 40), ("whole checkpoint", large.whole, 15)):
        for peer, others in (("add + write-tree", samples.write_tree), ("add + commit", samples.commit)):
            ratio = statistics.median(others) / statistics.median(samples.ours)
            best = min(others) / min(samples.ours)
            bound = f"at least {least} x" if full else f"({least} x at 100000)"
            report.number(
                f"{what}, {large.files} files, against {peer}", f"{ratio:.1f} x (best {best:.1f} x)", bound,
                ratio >= least if full else None,
            )  # fmt: skip
            report.floor(f"a {what} is slower than {peer}", holds=best > 1)
    growth = statistics.median(large.durable.ours) / statistics.median(small.durable.ours)
    best = min(large.durable.ours) / min(small.durable.ours)
    report.number(
        f"growth from {small.files} to {large.files} files", f"{growth:.2f} x (best {best:.2f} x)", "less than 2 x",
        growth < 2,
    )  # fmt: skip
    report.floor("a capture of known paths grows with the tree", holds=best < 4)
