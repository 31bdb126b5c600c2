"""Whatever happens to a work tree: what captures and scans make of it is what a fresh first capture finds."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.captures import Capturing
from support.repositories import git

names = st.sampled_from(
    [b"a", b"b", b"c.py", b"d.log", b"keep.log", b"caf\xe9", b"ign", b"build", b"new\nline", b".env", b"a.b", b"a0"]
)
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)
contents = st.binary(max_size=3)
edits = st.one_of(
    st.tuples(st.just("write"), paths, contents),
    st.tuples(st.just("write"), paths, contents),
    st.tuples(st.sampled_from(["delete", "remove folder", "make folder", "swap", "link"]), paths, st.none()),
    st.tuples(st.just("chmod"), paths, st.sampled_from([0o600, 0o644, 0o755])),
    st.tuples(st.just("rename"), paths, paths),
)
steps = st.tuples(st.lists(edits, min_size=1, max_size=5), st.sampled_from(["capture", "capture", "scan", "restart"]))


class Project:
    """Edits as an agent makes them; remembers what a watcher would tell."""

    def __init__(self, top: Path) -> None:
        self.top = os.fsencode(top)
        self.dirty: set[bytes] = set()

    def edit(self, kind: str, path: bytes, more: bytes | int | None) -> None:
        full = os.path.join(self.top, path)
        try:
            self._edit(kind, path, full, more)
        except OSError:  # what stands in the way stays
            return

    def _edit(self, kind: str, path: bytes, full: bytes, more: bytes | int | None) -> None:
        there, folder = os.path.lexists(full), os.path.isdir(full) and not os.path.islink(full)
        if kind == "write" and isinstance(more, bytes) and not folder and not os.path.islink(full):
            self._make_way(path)
            Path(os.fsdecode(full)).write_bytes(more)
        elif kind == "delete" and there:
            os.unlink(full)
        elif kind == "remove folder" and folder:
            shutil.rmtree(full)
        elif kind == "make folder" and not there:
            self._make_way(path)
            os.mkdir(full)
        elif kind == "swap" and there:
            shutil.rmtree(full) if folder else os.unlink(full)
            Path(os.fsdecode(full)).write_bytes(b"file") if folder else os.mkdir(full)
        elif kind == "link" and not there:
            os.symlink(b"a", full)
        elif kind == "chmod" and isinstance(more, int) and there and not os.path.islink(full):
            os.chmod(full, more | (0o700 if folder else 0))
        elif kind == "rename" and isinstance(more, bytes) and there:
            self._make_way(more)
            os.rename(full, os.path.join(self.top, more))
            self.dirty.add(more)
        self.dirty.add(path)

    def _make_way(self, path: bytes) -> None:
        for end in [at for at, byte in enumerate(path) if byte == ord("/")]:
            if not os.path.lexists(os.path.join(self.top, path[:end])):
                os.mkdir(os.path.join(self.top, path[:end]))
                self.dirty.add(path[:end])


@given(st.lists(edits, max_size=12), st.booleans(), st.lists(steps, min_size=1, max_size=6))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_captures_and_scans_agree_with_a_fresh_capture(start, repository, rounds):
    with tempfile.TemporaryDirectory() as base:
        capturing = Capturing(Path(base))
        (capturing.top / ".gitignore").write_text("*.log\n/ign/\n!keep.log\n")
        project = Project(capturing.top)
        for edit in start:
            project.edit(*edit)
        if repository:
            git(capturing.top, "init", "-q")
            git(capturing.top, "add", "-A")
        capturing.tree.first()
        for changes, how in rounds:
            project.dirty.clear()
            for edit in changes:
                project.edit(*edit)
            if how == "capture":
                capturing.tree.capture(project.dirty)
            else:
                if how == "restart":
                    capturing.restart()
                capturing.tree.scan()
        capturing.tree.capture([])  # what was read too soon
        (Path(base) / "fresh").mkdir()
        fresh = Capturing(Path(base) / "fresh", top=capturing.top)
        fresh.tree.first()
        assert capturing.entries == fresh.entries
        assert capturing.empty == fresh.empty
        one, two = capturing.tree.state, fresh.tree.state
        assert one is not None
        assert two is not None
        assert (one.coverage.captured, one.coverage.size) == (two.coverage.captured, two.coverage.size)
        assert not [skip for skip in two.coverage.skipped if one.coverage.observed(skip.path)]
