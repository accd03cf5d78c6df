"""Subjects that a client may not use, whatever its permissions.

Owns nothing; consulted for every publish.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp


cdef inline bint reserved_reply(const char* reply, uint32_t size) noexcept nogil:
    """Whether only the server may set a reply, because a client could forge responses or
    acknowledgements with it.
    """
    if size == 0 or (reply[0] != 95 and reply[0] != 36):
        return False
    return ((size > 8 and memcmp(reply, b"$JS.ACK.", 8) == 0)
            or (size > 4 and memcmp(reply, b"_R_.", 4) == 0)
            or (size > 5 and memcmp(reply, b"_GR_.", 5) == 0)
            or (size > 4 and memcmp(reply, b"$GR.", 4) == 0))


cdef inline bint reserved_subject(const char* subject, uint32_t size) noexcept nogil:
    """Whether a subject is reserved for communication between servers."""
    if size < 6 or (subject[0] != 95 and subject[0] != 36):
        return False
    return memcmp(subject, b"_GR_.", 5) == 0 or memcmp(subject, b"$NRG.", 5) == 0
