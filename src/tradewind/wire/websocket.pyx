"""WebSocket frames (RFC 6455) with permessage-deflate (RFC 7692): bytes in, application bytes out.

Owns the frame format, masking, inflating and every limit on them, for both ends of a connection. It
never touches a socket and never answers by itself: control frames are handed out with
`take_control`, violations are raised as `WebsocketError` with the close code to send. The HTTP
upgrade before it is `server.websocket.websocket_handshake`.

Memory is bounded: plain payloads are passed on as they arrive, so only a partial header or control
frame is ever held; compressed payloads are inflated as they arrive, at most
`INFLATED_BYTES_PER_FEED` per call and `max_message_bytes` per message, so neither one bomb nor many
small ones can exceed that. Between messages a decoder owns only its own struct. Every size
from the wire is checked against the bytes available before it is used.
"""

import zlib

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.ref cimport Py_DECREF, Py_XDECREF, PyObject
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from tradewind.errors import ProtocolError

cdef extern from "Python.h":
    PyObject* PyBytes_FromStringAndSize(const char* text, Py_ssize_t size) except NULL
    char* PyBytes_AS_STRING(PyObject* text)
    int _PyBytes_Resize(PyObject** text, Py_ssize_t size) except -1

OPCODE_CONTINUATION = 0
OPCODE_TEXT = 1
OPCODE_BINARY = 2
OPCODE_CLOSE = 8
OPCODE_PING = 9
OPCODE_PONG = 10

CLOSE_NORMAL = 1000
CLOSE_GOING_AWAY = 1001
CLOSE_PROTOCOL_ERROR = 1002
CLOSE_NO_STATUS = 1005
CLOSE_INVALID_PAYLOAD = 1007
CLOSE_POLICY_VIOLATION = 1008
CLOSE_TOO_BIG = 1009
CLOSE_INTERNAL_ERROR = 1011
CLOSE_TLS_HANDSHAKE = 1015

# Compressing smaller messages gains nothing; the official server compresses from the 65th byte on.
COMPRESS_BYTES_MIN = 65
BROWSER_FRAME_BYTES_MAX = 4096
INFLATED_BYTES_PER_FEED = 256 * 1024
# Above this number the oldest are dropped: RFC 6455 5.5.3 lets an endpoint answer only the latest
# ping.
CONTROL_FRAMES_MAX = 1024

cdef enum:
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10
    FINAL_BIT = 0x80
    RSV1_BIT = 0x40
    RSV2_RSV3_BITS = 0x30
    MASK_BIT = 0x80
    CONTROL_BYTES_MAX = 125
    HEADER_BYTES_MAX = 14
    MAX_MESSAGE_BYTES_TOP = 1 << 30

# The bytes that a sender strips (the end of an empty stored block), then a final block, so that the
# inflater reports the end of a complete message.
cdef bytes DEFLATE_TAIL = b"\x00\x00\xff\xff\x01\x00\x00\xff\xff"

cdef dict CLOSE_CODES = {
    "Client Closed": CLOSE_NORMAL,
    "Authentication Timeout": CLOSE_POLICY_VIOLATION,
    "Authentication Failure": CLOSE_POLICY_VIOLATION,
    "Authentication Expired": CLOSE_POLICY_VIOLATION,
    "Slow Consumer (Pending Bytes)": CLOSE_POLICY_VIOLATION,
    "Slow Consumer (Write Deadline)": CLOSE_POLICY_VIOLATION,
    "Maximum Connections Exceeded": CLOSE_POLICY_VIOLATION,
    "Maximum Account Connections Exceeded": CLOSE_POLICY_VIOLATION,
    "Maximum Control Line Exceeded": CLOSE_POLICY_VIOLATION,
    "Maximum Subscriptions Exceeded": CLOSE_POLICY_VIOLATION,
    "Missing Account": CLOSE_POLICY_VIOLATION,
    "Credentials Revoked": CLOSE_POLICY_VIOLATION,
    "TLS Handshake Failure": CLOSE_TLS_HANDSHAKE,
    "Parse Error": CLOSE_PROTOCOL_ERROR,
    "Protocol Violation": CLOSE_PROTOCOL_ERROR,
    "Bad Client Protocol Version": CLOSE_PROTOCOL_ERROR,
    "Maximum Message Payload Exceeded": CLOSE_TOO_BIG,
    "Write Error": CLOSE_GOING_AWAY,
    "Read Error": CLOSE_GOING_AWAY,
    "Stale Connection": CLOSE_GOING_AWAY,
    "Server Shutdown": CLOSE_GOING_AWAY,
}


