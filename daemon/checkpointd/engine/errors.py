"""What the engine refuses or fails to do, in words for people."""


class EngineError(Exception):
    """What happened, and the way out where there is one."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotFound(EngineError):
    """No checkpoint, session, project, path or plan of that name."""


class Ambiguous(EngineError):
    """More than one has that name or prefix; the hint lists some."""


class Conflict(EngineError):
    """What was planned no longer fits what is there; nothing was done."""


class Refused(EngineError):
    """A rule, a setting or a limit says no; nothing was done."""


class Busy(EngineError):
    """Too much to do at the moment; trying again is the way out."""


class Failed(EngineError):
    """It was tried and did not work: a full disk, a vault that cannot be written. Nothing is lost."""
