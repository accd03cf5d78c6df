"""Connects a socket with its session: runs input as it arrives, writes output once per turn.

Owns the transport. It decides nothing about the protocol: it reads while the session is not
blocked, writes what the session has queued, and closes when the session is closed. TLS is handled
by the transport (`tls_pipe`).

Output of a plain connection is written straight from the outbox to the socket, as long as the
transport has nothing to write. The rest stays in the outbox if the socket does not accept it,
except for a small part that makes the transport wait for the socket; all errors are handled by the
transport.

A connection that publishes faster than its receivers read is held: it is not read for a moment, or
until one of the receivers continues. This fills the publisher's socket rather than the server's
memory. A receiver that has taken nothing for a while holds no publisher: its outbox grows up to
max_pending. A connection that has sent so much that reading it takes long is held as well, until
all others have been read once.

The differences between connections are given to the link, which asks nothing of its subclasses:
whether it may write to the socket itself, and for WebSocket a framing (`links.link.Framing`).
"""

import asyncio

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.string cimport memset
from tradewind.broker.router cimport PRESSURE_BYTES, READ_AREA_BYTES
from tradewind.broker.session cimport Session
from tradewind.clock_reading cimport reading
from tradewind.containers.buffer cimport Buffer, buffer_size

from tradewind.wire import ops

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    ssize_t send(int descriptor, const void* data, size_t size, int flags)
    ssize_t sendmsg(int descriptor, const msghdr* message, int flags)
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

# Over TLS and WebSocket: above this amount the transport reports a slow socket, and the session's
# outbox then grows up to max_pending.
WRITE_BUFFER_HIGH_BYTES = 1048576
# Time that a peer has to read the remaining output when its connection is being closed.
LINGER_SECONDS = 5.0

cdef enum:
    # The part of the output that goes to the transport when a socket did not accept it.
    HANDED_OVER_BYTES = 4096
    # A receiver whose socket has taken nothing for longer than this holds no publisher.
    HOLD_AFTER_NS_MAX = 10_000_000

cdef tuple ABORTED = (ops.CLOSED_SLOW_PENDING, ops.CLOSED_SLOW_DEADLINE, ops.CLOSED_WRITE_ERROR)


