"""Scheduled messages of a stream: when each is due, and what is published then.

Owns the times, as a table of sequences in C (`MessageStore.schedules`), so that a hundred thousand
schedules need less than 10 MiB besides their messages, and no processor time while none is due. All
other data of a schedule is read from its message when it is due. A schedule that is removed, for
whatever reason, leaves the table with its message.

Each run is stored exactly once. The message that a run publishes contains the time of the next one
(`Nats-Schedule-Next`), or ends a schedule that runs once; both are in the same commit. After a
crash, the messages therefore show which runs have happened (`recover`). A run that the stream
refuses is retried.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.errors import ApiError
from tradewind.api.times import parse_time
from tradewind.store.contract import MessageCopy, NotFoundError
from tradewind.store.table.schedule_times import note_schedule, sequences_with
from tradewind.stream import header_fields, stream_queries
from tradewind.stream.schedule_checks import PURGE
from tradewind.stream.schedule_scan import adopt_known, adopt_stored

if TYPE_CHECKING:
    from tradewind.api.timings import Timing
    from tradewind.store.table.message_store import MessageStore

FIRED_PER_STEP: Final = 500
# The clock of the machine may be set between two looks.
LOOK_AGAIN_NS: Final = 60_000_000_000
# This many different values of Nats-Schedule are remembered while a start reads them.
TIMINGS_MAX: Final = 1024
# A run that was refused is tried again after this time.
REFUSED_AGAIN_NS: Final = 10_000_000_000


def begin_schedule(store: MessageStore, seq: int, timing: Timing, now_ns: int) -> None:
    """Add the schedule of a message that was just stored."""
    note_schedule(store, seq, _clamped(timing.next_ns(now_ns, now_ns)))


class ScheduledRun(msgspec.Struct, frozen=True):
    """A message to publish; `ends`: the subject of a schedule that has no further run."""

    target: bytes
    header: bytes
    payload: bytes
    ends: bytes


class Schedules:
    """The schedules of one stream. `publish(run)` stores a run; ApiError if that is not possible
    now.
    """

    def __init__(self, store: MessageStore, publish: Callable[[ScheduledRun], None]) -> None:
        self._store = store
        self._publish = publish
        # The planned times of runs that were refused.
        self._refused: dict[int, int] = {}
        # Schedules whose time may be far too late, because the clock went back.
        self._doubtful: list[tuple[int, int]] = []

    # ---------------------------------------------------------------- time

    def next_deadline_ns(self, now_ns: int) -> int | None:
        """When `tick` has something to do, by the clock of the machine; None: never."""
        if self._doubtful:
            return now_ns
        due_ns = self._store.schedules.next_expiry
        return None if due_ns is None else min(due_ns, now_ns + LOOK_AGAIN_NS)

    def tick(self, now_ns: int) -> None:
        """Publish the runs that are due, in the order of their schedules; some of them if they are
        many.
        """
        if self._doubtful:
            self._plan_again(now_ns)
        due = sorted(self._store.schedules.take_expired(now_ns, FIRED_PER_STEP))
        while due:
            seq, due_ns = due[0]
            try:
                self._run(seq, due_ns, now_ns)
            except Exception:
                # Runs that were not published are still due.
                for left_seq, left_ns in due:
                    self._store.schedules.add(left_seq, left_ns)
                raise
            del due[0]

    def clock_went_back(self) -> None:
        """Check all times again: one that was planned by a clock that was ahead may be years
        away.
        """
        self._doubtful = list(self._store.schedules.pending())

    def _plan_again(self, now_ns: int) -> None:
        """Bring forward some repeating schedules whose next time is too far away."""
        for _ in range(min(len(self._doubtful), FIRED_PER_STEP)):
            # One that cannot be read is looked at once: the others follow with the next call.
            seq, due_ns = self._doubtful.pop()
            if due_ns <= now_ns or not self._store.is_live(seq):
                continue
            timing = _timing_of(self._store.get(seq), now_ns)
            if timing is None or not timing.repeats:
                continue
            next_ns = _clamped(timing.next_ns(now_ns, now_ns))
            # Not if it has another time by now.
            if next_ns < due_ns and self._store.schedules.remove(seq, due_ns):
                self._refused.pop(seq, None)
                self._store.schedules.add(seq, next_ns)

    def _run(self, seq: int, due_ns: int, now_ns: int) -> None:
        try:
            message = self._store.get(seq)
        except NotFoundError:
            return
        planned_ns = self._refused.pop(seq, due_ns)
        timing = _timing_of(message, now_ns)
        if timing is None:
            return
        next_ns = _clamped(timing.next_ns(planned_ns, now_ns)) if timing.repeats else 0
        try:
            self._publish(self._run_of(message, timing, next_ns))
        except ApiError:
            self._refused[seq] = planned_ns
            self._store.schedules.add(seq, now_ns + REFUSED_AGAIN_NS)
            return
        if timing.repeats and self._store.is_live(seq):
            self._store.schedules.add(seq, next_ns)

    def _run_of(self, message: MessageCopy, timing: Timing, next_ns: int) -> ScheduledRun:
        fields = header_fields.special_fields(message.header)
        content = message
        if source := fields.get(header_fields.SCHEDULE_SOURCE):
            try:
                content = stream_queries.last_message(self._store, source, self._store.last_seq)
            except NotFoundError:
                content = message
        following = timing.text_of(next_ns) if timing.repeats else PURGE
        added = b"%s: %s\r\n%s: %s\r\n" % (
            header_fields.SCHEDULER,
            message.subject,
            header_fields.SCHEDULE_NEXT,
            following,
        )
        if ttl := fields.get(header_fields.SCHEDULE_TTL):
            added += b"%s: %s\r\n" % (header_fields.TTL, ttl)
        if fields.get(header_fields.SCHEDULE_ROLLUP):
            added += b"%s: sub\r\n" % header_fields.ROLLUP
        return ScheduledRun(
            target=fields.get(header_fields.SCHEDULE_TARGET, b""),
            header=header_fields.add_fields(header_fields.without_demands(content.header), added),
            payload=content.payload,
            ends=b"" if timing.repeats else message.subject,
        )

    # ---------------------------------------------------------------- the end and the start

    def restore_planned_times(self) -> None:
        """Set refused runs back to their planned times, before the times are written to disk."""
        for seq, planned_ns in self._refused.items():
            if self._store.is_live(seq):
                self._store.schedules.add(seq, planned_ns)
        self._refused.clear()

    def recover(self, sequences: array[int], times_ns: array[int], stamp: int, now_ns: int) -> None:
        """Restore the times: those of `sequences` below `stamp` are known, the others follow from
        the messages.

        If no run of a repeating schedule is found, there was none, or its message was removed
        since. If all messages are there, it is the former: it is overdue. Otherwise a run is rather
        left out than made twice.
        """
        store = self._store
        complete_from = _complete_from(store)
        for seq, due_ns in adopt_known(store, sequences, times_ns, stamp):
            message = store.get(seq)
            if _fields(message).get(header_fields.SCHEDULE):
                self._adopt(message, due_ns, stamp)
        timings: dict[tuple[bytes | None, ...], Timing | None] = {}
        for seq in adopt_stored(store, sequences_with(store, b"Nats-Schedule", stamp)):
            message = store.get(seq)
            fields = _fields(message)
            said = (
                fields.get(header_fields.SCHEDULE),
                fields.get(header_fields.SCHEDULE_TIME_ZONE),
            )
            if said not in timings:
                if len(timings) >= TIMINGS_MAX:
                    timings.clear()
                timings[said] = _timing_of(message, now_ns)
            if (timing := timings[said]) is None:
                continue
            due_ns = timing.first_ns(message.timestamp_ns)
            if seq < complete_from:
                due_ns = timing.next_ns(message.timestamp_ns, now_ns)
            self._adopt(message, _clamped(due_ns), seq)
        if len(store.schedules):
            self._follow_runs(stamp)

    def _adopt(self, message: MessageCopy, due_ns: int, known_to: int) -> None:
        """Restore a schedule, unless a message after `known_to` has ended it."""
        store, seq = self._store, message.seq
        state = store.subject_state(message.subject)
        if state is not None and state.last_seq != seq:
            store.shadows_schedules = True
            after = max(seq, known_to - 1) + 1
            while after and (found := store.next_sequence(after, (message.subject,))):
                if not _fields(store.get(found)).get(header_fields.SCHEDULER):
                    return
                after = found + 1
        store.schedules.add(seq, due_ns)

    def _follow_runs(self, stamp: int) -> None:
        """Update schedules from the messages of their runs."""
        store = self._store
        if stamp > store.last_seq:
            return  # none can have run since
        first = max(min(seq for seq, _ in store.schedules.pending()), stamp)
        runs = sequences_with(store, b"Nats-Scheduler", first)
        if not runs:
            return
        schedules = {store.get(seq).subject: seq for seq, _ in store.schedules.pending()}
        for seq in runs:
            fields = _fields(store.get(seq))
            own = schedules.get(fields.get(header_fields.SCHEDULER, b""))
            if own is None or own > seq or not store.is_live(own):
                continue
            following = fields.get(header_fields.SCHEDULE_NEXT, b"")
            if following == PURGE:
                store.purge(store.get(own).subject, below=seq)
                continue
            try:
                store.schedules.add(own, _clamped(parse_time(following.decode())))
            except ValueError:
                continue


def _fields(message: MessageCopy) -> dict[bytes, bytes]:
    return header_fields.special_fields(message.header)


def _timing_of(message: MessageCopy, now_ns: int) -> Timing | None:
    """The timing of a stored message; None if it is not a schedule."""
    fields = _fields(message)
    if not (pattern := fields.get(header_fields.SCHEDULE)):
        return None
    from tradewind.api.timings import parse_timing

    try:
        return parse_timing(pattern, fields.get(header_fields.SCHEDULE_TIME_ZONE), now_ns)
    except ValueError:
        return None


def _clamped(time_ns: int) -> int:
    """A time that 64 bits can hold."""
    return min(max(time_ns, -(2**63)), 2**63 - 1)


def _complete_from(store: MessageStore) -> int:
    """The first sequence from which on no message was removed."""
    low, high = max(store.first_seq, 1), store.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        if store.count_matching((), middle) == store.last_seq - middle + 1:
            high = middle
        else:
            low = middle + 1
    return low
