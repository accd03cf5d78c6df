"""Logins in pieces over real sockets: the server reads each piece before the next one is sent."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from login_kit import CLIENT_SCRIPT, GATES, Papers, Served, served, session_besides, until

LOOPS: list[Any] = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]
ANSWERS = b"MSG a 1 2\r\nhi\r\nPONG\r\n"
PLACES = (1, 9, -len(CLIENT_SCRIPT) - 1, -len(CLIENT_SCRIPT), -len(CLIENT_SCRIPT) + 3, -1)


async def log_in(server: Served, place: int, context: ssl.SSLContext | None) -> bytes:
    """Log in with CONNECT and what follows in two pieces; gives the answers."""
    server.forget()
    known = set(server.broker.sessions)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        server.app.port,
        ssl=context,
        server_hostname="localhost" if context is not None else None,
    )
    try:
        info = json.loads((await reader.readuntil(b"\r\n")).removeprefix(b"INFO "))
        fields = server.gate.fields(info.get("nonce", ""), True)
        connect = {"verbose": False, "pedantic": False} | fields
        data = b"CONNECT " + json.dumps(connect).encode() + b"\r\n" + CLIENT_SCRIPT
        session = session_besides(server, known)
        writer.write(data[:place])
        activity = session.last_activity_ns
        await until(lambda: session.last_activity_ns != activity)
        writer.write(data[place:])
        answers = await reader.readuntil(b"PONG\r\n")
        writer.write(b"PING\r\n")
        return answers + await reader.readuntil(b"PONG\r\n")
    finally:
        writer.close()


@pytest.mark.slow
@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("gate", ["jwt_memory", "bcrypt", "certificate"])
def test_a_login_read_in_two_pieces_is_answered_once(
    gate: str, new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    context = papers.client_context() if gate == "certificate" else None

    async def run() -> None:
        async with served(GATES[gate], tmp_path, papers) as server:
            for place in PLACES:
                assert await log_in(server, place, context) == ANSWERS + b"PONG\r\n", place

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
