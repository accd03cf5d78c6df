"""Transactions: messages for several streams, acknowledgements, deletes: all of it or nothing.

Owns what was asked for until it is committed. Nothing is sent before that, so a transaction that is
not committed has never happened. Only a Tradewind server has transactions.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from tradewind.api.base import encode
from tradewind.api.endpoint_row import PREFIX
from tradewind.api.endpoints import ENDPOINT_BY_NAME
from tradewind.api.transaction_types import (
    ACKS_MAX,
    DELETES_MAX,
    PUBLISHES_MAX,
    REVIVALS_MAX,
    TransactionResponse,
)
from tradewind.client.core.headers import Headers
from tradewind.client.core.payloads import payload_bytes
from tradewind.client.errors import (
    NoRespondersError,
    NoTransactionsError,
    OperationTimeoutError,
    OptionsError,
)
from tradewind.client.streams.api_requests import ApiRequests, decode_answer
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.client.connection import HeaderInput, Payload
    from tradewind.client.core.message import Msg
    from tradewind.client.jetstream import PublishOptions

_SUBJECT = ENDPOINT_BY_NAME["transaction"].subject_for()


class Transaction:
    """Operations that happen together. Made by `js.transaction`; `result` is set by the commit."""

    result: TransactionResponse | None

    def __init__(
        self,
        api: ApiRequests,
        make_headers: Callable[[Any, Any], Any],
        timeout: float | None = None,
    ) -> None:
        if api.prefix != PREFIX:
            raise OptionsError("transaction: only without domain and api_prefix")
        self._api = api
        self._make_headers = make_headers
        self._timeout = api.timeout if timeout is None else timeout
        self._publishes: list[dict[str, Any]] = []
        self._acks: list[str] = []
        self._deletes: list[dict[str, Any]] = []
        self._revivals: list[dict[str, Any]] = []
        self._is_closed = False
        self.result = None

    @property
    def count(self) -> int:
        """The number of operations added so far."""
        others = len(self._deletes) + len(self._revivals)
        return len(self._publishes) + len(self._acks) + others

    def publish(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        headers: HeaderInput | None = None,
        **options: Unpack[PublishOptions],
    ) -> None:
        """Publish a message as part of the transaction; the options are those of `js.publish`."""
        self._check_open()
        if not is_valid_literal(subject):
            raise OptionsError(f"subject {subject!r}: tokens without blanks and wildcards")
        if len(self._publishes) == PUBLISHES_MAX:
            raise OptionsError(f"transaction: at most {PUBLISHES_MAX} messages")
        made = self._make_headers(headers, options)
        if isinstance(made, bytes):
            raise OptionsError("headers: must be a mapping, not an encoded block, in a transaction")
        data = payload_bytes(payload)
        self._api.check_payload(subject, data, made)
        member: dict[str, Any] = {
            "subject": subject,
            "payload": base64.b64encode(data).decode(),
        }
        if made:
            block = Headers(made)
            member["headers"] = {name: block.get_all(name) for name in block}
        self._publishes.append(member)

    def ack(self, message: Msg | str) -> None:
        """Acknowledge a delivered message as part of the transaction; do not acknowledge it
        otherwise. Its reply subject is enough.
        """
        self._check_open()
        reply = message if isinstance(message, str) else message.reply
        if not reply.startswith("$JS.ACK."):
            raise OptionsError("ack: only messages that a consumer has delivered")
        if not isinstance(message, str) and message.is_settled:
            raise OptionsError("ack: the message is acknowledged already")
        if len(self._acks) == ACKS_MAX:
            raise OptionsError(f"transaction: at most {ACKS_MAX} acknowledgements")
        self._acks.append(reply)

    def delete(self, stream: str, seq: int) -> None:
        """Delete a message of a stream as part of the transaction."""
        self._check_open()
        if len(self._deletes) == DELETES_MAX:
            raise OptionsError(f"transaction: at most {DELETES_MAX} deletes")
        self._deletes.append({"stream": stream, "seq": seq})

    def revive(self, stream: str, consumer: str, seq: int) -> None:
        """Make a consumer, and no other, redeliver a message that it has finished."""
        self._check_open()
        if len(self._revivals) == REVIVALS_MAX:
            raise OptionsError(f"transaction: at most {REVIVALS_MAX} revivals")
        self._revivals.append({"stream": stream, "consumer": consumer, "seq": seq})

    async def commit(self) -> TransactionResponse:
        """Commit all operations or none; JetStreamApiError names the operation that was refused.

        Without an answer the outcome is unknown. If a message of `ack` is delivered again, nothing
        was committed; otherwise everything was.
        """
        self._check_open()
        self._is_closed = True
        if not self.count:
            self.result = TransactionResponse()
            return self.result
        connection = self._api.connection
        body = {"publishes": self._publishes, "acks": self._acks, "deletes": self._deletes}
        if self._revivals:
            body["revivals"] = self._revivals
        try:
            reply = await connection.request(_SUBJECT, encode(body), timeout=self._timeout)
        except NoRespondersError:
            raise NoTransactionsError(
                f"no response on {_SUBJECT}: transactions need a Tradewind server with JetStream"
            ) from None
        except OperationTimeoutError as error:
            raise OperationTimeoutError(
                f"{error}; it is unknown whether the transaction was committed"
            ) from None
        self.result = decode_answer(reply.data, TransactionResponse)
        return self.result

    def cancel(self) -> None:
        """Discard all operations."""
        self._is_closed = True
        self._publishes.clear()
        self._acks.clear()
        self._deletes.clear()
        self._revivals.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise OptionsError("transaction: it is committed or cancelled; begin another one")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.cancel()
        elif not self._is_closed:
            await self.commit()
