"""State of compiled permissions; the code is in permissions.pyx."""

from libc.stdint cimport uint32_t
from tradewind.route.sublist cimport Sublist


cdef class Permissions:
    cdef readonly object rules
    cdef Sublist publish_allow          # None: everything is allowed
    cdef Sublist publish_deny           # None: nothing is denied
    cdef Sublist subscribe_deny         # None: nothing is denied; plain entries only
    cdef Sublist subscribe_deny_grouped     # ... entries that name a queue, as its members
    cdef list subscribe_allow_entries   # (subject, queue) pairs, None: everything is allowed
    cdef list subscribe_deny_entries
    cdef readonly bint tracks_responses

    cdef bint publish_denied(self, const char* subject, uint32_t size) noexcept nogil
    cdef bint publish_allowed(self, const char* subject, uint32_t size) noexcept nogil
    cdef bint delivery_allowed(self, const char* subject, uint32_t size, const char* queue,
                               uint32_t queue_size) noexcept nogil
    cdef bint _group_denied(self, const char* subject, uint32_t size, const char* queue,
                            uint32_t queue_size) noexcept nogil
