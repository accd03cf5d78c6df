"""Service imports: requests that continue in another account, and the way back for their responses.

Owns the expected responses. The module does not decide who may import what: it receives a
`ServiceImport` and the `ServiceExport` that covers it.

    I: PUB my.x _INBOX.1     ->  E: svc.x  _R_.aaaaaa.bbbbbb      (the request)
    E: PUB _R_.aaaaaa.bbbbbb ->  I: _INBOX.1                      (the answer)

Invariants
- a request or response crosses only after its delivery in the account it comes from is complete
  (`Router._carry_on`), so a walk of a routing table never meets another walk of the same table;
- nothing crosses the same import twice on one path: `is_busy` drops messages that travel in a
  circle, so the scratch buffers of a bridge hold at most one message;
- a `Response` is both in the table of its inbox and in the list of its bridge, oldest first, or in
  neither; the bridge frees it;
- every expected response is eventually removed: when it has arrived (a single one), when the empty
  message that ends a series has arrived, when no session could receive it, when the requester has
  left, when it is older than the threshold of its export, or when RESPONSES_MAX newer ones are
  expected;
- the subjects that stand for replies cannot be guessed: knowing one is permission to respond.
"""

cimport cython
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy
from tradewind.broker.session cimport Session
from tradewind.broker.state cimport is_trace_only
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size,
    write_decimal)
from tradewind.containers.table cimport (
    table_at, table_find, table_free, table_hash, table_init, table_insert, table_remove,
    table_room)

from tradewind.broker.request_info import chained_info, shared_info
from tradewind.route.sharing import SINGLETON

cdef extern from "string.h" nogil:
    void* memmem(const void* area, size_t area_size, const void* wanted, size_t wanted_size)

cdef enum:
    DRAWN_BYTES = 4096
    BUFFER_KEEP_BYTES = 65536

cdef const char* ALPHABET = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
cdef const char* FIELD = b"Nats-Request-Info:"
cdef const char* FIRST_LINE = b"NATS/1.0\r\n"
cdef const char* RTT = b',"rtt":'


cdef inline bint is_acknowledgement(const char* reply, uint32_t size) noexcept nogil:
    """Whether a reply acknowledges: acknowledgements are services of their own, whose subjects
    carry all they need.
    """
    return size > 8 and memcmp(reply, b"$JS.ACK.", 8) == 0


cdef bytes redirect(Message* message, bytes destination):
    """Rewrite a message's header so that its traces go to `destination`, or nowhere if that is
    empty. Return the new body, which must live as long as the message.
    """
    from tradewind.broker.message_trace import DISABLED, with_destination
    cdef bytes header = with_destination(message.body[:message.header_size],
                                         destination or DISABLED)
    cdef bytes body = header + message.body[message.header_size:message.total_size]
    message.body = body
    message.header_size = len(header)
    message.total_size = len(body)
    return body


cdef class Dice:
    """Generates parts of subjects that cannot be guessed."""

    def __init__(self, chance not None):
        self.chance = chance
        self.drawn = b""

    cdef int token(self, char* place) except -1:
        """Write TOKEN_BYTES letters and digits to `place`."""
        cdef uint64_t number
        cdef uint32_t index
        if self.used + 8 > len(self.drawn):
            self.drawn = self.chance.randbytes(DRAWN_BYTES)
            self.used = 0
        memcpy(&number, <const char*>self.drawn + self.used, 8)
        self.used += 8
        for index in range(TOKEN_BYTES):
            place[index] = ALPHABET[number % 62]
            number //= 62
        return 0


# ------------------------------------------------------------------ answers

cdef uint32_t carry_answer(void* target, void* router, const char* route, uint32_t route_size,
                           Message* message) except? 0xFFFFFFFF:
    return (<ResponseInbox>target).carry(<Router>router, route, route_size, message)


