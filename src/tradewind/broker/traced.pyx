"""A publish that asks for a trace: off the fast path, and back onto it with a trace attached.

Owns nothing. It is imported when the first such message arrives. While the message is published,
the router holds its `MessageTrace`, in which every part on the way records its actions; the trace
is sent once the message has been handled.
"""

from tradewind.broker.router cimport Router
from tradewind.broker.session cimport Session
from tradewind.wire.parser cimport Operation


def publish_traced(Session session not None, size_t handle, tracing not None):
    """Publish the operation at this address for a session, as `tracing` decides."""
    cdef Operation operation = (<Operation*>handle)[0]
    cdef Router router = session.router
    cdef bytes header = operation.body[:operation.header_size]
    cdef bytes body
    begun = tracing.begin(session, header, operation.subject[:operation.subject_size],
                          operation.total_size)
    if begun is None:
        return
    if begun.header is not header:
        body = begun.header + operation.body[operation.header_size:operation.total_size]
        operation.body = body
        operation.header_size = len(begun.header)
        operation.total_size = len(body)
    if begun.trace is None:
        session.publish(&operation, True)
        return
    router.trace = begun.trace
    session.state.trace_only = begun.trace.only
    try:
        session.publish(&operation, True)
    finally:
        router.trace = None
        session.state.trace_only = 0
    begun.trace.send()