class WebsocketError(ProtocolError):
    """The peer violated the framing; answer with a close frame of `close_code` and `str(error)`."""

    def __init__(self, text: str, close_code: int) -> None:
        self.close_code = close_code
        super().__init__(text)


def close_code_for(reason: str) -> int:
    """The WebSocket close code for a close reason in the words of monitoring."""
    return CLOSE_CODES.get(reason, CLOSE_INTERNAL_ERROR)


cdef void xor_copy(
    uint8_t* target, const uint8_t* source, Py_ssize_t size, const uint8_t* mask, int position
) noexcept:
    """Copy `size` bytes XORed with the 4-byte mask, beginning at byte `position` of the mask.

    Words go through memcpy because neither side is aligned; compilers turn that into plain loads.
    """
    cdef uint8_t pattern[8]
    cdef uint64_t pattern_word, word
    cdef Py_ssize_t i = 0
    cdef int k
    for k in range(8):
        pattern[k] = mask[(position + k) & 3]
    memcpy(&pattern_word, pattern, 8)
    while size - i >= 8:
        memcpy(&word, source + i, 8)
        word ^= pattern_word
        memcpy(target + i, &word, 8)
        i += 8
    while i < size:
        target[i] = source[i] ^ pattern[i & 7]
        i += 1


cdef uint8_t* reserve(Output* output, Py_ssize_t more, Py_ssize_t expected) except NULL:
    """Reserve `more` bytes at the end of the output; `expected` sizes the first allocation."""
    cdef Py_ssize_t needed = output.size + more
    if output.fixed != NULL:
        return output.fixed + output.size
    if output.buffer == NULL:
        output.capacity = max(needed, expected)
        output.buffer = PyBytes_FromStringAndSize(NULL, output.capacity)
    elif needed > output.capacity:
        output.capacity = max(needed, 2 * output.capacity)
        # A failed resize frees the buffer and leaves NULL, so it cannot be freed twice.
        _PyBytes_Resize(&output.buffer, output.capacity)
    return <uint8_t*>PyBytes_AS_STRING(output.buffer) + output.size


cdef bytes finish(Output* output):
    """Take the bytes written so far; the output is empty afterwards."""
    cdef bytes result
    if output.size == 0:
        Py_XDECREF(output.buffer)
        output.buffer = NULL
        return b""
    if output.size != output.capacity:
        _PyBytes_Resize(&output.buffer, output.size)
    result = <bytes>output.buffer
    Py_DECREF(result)
    output.buffer = NULL
    return result


