"""Translates between declarations in a file and configurations of streams, consumers and buckets.

Owns both directions. A file omits defaults, so two configurations are equal exactly if they are
written the same way. The rest of this package compares this written form.

    file                      API
    streams: ORDERS: {...}    stream ORDERS, members as in the API
    .consumers: packer: {...} durable consumer of that stream, members as in the API
    kv: settings: {...}       stream KV_settings, settings as in `client.streams.bucket_settings`
    objects: images: {...}    stream OBJ_images, likewise
    templates: k8s: {...}     template k8s, members as in the API
    .table: {to: lake/orders} metadata of a stream or bucket, see `declared_tables`
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Final

import msgspec

from tradewind.api.base import BYTES, Duration
from tradewind.api.consumer_rules import check_consumer_config, with_defaults
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.api.errors import ApiError
from tradewind.api.limits import ServerLimits
from tradewind.api.names import KV_STREAM
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.stream_rules import check_stream_config
from tradewind.api.stream_types import Compression, Placement, RePublish, StreamConfig, StreamSource
from tradewind.api.template_types import StreamTemplate, checked_template
from tradewind.cli.declared.declaration_fields import (
    Keys,
    duration_member,
    hints_of,
    read_members,
    read_struct,
    size_member,
    write_struct,
)
from tradewind.cli.declared.declared_tables import TABLE, with_declared_table, write_table
from tradewind.cli.frame.config_files import declared_metadata
from tradewind.client.errors import OptionsError
from tradewind.client.streams.bucket_settings import kv_config, object_config
from tradewind.documents import Document

# What is state, or the business of clients, and not declared in a file.
_CONSUMER_STATE: Final = ("name", "durable_name", "pause_until", "direct", "sourcing")
_BUCKET_HINTS: Final[dict[str, Any]] = {
    "description": str,
    "metadata": dict[str, str],
    "ttl": Duration,
    "max_bytes": Annotated[int, BYTES],
    "storage": str,
    "replicas": int,
    "compression": bool,
    "placement": Placement | None,
}
_KV_HINTS: Final[dict[str, Any]] = _BUCKET_HINTS | {
    "history": int,
    "max_value_size": Annotated[int, BYTES],
    "allow_ttl": bool,
    "marker_ttl": Duration,
    "republish": RePublish | None,
    "mirror": Any,
    "sources": list[Any],
}
_NO_LIMITS: Final = (ServerLimits(), JetStreamAccountLimits())


# ---------------------------------------------------------------- streams


def read_stream(document: Document, keys: Keys) -> StreamConfig:
    """The stream at `keys`, whose last key is its name; its consumers are read by themselves."""
    hints = {**hints_of(StreamConfig), "consumers": Any, TABLE: Any}
    del hints["name"]
    members = read_members(document, keys, hints)
    for other in ("consumers", TABLE):
        members.pop(other, None)
    config = msgspec.convert(members | {"name": keys[-1]}, StreamConfig)
    config = with_declared_table(document, keys, config)
    try:
        with_stream_defaults(config)
    except ApiError as error:
        raise document.error(keys, f"stream {keys[-1]}: {error.description}") from None
    return config


def with_stream_defaults(config: StreamConfig) -> StreamConfig:
    """A stream as a server has it; ApiError if no server takes it."""
    server, account = _NO_LIMITS
    sealed = msgspec.structs.replace(config, sealed=False)
    filled = check_stream_config(sealed, streams={}, pedantic=False, server=server, account=account)
    return msgspec.structs.replace(
        filled, sealed=config.sealed, metadata=declared_metadata(config.metadata)
    )


def write_stream(config: StreamConfig) -> dict[str, Any]:
    """The entry of a stream in a file, without its consumers."""
    try:
        config = with_stream_defaults(config)
    except ApiError:  # a server of another version may take what this one does not
        config = msgspec.structs.replace(config, metadata=declared_metadata(config.metadata))
    # The members that the defaults of others depend on are the same in both.
    base = with_stream_defaults(
        StreamConfig(
            name=config.name,
            subjects=config.subjects,
            max_age=config.max_age,
            mirror=config.mirror,
            sources=config.sources,
        )
    )
    base = msgspec.structs.replace(base, subjects=[], max_age=0, mirror=None, sources=[])
    return write_table(config.name, write_struct(config, base))


# ---------------------------------------------------------------- consumers


def read_consumer(document: Document, keys: Keys, stream: StreamConfig) -> ConsumerConfig:
    """The consumer at `keys`, whose last key is its name. It is durable."""
    hints = {k: v for k, v in hints_of(ConsumerConfig).items() if k not in _CONSUMER_STATE}
    members = {"ack_policy": AckPolicy.EXPLICIT} | read_members(document, keys, hints)
    name = keys[-1]
    config = msgspec.convert(members | {"name": name, "durable_name": name}, ConsumerConfig)
    server, account = _NO_LIMITS
    try:
        check_consumer_config(
            _with_consumer_defaults(config, stream), with_stream_defaults(stream), server, account
        )
    except ApiError as error:
        raise document.error(keys, f"consumer {name}: {error.description}") from None
    return config


def _with_consumer_defaults(config: ConsumerConfig, stream: StreamConfig) -> ConsumerConfig:
    server, account = _NO_LIMITS
    filled = with_defaults(config, stream, server, account, pedantic=False)
    return msgspec.structs.replace(filled, metadata=declared_metadata(config.metadata))


def write_consumer(config: ConsumerConfig, stream: StreamConfig) -> dict[str, Any]:
    """The entry of a consumer in a file."""
    config = _with_consumer_defaults(config, stream)
    deciding = ("ack_policy", "deliver_subject", "backoff", "priority_policy")
    decided = ConsumerConfig(**{name: getattr(config, name) for name in deciding})
    plain = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    base = msgspec.structs.replace(
        _with_consumer_defaults(decided, stream),
        **{name: getattr(plain, name) for name in deciding},
    )
    written = write_struct(config, base)
    return {name: value for name, value in written.items() if name not in _CONSUMER_STATE}


# ---------------------------------------------------------------- templates


def read_template(document: Document, keys: Keys) -> StreamTemplate:
    """The template at `keys`, whose last key is its name."""
    hints = {name: hint for name, hint in hints_of(StreamTemplate).items() if name != "name"}
    members = read_members(document, keys, hints)
    try:
        return checked_template(StreamTemplate(name=str(keys[-1]), **members))
    except ApiError as error:
        raise document.error(keys, f"template {keys[-1]}: {error.description}") from None


def write_template(template: StreamTemplate) -> dict[str, Any]:
    """The entry of a template in a file."""
    return write_struct(template, StreamTemplate(name=template.name))


# ---------------------------------------------------------------- buckets and stores


def read_kv(document: Document, keys: Keys) -> StreamConfig:
    """The stream of the key-value bucket at `keys`, whose last key is its name."""
    settings = _settings(read_members(document, keys, {**_KV_HINTS, TABLE: Any}))
    settings.pop(TABLE, None)
    for name in ("mirror", "sources"):
        if name in settings:
            settings[name] = _origins(document, (*keys, name), settings[name])
    return with_declared_table(document, keys, _bucket(document, keys, kv_config, settings))


def read_objects(document: Document, keys: Keys) -> StreamConfig:
    """The stream of the object store at `keys`, whose last key is its name."""
    settings = _settings(read_members(document, keys, _BUCKET_HINTS))
    return _bucket(document, keys, object_config, settings)


def _bucket(document: Document, keys: Keys, make: Any, settings: dict[str, Any]) -> StreamConfig:
    try:
        config: StreamConfig = make(str(keys[-1]), settings)
        with_stream_defaults(config)
    except (ApiError, OptionsError) as error:
        text = error.description if isinstance(error, ApiError) else str(error)
        raise document.error(keys, f"{keys[-1]}: {text}") from None
    return config


def _settings(members: dict[str, Any]) -> dict[str, Any]:
    for name in ("ttl", "marker_ttl"):
        if name in members:
            members[name] = datetime.timedelta(microseconds=members[name] / 1000)
    return members


def _origins(document: Document, keys: Keys, value: Any) -> Any:
    """The bucket that is mirrored, or those that are copied from: names, or what the API has."""
    if isinstance(value, list):
        return [_origins(document, (*keys, index), element) for index, element in enumerate(value)]
    if isinstance(value, dict):
        return read_struct(document, keys, StreamSource)
    if not isinstance(value, str):
        raise document.error(keys, f"expected the name of a bucket, not {value!r}")
    return value


def write_kv(config: StreamConfig) -> dict[str, Any]:
    """The entry of a key-value bucket in a file."""
    bucket = config.name.removeprefix(KV_STREAM)
    marker_ns = config.subject_delete_marker_ttl
    written: dict[str, Any] = _write_bucket(config)
    if config.max_msgs_per_subject > 1:
        written["history"] = config.max_msgs_per_subject
    if config.max_msg_size > 0:
        written["max_value_size"] = size_member(config.max_msg_size)
    if marker_ns:
        written["marker_ttl"] = duration_member(marker_ns)
    elif config.allow_msg_ttl:
        written["allow_ttl"] = True
    if config.republish is not None:
        written["republish"] = write_struct(config.republish, RePublish())
    if config.mirror is not None:
        written["mirror"] = _write_origin(config.mirror, StreamSource(name=config.mirror.name))
    if config.sources:
        written["sources"] = [
            _write_origin(source, _plain_source(bucket, source.name)) for source in config.sources
        ]
    return write_table(config.name, written)


def write_objects(config: StreamConfig) -> dict[str, Any]:
    """The entry of an object store in a file."""
    return _write_bucket(config)


def _write_bucket(config: StreamConfig) -> dict[str, Any]:
    metadata = declared_metadata(config.metadata)
    found = {
        "description": config.description,
        "metadata": metadata,
        "ttl": duration_member(config.max_age) if config.max_age else "",
        "max_bytes": size_member(config.max_bytes) if config.max_bytes > 0 else 0,
        "storage": config.storage.value if config.storage.value != "file" else "",
        "replicas": config.num_replicas if config.num_replicas > 1 else 0,
        "compression": config.compression is not Compression.NONE,
        "placement": write_struct(config.placement, Placement()) if config.placement else None,
    }
    return {name: value for name, value in found.items() if value}


def _plain_source(bucket: str, stream: str) -> StreamSource:
    """How a bucket is copied from unless the file says more than its name."""
    name = stream.removeprefix(KV_STREAM)
    return kv_config(bucket, {"sources": [name]}).sources[0]


def _write_origin(source: StreamSource, plain: StreamSource) -> Any:
    name = source.name.removeprefix(KV_STREAM)
    if source == plain:
        return name
    return write_struct(msgspec.structs.replace(source, name=name), StreamSource())
