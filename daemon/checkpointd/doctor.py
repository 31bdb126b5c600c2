"""Explaining why no daemon answers, and what can be done without one."""

import json
import sys
from collections.abc import Mapping

from checkpointd import app, config, places
from checkpointd.api import endpoint
from checkpointd.catalog.errors import CatalogError
from checkpointd.engine.answers import Problem
from checkpointd.vault.run import GitError, check_git


def main(env: Mapping[str, str], *, rebuild: bool, as_json: bool) -> int:
    """Prints what is found, or what was rebuilt; 0 when all is well."""
    if rebuild:
        return _rebuild(env, as_json=as_json)
    found = examine(env)
    if as_json:
        print(json.dumps({"problems": [{"what": p.what, "hint": p.hint} for p in found]}))
    else:
        for problem in found:
            print(problem.what + (f"\n  -> {problem.hint}" if problem.hint else ""))
    return 1 if found else 0


def examine(env: Mapping[str, str]) -> list[Problem]:
    """What keeps a daemon from running here, and that none does."""
    found = []
    try:
        check_git()
    except GitError as error:
        found.append(Problem(what=str(error), hint="Install git 2.34 or newer."))
    here = places.find(env)
    try:
        config.load(here.config)
    except config.ConfigError as error:
        found.append(Problem(what=str(error), hint="The daemon starts all the same, with the defaults."))
    try:
        here.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = here.data / "doctor.probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        found.append(Problem(what=f"{here.data} cannot be written: {error.strerror}", hint="Make it writable for you."))
    found.append(Problem(what="The daemon is not running: nothing is captured.", hint="Start it with `ckpt up`."))
    return found


def _rebuild(env: Mapping[str, str], *, as_json: bool) -> int:
    try:
        rebuilt = app.rebuild(env)
    except (endpoint.AlreadyRunning, CatalogError, OSError) as error:
        print(f"ckpt: The catalog was not rebuilt: {error}", file=sys.stderr)
        return 1
    problems = [{"what": p.what, "hint": p.hint} for p in rebuilt.problems]
    if as_json:
        counts = {"projects": rebuilt.projects, "checkpoints": rebuilt.checkpoints, "sessions": rebuilt.sessions}
        print(json.dumps({**counts, "problems": problems}))
    else:
        made = ", ".join(
            f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
            for count, what in (
                (rebuilt.projects, "project"), (rebuilt.checkpoints, "checkpoint"), (rebuilt.sessions, "session")
            )
        )  # fmt: skip
        print(f"catalog rebuilt: {made}")
        for problem in rebuilt.problems:
            print(problem.what)
    return 1 if problems else 0
