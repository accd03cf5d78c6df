"""Dispatches requests on `$JS.API...` and `$TW.API...`, and sends the responses.

Owns the checks common to all requests and their order, the counters and the audit events. It never
executes a request, which is up to `handlers`; request bodies and the table of endpoints, from which
the subscribed subjects follow, are in `tradewind.api`.

A subject that looks like a request but is none gets no response, as with nats-server. Pull requests
and direct gets are not handled here: each consumer and stream subscribes to its own, so that a
request for a missing one has no responders.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final

from tradewind.api import errors
from tradewind.api.base import ApiStruct, encode
from tradewind.api.endpoint_row import (
    OWN_PREFIX,
    PREFIX,
    ApiEndpoint,
    Audit,
    Concurrency,
    EndpointCall,
)
from tradewind.api.endpoints import (
    ENDPOINT_BY_NAME,
    ENDPOINTS,
    heard_subjects,
    parse_subject,
    subjects_by_word,
)
from tradewind.api.errors import ApiError
from tradewind.api.request_types import MsgGetRequest
from tradewind.api.responses import TYPE_PREFIX, AccountInfoResponse, encode_error
from tradewind.api.versioning import is_level_known
from tradewind.broker.accounts import Account, InternalMessage
from tradewind.broker.contracts import printable
from tradewind.errors import StoreError
from tradewind.faults import INTERNAL_ERROR
from tradewind.jetstream.api_request import Answer, ApiRequest, DurableAnswer, HeadedAnswer
from tradewind.jetstream.clients import client_info
from tradewind.jetstream.deeds import Requester
from tradewind.jetstream.handlers import handler_of, load_handler
from tradewind.jetstream.lanes import Lane, Steps, Wait, computed
from tradewind.jetstream.legacy.legacy_listener import LegacyListener
from tradewind.jetstream.prompt_answers import PromptAnswers
from tradewind.jetstream.read_only import check_request
from tradewind.jetstream.unknown_requests import announce_domain, listen_silently
from tradewind.stream.get_request import plain_request

if TYPE_CHECKING:
    from tradewind.jetstream.engine import JetStreamEngine
    from tradewind.jetstream.jetstream_account import JetStreamAccount

REQUESTS_WAITING_MAX: Final = 10_000
# The body of a request that is decoded in the event loop.
INLINE_BYTES_MAX: Final = 8192
_DOMAIN_WORDS: Final = {
    subject.partition(".")[0].encode(): "." in subject for subject in subjects_by_word(PREFIX)
}
_HEARD: Final = (*heard_subjects(PREFIX), *heard_subjects(OWN_PREFIX))
_AT_ONCE: Final = tuple(each for each in ENDPOINTS if each.beside is Concurrency.ALL)


class SystemResponse(
    ApiStruct, frozen=True, kw_only=True, tag_field="type", tag=f"{TYPE_PREFIX}system_response"
):
    """The response to requests from the system account."""


class AccountPurgeResponse(
    ApiStruct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag=f"{TYPE_PREFIX}account_purge_response",
):
    """The response of ACCOUNT.PURGE."""

    initiated: bool = False


class Dispatcher:
    """Listens for API requests in all accounts of the broker, and answers them."""

    def __init__(self, engine: JetStreamEngine) -> None:
        self._engine = engine
        self._legacy = LegacyListener(engine, self.limit_waiting)
        self._prompt = PromptAnswers(engine)
        self._tokens: dict[str, list[int]] = {}
        self._domain_tokens: dict[str, int] = {}
        # For accounts without JetStream: they are only refused.
        self._lane = Lane(engine.workers, engine.set_time, engine.lane_fault, engine.broker.watch)

    def listen(self) -> None:
        """Subscribe to the requests of every account, including those that a reload added."""
        for name in self._engine.broker.accounts:
            self.listen_to(name)

    def listen_to(self, name: str) -> None:
        """Subscribe to the requests of one account."""
        broker = self._engine.broker
        account = broker.accounts[name]
        self._answer_domain(account)
        if account.bridge is not None and account.bridge.takes(
            ENDPOINT_BY_NAME["account_info"].subject_for()
        ):
            # The account's requests go to the JetStream of another account.
            self._stop_listening_to(name)
            return
        if name in self._tokens:
            return
        if broker.is_system_account(account):
            self._tokens[name] = [account.subscribe(f"{PREFIX}>", self._guarded(self._system))]
            return
        tokens = [account.subscribe(subject, self._guarded(self._api)) for subject in _HEARD]
        tokens.append(listen_silently(account))
        for endpoint in _AT_ONCE:
            heard = self._guarded(partial(self._at_once, endpoint))
            tokens.append(account.subscribe(endpoint.subject_for(), heard))
        if self._legacy.is_wanted and not self._engine.is_read_only:
            tokens += self._legacy.listen(account)
        self._tokens[name] = tokens

    def _answer_domain(self, account: Account) -> None:
        """Map requests that name the domain to plain ones, before any other mapping."""
        domain, broker = self._engine.domain, self._engine.broker
        if not domain or account.name in self._domain_tokens or broker.is_system_account(account):
            return
        prefix = f"$JS.{domain}.API.".encode()
        account.answer_domain(prefix, _DOMAIN_WORDS)
        self._domain_tokens[account.name] = announce_domain(account, prefix)

    def stop_listening(self) -> None:
        """Unsubscribe from all requests."""
        for name in list(self._tokens):
            self._stop_listening_to(name)
        for name, token in self._domain_tokens.items():
            account = self._engine.broker.accounts[name]
            account.answer_domain(b"", {})
            account.unsubscribe(token)
        self._domain_tokens.clear()

    def _stop_listening_to(self, name: str) -> None:
        for token in self._tokens.pop(name, ()):
            self._engine.broker.accounts[name].unsubscribe(token)

    def _guarded(
        self, handler: Callable[[InternalMessage], None]
    ) -> Callable[[InternalMessage], None]:
        """Wrap a handler so that the engine's time is current when it runs."""

        def guarded(message: InternalMessage) -> None:
            self._engine.set_time()
            handler(message)

        return guarded

    # ---------------------------------------------------------------- requests

    def _at_once(self, endpoint: ApiEndpoint, message: InternalMessage) -> None:
        """Handle a request outside the queue. Its handler is loaded with the first one."""
        try:
            check_request(self._engine, endpoint)
        except ApiError as error:
            assert endpoint.response is not None
            self._send(message, encode_error(endpoint.response, error))
            return
        load_handler(endpoint.handler)(self._engine, message)

    def _api(self, message: InternalMessage) -> None:
        if not self._prompt.answer(message):
            self._answer(message, message.subject)

    def _answer(self, message: InternalMessage, subject: str) -> None:
        call = parse_subject(subject)
        if call is None or call.endpoint.response is None:
            return
        tenant = self._engine.accounts.get(message.account.name)
        lane = tenant.lane if tenant is not None else self._lane
        if not lane.is_idle:
            self.limit_waiting()
        label = f"request {call.endpoint.name}"
        lane.add(self._serve(message, call, lane), call.endpoint.beside.value, label, subject)

    def limit_waiting(self) -> None:
        """Drop all waiting requests if there are too many, as nats-server does, and report that."""
        lanes = [tenant.lane for tenant in self._engine.accounts.values()]
        limit = self._engine.settings.options.request_queue_limit or REQUESTS_WAITING_MAX
        if sum(lane.waiting_count for lane in lanes) < limit:
            return
        dropped = sum(lane.drop_waiting() for lane in lanes)
        broker = self._engine.broker
        self._engine.log.warn(f"JetStream API queue limit reached, dropping {dropped} requests")
        if broker.system_account is not None:
            self._engine.advisories.api_limit_reached(
                broker.system_account, server=broker.server_name, dropped=dropped
            )

    def _serve(self, message: InternalMessage, call: EndpointCall, lane: Lane) -> Steps[None]:
        error, answer = yield from self._attempt(message, call)
        while lane.has_joined:
            yield Wait.OTHERS_FIRST  # earlier requests are answered first
        if isinstance(answer, DurableAnswer):
            answer.when_durable(partial(self._when_durable, message, call, answer))
        elif isinstance(answer, HeadedAnswer):
            self._finish(message, call, error, answer.response, answer.header)
        else:
            self._finish(message, call, error, answer)

    def _when_durable(
        self,
        message: InternalMessage,
        call: EndpointCall,
        answer: DurableAnswer,
        failure: StoreError | None,
    ) -> None:
        error = answer.failed(err=str(failure)) if failure is not None else None
        self._finish(message, call, error, answer.response, answer.header)
        if error is None and answer.then is not None:
            answer.then()

    def _finish(
        self,
        message: InternalMessage,
        call: EndpointCall,
        error: ApiError | None,
        response: ApiStruct | None,
        header: bytes = b"",
    ) -> None:
        assert call.endpoint.response is not None
        if error is None and response is None:
            return
        try:
            body = encode_error(call.endpoint.response, error) if error else encode(response)
        except Exception as fault:
            self._engine.faults.contain("request", fault, message.subject)
            error = errors.STREAM_GENERAL(err=INTERNAL_ERROR)
            body = encode_error(call.endpoint.response, error)
        audit = call.endpoint.audit
        if audit is Audit.NEVER or (error is None and audit is Audit.IF_REFUSED):
            self._send(message, body, header)
            return
        self._count(message.account.name, is_error=error is not None)
        self._send(message, body, header)
        self._audit(message, body)

    def _attempt(
        self, message: InternalMessage, call: EndpointCall
    ) -> Steps[tuple[ApiError | None, Answer]]:
        """Run a request; returns the error or the answer."""
        try:
            answer = yield from self._respond(message, call)
            if isinstance(answer, Generator):
                answer = yield from answer
        except ApiError as error:
            if error.is_kind(errors.INVALID_JSON):
                subject = printable(message.subject.encode("utf-8", "surrogateescape"))
                self._engine.log.warn(
                    f"Invalid JetStream request '{message.account.name} > {subject}': "
                    f"{error.description.removeprefix('invalid JSON: ')}"
                )
            return error, None
        except StoreError as error:  # a failing disk is not an internal error
            return errors.STREAM_STORE_FAILED(err=str(error)), None
        except Exception as error:  # an internal error must not leave the client waiting
            self._engine.faults.contain("request", error, message.subject)
            return errors.STREAM_GENERAL(err=INTERNAL_ERROR), None
        return None, answer

    def _count(self, account: str, *, is_error: bool) -> None:
        tenant = self._engine.accounts.get(account)
        if tenant is None:
            return
        for counts in (tenant.api, self._engine.api):
            counts.total += 1
            counts.errors += is_error

    def _respond(
        self, message: InternalMessage, call: EndpointCall
    ) -> Steps[Answer | Steps[Answer]]:
        """Do all checks in their order, then call the handler. A worker decodes a large body."""
        if call.endpoint.needs_cluster:
            raise errors.CLUSTER_REQUIRED()
        if not call.endpoint.reads_body_first:
            _check_level(message)
        check_request(self._engine, call.endpoint)
        tenant = self._engine.accounts.get(message.account.name)
        if tenant is None:
            raise errors.NOT_ENABLED_FOR_ACCOUNT()
        requester = Requester(message.account, message.session)
        requester.check_call(call)
        strict = self._engine.settings.options.strict
        try:
            content = yield from computed(
                partial(_decode, call, message.payload, strict=strict),
                is_large=len(message.payload) > INLINE_BYTES_MAX,
            )
        except ApiError as error:
            if call.endpoint.finds_stream_first and error.is_kind(errors.INVALID_JSON):
                tenant.stream(call.stream)
            raise
        if call.endpoint.reads_body_first:
            _check_level(message)
        request = ApiRequest(
            self._engine,
            tenant,
            call,
            content,
            message.payload,
            message.reply,
            requester,
            message.header,
        )
        return handler_of(call.endpoint)(request)

    def _send(self, message: InternalMessage, body: bytes, header: bytes = b"") -> None:
        if message.reply:
            message.account.publish(message.reply, body, header=header)

    def _audit(self, message: InternalMessage, body: bytes) -> None:
        if not self._engine.advisories.has_auditor(message.account):
            return
        server = self._engine.broker.server_name
        self._engine.advisories.api_audit(
            message.account,
            server=server,
            client=client_info(server, message.account, message.session, message.header),
            subject=message.subject,
            request=message.payload.decode("utf-8", "replace"),
            response=body.decode("utf-8", "replace"),
        )

    # ---------------------------------------------------------------- the system account

    def _system(self, message: InternalMessage) -> None:
        """Handle a request of the system account, which may remove the streams of others."""
        call = parse_subject(message.subject, is_system=True)
        if call is not None:
            if call.endpoint is ENDPOINT_BY_NAME["account_purge"]:
                self._purge_account(message, call.rest)
            return  # others are for clusters; a single nats-server does not answer either
        error = errors.NOT_ENABLED_FOR_ACCOUNT()
        if message.subject == ENDPOINT_BY_NAME["account_info"].subject_for():
            body = encode_error(AccountInfoResponse, error)
        else:
            body = encode_error(SystemResponse, error)
        self._send(message, body)
        self._audit(message, body)

    def _purge_account(self, message: InternalMessage, name: str) -> None:
        tenant = self._engine.accounts.get(name)
        count = len(tenant.streams) if tenant is not None else 0
        self._engine.log.notice(
            f"Purge request for account {printable(name.encode())} (streams: {count}, "
            f"hasAccount: {'true' if tenant is not None else 'false'})"
        )
        lane = tenant.lane if tenant is not None else self._lane
        lane.add(self._purge(message, tenant), "", "request account_purge", name)

    def _purge(self, message: InternalMessage, tenant: JetStreamAccount | None) -> Steps[None]:
        try:
            check_request(self._engine, ENDPOINT_BY_NAME["account_purge"])
            if tenant is not None:
                yield from self._engine.purge_account(tenant)
            body = encode(AccountPurgeResponse(initiated=True))
        except ApiError as error:
            body = encode_error(AccountPurgeResponse, error)
        self._send(message, body)
        self._audit(message, body)


def _check_level(message: InternalMessage) -> None:
    if message.header and not is_level_known(message.header):
        raise errors.REQUIRED_API_LEVEL()


def _decode(call: EndpointCall, body: bytes, *, strict: bool) -> ApiStruct | None:
    """Decode a request's body; requests for single messages have a fast path."""
    if call.endpoint.request is MsgGetRequest and (content := plain_request(body)) is not None:
        return content
    return call.endpoint.decode(body, strict=strict)
