"""Parses pull requests.

Owns their texts and limits. It never uses anything of a consumer but its configuration.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tradewind.api.consumer_types import ConsumerConfig, PriorityPolicy
from tradewind.api.errors import ApiError
from tradewind.api.request_types import NextRequest
from tradewind.api.requests import decode_lenient, error_in_beginning
from tradewind.api.versioning import is_level_known
from tradewind.durations import format_duration

PRIORITY_MAX: Final = 9
# The body of a request; clients send less than 300 bytes.
BODY_BYTES_MAX: Final = 8192


class _PlainRequest(NextRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request as clients write it. Any other name may be a known one in another case."""


_DECODER: Final = msgspec.json.Decoder(_PlainRequest)


class RefusedRequestError(ValueError):
    """The refusal of a pull request, whose only answer is this status."""


def decode_pull(
    header: bytes, payload: bytes, *, closely_max: int = BODY_BYTES_MAX
) -> tuple[NextRequest, bool]:
    """Decode a pull request; returns also whether it can have a priority group, which only JSON can
    name.

    Errors in JSON after its first `closely_max` bytes are not described.
    """
    if header and not is_level_known(header):
        raise RefusedRequestError("412 Required Api Level")
    if len(payload) > BODY_BYTES_MAX:
        size = f"{len(payload)} bytes, at most {BODY_BYTES_MAX} are possible"
        reason = error_in_beginning(payload[:closely_max]) if payload[:1] == b"{" else None
        raise RefusedRequestError(f"400 Bad Request - {reason or size}")
    body = payload.strip()
    if not body.startswith(b"{"):
        return NextRequest(batch=_number(body) if body else 1), False
    request = _decode_plainly(body)
    if request is None:
        try:
            request = decode_lenient(NextRequest, body, closely_max=closely_max)
        except ApiError as error:
            reason = error.description.removeprefix("invalid JSON: ")
            raise RefusedRequestError(f"400 Bad Request - {reason}") from None
    if request.idle_heartbeat > 0 and request.idle_heartbeat * 2 > request.expires:
        raise RefusedRequestError("400 Bad Request - heartbeat value too large")
    return request, True


def _decode_plainly(body: bytes) -> NextRequest | None:
    """Decode the common form quickly; None if the body needs a closer look."""
    try:
        request = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    numbers = (
        request.expires,
        request.batch,
        request.max_bytes,
        request.idle_heartbeat,
        request.min_pending,
        request.min_ack_pending,
        request.priority,
    )
    return request if min(numbers) >= -(2**63) and max(numbers) < 2**63 else None


def _number(text: bytes) -> int:
    """Parse a number of messages; a text that is not a number asks for one."""
    if re.fullmatch(rb"[+-]?[0-9]{1,18}", text):
        return int(text)
    return 1


def check_pull(request: NextRequest, config: ConsumerConfig, *, has_group: bool) -> None:
    """RefusedRequestError if a request exceeds the consumer's limits, or uses priorities without a
    group.
    """
    if 0 < config.max_batch < request.batch:
        raise RefusedRequestError(f"409 Exceeded MaxRequestBatch of {config.max_batch}")
    if 0 < config.max_expires < request.expires:
        limit = format_duration(config.max_expires)
        raise RefusedRequestError(f"409 Exceeded MaxRequestExpires of {limit}")
    if 0 < config.max_bytes < request.max_bytes:
        raise RefusedRequestError(f"409 Exceeded MaxRequestMaxBytes of {config.max_bytes}")
    if not has_group:
        return
    policy = config.priority_policy
    if (request.min_pending or request.min_ack_pending) and policy != PriorityPolicy.OVERFLOW:
        raise RefusedRequestError("400 Bad Request - Not a Overflow Priority consumer")
    if request.id and policy != PriorityPolicy.PINNED_CLIENT:
        raise RefusedRequestError("400 Bad Request - Not a Pinned Client Priority consumer")
    if not 0 <= request.priority <= PRIORITY_MAX:
        raise RefusedRequestError("400 Bad Request - Priority must be between 0 and 9")
    if policy == PriorityPolicy.NONE:
        return
    if not request.group:
        raise RefusedRequestError("400 Bad Request - Priority Group missing")
    if request.group not in config.priority_groups:
        raise RefusedRequestError("400 Bad Request - Invalid Priority Group")