@cython.no_gc_clear     # bridges cleared in the same garbage cycle still remove their answers
cdef class ResponseInbox:
    """The inbox where responses to requests from other accounts arrive: one per account, created
    when needed.
    """

    def __cinit__(self):
        table_init(&self.responses, 0)

    def __init__(self, Account account not None, Dice dice not None):
        cdef char token[TOKEN_BYTES]
        self.account = account
        self.dice = dice
        dice.token(token)
        self.start = b"_R_." + token[:TOKEN_BYTES] + b"."
        self.responses.seed = account.sublist.seed
        account.attach_crossing(self.start + b">", carry_answer, self)

    def __dealloc__(self):
        table_free(&self.responses)

    cdef Response* find(self, const char* subject, uint32_t size) noexcept:
        return <Response*>table_find(
            &self.responses, table_hash(&self.responses, subject, size), subject, size)

    cdef Response* expect(self, ServiceBridge bridge, const char* reply, uint32_t size,
                        bint is_backward, bytes suffix=b"") except NULL:
        """Create a subject that stands for `reply` and ends with `suffix`."""
        cdef uint32_t start_size = <uint32_t>len(self.start)
        cdef uint32_t key_size = start_size + TOKEN_BYTES + <uint32_t>len(suffix)
        cdef Response* response = <Response*>malloc(sizeof(Response) + key_size + size)
        if response == NULL:
            raise MemoryError
        memcpy(&response.text[0], <const char*>self.start, start_size)
        memcpy(&response.text[start_size + TOKEN_BYTES], <const char*>suffix, len(suffix))
        while True:
            self.dice.token(&response.text[start_size])
            if self.find(&response.text[0], key_size) == NULL:
                break
        memcpy(&response.text[key_size], reply, size)
        response.key_size = key_size
        response.reply_size = size
        response.is_backward = is_backward
        response.is_sampled = False
        response.is_for_traces = False
        response.bridge = <void*>bridge
        response.inbox = <void*>self
        if table_insert(&self.responses,
                        table_hash(&self.responses, &response.text[0], key_size),
                        &response.text[0], key_size, response) != 0:
            free(response)
            raise MemoryError
        bridge.link(response, False)
        return response

    cdef uint32_t carry(self, Router router, const char* route, uint32_t route_size,
                        Message* message) except? 0xFFFFFFFF:
        """Deliver a response to the requester, in its account and on the subject it waits on."""
        cdef Response* response = self.find(route, route_size)
        cdef Response* back = NULL
        cdef ServiceBridge bridge
        cdef Account account
        cdef Message answer = message[0]
        cdef bint is_last
        cdef uint32_t delivered = 0
        cdef const Message* bare = router.bare
        cdef object trace = router.trace
        cdef bytes _body            # keeps the rewritten message alive until it is delivered
        cdef bint was_answering = router.is_answering
        cdef int64_t arrived_ns = 0
        if response == NULL:
            return 0
        bridge = <ServiceBridge>response.bridge
        if bridge.is_busy:
            return 0
        if response.is_sampled:
            arrived_ns = bridge.clock()
        account = bridge.exporter if response.is_backward else bridge.importer
        is_last = not response.is_for_traces and (
            bridge.is_single or message.total_size == 0)
        if route == message.subject:
            answer.subject = &response.text[response.key_size]
            answer.subject_size = response.reply_size
        bridge.is_busy = True
        try:
            bridge.unlink(response)
            bridge.link(response, message.origin == NULL)
            if message.reply_size and not is_trace_only(message) \
                    and not is_acknowledgement(message.reply, message.reply_size):
                back = bridge.other_inbox(self).expect(
                    bridge, message.reply, message.reply_size, not response.is_backward)
                answer.reply = &back.text[0]
                answer.reply_size = back.key_size
            router.bare = NULL
            if trace is not None:
                trace.imported(account.name, route[:route_size],
                               (&response.text[response.key_size])[:response.reply_size])
                if trace.only:
                    return 0
                if trace.is_told:
                    router.trace = None
                    _body = redirect(&answer, b"")
            router.is_answering = True
            delivered = router.publish_as(
                account, &response.text[response.key_size], response.reply_size, &answer)
        finally:
            router.is_answering = was_answering
            router.bare = bare
            router.trace = trace
            bridge.is_busy = False
            if (is_last or delivered == 0) and not is_trace_only(message):
                if response.is_sampled:
                    if delivered == 0:
                        bridge._failed(response, 408)
                    else:
                        bridge._answered(response, message, arrived_ns)
                bridge.forget(response)
                if delivered == 0 and back != NULL:
                    bridge.forget(back)
        return delivered

    def waiting(self, uint32_t limit):
        """Return subject -> (reply, ServiceBridge) for up to `limit` responses, as monitoring shows
        them.
        """
        cdef uint32_t index
        cdef Response* response
        result = {}
        for index in range(table_room(&self.responses)):
            response = <Response*>table_at(&self.responses, index)
            if len(result) == limit:
                break
            if response != NULL:
                key = response.text[:response.key_size].decode("ascii")
                reply = (&response.text[response.key_size])[:response.reply_size]
                result[key] = (reply.decode("utf-8", "replace"), <ServiceBridge>response.bridge)
        return result


