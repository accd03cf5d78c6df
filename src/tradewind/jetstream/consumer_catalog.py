"""Creates, updates and deletes consumers.

Owns the order of these changes, as `stream_catalog` does for streams: first the checks, then the
disk, then the running server, then the event. It never checks a configuration itself, which is up
to `tradewind.api`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from tradewind.api import errors
from tradewind.api.configs import consumer_config_from_dict, consumer_config_to_dict
from tradewind.api.consumer_rules import check_consumer_create
from tradewind.api.consumer_types import ConsumerConfig, DeliverPolicy
from tradewind.api.dead_letter_rules import check_dead_letters, dead_letters_of
from tradewind.api.errors import ApiError
from tradewind.api.request_types import ConsumerAction
from tradewind.api.sourcing_rules import sourcing_config
from tradewind.api.stream_types import RetentionPolicy, StorageType
from tradewind.api.times import ZERO_TIME_NS, format_time
from tradewind.api.versioning import consumer_level, stored_metadata
from tradewind.consumer.consumer import DELETED, ConsumerContext, ServerConsumer
from tradewind.consumer.deliver_policies import (
    PreparedStart,
    Start,
    filters_of,
    is_by_last,
    is_by_subject,
    starts_inside,
)
from tradewind.errors import StoreError
from tradewind.jetstream.lanes import (
    INLINE_COMPARISONS_MAX,
    INLINE_PARTS_MAX,
    Wait,
    computed,
    let_others_go_first,
)
from tradewind.jetstream.read_only import check_consumer, check_disk, is_read_only_error
from tradewind.store.format.consumer_file import ConsumerState
from tradewind.store.format.layout import short_hash
from tradewind.store.format.meta import ConsumerMeta

if TYPE_CHECKING:
    from tradewind.consumer.given_up import GivenUp
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.lanes import Steps
    from tradewind.store.folder.stream_folder import StoredConsumer
    from tradewind.store.table.subject_index import SubjectFilter

# Messages that are passed in one go in search of the last ones of all subjects.
LOOKED_AT_PER_STEP: Final = 100_000
# The time that one step may spend on comparing subjects with filters, and on last messages.
WORK_PER_STEP_NS: Final = 4_000_000
# More sequences than this are sorted by a worker.
SORTED_INLINE_MAX: Final = 10_000
# The official server reads such a time but cannot write it.
_UNWRITABLE_OFFSET: Final = re.compile(r"[+-](2[4-9]|[3-9]\d):\d\d$", re.ASCII)


def consumer_context(engine: JetStreamEngine, hosted: HostedStream, name: str) -> ConsumerContext:
    """The parts of the engine and the stream that a consumer uses."""
    tenant = hosted.tenant

    def advise(kind: str, fields: dict[str, object]) -> None:
        engine.advisories.consumer_event(tenant.account, hosted.name, name, kind, fields)

    def inactive(consumer: ServerConsumer) -> None:
        # Called from inside the consumer: the removal waits for the end of the turn.
        engine.retired.append((hosted, consumer))

    def give_up(consumer: ServerConsumer, given: GivenUp) -> None:
        from tradewind.jetstream.transactions.given_up_letters import takes_given_up

        takes_given_up(engine, hosted, consumer, given)

    return ConsumerContext(
        engine.router,
        tenant.account,
        hosted.name,
        hosted.stream.store,
        hosted.removals,
        advise,
        hosted.save_consumer,
        inactive,
        engine.names.event_id,
        on_done=hosted.retention,
        account_hash=short_hash(tenant.name),
        domain=engine.domain,
        long_subjects=engine.broker.options.feature_flags.get("js_ack_fc_v2", False),
        message_bytes_max=engine.broker.options.max_payload_bytes,
        keep_acks=hosted.state_waiters.keep_acks,
        give_up=give_up,
        chance=engine.broker.chance.random,
    )


def is_stored(hosted: HostedStream, config: ConsumerConfig) -> bool:
    """Whether a consumer survives a restart of the server."""
    is_kept = not config.mem_storage and not config.direct
    return is_kept and hosted.config.storage is StorageType.FILE


def create_consumer(
    engine: JetStreamEngine,
    hosted: HostedStream,
    wanted: ConsumerConfig,
    *,
    action: ConsumerAction,
    pedantic: bool,
) -> Steps[ServerConsumer]:
    """Create a consumer, or return the one of this name if its configuration is the same."""
    wanted = sourcing_config(wanted, hosted.config, engine.names.consumer)
    while hosted.is_being_created(wanted.durable_name or wanted.name):
        yield Wait.OTHERS_FIRST
    old = hosted.consumer_configs.get(wanted.name) if wanted.name else None
    # Only the loop may read routing tables.
    has_interest = (
        old is not None
        and bool(old.deliver_subject)
        and hosted.tenant.account.has_interest(old.deliver_subject)
    )
    check = partial(
        check_consumer_create,
        wanted,
        stream=hosted.config,
        consumers=hosted.consumer_configs,
        action=action,
        pedantic=pedantic,
        server=engine.server_limits,
        account=hosted.tenant.limits,
        has_interest=lambda _subject: has_interest,
    )
    config = yield from computed(check, is_large=_is_large(hosted, wanted))
    _check_dead_letters(hosted, config)
    name = config.durable_name or config.name or _new_name(engine, hosted)
    existing = hosted.consumers.get(name)
    if existing is not None:
        if config != existing.config:
            stored = is_stored(hosted, existing.config)
            check_consumer(engine, f"changing consumer {name}", is_stored=stored)
            yield from change_consumer(hosted, existing, config)
        if config.sourcing:
            existing.reset()  # its reader is new: redeliver unacknowledged messages
        if existing.delivery.paused:
            existing.advise_pause()
        return existing
    if name in hosted.consumer_problems:
        raise errors.CONSUMER_OFFLINE_REASON(err=hosted.consumer_problems[name])
    if _UNWRITABLE_OFFSET.search(config.opt_start_time or ""):
        raise errors.CONSUMER_CREATE(err="error creating store for consumer")
    consumer = yield from _new_consumer(engine, hosted, name, config)
    hosted.add_consumer(consumer)
    engine.advisories.consumer_action(hosted.tenant.account, hosted.name, name, "create")
    if consumer.delivery.paused:
        consumer.advise_pause()
    return consumer


def _new_consumer(
    engine: JetStreamEngine, hosted: HostedStream, name: str, config: ConsumerConfig
) -> Steps[ServerConsumer]:
    """Create a consumer, on disk first if it is stored there."""
    if engine.is_read_only:
        check_consumer(engine, "a durable consumer", is_stored=bool(config.durable_name))
        config = replace(config, mem_storage=True)
    prepared = yield from _prepared(hosted, config)
    now_ns = engine.turn.now_ns
    context = consumer_context(engine, hosted, name)
    consumer = ServerConsumer(context, name, config, now_ns, prepared=prepared)
    if is_stored(hosted, config):
        folder = hosted.stream.folder
        assert folder is not None
        meta = ConsumerMeta(name, consumer_config_to_dict(config), now_ns)
        hosted.consumer_configs[name] = config
        try:
            creation = folder.consumer_creation(meta, consumer.state(), now_ns)
            yield creation
            hosted.stream.created(creation)
        except StoreError as error:
            del hosted.consumer_configs[name]
            consumer.close()
            if config.durable_name or not is_read_only_error(error):
                raise errors.CONSUMER_STORE_FAILED(err=str(error)) from None
            # The consumer need not outlive the server, and the answer shows its storage.
            config = replace(config, mem_storage=True)
            consumer = ServerConsumer(context, name, config, now_ns, prepared=prepared)
    return consumer


def _is_large(hosted: HostedStream, wanted: ConsumerConfig) -> bool:
    """Whether checking the configuration, and for a work queue comparing its filters with those of
    the other consumers, takes too long for the event loop.
    """
    filter_count = len(wanted.filter_subjects)
    if filter_count + len(wanted.metadata or ()) > INLINE_PARTS_MAX:
        return True
    if hosted.config.retention is not RetentionPolicy.WORK_QUEUE:
        return False
    return (filter_count + 1) * hosted.consumer_configs.filter_count > INLINE_COMPARISONS_MAX


def _prepared(hosted: HostedStream, config: ConsumerConfig) -> Steps[PreparedStart]:
    """Compute in steps what depends on the number of subjects and filters."""
    store = hosted.stream.store
    chosen = store.filter(filters_of(config))
    while chosen.arrange(WORK_PER_STEP_NS):
        yield let_others_go_first
    if not chosen.is_narrow or starts_inside(store, config):
        yield from _judge(chosen)
    by_subject = is_by_subject(store, config, chosen)
    if is_by_last(config) and not (chosen.is_narrow and (by_subject or len(chosen.patterns) == 1)):
        for _ in store.find_lasts(LOOKED_AT_PER_STEP):
            yield let_others_go_first
    if not by_subject:
        return PreparedStart(chosen)
    search = store.search_last(chosen)
    while search.step(WORK_PER_STEP_NS):
        yield let_others_go_first
    is_large = not chosen.is_narrow and store.index.live_count > SORTED_INLINE_MAX
    skip = yield from computed(search.sequences, is_large=is_large)
    floor = store.first_seq if store.limits.subject_msgs_max == 1 else 0
    return PreparedStart(chosen, Start(search.up_to + 1, skip, floor) if skip else None)


def _judge(chosen: SubjectFilter) -> Steps[None]:
    """Compare a filter with all subjects of the stream."""
    while chosen.judge(WORK_PER_STEP_NS):
        yield let_others_go_first


def _check_dead_letters(hosted: HostedStream, config: ConsumerConfig) -> None:
    if (settings := dead_letters_of(config.metadata)) is not None:
        target = hosted.tenant.configs.get(settings.stream)
        check_dead_letters(config, hosted.name, config.durable_name or config.name, target)


def _new_name(engine: JetStreamEngine, hosted: HostedStream) -> str:
    while (name := engine.names.consumer()) in hosted.consumer_configs:
        pass
    return name


def change_consumer(
    hosted: HostedStream, consumer: ServerConsumer, config: ConsumerConfig
) -> Steps[None]:
    """Apply a configuration that was checked, on disk first."""
    if is_stored(hosted, consumer.config):
        assert hosted.stream.folder is not None
        meta = ConsumerMeta(consumer.name, consumer_config_to_dict(config), consumer.created_ns)
        try:
            yield hosted.stream.folder.consumer_rewrite(meta)
        except StoreError as error:
            raise errors.CONSUMER_STORE_FAILED(err=str(error)) from None
    old_filters = (consumer.config.filter_subject, consumer.config.filter_subjects)
    is_same = old_filters == (config.filter_subject, config.filter_subjects)
    prepared = None
    if not is_same:
        chosen = hosted.stream.store.filter(filters_of(config))
        yield from _judge(chosen)
        prepared = PreparedStart(chosen)
    consumer.update(config, prepared)
    hosted.consumer_changed(consumer)
    if not is_same:
        hosted.interest_changed()
        yield from hosted.sweep()


def pause_consumer(hosted: HostedStream, consumer: ServerConsumer, until_ns: int) -> Steps[None]:
    """Pause deliveries until a time; a time in the past resumes them, and is stored as well."""
    until = None if until_ns == ZERO_TIME_NS else format_time(until_ns)
    config = msgspec.structs.replace(consumer.config, pause_until=until)
    metadata = stored_metadata(config.metadata, consumer_level(config))
    yield from change_consumer(hosted, consumer, msgspec.structs.replace(config, metadata=metadata))


def open_consumer(
    engine: JetStreamEngine, hosted: HostedStream, stored: StoredConsumer
) -> ServerConsumer:
    """Open a consumer that is on disk; ValueError if its configuration is invalid."""
    meta = stored.meta
    config = consumer_config_from_dict(meta.config)
    context = consumer_context(engine, hosted, meta.name)
    # The official server forgets it, writing the zero time, when it opens one that is not durable.
    created_ns = max(meta.created_ns or 0, 0) or engine.turn.now_ns
    state = stored.state if stored.has_state else None
    if config.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT and state == ConsumerState():
        state = None  # the state does not have the last messages: find them again
    try:
        consumer = ServerConsumer(context, meta.name, config, created_ns, state)
    except ApiError as error:
        raise ValueError(str(error)) from None
    if stored.has_log:
        consumer.delivery.touch(delivered=False)  # all of it belongs into o.dat again
    hosted.add_consumer(consumer)
    return consumer


def delete_consumer(
    engine: JetStreamEngine, hosted: HostedStream, consumer: ServerConsumer
) -> Steps[None]:
    """Delete a consumer with its files, and notify those who wait for it.

    A consumer whose files cannot be removed is offline, and can be deleted again.
    """
    stored = is_stored(hosted, consumer.config)
    check_consumer(engine, f"deleting consumer {consumer.name}", is_stored=stored)
    if stored:
        try:
            yield from check_disk(engine)
        except StoreError as error:
            raise errors.STREAM_GENERAL(err=str(error)) from None
        if hosted.consumers.get(consumer.name) is not consumer:
            raise errors.CONSUMER_NOT_FOUND()
    hosted.remove_consumer(consumer, DELETED)
    if stored:
        assert hosted.stream.folder is not None
        hosted.stream.folder.forget_consumer(consumer.name)
        yield from _delete_files(engine, hosted, consumer.name)
    yield from hosted.sweep()
    engine.advisories.consumer_action(hosted.tenant.account, hosted.name, consumer.name, "delete")


def delete_offline_consumer(
    engine: JetStreamEngine, hosted: HostedStream, name: str
) -> Steps[None]:
    """Delete a consumer that is offline, on request."""
    yield from _delete_files(engine, hosted, name)
    engine.advisories.consumer_action(hosted.tenant.account, hosted.name, name, "delete")


def _delete_files(engine: JetStreamEngine, hosted: HostedStream, name: str) -> Steps[None]:
    folder = hosted.stream.folder
    assert folder is not None
    try:
        yield folder.consumer_removal(name)
    except StoreError as error:
        hosted.consumer_problems[name] = f"it could not be deleted: {error}"
        raise errors.STREAM_GENERAL(err=str(error)) from None
    hosted.consumer_problems.pop(name, None)

    def cleared(error: Exception | None) -> None:
        if error is not None:
            engine.log.error(
                f"JetStream cannot remove deleted consumers of '{hosted.place}' from disk: {error}"
            )

    engine.removals.add(folder.trash, folder.trash.clear, cleared)
