"""What the engine must offer to clients."""

from collections.abc import AsyncIterator
from typing import Protocol

from checkpointd.engine import answers
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


class Operations(Protocol):
    """Everything that clients can ask for. All of it runs on the event loop; errors are `engine.errors`.

    A checkpoint is named by id, unique id prefix, name, or `@`, `@1` (newest, one before, by sequence of the work
    tree), `@session-start`; `SESSION:7` names a turn. An id that the scope's project does not hold is looked for in
    all projects. A call that was started is finished, whether or not its client is still there.
    """

    async def status(self) -> answers.Overview:
        """The state of everything, from memory: never waits for a disk, a child or a lock."""
        ...

    def alarm(self) -> str | None:
        """One line that every client is told while protection is off or hurt; None while all is well. Costs nothing."""
        ...

    async def shutdown(self, asker: Asker) -> None:
        """Begins to stop and returns at once; what was started is finished first."""
        ...

    async def agent_of(self, pid: int) -> AgentProcess | None:
        """The coding agent whose process tree `pid` belongs to."""
        ...

    def agents_may(self, action: Guarded) -> bool:
        """Whether the user's config lets agents do this."""
        ...

    async def save(self, scope: Scope, request: SaveRequest, asker: Asker, progress: Progress) -> answers.Checkpoint:
        """Makes a manual checkpoint. Makes a project of the scope's directory where it is none yet."""
        ...

    async def checkpoints(self, scope: Scope, request: ListRequest) -> list[answers.Checkpoint]:
        """Checkpoints, newest first."""
        ...

    async def show(self, scope: Scope, checkpoint: str) -> answers.Shown:
        """One checkpoint whole."""
        ...

    async def document(self, scope: Scope, checkpoint: str, document: Document) -> str:
        """The text of one of a checkpoint's documents."""
        ...

    async def contents(
        self, scope: Scope, checkpoint: str, path: bytes, *, offset: int, limit: int
    ) -> answers.Contents:
        """A part of a captured file. `path` is absolute, or relative to the project's root."""
        ...

    async def diff(
        self, scope: Scope, old: str, new: str | None, paths: tuple[bytes, ...], *, patch: bool
    ) -> list[answers.Difference]:
        """What differs between two checkpoints; `new` None: the work tree as it is now. Sorted by path.

        `paths` as in RestoreRequest; a folder means what is below it. `patch` asks for unified diffs, at most
        4 MiB of them in all: past that `patch` is None.
        """
        ...

    async def last(self, scope: Scope) -> answers.LastTurn:
        """What the agent just did. Raises NotFound where no session has a turn."""
        ...

    async def plan_restore(
        self, scope: Scope, request: RestoreRequest, asker: Asker, progress: Progress
    ) -> answers.RestorePlan:
        """What a restore would do. The plan is kept for ten minutes."""
        ...

    async def plan_undo(self, scope: Scope, asker: Asker, progress: Progress) -> answers.RestorePlan:
        """What taking back the last restore would do. Raises NotFound where there was none."""
        ...

    async def apply_restore(self, plan: str, asker: Asker, progress: Progress) -> answers.Restored:
        """Carries out exactly that plan. Raises NotFound when it expired or was carried out, and Conflict when a
        planned path changed since."""
        ...

    async def pin(self, scope: Scope, checkpoint: str, asker: Asker) -> answers.Checkpoint:
        """Never removed by itself from now on."""
        ...

    async def unpin(self, scope: Scope, checkpoint: str, asker: Asker) -> answers.Checkpoint:
        """Kept as the policy says from now on."""
        ...

    async def plan_forget(self, scope: Scope, what: str, asker: Asker) -> answers.ForgetPlan:
        """What forgetting a checkpoint, a session or a project would remove. The plan is kept for ten minutes."""
        ...

    async def apply_forget(self, plan: str, asker: Asker, progress: Progress) -> answers.Forgotten:
        """Carries out exactly that plan; the bytes are gone when it returns."""
        ...

    async def sessions(self, scope: Scope, *, limit: int) -> list[answers.Session]:
        """Sessions that worked in the scope, newest first."""
        ...

    async def projects(self) -> list[answers.Project]:
        """All projects, the one worked in last first."""
        ...

    async def pause(self, scope: Scope, asker: Asker) -> list[answers.Project]:
        """Off from now on, also after a restart; answers with the projects concerned. `all` stops everything,
        projects to come as well."""
        ...

    async def resume(self, scope: Scope, asker: Asker) -> list[answers.Project]:
        """On again; answers with the projects concerned."""
        ...

    async def subscribe(self, scope: Scope) -> AsyncIterator[answers.Happening]:
        """What happens from now on, until the iteration is cancelled; nothing after the return is missed.

        Bounded by itself: a reader that is too slow loses its subscription, not the daemon its memory.
        """
        ...

    async def continuation(
        self, scope: Scope, checkpoint: str | None, *, budget: int, asker: Asker
    ) -> answers.Continuation:
        """The resume pack of a checkpoint, of the right one where none is named, within `budget` tokens."""
        ...

    async def rebuild(self, progress: Progress) -> answers.Rebuilt:
        """Makes the catalog anew from vaults and logs."""
        ...
