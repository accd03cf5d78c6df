"""$TW.API.COMMIT: from a request to its transaction, and to the answer.

Owns what a client may ask for: which stream takes a subject, which message an acknowledgement
belongs to, and whether the client may publish there; the bounds are in
`tradewind.api.transaction_types`. A message of a transaction goes only to the stream that has its
subject.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tradewind.api import errors, own_errors
from tradewind.api.base import encode
from tradewind.api.endpoint_row import EndpointCall
from tradewind.api.endpoints import ENDPOINT_BY_NAME
from tradewind.api.errors import ApiError
from tradewind.api.responses import encode_error
from tradewind.api.transaction_types import (
    ACKS_MAX,
    DELETES_MAX,
    PUBLISHES_MAX,
    REVIVALS_MAX,
    TransactionPlace,
    TransactionPublish,
    TransactionRequest,
    TransactionResponse,
    at,
    decode_transaction,
)
from tradewind.broker.leaf_session import LeafSession
from tradewind.jetstream.deeds import Requester
from tradewind.jetstream.transactions.account_transactions import transactions_of
from tradewind.jetstream.transactions.transaction_planning import AckPart, TransactionPlan
from tradewind.store.format.layout import short_hash
from tradewind.stream import header_fields
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.broker.accounts import InternalMessage
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.hosted import HostedStream
    from tradewind.jetstream.jetstream_account import JetStreamAccount

ACK_PREFIX: Final = "$JS.ACK."
# The requests that a client must be allowed to make if a transaction does the same.
_TRANSACTION: Final = ENDPOINT_BY_NAME["transaction"]
_MSG_DELETE: Final = ENDPOINT_BY_NAME["stream_msg_delete"]
_RESET: Final = ENDPOINT_BY_NAME["consumer_reset"]
# Tokens of an ack subject: without domain and account, with them, and with one more for the future.
_SHORT_TOKENS: Final = 9
_LONG_TOKENS: Final = (11, 12)


def serve_transaction(engine: JetStreamEngine, message: InternalMessage) -> None:
    """Answer a request, at once if it is refused."""
    try:
        tenant = engine.accounts.get(message.account.name)
        if tenant is None:
            raise errors.NOT_ENABLED_FOR_ACCOUNT()
        if isinstance(message.session, LeafSession):
            raise own_errors.TRANSACTION_INVALID(err="the client must be connected to this server")
        Requester(tenant.account, message.session).check_call(EndpointCall(_TRANSACTION))
        content = decode_transaction(message.payload)
        _check_bounds(content)
    except ApiError as error:
        _send(message, encode_error(TransactionResponse, error))
        return
    transactions_of(engine, tenant).submit(RequestProposal(engine, tenant, message, content))


def _check_bounds(content: TransactionRequest) -> None:
    for things, count, most in (
        ("publishes", len(content.publishes), PUBLISHES_MAX),
        ("acks", len(content.acks), ACKS_MAX),
        ("deletes", len(content.deletes), DELETES_MAX),
        ("revivals", len(content.revivals), REVIVALS_MAX),
    ):
        if count > most:
            raise own_errors.TRANSACTION_TOO_LARGE(count=count, things=things, most=most)
    if not (content.publishes or content.acks or content.deletes or content.revivals):
        raise own_errors.TRANSACTION_INVALID(err="there is nothing to do")


def _send(message: InternalMessage, body: bytes) -> None:
    if message.reply:
        message.account.publish(message.reply, body)


class RequestProposal:
    """The transaction of one request."""

    def __init__(
        self,
        engine: JetStreamEngine,
        tenant: JetStreamAccount,
        message: InternalMessage,
        content: TransactionRequest,
    ) -> None:
        self._engine = engine
        self._tenant = tenant
        self._message = message
        self._content = content
        self._places: list[TransactionPlace] = []
        self.size = len(message.payload)

    def plan(self) -> TransactionPlan:
        """See `Proposal`."""
        plan = TransactionPlan()
        for index, publish in enumerate(self._content.publishes):
            try:
                self._add_publish(plan, publish)
            except ApiError as error:
                raise at("publishes", index, error) from None
        for index, subject in enumerate(self._content.acks):
            try:
                plan.add_ack(self._ack(subject))
            except ApiError as error:
                raise at("acks", index, error) from None
        for index, delete in enumerate(self._content.deletes):
            try:
                self._check_allowed(_MSG_DELETE.subject_for(delete.stream))
                plan.add_delete(self._tenant.stream(delete.stream), delete.seq)
            except ApiError as error:
                raise at("deletes", index, error) from None
        for index, wanted in enumerate(self._content.revivals):
            try:
                self._check_allowed(_RESET.subject_for(wanted.stream, wanted.consumer))
                hosted = self._tenant.stream(wanted.stream)
                consumer = hosted.consumer(wanted.consumer)
                plan.add_revival(AckPart(hosted, consumer, wanted.seq, 0, 0))
            except ApiError as error:
                raise at("revivals", index, error) from None
        return plan

    def happened(self, plan: TransactionPlan) -> None:
        """See `Proposal`."""
        response = TransactionResponse(
            publishes=self._places,
            acks=len(plan.acks),
            deletes=len(plan.deletes),
            revivals=len(plan.revivals),
        )
        _send(self._message, encode(response))

    def refused(self, error: ApiError) -> None:
        """See `Proposal`."""
        _send(self._message, encode_error(TransactionResponse, error))

    # ---------------------------------------------------------------- messages

    def _add_publish(self, plan: TransactionPlan, publish: TransactionPublish) -> None:
        if not is_valid_literal(publish.subject):
            raise own_errors.TRANSACTION_INVALID(
                err=f"subject {publish.subject!r} is not one that can be published to"
            )
        self._check_allowed(publish.subject)
        hosted = self._owner(publish.subject)
        header = header_block(publish.headers)
        message = hosted.stream.slow_path.incoming(
            publish.subject.encode(), header, publish.payload
        )
        seq = plan.add_publish(hosted, message)
        self._places.append(TransactionPlace(stream=hosted.name, seq=seq))

    def _check_allowed(self, subject: str) -> None:
        """Check that the client may publish to a subject, as it must be without a transaction."""
        if not Requester(self._tenant.account, self._message.session).may(subject):
            raise own_errors.TRANSACTION_NOT_ALLOWED(subject=subject)

    def _owner(self, subject: str) -> HostedStream:
        owners = self._tenant.owners
        for name in owners.colliding(subject, owners.effort([subject])):
            hosted = self._tenant.streams.get(name)
            if hosted is not None and hosted.stream.is_active:
                return hosted
        raise own_errors.TRANSACTION_NO_STREAM(subject=subject)

    # ---------------------------------------------------------------- acknowledgements

    def _ack(self, subject: str) -> AckPart:
        """The message that an ack subject refers to."""
        tokens = subject.split(".")
        if not subject.startswith(ACK_PREFIX) or len(tokens) not in (_SHORT_TOKENS, *_LONG_TOKENS):
            raise own_errors.TRANSACTION_INVALID(
                err=f"{subject!r} is not the reply subject of a delivered message"
            )
        if len(tokens) in _LONG_TOKENS:
            if tokens[3] not in ("_", short_hash(self._tenant.name)):
                raise own_errors.TRANSACTION_INVALID(err="the message belongs to another account")
            tokens = tokens[:2] + tokens[4:]
        numbers = tokens[4:7]
        if not all(text.isascii() and text.isdigit() and len(text) < 20 for text in numbers):
            raise own_errors.TRANSACTION_INVALID(
                err=f"{subject!r} is not the reply subject of a delivered message"
            )
        self._check_allowed(subject)
        hosted = self._tenant.stream(tokens[2])
        consumer = hosted.consumer(tokens[3])
        deliveries, seq, consumer_seq = map(int, numbers)
        return AckPart(hosted, consumer, seq, consumer_seq, max(deliveries, 1))


def header_block(headers: dict[str, str | list[str]]) -> bytes:
    """Encode headers as a block, empty without any; ApiError names a header that is invalid."""
    lines: list[bytes] = []
    for name, given in headers.items():
        if not name or not name.isascii() or not name.isprintable() or ":" in name or " " in name:
            raise own_errors.TRANSACTION_INVALID(err=f"{name!r} cannot be the name of a header")
        for value in [given] if isinstance(given, str) else given:
            if "\r" in value or "\n" in value:
                raise own_errors.TRANSACTION_INVALID(
                    err=f"the value of header {name} must be one line"
                )
            lines.append(f"{name}: {value}\r\n".encode())
    return header_fields.add_fields(b"", b"".join(lines)) if lines else b""
