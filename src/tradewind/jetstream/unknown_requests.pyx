"""Requests that no endpoint knows: they are heard, and nobody answers, as with nats-server.

Owns one subscription per account. Without it their senders would be told that nobody responds. That
is what those are to be told who ask a consumer or read a stream directly that is not there, so
these subjects do not count here.
"""

from libc.string cimport memcmp
from tradewind.broker.accounts cimport Account
from tradewind.broker.state cimport Message, is_trace_only


cdef bytes PREFIX = b"$JS.API."
cdef bytes NEXT = b"$JS.API.CONSUMER.MSG.NEXT."
cdef bytes GET = b"$JS.API.DIRECT.GET."


cdef bint begins_with(Message* message, bytes start) noexcept:
    return message.subject_size >= <size_t>len(start) \
        and memcmp(message.subject, <const char*>start, len(start)) == 0


cdef int on_message(void* target, Message* message) except -1:
    """Whether it counts as a receiver."""
    return not is_trace_only(message) \
        and not begins_with(message, NEXT) and not begins_with(message, GET)


def listen_silently(Account account not None):
    """Hear every request of an account; gives the token of the subscription."""
    return account.attach(PREFIX + b">", on_message, PREFIX)
