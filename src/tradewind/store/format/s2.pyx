"""S2, the compression of block files and snapshots: bytes in, bytes out.

Owns the Python interface: whole streams, block files and streams in pieces, with their limits.
Knows nothing of records and never touches a file. The format is drawn in s2_format.pxd; encoding
and decoding proper are s2_encode.pyx and s2_decode.pyx.

Output is only allocated after the sizes that the chunks announce have been checked against the
caller's limit, so a small input cannot request much memory. Work on whole streams is done without
the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from tradewind.store.format.s2_decode cimport (
    S2_BAD_IDENTIFIER, S2_BAD_LENGTH, S2_CHECKSUM, S2_CHUNK_CUT, S2_CHUNK_SIZE,
    S2_COPY_BEFORE_START, S2_COPY_WITHOUT_OFFSET, S2_ELEMENT_CUT, S2_NO_IDENTIFIER, S2_OK,
    S2_OUTPUT_OVERRUN, S2_OUTPUT_SHORT, S2_RESERVED_CHUNK, S2_SIZE_LIMIT, Chunk, S2Failure,
    crc32c_tables, decode_chunk, masked_crc, read_chunk, s2_decode, s2_measure, s2_salvage)
from tradewind.store.format.s2_encode cimport S2_TABLE_ENTRIES, s2_encode, s2_encoded_bound
from tradewind.store.format.s2_format cimport (
    CHUNK_IDENTIFIER, CHUNK_RAW, CHUNK_SKIP_FIRST, S2_CHECKSUM_BYTES, S2_CHUNK_BYTES,
    S2_CHUNK_BYTES_MAX, S2_HEADER_BYTES, S2_IDENTIFIER_BYTES, load_uvarint, store3, store4,
    store_uvarint)

from tradewind.errors import StoreError

BLOCK_BYTES_MAX = 64 << 20
"""More than any block holds: the largest record is 32 MiB, and a block at most 8 MiB without it."""
OUTPUT_BYTES_PER_FEED = S2_CHUNK_BYTES_MAX
"""What one call of `Decompressor.feed` returns at most."""

cdef enum:
    BLOCK_TAIL_BYTES = 8                # the checksum of a block's last record, never packed
    BLOCK_ALGORITHM_S2 = 1
    LARGE_CHUNK_BYTES = 262144          # it takes longer than letting others run and coming back
    CHUNKS_PER_FEED = 16384             # chunks may be empty: there is no end of them in a few MB
    IDENTIFIER_BYTES_ALIKE_MIN = 8
    SNAPPY_CHUNK_BYTES = 65536

cdef bytes IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
cdef bytes IDENTIFIER_SNAPPY = b"\xff\x06\x00\x00sNaPpY"

cdef dict REASONS = {
    S2_NO_IDENTIFIER: "the stream does not start with an S2 identifier chunk",
    S2_BAD_IDENTIFIER: "the identifier chunk says neither S2sTwO nor sNaPpY",
    S2_RESERVED_CHUNK: "the chunk type is reserved (02 to 7f) and may not be skipped",
    S2_CHUNK_SIZE: "the chunk has an impossible length",
    S2_CHUNK_CUT: "the stream ends inside this chunk",
    S2_BAD_LENGTH: "the decoded length of the chunk is not a number up to 4 MiB",
    S2_ELEMENT_CUT: "the chunk ends inside this element",
    S2_COPY_BEFORE_START: "a copy reaches back beyond the start of its chunk",
    S2_COPY_WITHOUT_OFFSET: "a copy repeats an offset, but there was none before it",
    S2_OUTPUT_OVERRUN: "the chunk holds more than the decoded length it announced",
    S2_OUTPUT_SHORT: "the chunk holds less than the decoded length it announced",
    S2_CHECKSUM: "the decoded chunk does not have its checksum",
    S2_SIZE_LIMIT: "the decoded data is larger than allowed",
}


class S2Error(StoreError):
    """An incomplete S2 stream; `offset` is the byte of the error, `reason` describes it."""

    def __init__(self, offset, reason):
        self.offset = offset
        self.reason = reason
        super().__init__(f"S2 data: byte {offset}: {reason}")


cdef object error_of(S2Failure* failure, size_t base):
    return S2Error(base + failure.offset, REASONS[failure.fault])


cdef bytes encoded(const uint8_t* data, size_t size, bytes head, bytes tail):
    # head ++ chunks of `data` ++ tail, made in one piece.
    cdef size_t head_size = len(head), tail_size = len(tail), done
    cdef size_t room = head_size + s2_encoded_bound(size) + tail_size
    cdef uint32_t* table = <uint32_t*>malloc(S2_TABLE_ENTRIES * sizeof(uint32_t) + room)
    if table == NULL:
        raise MemoryError
    cdef uint8_t* output = <uint8_t*>(table + S2_TABLE_ENTRIES)
    try:
        memcpy(output, PyBytes_AS_STRING(head), head_size)
        with nogil:
            done = head_size + s2_encode(data, size, output + head_size, table)
        memcpy(output + done, PyBytes_AS_STRING(tail), tail_size)
        return PyBytes_FromStringAndSize(<const char*>output, done + tail_size)
    finally:
        free(table)


cdef bytes decoded(const uint8_t* data, size_t size, size_t size_limit, size_t base, bytes tail):
    # The content of a stream ++ tail; `base` is added to the byte that an error names.
    cdef S2Failure failure
    cdef size_t content_size
    cdef size_t tail_size = len(tail)
    cdef uint8_t* output
    cdef int fault
    with nogil:
        fault = s2_measure(data, size, size_limit, &content_size, &failure)
    if fault != S2_OK:
        raise error_of(&failure, base)
    result = PyBytes_FromStringAndSize(NULL, content_size + tail_size)
    output = <uint8_t*>PyBytes_AS_STRING(result)
    with nogil:
        fault = s2_decode(data, size, output, content_size, &failure)
    if fault != S2_OK:
        raise error_of(&failure, base)
    memcpy(output + content_size, PyBytes_AS_STRING(tail), tail_size)
    return result


def compress(data):
    """Compress `data` into a whole S2 stream."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return encoded(<const uint8_t*>view.buf, view.len, IDENTIFIER, b"")
    finally:
        PyBuffer_Release(&view)


