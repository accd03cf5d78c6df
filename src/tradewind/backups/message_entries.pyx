"""The messages of a backup: counted, checked and chosen, without an object for each of them.

Owns the loops that run once per message. The format of an entry is drawn in
`tradewind.store.backup.archive`; every entry here is a message. Nothing is kept between two calls,
and every size is checked against the bytes that are there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp
from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_free, buffer_init, buffer_reserve)

from tradewind.backups.backup_errors import DamagedMessagesError

cdef enum:
    NUMBER_BITS_MAX = 63
    NUMBERS_BYTES_MAX = 50      # five numbers of ten bytes
    SEQUENCE_BITS = 62
    MESSAGE_BYTES_MAX = 1 << 28

cdef enum ReadResult:
    ENTRY_READ = 0
    ENTRY_CUT = 1
    ENTRY_INVALID = 2


ctypedef struct MessageEntry:
    uint64_t name_size
    uint64_t folded_time
    uint64_t seq
    uint64_t header_size
    uint64_t payload_size
    const uint8_t* name
    const uint8_t* end


cdef inline int read_number(const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    cdef uint32_t shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at[0] < end:
        byte = at[0][0]
        at[0] += 1
        if shift == NUMBER_BITS_MAX and byte > 1:
            return ENTRY_INVALID
        value[0] |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return ENTRY_READ
        shift += 7
    return ENTRY_CUT


cdef inline int read_entry(const uint8_t* at, const uint8_t* end,
                           MessageEntry* entry) noexcept nogil:
    cdef int status
    cdef uint64_t size
    status = read_number(&at, end, &entry.name_size)
    if status == ENTRY_READ:
        status = read_number(&at, end, &entry.folded_time)
    if status == ENTRY_READ:
        status = read_number(&at, end, &entry.seq)
    if status == ENTRY_READ:
        status = read_number(&at, end, &entry.header_size)
    if status == ENTRY_READ:
        status = read_number(&at, end, &entry.payload_size)
    if status != ENTRY_READ:
        return status
    if entry.name_size > MESSAGE_BYTES_MAX or entry.header_size > MESSAGE_BYTES_MAX \
            or entry.payload_size > MESSAGE_BYTES_MAX:
        return ENTRY_INVALID
    size = entry.name_size + entry.header_size + entry.payload_size
    if size > <uint64_t>(end - at):
        return ENTRY_CUT
    entry.name = at
    entry.end = at + size
    return ENTRY_READ


cdef inline int64_t time_of(const MessageEntry* entry) noexcept nogil:
    return <int64_t>(entry.folded_time >> 1) ^ -<int64_t>(entry.folded_time & 1)


def scan_entries(data, size_t offset, size_t bytes_max, uint64_t after):
    """Count the complete messages from `offset` on, until they are `bytes_max` long.

    Returns where they end, how many they are, their first and last sequence, and their earliest and
    latest time. It stops before an entry that is not a message. DamagedMessagesError if an entry
    cannot be read, or if its sequence is not above `after` and all before it.
    """
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef MessageEntry entry
    cdef uint64_t count = 0, first = 0
    cdef int64_t earliest = 0, latest = 0, time
    cdef int status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if offset > <size_t>view.len:
            raise ValueError("the offset is behind the data")
        start = <const uint8_t*>view.buf
        at, end = start + offset, start + view.len
        while at < end and <size_t>(at - start) - offset < bytes_max:
            status = read_entry(at, end, &entry)
            if status == ENTRY_CUT:
                break
            if status == ENTRY_INVALID:
                raise DamagedMessagesError(at - start, "an entry with an impossible size")
            if entry.seq == 0:
                break
            if entry.seq <= after or entry.seq >> SEQUENCE_BITS:
                raise DamagedMessagesError(at - start, f"sequence {entry.seq} is out of order")
            if not entry.name_size:
                raise DamagedMessagesError(at - start, f"message {entry.seq} has no subject")
            time = time_of(&entry)
            if count == 0:
                first, earliest, latest = entry.seq, time, time
            elif time < earliest:
                earliest = time
            elif time > latest:
                latest = time
            after = entry.seq
            count += 1
            at = entry.end
        return at - start, count, first, after if count else 0, earliest, latest
    finally:
        PyBuffer_Release(&view)


cdef bint matches(const uint8_t* pattern, size_t pattern_size, const uint8_t* subject,
                  size_t subject_size) noexcept nogil:
    """Whether a pattern with `*` and `>` matches a subject; linear in both."""
    cdef const uint8_t* pattern_end = pattern + pattern_size
    cdef const uint8_t* subject_end = subject + subject_size
    cdef const uint8_t* token_end
    cdef const uint8_t* name_end
    while True:
        token_end = <const uint8_t*>memchr(pattern, 46, pattern_end - pattern)
        if token_end == NULL:
            token_end = pattern_end
        name_end = <const uint8_t*>memchr(subject, 46, subject_end - subject)
        if name_end == NULL:
            name_end = subject_end
        if token_end - pattern == 1 and pattern[0] == 62:
            return True
        if not (token_end - pattern == 1 and pattern[0] == 42):
            if token_end - pattern != name_end - subject \
                    or memcmp(pattern, subject, token_end - pattern) != 0:
                return False
        if token_end == pattern_end or name_end == subject_end:
            return token_end == pattern_end and name_end == subject_end
        pattern, subject = token_end + 1, name_end + 1


cdef class EntrySelection:
    """A choice of messages: not those in `removed` (sorted pairs of first and last sequence),
    and only those of one of the subjects (all without any), from `since_ns` until before
    `until_ns`. A subject that begins with `old_prefix` gets `new_prefix` instead.
    """

    cdef object removed             # array('Q')
    cdef tuple patterns
    cdef int64_t since_ns, until_ns
    cdef bytes old_prefix, new_prefix
    cdef readonly uint64_t count    # taken so far
    cdef readonly uint64_t last_seq

    def __init__(self, removed, tuple patterns not None, int64_t since_ns, int64_t until_ns,
                 bytes old_prefix=b"", bytes new_prefix=b""):
        self.removed = removed
        self.patterns = patterns
        self.since_ns = since_ns
        self.until_ns = until_ns
        self.old_prefix = old_prefix
        self.new_prefix = new_prefix

    def select(self, data):
        """The entries that are taken. DamagedMessagesError if one cannot be read."""
        cdef Py_buffer view
        cdef const uint64_t[::1] removed = self.removed
        cdef Py_ssize_t ranges = removed.shape[0] // 2, place = 0
        cdef const uint8_t* start
        cdef const uint8_t* at
        cdef const uint8_t* end
        cdef MessageEntry entry
        cdef Buffer taken
        buffer_init(&taken)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            start = at = <const uint8_t*>view.buf
            end = start + view.len
            while at < end:
                if read_entry(at, end, &entry) != ENTRY_READ or entry.seq == 0:
                    raise DamagedMessagesError(at - start, "an entry that cannot be read")
                while place < ranges and removed[2 * place + 1] < entry.seq:
                    place += 1
                if (place == ranges or removed[2 * place] > entry.seq) and self.is_taken(&entry):
                    self.copy(&entry, at, &taken)
                    self.count += 1
                    self.last_seq = entry.seq
                at = entry.end
            return PyBytes_FromStringAndSize(taken.data + taken.begin, taken.end - taken.begin)
        finally:
            PyBuffer_Release(&view)
            buffer_free(&taken)

    cdef bint is_taken(self, const MessageEntry* entry) except -1:
        cdef bytes pattern
        cdef int64_t time = time_of(entry)
        if time < self.since_ns or time >= self.until_ns:
            return False
        if not self.patterns:
            return True
        for pattern in self.patterns:
            if matches(<const uint8_t*><const char*>pattern, len(pattern), entry.name,
                       entry.name_size):
                return True
        return False

    cdef int copy(self, const MessageEntry* entry, const uint8_t* at, Buffer* taken) except -1:
        cdef size_t old_size = len(self.old_prefix)
        cdef size_t new_size = len(self.new_prefix)
        cdef uint8_t* target
        if buffer_reserve(taken, NUMBERS_BYTES_MAX + new_size + (entry.end - at)) != 0:
            raise MemoryError
        if old_size == 0 or entry.name_size < old_size \
                or memcmp(entry.name, <const char*>self.old_prefix, old_size) != 0:
            buffer_append(taken, <const char*>at, entry.end - at)
            return 0
        target = <uint8_t*>taken.data + taken.end
        target += write_number(target, entry.name_size - old_size + new_size)
        target += write_number(target, entry.folded_time)
        target += write_number(target, entry.seq)
        target += write_number(target, entry.header_size)
        target += write_number(target, entry.payload_size)
        taken.end = target - <uint8_t*>taken.data
        buffer_append(taken, <const char*>self.new_prefix, new_size)
        buffer_append(taken, <const char*>entry.name + old_size, entry.end - entry.name - old_size)
        return 0


cdef inline size_t write_number(uint8_t* target, uint64_t value) noexcept nogil:
    cdef size_t size = 0
    while value >= 0x80:
        target[size] = <uint8_t>(value | 0x80)
        value >>= 7
        size += 1
    target[size] = <uint8_t>value
    return size + 1
