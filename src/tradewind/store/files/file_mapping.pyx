"""A file in memory, without a descriptor, whose bad sectors do not end the process.

Owns one read-only mapping of the operating system and releases it when it is no longer referenced.
The mapping of the standard library keeps a copy of the descriptor as long as it lives; with a block
of every stream mapped, a server would run out of them. Only `disk` creates these.

A page that the system cannot read, because the sector is bad or the file was truncated, raises
SIGBUS in whichever thread touches it, and that ends the process. The guard here is a handler of
that signal:

- it looks the address up in a table of the live mappings, without a lock;
- if it is in one of them, the page becomes zeros, the mapping counts a fault, and the thread
  continues. After a few pages the whole mapping becomes zeros, because every page of a dying disk
  can take seconds. Zeros may therefore stand where the file is good: a non-zero `faults` means that
  nothing in this mapping can be trusted;
- any other address is passed to the previous handler, as if there were no guard.

Zeros are not a record, so readers find damage, and the code that decides about damage reads the
file again through `read`, which raises. The guard is installed with the first mapping and checked
with every further one (faulthandler and others use the signal too). Readers pay nothing for it.

The handler is C in one piece, because nothing that Cython could add may run in there.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport errno
from libc.stdint cimport uint64_t, uintptr_t
from posix.mman cimport MADV_DONTNEED, MAP_FAILED, MAP_SHARED, PROT_READ, madvise, mmap, munmap

import os

cdef extern from *:
    """
    #include <errno.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>

    /* How Linux says that a thread raised a signal; other systems say it as for `kill`. */
    #ifndef SI_TKILL
    #define SI_TKILL SI_USER
    #endif

    #define GUARD_CHUNK_SLOTS 1024
    #define GUARD_CHUNKS_MAX 256
    /* So many pages of a mapping are replaced one by one, then all of it. */
    #define GUARD_PAGES_MAX 16
    /* A handler that raises the signal again might have us as its predecessor. */
    #define GUARD_RAISED_MAX 4

    typedef struct guard_slot {
        uint32_t version;           /* odd while it is being changed */
        uintptr_t start;            /* 0: nothing is mapped here */
        uintptr_t end;
        uint64_t faults;
        struct guard_slot* next;    /* of those without a mapping */
    } guard_slot;

    static guard_slot* guard_chunks[GUARD_CHUNKS_MAX];
    static uint32_t guard_chunk_count;
    static guard_slot* guard_free;
    static uintptr_t guard_page_size;
    static uint64_t guard_total;
    static uint32_t guard_raised;
    static struct sigaction guard_previous;

    /* The slot of a live mapping that holds an address. One that is being changed is of no live
       mapping, so it is passed over: whoever faults holds the mapping that it reads. */
    static guard_slot* guard_find(uintptr_t address)
    {
        uint32_t count = __atomic_load_n(&guard_chunk_count, __ATOMIC_ACQUIRE);
        for (uint32_t chunk = 0; chunk < count; chunk++)
            for (uint32_t index = 0; index < GUARD_CHUNK_SLOTS; index++) {
                guard_slot* slot = &guard_chunks[chunk][index];
                uint32_t version = __atomic_load_n(&slot->version, __ATOMIC_ACQUIRE);
                uintptr_t start = __atomic_load_n(&slot->start, __ATOMIC_ACQUIRE);
                uintptr_t end = __atomic_load_n(&slot->end, __ATOMIC_ACQUIRE);
                if (start != 0 && start <= address && address < end && !(version & 1)
                        && version == __atomic_load_n(&slot->version, __ATOMIC_ACQUIRE))
                    return slot;
            }
        return NULL;
    }

    static int guard_zero(uintptr_t start, uintptr_t end)
    {
        return mmap((void*)start, end - start, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                    -1, 0) == MAP_FAILED ? -1 : 0;
    }

    static int guard_replace(uintptr_t address)
    {
        guard_slot* slot = guard_find(address);
        uintptr_t page = address & ~(guard_page_size - 1);
        uint64_t faults;
        if (slot == NULL)
            return -1;
        faults = __atomic_add_fetch(&slot->faults, 1, __ATOMIC_ACQ_REL);
        __atomic_add_fetch(&guard_total, 1, __ATOMIC_ACQ_REL);
        if (faults <= GUARD_PAGES_MAX && guard_zero(page, page + guard_page_size) == 0)
            return 0;
        /* Also if there are too many mappings to split one: this joins what was split. */
        return guard_zero(slot->start,
                          (slot->end + guard_page_size - 1) & ~(guard_page_size - 1));
    }

    static void guard_default(int number, int is_fault)
    {
        struct sigaction action;
        memset(&action, 0, sizeof(action));
        action.sa_handler = SIG_DFL;
        sigaction(number, &action, NULL);
        if (!is_fault)
            raise(number);      /* the instruction of a fault raises it by itself */
    }

    /* What is not ours goes to whoever had the signal before. */
    static void guard_pass_on(int number, siginfo_t* info, void* context)
    {
        int is_fault = info->si_code > 0;
        int is_raised = info->si_code == SI_TKILL && info->si_pid == getpid();
        if (guard_previous.sa_handler == SIG_IGN && !is_fault)
            return;
        if (guard_previous.sa_handler == SIG_DFL || guard_previous.sa_handler == SIG_IGN
                || (is_raised && __atomic_add_fetch(&guard_raised, 1, __ATOMIC_ACQ_REL)
                                 > GUARD_RAISED_MAX)) {
            guard_default(number, is_fault);
            return;
        }
        if (guard_previous.sa_flags & SA_SIGINFO)
            guard_previous.sa_sigaction(number, info, context);
        else
            guard_previous.sa_handler(number);
    }

    static void guard_handler(int number, siginfo_t* info, void* context)
    {
        int saved = errno;
        if (info->si_code <= 0 || guard_replace((uintptr_t)info->si_addr) != 0)
            guard_pass_on(number, info, context);
        errno = saved;
    }

    /* Ours is the handler from now on; the one before it is kept. */
    static int guard_install(void)
    {
        struct sigaction action;
        guard_raised = 0;
        if (sigaction(SIGBUS, NULL, &action) != 0)
            return -1;
        if ((action.sa_flags & SA_SIGINFO) && action.sa_sigaction == guard_handler)
            return 0;
        guard_previous = action;
        guard_page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
        memset(&action, 0, sizeof(action));
        sigemptyset(&action.sa_mask);
        action.sa_sigaction = guard_handler;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        return sigaction(SIGBUS, &action, NULL);
    }

    /* A slot for a mapping; NULL if there is no memory, or there are too many. */
    static guard_slot* guard_take(uintptr_t start, uintptr_t end)
    {
        guard_slot* slot;
        if (guard_free == NULL) {
            guard_slot* chunk;
            if (guard_chunk_count == GUARD_CHUNKS_MAX)
                return NULL;
            chunk = calloc(GUARD_CHUNK_SLOTS, sizeof(guard_slot));
            if (chunk == NULL)
                return NULL;
            for (uint32_t index = 0; index < GUARD_CHUNK_SLOTS; index++) {
                chunk[index].next = guard_free;
                guard_free = &chunk[index];
            }
            guard_chunks[guard_chunk_count] = chunk;
            __atomic_store_n(&guard_chunk_count, guard_chunk_count + 1, __ATOMIC_RELEASE);
        }
        slot = guard_free;
        guard_free = slot->next;
        __atomic_store_n(&slot->version, slot->version + 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&slot->end, end, __ATOMIC_SEQ_CST);
        __atomic_store_n(&slot->faults, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&slot->start, start, __ATOMIC_SEQ_CST);
        __atomic_store_n(&slot->version, slot->version + 1, __ATOMIC_SEQ_CST);
        return slot;
    }

    static void guard_give_back(guard_slot* slot)
    {
        __atomic_store_n(&slot->version, slot->version + 1, __ATOMIC_SEQ_CST);
        __atomic_store_n(&slot->start, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&slot->version, slot->version + 1, __ATOMIC_SEQ_CST);
        slot->next = guard_free;
        guard_free = slot;
    }

    static uint64_t guard_faults(const guard_slot* slot)
    {
        return __atomic_load_n(&slot->faults, __ATOMIC_ACQUIRE);
    }
    """
    ctypedef struct guard_slot:
        pass
    int guard_install() nogil
    guard_slot* guard_take(uintptr_t start, uintptr_t end) nogil
    void guard_give_back(guard_slot* slot) nogil
    uint64_t guard_faults(const guard_slot* slot) nogil

cdef enum:
    # Memory is used only for what is read, addresses for all of it.
    AHEAD_BYTES = 131072

cdef Py_ssize_t alive = 0


cdef class FileMapping:
    """A mapping of the first `size` bytes of an open file; size is above 0. OSError if the system
    refuses.

    Bytes appended to the file later show after them, up to a distance: `grow` makes them part of
    the mapping, so that a reader of recent writes need not map the file each time.
    """

    cdef void* data
    cdef size_t size
    cdef size_t reach           # so much is mapped; bytes after `size` are never read
    cdef guard_slot* slot       # in the table of the guard
    cdef object __weakref__

    def __cinit__(self, int descriptor, size_t size):
        global alive
        if guard_install() != 0:
            raise OSError(errno, os.strerror(errno))
        self.reach = size + AHEAD_BYTES
        self.data = mmap(NULL, self.reach, PROT_READ, MAP_SHARED, descriptor, 0)
        if self.data == MAP_FAILED:
            self.data = NULL
            raise OSError(errno, os.strerror(errno))
        self.size = size
        self.slot = guard_take(<uintptr_t>self.data, <uintptr_t>self.data + self.reach)
        if self.slot == NULL:
            munmap(self.data, self.reach)
            self.data = NULL
            raise OSError(12, os.strerror(12))      # ENOMEM: as if there were too many mappings
        alive += 1

    def __dealloc__(self):
        global alive
        if self.data != NULL:
            guard_give_back(self.slot)
            munmap(self.data, self.reach)
            alive -= 1

    def __len__(self):
        return self.size

    @property
    def faults(self):
        """The number of failed reads; unless it is 0, any part may be zeros."""
        return guard_faults(self.slot)

    def forget_pages(self):
        """Stop counting the pages read as memory of the process; they stay readable."""
        madvise(self.data, self.size, MADV_DONTNEED)

    def grow(self, size_t size):
        """Extend the mapping to the file's present size; false if it does not reach so far."""
        if size > self.reach:
            return False
        self.size = max(self.size, size)
        return True

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)


class PlainCopy(bytearray):
    """Decrypted bytes of a file, in memory; the disk could not supply `unreadable` of them."""

    unreadable = 0


def is_unreadable(view):
    """Whether a mapping returned by `DiskFile.map`, or a part of it, may have zeros in unreadable
    places. False for bytes.
    """
    mapping = view.obj if isinstance(view, memoryview) else view
    if isinstance(mapping, PlainCopy):
        return mapping.unreadable > 0
    return isinstance(mapping, FileMapping) and mapping.faults > 0


def mappings_alive():
    """Number of mappings in this process; the system allows about 65,000."""
    return alive
