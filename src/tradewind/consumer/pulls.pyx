"""The pull requests that wait for messages, in the order in which they are served.

Owns the requests. It sends nothing and knows no clock: the owner of the list ends expired requests
and sends the heartbeats. A request that got a message and wants more moves to the end, so requests
share the messages; with priorities it moves to the end of those of its own priority.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

cdef enum:
    # A number with more digits is left to those who can say what is wrong with it.
    NUMBER_DIGITS_MAX = 18


cdef int set_pin(PullRequest* request, bytes pin) except -1:
    """Set the requester's pin; a value longer than any pin is truncated, and still matches none."""
    request.pin_size = min(<uint32_t>len(pin), <uint32_t>PIN_BYTES_MAX)
    memcpy(request.pin, <const char*>pin, request.pin_size)
    return 0


cdef inline const char* pass_text(const char* at, const char* end, const char* text,
                                  size_t size) noexcept nogil:
    """The position after a required text and a space; NULL if the text is missing."""
    if at == NULL or <size_t>(end - at) < size or memcmp(at, text, size) != 0:
        return NULL
    at += size
    return at + 1 if at < end and at[0] == b" " else at


cdef inline const char* pass_number(const char* at, const char* end,
                                    int64_t* number) noexcept nogil:
    """The position after a required number from 1 on; NULL if it is missing."""
    cdef const char* start = at
    number[0] = 0
    if at == NULL or at == end or at[0] == b"0":
        return NULL
    while at < end and b"0" <= at[0] <= b"9":
        if at - start >= NUMBER_DIGITS_MAX:
            return NULL
        number[0] = number[0] * 10 + (at[0] - 48)
        at += 1
    return at if at > start else NULL


cdef bint read_plain_pull(const char* data, size_t size, int64_t* batch,
                          int64_t* expires_ns) noexcept nogil:
    """Parse a request that has only a number of messages and an expiry, as clients write it; false
    for any other, valid or not.
    """
    cdef const char* end = data + size
    cdef const char* at = pass_text(data, end, b"{", 1)
    cdef const char* named
    batch[0] = expires_ns[0] = 0
    while at != NULL:
        named = pass_text(at, end, b'"batch":', 8)
        if named != NULL and batch[0] == 0:
            at = pass_number(named, end, batch)
        else:
            named = pass_text(at, end, b'"expires":', 10)
            if named == NULL or expires_ns[0]:
                return False
            at = pass_number(named, end, expires_ns)
        if at != NULL and end - at == 1 and at[0] == b"}":
            return batch[0] > 0
        at = pass_text(at, end, b",", 1)
    return False


cdef class Pulls:
    """A queue of at most `count_max` requests."""

    def __init__(self, uint32_t count_max, bint prioritized=False):
        self.count_max = count_max
        self.prioritized = prioritized

    def __dealloc__(self):
        cdef PullRequest* request = self.head
        cdef PullRequest* following
        while request != NULL:
            following = request.next
            free(request)
            request = following

    cdef PullRequest* add(self, bytes reply) except NULL:
        """Create a request; it waits once its fields are set and `enter` is called."""
        cdef PullRequest* request = <PullRequest*>calloc(1, sizeof(PullRequest) + len(reply))
        if request == NULL:
            raise MemoryError
        request.reply_size = <uint32_t>len(reply)
        memcpy(&request.reply[0], <const char*>reply, len(reply))
        return request

    cdef void enter(self, PullRequest* request) noexcept nogil:
        """Insert a new request in order of priority."""
        self._insert(request)
        self.count += 1
        self.no_wait_count += request.no_wait
        self.plan(request)

    cdef void plan(self, PullRequest* request) noexcept nogil:
        """Take the deadlines of a request into account."""
        if request.expires_ns and (self.due_ns == 0 or request.expires_ns < self.due_ns):
            self.due_ns = request.expires_ns
        if request.heartbeat_ns \
                and (self.due_ns == 0 or request.heartbeat_due_ns < self.due_ns):
            self.due_ns = request.heartbeat_due_ns

    cdef void _insert(self, PullRequest* request) noexcept nogil:
        cdef PullRequest* before = self.tail
        if self.prioritized:
            while before != NULL and before.priority > request.priority:
                before = before.previous
        request.previous = before
        request.next = self.head if before == NULL else before.next
        if request.next == NULL:
            self.tail = request
        else:
            request.next.previous = request
        if before == NULL:
            self.head = request
        else:
            before.next = request

    cdef void _unlink(self, PullRequest* request) noexcept nogil:
        if request.previous == NULL:
            self.head = request.next
        else:
            request.previous.next = request.next
        if request.next == NULL:
            self.tail = request.previous
        else:
            request.next.previous = request.previous

    cdef void remove(self, PullRequest* request) noexcept nogil:
        """Remove a finished request."""
        self._unlink(request)
        self.count -= 1
        self.no_wait_count -= request.no_wait
        if self.count == 0:
            self.due_ns = 0
        free(request)

    cdef void to_tail(self, PullRequest* request) noexcept nogil:
        """Move a request to the end of those of its priority."""
        if request.next != NULL:
            self._unlink(request)
            self._insert(request)
