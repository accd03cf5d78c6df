"""The rules for mirrors and sources of a stream.

Owns them in the order of nats-server. They consider the other streams of the account, if these
exist: an origin may be created later, or belong to another account.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from tradewind.api import errors
from tradewind.api.errors import STREAM_INVALID_CONFIG, ApiError
from tradewind.api.names import is_valid_name
from tradewind.api.stream_types import StreamConfig, StreamSource
from tradewind.api.subject_tree import (
    FULL_WILDCARD,
    Effort,
    SubjectTree,
    has_subset,
    numbered,
)
from tradewind.route.mapping import MappingError, check_mapping
from tradewind.subjects import collide, is_valid_literal, is_valid_subject

_API_PREFIX: Final = "$JS.API"
# Comparing two texts of this length takes as long as visiting a node of a tree.
_CHARACTERS_PER_VISIT: Final = 16


def check_mirror_and_sources(
    config: StreamConfig, streams: Mapping[str, StreamConfig], *, pedantic: bool, domain: str = ""
) -> StreamConfig:
    """Check mirror and sources; returns the configuration with the settings that a mirror takes
    over from its origin. ApiError if they are invalid.

    `domain` is that of the server, by which streams may refer to their own account.
    """
    if config.mirror is not None:
        config = _check_mirror(config, config.mirror, streams, pedantic=pedantic)
    if config.mirror is None and not config.sources:
        return config
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
    """Check filters as the official server does last, when it creates the stream."""
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
    """Whether the durable consumer to read through, if there is one, is named and without
    conflicting settings.
    """
    consumer = source.consumer
    return consumer is None or (
        is_valid_name(consumer.name)
        and is_valid_literal(consumer.deliver_subject)
        and not source.opt_start_seq
        and source.opt_start_time is None
        and not source.filter_subject
    )


def _check_mirror_transforms(mirror: StreamSource) -> None:
    sources = [transform.src for transform in mirror.subject_transforms]
    tree = numbered(sources)
    effort = tree.effort(sources)
    for index, transform in enumerate(mirror.subject_transforms):
        if transform.src and not is_valid_subject(transform.src):
            raise errors.MIRROR_INVALID_SUBJECT_FILTER(err=f"invalid subject {transform.src}")
        try:
            check_mapping(transform.src, transform.dest)
        except MappingError as error:
            raise errors.MIRROR_INVALID_TRANSFORM_DESTINATION(err=str(error)) from None
        if tree.others(index, transform.src, effort):
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
    externals = [source.external for source in _all_sources(config) if source.external]
    prefixes = {external.deliver for external in externals if external.deliver}
    overlaps = _PrefixOverlaps(config, streams, prefixes)
    for external in externals:
        prefix = external.deliver
        if prefix and not is_valid_literal(prefix):
            raise errors.STREAM_INVALID_EXTERNAL_DELIVER_SUBJECT(prefix=prefix)
        subject = overlaps.first(prefix) if prefix in prefixes else None
        if subject is not None:
            raise errors.STREAM_EXTERNAL_DELIVER_PREFIX_OVERLAPS(prefix=prefix, subject=subject)
        prefixes.discard(prefix)
    for external in externals:
        prefix = external.api
        if prefix and not is_valid_literal(prefix):
            raise STREAM_INVALID_CONFIG(
                err=f'stream external api prefix "{prefix}" '
                "must be a valid subject without wildcards"
            )
        if prefix and collide(prefix, _API_PREFIX):
            raise errors.STREAM_EXTERNAL_API_OVERLAP(prefix=prefix, subject=_API_PREFIX)


class _PrefixOverlaps:
    """The subjects of local origins, which must not match themselves after a prefix.

    After a literal prefix a subject is longer, so only one that ends in '>' can match it. Subjects
    that match something after the prefix are found in a tree; examining each origin for each prefix
    would take the product of two lists of the request.
    """

    def __init__(
        self, config: StreamConfig, streams: Mapping[str, StreamConfig], prefixes: Collection[str]
    ) -> None:
        names = (source.name for source in _all_sources(config) if source.external is None)
        self._subjects = [
            subject
            for name in (dict.fromkeys(names) if prefixes else ())
            if name in streams
            for subject in streams[name].subjects
            if subject.endswith(FULL_WILDCARD)
        ]
        self._tree = numbered(self._subjects)
        self._effort = self._tree.effort(prefixes)

    def first(self, prefix: str) -> str | None:
        """The first subject that matches itself after the prefix."""
        found = [
            number
            for number in self._tree.colliding(f"{prefix}.{FULL_WILDCARD}", self._effort)
            if self._matches_behind(prefix, self._subjects[number])
        ]
        return self._subjects[min(found)] if found else None

    def _matches_behind(self, prefix: str, subject: str) -> bool:
        self._effort.spend((len(prefix) + len(subject)) // _CHARACTERS_PER_VISIT)
        return collide(subject, f"{prefix}.{subject}")


class _Queue:
    """The streams to be checked for a cycle, in the order of nats-server.

    A stream may be named by thousands of sources. Checking it a second time can find a cycle only
    because others were checked meanwhile, so of all times the first and the last are enough.
    """

    def __init__(self, first: StreamConfig) -> None:
        self.visited: set[str] = set()
        self._waiting: deque[StreamConfig] = deque((first,))
        self._counts = {first.name: 1}

    def add(self, stream: StreamConfig) -> None:
        self._waiting.append(stream)
        self._counts[stream.name] = self._counts.get(stream.name, 0) + 1

    def __iter__(self) -> Iterator[StreamConfig]:
        while self._waiting:
            stream = self._waiting.popleft()
            self._counts[stream.name] -= 1
            if stream.name not in self.visited or not self._counts[stream.name]:
                self.visited.add(stream.name)
                yield stream


def _check_cycles(config: StreamConfig, streams: Mapping[str, StreamConfig], domain: str) -> None:
    queue = _Queue(config)
    for current in queue:
        feedback = _Feedback(current)
        for source in current.sources:
            if not is_local(source, domain):
                continue
            if source.name in queue.visited:
                if feedback.comes_from(source):
                    raise _cycle()
            elif source.name in streams:
                queue.add(streams[source.name])
        mirror = current.mirror
        if mirror is not None and is_local(mirror, domain):
            if mirror.name in queue.visited:
                raise _cycle()
            if mirror.name in streams:
                queue.add(streams[mirror.name])


class _Feedback:
    """The sources of a stream that bring messages which it takes by its own subjects."""

    def __init__(self, config: StreamConfig) -> None:
        self._config = config
        self._tree: SubjectTree[int] | None = None
        self._effort: Effort | None = None

    def comes_from(self, source: StreamSource) -> bool:
        if not source.filter_subject:
            return True
        if self._tree is None or self._effort is None:
            self._tree = numbered(self._config.subjects)
            filters = [other.filter_subject for other in self._config.sources]
            self._effort = self._tree.effort(filters)
        return any(True for _ in self._tree.colliding(source.filter_subject, self._effort))


def _cycle() -> ApiError:
    return STREAM_INVALID_CONFIG(err="detected cycle")
