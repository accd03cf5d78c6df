"""Answer requests of the system account, and the few that every account may send about itself.

Owns the subjects and the filter that selects servers. The contents of responses come from
`system_requests` and MonitorView. It never performs actions itself (reload, kick, lame duck): it
calls the functions it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from tradewind.durations import SECOND_NS
from tradewind.errors import TradewindError
from tradewind.faults import INTERNAL_ERROR
from tradewind.monitor.facade import MonitorView
from tradewind.monitor.formats import compact_json, present
from tradewind.monitor.page_options import Options
from tradewind.monitor.parameters import PageError
from tradewind.monitor.stepping import (
    StartWork,
    Stepped,
    at_once,
    result_of,
    start_at_once,
)
from tradewind.monitor.system_events import SystemEvents
from tradewind.monitor.system_requests import (
    ACCOUNT_ENDPOINTS,
    OWN_ENDPOINTS,
    SERVER_ENDPOINTS,
    ClientRequest,
    ConnectionsRequest,
    CountRequest,
    MonitorReply,
    NoAnswerError,
    RequestError,
    ServerId,
    SystemEndpoint,
    UserInfo,
    accepted_encoding,
    count_subscribers,
    decode_body,
    decode_nullable,
    decode_options,
    encoded,
    user_permissions,
)
from tradewind.monitor.varz import cluster_name
from tradewind.status_codes import BAD_REQUEST, FAILED

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account, InternalMessage
    from tradewind.broker.broker import Broker
    from tradewind.broker.contracts import ClosedSession
    from tradewind.broker.session import Session


_COUNT_REQUEST: Final = msgspec.json.Decoder(CountRequest)
_CONNECTIONS_REQUEST: Final = msgspec.json.Decoder(ConnectionsRequest)
_CLIENT_REQUEST: Final = msgspec.json.Decoder(ClientRequest)

# Responds to a request, possibly in steps.
Handler: TypeAlias = "Callable[[InternalMessage], Stepped[None] | None]"


class SystemServices:
    """The server's services in the system account and in all others, and its events.

    `reload` reads the configuration again and calls back with None, or with the error if that
    fails; `kick` closes one connection and `lame_duck` asks one client to move elsewhere, both by
    id, and return False if there is no such connection.
    """

    def __init__(
        self,
        broker: Broker,
        reload: Callable[[Callable[[TradewindError | None], None]], None],
        kick: Callable[[int], bool],
        lame_duck: Callable[[int], bool],
        view: MonitorView | None = None,
        start_work: StartWork = start_at_once,
    ) -> None:
        self._broker = broker
        self._view = view if view is not None else MonitorView(broker)
        self._reload = reload
        self._start_work = start_work
        self._kick = kick
        self._lame_duck = lame_duck
        self._system: Account | None = None
        self._served: dict[str, tuple[Account, list[Any]]] = {}
        self.events = SystemEvents(self._view)

    # ---------------------------------------------------------------- life cycle

    def start(self) -> None:
        """Serve every account. Must be called again when accounts were added, removed or
        replaced.
        """
        at_once(self.start_steps())

    def start_steps(self) -> Stepped[None]:
        """Serve every account, in steps."""
        system = self._broker.system_account
        if system is not self._system:
            self.stop()
        self._system = system
        if system is None:
            return
        for name, (account, tokens) in list(self._served.items()):
            if self._broker.accounts.get(name) is not account:
                del self._served[name]
                self._withdraw(account, tokens)
                yield
        for name in list(self._broker.accounts):
            self.account_added(name)
            yield

    def account_added(self, name: str) -> None:
        """Serve one account, if it is not served yet."""
        system = self._system
        if system is None or name in self._served:
            return
        account = self._broker.accounts[name]
        handlers = self._system_handlers() if account is system else self._own_handlers(account)
        tokens = [
            account.subscribe(subject, partial(self._serve, account, handler))
            for subject, handler in handlers.items()
        ]
        self._served[name] = (account, tokens)

    def stop(self) -> None:
        """Stop serving accounts."""
        for account, tokens in self._served.values():
            self._withdraw(account, tokens)
        self._served = {}

    @staticmethod
    def _withdraw(account: Account, tokens: list[Any]) -> None:
        for token in tokens:
            account.unsubscribe(token)

    def tick(self, now_ns: int) -> int:
        """Publish the events due at this wall clock time; returns the time of the next call."""
        return self.events.tick(now_ns)

    def on_connect(self, session: Session) -> None:
        """Called when a client was accepted."""
        self.events.on_connect(session)

    def on_disconnect(self, closed: ClosedSession) -> None:
        """Called when a connection has ended."""
        self.events.on_disconnect(closed)

    def on_auth_error(self, session: Session, reason: str, told: Account | None = None) -> None:
        """Called when a login was refused."""
        self.events.on_auth_error(session, reason, told)

    def announce_shutdown(self) -> None:
        """Called when the server is about to end."""
        self.events.announce_shutdown()

    def announce_lame_duck(self) -> None:
        """Called when the server begins to disconnect its clients."""
        self.events.announce_lame_duck()

    # ---------------------------------------------------------------- subjects

    def _system_handlers(self) -> dict[str, Handler]:
        account = self._system
        assert account is not None
        own = f"$SYS.REQ.SERVER.{self._broker.server_id}"
        handlers: dict[str, Handler] = {
            "$SYS.REQ.SERVER.PING": self._statsz,
            "$SYS.REQ.USER.INFO": partial(self._user_info, account),
            "$SYS.REQ.ACCOUNT.*.CONNS": self._account_conns,
            "$SYS.REQ.ACCOUNT.NSUBS": self._count_by_account,
            "$SYS.DEBUG.SUBSCRIBERS": self._count_by_subject,
            f"{own}.RELOAD": self._on_reload,
            f"{own}.KICK": partial(self._on_client, self._kick, "no such client or leafnode id"),
            f"{own}.LDM": partial(self._on_client, self._lame_duck, "no such client id"),
        }
        for target in (own, "$SYS.REQ.SERVER.PING"):
            handlers[f"{target}.IDZ"] = self._idz
            handlers[f"{target}.STATSZ"] = self._statsz
            for name, endpoint in SERVER_ENDPOINTS.items():
                handlers[f"{target}.{name}"] = partial(self._on_server, endpoint)
        for name, endpoint in ACCOUNT_ENDPOINTS.items():
            handlers[f"$SYS.REQ.ACCOUNT.*.{name}"] = partial(self._on_account, endpoint)
        return handlers

    def _own_handlers(self, account: Account) -> dict[str, Handler]:
        handlers: dict[str, Handler] = {"$SYS.REQ.USER.INFO": partial(self._user_info, account)}
        for subject, name in OWN_ENDPOINTS.items():
            handlers[subject] = partial(self._on_own, account, ACCOUNT_ENDPOINTS[name])
        return handlers

    def _serve(self, account: Account, handler: Handler, message: InternalMessage) -> None:
        work = self._answered(account, handler, message)
        self._start_work("service", message.subject, work)

    def _answered(
        self, account: Account, handler: Handler, message: InternalMessage
    ) -> Stepped[None]:
        try:
            yield from result_of(handler(message))
        except Exception:  # a requester must not wait for a response that never comes
            if message.reply:
                error = RequestError(FAILED, INTERNAL_ERROR)
                reply = MonitorReply(server=self.events.server_info(), error=error)
                account.publish(message.reply, compact_json(reply))
            raise

    # ---------------------------------------------------------------- requests for pages

    def _on_server(self, endpoint: SystemEndpoint, message: InternalMessage) -> Stepped[None]:
        return self._answer(self._system, endpoint, "", message)

    def _on_account(self, endpoint: SystemEndpoint, message: InternalMessage) -> Stepped[None]:
        return self._answer(self._system, endpoint, message.subject.split(".")[3], message)

    def _on_own(
        self, account: Account, endpoint: SystemEndpoint, message: InternalMessage
    ) -> Stepped[None]:
        return self._answer(account, endpoint, account.name, message)

    def _answer(
        self, where: Account | None, endpoint: SystemEndpoint, name: str, message: InternalMessage
    ) -> Stepped[None]:
        if not message.reply or where is None:
            return
        data: Any = UNSET
        error: RequestError | UnsetType = UNSET
        try:
            options = decode_options(message.payload, endpoint.options)
            if not self._is_meant(options):
                return
            data = yield from result_of(endpoint.build(self._view, options, name))
        except NoAnswerError:
            return
        except msgspec.DecodeError as fault:
            error = RequestError(BAD_REQUEST, str(fault))
        except PageError as fault:
            data, error = None, RequestError(FAILED, str(fault))
        reply = MonitorReply(server=self.events.server_info(), data=data, error=error)
        from tradewind.monitor.json_steps import json_steps  # with the first request

        pieces = yield from json_steps(reply, indented=False)
        header, body = yield from encoded(pieces, accepted_encoding(message.header))
        where.publish(message.reply, body, header=header)

    def _is_meant(self, options: Options) -> bool:
        """Whether a filter includes this server; names match by part unless exact."""
        settings = self._broker.options
        host = self._view.listening.host or settings.host
        domain = settings.jetstream.domain if self._view.jetstream is not None else ""
        for wanted, given in (
            (options.server_name, self._broker.server_name),
            (options.host, host),
            (options.cluster, cluster_name(self._broker)),
        ):
            if wanted and (wanted != given if options.exact_match else wanted not in given):
                return False
        if options.domain and options.domain != domain:
            return False
        tags = {tag.lower() for tag in settings.server_tags}
        return all(tag.lower() in tags for tag in options.tags)

    # ---------------------------------------------------------------- other requests

    def _reply(self, message: InternalMessage, document: Any) -> None:
        if message.reply and self._system is not None:
            self._system.publish(message.reply, compact_json(document))

    def _idz(self, message: InternalMessage) -> None:
        broker = self._broker
        host = self._view.listening.host or broker.options.host
        self._reply(message, ServerId(name=broker.server_name, host=host, id=broker.server_id))

    def _statsz(self, message: InternalMessage) -> None:
        try:
            if self._is_meant(decode_options(message.payload, Options)):
                self._reply(message, self.events.statsz())
        except msgspec.DecodeError as error:
            self._refuse(message, BAD_REQUEST, str(error))

    def _refuse(self, message: InternalMessage, code: int, text: str) -> None:
        error = RequestError(code, text)
        self._reply(message, MonitorReply(server=self.events.server_info(), error=error))

    def _user_info(self, account: Account, message: InternalMessage) -> None:
        session: Session | None = message.session
        if session is None or not message.reply:
            return
        rules = session.permissions
        info = UserInfo(
            user=session.user,
            account=account.name,
            account_name=account.name,
            permissions=user_permissions(rules) if rules is not None else UNSET,
        )
        identity = self._broker.identity_of(session.cid)
        if identity is not None and identity.claims is not None:
            info.account_name = present(identity.account_title)
            info.user_name = present(identity.claims.name)
            if identity.claims.exp:
                now_seconds = -(-self._broker.now_ns() // SECOND_NS)
                info.expires = (identity.claims.exp - now_seconds) * SECOND_NS
        reply = MonitorReply(server=self.events.server_info(), data=info)
        account.publish(message.reply, compact_json(reply))

    def _account_conns(self, message: InternalMessage) -> None:
        account = self._broker.accounts.get(message.subject.split(".")[3])
        try:
            if message.payload:
                decode_nullable(_CONNECTIONS_REQUEST, message.payload)
        except msgspec.DecodeError:
            return
        if account is not None and account.session_count:
            self._reply(message, self.events.account_connections(account))

    def _count_by_account(self, message: InternalMessage) -> Stepped[None]:
        try:
            request = decode_body(_COUNT_REQUEST, message.payload)
        except msgspec.DecodeError:
            return
        account = self._broker.accounts.get(request.acc)
        if account is not None:
            self._reply(message, (yield from count_subscribers(account, request.subject)))

    def _count_by_subject(self, message: InternalMessage) -> Stepped[None]:
        if self._system is not None:
            subject, _, queue = message.payload.decode("utf-8", "replace").strip().partition(" ")
            count = yield from count_subscribers(self._system, subject, queue.strip())
            self._reply(message, count)

    # ---------------------------------------------------------------- requests for actions

    def _on_reload(self, message: InternalMessage) -> None:
        def done(error: TradewindError | None) -> None:
            if error is not None:
                self._refuse(message, FAILED, str(error))
            else:
                self._reply(message, MonitorReply(server=self.events.server_info()))

        try:
            if self._is_meant(decode_options(message.payload, Options)):
                self._reload(done)
        except msgspec.DecodeError as error:
            self._refuse(message, BAD_REQUEST, str(error))

    def _on_client(
        self, act: Callable[[int], bool], missing: str, message: InternalMessage
    ) -> None:
        """Act on one client by id. A body that cannot be parsed gets no response, as on the
        official server; one whose filter cannot be parsed is refused.
        """
        try:
            request = decode_nullable(_CLIENT_REQUEST, message.payload) or ClientRequest()
        except msgspec.DecodeError:
            return
        try:
            if not self._is_meant(decode_options(message.payload, Options)):
                return
        except msgspec.DecodeError as error:
            self._refuse(message, BAD_REQUEST, str(error))
            return
        if act(request.cid):
            self._reply(message, MonitorReply(server=self.events.server_info()))
        else:
            self._refuse(message, FAILED, missing)
