"""Messages whose stamps are ahead of the clock: they were stored while it was wrong, or it is now.

Owns when such a message counts as stored: at the moment when its stamp is found to be ahead, so
that no age limit and no time to live keeps it longer than from then on. It never changes a stamp
and never removes a message.

The findings are a short list of pairs in the store, (last sequence, time), both rising: a message
up to that sequence counts as stored at that time at the latest. It is empty while no clock was ever
wrong. Nothing of it is on disk; a start finds the same again, from the stamps themselves: a block
that begins after such messages, with a stamp that may be true, was begun when they were there.
"""

from tradewind.saturated cimport CLOCK_SLACK_NS, later
from tradewind.store.format.records cimport Record
from tradewind.store.format.timing_wheel cimport timers_add
from tradewind.store.table.block cimport Block
from tradewind.store.table.expiry cimport ttl_of
from tradewind.store.table.subject_index cimport SubjectFilter

# More pairs than this are joined, the oldest first: their messages stay a little longer.
AHEAD_PAIRS_MAX = 64


cdef int64_t stored_at(MessageStore store, uint64_t seq, int64_t timestamp,
                       int64_t now_ns) except? -1:
    if timestamp > later(now_ns, CLOCK_SLACK_NS) and (
            not store.ahead or store.ahead[len(store.ahead) - 1][0] < seq
            or store.ahead[len(store.ahead) - 1][1] > now_ns):
        note_ahead(store, now_ns)
    if store.ahead:
        for through, time_ns in store.ahead:
            if seq <= through:
                return min(timestamp, <int64_t>time_ns)
    return timestamp


def counted_time(MessageStore store not None, uint64_t seq, int64_t timestamp, int64_t now_ns):
    """The time at which a message with this stamp counts as stored, given the present time."""
    return stored_at(store, seq, timestamp, now_ns)


def note_ahead(MessageStore store not None, int64_t now_ns):
    """Count messages up to the last one with a stamp ahead of the clock as stored now."""
    cdef list pairs = store.ahead
    cdef bint is_recent = False     # it was noted just now: no block can say more than then
    while pairs and (pairs[len(pairs) - 1][1] >= now_ns
                     or now_ns - pairs[len(pairs) - 1][1] < CLOCK_SLACK_NS):
        is_recent = pairs.pop()[1] <= now_ns
    while pairs and pairs[0][0] < store.first_seq:
        del pairs[0]
    if not pairs and not is_recent:
        note_known(store, now_ns)
    pairs.append((store.last_seq, now_ns))
    if len(pairs) > AHEAD_PAIRS_MAX:
        del pairs[0]


def forget_ahead(MessageStore store not None):
    """Forget the stamps that were found ahead of the clock: the clock was wrong."""
    store.ahead.clear()


cdef int note_known(MessageStore store, int64_t now_ns) except -1:
    """Use a later block to date the first messages, which are ahead of the clock."""
    cdef Block block
    cdef int64_t latest_ns = later(now_ns, -<int64_t>CLOCK_SLACK_NS)
    for block in store.blocks:
        if block.live_msgs and block.first_seq > store.first_seq \
                and store.created_ns <= block.first_timestamp <= latest_ns:
            store.ahead.append((block.first_seq - 1, block.first_timestamp))
            return 0
    return 0


def is_any_ahead(MessageStore store not None, int64_t now_ns):
    """Whether a message may have a stamp that is ahead of the clock."""
    cdef Block block
    cdef int64_t limit_ns = later(now_ns, CLOCK_SLACK_NS)
    for block in store.blocks:
        if block.live_msgs and block.latest_timestamp > limit_ns:
            return True
    return False


def correct_timers(MessageStore store not None, uint64_t from_seq, int64_t now_ns,
                   uint64_t count_max):
    """Correct the timers of messages with a time to live whose stamps are ahead of the clock.

    Examines `count_max` messages from a sequence on; returns where to continue, 0 at the end.
    """
    cdef SubjectFilter everything = SubjectFilter(store.index, ())
    cdef Block block
    cdef Record record
    cdef uint64_t seq
    cdef int64_t ttl_ns, limit_ns = later(now_ns, CLOCK_SLACK_NS)
    for block in list(store.blocks):
        if block.ttl_count == 0 or block.live_msgs == 0 or block.last_seq < from_seq \
                or block.latest_timestamp <= limit_ns:
            continue
        store.load_index(block)
        everything.prepare()
        seq = block.next_accepted(max(from_seq, block.first_seq), everything)
        while seq:
            if count_max == 0:
                return seq
            count_max -= 1
            if store.read(seq, &record) == 0 and record.timestamp > limit_ns:
                ttl_ns = ttl_of(&record)
                if ttl_ns > 0 and timers_add(&store.timers.table, seq, later(stored_at(
                        store, seq, record.timestamp, now_ns), ttl_ns)) != 0:
                    raise MemoryError
            seq = block.next_accepted(seq + 1, everything)
    return 0
