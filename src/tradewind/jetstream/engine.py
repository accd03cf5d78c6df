"""The JetStream engine: all streams and consumers of a server, and their part in every turn.

Owns the accounts that have JetStream, and the order of the steps at the end of a turn:

1. messages that the server published to itself are handed to the streams that want them;
2. streams that changed write to the operating system, one write per block, and the syncer begins
   to make it durable; acknowledgements that need not wait for it are sent;
3. consumers that may have something to send do so, each up to its budget.

Commits end outside of turns. Then the acknowledgements that waited for them are sent, and the
consumers of the stream may deliver the messages that have become visible.

The end of a turn itself is in `turn_work`. The engine never opens a file except through the store
it is given, and never reads a clock other than the broker's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.errors import ApiError
from tradewind.api.limits import ServerLimits
from tradewind.api.stream_types import StorageType
from tradewind.broker.broker import Broker
from tradewind.broker.turn import Participant
from tradewind.consumer.consumer import ServerConsumer
from tradewind.errors import StoreError
from tradewind.jetstream.advisory_publisher import AdvisoryPublisher
from tradewind.jetstream.clock_watch import ClockWatch
from tradewind.jetstream.companions import StreamFollower
from tradewind.jetstream.consumer_catalog import delete_consumer, is_stored
from tradewind.jetstream.dispatch import Dispatcher
from tradewind.jetstream.hosted import HostedStream
from tradewind.jetstream.jetstream_account import (
    UNLIMITED,
    ApiCounts,
    JetStreamAccount,
    account_limits,
)
from tradewind.jetstream.lanes import Lane, Steps, Workers
from tradewind.jetstream.later_removals import LaterRemovals
from tradewind.jetstream.name_source import NameSource
from tradewind.jetstream.replication.origin_links import NoRemotes, Remotes
from tradewind.jetstream.stream_catalog import delete_stream
from tradewind.jetstream.timers import TimerOwner, Timers
from tradewind.jetstream.turn_work import TurnWork
from tradewind.jetstream.usage import Usage
from tradewind.options import GLOBAL_ACCOUNT, JetStreamOptions, ServerOptions
from tradewind.stream.staging import batch_limits

if TYPE_CHECKING:
    from tradewind.jetstream.restores import Restores
    from tradewind.jetstream.snapshots import Snapshots
    from tradewind.jetstream.template_streams import TemplateRegistry
    from tradewind.jetstream.transactions.given_up_letters import DeadLetterSender
    from tradewind.nkeys import KeyPair
    from tradewind.store.commits.syncer import Syncer
    from tradewind.store.folder.stream_folder import StoreRoot


# Consumers of a stream, where neither it nor its account nor the configuration has a limit.
CONSUMERS_MAX: Final = 1000
# Streams and consumers that a disk error has stopped try again after this time.
PUT_OFF_NS: Final = 1_000_000_000
# Work that is due and not done after this time waits for the next turn.
TICK_NS_MAX: Final = 10_000_000
# This many at most are called in one turn.
DUE_MAX: Final = 256


def run_each(calls: list[Callable[[], None]]) -> None:
    """Call each function in order."""
    for call in calls:
        call()


class EngineSettings(msgspec.Struct, frozen=True):
    """The configured settings, with all limits resolved."""

    options: JetStreamOptions
    memory_bytes_max: int
    storage_bytes_max: int


class JetStreamEngine:
    """The engine of one server. `root` is None for a server whose streams are all in memory;
    `remotes` are the ways to streams of other servers.
    """

    def __init__(
        self,
        broker: Broker,
        settings: EngineSettings,
        root: StoreRoot | None,
        syncer: Syncer,
        workers: Workers,
        remotes: Remotes | None = None,
    ) -> None:
        syncer.faults = broker.faults
        self.broker = broker
        self.router = broker.router
        self.turn = broker.router.turn
        self.syncer = syncer
        self.usage = Usage()  # of all streams
        self.timers = Timers()
        # The hosts of the objects that a turn lists.
        self.hosts: dict[Participant, HostedStream] = {}
        self.consumer_hosts: dict[Participant, HostedStream] = {}
        # Consumers past their inactivity threshold, which are deleted at the end of the turn.
        self.retired: list[tuple[HostedStream, ServerConsumer]] = []
        self.turns = turns = TurnWork(self)
        # Called in every turn, see there; so they are no methods of this class, which would add
        # 20 ns to 39 (`benchmarks.micro`, frame-engine).
        self.set_time: Callable[[], None] = turns.set_time
        self.end_turn: Callable[[], None] = turns.end_turn
        # When `tick` has something to do.
        self.next_deadline_ns: Callable[[], int | None] = turns.next_deadline_ns
        self._template_registry: TemplateRegistry | None = None
        self._chain_key: KeyPair | None = None
        if root is not None:
            root.clock = broker.now_ns
        self.log = broker.log
        self.faults = broker.faults
        self.settings = settings
        self.root = root
        self.workers = workers
        self.remotes: Remotes = remotes or NoRemotes()
        self.names = NameSource(broker.chance)
        self.advisories = AdvisoryPublisher(
            self.names, broker.now_ns, self.domain, lambda: broker.system_account
        )
        self.batches = batch_limits(self.settings.options.limits)
        self.accounts: dict[str, JetStreamAccount] = {}
        # The work that streams leave while all of them are closed, see `close`; else None.
        self._unfinished: list[Callable[[], None]] | None = None
        self.api = ApiCounts()
        self.removals = LaterRemovals(self)
        self._snapshots: Snapshots | None = None
        self._restores: Restores | None = None
        # Messages that consumers give up; None: none has so far.
        self.dead_letters: DeadLetterSender | None = None
        self._dispatcher = Dispatcher(self)
        self._is_stopping = False
        self._clock_watch = ClockWatch(self)
        self.set_time()
        self.set_accounts(broker.options)

    @property
    def domain(self) -> str:
        """The configured domain; empty if there is none."""
        return self.settings.options.domain

    @property
    def is_read_only(self) -> bool:
        """Whether the store is served read-only."""
        return self.settings.options.read_only

    @property
    def is_started(self) -> bool:
        """Whether the engine serves requests."""
        return self.broker.engine is self

    @property
    def snapshots(self) -> Snapshots:
        """The backups in progress."""
        if self._snapshots is None:
            from tradewind.jetstream.snapshots import Snapshots

            self._snapshots = Snapshots(self)
        return self._snapshots

    @property
    def restores(self) -> Restores:
        """The restores in progress."""
        if self._restores is None:
            from tradewind.jetstream.restores import Restores

            self._restores = Restores(self)
        return self._restores

    def chain_key(self) -> KeyPair:
        """The key that signs the checkpoints of chains; StoreError if there is none."""
        if self._chain_key is None:
            from tradewind.jetstream.chain_keeper import load_key

            self._chain_key = load_key(self)
        return self._chain_key

    # ---------------------------------------------------------------- accounts

    def set_accounts(self, options: ServerOptions) -> None:
        """Enable JetStream in the accounts that the configuration names, with its limits.

        Streams of an account that no longer has JetStream stay on disk and are not served.
        """
        for _ in self._account_steps(options):
            pass

    def _account_steps(self, options: ServerOptions) -> Iterator[None]:
        wanted = jetstream_accounts(options)
        for name in [name for name in self.accounts if name not in wanted]:
            if (tenant := self.accounts.pop(name, None)) is not None:
                self._dismiss(tenant)
            yield
        for name, limits in wanted.items():
            # One that is set between two steps has other limits, or has lost JetStream.
            now = options.accounts.get(name)
            if now is None or now.jetstream:
                self._add_account(name, limits if now is None else now.jetstream_limits)
            yield

    def _add_account(self, name: str, limits: dict[str, int]) -> None:
        if name in self.accounts:
            self.accounts[name].limits = account_limits(limits)
            self.accounts[name].is_tiered = bool(limits.get("is_tiered"))
            self.accounts[name].template_streams_max = limits.get("max_template_streams", UNLIMITED)
        elif name in self.broker.accounts:
            account = self.broker.accounts[name]
            lane = Lane(self.workers, self.set_time, self.lane_fault, self.broker.watch)
            self.accounts[name] = JetStreamAccount(
                account,
                account_limits(limits),
                lane,
                is_tiered=bool(limits.get("is_tiered")),
                template_streams_max=limits.get("max_template_streams", UNLIMITED),
            )

    def set_account(self, name: str) -> JetStreamAccount | None:
        """Update one account that was added or changed; returns it if it has JetStream."""
        options = self.broker.options
        configured = options.accounts.get(name)
        if configured is None or not configured.jetstream or name == options.system_account:
            if name in self.accounts:
                self._dismiss(self.accounts.pop(name))
        else:
            self._add_account(name, configured.jetstream_limits)
        self._dispatcher.listen_to(name)
        return self.accounts.get(name)

    def lane_fault(self, error: Exception) -> None:
        """Called when a task of a lane has failed with an internal error."""
        self.faults.contain("request", error)

    def _dismiss(self, tenant: JetStreamAccount) -> None:
        tenant.lane.drop_waiting()
        self._do_all(*(hosted.close for hosted in list(tenant.streams.values())))
        if tenant.transactions is not None:
            tenant.transactions.close(for_good=self._unfinished is not None)

    def start(self) -> None:
        """Subscribe to requests, and join the broker's turns."""
        self._dispatcher.listen()
        self.broker.engine = self
        self.turn.monotonic_clock = self.broker.clock.monotonic_ns
        self._clock_watch.start()
        self.broker.info.jetstream = True
        self.broker.info.domain = self.domain

    def reload(self, options: ServerOptions) -> Iterator[None]:
        """Apply a reload in steps; accounts may have changed."""
        yield from self._account_steps(options)
        for name in list(self.broker.accounts):
            self._dispatcher.listen_to(name)
            yield

    def hosted_streams(self) -> Iterator[HostedStream]:
        """All streams of all accounts."""
        for tenant in self.accounts.values():
            yield from tenant.streams.values()

    @property
    def server_limits(self) -> ServerLimits:
        """The limits that the configuration sets for every account."""
        limits = self.settings.options.limits
        return ServerLimits(
            default_max_consumers=limits.get("default_max_consumers", 0) or CONSUMERS_MAX,
            duplicate_window_ns=limits.get("duplicate_window_ns", 0),
            max_ack_pending=limits.get("max_ack_pending", 0),
            max_request_batch=limits.get("max_request_batch", 0),
            memory_bytes_max=self.settings.memory_bytes_max,
            storage_bytes_max=self.settings.storage_bytes_max,
            domain=self.domain,
        )

    def server_room_bytes(self, storage: StorageType) -> int:
        """How many bytes all streams together may still store."""
        if storage is StorageType.MEMORY:
            return max(self.settings.memory_bytes_max - self.usage.memory, 0)
        return max(self.settings.storage_bytes_max - self.usage.storage, 0)

    def room_bytes(self, tenant: JetStreamAccount, storage: StorageType) -> int:
        """How many bytes the streams of an account may still store."""
        room = tenant.room_bytes(storage)
        server_room = self.server_room_bytes(storage)
        return server_room if room is None else min(room, server_room)

    # ---------------------------------------------------------------- turns

    def delete_retired(self) -> None:
        """Delete the consumers whose inactivity threshold has passed."""
        while self.retired:
            hosted, consumer = self.retired.pop()
            try:
                steps = self._delete_inactive(hosted, consumer)
                shown = f"{hosted.name} > {consumer.name}"
                hosted.tenant.lane.add(steps, "", "unused consumer", shown)
            except Exception as error:
                self.faults.contain("consumer", error, f"{hosted.place} > {consumer.name}")

    def _delete_inactive(self, hosted: HostedStream, consumer: ServerConsumer) -> Steps[None]:
        if self.is_read_only and is_stored(hosted, consumer.config):
            return
        if hosted.consumers.get(consumer.name) is consumer:
            try:
                yield from delete_consumer(self, hosted, consumer)
            except ApiError as error:
                # The deletion is tried again; the error is logged once.
                text = f"consumer {consumer.name!r} cannot be deleted: {error}"
                hosted.report_disk_error(StoreError(text))

    def tick(self) -> None:
        """Do the work that is due; a turn follows. The rest continues at the next call, soon."""
        self.set_time()
        now_ns = began_ns = self.turn.monotonic_ns
        for owner in self.timers.take_due(began_ns, DUE_MAX):
            if now_ns - began_ns > TICK_NS_MAX:
                self.timers.set(owner, began_ns)
                continue
            try:
                owner.tick()
                due_ns = owner.next_deadline_ns
                # Not before now: an owner that is always due must not come before all others.
                self.timers.set(owner, max(due_ns, began_ns) if due_ns else 0)
            except Exception as error:
                # The others are due too, and nothing would call them again.
                self.put_off(owner, error)
            now_ns = self.broker.watch.lap(timer_label(owner), getattr(owner, "name", ""))

    def put_off(self, owner: TimerOwner, error: Exception) -> None:
        """Retry later for a stream or consumer whose timer has failed."""
        hosted = self.consumer_hosts.get(owner) if isinstance(owner, ServerConsumer) else owner
        if not isinstance(error, StoreError):
            self.faults.contain("timer", error, _named(owner, hosted))
        elif isinstance(hosted, HostedStream):
            hosted.report_disk_error(error)
        self.timers.set(owner, self.turn.monotonic_ns + PUT_OFF_NS)

    def stream_failed(self, hosted: HostedStream, error: Exception) -> None:
        """Called after an internal error while a stream was written: notify its publishers."""
        self.faults.contain("stream", error, hosted.place)
        try:
            hosted.refuse_waiting()
        except Exception as another:
            self.faults.contain("stream", another, hosted.place)
        self.timers.set(hosted, self.turn.monotonic_ns + PUT_OFF_NS)

    def consumer_failed(
        self, hosted: HostedStream, consumer: ServerConsumer, error: Exception
    ) -> None:
        """Called after an internal error while a consumer sent messages; it continues later."""
        place = f"{hosted.place} > {consumer.name}"
        self.faults.contain("consumer", error, place)
        try:
            consumer.wait_for_disk()
            hosted.demand.update_waiting(consumer)
        except Exception as another:
            self.faults.contain("consumer", another, place)
        self.timers.set(consumer, self.turn.monotonic_ns + PUT_OFF_NS)

    def purge_account(self, tenant: JetStreamAccount) -> Steps[None]:
        """Remove all streams of an account."""
        for hosted in list(tenant.streams.values()):
            yield from delete_stream(self, hosted)

    # ---------------------------------------------------------------- the end

    def begin_stop(self) -> None:
        """Take no more messages and requests, and notify waiting clients that the server stops."""
        self._is_stopping = True
        self.set_time()
        self._do_all(
            self._dispatcher.stop_listening,
            self._stop_templates,
            *(each.stop for each in (self._snapshots, self._restores) if each is not None),
            *(tenant.lane.drop_waiting for tenant in self.accounts.values()),
            *(
                tenant.transactions.stop
                for tenant in self.accounts.values()
                if tenant.transactions is not None
            ),
            *(hosted.begin_stop for hosted in self.hosted_streams()),
            self.end_turn,
            lambda: self.syncer.end_turn(self.turn.monotonic_ns),
        )

    def _do_all(self, *steps: Callable[[], object]) -> None:
        """Run all steps of the shutdown, even if some of them fail."""
        for step in steps:
            try:
                step()
            except Exception as error:
                self.faults.contain("shutdown", error)

    def close(self, run_all: Callable[[list[Callable[[], None]]], None] = run_each) -> None:
        """Close all streams; called when no sync is running any more.

        `run_all` may run in parallel the work that the streams leave to be done.
        """
        self.broker.engine = None
        self.turn.monotonic_clock = self.turn.clock_watch = None
        unfinished: list[Callable[[], None]] = []
        self._unfinished = unfinished
        self._do_all(*(partial(self._dismiss, tenant) for tenant in self.accounts.values()))
        self._unfinished = None
        unfinished += self.removals.close()
        run_all([partial(self._finish, finish) for finish in unfinished])

    def _stop_templates(self) -> None:
        if self._template_registry is not None:
            self._template_registry.close()

    def template_registry(self) -> TemplateRegistry:
        """The templates of all accounts; loaded on first use."""
        if self._template_registry is None:
            from tradewind.jetstream.template_streams import TemplateRegistry

            self._template_registry = TemplateRegistry(self)
        return self._template_registry

    def stream_closed(self, finish: Callable[[], None]) -> None:
        """Called when a stream is closed except for `finish`, which any thread may call."""
        if self._unfinished is not None:
            self._unfinished.append(finish)
        else:
            self._finish(finish)

    def _finish(self, finish: Callable[[], None]) -> None:
        try:
            finish()
        except Exception as error:
            if not isinstance(error, StoreError):
                self.faults.contain("shutdown", error)
            self.log.error(f"JetStream cannot prepare the next start: {error}")


