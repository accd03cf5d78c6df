"""Translates configurations between the previews and the current API.

Owns the names of fields and values. It never validates a configuration, which is up to
`tradewind.api`, except for rules that the current engine no longer has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, DeliverPolicy, ReplayPolicy
from tradewind.api.legacy_marks import LEGACY_KEY, LEGACY_SETS
from tradewind.api.stream_types import RetentionPolicy, StorageType, StreamConfig
from tradewind.api.times import ZERO_TIME, ZERO_TIME_NS, parse_time
from tradewind.jetstream.legacy.dialects import LegacyRefusal
from tradewind.subjects import is_literal, is_subset_of_any

if TYPE_CHECKING:
    from tradewind.jetstream.legacy.dialects import Dialect

BAD_REQUEST: Final = "bad request"
# Go's types: a number that they do not hold is not a number to it.
_Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Uint64 = Annotated[int, Meta(ge=0)]
_UINT64_MAX: Final = (1 << 64) - 1
_RETENTIONS: Final = {
    "stream_limits": RetentionPolicy.LIMITS,
    "interest_based": RetentionPolicy.INTEREST,
    "work_queue": RetentionPolicy.WORK_QUEUE,
    "limits": RetentionPolicy.LIMITS,
    "interest": RetentionPolicy.INTEREST,
    "workqueue": RetentionPolicy.WORK_QUEUE,
}
_SET_RETENTIONS: Final = {
    RetentionPolicy.LIMITS: "stream_limits",
    RetentionPolicy.INTEREST: "interest_based",
    RetentionPolicy.WORK_QUEUE: "work_queue",
}


class LegacyStreamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A MsgSetConfig or StreamConfig; unknown members are ignored, as in Go."""

    name: str = ""
    subjects: list[str] | None = None
    retention: str = "limits"
    max_observables: _Int64 = 0
    max_consumers: _Int64 = 0
    max_msgs: _Int64 = 0
    max_bytes: _Int64 = 0
    max_age: _Int64 = 0
    max_msg_size: _Int32 = 0
    storage: str = "file"
    num_replicas: _Int64 = 0
    no_ack: bool = False


class LegacyConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An ObservableConfig or ConsumerConfig."""

    delivery_subject: str = ""
    durable_name: str = ""
    msg_set_seq: _Uint64 = 0
    stream_seq: _Uint64 = 0
    start_time: str = ZERO_TIME
    deliver_all: bool = False
    deliver_last: bool = False
    ack_policy: str = "none"
    ack_wait: _Int64 = 0
    max_deliver: _Int64 = 0
    subject: str = ""
    filter_subject: str = ""
    replay_policy: str = "instant"
    sample_freq: str = ""


class LegacyConsumerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request that creates an observable or a consumer."""

    msg_set_name: str = ""
    stream_name: str = ""
    config: LegacyConsumerConfig = msgspec.field(default_factory=LegacyConsumerConfig)


_Document = TypeVar("_Document")


def decode_stream(body: bytes) -> LegacyStreamConfig:
    """Decode a stream configuration; LegacyRefusal if the body is invalid."""
    return _decode(body, LegacyStreamConfig)


def decode_consumer(body: bytes) -> LegacyConsumerRequest:
    """Decode a consumer request; LegacyRefusal if the body is invalid."""
    return _decode(body, LegacyConsumerRequest)


def _decode(body: bytes, kind: type[_Document]) -> _Document:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise LegacyRefusal(BAD_REQUEST) from None


def stream_config(old: LegacyStreamConfig, dialect: Dialect) -> StreamConfig:
    """Translate a stream configuration of a preview into a current one."""
    if old.retention not in _RETENTIONS or old.storage not in ("file", "memory"):
        raise LegacyRefusal(BAD_REQUEST)
    return StreamConfig(
        name=old.name,
        subjects=old.subjects or [],
        retention=_RETENTIONS[old.retention],
        max_consumers=old.max_observables or old.max_consumers,
        max_msgs=old.max_msgs,
        max_bytes=old.max_bytes,
        max_age=max(old.max_age, 0),
        max_msg_size=old.max_msg_size,
        storage=StorageType(old.storage),
        num_replicas=old.num_replicas,
        no_ack=old.no_ack,
        metadata={LEGACY_KEY: dialect.mark},
    )


def stream_document(config: StreamConfig, dialect: Dialect) -> dict[str, Any]:
    """Translate a stream configuration into the form of the preview."""
    is_sets = dialect.mark == LEGACY_SETS
    retention = _SET_RETENTIONS[config.retention] if is_sets else config.retention.value
    document: dict[str, Any] = {"name": config.name}
    if config.subjects:
        document["subjects"] = list(config.subjects)
    document["retention"] = retention
    document["max_observables" if is_sets else "max_consumers"] = config.max_consumers
    document |= {
        "max_msgs": config.max_msgs,
        "max_bytes": config.max_bytes,
        "max_age": config.max_age,
        "max_msg_size": config.max_msg_size,
        "storage": config.storage.value,
        "num_replicas": config.num_replicas,
    }
    if config.no_ack:
        document["no_ack"] = True
    return document


