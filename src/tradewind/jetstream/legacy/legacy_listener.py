"""Receives requests of the previews.

Owns passing a request to its function and back; the subjects are the preview forms in the table of
endpoints (`tradewind.api.endpoints`). It subscribes in every account and only ever touches the
streams of that account. Requests for messages are forwarded to the current subject with their reply
subject, so that they are served like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api import errors
from tradewind.api.endpoint_row import LEGACY_PREFIX, ApiEndpoint, LegacyForm, LegacyWords
from tradewind.api.endpoints import ENDPOINT_BY_NAME, ENDPOINTS
from tradewind.api.errors import ApiError
from tradewind.faults import INTERNAL_ERROR
from tradewind.jetstream.deeds import Requester
from tradewind.jetstream.handlers import load_handler
from tradewind.jetstream.legacy.dialects import OK, SETS, STREAMS, LegacyRefusal

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account, InternalMessage
    from tradewind.errors import StoreError
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.lanes import Steps
    from tradewind.jetstream.legacy.dialects import Dialect
    from tradewind.jetstream.legacy.legacy_requests import LegacyAnswer, LegacyRequest, WhenDurable

NO_RESPONDERS: Final = b"NATS/1.0 503\r\n\r\n"
if TYPE_CHECKING:
    Handler = Callable[
        [LegacyRequest], LegacyAnswer | Steps[LegacyAnswer] | Steps[bytes] | Steps[WhenDurable]
    ]


class LegacyEndpoint(msgspec.Struct, frozen=True):
    """An endpoint of a preview; `stream_at` and `consumer_at` are the positions of their names in
    the subject, 0: none.

    Without a handler, the consumer itself answers.
    """

    subject: str
    dialect: Dialect
    handler: str
    stream_at: int
    consumer_at: int
    today: ApiEndpoint


def _legacy_endpoint(form: LegacyForm, today: ApiEndpoint) -> LegacyEndpoint:
    tokens = (LEGACY_PREFIX + form.subject).split(".")
    stream_at, consumer_at = (tokens.index(name) if name in tokens else 0 for name in ("$s", "$c"))
    subject = ".".join("*" if token in ("$s", "$c") else token for token in tokens)
    return LegacyEndpoint(
        subject, _DIALECTS[form.words], form.handler, stream_at, consumer_at, today
    )


_DIALECTS: Final = {LegacyWords.SETS: SETS, LegacyWords.STREAMS: STREAMS}
_CONSUMER_NEXT: Final = ENDPOINT_BY_NAME["consumer_next"]
LEGACY_ENDPOINTS: Final = tuple(
    _legacy_endpoint(form, endpoint) for endpoint in ENDPOINTS for form in endpoint.legacy
)
FIRST_WORDS: Final = frozenset(each.subject.split(".")[1] for each in LEGACY_ENDPOINTS)


class LegacyListener:
    """Answers preview requests in all accounts; calls `limit_waiting` before one has to wait."""

    def __init__(self, engine: JetStreamEngine, limit_waiting: Callable[[], None]) -> None:
        self._engine = engine
        self._limit_waiting = limit_waiting

    @property
    def is_wanted(self) -> bool:
        """Whether to listen: not if switched off, or if the domain is a word of the previews."""
        options = self._engine.settings.options
        if options.legacy_preview and options.domain in FIRST_WORDS:
            self._engine.log.warn(
                f"JetStream domain {options.domain!r} is a word of the JetStream previews:"
                " their requests are not answered"
            )
            return False
        return options.legacy_preview

    def listen(self, account: Account) -> list[int]:
        """Subscribe to the requests of an account; returns the tokens of the subscriptions."""
        return [
            account.subscribe(
                each.subject,
                partial(self._heard if each.handler else self._next, each),
            )
            for each in LEGACY_ENDPOINTS
        ]

    def _heard(self, endpoint: LegacyEndpoint, message: InternalMessage) -> None:
        self._engine.set_time()
        tenant = self._engine.accounts.get(message.account.name)
        if tenant is None:
            text = endpoint.dialect.text_of(errors.NOT_ENABLED_FOR_ACCOUNT())
            self._send(message, endpoint.dialect.error(text))
            return
        if not tenant.lane.is_idle:
            self._limit_waiting()
        tokens = message.subject.split(".")
        names = (
            tokens[endpoint.stream_at] if endpoint.stream_at else "",
            tokens[endpoint.consumer_at] if endpoint.consumer_at else "",
        )
        from tradewind.jetstream.legacy.legacy_requests import LegacyRequest

        requester = Requester(message.account, message.session)
        request = LegacyRequest(
            self._engine,
            tenant,
            endpoint.dialect,
            names,
            message.payload,
            endpoint.today,
            requester,
        )
        steps = self._serve(endpoint.dialect, load_handler(endpoint.handler), message, request)
        tenant.lane.add(steps, "", "request of a preview", message.subject)

    def _serve(
        self, dialect: Dialect, handler: Handler, message: InternalMessage, request: LegacyRequest
    ) -> Steps[None]:
        try:
            if request.endpoint.subject and "$" not in request.endpoint.subject:
                request.check_allowed()
            answer = handler(request)
            if isinstance(answer, Generator):
                answer = yield from answer
        except LegacyRefusal as refusal:
            answer = dialect.error(str(refusal))
        except ApiError as error:
            answer = dialect.error(dialect.text_of(error))
        except Exception as error:  # an internal error must not leave the client waiting
            self._engine.faults.contain("request", error, message.subject)
            answer = dialect.error(INTERNAL_ERROR)
        from tradewind.jetstream.legacy.legacy_requests import WhenDurable

        if isinstance(answer, WhenDurable):
            answer.hosted.commits.when_durable(partial(self._durable, dialect, message))
        else:
            self._send(message, answer)

    def _durable(
        self, dialect: Dialect, message: InternalMessage, failure: StoreError | None
    ) -> None:
        self._send(message, OK if failure is None else dialect.error(str(failure)))

    def _send(self, message: InternalMessage, body: bytes) -> None:
        if message.reply:
            message.account.publish(message.reply, body)

    def _next(self, endpoint: LegacyEndpoint, message: InternalMessage) -> None:
        """Forward a request for messages to the consumer's current subject."""
        tokens = message.subject.split(".")
        subject = _CONSUMER_NEXT.subject_for(
            tokens[endpoint.stream_at], tokens[endpoint.consumer_at]
        )
        account = message.account
        if not Requester(account, message.session).may(subject):
            return
        receivers = account.ask(subject, message.payload, message.reply, message.header)
        if not receivers and message.reply:
            account.publish(message.reply, b"", header=NO_RESPONDERS)
