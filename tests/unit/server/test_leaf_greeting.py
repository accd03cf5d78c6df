"""The first INFO of a hub is one line: what comes behind it, before TLS, is from anybody."""

from __future__ import annotations

import asyncio

import pytest

from tradewind.errors import ProtocolError
from tradewind.server.leafnodes.leaf_greeting import INFO_BYTES_MAX, LeafGreeting

INFO = b'INFO {"leafnode_urls":[],"client_id":1,"tls_required":true}\r\n'


class Socket(asyncio.Transport):
    """Only knows whether it was cut."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False

    def abort(self) -> None:
        self.is_cut = True


@pytest.mark.parametrize("behind", [b"LMSG a 1\r\nx\r\n", b"PONG\r\n", b"-ERR 'x'\r\n", b"L"])
@pytest.mark.parametrize("is_one_piece", [True, False])
async def test_bytes_behind_the_first_info_end_the_attempt(
    behind: bytes, is_one_piece: bool
) -> None:
    greeting, sock = LeafGreeting(None), Socket()
    greeting.connection_made(sock)
    for data in (INFO + behind,) if is_one_piece else (INFO, behind):
        greeting.data_received(data)
    assert sock.is_cut
    with pytest.raises(ProtocolError, match="more than INFO"):
        await greeting.info


async def test_first_line_without_an_end_ends_the_attempt() -> None:
    greeting, sock = LeafGreeting(None), Socket()
    greeting.connection_made(sock)
    greeting.data_received(b"I" * (INFO_BYTES_MAX + 1))
    assert sock.is_cut
    with pytest.raises(ProtocolError, match="does not end"):
        await greeting.info
