"""A stream with its consumers, as the engine manages it.

Owns the consumers of one stream, passing their states to the syncer, and the stream's share of the
bytes of its account. Streams and consumers never know each other; their interactions pass through
here: a message that becomes visible wakes the consumers, and an acknowledgement removes a message
if the retention of the stream requires it (`retention`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from tradewind.api import errors
from tradewind.api.consumer_configs import ConsumerConfigs
from tradewind.api.errors import ApiError
from tradewind.api.stream_types import RetentionPolicy, StreamConfig
from tradewind.consumer.consumer import DELETED, SHUTDOWN, ServerConsumer
from tradewind.consumer.deliver_policies import filters_of
from tradewind.consumer.removals import RemovalFanOut
from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR
from tradewind.jetstream.companion_kinds import COMPANION_KINDS
from tradewind.jetstream.companions import Companions
from tradewind.jetstream.demand import Demand
from tradewind.jetstream.jetstream_account import stream_usage
from tradewind.jetstream.lanes import Steps, let_others_go_first
from tradewind.jetstream.retention import Retention
from tradewind.jetstream.state_waiters import StateWaiters
from tradewind.jetstream.usage import Usage, UsageShare
from tradewind.store.commits.commit import SyncTarget
from tradewind.store.folder.consumer_states import ConsumerFiles
from tradewind.stream.reply_bodies import or_stored
from tradewind.stream.stream import Stream
from tradewind.stream.stream_queries import to_text
from tradewind.subjects import is_subset, is_subset_of_any

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerConfig
    from tradewind.jetstream.companions import StreamFollower
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.store.commits.syncer import SyncEntry
    from tradewind.store.format.meta import StreamMeta
    from tradewind.store.repair.damage import RecoveryReport


NOTHING_KEPT: Final[Mapping[Any, int]] = {}


class HostedStream:
    """A stream that the engine manages, from `attach` to `detach`.

    `kept_bytes` has the number of bytes stored beside its messages, by owner; they count like those
    of messages.
    """

    def __init__(
        self,
        engine: JetStreamEngine,
        tenant: JetStreamAccount,
        stream: Stream,
        kept: Mapping[Any, int] = NOTHING_KEPT,
    ) -> None:
        self.engine = engine
        self.tenant = tenant
        self.stream = stream
        self.commits = stream.commits
        self.commits.audience = self
        self.share = UsageShare(stream.ingest, tenant.usage, engine.usage, self.room_share)
        self.consumers: dict[str, ServerConsumer] = {}
        # The configurations of its consumers, and of those that are being created.
        self.consumer_configs = ConsumerConfigs()
        self.consumer_problems: dict[str, str] = {}
        self.files: ConsumerFiles | None = None
        self.files_entry: SyncEntry | None = None
        self.state_waiters = StateWaiters(self, stream.commits)
        if stream.folder is not None:
            self.files = ConsumerFiles(
                stream.folder.states,
                engine.broker.clock.wall_ns,
                self.state_waiters.progressed,
                stream.files.flush_unless_failed if stream.files is not None else _write_nothing,
                self._sync_states,
            )
        self.demand = Demand(stream.store, engine.broker.chance.getrandbits(64))
        self.commits.takers = self.demand.takers
        self.removals = RemovalFanOut()
        stream.store.listener = self.removals
        self.retention: Retention | None = None
        if self.config.retention is not RetentionPolicy.LIMITS:
            self.retention = self._new_retention(self.config)
        stream.interest = self
        self.companions = Companions(self, COMPANION_KINDS)
        # Companions of other streams that take from this one.
        self.followers: dict[StreamFollower, None] = {}
        self.kept_bytes: dict[Hashable, int] = dict(kept)
        self.share.kept_bytes = sum(kept.values())
        self._reported_disk_error = ""  # the disk error logged last
        # Encoded parts of answers, see `prompt_answers`; None: to be encoded again.
        self.info_head: tuple[StreamConfig, bytes] | None = None
        self.consumer_heads: dict[str, tuple[ConsumerConfig, bytes]] = {}
        self.names_page: bytes | None = None
        self.held_read_bytes = 0  # in answers to requests that wait until it is durable

    def _new_retention(self, config: StreamConfig) -> Retention:
        stream = self.stream
        any_ack = config.retention is RetentionPolicy.WORK_QUEUE
        return Retention(stream.ingest, stream.store, stream.turn, self.demand, any_ack)

    @property
    def config(self) -> StreamConfig:
        """The stream's configuration."""
        return self.stream.config

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.stream.name

    @property
    def place(self) -> str:
        """The stream's account and name, as the log shows them."""
        return self.stream.place

    @property
    def consumer_count(self) -> int:
        """The number of consumers, all of which are notified of each removal."""
        return len(self.consumers)

    @property
    def shown_count(self) -> int:
        """The number of consumers that clients can see."""
        return len(self.consumers) - self.consumer_configs.hidden_count

    def shown_names(self) -> list[str]:
        """The names of the consumers that clients can see, sorted."""
        consumers = self.consumers
        return sorted(name for name, consumer in consumers.items() if not consumer.config.direct)

    # ---------------------------------------------------------------- life

    def attach(self) -> None:
        """Begin to take part in turns and commits."""
        self.tenant.streams[self.name] = self
        self.tenant.names_page = None
        self.tenant.stream_configured(self.name, self.config)
        self.engine.hosts[self.stream.ingest] = self
        files = self.stream.files
        if files is not None:
            files.damage.on_report = self._damaged
            # Settling it takes commits, which begin at the end of a turn.
            files.damage.on_work = lambda: self.engine.turn.mark_dirty(self.stream.ingest)
            if self.stream.store.has_open_damage or (
                files.chain is not None and files.has_changes()
            ):
                files.damage.on_work()
        self.commits.attach(self.engine.syncer)
        if self.files is not None:
            self.files_entry = self.engine.syncer.attach(
                self.files, on_synced=_nothing, on_failure=self._states_failed
            )
        self.recount()
        self.stream.activate()
        self.engine.timers.set(self, self.next_deadline_ns)
        self.companions.set()
        for follower in list(self.tenant.followers.get(self.name, ())):
            if follower.upstream is None:
                follower.origin_came(self)

    def _damaged(self, report: RecoveryReport) -> None:
        """Log the damage that the store has found while it was read."""
        for line in report.lines():
            self.engine.log.error(f"JetStream account {self.tenant.name!r}, {line}")

    def detach(self) -> None:
        """Stop taking part in turns; commits in progress still end."""
        self.stream.deactivate()
        for follower in list(self.followers):
            follower.origin_left()
        self.engine.timers.forget(self)
        self.engine.hosts.pop(self.stream.ingest, None)
        self.tenant.streams.pop(self.name, None)
        self.tenant.names_page = None
        self.tenant.stream_configured(self.name, None)
        self.share.count(Usage())
        self.commits.tell(None)
        self.state_waiters.failed(StoreError(f"stream {self.name!r} is closed"))
        self.engine.broker.let_go(self, self.tenant, self.engine, self.engine.broker)

    def retire(self) -> None:
        """Release a deleted stream and its files; its consumers must have been removed before."""
        self.companions.close(for_good=True)
        self.detach()
        self.stream.refuse_waiting(errors.STREAM_NOT_FOUND())
        if self.files is not None:
            self.engine.syncer.detach(self.files)
        if self.stream.files is not None:
            # The files are closed when no sync uses them any more.
            self.commits.detach(self.stream.files.abandon)

    def removed(self, error: Exception | None) -> None:
        """Called when a worker has removed the files of a deleted stream, or has failed to."""
        if error is not None:
            self.engine.log.error(
                f"JetStream cannot remove '{self.tenant.name} > {self.name}' from disk: {error}"
            )

    def apply(self, meta: StreamMeta, config: StreamConfig) -> None:
        """Apply a configuration that was checked and is already on disk."""
        old = self.config
        self.stream.apply(meta, config)
        self.companions.configure(meta)
        self.tenant.stream_configured(self.name, config)
        if config.retention is not old.retention:
            limits = config.retention is RetentionPolicy.LIMITS
            self.retention = None if limits else self._new_retention(config)
            self._share_work()
            for consumer in self.consumers.values():
                consumer.delivery.on_done = self.retention
            for follower in self.followers:
                self._share_retention(follower)
            self.interest_changed()
        self.recount()
        self.companions.set()
        self.engine.timers.set(self, self.next_deadline_ns)

    def catch_up(self) -> Steps[None]:
        """Remove in steps what a change of configuration has left to remove."""
        yield from self.sweep()
        is_first = True  # usually the only one
        while self.is_attached and self.stream.upkeep.step(self.engine.turn.steady_ns()):
            if not is_first:
                yield let_others_go_first
            is_first = False

    def sweep(self) -> Steps[None]:
        """Remove in steps what is no longer needed. After a disk error this is tried again
        later.
        """
        with suppress(StoreError):
            while self.is_attached and self._sweep_some():
                yield let_others_go_first

    @property
    def is_attached(self) -> bool:
        """Whether the stream takes part in turns."""
        return self.engine.hosts.get(self.stream.ingest) is self

    def _sweep_some(self) -> bool:
        """Sweep some messages; false if there was nothing to do."""
        if self.retention is None or not self.retention.is_sweeping:
            return False
        self.retention.sweep_step(self.stream.upkeep.step_size)
        return True

    def begin_stop(self) -> None:
        """Take no more messages, and write all states to disk: the server is about to stop."""
        self.companions.close(for_good=False)
        self.stream.deactivate()
        for consumer in list(self.consumers.values()):
            self._close_consumer(consumer, SHUTDOWN)
        if self.files is not None:
            self.files.states.fold()
            self.engine.syncer.mark_dirty(self.files, self.engine.turn.monotonic_ns)

    def close(self) -> None:
        """Close the stream; its files are complete afterwards."""
        self.companions.close(for_good=False)
        for consumer in list(self.consumers.values()):
            self.remove_consumer(consumer)
        self.detach()
        # A file is never closed while a sync of it runs.
        if self.files is not None:
            self.engine.syncer.detach(self.files, self._close_states)
        self.commits.detach(self._close_stream)

    def _close_states(self) -> None:
        assert self.files is not None
        if self.files.is_fenced:
            return  # according to the disk, what their states record never happened
        try:
            self.files.states.close(self.engine.broker.now_ns())
        except StoreError as error:
            self._states_failed(self.files, error)

    def _close_stream(self) -> None:
        if (finish := self.stream.begin_close()) is not None:
            self.engine.stream_closed(finish)
            self.engine.stream_closed(self.companions.save)

    # ---------------------------------------------------------------- turns

    def wake_consumers(self) -> None:
        """Wake the consumers that may have something to send."""
        self.demand.wake(self.engine.turn, self.stream.visible_seq)

    def tell_companions(self) -> None:
        """Notify companions that more messages have become durable."""
        self.companions.kept()

    def refuse_waiting(self) -> None:
        """Refuse all waiting messages and requests, whose outcome is unknown after an internal
        error.
        """
        error = StoreError(INTERNAL_ERROR)
        self.stream.refuse_waiting(errors.STREAM_STORE_FAILED(err=or_stored(error)))
        self.commits.tell(error)

    def resumed(self) -> None:
        """Called when the disk has room again."""
        self.engine.log.notice(f"JetStream stream {self.place} takes messages again")
        if self.retention is not None:
            self.retention.remove_refused()
        self.companions.kept()
        self.set_timer()  # pending removals continue now

    def _sync_states(self) -> None:
        """Begin a commit of the consumer states changed so far."""
        assert self.files is not None
        self.engine.syncer.sync_soon(self.files, self.engine.broker.monotonic_ns())

    def fence(self) -> None:
        """Write nothing of the stream and its consumers until `lift_fence`: their changes must not
        be on disk before something else is. Streams that promise less than that are not held up.
        """
        if self.stream.waits_for_sync and self.stream.files is not None:
            self.stream.files.fence()
            self.engine.syncer.fence(self.stream.files)
            if self.files is not None:
                self.files.is_fenced = True
                self.engine.syncer.fence(self.files)

    def lift_fence(self) -> None:
        """Resume writing, beginning with the changes held back since `fence`."""
        files, now_ns = self.stream.files, self.engine.turn.monotonic_ns
        if not self.is_attached or files is None or not files.is_fenced:
            return
        with suppress(StoreError):  # then it refuses all changes with an error
            files.lift_fence()
        self.engine.syncer.lift_fence(files, now_ns)
        if self.files is not None:
            self.files.is_fenced = False
            self.engine.syncer.lift_fence(self.files, now_ns)

    def fail_fenced(self, error: StoreError) -> None:
        """Stop taking changes for good: what had to be on disk before them never will be."""
        files = self.stream.files
        if self.is_attached and files is not None:
            files.fail(error, resumable=False)
            self.engine.syncer.lift_fence(files, self.engine.turn.monotonic_ns)

    def report_disk_error(self, error: StoreError) -> None:
        """Log that the stream or a consumer cannot read or write; the same error is logged once."""
        if (text := str(error)) != self._reported_disk_error:
            self._reported_disk_error = text
            self.engine.log.error(f"JetStream stream '{self.tenant.name} > {self.name}': {text}")

    def _states_failed(self, _files: SyncTarget, error: StoreError) -> None:
        self.engine.log.error(
            f"JetStream cannot write consumers of '{self.tenant.name} > {self.name}': {error}"
        )
        self.state_waiters.failed(error)

    # ---------------------------------------------------------------- consumers

    def consumer(self, name: str) -> ServerConsumer:
        """The consumer of this name; ApiError if there is none, or if it could not be opened."""
        consumer = self.consumers.get(name)
        if consumer is not None:
            return consumer
        if name in self.consumer_problems:
            raise errors.CONSUMER_OFFLINE_REASON(err=self.consumer_problems[name])
        raise errors.CONSUMER_NOT_FOUND()

    def is_being_created(self, name: str) -> bool:
        """Whether a consumer of this name is still being written to disk."""
        return name in self.consumer_configs and name not in self.consumers

    def add_consumer(self, consumer: ServerConsumer) -> None:
        """Add a consumer, which takes part in turns from now on."""
        self.consumers[consumer.name] = consumer
        self.engine.consumer_hosts[consumer] = self
        self.tenant.consumer_count += 1
        self.consumer_changed(consumer)

    def consumer_changed(self, consumer: ServerConsumer) -> None:
        """Called when a consumer may have something to send, or has other deadlines."""
        self.consumer_configs[consumer.name] = consumer.config
        self.names_page = None
        self._share_work()
        self.companions.consumer_changed(consumer, is_there=True)
        self.demand.add(consumer)
        self.engine.turn.wake(consumer)
        self.engine.timers.set(consumer, consumer.next_deadline_ns)

    def remove_consumer(self, consumer: ServerConsumer, status: bytes = b"") -> None:
        """Remove a consumer from turns; `status` is sent to those who wait for it."""
        self._close_consumer(consumer, status)
        self.names_page = None
        self.consumer_heads.pop(consumer.name, None)
        if self.consumers.pop(consumer.name, None) is not None:
            self.tenant.consumer_count -= 1
        if status == DELETED:
            self.companions.consumer_changed(consumer, is_there=False)
        self.consumer_configs.pop(consumer.name, None)
        self._share_work()
        self.demand.remove(consumer)
        self.engine.consumer_hosts.pop(consumer, None)
        self.engine.timers.forget(consumer)
        if status == DELETED:
            self.interest_changed()
        engine = self.engine
        engine.broker.let_go(consumer, self, self.stream, self.tenant, engine, engine.broker)

    def _close_consumer(self, consumer: ServerConsumer, status: bytes) -> None:
        """Close a consumer; its failure must not affect the others."""
        try:
            consumer.close(status)
        except Exception as error:
            self.engine.consumer_failed(self, consumer, error)
            consumer.delivery.detach(self.removals)

    def interest_changed(self) -> None:
        """Remove, in steps, what a deleted or narrowed consumer no longer needs."""
        if self.config.retention is RetentionPolicy.INTEREST:
            self._begin_sweep()

    def _begin_sweep(self) -> None:
        if self.retention is not None:
            self.retention.begin_sweep(self.stream.store.last_seq)
            self.stream.ingest.deadline_changed()

    # ---------------------------------------------------------------- followers

    def add_follower(self, follower: StreamFollower) -> None:
        """Add a follower, which takes the messages of this stream from now on."""
        self.followers[follower] = None
        self.engine.consumer_hosts[follower] = self
        self.demand.add_taker(follower, follower.patterns)
        self._share_retention(follower)

    def _share_retention(self, follower: StreamFollower) -> None:
        """Have messages retained until the follower is done with them."""
        self._share_work()
        follower.retention_changed(self.retention)

    def _share_work(self) -> None:
        """Update whether messages are copied: followers need messages that consumers have taken."""
        if self.retention is not None:
            copiers = len(self.followers) + self.consumer_configs.server_count
            self.retention.is_copied = copiers > 0

    def remove_follower(self, follower: StreamFollower, *, for_good: bool) -> None:
        """Remove a follower; `for_good`: messages that only it needed are removed too, in steps."""
        self.followers.pop(follower, None)
        self.demand.remove(follower)
        self.engine.consumer_hosts.pop(follower, None)
        self._share_work()
        if for_good:
            self._begin_sweep()

    def recovered(self) -> None:
        """Remove what recovered consumers had acknowledged; called when all consumers are open
        again.

        Acknowledgements and removals reach the disk separately, so a crash can preserve an
        acknowledgement without its removal. No consumer would ever take such a message. A consumer
        that cannot be opened may need any of them.
        """
        # The pages read while the stream was opened are not needed any more.
        self.stream.store.forget_pages()
        if self.retention is None or not self.consumers or self.consumer_problems:
            return
        given = max(each.cursor.limit() for each in self.consumers.values())
        self.retention.begin_sweep(given - 1)
        removed = self.retention.sweep_step()
        if removed:
            self.engine.log.notice(
                f"  Removed {removed:,} acknowledged messages of stream '{self.tenant.name} >"
                f" {self.name}'"
            )

    def has_interest(self, subject: bytes) -> bool:
        """Whether some consumer wants messages of this subject; called by the stream."""
        return self.demand.has_takers(subject)

    def before_purge(self) -> None:
        """Have consumers process pending removals, which the following purge did not cause."""
        for consumer in self.consumers.values():
            consumer.take_removals()

    def after_purge(self, pattern: bytes, first_left: int) -> None:
        """Have consumers skip the purged messages silently."""
        store = self.stream.store
        purged = to_text(pattern)
        for consumer in self.consumers.values():
            filters = [to_text(own) for own in filters_of(consumer.config)]
            if not pattern or (filters and all(is_subset(own, purged) for own in filters)):
                consumer.purged(first_left)
            elif not filters or is_subset_of_any(purged, filters):
                consumer.purged(store.first_seq)

    def save_consumer(self, consumer: ServerConsumer) -> None:
        """Mark a consumer's state to be written soon, unless the state is only in memory."""
        config = consumer.config
        if self.files is None or config.mem_storage or config.direct:
            return
        self.files.states.mark(consumer.name, consumer.source)
        self.engine.syncer.mark_dirty(self.files, self.engine.turn.monotonic_ns)

    # ---------------------------------------------------------------- time

    @property
    def next_deadline_ns(self) -> int:
        """When `tick` has something to do; 0: never."""
        if self.retention is not None and self.retention.is_sweeping:
            return max(self.engine.turn.monotonic_ns, 1)
        return self.stream.next_deadline_ns

    def set_timer(self) -> None:
        """Update the timer, because the next deadline may have moved."""
        try:
            self.engine.timers.set(self, self.next_deadline_ns)
        except StoreError as error:
            self.engine.put_off(self, error)

    def tick(self) -> None:
        """Remove messages that are too old or no longer needed."""
        self._sweep_some()
        self.stream.tick()

    def clock_moved(self, *, ahead: bool) -> None:
        """Called when the clock of the machine has jumped: update the deadlines that follow it."""
        self.stream.clock_moved(ahead=ahead)
        self.set_timer()
        self.companions.set_timers()

    # ---------------------------------------------------------------- bytes

    @property
    def usage(self) -> Usage:
        """The bytes that the stream uses and reserves, including those beside its messages."""
        return stream_usage(self.config, self.stream.store.bytes + self.share.kept_bytes)

    def keep(self, what: Hashable, size: int) -> None:
        """Set the number of bytes that one owner stores beside the messages; 0 removes the
        entry.
        """
        if size == self.kept_bytes.get(what, 0):
            return
        self.kept_bytes[what] = size
        if not size:
            del self.kept_bytes[what]
        self.share.kept_bytes = sum(self.kept_bytes.values())
        if self.is_attached:
            self.recount()

    def recount(self) -> None:
        """Report the stream's usage to the account, and grant the stream its remaining credit."""
        self.share.count(self.usage)
        self.share.grant_credit()

    def room_share(self) -> int:
        """An equal share of the room left for the streams of the account."""
        room = self.engine.room_bytes(self.tenant, self.config.storage)
        return room // max(len(self.tenant.streams), 1)

    def room_problem(self, size: int) -> ApiError | None:
        """The error if the account or the server has no room for `size` more bytes."""
        self.share.count(self.usage)
        account_room = self.tenant.room_bytes(self.config.storage)
        if account_room is not None and size > account_room:
            return errors.ACCOUNT_RESOURCES_EXCEEDED()
        if size > self.engine.server_room_bytes(self.config.storage):
            return errors.INSUFFICIENT_RESOURCES()
        return None


def _write_nothing() -> None:
    """Called for a stream without files."""


def _nothing(_target: SyncTarget, _round: int) -> None:
    pass