cdef class SessionLink:
    """The common part of plain, TLS and WebSocket connections: everything but reading."""

    def __init__(self, turns not None):
        self.turns = turns
        self._router = turns.broker.router
        self._descriptor = -1
        self._frame_descriptor = -1

    def use_transport(self, transport not None):
        """Read and write through this transport from now on."""
        self.transport = transport
        self._keeps_descriptor = getattr(transport, "keeps_descriptor", False)
        self._lends = self.framing is None and getattr(transport, "keeps_no_input", False)

    def send_frames_to(self, int descriptor):
        """Allow frames to go straight to this socket while the transport has nothing to write."""
        self._frame_descriptor = descriptor

    def attach(self, Session session not None, framing=None):
        """Bind the session to the transport."""
        self.session = session
        self.framing = framing
        self._lends = self._lends and framing is None
        session.link = self
        session.touch()
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    def flush(self):
        """Called at the end of a turn: write, pause or resume reading, and close, as the session
        requires.
        """
        self.pass_output()

    cdef int pass_output(self) except -1:
        """Call `flush`, from compiled code."""
        cdef Session session = self.session
        transport = self.transport
        if session is None or transport is None or self._closing:
            return 0
        if not self.write_paused and buffer_size(&session.state.outbox):
            if session.is_coded:
                self._write(session, transport)
            elif self._frame_descriptor >= 0:
                self._send_frame(session, transport)
            elif self._lends:
                self._lend(session, transport)
            elif self._descriptor < 0:
                self._write(session, transport)
            else:
                self._send(session, transport)
        session.state.link_pending = transport.get_write_buffer_size() if self.write_paused else 0
        self._note_crowd(session)
        if session.state.closed:
            return self._close()
        self._steer_reading(session, transport)
        if self.framing is not None and self.framing.has_input and not session.blocked:
            asyncio.get_running_loop().call_soon(self.framing.run, b"")
        return 0

    cdef int _write(self, Session session, transport) except -1:
        """Pass all output to the transport."""
        if buffer_size(&session.state.outbox) and not transport.is_closing():
            data = session.take_output()
            transport.write(data if self.framing is None else self.framing.encode(data))
        return 0

    cdef int _lend(self, Session session, transport) except -1:
        """Let a transport that keeps no reference to it encrypt the outbox, without a copy.
        """
        cdef Buffer* outbox = &session.state.outbox
        cdef size_t size = buffer_size(outbox)
        if not transport.is_closing():
            transport.write(
                PyMemoryView_FromMemory(outbox.data + outbox.begin, size, PyBUF_READ))
            session.drop_output(size)
        return 0

    cdef int _send_frame(self, Session session, transport) except -1:
        """Write the outbox to the socket as one frame. The part that the socket does not accept
        goes to the transport: nothing may come between the parts of a frame.
        """
        cdef Buffer* outbox = &session.state.outbox
        cdef size_t size = buffer_size(outbox)
        cdef ssize_t sent
        cdef iovec[2] parts
        cdef msghdr message
        cdef bytes head
        if transport.get_write_buffer_size() or transport.is_closing():
            return self._write(session, transport)
        head = self.framing.head(size)
        if head is None:
            return self._write(session, transport)
        parts[0].iov_base = <char*>head
        parts[0].iov_len = len(head)
        parts[1].iov_base = outbox.data + outbox.begin
        parts[1].iov_len = size
        memset(&message, 0, sizeof(message))
        message.msg_iov = parts
        message.msg_iovlen = 2
        sent = sendmsg(self._frame_descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent < 0:    # the transport will meet the same error
            sent = 0
        if sent < len(head):
            transport.write(head[sent:])
            sent = 0
        else:
            sent -= len(head)
        session.drop_output(sent)
        if <size_t>sent < size:
            transport.write(session.take_output())
        return 0

    cdef int _send(self, Session session, transport) except -1:
        """Write the outbox to the socket, as far as the socket accepts it.

        A small part of the rest goes to the transport, which reports when there is room again: what
        stays in the outbox is not copied, however large it is.
        """
        cdef Buffer* outbox = &session.state.outbox
        cdef size_t size = buffer_size(outbox)
        cdef ssize_t sent
        while size and not self.write_paused \
                and (self._keeps_descriptor or not transport.is_closing()):
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

    cdef int _steer_reading(self, Session session, transport) except -1:
        """Read while the session and its receivers accept more."""
        cdef bint must_wait = self._held or session.blocked != 0 or (
            self.framing is not None and self.framing.has_input)
        if must_wait != self._read_paused and not transport.is_closing():
            self._read_paused = must_wait
            if must_wait:
                transport.pause_reading()
            else:
                transport.resume_reading()
        return 0

    cdef int _close(self) except -1:
        cdef Session session = self.session
        transport = self.transport
        self._closing = True
        if session.close_reason in ABORTED:
            transport.abort()
            return 0
        self._write(session, transport)
        if self.framing is not None:
            transport.write(self.framing.farewell(session.close_reason))
        transport.close()
        if transport.get_write_buffer_size():
            self.linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)
        return 0

    def fail(self, error not None):
        """Log an error that should not happen and close only this connection."""
        if self.session is not None:
            self.turns.broker.session_failed(self.session, error)
        else:
            self._router.faults.contain("link", error)

    def give_up(self, error not None):
        """Log an error of writing and close only this connection, without writing anything more."""
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
        """Called after input was run: schedule the end of the turn, early if some outbox grew
        large.
        """
        if not self._router._pressure:
            self.turns.input_done(self)
            return
        self.turns.turn_now()
        if self._router.is_crowded and not self._held and self.session is not None:
            self._held = True
            self.turns.hold(self)
            self._steer_reading(self.session, self.transport)

    def release(self):
        """Resume reading."""
        self._held = False
        if self.session is not None and not self._closing:
            self._steer_reading(self.session, self.transport)

    cdef int _note_crowd(self, Session session) except -1:
        """Called after a write: note whether too much output is left, and whether the socket
        accepts it soon.
        """
        if self.write_paused and buffer_size(&session.state.outbox) > PRESSURE_BYTES \
                and self.turns.broker.monotonic_ns() - session.write_blocked_ns \
                < HOLD_AFTER_NS_MAX:
            self._router.is_crowded = True
        return 0

    # ---------------------------------------------------------------- transport callbacks

    def pause_writing(self):
        """Called when the socket is slow: keep output in the session."""
        self.write_paused = True
        if self.session is not None:
            try:
                self.turns.broker.write_blocked(self.session)
            except Exception as error:
                self.give_up(error)

    def resume_writing(self):
        """Called when the socket accepts bytes again."""
        self.write_paused = False
        if self.session is not None:
            try:
                self.turns.broker.write_resumed(self.session)
                self.flush()
            except Exception as error:
                self.give_up(error)
            self.turns.release_held()

    def eof_received(self):
        """Close the session: half-closed connections are not supported. The session closes the
        link, in a later turn if very many end at once. Returns whether there is a session.
        """
        if self.session is None or self._closing:
            return False
        self.turns.lost(self.session, ops.CLOSED_BY_CLIENT)
        return True

    def connection_lost(self, error):
        """Called when the socket is closed."""
        cdef Session session = self.session
        self._closing = True
        if self.linger is not None:
            self.linger.cancel()
        self.session = None
        self.transport = None
        self.framing = None
        if session is not None:
            session.link = None
            reason = ops.CLOSED_BY_CLIENT if error is None else ops.CLOSED_READ_ERROR
            self.turns.lost(session, reason)


