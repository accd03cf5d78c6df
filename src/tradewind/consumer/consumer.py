"""A consumer: its configuration, its timers, and everything that does not happen per message.

Owns its deadlines (`next_deadline_ns`, `tick`), pause, heartbeats and the state to save. `Delivery`
sends the messages; `PullIntake` takes the requests for them, and `OtherAcks` what clients say of
them. A consumer knows its stream only by name and store. It never removes a message, and never
publishes outside of `fill` and `tick`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from tradewind.api.consumer_types import (
    AckPolicy,
    ConsumerConfig,
    PriorityPolicy,
    ReplayPolicy,
)
from tradewind.api.legacy_marks import LEGACY_SETS, legacy_of
from tradewind.api.names import ORDER_PREFIX, has_setting
from tradewind.api.times import ZERO_TIME, parse_time
from tradewind.broker.accounts import Account
from tradewind.broker.router import Router
from tradewind.clock import CLOCK_SLACK_NS
from tradewind.consumer.ack_codec import AckSource
from tradewind.consumer.cursor import Cursor
from tradewind.consumer.deliver_policies import (
    PreparedStart,
    ResetError,
    Start,
    check_reset,
    choose_start,
    filters_of,
    reconcile,
    without_times_ahead,
)
from tradewind.consumer.delivery import Delivery
from tradewind.consumer.done_listener import DoneListener
from tradewind.consumer.given_up import ConsumerDeadLetters, GivenUp
from tradewind.consumer.inactivity import Inactivity
from tradewind.consumer.other_acks import OtherAcks
from tradewind.consumer.pending import AckState
from tradewind.consumer.pinned_client import PinnedClient
from tradewind.consumer.pull_intake import PullIntake
from tradewind.consumer.pulls import Pulls
from tradewind.consumer.queued_advisories import QueuedAdvisories
from tradewind.consumer.removals import RemovalFanOut
from tradewind.consumer.taker import Taker
from tradewind.durations import DURATION_NS_MAX, later
from tradewind.store.format.consumer_file import ConsumerState
from tradewind.store.table.message_store import MessageStore

# Values that a configuration may have, but that are never reached.
COUNT_MAX: Final = 2**32 - 1
# The official server counts the size of a message against the largest payload.
BURST_BYTES_DEFAULT: Final = 1024 * 1024

FLOW_ID_LENGTH: Final = 4

DELETED: Final = b"409 Consumer Deleted"
SHUTDOWN: Final = b"409 Server Shutdown"
REASON_DELETED: Final = "Unacknowledged message was deleted"


class ConsumerContext(msgspec.Struct, frozen=True):
    """The surroundings of a consumer.

    `advise(kind, fields)` publishes an advisory or metric, if it has a subscriber. `save(consumer)`
    is called when the state is to be written, `inactive(consumer)` when the inactivity threshold
    has passed. `on_done` is None for a stream that keeps messages by limits only.
    `keep_acks(consumer)` has the answers sent when the acknowledgements so far are stored;
    without it they are answered at once. `chance` gives numbers from 0 to below 1, for randomised
    delays. `long_subjects`: subjects of acknowledgements and flow control name domain and account,
    too.
    """

    router: Router
    account: Account
    stream_name: str
    store: MessageStore
    removals: RemovalFanOut
    advise: Callable[[str, dict[str, object]], None]
    save: Callable[[ServerConsumer], None]
    inactive: Callable[[ServerConsumer], None]
    new_id: Callable[[], str]
    on_done: DoneListener | None = None
    account_hash: str = ""
    domain: str = ""
    long_subjects: bool = False
    message_bytes_max: int = BURST_BYTES_DEFAULT
    keep_acks: Callable[[ServerConsumer], None] | None = None
    # Takes what it gives up, if its configuration says so.
    give_up: Callable[[ServerConsumer, GivenUp], None] | None = None
    chance: Callable[[], float] = lambda: 0.0


class ServerConsumer(Taker):
    """One consumer of one stream. `config` is complete and valid. It is a `DeliveryOwner`."""

    # Its parts.
    delivery: Delivery
    advisories: QueuedAdvisories
    pinned: PinnedClient
    intake: PullIntake
    dead_letters: ConsumerDeadLetters
    other_acks: OtherAcks
    inactivity: Inactivity
    source: AckSource

    def __init__(
        self,
        context: ConsumerContext,
        name: str,
        config: ConsumerConfig,
        created_ns: int,
        state: ConsumerState | None = None,
        prepared: PreparedStart | None = None,
    ) -> None:
        self.context = context
        self.name = name
        self.config = config
        self.created_ns = created_ns
        self.stream_name = context.stream_name
        store = context.store
        start = choose_start(store, config, prepared) if state is None else Start(1)
        acks = AckState(
            config.ack_policy.value, *_ack_settings(config), start_seq=max(start.first_seq, 1)
        )
        chosen = filters_of(config) if prepared is None else prepared.chosen
        cursor = Cursor(store, chosen, start.next_seq, start.skip)
        pulls = None if config.deliver_subject else _new_pulls(config)
        self.delivery = Delivery(
            self,
            context.router,
            context.account,
            cursor,
            acks,
            pulls,
            self._ack_prefix(),
            config.deliver_subject.encode(),
            config.deliver_group.encode(),
        )
        super().__init__(self.delivery)
        self.turn, self.cursor, self.acks, self.pulls = context.router.turn, cursor, acks, pulls
        self.advisories = QueuedAdvisories(self, self.turn, context.advise)
        self.delivery.advisories = self.advisories.waiting
        account_name = context.account.name
        self.pinned = PinnedClient(
            self.delivery, self.advisories, config, account_name, context.new_id
        )
        label = f"{account_name} > {context.stream_name} > {name}"
        self.intake = PullIntake(self.delivery, self.pinned, config, context.router.faults, label)
        give_up = partial(context.give_up, self) if context.give_up is not None else None
        self.dead_letters = ConsumerDeadLetters(self.delivery, give_up)
        self.other_acks = OtherAcks(
            self.delivery, self.advisories, self.dead_letters, context.chance
        )
        self.source = AckSource(acks, self.turn)
        self.inactivity = Inactivity(self.delivery, partial(context.inactive, self))
        # The delivery calls these parts of its owner per message; methods in between would add
        # about 25 ns each (`benchmarks.micro`, frame-broker).
        self.new_pin = self.pinned.new_pin
        self.other_ack, self.sampled = self.other_acks.other_ack, self.other_acks.sampled
        self.flow_acknowledged = self.other_acks.flow_acknowledged
        if context.keep_acks is not None:
            self.keep_acks = partial(context.keep_acks, self)
        self.delivery.is_legacy = bool(legacy_of(config.metadata))
        self.delivery.on_done = context.on_done
        self.delivery.replies.keeps_acks = context.keep_acks is not None
        self._set_order(config)
        if state is not None:
            self._restore(state)
        self._apply(config)
        self.delivery.set_heartbeat(config.idle_heartbeat)
        if config.flow_control:
            self.delivery.set_flow_control(config.ack_policy == AckPolicy.FLOW_CONTROL)
        if config.replay_policy == ReplayPolicy.ORIGINAL:
            self.delivery.set_replay(store.last_seq)
        self._attach()

    def _set_order(self, config: ConsumerConfig) -> None:
        """Keep order per key, if the configuration says so."""
        if not has_setting(config.metadata, ORDER_PREFIX):
            return
        # Loaded when it is needed: other servers start sooner without it.
        from tradewind.api.order_rules import order_of, require_order

        order = order_of(config.metadata)
        if order is not None:
            require_order(config)
            self.delivery.set_order(
                order.kind, order.token, order.header.encode(), order.in_flight, order.window
            )

    def _restore(self, state: ConsumerState) -> None:
        """Continue from the saved state, as far as the stream still has its messages."""
        store = self.context.store
        state = reconcile(state, store.last_seq)
        if store.last_timestamp > later(self.turn.now_ns, CLOCK_SLACK_NS):
            # The clock was ahead when this was saved: all waits begin now.
            state = without_times_ahead(state, self.turn.now_ns)
        self.acks.restore(state, self._offset_ns)
        self.cursor.seek(state.delivered.stream_seq + 1)
        for seq in (*state.pending, *state.redelivered):
            if seq < store.first_seq:
                self.acks.forget(seq)

    def _place(self) -> str:
        return f"{self.context.domain or '_'}.{self.context.account_hash or '*'}"

    def _names(self) -> str:
        """The middle part of the subjects that the consumer hands out."""
        names = f"{self.context.stream_name}.{self.name}"
        is_long = self.context.long_subjects and not legacy_of(self.config.metadata)
        return f"{self._place()}.{names}" if is_long else names

    def _ack_prefix(self) -> bytes:
        word = "A" if legacy_of(self.config.metadata) == LEGACY_SETS else "ACK"
        return f"$JS.{word}.{self._names()}.".encode()

    def _attach(self) -> None:
        names = f"{self.context.stream_name}.{self.name}"
        acks = []
        if self.config.ack_policy not in (AckPolicy.NONE, AckPolicy.FLOW_CONTROL):
            acks = [f"$JS.ACK.{names}.>", f"$JS.ACK.{self._place()}.{names}.>"]
            if legacy_of(self.config.metadata) == LEGACY_SETS:
                acks.append(f"$JS.A.{names}.>")
        self.delivery.attach(
            self.context.removals,
            [subject.encode() for subject in acks],
            f"$JS.API.CONSUMER.MSG.NEXT.{names}".encode(),
            f"$JS.FC.{self._names()}.*".encode() if self.config.flow_control else b"",
        )

    def _apply(self, config: ConsumerConfig) -> None:
        """Apply a configuration: the settings that an update may change."""
        delivery = self.delivery
        self.other_acks.configure(config)
        self.config = self.pinned.config = config
        self.intake.configure(config)
        acknowledges = config.ack_policy != AckPolicy.NONE
        delivery.max_ack_pending = (
            min(max(config.max_ack_pending, 0), COUNT_MAX) if acknowledges else 0
        )
        delivery.headers_only = config.headers_only
        delivery.set_rate(config.rate_limit_bps // 8, self.context.message_bytes_max)
        if self.pulls is not None:
            self.pulls.set_priorities(
                config.priority_policy == PriorityPolicy.OVERFLOW,
                config.priority_policy == PriorityPolicy.PINNED_CLIENT,
            )
        self.dead_letters.configure(config)
        self.inactivity.configure(config)
        self._pause_until_ns = parse_time(config.pause_until) if config.pause_until else 0
        delivery.paused = self._pause_until_ns > self.turn.now_ns
        pause_due_ns = self._pause_until_ns - self._offset_ns if delivery.paused else 0
        delivery.pause_due_ns = min(pause_due_ns, DURATION_NS_MAX)

    @property
    def _offset_ns(self) -> int:
        """The offset that makes monotonic time wall time."""
        return self.turn.now_ns - self.turn.monotonic_ns

    # ------------------------------------------------------------------ a turn

    def fill(self, visible_seq: int) -> bool:
        """Send the available messages; true if another turn is wanted at once.

        StoreError if the store cannot be read: the consumer tries again later, by
        `next_deadline_ns`.
        """
        return self.delivery.fill(visible_seq)

    def take_requests(self) -> None:
        """Take the requests that the delivery has left: others than plain ones."""
        self.intake.take_all()

    def sweep_requests(self) -> None:
        """End the waiting requests that are finished, or whose receivers are gone."""
        if self.pulls is not None:
            self.pulls.sweep_all()

    def delivered(self) -> None:
        """Handle what is rare in a turn: messages not sent again, and advisories."""
        for seq, deliveries in self.acks.take_exceeded():
            self.advisories.add("max_deliver", stream_seq=seq, deliveries=deliveries)
            self.delivery.touch(delivered=True)
            self.dead_letters.exceeded(seq, deliveries)
        if self.advisories.waiting:
            self.advisories.publish()

    def wait_for_disk(self) -> None:
        """Try again later, because the next message could not be read."""
        self.delivery.wait_for_disk()

    def tick(self) -> None:
        """Do the work that is due at the time of the turn; `fill` is to be called afterwards."""
        delivery = self.delivery
        now_ns = self.turn.monotonic_ns
        if delivery.closed:
            return
        due_ns = self.acks.next_due_ns()
        if due_ns and due_ns <= now_ns and self.acks.expire(now_ns):
            delivery.touch(delivered=False)
        if 0 < delivery.pause_due_ns <= now_ns:
            delivery.pause_due_ns = 0
            delivery.paused = False
            self.advise_pause()
        if delivery.heartbeat_ns and delivery.heartbeat_due_ns <= now_ns:
            delivery.heartbeat_due_ns = later(now_ns, delivery.heartbeat_ns)
            self._heartbeat()
        if 0 < self.pinned.due_ns <= now_ns:
            self.pinned.unpin("timeout")
        if 0 < delivery.save_due_ns <= now_ns:
            self.save_now()
        if 0 < self.inactivity.deadline_ns() <= now_ns:
            self.inactivity.check(now_ns)
        self.turn.wake(self)

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do, in monotonic time; 0: never."""
        return self.delivery.next_deadline_ns()

    def save_now(self) -> None:
        """Have the state written if it has changed."""
        if self.delivery.save_due_ns:
            self.delivery.save_due_ns = 0
            self.context.save(self)

    def _heartbeat(self) -> None:
        if not self.delivery.is_bound:
            return
        self.delivery.beat()
        acks_by_flow = self.config.ack_policy == AckPolicy.FLOW_CONTROL
        if acks_by_flow and self.acks.count and not self.delivery.flow_subject:
            self.delivery.ask_flow()

    def clock_moved(self) -> None:
        """Update the end of a pause; called when the clock of the machine has jumped."""
        if self.delivery.paused:
            left_ns = self._pause_until_ns - self.turn.steady_ns()
            pause_due_ns = max(self.turn.monotonic_ns + left_ns, 1)
            self.delivery.pause_due_ns = min(pause_due_ns, DURATION_NS_MAX)

    @property
    def pause_left_ns(self) -> int:
        """How long the consumer is still paused; 0: it is not."""
        return max(self._pause_until_ns - self.turn.now_ns, 0) if self.delivery.paused else 0

    def advise_pause(self) -> None:
        """Publish whether and until when the consumer is paused."""
        until = self.config.pause_until or ZERO_TIME
        self.advisories.add("consumer_pause", paused=self.delivery.paused, pause_until=until)

    # ------------------------------------------------------------------ removals

    def take_removals(self) -> None:
        """Drop pending messages that have left the stream."""
        gone, purged = self.delivery.take_gone()
        for seq in gone:
            forgotten = self.acks.forget(seq)
            if forgotten is not None and not purged:
                consumer_seq, deliveries = forgotten
                self.delivery.note_activity()
                self.advisories.add(
                    "terminated",
                    consumer_seq=consumer_seq,
                    stream_seq=seq,
                    deliveries=deliveries,
                    reason=REASON_DELETED,
                )
        if purged:
            self.cursor.raise_to(self.context.store.first_seq)
            self.acks.purge(self.context.store.first_seq, self.cursor.next_seq)
        self.delivery.touch(delivered=False)

    def purged(self, first_seq: int) -> None:
        """Silently drop pending messages that were purged: those below `first_seq`, and perhaps
        others.
        """
        pending = self.acks.count
        gone, _ = self.delivery.take_gone()
        for seq in gone:
            self.acks.forget(seq)
        self.cursor.raise_to(first_seq)
        self.acks.purge(first_seq, self.cursor.next_seq)
        if self.acks.count < pending:
            self.delivery.note_activity()
        self.delivery.touch(delivered=False)

    # ------------------------------------------------------------------ single messages

    def misses(self, seq: int, subject: bytes) -> bool:
        """Whether a message is not delivered, or not acknowledged yet."""
        return self.cursor.accepts(subject) and (
            self.acks.is_awaited(seq) or self.acks.is_unsent(seq) or self.cursor.is_left(seq)
        )

    def revive(self, seq: int) -> None:
        """Deliver an acknowledged message again; it counts as delivered once."""
        if self.acks.revive(seq, self.turn.monotonic_ns):
            self.delivery.touch(delivered=True)
            self.turn.wake(self)

    def flow_id(self) -> bytes:
        """The last token of a flow control subject, so that an answer from before a restart does
        not match.
        """
        return self.context.new_id()[:FLOW_ID_LENGTH].encode()

    # ------------------------------------------------------------------ life

    def look_at_binding(self) -> None:
        """Called when the deliver subject may have gained its first subscriber, or lost the
        last.
        """
        if self.delivery.check_binding():
            if not self.delivery.is_bound:
                self.delivery.active_ns = self.turn.monotonic_ns
            self.turn.wake(self)

    def update(self, config: ConsumerConfig, prepared: PreparedStart | None = None) -> None:
        """Apply a new configuration, which is allowed and complete."""
        delivery = self.delivery
        old = self.config
        if config.deliver_subject != old.deliver_subject:
            self.acks.expire_all()
        self._apply(config)
        self._set_order(config)
        self.acks.configure(*_ack_settings(config))
        delivery.set_deliver_subject(config.deliver_subject.encode(), config.deliver_group.encode())
        if set(filters_of(config)) != set(filters_of(old)):
            self.cursor.set_filter(filters_of(config) if prepared is None else prepared.chosen)
        if config.pause_until != old.pause_until:
            self.advise_pause()
        self.turn.wake(self)

    def reset(self, seq: int = 0) -> int:
        """Start over at a sequence, or after the ack floor; ResetError if that is not allowed."""
        if seq:
            check_reset(self.context.store, self.config, seq)
        seq = max(seq or self.acks.floor_stream + 1, 1)
        self.acks.reset(seq)
        self.cursor.seek(seq)
        self.delivery.forget_activity()
        self.delivery.touch(delivered=False)
        self.turn.wake(self)
        return seq

    def close(self, status: bytes = b"") -> None:
        """End because the consumer is deleted (DELETED) or the server stops, and notify the waiting
        clients.
        """
        delivery = self.delivery
        if not delivery.closed:
            self.save_now()
            if status:
                self.intake.end_all(status, counts=status == SHUTDOWN)
            delivery.detach(self.context.removals)

    # ------------------------------------------------------------------ the state, to be written

    def state(self) -> ConsumerState:
        """The state to be written to o.dat."""
        return self.acks.export(self._offset_ns)


def _ack_settings(config: ConsumerConfig) -> tuple[int, list[int], int]:
    """(ack wait, backoff, deliveries) for the ack state."""
    waits = config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL)
    return (
        config.ack_wait if waits else 0,
        list(config.backoff) if waits else [],
        max(config.max_deliver, 0),
    )


def _new_pulls(config: ConsumerConfig) -> Pulls:
    prioritized = config.priority_policy == PriorityPolicy.PRIORITIZED
    return Pulls(min(max(config.max_waiting, 1), COUNT_MAX), prioritized)


__all__ = ["DELETED", "SHUTDOWN", "ConsumerContext", "ResetError", "ServerConsumer"]