def consumer_config(
    old: LegacyConsumerConfig, stream: StreamConfig, dialect: Dialect
) -> ConsumerConfig:
    """Translate a consumer configuration of a preview; LegacyRefusal with the preview's text."""
    one = dialect.consumer
    is_sets = dialect.mark == LEGACY_SETS
    if old.ack_policy not in ("none", "all", "explicit"):
        raise LegacyRefusal(BAD_REQUEST)
    if old.replay_policy not in ("instant", "original"):
        raise LegacyRefusal(BAD_REQUEST)
    policy, start_seq, start_time = _start(old, one)
    wanted = old.subject or old.filter_subject
    if wanted:
        _check_filter(wanted, stream, old, dialect)
    if not old.delivery_subject:
        if old.ack_policy != "explicit":
            raise LegacyRefusal(f"{one} in pull mode requires explicit ack policy")
        if not old.durable_name:
            raise LegacyRefusal(f"{one} in pull mode requires a durable name")
    elif stream.retention is RetentionPolicy.WORK_QUEUE and is_sets:
        raise LegacyRefusal("delivery subject not allowed on workqueue message set")
    if any(character in old.durable_name for character in ".*>"):
        raise LegacyRefusal("durable name can not contain '.', '*', '>'")
    return ConsumerConfig(
        durable_name=old.durable_name,
        deliver_policy=policy,
        opt_start_seq=start_seq,
        opt_start_time=start_time,
        ack_policy=AckPolicy(old.ack_policy),
        ack_wait=old.ack_wait,
        max_deliver=old.max_deliver,
        filter_subject=wanted,
        replay_policy=ReplayPolicy(old.replay_policy),
        sample_freq=old.sample_freq,
        deliver_subject=old.delivery_subject,
        metadata={LEGACY_KEY: dialect.mark},
    )


def _start(old: LegacyConsumerConfig, one: str) -> tuple[DeliverPolicy, int, str | None]:
    """Translate the start position: at most one may be given, none means new messages only."""
    seq = old.msg_set_seq or old.stream_seq
    if seq > _UINT64_MAX:
        raise LegacyRefusal(BAD_REQUEST)
    try:
        has_time = parse_time(old.start_time) != ZERO_TIME_NS
    except ValueError:
        raise LegacyRefusal(BAD_REQUEST) from None
    if (seq > 0) + has_time + old.deliver_all + old.deliver_last > 1:
        raise LegacyRefusal(f"{one} starting position conflict")
    if seq > 0:
        return DeliverPolicy.BY_START_SEQUENCE, seq, None
    if has_time:
        return DeliverPolicy.BY_START_TIME, 0, old.start_time
    if old.deliver_all:
        return DeliverPolicy.ALL, 0, None
    return (DeliverPolicy.LAST if old.deliver_last else DeliverPolicy.NEW), 0, None


def _check_filter(
    wanted: str, stream: StreamConfig, old: LegacyConsumerConfig, dialect: Dialect
) -> None:
    is_sets = dialect.mark == LEGACY_SETS
    word = "partition" if is_sets else "filter subject"
    if is_sets and not is_literal(wanted):
        raise LegacyRefusal("observable partition subject has wildcards")
    if not is_subset_of_any(wanted, stream.subjects):
        verb = "" if is_sets else "is "
        raise LegacyRefusal(
            f"{dialect.consumer} {word} {verb}not a valid subset of the interest subjects"
        )
    if old.ack_policy == "all" and is_sets:
        raise LegacyRefusal("observable with partition can not have ack policy all")


def consumer_document(config: ConsumerConfig, dialect: Dialect) -> dict[str, Any]:
    """Translate a consumer configuration into the form of the preview, without empty members."""
    is_sets = dialect.mark == LEGACY_SETS
    policy = config.deliver_policy
    fields: dict[str, Any] = {
        "delivery_subject": config.deliver_subject,
        "durable_name": config.durable_name,
        "msg_set_seq" if is_sets else "stream_seq": config.opt_start_seq,
        "start_time": config.opt_start_time or ZERO_TIME,
        "deliver_all": policy is DeliverPolicy.ALL,
        "deliver_last": policy in (DeliverPolicy.LAST, DeliverPolicy.LAST_PER_SUBJECT),
        "ack_policy": config.ack_policy.value,
        "ack_wait": config.ack_wait,
        "max_deliver": config.max_deliver,
        "subject" if is_sets else "filter_subject": config.filter_subject,
        "replay_policy": config.replay_policy.value,
        "sample_freq": config.sample_freq,
    }
    if is_sets:
        del fields["max_deliver"], fields["sample_freq"]
    return {name: value for name, value in fields.items() if value or name == "delivery_subject"}
