"""restore, undo, forget: a plan first, a yes, then exactly that plan."""

import os

from ckpt import render
from ckpt.commands.context import Context
from ckpt.contract import methods
from ckpt.contract.errors import CkptError
from ckpt.contract.paths import quote


def restore(context: Context, *, checkpoint: str, paths: list[str], to: str | None, dry_run: bool, yes: bool,
            allow_mass_delete: bool) -> int:  # fmt: skip
    params = methods.RestoreParams(
        cwd=context.where,
        project=context.project,
        all=context.everywhere,
        checkpoint=checkpoint,
        paths=context.paths(paths),
        to=quote(os.path.normpath(os.path.join(context.cwd, os.fsencode(to)))) if to is not None else None,
        allow_mass_delete=allow_mass_delete,
    )
    plan = context.daemon().call(methods.RESTORE_PLAN, params, context.terminal.progress)["plan"]
    return _decide(context, plan, paths=bool(params["paths"]), dry_run=dry_run, yes=yes,
                   allowed=allow_mass_delete)  # fmt: skip


def undo(context: Context, *, dry_run: bool, yes: bool) -> int:
    params = methods.ScopeParams(cwd=context.where, project=context.project)
    plan = context.daemon().call(methods.UNDO_PLAN, params, context.terminal.progress)["plan"]
    return _decide(context, plan, paths=False, dry_run=dry_run, yes=yes, allowed=True)


def _decide(context: Context, plan: methods.Plan, *, paths: bool, dry_run: bool, yes: bool, allowed: bool) -> int:
    terminal = context.terminal
    untouched = {"plan": plan, "applied": False, "undo": None}
    lines = render.plan(plan, context.now, terminal.width, context.home)
    nothing = not plan["restore"] and not plan["delete"]
    if dry_run or nothing:
        terminal.answer(untouched, [*lines, "nothing to do" if nothing else "nothing was done (--dry-run)"])
        # Every path that was named is one that cannot come back: a slip of the hand, more often than not.
        return 3 if nothing and paths and plan["keep"] and not plan["unchanged"] else 0
    if not terminal.json:
        terminal.answer(None, lines)
    if plan["mass_delete"] and not allowed:
        raise CkptError("conflict", f"This would delete {len(plan['delete']):,} files, most of the project.",
                        hint="Name paths, or repeat with `--allow-mass-delete` if that is meant.")  # fmt: skip
    question = f"Restore {len(plan['restore']):,} and delete {len(plan['delete']):,}?"
    if not (yes or _agreed(context, question, untouched)):
        return 1
    apply = methods.ApplyParams(plan=plan["id"], interactive=not yes)
    done = context.daemon().call(methods.RESTORE_APPLY, apply, terminal.progress)
    terminal.answer({"plan": plan, "applied": True, "undo": done["undo"], "failed": done["failed"]}, _outcome(done))
    for each in done["failed"]:
        terminal.note(f"not restored: {each['path']}: {each['why']}")
    return 1 if done["failed"] else 0


def _outcome(done: methods.Restored) -> list[str]:
    what = f"{render.counted(done['restored'], 'file')} restored, {done['deleted']:,} deleted"
    return [what, "undo with: ckpt undo"] if done["undo"] else [what]


def forget(context: Context, *, what: str, yes: bool) -> int:
    asked = methods.ForgetParams(cwd=context.where, project=context.project, all=context.everywhere, what=what)
    plan = context.daemon().call(methods.FORGET_PLAN, asked)["plan"]
    terminal = context.terminal
    untouched = {"plan": plan, "applied": False, "forgotten": [], "freed_bytes": 0}
    lines = render.forget_plan(plan, context.now, terminal.width)
    if not plan["checkpoints"] and not plan["project"]:
        terminal.answer(untouched, [*lines, "nothing to do"])
        return 1 if plan["keep"] else 0
    if not terminal.json:
        terminal.answer(None, lines)
    if not (yes or _agreed(context, "Forget them? Their bytes are gone then.", untouched)):
        return 1
    apply = methods.ApplyParams(plan=plan["id"], interactive=not yes)
    done = context.daemon().call(methods.FORGET_APPLY, apply, terminal.progress)
    line = f"{render.counted(len(done['forgotten']), 'checkpoint')} forgotten, {render.size(done['freed_bytes'])} free"
    terminal.answer({"plan": plan, "applied": True, **done}, [line])
    return 0


def _agreed(context: Context, question: str, untouched: object) -> bool:
    """Asks a person. Raises `undecided` where none is there to ask."""
    terminal = context.terminal
    if not terminal.can_ask:
        if terminal.json:
            terminal.answer(untouched, [])
        raise CkptError("undecided", "Nothing was done: the plan needs a yes, and there is no terminal to ask on.",
                        hint="Read the plan, then repeat with `--yes`.")  # fmt: skip
    if terminal.ask(question):
        return True
    terminal.note("Nothing was done.")
    return False
