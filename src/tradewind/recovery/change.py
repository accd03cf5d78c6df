"""The steps of a failover: from the side that takes the messages (giver) to its mirror (taker).

Owns their order and actions. Every step first inspects the servers and does what is missing, so it
can be repeated after an interruption at any point. `failback` adds the steps before and after.

    FOLLOW           publishers and consumers work as before
    FREEZE           the giver's subjects are parked and its consumers paused: publishers are
                     refused (no responders) and retry; nothing is ever stored on both servers
    TRANSFER, VERIFY the mirror receives the rest, and both are compared
    DETACH           instead of all these if the origin is lost: the mirror is one no more, and
                     takes no messages yet, so that its last sequence is known exactly
    CONSUMERS        they are placed at the taker, paused
    PROMOTE          the taker takes over the subjects; publishers and consumers continue there
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.times import parse_time
from tradewind.recovery.change_over_marks import (
    MARK,
    RecoveryMark,
    Role,
    marked,
    parked_subject,
    read_mark,
)
from tradewind.recovery.contents import compare, wait_readable
from tradewind.recovery.protection_status import mirror_problem
from tradewind.recovery.records import Records
from tradewind.recovery.recovery_errors import AWAY, RecoveryError, patiently, wait_until
from tradewind.recovery.recovery_journal import (
    RecoveryJournal,
    RecoveryKind,
    RecoveryStep,
    save_journal,
)
from tradewind.recovery.sides import StreamSide, known_consumer, paused_config

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamConfig, StreamInfo
    from tradewind.sync import Connection

# A mirror whose lag is at most this is worth a pause.
NEAR_MESSAGES: Final = 1000
WAIT_SECONDS: Final = 600.0
ACK_SECONDS: Final = 30.0

Say = Callable[[str], None]


class ChangeOver:
    """Changes one stream over, or back. `say` is called with each step."""

    def __init__(
        self,
        journal: RecoveryJournal,
        path: Path,
        origin: Connection | None,
        standby: Connection,
        *,
        say: Say,
        wait_seconds: float = WAIT_SECONDS,
        ack_seconds: float = ACK_SECONDS,
    ) -> None:
        self.journal = journal
        self.path = path
        self.say = say
        self.standby = StreamSide(standby, journal.stream)
        self._origin = None if origin is None else StreamSide(origin, journal.stream)
        self.wait_seconds = wait_seconds
        self._ack_seconds = ack_seconds
        self._problem = ""  # what the mirror says of its origin

    @property
    def origin(self) -> StreamSide:
        """The side that is the origin in normal operation."""
        if self._origin is None:
            raise RecoveryError(
                f"stream {self.journal.stream}: this needs the origin: --origin CONTEXT or URL"
            )
        return self._origin

    @property
    def giver(self) -> StreamSide:
        """The side that takes the messages before the change."""
        return self.standby if self.journal.kind is RecoveryKind.FAILBACK else self.origin

    @property
    def taker(self) -> StreamSide:
        """The side that takes the messages after the change."""
        return self.origin if self.journal.kind is RecoveryKind.FAILBACK else self.standby

    def actions(self) -> dict[RecoveryStep, Callable[[], None]]:
        """The action of each step."""
        return {
            RecoveryStep.FOLLOW: self._follow,
            RecoveryStep.FREEZE: self._freeze,
            RecoveryStep.TRANSFER: self._transfer,
            RecoveryStep.VERIFY: self._verify,
            RecoveryStep.DETACH: self._detach,
            RecoveryStep.CONSUMERS: self._place_consumers,
            RecoveryStep.PROMOTE: self._promote,
        }

    def run(self) -> None:
        """Carry out the remaining steps."""
        journal, actions = self.journal, self.actions()
        while not journal.is_done:
            assert journal.step is not None
            self.say(f"{journal.stream}: {journal.step}")
            patiently(actions[journal.step], lambda text: self.say(f"{journal.stream}: {text}"))
            journal.next_step()
            self.save()

    def save(self) -> None:
        """Write the journal to disk."""
        save_journal(self.path, self.journal)

    def roll_back(self) -> None:
        """Let the giver take messages again, as before its freeze; refused once the taker does."""
        journal = self.journal
        if journal.kind is RecoveryKind.LOST:
            self._roll_back_detached()
            return
        if journal.has_begun(RecoveryStep.FREEZE):
            try:
                self._forget_taker()
            except AWAY:
                # Before its promotion the taker has nothing that counts.
                if journal.has_begun(RecoveryStep.PROMOTE):
                    raise
                self.say(f"{journal.stream}: the other side does not respond and is left unchanged")
        give_back(self.giver, journal)
        self.say(f"{journal.stream} accepts messages as before")

    def _forget_taker(self) -> None:
        """Remove the taker's consumers of this change; refused if the taker takes messages
        already.
        """
        journal, taker = self.journal, self.taker
        info = taker.find()
        is_promoted = info is not None and info.config.mirror is None
        if is_promoted or journal.has_begun(RecoveryStep.REMIRROR):
            raise RecoveryError(
                f"stream {journal.stream}: the change is made, so it cannot be rolled back",
                f"resume it: tradewind dr resume {self.path}",
                "or switch back: tradewind dr failback, or a new failover after a failback",
            )
        for each in taker.consumer_infos() if info is not None else ():
            if each.config.metadata.get(MARK) == journal.id:
                taker.consumers.delete(journal.stream, each.name)

    def _roll_back_detached(self) -> None:
        info = self.standby.info()
        if info.config.mirror is None:
            raise RecoveryError(
                f"stream {self.journal.stream}: the standby has left its origin and cannot become "
                "its mirror again without a failback",
                f"resume it: tradewind dr resume {self.path}",
            )
        self.say(f"{self.journal.stream} is a mirror as before")

    # ------------------------------------------------------------------ steps

    def _follow(self) -> None:
        self._write_down()
        self._wait_for_mirror(NEAR_MESSAGES, "the mirror did not catch up")
        # Most is compared while everybody works, so that the pause does not grow with the stream.
        last = self.taker.info().state.last_seq
        self._compare(self.journal.verified_seq + 1, last)
        self.journal.verified_seq = last

    def _write_down(self) -> None:
        """Record the change at the standby, which can then continue even if this machine and its
        journal are lost too.
        """
        if self.journal.kind is not RecoveryKind.FAILOVER:
            return
        info = self.giver.info()
        if read_mark(info.config) is None:
            records = Records(self.standby.connection)
            records.record(self.giver, info, self.journal.origin, time.time_ns())

    def _freeze(self) -> None:
        journal, giver = self.journal, self.giver
        if not journal.pause_began_ns:
            info = giver.info()
            journal.config = msgspec.to_builtins(info.config)
            journal.subjects = list(info.config.subjects)
            journal.paused = [each.name for each in giver.consumer_infos() if each.paused]
            journal.pause_began_ns = time.time_ns()
            self.save()
        mark = RecoveryMark(
            id=journal.id,
            role=Role.PARKED,
            at_ns=journal.pause_began_ns,
            mirror=journal.mirror,
        )
        giver.set_subjects([self.parked], marked(journal.config.get("metadata", {}), mark))
        giver.pause(journal.paused)
        giver.wait_for_acks(self._ack_seconds)
        journal.consumers = [known_consumer(info) for info in giver.durables()]
        journal.frozen_seq = giver.info().state.last_seq

    def _transfer(self) -> None:
        giver = self.giver
        # Messages published right before the freeze may still be on their way to the disk.
        wait_readable(giver.connection, giver.stream, self.journal.frozen_seq)
        self._wait_for_mirror(0, "the mirror did not receive the last messages")
        state = self.taker.info().state
        self.journal.last_seq, self.journal.last_time = state.last_seq, state.last_ts

    def _verify(self) -> None:
        self._compare(self.journal.verified_seq + 1, self.journal.last_seq)

    def _compare(self, first_seq: int, last_seq: int) -> None:
        stream, giver, taker = self.journal.stream, self.giver, self.taker
        found = compare(giver.connection, taker.connection, stream, last_seq, first_seq=first_seq)
        if not found.is_covered:
            raise RecoveryError(
                f"stream {stream}: the mirror does not have the right messages: "
                + "; ".join(found.describe()),
                f"roll it back: tradewind dr rollback {self.path}",
                "then recreate the mirror",
            )
        self.say(f"{stream}: {found.messages} messages from sequence {first_seq} on agree")
        if found.only_standby:
            self.say(
                f"{stream}: {found.only_standby} messages that were removed at the one side are "
                "still at the other: a mirror does not follow deletions"
            )

    def _detach(self) -> None:
        journal, standby = self.journal, self.standby
        info = standby.info()
        mark = read_mark(info.config)
        if mark is None or mark.id != journal.id:
            if problem := lost_problem(info.config, mark):
                raise RecoveryError(f"stream {journal.stream}: {problem}")
            self._recall(info)
            mirror = mark.mirror if mark is not None else msgspec.to_builtins(info.config.mirror)
            mark = RecoveryMark(
                id=journal.id,
                role=Role.DETACHED,
                is_lost=True,
                at_ns=time.time_ns(),
                origin=journal.origin,
                mirror=mirror,
            )
            journal.pause_began_ns = mark.at_ns
            self.save()
            metadata = marked(info.config.metadata, mark)
            standby.set_subjects([self.parked], metadata, journal.config)
        state = standby.info().state
        wait_readable(standby.connection, standby.stream, state.last_seq)
        journal.last_seq, journal.last_time = state.last_seq, state.last_ts

    def _recall(self, info: StreamInfo) -> None:
        """Take configuration and consumers of the lost origin from the records. A standby that has
        just given its messages back still has its consumers, paused, and keeps them.
        """
        journal = self.journal
        records = Records(self.standby.connection)
        record = records.stream(journal.stream)
        if record is not None:
            journal.config = record.config
            journal.origin = journal.origin or record.origin
            journal.subjects = journal.subjects or list(record.config.get("subjects", []))
            journal.seen_seq, journal.seen_ns = record.last_seq, record.seen_ns
        if not journal.subjects:
            raise RecoveryError(
                f"stream {journal.stream}: its subjects were never recorded",
                "name them: --subjects 'orders.>'",
            )
        known = list(records.consumers(journal.stream).values())
        journal.consumers = known
        if info.config.mirror is None:
            journal.keeps_consumers = True
            journal.consumers = [known_consumer(each) for each in self.standby.durables()]
        now_ns = time.time_ns()
        journal.paused = [each.name for each in known if _is_paused(each.config, now_ns)]

    def _place_consumers(self) -> None:
        """Create the consumers at the taker. They stay paused until it takes messages: before that
        it may be rolled back.
        """
        journal = self.journal
        if journal.keeps_consumers:
            return
        wanted = {each.name: each for each in journal.consumers}
        if journal.kind is not RecoveryKind.LOST:
            for now in map(known_consumer, self.giver.durables()):
                # Messages acknowledged during the pause need not be redelivered.
                known = wanted.setdefault(now.name, now)
                known.floor = max(known.floor, now.floor)
            journal.consumers = list(wanted.values())
            self.save()
        for known in wanted.values():
            config = paused_config(known.config, is_paused=known.name in journal.paused)
            placed = msgspec.structs.replace(known, config=config)
            self.taker.place(placed, journal.last_seq, {MARK: journal.id})

    def _promote(self) -> None:
        journal, taker = self.journal, self.taker
        info = taker.info()
        taker.set_subjects(journal.subjects, self._new_metadata(info), journal.config)
        taker.resume(journal.paused, {each.name for each in journal.consumers})
        if not journal.pause_ns:
            journal.pause_ns = time.time_ns() - journal.pause_began_ns

    # ------------------------------------------------------------------ details

    @property
    def parked(self) -> str:
        """The only subject of a side that must not take messages."""
        return parked_subject(self.journal.stream, self.journal.id)

    def _new_metadata(self, info: StreamInfo) -> dict[str, str]:
        """The metadata of the promoted side: a standby gets a mark, an origin loses its mark."""
        journal = self.journal
        if journal.kind is RecoveryKind.FAILBACK:
            return marked(info.config.metadata, None)
        before = read_mark(info.config)
        if before is not None and before.role is Role.PROMOTED and before.id == journal.id:
            return dict(info.config.metadata)
        mirror = before.mirror if before is not None else msgspec.to_builtins(info.config.mirror)
        mark = RecoveryMark(
            id=journal.id,
            role=Role.PROMOTED,
            is_lost=journal.kind is RecoveryKind.LOST,
            last_seq=journal.last_seq,
            at_ns=time.time_ns(),
            origin=journal.origin,
            mirror=mirror or {},
        )
        return marked(info.config.metadata, mark)

    def _wait_for_mirror(self, lag_max: int, text: str) -> None:
        if wait_until(lambda: self._is_near(lag_max), self.wait_seconds):
            return
        problem = f" ({self._problem})" if self._problem else ""
        raise RecoveryError(
            f"stream {self.journal.stream}: {text} within {self.wait_seconds:g} s{problem}",
            f"continue later:  tradewind dr resume {self.path}",
            f"or roll it back: tradewind dr rollback {self.path}",
        )

    def _is_near(self, lag_max: int) -> bool:
        info = self.taker.info()
        if info.config.mirror is None:
            raise RecoveryError(f"stream {self.journal.stream} is no longer a mirror")
        error = info.mirror.error if info.mirror is not None else None
        # The problem may pass, as while the servers connect; reported after the time limit.
        self._problem = "" if error is None else error.description
        last = self.giver.info().state.last_seq
        if info.state.last_seq > last:
            raise RecoveryError(
                f"stream {self.journal.stream}: the mirror has sequence {info.state.last_seq}, its "
                f"origin only {last}: it is not the stream that was mirrored"
            )
        if lag_max:
            return last - info.state.last_seq <= lag_max
        return self.giver.next_message(info.state.last_seq + 1) is None


def give_back(giver: StreamSide, journal: RecoveryJournal) -> None:
    """Undo a freeze: the stream takes messages again, and its consumers continue."""
    if journal.pause_began_ns:
        giver.set_subjects(journal.subjects, journal.config.get("metadata", {}))
        giver.resume(journal.paused)


def lost_problem(config: StreamConfig, mark: RecoveryMark | None) -> str:
    """The reason why a standby cannot continue without its origin; empty if it can: it is a mirror,
    or was about to be one again when the origin was lost.
    """
    if config.mirror is None and mark is not None and mark.role is Role.PARKED and mark.mirror:
        return ""
    return mirror_problem(config)


def _is_paused(config: dict[str, object], now_ns: int) -> bool:
    until = config.get("pause_until")
    return isinstance(until, str) and parse_time(until) > now_ns
