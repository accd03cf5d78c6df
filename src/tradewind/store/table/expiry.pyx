"""The expired messages of a store: by the age limit of the stream, or their time to live.

Owns the decision, never the removal. Both kinds are independent: a message goes by whichever comes
first. Only `Nats-TTL: never` keeps a message from aging.

Aged messages are searched from the front: none is removed by its age before all earlier ones.
Messages that never expire are skipped once: every live message below `aging_from` is one of them. A
stamp that is ahead of the clock does not count, see `stamps_ahead`.

The header of a message alone determines its time to live: a timer only states when to check. A
damaged or outdated thw.db therefore never removes a message too early.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp
from tradewind.saturated cimport later
from tradewind.store.table.block cimport Block
from tradewind.store.format.records cimport Record, header_value
from tradewind.store.table.stamps_ahead cimport stored_at
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter
from tradewind.store.format.timing_wheel cimport (
    Timer, timers_add, timers_forget, timers_peek)

from tradewind.store.format.message_ttl import parse_ttl_ns

cdef enum:
    # Timers that are not due yet; this many are set again at once.
    LOOKS_MAX = 10_000


cdef int64_t ttl_of(const Record* record) except? -2:
    """The time to live in the header in ns: 0 if it is missing or invalid, negative for never."""
    cdef size_t size = 0
    cdef const char* value
    if record.header_size == 0:
        return 0
    value = header_value(record, b"Nats-TTL:", 9, &size)
    if value == NULL:
        return 0
    try:
        return parse_ttl_ns(value[:size])
    except ValueError:
        return 0


# -------------------------------------------------------------- age

cdef uint64_t next_aging(MessageStore store, int64_t now_ns, Record* record) except? 0:
    """The first message that ages, if it is too old; otherwise 0."""
    cdef SubjectFilter everything = None
    cdef int64_t born_until_ns = later(now_ns, -store.age_max_ns)
    cdef uint64_t seq
    while store.msgs:
        if store.aging_from <= store.first_seq:
            # Usually it is the first one, whose time is known without reading it.
            if stored_at(
                    store, store.first_seq, store.first_timestamp(), now_ns) > born_until_ns:
                return 0
            seq = store.first_seq
        else:
            if everything is None:
                everything = SubjectFilter(store.index, ())
            seq = store.next_matching(store.aging_from, everything)
        if seq == 0 or store.read(seq, record) != 0 \
                or stored_at(store, seq, record.timestamp, now_ns) > born_until_ns:
            return 0
        if ttl_of(record) >= 0:
            return seq
        store.aging_from = seq + 1
    return 0


cdef bint is_too_old(MessageStore store, int64_t now_ns) except -1:
    """Whether the age limit alone, by its stamp, would remove the first message."""
    return store.age_max_ns > 0 and store.msgs and store.aging_from <= store.first_seq \
        and store.first_timestamp() <= later(now_ns, -store.age_max_ns)


# -------------------------------------------------------------- both

cdef uint64_t next_to_expire(MessageStore store, int64_t now_ns) except? 0:
    cdef Record record
    cdef uint64_t seq
    if store.age_max_ns > 0:
        seq = next_aging(store, now_ns, &record)
        if seq:
            return seq
    return next_timed_out(store, now_ns)


cdef uint64_t next_timed_out(MessageStore store, int64_t now_ns) except? 0:
    cdef Record record
    cdef Timer timer
    cdef int64_t ttl_ns, expires_ns
    cdef uint32_t looks = 0
    while looks < LOOKS_MAX and timers_peek(&store.timers.table, &timer) \
            and timer.expires_ns <= now_ns:
        looks += 1
        ttl_ns = ttl_of(&record) if store.read(timer.seq, &record) == 0 else 0
        expires_ns = later(stored_at(store, timer.seq, record.timestamp, now_ns), ttl_ns) \
            if ttl_ns > 0 else 0
        if ttl_ns > 0 and expires_ns <= now_ns:
            return timer.seq
        timers_forget(&store.timers.table, timer.seq)
        if ttl_ns > 0 and timers_add(&store.timers.table, timer.seq, expires_ns) != 0:
            raise MemoryError
    return 0


cdef object aging_at(MessageStore store, uint64_t from_seq, int64_t now_ns):
    cdef SubjectFilter everything = SubjectFilter(store.index, ())
    cdef Record record
    cdef uint64_t seq = max(from_seq, store.first_seq)
    while store.msgs:
        seq = store.next_matching(seq, everything)
        if seq == 0 or store.read(seq, &record) != 0:
            return None
        if ttl_of(&record) >= 0:
            return seq, stored_at(store, seq, record.timestamp, now_ns)
        seq += 1
    return None


cdef bint has_expired(MessageStore store, uint64_t seq, int64_t now_ns) except -1:
    cdef Record record
    cdef int64_t ttl_ns, stored_ns
    if not store.is_live(seq) or store.read(seq, &record) != 0:
        return False
    ttl_ns = ttl_of(&record)
    stored_ns = stored_at(store, seq, record.timestamp, now_ns)
    if ttl_ns > 0 and store.message_ttl and later(stored_ns, ttl_ns) <= now_ns:
        return True
    return ttl_ns >= 0 and store.age_max_ns > 0 \
        and stored_ns <= later(now_ns, -store.age_max_ns)


cdef bint leaves_marker(MessageStore store, uint64_t seq) except -1:
    """Whether an expired message is to be replaced by a marker instead of being removed: it is the
    only one of its subject, and is not a marker itself.
    """
    cdef Record record
    cdef SubjectEntry* entry
    cdef const char* value
    cdef size_t size = 0
    if not store.marks_expired or store.read(seq, &record) != 0:
        return False
    entry = store.index.find(record.subject, record.subject_size)
    if entry == NULL or entry.total != 1:
        return False
    if record.header_size == 0:
        return True
    if header_value(&record, b"Nats-Marker-Reason:", 19, &size) != NULL and size:
        return False
    value = header_value(&record, b"KV-Operation:", 13, &size)
    return value == NULL or size != 5 or memcmp(value, b"PURGE", 5) != 0


cdef object next_expiry(MessageStore store, int64_t now_ns):
    cdef Timer timer
    cdef Record record
    cdef uint64_t seq
    found = None
    if timers_peek(&store.timers.table, &timer):
        found = timer.expires_ns
    if store.age_max_ns <= 0 or store.msgs == 0:
        return found
    if store.aging_from <= store.first_seq:
        aged = later(stored_at(store, store.first_seq, store.first_timestamp(), now_ns),
                     store.age_max_ns)
        return aged if found is None else min(found, aged)
    seq = store.next_matching(store.aging_from, SubjectFilter(store.index, ()))
    if seq and store.read(seq, &record) == 0:
        aged = later(stored_at(store, seq, record.timestamp, now_ns), store.age_max_ns)
        return aged if found is None else min(found, aged)
    return found


# -------------------------------------------------------------- timers after a restart

cdef int adopt_timers(MessageStore store, TimingWheel found) except -1:
    """Adopt the timers of live messages."""
    for seq, expires_ns in found.pending():
        if store.is_live(seq):
            store.timers.add(seq, expires_ns)
    return 0


cdef int start_timers(MessageStore store, uint64_t from_seq) except -1:
    """Read the messages from a sequence on, in blocks that have any with a time to live."""
    cdef SubjectFilter everything = SubjectFilter(store.index, ())
    cdef Block block
    cdef Record record
    cdef uint64_t seq
    cdef int64_t ttl_ns
    for block in list(store.blocks):
        if block.ttl_count == 0 or block.live_msgs == 0 or block.last_seq < from_seq:
            continue
        store.load_index(block)
        everything.prepare()
        seq = block.next_accepted(max(from_seq, block.first_seq), everything)
        while seq:
            if store.read(seq, &record) == 0:
                ttl_ns = ttl_of(&record)
                if ttl_ns > 0:
                    store.timers.add(seq, later(record.timestamp, ttl_ns))
            seq = block.next_accepted(seq + 1, everything)
    return 0
