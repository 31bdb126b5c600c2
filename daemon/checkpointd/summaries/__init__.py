"""Events in, structured summaries and documents out: pure."""
