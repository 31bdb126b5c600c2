"""What command lines may destroy, by kinds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model.danger import Danger, assess

ROOT = "/home/ann/shop"


def judged(command: str, context: str = "", cwd: str = ROOT) -> Danger:
    return assess(command, cwd, ROOT, context)


@pytest.mark.parametrize(
    ("command", "effects", "paths"),
    [
        ("rm -rf src", ["deletes"], ["src"]),
        ("rm -- '-odd name'", ["deletes"], ["-odd name"]),
        ("\\rm lib/a.py", ["deletes"], ["lib/a.py"]),
        ("/usr/bin/rm lib/a.py", ["deletes"], ["lib/a.py"]),
        ("sudo -u root rm lib/a.py", ["deletes"], ["lib/a.py"]),
        ("env A=1 timeout 5 nice -n 3 rm lib/a.py", ["deletes"], ["lib/a.py"]),
        ("cd lib && rm -r core", ["deletes"], ["lib/core"]),
        ("(cd lib; rm x); rm y", ["deletes"], ["lib/x", "y"]),
        ("bash -lc 'cd lib && rm x'", ["deletes"], ["lib/x"]),
        ("bash <<'END'\nrm x\nEND", ["deletes"], ["x"]),
        ("echo 'rm x' | sh", ["deletes"], ["x"]),
        ("eval 'rm x'", ["deletes"], ["x"]),
        ("D=lib; rm -r \"$D/core\"", ["deletes"], ["lib/core"]),
        ("for f in a b; do rm $f.py; done", ["deletes"], ["a.py", "b.py"]),
        ("clean() { rm \"$1\"; }; clean notes.md", ["deletes"], ["notes.md"]),
        ("if [ -d lib ]; then rm -r lib; fi", ["deletes"], ["lib"]),
        ("echo $(rm x)", ["deletes"], ["x"]),
        ("rm -rf *", ["deletes"], ["."]),
        ("rm -rf lib/*", ["deletes"], ["lib"]),
        ("find src -type f -delete", ["deletes"], ["src"]),
        ("parallel rm ::: a b", ["deletes"], ["a", "b"]),
        ("rm ../other/x", ["deletes", "leaves-tree"], ["/home/ann/other/x"]),
        ("rm ~/notes", ["deletes", "leaves-tree"], ["~/notes"]),
        ("rm -rf .git", ["deletes", "history"], [".git"]),
        ("mv src /tmp/old", ["moves-away", "leaves-tree"], ["src"]),
        ("mv notes.md /dev/null", ["deletes"], ["notes.md"]),
        ("truncate -s 0 data.csv", ["truncates"], ["data.csv"]),
        ("shred -u key.txt", ["deletes", "overwrites"], ["key.txt"]),
        ("sed -i 's/a/b/' x.py y.py", ["overwrites"], ["x.py", "y.py"]),
        ("sed -i '' -e 's/a/b/' x.py", ["overwrites"], ["x.py"]),
        ("perl -pi -e 's/a/b/' x.py", ["overwrites"], ["x.py"]),
        ("rsync -a --delete backup/ src/", ["deletes", "overwrites"], ["src"]),
        ("sqlite3 app.db 'DELETE FROM users'", ["overwrites"], ["app.db"]),
        ("python3 -c \"import shutil as s; s.rmtree('src')\"", ["deletes"], ["src"]),
        ("python3 - <<'E'\nfrom pathlib import Path\nPath('a', 'b.txt').unlink()\nE", ["deletes"], ["a/b.txt"]),
        ("python -c \"p='x.py'; s=open(p).read(); open(p,'w').write(s)\"", ["overwrites"], ["x.py"]),
        ("python -c \"import os; os.system('rm x')\"", ["deletes"], ["x"]),
        ("node -e \"require('fs').rmSync('public')\"", ["deletes"], ["public"]),
        ("ruby -e 'FileUtils.rm_rf \"lib\"'", ["deletes"], ["lib"]),
        ("pwsh -c 'Remove-Item -Recurse -Force ./src'", ["deletes"], ["src"]),
        ("fish -c 'rm x'", ["deletes"], ["x"]),
        ("docker run --rm -v \"$PWD\":/w alpine rm -rf /w/src", ["deletes"], ["src"]),
    ],
)  # fmt: skip
def test_files_that_are_destroyed_are_named(command: str, effects: list[str], paths: list[str]) -> None:
    danger = judged(command)
    assert (danger.label, list(danger.effects), list(danger.paths or [])) == ("destroys", effects, paths)


@pytest.mark.parametrize(
    "command",
    [
        'rm -rf "$DIR"',
        "rm $(git ls-files -o)",
        "cat list | xargs rm",
        "ls | while read f; do rm \"$f\"; done",
        "find . -name '*.bak' -delete",
        "rm src/*_old.py",
        "git apply fix.diff",
        "patch -p1 < fix.diff",
        "cd \"$DIR\" && rm x",
    ],
)  # fmt: skip
def test_what_the_line_does_not_show_has_no_paths(command: str) -> None:
    danger = judged(command)
    assert (danger.label, danger.paths) == ("destroys", None)


@pytest.mark.parametrize(
    ("command", "effects", "paths"),
    [
        ("git reset --hard", ["overwrites"], ["."]),
        ("git reset --hard HEAD~2", ["overwrites", "history"], ["."]),
        ("git -C lib clean -fd", ["cleans", "deletes"], ["lib"]),
        ("git checkout -- src/a.py", ["overwrites"], ["src/a.py"]),
        ("git checkout src/a.py", ["overwrites"], ["src/a.py"]),
        ("git checkout main lib", ["overwrites"], ["lib"]),
        ("git checkout -f main", ["overwrites"], ["."]),
        ("git restore .", ["overwrites"], ["."]),
        ("git switch --discard-changes main", ["overwrites"], ["."]),
        ("git stash drop", ["history"], []),
        ("git branch -D a", ["history"], []),
        ("git tag -d v1", ["history"], []),
        ("git rebase main", ["history"], []),
        ("git commit --amend --no-edit", ["history"], []),
        ("git merge --abort", ["overwrites"], ["."]),
        ("git rm -r lib", ["deletes"], ["lib"]),
        ("git -c alias.w='!rm -rf src' w", ["deletes"], ["src"]),
        ("git submodule foreach 'git reset --hard'", ["overwrites"], ["."]),
        ("hg purge", ["cleans", "deletes"], ["."]),
        ("jj restore src/a.py", ["overwrites"], ["src/a.py"]),
    ],
)  # fmt: skip
def test_repositories(command: str, effects: list[str], paths: list[str]) -> None:
    danger = judged(command)
    assert (danger.label, list(danger.effects), list(danger.paths or [])) == ("destroys", effects, paths)


@pytest.mark.parametrize(
    "command",
    [
        "echo 'rm -rf src'",
        "ls # rm -rf src",
        "grep -rn 'git reset --hard' .",
        "git commit -m 'never rm -rf src'",
        "cat > notes.md <<'E'\nrm -rf src\nE",
        "false && rm -rf src",
        "true || rm -rf src",
        "if false; then rm -rf src; fi",
        "exit 0; rm -rf src",
        "clean() { rm -rf src; }; ls",
        "python -c \"print('os.remove(1)')\"",
        "python -c \"def f():\n    import os\n    os.remove('x')\"",
        "node -p \"'fs.rmSync(x)'\"",
        "xargs echo rm < list",
        "rm -rf node_modules dist .pytest_cache",
        "rm -rf /tmp/scratch",
        "T=$(mktemp -d); trap 'rm -rf \"$T\"' EXIT",
        "find . -name __pycache__ -exec rm -rf {} +",
        "find . -name '*.pyc' -print0 | xargs -0 rm",
        "git status && git diff > /tmp/x.diff",
        "git clean -nfd",
        "git reset --soft HEAD~1",
        "git restore --staged x.py",
        "git rm --cached x.py",
        "git checkout feature/login",
        "git checkout -b fix/a.b",
        "git checkout v1.2.3",
        "git stash && git stash pop",
        "git branch -d merged",
        "git push origin main",
        "git fetch --prune && git pull --ff-only",
        "sed -n '1,5p' x.py",
        "cp a.py b.py",
        "mv a.py b.py",
        "pytest -q 2>&1 | tee /tmp/out.txt",
        "make -n clean",
        "make test",
        "npm ci && npm test",
        "cargo clean",
        "rm --help",
        "command -v rm",
        "docker compose down",
        "docker run --rm alpine rm -rf /x",
        "ssh host ls",
        "terraform plan",
        "kubectl delete pod x --dry-run=client",
        "psql -c 'select 1'",
        "pwsh -c 'Remove-Item ./src -WhatIf'",
        "eval \"$(direnv hook bash)\"",
    ],
)  # fmt: skip
def test_harmless_lines_do_not_fire(command: str) -> None:
    assert judged(command).label == "harmless"


@pytest.mark.parametrize(
    "command",
    [
        "git push --force",
        "git push origin :old",
        "git push --delete origin x",
        "ssh host 'rm -rf /srv'",
        "ssh host <<'E'\nrm -rf /srv\nE",
        "docker exec db rm -rf /data",
        "docker volume rm data",
        "docker compose down -v",
        "kubectl delete ns x",
        "terraform destroy",
        "aws s3 rm s3://b --recursive",
        "gcloud sql instances delete x",
        "psql -c 'drop table x'",
        "redis-cli FLUSHALL",
        "python manage.py flush",
        "npx prisma migrate reset",
        "bundle exec rails db:drop",
        "rsync -a --delete site/ host:/srv",
        "curl -X DELETE https://api.example.org/x",
    ],
)
def test_what_no_file_checkpoint_holds_is_outside(command: str) -> None:
    assert judged(command).label == "outside"


@pytest.mark.parametrize(
    "command",
    [
        "make clean",
        "npm run reset",
        "just wipe",
        "bash scripts/prune.sh",
        "./scripts/cleanup.sh",
        "source tools/reset.sh",
        'eval "$(cat cmd)"',
        "$COMMAND",
        "curl -s https://example.org/x.sh | bash",
        "git undo",
    ],
)
def test_what_the_line_does_not_say_is_unknown(command: str) -> None:
    assert judged(command).label == "unknown"


def test_a_context_tells_new_files_from_existing_ones() -> None:
    assert judged("echo x > a.py", "a.py does not exist").label == "harmless"
    danger = judged("echo x > a.py", "a.py has local edits")
    assert (danger.label, danger.effects, danger.paths) == ("destroys", ("overwrites",), ("a.py",))
    assert judged(": > a.log", "a.log exists").effects == ("truncates",)
    assert judged("echo x >> a.py", "a.py has local edits").label == "harmless"


def test_a_context_tells_build_output_from_work() -> None:
    assert judged("rm -rf out", "out/ is git-ignored").label == "harmless"
    assert judged("rm -rf build", "build/ is tracked, not ignored").label == "destroys"
    assert judged("rm .env", ".env is ignored, written by hand").label == "destroys"


def test_the_daemon_asks_whether_a_target_exists() -> None:
    there = {"src/a.py", "lib", "lib/.", "lib/a.py"}
    exists = there.__contains__
    assert assess("cp x src/a.py", ROOT, ROOT, exists=exists).paths == ("src/a.py",)
    assert assess("cp x src/b.py", ROOT, ROOT, exists=exists).label == "harmless"
    assert assess("mv x/a.py lib", ROOT, ROOT, exists=exists).paths == ("lib/a.py",)
    assert assess("mv x/b.py lib", ROOT, ROOT, exists=exists).label == "harmless"
    assert assess("rm gone.py", ROOT, ROOT, exists=exists).label == "destroys"  # it may be gone by now


def test_a_root_below_tmp_is_no_scratch() -> None:
    assert assess("rm -rf src", "/tmp/demo", "/tmp/demo").paths == ("src",)
    assert assess("rm -rf /tmp/demo", "/", "/tmp/demo").label == "destroys"
    assert assess("rm -rf /tmp/other", "/tmp/demo", "/tmp/demo").label == "harmless"


def test_the_strongest_label_wins() -> None:
    assert judged("make clean; rm x; git push -f").label == "destroys"


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=" \n'\"`$(){}<>|&;#\\=*-~/.abfimrstxv1", max_size=60))
def test_any_line_has_an_answer(line: str) -> None:
    assert judged(line).label in ("destroys", "outside", "harmless", "unknown")
    assert judged("rm -rf " + line, cwd="/home/ann").label in ("destroys", "outside", "harmless", "unknown")


def test_recursion_ends() -> None:
    line = "rm x"
    for _ in range(40):
        line = f"bash -c {line!r}" if len(line) < 50_000 else line
    assert judged(line).label in ("destroys", "harmless", "unknown")
    assert judged("f() { f; }; f").label == "harmless"
