"""The threads of a server that wait for the disk instead of the loop, and a timer that is precise
enough for them.

Owns the threads, the queues of pending work, the list of finished work, and the descriptor
(eventfd) that notifies the loop of it. Two kinds of work share them:

- *syncs*, the commits of the syncer. Most only sync open files, which a thread does without
  Python: neither the hand-over nor the return waits for the interpreter. A Python thread that
  returns from a sync would wait milliseconds for a busy loop to let it run. Other commits are run
  with the interpreter's lock;
- *calls*, anything else that would hold up the loop: files of configurations, removal of old ones.

Each kind has its own limit of working threads, so no request, however long it takes, delays a
commit. `store.commits.syncer` decides what is synced when, and `tradewind.jetstream` what is
called; a thread is given nothing that belongs to the loop.

Everything that a thread touches is in one block of C memory. If a disk does not respond, that block
outlives this object: the last thread that ends frees it.
"""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close, read, write
from tradewind.seconds cimport SECOND_NS
from tradewind.store.commits.syncer cimport Syncer, SyncJob
from tradewind.store.files.file_sync cimport sync_named
from tradewind.system_calls cimport open_event, open_timer, set_timer

import os

from tradewind.errors import StoreError
from tradewind.faults import Faults

# A disk with a queue syncs several files in the time of one. More threads gain little.
SYNC_THREADS = 4
# Requests of different accounts, and concurrent parts of requests of one account.
CALL_THREADS = 4

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

cdef extern from "Python.h" nogil:
    bint Py_IsInitialized()

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t*)
    int pthread_sigmask(int, const sigset_t*, sigset_t*)

cdef enum:
    # Descriptors of one commit; a commit with more is run with the interpreter's lock.
    DESCRIPTORS_MAX = 8

cdef double DEALLOC_SECONDS = 0.1

cdef enum Kind:
    SYNC = 0
    CALL = 1
    KINDS = 2

cdef struct Work:
    Work* next
    void* job               # a SyncJob or ThreadCall; the queue owns a reference
    int64_t run_ns
    Kind kind
    int count               # number of descriptors; negative: the interpreter runs the job
    int failed              # the descriptor whose sync failed
    int error               # ... and its errno; 0: none failed
    int[DESCRIPTORS_MAX] descriptors
    const char* paths[DESCRIPTORS_MAX]      # where they must be found; owned by the commit

cdef struct Chain:
    Work* first
    Work* last

cdef struct Queue:
    Chain waiting
    int waiting_count
    int running
    int running_max

cdef struct Pool:
    pthread_mutex_t mutex
    pthread_cond_t wanted   # there is work, or the pool is ending
    pthread_cond_t ended    # a thread has ended
    Queue[KINDS] queues
    Chain done
    int event               # eventfd: readable when some work is done
    int threads
    bint is_stopping
    bint is_left            # nothing waits for the threads any more: the last one frees this
    void* clock_ns          # for jobs that the interpreter runs; the pool owns a reference


cdef class ThreadCall:
    """A function that a thread calls, and the callback for the loop."""

    cdef object work
    cdef object done        # called with the error, or None
    cdef object error

    cdef int run(self) except -1:
        """Call the function, in a thread. An error is stored for the callback."""
        try:
            self.work()
        except Exception as fault:
            self.error = fault
        except BaseException as fault:
            self.error = RuntimeError(f"a call ended by {fault!r}")
        self.work = None
        return 0


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
    return <int64_t>now.tv_sec * SECOND_NS + now.tv_nsec


cdef void sync_all(Work* work) noexcept nogil:
    """Sync all descriptors up to the first failure."""
    cdef int index
    cdef int64_t start_ns = monotonic_ns()
    for index in range(work.count):
        work.error = sync_named(work.descriptors[index], work.paths[index])
        if work.error:
            work.failed = index
            break
    work.run_ns = monotonic_ns() - start_ns


