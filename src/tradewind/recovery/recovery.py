"""Disaster recovery for programs without an event loop.

Owns the checks before a failover or failback, and the journals. The steps are in `change` and
`failback`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tradewind.recovery.change import (
    ACK_SECONDS,
    WAIT_SECONDS,
    ChangeOver,
    Say,
    give_back,
    lost_problem,
)
from tradewind.recovery.change_over_marks import MARK, RecoveryMark, Role, read_mark
from tradewind.recovery.contents import Comparison, Progress, compare
from tradewind.recovery.failback import SAVED_SUFFIX, Failback
from tradewind.recovery.protection_status import StreamStatus, look
from tradewind.recovery.records import Records
from tradewind.recovery.recovery_errors import AWAY, RecoveryError
from tradewind.recovery.recovery_journal import (
    RecoveryJournal,
    RecoveryKind,
    RecoveryStep,
    load_recovery,
    may_begin,
    save_journal,
)
from tradewind.recovery.saved import publish_saved
from tradewind.recovery.sides import StreamSide

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.streams.manager import StoredMsg
    from tradewind.sync import Connection

SUFFIX: Final = {
    RecoveryKind.FAILOVER: ".failover.json",
    RecoveryKind.LOST: ".failover.json",
    RecoveryKind.FAILBACK: ".failback.json",
}


class DisasterRecovery:
    """Streams at their origin, and their mirrors at a standby.

    >>> with tradewind.sync.connect(a) as origin, tradewind.sync.connect(b) as standby:
    ...     recovery = DisasterRecovery(origin, standby)
    ...     if recovery.status("ORDERS").can_fail_over:
    ...         recovery.failover("ORDERS", Path("ORDERS.failover.json"))

    `origin` is None if it is lost. The places are names or addresses without logins, for journals
    and records. `say` is called with each step. `wait_seconds` is how long a mirror may take to
    catch up, `ack_seconds` how long consumers may take to acknowledge what they work on.
    """

    def __init__(
        self,
        origin: Connection | None,
        standby: Connection,
        *,
        origin_place: str = "",
        standby_place: str = "",
        say: Say = lambda _text: None,
        wait_seconds: float = WAIT_SECONDS,
        ack_seconds: float = ACK_SECONDS,
    ) -> None:
        self._origin = origin
        self._standby = standby
        self._origin_place, self._standby_place = origin_place, standby_place
        self._say = say
        self._wait_seconds = wait_seconds
        self._ack_seconds = ack_seconds
        self._records = Records(standby)

    def status(self, stream: str) -> StreamStatus:
        """Report how well a stream is protected."""
        return look(self._origin, self._standby, stream)

    def record(self, stream: str) -> StreamStatus:
        """Record the configuration and consumers of the origin at the standby, in case the origin
        is lost; returns the status afterwards. Only an origin that the standby mirrors is recorded.
        """
        if self._origin is not None:
            side = StreamSide(self._origin, stream)
            try:
                info = side.find()
                there = StreamSide(self._standby, stream).find()
                is_mirrored = there is not None and there.config.mirror is not None
                if info is not None and is_mirrored and _is_untouched(info):
                    self._records.record(side, info, self._origin_place, time.time_ns())
            except AWAY:
                pass  # the status says so
        return self.status(stream)

    def verify(
        self, stream: str, progress: Progress = lambda _seq: None, *, last_seq: int = 0
    ) -> Comparison:
        """Compare both sides, message by message, up to the last sequence that both have."""
        if self._origin is None:
            raise RecoveryError(f"stream {stream}: comparing it needs the origin")
        infos = [self._require(side, stream) for side in (self._origin, self._standby)]
        last = min(info.state.last_seq for info in infos)
        return compare(
            self._origin, self._standby, stream, min(last, last_seq or last), progress=progress
        )

    # ------------------------------------------------------------------ changing over

    def plan_failover(
        self, stream: str, *, is_lost: bool = False, subjects: Collection[str] = ()
    ) -> RecoveryJournal:
        """Plan a failover that could begin now; RecoveryError with the reasons if it cannot.

        `subjects` are needed if the origin is lost and was never recorded.
        """
        kind = RecoveryKind.LOST if is_lost else RecoveryKind.FAILOVER
        journal = RecoveryJournal(
            id=secrets.token_hex(8),
            stream=stream,
            kind=kind,
            origin=self._origin_place,
            standby=self._standby_place,
            subjects=list(subjects),
        )
        if is_lost:
            self._check_lost(journal)
            return journal
        status = self.status(stream)
        if not status.can_fail_over:
            raise RecoveryError(
                f"stream {stream}: no failover is possible: {'; '.join(status.problems)}"
            )
        return journal

    def plan_failback(self, stream: str, *, standby_api: str, folder: Path) -> RecoveryJournal:
        """Plan a failback that could begin now; RecoveryError with the reasons if it cannot.

        `standby_api` is the API of the standby as the origin sees it, such as `$JS.standby.API`.
        Messages that only the origin has will be saved in `folder`.
        """
        if not standby_api:
            raise RecoveryError(
                "standby_api: the API of the standby as the origin sees it, such as $JS.standby.API"
            )
        if self._origin is None:
            raise RecoveryError(f"stream {stream}: a failback needs the origin")
        info = self._require(self._standby, stream)
        mark = read_mark(info.config)
        if mark is None or mark.role is not Role.PROMOTED:
            raise RecoveryError(
                f"stream {stream}: no failover to the standby is on record there, so there is no "
                "way back",
                "see: tradewind dr status",
            )
        self._check_old_origin(stream, mark)
        change = secrets.token_hex(8)
        saved = folder.absolute() / f"{stream}.{change}{SAVED_SUFFIX}"
        return RecoveryJournal(
            id=change,
            stream=stream,
            kind=RecoveryKind.FAILBACK,
            origin=self._origin_place,
            standby=self._standby_place,
            standby_api=standby_api,
            mirror=mark.mirror,
            shared_seq=mark.last_seq,
            saved_file=str(saved),
        )

    def extra_messages(self, journal: RecoveryJournal) -> int:
        """Count the messages that the old origin of a failback has taken and the standby never got;
        removed ones between them count too.
        """
        assert self._origin is not None
        info = StreamSide(self._origin, journal.stream).find()
        if info is None or info.config.mirror is not None:
            return 0
        return max(info.state.last_seq - journal.shared_seq, 0)

    def failover(
        self,
        stream: str,
        path: Path,
        *,
        is_lost: bool = False,
        subjects: Collection[str] = (),
    ) -> RecoveryJournal:
        """Have the standby take the messages of a stream, with its consumers.

        `path` is the file for the journal: `resume` continues with it if this is interrupted.
        """
        journal = self.plan_failover(stream, is_lost=is_lost, subjects=subjects)
        return self.begin(journal, path)

    def failback(self, stream: str, path: Path, *, standby_api: str) -> RecoveryJournal:
        """Have the old origin take the messages of a stream again, with its consumers, and the
        standby mirror it. Messages that only the origin has are saved in a file beside the journal.
        """
        journal = self.plan_failback(stream, standby_api=standby_api, folder=path.parent)
        return self.begin(journal, path)

    def begin(self, journal: RecoveryJournal, path: Path) -> RecoveryJournal:
        """Carry out a plan."""
        if not may_begin(path):
            raise RecoveryError(
                f"{path} already exists",
                f"resume it: tradewind dr resume {path}",
                "or use another: --file FILE",
            )
        save_journal(path, journal)
        self._change(journal, path).run()
        return journal

    def resume(self, path: Path) -> RecoveryJournal:
        """Continue a failover or failback that was interrupted."""
        journal = load_recovery(path)
        self._change(journal, path).run()
        return journal

    def roll_back(self, path: Path) -> RecoveryJournal:
        """Let the side that had the messages before take them again; refused once the other side
        takes them. The journal stays.
        """
        journal = load_recovery(path)
        self._change(journal, path).roll_back()
        return journal

    def publish_saved(self, path: Path, stream: str = "") -> int:
        """Publish the messages saved by a failback at the origin; returns how many are new."""
        if self._origin is None:
            raise RecoveryError("publishing saved messages needs the origin")
        return publish_saved(self._origin, path, stream)

    # ------------------------------------------------------------------ inside

    def _change(self, journal: RecoveryJournal, path: Path) -> ChangeOver:
        kind = Failback if journal.kind is RecoveryKind.FAILBACK else ChangeOver
        return kind(
            journal,
            path,
            self._origin,
            self._standby,
            say=self._say,
            wait_seconds=self._wait_seconds,
            ack_seconds=self._ack_seconds,
        )

    def _require(self, connection: Connection, stream: str) -> StreamInfo:
        info = StreamSide(connection, stream).find()
        if info is None:
            name = "standby" if connection is self._standby else "origin"
            raise RecoveryError(f"the {name} has no stream {stream}")
        return info

    def _check_lost(self, journal: RecoveryJournal) -> None:
        """RecoveryError if the origin answers: it is not lost, and its messages would be thrown
        away.
        """
        stream = journal.stream
        if self._origin is not None:
            try:
                info = StreamSide(self._origin, stream).find()
            except AWAY:
                info = None
            if info is not None and read_mark(info.config) is None:
                raise RecoveryError(
                    f"stream {stream}: the origin responds, so it is not lost",
                    "fail over without loss: tradewind dr failover without --origin-lost",
                )
        info = self._require(self._standby, stream)
        if problem := lost_problem(info.config, read_mark(info.config)):
            raise RecoveryError(f"stream {stream}: {problem}")
        side = StreamSide(self._standby, stream)
        if info.config.mirror is not None:
            for name in side.own_consumers(self._records.consumers(stream), MARK):
                raise RecoveryError(
                    f"stream {stream}: the standby has a consumer {name} of its own",
                    f"remove or rename it: tradewind consumer rm {stream} {name}",
                )
        record = self._records.stream(stream)
        if record is None and not journal.subjects:
            raise RecoveryError(
                f"stream {stream}: its subjects were never recorded",
                "name them: --subjects 'orders.>'",
            )
        subjects = journal.subjects or list(record.config.get("subjects", []) if record else [])
        self._check_rivals(side, subjects, "standby")

    def _check_old_origin(self, stream: str, mark: RecoveryMark) -> None:
        """RecoveryError unless the old origin is the stream that was mirrored; checked before any
        change.
        """
        assert self._origin is not None
        origin, standby = StreamSide(self._origin, stream), StreamSide(self._standby, stream)
        info = origin.find()
        subjects = list(standby.info().config.subjects)
        self._check_rivals(origin, subjects, "origin")
        if info is None or info.config.mirror is not None:
            return
        first = max(info.state.first_seq, standby.info().state.first_seq, 1)
        for seq in (first, mark.last_seq):
            ours, theirs = origin.next_message(seq), standby.next_message(seq)
            if ours is None or theirs is None or ours.seq != theirs.seq or seq > mark.last_seq:
                continue
            if _parts(ours) != _parts(theirs) and ours.seq <= mark.last_seq:
                raise RecoveryError(
                    f"stream {stream}: origin and standby differ at sequence {ours.seq}, so the "
                    "origin is not the stream that was mirrored",
                    "check --origin; nothing was changed",
                )

    def _check_rivals(self, side: StreamSide, subjects: list[str], name: str) -> None:
        for subject, rival in side.rivals(subjects).items():
            raise RecoveryError(
                f"stream {side.stream}: stream {rival} at the {name} stores {subject}, so this one "
                "cannot"
            )


def release_origin(origin: Connection, path: Path) -> RecoveryJournal:
    """Roll back a planned failover whose standby is gone, before that has taken over."""
    journal = load_recovery(path)
    if journal.kind is not RecoveryKind.FAILOVER or journal.has_begun(RecoveryStep.PROMOTE):
        raise RecoveryError(
            f"stream {journal.stream}: without the standby it is unknown whether it has taken over",
            "see what it says: tradewind dr status",
        )
    give_back(StreamSide(origin, journal.stream), journal)
    return journal


def _is_untouched(info: StreamInfo) -> bool:
    """Whether a stream is an origin that no change-over has parked or made a mirror."""
    return info.config.mirror is None and read_mark(info.config) is None


def _parts(message: StoredMsg) -> tuple[object, ...]:
    fields = list(message.headers.fields())
    return message.subject, message.time_ns, fields, message.data
