"""$TW.API.COMMIT: messages and acknowledgements that happen together, or not at all.

Owns the shapes of the request and of its answer, and the bounds on both. The subject is in
`endpoints`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tradewind.api.base import ApiStruct, always, always_list
from tradewind.api.errors import INVALID_JSON, ApiError

PUBLISHES_MAX: Final = 1000
ACKS_MAX: Final = 10_000
DELETES_MAX: Final = 1000
REVIVALS_MAX: Final = 1000


class TransactionPublish(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message; `payload` is base64 in JSON. Expectations are in its headers."""

    subject: str
    payload: bytes = b""
    headers: dict[str, str | list[str]] = msgspec.field(default_factory=dict)


class TransactionDelete(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to be removed."""

    stream: str
    seq: int


class TransactionRevival(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An acknowledged message that a consumer is to deliver again."""

    stream: str
    consumer: str
    seq: int


class TransactionRequest(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A transaction; `acks` are the reply subjects of delivered messages."""

    publishes: list[TransactionPublish] = msgspec.field(default_factory=list)
    acks: list[str] = msgspec.field(default_factory=list)
    deletes: list[TransactionDelete] = msgspec.field(default_factory=list)
    revivals: list[TransactionRevival] = msgspec.field(default_factory=list)


class TransactionPlace(ApiStruct, frozen=True, kw_only=True):
    """The place of a stored message."""

    stream: str = always("")
    seq: int = always(0)


class TransactionResponse(
    ApiStruct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="io.tradewind.api.v1.commit_response",
):
    """The response to a transaction that has happened."""

    publishes: list[TransactionPlace] = always_list()
    acks: int = always(0)
    deletes: int = always(0)
    revivals: int = 0


_DECODER: Final = msgspec.json.Decoder(TransactionRequest)


def decode_transaction(body: bytes) -> TransactionRequest:
    """Decode a request; ApiError 10025 describes the error and its place."""
    try:
        return _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise INVALID_JSON(err=str(error)) from None


def at(list_name: str, index: int, error: ApiError) -> ApiError:
    """The error of one member of a request, prefixed with the member."""
    return ApiError(error.code, error.err_code, f"{list_name}[{index}]: {error.description}")
