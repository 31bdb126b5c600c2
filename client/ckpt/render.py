"""Answers as lines for people. Pure: text in, text out; the time is a parameter."""

import time
from collections.abc import Iterable, Sequence

from ckpt.contract import methods, records

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_FOLD = 12
_LETTERS = {"add": "A", "modify": "M", "delete": "D", "rename": "R"}
_MARKS = {"done": "x", "doing": "~", "cancelled": "-", "open": " "}
# Terminals obey C0, DEL and C1; direction overrides make a text read as something else.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}" for code in (0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_CONTROL_IN_LINES = {code: text for code, text in _CONTROL.items() if code not in (0x09, 0x0A)}


def plain(text: str) -> str:
    """One line without anything that a terminal obeys."""
    return text.translate(_CONTROL)


def block(text: str) -> str:
    """Lines without anything that a terminal obeys but line ends and tabs."""
    return text.translate(_CONTROL_IN_LINES)


def one_line(text: str) -> str:
    """The text with its line ends as spaces, on one line."""
    return plain(" ".join(text.split()))


def cut(text: str, width: int | None) -> str:
    """At most `width` characters of it."""
    if width is None or len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…"


def seconds(moment: str) -> float:
    """The time of an ISO 8601 text with offset, in seconds since 1970. Raises ValueError.

    By hand, since importing datetime costs the client more than all else it does.
    """
    date, _, rest = moment.replace(" ", "T").partition("T")
    year, month, day = (int(part) for part in date.split("-"))
    sign, at = 0, len(rest)
    if rest.endswith("Z"):
        at = len(rest) - 1
    elif "+" in rest:
        sign, at = 1, rest.index("+")
    elif "-" in rest:
        sign, at = -1, rest.index("-")
    hours, minutes, secs = (*rest[:at].split(":"), "0", "0")[:3]
    offset = 0
    if sign:
        zone = rest[at + 1 :].replace(":", "")
        offset = sign * (int(zone[:2]) * 3600 + int(zone[2:4] or 0) * 60)
    # Days from the civil calendar: https://howardhinnant.github.io/date_algorithms.html
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return days * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(secs) - offset


def age(moment: str | None, now: float) -> str:
    """How long ago, in one unit; a date when it is long ago."""
    if moment is None:
        return "never"
    passed = now - seconds(moment)
    if passed < 1:
        return "now"
    if passed < 60 * 86400:
        return f"{span(passed)} ago"
    return local(moment)[:11]


def span(passed: float) -> str:
    """A length of time in its largest unit."""
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (48 * 3600, 3600, "h")):
        if passed < limit:
            return f"{int(passed // unit)} {name}"
    return f"{int(passed // 86400)} days"


def local(moment: str) -> str:
    """A time as the clock on the wall has it: `30 Nov 2026 22:19`."""
    at = time.localtime(seconds(moment))
    return f"{at.tm_mday:2d} {_MONTHS[at.tm_mon - 1]} {at.tm_year} {at.tm_hour:02d}:{at.tm_min:02d}"


def size(count: float) -> str:
    """Bytes in a unit that a person can compare."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def columns(rows: Sequence[Sequence[str]], width: int | None, *, indent: str = "") -> list[str]:
    """Cells padded to columns; the last is cut where the line would pass `width`."""
    widths = [max((len(cell) for cell in column), default=0) for column in zip(*rows, strict=True)][:-1]
    lines = []
    for row in rows:
        padded = [cell.ljust(widest) for cell, widest in zip(row, widths, strict=False) if widest]
        lines.append(cut((indent + "  ".join((*padded, row[-1]))).rstrip(), width))
    return lines


def folded(lines: Sequence[str], limit: int = _FOLD) -> list[str]:
    """The first lines, and how many more there are."""
    if len(lines) <= limit + 1:
        return list(lines)
    return [*lines[:limit], f"  … and {len(lines) - limit:,} more (--json lists all)"]


def wrapped(label: str, text: str, width: int) -> list[str]:
    """`label   text`, continued below the text."""
    lines: list[str] = []
    room, line = max(width - 10, 20), ""
    for word in one_line(text).split(" "):
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    lines.append(line)
    return [f"{label if not number else '':<10}{line}" for number, line in enumerate(lines)]


def short(session: str) -> str:
    """As much of a session's id as tells it from others: a UUID of version 7 begins with 12 digits of time."""
    return plain(session[:13])