cdef void run_job(Work* work, void* clock_ns) noexcept with gil:
    """Run a job with the interpreter's lock; an error is stored in the commit or call."""
    if work.kind == CALL:
        (<ThreadCall>work.job).run()
        return
    (<SyncJob>work.job).run(<object>clock_ns)
    work.run_ns = (<SyncJob>work.job).run_ns


cdef Work* next_work(Pool* pool) noexcept nogil:
    """The work that a thread may begin now; NULL if there is none. Syncs come first."""
    cdef int kind
    cdef Queue* queue
    cdef Work* work
    for kind in range(KINDS):
        queue = &pool.queues[kind]
        work = queue.waiting.first
        if work != NULL and queue.running < queue.running_max:
            queue.waiting.first = work.next
            if work.next == NULL:
                queue.waiting.last = NULL
            queue.waiting_count -= 1
            queue.running += 1
            return work
    return NULL


cdef bint is_crowded(Pool* pool, Kind coming) noexcept nogil:
    """Whether the pool has fewer threads than could work if one more job came."""
    cdef int kind, count, useful = 0
    cdef Queue* queue
    for kind in range(KINDS):
        queue = &pool.queues[kind]
        count = queue.waiting_count + queue.running + (1 if kind == <int>coming else 0)
        useful += min(count, queue.running_max)
    return pool.threads < useful


cdef void* work_on(void* target) noexcept nogil:
    """Run jobs until the pool ends: the body of a thread."""
    cdef Pool* pool = <Pool*>target
    cdef Work* work
    cdef bint is_first, is_heir
    cdef uint64_t one = 1
    pthread_mutex_lock(&pool.mutex)
    while True:
        work = next_work(pool)
        if work == NULL:
            if pool.is_stopping:
                break
            pthread_cond_wait(&pool.wanted, &pool.mutex)
            continue
        pthread_mutex_unlock(&pool.mutex)
        if work.count >= 0:
            sync_all(work)
        else:
            run_job(work, pool.clock_ns)
        pthread_mutex_lock(&pool.mutex)
        pool.queues[<int>work.kind].running -= 1
        is_first = pool.done.first == NULL
        chain_add(&pool.done, work)
        pthread_mutex_unlock(&pool.mutex)
        if is_first:
            # One event is enough for everything that is done before the loop reads it; it cannot
            # overflow.
            write(pool.event, &one, sizeof(one))
        pthread_mutex_lock(&pool.mutex)
    pool.threads -= 1
    is_heir = pool.is_left and pool.threads == 0
    pthread_cond_broadcast(&pool.ended)
    pthread_mutex_unlock(&pool.mutex)
    if is_heir and Py_IsInitialized():
        free_left_pool(pool)
    return NULL


cdef void free_pool(Pool* pool) noexcept:
    """Free the pool, once no thread is left."""
    cdef Work* work
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


cdef void free_left_pool(Pool* pool) noexcept with gil:
    """Free the pool, called by a thread. If the interpreter is ending, this ends the thread, and
    the process ends anyway.
    """
    free_pool(pool)


cdef bint end_pool(Pool* pool, double seconds) noexcept:
    """End the threads and free everything; False if a thread is stuck and will free it instead."""
    cdef timespec until
    cdef int64_t until_ns
    cdef bint is_over
    clock_gettime(CLOCK_REALTIME, &until)
    until_ns = until.tv_nsec + <int64_t>(seconds * 1e9)
    until.tv_sec += until_ns // SECOND_NS
    until.tv_nsec = until_ns % SECOND_NS
    with nogil:
        pthread_mutex_lock(&pool.mutex)
        pool.is_stopping = True
        pthread_cond_broadcast(&pool.wanted)
        while pool.threads:
            if pthread_cond_timedwait(&pool.ended, &pool.mutex, &until) != 0:
                break
        is_over = pool.threads == 0
        pool.is_left = not is_over
        pthread_mutex_unlock(&pool.mutex)
    if is_over:
        free_pool(pool)
    return is_over


def _nothing():
    pass


