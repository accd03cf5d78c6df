"""The same protocol over WebSocket, as a browser would speak it.

    python examples/websocket.py                         starts a server of its own
    python examples/websocket.py ws://127.0.0.1:8080     uses one with a websocket listener

In a configuration file the listener is:   websocket { listen: "127.0.0.1:8080", no_tls: true }
The `websockets` package is among the development tools that `make build` installs.
"""
# ruff: noqa: T201 - an example talks to the terminal

import sys

from websockets.sync.client import connect

import tradewind
from tradewind.options import WebsocketOptions


def show(url: str) -> None:
    """One connection that hears itself. A message of WebSocket may hold any piece of the stream."""
    received = b""
    with connect(url) as connection:
        connection.send(b'CONNECT {"verbose":false}\r\nSUB chat.room 1\r\n')
        connection.send(b"PUB chat.room 5\r\nhello\r\n")
        while b"MSG chat.room 1 5\r\nhello\r\n" not in received:
            piece = connection.recv(timeout=5)
            received += piece if isinstance(piece, bytes) else piece.encode()
    print(received.split(b" ", 1)[0].decode())
    print("chat.room: hello")


def main() -> None:
    """Use the server that is named, or start one."""
    if len(sys.argv) > 1:
        show(sys.argv[1])
        return
    # Without TLS this is for experiments on one machine; the server says so in its log.
    listener = WebsocketOptions(host="127.0.0.1", port=-1, no_tls=True)
    with tradewind.serve(websocket=listener) as server:
        print(f"listening on {server.websocket_url}")
        show(server.websocket_url)


if __name__ == "__main__":
    main()
