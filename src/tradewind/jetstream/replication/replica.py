"""A mirror or source: connects a stream with the stream it copies.

Owns where copying starts, the reaction when the origin appears, disappears or is replaced, and the
reported state. It never handles messages, which is up to `copier`. Origins in the same account are
read from store to store, with immediate notification (`JetStreamAccount.followers`); all others,
and those with an explicit consumer, deliver through a `feed`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.api import errors
from tradewind.api.consumer_types import ConsumerConfig, DeliverPolicy
from tradewind.api.stream_types import (
    DiscardPolicy,
    ErrorDetail,
    RetentionPolicy,
    StreamSource,
    StreamSourceInfo,
)
from tradewind.consumer.deliver_policies import choose_start
from tradewind.errors import StoreError
from tradewind.jetstream.companions import StreamFollower
from tradewind.jetstream.replication.copier import Copier
from tradewind.jetstream.replication.feed import Feed
from tradewind.jetstream.replication.inbox import Inbox
from tradewind.jetstream.replication.origin_links import is_in_process, link_to
from tradewind.jetstream.replication.origins import (
    HEARTBEAT_NS,
    SEQUENCE_MAX,
    OriginView,
    filters_of,
)
from tradewind.jetstream.replication.source_names import identity_of, patterns_of
from tradewind.route.mapping import SubjectMapping, compile_mapping
from tradewind.store.contract import NotFoundError
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.retention import Retention
    from tradewind.store.table.message_store import MessageStore

NEVER_ACTIVE = -1


class Replica(StreamFollower):
    """Copies `source` into `hosted`, as its companion. It is a `CopierOwner`."""

    def __init__(self, hosted: HostedStream, source: StreamSource, *, keeps_place: bool) -> None:
        self.copier = Copier(
            self, hosted.stream.ingest, patterns_of(source), keeps_place=keeps_place
        )
        super().__init__(self.copier)
        self.hosted = hosted
        self.source = source
        self.upstream = None
        self.feed: Feed | None = None  # where it is not copied from store to store
        self.problem: errors.ApiError | None = None
        self._met_ns = 0  # when it last copied from store to store (monotonic); 0: never
        chance = hosted.stream.context.chance
        self._mappings: list[SubjectMapping] = [
            compile_mapping(each.src, each.dest, random_below=chance.randrange)
            for each in source.subject_transforms
        ]
        self.changed()

    @property
    def name(self) -> str:
        """The name of the target stream."""
        return self.hosted.name

    @property
    def place(self) -> str:
        """The target and its source, as the log shows them."""
        return f"{self.hosted.place} from '{self.source.name}'"

    @property
    def key(self) -> str:
        """The key that distinguishes it from the other replicas of its stream."""
        return ""

    @property
    def patterns(self) -> tuple[bytes, ...]:
        """The subjects that are copied."""
        return self.copier.patterns

    @property
    def is_copying(self) -> bool:
        """Whether the origin is connected."""
        return self.upstream is not None or self.copier.inbox is not None

    # ---------------------------------------------------------------- life

    def attach(self) -> None:
        """Begin to copy if the origin is available.

        An update may set a filter that is not a valid subject, as in nats-server: it matches
        nothing.
        """
        engine, tenant = self.hosted.engine, self.hosted.tenant
        for subject in filters_of(self.source):
            if not is_valid_subject(subject):
                self.say(errors.STREAM_INVALID_CONFIG(err=f"filter '{subject}' is no subject"))
                return
        if not is_in_process(engine, self.source):
            self._attach_feed()
            return
        tenant.followers.setdefault(self.source.name, {})[self] = None
        origin = tenant.streams.get(self.source.name)
        if origin is None:
            self.problem = errors.STREAM_NOT_FOUND()
        else:
            self.origin_came(origin)

    def _attach_feed(self) -> None:
        engine, tenant = self.hosted.engine, self.hosted.tenant
        engine.consumer_hosts[self] = self.hosted
        self.feed = Feed(self, link_to(engine, tenant, self.source))
        self.feed.begin()

    def changed(self) -> None:
        """Apply a new configuration of the stream."""
        config = self.hosted.config
        self.copier.is_plain = (
            not config.sealed
            and not any(mapping.is_random for mapping in self._all_mappings())
            and config.republish is None
            and config.retention is not RetentionPolicy.INTEREST
            and config.discard is DiscardPolicy.OLD
            and not config.allow_msg_counter
        )
        self.copier.maps = not all(mapping.is_identity for mapping in self._all_mappings())
        self.copier.forget_mapped()
        self.copier.expires = config.allow_msg_ttl
        self.copier.rolls_up = config.allow_rollup_hdrs and not config.deny_purge
        self._wake()

    def _all_mappings(self) -> list[SubjectMapping]:
        own = self.hosted.stream.slow_path.transform
        return [*self._mappings, own] if own is not None else self._mappings

    def map_subject(self, subject: bytes) -> bytes:
        """The subject of a copy, by the first mapping that matches and then by that of the
        stream.
        """
        return self.hosted.stream.slow_path.own_subject(self._map_source(subject))

    def _map_source(self, subject: bytes) -> bytes:
        for mapping in self._mappings:
            if (mapped := mapping.apply_bytes(subject)) is not None:
                return mapped
        return subject

    def origin_came(self, origin: HostedStream) -> None:
        """Continue after the last copy; called when the origin becomes available."""
        try:
            next_seq = self.meet(self._view(origin))
        except errors.ApiError as problem:
            self.say(problem)
            return
        self.problem = None
        self._met_ns = max(self.hosted.engine.turn.monotonic_ns, 1)
        self.upstream = origin
        origin.add_follower(self)
        first_seq = self.first_of(origin)
        next_seq = next_seq or self.begin_at(first_seq)
        self.copier.connect(origin.stream.ingest, next_seq, first_seq, origin.retention)

    def _view(self, origin: HostedStream) -> OriginView:
        store, created_ns = origin.stream.store, origin.stream.created_ns
        view = OriginView(identity_of(origin.stream), created_ns, store.last_seq)
        seq = self.compared_seq(view)
        return msgspec.structs.replace(view, mirrored_ns=time_of(store, seq)) if seq else view

    def origin_left(self) -> None:
        """Stop copying; called when the origin is deleted or closed."""
        self._met_ns = max(self.hosted.engine.turn.monotonic_ns - self._active_ns(), 1)
        self._let_go(for_good=False)
        self.problem = errors.STREAM_NOT_FOUND()

    def retention_changed(self, retention: Retention | None) -> None:
        """Set the retention of the origin, which keeps messages without a durable copy."""
        self.copier.set_done_listener(retention)

    def _let_go(self, *, for_good: bool) -> None:
        self.copier.disconnect()
        if self.upstream is not None:
            self.upstream.remove_follower(self, for_good=for_good)
            self.upstream = None

    def close(self, *, for_good: bool) -> None:
        """Stop copying."""
        if self.feed is not None:
            self.feed.end(for_good=for_good)
            self.feed = None
            self.hosted.engine.consumer_hosts.pop(self, None)
        followers = self.hosted.tenant.followers
        others = followers.get(self.source.name, {})
        others.pop(self, None)
        if not others:
            followers.pop(self.source.name, None)
        self._let_go(for_good=for_good)

    # ---------------------------------------------------------------- called by a feed

    def feed_started(self, inbox: Inbox, next_seq: int, first_seq: int) -> None:
        """Called when a consumer delivers from `first_seq` on; the wanted messages begin at
        `next_seq`, if it is not 0.
        """
        if self.feed is None or not self.feed.is_probing:
            self.problem = None
        self.copier.connect_inbox(inbox, next_seq or self.begin_at(first_seq))

    def feed_stopped(self) -> None:
        """Called when the feed delivers nothing for now."""
        self.copier.disconnect()

    def say(self, problem: errors.ApiError) -> None:
        """Show a problem in the stream's information, and log it if it is new."""
        if self.problem is None or self.problem.description != problem.description:
            self.hosted.engine.log.warn(f"JetStream {self.place}: {problem.description}")
        self.problem = problem

    # ---------------------------------------------------------------- where it begins

    def compared_seq(self, view: OriginView) -> int:  # noqa: ARG002
        """The sequence of the message whose time identifies the origin; 0: none."""
        return 0

    def expected(self) -> OriginView:
        """The assumed state of an origin whose information cannot be read."""
        return OriginView("", 0, SEQUENCE_MAX, is_known=False)

    @abstractmethod
    def meet(self, view: OriginView) -> int:
        """The sequence at which copying continues, 0 for the configured one; ApiError if this is
        not the stream that was copied before.
        """

    def begin_at(self, first_seq: int) -> int:
        """Begin the copies of an empty target at `first_seq`, which is returned."""
        return first_seq

    def first_of(self, origin: HostedStream) -> int:
        """The first sequence to copy if there is no copy yet."""
        source = self.source
        policy = DeliverPolicy.ALL
        if source.opt_start_seq:
            policy = DeliverPolicy.BY_START_SEQUENCE
        elif source.opt_start_time:
            policy = DeliverPolicy.BY_START_TIME
        start = ConsumerConfig(
            deliver_policy=policy,
            opt_start_seq=source.opt_start_seq,
            opt_start_time=source.opt_start_time,
        )
        return choose_start(origin.stream.store, start).next_seq

    # ---------------------------------------------------------------- turns

    def fill(self, visible_seq: int) -> bool:
        """Copy the available messages; true if another turn is wanted at once."""
        if self.feed is not None and not self.feed.is_right():
            return False
        wants_more = self.copier.fill(visible_seq)
        if self.upstream is not None:
            self._met_ns = self.hosted.engine.turn.monotonic_ns
        is_stalled = self.feed is not None and self.feed.is_stalled
        if self.problem is not None and self.has_demand and not is_stalled:
            self.problem = None
        if self.feed is not None:
            self.feed.look()
        return wants_more

    def wait_for_disk(self) -> None:
        """Try again later, because the next message could not be read."""
        self.copier.try_later()

    def kept(self) -> None:
        """Called when more copies have become durable."""
        self.copier.confirm()
        if self.copier.is_crowded or self.copier.has_unreleased:
            self._wake()
        if self.feed is not None:
            self.feed.look()

    def _wake(self) -> None:
        if self.is_copying:
            self.hosted.engine.turn.wake(self)

    @property
    def next_deadline_ns(self) -> int:
        """When to try again (monotonic); 0: not needed."""
        if self.feed is None:
            return self.copier.due_ns
        return min(filter(None, (self.copier.due_ns, self.feed.deadline_ns)), default=0)

    def tick(self) -> None:
        """Try again."""
        if self.feed is not None:
            self.feed.tick()
        self._wake()

    def hold(self, reason: str) -> bool:
        """Called when the stream does not accept the next copy."""
        return self._refused(errors.STREAM_STORE_FAILED(err=reason))

    def _refused(self, problem: errors.ApiError) -> bool:
        self.say(problem)
        self.copier.try_later()
        return False

    def copy_slowly(
        self, seq: int, timestamp: int, subject: bytes, header: bytes, payload: bytes
    ) -> bool:
        """Store a copy that needs a closer look; false if it has to be retried later."""
        subject = self._map_source(subject)
        place = (seq, timestamp) if self.copier.keeps_place else None
        try:
            self.hosted.stream.slow_path.store_copy(subject, header, payload, place)
        except errors.ApiError as problem:
            return self._refused(problem)
        except StoreError as error:
            return self.hold(str(error))
        return True

    # ---------------------------------------------------------------- for stream information

    def _active_ns(self) -> int:
        """The time since the origin was last heard. Within one process there are no heartbeats:
        that connection cannot fail, so the time counts as if one had come every second.
        """
        heard_ns = self._met_ns if self.feed is None else self.feed.heard_ns
        if not heard_ns:
            return NEVER_ACTIVE
        passed_ns = max(self.hosted.engine.turn.monotonic_ns - heard_ns, 0)
        # 0 is shown as "never" by the command line tool of NATS.
        return max(passed_ns % HEARTBEAT_NS, 1) if self.upstream is not None else passed_ns

    def info(self) -> StreamSourceInfo:
        """The state of the replica, as stream information shows it."""
        lag = 0
        if self.upstream is not None:
            lag = self.upstream.stream.store.count_matching(
                self.copier.patterns, self.copier.next_seq
            )
        elif self.feed is not None:
            lag = self.feed.lag
        problem = self.problem
        return StreamSourceInfo(
            name=self.source.name,
            external=self.source.external,
            lag=lag,
            active=self._active_ns(),
            error=ErrorDetail(
                code=problem.code, err_code=problem.err_code, description=problem.description
            )
            if problem is not None
            else None,
            filter_subject=self.source.filter_subject,
            subject_transforms=self.source.subject_transforms,
        )

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """The part of the replica in the stream's information."""


def time_of(store: MessageStore, seq: int) -> int:
    """The time of a message; 0 if there is no such message."""
    try:
        return store.get(seq).timestamp_ns
    except NotFoundError:
        return 0