def wrap(bytes data not None):
    """Wrap `data` in a whole S2 stream that compresses nothing."""
    cdef size_t size = len(data), done = 0, part, room
    cdef const uint8_t* start = <const uint8_t*><const char*>data
    cdef uint8_t* output
    room = S2_IDENTIFIER_BYTES + size + (size // S2_CHUNK_BYTES + 1) * (
        S2_HEADER_BYTES + S2_CHECKSUM_BYTES)
    cdef bytes result = PyBytes_FromStringAndSize(NULL, room)
    output = <uint8_t*>PyBytes_AS_STRING(result)
    memcpy(output, PyBytes_AS_STRING(IDENTIFIER), S2_IDENTIFIER_BYTES)
    output += S2_IDENTIFIER_BYTES
    while done < size:
        part = min(size - done, <size_t>S2_CHUNK_BYTES)
        output[0] = CHUNK_RAW
        store3(output + 1, <uint32_t>(part + S2_CHECKSUM_BYTES))
        store4(output + S2_HEADER_BYTES, masked_crc(start + done, part))
        output += S2_HEADER_BYTES + S2_CHECKSUM_BYTES
        memcpy(output, start + done, part)
        output += part
        done += part
    return result[:output - <uint8_t*>PyBytes_AS_STRING(result)]


def frame_snappy(bytes data not None):
    """Wrap `data` in a framed Snappy stream, for receivers without S2; nothing is compressed in
    it.
    """
    cdef const uint8_t* start = <const uint8_t*><const char*>data
    cdef size_t at, size
    frames = [IDENTIFIER_SNAPPY]
    for at in range(0, len(data), SNAPPY_CHUNK_BYTES):
        size = min(<size_t>SNAPPY_CHUNK_BYTES, len(data) - at)
        frames.append(b"\x01" + (<object>(size + 4)).to_bytes(3, "little")
                      + (<object>masked_crc(start + at, size)).to_bytes(4, "little"))
        frames.append(data[at:at + size])
    return b"".join(frames)