cdef class Threads:
    """Threads that are started when first needed, up to `sync_threads` and `call_threads`.

    `after_calls` is called in the loop when calls have ended, after their `done`. All methods must
    be called in the running loop.
    """

    cdef Pool* _pool
    cdef object _loop
    cdef object _after_calls
    cdef Syncer _syncer         # receives the finished jobs
    cdef object _after_syncs
    cdef object _faults

    def __init__(self, loop not None, clock_ns not None, *, int sync_threads=SYNC_THREADS,
                 int call_threads=CALL_THREADS, after_calls=_nothing, faults=None):
        self._loop = loop
        self._after_calls = after_calls
        self._faults = Faults() if faults is None else faults
        self._pool = <Pool*>calloc(1, sizeof(Pool))
        if self._pool == NULL:
            raise MemoryError
        self._pool.event = open_event()
        if self._pool.event < 0:
            number = errno
            free(self._pool)
            self._pool = NULL
            raise OSError(number, os.strerror(number))
        self._pool.queues[<int>SYNC].running_max = sync_threads
        self._pool.queues[<int>CALL].running_max = call_threads
        Py_INCREF(clock_ns)
        self._pool.clock_ns = <void*>clock_ns
        pthread_mutex_init(&self._pool.mutex, NULL)
        pthread_cond_init(&self._pool.wanted, NULL)
        pthread_cond_init(&self._pool.ended, NULL)
        loop.add_reader(self.fileno(), self.collect)

    def __dealloc__(self):
        if self._pool != NULL:
            end_pool(self._pool, DEALLOC_SECONDS)

    def fileno(self):
        """The descriptor that is readable when work is done; -1 after `stop`."""
        return self._pool.event if self._pool != NULL else -1

    @property
    def count(self):
        """The number of threads."""
        return self._pool.threads if self._pool != NULL else 0

    @property
    def done_count(self):
        """The number of finished jobs that have not been collected."""
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

    def give_back_to(self, Syncer syncer not None, after_syncs not None):
        """Set the syncer that owns the commits; `after_syncs` is called once for all commits that
        are found finished at the same time.
        """
        self._syncer = syncer
        self._after_syncs = after_syncs

    def sync(self, SyncJob job not None):
        """Run a commit and return it to the syncer. After `stop` a commit never finishes."""
        cdef Work work
        assert self._syncer is not None, "commits need a syncer to return to"
        work.count = job.commit.descriptors(work.descriptors, work.paths, DESCRIPTORS_MAX)
        self._submit(&work, SYNC, job)

    def call(self, work not None, done not None):
        """Call `work` in a thread, then call `done` in the loop, with the error or None."""
        cdef ThreadCall call = ThreadCall.__new__(ThreadCall)
        cdef Work entry
        call.work = work
        call.done = done
        entry.count = -1
        self._submit(&entry, CALL, call)

    cdef int _submit(self, Work* wanted, Kind kind, job) except -1:
        """Queue a copy, with a reference to the job. After `stop` it is ignored."""
        cdef Pool* pool = self._pool
        cdef Work* work
        cdef bint wants_more
        if pool == NULL:
            return 0
        pthread_mutex_lock(&pool.mutex)
        wants_more = is_crowded(pool, kind)
        pthread_mutex_unlock(&pool.mutex)
        if wants_more:
            self._start_one()
        work = <Work*>malloc(sizeof(Work))
        if work == NULL:
            raise MemoryError
        work[0] = wanted[0]
        work.kind = kind
        work.job = <void*>job
        work.run_ns = work.failed = work.error = 0
        Py_INCREF(job)
        with nogil:
            pthread_mutex_lock(&pool.mutex)
            chain_add(&pool.queues[<int>kind].waiting, work)
            pool.queues[<int>kind].waiting_count += 1
            pthread_mutex_unlock(&pool.mutex)
            pthread_cond_signal(&pool.wanted)
        return 0

    cdef int _start_one(self) except -1:
        cdef pthread_t thread
        cdef pthread_attr_t attributes
        cdef sigset_t every, before
        cdef int number
        # Signals are for the loop. The lock is not held here, because the thread takes it first.
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
            # No other thread would ever run it.
            raise OSError(number, f"no thread can be started: {os.strerror(number)}")
        return 0

    cdef SyncJob _synced(self, Work* work):
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

    def collect(self):
        """Return finished work: commits first, so that they do not wait for requests."""
        cdef Pool* pool = self._pool
        cdef Chain calls, syncs
        cdef Work* work
        cdef Work* following
        cdef uint64_t events
        if pool == NULL:
            return
        read(pool.event, &events, sizeof(events))
        pthread_mutex_lock(&pool.mutex)
        work = pool.done.first
        pool.done.first = pool.done.last = NULL
        pthread_mutex_unlock(&pool.mutex)
        calls.first = calls.last = syncs.first = syncs.last = NULL
        while work != NULL:
            following = work.next
            chain_add(&calls if work.kind == CALL else &syncs, work)
            work = following
        try:
            if syncs.first != NULL:
                self._collect_syncs(&syncs)
            if calls.first != NULL:
                self._collect_calls(&calls)
        except BaseException:
            self._put_back(syncs.first)
            self._put_back(calls.first)
            raise

    cdef int _collect_syncs(self, Chain* syncs) except -1:
        cdef int64_t now_ns = monotonic_ns()
        cdef Work* work
        while syncs.first != NULL:
            work = syncs.first
            syncs.first = work.next
            self._syncer.complete(self._synced(work), now_ns)
        self._after_syncs()
        self._syncer.end_turn(now_ns)
        return 0

    cdef int _collect_calls(self, Chain* calls) except -1:
        cdef Work* work
        cdef ThreadCall call
        while calls.first != NULL:
            work = calls.first
            calls.first = work.next
            call = <ThreadCall>work.job
            Py_DECREF(call)
            free(work)
            try:
                call.done(call.error)
            except Exception as fault:
                self._faults.contain("worker", fault)
        self._after_calls()
        return 0

    cdef int _put_back(self, Work* work) except -1:
        """Store the rest of the collected work for the next `collect`."""
        cdef Pool* pool = self._pool
        cdef Work* following
        cdef uint64_t one = 1
        if pool == NULL or work == NULL:
            return 0
        pthread_mutex_lock(&pool.mutex)
        while work != NULL:
            following = work.next
            chain_add(&pool.done, work)
            work = following
        pthread_mutex_unlock(&pool.mutex)
        write(pool.event, &one, sizeof(one))
        return 0

    def stop(self, double seconds):
        """End the threads; False if one of them is stuck for this long.

        Queued work is finished first, but its callbacks are no longer called.
        """
        cdef Pool* pool = self._pool
        if pool != NULL:
            self._loop.remove_reader(pool.event)
        self._pool = NULL
        return pool == NULL or end_pool(pool, seconds)


cdef class FineTimer:
    """One deadline, precise to the microsecond; the timers of the loop count in milliseconds."""

    cdef int _descriptor

    def __cinit__(self):
        self._descriptor = open_timer()
        if self._descriptor < 0:
            number = errno
            raise OSError(number, os.strerror(number))

    def __dealloc__(self):
        self.close()

    def fileno(self):
        """The descriptor that is readable after the deadline."""
        return self._descriptor

    def set(self, int64_t after_ns):
        """Set the deadline to `after_ns` from now, replacing an earlier one."""
        if set_timer(self._descriptor, max(after_ns, 1)) != 0:
            number = errno
            raise OSError(number, os.strerror(number))

    def clear(self):
        """Acknowledge that the deadline has passed."""
        cdef uint64_t count
        read(self._descriptor, &count, sizeof(count))

    def close(self):
        """Close the descriptor; a second call does nothing."""
        if self._descriptor >= 0:
            close(self._descriptor)
            self._descriptor = -1
