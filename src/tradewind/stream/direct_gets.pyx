"""Direct gets: stored messages as plain replies, one or many, without the API in between.

Owns the requests of one stream that wait for the end of the turn, and the batches under way. A hook
takes a request in the middle of a delivery and copies it; it is answered in its turn among the
services of the server, straight from the store into the output of its reply subject's subscribers,
without an object per message.

A batch is sent in steps: each waits for the next turn, so other clients are not held up. So is a
search that takes long, because there are many subjects, patterns or messages, and requests that are
long to parse leave those after them to the next turn. A receiver with much unread output is given
time to read, for requests as well as batches, and does not hold up others. Requests count towards
those that a client may have with the services of the server.

A message that is not synced yet is seen only if nothing else answers the request: it may have taken
the place of another. The answer then waits for the disk (`Ingest.reads`). A stream with many such
answers lets further requests wait as well.

Requests are parsed in `get_request`, replies are encoded in `get_replies`. A message that cannot be
read from disk gives a reply with status 500.
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
from tradewind.store.table.bounded_walk cimport Reach, next_within
from tradewind.store.table.counts cimport CountSearch, count_from, sequence_from
from tradewind.store.table.newest cimport LastFound, LastSearch
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
    # Budget per turn of one batch, and of all single requests together.
    STEP_MSGS_MAX = 1000
    STEP_BYTES_MAX = 262144
    # The same for parsing and searching; the unit is about a nanosecond. A search gets no less than
    # the second number, so that it goes on.
    STEP_WORK_MAX = 4_000_000
    STEP_WORK_MIN = 65536
    # A longer request is refused: its body, and one that is not plain.
    BODY_BYTES_MAX = 1_048_576
    ODD_BODY_BYTES_MAX = 131_072
    # ... and one that only the decoder with all details of Go can judge.
    CLOSELY_BYTES_MAX = 8192
    # The cost of parsing a byte.
    PLAIN_BYTE_WORK = 8
    ODD_BYTE_WORK = 64
    # A receiver with more output than this is given time to read.
    PENDING_BYTES_MAX = 1048576
    RETRY_NS = 1000000
    LOOKS_PER_RETRY = 256
    # Requests of the server itself are not bounded by a connection.
    OWN_REQUESTS_MAX = 10000
    # With more than this in answers that wait for the disk, requests wait as well.
    HELD_BYTES_MAX = 8388608
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
cdef bytes TOO_LONG = b"408 Request Longer Than %d Bytes" % BODY_BYTES_MAX
cdef bytes TOO_MANY_RESULTS = b"413 Too Many Results"
cdef bytes TOO_MANY_REQUESTS = b"429 Too Many Requests"

PENDING_MAX = PENDING_BYTES_MAX
UNDER_WAY_MAX = BATCHES_MAX


cdef int on_request(void* target, Message* message) except -1:
    cdef GetSubject subject = <GetSubject>target
    if subject.is_stand_in and subject.gets.is_behind_origin():
        return 0        # the origin has acknowledged more than is here, so it answers itself
    return subject.gets.queue(message, subject.skip)


cdef inline bint is_behind(object session) noexcept:
    """Whether a client has too much unread output to be sent more; false after it has left."""
    cdef SessionState* state = &(<Session>session).state
    return not state.closed \
        and buffer_size(&state.outbox) + state.link_pending > PENDING_BYTES_MAX


cdef void read_head(const char* at, Request* request) noexcept:
    """Find the parts of a queued request."""
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
    """The target of one subscription of the stream."""


cdef class GetOrder:
    """The place of requests among the services of the server: each is answered in its turn."""


cdef class GetBatch:
    """A batch of replies that is not complete yet."""


cdef class DirectGet:
    """The direct gets of one stream."""

    def __cinit__(self, *_, **__):
        buffer_init(&self.arrived)
        buffer_init(&self.serving)

    def __init__(self, str name not None, Ingest ingest not None, Account account not None,
                 Router router not None, int64_t bytes_max):
        self.name = name
        self.ingest = ingest
        self.store = ingest.store
        self.account = account
        self.router = router
        self.replies = GetReplies(router, account, name.encode(), ingest.reads)
        self.request = GetRequest()
        self.bytes_max = bytes_max
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

    def activate(self):
        """Begin to listen for requests."""
        if not self.tokens:
            self.tokens = self._listen(self.name)

    def stand_in(self, str origin not None):
        """Answer some of the requests for the origin of this mirror, in addition to its own."""
        if not self.stand_in_tokens:
            self.stand_in_tokens = self._listen(origin, True)

    cdef bint is_behind_origin(self) noexcept:
        """Whether the origin answers requests, and has messages that are not here yet."""
        cdef DirectGet origin = self.stood_for
        return origin is not None and len(origin.tokens) > 0 \
            and origin.ingest.visible() > self.ingest.visible()

    def _listen(self, str name, bint is_stand_in=False):
        cdef GetSubject whole = GetSubject(), one = GetSubject()
        cdef bytes subject = f"$JS.API.DIRECT.GET.{name}".encode()
        whole.gets = one.gets = self
        whole.is_stand_in = one.is_stand_in = is_stand_in
        one.skip = <uint32_t>(len(subject) + 1)
        return [self.account.attach(subject, on_request, whole, b"_sys_"),
                self.account.attach(subject + b".>", on_request, one, b"_sys_")]

    def step_back(self):
        """Stop answering requests for the origin."""
        for token in self.stand_in_tokens:
            self.account.unsubscribe(token)
        self.stand_in_tokens = []

    def deactivate(self):
        """Stop listening, answer earlier requests, and drop unfinished batches."""
        for token in self.tokens:
            self.account.unsubscribe(token)
        self.tokens.clear()
        self.end()

    cdef int queue(self, Message* message, uint32_t skip) except -1:
        """Queue a request until the delivery that brought it has ended."""
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
        """Queue the answers after the services that were requested before."""
        cdef list services = self.router.internal
        cdef Py_ssize_t count = len(services)
        if self.order is None or count == 0 or (<tuple>services[count - 1])[1] is not self.order:
            self.order = GetOrder()
            self.order.subject = self.name
            services.append((self.serve, self.order))
        self.order.through = self.queued
        return 0

    def serve(self, GetOrder order not None):
        """Answer the requests queued up to a place among the services, as far as they fit into a
        turn.
        """
        cdef uint64_t msgs = self.replies.sent_msgs + STEP_MSGS_MAX
        cdef uint64_t size = self.replies.sent_bytes + STEP_BYTES_MAX
        self.work_end = self.work + STEP_WORK_MAX
        try:
            while self.served < order.through and self.replies.sent_msgs < msgs \
                    and self.replies.sent_bytes < size and self.work < self.work_end:
                self.serve_next()
        finally:
            self.release()
            if self.served < self.queued:
                self.line_up()
            self.continue_later()

    cdef int release(self) except -1:
        """Release memory beyond what a few requests need; called when nothing is being answered."""
        self.replies.release()
        if buffer_size(&self.serving) == 0 and self.serving.capacity > KEEP_BYTES:
            buffer_free(&self.serving)
        if buffer_size(&self.arrived) == 0 and self.arrived.capacity > KEEP_BYTES:
            buffer_free(&self.arrived)
        return 0

    cdef int serve_next(self) except -1:
        """Answer the oldest request, if its sender can take the answer."""
        cdef Request request
        cdef Buffer swapped
        if buffer_size(&self.serving) == 0:
            buffer_clear(&self.serving)
            swapped = self.serving
            self.serving = self.arrived
            self.arrived = swapped
        read_head(self.serving.data + self.serving.begin, &request)
        # Taken out first, so that a failure cannot answer it twice.
        self.serving.begin += request_size(&request.head)
        self.served += 1
        if request.head.session == NULL:
            return self.refuse(&request, TOO_MANY_REQUESTS) if self.is_full() \
                else self.answer(&request)
        session = <object>request.head.session
        Py_DECREF(session)      # the queue's reference; ours is enough
        try:
            if is_behind(session) or self.is_full():
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
        """Parse the body; returns whether it is a request at all."""
        cdef uint32_t size = request.head.body_size
        self.work += <uint64_t>size * PLAIN_BYTE_WORK
        if self.request.parse(request.body, size):
            return True
        if size > ODD_BODY_BYTES_MAX:
            return False
        self.work += <uint64_t>size * ODD_BYTE_WORK
        try:
            self.request.adopt(decode_lenient(
                MsgGetRequest, request.body[:size], closely_max=CLOSELY_BYTES_MAX))
        except ApiError:
            return False
        return True

    cdef int answer_request(self, Request* request) except -1:
        cdef GetRequest wanted = self.request
        if request.head.body_size > BODY_BYTES_MAX:
            return self.refuse(request, TOO_LONG)
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

    cdef bint is_full(self) noexcept:
        """Whether so many answers wait for the disk that requests have to wait, too."""
        return buffer_size(&self.ingest.reads.entries) > HELD_BYTES_MAX

    cdef int wait_for(self, uint64_t seq) except -1:
        """Hold back what is sent from now on until message `seq` is visible; 0: do not."""
        if seq > self.ingest.visible():
            self.replies.until_seq = seq
            # If the disk has failed, the end of the turn says so.
            self.ingest.turn.mark_dirty(self.ingest)
        return 0

    cdef uint64_t work_left(self) noexcept:
        """The work that a search may do in this turn."""
        return STEP_WORK_MIN if self.work + STEP_WORK_MIN > self.work_end \
            else self.work_end - self.work

    cdef int answer_last(self, Request* request, const char* subject, uint32_t size) except -1:
        """Answer with the newest message of a subject or pattern."""
        cdef GetBatch batch
        cdef SubjectEntry* entry
        cdef uint64_t visible = self.ingest.visible(), readable = self.ingest.readable()
        if subject_is_literal(subject, size):
            entry = self.store.index.find(subject, size)
            if entry == NULL:
                return self.refuse(request, NOT_FOUND)
            if 0 < entry.last_seq <= visible:
                return self.send_one(request, entry.last_seq)
        elif not subject_valid(subject, size, False):
            return self.refuse(request, NOT_FOUND)
        batch = GetBatch()
        batch.is_single = True
        batch.search = LastSearch()
        batch.search.begin(
            self.store, self.filter_for((subject[:size],)), visible, readable, 1, True)
        return self.begin(batch, request)

    cdef int send_one(self, Request* request, uint64_t seq) except -1:
        """Answer with a single message; 0: not found."""
        return self.send_found(request.reply, request.head.reply_size, seq,
                               self.request.no_header)

    cdef int send_found(self, const char* reply, uint32_t reply_size, uint64_t seq,
                        bint no_header) except -1:
        """Send a single message to a reply subject; 0: not found."""
        cdef Record record
        if seq == 0 or seq > self.ingest.readable() or self.store.read(seq, &record) != 0:
            self.replies.send_status(reply, reply_size, NOT_FOUND)
            return 0
        try:
            self.wait_for(seq)
            if no_header:
                self.replies.send_bare(reply, reply_size, &record)
            else:
                self.replies.send_message(reply, reply_size, &record)
        finally:
            self.replies.until_seq = 0
        return 0

    cdef int answer_one(self, Request* request) except -1:
        """Answer with the message of a sequence, or the first match from a sequence or time on."""
        cdef GetRequest wanted = self.request
        cdef GetBatch batch
        if not wanted.has_start and wanted.next_subject.size == 0:
            return self.send_one(request, wanted.seq)
        batch = GetBatch()
        batch.is_single = True
        batch.chosen = self.filter_of_next()
        if batch.chosen is None:
            return self.refuse(request, NOT_FOUND)
        batch.seq = sequence_from(self.store, wanted.start_ns) if wanted.has_start else wanted.seq
        return self.begin(batch, request)

    def filter_of_next(self):
        """The filter of `next_by_subj`; None if nothing can match."""
        cdef GetRequest wanted = self.request
        if wanted.next_subject.size == 0:
            return self.filter_for((b">",))
        if not subject_valid(wanted.next_subject.start, wanted.next_subject.size, False):
            return None
        return self.filter_for((wanted.next_subject.start[:wanted.next_subject.size],))

    cdef SubjectFilter filter_for(self, tuple patterns):
        """Create a filter; one of a single pattern keeps its results from one request to the next.
        """
        cdef SubjectFilter chosen
        if self.filter is not None and self.filter.patterns == patterns:
            return self.filter
        chosen = SubjectFilter(self.store.index, patterns)
        if len(patterns) == 1 and len(patterns[0]) <= FILTER_BYTES_MAX:
            self.filter = chosen
        return chosen

    cdef int answer_batch(self, Request* request) except -1:
        """Answer with messages from a sequence or time on."""
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
        batch.counting = CountSearch()
        batch.counting.begin(self.store, batch.chosen, seq)
        batch.seq = seq
        batch.left = wanted.batch
        batch.is_over = wanted.batch < 0
        return self.begin(batch, request)

    cdef int answer_many(self, Request* request) except -1:
        """Answer with the last message of each of many subjects."""
        cdef GetRequest wanted = self.request
        cdef GetBatch batch
        cdef uint64_t visible = self.ingest.visible(), readable = self.ingest.readable()
        cdef uint64_t up_to = wanted.up_to_seq or readable
        if wanted.has_up_to:
            up_to = min(sequence_from(self.store, wanted.up_to_ns) - 1, readable)
        # As in the official server, only streams in memory take a sequence that is still to come.
        if self.store.msgs == 0 or up_to < self.store.first_seq \
                or up_to > readable and self.store.keeps_tombstones:
            return self.refuse(request, NO_RESULTS)
        patterns = tuple([pattern for pattern in wanted.last_subjects
                          if subject_valid(pattern, <uint32_t>len(pattern), False)])
        if not patterns:
            return self.refuse(request, NO_RESULTS)
        batch = GetBatch()
        batch.search = LastSearch()
        batch.has_up_to = wanted.up_to_seq or wanted.has_up_to
        batch.up_to = up_to if batch.has_up_to else visible
        batch.visible = visible
        batch.from_seq = wanted.seq
        batch.left = wanted.batch
        # A message that is not visible yet is taken only if its subject has no older one.
        batch.search.begin(self.store, self.filter_for(patterns), min(up_to, visible),
                           min(up_to, readable), RESULTS_MAX, False)
        return self.begin(batch, request)

    cdef bint end_search(self, GetBatch batch) except -1:
        """Called when all messages are found; returns whether there is anything to send."""
        cdef LastSearch search = batch.search
        cdef uint32_t reply_size = <uint32_t>len(batch.reply)
        if batch.is_single:
            self.send_found(batch.reply, reply_size, search.newest(), batch.no_header)
            return False
        if search.count() == 0 or search.count() > RESULTS_MAX:
            self.replies.send_status(
                batch.reply, reply_size, TOO_MANY_RESULTS if search.count() else NO_RESULTS)
            return False
        if not batch.has_up_to:
            # A client that continues after it gets what was stored during the search.
            if search.steps == 1:
                batch.up_to = max(batch.visible, search.newest())
            search.replace_gone()
        while search.count() and search.first().seq < batch.from_seq:
            search.found.begin += sizeof(LastFound)
        batch.pending = search.count()
        if batch.left <= 0:
            batch.left = <int64_t>batch.pending
        batch.is_over = batch.pending == 0
        return True

    # -------------------------------------------------------------- steps

    cdef int begin(self, GetBatch batch, Request* request) except -1:
        """Send the first step of a batch immediately, the rest later."""
        cdef GetRequest wanted = self.request
        cdef bint is_full = len(self.ready) + len(self.crowded) >= BATCHES_MAX
        batch.reply = request.reply[:request.head.reply_size]
        batch.no_header = wanted.no_header and (batch.chosen is not None or batch.is_single)
        batch.bytes_max = wanted.max_bytes or self.bytes_max
        if is_full and not batch.is_single:
            return self.refuse(request, TOO_MANY_REQUESTS)
        if not self.step(batch):
            return 0
        if is_full:
            return self.refuse(request, TOO_MANY_REQUESTS)
        (self.crowded if batch.is_crowded else self.ready).append(batch)
        return 0

    cdef bint step(self, GetBatch batch) except -1:
        """Send a part of a batch; returns whether there is more to send."""
        batch.is_crowded = False
        self.replies.until_seq = 0
        try:
            if not batch.is_found:
                if self.step_search(batch):
                    return True
                batch.is_found = True
                if batch.search is not None and not self.end_search(batch):
                    return False
            return self.step_single(batch) if batch.is_single else self.step_messages(batch)
        except StoreError as error:
            self.replies.send_status(
                batch.reply, <uint32_t>len(batch.reply), b"500 " + str(error).encode())
        except Exception as error:
            self.router.faults.contain("direct get", error, self.name)
            self.replies.send_status(batch.reply, <uint32_t>len(batch.reply), INTERNAL_ERROR)
        finally:
            self.replies.until_seq = 0
        return False

    cdef bint step_search(self, GetBatch batch) except -1:
        """Search for messages, or count them, in one step; returns whether more steps are
        needed.
        """
        cdef uint64_t readable = self.ingest.readable()
        cdef bint has_more = False
        if batch.search is not None:
            if not batch.has_up_to:
                # A subject whose message was replaced meanwhile must not look empty.
                batch.search.at_most = readable
            has_more = batch.search.step(self.work_left())
            self.work += batch.search.work
        elif batch.counting is not None:
            has_more = batch.counting.step(self.work_left())
            self.work += batch.counting.work
            batch.pending = batch.counting.total
            if not has_more and readable < self.store.last_seq:
                batch.pending -= min(batch.pending, count_from(
                    self.store, batch.chosen, max(batch.seq, readable + 1)))
        return has_more

    cdef uint64_t find_next(self, GetBatch batch) except? 0:
        """Find the next matching message; 0 if there is none, or if the batch `is_late`."""
        cdef Reach reach
        cdef uint64_t found, work = self.work_left()
        reach.work_left = work
        found = next_within(self.store, batch.seq, batch.chosen, &reach)
        self.work += work - min(reach.work_left, work)
        batch.is_late = found == 0 and reach.work_left == 0
        batch.seq = max(batch.seq, reach.passed + 1)
        return found

    cdef bint step_single(self, GetBatch batch) except -1:
        """Search for the single wanted message; returns whether it takes longer."""
        cdef uint64_t seq = self.find_next(batch)
        if not batch.is_late:
            self.send_found(batch.reply, <uint32_t>len(batch.reply), seq, batch.no_header)
        return batch.is_late

    cdef bint step_messages(self, GetBatch batch) except -1:
        cdef uint64_t msgs = self.replies.sent_msgs + STEP_MSGS_MAX
        cdef uint64_t size = self.replies.sent_bytes + STEP_BYTES_MAX
        while not batch.is_over:
            if not self.send_next(batch):
                return False
            if batch.is_over:
                break
            if batch.is_late:
                return True
            if self.router.largest_pending > PENDING_BYTES_MAX:
                batch.is_crowded = True
                return True
            if self.replies.sent_msgs >= msgs or self.replies.sent_bytes >= size:
                return True
        self.wait_for(batch.last_seq)
        self.replies.send_end(batch.reply, <uint32_t>len(batch.reply), batch.pending,
                              batch.last_seq, batch.chosen is None, batch.up_to)
        return False

    cdef bint send_next(self, GetBatch batch) except -1:
        """Send the next message, or notice that there is none; false if there is no receiver
        left.
        """
        cdef const char* reply = batch.reply
        cdef uint32_t reply_size = <uint32_t>len(batch.reply), receivers
        cdef Record record
        cdef uint64_t seq
        if batch.chosen is None:
            if batch.search.count() == 0:
                batch.is_over = True
                return True
            seq = batch.search.first().seq
            batch.search.found.begin += sizeof(LastFound)
            batch.left -= 1
            batch.is_over = batch.left == 0
            if self.store.read(seq, &record) != 0:
                return True     # removed since the batch began
        else:
            seq = self.find_next(batch)
            if batch.is_late:
                return True
            # After the visible messages there may be one that has replaced another.
            if seq == 0 or seq > (batch.visible if batch.last_seq else self.ingest.readable()) \
                    or self.store.read(seq, &record) != 0:
                batch.is_over = True
                if batch.last_seq == 0:
                    self.replies.send_status(reply, reply_size, NOT_FOUND)
                    return False
                return True
            batch.seq = seq + 1
            batch.left -= 1
            batch.is_over = batch.left == 0
        self.wait_for(seq)
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
        """Answer later, because the sender has too much unread output; the request counts until
        then.
        """
        cdef GetBatch batch = GetBatch()
        batch.session = <object>request.head.session
        request.head.session = NULL
        batch.waiting = (<const char*>&request.head)[:sizeof(RequestHead)] + request.reply[
            :request_size(&request.head) - sizeof(RequestHead)]
        self.crowded.append(batch)
        return 0

    cdef bint resume(self, GetBatch batch) except -1:
        """Continue a batch, or begin a request that was held back; returns whether there is more to
        send.
        """
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
        """Continue in the next turn; receivers that must read first get some time."""
        if self.ready and not self.is_deferred:
            self.is_deferred = True
            self.router.turn.defer(self._continue_batches, b"", b"", b"", b"")
        if self.crowded and self.next_deadline_ns == 0:
            # Checking all of them must not become most of the work.
            self.next_deadline_ns = self.router.turn.monotonic_ns + RETRY_NS * (
                1 + len(self.crowded) // LOOKS_PER_RETRY)
            self.ingest.deadline_changed()
        return 0

    def _continue_batches(self, bytes _subject, bytes _reply, bytes _header, bytes _payload):
        self.is_deferred = False
        self._continue_batches_now()

    def tick(self):
        """Continue batches whose receivers have read, or have waited long enough."""
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
        """Continue the batches that have waited longest, one step each, as many as fit into a
        turn.
        """
        cdef GetBatch batch
        cdef uint64_t msgs = self.replies.sent_msgs + STEP_MSGS_MAX
        cdef uint64_t size = self.replies.sent_bytes + STEP_BYTES_MAX
        cdef Py_ssize_t count = len(self.ready)
        self.work_end = self.work + STEP_WORK_MAX
        try:
            while count and self.replies.sent_msgs < msgs and self.replies.sent_bytes < size \
                    and self.work < self.work_end:
                count -= 1
                batch = self.ready.popleft()
                if batch.session is not None and (is_behind(batch.session) or self.is_full()):
                    self.crowded.append(batch)
                elif self.resume(batch):
                    (self.crowded if batch.is_crowded else self.ready).append(batch)
        finally:
            self.release()
            self.continue_later()

    def end(self):
        """Answer earlier requests and drop unfinished batches; called when the stream is
        deleted.
        """
        cdef GetBatch batch
        self.work_end = self.work + STEP_WORK_MAX
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
        """Number of batches and held requests that are not finished."""
        return len(self.ready) + len(self.crowded)


cdef void drop_requests(Buffer* queue) noexcept:
    """Release the clients whose requests were never answered."""
    cdef Request request
    while buffer_size(queue):
        read_head(queue.data + queue.begin, &request)
        queue.begin += request_size(&request.head)
        if request.head.session != NULL:
            Py_DECREF(<object>request.head.session)
