"""Decide who may run a pipeline or SQL on the dashboard's machine.

Owns the rules. Starting a pipeline or a query runs code with the rights of the user who started the
dashboard, and can read that user's files; NATS permissions do not cover this. Only that user is
therefore allowed to:

- never with --read-only;
- if visitors log in, only with --allow-run: a NATS login grants nothing on this machine;
- on loopback, where every user of the machine can connect, only for connections whose other end is
  a process of the same user, according to the kernel.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tradewind.errors import ConfigError
from tradewind.platform_calls import PROC

Address = tuple[str, int]
ESTABLISHED: Final = "01"
TABLES: Final = (f"{PROC}/net/tcp", f"{PROC}/net/tcp6")
READ_ONLY: Final = "The dashboard was started with --read-only: it runs nothing on its machine."
NEEDS_FLAG: Final = (
    "Pipelines and SQL run with the rights of the user who started the dashboard, which a NATS"
    " login does not give. Start it with --allow-run if everybody who can log in may do that."
)
OTHER_USER: Final = (
    "Pipelines and SQL run with the rights of the user who started the dashboard, and your"
    " browser is not one of that user's programs. Start the dashboard yourself, or with"
    " --allow-run if everybody on this machine may do that."
)


@dataclass(frozen=True, slots=True)
class RunRules:
    """The flags that decide who may run programs."""

    is_read_only: bool = False
    asks_login: bool = False
    allow_run: bool = False

    def __post_init__(self) -> None:
        if self.is_read_only and self.allow_run:
            raise ConfigError("--allow-run must not be combined with --read-only")

    def refusal(self, client: Address | None, server: Address | None) -> str:
        """Why a visitor may run nothing; empty if they may. Addresses are those of the request."""
        if self.is_read_only:
            return READ_ONLY
        if self.allow_run:
            return ""
        if self.asks_login:
            return NEEDS_FLAG
        return "" if peer_user(client, server) == os.getuid() else OTHER_USER


def peer_user(client: Address | None, server: Address | None) -> int | None:
    """The user of the process at the other end of a connection on this machine; None if unknown."""
    if client is None or server is None:
        return None
    for table in TABLES:
        try:
            lines = Path(table).read_text().splitlines()
        except OSError:
            continue
        user = user_in(lines, client, server)
        if user is not None:
            return user
    return None


def user_in(lines: list[str], client: Address, server: Address) -> int | None:
    """The owner of the socket whose own end is `client`, in a table of the kernel.

    Only open sockets count: the kernel assigns orphaned ones to root.
    """
    wanted = {(one, other) for one in _written(client) for other in _written(server)}
    for line in lines[1:]:
        parts = line.split()
        if len(parts) > 7 and parts[3] == ESTABLISHED and (parts[1], parts[2]) in wanted:
            return int(parts[7]) if parts[7].isdigit() else None
    return None


def _written(address: Address) -> list[str]:
    """An address as the kernel writes it: words of four bytes in the byte order of the machine."""
    try:
        found = ipaddress.ip_address(address[0])
    except ValueError:
        return []
    forms = [found.packed]
    if isinstance(found, ipaddress.IPv4Address):
        forms.append(b"\0" * 10 + b"\xff\xff" + found.packed)
    elif found.ipv4_mapped is not None:
        forms.append(found.ipv4_mapped.packed)
    port = f"{address[1]:04X}"
    return [f"{_words(form)}:{port}" for form in forms]


def _words(data: bytes) -> str:
    return "".join(
        f"{int.from_bytes(data[begin : begin + 4], sys.byteorder):08X}"
        for begin in range(0, len(data), 4)
    )
