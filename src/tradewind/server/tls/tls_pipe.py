"""TLS between a socket and a link: a protocol towards the socket, a transport towards the link.

Owns a connection from accept to the end of the handshake, and the ciphertext afterwards. The first
byte of the client decides. If TLS is required, unencrypted input is never passed on:

    LISTENING    (handshake_first with a delay) INFO is held back, waiting for a hello
    GREETING     the link's first output, INFO, goes out in the clear
    AWAITING     waiting for the first byte: a hello, or plain protocol where that is allowed
    HANDSHAKING  output is held back; at most HANDSHAKE_BYTES_MAX of input
    SECURE       bytes in, bytes out
    PLAIN        the client spoke plain protocol and may: the link talks to the socket itself
    CLOSING      input is thrown away

It never looks at the protocol inside. The module is compiled, with the types in tls_pipe.pxd: all
bytes of a connection pass through it. asyncio's own TLS is not used because it drops a connection
with a failed handshake without sending the alert, and cannot start TLS after INFO.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

from tradewind.broker.room import Guests, Room
from tradewind.durations import SECOND_NS
from tradewind.options import TlsOptions
from tradewind.own_addresses import plain_ip
from tradewind.server.tls.handshakes import HandshakeTurns
from tradewind.server.tls.tls import ServerContext, check_pinned
from tradewind.server.tls.tls_codec import NOT_TLS, SLICE_BYTES, TlsCodec, tls_reason

RECORD_HANDSHAKE = 0x16
AREA_BYTES = 256 * 1024
HANDSHAKE_READ_BYTES = 16 * 1024
HANDSHAKE_BYTES_MAX = 64 * 1024
# Output of TLS itself (key updates) that may wait for a peer that does not read.
CONTROL_BYTES_MAX = 64 * 1024
# A ticket waits for the first output, but nothing larger does.
TICKET_BYTES_MAX = 4096
# After an alert the peer may still be sending; closing at once would reset the connection and lose
# the alert. So input is discarded until the peer has closed, but not for longer than this.
DRAIN_SECONDS = 1.0
# The time that a peer has to read its queued output when its connection is being closed.
LINGER_SECONDS = 5.0


class TlsStage(enum.Enum):
    """The stage of a connection; see the module's description."""

    LISTENING = enum.auto()
    GREETING = enum.auto()
    AWAITING = enum.auto()
    HANDSHAKING = enum.auto()
    SECURE = enum.auto()
    PLAIN = enum.auto()
    CLOSING = enum.auto()


_OPENING = (TlsStage.LISTENING, TlsStage.GREETING, TlsStage.AWAITING, TlsStage.HANDSHAKING)


