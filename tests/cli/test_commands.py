"""The commands beyond what a transcript can show: JSON, terminals, bytes, pipes, interruptions."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from checkpointd.engine import answers, errors
from checkpointd.engine.requests import AgentProcess
from ckpt.arguments import COMMANDS
from ckpt.cli import RUN
from support.fake_operations import NOW, ROOT
from support.served import DEADLINE, Served, serving


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as made:
        made.operations.plan = answers.RestorePlan(
            id="",
            target=made.operations.records[0],
            root=ROOT,
            restore=(answers.PlannedPath(path=b"src/a.py", why="gone"),),
        )
        yield made


def on_a_terminal(
    served: Served, *arguments: str, typed: bytes = b"", env: dict[str, str] | None = None
) -> tuple[int, str]:
    """The exit status and all that a terminal shows, both streams."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ckpt.cli", *arguments],
        env={**served.env, "TERM": "xterm", "PAGER": "cat", **(env or {})},
        cwd=served.home, stdin=theirs, stdout=theirs, stderr=theirs,
    ) as child:  # fmt: skip
        os.close(theirs)
        os.write(ours, typed)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # EIO: the child closed its end
                break
            if not part:
                break
            shown += part
        os.close(ours)
        return child.wait(DEADLINE), shown.decode().replace("\r\n", "\n")


