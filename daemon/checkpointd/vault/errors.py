"""What can go wrong with a vault."""


class StoreError(Exception):
    """The vault could not do what was asked; nothing of it is half done. `hint`: the way out, where there is one."""

    hint: str | None = None


class StoreFull(StoreError):
    """No room: the disk or the quota is used up."""

    hint = "Free some room there: it is tried again by itself."


class ReadOnlyStore(StoreError):
    """The vault may be read but not written."""

    hint = "Make it writable for you: it is tried again by itself."


class NotAVault(StoreError):
    """There is no vault at this place."""


class NewerLayout(StoreError):
    """A newer checkpointd made this vault; it is left untouched."""


class MissingObject(StoreError):
    """The vault does not hold an object that was asked for."""

    def __init__(self, oid: bytes) -> None:
        super().__init__(f"The vault holds no object {oid.hex()}.")
        self.oid = oid


class DamagedObject(StoreError):
    """The bytes kept for an object are not the object."""

    def __init__(self, oid: bytes, why: str) -> None:
        super().__init__(f"The object {oid.hex()} is damaged: {why}.")
        self.oid = oid


class DamagedPack(StoreError):
    """A pack or its index is not whole."""


class CheckpointExists(StoreError):
    """A checkpoint of this id is there already; it is never overwritten."""


class BadTree(ValueError):
    """These entries do not make a tree that git accepts."""


class ChangedWhileRead(Exception):
    """A file did not have the size it was announced with."""


class NoCheckpoint(StoreError):
    """The vault has no checkpoint of this id."""


class CaptureFailed(Exception):
    """A capture could not be made, and nothing stands in for it. `hint`: the way out."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class CaptureRefused(CaptureFailed):
    """This root is never captured."""


class CaptureCancelled(Exception):
    """Nobody wanted the capture any more."""
