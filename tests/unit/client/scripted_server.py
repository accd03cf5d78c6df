"""A server that plays a script to each of its connections, TLS included.

Stands in for an attacker between a client and its server: bytes sent before TLS is established need
no key at all, bytes inside TLS need the key of its certificate.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from certificates import Certificate

SECONDS = 20.0
Script = Callable[["Peer"], None]


def info_line(**fields: Any) -> bytes:
    """An INFO that promises headers and, unless told otherwise, TLS."""
    about = {"server_id": "S", "headers": True, "tls_required": True, "max_payload": 1 << 20}
    return b"INFO " + json.dumps({**about, **fields}).encode() + b" \r\n"


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket, certificate: Certificate | None) -> None:
        self._socket = sock
        self._same = sock.dup()  # of use also while TLS has the other
        self._certificate = certificate
        self._rest = b""
        self.received = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def start_tls(self) -> None:
        assert self._certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate.cert_file, self._certificate.key_file)
        self._socket = context.wrap_socket(self._socket, server_side=True)

    def read(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionResetError
        self._rest += data
        self.received += data

    def read_line(self) -> bytes:
        while b"\r\n" not in self._rest:
            self.read()
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def log_in(self, *repeated: bytes) -> None:
        """Accept the login; INFO is repeated behind the first PONG, as servers do."""
        while not self.read_line().startswith(b"PING"):
            pass
        self.send(b"PONG\r\n" + b"".join(repeated))

    def serve(self) -> None:
        """Answer every PING until the client leaves."""
        while True:
            if self.read_line() == b"PING":
                self.send(b"PONG\r\n")

    def wait_for(self, start: bytes) -> bytes:
        """The next line that begins so; PINGs before it are answered."""
        while not (line := self.read_line()).startswith(start):
            if line == b"PING":
                self.send(b"PONG\r\n")
        return line

    def stop(self) -> None:
        """Wake the thread that plays the script."""
        with suppress(OSError):
            self._same.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
        self._same.close()


class ScriptedServer:
    """Plays the next script to each connection, the last one to all that follow."""

    def __init__(self, *scripts: Script, certificate: Certificate | None = None) -> None:
        self._scripts = list(scripts)
        self._certificate = certificate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.peers: list[Peer] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ScriptedServer:
        self._start(self._accept)
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self.peers:
            peer.stop()
        for thread in self._threads:
            thread.join(SECONDS)

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(SECONDS)
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            peer = Peer(sock, self._certificate)
            self.peers.append(peer)
            self._start(self._play, script, peer)

    def _play(self, script: Script, peer: Peer) -> None:
        try:
            script(peer)
        except OSError:
            pass  # the client has left, as it should in most of the tests
        finally:
            peer.close()


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait for something that no event tells."""
    for _ in range(int(SECONDS * 100)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")