# ------------------------------------------------------------------ requests

cdef uint32_t carry_request(void* target, void* router, const char* route, uint32_t route_size,
                            Message* message) except? 0xFFFFFFFF:
    return (<ServiceBridge>target).carry(<Router>router, route, route_size, message)


@cython.no_gc_clear     # __dealloc__ needs the inboxes
cdef class ServiceBridge:
    """One service import, active from `start` to `close`."""

    def __cinit__(self):
        buffer_init(&self.subject)
        buffer_init(&self.body)

    def __init__(self, bridges not None, uint64_t number, Account importer not None,
                 Account exporter not None, wanted, offered, Translator translator):
        self.bridges = bridges
        self.number = number
        self.importer = importer
        self.exporter = exporter
        self.wanted = wanted
        self.translator = translator
        self.info_start, self.info_end = bridges.request_info(importer, exporter)
        self.turn = bridges.router.turn
        self.clock = bridges.clock.monotonic_ns
        # A client that sends a request has set the time of the turn.
        self.turn.monotonic_clock = self.clock
        self.offer(offered)

    def __dealloc__(self):
        while self.oldest != NULL:
            self.forget(self.oldest)
        buffer_free(&self.subject)
        buffer_free(&self.body)

    def offer(self, offered not None):
        """Apply the export's rules for responses."""
        self.offered = offered
        self.is_single = offered.response_type == SINGLETON
        self.threshold_ns = offered.response_threshold_ns
        self.meter = None if offered.latency is None else self.bridges.meter_of(self)
        if self.meter is None or self.samples is None:
            self.samples = {}

    def start(self, bytes local not None):
        """Start accepting requests."""
        self.token = self.importer.attach_crossing(local, carry_request, self)

    def close(self):
        """Stop accepting requests and expecting responses."""
        if self.token:
            self.importer.unsubscribe(self.token)
            self.token = 0
        while self.oldest != NULL:
            self.forget(self.oldest)

    cdef ResponseInbox other_inbox(self, ResponseInbox inbox):
        """The inbox where responses to a response at `inbox` arrive."""
        if inbox is not self.inbox:
            return self.inbox
        if self.back_inbox is None:
            self.back_inbox = self.bridges.inbox_of(self.importer)
        return self.back_inbox

    cdef uint32_t carry(self, Router router, const char* route, uint32_t route_size,
                        Message* message) except? 0xFFFFFFFF:
        """Publish a request in the exporter, with a reply subject that leads back."""
        cdef Message request = message[0]
        cdef Message bare
        cdef const Message* bare_before = router.bare
        cdef Response* response = NULL
        cdef bytes mapped           # keeps the mapped subject alive until delivery ends
        cdef bytes local = b"" if router.trace is None else route[:route_size]
        cdef object trace = router.trace
        cdef tuple _kept            # keeps rewritten messages alive in the same way
        cdef bint is_shown = route == message.subject
        cdef uint32_t delivered = 0
        cdef object sample = None
        cdef object hops = None if trace is None else trace.hops
        if self.is_busy:
            return 0
        self.is_busy = True
        try:
            if self.translator is not None:
                if self.translator.apply(route, route_size, &self.subject) != 0:
                    raise MemoryError
                route = self.subject.data + self.subject.begin
                route_size = <uint32_t>buffer_size(&self.subject)
            mapped = self.exporter.meaning_of(route, route_size)
            if mapped is not None:
                route = mapped
                route_size = <uint32_t>len(mapped)
            if is_shown:
                request.subject = route
                request.subject_size = route_size
            if self.meter is not None and not is_trace_only(message):
                sample = self._take_sample(router, message)
            if message.reply_size and not is_trace_only(message) \
                    and not is_acknowledgement(message.reply, message.reply_size):
                response = self._await_answer(&request, sample)
            bare = request
            if bare_before != NULL:
                bare.body = bare_before.body
                bare.header_size = bare_before.header_size
                bare.total_size = bare_before.total_size
            self._inform(router, &request)
            router.bare = &bare
            if trace is not None:
                _kept = self._pass_trace(router, local, &request, &bare)
                if _kept is None:
                    return 0
            delivered = router.publish_as(self.exporter, route, route_size, &request)
        finally:
            router.bare = bare_before
            router.trace = trace
            self.is_busy = False
            if self.stand_in is not None:
                self._end_stand_in(trace.hops > hops)
            if response != NULL and delivered == 0:
                self._failed(response, 503)
                self.forget(response)
            if sample is not None and message.reply_size == 0:
                self.meter.failed(sample, 400)
            if self.body.capacity > BUFFER_KEEP_BYTES:
                buffer_free(&self.body)
        return delivered

    cdef Response* _await_answer(self, Message* request, object sample) except NULL:
        """Replace the reply of a request by a subject that leads back to it."""
        cdef Response* response = self._inbox().expect(
            self, request.reply, request.reply_size, False,
            b"" if sample is None else self.meter.suffix)
        if sample is not None:
            response.is_sampled = True
            self.samples[response.text[:response.key_size]] = sample
        request.reply = &response.text[0]
        request.reply_size = response.key_size
        return response

    cdef ResponseInbox _inbox(self):
        """The inbox where responses arrive; arms the deadline that ends the wait for them."""
        if self.inbox is None:
            self.inbox = self.bridges.inbox_of(self.exporter)
        if not self.is_armed:
            self._arm()
        return self.inbox

    cdef tuple _pass_trace(self, Router router, bytes local, Message* request, Message* bare):
        """Record the crossing in the request's trace, and let the exporter see no more of the trace
        than is permitted. Return the objects that must stay alive until the request is delivered,
        or None if the request ends here.
        """
        cdef object trace = router.trace
        trace.imported(self.exporter.name, local, request.subject[:request.subject_size])
        if not trace.is_told:
            return ()
        if not self.offered.allow_trace:
            if trace.only:
                return None
            router.trace = None
            return redirect(request, b""), redirect(bare, b"")
        return redirect(request, self._stand_in(request, trace)),

    cdef bytes _stand_in(self, Message* request, object trace):
        """A subject that replaces the trace's destination for the exporter; messages that other
        servers send there are forwarded to the destination.
        """
        cdef bytes destination = trace.destination_in(request.body[:request.header_size])
        cdef Response* response = self._inbox().expect(
            self, destination, <uint32_t>len(destination), False)
        response.is_for_traces = True
        self.stand_in = response.text[:response.key_size]
        return self.stand_in

    cdef int _end_stand_in(self, bint is_needed) except -1:
        """Called once the request is delivered: unless it went on to another server, no trace will
        arrive.
        """
        cdef bytes subject = self.stand_in
        cdef Response* response = self.inbox.find(subject, <uint32_t>len(subject))
        self.stand_in = None
        if response != NULL and not is_needed:
            self.forget(response)
        return 0

    cdef object _take_sample(self, Router router, Message* message):
        """Start a latency sample for a request; None if it is not measured."""
        return self.meter.sample(
            message.body[:message.header_size],
            None if message.origin == NULL else <Session>message.origin.session,
            is_chained=router.depth > 1, is_shared=self.wanted.share)

    cdef object _sample_of(self, Response* response):
        """Take the sample of a response; None if it is not, or no longer, measured."""
        if not response.is_sampled:
            return None
        response.is_sampled = False
        return self.samples.pop(response.text[:response.key_size], None)

    cdef int _answered(self, Response* response, Message* message, int64_t arrived_ns) except -1:
        cdef object sample = self._sample_of(response)
        if sample is not None:
            self.meter.answered(
                sample, arrived_ns,
                None if message.origin == NULL else <Session>message.origin.session)
        return 0

    cdef int _failed(self, Response* response, int status) except -1:
        """Record that there will be no response."""
        cdef object sample = self._sample_of(response)
        if sample is not None:
            self.meter.failed(sample, status)
        return 0

    cdef int _inform(self, Router router, Message* message) except -1:
        """Add the header field that identifies the requester, replacing any that came with the
        message.
        """
        cdef char digits[20]
        cdef const char* at = message.body
        cdef const char* end = message.body + message.header_size
        cdef const char* found
        cdef const char* line_end
        cdef size_t header_size
        cdef Buffer* body = &self.body
        cdef bytes info = self._info(router, message)
        buffer_clear(body)
        if buffer_reserve(body, message.total_size + len(info) + len(self.info_end) + 64) != 0:
            raise MemoryError
        if message.header_size < 12:
            buffer_append(body, FIRST_LINE, 10)
        else:
            if memcmp(end - 2, b"\r\n", 2) == 0:
                end -= 2
            while True:
                found = <const char*>memmem(at, end - at, FIELD, 18)
                if found == NULL:
                    break
                line_end = <const char*>memmem(found, end - found, b"\r\n", 2)
                line_end = end if line_end == NULL else line_end + 2
                if found > message.body and (found - 1)[0] == 10:
                    buffer_append(body, at, found - at)
                else:
                    buffer_append(body, at, line_end - at)
                at = line_end
            buffer_append(body, at, end - at)
            if (body.data + body.end - 1)[0] != 10:
                buffer_append(body, b"\r\n", 2)
        buffer_append(body, info, len(info))
        if info is self.info_start:
            if message.origin != NULL:
                buffer_append(body, RTT, 7)
                buffer_append(body, digits, write_decimal(digits, self._rtt(message)))
            buffer_append(body, self.info_end, len(self.info_end))
        if buffer_append(body, b"\r\n\r\n", 4) != 0:
            raise MemoryError
        header_size = buffer_size(body)
        if buffer_append(body, message.body + message.header_size,
                         message.total_size - message.header_size) != 0:
            raise MemoryError
        message.body = body.data + body.begin
        message.header_size = header_size
        message.total_size = buffer_size(body)
        return 0

    cdef uint64_t _rtt(self, Message* message) except? 0:
        return <uint64_t>max((<Session>message.origin.session).rtt_ns, 0)

    cdef bytes _info(self, Router router, Message* message):
        """The header field: complete, or `info_start`, which lacks the round-trip time."""
        cdef Session session
        if router.depth > 1:
            return chained_info(message.body[:message.header_size], self.importer.name,
                                self.bridges.server_name if self.wanted.share else "")
        if not self.wanted.share or message.origin == NULL:
            return self.info_start
        session = <Session>message.origin.session
        if session.request_info is None or session.request_info[0] != session.rtt_ns:
            session.request_info = (
                session.rtt_ns, shared_info(session, self.bridges.server_name))
        return session.request_info[1]

    # -------------------------------------------------------------- expected answers

    cdef void link(self, Response* response, bint is_own) noexcept:
        """Append as the newest response, dropping the oldest above the limit. `is_own`: caused by a
        message of the server itself, which may arrive long after a client last set the turn's
        clock.
        """
        response.since_ns = self.clock() if is_own else self.turn.monotonic_ns
        response.older = self.newest
        response.newer = NULL
        if self.newest == NULL:
            self.oldest = response
        else:
            self.newest.newer = response
        self.newest = response
        self.pending += 1
        if self.pending > RESPONSES_MAX:
            self.forget(self.oldest)

    cdef void unlink(self, Response* response) noexcept:
        if response.older == NULL:
            self.oldest = response.newer
        else:
            response.older.newer = response.newer
        if response.newer == NULL:
            self.newest = response.older
        else:
            response.newer.older = response.older
        self.pending -= 1

    cdef void forget(self, Response* response) noexcept:
        """Stop expecting a response and free it."""
        cdef Table* table = &(<ResponseInbox>response.inbox).responses
        if response.is_sampled:
            self.samples.pop(response.text[:response.key_size], None)
        table_remove(table, table_hash(table, &response.text[0], response.key_size),
                     &response.text[0], response.key_size)
        self.unlink(response)
        free(response)

    cdef int _arm(self) except -1:
        self.is_armed = True
        self.bridges.due_at(self.clock() + self.threshold_ns, self.number)
        return 0

    def expire(self, int64_t now_ns):
        """Drop responses older than the threshold, at most LOOKED_AT_PER_STEP per call."""
        cdef uint32_t count = 0
        self.is_armed = False
        while self.oldest != NULL and self.oldest.since_ns + self.threshold_ns <= now_ns \
                and count < LOOKED_AT_PER_STEP:
            self._failed(self.oldest, 504)
            self.forget(self.oldest)
            count += 1
        if self.oldest != NULL:
            self.is_armed = True
            self.bridges.due_at(
                max(self.oldest.since_ns + self.threshold_ns, now_ns), self.number)

    def sweep(self, uint32_t skip):
        """Drop responses without a possible receiver, skipping the `skip` oldest. Return how many
        to skip next time, or None once all have been checked.
        """
        cdef Response* response = self.oldest
        cdef Response* following
        cdef Account account
        cdef uint32_t passed = 0, count = 0
        while response != NULL and passed < skip:
            response = response.newer
            passed += 1
        while response != NULL and count < LOOKED_AT_PER_STEP:
            following = response.newer
            account = self.exporter if response.is_backward else self.importer
            if account.sublist.matches_any(&response.text[response.key_size],
                                           response.reply_size):
                skip += 1
            else:
                self._failed(response, 408)
                self.forget(response)
            response = following
            count += 1
        return None if response == NULL else skip
