"""The catalog: a rebuildable SQLite index over vaults and logs. The only sqlite3 for our own state."""
