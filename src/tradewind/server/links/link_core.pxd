"""State of a link; the code and the explanation are in link_core.pyx."""

from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session

cdef class SessionLink:
    cdef readonly object turns          # Turns
    cdef Router _router
    cdef readonly object transport      # asyncio.Transport, or None
    cdef readonly Session session
    cdef readonly bint write_paused
    cdef bint _read_paused
    cdef bint _closing
    cdef bint _held                     # not read: its receivers are slow, or others come first
    cdef readonly object linger         # the timer that closes a peer that does not read, or None
    cdef readonly object framing        # Framing, or None: bytes are passed on as they are
    cdef int _descriptor                # of the socket; -1: all bytes go through the transport

    cdef int _frame_descriptor          # of the socket, for whole frames; -1: none
    cdef bint _lends                    # the transport encrypts output without copying it
    cdef bint _keeps_descriptor         # the transport closes the socket in connection_lost

    cdef int pass_output(self) except -1
    cdef int _write(self, Session session, transport) except -1
    cdef int _lend(self, Session session, transport) except -1
    cdef int _send(self, Session session, transport) except -1
    cdef int _send_frame(self, Session session, transport) except -1
    cdef int _steer_reading(self, Session session, transport) except -1
    cdef int _close(self) except -1
    cdef int _note_crowd(self, Session session) except -1


cdef class PlainLink(SessionLink):
    cdef object _open_session
    cdef object _wall_ns
    cdef bint _is_plain

    cdef int run_input(self, size_t size) except -1
    cdef int pass_blocked(self) except -1
