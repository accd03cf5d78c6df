"""A login that comes in pieces: what follows it in the same bytes runs once, and in order."""

from __future__ import annotations

import json

from harness import StartServer
from jwt_kit import account_jwt, account_key, login, memory_configuration, user_jwt, user_key
from websocket_frames import PING, FrameClient, frame, websocket_config, websocket_port

ACCOUNTS = [account_key(number) for number in range(1, 9)]
USER = user_key(1)
SCRIPT = b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n"


def test_first_login_of_an_account_in_two_frames_runs_what_follows_once(start: StartServer) -> None:
    """The server learns of the account while it runs the second piece of CONNECT."""
    preload = {key.public: account_jwt(key) for key in ACCOUNTS}
    server = start(memory_configuration(preload, more=websocket_config()))
    for number, key in enumerate(ACCOUNTS):
        with FrameClient(websocket_port(server)) as client:
            info = json.loads(client.read_until(b"\r\n").removeprefix(b"INFO "))
            fields = login(user_jwt(USER, key), USER, info["nonce"], protocol=0)
            connect = b"CONNECT " + json.dumps(fields).encode() + b"\r\n"
            place = 1 + number * (len(connect) - 1) // len(ACCOUNTS)
            client.send_text(connect[:place])
            client.send(frame(PING, b"read"))
            assert client.read_frame()[1] == b"read"
            client.send_text(connect[place:] + SCRIPT)
            assert client.read_until(b"PONG\r\n") == b"MSG a 1 2\r\nhi\r\nPONG\r\n", place
            client.send_text(b"PING\r\n")
            assert client.read_until(b"PONG\r\n") == b"PONG\r\n", place
