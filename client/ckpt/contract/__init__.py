"""The protocol between ckpt and checkpointd, defined once; standard library only."""
