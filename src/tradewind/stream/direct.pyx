"""Direct gets: stored messages as plain replies, one or many, without the API in between.

Owns the requests of one stream that wait for the end of the turn, and the batches that are under
way. A hook takes a request in the middle of a delivery and copies it; it is answered in its turn
among the services of the server, straight from the store into the output of whoever listens to its
reply subject, without an object per message.

A batch is sent in steps: the next one waits for the next turn, so nobody else waits for it. Whoever
has much to read already waits until that is read, requests as well as batches, and holds up nobody
else. Requests count among those that a client may have with the services of the server.

What a request means is in `get_request`, how a reply looks in `get_replies`. What could not be read
from disk is a reply with status 500.
"""

from collections import deque

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from tradewind.broker.accounts cimport Account
from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session
from tradewind.broker.state cimport Message, SessionState
from tradewind.route.sublist cimport subject_is_literal, subject_valid
from tradewind.store.format.records cimport Record
from tradewind.store.table.counts cimport count_from, sequence_from
from tradewind.store.table.newest cimport collect_last, last_accepted, last_up_to
from tradewind.store.table.subject_index cimport SubjectEntry, SubjectFilter
from tradewind.stream.get_replies cimport GetReplies
from tradewind.stream.get_request cimport GetRequest
from tradewind.stream.ingest cimport Ingest
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size)

from tradewind.api.errors import ApiError
from tradewind.api.request_types import MsgGetRequest
from tradewind.api.requests import decode_lenient
from tradewind.api.versioning import is_level_known
from tradewind.errors import StoreError

cdef enum:
    RESULTS_MAX = 1024
    BATCHES_MAX = 1000
    # What one batch, and all single requests together, may send in one turn.
    STEP_MSGS_MAX = 1000
    STEP_BYTES_MAX = 262144
    # A receiver with more than this in its output is given time to read.
    PENDING_BYTES_MAX = 1048576
    RETRY_NS = 1000000
    LOOKS_PER_RETRY = 256
    # Requests of the server itself are not bounded by a connection.
    OWN_REQUESTS_MAX = 10000
    # An empty queue larger than this gives its memory back: there may be many streams.
    KEEP_BYTES = 4096
    # A filter with a longer pattern is not kept.
    FILTER_BYTES_MAX = 512

cdef bytes NOT_FOUND = b"404 Message Not Found"
cdef bytes NO_RESULTS = b"404 No Results"
cdef bytes EMPTY_REQUEST = b"408 Empty Request"
cdef bytes MALFORMED_REQUEST = b"408 Malformed Request"
cdef bytes BAD_REQUEST = b"408 Bad Request"
cdef bytes REQUIRED_LEVEL = b"412 Required Api Level"
cdef bytes INTERNAL_ERROR = b"500 Internal Server Error"
cdef bytes TOO_MANY_RESULTS = b"413 Too Many Results"
cdef bytes TOO_MANY_REQUESTS = b"429 Too Many Requests"

PENDING_MAX = PENDING_BYTES_MAX
UNDER_WAY_MAX = BATCHES_MAX


cdef int on_request(void* target, Message* message) except -1:
    cdef GetSubject subject = <GetSubject>target
    if subject.is_stand_in and subject.gets.is_behind_origin():
        return 0        # the origin has promised more than there is here: it answers itself
    return subject.gets.queue(message, subject.skip)


cdef inline bint is_behind(object session) noexcept:
    """Whether a client has too much to read to be sent more; one that has left has not."""
    cdef SessionState* state = &(<Session>session).state
    return not state.closed \
        and buffer_size(&state.outbox) + state.link_pending > PENDING_BYTES_MAX


cdef void read_head(const char* at, Request* request) noexcept:
    """Where the parts of a queued request are."""
    cdef RequestHead* head = &request.head
    memcpy(head, at, sizeof(RequestHead))
    request.reply = at + sizeof(RequestHead)
    request.subject = request.reply + head.reply_size
    request.header = request.subject + (
        0 if head.subject_size == NO_SUBJECT else head.subject_size)
    request.body = request.header + head.header_size


cdef inline size_t request_size(const RequestHead* head) noexcept:
    return sizeof(RequestHead) + head.reply_size + head.header_size + head.body_size + (
        0 if head.subject_size == NO_SUBJECT else head.subject_size)


