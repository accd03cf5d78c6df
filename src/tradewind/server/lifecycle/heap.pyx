"""The memory allocator of the C library in a server.

Owns one allocator setting for the process of `tradewind-server`; a program that embeds a server
keeps its own. glibc sets freed small blocks aside and coalesces all of them in some later call:
after a client with 200,000 subscriptions had left, one turn of the event loop took 130 ms for that.
With this setting each block is coalesced when it is freed, and blocks that are reused soon are
still fast.
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
    """Coalesce memory when it is freed, leaving no work for later; False if the allocator refuses.
    """
    return join_at_once() == 1
