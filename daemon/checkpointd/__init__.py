"""checkpointd: always-on checkpoints for coding agents."""