def home(path: str, folder: str | None) -> str:
    """A path with the home folder as `~`."""
    if folder and (path == folder or path.startswith(folder.rstrip("/") + "/")):
        return plain("~" + path[len(folder.rstrip("/")) :])
    return plain(path)


# Checkpoints


_EVIDENCE = ("repeated-failure", "request-changes", "pre-destructive", "pre-compact", "head-moved", "pre-restore")
"""Triggers whose reason says more than the title."""


def rows(found: Sequence[methods.Row], now: float, width: int | None, *, projects: bool) -> list[str]:
    """One line each: name, age, trigger, files, what it is about."""
    cells = [
        (
            plain(row["name"]),
            *((plain(row["project"]),) if projects else ()),
            age(row["created_at"], now),
            plain(row["trigger"]),
            counted(row["files_changed"], "file") if row["files_changed"] else "–",
            _about(row),
        )
        for row in found
    ]
    return columns(cells, width) if cells else []


def _about(row: methods.Row) -> str:
    marks = [mark for mark, there in (("pinned", row["pinned"]),) if there]
    marks += [status.lower() for status in row["status"] if status not in ("ACTIVE", "SUPERSEDED")]
    marks += [f"also {trigger}" for trigger in row["also"] if trigger not in ("turn", "scheduled")]
    marks += [f"{gate['gate']} red" for gate in row["tests"] if gate["colour"] == "red"]
    text = row["reason"] if row["trigger"] in _EVIDENCE else row["title"] or row["reason"]
    return one_line(f"[{', '.join(marks)}] {text}" if marks else text)


def record(shown: methods.Shown, now: float, width: int | None, folder: str | None) -> list[str]:
    """A checkpoint for reading: what, when, why, what changed, what was left out."""
    made, wide = shown["checkpoint"], min(width or 80, 100)
    states = [*(["pinned"] if shown["pinned"] else []), *(s.lower() for s in shown["status"] if s != "ACTIVE")]
    head = f"{plain(made['name'])}  {plain(made['id'])}" + (f"  [{', '.join(states)}]" if states else "")
    lines = [head, ""]
    lines += wrapped("", made["title"], wide) if made["title"] not in ("", made["name"]) else []
    also = f" (also {', '.join(made['also'])})" if made.get("also") else ""
    taken = f", taken {made['taken']}" if made.get("taken") else ""
    lines += wrapped("made", f"{local(made['created_at']).strip()}, {age(made['created_at'], now)}", wide)
    lines += wrapped("trigger", f"{made['trigger']}{also}{taken}", wide)
    lines += wrapped("because", made["reason"], wide) if made["reason"] else []
    lines += wrapped("project", f"{home(made['project']['root'], folder)}{_branch(made)}", wide)
    lines += _session(made, wide)
    lines += _notes(made, wide)
    lines += _gates(made.get("tests", []), wide)
    lines += _tasks(made)
    lines += _changes_of(made)
    lines += _left_out(shown["coverage"], wide)
    return [*lines, "", f"restore with: ckpt restore {plain(made['name'])}"]


def _branch(made: records.Record) -> str:
    git = made.get("git")
    if not git:
        return ""
    branch, head = git.get("branch"), git.get("head")
    state = git.get("state", "none")
    text = f", {branch}" if branch else ", no branch" if head else ""
    return text + (f" at {head[:10]}" if head else "") + (f", {state}" if state != "none" else "")


