"""State of a message store; the code and the explanation are in message_store.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.store.format.records cimport Record
from tradewind.store.format.timing_wheel cimport TimingWheel
from tradewind.store.table.block cimport Block
from tradewind.store.table.chain_links cimport ChainLinks
from tradewind.store.table.recount cimport Recount
from tradewind.store.table.store_listener cimport StoreListener
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter, SubjectIndex


cdef class MessageStore:
    cdef readonly str name
    cdef public StoreListener listener      # notified of every removal; or None
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
    cdef readonly list ahead                # see stamps_ahead.pyx; empty while clocks were right
    cdef public int64_t created_ns          # no message is older than the stream; 0: not known
    cdef uint64_t aging_from                # every live message below never expires
    cdef readonly uint64_t block_bytes_max
    cdef uint64_t unit_end                  # the last block may grow to here; 0: as others
    cdef uint64_t unit_last_seq             # ... for a unit that ends with this message
    cdef readonly uint64_t index_bytes_max  # memory that loaded block indexes may take
    cdef object block_keeper                # BlockKeeper
    cdef readonly bint keeps_tombstones     # it says on disk what was deleted
    cdef public uint64_t synced_seq         # of files: everything up to it is on disk
    cdef public uint64_t written_seq        # of files: everything up to it is with the system
    cdef public bint read_only              # `check_writable` says why
    # Damage was found and not all of it is resolved: totals of subjects may count lost messages,
    # and what the damaged bytes said of deletions has to be said again.
    cdef public bint has_open_damage
    cdef readonly uint64_t limit_floor      # all below were removed by a limit, from the front
    cdef readonly uint64_t written_floor       # ... and a mark in a block that stays says so
    cdef bint blocks_went                   # since the floor was said
    cdef uint64_t marked_floor              # ... and have tombstones where the block stays
    cdef uint64_t written_last_seq             # last_seq has a tombstone ...
    cdef uint32_t written_last_block           # ... in this block, or is live
    # The pending work of limits, see overdue.pyx.
    cdef bint trims                         # subjects may be above their limit ...
    cdef bint trims_messages                # ... and one is: messages are walked through
    cdef uint32_t trim_id                   # subjects below it were looked at ...
    cdef uint32_t trim_epoch                # ... with the numbers of that time
    cdef uint64_t trim_from                 # messages below it were
    cdef bint cuts_front                    # the first messages may be too much
    cdef readonly Recount recount                    # of subjects, since damage was found
    cdef uint64_t lasts_lost                # how often the last message of a subject was removed
    cdef readonly uint64_t end_walks        # walks through a block for first and last messages
    cdef uint64_t uses
    cdef uint64_t loads_since_check
    cdef uint64_t maps_since_check
    cdef Block reading                      # where the last message was read ...
    cdef uint64_t reads_in_row              # ... and so many before it
    cdef uint64_t reads_elsewhere           # blocks of which only a few were read
    cdef public ChainLinks chain            # notified of all messages stored and removed; or None
    cdef int removing                       # why messages go just now, as a chain says it

    cdef Block block_of(self, uint64_t seq)
    cpdef bint is_live(self, uint64_t seq) except -1
    cpdef int load_index(self, Block block) except -1
    cdef uint64_t append(self, const char* subject, uint32_t subject_size,
                         const char* header, uint32_t header_size,
                         const char* payload, uint32_t payload_size, int64_t timestamp,
                         int64_t ttl_ns=*) except 0
    cdef int _prove_lengths(self) except -1
    cpdef int begin_run(self, int64_t timestamp) except -1
    cdef int prepare_room(self, uint64_t size, uint64_t seq) except -1
    cdef int read(self, uint64_t seq, Record* record) except -1
    cdef object keeper(self, const Record* record)
    cdef uint64_t next_matching(self, uint64_t seq, SubjectFilter chosen) except? 0
    cdef uint64_t last_of(self, SubjectEntry* entry) except? 0
    cdef uint64_t first_of(self, SubjectEntry* entry) except? 0
    cdef uint32_t record_max(self) noexcept
    cdef int forget_message(self, uint64_t seq, bint tombstone) except -1
    cdef int advance_first(self) except -1
    cdef uint64_t stored_size(self, uint64_t subject_size, uint64_t header_size,
                              uint64_t payload_size) noexcept nogil
    cpdef int drop_block(self, Block block) except -1
    cdef int drop_if_empty(self, Block block) except -1
    cpdef int64_t first_timestamp(self) except? -1
    cdef void forget_times(self, uint64_t seq) noexcept
    cdef object _copy(self, const Record* record)
    cdef Block _block_before(self, uint32_t number)