cdef class GetSubject:
    """What a subscription of the stream leads to."""


cdef class GetOrder:
    """The place of requests among the services of the server: each comes in its turn."""


cdef class GetBatch:
    """Replies that are still to be sent."""

    def __cinit__(self):
        buffer_init(&self.found)

    def __dealloc__(self):
        buffer_free(&self.found)


cdef class DirectGet:
    """Answers for one stream. `on_deadline` is called when `next_deadline_ns` was set."""

    def __cinit__(self, *_, **__):
        buffer_init(&self.arrived)
        buffer_init(&self.serving)

    def __init__(self, str name not None, Ingest ingest not None, Account account not None,
                 Router router not None, int64_t bytes_max, on_deadline not None):
        self.name = name
        self.ingest = ingest
        self.store = ingest.store
        self.account = account
        self.router = router
        self.replies = GetReplies(router, account, name.encode())
        self.request = GetRequest()
        self.bytes_max = bytes_max
        self.on_deadline = on_deadline
        self.tokens = []
        self.stand_in_tokens = []
        self.ready = deque()
        self.crowded = deque()

    def __dealloc__(self):
        drop_requests(&self.serving)
        drop_requests(&self.arrived)
        buffer_free(&self.arrived)
        buffer_free(&self.serving)

    # -------------------------------------------------------------- requests

    def activate(self, tuple prefixes not None):
        """Listen, once for each prefix of the API."""
        if not self.tokens:
            self.tokens = self._listen(prefixes, self.name)

    def stand_in(self, tuple prefixes not None, str origin not None):
        """Answer some of the requests for the origin of this mirror, too."""
        if not self.stand_in_tokens:
            self.stand_in_tokens = self._listen(prefixes, origin, True)

    cdef bint is_behind_origin(self) noexcept:
        """Whether the origin answers requests, and has something that is not here yet."""
        cdef DirectGet origin = self.stood_for
        return origin is not None and len(origin.tokens) > 0 \
            and origin.ingest.visible() > self.ingest.visible()

    def _listen(self, tuple prefixes, str name, bint is_stand_in=False):
        cdef GetSubject whole, one
        cdef bytes subject
        cdef list tokens = []
        for prefix in prefixes:
            whole, one = GetSubject(), GetSubject()
            subject = f"{prefix}.DIRECT.GET.{name}".encode()
            whole.gets = one.gets = self
            whole.is_stand_in = one.is_stand_in = is_stand_in
            one.skip = <uint32_t>(len(subject) + 1)
            tokens += [self.account.attach(subject, on_request, whole, b"_sys_"),
                       self.account.attach(subject + b".>", on_request, one, b"_sys_")]
        return tokens

    def step_back(self):
        """Leave the requests for the origin to others."""
        for token in self.stand_in_tokens:
            self.account.unsubscribe(token)
        self.stand_in_tokens = []

    def deactivate(self):
        """Listen no more, answer what was asked before, and forget what is under way."""
        for token in self.tokens:
            self.account.unsubscribe(token)
        self.tokens.clear()
        self.end()

    cdef int queue(self, Message* message, uint32_t skip) except -1:
        """Keep a request until the delivery that brought it is over."""
        cdef RequestHead head
        if message.reply_size == 0:
            return 1
        if message.origin == NULL and self.queued - self.served >= OWN_REQUESTS_MAX:
            return 0
        head.session = NULL if message.origin == NULL else <PyObject*>message.origin.session
        head.reply_size = message.reply_size
        head.subject_size = message.subject_size - skip if skip else <uint32_t>NO_SUBJECT
        head.header_size = <uint32_t>message.header_size
        head.body_size = <uint32_t>(message.total_size - message.header_size)
        if buffer_reserve(&self.arrived, request_size(&head)) != 0:
            raise MemoryError
        buffer_append(&self.arrived, <const char*>&head, sizeof(RequestHead))
        buffer_append(&self.arrived, message.reply, message.reply_size)
        if skip:
            buffer_append(&self.arrived, message.subject + skip, head.subject_size)
        buffer_append(&self.arrived, message.body, message.total_size)
        self.queued += 1
        if head.session != NULL:
            Py_INCREF(<object>head.session)
            (<Session>head.session).service_queued()
        self.line_up()
        return 1

    cdef int line_up(self) except -1:
        """Have everything that is queued answered behind the services that were asked before."""
        cdef list services = self.router.internal
        cdef Py_ssize_t count = len(services)
        if self.order is None or count == 0 or (<tuple>services[count - 1])[1] is not self.order:
            self.order = GetOrder()
            self.order.subject = self.name
            services.append((self.serve, self.order))
        self.order.through = self.queued
        return 0

    def serve(self, GetOrder order not None):
        """Answer what was queued up to a place among the services, or as much as fits into a turn.
        """
        cdef uint64_t msgs = self.replies.sent_msgs + STEP_MSGS_MAX
        cdef uint64_t size = self.replies.sent_bytes + STEP_BYTES_MAX
        try:
            while self.served < order.through and self.replies.sent_msgs < msgs \
                    and self.replies.sent_bytes < size:
                self.serve_next()
        finally:
            self.release()
            if self.served < self.queued:
                self.line_up()
            self.continue_later()

    cdef int release(self) except -1:
        """Nothing is being answered: keep no more memory than a few requests need."""
        self.replies.release()
        if buffer_size(&self.serving) == 0 and self.serving.capacity > KEEP_BYTES:
            buffer_free(&self.serving)
        if buffer_size(&self.arrived) == 0 and self.arrived.capacity > KEEP_BYTES:
            buffer_free(&self.arrived)
        return 0

    cdef int serve_next(self) except -1:
        """Take the oldest request out of the queue and answer it, if its sender can take it."""
        cdef Request request
        cdef Buffer swapped
        if buffer_size(&self.serving) == 0:
            buffer_clear(&self.serving)
            swapped = self.serving
            self.serving = self.arrived
            self.arrived = swapped
        read_head(self.serving.data + self.serving.begin, &request)
        # Taken out first: a failure must not answer it again.
        self.serving.begin += request_size(&request.head)
        self.served += 1
        if request.head.session == NULL:
            return self.answer(&request)
        session = <object>request.head.session
        Py_DECREF(session)      # the one of the queue; ours is enough
        try:
            if is_behind(session):
                self.hold(&request)
                session = None
            else:
                self.answer(&request)
        finally:
            if session is not None:
                (<Session>session).service_done()
        return 0

    # -------------------------------------------------------------- answers

    cdef int answer(self, Request* request) except -1:
        cdef RequestHead* head = &request.head
        try:
            if head.header_size and not is_level_known(
                    request.header[:head.header_size]):
                return self.refuse(request, REQUIRED_LEVEL)
            return self.answer_request(request)
        except StoreError as error:
            return self.refuse(request, b"500 " + str(error).encode())
        except Exception as error:
            self.router.faults.contain("direct get", error, self.name)
            return self.refuse(request, INTERNAL_ERROR)

    cdef int refuse(self, Request* request, bytes line) except -1:
        self.replies.send_status(request.reply, request.head.reply_size, line)
        return 0

    cdef bint understand(self, Request* request) except -1:
        """Read the body; whether it is a request at all."""
        cdef uint32_t size = request.head.body_size
        if self.request.parse(request.body, size):
            return True
        try:
            self.request.adopt(decode_lenient(MsgGetRequest, request.body[:size]))
        except ApiError:
            return False
        return True

    cdef int answer_request(self, Request* request) except -1:
        cdef GetRequest wanted = self.request
        if request.head.subject_size != NO_SUBJECT:
            wanted.clear()
            if request.head.body_size and not self.understand(request):
                return self.refuse(request, MALFORMED_REQUEST)
            if wanted.asks_for_more():
                return self.refuse(request, BAD_REQUEST)
            return self.answer_last(request, request.subject, request.head.subject_size)
        if request.head.body_size == 0:
            return self.refuse(request, EMPTY_REQUEST)
        if not self.understand(request):
            return self.refuse(request, MALFORMED_REQUEST)
        if wanted.names_nothing():
            return self.refuse(request, EMPTY_REQUEST)
        if wanted.has_conflict():
            return self.refuse(request, BAD_REQUEST)
        if wanted.last_subjects is not None:
            return self.answer_many(request)
        if wanted.batch:
            return self.answer_batch(request)
        if wanted.last_subject.size:
            return self.answer_last(request, wanted.last_subject.start, wanted.last_subject.size)
        return self.answer_one(request)

    cdef int answer_last(self, Request* request, const char* subject, uint32_t size) except -1:
        """The newest message of a subject or pattern."""
        cdef uint64_t visible = self.ingest.visible(), seq = 0
        cdef SubjectEntry* entry
        cdef Record record
        if visible and subject_is_literal(subject, size):
            entry = self.store.index.find(subject, size)
            if entry != NULL:
                seq = last_up_to(self.store, entry, visible)
        elif visible and subject_valid(subject, size, False):
            seq = last_accepted(self.store, self.filter_for((subject[:size],)), visible)
        if seq == 0 or self.store.read(seq, &record) != 0:
            return self.refuse(request, NOT_FOUND)
        if self.request.no_header:
            self.replies.send_bare(request.reply, request.head.reply_size, &record)
        else:
            self.replies.send_message(request.reply, request.head.reply_size, &record)
        return 0

    cdef int answer_one(self, Request* request) except -1:
        """The message of a sequence, or the first that passes from a sequence or time on."""
        cdef GetRequest wanted = self.request
        cdef uint64_t seq = wanted.seq
        cdef SubjectFilter chosen
        cdef Record record
        if wanted.has_start or wanted.next_subject.size:
            chosen = self.filter_of_next()
            if chosen is None:
                return self.refuse(request, NOT_FOUND)
            if wanted.has_start:
                seq = sequence_from(self.store, wanted.start_ns)
            seq = self.store.next_matching(seq, chosen)
        if seq == 0 or seq > self.ingest.visible() or self.store.read(seq, &record) != 0:
            return self.refuse(request, NOT_FOUND)
        if wanted.no_header:
            self.replies.send_bare(request.reply, request.head.reply_size, &record)
        else:
            self.replies.send_message(request.reply, request.head.reply_size, &record)
        return 0

    def filter_of_next(self):
        """The filter of `next_by_subj`; None if nothing can match."""
        cdef GetRequest wanted = self.request
        if wanted.next_subject.size == 0:
            return self.filter_for((b">",))
        if not subject_valid(wanted.next_subject.start, wanted.next_subject.size, False):
            return None
        return self.filter_for((wanted.next_subject.start[:wanted.next_subject.size],))

    cdef SubjectFilter filter_for(self, tuple patterns):
        """A filter; one of a single pattern keeps its verdicts from one request to the next."""
        cdef SubjectFilter chosen
        if self.filter is not None and self.filter.patterns == patterns:
            return self.filter
        chosen = SubjectFilter(self.store.index, patterns)
        if len(patterns) == 1 and len(patterns[0]) <= FILTER_BYTES_MAX:
            self.filter = chosen
        return chosen

    cdef int answer_batch(self, Request* request) except -1:
        """Messages from a sequence or time on."""
        cdef GetRequest wanted = self.request
        cdef GetBatch batch = GetBatch()
        cdef uint64_t seq = wanted.seq
        batch.chosen = self.filter_of_next()
        if batch.chosen is None and wanted.batch > 0:
            return self.refuse(request, NOT_FOUND)
        if batch.chosen is None:
            self.replies.send_end(request.reply, request.head.reply_size, 0, 0, False, 0)
            return 0
        if wanted.has_start:
            seq = sequence_from(self.store, wanted.start_ns)
        batch.visible = self.ingest.visible()
        batch.pending = count_from(self.store, batch.chosen, seq)
        if batch.visible < self.store.last_seq:
            batch.pending -= count_from(self.store, batch.chosen, max(seq, batch.visible + 1))
        batch.seq = seq
        batch.left = wanted.batch
        batch.is_over = wanted.batch < 0
        batch.reply = request.reply[:request.head.reply_size]
        return self.begin(batch)

    cdef int answer_many(self, Request* request) except -1:
        """The last message of each of many subjects."""
        cdef GetRequest wanted = self.request
        cdef GetBatch batch
        cdef uint64_t visible = self.ingest.visible(), up_to = wanted.up_to_seq or visible
        cdef size_t count
        cdef uint64_t* found
        if wanted.has_up_to:
            up_to = min(sequence_from(self.store, wanted.up_to_ns) - 1, visible)
        # As in the official server, only streams in memory take a sequence that is still to come.
        if self.store.msgs == 0 or up_to < self.store.first_seq \
                or up_to > visible and self.store.keeps_tombstones:
            return self.refuse(request, NO_RESULTS)
        patterns = tuple([pattern for pattern in wanted.last_subjects
                          if subject_valid(pattern, <uint32_t>len(pattern), False)])
        if not patterns:
            return self.refuse(request, NO_RESULTS)
        batch = GetBatch()
        collect_last(
            self.store, self.filter_for(patterns), min(up_to, visible), RESULTS_MAX, &batch.found)
        count = buffer_size(&batch.found) // sizeof(uint64_t)
        if count == 0 or count > RESULTS_MAX:
            return self.refuse(request, TOO_MANY_RESULTS if count else NO_RESULTS)
        found = <uint64_t*>batch.found.data
        while count and found[batch.found.begin // sizeof(uint64_t)] < wanted.seq:
            batch.found.begin += sizeof(uint64_t)
            count -= 1
        batch.pending = count
        batch.left = wanted.batch if wanted.batch > 0 else <int64_t>count
        batch.is_over = count == 0
        batch.up_to = up_to
        batch.reply = request.reply[:request.head.reply_size]
        return self.begin(batch)

    # -------------------------------------------------------------- steps

    cdef int begin(self, GetBatch batch) except -1:
        """Send the first step at once, the rest later."""
        cdef GetRequest wanted = self.request
        batch.no_header = wanted.no_header and batch.chosen is not None
        batch.bytes_max = wanted.max_bytes or self.bytes_max
        if len(self.ready) + len(self.crowded) >= BATCHES_MAX:
            self.replies.send_status(batch.reply, <uint32_t>len(batch.reply), TOO_MANY_REQUESTS)
        elif self.step(batch):
            (self.crowded if batch.is_crowded else self.ready).append(batch)
        return 0

    cdef bint step(self, GetBatch batch) except -1:
        """Send a part; whether there is more to send."""
        batch.is_crowded = False
        try:
            return self.step_messages(batch)
        except StoreError as error:
            self.replies.send_status(
                batch.reply, <uint32_t>len(batch.reply), b"500 " + str(error).encode())
        except Exception as error:
            self.router.faults.contain("direct get", error, self.name)
            self.replies.send_status(batch.reply, <uint32_t>len(batch.reply), INTERNAL_ERROR)
        return False

    cdef bint step_messages(self, GetBatch batch) except -1:
        cdef uint64_t msgs = self.replies.sent_msgs + STEP_MSGS_MAX
        cdef uint64_t size = self.replies.sent_bytes + STEP_BYTES_MAX
        while not batch.is_over:
            if not self.send_next(batch):
                return False
            if batch.is_over:
                break
            if self.router.largest_pending > PENDING_BYTES_MAX:
                batch.is_crowded = True
                return True
            if self.replies.sent_msgs >= msgs or self.replies.sent_bytes >= size:
                return True
        self.replies.send_end(batch.reply, <uint32_t>len(batch.reply), batch.pending,
                              batch.last_seq, batch.chosen is None, batch.up_to)
        return False

    cdef bint send_next(self, GetBatch batch) except -1:
        """Send the next message, or notice that there is none; false if nobody is there any more.
        """
        cdef const char* reply = batch.reply
        cdef uint32_t reply_size = <uint32_t>len(batch.reply), receivers
        cdef Record record
        cdef uint64_t seq
        if batch.chosen is None:
            if buffer_size(&batch.found) == 0:
                batch.is_over = True
                return True
            memcpy(&seq, batch.found.data + batch.found.begin, sizeof(uint64_t))
            batch.found.begin += sizeof(uint64_t)
            batch.left -= 1
            batch.is_over = batch.left == 0
            if self.store.read(seq, &record) != 0:
                return True     # removed since the batch began
        else:
            seq = self.store.next_matching(batch.seq, batch.chosen)
            if seq == 0 or seq > batch.visible or self.store.read(seq, &record) != 0:
                batch.is_over = True
                if batch.last_seq == 0:
                    self.replies.send_status(reply, reply_size, NOT_FOUND)
                    return False
                return True
            batch.seq = seq + 1
            batch.left -= 1
            batch.is_over = batch.left == 0
        if batch.no_header:
            # The official server does not count these.
            receivers = self.replies.send_bare(reply, reply_size, &record)
        else:
            batch.pending -= batch.pending > 0
            receivers = self.replies.send_numbered(
                reply, reply_size, &record, batch.pending, batch.last_seq)
        batch.last_seq = seq
        batch.sent_bytes += record.subject_size + record.header_size + record.payload_size
        if batch.sent_bytes >= batch.bytes_max:
            batch.is_over = True
        return receivers > 0

    cdef int hold(self, Request* request) except -1:
        """Its sender has too much to read: it is answered later, and counts until then."""
        cdef GetBatch batch = GetBatch()
        batch.session = <object>request.head.session
        request.head.session = NULL
        batch.waiting = (<const char*>&request.head)[:sizeof(RequestHead)] + request.reply[
            :request_size(&request.head) - sizeof(RequestHead)]
        self.crowded.append(batch)
        return 0

    cdef bint resume(self, GetBatch batch) except -1:
        """Go on with a batch, or begin with what was held back; whether there is more to send."""
        cdef Request request
        if batch.session is None:
            return self.step(batch)
        session = batch.session
        batch.session = None
        read_head(batch.waiting, &request)
        try:
            self.answer(&request)
        finally:
            (<Session>session).service_done()
        return False

    cdef int continue_later(self) except -1:
        """In the next turn; those who must read first get some time for it."""
        if self.ready and not self.is_deferred:
            self.is_deferred = True
            self.router.turn.defer(self._continue_batches, b"", b"", b"", b"")
        if self.crowded and self.next_deadline_ns == 0:
            # Looking at all of them must not become most of the work.
            self.next_deadline_ns = self.router.turn.monotonic_ns + RETRY_NS * (
                1 + len(self.crowded) // LOOKS_PER_RETRY)
            self.on_deadline()
        return 0

    def _continue_batches(self, bytes _subject, bytes _reply, bytes _header, bytes _payload):
        self.is_deferred = False
        self._continue_batches_now()

    def tick(self):
        """The time is over that was given to receivers: go on with those that have read."""
        cdef GetBatch batch
        cdef bint is_full
        waited, self.crowded = self.crowded, deque()
        self.next_deadline_ns = 0
        for batch in waited:
            if batch.session is not None:
                is_full = is_behind(batch.session)
            else:
                is_full = self.replies.pending_at(
                    batch.reply, <uint32_t>len(batch.reply)) > PENDING_BYTES_MAX
            (self.crowded if is_full else self.ready).append(batch)
        self._continue_batches_now()

    def _continue_batches_now(self):
        """Those that have waited longest go on, each for a step, as many as fit into a turn."""
        cdef GetBatch batch
        cdef uint64_t msgs = self.replies.sent_msgs + STEP_MSGS_MAX
        cdef uint64_t size = self.replies.sent_bytes + STEP_BYTES_MAX
        cdef Py_ssize_t count = len(self.ready)
        try:
            while count and self.replies.sent_msgs < msgs and self.replies.sent_bytes < size:
                count -= 1
                batch = self.ready.popleft()
                if batch.session is not None and is_behind(batch.session):
                    self.crowded.append(batch)
                elif self.resume(batch):
                    (self.crowded if batch.is_crowded else self.ready).append(batch)
        finally:
            self.release()
            self.continue_later()

    def end(self):
        """The stream goes: answer what was asked before, and forget what is under way."""
        cdef GetBatch batch
        while self.served < self.queued:
            self.serve_next()
        for batch in (*self.ready, *self.crowded):
            if batch.session is not None:
                (<Session>batch.session).service_done()
                batch.session = None
        self.ready.clear()
        self.crowded.clear()
        self.filter = None
        self.next_deadline_ns = 0

    @property
    def under_way(self):
        """How many batches and held requests are not at their end."""
        return len(self.ready) + len(self.crowded)


cdef void drop_requests(Buffer* queue) noexcept:
    """Let go of the clients whose requests were never answered."""
    cdef Request request
    while buffer_size(queue):
        read_head(queue.data + queue.begin, &request)
        queue.begin += request_size(&request.head)
        if request.head.session != NULL:
            Py_DECREF(<object>request.head.session)