def until(condition: Callable[[], object], child: "subprocess.Popen[bytes]") -> None:
    """Returns once it holds; fails when the child ends before."""
    while not condition():
        assert child.poll() is None
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["status"], {"daemon", "agents", "projects", "sessions", "budgets", "problems"}),
        (["status", "--check"], {"daemon", "agents", "projects", "sessions", "budgets", "problems"}),
        (["save", "x"], {"checkpoint"}),
        (["list"], {"checkpoints"}),
        (["show", "@"], {"checkpoint", "status", "pinned", "coverage"}),
        (["show", "@", "--coverage"], {"coverage"}),
        (["show", "@", "--doc"], {"text"}),
        (["show", "@", "--file", "a"], {"path", "mode", "size", "data"}),
        (["diff", "@"], {"changes"}),
        (["last"], {"agent", "session_id", "turn", "request", "answer", "started_at", "ended_at", "changes", "tests",
                    "checkpoint"}),
        (["restore", "@", "--dry-run"], {"plan", "applied", "undo"}),
        (["restore", "@", "--yes"], {"plan", "applied", "undo", "failed"}),
        (["undo", "--yes"], {"plan", "applied", "undo", "failed"}),
        (["pin", "@"], {"checkpoint", "pinned"}),
        (["forget", "@", "--yes"], {"plan", "applied", "forgotten", "freed_bytes"}),
        (["sessions"], {"sessions"}),
        (["projects"], {"projects"}),
        (["pause"], {"projects"}),
        (["resume"], {"projects"}),
        (["continue"], {"checkpoint", "drift", "pack", "native_resume"}),
        (["doctor"], {"problems"}),
        (["doctor", "--rebuild"], {"projects", "checkpoints", "sessions", "problems"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_json_is_one_object(served: Served, arguments: list[str], keys: set[str]) -> None:
    done = served.ckpt(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == keys
    assert done.stderr == ""


def test_a_row_of_the_list_has_the_fields_that_scripts_rely_on(served: Served) -> None:
    row = json.loads(served.ckpt("list", "--json").stdout)["checkpoints"][0]
    assert {"id", "name", "title", "created_at", "trigger", "status", "agent", "session_id", "branch", "files_changed",
            "tests"} <= set(row)  # fmt: skip


def test_a_restore_without_a_terminal_needs_a_yes_and_says_so_with_the_plan(served: Served) -> None:
    done = served.ckpt("restore", "@", "--json")
    assert done.returncode == 4
    answer = json.loads(done.stdout)
    assert answer["applied"] is False
    assert answer["plan"]["restore"] == [{"path": "src/a.py", "why": "gone"}]
    assert not [call for call in served.operations.calls if call[0] == "apply_restore"]


def test_on_a_terminal_a_restore_shows_the_plan_and_asks(served: Served) -> None:
    status, shown = on_a_terminal(served, "restore", "@", typed=b"y\n")
    assert status == 0
    assert "restore 1 file\n  src/a.py  gone\n" in shown
    assert "Restore 1 and delete 0? [y/N]" in shown
    assert "1 file restored, 0 deleted\nundo with: ckpt undo\n" in shown


@pytest.mark.parametrize("typed", [b"n\n", b"\n", b"\x04"])
def test_anything_but_a_yes_does_nothing(served: Served, typed: bytes) -> None:
    status, shown = on_a_terminal(served, "restore", "@", typed=typed)
    assert status == 1
    assert "Nothing was done." in shown
    assert not [call for call in served.operations.calls if call[0] == "apply_restore"]


def test_a_plan_that_would_do_nothing_is_done(served: Served) -> None:
    served.operations.plan = answers.RestorePlan(id="", target=served.operations.records[0], root=ROOT, unchanged=3)
    done = served.ckpt("restore", "@")
    assert done.returncode == 0
    assert done.stdout.endswith("unchanged 3 files\nnothing to do\n")


def test_paths_that_no_side_has_are_not_found(served: Served) -> None:
    keep = (answers.PlannedPath(path=b"src/slip.py", why="neither the checkpoint nor the project has it"),)
    served.operations.plan = answers.RestorePlan(id="", target=served.operations.records[0], root=ROOT, keep=keep)
    done = served.ckpt("restore", "@", "src/slip.py")
    assert done.returncode == 3
    assert "neither the checkpoint nor the project has it" in done.stdout


def test_a_plan_that_no_longer_fits_is_a_conflict(served: Served) -> None:
    served.operations.failure = errors.Conflict("src/a.py changed since the plan.", "Look at the new plan.")
    done = served.ckpt("restore", "@", "--yes")
    assert done.returncode == 4
    assert done.stderr == "ckpt: src/a.py changed since the plan.\nhint: Look at the new plan.\n"


def test_an_agent_may_not_restore_with_yes_but_a_person_on_its_terminal_may(served: Served) -> None:
    served.operations.every_peer = AgentProcess(agent="claude", pid=1)
    done = served.ckpt("restore", "@", "--yes")
    assert done.returncode == 1
    assert "which agents may not" in done.stderr
    assert "may: [restore]" in done.stderr
    assert on_a_terminal(served, "restore", "@", typed=b"y\n")[0] == 0


def test_paths_are_those_of_the_directory_one_is_in(served: Served) -> None:
    folder = served.home / "shop"
    folder.mkdir()
    served.ckpt("restore", "@", "src/../a.py", '"caf\\351"', "--dry-run", cwd=folder)
    scope, request = served.operations.calls[-1][1:3]
    assert scope.cwd == os.fsencode(folder)  # type: ignore[attr-defined]
    assert request.paths == (os.fsencode(folder / "a.py"), os.fsencode(folder) + b"/caf\xe9")  # type: ignore[attr-defined]
    served.ckpt("restore", "@", "src/a.py", "--project", "p1", "--to", "out", "--dry-run", cwd=folder)
    scope, request = served.operations.calls[-1][1:3]
    assert request.paths == (b"src/a.py",)  # type: ignore[attr-defined]
    assert request.to == os.fsencode(folder / "out")  # type: ignore[attr-defined]


def test_a_path_that_is_not_utf_8_arrives_as_it_is(served: Served) -> None:
    done = subprocess.run(
        [os.fsencode(sys.executable), b"-m", b"ckpt.cli", b"restore", b"@", b"caf\xe9", b"--dry-run"],
        env=served.env, cwd=served.home, capture_output=True, check=False, timeout=DEADLINE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert served.operations.calls[-1][2].paths == (os.fsencode(served.home) + b"/caf\xe9",)  # type: ignore[attr-defined]


def test_a_directory_that_is_gone_is_still_where_one_is(served: Served) -> None:
    folder = served.home / "gone"
    folder.mkdir()
    code = (
        "import os, sys; os.rmdir(os.getcwd()); sys.argv = ['ckpt', 'list']; import ckpt.cli; sys.exit(ckpt.cli.main())"
    )
    env = {**served.env, "PWD": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=DEADLINE
    )
    assert done.returncode == 0, done.stderr
    assert served.operations.calls[-1][1].cwd == os.fsencode(folder)  # type: ignore[attr-defined]


def test_a_captured_file_comes_byte_for_byte_in_several_parts(served: Served) -> None:
    served.operations.file = bytes(range(256)) * (40 << 10)  # 10 MiB
    done = subprocess.run(
        [sys.executable, "-m", "ckpt.cli", "show", "@", "--file", "a"],
        env=served.env, cwd=served.home, capture_output=True, check=True, timeout=DEADLINE,
    )  # fmt: skip
    assert done.stdout == served.operations.file
    assert [call[2] for call in served.operations.calls if call[0] == "contents"] == [0, 4 << 20, 8 << 20]


def test_what_is_not_a_checkpoint_is_a_path(served: Served) -> None:
    served.operations.differences = [answers.Difference(path=b"gone.py", change="delete")]
    assert served.ckpt("diff", "@", "gone.py", "--name-only").stdout == "gone.py\n"
    asked = [call for call in served.operations.calls if call[0] == "diff"]
    assert asked[0][2] == "gone.py"
    assert asked[1][2:4] == (None, (os.fsencode(served.home) + b"/gone.py",))


def test_what_is_neither_checkpoint_nor_path_is_not_found(served: Served) -> None:
    done = served.ckpt("diff", "@", "nothing")
    assert done.returncode == 3
    assert "No checkpoint nothing." in done.stderr


def test_status_check_is_quiet_when_all_is_well_and_1_when_not(served: Served) -> None:
    assert served.ckpt("status", "--check").stdout == ""
    served.operations.problems = (answers.Problem(what="The disk is full.", hint="Make room."),)
    done = served.ckpt("status", "--check")
    assert (done.returncode, done.stdout) == (1, "The disk is full.\n  → Make room.\n")
    assert served.ckpt("status").stdout.startswith("1 problem\nThe disk is full.\n  → Make room.\n\ncheckpointd ")
    assert served.ckpt("doctor").returncode == 1


def test_an_alarm_is_told_beside_any_answer(served: Served) -> None:
    served.operations.alarm_line = "the disk is full: nothing is captured"
    done = served.ckpt("list")
    assert done.returncode == 0
    assert done.stderr == "ckpt: warning: the disk is full: nothing is captured\n"


def test_text_from_outside_cannot_command_the_terminal(served: Served) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202egnp"
    first = served.operations.records[0]
    served.operations.records[0] = msgspec.structs.replace(first, title=evil, reason=evil, name=evil, trigger="turn")
    served.operations.file = b"\x1b[2J\n"
    served.operations.differences = [answers.Difference(path=b"a", change="modify", patch=f"+{evil}\n")]
    for command in (
        ["list"],
        ["show", "@"],
        ["diff", "@"],
        ["show", "@", "--file", "a"],
        ["restore", "@", "--dry-run"],
    ):
        status, shown = on_a_terminal(served, *command, "--no-color")
        assert status == 0, shown
        assert "\x1b" not in shown, command
        assert "\u202e" not in shown, command
        assert "\\x1b" in shown, command


def test_colours_are_for_terminals_that_want_them(served: Served) -> None:
    served.operations.differences = [answers.Difference(path=b"a", change="modify", patch="+new\n")]
    assert "\x1b[32m+new" in on_a_terminal(served, "diff", "@")[1]
    assert "\x1b" not in on_a_terminal(served, "diff", "@", "--no-color")[1]
    assert "\x1b" not in on_a_terminal(served, "diff", "@", env={"NO_COLOR": "1"})[1]
    assert "\x1b" not in served.ckpt("diff", "@").stdout


def test_long_text_goes_to_the_pager(served: Served, tmp_path: Path) -> None:
    served.operations.records *= 50
    pager = {"PAGER": f"cat > {tmp_path}/paged"}
    assert on_a_terminal(served, "list", "-n", "150", env=pager)[0] == 0
    assert len((tmp_path / "paged").read_text().splitlines()) == 150


def test_long_text_is_shown_where_there_is_no_pager(served: Served) -> None:
    served.operations.records *= 50
    status, shown = on_a_terminal(served, "list", "-n", "150", env={"PAGER": "no-such-pager-anywhere"})
    assert status == 0
    assert shown.count("turn") >= 50


def test_a_list_that_was_cut_says_where_the_rest_is(served: Served) -> None:
    count = len(served.operations.records)
    assert f"The newest {count}; older ones with `-n" in on_a_terminal(served, "list", "-n", str(count))[1]
    assert "older ones" not in on_a_terminal(served, "list", "-n", str(count + 1))[1]


def test_watch_names_the_checkpoint(served: Served) -> None:
    made = served.operations.records[0]
    with subprocess.Popen(
        [sys.executable, "-m", "ckpt.cli", "watch"], env=served.env, cwd=served.home, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        until(lambda: served.operations.listeners, child)
        happening = answers.Happening(at=NOW, kind="checkpoint", text="turn: saved", checkpoint=made)
        served.soon(lambda: served.operations.listeners[0].put_nowait(happening))
        line = child.stdout.readline().decode()
        child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE) == 0
    assert line.endswith(f"  checkpoint  {made.name}  turn: saved\n")


def test_watch_prints_a_line_each_until_interrupted(served: Served) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ckpt.cli", "watch", "--json", "--all"],
        env=served.env, cwd=served.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        until(lambda: served.operations.listeners, child)
        happening = answers.Happening(at=NOW, kind="checkpoint", text="saved", checkpoint=served.operations.records[0])
        for _ in range(2):
            served.soon(lambda: served.operations.listeners[0].put_nowait(happening))
            assert json.loads(child.stdout.readline())["checkpoint"]["id"] == served.operations.records[0].id
        child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE) == 0
        assert child.stderr.read() == b""


def test_watch_ends_when_the_daemon_does(served: Served) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ckpt.cli", "watch"], env=served.env, cwd=served.home, stderr=subprocess.PIPE
    ) as child:
        until(lambda: served.operations.listeners, child)
        served.run(served.server.close())
        assert child.wait(DEADLINE) == 5


def test_an_interrupted_request_is_status_130_and_goes_on(served: Served) -> None:
    served.soon(served.operations.gate.clear)
    with subprocess.Popen(
        [sys.executable, "-m", "ckpt.cli", "save"], env=served.env, cwd=served.home, stderr=subprocess.PIPE
    ) as child:
        until(lambda: served.operations.calls, child)
        child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE) == 130
        assert child.stderr is not None
        assert b"Interrupted" in child.stderr.read()
    served.soon(served.operations.gate.set)
    served.run(served.dispatcher.drain(5))
    assert len(served.operations.finished) == 1


def test_a_reader_that_leaves_is_no_error(served: Served) -> None:
    served.operations.records *= 500
    with subprocess.Popen(
        [sys.executable, "-m", "ckpt.cli", "list", "-n", "1500"],
        env=served.env, cwd=served.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(DEADLINE) == 141
        assert child.stderr.read() == b""


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["list", "--nonsense"], ["show"], ["list", "-n", "many"]])
def test_a_command_line_that_cannot_be_understood_is_status_2(served: Served, arguments: list[str]) -> None:
    done = served.ckpt(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ckpt")


def test_help_shows_an_example_for_every_command(served: Served) -> None:
    overview = served.ckpt("--help").stdout
    assert "examples:" in overview
    for name in COMMANDS:
        assert f"  {name} " in overview
        assert "example:\n  " in served.ckpt(name, "-h").stdout


def test_every_command_that_can_be_asked_for_can_be_run() -> None:
    assert set(COMMANDS) == set(RUN)
