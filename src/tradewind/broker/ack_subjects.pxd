"""Subjects that acknowledge the messages of a consumer.

Owns the part of them that names the consumer:

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>[.<time>.<pending>]
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>. ... .<pending>[.<token>]
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp

cdef enum:
    ACK_DOTS_PREVIEW = 6
    ACK_DOTS = 8
    ACK_DOTS_LONG = 10


cdef inline uint32_t consumer_size(const char* subject, uint32_t size) noexcept nogil:
    """Length of the part that names the consumer; 0 for other subjects."""
    cdef uint32_t index, dots = 0, fourth = 0, sixth = 0
    if size <= 8 or memcmp(subject, b"$JS.ACK.", 8) != 0:
        return 0
    for index in range(size):
        if subject[index] == 46:
            dots += 1
            if dots == 4:
                fourth = index
            elif dots == 6:
                sixth = index
    if dots == ACK_DOTS or dots == ACK_DOTS_PREVIEW:
        return fourth
    return sixth if dots >= ACK_DOTS_LONG else 0
