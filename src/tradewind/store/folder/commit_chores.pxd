"""Chores of commits, for compiled callers; the code and the explanation are in commit_chores.py.

That module is compiled Python, because every commit asks whether it has chores.
"""

from libc.stdint cimport uint64_t
from tradewind.store.folder.rewrite cimport Rewriter
from tradewind.store.table.message_store cimport MessageStore


cdef class BlockTrash:
    # (position, blocks): the position that a mark on disk must have reached before they go.
    cdef list _groups
    cdef uint64_t _newest_then              # the number of the last block when some went last

    cdef bint is_empty(self) noexcept


cdef class CommitChores:
    cdef object _owner                      # ChoresOwner
    cdef object _disk                       # Disk
    cdef str _folder                        # the `msgs` directory of the stream
    cdef MessageStore _table
    cdef Rewriter _rewriter
    cdef object _damage                     # DamageResolution
    cdef object _witness                    # Witness
    cdef object _vault                      # StreamVault; None: the stream is not encrypted
    cdef public bint names_changed          # in the folder, and that is not durable
    cdef public bint index_file_present
    cdef readonly list unsafe_files         # paths of those that `secure` has to sync
    cdef object _insecure                   # StoreError of `secure`, or None
    cdef uint64_t _reserved_seq             # beyond it a commit has to update the witness
    cdef list _keys_to_remove               # of blocks whose removal may not be durable
    cdef BlockTrash _trash

    cdef bint are_due(self) except -1
    cdef bint are_waiting(self) except -1
    cdef bint _wants_keys(self) except -1
