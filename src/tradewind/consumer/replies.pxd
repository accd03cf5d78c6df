"""The ack subject: written for every delivery, taken apart for every acknowledgement.

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>. the same five [.<more>]
    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>

Owns no memory. The first form has nine tokens, the second eleven or more. The third is that of the
previews of JetStream (in the first of them with A instead of ACK), for consumers made by them.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from tradewind.containers.buffer cimport write_decimal

cdef enum:
    ACK_TOKENS_LEGACY = 7
    ACK_TOKENS = 9
    ACK_TOKENS_LONG = 11
    ACK_NUMBERS_MAX = 105           # five numbers of 20 digits, four dots, rounded up

ctypedef struct AckSubject:
    uint64_t deliveries
    uint64_t seq
    uint64_t consumer_seq


cdef inline uint32_t write_ack_numbers(char* target, uint64_t deliveries, uint64_t seq,
                                       uint64_t consumer_seq, int64_t timestamp,
                                       uint64_t pending) noexcept nogil:
    """Write the part after the prefix, which ends with a dot; returns its size."""
    cdef char* at = target
    at += write_decimal(at, deliveries)
    at[0] = 46
    at += 1
    at += write_decimal(at, seq)
    at[0] = 46
    at += 1
    at += write_decimal(at, consumer_seq)
    at[0] = 46
    at += 1
    if timestamp < 0:
        at[0] = 45
        at += 1
        at += write_decimal(at, <uint64_t>-timestamp)
    else:
        at += write_decimal(at, <uint64_t>timestamp)
    at[0] = 46
    at += 1
    at += write_decimal(at, pending)
    return <uint32_t>(at - target)


cdef inline uint32_t without_last_numbers(const char* subject, uint32_t size) noexcept nogil:
    """The size of an ack subject of nine tokens up to and including the consumer sequence."""
    cdef uint32_t dots = 2
    while dots:
        size -= 1
        dots -= subject[size] == 46
    return size


cdef inline const char* read_number(const char* at, const char* end,
                                    uint64_t* number) noexcept nogil:
    """Parse a decimal number up to the next dot; returns where it ends, or NULL."""
    cdef const char* start = at
    number[0] = 0
    while at < end and at[0] != 46:
        if at[0] < 48 or at[0] > 57 or at - start >= 19:
            return NULL
        number[0] = number[0] * 10 + <uint64_t>(at[0] - 48)
        at += 1
    return NULL if at == start else at


cdef inline bint read_ack_subject(const char* subject, uint32_t size, bint is_legacy,
                                  AckSubject* parsed) noexcept nogil:
    """Parse the numbers of an ack subject; false if it is not one."""
    cdef const char* at = subject
    cdef const char* end = subject + size
    cdef uint32_t tokens = 1, passed
    while at < end:
        tokens += at[0] == 46
        at += 1
    if tokens != ACK_TOKENS and tokens < ACK_TOKENS_LONG:
        if tokens != ACK_TOKENS_LEGACY or not is_legacy:
            return False
    passed = 6 if tokens >= ACK_TOKENS_LONG else 4
    at = subject
    while passed:
        passed -= at[0] == 46
        at += 1
    at = read_number(at, end, &parsed.deliveries)
    if at == NULL or at == end:
        return False
    at = read_number(at + 1, end, &parsed.seq)
    if at == NULL or at == end:
        return False
    return read_number(at + 1, end, &parsed.consumer_seq) != NULL
