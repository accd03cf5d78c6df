"""Group commit: the changes that a stream syncs before it acknowledges them.

Owns the hand-over between the event loop, which writes, and the thread that syncs. The loop makes a
`Commit` of everything written so far, a thread syncs it, and the loop finishes it; whatever is
written meanwhile belongs to the next one, so all messages of all turns during one sync share the
next. The loop waits for no sync; the few calls to the disk that it still makes are those of
`begin_commit` (writes) and `finish_commit` (names, and at most a few removals), see DURABILITY.md.

Most commits only sync files that are open: for those a thread needs their `descriptors` and nothing
of Python.

An object with commits is a `SyncTarget`: the syncer knows nothing else of it.
"""

from libc.stdint cimport uint64_t
from tradewind.store.files.open_files cimport BlockFile

import os
from contextlib import suppress
from functools import partial

from tradewind.errors import StoreError
from tradewind.store.files.disk import MissingFile, disk_error


cdef class Commit:
    """One sync of one stream: data and the names that lead to it, then what can wait."""

    def __init__(self, disk, uint64_t last_seq, tuple position not None, list files=None,
                 list folders=None, list asides=None):
        self.disk = disk
        self.last_seq = last_seq
        self.position = position
        self.marked = (0, 0)
        self.files = [] if files is None else files
        self.asides = [] if asides is None else asides
        self.folders = [] if folders is None else folders
        self.given_up = set()
        self.rewrites = []
        self._paths = []
        self.removed_keys = []

    def run(self):
        """Run the commit; called in a worker thread. The first failure ends it and is stored in
        `error`.
        """
        try:
            if self.stale_index is not None:
                self._remove_stale_index()
            if self.settling is not None:
                self.settling.save()
            self._sync_contents()
            if self.witness is not None:
                self.witness.save()
            if self.evidence is not None:
                self.evidence.save()
            for rewrite in self.rewrites:
                rewrite.run()
        except StoreError as error:
            self.error = error

    def _sync_contents(self):
        """Sync data and names in parallel: nothing is promised before all of them are on disk. Only
        new key files have names that exist when they are saved.
        """
        calls = [file.sync for file in self.files]
        calls += [partial(file.sync, is_named=False) for file in self.asides]
        names = [partial(self._sync_folder, folder) for folder in self.folders]
        if self.keys is not None:
            self.disk.together([*calls, self.keys.save])
            calls = []
        self.disk.together(calls + names)

    def _sync_folder(self, folder):
        try:
            self.disk.sync_directory(folder)
        except MissingFile:
            if folder not in self.given_up:
                raise

    def _remove_stale_index(self):
        """Remove it durably, because nothing may be promised next to a summary that does not know
        of it.
        """
        with suppress(MissingFile):
            self.disk.remove(self.stale_index)
        self.disk.sync_directory(self.stale_index.rpartition("/")[0])

    cdef int descriptors(self, int* found, const char** paths, int count_max) except -2:
        """Collect the open system files to sync, if that is all there is to do; returns their
        number, or -1 if `run` has to be called. `paths` gets the names under which they must be
        found, NULL for the asides.
        """
        cdef int count = 0
        cdef int total = len(self.files) + len(self.asides)
        cdef bytes path
        if self.folders or self.rewrites or self.witness is not None \
                or self.stale_index is not None or self.settling is not None \
                or self.evidence is not None or total == 0 or total > count_max:
            return -1
        for file in self.files:
            if type(file) is BlockFile:
                found[count] = (<BlockFile>file).pinned_descriptor()
                paths[count] = (<BlockFile>file).system_path()
            else:
                found[count] = file.fileno()
                path = os.fsencode(file.path)
                self._paths.append(path)
                paths[count] = path
            if found[count] < 0:
                return -1
            count += 1
        for file in self.asides:
            found[count] = file.fileno()
            paths[count] = NULL
            if found[count] < 0:
                return -1
            count += 1
        return count

    cdef int sync_failed(self, int index, int error) except -1:
        """Called when the sync of one of the descriptors failed with this errno."""
        cdef int named = len(self.files)
        file = self.files[index] if index < named else self.asides[index - named]
        if type(file) is BlockFile:
            (<BlockFile>file).note_failed_sync()
        self.error = disk_error(file.path, "sync", error)
        return 0


cdef class SyncTarget:
    """An object with commits: a `FileStore`, `ConsumerFiles` or `JournalFiles`.

    `failure` is the reason why it accepts no changes. The methods that do not raise here suit a
    target that writes only in its commits, and that can be tried again after any failure.
    """

    cpdef bint has_changes(self) except -1:
        """Whether a commit has anything to do."""
        raise AssertionError(f"{type(self).__name__} does not say this")

    cpdef bint wants_commit(self) except -1:
        """Whether there are changes for a commit that must not wait for the interval."""
        return False

    cpdef bint wants_another(self) except -1:
        """Whether a commit that has ended leaves work for another one that begins at once."""
        return self.has_changes()

    @property
    def unwritten_bytes(self):
        """The bytes that the operating system has not received yet."""
        return 0

    cpdef void flush(self) except *:
        """Write to the operating system."""

    cpdef Commit begin_commit(self):
        """Begin a commit; None if there is nothing to sync, or a commit is in progress."""
        raise AssertionError(f"{type(self).__name__} does not say this")

    cpdef void finish_commit(self, Commit commit) except *:
        """End a commit after its sync, or raise its error."""
        raise AssertionError(f"{type(self).__name__} does not say this")

    cpdef void drop_commit(self, Commit commit) except *:
        """End a commit whose owner has given up the target: only a failure still matters."""
        raise AssertionError(f"{type(self).__name__} does not say this")

    cpdef bint resume(self) except -1:
        """Try again after a full disk; false if it is still full, or broken for good."""
        return True

    cpdef void mark_idle(self) except *:
        """Called when there was no change for a while."""
