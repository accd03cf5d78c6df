"""State of the sockets of connections; the code and the explanation are in socket_set.pyx."""

from libc.stdint cimport uint32_t, uint64_t
from tradewind.broker.router cimport Router
from tradewind.containers.buffer cimport Buffer
from tradewind.server.links.link_core cimport PlainLink
from tradewind.server.links.turn_loop cimport TurnLoop
from tradewind.system_calls cimport Ready

cdef enum:
    READY_AT_ONCE_MAX = 256

cdef class SocketSet:
    cdef TurnLoop _turns
    cdef object _loop
    cdef Router _router
    cdef object _monotonic_ns
    cdef int _poll                      # the descriptor that the loop waits for; -1: closed
    cdef list _slots                    # descriptor -> SocketTransport, or None
    cdef readonly Py_ssize_t count      # transports in it
    cdef uint32_t _generation           # of the transport added last
    cdef Ready[READY_AT_ONCE_MAX] _ready
    cdef int _ready_count
    cdef int _next                      # the first of these that was not served yet
    cdef bint _is_serving
    cdef bint _is_stopping              # it ends with its last transport
    cdef list _changed                  # transports whose interest changed while serving

    cdef int _add(self, SocketTransport transport) except -1
    cdef int _remove(self, SocketTransport transport) except -1
    cdef int _update(self, SocketTransport transport) except -1
    cdef int _apply(self, SocketTransport transport) except -1
    cdef SocketTransport _find(self, uint64_t tag)
    cdef int _serve(self) except -1
    cdef int _end_if_empty(self) except -1


cdef class SocketTransport:
    cdef SocketSet _sockets
    cdef object _socket                 # socket.socket, or None after the end
    cdef object _peer                   # its address
    cdef int _descriptor
    cdef uint32_t _generation           # tells it from others that had the same descriptor
    cdef uint32_t _wanted               # what the socket is watched for ...
    cdef uint32_t _watched              # ... and what the system knows of that
    cdef bint _is_listed                # among the changed ones of the set
    cdef object _protocol               # asyncio.BufferedProtocol
    cdef PlainLink _link                # the protocol, if it is one: called without Python
    cdef Buffer _backlog                # written, and not accepted by the socket yet
    cdef size_t _high_bytes
    cdef size_t _low_bytes
    cdef bint _is_write_paused          # the protocol knows that the socket is slow
    cdef bint _is_read_paused
    cdef bint _has_ended                # the peer has ended its side
    cdef bint _ends_output              # write_eof: shut down after the backlog
    cdef bint _is_closing
    cdef bint _is_lost                  # connection_lost will be called; nothing is written

    cdef int _serve(self, uint32_t ready) except -1
    cdef int _read(self) except -1
    cdef int _read_link(self, PlainLink link) except -1
    cdef int _end_input(self) except -1
    cdef int _write_more(self) except -1
    cdef ssize_t _send(self, const char* data, size_t size) except -2
    cdef list _send_pieces(self, list pieces)
    cdef int _watch(self) except -1
    cdef int _lose(self, error) except -1
    cdef int _pause_writing(self) except -1
    cdef int _resume_writing(self) except -1
