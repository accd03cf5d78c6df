"""A mirror or a source: what connects a stream with the one it copies.

Owns where copying begins, what becomes of it when the origin comes, goes or is another one, and
what is told about it. The messages themselves pass through `copier`. Origins are streams of the
same account; they are heard of at once (`JetStreamAccount.replicas`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tradewind.api import errors
from tradewind.api.consumer_types import ConsumerConfig, DeliverPolicy
from tradewind.api.source_rules import unsupported_source
from tradewind.api.stream_types import (
    DiscardPolicy,
    ErrorDetail,
    RetentionPolicy,
    StreamSource,
    StreamSourceInfo,
)
from tradewind.consumer.deliver_policies import choose_start
from tradewind.consumer.taker import Taker
from tradewind.errors import StoreError
from tradewind.jetstream.replication.copier import Copier
from tradewind.jetstream.replication.names import patterns_of
from tradewind.route.mapping import SubjectMapping, compile_mapping

if TYPE_CHECKING:
    from tradewind.jetstream.hosted import HostedStream

NEVER_ACTIVE = -1


class Replica(Taker):
    """Copies `source` into `hosted`; a companion of it. It is a `CopierOwner`."""

    def __init__(self, hosted: HostedStream, source: StreamSource, *, keeps_place: bool) -> None:
        self.copier = Copier(
            self, hosted.stream.ingest, patterns_of(source), keeps_place=keeps_place
        )
        super().__init__(self.copier)
        self.hosted = hosted
        self.source = source
        self.upstream: HostedStream | None = None
        self.problem: errors.ApiError | None = None
        self._active_ns = NEVER_ACTIVE
        chance = hosted.stream.context.chance
        self._mappings: list[SubjectMapping] = [
            compile_mapping(each.src, each.dest, random_below=chance.randrange)
            for each in source.subject_transforms
        ]
        self.changed()

    @property
    def name(self) -> str:
        """Of the stream it works for."""
        return self.hosted.name

    @property
    def place(self) -> str:
        """How the log names it."""
        return f"{self.hosted.place} from '{self.source.name}'"

    # ---------------------------------------------------------------- life

    def attach(self) -> None:
        """Copy from now on, if the origin is there."""
        tenant = self.hosted.tenant
        if reason := unsupported_source(self.source):
            self.problem = errors.STREAM_INVALID_CONFIG(err=reason)
            return
        tenant.replicas.setdefault(self.source.name, {})[self] = None
        origin = tenant.streams.get(self.source.name)
        if origin is None:
            self.problem = errors.STREAM_NOT_FOUND()
        else:
            self.origin_came(origin)

    def changed(self) -> None:
        """The stream has another configuration."""
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
        own = self.hosted.stream.transform
        return [*self._mappings, own] if own is not None else self._mappings

    def map_subject(self, subject: bytes) -> bytes:
        """The subject of a copy: by the first mapping that matches, then by that of the stream."""
        subject = self._map_source(subject)
        own = self.hosted.stream.transform
        return own.apply_bytes(subject) or subject if own is not None else subject

    def _map_source(self, subject: bytes) -> bytes:
        for mapping in self._mappings:
            if (mapped := mapping.apply_bytes(subject)) is not None:
                return mapped
        return subject

    def origin_came(self, origin: HostedStream) -> None:
        """The origin is there: go on from where its copies end."""
        try:
            next_seq = self.next_of(origin)
        except errors.ApiError as problem:
            self.problem = problem
            self.hosted.engine.log.error(f"JetStream {self.place}: {problem.description}")
            return
        self.problem = None
        self.upstream = origin
        origin.add_replica(self)
        first_seq = self.first_of(origin)
        self.copier.connect(origin.stream.ingest, next_seq, first_seq, origin.retention)

    def origin_left(self) -> None:
        """The origin is deleted or closed."""
        self._let_go(for_good=False)
        self.problem = errors.STREAM_NOT_FOUND()

    def _let_go(self, *, for_good: bool) -> None:
        self.copier.disconnect()
        if self.upstream is not None:
            self.upstream.remove_replica(self, for_good=for_good)
            self.upstream = None

    def close(self, *, for_good: bool) -> None:
        """Copy nothing any more."""
        replicas = self.hosted.tenant.replicas
        others = replicas.get(self.source.name, {})
        others.pop(self, None)
        if not others:
            replicas.pop(self.source.name, None)
        self._let_go(for_good=for_good)

    @abstractmethod
    def next_of(self, origin: HostedStream) -> int:
        """Where copying goes on; ApiError if this is not the stream that was copied before."""

    def first_of(self, origin: HostedStream) -> int:
        """Where copying begins, if there is no copy yet."""
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
        """Copy what there is; true if another turn is wanted at once."""
        wants_more = self.copier.fill(visible_seq)
        if self.problem is not None and self.has_demand:
            self.problem = None
        return wants_more

    def wait_for_disk(self) -> None:
        """What is next could not be read: it is tried again later."""
        self.copier.try_later()

    def kept(self) -> None:
        """More of what was copied is safe."""
        self.copier.confirm()
        if self.copier.is_crowded or self.copier.has_unsettled:
            self._wake()

    def _wake(self) -> None:
        if self.upstream is not None:
            self.hosted.engine.turn.add_woken(self)

    @property
    def next_deadline_ns(self) -> int:
        """When it is tried again; 0: it need not be."""
        return self.copier.due_ns

    def tick(self) -> None:
        """Try again."""
        self._wake()

    def hold(self, reason: str) -> bool:
        """The stream does not take the next copy."""
        return self._refused(errors.STREAM_STORE_FAILED(err=reason))

    def _refused(self, problem: errors.ApiError) -> bool:
        if self.problem is None or self.problem.description != problem.description:
            self.hosted.engine.log.warn(f"JetStream {self.place}: {problem.description}")
        self.problem = problem
        self.copier.try_later()
        return False

    def copy_slowly(
        self, seq: int, timestamp: int, subject: bytes, header: bytes, payload: bytes
    ) -> bool:
        """Store a copy that needs a closer look; false if it is tried again later."""
        subject = self._map_source(subject)
        place = (seq, timestamp) if self.copier.keeps_place else None
        try:
            self.hosted.stream.store_copy(subject, header, payload, place)
        except errors.ApiError as problem:
            return self._refused(problem)
        except StoreError as error:
            return self.hold(str(error))
        return True

    # ---------------------------------------------------------------- for those who ask

    def info(self) -> StreamSourceInfo:
        """How far it has come."""
        lag, active = 0, self._active_ns
        if self.upstream is not None:
            # In the same process nothing can come between the two.
            active = 0
            lag = self.upstream.stream.store.count_matching(
                self.copier.patterns, self.copier.next_seq
            )
        problem = self.problem
        return StreamSourceInfo(
            name=self.source.name,
            external=self.source.external,
            lag=lag,
            active=active,
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
        """Its part in the information about the stream."""
