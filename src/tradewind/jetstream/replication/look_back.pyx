"""Reads a stream backwards for the origins that its messages record.

Owns the walk, which creates an object only for a message that has such a header.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcmp
from tradewind.jetstream.replication.header_copy cimport line_end_of
from tradewind.store.format.records cimport Record
from tradewind.store.table.block cimport Block
from tradewind.store.table.message_store cimport MessageStore

cdef enum:
    FIELD_SIZE = 19


cdef bytes source_of(Record* record):
    """The value of Nats-Stream-Source; None if the record has none."""
    cdef const char* at = record.header
    cdef const char* end = record.header + record.header_size
    cdef const char* line_end
    while at < end:
        line_end = line_end_of(at, end)
        if line_end == NULL:
            return None
        if line_end - at > FIELD_SIZE and memcmp(at, b"Nats-Stream-Source:", FIELD_SIZE) == 0:
            return at[FIELD_SIZE:line_end - at]
        at = line_end + 2
    return None


def look_back(MessageStore store not None, uint64_t seq, uint64_t stamp, uint64_t budget,
              take not None):
    """Call take(value) for the header of each copy from `seq` down to `stamp`, until it returns
    False or `budget` sequences were passed. Returns where to continue; 0: at the end.
    """
    cdef uint64_t lowest = max(max(store.first_seq, stamp), <uint64_t>1)
    cdef Record record
    cdef bytes value
    cdef Block block
    seq = min(seq, store.last_seq)
    while store.msgs and seq >= lowest:
        if budget == 0:
            return seq
        budget -= 1
        block = store.block_of(seq)
        if block is None or block.live_msgs == 0:
            # Nothing is there, possibly for a long way.
            seq = block.first_seq - 1 if block is not None and 0 < block.first_seq <= seq \
                else seq - 1
            continue
        if store.is_live(seq) and store.read(seq, &record) == 0 and record.header_size:
            value = source_of(&record)
            if value is not None and not take(value):
                return 0
        seq -= 1
    return 0
