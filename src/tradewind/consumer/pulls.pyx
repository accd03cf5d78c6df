"""The pull requests that wait for messages, in the order in which they are served.

Owns the requests, which of them may have the next message, and how each ends: served, expired,
refused by a rule of its priority group, or dropped because its receiver is gone. A request that got
a message and wants more moves to the end, so requests share the messages; with priorities it moves
to the end of those of its own priority. The times are those of the turn; it sends statuses and
heartbeats, but never a message.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy
from tradewind.broker.state cimport Message, SessionState
from tradewind.route.sublist cimport Match
from tradewind.saturated cimport later

cdef enum:
    # A number with more digits is left to those who can say what is wrong with it.
    NUMBER_DIGITS_MAX = 18

cdef enum Admission:
    ADMITTED_LATER = 0
    ADMITTED = 1
    PINNED_WRONG = 2

cdef bytes TIMEOUT = b"408 Request Timeout"
cdef bytes NO_MESSAGES = b"404 No Messages"
cdef bytes TOO_LARGE = b"409 Message Size Exceeds MaxBytes"
cdef bytes BATCH_COMPLETED = b"409 Batch Completed"
cdef bytes WRONG_PIN = b"423 Nats-Wrong-Pin-Id"


cdef uint32_t publish_header(Router router, Account account, const char* subject,
                             uint32_t subject_size, const char* reply, uint32_t reply_size,
                             bytes header) except? 0xFFFFFFFF:
    """Publish a message without payload; returns the number of receivers."""
    cdef Message message
    message.origin = NULL
    message.subject = subject
    message.subject_size = subject_size
    message.reply = reply
    message.reply_size = reply_size
    message.body = header
    message.header_size = message.total_size = <uint32_t>len(header)
    return router.publish(account, &message)


cdef object receiver_at(Account account, const char* route, uint32_t route_size):
    """The (id, name) of the connection that gets messages of a subject; None if it is not known:
    there are several, or it is on another account or server.
    """
    cdef Match* match = account.sublist.match(route, route_size)
    cdef SessionState* owner
    if match == NULL:
        return None
    if match.plain.count == 1 and match.groups.count == 0:
        owner = <SessionState*>match.plain.items[0].owner
    elif match.plain.count == 0 and match.groups.count == 1 \
            and match.groups.items[0].members.count == 1:
        owner = <SessionState*>match.groups.items[0].members.items[0].owner
    else:
        return None
    if owner == NULL or owner.session == NULL or owner.leaf != NULL:
        return None
    session = <object>owner.session
    return session.cid, getattr(session.options, "name", "")


cdef bytes heartbeat_header(Cursor cursor, AckState acks):
    """The header of an idle heartbeat, up to the empty line."""
    return (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n"
        % (acks.delivered_consumer, cursor.limit() - 1))


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
    """A queue of at most `count_max` requests, for the delivery that it serves."""

    def __init__(self, uint32_t count_max, bint prioritized=False):
        self.count_max = count_max
        self.prioritized = prioritized
        self.pin_id = b""

    cdef int serve(self, Taker owner, Router router, Account account, Cursor cursor,
                   AckState acks) except -1:
        """Set the consumer whose messages are requested."""
        self._owner = owner
        self._router = router
        self._turn = router.turn
        self._account = account
        self._cursor = cursor
        self._acks = acks
        return 0

    def set_priorities(self, bint overflow, bint pins):
        """Set which rule of a priority group decides who is served."""
        self.overflow = overflow
        self.pins = pins

    def unpin(self):
        """Clear the pin; the next request without a pin will be pinned."""
        self.pin_id = b""

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

    # -------------------------------------------------------------- requests that come

    cdef PullRequest* new_plain(self, bytes reply, int64_t batch, int64_t expires_ns) except NULL:
        """Create a request that has only a number of messages and an expiry."""
        cdef PullRequest* request = self.add(reply)
        request.batch = batch
        request.expires_ns = expires_ns
        request.heartbeat_due_ns = self._turn.monotonic_ns
        request.has_group = True
        return request

    def add_request(self, bytes reply not None, int64_t batch, int64_t bytes_max,
                    int64_t expires_ns, int64_t heartbeat_ns, bint no_wait, int64_t min_pending=0,
                    int64_t min_ack_pending=0, int priority=0, bytes pin=b"",
                    bint has_group=True):
        """Add a waiting request; false if too many wait already."""
        cdef PullRequest* request
        if self.count >= self.count_max:
            return False
        request = self.new_plain(reply, batch, expires_ns)
        set_pin(request, pin)
        request.bytes_left = max(bytes_max, <int64_t>0)
        request.heartbeat_ns = heartbeat_ns
        request.heartbeat_due_ns = later(self._turn.monotonic_ns, heartbeat_ns)
        request.no_wait = no_wait
        request.min_pending = min_pending
        request.min_ack_pending = min_ack_pending
        request.priority = priority
        request.has_group = has_group
        self.enter(request)
        return True

    # -------------------------------------------------------------- who is served

    cdef PullRequest* next_request(self, size_t size) except? NULL:
        """The first request that may have a message of this size; finished requests end here."""
        cdef PullRequest* request = self.head
        cdef PullRequest* following
        cdef uint32_t left = self.count
        cdef int verdict
        while left:
            left -= 1
            following = request.next
            if request.expires_ns and self._turn.monotonic_ns >= request.expires_ns:
                self._end(request, TIMEOUT, True)
                request = following
                continue
            verdict = self._admits(request) if self.pins or self.overflow else ADMITTED
            if verdict == PINNED_WRONG:
                self._end(request, WRONG_PIN, True)
            elif verdict == ADMITTED_LATER:
                self.to_tail(request)
            elif request.bytes_left and size > <size_t>request.bytes_left:
                self._end(request, TOO_LARGE, True)
            else:
                return request
            request = following
        return NULL

    cdef int _admits(self, PullRequest* request) except -1:
        """Whether the rule of its priority group lets a request have the next message."""
        if self.pins and not request.has_group:
            # Served while no client is pinned, and never pinned.
            return ADMITTED_LATER if self.pin_id else ADMITTED
        if self.pins:
            if self.pin_id and request.pin_size == len(self.pin_id) \
                    and memcmp(request.pin, <const char*>self.pin_id, request.pin_size) == 0:
                return ADMITTED
            if request.pin_size:
                return PINNED_WRONG
            if self.pin_id:
                return ADMITTED_LATER
            self.pin_id = self._owner.new_pin()
            set_pin(request, self.pin_id)
        if self.overflow and (request.min_pending > 0 or request.min_ack_pending > 0) \
                and not 0 < request.min_pending <= <int64_t>(
                    self._cursor.pending() + self._acks.parked_count) \
                and not 0 < request.min_ack_pending <= <int64_t>(
                    self._acks.count - self._acks.parked_count):
            return ADMITTED_LATER
        return ADMITTED

    cdef int answered(self, PullRequest* request, size_t size) except -1:
        """Record that a request received a message."""
        request.delivered += 1
        request.batch -= 1
        if request.bytes_left:
            request.bytes_left -= size
            if request.bytes_left == 0:
                request.batch = 0
        if request.batch <= 0:
            if request.bytes_left > 0:
                self._end(request, BATCH_COMPLETED, True)
            else:
                self.remove(request)
            return 0
        if request.heartbeat_ns:
            request.heartbeat_due_ns = later(self._turn.monotonic_ns, request.heartbeat_ns)
        self.to_tail(request)
        return 0

    # -------------------------------------------------------------- requests that end

    cdef int _end(self, PullRequest* request, bytes status, bint counts) except -1:
        """End a request with a status; with `counts` also how much is missing."""
        cdef bytes header = b"NATS/1.0 %s\r\n\r\n" % status
        if counts:
            header = (b"NATS/1.0 %s\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n"
                      % (status, request.batch, request.bytes_left))
        publish_header(
            self._router, self._account, &request.reply[0], request.reply_size, NULL, 0, header)
        self.remove(request)
        return 0

    cdef uint32_t _beat(self, PullRequest* request) except? 0xFFFFFFFF:
        """Send an idle heartbeat; returns the number of receivers."""
        return publish_header(
            self._router, self._account, &request.reply[0], request.reply_size, NULL, 0,
            heartbeat_header(self._cursor, self._acks) + b"\r\n")

    cdef int sweep(self, bint at_end, bint check_interest) except -1:
        """End finished requests and send heartbeats; at the end of the stream also end those that
        do not wait.
        """
        cdef PullRequest* request = self.head
        cdef PullRequest* following
        cdef int64_t now_ns = self._turn.monotonic_ns
        if not check_interest and not (at_end and self.no_wait_count) \
                and not 0 < self.due_ns <= now_ns:
            return 0
        self.due_ns = 0
        while request != NULL:
            following = request.next
            if request.expires_ns and now_ns >= request.expires_ns:
                self._end(request, TIMEOUT, True)
            elif at_end and request.no_wait and (request.expires_ns == 0 or request.delivered > 0):
                self._end(request, NO_MESSAGES, False)
            elif check_interest and not self._account.sublist.matches_any(
                    &request.reply[0], request.reply_size):
                self.remove(request)
            elif request.heartbeat_ns and now_ns >= request.heartbeat_due_ns \
                    and not self._beat(request):
                self.remove(request)
            else:
                if request.heartbeat_ns and now_ns >= request.heartbeat_due_ns:
                    request.heartbeat_due_ns = later(now_ns, request.heartbeat_ns)
                self.plan(request)
            request = following
        return 0

    def sweep_all(self):
        """End finished requests, including those whose receivers are gone; returns how many
        messages the others want.
        """
        cdef PullRequest* request
        cdef int64_t wanted = 0
        self.sweep(False, True)
        request = self.head
        while request != NULL:
            wanted = later(wanted, request.batch)
            request = request.next
        return wanted

    def end_all(self, bytes status not None, bint counts=False):
        """End all waiting requests because the consumer is being deleted; with `counts` also report
        how much is missing.
        """
        while self.head != NULL:
            self._end(self.head, status, counts)
