"""The errors of the protocol: one word each, with its number, its exit status and the way out."""

from typing import Literal, NamedTuple

Code = Literal[
    "parse-error",
    "invalid-request",
    "unknown-method",
    "invalid-params",
    "internal",
    "refused",
    "failed",
    "busy",
    "timed-out",
    "too-large",
    "usage",
    "not-found",
    "ambiguous",
    "conflict",
    "undecided",
    "not-running",
    "not-responding",
    "incompatible",
]


class Entry(NamedTuple):
    """What one code means. `number` is JSON-RPC's `code`, the word itself is `data.code`."""

    number: int
    exit_status: int
    meaning: str
    way_out: str


CATALOGUE: dict[Code, Entry] = {
    "parse-error": Entry(
        -32700, 70, "The request is not one JSON object on one line.", "Report it, with the client used."
    ),
    "invalid-request": Entry(
        -32600, 70, "The object is not a JSON-RPC 2.0 request.", "Report it, with the client used."
    ),
    "unknown-method": Entry(
        -32601, 6, "The daemon does not know the method.", "`ckpt restart`, so that both are of one version."
    ),
    "invalid-params": Entry(
        -32602,
        2,
        "A parameter is missing, of the wrong type or out of range; the message names it.",
        "Correct the argument; `ckpt COMMAND -h` shows examples.",
    ),
    "internal": Entry(
        -32603,
        70,
        "A bug in the daemon or the client. Nothing that was saved is lost.",
        "Report it with the lines shown; the daemon's log has the traceback.",
    ),
    "refused": Entry(
        -32001,
        1,
        "The daemon will not do it: a rule, a setting or a limit says no.",
        "The hint names the rule and who may change it.",
    ),
    "failed": Entry(
        -32002, 1, "It was tried and did not work. Nothing is lost.", "The message names the file and the cause."
    ),
    "busy": Entry(-32003, 1, "The daemon has too much to do at the moment.", "Try again."),
    "timed-out": Entry(
        -32004,
        1,
        "The answer took longer than allowed. What was started goes on in the daemon.",
        "`ckpt status` and `ckpt list` show how it ended.",
    ),
    "too-large": Entry(
        -32005,
        1,
        "The request or its answer is larger than the protocol allows.",
        "Ask for less: fewer paths, or `-n`.",
    ),
    "usage": Entry(-32010, 2, "The command line cannot be understood.", "`ckpt COMMAND -h` shows examples."),
    "not-found": Entry(
        -32011, 3, "Nothing has that name here.", "`ckpt list`, `ckpt sessions` and `ckpt projects` show what there is."
    ),
    "ambiguous": Entry(
        -32012, 3, "More than one thing has that name or prefix.", "Use more of the id; the hint lists the candidates."
    ),
    "conflict": Entry(-32013, 4, "What was planned no longer fits what is there.", "Look at the new plan and decide."),
    "undecided": Entry(
        -32014, 4, "A plan needs a yes, and there is nobody to ask.", "Repeat with `--yes` after reading the plan."
    ),
    "not-running": Entry(-32020, 5, "No daemon answers.", "`ckpt up`"),
    "not-responding": Entry(
        -32021, 5, "A daemon is there but does not answer. The client never ends it by itself.", "`ckpt restart`"
    ),
    "incompatible": Entry(-32022, 6, "Client and daemon speak different versions of the protocol.", "`ckpt restart`"),
}

BY_NUMBER: dict[int, Code] = {entry.number: code for code, entry in CATALOGUE.items()}


class CkptError(Exception):
    """An error that a user can meet: what happened, then the way out."""

    def __init__(self, code: Code, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
        self.hint = hint

    @property
    def exit_status(self) -> int:
        return CATALOGUE[self.code].exit_status
