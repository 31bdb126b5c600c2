"""What the daemon costs, measured beside the command sequences of its peers: `python -m bench`."""
