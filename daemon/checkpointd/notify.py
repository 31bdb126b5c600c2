"""sd_notify: telling the service manager how the daemon is."""

import socket
from collections.abc import Mapping


class Notifier:
    """Sends to the socket in NOTIFY_SOCKET; does nothing where there is none."""

    def __init__(self, env: Mapping[str, str]) -> None:
        address = env.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.connect(self._address)
                for line in lines:
                    channel.send(line.encode())
        except OSError:
            return  # the service manager went away: nothing to tell
