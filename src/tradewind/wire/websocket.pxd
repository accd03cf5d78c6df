"""State of the WebSocket frame codec, for compiled callers."""

from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint64_t

cdef struct Output:
    # A bytes object being filled; NULL until the first byte is written.
    PyObject* buffer
    # The caller's memory, which is large enough, instead of a bytes object; or NULL.
    uint8_t* fixed
    Py_ssize_t size
    Py_ssize_t capacity


cdef class FrameDecoder:
    cdef Py_ssize_t _max_message_bytes
    cdef bint _require_mask
    cdef bint _compression
    # The header of the current frame, as far as it has arrived.
    cdef uint8_t _header[14]
    cdef int _header_have
    cdef int _header_need
    # The current frame, once its header is complete.
    cdef bint _in_payload
    cdef uint64_t _payload_left
    cdef uint8_t _mask[4]
    cdef int _mask_position
    cdef int _opcode
    cdef bint _final
    # The current message, which may span frames.
    cdef bint _in_message
    cdef bint _message_compressed
    cdef object _inflater           # None between compressed messages
    cdef bytes _inflate_input       # given to the inflater but not consumed yet
    cdef bint _tail_given
    cdef Py_ssize_t _inflated_bytes
    cdef Py_ssize_t _inflate_budget_bytes
    # A control frame's payload; it may arrive in the middle of a message.
    cdef uint8_t _control[125]
    cdef int _control_have
    cdef list _controls
    cdef bytes _backlog
    cdef str _error                 # None until the peer violates a rule
    cdef int _error_code
    cdef bint _error_raised
    cdef bint _closed

    cpdef bytes feed(self, data)
    cpdef Py_ssize_t feed_into(self, data, target) except -1
    cpdef list take_control(self)
    cdef int _run(
        self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* used, Output* output) except -1
    cdef int _header_step(self) except -1
    cdef int _check_first_two(self) except -1
    cdef int _start_payload(self) except -1
    cdef Py_ssize_t _payload_step(
        self, const uint8_t* data, Py_ssize_t size, Output* output) except -1
    cdef int _end_frame(self) except -1
    cdef int _end_control(self) except -1
    cdef int _check_close(self, bytes payload) except -1
    cdef int _pump(self, Output* output) except -1
    cdef int _fail(self, str text, int close_code) except -1


cdef class FrameEncoder:
    cdef bint _compression
    cdef bint _is_browser
    cdef bint _masked
    cdef bint _fragment_compressed
    cdef int _window_bits
    cdef object _mask_source

    cpdef bytes encode(self, data)
    cpdef bytes frame_head(self, Py_ssize_t size)
    cpdef bytes encode_control(self, int opcode, bytes payload=*)
    cpdef bytes encode_close(self, int code, str reason=*)
    cdef bytes _frames(
        self, const uint8_t* data, Py_ssize_t size, Py_ssize_t frame_bytes_max, int opcode,
        bint compressed)
    cdef bytes _deflate(self, data)
