"""The memory allocator of the C library in a server.

Owns its one setting for the process of `tradewind-server`; a program with a server inside has its
own. glibc puts small blocks that are freed aside and joins all of them at some later call: after a
client with 200,000 subscriptions has left, one turn of the event loop took 130 ms for that. Without
this each block is joined when it is freed, and the few that are used again at once are still quick.
"""

cdef extern from *:
    """
    #if defined(__GLIBC__)
    #include <malloc.h>
    static int join_at_once(void) { return mallopt(M_MXFAST, 0); }
    #else
    static int join_at_once(void) { return 1; }
    #endif
    """
    int join_at_once() nogil


def join_freed_memory_at_once():
    """Leave no work for later when memory is freed; false if the allocator refuses."""
    return join_at_once() == 1