cdef class FrameDecoder:
    """Converts the bytes of a peer into application bytes, in any division into chunks and frames.

    `max_message_bytes` limits the inflated size of one compressed message; it may be changed at any
    time, so a server can start low and raise it once the peer has authenticated. Plain messages
    need no limit because they are never held. `require_mask` is for servers; without it, masked and
    unmasked frames are both accepted. Everything after a close frame is ignored.
    """

    def __init__(self, max_message_bytes: int, require_mask: bool, compression: bool) -> None:
        self.max_message_bytes = max_message_bytes
        self._require_mask = require_mask
        self._compression = compression
        self._header_need = 2

    @property
    def max_message_bytes(self) -> int:
        """The largest inflated size of one compressed message."""
        return self._max_message_bytes

    @max_message_bytes.setter
    def max_message_bytes(self, value: int) -> None:
        if not 1 <= value <= MAX_MESSAGE_BYTES_TOP:
            raise ValueError(
                f"max_message_bytes must be from 1 to {MAX_MESSAGE_BYTES_TOP}, not {value}")
        self._max_message_bytes = value

    @property
    def closed(self) -> bool:
        """Whether a close frame has arrived."""
        return self._closed

    @property
    def pending(self) -> bool:
        """Whether `feed(b"")` can return more (or raise an error) without new input."""
        if self._error is not None:
            return not self._error_raised
        return self._backlog is not None

    cpdef bytes feed(self, data):
        """Take bytes from the peer and return the application bytes that they complete.

        While `pending` is true afterwards, stop reading and call `feed(b"")` again once the result
        has been used: a highly compressed message is handed out in bounded portions this way.
        Raises WebsocketError on a violation, after all bytes before it have been returned, and on
        every call from then on.
        """
        cdef Py_buffer view
        cdef Output output
        cdef Py_ssize_t used = 0
        cdef bytes result
        if self._error is not None:
            self._error_raised = True
            raise WebsocketError(self._error, self._error_code)
        if self._closed:
            return b""
        if self._backlog is not None:
            data = self._backlog + bytes(data)
            self._backlog = None
        output.buffer = NULL
        output.fixed = NULL
        output.size = 0
        output.capacity = 0
        self._inflate_budget_bytes = INFLATED_BYTES_PER_FEED
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self._run(<const uint8_t*>view.buf, view.len, &used, &output)
            if not self._closed and self._error is None and (
                    used < view.len or self._inflate_input is not None):
                self._backlog = (<const char*>view.buf)[used:view.len]
            result = finish(&output)
        finally:
            Py_XDECREF(output.buffer)
            PyBuffer_Release(&view)
        if self._error is not None and not result:
            self._error_raised = True
            raise WebsocketError(self._error, self._error_code)
        return result

    @property
    def is_compressed(self) -> bool:
        """Whether messages may be compressed, so that they may grow when decoded."""
        return self._compression

    cpdef Py_ssize_t feed_into(self, data, target) except -1:
        """`feed` without a copy: write the application bytes to `target` and return their number.

        `target` is at least as large as the input. Not for peers that may compress.
        """
        cdef Py_buffer source, view
        cdef Output output
        cdef Py_ssize_t used = 0
        if self._compression:
            raise ValueError("compressed messages may be larger than their frames")
        if self._error is not None:
            self._error_raised = True
            raise WebsocketError(self._error, self._error_code)
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(target, &view, PyBUF_WRITABLE)
            try:
                if view.len < source.len:
                    raise ValueError(f"{source.len} bytes do not fit into {view.len}")
                output.buffer = NULL
                output.fixed = <uint8_t*>view.buf
                output.size = output.capacity = 0
                self._run(<const uint8_t*>source.buf, source.len, &used, &output)
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&source)
        if self._error is not None and not output.size:
            self._error_raised = True
            raise WebsocketError(self._error, self._error_code)
        return output.size

    cpdef list take_control(self):
        """The control frames since the last call, oldest first, as (opcode, payload)."""
        cdef list taken = self._controls
        self._controls = None
        return [] if taken is None else taken

    cdef int _run(
        self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* used, Output* output
    ) except -1:
        """Read until the input, the inflate budget or the connection ends; `used` is set to the
        bytes consumed.
        """
        cdef int take
        while self._error is None and not self._closed:
            if self._inflate_input is not None and not self._pump(output):
                return 0
            if self._error is not None:
                return 0
            if self._in_payload:
                if self._payload_left == 0:
                    self._end_frame()
                    continue
                if used[0] == size:
                    return 0
                used[0] += self._payload_step(data + used[0], size - used[0], output)
                continue
            if used[0] == size:
                return 0
            take = <int>min(<Py_ssize_t>(self._header_need - self._header_have), size - used[0])
            memcpy(self._header + self._header_have, data + used[0], take)
            self._header_have += take
            used[0] += take
            if self._header_have == self._header_need:
                self._header_step()
        return 0

    cdef int _header_step(self) except -1:
        """Process the requested header bytes, which are complete: request the rest, or start the
        payload.
        """
        cdef int length_code = self._header[1] & 0x7F
        if self._header_need == 2:
            self._check_first_two()
            if self._error is not None:
                return 0
            if length_code == 126:
                self._header_need += 2
            elif length_code == 127:
                self._header_need += 8
            if self._header[1] & MASK_BIT:
                self._header_need += 4
            if self._header_need > 2:
                return 0
        return self._start_payload()

    cdef int _check_first_two(self) except -1:
        """Check the violations possible in the first two bytes, in the order and wording of the
        official server.
        """
        cdef uint8_t first = self._header[0]
        cdef bint compressed = first & RSV1_BIT != 0
        cdef bint final = first & FINAL_BIT != 0
        cdef int opcode = first & 0x0F
        if self._require_mask and not self._header[1] & MASK_BIT:
            return self._fail("mask bit missing", CLOSE_PROTOCOL_ERROR)
        if first & RSV2_RSV3_BITS:
            return self._fail("RSV2 and RSV3 must be clear", CLOSE_PROTOCOL_ERROR)
        if compressed and not self._compression:
            return self._fail(
                "compressed frame received without negotiated permessage-deflate",
                CLOSE_PROTOCOL_ERROR)
        if opcode == PING or opcode == PONG or opcode == CLOSE:
            if self._header[1] & 0x7F > CONTROL_BYTES_MAX:
                return self._fail(
                    "control frame length bigger than maximum allowed of "
                    f"{CONTROL_BYTES_MAX} bytes",
                    CLOSE_PROTOCOL_ERROR)
            if compressed:
                return self._fail("control frame must not be compressed", CLOSE_PROTOCOL_ERROR)
            if not final:
                return self._fail("control frame does not have final bit set", CLOSE_PROTOCOL_ERROR)
        elif opcode == TEXT or opcode == BINARY:
            if self._in_message:
                return self._fail(
                    "new message started before final frame for previous message was received",
                    CLOSE_PROTOCOL_ERROR)
            self._in_message = True
            self._message_compressed = compressed
        elif opcode == CONTINUATION:
            if not self._in_message or compressed:
                return self._fail("invalid continuation frame", CLOSE_PROTOCOL_ERROR)
        else:
            return self._fail(f"unknown opcode {opcode}", CLOSE_PROTOCOL_ERROR)
        self._opcode = opcode
        self._final = final
        return 0

    cdef int _start_payload(self) except -1:
        """Read length and mask from the complete header."""
        cdef int position = 2
        cdef int i
        cdef int length_bytes = 0
        cdef uint64_t length = self._header[1] & 0x7F
        if length == 126:
            length_bytes = 2
        elif length == 127:
            length_bytes = 8
        if length_bytes:
            length = 0
            for i in range(length_bytes):
                length = (length << 8) | self._header[position + i]
            position += length_bytes
        if length >> 63:
            return self._fail("invalid 64-bit payload length", CLOSE_PROTOCOL_ERROR)
        # Without the mask bit the mask is zero, so applying it copies.
        for i in range(4):
            self._mask[i] = self._header[position + i] if self._header[1] & MASK_BIT else 0
        self._mask_position = 0
        self._payload_left = length
        self._control_have = 0
        self._in_payload = True
        return 0

    cdef Py_ssize_t _payload_step(
        self, const uint8_t* data, Py_ssize_t size, Output* output
    ) except -1:
        """Take the available part of the current frame's payload and return its size."""
        cdef Py_ssize_t take = size
        cdef Output piece
        if self._payload_left < <uint64_t>size:
            take = <Py_ssize_t>self._payload_left
        if self._opcode >= CLOSE:
            # At most 125 in all: _check_first_two has refused any other length.
            xor_copy(
                self._control + self._control_have, data, take, self._mask, self._mask_position)
            self._control_have += <int>take
        elif self._message_compressed:
            piece.buffer = NULL
            piece.fixed = NULL
            piece.size = 0
            piece.capacity = 0
            xor_copy(reserve(&piece, take, take), data, take, self._mask, self._mask_position)
            piece.size = take
            self._inflate_input = finish(&piece)
        else:
            xor_copy(
                reserve(output, take, size), data, take, self._mask, self._mask_position)
            output.size += take
        self._mask_position = (self._mask_position + <int>(take & 3)) & 3
        self._payload_left -= <uint64_t>take
        return take

    cdef int _end_frame(self) except -1:
        """End a frame whose payload is complete; a compressed message still has to be inflated to
        its end.
        """
        if self._opcode < CLOSE and self._final and self._message_compressed:
            if not self._tail_given:
                if self._inflater is None:  # a message without any payload byte
                    self._inflater = zlib.decompressobj(-15)
                self._inflate_input = DEFLATE_TAIL
                self._tail_given = True
                return 0
            if not self._inflater.eof:
                return self._fail("compressed message is incomplete", CLOSE_INVALID_PAYLOAD)
            self._inflater = None
            self._inflated_bytes = 0
            self._tail_given = False
        self._in_payload = False
        self._header_have = 0
        self._header_need = 2
        if self._opcode >= CLOSE:
            return self._end_control()
        if self._final:
            self._in_message = False
        return 0

    cdef int _end_control(self) except -1:
        cdef bytes payload = (<const char*>self._control)[:self._control_have]
        if self._opcode == CLOSE:
            self._check_close(payload)
            if self._error is not None:
                return 0
            self._closed = True
        if self._controls is None:
            self._controls = []
        elif len(self._controls) == CONTROL_FRAMES_MAX:
            del self._controls[0]
        self._controls.append((self._opcode, payload))
        return 0

    cdef int _check_close(self, bytes payload) except -1:
        """Check that a close frame is empty, or holds a valid status code and UTF-8 text."""
        cdef int code
        if not payload:
            return 0
        if len(payload) == 1:
            return self._fail("close frame payload cannot be 1 byte", CLOSE_PROTOCOL_ERROR)
        code = (<uint8_t>payload[0] << 8) | <uint8_t>payload[1]
        if code < 1000 or code >= 5000 or 1016 <= code <= 2999 or code in (1004, 1005, 1006, 1015):
            return self._fail(f"invalid close status code {code}", CLOSE_PROTOCOL_ERROR)
        try:
            payload[2:].decode()
        except UnicodeDecodeError:
            return self._fail("invalid utf8 body in close frame", CLOSE_INVALID_PAYLOAD)
        return 0

    cdef int _pump(self, Output* output) except -1:
        """Inflate the waiting input; 0 if the budget ended first, 1 once it is used up."""
        cdef bytes inflated
        cdef Py_ssize_t room, allowed
        if self._inflater is None:
            self._inflater = zlib.decompressobj(-15)
        while True:
            if self._inflater.eof:  # bytes after a final block are padding
                self._inflate_input = None
                return 1
            if self._inflate_budget_bytes == 0:
                return 0
            # One byte above the limit is enough to detect it; zlib produces no more than requested.
            # Never 0, which means "no limit" to zlib, even if the limit has been lowered since.
            room = min(
                max(self._max_message_bytes - self._inflated_bytes, 0) + 1,
                self._inflate_budget_bytes)
            try:
                inflated = self._inflater.decompress(self._inflate_input, room)
            except zlib.error:
                self._fail("compressed message is corrupt", CLOSE_INVALID_PAYLOAD)
                return 1
            allowed = min(
                <Py_ssize_t>len(inflated), max(self._max_message_bytes - self._inflated_bytes, 0))
            if allowed:
                memcpy(reserve(output, allowed, 0), <const char*>inflated, allowed)
                output.size += allowed
            if allowed < len(inflated):
                self._fail("maximum payload exceeded", CLOSE_TOO_BIG)
                return 1
            self._inflated_bytes += allowed
            self._inflate_budget_bytes -= allowed
            if allowed < room:
                self._inflate_input = None
                return 1
            self._inflate_input = self._inflater.unconsumed_tail

    cdef int _fail(self, str text, int close_code) except -1:
        """Record the violation, which `feed` raises, and release all buffers."""
        self._error = text
        self._error_code = close_code
        self._inflater = None
        self._inflate_input = None
        return 0


