"""Service imports: requests that go on in another account, and the way back of their answers.

Owns the answers that are waited for. It makes no decision about who may import what: it is given a
`ServiceImport` and the `ServiceExport` that covers it.

    I: PUB my.x _INBOX.1     ->  E: svc.x  _R_.aaaaaa.bbbbbb      (the request)
    E: PUB _R_.aaaaaa.bbbbbb ->  I: _INBOX.1                      (the answer)

Invariants
- a request and its answers cross when the delivery in the account that they come from is over
  (`Router._carry_on`), so the walk of a routing table never meets another one of the same table;
- nothing crosses the same import twice on one way: `is_busy` drops what comes in a circle, and
  keeps the scratch buffers of a bridge to one message;
- a `Response` is in the table of its desk and in the list of its bridge, oldest first, or in
  neither; the bridge frees it;
- every answer that is waited for goes: when it has come (a single one), when it was the empty
  message that ends a series, when nobody could get it, when the one who asked is gone, when it is
  older than the threshold of its export, or when RESPONSES_MAX newer ones wait;
- subjects that stand for replies cannot be guessed: whoever knows one may answer.
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
    table_find, table_free, table_hash, table_init, table_insert, table_remove)

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


cdef inline bint is_acknowledgement(const char* reply, uint32_t size) noexcept nogil:
    """Acknowledgements are services of their own: their subjects say all."""
    return size > 8 and memcmp(reply, b"$JS.ACK.", 8) == 0


cdef class Dice:
    """Makes parts of subjects that nobody can guess."""

    def __init__(self, chance not None):
        self.chance = chance
        self.drawn = b""

    cdef int token(self, char* place) except -1:
        """Write TOKEN_BYTES letters and digits."""
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
    return (<ResponseDesk>target).carry(<Router>router, route, route_size, message)


@cython.no_gc_clear     # bridges that are taken apart with it still remove their answers
cdef class ResponseDesk:
    """Where answers to what came from other accounts arrive: one per account, made when needed."""

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
                        bint is_backward) except NULL:
        """A new subject that stands for `reply`."""
        cdef uint32_t start_size = <uint32_t>len(self.start)
        cdef uint32_t key_size = start_size + TOKEN_BYTES
        cdef Response* response = <Response*>malloc(sizeof(Response) + key_size + size)
        if response == NULL:
            raise MemoryError
        memcpy(&response.text[0], <const char*>self.start, start_size)
        while True:
            self.dice.token(&response.text[start_size])
            if self.find(&response.text[0], key_size) == NULL:
                break
        memcpy(&response.text[key_size], reply, size)
        response.key_size = key_size
        response.reply_size = size
        response.is_backward = is_backward
        response.bridge = <void*>bridge
        response.desk = <void*>self
        if table_insert(&self.responses,
                        table_hash(&self.responses, &response.text[0], key_size),
                        &response.text[0], key_size, response) != 0:
            free(response)
            raise MemoryError
        bridge.link(response, False)
        return response

    cdef uint32_t carry(self, Router router, const char* route, uint32_t route_size,
                        Message* message) except? 0xFFFFFFFF:
        """Give an answer to whoever asked, in the account and on the subject that it waits on."""
        cdef Response* response = self.find(route, route_size)
        cdef Response* back = NULL
        cdef ServiceBridge bridge
        cdef Account account
        cdef Message answer = message[0]
        cdef bint is_last
        cdef uint32_t delivered = 0
        cdef const Message* bare = router.bare
        if response == NULL:
            return 0
        bridge = <ServiceBridge>response.bridge
        if bridge.is_busy:
            return 0
        account = bridge.exporter if response.is_backward else bridge.importer
        is_last = bridge.is_single or message.total_size == 0
        if route == message.subject:
            answer.subject = &response.text[response.key_size]
            answer.subject_size = response.reply_size
        bridge.is_busy = True
        try:
            bridge.unlink(response)
            bridge.link(response, message.origin == NULL)
            if message.reply_size and not is_trace_only(message) \
                    and not is_acknowledgement(message.reply, message.reply_size):
                back = bridge.other_desk(self).expect(
                    bridge, message.reply, message.reply_size, not response.is_backward)
                answer.reply = &back.text[0]
                answer.reply_size = back.key_size
            router.bare = NULL
            delivered = router.publish_as(
                account, &response.text[response.key_size], response.reply_size, &answer)
        finally:
            router.bare = bare
            bridge.is_busy = False
            if (is_last or delivered == 0) and not is_trace_only(message):
                bridge.forget(response)
                if delivered == 0 and back != NULL:
                    bridge.forget(back)
        return delivered

    def waiting(self, uint32_t limit):
        """subject -> (reply, ServiceBridge) of some of them, as monitoring shows them."""
        cdef uint32_t index
        cdef Response* response
        result = {}
        for index in range(self.responses.capacity):
            response = <Response*>self.responses.slots[index].value
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


@cython.no_gc_clear     # __dealloc__ needs the desks
cdef class ServiceBridge:
    """One import of a service, from `start` to `close`."""

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
        # Clients that bring a request bring the time.
        self.turn.monotonic_clock = self.clock
        self.offer(offered)

    def __dealloc__(self):
        while self.oldest != NULL:
            self.forget(self.oldest)
        buffer_free(&self.subject)
        buffer_free(&self.body)

    def offer(self, offered not None):
        """Take over what the export says of answers."""
        self.offered = offered
        self.is_single = offered.response_type == SINGLETON
        self.threshold_ns = offered.response_threshold_ns

    def start(self, bytes local not None):
        """Take requests from now on."""
        self.token = self.importer.attach_crossing(local, carry_request, self)

    def close(self):
        """Take no more of them, and wait for no answers."""
        if self.token:
            self.importer.unsubscribe(self.token)
            self.token = 0
        while self.oldest != NULL:
            self.forget(self.oldest)

    cdef ResponseDesk other_desk(self, ResponseDesk desk):
        """Where answers to an answer at `desk` arrive."""
        if desk is not self.desk:
            return self.desk
        if self.back_desk is None:
            self.back_desk = self.bridges.desk_of(self.importer)
        return self.back_desk

    cdef uint32_t carry(self, Router router, const char* route, uint32_t route_size,
                        Message* message) except? 0xFFFFFFFF:
        """Publish a request in the exporter, with a reply that leads back."""
        cdef Message request = message[0]
        cdef Message bare
        cdef const Message* bare_before = router.bare
        cdef Response* response = NULL
        cdef bytes mapped           # keeps the subject that it becomes, until it is delivered
        cdef bint is_shown = route == message.subject
        cdef uint32_t delivered = 0
        if self.is_busy:
            return 0
        self.is_busy = True
        try:
            if self.translator is not None:
                if self.translator.apply(route, route_size, &self.subject) != 0:
                    raise MemoryError
                route = self.subject.data + self.subject.begin
                route_size = <uint32_t>buffer_size(&self.subject)
            if self.exporter.mappings is not None:
                mapped = self.exporter.mappings.map(route[:route_size])
                route = mapped
                route_size = <uint32_t>len(mapped)
            if is_shown:
                request.subject = route
                request.subject_size = route_size
            if message.reply_size and not is_trace_only(message) \
                    and not is_acknowledgement(message.reply, message.reply_size):
                if self.desk is None:
                    self.desk = self.bridges.desk_of(self.exporter)
                if not self.is_armed:
                    self._arm()
                response = self.desk.expect(self, message.reply, message.reply_size, False)
                request.reply = &response.text[0]
                request.reply_size = response.key_size
            bare = request
            if bare_before != NULL:
                bare.body = bare_before.body
                bare.header_size = bare_before.header_size
                bare.total_size = bare_before.total_size
            self._inform(router, &request)
            router.bare = &bare
            delivered = router.publish_as(self.exporter, route, route_size, &request)
        finally:
            router.bare = bare_before
            self.is_busy = False
            if response != NULL and delivered == 0:
                self.forget(response)
            if self.body.capacity > BUFFER_KEEP_BYTES:
                buffer_free(&self.body)
        return delivered

    cdef int _inform(self, Router router, Message* message) except -1:
        """Add the header field that tells who asks, in place of any that came with the message."""
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
        return 0 if message.origin == NULL else <uint64_t>max(
            (<Session>message.origin.session).rtt_ns, 0)

    cdef bytes _info(self, Router router, Message* message):
        """The header field; all of it, or `info_start`, which lacks the round trip time."""
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

    # -------------------------------------------------------------- answers that are waited for

    cdef void link(self, Response* response, bint is_own) noexcept:
        """It is the newest; the oldest goes if there are too many. `is_own`: because of a message
        of the server itself, which may come long after the last one of a client.
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
        """Nobody waits for it any more."""
        cdef Table* table = &(<ResponseDesk>response.desk).responses
        table_remove(table, table_hash(table, &response.text[0], response.key_size),
                     &response.text[0], response.key_size)
        self.unlink(response)
        free(response)

    cdef int _arm(self) except -1:
        self.is_armed = True
        self.bridges.due_at(self.clock() + self.threshold_ns, self.number)
        return 0

    def expire(self, int64_t now_ns):
        """Give up what is older than the threshold, as much as fits into a turn."""
        cdef uint32_t count = 0
        self.is_armed = False
        while self.oldest != NULL and self.oldest.since_ns + self.threshold_ns <= now_ns \
                and count < LOOKED_AT_PER_STEP:
            self.forget(self.oldest)
            count += 1
        if self.oldest != NULL:
            self.is_armed = True
            self.bridges.due_at(
                max(self.oldest.since_ns + self.threshold_ns, now_ns), self.number)

    def sweep(self, uint32_t skip):
        """Give up answers that nobody would get, from the one after the oldest `skip` on; gives
        how many are to be skipped the next time, None when all have been looked at.
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
                self.forget(response)
            response = following
            count += 1
        return None if response == NULL else skip
