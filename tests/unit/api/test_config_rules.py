"""The rules for configurations, against the answers of nats-server 2.15.1 and at their bounds."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from js_cases import ConfigCase, config_cases
from sweeps import sweep
from tradewind.api import consumer_rules, errors, stream_rules
from tradewind.api.base import encode
from tradewind.api.consumer_configs import ConsumerConfigs
from tradewind.api.consumer_types import AckPolicy, ConsumerConfig
from tradewind.api.endpoints import parse_subject
from tradewind.api.errors import ApiError, ErrorKind
from tradewind.api.limits import (
    Reservations,
    ServerLimits,
    check_resources,
    check_resources_of_update,
)
from tradewind.api.request_types import ConsumerAction, ConsumerCreateRequest, StreamConfigRequest
from tradewind.api.requests import decode_request
from tradewind.api.responses import JetStreamAccountLimits
from tradewind.api.stream_types import StorageType, StreamConfig
from tradewind.api.subject_tree import SubjectTree
from tradewind.api.versioning import answered_metadata, is_level_known

SERVER = ServerLimits(memory_bytes_max=2**40, storage_bytes_max=2**45)
ACCOUNT = JetStreamAccountLimits()
SECOND_NS = 1_000_000_000


class Engine:
    """Streams and consumers of one account as far as the rules see them."""

    def __init__(self) -> None:
        self.streams: dict[str, StreamConfig] = {}
        self.consumers = ConsumerConfigs()

    def run(self, subject: str, body: dict[str, Any]) -> StreamConfig | ConsumerConfig:
        call = parse_subject(f"$JS.API.{subject}")
        assert call is not None
        data = json.dumps(body).encode()
        if call.endpoint.request is ConsumerCreateRequest:
            return self.create_consumer(subject, decode_request(ConsumerCreateRequest, data))
        request = decode_request(StreamConfigRequest, data)
        if request.name != call.stream:
            raise errors.STREAM_MISMATCH()
        fields = {name: getattr(request, name) for name in StreamConfig.__struct_fields__}
        config = StreamConfig(**fields)
        if call.endpoint.name == "stream_create":
            return self.create_stream(config, pedantic=request.pedantic)
        return self.update_stream(config, pedantic=request.pedantic)

    def owners(self) -> SubjectTree[str]:
        owners: SubjectTree[str] = SubjectTree()
        for name, config in self.streams.items():
            owners.add(name, config.subjects)
        return owners

    def create_stream(self, config: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
        checked = stream_rules.check_stream_create(
            config, streams=self.streams, pedantic=pedantic, server=SERVER, account=ACCOUNT
        )
        if config.name not in self.streams:
            check_resources(checked, Reservations(), ACCOUNT, SERVER)
            stream_rules.check_overlap(checked, self.owners())
        self.streams[config.name] = checked
        return checked

    def update_stream(self, config: StreamConfig, *, pedantic: bool) -> StreamConfig:
        old = self.streams.get(config.name)
        if old is None:
            raise errors.STREAM_NOT_FOUND()
        limits = {"server": SERVER, "account": ACCOUNT}
        checked = stream_rules.check_stream_config(
            config, streams=self.streams, pedantic=pedantic, **limits
        )
        checked = stream_rules.check_stream_update(
            old, checked, streams=self.streams, pedantic=pedantic, **limits
        )
        check_resources_of_update(old, checked, Reservations(), ACCOUNT, SERVER)
        stream_rules.check_overlap(checked, self.owners())
        stream_rules.check_consumer_limits(
            checked,
            {
                name: (consumer.max_ack_pending, consumer.inactive_threshold)
                for name, consumer in self.consumers.items()
            },
        )
        self.streams[config.name] = checked
        return checked

    def create_consumer(self, subject: str, request: ConsumerCreateRequest) -> ConsumerConfig:
        call = parse_subject(f"$JS.API.{subject}")
        assert call is not None
        config = consumer_rules.check_consumer_request(call, request)
        if call.stream not in self.streams:
            raise errors.STREAM_NOT_FOUND()
        checked = consumer_rules.check_consumer_create(
            config,
            stream=self.streams[call.stream],
            consumers=self.consumers,
            action=request.action,
            pedantic=request.pedantic,
            server=SERVER,
            account=ACCOUNT,
            has_interest=lambda _subject: False,
        )
        self.consumers[checked.name] = checked
        return checked


@sweep("case", config_cases(), ids=str)
def test_a_configuration_is_taken_or_refused_as_by_the_official_server(case: ConfigCase) -> None:
    engine = Engine()
    for subject, body in case.setup:
        engine.run(subject, body)
    if case.error:
        with pytest.raises(ApiError) as refusal:
            engine.run(case.subject, case.body)
        assert list(refusal.value.as_dict().values()) == case.error
        return
    config = engine.run(case.subject, case.body)
    shown = msgspec.structs.replace(config, metadata=answered_metadata(config.metadata, "2.15.1"))
    assert json.loads(encode(shown)) == case.config


@sweep("case", [case for case in config_cases() if case.config and not case.setup], ids=str)
def test_a_checked_configuration_stays_as_it_is(case: ConfigCase) -> None:
    engine = Engine()
    config = engine.run(case.subject, case.body)
    assert isinstance(config, StreamConfig)
    assert engine.create_stream(config) == config
    assert Engine().create_stream(config) == config
    assert engine.update_stream(config, pedantic=False) == config


def test_a_mirror_with_subjects_is_refused() -> None:
    with pytest.raises(ApiError, match="stream mirrors can not contain subjects"):
        Engine().run("STREAM.CREATE.S", {"name": "S", "subjects": ["a"], "mirror": {"name": "M"}})


def test_texts_are_bounded_in_bytes() -> None:
    engine = Engine()
    engine.run("STREAM.CREATE.S", {"name": "S", "description": "x" * 4096})
    with pytest.raises(ApiError, match="stream description is too long, maximum allowed is 4096"):
        engine.run("STREAM.UPDATE.S", {"name": "S", "description": "é" * 2049})
    # 16 bytes are taken by the level that the server stores.
    engine.run("STREAM.UPDATE.S", {"name": "S", "metadata": {"a": "x" * (131072 - 17)}})
    with pytest.raises(ApiError, match="stream metadata exceeds maximum size of 131072 bytes"):
        engine.run("STREAM.UPDATE.S", {"name": "S", "metadata": {"a": "x" * (131072 - 16)}})
    with pytest.raises(ApiError, match="consumer description is too long, maximum allowed is 4096"):
        create(engine, {"description": "x" * 4097})
    with pytest.raises(ApiError, match="consumer metadata exceeds maximum size of 128KB"):
        create(engine, {"metadata": {"a": "x" * 131072}})


def create(engine: Engine, config: dict[str, Any]) -> ConsumerConfig:
    request = decode_request(
        ConsumerCreateRequest, json.dumps({"stream_name": "S", "config": config}).encode()
    )
    return engine.create_consumer("CONSUMER.CREATE.S", request)


def refusal_of(
    config: ConsumerConfig, server: ServerLimits, account: JetStreamAccountLimits
) -> ErrorKind:
    stream = StreamConfig(name="S", subjects=["s"], num_replicas=1)
    with pytest.raises(ApiError) as refusal:
        consumer_rules.check_consumer_create(
            config,
            stream=stream,
            consumers=ConsumerConfigs(),
            server=server,
            account=account,
            has_interest=lambda _subject: False,
        )
    return errors.ERROR_KINDS[refusal.value.err_code]


def test_server_and_account_bound_consumers() -> None:
    explicit = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    server = ServerLimits(max_ack_pending=20, max_request_batch=7)
    account = JetStreamAccountLimits(max_ack_pending=10)
    checked = consumer_rules.check_consumer_create(
        explicit,
        stream=StreamConfig(name="S", num_replicas=1),
        consumers=ConsumerConfigs(),
        server=server,
        account=account,
        has_interest=lambda _subject: False,
    )
    assert (checked.max_ack_pending, checked.max_batch) == (10, 7)
    many = msgspec.structs.replace(explicit, max_ack_pending=15)
    assert refusal_of(many, server, account) is errors.CONSUMER_MAX_PENDING_ACK_EXCESS
    large = msgspec.structs.replace(explicit, max_batch=8)
    assert refusal_of(large, server, account) is errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED


def test_the_lower_of_two_limits_of_consumers_counts() -> None:
    stream = StreamConfig(name="S", subjects=["s"], num_replicas=1, max_consumers=5)
    for account, is_refused in (
        (JetStreamAccountLimits(max_consumers=1), True),
        (JetStreamAccountLimits(), False),
    ):
        arguments: dict[str, Any] = {
            "stream": stream,
            "consumers": ConsumerConfigs({"one": ConsumerConfig(name="one")}),
            "server": ServerLimits(),
            "account": account,
            "has_interest": lambda _subject: False,
        }
        if is_refused:
            with pytest.raises(ApiError, match="maximum consumers limit reached"):
                consumer_rules.check_consumer_create(ConsumerConfig(), **arguments)
        else:
            consumer_rules.check_consumer_create(ConsumerConfig(), **arguments)


def test_a_deliver_subject_in_use_cannot_be_changed() -> None:
    old = ConsumerConfig(name="c", durable_name="c", deliver_subject="out", max_deliver=-1)
    with pytest.raises(ApiError, match="consumer name already in use"):
        consumer_rules.check_consumer_create(
            msgspec.structs.replace(old, deliver_subject="other"),
            stream=StreamConfig(name="S", subjects=["s"], num_replicas=1),
            consumers=ConsumerConfigs({"c": old}),
            action=ConsumerAction.UPDATE,
            server=ServerLimits(),
            account=ACCOUNT,
            has_interest=lambda subject: subject == "out",
        )


def test_the_server_bounds_the_window_of_duplicates() -> None:
    arguments: dict[str, Any] = {
        "streams": {},
        "server": ServerLimits(duplicate_window_ns=1500 * 1_000_000),
        "account": ACCOUNT,
    }
    checked = stream_rules.check_stream_create(StreamConfig(name="S"), **arguments)
    assert checked.duplicate_window == 1500 * 1_000_000
    with pytest.raises(ApiError, match="duplicate window limits are higher than current limits"):
        stream_rules.check_stream_create(StreamConfig(name="S"), pedantic=True, **arguments)
    with pytest.raises(ApiError, match=r"can not be larger then server limit of 1\.5s"):
        stream_rules.check_stream_create(
            StreamConfig(name="S", duplicate_window=2 * SECOND_NS), **arguments
        )


@pytest.mark.parametrize(
    ("config", "reserved", "kind"),
    [
        (StreamConfig(max_bytes=60), Reservations(streams=1), None),
        (StreamConfig(max_bytes=60), Reservations(streams=2), errors.MAXIMUM_STREAMS_LIMIT),
        (StreamConfig(max_bytes=61), Reservations(account_storage_bytes=40), "storage"),
        (StreamConfig(max_bytes=60), Reservations(account_storage_bytes=40), None),
        (StreamConfig(max_bytes=60), Reservations(server_storage_bytes=141), "storage"),
        (StreamConfig(max_bytes=-1), Reservations(account_storage_bytes=100), "storage"),
        (StreamConfig(max_bytes=1, storage=StorageType.MEMORY), Reservations(), "memory"),
        (StreamConfig(max_bytes=-1, storage=StorageType.MEMORY), Reservations(), "memory"),
    ],
)
def test_streams_fit_into_what_is_left(
    config: StreamConfig, reserved: Reservations, kind: ErrorKind | str | None
) -> None:
    account = JetStreamAccountLimits(max_streams=2, max_storage=100, max_memory=0)
    server = ServerLimits(storage_bytes_max=200)
    kinds = {
        "storage": errors.STORAGE_RESOURCES_EXCEEDED,
        "memory": errors.MEMORY_RESOURCES_EXCEEDED,
    }
    expected = kinds.get(kind) if isinstance(kind, str) else kind
    if expected is None:
        check_resources(config, reserved, account, server)
        return
    with pytest.raises(ApiError) as refusal:
        check_resources(config, reserved, account, server)
    assert refusal.value.is_kind(expected)


def test_a_stream_may_always_shrink() -> None:
    account = JetStreamAccountLimits(max_storage=100)
    full = Reservations(account_storage_bytes=95)
    old, new = StreamConfig(max_bytes=10), StreamConfig(max_bytes=9)
    check_resources_of_update(old, new, full, account, ServerLimits())
    check_resources_of_update(old, StreamConfig(max_bytes=-1), full, account, ServerLimits())
    with pytest.raises(ApiError, match="insufficient storage resources available"):
        check_resources_of_update(new, old, full, account, ServerLimits())


def test_an_account_can_require_and_bound_max_bytes() -> None:
    account = JetStreamAccountLimits(
        max_bytes_required=True, storage_max_stream_bytes=100, memory_max_stream_bytes=50
    )
    for config, kind in (
        (StreamConfig(name="S"), errors.STREAM_MAX_BYTES_REQUIRED),
        (StreamConfig(name="S", max_bytes=101), errors.STREAM_MAX_STREAM_BYTES_EXCEEDED),
        (
            StreamConfig(name="S", max_bytes=51, storage=StorageType.MEMORY),
            errors.STREAM_MAX_STREAM_BYTES_EXCEEDED,
        ),
    ):
        with pytest.raises(ApiError) as refusal:
            stream_rules.check_stream_create(config, streams={}, server=SERVER, account=account)
        assert refusal.value.is_kind(kind)


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        (b"Nats-Required-Api-Level: 0", True),
        (b"Nats-Required-Api-Level: 5", True),
        (b"Nats-Required-Api-Level:   +5", True),
        (b"Nats-Required-Api-Level: -9223372036854775808", True),
        (b"Nats-Required-Api-Level: " + b"0" * 5000 + b"5", True),
        (b"Nats-Required-Api-Level:", True),
        (b"nats-required-api-level: 9", True),
        (b"Nats-Required-Api-Level: 6", False),
        (b"Nats-Required-Api-Level: x", False),
        (b"Nats-Required-Api-Level: 5 ", False),
        (b"Nats-Required-Api-Level:\t5", False),
        (b"Nats-Required-Api-Level: -9223372036854775809", False),
        (b"Nats-Required-Api-Level: " + b"9" * 5000, False),
    ],
)
def test_the_required_level_is_compared(line: bytes, is_known: bool) -> None:
    assert is_level_known(b"NATS/1.0\r\nA: b\r\n" + line + b"\r\n\r\n") is is_known
