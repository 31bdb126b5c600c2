"""Frames: one JSON-RPC 2.0 object a line, UTF-8, each with a limit."""

MAX_REQUEST = 1 << 20
"""Bytes of one line from a client, the newline included."""

MAX_REPLY = 16 << 20
"""Bytes of one line from the daemon, the newline included."""

FIRST_LINE_SECONDS = 10.0
"""Time a client has to send its first complete line."""

HANDSHAKE_SECONDS = 0.2
"""After this long without an answer to `hello` the client says that it waits."""

PATIENCE_SECONDS = 5.0
"""After this long without an answer to `hello` the client gives up."""

REQUEST_SECONDS = 60.0
"""Time a request has when it tells no progress; progress starts the time anew."""

PROGRESS = "progress"
"""Notification: `{"id": of the request, "stage": text, "done": n, "total": n or null}`."""

EVENT = "event"
"""Notification: `{"id": of the subscribe request, "event": Happening}`."""

CLOSED = "closed"
"""Notification: `{"id": of the subscribe request, "reason": text}`; the last one of a subscription."""
