"""The acknowledgement state: which messages are delivered and not acknowledged, and which are due
again.

Owns the sequences delivered, the ack floor, the pending messages with their deadlines, the queue of
redeliveries and the number of redeliveries of each message. It sends nothing and reads no message;
times are passed in, all of one clock.

Pending messages lie in an array ordered by stream sequence: they are added at its end, and mostly
acknowledged from its front. Deadlines lie in a binary heap, redeliveries in a queue. Neither is
searched when a message is acknowledged: an item there is outdated once its message no longer refers
to it, and is skipped when it comes up.

Rules of the floor: the ack of a message counts for the consumer sequence of its first delivery.
When nothing is pending, the floor equals what was delivered; when the message right after the floor
is acknowledged, the floor moves to just before the next pending one.

With order per key, a message whose key is busy is *parked*: it counts as pending, also in the saved
state, so that any server delivers it after a restart; its consumer sequence is 0 until it is sent.
The floor of the stream is then just before the first pending message, that of the consumer at most
just before the lowest pending number, which is looked for after as many changes as are pending.
"""

from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove
from tradewind cimport invariants
from tradewind.consumer.ordered_keys cimport (
    KEY_HASH_MIN, KEY_UNKNOWN, NONE, UNORDERED, add_keyed, clear_ordered_keys, free_ordered_keys,
    is_mostly_empty, key_is_free, new_ordered_keys, rebuilt_keys, remove_keyed, reserve_keyed,
    start_keyed)
from tradewind.saturated cimport later
from tradewind.seconds cimport SECOND_NS

from tradewind.store.format.consumer_file import ConsumerState, PendingDelivery, SequencePair

cdef enum:
    ENTRIES_MIN = 16
    # A message is due so much after the wait for its ack, as in nats-server: a client that measures
    # from its arrival must not find the wait too short.
    WAIT_SLACK_NS = 1000000
    # Outdated items allowed in the heap before it is rebuilt.
    HEAP_SLACK = 64
    # At least this many changes are noted, and as many as messages are pending.
    CHANGES_MIN = 1024
    # Deliveries of a message whose times are kept; after that the last one is overwritten.
    ATTEMPTS_MAX = 32
    # Messages that become due again at once; some 250 ns each.
    EXPIRED_AT_ONCE_MAX = 20_000

RULES = {"none": ACK_NONE, "all": ACK_ALL, "explicit": ACK_EXPLICIT, "flow_control": ACK_ALL}


cdef inline bint is_sooner(const Due* one, const Due* other) noexcept nogil:
    """Whether a message is due before another: if at the same time, in stream order."""
    return one.due_ns < other.due_ns or (one.due_ns == other.due_ns and one.seq < other.seq)


cdef inline bint was_sent(const PendingEntry* entry) noexcept nogil:
    """Whether a message was delivered at least once."""
    return entry.resting != PARKED or entry.consumer_seq != 0


