"""The sockets of accepted connections: a transport for each, all served in one call of the loop.

Owns the sockets and what they have not accepted yet. The sockets are in a set of their own (epoll),
whose descriptor the loop watches as it would watch one socket. When some are ready, the loop calls
`SocketSet.serve`: each ready socket is read once, which runs its input, then the turn ends and its
output is written. No Python code runs in between, unless a message needs it. Any event loop will
do: it only has to watch a descriptor.

To links and to other protocols (TLS, WebSocket, the PROXY header) a `SocketTransport` is what
asyncio's transports are, with the same promises: `connection_lost` is called once, in a later
iteration of the loop, and the descriptor stays open until then.

A call serves a bounded number of sockets for a bounded time; the rest is served by the next one, in
the same order. Every socket is read at most once in between, however much it has sent.

A socket that was closed may be reported once more, and its descriptor may belong to another one by
then. Therefore each report names the generation of its transport as well.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, ENOBUFS, ENOMEM, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset
from tradewind.broker.session cimport Session
from tradewind.clock_reading cimport reading
from tradewind.containers.buffer cimport (
    buffer_append, buffer_free, buffer_init, buffer_size)
from tradewind.server.links.link_core cimport PlainLink
from tradewind.server.links.turn_loop cimport TurnLoop
from tradewind.system_calls cimport (
    BROKEN, READABLE, WRITABLE, open_poll, ready_for, ready_tag, take_ready, watch_descriptor)

import os
import socket as sockets

cdef extern from "<unistd.h>" nogil:
    int close(int descriptor)

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL
    int MSG_DONTWAIT
    ssize_t send(int descriptor, const void* data, size_t size, int flags)
    ssize_t recv(int descriptor, void* data, size_t size, int flags)
    ssize_t sendmsg(int descriptor, const msghdr* message, int flags)
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef enum:
    # Sockets are served for at most this long before the loop does something else.
    SERVE_NS_MAX = 5_000_000
    # The time is read after this many sockets, and after each that has sent much.
    LOOK_EVERY = 16
    MUCH_BYTES = 16384
    # The default limit above which a protocol is paused, as in asyncio.
    HIGH_BYTES = 65536
    # More pieces than this are written one after the other.
    PIECES_MAX = 32


cdef class SocketSet:
    """The sockets of one server, and the turns that end when they have been served."""

    def __cinit__(self):
        self._poll = -1

    def __init__(self, TurnLoop turns not None, loop not None):
        self._turns = turns
        self._loop = loop
        self._router = turns.broker.router
        self._monotonic_ns = turns.broker.clock.monotonic_ns
        self._slots = []
        self._changed = []
        self._poll = open_poll()
        if self._poll < 0:
            raise OSError(errno, os.strerror(errno))
        loop.add_reader(self._poll, self.serve)

    def __dealloc__(self):
        if self._poll >= 0:
            close(self._poll)

    def stop(self):
        """Accept no more connections, and end with the last one: some may still be sending."""
        self._is_stopping = True
        self._end_if_empty()

    cdef int _end_if_empty(self) except -1:
        if self._is_stopping and not self.count and self._poll >= 0:
            self._loop.remove_reader(self._poll)
            close(self._poll)
            self._poll = -1
        return 0

    def connect(self, connection not None, peer, protocol not None):
        """Give a connected socket to a protocol; returns its transport. OSError if the system
        cannot watch another socket; it is not closed then.
        """
        cdef SocketTransport transport = SocketTransport.__new__(SocketTransport)
        if self._is_stopping:
            raise ConnectionAbortedError(ECONNABORTED, "the server has stopped")
        transport._sockets = self
        transport._socket = connection
        transport._peer = peer
        transport._descriptor = connection.fileno()
        transport._high_bytes = HIGH_BYTES
        transport._low_bytes = HIGH_BYTES // 4
        transport._wanted = READABLE
        self._add(transport)
        transport.set_protocol(protocol)
        try:
            protocol.connection_made(transport)
        except BaseException:
            transport._lose(None)
            raise
        return transport

    cdef int _add(self, SocketTransport transport) except -1:
        cdef int descriptor = transport._descriptor
        self._generation += 1
        transport._generation = self._generation
        self._apply(transport)
        if descriptor >= len(self._slots):
            self._slots.extend([None] * (descriptor + 1))
        self._slots[descriptor] = transport
        self.count += 1
        return 0

    cdef int _remove(self, SocketTransport transport) except -1:
        """Forget a transport whose descriptor is still open, but not for long."""
        if self._slots[transport._descriptor] is transport:
            self._slots[transport._descriptor] = None
            self.count -= 1
        transport._wanted = 0
        self._apply(transport)
        return self._end_if_empty()

    cdef int _update(self, SocketTransport transport) except -1:
        """Called when a socket is to be watched for something else. While sockets are served, that
        waits for the end of the turn: many a change has been taken back by then.
        """
        if not self._is_serving:
            self._apply(transport)
        elif not transport._is_listed:
            transport._is_listed = True
            self._changed.append(transport)
        return 0

    cdef int _apply(self, SocketTransport transport) except -1:
        cdef uint32_t wanted = transport._wanted
        if wanted == transport._watched:
            return 0
        if watch_descriptor(self._poll, transport._descriptor, transport._watched, wanted,
                            <uint64_t>transport._generation << 32
                            | <uint32_t>transport._descriptor) != 0:
            raise OSError(errno, os.strerror(errno))
        transport._watched = wanted
        return 0

    cdef SocketTransport _find(self, uint64_t tag):
        """The transport that a report is about; None if it is gone."""
        cdef uint32_t descriptor = <uint32_t>tag
        cdef SocketTransport transport
        if descriptor >= <size_t>len(self._slots):
            return None
        transport = self._slots[descriptor]
        if transport is None or transport._generation != <uint32_t>(tag >> 32):
            return None
        return transport

    def serve(self):
        """Called by the loop when sockets are ready: read them, end the turn, write."""
        cdef SocketTransport transport
        if self._is_serving or self._poll < 0:
            return
        self._is_serving = True
        self._turns.begin_batch()
        try:
            self._serve()
        finally:
            try:
                self._turns.end_batch()
            finally:
                self._is_serving = False
                while self._changed:
                    transport = self._changed.pop()
                    transport._is_listed = False
                    try:
                        self._apply(transport)
                    except OSError as error:
                        transport._lose(error)

    cdef int _serve(self) except -1:
        cdef SocketTransport transport
        cdef int64_t began_ns = 0
        cdef uint64_t in_bytes = self._router.in_bytes
        cdef int served = 0
        if self._next == self._ready_count:
            self._next = self._ready_count = 0
            self._ready_count = take_ready(self._poll, self._ready, READY_AT_ONCE_MAX)
            if self._ready_count < 0:
                self._ready_count = 0
                if errno == EINTR:
                    return 0
                raise OSError(errno, os.strerror(errno))
        while self._next < self._ready_count:
            transport = self._find(ready_tag(&self._ready[self._next]))
            self._next += 1
            served += 1
            if transport is not None:
                transport._serve(ready_for(&self._ready[self._next - 1]))
            if self._next < self._ready_count and (
                    served % LOOK_EVERY == 1
                    or self._router.in_bytes - in_bytes > MUCH_BYTES):
                in_bytes = self._router.in_bytes
                if began_ns == 0:
                    began_ns = reading(self._monotonic_ns)
                elif reading(self._monotonic_ns) - began_ns > SERVE_NS_MAX:
                    return 0
        return 0


cdef class SocketTransport:
    """The transport of one socket; made by `SocketSet.connect`."""

    # The descriptor stays open until `connection_lost` has been called.
    keeps_descriptor = True

    def __cinit__(self):
        buffer_init(&self._backlog)

    def __dealloc__(self):
        buffer_free(&self._backlog)

    # -------------------------------------------------------------- what the socket is ready for

    cdef int _serve(self, uint32_t ready) except -1:
        if ready & (READABLE | BROKEN) and self._wanted & READABLE:
            try:
                self._read()
            except Exception as error:
                self._fail(error, "a protocol failed with its input")
        if ready & (WRITABLE | BROKEN) and self._wanted & WRITABLE:
            try:
                self._write_more()
            except OSError as error:    # the end of its output could not be sent
                self._lose(error)
        return 0

    cdef int _read(self) except -1:
        cdef PlainLink link = self._link
        cdef Py_buffer view
        cdef ssize_t size
        cdef int problem
        if link is not None and link.session is not None:
            return self._read_link(link)
        area = self._protocol.get_buffer(-1)
        PyObject_GetBuffer(area, &view, PyBUF_SIMPLE)
        try:
            size = recv(self._descriptor, view.buf, view.len, MSG_DONTWAIT)
            problem = errno
        finally:
            PyBuffer_Release(&view)
        if size > 0:
            self._protocol.buffer_updated(size)
        elif size == 0:
            self._end_input()
        else:
            self._note_problem(problem)
        return 0

    cdef int _read_link(self, PlainLink link) except -1:
        """Read into the memory of the session, and run it."""
        cdef Session session = link.session
        cdef char* start = session.offer()
        cdef ssize_t size = recv(self._descriptor, start, session.offered_room, MSG_DONTWAIT)
        if size > 0:
            link.run_input(size)
            if self._sockets._router._pressure:
                link.data_done()
            else:
                self._sockets._turns.batch_has_turn = True
            if session.blocked:     # even if its turn to write comes later
                link.pass_blocked()
        elif size == 0:
            self._end_input()
        else:
            self._note_problem(errno)
        return 0

    cdef int _end_input(self) except -1:
        """Called when the peer has ended its side."""
        self._has_ended = True
        self._watch()
        if not self._protocol.eof_received():
            self.close()
        return 0

    def _note_problem(self, int problem):
        """Called after reading or writing has failed: lose the connection, unless it may be tried
        again.
        """
        if problem not in (EAGAIN, EINTR, ENOBUFS, ENOMEM):
            self._lose(OSError(problem, os.strerror(problem)))

    cdef int _write_more(self) except -1:
        """Called when the socket accepts output again."""
        cdef ssize_t sent
        cdef size_t size = buffer_size(&self._backlog)
        if size:
            sent = self._send(self._backlog.data + self._backlog.begin, size)
            if sent < 0:
                return 0
            self._backlog.begin += sent
            if buffer_size(&self._backlog) == 0:
                buffer_free(&self._backlog)
        self._resume_writing()
        if self._is_lost:
            return 0
        if buffer_size(&self._backlog) == 0:
            self._watch()
            if self._is_closing:
                self._lose(None)
            elif self._ends_output:
                self._shut_down()
        return 0

    cdef ssize_t _send(self, const char* data, size_t size) except -2:
        """Write to the socket; the number of bytes that it has accepted, -1 if it is lost."""
        cdef ssize_t sent = send(self._descriptor, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent < 0:
            self._note_problem(errno)
            return -1 if self._is_lost else 0
        return sent

    # -------------------------------------------------------------- what the socket is watched for

    cdef int _watch(self) except -1:
        cdef uint32_t wanted = 0
        if not self._is_lost:
            if not (self._is_read_paused or self._is_closing or self._has_ended):
                wanted |= READABLE
            if buffer_size(&self._backlog):
                wanted |= WRITABLE
        if wanted != self._wanted:
            self._wanted = wanted
            self._sockets._update(self)
        return 0

    cdef int _pause_writing(self) except -1:
        if not self._is_write_paused and buffer_size(&self._backlog) > self._high_bytes:
            self._is_write_paused = True
            try:
                self._protocol.pause_writing()
            except Exception as error:
                self._fail(error, "a protocol failed when its socket was slow")
        return 0

    cdef int _resume_writing(self) except -1:
        if self._is_write_paused and buffer_size(&self._backlog) <= self._low_bytes:
            self._is_write_paused = False
            try:
                self._protocol.resume_writing()
            except Exception as error:
                self._fail(error, "a protocol failed when its socket accepted output")
        return 0

    # -------------------------------------------------------------- the end

    def _fail(self, error not None, str what not None):
        """Report the error of a protocol, and lose this connection only."""
        self._sockets._loop.call_exception_handler(
            {"message": what, "exception": error, "transport": self, "protocol": self._protocol})
        self._lose(error)

    cdef int _lose(self, error) except -1:
        """End the connection; the protocol learns it in a later iteration of the loop."""
        if self._is_lost:
            return 0
        self._is_lost = self._is_closing = True
        buffer_free(&self._backlog)
        self._sockets._remove(self)
        self._sockets._loop.call_soon(self._finish, error)
        return 0

    def _finish(self, error):
        protocol, self._protocol, self._link = self._protocol, None, None
        try:
            if protocol is not None:
                protocol.connection_lost(error)
        finally:
            self._socket.close()
            self._socket = None

    def _shut_down(self):
        self._socket.shutdown(sockets.SHUT_WR)

    # -------------------------------------------------------------- the protocol's side

    def write(self, data not None):
        """Send data; the part that the socket does not accept is kept."""
        cdef Py_buffer view
        cdef ssize_t sent = 0
        if self._ends_output:
            raise RuntimeError("nothing can be written after write_eof()")
        if self._is_lost:
            return
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len and not buffer_size(&self._backlog):
                sent = self._send(<const char*>view.buf, view.len)
            if sent < 0 or sent == view.len:
                return
            if buffer_append(&self._backlog, <const char*>view.buf + sent, view.len - sent) != 0:
                raise MemoryError
        finally:
            PyBuffer_Release(&view)
        self._watch()
        self._pause_writing()

    def writelines(self, pieces not None):
        """Send the pieces with one call, without joining them."""
        cdef list rest = list(pieces)
        if 1 < len(rest) <= PIECES_MAX and not buffer_size(&self._backlog) \
                and not self._is_lost and not self._ends_output:
            rest = self._send_pieces(rest)
        for piece in rest:
            self.write(piece)

    cdef list _send_pieces(self, list pieces):
        """The part of the pieces that the socket has not accepted."""
        cdef iovec[PIECES_MAX] parts
        cdef Py_buffer[PIECES_MAX] views
        cdef msghdr message
        cdef ssize_t sent
        cdef int count = 0
        cdef int index
        memset(&message, 0, sizeof(message))
        message.msg_iov = parts
        try:
            for piece in pieces:
                PyObject_GetBuffer(piece, &views[count], PyBUF_SIMPLE)
                parts[count].iov_base = views[count].buf
                parts[count].iov_len = views[count].len
                count += 1
            message.msg_iovlen = count
            sent = sendmsg(self._descriptor, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent < 0:    # `write` will meet the same error
                sent = 0
        finally:
            for index in range(count):
                PyBuffer_Release(&views[index])
        for index in range(count):
            if <size_t>sent < parts[index].iov_len:
                return [memoryview(pieces[index]).cast("B")[sent:], *pieces[index + 1:]]
            sent -= parts[index].iov_len
        return []

    def write_eof(self):
        """End the output after everything that was written."""
        if self._is_lost or self._ends_output:
            return
        self._ends_output = True
        if not buffer_size(&self._backlog):
            self._shut_down()

    def can_write_eof(self):
        """Whether `write_eof` exists: it does."""
        return True

    def close(self):
        """Read no more, send what was written, and close."""
        if self._is_closing:
            return
        self._is_closing = True
        if buffer_size(&self._backlog):
            self._watch()
        else:
            self._lose(None)

    def abort(self):
        """Close at once."""
        self._lose(None)

    def is_closing(self):
        """Whether the connection is being closed, or lost."""
        return self._is_closing

    def pause_reading(self):
        """Stop reading."""
        self._is_read_paused = True
        self._watch()

    def resume_reading(self):
        """Read again."""
        self._is_read_paused = False
        self._watch()

    def is_reading(self):
        """Whether the socket is read."""
        return not self._is_read_paused and not self._is_closing

    def get_write_buffer_size(self):
        """The number of bytes that the socket has not accepted yet."""
        return buffer_size(&self._backlog)

    def get_write_buffer_limits(self):
        """The sizes at which the protocol is paused and resumed: (low, high)."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high=None, low=None):
        """Set the sizes at which the protocol is paused and resumed, as in asyncio."""
        if high is None:
            high = HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), and low at least 0")
        self._high_bytes = high
        self._low_bytes = low
        if not self._is_lost:
            self._pause_writing()

    def set_protocol(self, protocol not None):
        """Pass everything to this protocol from now on."""
        self._protocol = protocol
        self._link = protocol if isinstance(protocol, PlainLink) else None

    def get_protocol(self):
        """The current protocol."""
        return self._protocol

    def get_extra_info(self, name not None, default=None):
        """The `socket` or the address of its peer, `peername`."""
        if name == "socket" and self._socket is not None:
            return self._socket
        if name == "peername" and self._peer is not None:
            return self._peer
        return default
