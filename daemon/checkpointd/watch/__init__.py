"""Watching project files and agents' logs. The only watchdog."""
