"""A WebSocket connection: first the HTTP upgrade, then protocol bytes inside frames.

Owns the two codecs of one connection. Its session is like any other: it has the same bytes, gate
and limits.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

from tradewind.broker.contracts import RemoteAddress, label
from tradewind.broker.room import Guests
from tradewind.broker.session import Session
from tradewind.options import SECOND_NS, WebsocketOptions
from tradewind.server.auth import credentials_from_cookies
from tradewind.server.link import Turns
from tradewind.server.link_core import SessionLink
from tradewind.server.tls_codec import tls_facts
from tradewind.server.tls_pipe import peer_ip
from tradewind.server.websocket_handshake import Handshake, HandshakeResult
from tradewind.wire import ops
from tradewind.wire.websocket import (
    OPCODE_CLOSE,
    OPCODE_PING,
    OPCODE_PONG,
    FrameDecoder,
    FrameEncoder,
    WebsocketError,
    close_code_for,
)

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
UNAUTHENTICATED_MESSAGE_BYTES_MAX = 64 * 1024
# Servers ask for a path that ends so.
LEAFNODE_PATH = "/leafnode"


class FrameLink(SessionLink, asyncio.Protocol):
    """Protocol bytes in frames, once somebody has agreed on how (`use_codecs`)."""

    def __init__(self, turns: Turns) -> None:
        super().__init__(turns)
        self._decoder: FrameDecoder | None = None
        self._encoder: FrameEncoder | None = None
        self._raw: asyncio.Transport | None = None
        self._close_sent = False

    def use_codecs(
        self, transport: asyncio.Transport, decoder: FrameDecoder, encoder: FrameEncoder
    ) -> None:
        """Speak in frames from now on."""
        self._raw = transport
        self._decoder = decoder
        self._encoder = encoder

    def data_received(self, data: bytes) -> None:
        """Frames."""
        try:
            self._run(data)
        except Exception as error:  # our own bug may end this connection, but no other
            self._end_by(error)

    def _end_by(self, error: Exception) -> None:
        self.give_up(error)
        if self._raw is not None:
            self._raw.abort()

    def _run(self, data: bytes) -> None:
        """Decode and run what came; a compressed flood is taken in slices, with reading paused
        meanwhile.
        """
        session, decoder = self.session, self._decoder
        if session is None or decoder is None or session.is_closed:
            return
        decoder.max_message_bytes = self._message_bytes_max(session)
        try:
            payload = decoder.feed(data)
            if payload:
                session.feed(payload, self.turns.broker.now_ns())
            self._answer_control()
        except WebsocketError as error:
            self.turns.broker.log.error(f"{label(session)} - {error}")
            assert self._encoder is not None
            self._close_with(
                self._encoder.encode_close(error.close_code, str(error)), ops.CLOSED_PROTOCOL
            )
        if decoder.pending and not session.is_closed:
            session.touch()
            asyncio.get_running_loop().call_soon(self._run_next_slice)
        self.data_done()

    def _run_next_slice(self) -> None:
        """The next slice, as soon as the session can take it; `flush` comes back here when it was
        blocked.
        """
        if self.session is not None and not self.session.blocked:
            try:
                self._run(b"")
            except Exception as error:
                self._end_by(error)

    def must_wait(self, session: Session) -> bool:
        """Also while decoded input is still to be run."""
        return bool(session.blocked) or (self._decoder is not None and self._decoder.pending)

    def flush(self) -> None:
        """End of a turn; a session that is free again continues with what is left."""
        super().flush()
        session = self.session
        if (
            session is not None
            and self._decoder is not None
            and self._decoder.pending
            and not session.blocked
        ):
            asyncio.get_running_loop().call_soon(self._run_next_slice)

    def _message_bytes_max(self, session: Session) -> int:
        """What one compressed message may inflate to: little until the peer has shown who it is."""
        if session.must_authenticate:
            return UNAUTHENTICATED_MESSAGE_BYTES_MAX
        return min(8 * self.turns.broker.options.max_payload_bytes, MESSAGE_BYTES_MAX)

    def _answer_control(self) -> None:
        assert self._decoder is not None
        assert self._encoder is not None
        for opcode, payload in self._decoder.take_control():
            # A peer that does not read gets no PONGs, or they would pile up without a limit.
            if opcode == OPCODE_PING and self._raw is not None and not self.write_paused:
                self._raw.write(self._encoder.encode_control(OPCODE_PONG, payload))
            elif opcode == OPCODE_CLOSE:
                self._close_with(
                    self._encoder.encode_control(OPCODE_CLOSE, payload), ops.CLOSED_BY_CLIENT
                )

    def _close_with(self, frame: bytes, reason: str) -> None:
        """Send a close frame of our own choice behind what is queued, then end the session."""
        if self._raw is not None and self.session is not None:
            self.flush()
            self._raw.write(frame)
            self._close_sent = True
            self.session.close(reason)

    def encode(self, data: bytes) -> bytes:
        """Protocol bytes as frames."""
        assert self._encoder is not None
        return self._encoder.encode(data)

    def farewell(self, reason: str) -> bytes:
        """The close frame, unless one was sent already."""
        if self._close_sent or self._encoder is None:
            return b""
        return self._encoder.encode_close(close_code_for(reason), reason)


class WebSocketLink(FrameLink):
    """One connection of the websocket listener: the upgrade first."""

    def __init__(
        self,
        turns: Turns,
        options: WebsocketOptions,
        upgrading: Guests[WebSocketLink],
        *,
        tls: bool,
    ) -> None:
        super().__init__(turns)
        self._options = options
        self._upgrading = upgrading  # those that have no session yet, counted by the listener
        self._tls = tls
        leaves = turns.broker.leaves
        self._handshake: Handshake | None = Handshake(
            options, tls, leafnodes=leaves is not None and leaves.options.port != 0
        )
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is up; the client has to ask for the upgrade in time."""
        transport = cast(asyncio.Transport, transport)
        self._raw = transport
        self._upgrading.add(self, peer_ip(transport))
        seconds = self._options.handshake_timeout_ns / SECOND_NS
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self._handshake is not None and self._raw is not None:
            self._raw.write(self._handshake.expire())
            self._raw.close()

    def abandon_upgrade(self) -> None:
        """The server stops, or has other pins: nobody else closes what has no session."""
        if self.session is None and self._raw is not None:
            self._raw.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of the upgrade, or frames."""
        try:
            if self._handshake is not None:
                result = self._handshake.feed(data)
                if result is not None:
                    self._upgraded(result)
            else:
                self._run(data)
        except Exception as error:  # our own bug may end this connection, but no other
            self._end_by(error)

    def _upgraded(self, result: HandshakeResult) -> None:
        assert self._raw is not None
        broker = self.turns.broker
        self._handshake = None
        self._upgrading.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._raw.write(result.response)
        if not result.accepted:
            broker.log.error(f"websocket handshake error: {result.error}")
            self._raw.close()
            return
        decoder = FrameDecoder(
            UNAUTHENTICATED_MESSAGE_BYTES_MAX, not result.no_masking, result.compression
        )
        encoder = FrameEncoder(
            result.compression,
            result.is_browser,
            fragment_compressed=result.fragment_compressed,
            window_bits=result.window_bits,
        )
        self.use_codecs(self._raw, decoder, encoder)
        ip, port = self._raw.get_extra_info("peername")[:2]
        remote = RemoteAddress(ip.removeprefix("::ffff:"), port)
        session: Session
        if not result.path.endswith(LEAFNODE_PATH):
            session = broker.open_session(remote, "WEBSOCKET")
        elif broker.leaves is not None and broker.leaves.options.port:
            session = broker.leaves.accepted(remote, "LEAFNODE_WS")
        else:
            self._raw.close()
            return
        if self._tls:
            session.tls = tls_facts(self._raw.get_extra_info("ssl_object"))
        if result.cookies:
            session.complete_credentials = partial(
                credentials_from_cookies, self._options, result.cookies
            )
        self.attach(session, self._raw)
        self.data_done()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self._upgrading.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(error)