cdef class AckState:
    """The acknowledgements of one consumer; `rule` is the name of an ack policy."""

    def __cinit__(self):
        self.redelivered = {}
        self.exceeded = []
        self.changed_all = True

    def __init__(self, str rule not None, int64_t ack_wait_ns=0, backoff_ns=(),
                 uint64_t max_deliver=0, uint64_t start_seq=1):
        self.rule = RULES[rule]
        self.configure(ack_wait_ns, backoff_ns, max_deliver)
        self.delivered_stream = self.floor_stream = start_seq - 1 if start_seq else 0

    def __dealloc__(self):
        free(self.entries)
        free(self.heap)
        free(self.queue)
        free(self.backoff)
        free(self.released)
        free(self.changed)
        free(self.places)
        free_ordered_keys(self.keys)

    def configure(self, int64_t ack_wait_ns, backoff_ns, uint64_t max_deliver):
        """Set how long to wait for an ack and how often to deliver; applies to pending messages
        too.
        """
        cdef uint32_t index
        cdef int64_t* backoff = <int64_t*>malloc(max(len(backoff_ns), 1) * sizeof(int64_t))
        if backoff == NULL:
            raise MemoryError
        for index in range(<uint32_t>len(backoff_ns)):
            backoff[index] = backoff_ns[index]
        free(self.backoff)
        self.backoff = backoff
        self.backoff_ns = tuple(backoff_ns)
        self.backoff_count = <uint32_t>len(backoff_ns)
        self.ack_wait_ns = ack_wait_ns
        self.max_deliver = max_deliver
        for index in range(self.begin, self.end):
            if self.entries[index].live and self.entries[index].ticket == 0 \
                    and not self.entries[index].resting:
                self._schedule(&self.entries[index])

    # -------------------------------------------------------------- what has changed

    cdef void _note(self, uint64_t seq) noexcept nogil:
        """Note that the saved state of this message is outdated."""
        cdef uint32_t capacity
        cdef uint64_t* changed
        if self.changed_all \
                or self.changed_count and self.changed[self.changed_count - 1] == seq:
            return
        if self.changed_count >= max(self.count, <uint32_t>CHANGES_MIN):
            self._note_all()    # saving everything costs no more
            return
        if self.changed_count == self.changed_capacity:
            capacity = max(self.changed_capacity * 2, <uint32_t>ENTRIES_MIN)
            changed = <uint64_t*>realloc(self.changed, capacity * sizeof(uint64_t))
            if changed == NULL:
                self._note_all()
                return
            self.changed = changed
            self.changed_capacity = capacity
        self.changed[self.changed_count] = seq
        self.changed_count += 1

    cdef void _note_all(self) noexcept nogil:
        """Note that the whole saved state is outdated."""
        self.changed_all = True
        self.changed_count = 0

    # -------------------------------------------------------------- the array

    cdef uint32_t _position(self, uint64_t seq) noexcept nogil:
        """Find the first entry at or after a sequence."""
        cdef uint32_t low = self.begin, high = self.end, middle
        cdef uint64_t guess
        if low == high or seq <= self.entries[low].seq:
            return low
        # Without gaps, the distance between sequences is the distance in the array.
        guess = seq - self.entries[low].seq
        if guess < high - low and self.entries[low + guess].seq == seq:
            return low + <uint32_t>guess
        while low < high:
            middle = low + (high - low) // 2
            if self.entries[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int64_t _find(self, uint64_t seq) noexcept nogil:
        """The live entry of a sequence, or -1."""
        cdef uint32_t index = self._position(seq)
        if index < self.end and self.entries[index].seq == seq and self.entries[index].live:
            return index
        return -1

    cdef bint is_pending(self, uint64_t seq) noexcept nogil:
        return self._find(seq) >= 0

    cdef int _make_room(self) except -1:
        """Make room for one more entry: by closing gaps if that yields much, otherwise by growing.
        """
        cdef PendingEntry* entries
        cdef uint32_t* places
        cdef uint32_t index, target = 0, capacity
        if self.end < self.capacity:
            return 0
        if self.count > self.capacity // 2 or self.capacity == 0:
            capacity = max(self.capacity * 2, <uint32_t>ENTRIES_MIN)
            entries = <PendingEntry*>realloc(self.entries, capacity * sizeof(PendingEntry))
            if entries == NULL:
                raise MemoryError
            self.entries = entries
            if self.keys != NULL:
                places = <uint32_t*>realloc(self.places, capacity * sizeof(uint32_t))
                if places == NULL:
                    raise MemoryError
                self.places = places
            self.capacity = capacity
        for index in range(self.begin, self.end):
            if self.entries[index].live:
                self.entries[target] = self.entries[index]
                if self.keys != NULL:
                    self.places[target] = self.places[index]
                target += 1
        self.begin = 0
        self.end = target
        return 0

    cdef PendingEntry* _add(self, uint64_t seq, uint64_t key=KEY_UNKNOWN,
                            bint parked=False) except NULL:
        """Add a live entry for a sequence that has none; `key` is the hash of its key."""
        cdef uint32_t index
        cdef PendingEntry* entry
        self._make_room()
        if self.keys != NULL and reserve_keyed(self.keys) != 0:
            raise MemoryError
        index = self._position(seq)
        if index == self.end or self.entries[index].seq != seq:
            if index < self.end:
                memmove(&self.entries[index + 1], &self.entries[index],
                        (self.end - index) * sizeof(PendingEntry))
                if self.keys != NULL:
                    memmove(&self.places[index + 1], &self.places[index],
                            (self.end - index) * sizeof(uint32_t))
            self.end += 1
        if self.keys != NULL:
            self.places[index] = add_keyed(self.keys, key, seq, parked)
            if key == KEY_UNKNOWN and (self.unknown_from == 0 or seq < self.unknown_from):
                self.unknown_from = seq
        entry = &self.entries[index]
        entry.seq = seq
        entry.due_ns = 0
        entry.ticket = 0
        entry.live = 1
        entry.exact = 0
        entry.resting = 0
        self.count += 1
        return entry

    cdef void _kill(self, uint32_t index) noexcept nogil:
        """Remove a message from the pending ones."""
        self._note(self.entries[index].seq)
        self._unqueue(&self.entries[index])
        if self.keys != NULL:
            self._leave_key(index)
        self.entries[index].live = 0
        self.count -= 1
        if self.count == 0:
            self.begin = self.end = 0
            self.heap_count = 0
            self.queue_begin = self.queue_end = 0
            return
        while not self.entries[self.begin].live:
            self.begin += 1

    cdef void _move_floor(self, uint64_t consumer_seq, uint64_t seq) noexcept:
        """Update the floor after a pending message is gone; see the rules above."""
        cdef uint32_t index
        if self.count == 0:
            self.floor_consumer = self.delivered_consumer
            self.floor_stream = self.delivered_stream
            return
        if self.keys != NULL:
            self.floor_stream = max(self.floor_stream, self.entries[self.begin].seq - 1)
            self.floor_age += 1
            if self.floor_age * 2 > self.count:
                self.settle_floor()
            return
        if consumer_seq != self.floor_consumer + 1:
            return
        self.floor_consumer = consumer_seq
        self.floor_stream = seq
        for index in range(self._position(seq + 1), self.end):
            if self.entries[index].live:
                if self.entries[index].consumer_seq:
                    self.floor_consumer = self.entries[index].consumer_seq - 1
                    self.floor_stream = self.entries[index].seq - 1
                return

    # -------------------------------------------------------------- order per key

    def order_keys(self, uint32_t limit, uint64_t seed):
        """Keep order per key from now on, with at most `limit` messages of a key in flight; called
        before anything is delivered, or to change the limit.
        """
        if self.keys != NULL:
            self.keys.limit = limit
            self._rebuild_keys()
        else:
            assert self.capacity == 0, "order per key begins before the first delivery"
            self.keys = new_ordered_keys(limit, seed)
            if self.keys == NULL:
                raise MemoryError

    cdef int park(self, uint64_t seq, uint64_t key, int64_t now_ns) except -1:
        """Pass a message whose key is busy, and have it wait for that."""
        cdef PendingEntry* entry = self._add(seq, key, True)
        entry.consumer_seq = 0
        entry.time_ns = now_ns
        entry.resting = PARKED
        self.parked_count += 1
        self.delivered_stream = max(self.delivered_stream, seq)
        self._note(seq)
        return 0

    cdef void _leave_key(self, uint32_t index) noexcept nogil:
        """Remove an entry that ends from its key."""
        cdef uint32_t place = self.places[index]
        if self.entries[index].resting == PARKED:
            self.parked_count -= 1
        if place != NONE and place != UNORDERED:
            remove_keyed(self.keys, place)
        self.places[index] = NONE
        if self.count == 1:
            clear_ordered_keys(self.keys)
            self.unknown_from = 0

    cdef uint64_t unknown_seq(self) noexcept nogil:
        """The first pending message whose key is unknown; 0 if all are known."""
        cdef uint32_t index
        if self.unknown_from == 0:
            return 0
        for index in range(self._position(self.unknown_from), self.end):
            if self.entries[index].live and self.places[index] == NONE:
                self.unknown_from = self.entries[index].seq
                return self.unknown_from
        self.unknown_from = 0
        return 0

    cdef int set_key(self, uint64_t seq, uint64_t key) except -1:
        """Set the key of a pending message. One beyond the limit, sent before a restart, is parked.
        """
        cdef int64_t index = self._find(seq)
        cdef PendingEntry* entry = &self.entries[index]
        cdef bint is_parked = entry.resting == PARKED
        if not is_parked and not entry.resting and entry.ticket == 0 \
                and not key_is_free(self.keys, key) \
                and not 0 < self.max_deliver <= self.deliveries(seq):
            is_parked = True
            entry.resting = PARKED
            entry.due_ns = 0
            self.parked_count += 1
        if reserve_keyed(self.keys) != 0:
            raise MemoryError
        if is_parked:
            key = max(key, <uint64_t>KEY_HASH_MIN)
        self.places[index] = add_keyed(self.keys, key, seq, is_parked)
        return 0

    cdef int _rebuild_keys(self) except -1:
        cdef OrderedKeys* keys = rebuilt_keys(self.keys, self.places, self.begin, self.end)
        if keys == NULL:
            raise MemoryError
        free_ordered_keys(self.keys)
        self.keys = keys
        return 0

    cpdef void settle_floor(self) noexcept:
        """Make the floor of an ordered consumer exact; it may lag behind what is acknowledged."""
        cdef uint32_t index
        cdef uint64_t lowest = self.delivered_consumer + 1
        if self.floor_age == 0:
            return
        for index in range(self.begin, self.end):
            if self.entries[index].live and self.entries[index].consumer_seq:
                lowest = min(lowest, self.entries[index].consumer_seq)
        self.floor_consumer = max(self.floor_consumer, lowest - 1)
        self.floor_age = 0

    # -------------------------------------------------------------- deadlines

    cdef int64_t _wait_ns(self, uint64_t seq) except -1:
        """How long to wait for the ack of a message after its latest delivery; 0: for ever."""
        cdef uint64_t step = 0
        if self.backoff_count == 0:
            return self.ack_wait_ns
        if self.redelivered:
            step = self.redelivered.get(seq, 0)
        return self.backoff[min(step, <uint64_t>(self.backoff_count - 1))]

    cdef int _schedule(self, PendingEntry* entry, int64_t more_ns=0) except -1:
        """Schedule an entry for the end of its wait, which is extended by `more_ns`."""
        cdef int64_t wait_ns = self._wait_ns(entry.seq)
        cdef uint32_t index, parent, capacity
        cdef Due* heap
        cdef Due moved
        if wait_ns == 0:
            entry.due_ns = 0
            return 0
        if not entry.exact:
            wait_ns = later(wait_ns, WAIT_SLACK_NS + more_ns)
        entry.due_ns = later(entry.time_ns, wait_ns) or 1       # 0 means never
        if self.heap_count > 2 * self.count + HEAP_SLACK:
            return self._rebuild_heap()
        if self.heap_count == self.heap_capacity:
            capacity = max(self.heap_capacity * 2, <uint32_t>ENTRIES_MIN)
            heap = <Due*>realloc(self.heap, capacity * sizeof(Due))
            if heap == NULL:
                raise MemoryError
            self.heap = heap
            self.heap_capacity = capacity
        moved.due_ns = entry.due_ns
        moved.seq = entry.seq
        index = self.heap_count
        self.heap_count += 1
        while index:
            parent = (index - 1) // 2
            if is_sooner(&self.heap[parent], &moved):
                break
            self.heap[index] = self.heap[parent]
            index = parent
        self.heap[index] = moved
        return 0

    cdef void _sift_down(self, uint32_t index) noexcept nogil:
        cdef Due moved = self.heap[index]
        cdef uint32_t child = 2 * index + 1
        while child < self.heap_count:
            if child + 1 < self.heap_count \
                    and is_sooner(&self.heap[child + 1], &self.heap[child]):
                child += 1
            if not is_sooner(&self.heap[child], &moved):
                break
            self.heap[index] = self.heap[child]
            index = child
            child = 2 * index + 1
        self.heap[index] = moved

    cdef int _rebuild_heap(self) except -1:
        """Remove the outdated items; there is room, because there were more than the valid ones."""
        cdef uint32_t index
        self.heap_count = 0
        for index in range(self.begin, self.end):
            if self.entries[index].live and self.entries[index].due_ns:
                self.heap[self.heap_count].due_ns = self.entries[index].due_ns
                self.heap[self.heap_count].seq = self.entries[index].seq
                self.heap_count += 1
        for index in range(self.heap_count // 2, 0, -1):
            self._sift_down(index - 1)
        return 0

    cpdef int64_t next_due_ns(self) noexcept:
        """When the next message is due; 0 if none is."""
        cdef int64_t index
        while self.heap_count:
            index = self._find(self.heap[0].seq)
            if index >= 0 and self.entries[index].due_ns == self.heap[0].due_ns:
                return self.heap[0].due_ns
            self.heap_count -= 1
            if self.heap_count:
                self.heap[0] = self.heap[self.heap_count]
                self._sift_down(0)
        return 0

    def expire(self, int64_t now_ns):
        """Queue what is due, in stream order; returns how many. If very many are due, the others
        follow with the next call.

        A message that was delivered often enough is dropped instead and listed in `exceeded`.
        """
        cdef int64_t due_ns = self.next_due_ns()
        cdef int64_t index
        cdef list expired = []
        while due_ns and due_ns <= now_ns and len(expired) < EXPIRED_AT_ONCE_MAX:
            index = self._find(self.heap[0].seq)
            self.entries[index].due_ns = 0
            expired.append(self.entries[index].seq)
            due_ns = self.next_due_ns()
        expired.sort()
        for seq in expired:
            index = self._find(seq)
            if self.max_deliver and self.deliveries(seq) >= self.max_deliver:
                self._drop_exceeded(<uint32_t>index)
            else:
                self.entries[index].time_ns = now_ns
                self.entries[index].exact = 0
                self._enqueue(&self.entries[index])
                self._note(seq)
        return len(expired)

    def expire_all(self):
        """Queue all pending messages, due or not, because the consumer now delivers elsewhere."""
        cdef uint32_t index
        for index in range(self.begin, self.end):
            if self.entries[index].live and self.entries[index].ticket == 0 \
                    and not self.entries[index].resting:
                self.entries[index].due_ns = 0
                self._enqueue(&self.entries[index])

    cdef int _drop_exceeded(self, uint32_t index) except -1:
        """Give up a message, or leave it pending for the receiver of dead letters."""
        cdef uint64_t seq = self.entries[index].seq
        self.exceeded.append((seq, self.deliveries(seq)))
        if self.keeps_exceeded:
            self._rest(&self.entries[index])
        else:
            self._drop(index)
        return 0

    def drop(self, uint64_t seq):
        """Give up a message that was resting."""
        cdef int64_t index = self._find(seq)
        if index >= 0:
            self._drop(<uint32_t>index)

    cdef int _drop(self, uint32_t index) except -1:
        """Remove a message from the pending ones; it stays in the stream, and counts as
        redelivered.
        """
        cdef uint64_t seq = self.entries[index].seq
        cdef uint64_t consumer_seq = self.entries[index].consumer_seq
        if self.attempts:
            self.attempts.pop(seq, None)
        self.redelivered[seq] = max(self.redelivered.get(seq, 0), self.max_deliver)
        self._kill(index)
        self._move_floor(consumer_seq, seq)
        return 0

    def revive(self, uint64_t seq, int64_t now_ns):
        """Have an acknowledged message delivered again; it counts as delivered once. False if it
        was never delivered, or is pending.

        The floor is lowered to just before it. Its first delivery lies between those of its
        neighbours, and its number is forgotten: the next one below that of its successor stands for
        it, and those before it move down if necessary, which keeps all of them in order.
        """
        cdef uint32_t index, place, before = 0
        cdef uint64_t number = self.delivered_consumer
        cdef PendingEntry* entry
        if self.rule != ACK_EXPLICIT or seq == 0 or seq > self.delivered_stream \
                or self._find(seq) >= 0:
            return False
        if self.keys != NULL:
            return self._revive_keyed(seq, now_ns)
        index = self._position(seq)
        for place in range(self.begin, index):
            before += self.entries[place].live
        for place in range(index, self.end):
            if self.entries[place].live:
                number = self.entries[place].consumer_seq
                number -= number > 0
                break
        if seq <= self.floor_stream:
            number = min(number, self.floor_consumer)
        if number <= before:
            return False    # the message was never delivered
        self.redelivered.pop(seq, None)
        entry = self._add(seq)
        entry.time_ns = now_ns
        entry.consumer_seq = number
        place = self._position(seq)
        while place > self.begin:
            place -= 1
            if self.entries[place].live:
                number -= 1
                if self.entries[place].consumer_seq <= number:
                    break
                self.entries[place].consumer_seq = number
        entry = &self.entries[self.begin]
        self.floor_consumer = min(self.floor_consumer, entry.consumer_seq - 1)
        self.floor_stream = min(self.floor_stream, entry.seq - 1)
        self._enqueue(&self.entries[self._position(seq)])
        self._note_all()
        if invariants.checked:
            self.check()
        return True

    cdef bint _revive_keyed(self, uint64_t seq, int64_t now_ns) except -1:
        """Do the same where messages are not sent in stream order: the message gets the number of
        the floor.
        """
        cdef PendingEntry* entry
        self.settle_floor()
        self.redelivered.pop(seq, None)
        entry = self._add(seq)
        entry.time_ns = now_ns
        entry.consumer_seq = max(self.floor_consumer, <uint64_t>1)
        self.floor_consumer = min(self.floor_consumer, entry.consumer_seq - 1)
        self.floor_stream = min(self.floor_stream, seq - 1)
        self._enqueue(entry)
        self._note_all()
        if invariants.checked:
            self.check()
        return True

    cdef void _rest(self, PendingEntry* entry) noexcept nogil:
        entry.due_ns = 0
        entry.resting = RESTING
        self._unqueue(entry)

    def rest(self, uint64_t seq):
        """Leave a message pending without redelivering it; false if it is not pending."""
        cdef int64_t index = self._find(seq)
        if index < 0 or self.entries[index].resting == PARKED:
            return False
        self._rest(&self.entries[index])
        return True

    def take_exceeded(self):
        """Take the messages given up since the last call: (stream sequence, deliveries)."""
        taken = self.exceeded
        self.exceeded = []
        return taken

    # -------------------------------------------------------------- redeliveries

    cdef int _enqueue(self, PendingEntry* entry) except -1:
        cdef Queued* queue
        cdef uint32_t capacity, count = self.queue_end - self.queue_begin
        if self.queue_end == self.queue_capacity:
            if self.queue_begin > count:
                memmove(self.queue, self.queue + self.queue_begin, count * sizeof(Queued))
            else:
                capacity = max(self.queue_capacity * 2, <uint32_t>ENTRIES_MIN)
                queue = <Queued*>malloc(capacity * sizeof(Queued))
                if queue == NULL:
                    raise MemoryError
                if count:
                    memmove(queue, self.queue + self.queue_begin, count * sizeof(Queued))
                free(self.queue)
                self.queue = queue
                self.queue_capacity = capacity
            self.queue_begin = 0
            self.queue_end = count
        self.last_ticket += 1
        entry.ticket = self.last_ticket
        self.queue[self.queue_end].seq = entry.seq
        self.queue[self.queue_end].ticket = entry.ticket
        self.queue_end += 1
        self.queue_count += 1
        return 0

    cdef void _unqueue(self, PendingEntry* entry) noexcept nogil:
        if entry.ticket:
            entry.ticket = 0
            self.queue_count -= 1

    cpdef uint64_t next_redelivery(self) except? 0:
        """The next message to redeliver, which stays queued; 0 if there is none."""
        cdef int64_t index
        while self.queue_count:
            index = self._find(self.queue[self.queue_begin].seq)
            if index >= 0 and self.entries[index].ticket == self.queue[self.queue_begin].ticket:
                if not self.max_deliver \
                        or self.deliveries(self.entries[index].seq) < self.max_deliver:
                    return self.entries[index].seq
                self._drop_exceeded(<uint32_t>index)
                continue
            self.queue_begin += 1
        self.queue_begin = self.queue_end = 0
        return 0

    cpdef uint64_t deliveries(self, uint64_t seq) except 0:
        """The number of times that a delivered message has been delivered."""
        return <uint64_t>self.redelivered.get(seq, 0) + 1 if self.redelivered else 1

    cpdef uint64_t deliver(self, uint64_t seq, int64_t now_ns,
                           uint64_t key=KEY_UNKNOWN) except 0:
        """Record that a message is being sent, possibly again; returns its consumer sequence.

        `key` is the hash of its key, if it is sent for the first time, and was not parked.
        """
        cdef int64_t index
        cdef PendingEntry* entry
        self.delivered_consumer += 1
        if self.rule == ACK_NONE:
            self.delivered_stream = max(self.delivered_stream, seq)
            self.floor_consumer = self.delivered_consumer
            self.floor_stream = seq
            return self.delivered_consumer
        index = -1 if seq > self.delivered_stream else self._find(seq)
        if index < 0:
            if self.keys != NULL and is_mostly_empty(self.keys):
                self._rebuild_keys()
            entry = self._add(seq, key)
            entry.consumer_seq = self.delivered_consumer
            self.delivered_stream = max(self.delivered_stream, seq)
        elif self.entries[index].resting == PARKED:
            entry = &self.entries[index]
            if entry.consumer_seq:
                self.redelivered[seq] = self.redelivered.get(seq, 0) + 1
            else:
                entry.consumer_seq = self.delivered_consumer
            self.parked_count -= 1
            if self.places[index] != NONE:
                start_keyed(self.keys, self.places[index])
        else:
            entry = &self.entries[index]
            self._unqueue(entry)
            self.redelivered[seq] = self.redelivered.get(seq, 0) + 1
        entry.time_ns = now_ns
        entry.exact = 0
        entry.resting = 0
        self._schedule(entry)
        self._note(seq)
        if self.attempts is not None:
            self._note_attempt(seq, now_ns)
        return self.delivered_consumer

    cdef int _note_attempt(self, uint64_t seq, int64_t now_ns) except -1:
        """Record the time of a delivery, for the report when the message is given up."""
        cdef list times = self.attempts.get(seq)
        if times is None:
            self.attempts[seq] = [now_ns]
        elif len(times) < ATTEMPTS_MAX:
            times.append(now_ns)
        else:
            times[ATTEMPTS_MAX - 1] = now_ns
        return 0

    # -------------------------------------------------------------- acknowledgements

    cpdef int acknowledge(self, uint64_t seq, uint64_t consumer_seq) except -1:
        """Acknowledge a delivered message: 1 if it was pending. `released` lists what went with it.
        """
        cdef int64_t index
        self.released_count = 0
        if self.rule == ACK_ALL:
            return self._acknowledge_all(seq, consumer_seq)
        if self.rule == ACK_NONE:
            return 0
        index = self._find(seq)
        if index >= 0 and not was_sent(&self.entries[index]):
            return 0
        if self.redelivered and self.redelivered.pop(seq, None) is not None:
            self._note(seq)
        if self.attempts:
            self.attempts.pop(seq, None)
        if index < 0:
            return 0
        consumer_seq = self.entries[index].consumer_seq
        self._kill(<uint32_t>index)
        self._move_floor(consumer_seq, seq)
        return 1

    cdef int _acknowledge_all(self, uint64_t seq, uint64_t consumer_seq) except -1:
        cdef uint32_t index
        cdef uint64_t* released
        cdef bint found = False
        if consumer_seq <= self.floor_consumer or seq <= self.floor_stream:
            return 0
        if self.released_capacity < self.count:
            released = <uint64_t*>realloc(self.released, self.count * sizeof(uint64_t))
            if released == NULL:
                raise MemoryError
            self.released = released
            self.released_capacity = self.count
        self.floor_consumer = consumer_seq
        # A peer may name a message that was passed over, after the last one delivered.
        self.floor_stream = min(seq, self.delivered_stream)
        while self.count and self.entries[self.begin].seq <= seq:
            index = self.begin
            if self.entries[index].seq == seq:
                found = True
            else:
                self.released[self.released_count] = self.entries[index].seq
                self.released_count += 1
            if self.redelivered:
                self.redelivered.pop(self.entries[index].seq, None)
            self._kill(index)
        return found

    def nak(self, uint64_t seq, uint64_t consumer_seq, int64_t delay_ns, int64_t now_ns):
        """Deliver again, immediately (delay -1) or later; false if no ack was awaited."""
        cdef int64_t index = self._find(seq)
        cdef PendingEntry* entry
        if consumer_seq <= self.floor_consumer or consumer_seq > self.delivered_consumer + 1 \
                or index < 0:
            return False
        entry = &self.entries[index]
        if entry.resting:
            return False
        if delay_ns >= 0:
            self._unqueue(entry)
            entry.time_ns = later(later(now_ns, delay_ns), -self._wait_ns(seq))
            entry.exact = 1
            self._schedule(entry)
            self._note(seq)
        elif entry.ticket == 0:
            entry.due_ns = 0
            self._enqueue(entry)
        return True

    def progress(self, uint64_t seq, int64_t now_ns):
        """Restart the wait for a message; false if it is not pending."""
        cdef int64_t index = self._find(seq)
        if index < 0 or self.entries[index].resting:
            return False
        self.entries[index].time_ns = now_ns
        self.entries[index].exact = 0
        self._note(seq)
        if self.entries[index].ticket == 0:
            self._schedule(&self.entries[index])
        return True

    def forget(self, uint64_t seq):
        """Drop a message that has left the stream; returns (consumer sequence, deliveries) if it
        was delivered and not acknowledged.
        """
        cdef int64_t index = self._find(seq)
        cdef uint64_t consumer_seq
        cdef bint is_known = index >= 0 and was_sent(&self.entries[index])
        deliveries = self.deliveries(seq)
        if self.redelivered.pop(seq, None) is not None:
            self._note(seq)
        if self.attempts:
            self.attempts.pop(seq, None)
        if index < 0:
            return None
        consumer_seq = self.entries[index].consumer_seq
        self._kill(<uint32_t>index)
        self._move_floor(consumer_seq, seq)
        return (consumer_seq, deliveries) if is_known else None

    def purge(self, uint64_t first_seq, uint64_t next_seq):
        """Drop everything below `first_seq`, which was purged; `next_seq` is the next to be
        delivered.
        """
        cdef uint64_t consumer_seq
        if self.attempts:
            self.attempts = {
                seq: times for seq, times in self.attempts.items() if seq >= first_seq}
        if self.floor_stream + 1 < first_seq:
            self.floor_stream = first_seq - 1
            while self.count and self.entries[self.begin].seq < first_seq:
                consumer_seq = self.entries[self.begin].consumer_seq
                if self.keys == NULL:
                    self.floor_consumer = max(self.floor_consumer, consumer_seq)
                self.redelivered.pop(self.entries[self.begin].seq, None)
                self._kill(self.begin)
            self.floor_age += self.keys != NULL
            self.settle_floor()
        if self.count == 0:
            if self.redelivered:
                self._note_all()
                self.redelivered = {
                    seq: count for seq, count in self.redelivered.items() if seq >= first_seq}
            if next_seq:
                self.delivered_stream = max(self.delivered_stream, next_seq - 1)
            self.floor_consumer = self.delivered_consumer
            self.floor_stream = self.delivered_stream

    def reset(self, uint64_t next_seq):
        """Start over at a sequence, as if nothing had been delivered."""
        self._note_all()
        self.count = self.queue_count = self.parked_count = 0
        self.unknown_from = self.floor_age = 0
        if self.keys != NULL:
            clear_ordered_keys(self.keys)
        self.begin = self.end = self.heap_count = 0
        self.queue_begin = self.queue_end = 0
        self.redelivered = {}
        if self.attempts is not None:
            self.attempts = {}
        self.delivered_consumer = self.floor_consumer = 0
        self.delivered_stream = self.floor_stream = next_seq - 1

    # -------------------------------------------------------------- for Python callers

    @property
    def oldest_seq(self):
        """The lowest sequence of the stream that is delivered and pending; 0 if none is."""
        return self._first_seq(False) if self.count > self.parked_count else 0

    @property
    def parked_seq(self):
        """The lowest sequence of the stream that is parked; 0 if none is."""
        return self._first_seq(True) if self.parked_count else 0

    cdef uint64_t _first_seq(self, bint parked) noexcept nogil:
        cdef uint32_t index = self.begin
        while not self.entries[index].live or (self.entries[index].resting == PARKED) != parked:
            index += 1
        return self.entries[index].seq

    @property
    def awaited_count(self):
        """The number of messages in flight."""
        return self.count - self.parked_count

    @property
    def latest_due_ns(self):
        """When the wait for the last pending message is over; 0 if none is pending."""
        cdef uint32_t index
        cdef int64_t latest = 0
        for index in range(self.begin, self.end):
            if self.entries[index].live and self.entries[index].resting != PARKED:
                latest = max(latest, later(self.entries[index].time_ns,
                                           self._wait_ns(self.entries[index].seq)))
        return latest

    def pending(self):
        """{stream sequence: (consumer sequence, time)} of all pending messages."""
        cdef uint32_t index
        return {
            self.entries[index].seq: PendingDelivery(
                self.entries[index].consumer_seq, self.entries[index].time_ns)
            for index in range(self.begin, self.end) if self.entries[index].live}

    cdef bint is_needed(self, uint64_t seq, uint64_t next_seq) except -1:
        """Whether this consumer may still need a message that passes its filter."""
        if seq in self.redelivered:
            return True
        if seq <= self.floor_stream:
            return False
        return self.rule != ACK_EXPLICIT or seq >= next_seq or self.is_pending(seq)

    def keep_attempts(self, bint keeps):
        """Set whether the delivery times of pending messages are recorded."""
        if keeps != (self.attempts is not None):
            self.attempts = {} if keeps else None

    def attempts_of(self, uint64_t seq):
        """The recorded deliveries of a pending message: (time, (id, name) of a connection or
        None).
        """
        return [each if isinstance(each, tuple) else (each, None)
                for each in self.attempts.get(seq, ())] if self.attempts else []

    def note_receiver(self, uint64_t seq, receiver):
        """Record the receiver of the delivery just made; only while attempts are recorded."""
        cdef list times = self.attempts.get(seq)
        if times and receiver is not None:
            times.append((times.pop(), receiver))

    def is_awaited(self, uint64_t seq):
        """Whether a message is delivered and not acknowledged."""
        return self._find(seq) >= 0 and not self.is_unsent(seq)

    cpdef bint is_unsent(self, uint64_t seq) noexcept:
        """Whether a message is parked, and was never delivered."""
        cdef int64_t index = self._find(seq)
        return index >= 0 and not was_sent(&self.entries[index])

    def delivered_at(self, uint64_t seq):
        """When a pending message was last delivered."""
        return self.entries[self._find(seq)].time_ns if self.is_pending(seq) else 0

    # -------------------------------------------------------------- at rest

    def export(self, int64_t offset_ns=0):
        """The state as in o.dat; `offset_ns` is added to times to make them wall time."""
        return ConsumerState(
            SequencePair(self.delivered_consumer, self.delivered_stream),
            SequencePair(self.floor_consumer, self.floor_stream),
            {seq: PendingDelivery(entry.consumer_seq, later(entry.time_ns, offset_ns))
             for seq, entry in self.pending().items()},
            dict(self.redelivered))

    def restore(self, state, int64_t offset_ns=0):
        """Restore a saved state; a pending message is due when its wait is over."""
        cdef PendingEntry* entry
        self.reset(1)
        self.delivered_consumer, self.delivered_stream = state.delivered
        self.floor_consumer, self.floor_stream = state.ack_floor
        self.redelivered = dict(state.redelivered)
        if self.rule == ACK_NONE:
            return
        for seq, pending in sorted(state.pending.items()):
            if seq <= self.floor_stream:
                continue
            entry = self._add(seq)
            entry.consumer_seq = pending.consumer_seq
            entry.time_ns = later(pending.time_ns, -offset_ns)
            entry.exact = pending.time_ns % SECOND_NS != 0      # others are whole seconds
            if self.keys != NULL and pending.consumer_seq == 0:
                entry.resting = PARKED
                self.parked_count += 1
                continue
            entry.resting = 0
            # The delivery was at some time in that second.
            self._schedule(entry, SECOND_NS - 1)
        if invariants.checked:
            self.check()

    cdef int check(self) except -1:
        """Assert the invariants of the numbers, without visiting every message. The consumer
        sequence of the floor comes from a peer's ack.
        """
        assert self.floor_stream <= self.delivered_stream, (
            self.floor_stream, self.delivered_stream)
        assert self.begin <= self.end <= self.capacity, (self.begin, self.end, self.capacity)
        assert self.parked_count <= self.count, (self.parked_count, self.count)
        assert self.queue_count <= self.count <= self.end - self.begin, (
            self.queue_count, self.count, self.end - self.begin)
        assert self.queue_begin <= self.queue_end <= self.queue_capacity
        assert self.heap_count <= self.heap_capacity
        assert self.changed_count <= self.changed_capacity
        if self.count:
            assert self.entries[self.begin].live, self.entries[self.begin].seq
            assert self.entries[self.end - 1].seq <= self.delivered_stream, (
                self.entries[self.end - 1].seq, self.delivered_stream)
        return 0

    def verify(self):
        """Assert every invariant by visiting everything; for tests."""
        cdef uint32_t index, live = 0, queued = 0, parked = 0, ordered = 0
        self.check()
        assert self.begin <= self.end <= self.capacity
        for index in range(self.begin, self.end):
            assert index == self.begin or self.entries[index].seq > self.entries[index - 1].seq
            if self.entries[index].live:
                live += 1
                queued += self.entries[index].ticket != 0
                parked += self.entries[index].resting == PARKED
                if self.keys != NULL and self.places[index] not in (NONE, UNORDERED):
                    ordered += 1
                    assert self.keys.messages[self.places[index]].seq == self.entries[index].seq
        assert live == self.count and queued == self.queue_count
        assert parked == self.parked_count
        assert self.keys == NULL or ordered == self.keys.message_count
        assert self.count == 0 or self.entries[self.begin].live
        for index in range(1, self.heap_count):
            assert not is_sooner(&self.heap[index], &self.heap[(index - 1) // 2])
