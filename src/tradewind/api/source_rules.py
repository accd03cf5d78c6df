"""The rules for mirrors and sources of a stream.

Owns them in the order of nats-server. They consider the other streams of the account, if these
exist: an origin may be created later, or belong to another account.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tradewind.api import errors
from tradewind.api.errors import STREAM_INVALID_CONFIG, ApiError
from tradewind.api.names import is_valid_name
from tradewind.api.stream_types import StreamConfig, StreamSource
from tradewind.api.subject_tree import has_subset, numbered
from tradewind.route.mapping import MappingError, check_mapping
from tradewind.subjects import collide, is_valid_literal, is_valid_subject

_API_PREFIX: Final = "$JS.API"


def check_mirror_and_sources(
    config: StreamConfig, streams: Mapping[str, StreamConfig], *, pedantic: bool, domain: str = ""
) -> StreamConfig:
    """The configuration with what a mirror takes over from its origin; ApiError if it is wrong.

    `domain` is that of the server, by which streams may call their own account.
    """
    if config.mirror is not None:
        config = _check_mirror(config, config.mirror, streams, pedantic=pedantic)
    if config.sources and config.allow_msg_schedules:
        raise errors.SOURCE_WITH_MSG_SCHEDULES()
    _check_sources(config, streams)
    _check_external(config, streams)
    _check_cycles(config, streams, domain)
    return config


def is_local(source: StreamSource, domain: str) -> bool:
    """Whether the origin is a stream of the same account of this server, whose domain this is."""
    external = source.external
    return (
        external is None
        or not external.api
        or (bool(domain) and external.api == f"$JS.{domain}.API")
    )


def check_source_filters(config: StreamConfig) -> None:
    """The check of filters that the official server makes last, when it makes the stream."""
    for source in _all_sources(config):
        if source.filter_subject and not is_valid_subject(source.filter_subject):
            what = "mirror" if source is config.mirror else "source:"
            text = f"subject filter '{source.filter_subject}' for the {what} invalid subject"
            raise errors.STREAM_CREATE(err=text)


def _check_mirror(
    config: StreamConfig,
    mirror: StreamSource,
    streams: Mapping[str, StreamConfig],
    *,
    pedantic: bool,
) -> StreamConfig:
    if config.first_seq > 0:
        raise errors.MIRROR_WITH_FIRST_SEQ()
    if config.subjects:
        raise errors.MIRROR_WITH_SUBJECTS()
    if config.sources:
        raise errors.MIRROR_WITH_SOURCES()
    if config.allow_msg_counter:
        raise errors.MIRROR_WITH_COUNTERS()
    if config.allow_atomic:
        raise errors.MIRROR_WITH_ATOMIC_PUBLISH()
    if config.allow_batched:
        raise errors.MIRROR_WITH_BATCH_PUBLISH()
    if config.allow_msg_schedules:
        raise errors.MIRROR_WITH_MSG_SCHEDULES()
    if not _has_valid_consumer(mirror):
        raise errors.MIRROR_DURABLE_CONSUMER_CONFIG_INVALID()
    if mirror.filter_subject and mirror.subject_transforms:
        raise errors.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED()
    if config.subject_delete_marker_ttl > 0:
        raise STREAM_INVALID_CONFIG(err="subject delete markers forbidden on mirrors")
    _check_mirror_transforms(mirror)
    if mirror.external is not None:
        return config
    if not is_valid_name(mirror.name):
        raise errors.MIRROR_INVALID_STREAM_NAME()
    origin = streams.get(mirror.name)
    if origin is None:
        return config
    if 0 < config.max_msg_size < origin.max_msg_size:
        raise errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG()
    if pedantic and config.mirror_direct != origin.allow_direct:
        raise errors.PEDANTIC(err="origin stream has direct get set, mirror has it disabled")
    return msgspec.structs.replace(config, mirror_direct=origin.allow_direct)


def _has_valid_consumer(source: StreamSource) -> bool:
    """Whether a durable consumer to read through, if there is one, is named and stands alone."""
    consumer = source.consumer
    return consumer is None or (
        is_valid_name(consumer.name)
        and is_valid_literal(consumer.deliver_subject)
        and not source.opt_start_seq
        and source.opt_start_time is None
        and not source.filter_subject
    )


def _check_mirror_transforms(mirror: StreamSource) -> None:
    filters = [transform.src for transform in mirror.subject_transforms]
    tree = numbered(filters)
    steps = tree.steps_for(filters)
    for index, transform in enumerate(mirror.subject_transforms):
        if transform.src and not is_valid_subject(transform.src):
            raise errors.MIRROR_INVALID_SUBJECT_FILTER(err=f"invalid subject {transform.src}")
        try:
            check_mapping(transform.src, transform.dest)
        except MappingError as error:
            raise errors.MIRROR_INVALID_TRANSFORM_DESTINATION(err=str(error)) from None
        if any(found != index for found in tree.colliding(transform.src, steps)):
            raise errors.MIRROR_OVERLAPPING_SUBJECT_FILTERS()


def _check_sources(config: StreamConfig, streams: Mapping[str, StreamConfig]) -> None:
    seen: set[tuple[object, ...]] = set()
    consumers: set[tuple[str, str, str]] = set()
    for source in config.sources:
        if not is_valid_name(source.name):
            raise errors.SOURCE_INVALID_STREAM_NAME()
        api = source.external.api if source.external else ""
        identity = (
            source.name,
            api,
            source.filter_subject,
            tuple((transform.src, transform.dest) for transform in source.subject_transforms),
        )
        if identity in seen:
            raise errors.SOURCE_DUPLICATE_DETECTED()
        seen.add(identity)
        if source.filter_subject and source.subject_transforms:
            raise errors.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED()
        _check_source_transforms(source)
        if source.consumer is not None:
            if not _has_valid_consumer(source):
                raise errors.SOURCE_DURABLE_CONSUMER_CONFIG_INVALID()
            reader = (source.name, api, source.consumer.name)
            if reader in consumers:
                raise errors.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED()
            consumers.add(reader)
        origin = streams.get(source.name) if source.external is None else None
        if origin is not None and 0 < config.max_msg_size < origin.max_msg_size:
            raise errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG()


def _check_source_transforms(source: StreamSource) -> None:
    for transform in source.subject_transforms:
        if transform.src and not is_valid_subject(transform.src):
            raise errors.SOURCE_INVALID_SUBJECT_FILTER(err=f"invalid subject {transform.src}")
        try:
            check_mapping(transform.src, transform.dest)
        except MappingError as error:
            raise errors.SOURCE_INVALID_TRANSFORM_DESTINATION(err=str(error)) from None
    if has_subset([transform.src for transform in source.subject_transforms]):
        raise errors.SOURCE_OVERLAPPING_SUBJECT_FILTERS()


def _all_sources(config: StreamConfig) -> Iterator[StreamSource]:
    if config.mirror is not None:
        yield config.mirror
    yield from config.sources


def _check_external(config: StreamConfig, streams: Mapping[str, StreamConfig]) -> None:
    subjects = [
        subject
        for source in _all_sources(config)
        if source.external is None and source.name in streams
        for subject in streams[source.name].subjects
    ]
    externals = [source.external for source in _all_sources(config) if source.external]
    for external in externals:
        prefix = external.deliver
        if prefix and not is_valid_literal(prefix):
            raise errors.STREAM_INVALID_EXTERNAL_DELIVER_SUBJECT(prefix=prefix)
        for subject in subjects if prefix else ():
            if collide(subject, f"{prefix}.{subject}"):
                raise errors.STREAM_EXTERNAL_DELIVER_PREFIX_OVERLAPS(prefix=prefix, subject=subject)
    for external in externals:
        prefix = external.api
        if prefix and not is_valid_literal(prefix):
            raise STREAM_INVALID_CONFIG(
                err=f'stream external api prefix "{prefix}" '
                "must be a valid subject without wildcards"
            )
        if prefix and collide(prefix, _API_PREFIX):
            raise errors.STREAM_EXTERNAL_API_OVERLAP(prefix=prefix, subject=_API_PREFIX)


def _check_cycles(config: StreamConfig, streams: Mapping[str, StreamConfig], domain: str) -> None:
    to_visit = [config]
    visited: set[str] = set()
    while to_visit:
        current = to_visit.pop(0)
        visited.add(current.name)
        for source in current.sources:
            if not is_local(source, domain):
                continue
            if source.name in visited:
                if _feeds_back(current, source):
                    raise _cycle()
            elif source.name in streams:
                to_visit.append(streams[source.name])
        mirror = current.mirror
        if mirror is not None and is_local(mirror, domain):
            if mirror.name in visited:
                raise _cycle()
            if mirror.name in streams:
                to_visit.append(streams[mirror.name])


def _feeds_back(config: StreamConfig, source: StreamSource) -> bool:
    subject_filter = source.filter_subject
    return not subject_filter or any(
        collide(subject, subject_filter) for subject in config.subjects
    )


def _cycle() -> ApiError:
    return STREAM_INVALID_CONFIG(err="detected cycle")
