"""Connect to the servers in `leafnodes.remotes`.

Owns one connection per remote and its reconnects, each with the next URL: after `reconnect`, or
after the delay that the reason given by the other side requires. It never blocks the event loop,
and never logs credentials or seeds.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.broker.contracts import RemoteAddress
from tradewind.broker.leaf_compression import agreed_mode, is_compressing
from tradewind.broker.leaf_handshake import URLS_MAX, LeafInfo, compression_line, parse_info
from tradewind.client.core.addresses import Address
from tradewind.client.core.connect_options import ConnectOptions
from tradewind.client.core.credentials import login_fields, parse_credentials
from tradewind.client.errors import ClientError
from tradewind.durations import SECOND_NS
from tradewind.errors import ProtocolError, TradewindError
from tradewind.options import LeafProxyOptions, LeafRemoteOptions
from tradewind.own_addresses import address_text
from tradewind.server.config.leaf_urls import leaf_address
from tradewind.server.leafnodes.leaf_greeting import LeafGreeting, upgrade_request
from tradewind.server.links.link import StreamLink, Turns

if TYPE_CHECKING:
    from tradewind.broker.leaf_session import LeafSession
    from tradewind.broker.session import Session
    from tradewind.client.core.upgrade import Upgrade
    from tradewind.server.leafnodes.leaf_frames import DialledFrameLink

STOP_SECONDS = 2.0


class DialledLink(StreamLink):
    """The link of an outgoing connection, whose end is awaited."""

    def __init__(
        self, turns: Turns, open_session: Callable[[], Session], *, is_plain: bool
    ) -> None:
        super().__init__(turns, open_session, is_plain=is_plain)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, error: Exception | None) -> None:
        """Called when the socket is closed."""
        super().connection_lost(error)
        if not self.ended.done():
            self.ended.set_result(None)


class Dialler:
    """Keeps one remote connected."""

    def __init__(self, remote: LeafRemoteOptions, turns: Turns) -> None:
        self.remote = remote
        self._turns = turns
        self._broker = turns.broker
        self._configured = [leaf_address(url.reveal()) for url in remote.urls]
        if not remote.no_randomize:
            self._broker.chance.shuffle(self._configured)
        self._learned: list[Address] = []
        self._next = 0
        self._problem = ""
        self._context: ssl.SSLContext | None = None
        self.session: LeafSession | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect, and reconnect whenever the connection is lost."""
        name = f"leaf node {self._configured[0].host}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def read_files_again(self) -> None:
        """Read the TLS files again for the next connection."""
        self._context = None

    async def stop(self) -> None:
        """Close the connection, and do not reconnect."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=STOP_SECONDS)
        if self.session is not None and not self.session.is_closed:
            self.session.close("Server Shutdown")
            self._turns.turn_needed()

    # ---------------------------------------------------------------- attempts

    def _addresses(self) -> list[Address]:
        known = [*self._learned, *self._configured]
        return list(dict.fromkeys(known))

    def _choose(self) -> Address:
        """The next URL; the URL of the last attempt comes last."""
        addresses = self._addresses()
        address = addresses[self._next % len(addresses)]
        self._next += 1
        return address

    def _learn(self, info: LeafInfo, current: Address) -> None:
        """Remember other servers of the cluster, which accept the same login."""
        urls = info.ws_connect_urls if current.is_websocket else info.leafnode_urls
        if self.remote.ignore_discovered or not urls:
            return
        learned = []
        for url in urls[:URLS_MAX]:
            try:
                found = leaf_address(f"{current.scheme}://{url.rpartition('://')[2]}")
            except ClientError:
                continue  # one bad entry of a server is no reason to drop the others
            learned.append(
                replace(found, path=current.path, user=current.user, password=current.password)
            )
        if learned != self._learned:
            self._learned, self._next = learned, 1

    async def _run(self) -> None:
        reconnect_ns = self._leaf_options_reconnect
        while True:
            address = self._choose()
            try:
                link = await self._connect(address)
            except (TradewindError, OSError, TimeoutError) as error:
                self._say(address, _reason(error))
                wait_ns = reconnect_ns() + self._broker.chance.randrange(max(reconnect_ns(), 1))
            else:
                self._problem = ""
                await link.ended
                session = self.session
                assert session is not None
                if session.remote_urls is not None:
                    self._learn(LeafInfo(leafnode_urls=session.remote_urls), address)
                wait_ns = session.retry_ns or reconnect_ns()
            await asyncio.sleep(wait_ns / SECOND_NS)

    def _leaf_options_reconnect(self) -> int:
        options = self._broker.options.leafnodes
        return SECOND_NS if options is None else options.reconnect_ns

    def _say(self, address: Address, reason: str) -> None:
        """Log the first failure and every changed reason as an error, repeats only when
        debugging.
        """
        text = f"Error trying to connect as leafnode to remote server {address.url!r}: {reason}"
        say = self._broker.log.debug if text == self._problem else self._broker.log.error
        self._problem = text
        say(text)

    # ---------------------------------------------------------------- one connection

    async def _connect(self, address: Address) -> DialledLink | DialledFrameLink:
        """A link whose session has begun the handshake."""
        remote = self.remote
        greeting, transport = await self._open(address)
        is_done = False
        try:
            async with asyncio.timeout(remote.first_info_timeout_ns / SECOND_NS):
                line = await greeting.info
            info = self._first_info(line)
            is_plain = address.scheme != "wss"
            if not address.is_websocket:
                transport, is_plain = await self._secure(address, info, greeting, transport)
            if remote.proxy is not None and remote.proxy.is_secure:
                is_plain = False
            self._learn(info, address)
            login = await asyncio.get_running_loop().run_in_executor(None, self._login, address)
            link = self._establish(address, info, greeting, transport, login, is_plain=is_plain)
            is_done = True
            return link
        finally:
            if not is_done:
                transport.abort()

    async def _open(self, address: Address) -> tuple[LeafGreeting, asyncio.Transport]:
        remote = self.remote
        upgrade = None
        if address.is_websocket:
            upgrade = upgrade_request(
                address.host, address.port, address.path,
                compression=remote.ws_compression, no_masking=remote.ws_no_masking,
            )  # fmt: skip
        is_first = remote.tls is not None and remote.tls.handshake_first
        is_secure = address.scheme == "wss" or (is_first and not address.is_websocket)
        context = await self._tls_context() if is_secure else None
        loop = asyncio.get_running_loop()
        if remote.proxy is not None:
            return await self._open_through(remote.proxy, address, upgrade, context)
        async with asyncio.timeout(remote.dial_timeout_ns / SECOND_NS):
            transport, greeting = await loop.create_connection(
                partial(LeafGreeting, upgrade),
                address.host,
                address.port,
                ssl=context,
                server_hostname=self._hostname(address) if context is not None else None,
            )
        return greeting, transport

    async def _open_through(
        self,
        proxy: LeafProxyOptions,
        address: Address,
        upgrade: Upgrade | None,
        context: ssl.SSLContext | None,
    ) -> tuple[LeafGreeting, asyncio.Transport]:
        """Open a connection through a proxy; a TLS context is for the hub, not for the proxy."""
        from tradewind.server.leafnodes.leaf_proxy import open_tunnel

        seconds = (proxy.timeout_ns or self.remote.dial_timeout_ns) / SECOND_NS
        place = address_text(address.host, address.port)
        opened, rest = await open_tunnel(proxy, place, seconds)
        if rest and context is not None:
            opened.abort()
            raise ProtocolError("the proxy sent more than its answer before TLS")
        greeting, transport = LeafGreeting(upgrade), opened
        if context is not None:
            try:
                transport = await self._start_tls(address, greeting, opened)
            except BaseException:
                opened.abort()
                raise
        greeting.connection_made(transport)
        if context is None:
            opened.set_protocol(greeting)
            if rest:
                greeting.data_received(rest)
            opened.resume_reading()
        return greeting, transport

    def _first_info(self, line: bytes) -> LeafInfo:
        if line[:5].upper() != b"INFO ":
            raise ProtocolError("the other end does not speak the protocol of leaf nodes")
        info = parse_info(line[5:])
        if not info.client_id or info.leafnode_urls is None:
            raise ProtocolError("the other end is not a port for leaf nodes")
        return info

    async def _secure(
        self, address: Address, info: LeafInfo, greeting: LeafGreeting, transport: asyncio.Transport
    ) -> tuple[asyncio.Transport, bool]:
        """Change to TLS if either side wants it; False if the connection is secure now."""
        tls = self.remote.tls
        if tls is not None and tls.handshake_first:
            return transport, False
        if not (info.tls_required or tls is not None or address.scheme == "tls"):
            return transport, True
        return await self._start_tls(address, greeting, transport), False

    async def _start_tls(
        self, address: Address, greeting: LeafGreeting, transport: asyncio.Transport
    ) -> asyncio.Transport:
        tls = self.remote.tls
        seconds = (tls.timeout_ns if tls is not None else 2 * SECOND_NS) / SECOND_NS
        async with asyncio.timeout(seconds):
            secured = await asyncio.get_running_loop().start_tls(
                transport, greeting, await self._tls_context(),
                server_hostname=self._hostname(address),
            )  # fmt: skip
        if secured is None:
            raise ClientError("the connection was closed during the TLS handshake")
        return secured

    async def _tls_context(self) -> ssl.SSLContext:
        """The TLS context. Created once, and again after a reload, in a thread: reading all
        authorities takes long.
        """
        if self._context is None:
            tls = self.remote.tls
            files = ConnectOptions() if tls is None else ConnectOptions(
                tls_ca_file=tls.ca_file, tls_cert_file=tls.cert_file, tls_key_file=tls.key_file
            )  # fmt: skip
            loop = asyncio.get_running_loop()
            context = await loop.run_in_executor(None, files.ssl_context)
            if tls is not None and tls.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._context = context
        return self._context

    def _hostname(self, address: Address) -> str:
        """The name that the certificate must have; for a discovered address, that of a configured
        one.
        """
        tls = self.remote.tls
        if tls is not None and tls.hostname:
            return tls.hostname
        return address.host if address in self._configured else self._configured[0].host

    def _login(self, address: Address) -> Callable[[str], dict[str, str]]:
        """The function that creates the login for a nonce; files are read now."""
        jwt, seed = "", self.remote.nkey_seed.reveal()
        if self.remote.credentials:
            try:
                content = Path(self.remote.credentials).expanduser().read_text()
            except OSError as error:
                raise ClientError(
                    f"credentials {self.remote.credentials!r}: {error.strerror}"
                ) from None
            jwt, seed = parse_credentials(content)
        options = ConnectOptions(user_jwt=jwt, nkey_seed=seed)

        def login(nonce: str) -> dict[str, str]:
            fields = login_fields(options, address, nonce)
            if address.user and not address.password:
                fields["user"] = address.user
            return fields

        return login

    def _establish(
        self,
        address: Address,
        info: LeafInfo,
        greeting: LeafGreeting,
        transport: asyncio.Transport,
        login: Callable[[str], dict[str, str]],
        *,
        is_plain: bool,
    ) -> DialledLink | DialledFrameLink:
        """Let the link take over the socket."""
        remote, leaves = self.remote, self._broker.leaves
        assert leaves is not None, "dialling requires leaf nodes"
        peer = transport.get_extra_info("peername") or (address.host, address.port)
        place = RemoteAddress(str(peer[0]), int(peer[1]))
        # WebSocket has its own compression.
        offered = "" if address.is_websocket else info.compression
        mode = agreed_mode(remote.compression.mode, offered)
        kind = "LEAFNODE_WS" if address.is_websocket else "LEAFNODE"

        def open_session() -> LeafSession:
            self.session = leaves.solicited(remote, place, info, login, mode, kind)
            return self.session

        if greeting.encoder is not None and greeting.decoder is not None:
            from tradewind.server.leafnodes.leaf_frames import DialledFrameLink

            frames = DialledFrameLink(self._turns, transport)
            transport.set_protocol(frames)
            frames.begin(open_session(), greeting.decoder, greeting.encoder)
            return frames
        if is_compressing(mode):
            transport.write(compression_line(remote.compression.mode))
        link = DialledLink(self._turns, open_session, is_plain=is_plain)
        transport.set_protocol(link)
        link.connection_made(transport)
        return link


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
