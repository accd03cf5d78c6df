"""A socket and its session: input is run as it arrives, output is written once per turn.

Owns the transport. It decides nothing about the protocol: it reads while the session is not
blocked, writes what the session has queued, and closes when the session is closed. TLS is handled
by the transport (`tls_pipe`).

Output of a plain connection is written straight from the outbox to the socket, as long as the
transport has nothing to write. What the socket does not take stays in the outbox, except for a
small part that makes the transport wait for the socket; all errors are handled by the transport.

A connection that publishes faster than its receivers read is held: it is not read for a moment, or
until one of the receivers continues. This fills the publisher's socket rather than the server's
memory. A receiver that has taken nothing for a while holds nobody: its outbox grows up to
max_pending. A connection that has sent so much that reading it takes long is held as well, until
all others have been read once.
"""

import asyncio

from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from tradewind.broker.router cimport PRESSURE_BYTES, READ_AREA_BYTES
from tradewind.broker.session cimport Session
from tradewind.containers.buffer cimport Buffer, buffer_size

from tradewind.wire import ops

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    ssize_t send(int descriptor, const void* data, size_t size, int flags)

# Over TLS and WebSocket: above this amount the transport reports a slow socket, and the session's
# outbox then grows up to max_pending.
WRITE_BUFFER_HIGH_BYTES = 1048576
# Time that a peer has to read the remaining output when its connection is being closed.
LINGER_SECONDS = 5.0

cdef enum:
    # The part of the output that goes to the transport when a socket did not take it.
    HANDED_OVER_BYTES = 4096
    # A receiver whose socket has taken nothing for longer than this holds nobody.
    HOLD_AFTER_NS_MAX = 10_000_000

cdef tuple ABORTED = (ops.CLOSED_SLOW_PENDING, ops.CLOSED_SLOW_DEADLINE, ops.CLOSED_WRITE_ERROR)


cdef class SessionLink:
    """What plain, TLS and WebSocket connections have in common."""

    def __init__(self, turns not None):
        self.turns = turns
        self._router = turns.broker.router

    def attach(self, Session session not None, transport not None):
        """Bind the session to this transport."""
        self.session = session
        self.transport = transport
        session.link = self
        session.touch()
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    def replace_transport(self, transport not None):
        """Continue the same connection without an intermediate transport."""
        self.transport = transport

    def encode(self, bytes data not None):
        """Wrap protocol bytes for the transport."""
        return data

    def must_wait(self, Session session not None):
        """Whether nothing more may be read for now."""
        return session.blocked != 0

    def farewell(self, str reason not None):
        """Bytes to send after the last output."""
        return b""

    def flush(self):
        """At the end of a turn: write, pause or resume reading, close, as the session requires."""
        cdef Session session = self.session
        transport = self.transport
        if session is None or transport is None or self._closing:
            return
        if session.has_output and not self.write_paused and not transport.is_closing():
            transport.write(self.encode(session.take_output()))
        session.link_pending(transport.get_write_buffer_size() if self.write_paused else 0)
        self._note_crowd(session)
        if session.state.closed:
            self._close()
        else:
            self.steer_reading(session, transport)

    def steer_reading(self, Session session not None, transport not None):
        """Read while the session and its receivers accept more."""
        cdef bint must_wait = self._held or self.must_wait(session)
        if must_wait != self._read_paused and not transport.is_closing():
            self._read_paused = not self._read_paused
            if self._read_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _close(self):
        cdef Session session = self.session
        transport = self.transport
        self._closing = True
        if session.close_reason in ABORTED:
            transport.abort()
            return
        if session.has_output:
            transport.write(self.encode(session.take_output()))
        last = self.farewell(session.close_reason)
        if last:
            transport.write(last)
        transport.close()
        if transport.get_write_buffer_size():
            self.linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)

    def fail(self, error not None):
        """Log an error that should not happen and close only this connection."""
        if self.session is not None:
            self.turns.broker.session_failed(self.session, error)
        else:
            self._router.faults.contain("link", error)

    def give_up(self, error not None):
        """The same if writing failed: nothing more is written."""
        cdef Session session = self.session
        self._closing = True
        self.fail(error)
        transport = self.transport
        if transport is not None:
            try:
                transport.abort()
            except Exception as another:
                self._router.faults.contain("link", another)
        elif session is not None:
            session.link = None

    def data_done(self):
        """Input was run: schedule the end of the turn, early if some outbox grew large."""
        if not self._router._pressure:
            self.turns.input_done(self)
            return
        self.turns.turn_now()
        if self._router.is_crowded and not self._held and self.session is not None:
            self._held = True
            self.turns.hold(self)
            self.steer_reading(self.session, self.transport)

    def release(self):
        """Allow reading again."""
        self._held = False
        if self.session is not None and not self._closing:
            self.steer_reading(self.session, self.transport)

    cdef int _note_crowd(self, Session session) except -1:
        """After a write: note whether too much output is left, and whether the socket takes it
        soon.
        """
        if self.write_paused and buffer_size(&session.state.outbox) > PRESSURE_BYTES \
                and self.turns.broker.monotonic_ns() - session.write_blocked_ns \
                < HOLD_AFTER_NS_MAX:
            self._router.is_crowded = True
        return 0

    # ---------------------------------------------------------------- transport callbacks

    def pause_writing(self):
        """The socket is slow: keep output in the session."""
        self.write_paused = True
        if self.session is not None:
            try:
                self.turns.broker.write_blocked(self.session)
            except Exception as error:
                self.give_up(error)

    def resume_writing(self):
        """The socket accepts bytes again."""
        self.write_paused = False
        if self.session is not None:
            try:
                self.turns.broker.write_resumed(self.session)
                self.flush()
            except Exception as error:
                self.give_up(error)
            self.turns.release_held()

    def eof_received(self):
        """Half-closed connections are not kept."""
        return False

    def connection_lost(self, error):
        """The socket is gone."""
        cdef Session session = self.session
        self._closing = True
        if self.linger is not None:
            self.linger.cancel()
        self.session = None
        self.transport = None
        if session is not None:
            try:
                session.close(ops.CLOSED_BY_CLIENT if error is None else ops.CLOSED_READ_ERROR)
            except Exception as fault:
                self.turns.broker.session_failed(session, fault)
            session.link = None
            self.turns.turn_needed()


