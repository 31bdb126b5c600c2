"""The handlers: each takes one method's parameters from the wire to the engine and its answer back."""

import os
from collections.abc import AsyncGenerator, AsyncIterator

from checkpointd.api import wire
from checkpointd.api.dispatch import Call, Dispatcher
from checkpointd.api.operations import Operations
from checkpointd.engine import answers
from checkpointd.engine.requests import Asker, Guarded
from ckpt.contract import methods
from ckpt.contract.errors import CkptError
from ckpt.contract.version import PROTOCOL, __version__

_PART = 4 << 20  # bytes of a file in one answer; base64 and the envelope stay far below the limit of a line
_MOST_TOKENS = 100_000
_MOST_SESSIONS = 5000


class Handlers:
    """Joins the methods of the contract with the engine's operations."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def register(self, dispatcher: Dispatcher) -> None:
        """Adds every method of the contract."""
        dispatcher.add(methods.HELLO, self.hello)
        dispatcher.add(methods.STATUS, self.status)
        dispatcher.add(methods.SHUTDOWN, self.shutdown)
        dispatcher.add(methods.SAVE, self.save)
        dispatcher.add(methods.LIST, self.list_checkpoints)
        dispatcher.add(methods.SHOW, self.show)
        dispatcher.add(methods.SHOW_DOCUMENT, self.show_document)
        dispatcher.add(methods.SHOW_FILE, self.show_file)
        dispatcher.add(methods.DIFF, self.diff)
        dispatcher.add(methods.LAST, self.last)
        dispatcher.add(methods.RESTORE_PLAN, self.plan_restore)
        dispatcher.add(methods.RESTORE_APPLY, self.apply_restore)
        dispatcher.add(methods.UNDO_PLAN, self.plan_undo)
        dispatcher.add(methods.PIN, self.pin)
        dispatcher.add(methods.UNPIN, self.unpin)
        dispatcher.add(methods.FORGET_PLAN, self.plan_forget)
        dispatcher.add(methods.FORGET_APPLY, self.apply_forget)
        dispatcher.add(methods.SESSIONS, self.sessions)
        dispatcher.add(methods.PROJECTS, self.projects)
        dispatcher.add(methods.PAUSE, self.pause)
        dispatcher.add(methods.RESUME, self.resume)
        dispatcher.add(methods.SUBSCRIBE, self.subscribe)
        dispatcher.add(methods.CONTINUE, self.continuation)
        dispatcher.add(methods.REBUILD, self.rebuild)

    async def hello(self, params: methods.HelloParams, call: Call) -> methods.Hello:
        call.connection.protocol = params["protocol"]
        call.connection.asking = params.get("asking")
        return methods.Hello(version=__version__, protocol=PROTOCOL, pid=os.getpid(), alarm=self._operations.alarm())

    async def status(self, params: methods.Nothing, call: Call) -> methods.Status:
        overview = await self._operations.status()
        return wire.status(overview, version=__version__, protocol=PROTOCOL, pid=os.getpid())

    async def shutdown(self, params: methods.Nothing, call: Call) -> methods.Stopping:
        await self._operations.shutdown(await self._guarded("shutdown", call))
        return methods.Stopping(pid=os.getpid())

    async def save(self, params: methods.SaveParams, call: Call) -> methods.Saved:
        request = wire.save_request(params)
        return wire.saved(await self._operations.save(wire.scope(params), request, _asker(call), call.progress))

    async def list_checkpoints(self, params: methods.ListParams, call: Call) -> methods.Rows:
        found = await self._operations.checkpoints(wire.scope(params), wire.list_request(params))
        return methods.Rows(checkpoints=[wire.row(each) for each in found])

    async def show(self, params: methods.CheckpointParams, call: Call) -> methods.Shown:
        return wire.shown(await self._operations.show(wire.scope(params), params["checkpoint"]))

    async def show_document(self, params: methods.DocumentParams, call: Call) -> methods.Document:
        text = await self._operations.document(wire.scope(params), params["checkpoint"], params["document"])
        return methods.Document(text=text)

    async def show_file(self, params: methods.FileParams, call: Call) -> methods.File:
        path = wire.path("path", params["path"])
        offset = wire.number("offset", params.get("offset", 0), 0, 1 << 62)
        found = await self._operations.contents(
            wire.scope(params), params["checkpoint"], path, offset=offset, limit=_PART
        )
        return wire.contents(found)

    async def diff(self, params: methods.DiffParams, call: Call) -> methods.Changes:
        found = await self._operations.diff(
            wire.scope(params),
            params["old"],
            params.get("new"),
            wire.paths(params.get("paths", [])),
            patch=params.get("patch", False),
        )
        return methods.Changes(changes=wire.changes(found))

    async def last(self, params: methods.ScopeParams, call: Call) -> methods.Last:
        return wire.last(await self._operations.last(wire.scope(params)))

    async def plan_restore(self, params: methods.RestoreParams, call: Call) -> methods.Planned:
        request = wire.restore_request(params)
        found = await self._operations.plan_restore(wire.scope(params), request, _asker(call), call.progress)
        return methods.Planned(plan=wire.plan(found))

    async def plan_undo(self, params: methods.ScopeParams, call: Call) -> methods.Planned:
        found = await self._operations.plan_undo(wire.scope(params), _asker(call), call.progress)
        return methods.Planned(plan=wire.plan(found))

    async def apply_restore(self, params: methods.ApplyParams, call: Call) -> methods.Restored:
        # A person who read the plan on a terminal may be sitting inside an agent's; `--yes` there is the agent's.
        asker = _asker(call) if params.get("interactive", False) else await self._guarded("restore", call)
        return wire.restored(await self._operations.apply_restore(params["plan"], asker, call.progress))

    async def pin(self, params: methods.CheckpointParams, call: Call) -> methods.Pinned:
        return _pinned(await self._operations.pin(wire.scope(params), params["checkpoint"], _asker(call)))

    async def unpin(self, params: methods.CheckpointParams, call: Call) -> methods.Pinned:
        return _pinned(await self._operations.unpin(wire.scope(params), params["checkpoint"], _asker(call)))

    async def plan_forget(self, params: methods.ForgetParams, call: Call) -> methods.ForgetPlanned:
        asker = await self._guarded("forget", call)
        found = await self._operations.plan_forget(wire.scope(params), params["what"], asker)
        return methods.ForgetPlanned(plan=wire.forget_plan(found))

    async def apply_forget(self, params: methods.ApplyParams, call: Call) -> methods.Forgotten:
        asker = await self._guarded("forget", call)
        done = await self._operations.apply_forget(params["plan"], asker, call.progress)
        return methods.Forgotten(forgotten=list(done.checkpoints), freed_bytes=done.size)

    async def sessions(self, params: methods.SessionsParams, call: Call) -> methods.Sessions:
        limit = wire.number("limit", params.get("limit", 20), 1, _MOST_SESSIONS)
        found = await self._operations.sessions(wire.scope(params), limit=limit)
        return methods.Sessions(sessions=[wire.session(each) for each in found])

    async def projects(self, params: methods.Nothing, call: Call) -> methods.Projects:
        return _projects(await self._operations.projects())

    async def pause(self, params: methods.ScopeParams, call: Call) -> methods.Projects:
        asker = await self._guarded("pause", call)
        return _projects(await self._operations.pause(wire.scope(params), asker))

    async def resume(self, params: methods.ScopeParams, call: Call) -> methods.Projects:
        return _projects(await self._operations.resume(wire.scope(params), _asker(call)))

    async def subscribe(self, params: methods.ScopeParams, call: Call) -> methods.Subscribed:
        if call.connection.subscription is not None:
            raise CkptError("refused", "This connection has a subscription.", hint="Open another one.")
        happenings = await self._operations.subscribe(wire.scope(params))
        call.connection.subscription = (call.id, _on_the_wire(happenings))
        return methods.Subscribed(subscribed=True)

    async def continuation(self, params: methods.ContinueParams, call: Call) -> methods.Continuation:
        budget = wire.number("budget", params.get("budget", 2000), 100, _MOST_TOKENS)
        found = await self._operations.continuation(
            wire.scope(params), params.get("checkpoint"), budget=budget, asker=_asker(call)
        )
        return wire.continuation(found)

    async def rebuild(self, params: methods.Nothing, call: Call) -> methods.Rebuilt:
        return wire.rebuilt(await self._operations.rebuild(call.progress))

    async def _guarded(self, action: Guarded, call: Call) -> Asker:
        """Who asks, if they may: agents may not, unless the user's config says so."""
        pid = call.connection.peer.pid
        if pid <= 0:
            raise CkptError("refused", f"`{action}` needs to know which process asks, and the kernel does not say.",
                            hint="Ask from the machine's own shell, outside of any container.")  # fmt: skip
        agent = await self._operations.agent_of(pid)
        if agent is None:
            return _asker(call)
        if not self._operations.agents_may(action):
            raise CkptError(
                "refused",
                f"{agent.agent} (pid {agent.pid}) asks for `{action}`, which agents may not.",
                hint=f"Do it in a terminal of your own, or allow it with `agents: {{may: [{action}]}}` in the config.",
            )
        said = _asker(call)
        return Asker(uid=said.uid, pid=pid, agent=agent.agent, session=agent.session or said.session)


def _asker(call: Call) -> Asker:
    peer, asking = call.connection.peer, call.connection.asking
    if asking is None:
        return Asker(uid=peer.uid, pid=peer.pid)
    return Asker(uid=peer.uid, pid=peer.pid, agent=asking["agent"], session=asking["session"])


def _pinned(value: answers.Checkpoint) -> methods.Pinned:
    return methods.Pinned(checkpoint=wire.record(value.record), pinned=value.pinned)


def _projects(values: list[answers.Project]) -> methods.Projects:
    return methods.Projects(projects=[wire.project(each) for each in values])


async def _on_the_wire(happenings: AsyncIterator[answers.Happening]) -> AsyncGenerator[methods.Happening, None]:
    try:
        async for each in happenings:
            yield wire.happening(each)
    finally:
        # `async for` leaves an iterator that it did not exhaust open, and with it the engine's side.
        if isinstance(happenings, AsyncGenerator):
            await happenings.aclose()
