"""The pull requests that wait for messages, in the order in which they are served.

Owns the requests. It sends nothing and knows no clock: whoever walks the list ends expired requests
and sends the heartbeats. A request that got a message and wants more moves to the end, so requests
share what there is; with priorities it moves behind those of its own priority.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy


cdef int set_pin(PullRequest* request, bytes pin) except -1:
    """Set the requester's pin; a value longer than any pin is truncated, and still matches none."""
    request.pin_size = min(<uint32_t>len(pin), <uint32_t>PIN_BYTES_MAX)
    memcpy(request.pin, <const char*>pin, request.pin_size)
    return 0


cdef class Pulls:
    """At most `count_max` requests."""

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
        """Insert a new request at its place."""
        self._insert(request)
        self.count += 1
        self.no_wait_count += request.no_wait
        self.plan(request)

    cdef void plan(self, PullRequest* request) noexcept nogil:
        """Take its deadlines into account from now on."""
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
        """Let the others come first."""
        if request.next != NULL:
            self._unlink(request)
            self._insert(request)
