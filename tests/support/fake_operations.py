"""An engine in memory, behind the same Protocol as the real one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from checkpointd.engine import answers
from checkpointd.engine.errors import Ambiguous, NotFound
from checkpointd.engine.requests import (
    AgentProcess,
    Asker,
    Document,
    Guarded,
    ListRequest,
    Progress,
    RestoreRequest,
    SaveRequest,
    Scope,
)
from checkpointd.model.capture import Coverage, Skip
from checkpointd.model.checkpoint import (
    Cause,
    CoverageCounts,
    FileChange,
    GateState,
    GitState,
    ProjectRef,
    Record,
    SessionRef,
    Task,
)

ROOT = b"/home/me/shop"
NOW = datetime(2026, 11, 30, 22, 19, tzinfo=UTC)


def record(number: int, *, age: timedelta, trigger: str = "turn", **fields: object) -> Record:
    """A record made `age` before the present, as a real engine would make it."""
    made = datetime.now(UTC) - age
    values: dict[str, object] = {
        "id": f"ckpt-20261130-2219{number:02d}-{number:08x}",
        "seq": number,
        "name": f"2026-11-30-22{number:02d}",
        "title": f"step {number}",
        "created_at": made,
        "source": f"checkpointd:{trigger}",
        "trigger": trigger,
        "cause": Cause(worktree="w1", agent="claude", session="0f3e1a2b-77aa", trigger=trigger, position=str(number)),
        "reason": f"the agent finished turn {number}",
        "project": ProjectRef(id="p1", root="/home/me/shop", name="shop", kind="git", worktree="w1"),
        "tree": "a" * 40,
        "git": GitState(branch="main", head="b" * 40),
        "session": SessionRef(agent="claude", id="0f3e1a2b-77aa-4c1d-9e1f-000000000001", model="opus"),
        "turn": number,
        "files_changed": (FileChange(path="src/a.py", change="modify", added=3, removed=1),),
        "files_changed_total": 1,
        "coverage": CoverageCounts(captured=12, size=3456),
    }
    return Record(**{**values, **fields})


class FakeOperations:
    """Answers from what a test put into it; `calls` keeps what was asked, by whom."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.records = [
            record(
                3,
                age=timedelta(minutes=3),
                trigger="repeated-failure",
                reason="pytest failed 3 times: AssertionError: 1 != 2",
                tests=(GateState(gate="tests", command="pytest -q", colour="red", failing=("test_a", "test_b")),),
                tasks=(Task(id="1", text="fix the parser", state="doing"),),
            ),
            record(2, age=timedelta(hours=2)),
            record(1, age=timedelta(hours=5), trigger="manual", name="before-refactoring", title="Before refactoring"),
        ]
        self.pinned: set[str] = set()
        self.plans: dict[str, answers.RestorePlan] = {}
        self.forget_plans: dict[str, answers.ForgetPlan] = {}
        self.plan = answers.RestorePlan(id="", target=self.records[0], root=ROOT)
        self.differences: list[answers.Difference] = []
        self.problems: tuple[answers.Problem, ...] = ()
        self.alarm_line: str | None = None
        self.agents: dict[int, AgentProcess] = {}
        self.every_peer: AgentProcess | None = None
        self.may: set[str] = set()
        self.file = b"print('hello')\n"
        self.called = asyncio.Event()
        self.stopping = asyncio.Event()
        self.gate = asyncio.Event()  # slow calls wait for it
        self.gate.set()
        self.finished: list[str] = []
        self.listeners: list[asyncio.Queue[answers.Happening]] = []
        self.failure: BaseException | None = None

    async def asked(self, count: int) -> None:
        """Returns when that many calls have come in."""
        while len(self.calls) < count:
            self.called.clear()
            await self.called.wait()

    def find(self, text: str) -> Record:
        if text.startswith("@"):
            return self.records[int(text[1:] or 0)]
        found = [each for each in self.records if text == each.name or each.id.startswith(text)]
        if not found:
            raise NotFound(f"No checkpoint {text}.", "`ckpt list` shows them.")
        if len(found) > 1:
            raise Ambiguous(f"{text} names {len(found)} checkpoints.", ", ".join(each.id for each in found))
        return found[0]

    def _checkpoint(self, found: Record) -> answers.Checkpoint:
        return answers.Checkpoint(record=found, pinned=found.id in self.pinned)

    def project(self, *, paused: bool = False) -> answers.Project:
        return answers.Project(
            id="p1", name="shop", root=ROOT, kind="git", checkpoints=3, paused=paused, watch="live",
            last_capture=datetime.now(UTC) - timedelta(seconds=4.5), size=5 << 20,
        )  # fmt: skip

    def session(self) -> answers.Session:
        return answers.Session(
            agent="claude", id="0f3e1a2b-77aa-4c1d-9e1f-000000000001", state="live", project="p1", root=ROOT,
            title="fix the parser", turns=7, checkpoints=3, last_at=datetime.now(UTC) - timedelta(seconds=10.5),
        )  # fmt: skip

    async def status(self) -> answers.Overview:
        return answers.Overview(
            daemon=answers.DaemonState(uptime=timedelta(hours=3), rss=45 << 20, cpu=timedelta(seconds=1.5)),
            agents=(answers.AgentState(agent="claude", sessions=12, records=3456, unknown_records=2),),
            projects=(self.project(),),
            sessions=(self.session(),),
            budgets={"vaults": answers.Budget(used=5 << 20, limit=10 << 30, unit="bytes")},
            problems=self.problems,
        )

    def alarm(self) -> str | None:
        return self.alarm_line

    async def shutdown(self, asker: Asker) -> None:
        self.calls.append(("shutdown", asker))
        self.stopping.set()

    async def agent_of(self, pid: int) -> AgentProcess | None:
        return self.every_peer or self.agents.get(pid)

    def agents_may(self, action: Guarded) -> bool:
        return action in self.may

    async def save(self, scope: Scope, request: SaveRequest, asker: Asker, progress: Progress) -> answers.Checkpoint:
        self.calls.append(("save", scope, request, asker))
        self.called.set()
        progress("reading files", 1, 12)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        made = record(
            4, age=timedelta(), trigger="manual", name=request.name or "2026-11-30-2219",
            title=request.title or "", reason=request.reason or "asked by ckpt save", tags=request.tags,
        )  # fmt: skip
        self.records.insert(0, made)
        self.finished.append(request.key)
        return self._checkpoint(made)

    async def checkpoints(self, scope: Scope, request: ListRequest) -> list[answers.Checkpoint]:
        self.calls.append(("list", scope, request))
        return [self._checkpoint(each) for each in self.records[: request.limit]]

    async def show(self, scope: Scope, checkpoint: str) -> answers.Shown:
        skipped = (
            Skip(path=b"caf\xe9.log", reason="ignored"),
            Skip(path=b"big.bin", reason="too-large", detail="30 MiB"),
        )
        coverage = Coverage(captured=12, size=3456, skipped=skipped, rules="r", first_read=NOW, last_read=NOW)
        return answers.Shown(checkpoint=self._checkpoint(self.find(checkpoint)), coverage=coverage)

    async def document(self, scope: Scope, checkpoint: str, document: Document) -> str:
        return f"# {self.find(checkpoint).name}: {document}\n"

    async def contents(
        self, scope: Scope, checkpoint: str, path: bytes, *, offset: int, limit: int
    ) -> answers.Contents:
        self.calls.append(("contents", path, offset))
        return answers.Contents(data=self.file[offset : offset + limit], size=len(self.file))

    async def diff(
        self, scope: Scope, old: str, new: str | None, paths: tuple[bytes, ...], *, patch: bool
    ) -> list[answers.Difference]:
        self.calls.append(("diff", old, new, paths, patch))
        self.find(old)
        if new is not None:
            self.find(new)
        return self.differences

    async def last(self, scope: Scope) -> answers.LastTurn:
        return answers.LastTurn(
            agent="claude", session="0f3e1a2b-77aa-4c1d-9e1f-000000000001", turn=7, request="fix the\nparser",
            answer="Done.", ended_at=datetime.now(UTC) - timedelta(minutes=3),
            changes=(answers.Difference(path=b"src/a.py", change="modify", added=3, removed=1),),
            results=self.records[0].tests, checkpoint=self.records[0],
        )  # fmt: skip

    async def plan_restore(
        self, scope: Scope, request: RestoreRequest, asker: Asker, progress: Progress
    ) -> answers.RestorePlan:
        self.calls.append(("plan_restore", scope, request, asker))
        return self._planned(self.find(request.checkpoint))

    async def plan_undo(self, scope: Scope, asker: Asker, progress: Progress) -> answers.RestorePlan:
        self.calls.append(("plan_undo", scope, asker))
        return self._planned(self.records[0])

    def _planned(self, target: Record) -> answers.RestorePlan:
        plan = answers.RestorePlan(
            id=f"plan-{len(self.plans)}", target=target, root=ROOT, restore=self.plan.restore,
            delete=self.plan.delete, keep=self.plan.keep, unchanged=self.plan.unchanged,
            head_moved=self.plan.head_moved,
        )  # fmt: skip
        self.plans[plan.id] = plan
        return plan

    async def apply_restore(self, plan: str, asker: Asker, progress: Progress) -> answers.Restored:
        self.calls.append(("apply_restore", plan, asker))
        if self.failure is not None:
            raise self.failure
        found = self.plans.pop(plan, None)
        if found is None:
            raise NotFound("The plan has expired.", "Ask for a new one.")
        return answers.Restored(restored=len(found.restore), deleted=len(found.delete), undo="ckpt-undo")

    async def pin(self, scope: Scope, checkpoint: str, asker: Asker) -> answers.Checkpoint:
        self.pinned.add(self.find(checkpoint).id)
        return self._checkpoint(self.find(checkpoint))

    async def unpin(self, scope: Scope, checkpoint: str, asker: Asker) -> answers.Checkpoint:
        self.pinned.discard(self.find(checkpoint).id)
        return self._checkpoint(self.find(checkpoint))

    async def plan_forget(self, scope: Scope, what: str, asker: Asker) -> answers.ForgetPlan:
        plan = answers.ForgetPlan(
            id=f"forget-{len(self.forget_plans)}", checkpoints=(self.find(what),), size=4096,
            keep=(answers.Kept(id=self.records[-1].id, why="pinned"),),
        )  # fmt: skip
        self.forget_plans[plan.id] = plan
        return plan

    async def apply_forget(self, plan: str, asker: Asker, progress: Progress) -> answers.Forgotten:
        found = self.forget_plans.pop(plan)
        return answers.Forgotten(checkpoints=tuple(each.id for each in found.checkpoints), size=4096)

    async def sessions(self, scope: Scope, *, limit: int) -> list[answers.Session]:
        return [self.session()]

    async def projects(self) -> list[answers.Project]:
        return [self.project()]

    async def pause(self, scope: Scope, asker: Asker) -> list[answers.Project]:
        self.calls.append(("pause", scope, asker))
        return [self.project(paused=True)]

    async def resume(self, scope: Scope, asker: Asker) -> list[answers.Project]:
        return [self.project()]

    async def subscribe(self, scope: Scope) -> AsyncIterator[answers.Happening]:
        queue: asyncio.Queue[answers.Happening] = asyncio.Queue()
        self.listeners.append(queue)
        return self._happenings(queue)

    async def _happenings(self, queue: "asyncio.Queue[answers.Happening]") -> AsyncIterator[answers.Happening]:
        try:
            while True:
                yield await queue.get()
        finally:
            self.listeners.remove(queue)

    async def continuation(
        self, scope: Scope, checkpoint: str | None, *, budget: int, asker: Asker
    ) -> answers.Continuation:
        self.calls.append(("continuation", checkpoint, budget, asker))
        found = self.find(checkpoint or "@")
        drift = answers.Drift(modified=(b"src/a.py",))
        return answers.Continuation(checkpoint=found.id, pack="You were fixing the parser.\n", drift=drift)

    async def rebuild(self, progress: Progress) -> answers.Rebuilt:
        progress("vaults", 1, 1)
        return answers.Rebuilt(projects=1, checkpoints=3, sessions=12)
