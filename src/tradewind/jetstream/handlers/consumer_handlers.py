"""API requests about consumers: create, info, delete, pause, unpin, reset.

Owns one function per request. It never checks configurations (`tradewind.api`) and never orders the
steps of a change (`consumer_catalog`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.api.consumer_rules import check_consumer_request
from tradewind.api.consumer_types import AckPolicy
from tradewind.api.dead_letter_rules import dead_letters_of, letter_pattern
from tradewind.api.request_types import (
    ConsumerCreateRequest,
    ConsumerPauseRequest,
    ConsumerResetRequest,
    ConsumersRequest,
    ConsumerUnpinRequest,
)
from tradewind.api.requests import decode_lenient, invalid_json
from tradewind.api.responses import (
    ConsumerCreateResponse,
    ConsumerDeleteResponse,
    ConsumerInfoResponse,
    ConsumerListResponse,
    ConsumerNamesResponse,
    ConsumerPauseResponse,
    ConsumerResetResponse,
    ConsumerUnpinResponse,
)
from tradewind.api.sourcing_rules import is_for_server
from tradewind.api.times import ZERO_TIME, ZERO_TIME_NS, format_time, parse_time
from tradewind.consumer.consumer import ResetError, ServerConsumer
from tradewind.durations import MILLISECOND_NS, format_duration
from tradewind.jetstream import consumer_catalog
from tradewind.jetstream.api_request import ApiRequest, DurableAnswer, HeadedAnswer
from tradewind.jetstream.infos import consumer_info, fields_of
from tradewind.jetstream.lanes import Steps, let_others_go_first
from tradewind.jetstream.replication.origins import IDENTITY_FIELD, fields_of_block
from tradewind.jetstream.replication.source_names import identity_of

if TYPE_CHECKING:
    from tradewind.api.consumer_types import ConsumerConfig
    from tradewind.jetstream.hosted import HostedStream

NAMES_PAGE: Final = 1024
LIST_PAGE: Final = 256
# A shorter wait for acknowledgements is unlikely to be meant.
SHORT_WAIT_NS: Final = 100 * MILLISECOND_NS
# Descriptions that are written in one go.
INFOS_PER_STEP: Final = 64
_GROUP_NAME: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}", re.ASCII)


def create(request: ApiRequest) -> Steps[ConsumerCreateResponse | HeadedAnswer]:
    """All four forms of CONSUMER.CREATE. A server that creates one for a mirror or source names the
    stream it expects; the answer names the actual one.
    """
    content: ConsumerCreateRequest = request.content
    config = check_consumer_request(request.call, content)
    expected = _expected_identity(request)
    if expected and expected != (actual := identity_of(request.hosted().stream)):
        raise errors.CONSUMER_STREAM_IDENTITY_MISMATCH(msg=actual)
    _check_dead_letters(request, config)
    before = _short_wait_ns(
        request.hosted().consumer_configs.get(config.durable_name or config.name)
    )
    consumer = yield from consumer_catalog.create_consumer(
        request.engine,
        request.hosted(),
        config,
        action=content.action,
        pedantic=content.pedantic,
    )
    if (wait_ns := _short_wait_ns(consumer.config)) not in (None, before):
        _warn_of_short_wait(request, consumer, wait_ns)
    response = ConsumerCreateResponse(**fields_of(consumer_info(request.engine, consumer)))
    if not is_for_server(config):
        return response
    return HeadedAnswer(response, _identity_header(request.hosted()))


def _short_wait_ns(config: ConsumerConfig | None) -> int | None:
    """The shortest wait for an acknowledgement, if it is too short to be meant."""
    if config is None or config.ack_policy is AckPolicy.NONE:
        return None
    wait_ns = min((*config.backoff, config.ack_wait))
    return wait_ns if 0 < wait_ns < SHORT_WAIT_NS else None


def _warn_of_short_wait(request: ApiRequest, consumer: ServerConsumer, wait_ns: int) -> None:
    """Programs that mean seconds and write nanoseconds get each message thousands of times."""
    hosted = request.hosted()
    request.engine.log.warn(
        f"JetStream consumer '{hosted.tenant.name} > {hosted.name} > {consumer.name}' waits only "
        f"{format_duration(wait_ns)} for an acknowledgement (ack_wait or backoff), less than "
        "100ms: durations of the API are nanoseconds"
    )


def _check_dead_letters(request: ApiRequest, config: ConsumerConfig) -> None:
    """Check that the requester may publish dead letters, which the server does on its behalf. A
    change that leaves these settings as they are needs no permission.
    """
    if not config.metadata:
        return
    name = config.durable_name or config.name
    settings = dead_letters_of(config.metadata)
    before = request.hosted().consumers.get(name)
    if settings is None or (
        before is not None and dead_letters_of(before.config.metadata) == settings
    ):
        return
    request.requester.check_all(letter_pattern(settings, request.call.stream, name))


def _expected_identity(request: ApiRequest) -> str | None:
    """The identity of the stream that the request expects; None if it names none."""
    return fields_of_block(request.header).get(IDENTITY_FIELD) if request.header else None


def _identity_header(hosted: HostedStream) -> bytes:
    return f"NATS/1.0\r\n{IDENTITY_FIELD}: {identity_of(hosted.stream)}\r\n\r\n".encode()


def names(request: ApiRequest) -> ConsumerNamesResponse:
    """CONSUMER.NAMES."""
    content: ConsumersRequest = request.content
    found = request.hosted().shown_names()
    offset = min(max(content.offset, 0), len(found))
    return ConsumerNamesResponse(
        total=len(found),
        offset=offset,
        limit=NAMES_PAGE,
        consumers=found[offset : offset + NAMES_PAGE],
    )


def list_(request: ApiRequest) -> Steps[ConsumerListResponse]:
    """CONSUMER.LIST."""
    content: ConsumersRequest = request.content
    hosted = request.hosted()
    found = hosted.shown_names()
    offset = min(max(content.offset, 0), len(found))
    consumers = []
    for number, name in enumerate(found[offset : offset + LIST_PAGE]):
        if number and number % INFOS_PER_STEP == 0:
            yield let_others_go_first
        # The consumer may have been deleted meanwhile.
        if (consumer := hosted.consumers.get(name)) is not None:
            consumers.append(consumer_info(request.engine, consumer, dynamic=False))
    return ConsumerListResponse(
        total=len(found),
        offset=offset,
        limit=LIST_PAGE,
        consumers=consumers,
        offline=dict(hosted.consumer_problems),
    )


def info(request: ApiRequest) -> ConsumerInfoResponse:
    """CONSUMER.INFO."""
    return ConsumerInfoResponse(**fields_of(consumer_info(request.engine, _consumer(request))))


def delete(request: ApiRequest) -> Steps[ConsumerDeleteResponse]:
    """CONSUMER.DELETE."""
    hosted, name = request.hosted(), request.call.consumer
    if name in hosted.consumer_problems:
        yield from consumer_catalog.delete_offline_consumer(request.engine, hosted, name)
    else:
        consumer = hosted.consumer(name)
        yield from consumer_catalog.delete_consumer(request.engine, hosted, consumer)
    return ConsumerDeleteResponse(success=True)


def _consumer(request: ApiRequest) -> ServerConsumer:
    return request.hosted().consumer(request.call.consumer)


def pause(request: ApiRequest) -> Steps[ConsumerPauseResponse]:
    """CONSUMER.PAUSE."""
    content: ConsumerPauseRequest = request.content
    consumer = _consumer(request)
    until_ns = parse_time(content.pause_until)
    yield from consumer_catalog.pause_consumer(request.hosted(), consumer, until_ns)
    now_ns = request.engine.turn.now_ns
    if until_ns <= now_ns:
        until = ZERO_TIME if until_ns == ZERO_TIME_NS else format_time(until_ns)
        return ConsumerPauseResponse(paused=False, pause_until=until)
    return ConsumerPauseResponse(
        paused=True, pause_until=format_time(until_ns), pause_remaining=until_ns - now_ns
    )


def unpin(request: ApiRequest) -> ConsumerUnpinResponse:
    """CONSUMER.UNPIN."""
    content: ConsumerUnpinRequest = request.content
    if not content.group:
        raise invalid_json("consumer group not specified")
    if not _GROUP_NAME.fullmatch(content.group):
        raise errors.CONSUMER_INVALID_GROUP_NAME()
    consumer = _consumer(request)
    if content.group not in consumer.config.priority_groups:
        raise errors.CONSUMER_INVALID_PRIORITY_GROUP()
    consumer.pinned.unpin("admin")
    return ConsumerUnpinResponse()


def reset(request: ApiRequest) -> Steps[DurableAnswer | None]:
    """CONSUMER.RESET; there is no answer for a missing consumer."""
    hosted = request.tenant.streams.get(request.call.stream)
    consumer = hosted.consumers.get(request.call.consumer) if hosted is not None else None
    if hosted is None or consumer is None:
        return None
    content = ConsumerResetRequest()
    if request.body:
        content = decode_lenient(ConsumerResetRequest, request.body)
    try:
        seq = consumer.reset(content.seq)
    except ResetError as error:
        raise errors.CONSUMER_INVALID_RESET(err=str(error)) from None
    # The consumer no longer needs the messages that it skips.
    hosted.interest_changed()
    if hosted.tenant.transactions is not None:
        yield from hosted.tenant.transactions.void(hosted, consumer.name)
    fields = fields_of(consumer_info(request.engine, consumer))
    response = ConsumerResetResponse(**fields, reset_seq=seq)
    header = _identity_header(hosted) if _expected_identity(request) is not None else b""
    return DurableAnswer(
        hosted, response, errors.CONSUMER_STORE_FAILED, consumer=consumer, header=header
    )