def decompress(data, size_t size_limit):
    """Decompress a whole S2 or framed Snappy stream, unless it is invalid or above the limit."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return decoded(<const uint8_t*>view.buf, view.len, size_limit, 0, b"")
    finally:
        PyBuffer_Release(&view)


def crc32c_portable(bytes data not None):
    """The CRC-32C by tables, without special instructions."""
    return crc32c_tables(<const uint8_t*><const char*>data, len(data))


# ------------------------------------------------------------------ block files

cdef size_t block_head(bytes data, uint64_t* size) except? 0:
    # Returns where the stream starts in a compressed block file.
    cdef const uint8_t* start = <const uint8_t*><const char*>data
    cdef size_t head_size
    if not data.startswith(b"cmp"):
        raise S2Error(0, 'a compressed block starts with "cmp"')
    if len(data) < 4 or start[3] != BLOCK_ALGORITHM_S2:
        raise S2Error(3, "the compression of the block is not 1, which is S2")
    head_size = load_uvarint(start + 4, len(data) - 4, size)
    if head_size == 0:
        raise S2Error(4, "the size of the block is not a number")
    if <size_t>len(data) < 4 + head_size + BLOCK_TAIL_BYTES or size[0] < BLOCK_TAIL_BYTES:
        raise S2Error(4 + head_size, "the block is too short for the checksum at its end")
    return 4 + head_size


def is_compressed(bytes head not None):
    """True if a block file that starts like this (24 bytes suffice) is compressed.

    "cmp" alone could be the length of a large plain record, so the stream's identifier must follow.
    A byte or two of it may be damaged.
    """
    cdef uint64_t _size
    cdef const uint8_t* start = <const uint8_t*><const char*>head
    if len(head) < 5 or not head.startswith(b"cmp\x01"):
        return False
    found = head[4 + load_uvarint(start + 4, len(head) - 4, &_size):]
    return any(
        sum([one == other for one, other in zip(found, identifier)]) >= IDENTIFIER_BYTES_ALIKE_MIN
        for identifier in (IDENTIFIER, IDENTIFIER_SNAPPY))


def encode_block(bytes plain not None):
    """Compress a plain block into a block file; the checksum at its end stays as it is."""
    cdef uint8_t[10] size
    cdef Py_ssize_t body_size = len(plain) - BLOCK_TAIL_BYTES
    if body_size < 0:
        raise ValueError(f"a block has at least {BLOCK_TAIL_BYTES} bytes, not {len(plain)}")
    head = b"cmp\x01" + (<const char*>size)[:store_uvarint(size, len(plain))]
    return encoded(
        <const uint8_t*><const char*>plain, body_size, head + IDENTIFIER,
        plain[body_size:])


def decode_block(bytes data not None, size_t size_limit=BLOCK_BYTES_MAX):
    """Decompress a compressed block file; S2Error if any byte of it is wrong."""
    cdef uint64_t size
    cdef size_t head_size = block_head(data, &size)
    cdef size_t body_size = len(data) - head_size - BLOCK_TAIL_BYTES
    if size > size_limit:
        raise S2Error(4, f"the block is of {size} bytes, above the {size_limit} allowed")
    plain = decoded(
        <const uint8_t*><const char*>data + head_size, body_size, size - BLOCK_TAIL_BYTES,
        head_size, data[head_size + body_size:])
    if <uint64_t>len(plain) != size:
        raise S2Error(4, f"the block is of {len(plain)} bytes, but announces {size}")
    return plain


def salvage_block(bytes data not None, size_t size_limit=BLOCK_BYTES_MAX):
    """Decode the readable parts of a damaged compressed block file; returns also the first fault or
    None.

    Lost bytes are zero where others follow them, so every intact record is found at its place, with
    its own checksum.
    """
    cdef S2Failure failure
    cdef uint64_t size
    cdef size_t head_size = block_head(data, &size), done
    cdef size_t body_size = len(data) - head_size - BLOCK_TAIL_BYTES
    cdef const uint8_t* body = <const uint8_t*><const char*>data + head_size
    cdef uint8_t* output = <uint8_t*>malloc(size_limit)
    if output == NULL:
        raise MemoryError
    try:
        with nogil:
            done = s2_salvage(body, body_size, output, size_limit, &failure)
        plain = PyBytes_FromStringAndSize(<const char*>output, done)
    finally:
        free(output)
    if done + BLOCK_TAIL_BYTES == size:
        plain += data[head_size + body_size:]
    elif failure.fault == S2_OK:
        return plain, S2Error(4, f"the block is of {done + 8} bytes, but announces {size}")
    return plain, None if failure.fault == S2_OK else error_of(&failure, head_size)


# ------------------------------------------------------------------ streams in pieces

cdef class Compressor:
    """Compresses everything written to it into one S2 stream; holds less than one chunk."""

    def __cinit__(self):
        self._held = bytearray()

    def write(self, data):
        """Take `data`; returns the chunks that are complete now."""
        cdef size_t whole
        self._held += data
        whole = len(self._held) // S2_CHUNK_BYTES * S2_CHUNK_BYTES
        return self._take(whole) if whole else b""

    def flush(self):
        """The rest as a last, shorter chunk; more may be written after it."""
        return self._take(len(self._held)) if self._held else b""

    def _take(self, size_t size):
        # A copy, because other threads may run while it is encoded.
        cdef bytes data = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(self._held), size)
        cdef bytes head = b"" if self._started else IDENTIFIER
        self._started = True
        del self._held[:size]
        return encoded(<const uint8_t*>PyBytes_AS_STRING(data), size, head, b"")


cdef class Decompressor:
    """Decodes one stream that arrives in pieces of any size; holds at most one chunk and the bytes
    fed.

    `decoded_bytes` never exceeds `size_limit`. While `pending` is True there is more to fetch with
    `feed(b"")`: each call returns at most OUTPUT_BYTES_PER_FEED, and examines CHUNKS_PER_FEED.
    """

    def __cinit__(self, size_t size_limit):
        self.size_limit = size_limit
        self._held = bytearray()

    def feed(self, data):
        """Take `data`; returns the bytes decoded so far.

        Bytes before a fault are returned first; after that every call raises the S2Error.
        """
        cdef size_t used = 0, budget = OUTPUT_BYTES_PER_FEED, chunks = 0
        if self._error is not None:
            self.pending = False
            raise self._error
        self._held += data
        pieces = []
        try:
            while (piece := self._next(&used, budget)) is not None:
                budget -= len(piece)
                if piece:
                    pieces.append(piece)
                chunks += 1
                if chunks == CHUNKS_PER_FEED and used < <size_t>len(self._held):
                    self.pending = True
                    break
        except S2Error as error:
            self._error = error
            self._held = bytearray()
            self.pending = bool(pieces)
            if not pieces:
                raise
            return b"".join(pieces)
        del self._held[:used]
        self._position += used
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def finish(self):
        """Check the end of the input: S2Error if it is inside a chunk. Must be called."""
        if self._error is not None:
            raise self._error
        if self.pending:
            raise ValueError("what is pending must be fetched before the end")
        if self._skip_left or self._held:
            start = self._skip_start if self._skip_left else self._position
            raise S2Error(start, REASONS[S2_CHUNK_CUT])

    cdef bytes _next(self, size_t* used, size_t budget):
        # The content of the next chunk, or None if it is not there yet or above the budget.
        cdef Chunk chunk
        cdef S2Failure failure
        cdef size_t produced, size = len(self._held), skipped = min(self._skip_left, size - used[0])
        cdef const uint8_t* data = <const uint8_t*>PyByteArray_AS_STRING(self._held)
        cdef uint8_t* output
        cdef int fault
        self.pending = False
        self._skip_left -= skipped
        used[0] += skipped
        if used[0] == size:
            return None
        fault = read_chunk(data, size, used[0], self._identified, &chunk, &failure)
        if fault == S2_CHUNK_CUT:
            if CHUNK_SKIP_FIRST <= chunk.kind < CHUNK_IDENTIFIER:
                self._skip_left = chunk.end - used[0]
                self._skip_start = self._position + used[0]
                return self._next(used, budget)
            return None
        if fault == S2_OK and chunk.decoded_size > self.size_limit - self.decoded_bytes:
            raise S2Error(self._position + used[0], REASONS[S2_SIZE_LIMIT])
        if fault != S2_OK:
            raise error_of(&failure, self._position)
        if chunk.decoded_size > budget:
            self.pending = True
            return None
        piece = PyBytes_FromStringAndSize(NULL, chunk.decoded_size)
        output = <uint8_t*>PyBytes_AS_STRING(piece)
        if chunk.decoded_size < LARGE_CHUNK_BYTES:
            fault = decode_chunk(data, &chunk, output, &produced, &failure)
        else:
            with nogil:
                fault = decode_chunk(data, &chunk, output, &produced, &failure)
        if fault != S2_OK:
            raise error_of(&failure, self._position)
        self._identified = True
        self.decoded_bytes += chunk.decoded_size
        used[0] = chunk.end
        return piece
