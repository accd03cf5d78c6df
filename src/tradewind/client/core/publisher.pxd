"""The sending half of a connection: output that is encoded and not yet given to the transport."""

from libc.stdint cimport uint64_t

from tradewind.containers.buffer cimport Buffer

cdef enum WireState:
    STATE_CONNECTED = 0
    STATE_RECONNECTING = 1      # messages are kept, up to `pending_bytes_max`
    STATE_CLOSED = 2            # nothing can be sent any more

cdef class Publisher:
    cdef readonly object owner          # WireOwner
    cdef Buffer _outbox
    cdef int _state
    cdef bint _flush_wanted             # the owner knows that there is output
    cdef size_t _max_payload
    cdef size_t _pending_bytes_max
    cdef readonly uint64_t out_messages
    cdef readonly uint64_t out_bytes

    cdef int _check(self, const char* subject, Py_ssize_t size) except -1
    cdef int _encode(self, const char* subject, Py_ssize_t subject_size, const char* reply,
                     Py_ssize_t reply_size, const char* header, Py_ssize_t header_size,
                     const char* payload, Py_ssize_t payload_size) except -1
    cdef int _publish(self, const char* subject, Py_ssize_t subject_size, const char* reply,
                      Py_ssize_t reply_size, bytes block, const char* payload,
                      Py_ssize_t payload_size) except -1
    cdef int _raise_full(self) except -1
    cdef int _line(self, const char* data, Py_ssize_t size) except -1
    cdef int _note_output(self) except -1
