"""Stands in front of the real package on PYTHONPATH, so that `python -m checkpointd` is __main__ beside this."""
