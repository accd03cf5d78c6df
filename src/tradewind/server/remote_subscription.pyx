"""What a connection to another server receives for a mirror or source: put into its inbox as it is.

Owns nothing but the way there, without an object per message.
"""

from libc.stdint cimport uint32_t
from tradewind.client.core.protocol cimport Line, SubscriptionCore
from tradewind.jetstream.replication.inbox cimport Inbox


cdef class RemoteSubscription(SubscriptionCore):
    """A deliver subject on another server; `inbox` gets all that comes there."""

    cdef Inbox inbox

    def __init__(self, str subject not None, Inbox inbox not None):
        SubscriptionCore.__init__(
            self, subject, "", pending_messages_max=1, pending_bytes_max=1, messages_max=0)
        self.inbox = inbox
        self._is_packing = True

    cdef bint _pack(self, const Line* line, bint has_reply, const char* body, size_t header_size,
                    size_t payload_size) except -1:
        """See `SubscriptionCore`. Nothing takes the usual way."""
        cdef const char* reply = body
        cdef uint32_t reply_size = 0
        if has_reply:
            reply, reply_size = line.words[2], <uint32_t>line.sizes[2]
        self.inbox.arrive(line.words[0], <uint32_t>line.sizes[0], reply, reply_size, body,
                          header_size, header_size + payload_size)
        return True
