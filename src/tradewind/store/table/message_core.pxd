"""State of a message store; the code and the explanation are in message_core.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.store.table.block cimport Block
from tradewind.store.format.records cimport Record
from tradewind.store.table.recount cimport Recount
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter, SubjectIndex
from tradewind.store.format.timing_wheel cimport TimingWheel

cdef enum MarkKind:
    MARK_SYNCED = 1         # value: block number << 32 | offset; everything before that was synced
    MARK_FLOOR = 2          # value: all sequences below it are removed
    MARK_PREVIOUS = 3       # value: block number << 32 | size of the block before this one

cdef class StoreListener:
    # Called before the totals change; it must not ask the store for messages.
    cdef int message_removed(self, uint64_t seq, uint32_t subject_id) except -1
    cdef int all_removed(self) except -1


cdef class MessageCore:
    cdef readonly str name
    cdef public StoreListener listener      # told of every removal; None: nobody
    cdef readonly list blocks               # in order; the last one takes the appends
    cdef readonly Block last
    cdef Block recent                       # one of `blocks`, the last that was read, or None
    cdef readonly SubjectIndex index
    cdef readonly uint64_t msgs
    cdef readonly uint64_t bytes
    cdef readonly uint64_t first_seq
    cdef readonly uint64_t last_seq
    cdef readonly int64_t last_timestamp
    cdef readonly object limits             # StoreLimits
    cdef int64_t msgs_max
    cdef int64_t bytes_max
    cdef int64_t age_max_ns
    cdef int64_t subject_msgs_max
    cdef bint discard_new                   # msgs_max and bytes_max refuse, they never remove
    cdef bint message_ttl                   # messages with a time to live have a timer
    cdef bint marks_expired                 # the last message of a subject leaves a marker
    cdef readonly TimingWheel timers        # of live messages only
    cdef readonly TimingWheel schedules     # when messages that are schedules are due
    cdef public bint shadows_schedules      # one of them may not be the last of its subject
    cdef uint64_t aging_from                # every live message below never expires
    cdef readonly uint64_t block_bytes_max
    cdef uint64_t unit_end                  # the last block may grow to here; 0: as others
    cdef readonly uint64_t index_bytes_max  # memory that loaded block indexes may take
    cdef object block_keeper                # BlockKeeper
    cdef readonly bint keeps_tombstones     # it says on disk what was deleted
    cdef public uint64_t synced_seq         # of files: everything up to it is on disk
    cdef public bint read_only              # `check_writable` says why
    # Damage was found and not all of it is settled: totals of subjects may count lost messages, and
    # what the damaged bytes said of deletions has to be said again.
    cdef public bint unsettled
    cdef readonly uint64_t limit_floor      # all below were removed by a limit, from the front
    cdef readonly uint64_t written_floor       # ... and a mark in a block that stays says so
    cdef bint blocks_went                   # since the floor was said
    cdef uint64_t marked_floor              # ... and have tombstones where the block stays
    cdef uint64_t written_last_seq             # last_seq has a tombstone ...
    cdef uint32_t written_last_block           # ... in this block, or is live
    # What limits have left to do, see overdue.pyx.
    cdef bint trims                         # subjects may be above their limit ...
    cdef bint trims_messages                # ... and one is: messages are walked through
    cdef uint32_t trim_id                   # subjects below it were looked at ...
    cdef uint32_t trim_epoch                # ... with the numbers of that time
    cdef uint64_t trim_from                 # messages below it were
    cdef bint cuts_front                    # the first messages may be too much
    cdef Recount recount                    # of subjects, since damage was found
    cdef uint64_t lasts_lost                # how often the last message of a subject was removed
    cdef readonly uint64_t end_walks        # walks through a block for first and last messages
    cdef uint64_t uses
    cdef uint64_t loads_since_check
    cdef uint64_t maps_since_check
    cdef Block reading                      # where the last message was read ...
    cdef uint64_t reads_in_row              # ... and so many before it
    cdef uint64_t reads_elsewhere           # blocks of which only a few were read

    cdef Block block_of(self, uint64_t seq)
    cdef bint is_there(self, uint64_t seq) except -1
    cpdef int load_index(self, Block block) except -1
    cdef int note_reading(self, Block block) except -1
    cdef uint64_t append(self, const char* subject, uint32_t subject_size,
                         const char* header, uint32_t header_size,
                         const char* payload, uint32_t payload_size, int64_t timestamp,
                         int64_t ttl_ns=*) except 0
    cdef int prepare_room(self, uint64_t size, uint64_t seq) except -1
    cdef int read(self, uint64_t seq, Record* record) except -1
    cdef object keeper(self, const Record* record)
    cdef uint64_t next_matching(self, uint64_t seq, SubjectFilter chosen) except? 0
    cdef uint64_t last_of(self, SubjectEntry* entry) except? 0
    cdef uint64_t first_of(self, SubjectEntry* entry) except? 0
    cdef uint64_t find_end(self, SubjectEntry* entry, bint is_last) except? 0
    cdef int forget_message(self, uint64_t seq, bint tombstone) except -1
    cdef int forget_damaged(self, Block block, uint64_t seq, bint tombstone) except -1
    cdef int forget_ends(self, uint64_t first, uint64_t last) except -1
    cdef int advance_first(self) except -1
    cdef int end_schedule(self, const char* subject, uint32_t subject_size) except -1
    cdef int mark_floor(self) except -1
    cpdef int mark(self, uint64_t kind, uint64_t value) except -1
    cpdef int write_floor(self) except -1
    cdef uint64_t stored_size(self, uint64_t subject_size, uint64_t header_size,
                              uint64_t payload_size) noexcept nogil
    cdef int write_last_seq(self) except -1
    cpdef int drop_block(self, Block block) except -1
    cdef int drop_if_empty(self, Block block) except -1
    cdef int _make_room(self) except -1
    cdef bint cut_front(self, uint64_t* budget) except -1
    cdef int64_t first_timestamp(self) except? -1
