"""The schedules among the messages of a store, and when they are due.

Owns the table of their times, the wheel `schedules` of a store; the stream interprets a schedule
and publishes its runs.
"""

from array import array

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.store.format.records cimport Record, header_value
from tradewind.store.format.timing_wheel cimport timers_forget
from tradewind.store.table.block cimport Block
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter


def note_schedule(MessageStore store not None, uint64_t seq, int64_t due_ns):
    """Note that the message stored last is a schedule that is due at this time."""
    store.last.schedule_count += 1
    store.schedules.add(seq, due_ns)


def forget_schedule(MessageStore store not None, bytes subject not None):
    """End the schedule of this subject."""
    if store.schedules.table.count:
        end_schedule(store, subject, <uint32_t>len(subject))


cdef int end_schedule(MessageStore store, const char* subject, uint32_t subject_size) except -1:
    """End the schedule of a subject that gets an ordinary message."""
    cdef SubjectEntry* entry = store.index.find(subject, subject_size)
    cdef SubjectFilter chosen
    cdef uint64_t seq
    if entry == NULL:
        return 0
    if not store.shadows_schedules:
        timers_forget(&store.schedules.table, store.last_of(entry))
        return 0
    chosen = SubjectFilter(store.index, (subject[:subject_size],))
    seq = store.next_matching(0, chosen)
    while seq:
        timers_forget(&store.schedules.table, seq)
        seq = store.next_matching(seq + 1, chosen)
    return 0


def sequences_with(MessageStore store not None, bytes name not None, uint64_t from_seq):
    """The messages from a sequence on with a header of this name, which is not empty.

    Schedules are searched for in the blocks that have any.
    """
    cdef Record record
    cdef Block block
    cdef size_t size = 0
    cdef bytes line = name + b":"
    cdef bint is_schedule = name == b"Nats-Schedule"
    cdef SubjectFilter everything = store.filter()
    cdef uint64_t seq
    found = array("Q")
    for block in list(store.blocks):
        if block.live_msgs == 0 or block.last_seq < from_seq \
                or (is_schedule and block.schedule_count == 0):
            continue
        store.load_index(block)
        everything.prepare()
        seq = block.next_accepted(max(from_seq, block.first_seq), everything)
        while seq:
            if store.read(seq, &record) == 0 and record.header_size and header_value(
                    &record, line, len(line), &size) != NULL and size:
                found.append(seq)
            seq = block.next_accepted(seq + 1, everything)
    return found
