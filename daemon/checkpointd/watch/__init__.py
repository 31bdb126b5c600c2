"""Watching: the only watchdog."""
