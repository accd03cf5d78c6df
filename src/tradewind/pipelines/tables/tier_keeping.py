"""The two tiers of a stream: verifying its table, and releasing what was verified.

Owns the mark up to which a table was verified, in `verified.json` beside the checkpoint, and the
rounds that advance it. A round compares the table with the stream after the mark (`table_proof`),
has the files and the log on the disk, and only then advances the mark. Then the limits of the tier
are applied: the messages that are to leave are compared once more with the files as they are now,
because small files may have been joined since, and are purged. A process that is killed at any
moment repeats what was not noted; a message that was not verified is never purged.

Limits of the stream itself are the server's, which removes messages whatever a table has. Where one
of them is set, the status says that messages are not protected, and the rows whose messages left
before they were verified are counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from tradewind.api.times import parse_time
from tradewind.pipelines.errors import PipelineError
from tradewind.pipelines.lake.lake_files import sync_file
from tradewind.pipelines.machine.places import Place, replace_file
from tradewind.pipelines.tables.pinned_streams import StreamPlace
from tradewind.pipelines.tables.table_points import TablePoint, check_stream, pin_table
from tradewind.pipelines.tables.table_proof import (
    ComparedStream,
    ProofCounts,
    compared_stream,
    prove,
    table_range,
)
from tradewind.pipelines.tables.table_spec import TableSpec
from tradewind.pipelines.tables.table_status import TierStatus, VerifiedMark, state_place
from tradewind.pipelines.tables.tier_limits import TierLimits, parse_tier_limits, removing_limits
from tradewind.pipelines.tables.tier_tasks import point_storage

if TYPE_CHECKING:
    from tradewind.sync import JetStreamManager

logger = logging.getLogger(__name__)
VERIFIED_FILE: Final = "verified.json"
# So many chunks leave in one round at most, so that other tables need not wait for long.
RELEASES_MAX: Final = 100
_LOGS: Final = ("_delta_log", "metadata")


@dataclass
class TierKeeper:
    """The tiers of one stream; `round` does all there is to do, and raises nothing of the table."""

    stream: str
    spec: TableSpec
    where: StreamPlace
    should_stop: Event = field(default_factory=Event)
    clock_ns: Callable[[], int] = time.time_ns
    status: TierStatus = field(default_factory=TierStatus)
    _lock: Lock = field(default_factory=Lock)

    @property
    def place(self) -> Place:
        """Where the mark is."""
        return state_place(self.stream, self.spec) / VERIFIED_FILE

    def round(self) -> TierStatus:
        """Do what there is to do, unless another thread is at it: then wait until it is done."""
        with self._lock:
            return self._round()

    def _round(self) -> TierStatus:
        """Verify what the table has gained, and purge what the limits of the tier say."""
        unprotected, error, created_ns = self.status.unprotected, "", 0
        try:
            with self.where.address.connect() as connection:
                manager = connection.jetstream_manager()
                unprotected = removing_limits(manager.streams.info(self.stream).config)
                with compared_stream(self.stream, self.spec, self.where) as side:
                    point = pin_table(self.stream, self.spec)
                    if point is not None and point.mark is not None:
                        created_ns = side.state.created_ns
                        self._verify(side, point, read_mark(self.place, created_ns))
                        self._release(side, point, manager)
        except Exception as failure:  # of the libraries of lakes and of the server
            error = " ".join(str(failure).split()) or type(failure).__name__
        mark = self.status.mark
        if created_ns:
            with suppress(Exception):  # then the error says it
                mark = read_mark(self.place, created_ns)
        self.status = TierStatus(mark, unprotected, error)
        return self.status

    # ---------------------------------------------------------------- verifying

    def _verify(self, side: ComparedStream, point: TablePoint, mark: VerifiedMark) -> None:
        """Advance the mark chunk by chunk, each when its rows are on the disk."""
        state = side.look()
        check_stream(point, self.stream, state.created_ns, state.last_seq)
        if point.until_seq <= mark.seq:
            return
        sync_table(point)
        # Rows below the first message of the stream have nothing to be compared with.
        first = max(mark.seq + 1, min(state.first_seq, point.until_seq + 1))
        begun = self._without_messages(side, point, mark, first)

        def advance(last_seq: int, counts: ProofCounts) -> bool:
            advanced = msgspec.structs.replace(
                begun,
                seq=last_seq,
                verified_ns=self.clock_ns(),
                compared=begun.compared + counts.compared,
                gone=begun.gone + counts.gone,
                absent=begun.absent + counts.absent,
            )
            write_mark(self.place, advanced)
            return not self.should_stop.is_set()

        if first > point.until_seq:
            advance(point.until_seq, ProofCounts())
        else:
            prove(side, point, (first, point.until_seq), advance)

    def _without_messages(
        self, side: ComparedStream, point: TablePoint, mark: VerifiedMark, first_seq: int
    ) -> VerifiedMark:
        """The mark with what left the stream before it could be compared, up to `first_seq`."""
        if first_seq <= mark.seq + 1:
            return mark
        seqs = (mark.seq + 1, first_seq - 1)
        storage = point_storage(self.stream, self.spec, point)
        only_seq = pa.schema([side.rows.schema.field("seq")])
        rows = table_range(storage, point, only_seq, seqs)
        # A table may begin anywhere in its stream, and has had all since then.
        begin = seqs[0] if mark.seq else min(rows["seq"].to_pylist()[:1], default=first_seq)
        absent = first_seq - begin - rows.num_rows
        if absent:
            logger.warning(
                "stream %s: %d sequences up to %d are gone, and its table does not have them",
                self.stream,
                absent,
                seqs[1],
            )
        return msgspec.structs.replace(
            mark, gone=mark.gone + rows.num_rows, absent=mark.absent + absent
        )

    # ---------------------------------------------------------------- letting go

    def _release(self, side: ComparedStream, point: TablePoint, manager: JetStreamManager) -> None:
        """Purge what is over the limits of the tier, as far as it is verified."""
        limits = parse_tier_limits(self.spec.tier_limits)
        if not limits.is_set:
            return
        for _ in range(RELEASES_MAX):
            state = side.look()
            mark = read_mark(self.place, state.created_ns)
            seq = min(self._release_seq(side, limits), mark.seq)
            seq = min(seq, state.first_seq + side.chunk_sequences() - 1)
            if seq < state.first_seq or self.should_stop.is_set():
                return
            counts = prove(side, point, (state.first_seq, seq))
            purged = self._purge(manager, seq, mark.created_ns)
            write_mark(
                self.place,
                msgspec.structs.replace(mark, released_seq=seq, released=mark.released + purged),
            )
            if purged > counts.compared:
                raise PipelineError(
                    f"stream {self.stream}: {purged} messages up to sequence {seq} were purged, and"
                    f" only {counts.compared} of them were compared with the table; verify it with"
                    " another copy of the stream"
                )

    def _purge(self, manager: JetStreamManager, seq: int, created_ns: int) -> int:
        """Purge messages up to a sequence, of the stream that was created at that time only.

        A tradewind-server decides that itself. On nats-server, a stream that is created again
        between the last look and the purge loses messages, which the look after it reports.
        """
        streams = manager.streams
        created = streams.info(self.stream).created
        if parse_time(created) != created_ns:
            raise PipelineError(f"stream {self.stream} was deleted and created again")
        purged = streams.purge(self.stream, seq=seq + 1, created=created)
        after = streams.info(self.stream)
        if after.created == created:
            return purged
        # A purge moves the first sequence of whatever stream it meets, even of an empty one.
        lost = purged if after.state.first_seq > seq else 0
        raise PipelineError(
            f"stream {self.stream} was deleted and created again during a purge; "
            + (f"{lost} messages of the new stream may be lost" if lost else "nothing was lost")
        )

    def _release_seq(self, side: ComparedStream, limits: TierLimits) -> int:
        """The last sequence that should leave, by any of the limits."""
        state, seq = side.state, side.state.first_seq - 1
        messages = state.messages or 0
        if not messages:
            return seq
        if limits.max_age_ns:
            oldest_ns = self.clock_ns() - limits.max_age_ns
            seq = max(seq, side.provider.seq_at_time(self.stream, oldest_ns) - 1)
        # So many sequences have at most so many messages; what is left is found by the next look.
        over = messages - limits.max_msgs if limits.max_msgs else 0
        if limits.max_bytes and state.bytes is not None and state.bytes > limits.max_bytes:
            over = max(over, -(-(state.bytes - limits.max_bytes) * messages // state.bytes))
        return max(seq, state.first_seq - 1 + over)


def read_mark(place: Place, created_ns: int) -> VerifiedMark:
    """The mark of a stream; one at the beginning if there is none, or that of an earlier stream."""
    try:
        mark = msgspec.json.decode(place.read_bytes(), type=VerifiedMark)
    except FileNotFoundError:
        return VerifiedMark(created_ns)
    except msgspec.DecodeError as error:
        raise PipelineError(
            f"{place} cannot be read: {error}; remove it, and the table is verified from the"
            " beginning"
        ) from None
    return mark if mark.created_ns == created_ns else VerifiedMark(created_ns)


def write_mark(place: Place, mark: VerifiedMark) -> None:
    """Replace the mark."""
    replace_file(place, msgspec.json.encode(mark) + b"\n")


def sync_table(point: TablePoint) -> None:
    """Have the files of a table and its log on the disk; object stores have them there anyway.

    The writer has synced the data files. The logs are written by libraries that do not.
    """
    folder = Path(point.folder.removeprefix("file://"))
    if "://" in str(folder):
        return
    for log in (folder / name for name in _LOGS):
        for entry in sorted(log.iterdir()) if log.is_dir() else ():
            if entry.is_file():
                sync_file(str(entry))


def verify_table(stream: str, spec: TableSpec, where: StreamPlace) -> tuple[int, ProofCounts]:
    """Compare all that a table has with what the stream still has of it; no mark is changed.

    The last sequence that was compared comes with the counts; TableMismatchError says what differs.
    """
    with compared_stream(stream, spec, where) as side:
        point = pin_table(stream, spec)
        if point is None or point.mark is None:
            raise PipelineError(f"table of {stream}: nothing was written yet")
        state = side.look()
        check_stream(point, stream, state.created_ns, state.last_seq)
        if state.first_seq > point.until_seq:
            return point.until_seq, ProofCounts()
        return point.until_seq, prove(side, point, (state.first_seq, point.until_seq))
