# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Tight loops over the message store's C interface, as the server calls it once per message."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from tradewind.store.table.message_store cimport MessageStore
from tradewind.store.format.records cimport Record
from tradewind.store.table.subject_index cimport SubjectFilter

cdef inline uint64_t next_random(uint64_t* state) noexcept nogil:
    """SplitMix64: good enough to leave no order, and the same in every run."""
    cdef uint64_t value
    state[0] += 0x9E3779B97F4A7C15ull
    value = state[0]
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBull
    return value ^ (value >> 31)


def append(MessageStore store, list subjects, bytes payload, uint64_t count, uint64_t flush_every,
           int64_t timestamp, files=None):
    """Stores `count` messages, the subjects in turn, with a flush of `files` after each
    `flush_every`.
    """
    cdef size_t subject_count = len(subjects), position = 0
    cdef const char** names = <const char**>malloc(subject_count * sizeof(char*))
    cdef uint32_t* sizes = <uint32_t*>malloc(subject_count * sizeof(uint32_t))
    cdef const char* data = payload
    cdef uint32_t size = <uint32_t>len(payload)
    cdef uint64_t number
    if names == NULL or sizes == NULL:
        free(names)
        free(sizes)
        raise MemoryError
    try:
        for position in range(subject_count):
            names[position] = PyBytes_AS_STRING(subjects[position])
            sizes[position] = <uint32_t>len(subjects[position])
        position = 0
        for number in range(1, count + 1):
            store.append(names[position], sizes[position], NULL, 0, data, size,
                         timestamp + <int64_t>number)
            position += 1
            if position == subject_count:
                position = 0
            if flush_every and number % flush_every == 0:
                files.flush()
    finally:
        free(names)
        free(sizes)


def read_random(MessageStore store, uint64_t count, uint64_t seed):
    """Loads messages of random sequences; returns the sum of their payload sizes."""
    cdef uint64_t state = seed, total = 0, _number, first = store.first_seq
    cdef uint64_t span = store.last_seq - store.first_seq + 1
    cdef Record record
    for _number in range(count):
        if store.read(first + next_random(&state) % span, &record) == 0:
            total += record.payload_size
    return total


def read_all(MessageStore store, SubjectFilter chosen):
    """Loads every message that passes, in order; returns how many there were."""
    cdef uint64_t seq = store.next_matching(0, chosen), count = 0
    cdef Record record
    while seq:
        if store.read(seq, &record) != 0:
            raise ValueError(f"{seq} matches but cannot be read")
        count += 1
        seq = store.next_matching(seq + 1, chosen)
    return count


def shuffled(uint64_t first, uint64_t count, uint64_t seed):
    """The sequences from `first` on in a random order, as a memoryview of unsigned 64-bit."""
    from array import array

    result = array("Q", [0]) * count
    cdef uint64_t[::1] view = result
    cdef uint64_t index, other, state = seed
    for index in range(count):
        view[index] = first + index
    for index in range(count - 1, 0, -1):
        other = next_random(&state) % (index + 1)
        view[index], view[other] = view[other], view[index]
    return result


def remove(MessageStore store, uint64_t[::1] sequences, uint64_t flush_every, files):
    """Deletes these messages as an acknowledgement on a work queue does."""
    cdef uint64_t number = 0
    cdef Py_ssize_t index
    for index in range(sequences.shape[0]):
        if store.forget_message(sequences[index], True) != 0:
            raise ValueError(f"{sequences[index]} is not there")
        number += 1
        if flush_every and number % flush_every == 0:
            files.flush()