def _session(made: records.Record, width: int) -> list[str]:
    session, turn = made.get("session"), made.get("turn")
    if not session:
        return []
    parts = [f"{session.get('agent', '')} {session.get('id', '')}"]
    parts += [f"turn {turn}"] if turn else []
    parts += [str(session.get("model"))] if session.get("model") else []
    return wrapped("session", ", ".join(parts), width)


def _notes(made: records.Record, width: int) -> list[str]:
    lines = []
    for key, text in made.get("note", {}).items():
        lines += wrapped(plain(key), text, width)
    if made.get("tags"):
        lines += wrapped("tags", ", ".join(made["tags"]), width)
    if made.get("lost"):
        lines += wrapped("lost", f"was already gone: {', '.join(made['lost'])}", width)
    return lines


def _gates(gates: Iterable[records.GateState], width: int) -> list[str]:
    lines = []
    for number, gate in enumerate(gates):
        failing = gate.get("failing", [])
        what = f": {', '.join(failing[:3])}{' …' if len(failing) > 3 else ''}" if failing else ""
        text = f"{gate.get('gate', '')} {gate.get('colour', '')}{what} ({gate.get('command', '')})"
        lines += wrapped("tests" if not number else "", text, width)
    return lines


def _tasks(made: records.Record) -> list[str]:
    tasks = made.get("tasks", [])
    if not tasks:
        return []
    lines = [f"  [{_MARKS.get(task.get('state', 'open'), ' ')}] {one_line(task.get('text', ''))}" for task in tasks]
    return ["", "tasks", *folded(lines)]


def _changes_of(made: records.Record) -> list[str]:
    changed = made.get("files_changed", [])
    total = max(made.get("files_changed_total", 0), len(changed))
    if not total:
        return []
    lines = [
        f"  {_LETTERS.get(change.get('change', ''), '?')} {plain(change.get('path', ''))}"
        f"{_counts(change.get('added'), change.get('removed'))}"
        for change in changed
    ]
    return ["", f"changed   {counted(total, 'file')}", *folded(lines)]


def _left_out(coverage: methods.Coverage, width: int) -> list[str]:
    by_reason: dict[str, int] = {}
    for skip in coverage["skipped"]:
        by_reason[skip["reason"]] = by_reason.get(skip["reason"], 0) + 1
    text = ", ".join(f"{count:,} {reason}" for reason, count in sorted(by_reason.items()))
    held = f"{counted(coverage['captured'], 'file')}, {size(coverage['size'])}"
    lines = ["", *wrapped("holds", held, width)]
    return lines + (wrapped("left out", f"{text} (--coverage lists them)", width) if text else [])


def coverage(found: methods.Coverage) -> list[str]:
    """What a capture did not take, and why."""
    cells = [
        (
            skip["reason"],
            plain(skip["path"])
            + ("/" if skip["folder"] else "")
            + (f"  {plain(skip['detail'])}" if skip["detail"] else ""),
        )
        for skip in found["skipped"]
    ]
    lines = [f"{counted(found['captured'], 'file')} captured, {size(found['size'])}"]
    lines += columns(cells, None) if cells else ["nothing left out"]
    return lines + [f"never looked at  {plain(prefix) or '/'}" for prefix in found["unobserved"]]


def _counts(added: int | None, removed: int | None) -> str:
    if added is None and removed is None:
        return ""
    return f"  +{added or 0} −{removed or 0}"


def stat(changes: Sequence[methods.Change]) -> list[str]:
    """One line a path, then the sum."""
    cells = [
        (_LETTERS.get(c["change"], "?"), plain(c["path"]), _counts(c["added"], c["removed"]).strip() or "binary")
        for c in changes
    ]
    if not cells:
        return []
    added = sum(change["added"] or 0 for change in changes)
    removed = sum(change["removed"] or 0 for change in changes)
    return [*columns(cells, None), f"{counted(len(changes), 'file')}, +{added} −{removed}"]


