"""The name of a server whose configuration has none.

Owns how it is made. It must be unique: to a hub, leaf nodes of one name are duplicates of each
other, and inboxes of servers are made of their names. So the host's name is followed by six
characters of the server id.
"""

from __future__ import annotations

import re
import socket
from typing import Final

HOST_CHARACTERS_MAX: Final = 48
# The first characters of every server id are nearly the same.
_ID_PART: Final = slice(2, 8)
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_-]")


def default_server_name(server_id: str, host: str | None = None) -> str:
    """`harbour-X4TQ2M` on the host harbour.example; without a usable name the server id."""
    if host is None:
        host = socket.gethostname()
    first = _UNUSUAL.sub("-", host.partition(".")[0])[:HOST_CHARACTERS_MAX].strip("-")
    return f"{first}-{server_id[_ID_PART]}" if first else server_id