cdef Py_ssize_t write_header(uint8_t* target, int first, Py_ssize_t size, bint masked) noexcept:
    """Write the first byte and the shortest form of the length; returns the header's size, at most
    10.
    """
    cdef uint8_t mask_bit = MASK_BIT if masked else 0
    cdef int i
    target[0] = <uint8_t>first
    if size <= CONTROL_BYTES_MAX:
        target[1] = mask_bit | <uint8_t>size
        return 2
    if size <= 0xFFFF:
        target[1] = mask_bit | 126
        target[2] = <uint8_t>(size >> 8)
        target[3] = <uint8_t>(size & 0xFF)
        return 4
    target[1] = mask_bit | 127
    for i in range(8):
        target[2 + i] = <uint8_t>((<uint64_t>size >> (56 - 8 * i)) & 0xFF)
    return 10


cdef class FrameEncoder:
    """Converts application bytes into binary frames, and creates control frames.

    `compression`, `window_bits` and `fragment_compressed` come from the handshake; browsers get
    frames of at most 4096 bytes. `mask` is for clients: every frame then takes its mask from
    `mask_source(4)`. No state is kept between calls: there is no context takeover.
    """

    def __init__(
        self,
        compression: bool,
        is_browser: bool,
        mask: bool = False,
        mask_source=None,
        *,
        fragment_compressed: bool = True,
        window_bits: int = 15,
    ) -> None:
        if mask and mask_source is None:
            raise ValueError("mask=True needs a mask_source that gives random bytes")
        if not 9 <= window_bits <= 15:
            raise ValueError(f"window_bits must be from 9 to 15, not {window_bits}")
        self._compression = compression
        self._is_browser = is_browser
        self._masked = mask
        self._mask_source = mask_source
        self._fragment_compressed = fragment_compressed
        self._window_bits = window_bits

    cpdef bytes encode(self, data):
        """The bytes in one binary frame; for a browser in several, each a message or a fragment.

        Empty input yields no frame. Data that compression would not shrink is sent uncompressed.
        """
        cdef Py_buffer view
        cdef bytes deflated
        cdef Py_ssize_t frame_bytes_max = BROWSER_FRAME_BYTES_MAX if self._is_browser else 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if view.len == 0:
                return b""
            if self._compression and view.len >= COMPRESS_BYTES_MIN:
                deflated = self._deflate(data)
                if len(deflated) < view.len:
                    if not self._fragment_compressed:
                        frame_bytes_max = 0
                    return self._frames(
                        <const uint8_t*><const char*>deflated, len(deflated), frame_bytes_max,
                        BINARY, True)
            return self._frames(
                <const uint8_t*>view.buf, view.len, frame_bytes_max, BINARY, False)
        finally:
            PyBuffer_Release(&view)

    cpdef bytes frame_head(self, Py_ssize_t size):
        """The header that turns the next `size` bytes into one frame; None if they must be
        encoded.
        """
        cdef uint8_t[HEADER_BYTES_MAX] head
        if size == 0 or self._masked or (self._is_browser and size > BROWSER_FRAME_BYTES_MAX) \
                or (self._compression and size >= COMPRESS_BYTES_MIN):
            return None
        return (<const char*>head)[:write_header(head, BINARY | FINAL_BIT, size, False)]

    cpdef bytes encode_control(self, int opcode, bytes payload=b""):
        """A ping, pong or close frame with this payload, which may have at most 125 bytes."""
        if opcode != CLOSE and opcode != PING and opcode != PONG:
            raise ValueError(f"opcode {opcode} is not a control frame: 8, 9 and 10 are")
        if len(payload) > CONTROL_BYTES_MAX:
            raise ValueError(
                f"a control frame has at most {CONTROL_BYTES_MAX} bytes, not {len(payload)}")
        return self._frames(<const uint8_t*><const char*>payload, len(payload), 0, opcode, False)

    cpdef bytes encode_close(self, int code, str reason=""):
        """A close frame; a long reason is cut and ends in "...". Code 1005 makes it empty."""
        cdef bytes text = reason.encode("utf-8", "replace")
        if code == CLOSE_NO_STATUS:
            return self.encode_control(CLOSE)
        if not 1000 <= code <= 4999:
            raise ValueError(f"close code must be from 1000 to 4999, not {code}")
        if len(text) > CONTROL_BYTES_MAX - 2:
            # "ignore" drops the character that the cut would split.
            text = text[:CONTROL_BYTES_MAX - 5].decode("utf-8", "ignore").encode() + b"..."
        return self.encode_control(CLOSE, code.to_bytes(2, "big") + text)

    cdef bytes _frames(
        self, const uint8_t* data, Py_ssize_t size, Py_ssize_t frame_bytes_max, int opcode,
        bint compressed,
    ):
        """The frames of `data`, at most `frame_bytes_max` each, 0 for a single frame; fragments if
        compressed.
        """
        cdef Output output
        cdef Py_ssize_t done = 0
        cdef Py_ssize_t take, header_bytes, frames
        cdef int first
        cdef bytes mask = b"\0\0\0\0"
        cdef uint8_t* target
        if frame_bytes_max == 0 or frame_bytes_max > size:
            frame_bytes_max = max(size, 1)
        frames = max((size + frame_bytes_max - 1) // frame_bytes_max, 1)
        output.buffer = NULL
        output.fixed = NULL
        output.size = 0
        output.capacity = 0
        try:
            while True:
                take = min(size - done, frame_bytes_max)
                first = opcode
                if compressed:
                    first = (opcode | RSV1_BIT) if done == 0 else CONTINUATION
                if not compressed or done + take == size:
                    first |= FINAL_BIT
                if self._masked:
                    mask = self._mask_source(4)
                    if len(mask) != 4:
                        raise ValueError(f"mask_source(4) gave {len(mask)} bytes")
                target = reserve(
                    &output, HEADER_BYTES_MAX + take, size + HEADER_BYTES_MAX * frames)
                header_bytes = write_header(target, first, take, self._masked)
                if self._masked:
                    memcpy(target + header_bytes, <const char*>mask, 4)
                    header_bytes += 4
                    xor_copy(
                        target + header_bytes, data + done, take,
                        <const uint8_t*><const char*>mask, 0)
                else:
                    memcpy(target + header_bytes, data + done, take)
                output.size += header_bytes + take
                done += take
                if done == size:
                    return finish(&output)
        finally:
            Py_XDECREF(output.buffer)

    cdef bytes _deflate(self, data):
        """A message, compressed by itself, without the empty block that ends a flush."""
        cdef object deflater = zlib.compressobj(1, zlib.DEFLATED, -self._window_bits)
        cdef bytes deflated = deflater.compress(data) + deflater.flush(zlib.Z_SYNC_FLUSH)
        return deflated[:len(deflated) - 4]