def last(found: methods.Last, now: float, width: int | None) -> list[str]:
    """What the agent just did."""
    wide = min(width or 80, 100)
    ended = f"finished {age(found['ended_at'], now)}" if found["ended_at"] else "still at it"
    lines = [f"{plain(found['agent'])} {short(found['session_id'])}, turn {found['turn']}, {ended}", ""]
    lines += wrapped("asked", cut(one_line(found["request"]), 600), wide)
    lines += wrapped("answered", cut(one_line(found["answer"]), 600), wide) if found["answer"] else []
    lines += _gates(found["tests"], wide)
    if found["changes"]:
        lines += ["", *folded(stat(found["changes"])[:-1]), stat(found["changes"])[-1]]
    else:
        lines += ["", "no file changed"]
    if found["checkpoint"]:
        lines += ["", f"checkpoint: {plain(found['checkpoint']['name'])}  (`ckpt show`, `ckpt diff`, `ckpt restore`)"]
    return lines


# Plans


def plan(found: methods.Plan, now: float, width: int | None, folder: str | None) -> list[str]:
    """What a restore would do: restore, delete, keep and why."""
    what = f"{plain(found['name'])} ({age(found['created_at'], now)})"
    if found["trigger"] == "pre-restore":
        what += ", the files from before a restore"
    lines = [f"from {what} into {home(found['root'], folder)}", ""]
    lines += _group("restore", found["restore"], width)
    lines += _group("delete", found["delete"], width)
    lines += _group("keep", found["keep"], width)
    lines.append(f"unchanged {counted(found['unchanged'], 'file')}")
    if found["head_moved"]:
        lines.append("HEAD has moved since then: files come back, branches stay as they are")
    return lines


def _group(verb: str, paths: Sequence[methods.PlannedPath], width: int | None) -> list[str]:
    if not paths:
        return []
    lines = columns([(plain(each["path"]), plain(each["why"])) for each in paths], width, indent="  ")
    return [f"{verb} {counted(len(paths), 'file')}", *folded(lines)]


def forget_plan(found: methods.ForgetPlan, now: float, width: int | None) -> list[str]:
    """What would be forgotten, and what stays and why."""
    about = f", about {size(found['size_bytes'])}" if found["size_bytes"] is not None else ""
    project = f"the project {plain(found['project'])} with all of its " if found["project"] else ""
    cells = [
        (plain(c["name"]), age(c["created_at"], now), c["trigger"], one_line(c["title"])) for c in found["checkpoints"]
    ]
    lines = [f"forget {project}{counted(len(cells), 'checkpoint')}{about}"]
    lines += folded(columns(cells, width, indent="  ")) if cells else []
    kept = [(plain(each["id"]), plain(each["why"])) for each in found["keep"]]
    return lines + (
        [f"keep {counted(len(kept), 'checkpoint')}", *folded(columns(kept, width, indent="  "))] if kept else []
    )


# Sessions and projects


def sessions(found: Sequence[methods.Session], now: float, width: int | None, folder: str | None) -> list[str]:
    cells = [
        (
            each["state"],
            plain(each["agent"]),
            short(each["id"]),
            age(each["last_at"], now),
            counted(each["turns"], "turn"),
            counted(each["checkpoints"], "checkpoint"),
            home(each["root"] or "", folder),
            one_line(each["title"] or ""),
        )
        for each in found
    ]
    return columns(cells, width) if cells else []


def projects(found: Sequence[methods.Project], now: float, width: int | None, folder: str | None) -> list[str]:
    cells = [
        (
            home(each["root"], folder),
            "paused" if each["paused"] else plain(each["watch"]),
            counted(each["checkpoints"], "checkpoint"),
            _captured(each, now),
            size(each["size_bytes"]) if each["size_bytes"] is not None else "",
            plain(each["id"]),
        )
        for each in found
    ]
    return columns(cells, width) if cells else []


def _captured(each: methods.Project, now: float) -> str:
    if each["last_capture"]:
        return f"captured {age(each['last_capture'], now)}"
    # The daemon knows of captures since its start, or since the project's `resume`.
    return "" if each["checkpoints"] else "not captured yet"


