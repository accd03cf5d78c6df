"""Compares the contents of two streams, by hashes of ranges of sequences.

Owns hashing a stream and finding out which sequences differ. It reads every message once, on both
servers at the same time, and ranges that differ a second time, in memory for one range. It never
leaves anything behind on either server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.errors import OperationTimeoutError
from tradewind.recovery.recovery_errors import RecoveryError, wait_until

if TYPE_CHECKING:
    from tradewind.client.core.message import Msg
    from tradewind.client.streams.manager import StoredMsg
    from tradewind.sync import Connection

RANGE_MESSAGES: Final = 10_000
# A server that sends nothing for so long no longer answers.
MESSAGE_SECONDS: Final = 60.0
# Messages taken at once from what has arrived.
TAKEN_MAX: Final = 256
# This many sequences of a range are named, and after this many ranges that differ the rest is not
# read.
NAMED_MAX: Final = 20
DIFFERENCES_MAX: Final = 100

Progress = Callable[[int], None]
Missing = Callable[[list[int]], None]


class RangeHash(msgspec.Struct, frozen=True):
    """The hash of some consecutive messages of a stream."""

    first_seq: int
    last_seq: int
    count: int
    digest: str

    @property
    def index(self) -> int:
        """The number of this range of sequences."""
        return self.first_seq // RANGE_MESSAGES


class RangeDifference(msgspec.Struct, frozen=True):
    """A range that differs. The lists name the first sequences, the counts are of all."""

    first_seq: int
    last_seq: int
    only_origin_count: int
    only_standby_count: int
    changed_count: int
    only_origin: list[int]
    only_standby: list[int]
    changed: list[int]


class Comparison(msgspec.Struct):
    """The comparison of two streams. A mirror does not follow deletions, so messages that only the
    standby has were removed at the origin; messages that only the origin has are missing.
    """

    first_seq: int
    last_seq: int
    messages: int = 0  # that are the same, in ranges that are the same
    ranges: int = 0
    only_origin: int = 0
    only_standby: int = 0
    changed: int = 0
    is_complete: bool = True  # False if the rest was not read, because so much differs
    differences: list[RangeDifference] = []

    @property
    def is_same(self) -> bool:
        """Whether both have the same messages."""
        return self.is_complete and not self.differences

    @property
    def is_covered(self) -> bool:
        """Whether the standby has everything that the origin has."""
        return self.is_complete and not self.only_origin and not self.changed

    def describe(self) -> list[str]:
        """Describe the differences, a line for each range."""
        lines = [_describe(each) for each in self.differences]
        if not self.is_complete:
            lines.append(f"{DIFFERENCES_MAX} ranges differ; what follows was not compared")
        return lines


def compare(
    origin: Connection,
    standby: Connection,
    stream: str,
    last_seq: int,
    *,
    first_seq: int = 1,
    progress: Progress = lambda _seq: None,
    missing: Missing = lambda _seqs: None,
) -> Comparison:
    """Compare both streams between two sequences. `progress` is called with the sequence that was
    reached at the origin, `missing` with all sequences of a range that only the origin has.
    """
    found = Comparison(first_seq, last_seq)
    for side in (origin, standby):
        wait_readable(side, stream, last_seq)
    with (
        closing(hashes(origin, stream, last_seq, progress, first_seq)) as ours,
        closing(hashes(standby, stream, last_seq, lambda _seq: None, first_seq)) as theirs,
        # The last one, so that nothing reads any more when the others are closed.
        ThreadPoolExecutor(2) as pool,
    ):
        one, other = pool.map(_next, (ours, theirs))
        while one or other:
            index = min(each.index for each in (one, other) if each)
            at_one, at_other = (bool(each and each.index == index) for each in (one, other))
            if one is not None and one == other:
                found.ranges += 1
                found.messages += one.count
            else:
                _look_closer(found, (origin, standby), stream, index, missing)
            if len(found.differences) >= DIFFERENCES_MAX:
                found.is_complete = False
                break
            after = pool.submit(_next, ours) if at_one else None
            other = _next(theirs) if at_other else other
            one = after.result() if after else one
    return found


def hashes(
    connection: Connection,
    stream: str,
    last_seq: int,
    progress: Progress,
    first_seq: int = 1,
) -> Generator[RangeHash]:
    """Hash the messages of a stream between two sequences, range by range. Ranges end at fixed
    sequences, so both sides divide alike whatever was deleted.
    """
    digest, first, count, last = hashlib.sha256(), 0, 0, 0
    for message in messages_between(connection, stream, first_seq, last_seq):
        seq = message.metadata.stream_sequence
        if count and seq // RANGE_MESSAGES != first // RANGE_MESSAGES:
            yield RangeHash(first, last, count, digest.hexdigest())
            digest, count = hashlib.sha256(), 0
        first = first if count else seq
        last = seq
        count += 1
        _add(digest, message, seq)
        if not count % 1000:
            progress(seq)
    if count:
        yield RangeHash(first, last, count, digest.hexdigest())


def messages_between(
    connection: Connection, stream: str, first_seq: int, last_seq: int
) -> Iterator[Msg]:
    """The messages that a stream has from one sequence to another."""
    next_seq = first_seq
    while next_seq <= last_seq:
        found = next_message(connection, stream, next_seq)
        if found is None or found.seq > last_seq:
            return
        ordered = connection.jetstream().consumers.ordered(stream, start_sequence=found.seq)
        try:
            with ordered.consume() as messages:
                while True:
                    for message in messages.take_some(TAKEN_MAX, MESSAGE_SECONDS):
                        next_seq = message.metadata.stream_sequence + 1
                        if next_seq - 1 <= last_seq:
                            yield message
                        if next_seq > last_seq or not message.metadata.pending_count:
                            return
        except OperationTimeoutError:
            # Limits may have removed the rest meanwhile; a server that is silent is not asked on.
            again = next_message(connection, stream, next_seq)
            if again is not None and again.seq <= last_seq:
                raise


def next_message(connection: Connection, stream: str, seq: int) -> StoredMsg | None:
    """The first message at or after a sequence; None if there is none."""
    streams = connection.jetstream_manager().streams
    try:
        return streams.get_message(stream, seq=max(seq, 1), next_by_subject=">")
    except NoMessageFoundError:
        return None


def wait_readable(connection: Connection, stream: str, last_seq: int) -> None:
    """Wait until a stream can be read up to a sequence: unsynced messages count in its state, but
    cannot be read yet.
    """
    streams = connection.jetstream_manager().streams

    def is_readable() -> bool:
        if last_seq < 1 or next_message(connection, stream, last_seq) is not None:
            return True
        state = streams.info(stream).state
        if not state.messages or state.last_seq < last_seq:
            return True
        if not state.num_deleted:
            return False
        deleted = streams.info(stream, deleted_details=True).state.deleted
        return sum(seq >= last_seq for seq in deleted) > state.last_seq - last_seq

    if not wait_until(is_readable, MESSAGE_SECONDS):
        raise RecoveryError(
            f"stream {stream}: its messages up to sequence {last_seq} cannot be read within "
            f"{MESSAGE_SECONDS:g} s"
        )


def _next(ranges: Iterator[RangeHash]) -> RangeHash | None:
    return next(ranges, None)


def _look_closer(
    found: Comparison,
    sides: tuple[Connection, Connection],
    stream: str,
    index: int,
    missing: Missing,
) -> None:
    """Read a range on both sides once more: limits may have removed something at one side first."""
    first = max(index * RANGE_MESSAGES, found.first_seq)
    last = min((index + 1) * RANGE_MESSAGES - 1, found.last_seq)
    ours, theirs = (_digests(side, stream, first, last) for side in sides)
    only_origin = sorted(ours.keys() - theirs.keys())
    only_standby = sorted(theirs.keys() - ours.keys())
    changed = sorted(seq for seq in ours.keys() & theirs.keys() if ours[seq] != theirs[seq])
    found.ranges += 1
    found.messages += len(ours) - len(only_origin) - len(changed)
    if not (only_origin or only_standby or changed):
        return
    found.only_origin += len(only_origin)
    found.only_standby += len(only_standby)
    found.changed += len(changed)
    found.differences.append(
        RangeDifference(
            first,
            last,
            len(only_origin),
            len(only_standby),
            len(changed),
            only_origin[:NAMED_MAX],
            only_standby[:NAMED_MAX],
            changed[:NAMED_MAX],
        )
    )
    if only_origin:
        missing(only_origin)


def _digests(connection: Connection, stream: str, first: int, last: int) -> dict[int, bytes]:
    found = {}
    for message in messages_between(connection, stream, first, last):
        digest = hashlib.sha256()
        seq = message.metadata.stream_sequence
        _add(digest, message, seq)
        found[seq] = digest.digest()
    return found


def _describe(each: RangeDifference) -> str:
    parts = [
        f"{count} {what} ({_named(seqs, count)})"
        for what, count, seqs in (
            ("only at the origin", each.only_origin_count, each.only_origin),
            ("only at the standby", each.only_standby_count, each.only_standby),
            ("with other contents", each.changed_count, each.changed),
        )
        if count
    ]
    return f"sequences {each.first_seq} to {each.last_seq}: {', '.join(parts)}"


def _named(seqs: list[int], count: int) -> str:
    """Format sequences, with neighbours as a range."""
    runs: list[list[int]] = []
    for seq in seqs:
        if runs and runs[-1][1] == seq - 1:
            runs[-1][1] = seq
        else:
            runs.append([seq, seq])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ", ".join(texts) + (", ..." if count > len(seqs) else "")


def _add(digest: hashlib._Hash, message: Msg, seq: int) -> None:
    """Add every part with its length, so that nothing can move from one to the next."""
    fields = [part for field in message.headers.fields() for part in field]
    parts = [message.subject, str(seq), str(message.metadata.timestamp_ns), *fields]
    encoded = [part.encode("utf-8", "surrogateescape") for part in parts]
    for part in (*encoded, message.data):
        digest.update(len(part).to_bytes(8))
        digest.update(part)
