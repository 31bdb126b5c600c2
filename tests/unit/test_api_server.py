"""The server against clients of every kind."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from checkpointd.api.server import Limits
from checkpointd.engine.answers import Happening
from ckpt.contract import frames
from support.fake_operations import NOW
from support.served import Served, private_home, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as made:
        yield made


def test_several_requests_share_a_connection(served: Served) -> None:
    with served.client() as client:
        assert client.hello()["result"]["pid"] == os.getpid()
        assert len(client.ask("list", cwd="/p")["result"]["checkpoints"]) == 3
        assert client.ask("status")["result"]["daemon"]["pid"] == os.getpid()


def test_requests_that_arrive_together_are_answered_in_order(served: Served) -> None:
    with served.client() as client:
        lines = [{"jsonrpc": "2.0", "id": n, "method": "status"} for n in range(20)]
        client.send(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        assert [client.read()["id"] for _ in lines] == list(range(20))


def test_a_request_may_come_byte_by_byte(served: Served) -> None:
    with served.client() as client:
        for byte in b'{"jsonrpc":"2.0","id":1,"method":"status"}\n':
            client.send(bytes([byte]))
        assert client.read()["id"] == 1


def test_garbage_is_answered_and_the_connection_stays(served: Served) -> None:
    with served.client() as client:
        client.send(b"\x00\xff garbage\n")
        assert client.read()["error"]["data"]["code"] == "parse-error"
        assert "result" in client.hello()


def test_a_line_without_end_is_refused(served: Served) -> None:
    with served.client() as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it hangs up while we are still sending
            client.send(b"x" * (frames.MAX_REQUEST * 3))
        answer = client.read()
        assert answer is None or answer["error"]["data"]["code"] == "too-large"
    with served.client() as client:
        assert "result" in client.hello()


def test_a_line_of_the_largest_size_is_taken(served: Served) -> None:
    with served.client() as client:
        head = b'{"jsonrpc":"2.0","id":1,"method":"status","params":{"filler":"'
        tail = b'"}}\n'
        client.send(head + b"x" * (frames.MAX_REQUEST - len(head) - len(tail)) + tail)
        assert client.read()["id"] == 1


def test_a_half_closed_client_gets_its_answer(served: Served) -> None:
    with served.client() as client:
        client.send(b'{"jsonrpc":"2.0","id":1,"method":"status"}\n')
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read()["id"] == 1
        assert client.read() is None


def test_an_unfinished_line_is_no_request(served: Served) -> None:
    with served.client() as client:
        client.send(b'{"jsonrpc":"2.0","id":1,"method":"shutdown"}')
        client.socket.shutdown(socket.SHUT_WR)
        assert client.read() is None
    assert not served.operations.stopping.is_set()


def test_what_was_started_is_finished_when_its_client_leaves(served: Served) -> None:
    served.soon(served.operations.gate.clear)
    with served.client() as client:
        client.hello()
        client.send(b'{"jsonrpc":"2.0","id":9,"method":"save","params":{"cwd":"/p","key":"abandoned"}}\n')
        assert client.read()["method"] == "progress"
    served.soon(served.operations.gate.set)
    served.run(served.dispatcher.drain(5))
    assert "abandoned" in served.operations.finished


def test_a_client_that_reads_nothing_blocks_nobody(served: Served) -> None:
    with served.client() as deaf, served.client() as other:
        deaf.send(b'{"jsonrpc":"2.0","id":1,"method":"status"}\n' * 5000)
        started = time.monotonic()
        assert "result" in other.hello()
        assert time.monotonic() - started < 5


def test_a_subscription_tells_what_happens(served: Served) -> None:
    with served.client() as client:
        client.hello()
        assert client.ask("subscribe", cwd="/p", all=True)["result"] == {"subscribed": True}
        happening = Happening(at=NOW, kind="checkpoint", text="saved")
        served.soon(lambda: served.operations.listeners[0].put_nowait(happening))
        told = client.read()
        assert told["method"] == "event"
        assert told["params"]["event"]["text"] == "saved"
        assert client.ask("subscribe", cwd="/p")["error"]["data"]["code"] == "refused"
    _until(lambda: not served.operations.listeners)


def _until(condition: "object") -> None:
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_subscriber_that_leaves_at_once_leaves_nothing_behind(served: Served) -> None:
    for _ in range(20):
        with served.client() as client:
            client.hello()
            client.send(b'{"jsonrpc":"2.0","id":5,"method":"subscribe","params":{"cwd":"/p"}}\n')
    _until(lambda: not served.server._clients and not served.operations.listeners)


def test_a_subscriber_that_does_not_keep_up_loses_its_subscription() -> None:
    with serving(limits=Limits(queue=1 << 16, slow=0.5)) as served, served.client() as client:
        client.hello()
        client.ask("subscribe", cwd="/p")
        happening = Happening(at=NOW, kind="problem", text="x" * 10_000)
        served.soon(lambda: [served.operations.listeners[0].put_nowait(happening) for _ in range(500)])
        _until(lambda: not served.operations.listeners)
        with served.client() as other:
            assert "result" in other.hello()


def test_a_client_that_says_nothing_is_let_go() -> None:
    with serving(limits=Limits(first_line=0.1)) as served:
        with served.client() as silent:
            assert silent.read() is None
        with served.client() as dripping:
            dripping.send(b'{"jsonrpc"')
            assert dripping.read() is None
        with served.client() as polite:
            assert "result" in polite.hello()


def test_past_its_limit_of_clients_the_server_is_busy_and_recovers() -> None:
    with serving(limits=Limits(connections=20)) as served:
        clients = [served.client() for _ in range(25)]
        for client in clients[20:]:
            assert client.read()["error"]["data"]["code"] == "busy"
        assert "result" in clients[0].hello()
        for client in clients:
            client.__exit__()
        _until(lambda: not served.server._clients)
        with served.client() as client:
            assert "result" in client.hello()


def test_six_hundred_clients_at_once() -> None:
    with serving() as served:
        clients = [served.client() for _ in range(600)]
        answers = [client.hello() for client in clients[:512]]
        assert all("result" in answer for answer in answers)
        assert clients[599].read()["error"]["data"]["code"] == "busy"
        for client in clients:
            client.__exit__()


def test_closing_with_clients_is_quiet_and_finishes_what_runs(capfd: pytest.CaptureFixture[str]) -> None:
    with private_home() as home:
        served = Served(home)
        idle, busy = served.client(), served.client()
        idle.hello()
        busy.hello()
        served.soon(served.operations.gate.clear)
        busy.send(b'{"jsonrpc":"2.0","id":5,"method":"save","params":{"cwd":"/p","key":"last"}}\n')
        assert busy.read()["method"] == "progress"
        served.loop.call_soon_threadsafe(lambda: served.loop.call_later(0.05, served.operations.gate.set))
        served.stop()
        assert busy.read()["result"]["checkpoint"]["trigger"] == "manual"
        assert busy.read() is None
        assert idle.read() is None
        for client in (idle, busy):
            client.__exit__()
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_another_user_is_not_served(served: Served) -> None:
    # Root opens the way that file modes close; the kernel's word on the peer is what is tested here.
    for folder in (served.places.socket.parent, *served.places.socket.parent.parents):
        if folder.is_relative_to(served.home):
            folder.chmod(0o755)
    served.places.socket.chmod(0o666)
    code = (
        "import os, socket, sys; os.setgid(12345); os.setuid(12345);"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1]);\n"
        'try:\n s.sendall(b\'{"jsonrpc":"2.0","id":1,"method":"status"}\\n\'); print(s.recv(100))\n'
        "except (BrokenPipeError, ConnectionResetError): print(b'')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(served.places.socket)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "b''"


def test_a_part_of_a_file_is_asked_for_at_a_time(served: Served) -> None:
    with served.client() as client:
        client.hello()
        answer = client.ask("show.file", cwd="/p", checkpoint="@", path="a", offset=6)
        assert answer["result"] == {"data": "J2hlbGxvJykK", "size": 15, "mode": 0o100644}
