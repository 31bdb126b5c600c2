"""What needs libraries beyond the client's own: nothing yet."""
