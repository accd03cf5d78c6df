"""State of the interest of a subject space; the code and the explanation are in interest.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from tradewind.containers.table cimport Table
from tradewind.route.members cimport Subscription

ctypedef struct Wanted:
    Wanted* before          # all entries in a ring, in order of arrival
    Wanted* after
    Wanted* next_changed    # the list of changed entries
    uint64_t local          # subscriptions of this server
    uint64_t below          # weights of servers of which this server is the hub
    uint64_t above          # weights of this server's hubs
    uint32_t subject_size
    uint32_t size
    uint8_t is_changed
    char key[1]             # the subject; for a queue group followed by a space and its name


cdef class Interest:
    cdef Wanted ring                # its `after` is the oldest
    cdef Wanted* changed            # NULL: there is nothing to announce
    cdef Table table                # key -> Wanted*
    cdef uint32_t listeners         # number of listeners that announce changes
    cdef bint is_short              # an allocation failed, so the counts are incomplete

    cdef void add(self, const Subscription* subscription) noexcept nogil
    cdef void drop(self, const Subscription* subscription) noexcept nogil
    cdef Wanted* find(self, const char* key, uint32_t size) noexcept nogil
    cdef Wanted* _get(self, const Subscription* subscription) noexcept nogil
    cdef Wanted* _make(self, const char* key, uint32_t size, uint32_t subject_size) noexcept nogil
    cdef void _note(self, Wanted* wanted) noexcept nogil
    cdef Wanted* take_changed(self) noexcept nogil
    cdef bint is_over(self, const Wanted* wanted) noexcept nogil
    cdef void remove(self, Wanted* wanted) noexcept nogil
