"""Payloads as bytes, and the error for what cannot be one."""

from __future__ import annotations

from tradewind.client.errors import BadPayloadError


def payload_bytes(payload: object) -> bytes:
    """A payload that stays as it is, in case it has to be sent again."""
    if type(payload) is bytes:
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise bad_payload(payload)


def bad_payload(payload: object) -> BadPayloadError:
    """The error for an object that is no payload."""
    return BadPayloadError(
        f"payload must be bytes or str, not {type(payload).__name__}; pass json.dumps(...) or a "
        "codec"
    )
