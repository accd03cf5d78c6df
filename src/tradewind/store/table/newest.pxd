"""State of a search for the newest messages; the code and the explanation are in newest.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from tradewind.containers.buffer cimport Buffer
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter

# The newest message of a subject.
ctypedef struct LastFound:
    uint64_t seq
    uint32_t subject_id         # of the epoch of the search

cdef enum SearchPhase:
    SEARCH_NEWEST           # the newest messages are looked at
    SEARCH_PATTERNS         # the patterns are made ready
    SEARCH_SUBJECTS         # each subject that passes is asked
    SEARCH_OLDER            # the blocks are walked back for subjects that have newer messages
    SEARCH_LATER            # subjects that have only newer messages are asked again
    SEARCH_LATER_OLDER      # ... and the blocks walked back for them
    SEARCH_OVER


# Finds the last messages of all subjects in steps; see `MessageStore.find_lasts`.
cdef object find_unknown(MessageStore store, uint64_t step)


cdef class LastSearch:
    cdef MessageStore store
    cdef SubjectFilter chosen
    cdef readonly uint64_t up_to          # no newer message is taken ...
    cdef uint64_t at_most        # ... except for subjects that have only newer ones
    cdef size_t count_max               # with more than this, only some are found
    cdef bint only_newest               # one message is wanted, the newest of all subjects
    cdef Buffer found                   # LastFound
    cdef bint is_sorted                 # ... with ascending sequences
    cdef SearchPhase phase
    cdef uint64_t work                  # what this step has cost
    cdef uint32_t steps                 # begun since the search did
    cdef uint32_t epoch                 # of the ids below
    cdef uint32_t ids                   # subjects that were there when the search began
    cdef uint32_t position              # among the subjects, or in `literals`
    cdef Buffer listed                  # uint32_t: the ids of the subjects that pass ...
    cdef bint is_listed                 # ... if they are few and known
    cdef list literals                  # all patterns, if none has a wildcard; otherwise None
    # By subject id: 1 if an older message is to be looked for, 2 if there are only newer ones. NULL
    # while there is none.
    cdef uint8_t* wanted
    cdef uint32_t older_count           # ... of the first kind
    cdef uint32_t first_block           # none of them has a message in a block below this one
    cdef uint32_t block_number          # blocks from this one on were walked through

    cdef int begin(self, MessageStore store, SubjectFilter chosen, uint64_t up_to, uint64_t at_most,
                   size_t count_max, bint only_newest) except -1
    cdef int _begin_again(self) except -1
    cdef size_t count(self) noexcept nogil
    cdef uint64_t newest(self) noexcept nogil
    cdef LastFound* first(self) noexcept nogil
    cdef int replace_gone(self) except -1
    cpdef bint step(self, uint64_t work_max) except -1
    cdef int _advance(self, uint64_t work_max) except -1
    cdef int _look_back(self) except -1
    cdef int _list_few(self) except -1
    cdef int _ask_subjects(self, uint64_t work_max) except -1
    cdef int _ask_later(self, uint64_t work_max) except -1
    cdef int _ask(self, SubjectEntry* entry) except -1
    cdef uint64_t _last_of(self, SubjectEntry* entry) except? 0
    cdef int _want(self, SubjectEntry* entry, uint8_t kind) except -1
    cdef int _take(self, uint64_t seq, uint32_t subject_id) except -1
    cdef int _end_subjects(self) except -1
    cdef int _end_walk(self) except -1
    cdef int _walk_block(self, uint64_t limit) except -1
    cdef int _end(self) except -1
    cdef int _sort(self) except -1


cdef uint64_t last_accepted(MessageStore store, SubjectFilter chosen, uint64_t up_to) except? 0
cdef uint64_t last_up_to(MessageStore store, SubjectEntry* entry, uint64_t up_to) except? 0
