"""Recognises schedules after a start without an object for each: the common case among very many.

Owns no memory. A schedule is common if it is the last message of its subject, and its time is known
or written in the usual way in UTC. Any other form is left to `stream.schedules`, which knows all of
them.

    @at 2026-12-24T18:00:00Z     optionally with a fraction of up to nine digits
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp
from tradewind.seconds cimport SECOND_NS
from tradewind.store.format.records cimport Record, header_value
from tradewind.store.format.timing_wheel cimport timers_add
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectEntry

import array

cdef enum:
    TEXT_SIZE = 23              # "@at 2026-12-24T18:00:00", without the zone
    YEAR_MIN = 1970
    YEAR_MAX = 2261             # later years do not fit 64 bits of nanoseconds


cdef inline int64_t digits(const char* text, int count) noexcept nogil:
    """Parse a number of exactly this many digits; -1 if it is not one."""
    cdef int64_t value = 0
    cdef int i
    for i in range(count):
        if not 48 <= text[i] <= 57:
            return -1
        value = value * 10 + (text[i] - 48)
    return value


cdef inline int64_t days_before(int64_t year, int64_t month, int64_t day) noexcept nogil:
    """Days from 1970-01-01 to a day of the Gregorian calendar, counting years from March."""
    cdef int64_t in_year
    if month <= 2:
        year -= 1
        month += 12
    in_year = (153 * (month - 3) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + in_year - 719468


cdef int64_t time_of(const char* text, size_t size) noexcept nogil:
    """Nanoseconds since 1970; NO_TIME if the time is not written in the usual way."""
    cdef int64_t year, month, day, hour, minute, second, fraction = 0, unit = SECOND_NS
    cdef int64_t month_days
    cdef size_t at = TEXT_SIZE
    if size < TEXT_SIZE + 1 or memcmp(text, b"@at ", 4) != 0 or text[8] != 45 or text[11] != 45 \
            or text[14] != 84 or text[17] != 58 or text[20] != 58 or text[size - 1] != 90:
        return NO_TIME
    year, month, day = digits(text + 4, 4), digits(text + 9, 2), digits(text + 12, 2)
    hour, minute, second = digits(text + 15, 2), digits(text + 18, 2), digits(text + 21, 2)
    if not YEAR_MIN <= year <= YEAR_MAX or not 1 <= month <= 12 or not 0 <= hour <= 23 \
            or not 0 <= minute <= 59 or not 0 <= second <= 59:
        return NO_TIME
    month_days = 30 + ((month + (month >> 3)) & 1)
    if month == 2:
        month_days = 29 if (year % 4 == 0 and year % 100 != 0) or year % 400 == 0 else 28
    if not 1 <= day <= month_days:
        return NO_TIME
    if size > TEXT_SIZE + 1:
        if text[at] != 46 or not TEXT_SIZE + 3 <= size <= TEXT_SIZE + 11:
            return NO_TIME
        for at in range(TEXT_SIZE + 1, size - 1):
            if not 48 <= text[at] <= 57:
                return NO_TIME
            unit //= 10
            fraction += (text[at] - 48) * unit
    second += ((days_before(year, month, day) * 24 + hour) * 60 + minute) * 60
    return second * SECOND_NS + fraction


def read_time(bytes text not None):
    """The time in a value of `Nats-Schedule`, in ns; None if it is not a common one; for tests."""
    cdef int64_t found = time_of(text, len(text))
    return None if found == NO_TIME else found


cdef bint adopt_one(MessageStore store, uint64_t seq, int64_t due_ns, bint is_known) except -1:
    """Adopt one schedule; False if it is not a common one. `is_known`: `due_ns` is its time."""
    cdef Record record
    cdef SubjectEntry* entry
    cdef const char* value
    cdef size_t size = 0
    if store.read(seq, &record) != 0 or record.header_size == 0:
        return False
    value = header_value(&record, b"Nats-Schedule:", 14, &size)
    if value == NULL or size == 0:
        return False
    if not is_known:
        due_ns = time_of(value, size)
        if due_ns == NO_TIME or header_value(
                &record, b"Nats-Schedule-Time-Zone:", 24, &size) != NULL:
            return False
    entry = store.index.entries[record.subject_id]
    if entry == NULL or store.last_of(entry) != seq:
        return False
    if timers_add(&store.schedules.table, seq, due_ns) != 0:
        raise MemoryError
    return True


def adopt_known(MessageStore store not None, uint64_t[::1] sequences, int64_t[::1] times_ns,
                uint64_t stamp):
    """Adopt live schedules below a stamp by their times from before the start; returns the rest,
    as pairs.
    """
    cdef Py_ssize_t index
    cdef uint64_t seq
    left = []
    for index in range(len(sequences)):
        seq = sequences[index]
        if seq < stamp and store.is_live(seq) \
                and not adopt_one(store, seq, times_ns[index], True):
            left.append((seq, times_ns[index]))
    return left


def adopt_stored(MessageStore store not None, sequences not None):
    """Adopt the schedules with these sequences by their content; returns the rest."""
    cdef uint64_t seq
    left = array.array("Q")
    for seq in sequences:
        if not adopt_one(store, seq, 0, False):
            left.append(seq)
    return left
