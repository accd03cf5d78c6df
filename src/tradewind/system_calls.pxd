"""The system calls of compiled code that only Linux has, and what stands in for them elsewhere.

No other Cython source names them; `platform_calls` has those of Python. With TRADEWIND_PORTABLE
defined, compiled code gets what other systems would get, for tests. There is nothing that stands in
for the descriptors on which a loop waits: there a call fails with ENOSYS, and a server does not
start.
"""

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <unistd.h>

    #if defined(__linux__) && !defined(TRADEWIND_PORTABLE)

    #include <sys/eventfd.h>
    #include <sys/timerfd.h>

    static inline int tradewind_sync_data(int descriptor)
    {
        return fdatasync(descriptor);
    }

    static inline int tradewind_open_event(void)
    {
        return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    }

    static inline int tradewind_open_timer(void)
    {
        return timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    }

    static inline int tradewind_set_timer(int descriptor, int64_t after_ns)
    {
        struct itimerspec times = {{0, 0}, {after_ns / 1000000000, after_ns % 1000000000}};
        return timerfd_settime(descriptor, 0, &times, NULL);
    }

    #else

    static inline int tradewind_sync_data(int descriptor)
    {
    #ifdef F_FULLFSYNC
        if (fcntl(descriptor, F_FULLFSYNC) == 0)
            return 0;
    #endif
        return fsync(descriptor);
    }

    static inline int tradewind_open_event(void)
    {
        errno = ENOSYS;
        return -1;
    }

    static inline int tradewind_open_timer(void)
    {
        errno = ENOSYS;
        return -1;
    }

    static inline int tradewind_set_timer(int descriptor, int64_t after_ns)
    {
        (void)descriptor;
        (void)after_ns;
        errno = ENOSYS;
        return -1;
    }

    #endif
    """
    # The content and the size of a file are on disk when it returns 0; -1 and errno otherwise.
    int sync_data "tradewind_sync_data"(int descriptor) noexcept nogil
    # A descriptor that is readable after 8 bytes have been written to it; -1 and errno otherwise.
    int open_event "tradewind_open_event"() noexcept nogil
    # A descriptor that is readable when a time has come; -1 and errno otherwise.
    int open_timer "tradewind_open_timer"() noexcept nogil
    # Sets that time to this long from now, at least 1 ns.
    int set_timer "tradewind_set_timer"(int descriptor, int64_t after_ns) noexcept nogil
