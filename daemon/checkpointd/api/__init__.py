"""The socket, the dispatcher, the handlers."""
