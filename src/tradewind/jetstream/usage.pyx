"""Bytes in use and bytes promised to streams, by kind of storage.

Owns four numbers. They change in every turn in which something is stored: of the stream, of its
account and of the server.
"""

from libc.stdint cimport int64_t


cdef class Usage:
    """Of one stream, of the streams of an account, or of all of them."""

    def __init__(self, int64_t memory=0, int64_t storage=0, int64_t reserved_memory=0,
                 int64_t reserved_storage=0):
        self.memory = memory
        self.storage = storage
        self.reserved_memory = reserved_memory
        self.reserved_storage = reserved_storage

    def replace(self, Usage old not None, Usage new not None):
        """A part of the sum has changed."""
        self.memory += new.memory - old.memory
        self.storage += new.storage - old.storage
        self.reserved_memory += new.reserved_memory - old.reserved_memory
        self.reserved_storage += new.reserved_storage - old.reserved_storage
