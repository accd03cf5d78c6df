"""A set of sequences as an object; compiled callers use `tree` with the functions of its module."""

from libc.stdint cimport uint8_t

from tradewind.store.format.sequence_tree cimport SequenceTree

cdef enum:
    ENCODED_HEAD_BYTES = 10
    ENCODED_NODE_BYTES = 266

# Bytes that sequences_encode writes.
cdef size_t sequences_encoded_bytes(const SequenceTree* tree) noexcept nogil
cdef void sequences_encode(const SequenceTree* tree, uint8_t* target) noexcept nogil


cdef class SequenceSet:
    cdef SequenceTree tree