def happening(found: methods.Happening, width: int | None, folder: str | None) -> str:
    """One line of `ckpt watch`: when, what, and the checkpoint's name, to paste."""
    at = time.localtime(seconds(found["at"]))
    made = found["checkpoint"] if found["kind"] == "checkpoint" else None
    when = f"{at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}"
    text = found["text"].replace(folder.rstrip("/") + "/", "~/") if folder else found["text"]
    parts = [when, f"{plain(found['kind']):<10}", *([plain(made["name"])] if made else []), one_line(text)]
    return cut("  ".join(parts), width)


# Status


def problems(found: Sequence[methods.Problem], width: int | None) -> list[str]:
    """Each problem with the way out below it."""
    lines = []
    for each in found:
        lines += [plain(each["what"]), *([f"  → {plain(each['hint'])}"] if each["hint"] else [])]
    return lines


def status(found: methods.Status, now: float, width: int | None, folder: str | None) -> list[str]:
    """Problems first, then what is there."""
    lines = []
    if found["problems"]:
        lines += [counted(len(found["problems"]), "problem"), *problems(found["problems"], width), ""]
    daemon = found["daemon"]
    state = "is paused" if daemon["paused"] else "is running"
    lines.append(
        f"checkpointd {plain(daemon['version'])} {state} (pid {daemon['pid']}), up {span(daemon['uptime_s'])},"
        f" {size(daemon['rss_bytes'])}, {daemon['cpu_s']:.1f} s of CPU"
    )
    lines += _section("agents", [_agent(each) for each in found["agents"]], width, "none found")
    lines += _section("sessions", [_live(each, now, folder) for each in found["sessions"]], width, "none live")
    lines += _section("projects", [_watched(each, now, folder) for each in found["projects"]], width, "none yet")
    budgets = [(plain(name), _budget(budget)) for name, budget in found["budgets"].items()]
    return lines + (_section("budgets", budgets, width, "") if budgets else [])


def _section(title: str, cells: Sequence[Sequence[str]], width: int | None, empty: str) -> list[str]:
    if not cells:
        return [f"{title}: {empty}"]
    return [title, *folded(columns(cells, width, indent="  "), 20)]


def _agent(each: methods.Agent) -> tuple[str, str, str]:
    read = counted(each["records"], "record")
    if each["unknown_records"]:
        kinds = ", ".join(map(plain, each.get("unknown_kinds", [])))
        read += f", {each['unknown_records']:,} not understood" + (f" ({kinds})" if kinds else "")
    state = "" if each["state"] == "ok" else f"  [{plain(each['state'])}]"
    return plain(each["agent"]), counted(each["sessions"], "session"), read + state


def _live(each: methods.Session, now: float, folder: str | None) -> tuple[str, ...]:
    return (
        plain(each["agent"]),
        short(each["id"]),
        f"{plain(each['state'])}, turn {each['turns']}",
        age(each["last_at"], now),
        home(each["root"] or "", folder),
        one_line(each["title"] or ""),
    )


def _watched(each: methods.Project, now: float, folder: str | None) -> tuple[str, ...]:
    open_changes = ""
    if each["dirty"]:
        open_changes = f"{counted(each['dirty'], 'change')} not captured"
        if each["loss_window_s"] is not None:
            open_changes += f" for {span(each['loss_window_s'])}"
    return (
        home(each["root"], folder),
        "paused" if each["paused"] else plain(each["watch"]),
        counted(each["checkpoints"], "checkpoint"),
        _captured(each, now),
        open_changes,
    )


def _budget(budget: methods.Budget) -> str:
    def amount(value: float) -> str:
        return size(value) if budget["unit"] == "bytes" else f"{value:g} {plain(budget['unit'])}".strip()

    limit = budget["limit"]
    return amount(budget["used"]) + (f" of {amount(limit)}" if limit is not None else "")
