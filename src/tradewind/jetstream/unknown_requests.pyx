"""Requests that no endpoint knows: they have a receiver, which does not answer, as with
nats-server.

Owns one subscription per account, and one for the name of its domain. Without it their senders
would get the status for no responders. That is the right answer for requests to a consumer, or for
direct reads of a stream, that does not exist, so these subjects do not count here.
"""

from libc.string cimport memcmp
from tradewind.broker.accounts cimport Account
from tradewind.broker.session cimport Session
from tradewind.broker.state cimport Message


cdef bytes PREFIX = b"$JS.API."
cdef bytes NEXT = b"$JS.API.CONSUMER.MSG.NEXT."
cdef bytes GET = b"$JS.API.DIRECT.GET."


cdef bint begins_with(Message* message, bytes start) noexcept:
    return message.subject_size >= <size_t>len(start) \
        and memcmp(message.subject, <const char*>start, len(start)) == 0


cdef int on_message(void* target, Message* message) except -1:
    """Whether this subscription counts as a receiver."""
    if begins_with(message, NEXT) or begins_with(message, GET):
        return 0
    if message.origin != NULL and (<Session>message.origin.session).router.trace is not None:
        return (<Session>message.origin.session).router.trace.served(
            message.subject[:message.subject_size])
    return 1


cdef int on_domain(void* target, Message* message) except -1:
    """Take nothing: messages that clients and other servers send there were mapped before
    routing.
    """
    return 0


def announce_domain(Account account not None, bytes prefix not None):
    """Have other servers send requests to a domain here; returns the token of the subscription."""
    return account.attach(prefix + b">", on_domain, prefix)


def listen_silently(Account account not None):
    """Receive every request of an account; returns the token of the subscription."""
    return account.attach(PREFIX + b">", on_message, PREFIX)