cdef class PlainLink(SessionLink):
    """A connection without frames: the transport reads straight into the broker's read area.

    `is_plain` says whether output may go straight to the socket; over TLS the transport writes.
    """

    def __init__(self, turns not None, open_session not None, *, bint is_plain=True):
        SessionLink.__init__(self, turns)
        self._open_session = open_session
        self._wall_ns = turns.broker.clock.wall_ns
        self._is_plain = is_plain

    def connection_made(self, transport not None):
        """Called when the connection is established."""
        self.use_transport(transport)
        try:
            self.attach(self._open_session())
        except Exception as error:
            self.give_up(error)
            return
        socket = transport.get_extra_info("socket") if self._is_plain else None
        if socket is not None:
            self._descriptor = socket.fileno()
            # The transport is paused while it holds a byte, so that direct writes cannot overtake
            # that byte.
            transport.set_write_buffer_limits(high=0)
        self.data_done()

    def get_buffer(self, sizehint):
        """The buffer for the next read."""
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
        """Called when `nbytes` were read."""
        cdef bint is_full
        if self.session is None:    # an error has closed it
            return
        is_full = nbytes == self.session.offered_room
        self.run_input(nbytes)
        self.data_done()
        if self.session is None:
            return
        if self._descriptor < 0 or self.session.blocked:
            # The transport may hold more input: it must not wait for the end of the turn to be
            # stopped.
            self._steer_reading(self.session, self.transport)
        if is_full and not self._held:
            # Otherwise the transport would continue reading before it serves any other socket.
            if self.turns.has_read_long(self):
                self._held = True
                self._steer_reading(self.session, self.transport)
                asyncio.get_running_loop().call_soon(self.release)

    cdef int run_input(self, size_t size) except -1:
        """Run `size` bytes that were read into the memory that the session has offered."""
        try:
            self.session.run_read(size, reading(self._wall_ns))
        except Exception as error:  # a bug may close this connection, but no other
            self.fail(error)
        return 0

    cdef int pass_blocked(self) except -1:
        """Called when the session was blocked by its input: read no more of it."""
        if self.session is not None and not self._closing:
            self._steer_reading(self.session, self.transport)
        return 0
