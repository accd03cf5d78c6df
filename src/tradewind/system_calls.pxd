"""The system calls of compiled code that only Linux has, and what stands in for them elsewhere.

No other Cython source names them; `platform_calls` has those of Python. With TRADEWIND_PORTABLE
defined, compiled code gets what other systems would get, for tests. There is nothing that stands in
for the descriptors on which a loop waits: there a call fails with ENOSYS, and a server does not
start.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <unistd.h>

    #if defined(__linux__) && !defined(TRADEWIND_PORTABLE)

    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/timerfd.h>

    typedef struct epoll_event tradewind_ready;
    #define TRADEWIND_READABLE EPOLLIN
    #define TRADEWIND_WRITABLE EPOLLOUT
    #define TRADEWIND_BROKEN (EPOLLERR | EPOLLHUP)

    static inline uint32_t tradewind_ready_for(const tradewind_ready *ready)
    {
        return ready->events;
    }

    static inline uint64_t tradewind_ready_tag(const tradewind_ready *ready)
    {
        return ready->data.u64;
    }

    static inline int tradewind_open_poll(void)
    {
        return epoll_create1(EPOLL_CLOEXEC);
    }

    static inline int tradewind_watch(int poll, int descriptor, uint32_t before, uint32_t wanted,
                                      uint64_t tag)
    {
        struct epoll_event event;
        int change = !wanted ? EPOLL_CTL_DEL : before ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        event.events = wanted;
        event.data.u64 = tag;
        return epoll_ctl(poll, change, descriptor, &event);
    }

    static inline int tradewind_take_ready(int poll, tradewind_ready *ready, int count_max)
    {
        return epoll_wait(poll, ready, count_max, 0);
    }

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

    typedef struct { uint32_t events; uint64_t tag; } tradewind_ready;
    #define TRADEWIND_READABLE 1
    #define TRADEWIND_WRITABLE 4
    #define TRADEWIND_BROKEN 24

    static inline uint32_t tradewind_ready_for(const tradewind_ready *ready)
    {
        return ready->events;
    }

    static inline uint64_t tradewind_ready_tag(const tradewind_ready *ready)
    {
        return ready->tag;
    }

    static inline int tradewind_open_poll(void)
    {
        errno = ENOSYS;
        return -1;
    }

    static inline int tradewind_watch(int poll, int descriptor, uint32_t before, uint32_t wanted,
                                      uint64_t tag)
    {
        (void)poll, (void)descriptor, (void)before, (void)wanted, (void)tag;
        errno = ENOSYS;
        return -1;
    }

    static inline int tradewind_take_ready(int poll, tradewind_ready *ready, int count_max)
    {
        (void)poll, (void)ready, (void)count_max;
        errno = ENOSYS;
        return -1;
    }

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
    # A set of descriptors to wait for, itself a descriptor that is readable while one of them is
    # ready; -1 and errno otherwise.
    int open_poll "tradewind_open_poll"() noexcept nogil
    # Changes what a descriptor is watched for, from `before` to `wanted` (0: it is not in the set).
    # Until that changes, each `take_ready` reports it while it is ready. 0; -1 and errno otherwise.
    int watch_descriptor "tradewind_watch"(int poll, int descriptor, uint32_t before,
                                           uint32_t wanted, uint64_t tag) noexcept nogil
    ctypedef struct Ready "tradewind_ready":
        pass
    # The number of descriptors that are ready now; -1 and errno otherwise.
    int take_ready "tradewind_take_ready"(int poll, Ready* ready, int count_max) noexcept nogil
    uint32_t ready_for "tradewind_ready_for"(const Ready* ready) noexcept nogil
    uint64_t ready_tag "tradewind_ready_tag"(const Ready* ready) noexcept nogil
    const uint32_t READABLE "TRADEWIND_READABLE"
    const uint32_t WRITABLE "TRADEWIND_WRITABLE"
    const uint32_t BROKEN "TRADEWIND_BROKEN"    # reported whether wanted or not
