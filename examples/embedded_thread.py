"""A server in a thread of its own, for programs that do not use asyncio.

    python examples/embedded_thread.py

It also shows how small the protocol is: the client here is a plain socket, no library at all.
"""
# ruff: noqa: T201 - an example talks to the terminal

import socket

import tradewind


def main() -> None:
    """Start a server, say a few lines of the protocol to it, stop it."""
    with tradewind.serve(port=0) as server:
        print(f"listening on {server.url}")
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
            lines = connection.makefile("rb")
            # The server speaks first: one line of JSON that says what it is and can do.
            print(lines.readline()[:4].decode())
            # PUB <subject> <number of bytes>, then the payload; SUB <subject> <id of our choice>.
            connection.sendall(b'CONNECT {"verbose":false}\r\n')
            connection.sendall(b"SUB weather.> 1\r\n")
            connection.sendall(b"PUB weather.north 5\r\nwindy\r\n")
            print(lines.readline().decode().strip())  # MSG <subject> <our id> <number of bytes>
            print(lines.readline().decode().strip())
    print("stopped")


if __name__ == "__main__":
    main()
