"""Encodes the state of a consumer: all of it, or what has changed since it was last taken.

Owns the encoding of an `AckState`, in the loop and without an object per message. The whole state
is an o.dat, drawn in `store.format.consumer_file`; changes are the body of a record of the log
beside it, drawn in `store.format.ack_log`. It never reads or writes a file; those modules decode,
because that happens once in the life of a server.

A change records the present state of a message, not what happened to it: a pending message is
written with its times, any other as gone. The cost is therefore that of the messages touched,
however many are pending, and applying a record twice does nothing.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from tradewind cimport invariants
from tradewind.broker.turn cimport Turn
from tradewind.consumer.pending cimport AckState, PendingEntry
from tradewind.containers.buffer cimport (
    Buffer, buffer_append, buffer_free, buffer_init, buffer_reserve)
from tradewind.saturated cimport later
from tradewind.seconds cimport SECOND_NS

cdef enum:
    MAGIC = 22
    VERSION = 2
    VARINT_BYTES_MAX = 10
    # The flags of a changed message; the same numbers are in ack_log.py.
    IS_PENDING = 1
    IS_REDELIVERED = 2
    IS_EXACT = 4

# Follows an o.dat if times have fractions of a second; drawn in ack_log.py.
cdef bytes EXACT_MAGIC = b"twexact1"


cdef int put(Buffer* target, uint64_t value) except -1:
    """Append a uvarint."""
    cdef uint8_t byte
    if buffer_reserve(target, VARINT_BYTES_MAX) != 0:
        raise MemoryError
    while value >= 0x80:
        byte = <uint8_t>(value & 0x7F | 0x80)
        target.data[target.end] = <char>byte
        target.end += 1
        value >>= 7
    target.data[target.end] = <char>value
    target.end += 1
    return 0


cdef int put_signed(Buffer* target, int64_t value) except -1:
    """Append a varint."""
    cdef uint64_t folded = <uint64_t>value << 1
    return put(target, ~folded if value < 0 else folded)


cdef int64_t seconds_of(int64_t time_ns, int64_t offset_ns) noexcept nogil:
    """Wall time in whole seconds, truncated towards zero as Go divides; distant times stay in
    range.
    """
    if offset_ns > 0 and time_ns > INT64_MAX - offset_ns:
        return INT64_MAX // SECOND_NS
    if offset_ns < 0 and time_ns < INT64_MIN - offset_ns:
        return -(INT64_MAX // SECOND_NS)
    time_ns += offset_ns
    if time_ns >= 0:
        return time_ns // SECOND_NS
    return -(INT64_MAX // SECOND_NS) if time_ns == INT64_MIN else -(-time_ns // SECOND_NS)


cdef int64_t rest_of(int64_t time_ns, int64_t offset_ns) noexcept nogil:
    """The fraction of a second that `seconds_of` cuts off."""
    return later(time_ns, offset_ns) - seconds_of(time_ns, offset_ns) * SECOND_NS


cdef int put_floors(Buffer* target, AckState acks) except -1:
    if invariants.checked:
        acks.check()
    put(target, acks.floor_consumer)
    put(target, acks.floor_stream)
    put(target, acks.delivered_consumer)
    put(target, acks.delivered_stream)
    return 0


cpdef bytes encode_whole(AckState acks, int64_t offset_ns, int64_t now_ns):
    """Encode the present o.dat; changes are noted from here on.

    `offset_ns` added to times of the consumer gives wall time; `now_ns` is the wall time.
    """
    cdef Buffer target
    buffer_init(&target)
    try:
        _put_whole(&target, acks, offset_ns, now_ns)
        encoded = target.data[:target.end]
    finally:
        buffer_free(&target)
    acks.changed_all = False
    acks.changed_count = 0
    return encoded


cdef int _put_whole(Buffer* target, AckState acks, int64_t offset_ns, int64_t now_ns) except -1:
    cdef uint32_t index
    cdef PendingEntry* entry
    cdef int64_t base = seconds_of(now_ns, SECOND_NS // 2)
    put(target, MAGIC)
    put(target, VERSION)
    put_floors(target, acks)
    put(target, acks.count)
    if acks.count:
        for index in range(acks.begin, acks.end):
            if acks.entries[index].live:
                # Not before the latest time: a difference of -1 means corruption to older servers.
                base = max(base, seconds_of(acks.entries[index].time_ns, offset_ns))
        put_signed(target, base)
        for index in range(acks.begin, acks.end):
            entry = &acks.entries[index]
            if entry.live:
                put(target, entry.seq - acks.floor_stream)
                put(target, entry.consumer_seq - acks.floor_consumer)
                put_signed(target, base - seconds_of(entry.time_ns, offset_ns))
    put(target, len(acks.redelivered))
    for seq, redeliveries in acks.redelivered.items():
        put(target, <uint64_t>seq - acks.floor_stream)
        put(target, redeliveries)
    return _put_exact(target, acks, offset_ns)


cdef int _put_exact(Buffer* target, AckState acks, int64_t offset_ns) except -1:
    """Append the fractions of seconds of times set explicitly; nothing if there are none."""
    cdef uint32_t index, count = 0
    cdef PendingEntry* entry
    for index in range(acks.begin, acks.end):
        entry = &acks.entries[index]
        count += entry.live and entry.exact
    if count == 0:
        return 0
    if buffer_append(target, EXACT_MAGIC, len(EXACT_MAGIC)) != 0:
        raise MemoryError
    put(target, count)
    for index in range(acks.begin, acks.end):
        entry = &acks.entries[index]
        if entry.live and entry.exact:
            put(target, entry.seq - acks.floor_stream)
            put_signed(target, rest_of(entry.time_ns, offset_ns))
    return 0


cdef int compare_numbers(const void* one, const void* other) noexcept nogil:
    cdef uint64_t left = (<const uint64_t*>one)[0], right = (<const uint64_t*>other)[0]
    return (left > right) - (left < right)


cpdef bytes take_changes(AckState acks, int64_t offset_ns):
    """Encode the changes since the last call; None if the whole state must be taken."""
    cdef Buffer target
    if acks.changed_all:
        return None
    buffer_init(&target)
    try:
        _put_changes(&target, acks, offset_ns)
        encoded = target.data[:target.end]
    finally:
        buffer_free(&target)
    acks.changed_count = 0
    return encoded


cdef int _put_changes(Buffer* target, AckState acks, int64_t offset_ns) except -1:
    cdef uint32_t index, count = 0
    cdef uint64_t previous = 0, seq
    put_floors(target, acks)
    if acks.changed_count:
        qsort(acks.changed, acks.changed_count, sizeof(uint64_t), compare_numbers)
        for index in range(acks.changed_count):
            if count == 0 or acks.changed[index] != acks.changed[count - 1]:
                acks.changed[count] = acks.changed[index]
                count += 1
        acks.changed_count = count
    put(target, count)
    for index in range(count):
        seq = acks.changed[index]
        put(target, seq - previous)
        _put_message(target, acks, seq, offset_ns)
        previous = seq
    return 0


cdef int _put_message(Buffer* target, AckState acks, uint64_t seq, int64_t offset_ns) except -1:
    """Encode the present state of one message."""
    cdef int64_t index = acks._find(seq)
    cdef uint64_t redeliveries = acks.redelivered.get(seq, 0) if acks.redelivered else 0
    cdef bint is_exact = index >= 0 and acks.entries[index].exact
    put(target, (IS_PENDING if index >= 0 else 0) | (IS_REDELIVERED if redeliveries else 0)
        | (IS_EXACT if is_exact else 0))
    if index >= 0:
        put(target, acks.entries[index].consumer_seq)
        put_signed(target, seconds_of(acks.entries[index].time_ns, offset_ns))
    if is_exact:
        put_signed(target, rest_of(acks.entries[index].time_ns, offset_ns))
    if redeliveries:
        put(target, redeliveries)
    return 0


cdef class AckSource:
    """The state of one consumer, for those who write it: a `StateSource`. The times of its turn say
    what has to be added to times of the consumer to give wall time.
    """

    cdef AckState _acks
    cdef Turn _turn

    def __init__(self, AckState acks not None, Turn turn not None):
        self._acks = acks
        self._turn = turn

    @property
    def entry_count(self):
        """See `StateSource`."""
        return self._acks.count + len(self._acks.redelivered)

    def encode_whole(self, int64_t now_ns):
        """See `StateSource`."""
        return encode_whole(self._acks, self._turn.now_ns - self._turn.monotonic_ns, now_ns)

    def take_changes(self):
        """See `StateSource`."""
        return take_changes(self._acks, self._turn.now_ns - self._turn.monotonic_ns)
