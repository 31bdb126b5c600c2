"""What is told without git agrees with git."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.vault.ignoring import surely_kept

alphabet = st.sampled_from(["a", "b", ".", "*", "?", "/", "**", "[ab]", "[!a]", "\\", " ", "#", "!", "ab", "\r", "\t"])
patterns = st.lists(alphabet, min_size=1, max_size=5).map("".join)
names = st.lists(st.sampled_from(["a", "b", ".", "ab", " ", "#", "*", "c"]), min_size=1, max_size=3).map("".join)
paths = st.lists(names.filter(lambda name: name.strip(".")), min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("ignoring")
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    return top


@given(st.lists(patterns, max_size=4), st.sampled_from(["\n", "\r\n"]), st.lists(paths, min_size=1, max_size=12))
@settings(max_examples=150, deadline=None)
def test_nothing_that_git_ignores_is_called_kept(repository, lines, end, asked):
    text = end.join([*lines, ""]).encode()
    (repository / ".gitignore").write_bytes(text)
    done = subprocess.run(
        ["git", "-C", str(repository), "check-ignore", "--no-index", "--stdin", "-z"],
        input="\0".join(asked).encode(), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1)
    for path in done.stdout.split(b"\0")[:-1]:
        assert not surely_kept(path, [text])


def test_usual_rules_leave_usual_files_clear():
    rules = b"*.log\n*.py[cod]\n__pycache__/\n/build/\n# comment\n!keep.log\nnode_modules\n.env*\n"
    for path in (b"src/app/main.go", b"README.md", b"tests/test_api.rs"):
        assert surely_kept(path, [rules])
    for path in (b"x.log", b"build/x", b"a/node_modules/b", b"pkg/m.py", b"src/.env.local"):
        assert not surely_kept(path, [rules])
