"""Executes the requests of the previews.

Owns one function per subject; the changes themselves are made by `stream_catalog` and
`consumer_catalog`. A function returns the response, or refuses in the words of its preview.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from tradewind.api import errors
from tradewind.api.endpoints import ENDPOINT_BY_NAME
from tradewind.api.legacy_marks import LEGACY_SETS
from tradewind.api.request_types import ConsumerAction
from tradewind.api.times import format_time
from tradewind.errors import StoreError
from tradewind.jetstream import consumer_catalog, stream_catalog
from tradewind.jetstream.lanes import let_others_go_first
from tradewind.jetstream.legacy import legacy_configs
from tradewind.jetstream.legacy.dialects import OK, LegacyRefusal, document
from tradewind.stream.stream_queries import to_text

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerConfig
    from tradewind.api.endpoint_row import ApiEndpoint
    from tradewind.consumer.consumer import ServerConsumer
    from tradewind.jetstream.deeds import Requester
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.jetstream_account import JetStreamAccount
    from tradewind.jetstream.lanes import Steps
    from tradewind.jetstream.legacy.dialects import Dialect

_SEQUENCE_MAX: Final = (1 << 64) - 1
_SEQUENCE_DIGITS_MAX: Final = 20


class LegacyRequest(msgspec.Struct, frozen=True):
    """A request; `names` are the stream and the consumer of the subject, empty where it has none;
    `endpoint` is the equivalent current endpoint.
    """

    engine: JetStreamEngine
    tenant: JetStreamAccount
    dialect: Dialect
    names: tuple[str, str]
    body: bytes
    endpoint: ApiEndpoint
    requester: Requester

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace").strip()

    def check_empty(self) -> None:
        """LegacyRefusal if a request without a body has one."""
        if self.body:
            raise LegacyRefusal(legacy_configs.BAD_REQUEST)

    def check_allowed(self, stream: str = "", consumer: str = "") -> None:
        """ApiError unless the client may make the equivalent current request."""
        self.requester.check_deed(self.endpoint, stream, consumer)

    def hosted(self, name: str = "", consumer: str = "") -> HostedStream:
        """The stream of this name, or the one in the subject; ApiError if there is none, or if the
        client may not do this with the stream or the named consumer.
        """
        stream = name or self.names[0]
        self.check_allowed(stream, consumer or self.names[1])
        return self.tenant.stream(stream)


class WhenDurable(msgspec.Struct, frozen=True):
    """`+OK` when the changes of a stream are on disk."""

    hosted: HostedStream


LegacyAnswer: TypeAlias = bytes | WhenDurable


# ---------------------------------------------------------------- both previews


def enabled(_request: LegacyRequest) -> bytes:
    """$JS.ENABLED."""
    return OK


def account_info(request: LegacyRequest) -> bytes:
    """$JS.INFO: an empty request may come from either preview, and gets the members of both."""
    settings, tenant = request.engine.settings, request.tenant
    limits = tenant.limits

    def shown(limit: int, server: int) -> int:
        return limit if limit >= 0 else server

    fields: dict[str, Any] = {
        "memory": tenant.usage.memory,
        "storage": tenant.usage.storage,
        "streams": len(tenant.streams),
        "limits": {
            "max_memory": shown(limits.max_memory, settings.memory_bytes_max),
            "max_storage": shown(limits.max_storage, settings.storage_bytes_max),
            "max_streams": limits.max_streams,
            "max_consumers": limits.max_consumers,
        },
    }
    if not request.body:
        fields["msg_sets"] = fields["streams"]
        fields["limits"]["max_msg_sets"] = limits.max_streams
        fields["limits"]["max_observables"] = limits.max_consumers
    return document(fields)


def list_streams(request: LegacyRequest) -> bytes:
    """$JS.MSGSETS and $JS.STREAM.LIST."""
    return document(sorted(request.tenant.streams) or None)


# ---------------------------------------------------------------- streams


def create_stream(request: LegacyRequest) -> Steps[bytes]:
    """$JS.MSGSET.CREATE and $JS.STREAM.<s>.CREATE."""
    old = legacy_configs.decode_stream(request.body)
    name = request.names[0]
    if name and old.name != name:
        raise LegacyRefusal("stream name in subject does not match request")
    request.check_allowed(old.name)
    config = legacy_configs.stream_config(old, request.dialect)
    # The first preview let message sets share subjects.
    is_sets = request.dialect.mark == LEGACY_SETS
    yield from stream_catalog.create_stream(
        request.engine, request.tenant, config, pedantic=False, may_overlap=is_sets
    )
    return OK


def update_stream(request: LegacyRequest) -> Steps[bytes]:
    """$JS.STREAM.<s>.UPDATE."""
    old = legacy_configs.decode_stream(request.body)
    name = request.names[0]
    if old.name != name:
        raise LegacyRefusal("stream name in subject does not match request")
    current = request.hosted().config
    wanted = legacy_configs.stream_config(old, request.dialect)
    # Settings that the preview did not know stay as they are.
    changed = {field: getattr(wanted, field) for field in _OLD_FIELDS}
    config = msgspec.structs.replace(current, **changed)
    yield from stream_catalog.update_stream(
        request.engine, request.tenant, name, config, pedantic=False
    )
    return OK


_OLD_FIELDS: Final = (
    "subjects",
    "retention",
    "max_consumers",
    "max_msgs",
    "max_bytes",
    "max_age",
    "max_msg_size",
    "storage",
    "num_replicas",
    "no_ack",
)


def set_info(request: LegacyRequest) -> bytes:
    """$JS.MSGSET.INFO, with the members of both forms that the first preview had."""
    hosted = request.hosted(_one_name(request))
    state = hosted.stream.state(hosted.shown_count)
    return document(
        {
            "Msgs": state.messages,
            "Bytes": state.bytes,
            "FirstSeq": state.first_seq,
            "LastSeq": state.last_seq,
            "config": legacy_configs.stream_document(hosted.config, request.dialect),
            "stats": {
                "messages": state.messages,
                "bytes": state.bytes,
                "first_seq": state.first_seq,
                "last_seq": state.last_seq,
                "observable_count": state.consumer_count,
            },
        }
    )


def stream_info(request: LegacyRequest) -> bytes:
    """$JS.STREAM.<s>.INFO."""
    request.check_empty()
    hosted = request.hosted()
    state = hosted.stream.state(hosted.shown_count)
    return document(
        {
            "config": legacy_configs.stream_document(hosted.config, request.dialect),
            "state": {
                "messages": state.messages,
                "bytes": state.bytes,
                "first_seq": state.first_seq,
                "last_seq": state.last_seq,
                "consumer_count": state.consumer_count,
            },
        }
    )


def delete_stream(request: LegacyRequest) -> Steps[bytes]:
    """$JS.MSGSET.DELETE and $JS.STREAM.<s>.DELETE."""
    yield from stream_catalog.delete_stream(request.engine, _addressed(request))
    return OK


def purge(request: LegacyRequest) -> Steps[WhenDurable]:
    """$JS.MSGSET.PURGE and $JS.STREAM.<s>.PURGE."""
    hosted = _addressed(request)
    step_size = hosted.stream.upkeep.step_size
    for purged in hosted.stream.purge_steps():
        if purged >= step_size:
            yield let_others_go_first
    return WhenDurable(hosted)


def _addressed(request: LegacyRequest) -> HostedStream:
    """The stream that the body names in the first preview, and the subject in the second."""
    if request.names[0]:
        request.check_empty()
        return request.hosted()
    return request.hosted(_one_name(request))


def _one_name(request: LegacyRequest) -> str:
    names = request.text.split()
    if len(names) != 1:
        raise LegacyRefusal(legacy_configs.BAD_REQUEST)
    return names[0]


def _two_names(request: LegacyRequest) -> tuple[str, str]:
    names = request.text.split()
    if len(names) != 2:
        raise LegacyRefusal(legacy_configs.BAD_REQUEST)
    return names[0], names[1]


def _sequence(text: str) -> int:
    digits = text.lstrip("0") or text[:1]
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _SEQUENCE_DIGITS_MAX
    if not is_number or int(digits) > _SEQUENCE_MAX:
        raise LegacyRefusal("bad sequence argument")
    return int(digits)


def delete_message(request: LegacyRequest) -> WhenDurable:
    """$JS.MSGSET.MSG.DELETE and $JS.STREAM.<s>.MSG.DELETE."""
    name, text = request.names[0], request.text
    if not name:
        name, text = _two_names(request)
    hosted, seq = request.hosted(name), _sequence(text)
    if not hosted.stream.store.is_live(seq):
        raise LegacyRefusal(f"sequence [{seq}] not found")
    hosted.stream.delete_message(seq)
    return WhenDurable(hosted)


def set_message(request: LegacyRequest) -> bytes:
    """$JS.BYSEQ.<set>."""
    message = _message(request)
    names = {"Subject": "subject", "Data": "data", "Time": "time"}
    return document({name: message[today] for name, today in names.items()})


def stream_message(request: LegacyRequest) -> bytes:
    """$JS.STREAM.<s>.MSG.BYSEQ; without a sequence, the last message."""
    return document(_message(request))


def _message(request: LegacyRequest) -> dict[str, Any]:
    hosted = request.hosted()
    store = hosted.stream.store
    seq = _sequence(request.text) if request.text else hosted.stream.visible_seq
    try:
        if seq > hosted.stream.visible_seq:
            raise LegacyRefusal("could not load message from storage")
        message = store.get(seq)
    except StoreError:
        raise LegacyRefusal("could not load message from storage") from None
    return {
        "subject": to_text(message.subject),
        "seq": message.seq,
        "data": base64.b64encode(message.payload).decode(),
        "time": format_time(message.timestamp_ns),
    }


# ---------------------------------------------------------------- consumers


def create_observable(request: LegacyRequest) -> Steps[bytes]:
    """$JS.OBSERVABLE.CREATE."""
    content = legacy_configs.decode_consumer(request.body)
    if not content.config.durable_name:
        ephemeral = ENDPOINT_BY_NAME["consumer_create_ephemeral"]
        request = msgspec.structs.replace(request, endpoint=ephemeral)
    hosted = request.hosted(content.msg_set_name, content.config.durable_name)
    yield from _create(request, hosted, content)
    return OK


def create_consumer(request: LegacyRequest) -> Steps[bytes]:
    """$JS.STREAM.<s>.CONSUMER.<c>.CREATE."""
    content = legacy_configs.decode_consumer(request.body)
    if content.stream_name != request.names[0]:
        raise LegacyRefusal("stream name in subject does not match request")
    if not content.config.durable_name:
        raise LegacyRefusal("consumer expected to be durable but a durable name was not set")
    if content.config.durable_name != request.names[1]:
        raise LegacyRefusal("consumer name in subject does not match durable name in request")
    yield from _create(request, request.hosted(), content)
    return OK


def create_ephemeral(request: LegacyRequest) -> Steps[bytes]:
    """$JS.STREAM.<s>.EPHEMERAL.CONSUMER.CREATE; the answer contains the generated name."""
    content = legacy_configs.decode_consumer(request.body)
    if content.stream_name != request.names[0]:
        raise LegacyRefusal("stream name in subject does not match request")
    if content.config.durable_name:
        raise LegacyRefusal("consumer expected to be ephemeral but a durable name was set")
    consumer = yield from _create(request, request.hosted(), content)
    return OK + b" " + consumer.name.encode()


def _create(
    request: LegacyRequest, hosted: HostedStream, content: legacy_configs.LegacyConsumerRequest
) -> Steps[ServerConsumer]:
    one = request.dialect.consumer
    config = legacy_configs.consumer_config(content.config, hosted.config, request.dialect)
    subject = config.deliver_subject
    if subject and not config.durable_name and not request.tenant.account.has_interest(subject):
        raise LegacyRefusal(f"{one} requires interest for delivery subject when ephemeral")
    existing = hosted.consumers.get(config.durable_name)
    if existing is not None:
        _check_replaced(existing, config, one)
    return (
        yield from consumer_catalog.create_consumer(
            request.engine,
            hosted,
            config,
            action=ConsumerAction.CREATE_OR_UPDATE,
            pedantic=False,
        )
    )


def _check_replaced(existing: ServerConsumer, config: ConsumerConfig, one: str) -> None:
    """LegacyRefusal unless the change is a new delivery subject for an inactive push consumer."""
    if not existing.config.deliver_subject:
        raise LegacyRefusal(f"{one} already exists")
    if existing.delivery.is_bound:
        raise LegacyRefusal(f"{one} already exists and is still active")
    same = ("deliver_policy", "opt_start_seq", "ack_policy", "filter_subject", "replay_policy")
    if any(getattr(existing.config, name) != getattr(config, name) for name in same):
        raise LegacyRefusal(f"{one} replacement durable config not the same")


def list_observables(request: LegacyRequest) -> bytes:
    """$JS.OBSERVABLES."""
    return document(sorted(request.hosted(_one_name(request)).consumers) or None)


def list_consumers(request: LegacyRequest) -> bytes:
    """$JS.STREAM.<s>.CONSUMERS."""
    request.check_empty()
    return document(sorted(request.hosted().consumers) or None)


def observable_info(request: LegacyRequest) -> bytes:
    """$JS.OBSERVABLE.INFO: the sequences to be delivered next, not those delivered last."""
    _, consumer = _observable(request)
    state = consumer.state()
    return document(
        {
            "Delivered": {
                "ObsSeq": state.delivered.consumer_seq + 1,
                "SetSeq": state.delivered.stream_seq + 1,
            },
            "AckFloor": {
                "ObsSeq": state.ack_floor.consumer_seq,
                "SetSeq": state.ack_floor.stream_seq,
            },
            "Pending": {str(seq): entry.time_ns for seq, entry in sorted(state.pending.items())}
            or None,
            "Redelivery": {str(seq): count for seq, count in sorted(state.redelivered.items())}
            or None,
        }
    )


def consumer_info(request: LegacyRequest) -> bytes:
    """$JS.STREAM.<s>.CONSUMER.<c>.INFO."""
    request.check_empty()
    consumer = request.hosted().consumer(request.names[1])
    state = consumer.state()
    pairs = {"delivered": state.delivered, "ack_floor": state.ack_floor}
    return document(
        {
            "stream_name": request.names[0],
            "name": consumer.name,
            "config": legacy_configs.consumer_document(consumer.config, request.dialect),
            "state": {
                **{
                    name: {"consumer_seq": pair.consumer_seq, "stream_seq": pair.stream_seq}
                    for name, pair in pairs.items()
                },
                "pending": {str(seq): entry.time_ns for seq, entry in sorted(state.pending.items())}
                or None,
                "redelivered": {str(seq): count for seq, count in sorted(state.redelivered.items())}
                or None,
            },
        }
    )


def _observable(request: LegacyRequest) -> tuple[HostedStream, ServerConsumer]:
    stream, name = _two_names(request)
    hosted = request.hosted(stream, name)
    return hosted, hosted.consumer(name)


def delete_observable(request: LegacyRequest) -> Steps[bytes]:
    """$JS.OBSERVABLE.DELETE."""
    hosted, consumer = _observable(request)
    yield from consumer_catalog.delete_consumer(request.engine, hosted, consumer)
    return OK


def delete_consumer(request: LegacyRequest) -> Steps[bytes]:
    """$JS.STREAM.<s>.CONSUMER.<c>.DELETE."""
    request.check_empty()
    hosted = request.hosted()
    consumer = hosted.consumer(request.names[1])
    yield from consumer_catalog.delete_consumer(request.engine, hosted, consumer)
    return OK


# ---------------------------------------------------------------- templates


def list_templates(_request: LegacyRequest) -> bytes:
    """$JS.TEMPLATE.LIST: there are none."""
    return document(None)


def create_template(_request: LegacyRequest) -> bytes:
    """$JS.TEMPLATE.<t>.CREATE: no server supports stream templates any more."""
    raise LegacyRefusal("stream templates are no longer supported")


def missing_template(_request: LegacyRequest) -> bytes:
    """$JS.TEMPLATE.<t>.INFO and .DELETE."""
    raise LegacyRefusal(errors.STREAM_TEMPLATE_NOT_FOUND().description)
