"""When it is done: the only apscheduler."""
