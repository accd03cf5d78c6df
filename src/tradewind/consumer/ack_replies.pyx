"""The answers to acknowledgements that asked for one, until they may be sent.

Owns their reply subjects, in the order in which the acknowledgements came. An answer is sent when a
turn ends, or, with `keeps_acks`, when its owner says that the acknowledgements up to it are stored.
No object is created per answer.
"""

from libc.string cimport memcpy
from tradewind.consumer.pulls cimport publish_header
from tradewind.containers.buffer cimport (
    buffer_append, buffer_clear, buffer_free, buffer_init, buffer_reserve)

cdef enum:
    # Answers that wait for the disk; further ones are omitted, as if they had been lost.
    UNKEPT_BYTES_MAX = 8388608


cdef class AckReplies:
    """The answers of one consumer."""

    def __cinit__(self):
        buffer_init(&self._outgoing)

    def __init__(self, Taker owner not None, Router router not None, Account account not None):
        self._owner = owner
        self._router = router
        self._account = account

    def __dealloc__(self):
        buffer_free(&self._outgoing)

    cdef int add(self, const char* reply, uint32_t size, bint is_late) except -1:
        """Answer an ack when the turn ends, or once the ack is stored. `is_late`: the turn is
        ending.
        """
        if self.keeps_acks and self._unkept_bytes > UNKEPT_BYTES_MAX:
            return 0
        if buffer_reserve(&self._outgoing, size + 4) != 0:
            raise MemoryError
        buffer_append(&self._outgoing, <const char*>&size, 4)
        buffer_append(&self._outgoing, reply, size)
        self.end += size + 4
        if not self.keeps_acks:
            self._router.turn.wake(self._owner)
            return 0
        self._unkept_bytes += size + 4
        if is_late:
            self.ask_to_keep()
        elif not self._asks_to_keep:
            self._asks_to_keep = True
            self._router.turn.defer(self.ask_to_keep, b"", b"", b"", b"")
        return 0

    def ask_to_keep(self, *_message):
        """Have the acks of this turn stored together; called when all of them have arrived."""
        self._asks_to_keep = False
        if self._unkept_bytes and not self.is_closed:
            self._owner.keep_acks()

    def answer_through(self, uint64_t end):
        """Answer the acks up to this value of `end`, which are stored now."""
        cdef uint64_t answered = self.end - self._unkept_bytes
        if end > answered:
            self._unkept_bytes -= <size_t>(end - answered)
            self._router.turn.wake(self._owner)

    def drop_unkept(self):
        """Drop the answers to acks that could not be stored; clients have to ask again."""
        self._outgoing.end -= self._unkept_bytes
        self._unkept_bytes = 0

    cdef int send(self) except -1:
        """Send the answers that may be sent."""
        cdef uint32_t size = 0
        while self._outgoing.begin < self._outgoing.end - self._unkept_bytes:
            memcpy(&size, self._outgoing.data + self._outgoing.begin, 4)
            self._outgoing.begin += 4
            publish_header(
                self._router, self._account, self._outgoing.data + self._outgoing.begin, size,
                NULL, 0, b"")
            self._outgoing.begin += size
        if self._outgoing.begin == self._outgoing.end:
            buffer_clear(&self._outgoing)
        return 0
