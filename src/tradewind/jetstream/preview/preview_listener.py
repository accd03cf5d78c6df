"""Receives requests of the previews.

Owns the subjects, and passing a request to its function and back. It subscribes in every account
and only ever touches the streams of that account. Requests for messages are forwarded to the
current subject with their reply subject, so that they are served like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tradewind.api import errors
from tradewind.api.errors import ApiError
from tradewind.faults import INTERNAL_ERROR
from tradewind.jetstream.preview import preview_requests
from tradewind.jetstream.preview.dialects import OK, SETS, STREAMS, PreviewRefusal
from tradewind.jetstream.preview.preview_requests import OldRequest, WhenDurable

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account, InternalMessage
    from tradewind.errors import StoreError
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.lanes import Steps
    from tradewind.jetstream.preview.dialects import Dialect
    from tradewind.jetstream.preview.preview_requests import OldAnswer

NO_RESPONDERS: Final = b"NATS/1.0 503\r\n\r\n"
Handler = Callable[[OldRequest], "OldAnswer | Steps[OldAnswer] | Steps[bytes] | Steps[WhenDurable]"]


class OldEndpoint(NamedTuple):
    """`stream_at` and `consumer_at` are the places of their names in the subject, 0: none."""

    subject: str
    dialect: Dialect
    handler: Handler
    stream_at: int = 0
    consumer_at: int = 0


ENDPOINTS: Final = (
    OldEndpoint("$JS.ENABLED", STREAMS, preview_requests.enabled),
    OldEndpoint("$JS.INFO", STREAMS, preview_requests.account_info),
    OldEndpoint("$JS.MSGSETS", SETS, preview_requests.list_streams),
    OldEndpoint("$JS.MSGSET.CREATE", SETS, preview_requests.create_stream),
    OldEndpoint("$JS.MSGSET.INFO", SETS, preview_requests.set_info),
    OldEndpoint("$JS.MSGSET.DELETE", SETS, preview_requests.delete_stream),
    OldEndpoint("$JS.MSGSET.PURGE", SETS, preview_requests.purge),
    OldEndpoint("$JS.MSGSET.MSG.DELETE", SETS, preview_requests.delete_message),
    OldEndpoint("$JS.BYSEQ.*", SETS, preview_requests.set_message, 2),
    OldEndpoint("$JS.OBSERVABLES", SETS, preview_requests.list_observables),
    OldEndpoint("$JS.OBSERVABLE.CREATE", SETS, preview_requests.create_observable),
    OldEndpoint("$JS.OBSERVABLE.INFO", SETS, preview_requests.observable_info),
    OldEndpoint("$JS.OBSERVABLE.DELETE", SETS, preview_requests.delete_observable),
    OldEndpoint("$JS.STREAM.LIST", STREAMS, preview_requests.list_streams),
    OldEndpoint("$JS.STREAM.*.CREATE", STREAMS, preview_requests.create_stream, 2),
    OldEndpoint("$JS.STREAM.*.UPDATE", STREAMS, preview_requests.update_stream, 2),
    OldEndpoint("$JS.STREAM.*.INFO", STREAMS, preview_requests.stream_info, 2),
    OldEndpoint("$JS.STREAM.*.DELETE", STREAMS, preview_requests.delete_stream, 2),
    OldEndpoint("$JS.STREAM.*.PURGE", STREAMS, preview_requests.purge, 2),
    OldEndpoint("$JS.STREAM.*.MSG.DELETE", STREAMS, preview_requests.delete_message, 2),
    OldEndpoint("$JS.STREAM.*.MSG.BYSEQ", STREAMS, preview_requests.stream_message, 2),
    OldEndpoint("$JS.STREAM.*.CONSUMERS", STREAMS, preview_requests.list_consumers, 2),
    OldEndpoint("$JS.STREAM.*.CONSUMER.*.CREATE", STREAMS, preview_requests.create_consumer, 2, 4),
    OldEndpoint("$JS.STREAM.*.CONSUMER.*.INFO", STREAMS, preview_requests.consumer_info, 2, 4),
    OldEndpoint("$JS.STREAM.*.CONSUMER.*.DELETE", STREAMS, preview_requests.delete_consumer, 2, 4),
    OldEndpoint(
        "$JS.STREAM.*.EPHEMERAL.CONSUMER.CREATE", STREAMS, preview_requests.create_ephemeral, 2
    ),
    OldEndpoint("$JS.TEMPLATE.LIST", STREAMS, preview_requests.list_templates),
    OldEndpoint("$JS.TEMPLATE.*.CREATE", STREAMS, preview_requests.create_template),
    OldEndpoint("$JS.TEMPLATE.*.INFO", STREAMS, preview_requests.missing_template),
    OldEndpoint("$JS.TEMPLATE.*.DELETE", STREAMS, preview_requests.missing_template),
)
# Requests for the next messages: where the stream and the consumer are named.
NEXT_SUBJECTS: Final = {"$JS.RN.*.*": (2, 3), "$JS.STREAM.*.CONSUMER.*.NEXT": (2, 4)}
FIRST_WORDS: Final = frozenset(
    subject.split(".")[1] for subject in (*NEXT_SUBJECTS, *(each.subject for each in ENDPOINTS))
)


class PreviewListener:
    """Answers in all accounts. `limit_waiting` is called before a request has to wait."""

    def __init__(self, engine: JetStreamEngine, limit_waiting: Callable[[], None]) -> None:
        self._engine = engine
        self._limit_waiting = limit_waiting

    @property
    def is_wanted(self) -> bool:
        """Not if it is switched off, or if the name of the domain means something else here."""
        options = self._engine.settings.options
        if options.legacy_preview and options.domain in FIRST_WORDS:
            self._engine.log.warn(
                f"JetStream domain {options.domain!r} is a word of the JetStream previews:"
                " their requests are not answered"
            )
            return False
        return options.legacy_preview

    def listen(self, account: Account) -> list[int]:
        """Hear the requests of an account; gives the tokens of the subscriptions."""
        tokens = [account.subscribe(each.subject, partial(self._heard, each)) for each in ENDPOINTS]
        for subject, places in NEXT_SUBJECTS.items():
            tokens.append(account.subscribe(subject, partial(self._next, places)))
        return tokens

    def _heard(self, endpoint: OldEndpoint, message: InternalMessage) -> None:
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
        request = OldRequest(self._engine, tenant, endpoint.dialect, names, message.payload)
        steps = self._serve(endpoint, message, request)
        tenant.lane.add(steps, "", "request of a preview", message.subject)

    def _serve(
        self, endpoint: OldEndpoint, message: InternalMessage, request: OldRequest
    ) -> Steps[None]:
        dialect = endpoint.dialect
        try:
            answer = endpoint.handler(request)
            if isinstance(answer, Generator):
                answer = yield from answer
        except PreviewRefusal as refusal:
            answer = dialect.error(str(refusal))
        except ApiError as error:
            answer = dialect.error(dialect.text_of(error))
        except Exception as error:  # a fault of ours must not leave the client waiting
            self._engine.faults.contain("request", error, message.subject)
            answer = dialect.error(INTERNAL_ERROR)
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

    def _next(self, places: tuple[int, int], message: InternalMessage) -> None:
        """Messages are asked for: the consumer hears it as it does today."""
        tokens = message.subject.split(".")
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{tokens[places[0]]}.{tokens[places[1]]}"
        account = message.account
        receivers = account.publish(subject, message.payload, message.reply, message.header)
        if not receivers and message.reply:
            account.publish(message.reply, b"", header=NO_RESPONDERS)
