"""The thin client of checkpointd."""
