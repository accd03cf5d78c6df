"""Many connections at once that want nothing good, for tests about what others feel."""

from __future__ import annotations

import json
import socket
import ssl
from types import TracebackType

CONNECT_SECONDS = 20


class Flood:
    """So many connections from one address; each sends the same and is left as it is."""

    def __init__(self, port: int, count: int, source: str = "127.0.0.1") -> None:
        self.sockets = [
            socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS, (source, 0))
            for _ in range(count)
        ]

    def __enter__(self) -> Flood:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for one in self.sockets:
            one.close()

    def read_infos(self) -> None:
        """Every connection is greeted."""
        for one in self.sockets:
            one.settimeout(CONNECT_SECONDS)
            assert one.recv(65536).startswith(b"INFO ")

    def send(self, data: bytes) -> None:
        """The same over every connection."""
        for one in self.sockets:
            one.sendall(data)


def connect_line(user: str, password: str) -> bytes:
    """CONNECT for a user, and a PING behind it."""
    options = {"verbose": False, "user": user, "pass": password}
    return f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode()


def client_hello() -> bytes:
    """The first bytes of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a peer")
