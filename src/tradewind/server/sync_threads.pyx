"""Threads that sync files and know nothing of Python, and a timer that is exact enough for them.

Owns the threads, the queue of what is to be synced, the list of what is done, and the descriptor
(eventfd) by which the loop hears of it. A hand-over and its return do not wait for the interpreter:
a thread of Python that comes back from a sync would wait for a busy loop to let it run, for
milliseconds. Commits that are more than syncs of open files are run by the same threads with the
interpreter's lock. What is synced when is decided by `tradewind.store.syncer`.

Everything that a thread touches is in one block of C memory, which outlives this object if a disk
never answers.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, itimerspec, timespec
from posix.unistd cimport close, fdatasync, read, write
from tradewind.store.syncer cimport Syncer, SyncJob

import os

from tradewind.errors import StoreError

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_attr_init(pthread_attr_t*)
    int pthread_attr_destroy(pthread_attr_t*)
    int pthread_attr_setdetachstate(pthread_attr_t*, int)
    int PTHREAD_CREATE_DETACHED
    int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*) noexcept nogil, void*)
    int pthread_mutex_init(pthread_mutex_t*, void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_signal(pthread_cond_t*)
    int pthread_cond_broadcast(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_timedwait(pthread_cond_t*, pthread_mutex_t*, const timespec*)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t*)
    int pthread_sigmask(int, const sigset_t*, sigset_t*)

cdef extern from "<sys/eventfd.h>" nogil:
    int EFD_NONBLOCK
    int EFD_CLOEXEC
    int eventfd(unsigned int, int)

cdef extern from "<sys/timerfd.h>" nogil:
    int TFD_NONBLOCK
    int TFD_CLOEXEC
    int timerfd_create(int, int)
    int timerfd_settime(int, int, const itimerspec*, itimerspec*)

cdef enum:
    # Of one commit; one with more is run with the interpreter's lock.
    DESCRIPTORS_MAX = 8

cdef double DEALLOC_SECONDS = 0.1

cdef struct Work:
    Work* next
    void* job               # a SyncJob, with a reference that belongs to the queue
    int64_t run_ns
    int count               # of descriptors; negative: the job is run by the interpreter
    int failed              # the descriptor whose sync has failed
    int error               # ... and why; 0: none has
    int[DESCRIPTORS_MAX] descriptors

cdef struct Chain:
    Work* first
    Work* last

cdef struct Pool:
    pthread_mutex_t mutex
    pthread_cond_t wanted   # there is work, or it is over
    pthread_cond_t ended    # a thread has
    Chain waiting
    int waiting_count
    Chain done
    int event               # eventfd: something is done
    int threads
    int resting             # threads that wait for work
    bint is_stopping
    void* clock_ns          # for what the interpreter runs; a reference that belongs to the pool


cdef inline void chain_add(Chain* chain, Work* work) noexcept nogil:
    work.next = NULL
    if chain.last == NULL:
        chain.first = work
    else:
        chain.last.next = work
    chain.last = work


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef void sync_all(Work* work) noexcept nogil:
    """The first failure ends it."""
    cdef int index
    cdef int64_t start_ns = monotonic_ns()
    for index in range(work.count):
        while fdatasync(work.descriptors[index]) != 0:
            if errno != EINTR:
                work.failed = index
                work.error = errno
                break
        if work.error:
            break
    work.run_ns = monotonic_ns() - start_ns


cdef void run_job(Work* work, void* clock_ns) noexcept with gil:
    """The rare ones; whatever goes wrong is kept in the commit."""
    (<SyncJob>work.job).run(<object>clock_ns)
    work.run_ns = (<SyncJob>work.job).run_ns


cdef void* work_on(void* target) noexcept nogil:
    """A thread, until it is over."""
    cdef Pool* pool = <Pool*>target
    cdef Work* work
    cdef bint is_first
    cdef uint64_t one = 1
    pthread_mutex_lock(&pool.mutex)
    while True:
        while pool.waiting.first == NULL and not pool.is_stopping:
            pool.resting += 1
            pthread_cond_wait(&pool.wanted, &pool.mutex)
            pool.resting -= 1
        work = pool.waiting.first
        if work == NULL:
            break
        pool.waiting.first = work.next
        if work.next == NULL:
            pool.waiting.last = NULL
        pool.waiting_count -= 1
        pthread_mutex_unlock(&pool.mutex)
        if work.count >= 0:
            sync_all(work)
        else:
            run_job(work, pool.clock_ns)
        pthread_mutex_lock(&pool.mutex)
        is_first = pool.done.first == NULL
        chain_add(&pool.done, work)
        pthread_mutex_unlock(&pool.mutex)
        if is_first:
            # One is enough for all that is done before the loop looks. Full it cannot be.
            write(pool.event, &one, sizeof(one))
        pthread_mutex_lock(&pool.mutex)
    pool.threads -= 1
    pthread_cond_broadcast(&pool.ended)
    pthread_mutex_unlock(&pool.mutex)
    return NULL


cdef bint end_pool(Pool* pool, double seconds) noexcept:
    """End the threads and free everything; false, and nothing is freed, if one of them is stuck."""
    cdef timespec until
    cdef int64_t until_ns
    cdef bint is_over
    cdef Work* work
    clock_gettime(CLOCK_REALTIME, &until)
    until_ns = until.tv_nsec + <int64_t>(seconds * 1e9)
    until.tv_sec += until_ns // 1000000000
    until.tv_nsec = until_ns % 1000000000
    with nogil:
        pthread_mutex_lock(&pool.mutex)
        pool.is_stopping = True
        pthread_cond_broadcast(&pool.wanted)
        while pool.threads:
            if pthread_cond_timedwait(&pool.ended, &pool.mutex, &until) != 0:
                break
        is_over = pool.threads == 0
        pthread_mutex_unlock(&pool.mutex)
    if not is_over:
        return False
    while pool.done.first != NULL:
        work = pool.done.first
        pool.done.first = work.next
        Py_DECREF(<object>work.job)
        free(work)
    close(pool.event)
    pthread_mutex_destroy(&pool.mutex)
    pthread_cond_destroy(&pool.wanted)
    pthread_cond_destroy(&pool.ended)
    Py_DECREF(<object>pool.clock_ns)
    free(pool)
    return True


cdef class SyncThreads:
    """Up to `threads_max` threads, which are started when they are first needed.

    The loop watches `fileno()` and calls `collect` when it can be read. All methods are for it.
    """

    cdef Pool* _pool
    cdef int _threads_max

    def __cinit__(self, int threads_max, clock_ns not None):
        self._threads_max = threads_max
        self._pool = <Pool*>calloc(1, sizeof(Pool))
        if self._pool == NULL:
            raise MemoryError
        self._pool.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        if self._pool.event < 0:
            number = errno
            free(self._pool)
            self._pool = NULL
            raise OSError(number, os.strerror(number))
        Py_INCREF(clock_ns)
        self._pool.clock_ns = <void*>clock_ns
        pthread_mutex_init(&self._pool.mutex, NULL)
        pthread_cond_init(&self._pool.wanted, NULL)
        pthread_cond_init(&self._pool.ended, NULL)

    def __dealloc__(self):
        if self._pool != NULL:
            end_pool(self._pool, DEALLOC_SECONDS)

    def fileno(self):
        """Can be read when something is done; -1 after the end."""
        return self._pool.event if self._pool != NULL else -1

    @property
    def count(self):
        """How many threads there are."""
        return self._pool.threads if self._pool != NULL else 0

    @property
    def done_count(self):
        """How many jobs are done that nobody has taken."""
        cdef int count = 0
        cdef Work* work
        if self._pool != NULL:
            pthread_mutex_lock(&self._pool.mutex)
            work = self._pool.done.first
            while work != NULL:
                count += 1
                work = work.next
            pthread_mutex_unlock(&self._pool.mutex)
        return count

    def submit(self, SyncJob job not None):
        """Have a job run; it is among those that `take` gives when it is done.

        After the end it stays under way for ever.
        """
        cdef Pool* pool = self._pool
        cdef Work* work
        cdef bint is_crowded
        if pool == NULL:
            return
        work = <Work*>calloc(1, sizeof(Work))
        if work == NULL:
            raise MemoryError
        try:
            work.count = job.commit.descriptors(work.descriptors, DESCRIPTORS_MAX)
        except BaseException:
            free(work)
            raise
        Py_INCREF(job)
        work.job = <void*>job
        with nogil:
            pthread_mutex_lock(&pool.mutex)
            chain_add(&pool.waiting, work)
            pool.waiting_count += 1
            is_crowded = pool.waiting_count > pool.resting and pool.threads < self._threads_max
            pthread_mutex_unlock(&pool.mutex)
            pthread_cond_signal(&pool.wanted)
        if is_crowded:
            self._start_one()

    cdef int _start_one(self) except -1:
        cdef pthread_t thread
        cdef pthread_attr_t attributes
        cdef sigset_t every, before
        cdef int number
        # Signals are for the loop. The lock is not held: the thread takes it first.
        sigfillset(&every)
        pthread_attr_init(&attributes)
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED)
        pthread_sigmask(SIG_SETMASK, &every, &before)
        pthread_mutex_lock(&self._pool.mutex)
        self._pool.threads += 1
        pthread_mutex_unlock(&self._pool.mutex)
        number = pthread_create(&thread, &attributes, work_on, self._pool)
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        pthread_attr_destroy(&attributes)
        if number == 0:
            return 0
        pthread_mutex_lock(&self._pool.mutex)
        self._pool.threads -= 1
        pthread_mutex_unlock(&self._pool.mutex)
        if self._pool.threads == 0:
            # Nobody else would ever do it.
            raise OSError(number, f"no thread can be started: {os.strerror(number)}")
        return 0

    cdef Work* _take(self) noexcept:
        """The chain of all that is done."""
        cdef Pool* pool = self._pool
        cdef uint64_t events
        cdef Work* first
        if pool == NULL:
            return NULL
        read(pool.event, &events, sizeof(events))
        pthread_mutex_lock(&pool.mutex)
        first = pool.done.first
        pool.done.first = pool.done.last = NULL
        pthread_mutex_unlock(&pool.mutex)
        return first

    cdef SyncJob _finish(self, Work* work):
        cdef SyncJob job = <SyncJob>work.job
        Py_DECREF(job)
        job.run_ns = work.run_ns
        try:
            if work.error:
                job.commit.sync_failed(work.failed, work.error)
        except Exception as error:
            job.commit.error = StoreError(f"a sync failed, and how is not known: {error!r}")
        finally:
            free(work)
        return job

    def collect(self, Syncer syncer not None, after_batch not None):
        """Hand what is done back to the syncer; then call `after_batch`, once for all of it."""
        cdef Work* work = self._take()
        cdef Work* following
        cdef int64_t now_ns = monotonic_ns()
        while work != NULL:
            following = work.next
            try:
                syncer.complete(self._finish(work), now_ns)
            except BaseException:
                self._put_back(following)
                raise
            work = following
        after_batch()
        syncer.end_turn(now_ns)

    cdef int _put_back(self, Work* work) except -1:
        """The rest of what was taken is for the next `collect`."""
        cdef Pool* pool = self._pool
        cdef Work* following
        cdef uint64_t one = 1
        if pool == NULL:
            return 0
        pthread_mutex_lock(&pool.mutex)
        while work != NULL:
            following = work.next
            chain_add(&pool.done, work)
            work = following
        pthread_mutex_unlock(&pool.mutex)
        write(pool.event, &one, sizeof(one))
        return 0

    def take(self):
        """The jobs that are done, in the order in which they were; each with its error."""
        cdef Work* work = self._take()
        cdef Work* following
        cdef list taken = []
        while work != NULL:
            following = work.next
            taken.append(self._finish(work))
            work = following
        return taken

    def stop(self, double seconds):
        """End the threads; false if one of them is stuck in a sync for so long.

        What is done but was not taken is forgotten.
        """
        cdef Pool* pool = self._pool
        self._pool = NULL
        return pool == NULL or end_pool(pool, seconds)


cdef class FineTimer:
    """One deadline, to the microsecond: the timers of the loop count in milliseconds."""

    cdef int _descriptor

    def __cinit__(self):
        self._descriptor = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self._descriptor < 0:
            number = errno
            raise OSError(number, os.strerror(number))

    def __dealloc__(self):
        self.close()

    def fileno(self):
        """Can be read when the time has come."""
        return self._descriptor

    def set(self, int64_t after_ns):
        """So long from now; what was set before is forgotten."""
        cdef itimerspec times
        after_ns = max(after_ns, 1)
        times.it_interval.tv_sec = times.it_interval.tv_nsec = 0
        times.it_value.tv_sec = after_ns // 1000000000
        times.it_value.tv_nsec = after_ns % 1000000000
        if timerfd_settime(self._descriptor, 0, &times, NULL) != 0:
            number = errno
            raise OSError(number, os.strerror(number))

    def clear(self):
        """The time has come."""
        cdef uint64_t count
        read(self._descriptor, &count, sizeof(count))

    def close(self):
        """A second call does nothing."""
        if self._descriptor >= 0:
            close(self._descriptor)
            self._descriptor = -1
