"""Turns the rows of a write into messages, with header blocks and ids, without Python code per row.

Owns the ids, which are the same whenever the same rows are written again, in whatever order:

    <scope>:<hash of subject, headers and payload>[-<how many equal rows came before, plus 1>]
    <scope>:<hash of subject>-<how many rows of that subject came before, plus 1>

The second kind is for buckets, where the rows of one key keep their order and where a value may
be computed slightly differently the second time. A row with an id of its own keeps it. The caller,
which knows the stream, decides which rows are sent.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from tradewind.client.streams.row_inbox cimport RowInbox
from tradewind.store.format.hash cimport Part, hash_key_init, hash_parts
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, write_decimal)

from tradewind.spark.errors import RowError

cdef enum:
    CARRIAGE_RETURN = 13
    NEWLINE = 10
    BLANK = 32
    TAB = 9
    COLON = 58
    DASH = 45
    LOWER = 32
    SEEN_START = 1024
    FIXED_BYTES = 96

cdef bytes HASH_KEY = b"tradewind rows of a Spark sink.."
cdef bytes HEX = b"0123456789abcdef"
cdef bytes VERSION = b"NATS/1.0\r\nNats-Msg-Id: "
cdef bytes DELETE = b"KV-Operation: DEL\r\n"
cdef bytes PURGE = b"KV-Operation: PURGE\r\nNats-Rollup: sub\r\n"
# These were meant for the server that stored the message before, or are our own.
cdef tuple DROPPED = (b"nats-msg-id", b"nats-expected-", b"nats-batch-")


cdef class OutgoingRows:
    """The rows of one partition, batch by batch: `load`, then `send` or `ids`."""

    def __cinit__(self, bytes scope not None, *, bint by_key):
        cdef const unsigned char* key = <const unsigned char*>PyBytes_AS_STRING(HASH_KEY)
        buffer_init(&self._block)
        hash_key_init(&self._key, key)
        self._start = VERSION + scope
        self._by_key = by_key

    def __dealloc__(self):
        buffer_free(&self._block)
        free(self._seen)

    def load(self, subjects not None, payloads not None, headers=None, ids=None, operations=None):
        """Take a batch of Arrow columns, releasing the previous one."""
        self._held = (subjects, payloads, headers, ids, operations)
        self.count = len(subjects)
        self._has_headers = headers is not None
        self._has_ids = ids is not None
        self._has_operations = operations is not None
        fill_texts(&self._subjects, subjects)
        fill_texts(&self._payloads, payloads)
        if headers is not None:
            fill_maps(&self._headers, headers)
        if ids is not None:
            fill_texts(&self._ids, ids)
        if operations is not None:
            fill_texts(&self._operations, operations)

    def ids(self):
        """The ids of the batch, without sending anything."""
        cdef int64_t row
        cdef list found = []
        for row in range(self.count):
            self._encode(row)
            found.append(self._block.data[self._id_begin:self._id_end])
        return found

    def send(self, RowInbox inbox not None, int64_t row, size_t bytes_max, double deadline,
             set stored, list chosen):
        """Publish rows from `row` on, up to `bytes_max` bytes, and return the row to continue with.

        Rows whose ids are in `stored` are left out, and so are rows not flagged in `chosen` (one
        flag per row; None: all rows).
        """
        cdef size_t total = 0
        cdef const char* subject
        cdef const char* payload
        cdef int32_t subject_size, payload_size
        while row < self.count and total < bytes_max:
            self._encode(row)
            row += 1
            if chosen is not None and not chosen[row - 1]:
                continue
            if stored is not None and self._block.data[self._id_begin:self._id_end] in stored:
                continue
            subject = text_at(&self._subjects, row - 1, &subject_size)
            payload = text_at(&self._payloads, row - 1, &payload_size)
            inbox.send(subject, subject_size, self._block.data, self._block.end, payload,
                        payload_size, deadline)
            total += payload_size + self._block.end
        return row

    # ------------------------------------------------------------------ inside

    cdef int _encode(self, int64_t row) except -1:
        """Build the header block of a row, with its id."""
        cdef const char* text
        cdef int32_t size
        buffer_clear(&self._block)
        if buffer_append(&self._block, PyBytes_AS_STRING(self._start),
                         PyBytes_GET_SIZE(self._start)) != 0:
            raise MemoryError
        self._identify(row)
        if self._has_operations and not is_null(&self._operations, row):
            text = text_at(&self._operations, row, &size)
            if size == 3 and memcmp(text, b"DEL", 3) == 0:
                buffer_append(&self._block, PyBytes_AS_STRING(DELETE), PyBytes_GET_SIZE(DELETE))
            elif size == 5 and memcmp(text, b"PURGE", 5) == 0:
                buffer_append(&self._block, PyBytes_AS_STRING(PURGE), PyBytes_GET_SIZE(PURGE))
            elif size != 3 or memcmp(text, b"PUT", 3) != 0:
                raise RowError(
                    f"row {self.row_count - 1}: operation {text[:size]!r}: PUT, DEL, PURGE or null")
        if self._has_headers:
            self._put_headers(row)
        if buffer_append(&self._block, b"\r\n", 2) != 0:
            raise MemoryError
        return 0

    cdef int _identify(self, int64_t row) except -1:
        """Append the id of a row to the scope, and count it."""
        cdef Part parts[8]
        cdef char* at
        cdef const char* text
        cdef int32_t size
        cdef uint64_t value, sizes[5]
        cdef uint32_t ordinal
        cdef int shift, count
        cdef int32_t first, last
        if buffer_reserve(&self._block, FIXED_BYTES) != 0:
            raise MemoryError
        if is_null(&self._subjects, row):
            raise RowError(
                f"row {self.row_count}: a row without a subject or key: it is null")
        parts[0].data = text_at(&self._subjects, row, &size)
        parts[0].size = size
        sizes[0] = size
        if self._has_ids:
            if is_null(&self._ids, row):
                raise RowError(f"row {self.row_count}, column id: a row has none, it is null")
            text = text_at(&self._ids, row, &size)
            if size == 0 or has_line_end(text, size):
                raise RowError(
                    f"row {self.row_count}, column id: {text[:size]!r} is no message id: empty, or"
                    " a newline")
            # It is the whole id: the scope applies only to ids generated here.
            self._block.end = PyBytes_GET_SIZE(VERSION)
            if buffer_append(&self._block, text, size) != 0:
                raise MemoryError
            parts[0].data = text
            parts[0].size = size
            value = hash_parts(&self._key, parts, 1)
        else:
            count = 1
            if not self._by_key:
                text = text_at(&self._payloads, row, &size)
                parts[1].data = text
                parts[1].size = size
                sizes[1] = size
                sizes[2] = sizes[3] = sizes[4] = 0
                count = 2
                if self._has_headers and has_map(&self._headers, row):
                    first = self._headers.ends[self._headers.first + row]
                    last = self._headers.ends[self._headers.first + row + 1]
                    sizes[2] = 1 + last - first
                    if last > first:
                        map_parts(&self._headers, first, last, &parts[2])
                        sizes[3], sizes[4] = parts[2].size, parts[3].size
                        count += 2
                parts[count].data = <const char*>sizes
                parts[count].size = sizeof(sizes)
                count += 1
            value = hash_parts(&self._key, parts, count)
            ordinal = self._count(value)
            at = self._block.data + self._block.end
            for shift in range(16):
                at[shift] = PyBytes_AS_STRING(HEX)[(value >> (60 - 4 * shift)) & 15]
            at += 16
            if ordinal > 1 or self._by_key:
                at[0] = DASH
                at += 1
                at += write_decimal(at, ordinal)
            self._block.end = at - self._block.data
        self._id_begin = PyBytes_GET_SIZE(VERSION)
        self._id_end = self._block.end
        self.row_count += 1
        self.digest += value
        if buffer_append(&self._block, b"\r\n", 2) != 0:
            raise MemoryError
        return 0

    cdef int _put_headers(self, int64_t row) except -1:
        cdef Maps* maps = &self._headers
        cdef int32_t entry, item, name_size, size, first, last
        cdef const char* name
        cdef const char* text
        if not has_map(maps, row):
            return 0
        for entry in range(maps.ends[maps.first + row], maps.ends[maps.first + row + 1]):
            name = text_at(&maps.names, entry, &name_size)
            if is_dropped(name, name_size):
                continue
            first, last = entry, entry + 1
            if maps.list_ends != NULL:
                first = maps.list_ends[maps.list_first + entry]
                last = maps.list_ends[maps.list_first + entry + 1]
            for item in range(first, last):
                if is_null(&maps.values, item):
                    continue
                text = text_at(&maps.values, item, &size)
                self._put_field(row, name, name_size, text, size)
        return 0

    cdef int _put_field(self, int64_t row, const char* name, Py_ssize_t name_size,
                        const char* value, Py_ssize_t value_size) except -1:
        cdef Py_ssize_t index
        for index in range(name_size):
            if name[index] in (COLON, CARRIAGE_RETURN, NEWLINE, BLANK, TAB):
                raise RowError(
                    f"row {self.row_count - 1}: header name {name[:name_size]!r}: no colon, blank"
                    " or newline")
        if name_size == 0:
            raise RowError(f"row {self.row_count - 1}: a header without a name")
        if has_line_end(value, value_size):
            raise RowError(
                f"row {self.row_count - 1}: header {name[:name_size]!r}: a value has no newline")
        if (buffer_append(&self._block, name, name_size) != 0
                or buffer_append(&self._block, b": ", 2) != 0
                or buffer_append(&self._block, value, value_size) != 0
                or buffer_append(&self._block, b"\r\n", 2) != 0):
            raise MemoryError
        return 0

    cdef uint32_t _count(self, uint64_t value) except 0:
        """Count a value and return how often it has been counted."""
        cdef uint64_t place
        if self._seen_used * 2 >= self._seen_capacity:
            self._grow()
        value = value or 1
        place = value & (self._seen_capacity - 1)
        while self._seen[place].hash != 0 and self._seen[place].hash != value:
            place = (place + 1) & (self._seen_capacity - 1)
        if self._seen[place].hash == 0:
            self._seen[place].hash = value
            self._seen_used += 1
        self._seen[place].count += 1
        return self._seen[place].count

    cdef int _grow(self) except -1:
        cdef uint64_t capacity = self._seen_capacity * 2 if self._seen_capacity else SEEN_START
        cdef uint64_t index, place
        cdef Seen* larger = <Seen*>calloc(capacity, sizeof(Seen))
        if larger == NULL:
            raise MemoryError
        for index in range(self._seen_capacity):
            if self._seen[index].hash != 0:
                place = self._seen[index].hash & (capacity - 1)
                while larger[place].hash != 0:
                    place = (place + 1) & (capacity - 1)
                larger[place] = self._seen[index]
        free(self._seen)
        self._seen = larger
        self._seen_capacity = capacity
        return 0


# ---------------------------------------------------------------------- Arrow


cdef int fill_texts(Texts* texts, array) except -1:
    """Read the buffers of a string or binary column with 32-bit offsets."""
    buffers = array.buffers()
    texts.first = array.offset
    texts.validity = <const unsigned char*>address_of(buffers[0])
    texts.ends = <const int32_t*>address_of(buffers[1])
    texts.data = <const char*>address_of(buffers[2])
    return 0


cdef int fill_maps(Maps* maps, array) except -1:
    """Read the buffers of a map<string, string> or map<string, list<string>> column."""
    buffers = array.buffers()
    maps.first = array.offset
    maps.validity = <const unsigned char*>address_of(buffers[0])
    maps.ends = <const int32_t*>address_of(buffers[1])
    fill_texts(&maps.names, array.keys)
    items = array.items
    maps.list_ends = NULL
    maps.list_first = 0
    if hasattr(items, "values"):
        maps.list_ends = <const int32_t*>address_of(items.buffers()[1])
        maps.list_first = items.offset
        items = items.values
    fill_texts(&maps.values, items)
    return 0


cdef void* address_of(buffer) except? NULL:
    return NULL if buffer is None else <void*><uintptr_t>buffer.address


cdef inline bint is_null(const Texts* texts, int64_t row) noexcept nogil:
    cdef int64_t place = texts.first + row
    return texts.validity != NULL and not (texts.validity[place >> 3] >> (place & 7)) & 1


cdef inline const char* text_at(const Texts* texts, int64_t row, int32_t* size) noexcept nogil:
    """The text of a row; null gives no bytes."""
    cdef int32_t begin = texts.ends[texts.first + row]
    size[0] = texts.ends[texts.first + row + 1] - begin
    return texts.data + begin


cdef inline bint has_map(const Maps* maps, int64_t row) noexcept nogil:
    cdef int64_t place = maps.first + row
    return maps.validity == NULL or (maps.validity[place >> 3] >> (place & 7)) & 1


cdef void map_parts(const Maps* maps, int32_t first, int32_t last, Part* parts) noexcept nogil:
    """The bytes of a row's headers for its hash: all names, then all values."""
    cdef int32_t begin, end, low = first, high = last
    begin = maps.names.ends[maps.names.first + first]
    end = maps.names.ends[maps.names.first + last]
    parts[0].data = maps.names.data + begin
    parts[0].size = end - begin
    if maps.list_ends != NULL:
        low = maps.list_ends[maps.list_first + first]
        high = maps.list_ends[maps.list_first + last]
    begin = maps.values.ends[maps.values.first + low]
    end = maps.values.ends[maps.values.first + high]
    parts[1].data = maps.values.data + begin
    parts[1].size = end - begin


cdef bint has_line_end(const char* text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t index
    for index in range(size):
        if text[index] == CARRIAGE_RETURN or text[index] == NEWLINE:
            return True
    return False


cdef bint is_dropped(const char* name, Py_ssize_t size) except -1:
    """Whether a header is left out, in upper or lower case."""
    cdef bytes lower
    if size < 11 or (name[0] | LOWER) != 110 or name[4] != DASH:
        return False
    lower = name[:size].lower()
    return lower.startswith(DROPPED)
