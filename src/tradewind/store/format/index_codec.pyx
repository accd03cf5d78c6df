"""The subjects of an index.db, which can be millions: bytes to columns and back.

Owns only the loop over the subjects; everything else of the file is `index_file`. It creates no
Python object per subject: names lie one after the other in one bytes object, numbers in arrays.

    a subject:  uvarint length | name | uvarint messages | uvarint first block | uvarint last block

Before version 4 the last block is left out if there is just one message.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport Py_DECREF, Py_XDECREF, PyObject
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

import array

from tradewind.errors import CorruptRecord

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* text, Py_ssize_t size) except NULL
    char* bytes_start "PyBytes_AS_STRING"(PyObject* text)
    int _PyBytes_Resize(PyObject** text, Py_ssize_t size) except -1

cdef enum:
    # Length, messages and one block; a name has at least one byte more.
    OVERHEAD_BYTES_MIN = 3
    LAST_BLOCK_ALWAYS_SINCE = 4

cdef array.array U64 = array.array("Q")
cdef array.array U32 = array.array("I")

ctypedef struct Columns:
    char* names
    uint64_t* ends              # where each name ends in `names`
    uint64_t* totals
    uint32_t* first_blocks
    uint32_t* last_blocks


cdef bint is_subject(const uint8_t* name, uint64_t size) noexcept nogil:
    """Whether a message can have this subject: no empty token, blank or zero byte."""
    cdef uint64_t i
    cdef uint64_t token = 0
    for i in range(size):
        if name[i] == 46:
            if i == token:
                return False
            if i == token + 1 and name[token] == 62:
                return False
            token = i + 1
        elif name[i] <= 32 and (
                name[i] == 32 or name[i] == 0 or name[i] == 9 or name[i] == 10
                or name[i] == 12 or name[i] == 13):
            return False
    return token < size


cdef const char* read_subject(
    const uint8_t* data, Py_ssize_t size, int version, Columns* columns, Py_ssize_t index,
    Py_ssize_t* used
) noexcept nogil:
    """Read one subject into its row; NULL, or what is wrong `used` bytes from here."""
    cdef uint64_t length, total, first_block, last_block
    cdef uint64_t start = columns.ends[index - 1] if index else 0
    cdef Py_ssize_t offset
    cdef int taken = read_uvarint(data, size, &length)
    used[0] = 0
    if taken == 0:
        return "a subject's length is cut off or no number"
    offset = taken
    if length == 0 or length > <uint64_t>(size - offset):
        return "a subject is empty or longer than the data"
    if not is_subject(data + offset, length):
        return "a subject has an empty token, a blank or a zero byte"
    memcpy(columns.names + start, data + offset, length)
    offset += <Py_ssize_t>length
    used[0] = offset
    taken = read_uvarint(data + offset, size - offset, &total)
    if taken == 0:
        return "a subject's number of messages is cut off or no number"
    offset += taken
    taken = read_uvarint(data + offset, size - offset, &first_block)
    if taken == 0 or first_block >> 32:
        return "a subject's first block is cut off or no block number"
    offset += taken
    last_block = first_block
    if version >= LAST_BLOCK_ALWAYS_SINCE or total > 1:
        taken = read_uvarint(data + offset, size - offset, &last_block)
        if taken == 0 or last_block >> 32:
            return "a subject's last block is cut off or no block number"
        offset += taken
    columns.ends[index] = start + length
    columns.totals[index] = total
    columns.first_blocks[index] = <uint32_t>first_block
    columns.last_blocks[index] = <uint32_t>last_block
    used[0] = offset
    return NULL


def decode_subjects(
    data: bytes, offset: int, end: int, count: int, version: int, path: str
) -> tuple:
    """Read `count` subjects that start at `offset`; nothing after `end` is read.

    Returns (names, ends, totals, first blocks, last blocks, next offset): bytes, arrays of u64 and
    u64 and u32 and u32, int.
    """
    cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t position = offset
    cdef Py_ssize_t limit = end
    cdef Py_ssize_t rows, index
    cdef Py_ssize_t used = 0
    cdef int format_version = version
    cdef Columns columns
    cdef const char* problem = NULL
    cdef PyObject* names = NULL
    cdef bytes result
    if not 0 <= position <= limit <= len(data):
        raise ValueError(f"bytes {position} to {limit} of {len(data)}")
    if not 0 <= count <= (limit - position) // (OVERHEAD_BYTES_MIN + 1):
        raise CorruptRecord(
            path, position, f"{count} subjects do not fit in {limit - position} bytes")
    rows = count
    cdef array.array ends = array.clone(U64, rows, False)
    cdef array.array totals = array.clone(U64, rows, False)
    cdef array.array first_blocks = array.clone(U32, rows, False)
    cdef array.array last_blocks = array.clone(U32, rows, False)
    columns.ends = <uint64_t*>ends.data.as_voidptr
    columns.totals = <uint64_t*>totals.data.as_voidptr
    columns.first_blocks = <uint32_t*>first_blocks.data.as_voidptr
    columns.last_blocks = <uint32_t*>last_blocks.data.as_voidptr
    if rows == 0:
        return b"", ends, totals, first_blocks, last_blocks, position
    # No sum of names can be longer, because each subject before and after it takes its overhead.
    names = new_bytes(NULL, limit - position)
    columns.names = bytes_start(names)
    try:
        with nogil:
            for index in range(rows):
                problem = read_subject(
                    source + position, limit - position, format_version, &columns, index, &used)
                position += used
                if problem != NULL:
                    break
        if problem != NULL:
            raise CorruptRecord(path, position, (<bytes>problem).decode())
        _PyBytes_Resize(&names, <Py_ssize_t>columns.ends[rows - 1])
        result = <bytes>names
        Py_DECREF(result)
        names = NULL
    finally:
        Py_XDECREF(names)
    return result, ends, totals, first_blocks, last_blocks, position


def encode_subjects(
    names: bytes,
    const uint64_t[::1] ends,
    const uint64_t[::1] totals,
    const uint32_t[::1] first_blocks,
    const uint32_t[::1] last_blocks,
) -> bytes:
    """The subjects of these columns as version 4 writes them; their number is not included."""
    cdef const char* source = PyBytes_AS_STRING(names)
    cdef Py_ssize_t rows = ends.shape[0]
    cdef Py_ssize_t index
    cdef Py_ssize_t names_bytes = len(names)
    cdef uint64_t start = 0
    cdef uint8_t* first_byte
    cdef uint8_t* target
    cdef PyObject* encoded
    cdef bytes result
    if not (totals.shape[0] == first_blocks.shape[0] == last_blocks.shape[0] == rows):
        raise ValueError("all columns of a subject table must have the same length")
    for index in range(rows):
        if not start <= ends[index] <= <uint64_t>names_bytes:
            raise ValueError(f"subject {index} ends at {ends[index]}: not after its start {start}")
        start = ends[index]
    if rows == 0:
        return b""
    encoded = new_bytes(NULL, names_bytes + 4 * UVARINT_BYTES_MAX * rows)
    try:
        first_byte = <uint8_t*>bytes_start(encoded)
        with nogil:
            target = first_byte
            start = 0
            for index in range(rows):
                target += write_uvarint(target, ends[index] - start)
                memcpy(target, source + start, ends[index] - start)
                target += ends[index] - start
                start = ends[index]
                target += write_uvarint(target, totals[index])
                target += write_uvarint(target, first_blocks[index])
                target += write_uvarint(target, last_blocks[index])
        _PyBytes_Resize(&encoded, target - first_byte)
        result = <bytes>encoded
        Py_DECREF(result)
        encoded = NULL
    finally:
        Py_XDECREF(encoded)
    return result
