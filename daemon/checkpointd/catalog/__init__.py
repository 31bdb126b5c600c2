"""The catalog: a rebuildable SQLite index."""
