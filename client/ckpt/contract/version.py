"""The versions that client and daemon state to each other."""

__version__ = "0.1.0"
PROTOCOL = 1
