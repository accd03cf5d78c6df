"""Creates, updates and deletes streams.

Owns the order of these changes: first the checks, then the disk, then the running server, then the
event. It never changes anything if a check fails. The checks of a configuration are in
`tradewind.api`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.api.chain_rules import chain_rule_of, check_chain_update
from tradewind.api.configs import stream_config_to_dict
from tradewind.api.limits import Reservations, check_resources, check_resources_of_update
from tradewind.api.names import has_schema_rule
from tradewind.api.stream_rules import (
    check_consumer_limits,
    check_overlap,
    check_stream_config,
    check_stream_create,
    check_stream_update,
)
from tradewind.api.stream_types import StorageType, StreamConfig
from tradewind.api.subject_tree import Effort
from tradewind.consumer.consumer import DELETED
from tradewind.errors import StoreError
from tradewind.jetstream.hosted import HostedStream
from tradewind.jetstream.jetstream_account import stream_usage
from tradewind.jetstream.lanes import (
    INLINE_COMPARISONS_MAX,
    INLINE_PARTS_MAX,
    Wait,
    computed,
    let_others_go_first,
)
from tradewind.jetstream.read_only import check_disk
from tradewind.jetstream.usage import Usage
from tradewind.store.format.meta import StreamMeta
from tradewind.stream.stream import Stream
from tradewind.stream.stream_context import StreamContext

if TYPE_CHECKING:
    from tradewind.api.subject_tree import SubjectTree
    from tradewind.jetstream.deeds import Requester
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.jetstream.lanes import Steps


# The fields of a configuration that no check of another stream, or of the account, reads.
OWN_FIELDS: Final = frozenset(
    {"description", "metadata", "max_msgs", "max_msgs_per_subject", "max_age", "duplicate_window"}
)


def stream_context(engine: JetStreamEngine, tenant: JetStreamAccount, name: str) -> StreamContext:
    """The parts of the server that a stream uses."""
    options = engine.settings.options

    def resources(size: int) -> errors.ApiError | None:
        hosted = tenant.streams.get(name)
        return hosted.room_problem(size) if hosted is not None else None

    context = StreamContext(
        engine.router,
        tenant.account,
        engine.log,
        engine.broker.chance,
        domain=engine.domain,
        batches=engine.batches,
        abandoned=partial(engine.advisories.batch_abandoned, tenant.account),
        syncs=options.sync_interval_ns == 0,
        resources=resources,
    )
    if options.max_buffered_msgs:
        context.waiting_msgs_max = options.max_buffered_msgs
    if options.max_buffered_bytes:
        context.waiting_bytes_max = options.max_buffered_bytes
    return context


class MuchToCompareError(Exception):
    """Comparing subjects takes longer than the event loop has time for."""


def is_large_config(config: StreamConfig, owners: SubjectTree[str]) -> bool:
    """Whether checking the configuration takes too long for the event loop, apart from comparing
    its subjects with those of other streams. Origins may lead to very many streams.
    """
    parts = (config.subjects, config.sources, config.metadata)
    if sum(len(part or ()) for part in parts) > INLINE_PARTS_MAX:
        return True
    has_origins = config.mirror is not None or bool(config.sources)
    return has_origins and owners.size > INLINE_COMPARISONS_MAX


def checked_overlap(config: StreamConfig, owners: SubjectTree[str]) -> Steps[None]:
    """Check the subjects against those of the other streams: in the event loop, unless it is much.

    A few subjects without wildcards are compared with few others, however many streams there are.
    """
    is_large = is_large_config(config, owners)
    if not is_large:
        try:
            check_overlap(config, owners, Effort(INLINE_COMPARISONS_MAX, MuchToCompareError))
        except MuchToCompareError:
            is_large = True
    if is_large:
        yield from computed(partial(check_overlap, config, owners), is_large=True)


def create_stream(
    engine: JetStreamEngine,
    tenant: JetStreamAccount,
    wanted: StreamConfig,
    *,
    pedantic: bool,
    may_overlap: bool = False,
) -> Steps[HostedStream]:
    """Create a stream, or return the existing one with the same configuration.

    `may_overlap`: other streams may take its subjects too, as in the first preview.
    """
    while tenant.is_being_created(wanted.name):
        yield Wait.OTHERS_FIRST
    is_large = is_large_config(wanted, tenant.owners)
    check = partial(
        check_stream_create,
        wanted,
        streams=tenant.configs,
        reserved=reserved(engine, tenant, tenant.configs.get(wanted.name)),
        pedantic=pedantic,
        server=engine.server_limits,
        account=tenant.limits,
    )
    config = yield from computed(check, is_large=is_large)
    if config.name in tenant.streams:
        return tenant.streams[config.name]
    if config.name in tenant.problems:
        raise errors.STREAM_OFFLINE_REASON(err=tenant.problems[config.name])
    check_resources(config, reserved(engine, tenant), tenant.limits, engine.server_limits)
    check_schemas(config, tenant)
    if not may_overlap:
        yield from checked_overlap(config, tenant.owners)
    try:
        with _announced(engine, tenant, config):
            stream = yield from _new_stream(engine, tenant, config)
    except StoreError as error:
        raise errors.STREAM_CREATE(err=str(error)) from None
    hosted = HostedStream(engine, tenant, stream)
    hosted.attach()
    engine.advisories.stream_action(tenant.account, config.name, "create")
    return hosted


@contextmanager
def _announced(
    engine: JetStreamEngine, tenant: JetStreamAccount, config: StreamConfig
) -> Iterator[None]:
    """Reserve the subjects and bytes of a stream while it is being created."""
    nothing, usage = Usage(), stream_usage(config, 0)
    tenant.stream_configured(config.name, config)
    for total in (tenant.usage, engine.usage):
        total.replace(nothing, usage)
    try:
        yield
    except BaseException:
        tenant.stream_configured(config.name, None)
        raise
    finally:
        for total in (tenant.usage, engine.usage):
            total.replace(usage, nothing)


def _new_stream(
    engine: JetStreamEngine, tenant: JetStreamAccount, config: StreamConfig
) -> Steps[Stream]:
    """Create a stream that takes no messages yet; if it is in files, they are durable."""
    context = stream_context(engine, tenant, config.name)
    meta = StreamMeta(stream_config_to_dict(config), engine.turn.now_ns)
    if config.storage is StorageType.MEMORY:
        return Stream.in_memory(context, meta)
    if engine.root is None:
        raise StoreError(
            f"stream {config.name!r} : file storage is not available: no store directory"
        )
    folder = engine.root.stream(tenant.name, config.name)
    return (yield from Stream.in_files(context, meta, folder))


def check_schemas(
    config: StreamConfig, tenant: JetStreamAccount, requester: Requester | None = None
) -> None:
    """ApiError if a stream cannot check payloads as configured; few streams do."""
    if has_schema_rule(config.metadata):
        from tradewind.jetstream.schema_keeper import check_schema_settings

        check_schema_settings(config, tenant, requester)


def reserved(
    engine: JetStreamEngine, tenant: JetStreamAccount, without: StreamConfig | None = None
) -> Reservations:
    """The reservations of all streams except `without`."""
    mine = stream_usage(without, 0) if without is not None else Usage()
    return Reservations(
        len(tenant.configs) - (without is not None),
        tenant.usage.reserved_memory - mine.reserved_memory,
        tenant.usage.reserved_storage - mine.reserved_storage,
        engine.usage.reserved_memory - mine.reserved_memory,
        engine.usage.reserved_storage - mine.reserved_storage,
    )


def update_stream(
    engine: JetStreamEngine,
    tenant: JetStreamAccount,
    name: str,
    wanted: StreamConfig,
    *,
    pedantic: bool,
) -> Steps[HostedStream]:
    """Update a stream; ApiError if the change does not fit its consumers."""
    while name in tenant.changing or not all(tenant.changing.values()):
        yield Wait.OTHERS_FIRST
    configs = tenant.configs
    is_large = is_large_config(wanted, tenant.owners)
    # A configuration that is wrong by itself is refused before the stream is looked up.
    check = partial(
        check_stream_config,
        wanted,
        streams=configs,
        pedantic=pedantic,
        server=engine.server_limits,
        account=tenant.limits,
    )
    checked = yield from computed(check, is_large=is_large)
    if wanted.name != name:
        raise errors.STREAM_MISMATCH()
    hosted = tenant.stream(name)
    old = hosted.config
    while tenant.changing and not _concerns_nobody_else(old, checked):
        yield Wait.OTHERS_FIRST
    check = partial(
        check_stream_update,
        old,
        checked,
        streams=configs,
        pedantic=pedantic,
        server=engine.server_limits,
        account=tenant.limits,
    )
    config = yield from computed(check, is_large=is_large)
    _check_chain(hosted, config)
    check_schemas(config, tenant)
    check_consumer_limits(
        config,
        {
            consumer.name: (consumer.config.max_ack_pending, consumer.config.inactive_threshold)
            for consumer in hosted.consumers.values()
        },
    )
    check_resources_of_update(
        old, config, reserved(engine, tenant, old), tenant.limits, engine.server_limits
    )
    yield from checked_overlap(config, tenant.owners)
    meta = hosted.stream.meta_with(config)
    try:
        if (folder := hosted.stream.folder) is not None:
            tenant.changing[name] = _concerns_nobody_else(old, config)
            try:
                yield folder.rewrite(meta)
            finally:
                del tenant.changing[name]
        for _ in hosted.stream.before_change(config):
            yield let_others_go_first
        hosted.apply(meta, config)
        yield from hosted.catch_up()
    except StoreError as error:
        raise errors.STREAM_UPDATE(err=str(error)) from None
    engine.advisories.stream_action(tenant.account, config.name, "modify")
    return hosted


def _concerns_nobody_else(old: StreamConfig, new: StreamConfig) -> bool:
    """Whether an update changes nothing that the checks of other streams read."""
    return all(
        field in OWN_FIELDS or getattr(old, field) == getattr(new, field)
        for field in StreamConfig.__struct_fields__
    )


def _check_chain(hosted: HostedStream, config: StreamConfig) -> None:
    """ApiError if the chain settings in the metadata can no longer be changed."""
    files = hosted.stream.files
    size = 0 if files is None or files.chain is None else files.chain.links.size
    check_chain_update(
        chain_rule_of(hosted.config.metadata),
        chain_rule_of(config.metadata),
        size=size,
        msgs=hosted.stream.store.msgs,
    )


def delete_stream(engine: JetStreamEngine, hosted: HostedStream) -> Steps[None]:
    """Delete a stream with its messages and consumers; their disk space is released later."""
    if hosted.stream.folder is not None:
        try:
            yield from check_disk(engine)
        except StoreError as error:
            raise errors.STREAM_DELETE(err=str(error)) from None
        if not hosted.is_attached:
            raise errors.STREAM_NOT_FOUND()
    for consumer in list(hosted.consumers.values()):
        hosted.remove_consumer(consumer, DELETED)
        engine.advisories.consumer_action(
            hosted.tenant.account, hosted.name, consumer.name, "delete"
        )
    hosted.retire()
    if (folder := hosted.stream.folder) is not None:
        try:
            yield folder.retirement()
        except StoreError as error:
            if not folder.is_retired:
                hosted.tenant.problems[hosted.name] = f"it could not be deleted: {error}"
            raise errors.STREAM_DELETE(err=str(error)) from None
        if hosted.tenant.transactions is not None:
            yield from hosted.tenant.transactions.void(hosted)
        engine.removals.add(folder, folder.remove_retired, hosted.removed)
    for _ in hosted.stream.store.free_steps():
        yield let_others_go_first
    engine.advisories.stream_action(hosted.tenant.account, hosted.name, "delete")


def delete_offline_stream(
    engine: JetStreamEngine, tenant: JetStreamAccount, name: str
) -> Steps[None]:
    """Delete a stream that could not be opened, on request."""
    assert engine.root is not None
    folder = engine.root.stream(tenant.name, name)
    try:
        yield folder.retirement()
    except StoreError as error:
        raise errors.STREAM_DELETE(err=str(error)) from None
    del tenant.problems[name]

    def removed(error: Exception | None) -> None:
        if error is not None:
            engine.log.error(f"JetStream cannot remove '{tenant.name} > {name}' from disk: {error}")

    engine.removals.add(folder, folder.remove_retired, removed)
    engine.advisories.stream_action(tenant.account, name, "delete")
