# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Tight loops over the compiled parts of the server, which have no Python interface to time."""

from libc.stdint cimport uint32_t
from tradewind.route.sublist cimport Match, Sublist
from tradewind.wire.parser cimport PARSE_DONE, Operation, ParserState, parse_operation, parser_init


def parse(bytes data, int repetitions):
    """Parses the operations in `data` again and again; returns how many there were in all."""
    cdef ParserState state
    cdef Operation operation
    cdef const char *start = data
    cdef size_t size = len(data), position
    cdef long count = 0
    cdef int _repetition
    parser_init(&state, 4096, 1048576)
    state.headers_allowed = 1
    for _repetition in range(repetitions):
        position = 0
        while position < size:
            if parse_operation(&state, start + position, size - position, &operation) != PARSE_DONE:
                raise ValueError(f"the data is not complete or not valid at byte {position}")
            position += operation.consumed
            count += 1
    return count


def sublist_of(list filters, bint cache):
    """A Sublist with a plain subscription for each of these filters."""
    cdef Sublist sublist = Sublist(seed=1, cache=cache)
    for identifier, name in enumerate(filters):
        sublist.add(name, sid=b"%d" % identifier)
    return sublist


def match(Sublist sublist, list subjects, int repetitions):
    """Looks up every subject again and again; returns how many lookups that were.

    Every lookup must find exactly one subscription, or the figure would mean nothing.
    """
    cdef bytes subject
    cdef Match *found
    cdef long count = 0
    cdef int _repetition
    for _repetition in range(repetitions):
        for subject in subjects:
            found = sublist.match(<const char *>subject, <uint32_t>len(subject))
            if found == NULL or found.plain.count != 1:
                raise ValueError(f"{subject!r} does not match exactly one subscription")
            count += 1
    return count
