"""The subscription that receives a mirror's or source's messages from another server.

Messages go straight into its inbox: no object is created per message on this path.
"""

from libc.stdint cimport uint32_t
from tradewind.client.core.protocol cimport Line, MessageInbox
from tradewind.jetstream.replication.inbox cimport Inbox


cdef class RemoteSubscription(MessageInbox):
    """A deliver subject on another server; `inbox` receives every message from it."""

    cdef Inbox inbox

    def __init__(self, str subject not None, Inbox inbox not None):
        MessageInbox.__init__(
            self, subject, "", pending_messages_max=1, pending_bytes_max=1, messages_max=0)
        self.inbox = inbox
        self._is_packing = True

    cdef bint _pack(self, const Line* line, bint has_reply, const char* body, size_t header_size,
                    size_t payload_size) except -1:
        """See `MessageInbox`. No message takes the ordinary path."""
        cdef const char* reply = body
        cdef uint32_t reply_size = 0
        if has_reply:
            reply, reply_size = line.words[2], <uint32_t>line.sizes[2]
        self.inbox.arrive(line.words[0], <uint32_t>line.sizes[0], reply, reply_size, body,
                          header_size, header_size + payload_size)
        return True
