"""The short ways of a store that is alone, or that need not wait for the disk.

Owns what the syncer knows of each store. These ways come to what `mark_dirty` and `end_turn` of the
subclass, `Syncer`, would come to, without the way there: they are what happens to a busy store in
almost every turn.
"""

from libc.stdint cimport int64_t
from tradewind.store.file_core cimport FileCore

from tradewind.errors import StoreError


cdef class SyncEntry:
    """A store and how far it is."""

    def __init__(self, target, mode, on_synced, on_failure, on_resumed):
        self.target = target
        self.files = target if isinstance(target, FileCore) else None
        self.mode = mode
        self.on_synced = on_synced
        self.on_failure = on_failure
        self.on_resumed = on_resumed
        self.is_attached = True


cdef class SyncerCore:
    """The subclass has `fail`, which ends the promises of one store."""

    def __cinit__(self):
        self._entries = {}
        self._marked = {}
        self._quiet = {}

    cdef bint write_entry(self, SyncEntry entry, int64_t now_ns) except -1:
        cdef FileCore files = entry.files
        if not entry.waits_for_interval or entry.job is not None or entry.is_marked \
                or files is None or files.is_waiting() or files.failure is not None:
            return False
        entry.touched_ns = now_ns
        try:
            files.write_last()
        except StoreError as error:
            self.fail(entry, error, now_ns)
            return False
        return True

    def write_through(self, target not None, int64_t now_ns):
        """Write a store that is going to be synced by the interval anyway; false: mark it instead.
        """
        return self.write_entry(self._entries[id(target)], now_ns)

    def sync_alone(self, target not None, int64_t now_ns):
        """Sync a store in this thread, if that is all there is to do; false: mark it instead."""
        cdef SyncEntry entry = self._entries[id(target)]
        if not entry.syncs_always or entry.job is not None or entry.has_failed \
                or entry.files is None or self._marked or self.statistics.running:
            return False
        entry.touched_ns = now_ns
        try:
            if not target.commit_alone():
                return False
        except StoreError as error:
            self.fail(entry, error, now_ns)
            return False
        self.statistics.commits += 1
        self.statistics.syncs += 1
        self._quiet[entry] = None
        if self._idle_at_ns is None:
            self._idle_at_ns = now_ns + self.idle_ns
        return True
