"""What is done: recording, restoring, reaping."""
