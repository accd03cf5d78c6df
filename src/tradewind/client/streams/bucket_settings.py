"""Translates the settings of a bucket into those of its stream.

Owns names and settings of key-value buckets and object stores, which all NATS clients share, and
the comparison of an existing stream with the requested settings. It never contacts the server.

    key-value bucket B     stream KV_B     subjects $KV.B.>
    object store B         stream OBJ_B    subjects $O.B.C.> (chunks) and $O.B.M.> (descriptions)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

import msgspec

from tradewind.api.field_shapes import Shape, shapes_of
from tradewind.api.names import KV_STREAM, KV_SUBJECTS, OBJECT_STREAM, OBJECT_SUBJECTS
from tradewind.api.stream_types import (
    Compression,
    DiscardPolicy,
    Placement,
    RePublish,
    StorageType,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)
from tradewind.client.core.duration_input import DurationInput
from tradewind.client.errors import BucketExistsError, OptionsError
from tradewind.client.streams.config_settings import check_names, member_of
from tradewind.client.streams.setting_types import PlacementSettings, RePublishSettings, Storage
from tradewind.durations import SECOND_NS

HISTORY_MAX: Final = 64
DUPLICATE_WINDOW_NS_MAX: Final = 120_000_000_000
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")


class BucketSettings(TypedDict, total=False):
    """The settings that key-value buckets and object stores have in common.

    `ttl` is the maximum age of the content: seconds, a timedelta or a text such as "7d"; 0: none.
    `max_bytes` bounds the whole bucket; -1: no limit. `storage` is "file" or "memory".
    """

    description: str
    metadata: Mapping[str, str]
    ttl: DurationInput
    max_bytes: int
    storage: Storage
    replicas: int
    compression: bool
    placement: Placement | PlacementSettings | None


class KvSettings(BucketSettings, total=False):
    """The settings of a key-value bucket; `BucketSettings` has the rest.

    `history` is the number of values stored per key, 1 to 64. `allow_ttl` switches on values with a
    time to live of their own; `marker_ttl` does too, and is how long markers notify watchers of
    keys that expired (the server raises shorter times to live to it, unless history is 1).
    `mirror` names a bucket of which this is a read-only copy, `sources` buckets whose values are
    copied into this one.
    """

    history: int
    max_value_size: int
    allow_ttl: bool
    marker_ttl: DurationInput
    republish: RePublish | RePublishSettings | None
    mirror: str | StreamSource | None
    sources: Sequence[str | StreamSource]


def check_bucket(bucket: str) -> None:
    """OptionsError if it cannot be the name of a bucket."""
    if not _BUCKET.fullmatch(bucket):
        raise OptionsError(f"bucket {bucket!r}: letters, digits, '-' and '_'")


def kv_config(bucket: str, settings: Mapping[str, Any]) -> StreamConfig:
    """The stream of a key-value bucket."""
    settings = _checked(settings, KvSettings)
    history = settings.get("history", 1)
    if not 1 <= history <= HISTORY_MAX:
        raise OptionsError(f"history: 1 to {HISTORY_MAX} values per key, not {history}")
    marker_ttl_ns = settings.get("marker_ttl", 0)
    if 0 < marker_ttl_ns < SECOND_NS:
        raise OptionsError("marker_ttl must be at least 1 second; numbers are seconds")
    ttl_ns = settings.get("ttl", 0)
    mirror = settings.get("mirror")
    return msgspec.structs.replace(
        _common(KV_STREAM, bucket, settings),
        subjects=[] if mirror else [f"{KV_SUBJECTS}{bucket}.>"],
        max_msgs_per_subject=history,
        max_msg_size=settings.get("max_value_size", -1),
        duplicate_window=min(ttl_ns or DUPLICATE_WINDOW_NS_MAX, DUPLICATE_WINDOW_NS_MAX),
        deny_delete=True,
        allow_msg_ttl=bool(settings.get("allow_ttl")) or marker_ttl_ns > 0,
        subject_delete_marker_ttl=marker_ttl_ns,
        republish=settings.get("republish"),
        mirror=_mirror("mirror", mirror) if mirror else None,
        mirror_direct=bool(mirror),
        sources=[_source(bucket, item) for item in settings.get("sources", ())],
    )


def object_config(bucket: str, settings: Mapping[str, Any]) -> StreamConfig:
    """The stream of an object store."""
    settings = _checked(settings, BucketSettings)
    return msgspec.structs.replace(
        _common(OBJECT_STREAM, bucket, settings),
        subjects=[f"{OBJECT_SUBJECTS}{bucket}.C.>", f"{OBJECT_SUBJECTS}{bucket}.M.>"],
    )


def _common(prefix: str, bucket: str, settings: Mapping[str, Any]) -> StreamConfig:
    check_bucket(bucket)
    return StreamConfig(
        name=prefix + bucket,
        description=settings.get("description", ""),
        metadata=dict(settings.get("metadata") or {}),
        max_age=settings.get("ttl", 0),
        max_bytes=settings.get("max_bytes", -1),
        max_msgs=-1,
        max_consumers=-1,
        storage=settings.get("storage", StorageType.FILE),
        num_replicas=settings.get("replicas", 1),
        placement=settings.get("placement"),
        compression=Compression.S2 if settings.get("compression") else Compression.NONE,
        discard=DiscardPolicy.NEW,
        allow_rollup_hdrs=True,
        allow_direct=True,
    )


def _mirror(name: str, origin: object) -> StreamSource:
    if isinstance(origin, StreamSource):
        return msgspec.structs.replace(origin, name=_stream_name(origin.name))
    if not isinstance(origin, str):
        raise OptionsError(f"{name} must be the name of a bucket or a StreamSource, not {origin!r}")
    return StreamSource(name=_stream_name(origin))


def _source(bucket: str, origin: object) -> StreamSource:
    """A bucket to copy from; its keys stay the same, so the subjects need another beginning."""
    source = _mirror("sources", origin)
    if source.subject_transforms:
        return source
    theirs = source.name.removeprefix(KV_STREAM)
    transform = SubjectTransform(src=f"{KV_SUBJECTS}{theirs}.>", dest=f"{KV_SUBJECTS}{bucket}.>")
    return msgspec.structs.replace(source, subject_transforms=[transform])


def _stream_name(bucket: str) -> str:
    return bucket if bucket.startswith(KV_STREAM) else KV_STREAM + bucket


def _checked(settings: Mapping[str, Any], known: type) -> dict[str, Any]:
    """The settings with values as the stream has them: durations in nanoseconds."""
    check_names("a bucket", settings, known.__annotations__)
    shapes = shapes_of(StreamConfig)
    made = dict(settings)
    for name, value in settings.items():
        member = _MEMBERS.get(name, (name,))[0]
        if name == "compression":
            made[name] = member_of(name, value, _SWITCH)
        elif name not in ("mirror", "sources") and not (name == "metadata" and value is None):
            made[name] = member_of(name, value, shapes[member])
    return made


# Compression is on or off, where a stream names its kind.
_SWITCH: Final = Shape("bool", "bool")
# The members of the stream that a setting decides, where they are not one of the same name.
_MEMBERS: Final = {
    "history": ("max_msgs_per_subject",),
    "max_value_size": ("max_msg_size",),
    "ttl": ("max_age", "duplicate_window"),
    "replicas": ("num_replicas",),
    "allow_ttl": ("allow_msg_ttl",),
    "marker_ttl": ("subject_delete_marker_ttl", "allow_msg_ttl"),
    "mirror": ("mirror", "mirror_direct", "subjects"),
}


def changed_members(config: StreamConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a stream that these settings decide, with their values."""
    names = [name for setting in settings for name in _MEMBERS.get(setting, (setting,))]
    return {name: getattr(config, name) for name in names}


def check_same(
    bucket: str, wanted: StreamConfig, found: StreamConfig, settings: Mapping[str, Any]
) -> None:
    """BucketExistsError if an existing bucket differs in one of these settings.

    Only what the program asked for is compared: other clients have other defaults.
    """
    for setting in settings:
        member = _MEMBERS.get(setting, (setting,))[0]
        wants, has = getattr(wanted, member), getattr(found, member)
        if member == "metadata":  # the server adds members of its own
            has = {key: value for key, value in has.items() if key in wants}
        if wants != has:
            raise BucketExistsError(
                f"bucket {bucket!r} exists with another {setting}: use update to change it, or "
                "open to use it as it is"
            )
