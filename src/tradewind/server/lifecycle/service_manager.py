"""Notify systemd that the server is ready, or that it is stopping.

Owns the datagrams to the socket in NOTIFY_SOCKET (`Type=notify` of a unit). It never raises and
never blocks: a service manager that does not listen is not an error. Only the server's own process
sends notifications; an embedded server does not speak for its program.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def tell_service_manager(state: str) -> None:
    """Send a state, if a service manager has asked for it."""
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        # An address in the abstract namespace begins with a zero byte.
        sender.sendto(state.encode(), address.replace("@", "\0", 1))
