"""One block: a run of records, in a file or in memory, and the index that finds them.

Owns the bytes of the block that are not in the file yet (the tail), the mapping of those that are,
and per sequence the offset of its record and the id of its subject. It never decides which messages
to keep, and it does no I/O but through its DiskFile.

Invariants - a sequence s is live iff first_seq <= s <= last_seq, s is not in `deleted`, and (when
loaded) its offset is not NO_RECORD; live_msgs and live_bytes are the count and the sum of record
sizes of those;
- records never move: an offset stays valid until the block is compacted, which forgets the index;
- pointers given out by `read` are valid until the next append, flush or eviction.

The index costs 8 bytes a message. It is built when the block is written or scanned and may be
dropped under memory pressure; `scan` builds it again from the bytes, without the checksums, which
were verified when the store was opened.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy
from tradewind cimport invariants
from tradewind.saturated cimport CLOCK_SLACK_NS, later
from tradewind.store.format.hash cimport Key
from tradewind.store.format.lengths cimport (
    MARK_LENGTHS, is_plain_header, length_term, lengths_value)
from tradewind.store.files.open_files cimport BlockFile
from tradewind.store.table.record_index cimport (
    NO_RECORD, records_find, records_free, records_from, records_init, records_last, records_memory,
    records_push, records_seq, records_shrink, records_start)
from tradewind.store.format.records cimport (
    MEMORY_RECORD_MAX, RECORD_MAX, RECORD_MIN, RECORD_OK, erase_record, mark_time, parse_limited,
    parse_record, record_is_intact, write_record)
from tradewind.store.format.sequence_tree cimport (
    sequences_contains, sequences_count, sequences_delete, sequences_delete_below, sequences_insert,
    sequences_insert_range, sequences_last, sequences_next_absent)
from tradewind.containers.buffer cimport (
    buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size)

from tradewind.errors import CorruptRecord, StoreError
from tradewind.store.format import s2
from tradewind.store.files.disk import MissingFile, is_unreadable, read_readable
from tradewind.store.format.hash import key_for
from tradewind.store.files.file_mapping import FileMapping, PlainCopy
from tradewind.store.files.file_mapping import is_unreadable as has_unreadable_pages

cdef enum:
    TOMBSTONE_BIT = 62
    ERASED_BIT = 63
    TAIL_KEEP_BYTES = 65536
    COMPRESSED_HEAD = 24
    # From the first to the last live message of a block; what is deleted between them are bits.
    SPAN_MAX = 67108864
    # A decrypted copy of a block that grows has room for as much.
    COPY_BYTES_MIN = 65536
    FILLER_MAX = 16777216

cdef class Block:
    """Block `number` of a stream; `file` is a DiskFile, or None for a memory stream."""

    def __cinit__(self):
        buffer_init(&self.tail)
        records_init(&self.records)

    def __init__(self, str stream not None, uint32_t number, file=None):
        cdef Key key = key_for(f"{stream}-{number}")
        self.key = key.state
        self.number = number
        self.file = file
        self.verified = True
        self.file_records_known = True
        self.deleted = SequenceSet()

    def __dealloc__(self):
        buffer_free(&self.tail)
        records_free(&self.records)

    # -------------------------------------------------------------- bytes

    cdef int _map(self) except -1:
        """Map (or inflate) the content of the file; CorruptRecord if the file is gone."""
        cdef const unsigned char[::1] view
        if self.file is None:
            raise StoreError("a block in memory has nothing to map")
        if self.owned and self._extend() or self._grow():
            return 0
        self.mapped_data = NULL
        self.mapped_size = 0
        self.owned = False
        try:
            self.mapped = self.file.map()
        except MissingFile as error:
            raise CorruptRecord(self.path, 0, "the file is gone") from error
        self.compressed = s2.is_compressed(bytes(self.mapped[:COMPRESSED_HEAD]))
        if self.compressed:
            # Damaged parts come back as zeros: only the records in them are lost.
            raw, self.mapped = self.mapped, None
            return self._take(s2.salvage_block(bytes(raw))[0])
        self.owned = isinstance(self.mapped.obj, PlainCopy)
        if self.owned and self.written:
            # The bytes of a failed write are written again, possibly as others.
            self.mapped = self.mapped[:self.written]
        view = self.mapped
        if view.shape[0]:
            self.mapped_data = <const char*>&view[0]
        self.mapped_size = view.shape[0]
        return 0

    cdef bint _grow(self) except -1:
        """Extend the mapping to bytes written since; false if it does not reach so far."""
        if self.mapped_size == 0 or self.mapped_size >= self.written or self.patched \
                or not isinstance(self.mapped, memoryview):
            return False
        mapping = self.mapped.obj
        if not isinstance(mapping, FileMapping) or mapping.faults \
                or not mapping.grow(self.written):
            return False
        self.mapped = memoryview(mapping)
        self.mapped_size = self.written
        return True

    cdef bint _extend(self) except -1:
        """Decrypt only the bytes written since the copy was made; false if there is no copy."""
        cdef const unsigned char[::1] view
        if self.patched or self.compressed or not isinstance(self.mapped, memoryview) \
                or not isinstance(self.mapped.obj, PlainCopy):
            return False
        copy, start = self.mapped.obj, self.mapped_size
        content, unreadable = self.file.read_plain(start)
        content = content[:max(self.written, start) - start]
        end = start + len(content)
        if end > len(copy):
            # Holders of the old copy keep it.
            larger = PlainCopy(max(2 * end, COPY_BYTES_MIN))
            memoryview(larger)[:start] = self.mapped
            larger.unreadable = copy.unreadable
            copy = larger
        memoryview(copy)[start:end] = content
        copy.unreadable += unreadable
        self.mapped = memoryview(copy)[:end]
        view = self.mapped
        if end:
            self.mapped_data = <const char*>&view[0]
        self.mapped_size = end
        return len(content) > 0

    cdef int _take(self, bytes content) except -1:
        """Use these bytes, which are in memory, as the content of the file."""
        cdef const unsigned char[::1] view = content
        self.mapped = content
        self.mapped_data = <const char*>&view[0] if view.shape[0] else NULL
        self.mapped_size = view.shape[0]
        self.owned = True
        return 0

    def read_again(self):
        """Read the file instead of mapping it: reads reveal unreadable bytes, which become zeros.
        Returns the number of those bytes; a missing file counts as empty.
        """
        cdef bytes content
        try:
            content, unreadable = read_readable(self.file)
        except MissingFile:
            content, unreadable = b"", 0
        self.compressed = s2.is_compressed(content[:COMPRESSED_HEAD])
        self._take(s2.salvage_block(content)[0] if self.compressed else content)
        return unreadable

    def stored_bytes(self):
        """The stored bytes of an encrypted block; None if they equal its plain bytes."""
        if not isinstance(self.file, BlockFile) or self.file.cipher is None or self.compressed:
            return None
        return self.file.read_stored()[0]

    cpdef bint has_faulted(self) except -1:
        """Whether a part of the mapping was unreadable: any part of it may be zeros."""
        return has_unreadable_pages(self.mapped)

    cdef const char* _at(self, uint32_t offset, uint32_t size) except NULL:
        """A pointer to `size` bytes of the block."""
        if offset >= self.written:
            if <uint64_t>offset + size > self.size:
                raise CorruptRecord(self.path, offset, "beyond the end of the block")
            return self.tail.data + self.tail.begin + (offset - self.written)
        if <uint64_t>offset + size > self.mapped_size:
            self._map()
            if <uint64_t>offset + size > self.mapped_size:
                raise CorruptRecord(self.path, offset, "beyond the end of the file")
        return self.mapped_data + offset

    @property
    def path(self):
        """The path of the file; for messages."""
        return "memory" if self.file is None else self.file.path

    def last_checksum(self):
        """The last 8 bytes of the block; zeros if it is empty."""
        if self.size < RECORD_MIN:
            return bytes(8)
        return self._at(<uint32_t>(self.size - 8), 8)[:8]

    @property
    def pending_bytes(self):
        """Number of bytes not yet in the file."""
        return self.size - self.written

    cpdef int flush(self, size_t size_max=0) except -1:
        """Write the tail, or its first `size_max` bytes, in one write.

        StoreError leaves everything unchanged, to be retried.
        """
        cdef size_t size = buffer_size(&self.tail)
        cdef const char* start
        if self.file is None or size == 0:
            return 0
        if size_max and size_max < size:
            size = size_max
        start = self.tail.data + self.tail.begin
        if invariants.checked:
            self._check_tail()
        if type(self.file) is BlockFile:
            (<BlockFile>self.file).write_from(start, size, self.written)
        else:
            self.file.write((<const unsigned char[:size]><const unsigned char*>start), self.written)
        self.written += size
        if self.written != self.size:
            self.tail.begin += size
            return 0
        if self.tail.capacity > TAIL_KEEP_BYTES * 4 and size < TAIL_KEEP_BYTES:
            buffer_free(&self.tail)
        else:
            buffer_clear(&self.tail)
        return 0

    cdef int _check_tail(self) except -1:
        """Assert that the bytes to be written are whole records, each with its checksum."""
        cdef Record record
        cdef size_t at = self.tail.begin
        assert invariants.is_sound(&self.tail)
        assert self.written + (self.tail.end - at) == self.size, (self.written, self.size)
        while at < self.tail.end:
            assert parse_record(self.tail.data + at, self.tail.end - at, &record) == RECORD_OK, at
            assert record_is_intact(&self.key, &record), (at, record.seq)
            assert record.seq <= self.last_seq, (record.seq, self.last_seq)
            at += record.size
        return 0

    def assume_written(self):
        """Note that someone else has written the exact bytes of the tail to the file."""
        self.written = self.size
        buffer_clear(&self.tail)

    def release(self):
        """Release memory: the index and the mapping; only for a block with nothing in its tail."""
        if self.file is None or self.size != self.written or self.patched:
            return
        records_free(&self.records)
        self.unmap()
        buffer_free(&self.tail)

    def close(self):
        """Release everything and close the file."""
        self.patched = False
        self.release()
        if self.file is not None:
            self.file.close()

    @property
    def memory_bytes(self):
        """Anonymous memory that `release` would free, and the tail."""
        inflated = self.mapped_size if self.owned or self.patched else 0
        return records_memory(&self.records) + self.tail.capacity + inflated

    def rewrite(self, parts, disk):
        """Rewrite the file and drop the index.

        `parts` are (offset, size) ranges to keep, or bytes to insert.
        """
        cdef bytes plain = self.plain_bytes()[:self.size]
        content = b"".join(part if isinstance(part, bytes) else plain[part[0]:part[0] + part[1]]
                           for part in parts)
        disk.write_file_atomically(self.file.path, self.file.stored(content))
        self.patched = False
        self.unreadable = 0
        self.unmap()
        records_free(&self.records)
        self.file.close()
        self.size = self.written = len(content)
        self.compressed = False

    def plain_view(self, uint64_t start=0):
        """The content of the file from an offset on, uncompressed; it stays valid whatever happens
        to the block.
        """
        if self.written > self.mapped_size:
            self._map()
        return memoryview(self.mapped)[start:self.written]

    def erase_in_tail(self, uint64_t seq, uint32_t offset):
        """Erase a record that is not in the file yet; false if it is."""
        cdef uint32_t size
        cdef char* target
        if offset < self.written:
            return False
        target = self.tail.data + self.tail.begin + (offset - self.written)
        memcpy(&size, target, 4)
        if erase_record(target, &self.key, size & 0x7FFFFFFF, seq) != 0:
            raise MemoryError
        return True

    def live_offsets(self):
        """The offsets of the live messages, ascending, as 4 bytes each; the block must be loaded.
        """
        cdef RecordIndex* records = &self.records
        cdef uint32_t entry, count = 0
        cdef bytes result = PyBytes_FromStringAndSize(NULL, records.count * sizeof(uint32_t))
        cdef uint32_t* offsets = <uint32_t*>PyBytes_AS_STRING(result)
        for entry in range(records.count):
            if records.offsets[entry] != NO_RECORD:
                offsets[count] = records.offsets[entry]
                count += 1
        return result[:count * sizeof(uint32_t)]

    def adopt_compacted(self, uint64_t size, uint64_t tombstones):
        """Adopt a compacted copy of `size` plain bytes, which has replaced the file."""
        self.unmap()
        records_free(&self.records)
        self.size = self.written = size
        self.tombstones = tombstones
        self.queued = False

    def last_live(self):
        """The sequence and time of the last live message; the block must be loaded. Zeros: none."""
        cdef RecordIndex* records = &self.records
        cdef uint32_t entry = records.count
        cdef int64_t timestamp
        while entry:
            entry -= 1
            if records.offsets[entry] != NO_RECORD:
                memcpy(&timestamp, self._at(records.offsets[entry], RECORD_MIN) + 12, 8)
                return records_seq(records, entry), timestamp
        return 0, 0

    def finish_compaction(self, uint64_t messages, uint64_t lowest, SequenceSet gone not None,
                         uint64_t last_seq, int64_t last_timestamp):
        """Complete a compaction, whose copy is the only one that a power failure can leave: `gone`
        have no records.

        It ends with `last_seq`, and so does the block, as if it were read anew: what follows is a
        gap between blocks.
        """
        cdef uint64_t deleted
        self.file_records = messages
        self.file_lowest = lowest
        self.gone = gone
        if messages == 0:
            return
        self.last_timestamp = last_timestamp
        if self.live_msgs:
            while sequences_last(&self.deleted.tree, &deleted) and deleted > last_seq:
                sequences_delete(&self.deleted.tree, deleted)
        else:
            self.first_seq = last_seq + 1
        self.last_seq = last_seq

    cdef bint has_dead_records(self) noexcept nogil:
        return not self.file_records_known or self.file_records > self.live_msgs

    cpdef uint64_t dead_records(self) noexcept:
        """The largest possible number of dead records."""
        if not self.file_records_known:
            return self.size // RECORD_MIN
        return self.file_records - min(self.file_records, self.live_msgs)

    cpdef bint is_sparse(self, uint64_t dead_before) noexcept:
        """Whether most of the block is dead; at most `dead_before` of its tombstones are needed."""
        return 2 * (self.live_bytes + RECORD_MIN * (min(self.tombstones, dead_before) + 1)) \
            < self.size

    def mark_bytes(self, uint64_t sequence_and_flags, int64_t timestamp):
        """A tombstone, skip or mark of this block as bytes."""
        cdef char record[RECORD_MIN]
        write_record(record, &self.key, sequence_and_flags, timestamp, NULL, 0, NULL, 0, NULL, 0)
        return record[:RECORD_MIN]

    def filler_bytes(self, uint64_t sequence_and_flags, uint64_t size):
        """Records that fill `size` bytes (at least RECORD_MIN) and state nothing but a sequence."""
        cdef uint64_t part
        cdef bytes padding
        cdef bytearray record
        result = []
        while size:
            part = size if size <= FILLER_MAX else min(size - RECORD_MIN, <uint64_t>FILLER_MAX)
            padding = bytes(part - RECORD_MIN)
            record = bytearray(part)
            write_record(record, &self.key, sequence_and_flags, 0, NULL, 0, NULL, 0, padding,
                         <uint32_t>len(padding))
            result.append(bytes(record))
            size -= part
        return b"".join(result)

    def patch(self, bytes content not None):
        """Use these bytes as the content of the block in place of the file's.

        They stay in memory until they are in the file, or `unpatch` gives them up.
        """
        cdef const unsigned char[::1] view = content
        self.forget_index()
        self.mapped = content
        self.mapped_data = <const char*>&view[0] if view.shape[0] else NULL
        self.mapped_size = self.size = self.written = view.shape[0]
        self.file_records_known = False
        self.patched = True

    def unpatch(self):
        """Continue with the bytes of the file; the index has to be rebuilt."""
        self.patched = False
        self.release()
        self.adopt_size()

    def is_patched_with(self, content):
        """Whether these bytes replace those in the file."""
        return self.patched and self.mapped is content

    def repaired(self, uint64_t size):
        """Note that the file has `size` bytes now that need no patch."""
        if not self.patched:
            self.forget_index()
        self.patched = False
        self.suspects = None
        self.unreadable = 0
        self.unmap()
        self.size = self.written = size

    def forget_index(self):
        """Drop the index, which has to be rebuilt."""
        records_free(&self.records)

    def lose(self, list sequences not None):
        """Note that live sequences are lost; the index has to be rebuilt, and `recount` called."""
        cdef uint64_t seq
        self.live_msgs -= len(sequences)
        if self.live_msgs == 0:
            self.first_seq = self.last_seq + 1
            self.deleted = SequenceSet()
            return
        for seq in sequences:
            if sequences_insert(&self.deleted.tree, seq) < 0:
                raise MemoryError
        self._pass_deleted()

    def recount(self):
        """Recompute bytes and first time from the records; the block must be loaded."""
        cdef uint32_t entry, size
        cdef const char* start
        self.live_bytes = 0
        self.first_timestamp = 0
        for entry in range(self.records.count):
            if self.records.offsets[entry] == NO_RECORD:
                continue
            start = self._at(self.records.offsets[entry], RECORD_MIN)
            memcpy(&size, start, 4)
            if self.live_bytes == 0:
                memcpy(&self.first_timestamp, start + 12, 8)
            self.live_bytes += size & 0x7FFFFFFF

    def plain(self):
        """A copy of all bytes, inflated; for a block with nothing in its tail."""
        return self.plain_bytes()[:self.size] if self.size else b""

    cdef int forget_pages(self) except -1:
        """Release the pages read from the file; they are read again when needed."""
        if self.mapped_data != NULL and not self.owned and not self.patched:
            mapping = self.mapped.obj
            if isinstance(mapping, FileMapping):
                mapping.forget_pages()
        return 0

    def unmap(self):
        """Release the mapping of the file."""
        if self.patched:
            return
        self.mapped = None
        self.mapped_data = NULL
        self.mapped_size = 0
        self.owned = False

    # -------------------------------------------------------------- the index

    cdef bint is_loaded(self) noexcept nogil:
        return self.records.offsets != NULL or (self.size == 0 and self.live_msgs == 0)

    cdef uint32_t _offset_of(self, uint64_t seq) noexcept nogil:
        cdef int64_t entry = records_find(&self.records, seq)
        return NO_RECORD if entry < 0 else self.records.offsets[entry]

    cdef int _push(self, uint64_t seq, uint32_t offset, uint32_t subject_id) except -1:
        """Add the next record in sequence order."""
        cdef int status = records_push(&self.records, seq, offset, subject_id)
        if self.lowest == 0 or seq < self.lowest:
            self.lowest = seq
        if status == -1:
            raise MemoryError
        if status == -2:
            raise StoreError(f"block {self.number}: sequence {seq} is not above the one before")
        return 0

    cdef const char* plain_bytes(self) except NULL:
        """All bytes of a block that is contiguous: wholly in the file, or wholly in memory."""
        if self.written == 0:
            return self.tail.data + self.tail.begin
        if self.written != self.size:
            raise StoreError(f"block {self.number} is partly in its file and partly in memory")
        return self._at(0, <uint32_t>self.size)

    cdef int reset_index(self) except -1:
        if records_start(&self.records) != 0:
            raise MemoryError
        return 0

    cdef uint64_t indexed_to(self) noexcept nogil:
        """The highest sequence in the index; 0 while it is empty."""
        return records_last(&self.records)

    cdef int adopt_message(self, uint64_t seq, int64_t timestamp, uint32_t size, uint32_t offset,
                           uint32_t subject_id) except -1:
        """Adopt a message found by recovery at an offset of the file."""
        self._push(seq, offset, subject_id)
        if self.live_msgs == 0:
            self.deleted = SequenceSet()
            self.first_seq = seq
            self.first_timestamp = timestamp
            self.latest_timestamp = timestamp
        elif seq > self.last_seq + 1:
            self._delete_range(self.last_seq + 1, seq - 1)
        if self.file_records == 0:
            self.file_lowest = seq
        self.last_seq = seq
        self.last_timestamp = timestamp
        if timestamp > self.latest_timestamp:
            self.latest_timestamp = timestamp
        self.live_msgs += 1
        self.live_bytes += size
        self.file_records += 1
        return 0

    def adopt_file(self):
        """Take the size of the block from its file; for recovery."""
        self.written = self.size = 0
        self.unmap()
        self._map()
        self.written = self.size = self.mapped_size
        self.lengths_unknown = True

    def adopt_readable(self):
        """Take the size and content by `read_again`. Bytes with zeros that are not in the file are
        held as a patch.
        """
        self.unreadable = self.read_again()
        self.written = self.size = self.mapped_size
        self.patched = self.unreadable > 0
        self.lengths_unknown = True

    def adopt_again(self):
        """Adopt the bytes of a file that could be read this time, and are right."""
        self.forget_index()
        self.read_again()

    def adopt_size(self):
        """Take the size without reading the file; a compressed one is inflated, because only that
        reveals its size.
        """
        size = self.file.size
        head = b""
        try:
            head = self.file.read(0, min(size, COMPRESSED_HEAD))
        except StoreError as error:
            if not is_unreadable(error):
                raise
        if s2.is_compressed(head):
            self.adopt_file()
            return
        self.written = self.size = size
        self.lengths_unknown = True

    def adopt_unverified(self):
        """Note that the content of the file has not been verified yet."""
        self.verified = False
        self.file_records_known = False

    def adopt_totals(self, uint64_t first_seq, int64_t first_timestamp, uint64_t last_seq,
                     int64_t last_timestamp, uint64_t live_bytes, SequenceSet deleted not None):
        """Take the totals from index.db; the index stays unloaded until it is needed."""
        self.first_seq = first_seq
        self.first_timestamp = first_timestamp
        self.last_seq = last_seq
        self.last_timestamp = last_timestamp
        # Stamps rise in Tradewind's blocks, but for small corrections of the clock.
        self.latest_timestamp = max(
            later(last_timestamp, CLOCK_SLACK_NS), first_timestamp)
        self.live_bytes = live_bytes
        self.deleted = deleted
        self.live_msgs = last_seq + 1 - first_seq - sequences_count(&deleted.tree)

    cdef int adopt_counts(self, uint64_t messages, uint64_t lowest, uint64_t tombstones) except -1:
        """Adopt the counts of a walk over the records."""
        if not self.file_records_known:
            self.file_records = messages
            self.file_lowest = lowest
            self.file_records_known = True
            self.tombstones = tombstones
        return 0

    # -------------------------------------------------------------- appending

    cdef char* room(self, uint32_t size) except NULL:
        """The place for the next record of `size` bytes; `commit_message` makes it part of the
        block.
        """
        if self.size + size > 0xFFFFFFF0:
            raise StoreError(f"block {self.number} would be larger than 4 GiB")
        if buffer_reserve(&self.tail, size) != 0:
            raise MemoryError
        return self.tail.data + self.tail.end

    cdef int commit_message(self, uint64_t seq, int64_t timestamp, uint32_t size, uint32_t counted,
                            uint32_t subject_id) except -1:
        """Make the record in `room` part of the block; it counts `counted` bytes."""
        self.adopt_message(seq, timestamp, counted, <uint32_t>self.size, subject_id)
        self.tail.end += size
        self.size += size
        return 0

    cdef int append_mark(self, uint64_t sequence_and_flags, int64_t timestamp) except -1:
        """Append a tombstone or a skip: 30 bytes without subject or payload."""
        cdef char* target = self.room(RECORD_MIN)
        cdef uint64_t seq = sequence_and_flags & 0x3FFFFFFFFFFFFFFFull
        write_record(target, &self.key, sequence_and_flags, timestamp, NULL, 0, NULL, 0, NULL, 0)
        self.tail.end += RECORD_MIN
        self.size += RECORD_MIN
        if (sequence_and_flags >> ERASED_BIT) & 1:
            self.skip_to(seq)
        elif seq:
            self.tombstones += 1
        return 0

    cdef bint note_lengths(self, uint64_t seq, uint32_t subject_size, const char* header,
                           uint32_t header_size, uint32_t size) except -1:
        """Note the lengths of an appended message; the next mark proves them. True if it needs that
        mark now, because nothing in its header reveals where it ends.
        """
        self.lengths ^= length_term(seq, subject_size, header_size)
        self.unproved += size
        if header_size == 0 or is_plain_header(header, header_size):
            return False
        self.note_odd(seq)
        return True

    cdef int note_odd(self, uint64_t seq) except -1:
        """Note a message whose header does not reveal where it ends."""
        if self.odd is None:
            self.odd = SequenceSet()
        if sequences_insert(&self.odd.tree, seq) < 0:
            raise MemoryError
        return 0

    cdef bint is_odd(self, uint64_t seq) noexcept:
        return self.odd is not None and sequences_contains(&self.odd.tree, seq)

    cdef void adopt_lengths(self, uint64_t sum) noexcept nogil:
        """Continue after messages that were read; they alone are not worth a mark."""
        self.lengths = sum
        self.unproved = 0
        self.lengths_unknown = False

    cdef int append_lengths(self) except -1:
        """Append a mark for the lengths since the last one, or, if they are unknown, one that
        states so.
        """
        cdef uint64_t value = 0 if self.lengths_unknown else lengths_value(self.lengths)
        self.append_mark(<uint64_t>1 << TOMBSTONE_BIT, mark_time(MARK_LENGTHS, value))
        self.adopt_lengths(0)
        return 0

    def seal(self):
        """Release spare memory, because nothing will be appended any more."""
        records_shrink(&self.records)

    def skip_to(self, uint64_t seq):
        """Skip the sequences up to `seq` without a message."""
        if self.live_msgs == 0:
            self.deleted = SequenceSet()
            self.first_seq = seq + 1
        elif seq > self.last_seq:
            self._delete_range(self.last_seq + 1, seq)
        if seq > self.last_seq:
            self.last_seq = seq

    def _delete_range(self, uint64_t first, uint64_t last):
        if last - self.first_seq > SPAN_MAX:
            raise StoreError(
                f"{self.path}: sequences {self.first_seq} to {last} are too far apart for one"
                f" block; at most {SPAN_MAX} are possible")
        if sequences_insert_range(&self.deleted.tree, first, last) != 0:
            raise MemoryError

    cdef int _pass_deleted(self) noexcept nogil:
        """Move the first live sequence past the deleted ones before it."""
        cdef uint64_t first = self.first_seq
        sequences_next_absent(&self.deleted.tree, self.first_seq, &first)
        sequences_delete_below(&self.deleted.tree, first)
        self.first_seq = first
        return 0

    def start_after(self, uint64_t seq):
        """Initialise an empty block whose first message will be after `seq`."""
        self.first_seq = seq + 1
        self.last_seq = seq

    # -------------------------------------------------------------- reading and removing

    cdef int read(self, uint64_t seq, Record* record) except -1:
        """Read the record of a live sequence; 1 if there is none. The block must be loaded."""
        cdef int64_t entry = records_find(&self.records, seq)
        cdef uint32_t offset = NO_RECORD if entry < 0 else self.records.offsets[entry]
        cdef const char* start
        cdef uint32_t size
        if offset == NO_RECORD:
            return 1
        start = self._at(offset, RECORD_MIN)
        memcpy(&size, start, 4)
        size &= 0x7FFFFFFF
        if parse_limited(self._at(offset, size), size,
                         MEMORY_RECORD_MAX if self.file is None else RECORD_MAX,
                         record) != RECORD_OK or record.seq != seq:
            raise CorruptRecord(self.path, offset, f"sequence {seq} is not where the index says")
        record.subject_id = self.records.subject_ids[entry]
        return 0

    cdef bint read_anew(self, uint64_t seq, Record* record) except -1:
        """Whether the disk supplies an intact record when it is read again."""
        self.read_again()
        try:
            return self.read(seq, record) == 0 and record_is_intact(&self.key, record)
        except CorruptRecord:
            return False

    cdef int64_t first_time_without(self, uint64_t seq) except? -1:
        """The `first_timestamp` after a live sequence is removed; the block must be loaded.

        A removal that can fail fails here, before anything has changed.
        """
        cdef uint64_t following = seq + 1
        cdef uint32_t offset
        cdef int64_t timestamp
        if self.live_msgs <= 1:
            return 0
        if seq != self.first_seq:
            return self.first_timestamp
        sequences_next_absent(&self.deleted.tree, seq + 1, &following)
        offset = self._offset_of(following)
        if offset == NO_RECORD:
            raise CorruptRecord(self.path, 0, f"sequence {following} is not in the index")
        memcpy(&timestamp, self._at(offset, RECORD_MIN) + 12, 8)
        if timestamp == 0 and self.has_faulted():
            raise CorruptRecord(self.path, offset, "the disk does not give it")
        return timestamp

    cdef int drop(self, uint64_t seq, uint32_t size, int64_t first_timestamp) except -1:
        """Remove a live sequence; the time is that of `first_time_without`."""
        self.records.offsets[records_find(&self.records, seq)] = NO_RECORD
        self.live_msgs -= 1
        self.live_bytes -= size
        if self.live_msgs == 0:
            self.first_seq = self.last_seq + 1
            self.deleted = SequenceSet()
        elif seq == self.first_seq:
            self.first_seq += 1
            self._pass_deleted()
        elif sequences_insert(&self.deleted.tree, seq) < 0:
            raise MemoryError
        self.first_timestamp = first_timestamp
        return 0

    cdef uint64_t next_accepted(self, uint64_t seq, SubjectFilter chosen) noexcept nogil:
        """Find the first live sequence >= seq that passes; 0 if none. The block must be loaded, and
        the filter prepared.
        """
        cdef RecordIndex* records = &self.records
        cdef uint32_t entry
        for entry in range(records_from(records, seq), records.count):
            if records.offsets[entry] != NO_RECORD and chosen.accepts(records.subject_ids[entry]):
                return records_seq(records, entry)
        return 0

    cdef uint64_t count_accepted(self, uint64_t seq, SubjectFilter chosen) noexcept nogil:
        """Count the live sequences >= seq that pass the filter."""
        cdef RecordIndex* records = &self.records
        cdef uint32_t entry
        cdef uint64_t total = 0
        for entry in range(records_from(records, seq), records.count):
            if records.offsets[entry] != NO_RECORD and chosen.accepts(records.subject_ids[entry]):
                total += 1
        return total

    cdef uint64_t last_of(self, uint64_t seq, uint32_t subject_id) noexcept nogil:
        """Find the last live sequence <= seq of a subject; 0 if none."""
        cdef RecordIndex* records = &self.records
        cdef uint32_t entry = records_from(records, seq + 1)
        while entry:
            entry -= 1
            if records.subject_ids[entry] == subject_id and records.offsets[entry] != NO_RECORD:
                return records_seq(records, entry)
        return 0

    cdef void count_subjects(self, SubjectEntry* counts, uint32_t ids) noexcept nogil:
        """Add the live messages to totals and ends by subject id; blocks are passed in order."""
        cdef uint32_t entry
        cdef SubjectEntry* count
        for entry in range(self.records.count):
            if self.records.offsets[entry] == NO_RECORD or self.records.subject_ids[entry] >= ids:
                continue
            count = &counts[self.records.subject_ids[entry]]
            if count.total == 0:
                count.first_seq = records_seq(&self.records, entry)
                count.first_block = self.number
            count.total += 1
            count.last_seq = records_seq(&self.records, entry)
            count.last_block = self.number

    cdef void renumber(self, const uint32_t* new_ids) noexcept nogil:
        """Replace the subject ids by new ones; those of dead records are ignored."""
        cdef uint32_t entry
        for entry in range(self.records.count):
            if self.records.offsets[entry] != NO_RECORD:
                self.records.subject_ids[entry] = new_ids[self.records.subject_ids[entry]]

    def lowest_seq(self):
        """The lowest sequence that the block ever held; 0 if none is known."""
        return self.lowest

    def indexed_between(self, uint64_t low, uint64_t high):
        """The sequences from `low` to below `high` in the index, dead ones too."""
        cdef RecordIndex* records = &self.records
        cdef uint32_t entry
        return [records_seq(records, entry)
                for entry in range(records_from(records, low), records_from(records, high))]

    def live_sequences(self):
        """All live sequences; the block must be loaded."""
        cdef RecordIndex* records = &self.records
        cdef uint32_t entry
        return [records_seq(records, entry) for entry in range(records.count)
                if records.offsets[entry] != NO_RECORD]
