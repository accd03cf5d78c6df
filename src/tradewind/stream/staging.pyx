"""Atomic batches that are open: messages that wait for the last one of their batch.

Owns which batches a stream has, the order of their messages, their limits and how long they may
rest. The messages of a batch are one growing buffer. Nothing of it is stored before it is
committed; an open one is gone with the server, as with nats-server.

    Nats-Batch-Id: b   Nats-Batch-Sequence: 1                          -> an empty answer
    Nats-Batch-Id: b   Nats-Batch-Sequence: 2
    Nats-Batch-Id: b   Nats-Batch-Sequence: 3   Nats-Batch-Commit: 1   -> {"seq":7,"count":3,...}

With the commit `eob` the last message only ends the batch: it is not stored itself.

The checks of a committed batch are in `batch_checks`. A batch of messages without unusual fields is
looked at here (`OpenBatch.holds`), without an object per message: whatever does not certainly hold
goes there, which knows all cases and gives the error.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove
from tradewind.containers.buffer cimport (
    buffer_append, buffer_free, buffer_init, buffer_reserve)
from tradewind.containers.table cimport (
    table_find, table_free, table_hash, table_init, table_insert, table_remove)
from tradewind.store.format.records cimport record_size
from tradewind.store.table.subject_index cimport SubjectEntry
from tradewind.stream.part_scan cimport PART_ID_MAX, PartFields, scan_part

from tradewind.api import errors
from tradewind.api.base import encode
from tradewind.api.versioning import is_level_known
from tradewind.stream import header_fields
from tradewind.stream.publish_checks import Publish, whole_number

ID_BYTES_MAX = PART_ID_MAX

cdef enum:
    # The memory that open batches may use, in one stream and in all. nats-server has no such
    # limits. A batch is stored in one block, and blocks are read up to 64 MiB.
    STAGED_BYTES_MAX = 33554432
    STAGED_TOTAL_BYTES_MAX = 268435456
    HEADER_BYTES_MAX = 65535
    COMMIT_LINE_SIZE = 22

cdef const char* COMMIT_LINE = b"Nats-Batch-Commit: 1\r\n"
cdef bytes COMMIT_VALUE = b"1"
cdef bytes END_VALUE = b"eob"


cdef class BatchLimits:
    """The limits of one server, and the total of its open batches."""

    def __init__(self, *, uint64_t msgs_max=1000, uint64_t per_stream_max=50,
                 uint64_t total_max=1000, int64_t rest_ns=10_000_000_000,
                 uint64_t fast_per_stream_max=1000, uint64_t fast_total_max=50_000,
                 uint64_t bytes_max=STAGED_TOTAL_BYTES_MAX):
        self.msgs_max = msgs_max
        self.per_stream_max = per_stream_max
        self.total_max = total_max
        self.rest_ns = rest_ns
        self.bytes_max = bytes_max
        self.fast_per_stream_max = fast_per_stream_max
        self.fast_total_max = fast_total_max


def batch_limits(given):
    """The limits of a configuration; values that are not positive are ignored."""
    names = {
        "batch_max_msgs": "msgs_max",
        "batch_max_inflight_per_stream": "per_stream_max",
        "batch_max_inflight_total": "total_max",
        "batch_timeout_ns": "rest_ns",
    }
    chosen = {field: given.get(name, 0) for name, field in names.items()}
    chosen["fast_per_stream_max"] = chosen["per_stream_max"]
    chosen["fast_total_max"] = chosen["total_max"]
    return BatchLimits(**{field: value for field, value in chosen.items() if value > 0})


class AbandonedError(Exception):
    """A batch was given up: `reason` is for the event, None if there is none."""

    def __init__(self, error, reason):
        super().__init__(error.description)
        self.error = error
        self.reason = reason


cdef class OpenBatch:
    """A batch that is still open, or was taken out to be stored."""

    def __cinit__(self):
        buffer_init(&self.parts)

    def __init__(self, bytes batch_id not None, int64_t rests_until_ns):
        self.id = batch_id
        self.is_simple = True
        self.rests_until_ns = rests_until_ns

    def __dealloc__(self):
        buffer_free(&self.parts)

    cdef int add(self, const char* subject, uint32_t subject_size, const char* body,
                  uint32_t header_size, uint32_t total_size, PartFields* fields) except -1:
        """Copy a message into the batch; `fields` are those of its header, NULL if it has others
        too.
        """
        cdef PartHead head
        head.subject_size = subject_size
        head.header_size = header_size
        head.total_size = total_size
        if buffer_reserve(&self.parts, part_bytes(&head)) != 0:
            raise MemoryError
        head.id_size = head.id_start = head.asked_size = head.asked_start = head.unused = 0
        head.last_seq = head.subject_seq = -1
        if fields == NULL:
            self.is_simple = False
        else:
            if fields.message_id.size:
                head.id_size = fields.message_id.size
                head.id_start = <uint32_t>(fields.message_id.start - body)
                self.has_ids = True
            if fields.subject.size:
                head.asked_size = fields.subject.size
                head.asked_start = <uint32_t>(fields.subject.start - body)
            head.last_seq = fields.last_seq
            head.subject_seq = fields.subject_seq
            if fields.last_seq >= 0 or fields.subject_seq >= 0:
                self.has_demands = True
        self.last_part = self.parts.end
        buffer_append(&self.parts, <const char*>&head, sizeof(PartHead))
        buffer_append(&self.parts, subject, subject_size)
        buffer_append(&self.parts, body, total_size)
        self.parts.end = self.last_part + part_bytes(&head)
        self.count += 1
        self.record_bytes += record_size(subject_size, header_size, total_size - header_size)
        return 0

    cdef int end_with_last(self) except -1:
        """Mark the last message as the end of the batch."""
        cdef PartHead* head
        cdef char* at
        if buffer_reserve(&self.parts, COMMIT_LINE_SIZE + 8) != 0:
            raise MemoryError
        head = <PartHead*>(self.parts.data + self.last_part)
        # Every part has a header block, which ends with an empty line.
        at = <char*>(head + 1) + head.subject_size + head.header_size - 2
        memmove(at + COMMIT_LINE_SIZE, at, head.total_size - head.header_size + 2)
        memcpy(at, COMMIT_LINE, COMMIT_LINE_SIZE)
        head.header_size += COMMIT_LINE_SIZE
        head.total_size += COMMIT_LINE_SIZE
        self.parts.end = self.last_part + part_bytes(head)
        self.record_bytes += COMMIT_LINE_SIZE
        if head.header_size > HEADER_BYTES_MAX:
            self.is_simple = False
        return 0

    cdef bint holds(self, MessageStore store, MessageIds ids, int64_t now_ns) except -1:
        """Whether all messages certainly meet the rules for ids and sequences; StoreError if the
        store cannot be read.
        """
        cdef Table seen, subjects
        cdef PartHead* head
        cdef const char* subject
        cdef const char* id
        cdef size_t at = 0
        cdef uint32_t hash
        cdef bint is_first = True
        if not (self.has_ids or self.has_demands):
            return True
        table_init(&seen, ids.seed)
        table_init(&subjects, ids.seed)
        try:
            while at < self.parts.end:
                head = <PartHead*>(self.parts.data + at)
                subject = self.parts.data + at + sizeof(PartHead)
                if head.id_size:
                    id = subject + head.subject_size + head.id_start
                    hash = table_hash(&seen, id, head.id_size)
                    if ids.find(id, head.id_size, now_ns) or not ids.has_room(head.id_size) \
                            or table_find(&seen, hash, id, head.id_size) != NULL:
                        return False
                    if table_insert(&seen, hash, id, head.id_size, head) != 0:
                        raise MemoryError
                if self.has_demands and not self._meets_demands(
                        store, head, subject, &subjects, is_first):
                    return False
                is_first = False
                at += part_bytes(head)
            return True
        finally:
            table_free(&seen)
            table_free(&subjects)

    cdef bint _meets_demands(self, MessageStore store, PartHead* head, const char* subject,
                             Table* subjects, bint is_first) except -1:
        """Whether a message meets its required sequences, if these `subjects` come before it in the
        batch.
        """
        cdef const char* asked = subject
        cdef uint32_t asked_size = head.subject_size, hash
        cdef SubjectEntry* entry
        cdef uint64_t found
        if head.last_seq >= 0 and (
                not is_first or <uint64_t>head.last_seq != store.last_seq):
            return False
        if head.subject_seq >= 0:
            if head.asked_size:
                asked = subject + head.subject_size + head.asked_start
                asked_size = head.asked_size
            if table_find(subjects, table_hash(subjects, asked, asked_size), asked,
                          asked_size) != NULL:
                return False
            entry = store.index.find(asked, asked_size)
            found = 0 if entry == NULL else store.last_of(entry)
            if found != <uint64_t>head.subject_seq:
                return False
        hash = table_hash(subjects, subject, head.subject_size)
        if table_find(subjects, hash, subject, head.subject_size) == NULL \
                and table_insert(subjects, hash, subject, head.subject_size, head) != 0:
            raise MemoryError
        return True

    def messages(self):
        """All messages as objects."""
        cdef PartHead* head
        cdef const char* subject
        cdef const char* body
        cdef size_t at = 0
        while at < self.parts.end:
            head = <PartHead*>(self.parts.data + at)
            subject = <const char*>(head + 1)
            body = subject + head.subject_size
            header = body[:head.header_size]
            at += part_bytes(head)
            yield Publish(subject[:head.subject_size], header,
                          body[head.header_size:head.total_size],
                          header_fields.special_fields(header))

    @property
    def tail(self):
        """The part of the acknowledgement about the batch."""
        return b',"batch":%s,"count":%d' % (
            encode(self.id.decode("utf-8", "replace")), self.count)


cdef class Staging:
    """The open batches of a stream. `abandoned(id, reason)` is called for those that are given up.
    """

    def __cinit__(self, BatchLimits limits not None, abandoned, bytes stream not None,
                  uint64_t seed):
        table_init(&self.table, seed)

    def __init__(self, BatchLimits limits not None, abandoned, bytes stream not None,
                 uint64_t seed):
        self.limits = limits
        self.abandoned = abandoned
        self.stream = stream
        self.open = {}

    def __dealloc__(self):
        table_free(&self.table)

    # -------------------------------------------------------------- per message

    cdef OpenBatch next_part(self, PartFields* fields, uint64_t size):
        """The batch for which this is certainly the next message; otherwise None."""
        cdef uint32_t hash = table_hash(&self.table, fields.batch_id.start, fields.batch_id.size)
        cdef void* found = table_find(&self.table, hash, fields.batch_id.start,
                                      fields.batch_id.size)
        cdef OpenBatch batch
        if found == NULL:
            return None
        batch = <OpenBatch>found
        if <uint64_t>fields.number != batch.count + 1 \
                or <uint64_t>fields.number > self.limits.msgs_max \
                or not self._has_room(size):
            return None
        return batch

    cdef bint _has_room(self, uint64_t size) noexcept:
        size += sizeof(PartHead)
        return self.bytes + size <= STAGED_BYTES_MAX \
            and self.limits.bytes + size <= self.limits.bytes_max

    cdef int take(self, OpenBatch batch, PartFields* fields, const char* subject,
                  uint32_t subject_size, const char* body, uint32_t header_size,
                  uint32_t total_size, int64_t now_ns) except -1:
        """Add a message to a batch; see `OpenBatch.add`."""
        cdef uint64_t size = sizeof(PartHead) + subject_size + total_size
        batch.add(subject, subject_size, body, header_size, total_size, fields)
        if fields != NULL and fields.stream.size and (
                fields.stream.size != <uint32_t>len(self.stream)
                or memcmp(fields.stream.start, <const char*>self.stream,
                          fields.stream.size) != 0):
            batch.is_simple = False
        batch.bytes += size
        self.bytes += size
        self.limits.bytes += size
        batch.rests_until_ns = now_ns + self.limits.rest_ns
        return 0

    cdef int close(self, OpenBatch batch) except -1:
        """Remove a batch that is committed or given up."""
        cdef uint32_t hash = table_hash(&self.table, batch.id, len(batch.id))
        table_remove(&self.table, hash, batch.id, <uint32_t>len(batch.id))
        self.bytes -= batch.bytes
        self.limits.bytes -= batch.bytes
        self.limits.open_count -= 1
        del self.open[batch.id]
        return 0

    # -------------------------------------------------------------- every case

    def add(self, message, int64_t now_ns):
        """Take a message; returns its batch if the message commits it, otherwise None. ApiError if
        refused.
        """
        batch_id = message.fields[header_fields.BATCH_ID]
        if len(batch_id) > ID_BYTES_MAX:
            raise errors.ATOMIC_PUBLISH_INVALID_BATCH_ID()
        number = whole_number(message.fields.get(header_fields.BATCH_SEQUENCE, b""))
        if number is None:
            raise errors.ATOMIC_PUBLISH_MISSING_SEQ()
        commit = message.fields.get(header_fields.BATCH_COMMIT, b"")
        batch = self.open.get(batch_id)
        if batch is None:
            batch = self._begin(batch_id, number, commit, now_ns)
        try:
            return self._extend(batch, message, number, commit, now_ns)
        except AbandonedError as refusal:
            self.close(batch)
            if refusal.reason is not None:
                self.abandoned(batch_id, refusal.reason)
            raise refusal.error from None

    def _begin(self, bytes batch_id not None, number, commit, int64_t now_ns):
        cdef OpenBatch batch
        limits = self.limits
        if number != 1:
            # Nothing before the end of a batch is too much in nats-server: its number wraps around.
            if not 0 <= number - (commit == END_VALUE) <= limits.msgs_max:
                raise errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=limits.msgs_max)
            raise errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH()
        if <uint64_t>len(self.open) >= self.limits.per_stream_max \
                or self.limits.open_count >= self.limits.total_max:
            raise errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT()
        batch = OpenBatch(batch_id, now_ns + self.limits.rest_ns)
        if table_insert(&self.table, table_hash(&self.table, batch.id, len(batch.id)), batch.id,
                        <uint32_t>len(batch.id), <void*>batch) != 0:
            raise MemoryError
        self.open[batch.id] = batch
        self.limits.open_count += 1
        if not self.look_ns:
            self.look_ns = now_ns + self.limits.rest_ns
        return batch

    def _extend(self, OpenBatch batch not None, message, number, commit, int64_t now_ns):
        cdef PartFields fields
        cdef bytes subject = message.subject, header, body
        cdef bint is_end = commit == END_VALUE, is_simple
        if commit not in (b"", COMMIT_VALUE, END_VALUE):
            raise AbandonedError(errors.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT(), None)
        if not is_level_known(message.header):
            raise AbandonedError(errors.REQUIRED_API_LEVEL(), "unsupported")
        if number != batch.count + 1 or (is_end and number == 1):
            raise AbandonedError(errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH(), "incomplete")
        if number - is_end > self.limits.msgs_max:
            error = errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=self.limits.msgs_max)
            raise AbandonedError(error, "large")
        header = header_fields.remove_field(message.header, header_fields.REQUIRED_API_LEVEL)
        body = header + message.payload
        if not self._has_room(<uint64_t>len(subject) + <uint64_t>len(body)):
            raise AbandonedError(errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT(), "large")
        if is_end:
            batch.end_with_last()
        else:
            is_simple = len(header) <= HEADER_BYTES_MAX and scan_part(body, len(header), &fields)
            self.take(batch, &fields if is_simple else NULL, subject, <uint32_t>len(subject),
                      body, <uint32_t>len(header), <uint32_t>len(body), now_ns)
        if not commit:
            return None
        self.close(batch)
        return batch

    # -------------------------------------------------------------- life

    def drop(self, bytes batch_id not None):
        """Drop a batch silently; whether there was one."""
        batch = self.open.get(batch_id)
        if batch is None:
            return False
        self.close(batch)
        return True

    def clear(self):
        """Drop all batches silently."""
        for batch in list(self.open.values()):
            self.close(batch)

    @property
    def next_deadline_ns(self):
        """When `tick` has something to do (monotonic); 0: never."""
        return self.look_ns

    def tick(self, int64_t now_ns):
        """Give up batches that were idle for too long."""
        cdef OpenBatch batch
        cdef int64_t soonest_ns = 0
        if not 0 < self.look_ns <= now_ns:
            return
        for batch in list(self.open.values()):
            if batch.rests_until_ns <= now_ns:
                self.close(batch)
                self.abandoned(batch.id, "timeout")
            elif not soonest_ns or batch.rests_until_ns < soonest_ns:
                soonest_ns = batch.rests_until_ns
        self.look_ns = soonest_ns
