"""The way through an HTTP proxy: what is asked, and what is made of its answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trustme

from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.errors import ClientError
from tradewind.errors import ProtocolError
from tradewind.options import LeafProxyOptions, Secret
from tradewind.server.leafnodes.leaf_proxy import ANSWER_BYTES_MAX, open_tunnel

OK = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"


@asynccontextmanager
async def proxy_that_says(
    answer: bytes, *, tls: ssl.SSLContext | None = None, ends: bool = False
) -> AsyncIterator[tuple[LeafProxyOptions, list[bytes]]]:
    """A proxy, and what it was asked."""
    asked: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if not ends:
            await over.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield LeafProxyOptions("127.0.0.1", port, tls is not None), asked
    finally:
        over.set()
        server.close()


async def test_what_came_behind_the_answer_is_kept() -> None:
    async with proxy_that_says(OK + b"INFO {}\r\n") as (proxy, asked):
        transport, rest = await open_tunnel(proxy, "hub:7422", 10)
        assert rest == b"INFO {}\r\n"
        assert not transport.is_reading()
        assert asked == [b"CONNECT hub:7422 HTTP/1.1\r\nHost: hub:7422\r\n\r\n"]
        transport.abort()


async def test_a_login_is_sent() -> None:
    async with proxy_that_says(OK) as (place, asked):
        proxy = LeafProxyOptions(place.host, place.port, False, "anna", Secret("s3cret"))
        transport, _ = await open_tunnel(proxy, "hub:1", 10)
        assert b"\r\nProxy-Authorization: Basic YW5uYTpzM2NyZXQ=\r\n" in asked[0]
        transport.abort()


@pytest.mark.parametrize(
    ("answer", "ends", "error", "text"),
    [
        (b"HTTP/1.1 407 Who are you\r\n\r\n", False, ClientError, "refused .* '407 Who are you'"),
        (b"HTTP/1.1 2000\r\n\r\n", False, ClientError, "refused"),
        (b"HTTP/1.1\r\n\r\n", False, ClientError, "refused"),
        (b"nonsense\r\n\r\n", False, ProtocolError, "does not speak HTTP"),
        (b"\x00\xff" * ANSWER_BYTES_MAX, False, ProtocolError, "does not end"),
        (b"HTTP/1.1 200", True, ClientError, "closed the connection before it answered"),
        (b"", True, ClientError, "closed the connection before it answered"),
    ],
    ids=["407", "2000", "nothing", "nonsense", "endless", "half", "closed"],
)
async def test_other_answers_are_errors(
    answer: bytes, ends: bool, error: type[Exception], text: str
) -> None:
    async with proxy_that_says(answer, ends=ends) as (proxy, _):
        with pytest.raises(error, match=text):
            await open_tunnel(proxy, "hub:1", 10)


async def test_a_proxy_that_says_nothing_is_given_up() -> None:
    async with proxy_that_says(b"HTTP/1.1") as (proxy, _):
        with pytest.raises(TimeoutError):
            await open_tunnel(proxy, "hub:1", 0.05)


async def test_a_proxy_may_be_asked_by_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "hub").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    monkeypatch.setattr(ConnectOptions, "ssl_context", lambda _self: trusting)
    async with proxy_that_says(OK, tls=server) as (proxy, asked):
        transport, rest = await open_tunnel(proxy, "hub:1", 10)
        assert rest == b""
        assert asked
        session = cast("ssl.SSLObject", transport.get_extra_info("ssl_object"))
        assert session.version() in ("TLSv1.2", "TLSv1.3")
        transport.abort()