cdef class PlainLink(SessionLink):
    """A connection without frames: the transport reads straight into the broker's read area."""

    def __init__(self, turns not None, open_session not None):
        SessionLink.__init__(self, turns)
        self._open_session = open_session
        self._wall_ns = turns.broker.clock.wall_ns
        self._descriptor = -1

    def descriptor_of(self, transport not None):
        """The descriptor for direct writes; -1: everything goes through the transport."""
        socket = transport.get_extra_info("socket")
        return -1 if socket is None else socket.fileno()

    def connection_made(self, transport not None):
        """The connection is up."""
        try:
            session = self._open_session()
        except Exception as error:
            self.fail(error)
            transport.abort()
            return
        self.attach(session, transport)
        self._descriptor = self.descriptor_of(transport)
        if self._descriptor >= 0:
            # It is paused while it holds a byte, so that direct writes cannot overtake that byte.
            transport.set_write_buffer_limits(high=0)
        self.data_done()

    def get_buffer(self, sizehint):
        """Where the next read goes."""
        cdef Session session = self.session
        cdef char* start
        if session is None:     # an error has closed it
            return self._router.read_view
        start = session.offer()
        if self._descriptor >= 0 and start == self._router.read_area \
                and session.offered_room == READ_AREA_BYTES:
            return self._router.read_view
        return PyMemoryView_FromMemory(start, session.offered_room, PyBUF_WRITE)

    def buffer_updated(self, size_t nbytes):
        """`nbytes` were read."""
        cdef Session session = self.session
        cdef bint is_full
        if session is None:     # an error has closed it
            return
        is_full = nbytes == session.offered_room
        try:
            session.run_read(nbytes, self._wall_ns())
        except Exception as error:  # our own bug may close this connection, but no other
            self.fail(error)
        self.data_done()
        if is_full and not self._held and self.session is not None:
            # Otherwise the transport would read on before it serves any other socket.
            if self.turns.has_read_long(self):
                self._held = True
                self.steer_reading(self.session, self.transport)
                asyncio.get_running_loop().call_soon(self.release)

    cdef int _send(self, Session session, transport) except -1:
        """Write the outbox to the socket, as far as the socket takes it.

        A small part of the rest goes to the transport, which reports when there is room again: what
        stays in the outbox is not copied, however large it is.
        """
        cdef Buffer* outbox = &session.state.outbox
        cdef size_t size = buffer_size(outbox)
        cdef ssize_t sent
        while size and not self.write_paused and not transport.is_closing():
            sent = send(self._descriptor, outbox.data + outbox.begin, size,
                        MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent > 0:
                session.drop_output(sent)
                size -= sent
            if size:
                sent = min(size, <size_t>HANDED_OVER_BYTES)
                piece = PyBytes_FromStringAndSize(outbox.data + outbox.begin, sent)
                session.drop_output(sent)
                size -= sent
                transport.write(piece)
        return 0

    def flush(self):
        """At the end of a turn: write, pause or resume reading, close, as the session requires."""
        cdef Session session = self.session
        transport = self.transport
        if session is None or transport is None or self._closing:
            return
        if self._descriptor < 0 or session.is_coded:
            SessionLink.flush(self)
            return
        if buffer_size(&session.state.outbox) and not self.write_paused:
            self._send(session, transport)
        session.state.link_pending = \
            transport.get_write_buffer_size() if self.write_paused else 0
        self._note_crowd(session)
        if session.state.closed:
            self._close()
        elif (self._held or session.blocked != 0) != self._read_paused:
            self.steer_reading(session, transport)
