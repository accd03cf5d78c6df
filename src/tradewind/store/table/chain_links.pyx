"""The chain of a tamper-proof stream in memory: the last link, the tree above all, and the entries
that are not in a file yet.

Owns the hashing of entries as they happen, in the order in which they happen, and their records
(`tradewind.chain.chain_entries` draws them). A store with a chain calls `add` for every message and
`remove` for every message that goes; neither makes an object. Removals are collected, and become
entries when the records are written. Files are written by `folder.stream_chain`.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy
from tradewind.containers.buffer cimport (
    buffer_clear, buffer_free, buffer_init, buffer_reserve, buffer_size)
from tradewind.store.files.open_files cimport BlockFile
from tradewind.store.format.chain_hash cimport (
    CHAIN_HASH_BYTES, SHORT_SPARE, ChainHash, chain_hash_add, chain_hash_begin,
    chain_hash_beside_node, chain_hash_end, chain_hash_short, chain_node, hashes_side_by_side)

from tradewind.chain.chain_entries import MESSAGE, REMOVAL, RANGES_MAX, decode_removal

cdef extern from "<endian.h>" nogil:
    uint32_t htole32(uint32_t value)
    uint64_t htole64(uint64_t value)
    uint64_t le64toh(uint64_t value)

cdef enum:
    MESSAGE_KIND = 1
    REMOVAL_KIND = 2
    # The layout of records and bodies, see `tradewind.chain.chain_entries`.
    MESSAGE_RECORD = 41
    MESSAGE_HEAD = 54
    OTHER_HEAD = 5
    REMOVAL_HEAD = 13
    RANGE = 16
    RANGES_IN_ENTRY_MAX = 1000
    # Entries up to this size are hashed in one go.
    SHORT_BYTES_MAX = 1024
    # An empty buffer that is larger than this is given back.
    KEPT_BYTES_MAX = 1048576

assert (MESSAGE_KIND, REMOVAL_KIND, RANGES_IN_ENTRY_MAX) == (MESSAGE, REMOVAL, RANGES_MAX)


cdef int compare_ranges(const void* one, const void* other) noexcept nogil:
    cdef uint64_t left = (<const uint64_t*>one)[0], right = (<const uint64_t*>other)[0]
    return -1 if left < right else left > right


cdef class ChainLinks:
    """The links of one stream. `clock` gives the time of removals in ns."""

    def __init__(self, int algorithm, bytes before not None, clock not None,
                 uint64_t segment_entries=1 << 20):
        if len(before) != CHAIN_HASH_BYTES:
            raise ValueError(f"a link of {len(before)} bytes, not {CHAIN_HASH_BYTES}")
        self.algorithm = algorithm
        self.segment_entries = segment_entries
        self.begins = []
        self._clock = clock
        memcpy(self._link, <const char*>before, CHAIN_HASH_BYTES)

    def __cinit__(self):
        buffer_init(&self._pending)
        buffer_init(&self._removed)

    def __dealloc__(self):
        buffer_free(&self._pending)
        buffer_free(&self._removed)

    # -------------------------------------------------------------- entries

    cdef int add(self, uint64_t seq, int64_t timestamp, const char* subject,
                 uint32_t subject_size, const char* header, uint32_t header_size,
                 const char* payload, uint32_t payload_size) except -1:
        """Add the entry of a message that is about to be stored. Without memory nothing is
        changed.
        """
        cdef ChainHash hash
        cdef uint8_t head[SHORT_BYTES_MAX + SHORT_SPARE]
        cdef uint8_t* at = head + MESSAGE_HEAD
        cdef uint64_t number = htole64(seq), time = htole64(<uint64_t>timestamp)
        cdef uint32_t size = htole32(subject_size)
        cdef uint64_t total = MESSAGE_HEAD + 4 + <uint64_t>subject_size + header_size + payload_size
        cdef char* record
        self._begin_entry(MESSAGE_RECORD)
        head[0] = 0
        memcpy(&head[1], self._link, CHAIN_HASH_BYTES)
        head[33] = MESSAGE_KIND
        memcpy(&head[34], &number, 8)
        memcpy(&head[42], &time, 8)
        memcpy(&head[50], &size, 4)
        size = htole32(header_size)
        if total <= SHORT_BYTES_MAX:
            memcpy(at, subject, subject_size)
            at += subject_size
            memcpy(at, &size, 4)
            memcpy(at + 4, header, header_size)
            memcpy(at + 4 + header_size, payload, payload_size)
            if hashes_side_by_side(self.algorithm) and self._next_node():
                # A node of the tree over the links before, at hardly any cost.
                self._depth -= 1
                self._carry >>= 1
                chain_hash_beside_node(
                    head, total, self._link, self._peaks[self._depth], self._node, self._node)
            else:
                chain_hash_short(self.algorithm, head, total, self._link)
        else:
            chain_hash_begin(&hash, self.algorithm)
            chain_hash_add(&hash, head, MESSAGE_HEAD)
            chain_hash_add(&hash, subject, subject_size)
            chain_hash_add(&hash, &size, 4)
            chain_hash_add(&hash, header, header_size)
            chain_hash_add(&hash, payload, payload_size)
            chain_hash_end(&hash, self._link)
        record = self._pending.data + self._pending.end
        record[0] = MESSAGE_KIND
        memcpy(record + 1, &number, 8)
        memcpy(record + 9, self._link, CHAIN_HASH_BYTES)
        self._pending.end += MESSAGE_RECORD
        self.last_seq = seq
        self._push()
        return 0

    cpdef int remove(self, uint64_t first, uint64_t last, int reason) except -1:
        """Note that messages of these sequences are about to be removed."""
        cdef uint64_t* ranges
        if buffer_size(&self._removed):
            if reason != self._reason \
                    or buffer_size(&self._removed) >= RANGES_IN_ENTRY_MAX * RANGE:
                self.end_removals()
            else:
                ranges = <uint64_t*>(self._removed.data + self._removed.end - RANGE)
                if first == ranges[1] + 1:
                    ranges[1] = last
                    return 0
        if buffer_reserve(&self._removed, RANGE) != 0:
            raise MemoryError
        self._reason = reason
        ranges = <uint64_t*>(self._removed.data + self._removed.end)
        ranges[0] = first
        ranges[1] = last
        self._removed.end += RANGE
        return 0

    def end_removals(self):
        """Make an entry of the removals collected so far."""
        cdef size_t count = buffer_size(&self._removed) // RANGE, kept = 0, index
        cdef uint64_t* ranges = <uint64_t*>(self._removed.data + self._removed.begin)
        cdef char body[REMOVAL_HEAD + RANGES_IN_ENTRY_MAX * RANGE]
        cdef uint64_t time, number
        cdef uint32_t total
        if count == 0:
            return
        qsort(ranges, count, RANGE, compare_ranges)
        for index in range(1, count):
            if ranges[2 * index] <= ranges[2 * kept + 1] + 1:
                ranges[2 * kept + 1] = max(ranges[2 * kept + 1], ranges[2 * index + 1])
            else:
                kept += 1
                ranges[2 * kept] = ranges[2 * index]
                ranges[2 * kept + 1] = ranges[2 * index + 1]
        count = kept + 1
        time = htole64(<uint64_t><int64_t>self._clock())
        total = htole32(<uint32_t>count)
        memcpy(body, &time, 8)
        body[8] = <char>self._reason
        memcpy(&body[9], &total, 4)
        for index in range(2 * count):
            number = htole64(ranges[index])
            memcpy(&body[REMOVAL_HEAD + 8 * index], &number, 8)
        self._other(REMOVAL_KIND, body, <uint32_t>(REMOVAL_HEAD + count * RANGE))
        buffer_clear(&self._removed)

    def add_other(self, uint8_t kind, bytes body not None):
        """Add an entry that is not a message, after all removals so far."""
        decode_removal(body)        # refuses what no entry says
        self.end_removals()
        self._other(kind, body, <uint32_t>len(body))

    cdef int _begin_entry(self, size_t size) except -1:
        """Reserve room for the record of the next entry, which may begin a file."""
        if buffer_reserve(&self._pending, size) != 0:
            raise MemoryError
        if self.size % self.segment_entries == 0:
            self.begins.append((buffer_size(&self._pending), self.size, self.link))
        return 0

    cdef int _other(self, uint8_t kind, const char* body, uint32_t size) except -1:
        cdef ChainHash hash
        cdef uint8_t head[34]
        cdef uint32_t length = htole32(size)
        cdef char* record
        self._begin_entry(OTHER_HEAD + size + CHAIN_HASH_BYTES)
        head[0] = 0
        memcpy(&head[1], self._link, CHAIN_HASH_BYTES)
        head[33] = kind
        chain_hash_begin(&hash, self.algorithm)
        chain_hash_add(&hash, head, 34)
        chain_hash_add(&hash, body, size)
        chain_hash_end(&hash, self._link)
        record = self._pending.data + self._pending.end
        record[0] = <char>kind
        memcpy(record + 1, &length, 4)
        memcpy(record + OTHER_HEAD, body, size)
        memcpy(record + OTHER_HEAD + size, self._link, CHAIN_HASH_BYTES)
        self._pending.end += OTHER_HEAD + size + CHAIN_HASH_BYTES
        self._push()
        return 0

    cdef void _push(self) noexcept nogil:
        """Add the last link to the tree, as its next leaf. It may wait: its nodes are hashed beside
        the links of later entries, one each.
        """
        if self.size - self._pushed >= LEAVES_MAX or not hashes_side_by_side(self.algorithm):
            self._settle_tree()
        memcpy(self._leaves[self.size % LEAVES_MAX], self._link, CHAIN_HASH_BYTES)
        self.size += 1

    cdef bint _next_node(self) noexcept nogil:
        """Whether a node is to be hashed: the one above the last of `_peaks` and `_node`."""
        while self._carry & 1 == 0:
            if self._has_node:
                memcpy(self._peaks[self._depth], self._node, CHAIN_HASH_BYTES)
                self._depth += 1
                self._has_node = False
            if self._pushed == self.size:
                return False
            # The subtrees that the leaf completes are the ones at the end of its number.
            memcpy(self._node, self._leaves[self._pushed % LEAVES_MAX], CHAIN_HASH_BYTES)
            self._carry = self._pushed
            self._has_node = True
            self._pushed += 1
        return True

    cdef void _settle_tree(self) noexcept nogil:
        """Hash all nodes that are missing."""
        while self._next_node():
            self._depth -= 1
            self._carry >>= 1
            chain_node(self.algorithm, self._peaks[self._depth], self._node, self._node)

    # -------------------------------------------------------------- what there is

    @property
    def link(self):
        """The link of the last entry, or the one before all."""
        return (<const char*>self._link)[:CHAIN_HASH_BYTES]

    @property
    def peaks(self):
        """The roots of the complete subtrees, the largest first, 32 bytes each."""
        self._settle_tree()
        return (<const char*>self._peaks[0])[:self._depth * CHAIN_HASH_BYTES]

    cpdef bint is_waiting(self) noexcept:
        """Whether there are entries, or removals, that are not in a file."""
        return buffer_size(&self._pending) > 0 or buffer_size(&self._removed) > 0

    @property
    def pending_bytes(self):
        """The size of records that are not in a file."""
        return buffer_size(&self._pending)

    def write_to(self, BlockFile file not None, uint64_t offset, size_t size):
        """Write the first `size` pending bytes into a file; they are pending until `taken`."""
        if size > buffer_size(&self._pending):
            raise ValueError(f"{size} bytes of {buffer_size(&self._pending)} that are pending")
        file.write_from(self._pending.data + self._pending.begin, size, offset)

    def taken(self, size_t size):
        """Drop the first `size` bytes, which are in a file."""
        self._pending.begin += size
        if self._pending.begin == self._pending.end:
            buffer_clear(&self._pending)
            if self._pending.capacity > KEPT_BYTES_MAX:
                buffer_free(&self._pending)
        self.begins = [
            (offset - size, index, before) for offset, index, before in self.begins
            if offset >= size]

    # -------------------------------------------------------------- at the start

    def adopt(self, uint64_t size, bytes link not None, bytes peaks not None, uint64_t last_seq):
        """Continue after entries that are in files."""
        if len(peaks) % CHAIN_HASH_BYTES or len(peaks) > sizeof(self._peaks):
            raise ValueError(f"{len(peaks)} bytes are no list of subtrees")
        if len(link) != CHAIN_HASH_BYTES:
            raise ValueError(f"a link of {len(link)} bytes, not {CHAIN_HASH_BYTES}")
        memcpy(self._link, <const char*>link, CHAIN_HASH_BYTES)
        memcpy(self._peaks, <const char*>peaks, len(peaks))
        self._depth = <uint32_t>(len(peaks) // CHAIN_HASH_BYTES)
        self._carry = 0
        self._has_node = False
        self.size = self._pushed = size
        self.last_seq = last_seq

    def follow(self, bytes link not None, uint64_t seq):
        """Add the next entry from a file: its link, and its sequence if it is a message."""
        assert not self.is_waiting(), "files are read before anything is added"
        if len(link) != CHAIN_HASH_BYTES:
            raise ValueError(f"a link of {len(link)} bytes, not {CHAIN_HASH_BYTES}")
        memcpy(self._link, <const char*>link, CHAIN_HASH_BYTES)
        self.last_seq = max(self.last_seq, seq)
        self._push()

    def add_message(self, message not None):
        """Add the entry of a message copy."""
        self.add(message.seq, message.timestamp_ns, message.subject,
                 <uint32_t>len(message.subject), message.header, <uint32_t>len(message.header),
                 message.payload, <uint32_t>len(message.payload))


def tree_root(int algorithm, const uint8_t[::1] links not None):
    """The root of the tree over links, 32 bytes each; at least one. Lets other threads run."""
    cdef uint8_t peaks[PEAKS_MAX][CHAIN_HASH_BYTES]
    cdef uint8_t node[CHAIN_HASH_BYTES]
    cdef size_t count = links.shape[0] // CHAIN_HASH_BYTES, index, ones
    cdef uint32_t depth = 0
    if not count or count * CHAIN_HASH_BYTES != <size_t>links.shape[0]:
        raise ValueError(f"{links.shape[0]} bytes are no list of links")
    with nogil:
        for index in range(count):
            memcpy(node, &links[index * CHAIN_HASH_BYTES], CHAIN_HASH_BYTES)
            ones = index
            while ones & 1:
                depth -= 1
                chain_node(algorithm, peaks[depth], node, node)
                ones >>= 1
            memcpy(peaks[depth], node, CHAIN_HASH_BYTES)
            depth += 1
        memcpy(node, peaks[depth - 1], CHAIN_HASH_BYTES)
        while depth > 1:
            depth -= 1
            chain_node(algorithm, peaks[depth - 1], node, node)
    return (<const char*>node)[:CHAIN_HASH_BYTES]


def root_of_peaks(int algorithm, bytes peaks not None):
    """The root above complete subtrees, the largest first."""
    cdef Py_ssize_t at = len(peaks) - CHAIN_HASH_BYTES
    cdef uint8_t node[CHAIN_HASH_BYTES]
    cdef const uint8_t* nodes = peaks
    if at < 0 or at % CHAIN_HASH_BYTES:
        raise ValueError(f"{len(peaks)} bytes are no list of subtrees")
    memcpy(node, nodes + at, CHAIN_HASH_BYTES)
    while at:
        at -= CHAIN_HASH_BYTES
        chain_node(algorithm, nodes + at, node, node)
    return (<const char*>node)[:CHAIN_HASH_BYTES]


def split_records(const uint8_t[::1] data not None, Py_ssize_t offset, Py_ssize_t count):
    """The links of up to `count` whole records from `offset` on, 32 bytes each, and where they end;
    -1 for the latter if something is not a record.
    """
    cdef Py_ssize_t end = data.shape[0], size, found = 0
    cdef uint32_t body
    links = bytearray()
    while offset < end and found != count:
        if data[offset] == MESSAGE_KIND:
            size = MESSAGE_RECORD
        elif data[offset] <= 3 and data[offset]:
            if offset + OTHER_HEAD > end:
                break
            memcpy(&body, &data[offset + 1], 4)
            size = OTHER_HEAD + <Py_ssize_t>htole32(body) + CHAIN_HASH_BYTES
            if size > OTHER_HEAD + REMOVAL_HEAD + RANGES_IN_ENTRY_MAX * RANGE + CHAIN_HASH_BYTES:
                return bytes(links), -1
        else:
            return bytes(links), -1
        if offset + size > end:
            break
        offset += size
        found += 1
        links += (<const char*>&data[offset - CHAIN_HASH_BYTES])[:CHAIN_HASH_BYTES]
    return bytes(links), offset


def find_message(const uint8_t[::1] data not None, Py_ssize_t offset, uint64_t seq):
    """Find the record of message `seq` from `offset` on: returns how many records precede it, or
    how many there are if it is missing; whether it was found; and where they end.

    Ends before anything that is not a record. Sequence 0 is the first message found.
    """
    cdef Py_ssize_t end = data.shape[0], size, count = 0
    cdef uint32_t body
    cdef uint64_t number
    while offset < end:
        if data[offset] == MESSAGE_KIND:
            if offset + MESSAGE_RECORD > end:
                break
            memcpy(&number, &data[offset + 1], 8)
            if seq == 0 or le64toh(number) == seq:
                return count, True, offset
            size = MESSAGE_RECORD
        else:
            if data[offset] == 0 or data[offset] > 3 or offset + OTHER_HEAD > end:
                break
            memcpy(&body, &data[offset + 1], 4)
            size = OTHER_HEAD + <Py_ssize_t>htole32(body) + CHAIN_HASH_BYTES
        if offset + size > end:
            break
        offset += size
        count += 1
    return count, False, offset