class TlsUser(Protocol):
    """The object that is notified while a connection is being set up."""

    def opened(self, pipe: TlsTransport) -> None:
        """Called when the socket is connected; nothing has been read yet."""

    def secured(self, pipe: TlsTransport) -> None:
        """Called when the handshake is complete."""

    def stayed_plain(self, transport: asyncio.Transport) -> None:
        """Called when a connection stays without TLS: it continues with the socket's own
        transport.
        """

    def refused(self, reason: str, *, harmless: bool) -> None:
        """Called when a connection was not established; `harmless` if the client merely did not
        begin. The pipe closes itself.
        """


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Settings and buffers that the connections of one listener share.

    `hello_wait_ns`: None greets in the clear first, 0 expects TLS at once, otherwise the time to
    wait for TLS. `area` receives every read of ciphertext, `plain` the data for links that want it
    copied. `pending` has the connections that are not established, `turns` schedules their
    handshakes.
    """

    context: ServerContext
    options: TlsOptions
    hello_wait_ns: int | None = None
    allow_plain: bool = False
    area: memoryview = field(default_factory=lambda: memoryview(bytearray(AREA_BYTES)))
    plain: memoryview = field(default_factory=lambda: memoryview(bytearray(SLICE_BYTES)))
    pending: Guests[TlsTransport] = field(default_factory=lambda: Guests(Room(0)))
    turns: HandshakeTurns = field(default_factory=HandshakeTurns)


class TlsTransport:
    """One connection; `upper` receives the plaintext as if this were its transport."""

    def __init__(
        self,
        upper: asyncio.BufferedProtocol | asyncio.Protocol,
        user: TlsUser,
        settings: TlsSettings,
    ) -> None:
        self._upper = upper
        self._is_buffered = isinstance(upper, asyncio.BufferedProtocol)
        self._user = user
        self._settings = settings
        self._state = TlsStage.CLOSING
        self._plain_allowed = False
        self._codec: TlsCodec | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._held: list[bytes] = []
        self._hello: list[bytes] = []
        self._handshake_bytes = 0
        self._is_pending = False
        self._waits_for_turn = False
        self._ticket_waits = False
        self._read_paused = False
        self._write_paused = False
        self._error: Exception | None = None

    @property
    def state(self) -> TlsStage:
        """The stage of the connection."""
        return self._state

    @property
    def codec(self) -> TlsCodec:
        """The TLS connection; exists only after a hello has arrived."""
        assert self._codec is not None, f"no TLS in {self._state}"
        return self._codec

    def renew(self, settings: TlsSettings) -> None:
        """Called when a reload changed the settings before this connection was established: its
        pins are the new ones.

        A handshake that has begun is completed with the certificates that it began with.
        """
        self._settings = settings

    # ---------------------------------------------------------------- the socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the socket is connected."""
        self._raw = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._peer_ip = peer_ip(self._raw)
        settings = self._settings
        self._is_pending = True
        settings.pending.add(self, self._peer_ip)
        if settings.hello_wait_ns:
            self._state = TlsStage.LISTENING
            self._start_timer(settings.hello_wait_ns / SECOND_NS)
        else:
            greets = settings.hello_wait_ns is None
            self._state = TlsStage.GREETING if greets else TlsStage.AWAITING
            self._plain_allowed = greets and settings.allow_plain
            self._start_timer(settings.options.timeout_ns / SECOND_NS)
        self._user.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the area has one size
        """The buffer for the next ciphertext; until TLS is established, a small part of the
        area.
        """
        area = self._settings.area
        return area if self._state is TlsStage.SECURE else area[:HANDSHAKE_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        """Called when `nbytes` were read into the area."""
        if self._state is TlsStage.SECURE:
            codec = self.codec
            codec.feed(self._settings.area[:nbytes])
            self._pump()
            codec.keep()
        elif self._state is TlsStage.HANDSHAKING:
            self._handshake(nbytes)
        elif self._state is not TlsStage.CLOSING:
            self._first_bytes(nbytes)

    def eof_received(self) -> bool:
        """Close the connection, because half-closed ones are not supported; returns whether the
        link closes it.
        """
        if self._state is TlsStage.SECURE:
            if self._upper.eof_received():
                return True
            self.close()
        return False

    def pause_writing(self) -> None:
        """Called when the socket is slow."""
        self._write_paused = True
        self._upper.pause_writing()

    def resume_writing(self) -> None:
        """Called when the socket accepts bytes again."""
        self._write_paused = False
        if self._state is TlsStage.SECURE:
            self._send_output()
        self._upper.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the socket is closed."""
        is_opening = self._state in _OPENING
        may_leave = self._plain_allowed and self._state is not TlsStage.HANDSHAKING
        self._end_opening(TlsStage.CLOSING)
        if is_opening:
            self._settings.turns.finish(partial(self._end, exc, is_fault=not may_leave))
        else:
            self._end(exc, is_fault=False)

    def _end(self, exc: Exception | None, *, is_fault: bool) -> None:
        """Notify the protocol above that the socket is closed."""
        if is_fault:
            self._user.refused(tls_reason(exc), harmless=False)
        self._codec = None
        self._upper.connection_lost(self._error or exc)

    # ---------------------------------------------------------------- establishing the connection

    def _first_bytes(self, size: int) -> None:
        if self._settings.area[0] == RECORD_HANDSHAKE:
            if self._state is TlsStage.LISTENING:
                self._start_timer(self._settings.options.timeout_ns / SECOND_NS)
            self._state = TlsStage.HANDSHAKING
            self._handshake(size)
        elif self._plain_allowed:
            self._go_plain(size)
        else:
            self._refuse(NOT_TLS, harmless=True)

    def _handshake(self, size: int) -> None:
        """Store handshake input until it is this connection's turn."""
        self._hello.append(bytes(self._settings.area[:size]))
        self._handshake_bytes += size
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._raw.pause_reading()
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._settings.turns.request(self, self._peer_ip)

    def take_step(self) -> None:
        """Continue the handshake."""
        self._waits_for_turn = False
        if self._raw.is_closing():
            return
        if self._codec is None:
            self._codec = TlsCodec(self._settings.context)
        codec = self.codec
        codec.feed(b"".join(self._hello))
        self._hello.clear()
        try:
            complete = codec.handshake()
        except ssl.SSLError as error:
            self._refuse(tls_reason(error))
            return
        # With TLS 1.3 only the ticket is left to send, which can wait.
        self._ticket_waits = complete and codec.connection.version() == "TLSv1.3"
        self._send_output()
        if complete:
            self._secure()
        elif self._handshake_bytes > HANDSHAKE_BYTES_MAX:
            self._refuse(f"no end of the handshake in {HANDSHAKE_BYTES_MAX} bytes")

    def _secure(self) -> None:
        codec, options = self.codec, self._settings.options
        if options.pinned_certs and not check_pinned(options, codec.facts().certificate):
            self._raw.write(codec.close_notify())
            self._refuse("certificate not pinned")
            return
        held, self._held = self._held, []
        self._end_opening(TlsStage.SECURE)
        if self._handshake_bytes > HANDSHAKE_BYTES_MAX and not self._read_paused:
            self._raw.resume_reading()
        self._user.secured(self)
        for data in held:
            self.write(data)
        self._pump()

    def _go_plain(self, size: int) -> None:
        self._raw.writelines(self._held)
        self._end_opening(TlsStage.PLAIN)
        self._raw.set_protocol(self._upper)
        self._user.stayed_plain(self._raw)
        upper = cast(asyncio.BufferedProtocol, self._upper)
        rest = self._settings.area[:size]
        while rest:
            view = memoryview(upper.get_buffer(len(rest)))
            count = min(len(view), len(rest))
            view[:count] = rest[:count]
            upper.buffer_updated(count)
            rest = rest[count:]

    def _refuse(self, reason: str, *, harmless: bool = False) -> None:
        """End a connection that was never established, after sending the alert if there is one."""
        self._end_opening(TlsStage.CLOSING)
        # Still in the set, for the stop of the listener.
        self._is_pending = True
        self._settings.pending.add(self, self._peer_ip)
        self._user.refused(reason, harmless=harmless)
        self._send_output()
        if not self._raw.is_closing():
            self._timer = self._loop.call_later(DRAIN_SECONDS, self.abort)
            try:
                self._raw.write_eof()
            except OSError:
                self.abort()

    def _expired(self) -> None:
        """Called when the client took too long for the next step."""
        if self._state is TlsStage.LISTENING:
            self._state = TlsStage.AWAITING
            self._plain_allowed = self._settings.allow_plain
            self._start_timer(self._settings.options.timeout_ns / SECOND_NS)
            self._raw.writelines(self._held)
            self._held.clear()
        elif self._plain_allowed and self._state is not TlsStage.HANDSHAKING:
            self._go_plain(0)
        else:
            self._user.refused("timeout", harmless=True)
            self.abort()

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self._expired)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_opening(self, state: TlsStage) -> None:
        self._state = state
        self._stop_timer()
        self._held.clear()
        self._hello.clear()
        if self._is_pending:
            self._is_pending = False
            self._settings.pending.discard(self)
        if self._waits_for_turn:
            self._waits_for_turn = False
            self._settings.turns.withdraw(self, self._peer_ip)

    # ---------------------------------------------------------------- bytes

    def _pump(self) -> None:
        """Decrypt and pass up the plaintext until nothing is left or the link has paused
        reading.
        """
        codec = self.codec
        while self._state is TlsStage.SECURE and not self._read_paused and codec.has_input():
            if not self._hand_up(codec):
                break
        if self._state is not TlsStage.SECURE:
            return
        if codec.is_over:
            self._error = codec.fault
            self.close()
        elif not self._write_paused:
            self._send_output()
        elif codec.output_bytes > CONTROL_BYTES_MAX:
            self.abort()

    def _hand_up(self, codec: TlsCodec) -> bool:
        """Pass up one buffer of plaintext; False if nothing was left."""
        upper: Any = self._upper
        if self._is_buffered:
            size = codec.decrypt_into(memoryview(upper.get_buffer(-1)))
            if size:
                upper.buffer_updated(size)
        else:
            plain = self._settings.plain
            size = codec.decrypt_into(plain)
            if size:
                upper.data_received(bytes(plain[:size]))
        return size > 0 and not codec.is_over

    def _send_output(self) -> None:
        codec = self._codec
        if codec is None or not codec.output_bytes or self._raw.is_closing():
            return
        if not self._ticket_waits or codec.output_bytes > TICKET_BYTES_MAX:
            self._raw.write(codec.take_output())

    # ---------------------------------------------------------------- the link's side

    @property
    def keeps_no_input(self) -> bool:
        """Whether written data may change as soon as `write` has returned: always."""
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data, or hold it back until it is clear how to send it."""
        if self._state is TlsStage.SECURE:
            try:
                pieces = self.codec.encrypt(data)
            except ssl.SSLError as error:
                # One broken connection must not break the turn that writes to all connections.
                self._error = error
                self.abort()
                return
            self._ticket_waits = False
            # All at once: a small rest would be a packet of its own.
            self._raw.writelines(pieces)
        elif self._state is TlsStage.GREETING:
            self._state = TlsStage.AWAITING
            self._raw.write(bytes(data))
        elif self._state in _OPENING:
            self._held.append(bytes(data))

    def writelines(self, pieces: list[bytes]) -> None:
        """Send the pieces in as few records as possible."""
        self.write(b"".join(pieces))

    def close(self) -> None:
        """Send the written data and the close_notify, then close."""
        if self._state is TlsStage.CLOSING:
            return
        if self._state is TlsStage.SECURE and not self._raw.is_closing():
            self._raw.write(self.codec.close_notify())
        self._end_opening(TlsStage.CLOSING)
        self._raw.close()
        if self._raw.get_write_buffer_size():
            self._timer = self._loop.call_later(LINGER_SECONDS, self.abort)

    def abort(self) -> None:
        """Close at once."""
        self._end_opening(TlsStage.CLOSING)
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether writing has no effect any more."""
        return self._state is TlsStage.CLOSING or self._raw.is_closing()

    def pause_reading(self) -> None:
        """Stop passing data up; input already read stays encrypted."""
        if not self._read_paused and not self._raw.is_closing():
            self._read_paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Resume passing data up, not before the next turn of the loop: the link is in the middle
        of one.
        """
        if self._read_paused and not self._raw.is_closing():
            self._read_paused = False
            self._loop.call_soon(self._resumed)

    def _resumed(self) -> None:
        """Pass up the remaining input first, and only then read from the socket, so that never more
        than one read is left.
        """
        if self._read_paused or self._state is not TlsStage.SECURE:
            return
        self._pump()
        if not self._read_paused and not self.is_closing():
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        """Whether plaintext is passed up."""
        return not self._read_paused and not self.is_closing()

    def get_write_buffer_size(self) -> int:
        """The size of the ciphertext that the socket has not accepted yet."""
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits at which the link learns that the socket is slow."""
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The information of the socket's transport, and `ssl_object`."""
        if name == "ssl_object":
            return self._codec.connection if self._codec is not None else default
        return self._raw.get_extra_info(name, default)


class TlsPipe(TlsTransport, asyncio.BufferedProtocol):
    """A TlsTransport that is a protocol for event loops as well: they read straight into its
    area.
    """


def peer_ip(transport: asyncio.Transport) -> str:
    """The address of the peer; empty if there is none, as in a pair of sockets."""
    peer = transport.get_extra_info("peername")
    return plain_ip(peer[0]) if isinstance(peer, tuple) else ""
