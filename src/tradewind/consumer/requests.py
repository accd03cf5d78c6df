"""Pull requests and the arguments of acknowledgements: from bytes to values.

Owns their texts and limits; it knows no consumer beyond its configuration.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import msgspec

from tradewind.api.consumer_types import ConsumerConfig, PriorityPolicy
from tradewind.api.errors import ApiError
from tradewind.api.request_types import NextRequest
from tradewind.api.requests import decode_lenient

API_LEVEL: Final = 5
_INT64_MAX: Final = 2**63 - 1
_DECODER: Final = msgspec.json.Decoder(NextRequest)
_LEVEL: Final = re.compile(rb"\r\nNats-Required-Api-Level:[ \t]*([^\r\n]*)", re.IGNORECASE)
_UNIT_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"[+-]?(?:0|(?:{_PART.pattern})+)\Z")
_DURATION_LENGTH_MAX: Final = 100


class RefusedRequestError(ValueError):
    """A pull request that gets this status and nothing else."""


def decode_pull(header: bytes, payload: bytes) -> NextRequest:
    """A pull request: nothing, a number of messages, or JSON."""
    if header and needs_higher_level(header):
        raise RefusedRequestError("412 Required Api Level")
    body = payload.strip()
    if not body.startswith(b"{"):
        return NextRequest(batch=_number(body) if body else 1)
    try:
        request = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        try:
            request = decode_lenient(NextRequest, body)
        except ApiError as error:
            reason = error.description.removeprefix("invalid JSON: ")
            raise RefusedRequestError(f"400 Bad Request - {reason}") from None
    if request.idle_heartbeat > 0 and request.idle_heartbeat * 2 > request.expires:
        raise RefusedRequestError("400 Bad Request - heartbeat value too large")
    return request


def needs_higher_level(header: bytes) -> bool:
    """Whether a header asks for a level of the API that this server does not have."""
    match = _LEVEL.search(header)
    if match is None:
        return False
    return not match[1].strip().isdigit() or int(match[1]) > API_LEVEL


def _number(text: bytes) -> int:
    """A text that is no number asks for one message."""
    if re.fullmatch(rb"[+-]?[0-9]{1,18}", text):
        return int(text)
    return 1


def check_pull(request: NextRequest, config: ConsumerConfig) -> None:
    """The limits of the consumer, and what only priority groups may ask for."""
    if 0 < config.max_batch < request.batch:
        raise RefusedRequestError(f"409 Exceeded MaxRequestBatch of {config.max_batch}")
    if 0 < config.max_expires < request.expires:
        limit = format_duration(config.max_expires)
        raise RefusedRequestError(f"409 Exceeded MaxRequestExpires of {limit}")
    if 0 < config.max_bytes < request.max_bytes:
        raise RefusedRequestError(f"409 Exceeded MaxRequestMaxBytes of {config.max_bytes}")
    policy = config.priority_policy
    if (request.min_pending or request.min_ack_pending) and policy != PriorityPolicy.OVERFLOW:
        raise RefusedRequestError("400 Bad Request - Not a Overflow Priority consumer")
    if request.id and policy != PriorityPolicy.PINNED_CLIENT:
        raise RefusedRequestError("400 Bad Request - Not a Pinned Client Priority consumer")
    if not 0 <= request.priority <= 9:
        raise RefusedRequestError("400 Bad Request - Priority must be between 0 and 9")
    if policy == PriorityPolicy.NONE:
        return
    if not request.group:
        raise RefusedRequestError("400 Bad Request - Priority Group missing")
    if request.group not in config.priority_groups:
        raise RefusedRequestError("400 Bad Request - Invalid Priority Group")


class _NakOptions(msgspec.Struct):
    delay: int = 0


def nak_delay_ns(argument: bytes) -> int | None:
    """How long to wait with a redelivery: -1 at once; None if the argument is neither."""
    text = argument.strip()
    if not text:
        return -1
    try:
        if text.startswith(b"{"):
            delay_ns: int | None = msgspec.json.decode(text, type=_NakOptions).delay
        else:
            delay_ns = parse_duration(text.decode())
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return None if delay_ns is None else min(max(delay_ns, 0), _INT64_MAX // 4)


def parse_duration(text: str) -> int | None:
    """Nanoseconds of a text such as "1h30m"; None if it is none."""
    if len(text) > _DURATION_LENGTH_MAX or not _DURATION.match(text):
        return None
    total = sum(int(Decimal(number) * _UNIT_NS[unit]) for number, unit in _PART.findall(text))
    return -total if text.startswith("-") else total


def format_duration(duration_ns: int) -> str:
    """A duration as Go prints it, of a positive number of nanoseconds."""
    if duration_ns < _UNIT_NS["s"]:
        unit = next(unit for unit in ("ms", "µs", "ns") if duration_ns >= _UNIT_NS[unit])
        return f"{_plain(Decimal(duration_ns) / _UNIT_NS[unit])}{unit}"
    minutes, rest_ns = divmod(duration_ns, _UNIT_NS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_plain(Decimal(rest_ns) / _UNIT_NS['s'])}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
