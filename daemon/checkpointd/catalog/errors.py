"""What can go wrong with the catalog."""


class CatalogError(Exception):
    """The catalog cannot be used; the message names the file."""


class CatalogTooNew(CatalogError):
    """A newer checkpointd wrote the file; it was not touched."""


class CatalogDamaged(CatalogError):
    """SQLite found the file malformed while it was in use; the next start sets it aside and rebuilds."""


class CatalogUnavailable(CatalogError):
    """The file cannot be read or written at present: disk full, read only, locked, no permission."""
