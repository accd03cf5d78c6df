"""State of an account; the code is in accounts.pyx."""

from libc.stdint cimport int64_t, uint64_t
from tradewind.route.sublist cimport Sublist


cdef class Account:
    cdef readonly str name
    cdef Sublist sublist
    cdef object router                      # publishes for the server's own services
    cdef public object limits               # AccountLimits
    cdef readonly dict sessions             # cid -> Session
    cdef dict _internal                     # handle -> InternalSubscription
    cdef public uint64_t total_connections
    cdef public uint64_t slow_consumers
    cdef public uint64_t in_msgs
    cdef public uint64_t in_bytes
    cdef public uint64_t out_msgs
    cdef public uint64_t out_bytes
