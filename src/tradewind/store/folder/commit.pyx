"""Group commit: what one stream wants to have on disk before it keeps its promises.

Owns the hand-over between the event loop, which writes, and the thread that syncs. The loop makes a
`Commit` of everything written so far, a thread syncs it, and the loop finishes it; whatever is
written meanwhile belongs to the next one, so all messages of all turns during one sync share the
next. The loop waits for no sync; the few calls to the disk that it still makes are those of
`begin_commit` (writes) and `finish_commit` (names, and at most a few removals), see DURABILITY.md.

Most commits only sync files that are open: for those a thread needs their `descriptors` and nothing
of Python.
"""

from libc.stdint cimport uint64_t
from tradewind.store.files.open_files cimport BlockFile

from contextlib import suppress

from tradewind.errors import StoreError
from tradewind.store.files.disk import MissingFile, disk_error


cdef class Commit:
    """One sync of one stream: data first, then the names that lead to it, then what can wait."""

    def __init__(self, disk, uint64_t last_seq, tuple position not None, list files=None,
                 list folders=None):
        self.disk = disk
        self.last_seq = last_seq
        self.position = position
        self.marked = (0, 0)
        self.files = [] if files is None else files
        self.folders = [] if folders is None else folders
        self.rewrites = []
        self.removed_keys = []

    def run(self):
        """In a worker thread. The first failure ends it and is kept in `error`."""
        try:
            if self.stale_index is not None:
                self._remove_stale_index()
            for file in self.files:
                file.sync()
            if self.keys is not None:
                self.keys.save()
            for folder in self.folders:
                self.disk.sync_directory(folder)
            if self.witness is not None:
                self.witness.save()
            if self.evidence is not None:
                self.evidence.save()
            for rewrite in self.rewrites:
                rewrite.run()
        except StoreError as error:
            self.error = error

    def _remove_stale_index(self):
        """Durably, because nothing may be promised next to a summary that does not know of it."""
        with suppress(MissingFile):
            self.disk.remove(self.stale_index)
        self.disk.sync_directory(self.stale_index.rpartition("/")[0])

    cdef int descriptors(self, int* found, int count_max) except -2:
        """The number of open system files to sync, if that is all there is to do; otherwise -1:
        call `run`.
        """
        cdef int count = 0, descriptor
        if self.folders or self.rewrites or self.witness is not None \
                or self.stale_index is not None \
                or self.evidence is not None or not self.files or len(self.files) > count_max:
            return -1
        for file in self.files:
            if type(file) is BlockFile:
                descriptor = (<BlockFile>file).pinned_descriptor()
            else:
                descriptor = file.fileno()
            if descriptor < 0:
                return -1
            found[count] = descriptor
            count += 1
        return count

    cdef int sync_failed(self, int index, int error) except -1:
        """The sync of one of the descriptors failed with this errno."""
        file = self.files[index]
        if type(file) is BlockFile:
            (<BlockFile>file).note_failed_sync()
        self.error = disk_error(file.path, "sync", error)
        return 0
