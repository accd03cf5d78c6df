"""Fast batches: many messages that are stored as they arrive, with few acknowledgements.

Owns the open fast batches of a stream, the order of their messages, and when clients are notified
of their progress. `ingest` stores a plain message that is the next one of its batch without this
module; the rest is handled here: first and last messages, gaps, errors and acknowledgements. A
batch is never stored itself, only its messages: a restart or a few seconds of inactivity end it.

    {"type":"ack","seq":0,"msgs":3}                    it is open
    {"type":"ack","seq":3,"msgs":3}                    stored, as durable as the stream promises
    {"type":"gap","last_seq":5,"seq":7}                5 and 6 are missing
    {"stream":"S","seq":8,"batch":"a","count":8}       the end
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.api.base import encode
from tradewind.api.stream_types import ErrorDetail
from tradewind.api.versioning import is_level_known
from tradewind.stream import header_fields
from tradewind.stream.fast_core import OpenFastBatch, read_reply
from tradewind.stream.publish_checks import Accept, BusyVerdict, Duplicate, Publish
from tradewind.stream.staging import ID_BYTES_MAX, BatchLimits

if TYPE_CHECKING:
    from tradewind.stream.ingest import Ingest

# All batches of a stream together send an acknowledgement after this many messages.
STEP_MAX: Final = 500
START, _, COMMIT, END, PING = range(5)


class FastBatches:
    """The fast batches of one stream.

    `checks(message)` returns the verdict on a message, `store(message, verdict)` stores it and
    returns its sequence.
    """

    def __init__(
        self,
        limits: BatchLimits,
        ingest: Ingest,
        checks: Callable[[Publish], Accept | Duplicate | BusyVerdict],
        store: Callable[[Publish, Accept], int],
    ) -> None:
        self._limits = limits
        self._ingest = ingest
        self._checks = checks
        self._store = store
        self._open: dict[bytes, OpenFastBatch] = {}
        self._look_ns = 0  # when some may have rested for too long

    def take(self, message: Publish, reply: bytes, now_ns: int) -> None:
        """Take a message of a batch; ApiError is a plain answer to it alone."""
        said = read_reply(reply)
        if said is None:
            raise errors.BATCH_PUBLISH_INVALID_PATTERN()
        batch_id, flow, takes_gaps, number, operation = said
        if len(batch_id) > ID_BYTES_MAX:
            raise errors.BATCH_PUBLISH_INVALID_BATCH_ID()
        batch = self._open.get(batch_id)
        if batch is None:
            if number != 1 or operation == PING:
                raise errors.BATCH_PUBLISH_UNKNOWN_BATCH_ID()
            batch = self._begin(batch_id, message, now_ns, flow=flow, takes_gaps=takes_gaps)
            if operation == START:
                self._ingest.answer(reply, _flow_ack(batch))
        batch.used_ns = now_ns
        if operation == PING:
            self._ping(batch, reply, number)
            return
        if not self._is_next(batch, reply, number):
            return
        if operation == END:
            batch.last = number - 1
            self._end(batch, reply)
            return
        self._add(batch, reply, message, number, is_last=operation == COMMIT)

    def _begin(
        self, batch_id: bytes, message: Publish, now_ns: int, *, flow: int, takes_gaps: bool
    ) -> OpenFastBatch:
        limits = self._limits
        if (
            len(self._open) >= limits.fast_per_stream_max
            or limits.fast_open_count >= limits.fast_total_max
        ):
            raise errors.BATCH_PUBLISH_TOO_MANY_INFLIGHT()
        if not is_level_known(message.header):
            raise errors.REQUIRED_API_LEVEL()
        step = 1 if self._open else min(STEP_MAX, flow)
        batch = self._open[batch_id] = OpenFastBatch(batch_id, flow, takes_gaps, step, now_ns)
        limits.fast_open_count += 1
        if not self._look_ns:
            self._look_ns = now_ns + limits.rest_ns
        return batch

    def _is_next(self, batch: OpenFastBatch, reply: bytes, number: int) -> bool:
        """Whether this is the next message of a batch; reports a gap if it is not."""
        expected = batch.last + 1
        if number == expected:
            return True
        self._say_gap(reply, expected, number)
        if number < expected or not batch.takes_gaps:
            self._end(batch, reply)
            return False
        return True

    def _ping(self, batch: OpenFastBatch, reply: bytes, number: int) -> None:
        """Repeat the position of a batch; messages that the client has sent may have been lost."""
        if number > batch.last:
            self._say_gap(reply, batch.last + 1, number + 1)
            if not batch.takes_gaps:
                self._end(batch, reply)
                return
            batch.last = number
            self._move(batch)
        self._ingest.answer_when_stored(reply, batch.stored_seq, _flow_ack(batch))

    def _add(
        self, batch: OpenFastBatch, reply: bytes, message: Publish, number: int, *, is_last: bool
    ) -> None:
        message = _without_level(message)
        try:
            verdict = self._checks(message)
            if isinstance(verdict, BusyVerdict):
                raise errors.STREAM_TOO_MANY_REQUESTS()
        except errors.ApiError as error:
            self._refuse(batch, reply, number, error, is_last=is_last)
            return
        if isinstance(verdict, Duplicate):
            if is_last and number == 1:
                self._close(batch)
                self._ingest.acknowledge(reply, verdict.seq, duplicate=True, tail=_tail(batch, 1))
                return
        else:
            batch.stored_seq = self._store(message, verdict)
        batch.last = number
        if is_last:
            self._end(batch, reply)
            return
        self._ingest.fast = batch
        if batch.last >= batch.acked + batch.step:
            self.tell(batch, reply)

    def _refuse(
        self,
        batch: OpenFastBatch,
        reply: bytes,
        number: int,
        error: errors.ApiError,
        *,
        is_last: bool,
    ) -> None:
        if number == 1 and not batch.takes_gaps:
            self._close(batch)
            raise error
        detail = ErrorDetail(
            code=error.code, err_code=error.err_code, description=error.description
        )
        body = b'{"type":"err","seq":%d,"error":%s}' % (number, encode(detail))
        self._ingest.answer_when_stored(reply, batch.stored_seq, body)
        if is_last or not batch.takes_gaps:
            self._end(batch, reply)
            return
        batch.last = number

    # ---------------------------------------------------------------- answers

    def tell(self, batch: OpenFastBatch, reply: bytes) -> None:
        """Send an acknowledgement, when the messages so far are durable."""
        self._move(batch)
        self._ingest.answer_when_stored(reply, batch.stored_seq, _flow_ack(batch))

    def _move(self, batch: OpenFastBatch) -> None:
        """Advance the next acknowledgement, and adapt the number of messages between two of
        them.
        """
        if batch.last < batch.acked + batch.step:
            return
        batch.acked += (batch.last - batch.acked) // batch.step * batch.step
        target = min(max(STEP_MAX // max(len(self._open), 1), 1), batch.flow)
        if batch.step < target:
            batch.step = min(batch.step * 2, target)
        elif batch.step > target:
            batch.step = max(batch.step // 2, target)

    def _say_gap(self, reply: bytes, expected: int, number: int) -> None:
        body = b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, number)
        self._ingest.answer_when_stored(reply, 0, body)

    def _end(self, batch: OpenFastBatch, reply: bytes) -> None:
        self._close(batch)
        tail = _tail(batch, batch.last)
        self._ingest.acknowledge_always(reply, batch.stored_seq, tail=tail)

    # ---------------------------------------------------------------- life

    def _close(self, batch: OpenFastBatch) -> None:
        del self._open[batch.id]
        self._limits.fast_open_count -= 1
        if self._ingest.fast is batch:
            self._ingest.fast = None

    def clear(self) -> None:
        """Drop all batches silently."""
        for batch in list(self._open.values()):
            self._close(batch)
        self._look_ns = 0

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do (monotonic); 0: never."""
        return self._look_ns

    def tick(self, now_ns: int) -> None:
        """Drop idle batches silently."""
        if not 0 < self._look_ns <= now_ns:
            return
        rest_ns = self._limits.rest_ns
        for batch in list(self._open.values()):
            if batch.used_ns + rest_ns <= now_ns:
                self._close(batch)
        used = [batch.used_ns for batch in self._open.values()]
        self._look_ns = min(used) + rest_ns if used else 0


def _flow_ack(batch: OpenFastBatch) -> bytes:
    return b'{"type":"ack","seq":%d,"msgs":%d}' % (batch.acked, batch.step)


def _tail(batch: OpenFastBatch, count: int) -> bytes:
    batch_id = encode(batch.id.decode("utf-8", "replace"))
    return b',"batch":%s,"count":%d' % (batch_id, count)


def _without_level(message: Publish) -> Publish:
    """The message without the required API level."""
    header = header_fields.remove_field(message.header, header_fields.REQUIRED_API_LEVEL)
    return Publish(message.subject, header, message.payload, message.fields)