def _named(owner: TimerOwner, hosted: object) -> str:
    """The name of a timer's owner."""
    if isinstance(owner, StreamFollower):
        return owner.place
    if not isinstance(hosted, HostedStream):
        return type(owner).__name__
    return f"{hosted.place} > {owner.name}" if isinstance(owner, ServerConsumer) else hosted.place


def timer_label(owner: TimerOwner) -> str:
    """The label of a timer in the turn watch."""
    if isinstance(owner, ServerConsumer):
        return "timer of a consumer"
    if isinstance(owner, StreamFollower):
        return "timer of a mirror or source"
    if isinstance(owner, LaterRemovals):
        return "timer of removals"
    return "timer of a stream" if isinstance(owner, HostedStream) else "timer of a backup"


def jetstream_accounts(options: ServerOptions) -> dict[str, dict[str, int]]:
    """The accounts that have JetStream, each with its configured limits.

    Without configured accounts, the global account has it.
    """
    others = [name for name in options.accounts if name != options.system_account]
    in_operator_mode = options.operator is not None and options.operator.is_active
    if not others and not in_operator_mode:
        return {GLOBAL_ACCOUNT: {}}
    return {
        name: account.jetstream_limits
        for name, account in options.accounts.items()
        if account.jetstream and name != options.system_account
    }
