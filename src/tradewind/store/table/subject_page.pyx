"""A page of the subjects of a stream with their totals, as the JSON of stream info.

Owns copies of what it has collected. Collecting is done in steps in the loop, to which the index
belongs; sorting and writing need only the copies and may run in any thread without the
interpreter's lock, so a million subjects do not hold up others. Subjects that come or go between
two steps may or may not be included.

    {"orders.1":3,"orders.2":1}
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcmp
from tradewind.store.table.listed_ids cimport listed_at, listed_count
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter, SubjectIndex
from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size,
    write_decimal)

import json

cdef enum:
    DECIMAL_BYTES_MAX = 24
    # After a renumbering the subjects are collected again, but not for ever.
    RESTARTS_MAX = 3
    # The cost of examining a subject; see `SubjectFilter.work`.
    SUBJECT_WORK = 64

ctypedef struct Row:
    const char* name        # set once all are there: until then the names may move
    size_t offset           # ... and this is its place
    uint64_t total
    uint32_t size


cdef int compare_rows(const void* one, const void* other) noexcept nogil:
    cdef const Row* first = <const Row*>one
    cdef const Row* second = <const Row*>other
    cdef int order = memcmp(first.name, second.name, min(first.size, second.size))
    return order if order else (first.size > second.size) - (first.size < second.size)


cdef bint is_plain(const Row* row) noexcept nogil:
    """Whether a name needs no escaping in JSON."""
    cdef uint32_t place
    cdef unsigned char byte
    for place in range(row.size):
        byte = <unsigned char>row.name[place]
        if byte < 0x20 or byte >= 0x7F or byte in (b'"', b"\\", b"<", b">", b"&"):
            return False
    return True


cdef class SubjectPage:
    """Call `collect` until it returns false, then `write`; `chosen` is None if nothing can match.
    """

    cdef SubjectIndex index
    cdef SubjectFilter chosen
    cdef uint32_t place         # of the next subject to look at
    cdef uint32_t epoch
    cdef uint32_t restarts
    cdef Buffer names
    cdef Row* rows
    cdef size_t row_count
    cdef size_t row_capacity
    cdef Buffer page
    cdef readonly bytes text    # the page

    def __cinit__(self, *_, **__):
        buffer_init(&self.names)
        buffer_init(&self.page)
        self.text = b"{}"

    def __init__(self, SubjectIndex index not None, SubjectFilter chosen):
        self.index = index
        self.chosen = chosen
        self.epoch = index.epoch

    def __dealloc__(self):
        buffer_free(&self.names)
        buffer_free(&self.page)
        free(self.rows)

    @property
    def count(self):
        """The number of matching subjects collected so far."""
        return self.row_count

    def collect(self, uint32_t step):
        """Examine up to `step` subjects; returns whether there are more."""
        cdef SubjectIndex index = self.index
        cdef SubjectEntry* entry
        cdef uint32_t last
        if self.chosen is None:
            return False
        if self.epoch != index.epoch and self.restarts < RESTARTS_MAX:
            self.epoch = index.epoch
            self.restarts += 1
            self.place = 0
            self.row_count = 0
            buffer_clear(&self.names)
        if self.place == 0:
            if self.chosen.build(step * SUBJECT_WORK) or self.chosen.arrange(step * SUBJECT_WORK):
                return True
            if self._add_few():
                self.place = index.entry_count
                return False
        self.chosen.prepare()
        last = index.entry_count if index.entry_count - min(self.place, index.entry_count) <= step \
            else self.place + step
        while self.place < last:
            entry = index.entries[self.place]
            if entry != NULL and entry.total and self.chosen.accepts(self.place):
                self._add(entry)
            self.place += 1
        return self.place < index.entry_count

    cdef bint _add_few(self) except -1:
        """Add the matching subjects, if they are found without examining the others."""
        cdef Buffer listed
        cdef uint32_t number
        cdef bint is_listed
        buffer_init(&listed)
        try:
            is_listed = self.chosen.passing(&listed)
            if is_listed:
                for number in range(listed_count(&listed)):
                    self._add(self.index.entries[listed_at(&listed, number)])
        finally:
            buffer_free(&listed)
        return is_listed

    cdef int _add(self, const SubjectEntry* entry) except -1:
        cdef size_t capacity = self.row_capacity
        cdef Row* rows
        if self.row_count == capacity:
            capacity = capacity * 2 if capacity else 64
            rows = <Row*>realloc(self.rows, capacity * sizeof(Row))
            if rows == NULL:
                raise MemoryError
            self.rows = rows
            self.row_capacity = capacity
        self.rows[self.row_count].offset = buffer_size(&self.names)
        self.rows[self.row_count].size = entry.name_size
        self.rows[self.row_count].total = entry.total
        if buffer_append(&self.names, &entry.name[0], entry.name_size) != 0:
            raise MemoryError
        self.row_count += 1
        return 0

    def write(self, size_t offset, size_t limit):
        """Sort the subjects collected and write `text`; may be called from any thread, once."""
        cdef size_t row, last, size
        with nogil:
            for row in range(self.row_count):
                self.rows[row].name = self.names.data + self.names.begin + self.rows[row].offset
            if self.row_count:
                qsort(self.rows, self.row_count, sizeof(Row), compare_rows)
        row = min(offset, self.row_count)
        last = self.row_count if self.row_count - row <= limit else row + limit
        with nogil:
            self._put(b"{", 1)
            while row < last:
                self._put_row(&self.rows[row])
                row += 1
            size = buffer_size(&self.page)
            if size > 1:
                self.page.end -= 1          # the last comma
            self._put(b"}", 1)
        self.text = self.page.data[:buffer_size(&self.page)]
        buffer_free(&self.page)

    cdef int _put(self, const char* data, size_t size) except -1 nogil:
        if buffer_append(&self.page, data, size) != 0:
            raise MemoryError
        return 0

    cdef int _put_row(self, const Row* row) except -1 nogil:
        """Write one member, with a comma."""
        cdef char* at
        if is_plain(row):
            self._put(b'"', 1)
            self._put(row.name, row.size)
            self._put(b'"', 1)
        else:
            self._put_unusual(row)
        if buffer_reserve(&self.page, DECIMAL_BYTES_MAX) != 0:
            raise MemoryError
        at = self.page.data + self.page.end
        at[0] = b":"
        at += 1
        at += write_decimal(at, row.total)
        at[0] = b","
        self.page.end = at + 1 - self.page.data
        return 0

    cdef int _put_unusual(self, const Row* row) except -1 with gil:
        """Write a name that has to be escaped, as the encoder of the API does."""
        cdef bytes text = self._escaped(row.name[:row.size])
        self._put(text, len(text))
        return 0

    def _escaped(self, bytes name):
        text = json.dumps(name.decode("utf-8", "replace"), ensure_ascii=False)
        for character in "<>&\u2028\u2029":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text.encode()
