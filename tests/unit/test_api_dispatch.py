"""The dispatcher: whatever the line, one answer, and the daemon lives on."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.api.dispatch import Connection, Dispatcher
from checkpointd.api.handlers import Handlers
from checkpointd.api.peer import Peer
from checkpointd.engine import errors
from checkpointd.engine.requests import AgentProcess
from ckpt.contract.version import PROTOCOL, __version__
from support.fake_operations import FakeOperations

Scene = Callable[["Desk"], Coroutine[Any, Any, None]]


class Desk:
    """A dispatcher with one client, without any socket."""

    def __init__(self, seconds: float = 20.0) -> None:
        self.operations = FakeOperations()
        self.dispatcher = Dispatcher(seconds=seconds)
        Handlers(self.operations).register(self.dispatcher)
        self.told: list[dict[str, Any]] = []
        self.connection = Connection(Peer(1000, 42), lambda line: self.told.append(json.loads(line)))

    async def raw(self, line: bytes) -> dict[str, Any]:
        answer = await self.dispatcher.answer(line, self.connection)
        assert answer is not None
        assert answer.count(b"\n") == 1
        loaded = json.loads(answer)
        assert isinstance(loaded, dict)
        return loaded

    async def ask(self, method: str, **params: object) -> dict[str, Any]:
        request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        answer = await self.raw(json.dumps(request).encode() + b"\n")
        assert answer["id"] == 7
        return answer

    async def hello(self, protocol: int = PROTOCOL, **more: object) -> dict[str, Any]:
        return await self.ask("hello", version=__version__, protocol=protocol, **more)

    async def word(self, method: str, **params: object) -> str:
        answer = await self.ask(method, **params)
        word = answer["error"]["data"]["code"]
        assert isinstance(word, str)
        return word


def play(scene: Scene, **options: Any) -> None:
    async def all_of_it() -> None:
        await asyncio.wait_for(scene(Desk(**options)), 20)

    asyncio.run(all_of_it())


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"\n", "parse-error"),
        (b"garbage\n", "parse-error"),
        (b"\xff\xfe\x00\n", "parse-error"),
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n', "parse-error"),
        (b"[" * 500_000 + b"\n", "invalid-request"),
        (b'{"jsonrpc":"2.0","id":1,"method":"status","params":' + b"[" * 500_000 + b"\n", "parse-error"),
        (b"[]\n", "invalid-request"),
        (b"null\n", "invalid-request"),
        (b'{"id":1,"method":"status"}\n', "invalid-request"),
        (b'{"jsonrpc":"1.0","id":1,"method":"status"}\n', "invalid-request"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"status"}\n', "invalid-request"),
        (b'{"jsonrpc":"2.0","id":1,"method":5}\n', "invalid-request"),
        (b'{"jsonrpc":"2.0","id":1,"method":"nonsense"}\n', "unknown-method"),
        (b'{"jsonrpc":"2.0","id":1,"method":"hello","params":null}\n', "invalid-params"),
        (b'{"jsonrpc":"2.0","id":1,"method":"hello","params":[1]}\n', "invalid-params"),
    ],
    ids=lambda value: value[:60].decode("latin-1") if isinstance(value, bytes) else value,
)
def test_a_bad_line_is_answered_with_its_error(line: bytes, word: str) -> None:
    async def scene(desk: Desk) -> None:
        answer = await desk.raw(line)
        assert answer["error"]["data"]["code"] == word
        assert "result" in await desk.ask("status")

    play(scene)


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=150)
def test_no_bytes_end_the_dispatcher(line: bytes) -> None:
    async def scene(desk: Desk) -> None:
        answer = await desk.dispatcher.answer(line + b"\n", desk.connection)
        assert answer is None or answer.endswith(b"\n")

    play(scene)


def test_an_error_names_the_id_of_its_request() -> None:
    async def scene(desk: Desk) -> None:
        answer = await desk.raw(b'{"id":"mine","method":"status"}\n')
        assert answer["id"] == "mine"

    play(scene)


def test_a_notification_has_no_answer() -> None:
    async def scene(desk: Desk) -> None:
        line = b'{"jsonrpc":"2.0","method":"status"}\n'
        assert await desk.dispatcher.answer(line, desk.connection) is None

    play(scene)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"cwd": "/p", "limit": "many"}, ["`limit`", "int", "str"]),
        ({"limit": 3}, ["`cwd`"]),
        ({"cwd": "/p", "limit": 0}, ["`limit`", "between"]),
        ({"cwd": "/p", "trigger": "whim"}, ["`trigger`", "whim"]),
        ({"cwd": "/p", "since": "yesterday"}, ["`since`", "yesterday"]),
        ({"cwd": "/p", "since": "2026-01-01T00:00:00"}, ["`since`", "offset"]),
        ({"cwd": "relative"}, ["`cwd`", "absolute"]),
        ({"cwd": "/p/../../etc"}, ["`cwd`"]),
        ({"cwd": '"/unfinished'}, ["`cwd`", "unterminated"]),
        ({"cwd": '"/nul\\000"'}, ["`cwd`"]),
    ],
)
def test_a_bad_parameter_is_named(params: dict[str, object], words: list[str]) -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        answer = await desk.ask("list", **params)
        assert answer["error"]["data"]["code"] == "invalid-params"
        for word in words:
            assert word in answer["error"]["message"]

    play(scene)


def test_a_path_that_leads_out_is_refused_before_the_engine_sees_it() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        assert await desk.word("restore.plan", cwd="/p", checkpoint="@", paths=["../../etc/passwd"]) == "invalid-params"
        assert await desk.word("show.file", cwd="/p", checkpoint="@", path="a/../../b") == "invalid-params"
        assert desk.operations.calls == []

    play(scene)


def test_unknown_fields_are_ignored_so_that_old_and_new_can_talk() -> None:
    async def scene(desk: Desk) -> None:
        assert "result" in await desk.hello(mood="good")
        assert "result" in await desk.ask("list", cwd="/p", flavour="new")

    play(scene)


def test_status_and_shutdown_need_no_hello_and_other_methods_do() -> None:
    async def scene(desk: Desk) -> None:
        assert "result" in await desk.ask("status")
        assert "result" in await desk.ask("shutdown")
        assert await desk.word("list", cwd="/p") == "invalid-request"

    play(scene)


def test_a_client_of_another_protocol_gets_the_versions_and_nothing_but_status_and_shutdown() -> None:
    async def scene(desk: Desk) -> None:
        answer = await desk.hello(protocol=PROTOCOL + 1)
        assert answer["result"]["protocol"] == PROTOCOL
        assert answer["result"]["version"] == __version__
        refusal = await desk.ask("list", cwd="/p")
        assert refusal["error"]["data"] == {"code": "incompatible", "hint": "`ckpt restart`"}
        assert "result" in await desk.ask("status")
        assert "result" in await desk.ask("shutdown")

    play(scene)


class _Stranger(errors.NotFound):
    pass


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        (errors.NotFound("no", "way out"), "not-found"),
        (errors.Ambiguous("no", "way out"), "ambiguous"),
        (errors.Conflict("no", "way out"), "conflict"),
        (errors.Refused("no", "way out"), "refused"),
        (errors.Busy("no", "way out"), "busy"),
        (errors.Failed("no", "way out"), "failed"),
        (errors.EngineError("no", "way out"), "failed"),
        (_Stranger("no", "way out"), "not-found"),
    ],
)
def test_an_error_of_the_engine_keeps_its_words(failure: errors.EngineError, word: str) -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        desk.operations.failure = failure
        answer = await desk.ask("save", cwd="/p", key="k")
        assert answer["error"]["message"] == "no"
        assert answer["error"]["data"] == {"code": word, "hint": "way out"}

    play(scene)


def test_a_full_disk_is_no_bug_and_names_the_file() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        desk.operations.failure = OSError(28, "No space left on device", "/vault/pack")
        answer = await desk.ask("save", cwd="/p", key="k")
        assert answer["error"]["data"]["code"] == "failed"
        assert answer["error"]["message"] == "/vault/pack: No space left on device"

    play(scene)


def test_a_bug_is_internal_and_its_traceback_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        desk.operations.failure = ZeroDivisionError("oops")
        assert await desk.word("save", cwd="/p", key="k") == "internal"
        assert "result" in await desk.ask("status")

    with caplog.at_level(logging.ERROR):
        play(scene)
    assert "ZeroDivisionError: oops" in caplog.text


def test_a_request_past_its_time_is_answered_and_goes_on() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        desk.operations.gate.clear()
        assert await desk.word("save", cwd="/p", key="late") == "timed-out"
        desk.operations.gate.set()
        await desk.dispatcher.drain(5)
        assert desk.operations.finished == ["late"]

    play(scene, seconds=0.05)


def test_a_cancelled_wait_does_not_cancel_what_was_started() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        desk.operations.gate.clear()
        asked = asyncio.ensure_future(desk.ask("save", cwd="/p", key="left"))
        await desk.operations.asked(1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        desk.operations.gate.set()
        await desk.dispatcher.drain(5)
        assert desk.operations.finished == ["left"]

    play(scene)


def test_progress_is_told_with_the_id_of_its_request() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        await desk.ask("save", cwd="/p", key="k")
        params = {"id": 7, "stage": "reading files", "done": 1, "total": 12}
        assert desk.told == [{"jsonrpc": "2.0", "method": "progress", "params": params}]

    play(scene)


def test_too_many_running_requests_are_busy_but_status_answers() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        desk.operations.gate.clear()
        running = [asyncio.ensure_future(desk.ask("save", cwd="/p", key=str(n))) for n in range(64)]
        await desk.operations.asked(64)
        assert await desk.word("list", cwd="/p") == "busy"
        assert "result" in await desk.ask("status")
        desk.operations.gate.set()
        assert all("result" in each for each in await asyncio.gather(*running))

    play(scene)


def test_an_answer_past_the_limit_is_an_error() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        desk.operations.records[0] = msgspec.structs.replace(desk.operations.records[0], reason="x" * (17 << 20))
        assert await desk.word("list", cwd="/p") == "too-large"

    play(scene)


@pytest.mark.parametrize(
    ("action", "method", "params"),
    [
        ("forget", "forget.plan", {"cwd": "/p", "what": "@"}),
        ("forget", "forget.apply", {"plan": "forget-0", "interactive": True}),
        ("shutdown", "shutdown", {}),
        ("pause", "pause", {"cwd": "/p"}),
        ("restore", "restore.apply", {"plan": "plan-0"}),
    ],
)
def test_an_agent_is_refused_what_is_guarded_unless_the_config_lets_it(
    action: str, method: str, params: dict[str, object]
) -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        await desk.ask("restore.plan", cwd="/p", checkpoint="@")
        await desk.ask("forget.plan", cwd="/p", what="@")
        desk.operations.agents[42] = AgentProcess(agent="claude", pid=40, session="s1")
        refusal = await desk.ask(method, **params)
        assert refusal["error"]["data"]["code"] == "refused"
        assert "claude" in refusal["error"]["message"]
        assert action in refusal["error"]["data"]["hint"]
        desk.operations.may.add(action)
        assert "result" in await desk.ask(method, **params)

    play(scene)


def test_what_an_agent_was_allowed_carries_its_session() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello(asking={"agent": "", "session": "said"})
        desk.operations.agents[42] = AgentProcess(agent="claude", pid=40, session="s1")
        desk.operations.may.add("pause")
        await desk.ask("pause", cwd="/p")
        asker = desk.operations.calls[-1][-1]
        assert (asker.agent, asker.session, asker.pid) == ("claude", "s1", 42)  # type: ignore[attr-defined]

    play(scene)


def test_a_person_on_an_agents_terminal_may_restore() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        desk.operations.agents[42] = AgentProcess(agent="claude", pid=40)
        planned = await desk.ask("restore.plan", cwd="/p", checkpoint="@")
        assert "result" in await desk.ask("restore.apply", plan=planned["result"]["plan"]["id"], interactive=True)

    play(scene)


def test_a_process_that_the_kernel_does_not_name_is_refused_what_is_guarded() -> None:
    async def scene(desk: Desk) -> None:
        desk.connection = Connection(Peer(1000, 0), lambda line: None)
        await desk.hello()
        assert await desk.word("pause", cwd="/p") == "refused"
        assert "result" in await desk.ask("list", cwd="/p")

    play(scene)


def test_a_plan_is_carried_out_once() -> None:
    async def scene(desk: Desk) -> None:
        await desk.hello()
        planned = await desk.ask("restore.plan", cwd="/p", checkpoint="@", paths=["src", "/p/x"], to="/tmp/out")
        plan = planned["result"]["plan"]["id"]
        assert "result" in await desk.ask("restore.apply", plan=plan)
        assert await desk.word("restore.apply", plan=plan) == "not-found"
        request = next(call[2] for call in desk.operations.calls if call[0] == "plan_restore")
        assert request.paths == (b"src", b"/p/x")  # type: ignore[attr-defined]
        assert request.to == b"/tmp/out"  # type: ignore[attr-defined]

    play(scene)
