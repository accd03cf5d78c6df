"""A socket and its session: bytes go in as they come, output goes back once a turn.

Owns the transport. It decides nothing about the protocol: it reads while the session is not
blocked, writes what the session has queued, and closes when the session is closed. TLS is the
transport's business (`tls_pipe`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from tradewind.broker.broker import Broker
from tradewind.broker.contracts import label
from tradewind.broker.session import Session
from tradewind.wire import ops

# Above this the transport says that the socket is slow; the session's outbox then grows up to
# max_pending.
WRITE_BUFFER_HIGH_BYTES = 1024 * 1024
# A peer that is being closed has this long to read what is still queued for it.
LINGER_SECONDS = 5.0

_ABORTED = (ops.CLOSED_SLOW_PENDING, ops.CLOSED_SLOW_DEADLINE, ops.CLOSED_WRITE_ERROR)


class Turns(Protocol):
    """What a link needs of the server: somebody who ends the turn."""

    broker: Broker

    def turn_needed(self) -> None:
        """Something happened: end the turn when every ready socket has been read."""

    def input_done(self, link: object) -> None:
        """A link has run what it read."""

    def turn_now(self) -> None:
        """Some outbox has grown large: end the turn at once."""


class Link:
    """What plain, TLS and WebSocket connections have in common."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._router = turns.broker.router
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._write_paused = False
        self._read_paused = False
        self._closing = False
        self._linger: asyncio.TimerHandle | None = None

    def attach(self, session: Session, transport: asyncio.Transport) -> None:
        """The session lives on this transport from now on."""
        self._session = session
        self._transport = transport
        session.link = self
        session.touch()
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    def encode(self, data: bytes) -> bytes:
        """Wrap protocol bytes for the transport."""
        return data

    def must_wait(self, session: Session) -> bool:
        """Whether nothing more may be read for now."""
        return bool(session.blocked)

    def farewell(self, reason: str) -> bytes:  # noqa: ARG002 - for WebSocket
        """Bytes to send behind the last output."""
        return b""

    def flush(self) -> None:
        """End of a turn: write, pause or resume reading, close; whatever the session asks for."""
        session, transport = self._session, self._transport
        if session is None or transport is None or self._closing:
            return
        if session.has_output and not self._write_paused and not transport.is_closing():
            transport.write(self.encode(session.take_output()))
        session.link_pending(transport.get_write_buffer_size() if self._write_paused else 0)
        if session.is_closed:
            self._close()
        else:
            self.steer_reading(session, transport)

    def steer_reading(self, session: Session, transport: asyncio.Transport) -> None:
        """Read while the session takes more."""
        if self.must_wait(session) is not self._read_paused and not transport.is_closing():
            self._read_paused = not self._read_paused
            if self._read_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _close(self) -> None:
        session, transport = self._session, self._transport
        assert session is not None
        assert transport is not None
        self._closing = True
        if session.close_reason in _ABORTED:
            transport.abort()
            return
        if session.has_output:
            transport.write(self.encode(session.take_output()))
        if last := self.farewell(session.close_reason):
            transport.write(last)
        transport.close()
        if transport.get_write_buffer_size():
            self._linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)

    def fail(self, error: Exception) -> None:
        """An error that should not exist: it is logged, and ends this connection only."""
        if self._session is not None:
            self._turns.broker.log.error(f"{label(self._session)} - internal error: {error!r}")
            self._session.close(ops.CLOSED_READ_ERROR)

    def data_done(self) -> None:
        """Input was run: have the turn ended, early if somebody's outbox grew large."""
        if self._router.pressure:
            self._turns.turn_now()
        else:
            self._turns.input_done(self)

    # ---------------------------------------------------------------- transport callbacks

    def pause_writing(self) -> None:
        """The socket is slow: keep output in the session."""
        self._write_paused = True
        if self._session is not None:
            self._turns.broker.write_blocked(self._session)

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self._write_paused = False
        if self._session is not None:
            self._turns.broker.write_resumed(self._session)
            self.flush()

    def eof_received(self) -> bool:
        """Half-closed connections are not kept."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone."""
        self._closing = True
        if self._linger is not None:
            self._linger.cancel()
        session, self._session, self._transport = self._session, None, None
        if session is not None:
            session.close(ops.CLOSED_BY_CLIENT if error is None else ops.CLOSED_READ_ERROR)
            session.link = None
            self._turns.turn_needed()


class StreamLink(Link, asyncio.BufferedProtocol):
    """A client's connection: the transport reads straight into the broker's read area."""

    def __init__(self, turns: Turns, open_session: Callable[[], Session]) -> None:
        super().__init__(turns)
        self._open_session = open_session
        self._wall_ns = turns.broker.clock.wall_ns

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        transport = cast(asyncio.Transport, transport)
        self.attach(self._open_session(), transport)
        self.data_done()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the broker decides
        """Where the next read goes."""
        session = self._session
        assert session is not None
        return session.read_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` were read."""
        session = self._session
        assert session is not None
        try:
            session.received(nbytes, self._wall_ns())
        except Exception as error:  # our own bug may end this connection, but no other
            self.fail(error)
        self.data_done()
