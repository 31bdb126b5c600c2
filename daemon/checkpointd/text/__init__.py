"""Every text passes here before it is written."""
