"""State of a block; the code and the explanation are in block.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.store.format.hash cimport HashKey
from tradewind.store.table.record_index cimport RecordIndex
from tradewind.store.format.records cimport Record
from tradewind.store.format.sequence_set cimport SequenceSet
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter, SubjectIndex
from tradewind.containers.buffer cimport Buffer

cdef class Block:
    cdef readonly uint32_t number
    cdef readonly object file               # DiskFile, or None: in memory only
    cdef HashKey key
    cdef readonly uint64_t first_seq        # lowest live sequence; last_seq + 1 if nothing is live
    cdef readonly uint64_t last_seq         # highest sequence that this block speaks of
    cdef readonly int64_t first_timestamp   # of first_seq; 0 when nothing is live
    cdef readonly int64_t last_timestamp
    cdef readonly int64_t latest_timestamp  # no message is later; not less than `last_timestamp`
    cdef readonly uint64_t live_msgs
    cdef readonly uint64_t live_bytes
    cdef readonly SequenceSet deleted       # inside first_seq .. last_seq
    cdef public bint verified               # every checksum was checked since the store was opened
    cdef public uint64_t tombstones         # how many it holds
    cdef public uint64_t ttl_count          # messages with a Nats-TTL header, deleted ones included
    cdef public uint64_t schedule_count     # ... with Nats-Schedule
    # Bytes: [0, written) are in the file, [written, size) are in the tail.
    cdef readonly uint64_t size
    cdef readonly uint64_t written
    cdef Buffer tail
    # The messages after the last lengths mark, see `tradewind.store.format.lengths`.
    cdef uint64_t lengths                   # the sum so far
    cdef uint64_t unproved                  # the bytes of those that were appended
    cdef bint lengths_unknown               # not counted: the next mark begins anew
    cdef SequenceSet odd                    # messages whose header is not plain; None: no such
    cdef public object suspects             # offsets of records with wrong lengths; None: none
    cdef object mapped                      # keeps the mapping (or the inflated bytes) alive
    cdef const char* mapped_data
    cdef uint64_t mapped_size
    cdef bint owned                         # `mapped` is allocated memory, not a mapping
    cdef readonly bint patched              # the bytes are in memory, those of the file are damaged
    cdef public uint64_t unreadable         # so many bytes of the file the disk did not give
    cdef readonly bint compressed           # in the file; `mapped` then holds the plain bytes
    cdef RecordIndex records
    cdef uint64_t lowest
    # The messages in the file, dead ones too: none is below file_lowest or in `gone`. After opening
    # by index.db they are not counted until the index is loaded.
    cdef readonly uint64_t file_records
    cdef bint file_records_known
    cdef readonly uint64_t file_lowest
    cdef SequenceSet gone                   # None: nothing was compacted away; never changed
    cdef public bint queued                 # known to be worth a compaction
    cdef readonly uint64_t used             # tick of the last use, for eviction

    cdef const char* _at(self, uint32_t offset, uint32_t size) except NULL
    cdef int _map(self) except -1
    cdef bint _grow(self) except -1
    cdef bint _extend(self) except -1
    cdef int _take(self, bytes content) except -1
    cpdef bint has_faulted(self) except -1
    cdef int forget_pages(self) except -1
    cdef bint is_loaded(self) noexcept nogil
    cdef bint has_dead_records(self) noexcept nogil
    cpdef uint64_t dead_records(self) noexcept
    cpdef bint is_sparse(self, uint64_t dead_before) noexcept
    cdef uint32_t _offset_of(self, uint64_t seq) noexcept nogil
    cdef int _push(self, uint64_t seq, uint32_t offset, uint32_t subject_id) except -1
    cdef const char* plain_bytes(self) except NULL
    cdef int reset_index(self) except -1
    cdef int adopt_counts(self, uint64_t messages, uint64_t lowest, uint64_t tombstones) except -1
    cdef uint64_t indexed_to(self) noexcept nogil
    cdef int _pass_deleted(self) noexcept nogil
    cdef int adopt_message(self, uint64_t seq, int64_t timestamp, uint32_t size, uint32_t offset,
                           uint32_t subject_id) except -1
    cdef char* room(self, uint32_t size) except NULL
    cdef int commit_message(self, uint64_t seq, int64_t timestamp, uint32_t size, uint32_t counted,
                            uint32_t subject_id) except -1
    cdef int append_mark(self, uint64_t sequence_and_flags, int64_t timestamp) except -1
    cdef bint note_lengths(self, uint64_t seq, uint32_t subject_size, const char* header,
                           uint32_t header_size, uint32_t size) except -1
    cdef int note_odd(self, uint64_t seq) except -1
    cdef bint is_odd(self, uint64_t seq) noexcept
    cdef void adopt_lengths(self, uint64_t sum) noexcept nogil
    cdef int append_lengths(self) except -1
    cdef int read(self, uint64_t seq, Record* record) except -1
    cdef bint read_anew(self, uint64_t seq, Record* record) except -1
    cdef int64_t first_time_without(self, uint64_t seq) except? -1
    cdef int drop(self, uint64_t seq, uint32_t size, int64_t first_timestamp) except -1
    cpdef int flush(self, size_t size_max=*) except -1
    cdef int _check_tail(self) except -1
    cdef uint64_t next_accepted(self, uint64_t seq, SubjectFilter chosen) noexcept nogil
    cdef void count_subjects(self, SubjectEntry* counts, uint32_t ids) noexcept nogil
    cdef void renumber(self, const uint32_t* new_ids) noexcept nogil
    cdef uint64_t count_accepted(self, uint64_t seq, SubjectFilter chosen) noexcept nogil
    cdef uint64_t last_of(self, uint64_t seq, uint32_t subject_id) noexcept nogil
