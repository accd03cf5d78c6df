"""Publishes of clients that have no receiver, offered to a taker that can provide one.

Owns the single check that such a publish costs: a number that is 0 while there is no taker. A taker
is called in the middle of a delivery, so it only records the message; its return value says whether
it took the message.
"""

takers_count = 0


def add_taker(broker not None, taker not None):
    """Offer such messages of a broker from now on: taker(session, subject, reply, header,
    payload).
    """
    global takers_count
    if broker.unheard_taker is None:
        takers_count += 1
    broker.unheard_taker = taker


def remove_taker(broker not None):
    """Undo `add_taker`."""
    global takers_count
    if broker.unheard_taker is not None:
        takers_count -= 1
        broker.unheard_taker = None


cdef bint is_taken(object session, Operation* operation) except -1:
    """Whether a taker has accepted the message."""
    cdef object taker = session.broker.unheard_taker
    if taker is None:
        return False
    return taker(
        session, operation.subject[:operation.subject_size],
        operation.reply[:operation.reply_size], operation.body[:operation.header_size],
        operation.body[operation.header_size:operation.total_size])
