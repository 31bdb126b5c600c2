"""File layouts of other tools: nothing yet."""
