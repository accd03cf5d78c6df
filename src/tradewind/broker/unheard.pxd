"""Publishes of clients that have no receiver; the code and the explanation are in unheard.pyx."""

from tradewind.wire.parser cimport Operation

# The number of brokers in this process that have a taker for such messages: checked first.
cdef Py_ssize_t takers_count

cdef bint is_taken(object session, Operation* operation) except -1
