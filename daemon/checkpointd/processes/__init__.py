"""Processes: the only psutil."""
