"""Bytes in use and bytes promised to streams, by kind of storage.

Owns four numbers each, of a stream, of its account and of the server. They change in every turn in
which something is stored. The bytes that a stream may store without asking are its *credit*.
"""

from libc.stdint cimport int64_t
from tradewind cimport invariants
from tradewind.stream.ingest cimport Ingest

cdef enum:
    CREDIT_BYTES = 67108864


cdef class Usage:
    """The bytes of one stream, of the streams of an account, or of all of them."""

    def __init__(self, int64_t memory=0, int64_t storage=0, int64_t reserved_memory=0,
                 int64_t reserved_storage=0):
        self.memory = memory
        self.storage = storage
        self.reserved_memory = reserved_memory
        self.reserved_storage = reserved_storage

    def replace(self, Usage old not None, Usage new not None):
        """Replace one part of the sum."""
        self.memory += new.memory - old.memory
        self.storage += new.storage - old.storage
        self.reserved_memory += new.reserved_memory - old.reserved_memory
        self.reserved_storage += new.reserved_storage - old.reserved_storage


cdef int check_sums(Usage account, Usage server) except -1:
    """Assert that no sum is negative, and that no account exceeds the server."""
    assert 0 <= account.memory <= server.memory, (account.memory, server.memory)
    assert 0 <= account.storage <= server.storage, (account.storage, server.storage)
    assert 0 <= account.reserved_memory <= server.reserved_memory, (
        account.reserved_memory, server.reserved_memory)
    assert 0 <= account.reserved_storage <= server.reserved_storage, (
        account.reserved_storage, server.reserved_storage)
    return 0


cdef class UsageShare:
    """The share of one stream in the sums of its account and of the server.

    `room_share()` returns how much each stream of the account could still store. `kept_bytes` are
    the bytes stored beside the messages of the stream, which count like those.
    """

    def __init__(self, Ingest ingest not None, Usage of_account not None, Usage of_server not None,
                 room_share not None):
        self._ingest = ingest
        self._of_account = of_account
        self._of_server = of_server
        self._room_share = room_share
        self._counted = Usage()
        self._is_tight = True

    cdef int update(self) except -1:
        """Called when the stream has stored or removed messages; its reservation is unchanged."""
        cdef Usage usage = self._counted
        cdef int64_t more = (<int64_t>self._ingest.store.bytes + self.kept_bytes - usage.memory
                             - usage.storage)
        if more:
            if not self._ingest.store.keeps_tombstones:
                usage.memory += more
                self._of_account.memory += more
                self._of_server.memory += more
            else:
                usage.storage += more
                self._of_account.storage += more
                self._of_server.storage += more
            if invariants.checked:
                check_sums(self._of_account, self._of_server)
        if self._is_tight or self._ingest.credit_bytes < CREDIT_BYTES // 2:
            self.grant_credit()
        return 0

    def grant_credit(self):
        """Set how many bytes the stream may store without asking.

        While there is room for the credit of every stream, none can use up that of another;
        otherwise it is distributed anew in every turn.
        """
        cdef int64_t share = self._room_share()
        self._is_tight = share < CREDIT_BYTES
        self._ingest.credit_bytes = min(share, <int64_t>CREDIT_BYTES)

    def count(self, Usage usage not None):
        """Set the bytes that the stream uses and reserves."""
        self._of_account.replace(self._counted, usage)
        self._of_server.replace(self._counted, usage)
        self._counted = usage
        if invariants.checked:
            check_sums(self._of_account, self._of_server)
