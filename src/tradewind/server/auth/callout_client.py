"""Auth callout: an external service decides which clients may connect.

Owns the pending requests to the service, and the keys with which the server signs and encrypts
them. A request is a message in the account of the service; its response arrives on a reply subject
of the server. A pending request blocks only its connection, never the event loop.

    login -> gate: Consultation -> $SYS.REQ.USER.AUTH ... $SYS._INBOX.<server>.<question> -> gate

Each request contains a new user key, which the response must repeat. A response to another request
and a replayed response are therefore rejected. Only the first response is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from tradewind import nkeys
from tradewind.broker.identity import (
    Consultation,
    Credentials,
    Identity,
    PendingLogin,
    Rejection,
)
from tradewind.broker.latency import server_hash
from tradewind.broker.room import Guests, Room
from tradewind.durations import SECOND_NS
from tradewind.jwt import UserClaims
from tradewind.jwt.codec import encode
from tradewind.route.permission_rules import PermissionRules
from tradewind.server.auth.callout_answers import CalloutError, CalloutQuestion, read_answer
from tradewind.server.auth.callout_requests import ClaimedUser, request_claims

if TYPE_CHECKING:
    from tradewind.broker.accounts import InternalMessage
    from tradewind.broker.broker import Broker
    from tradewind.broker.session import Session

SUBJECT = "$SYS.REQ.USER.AUTH"
XKEY_FIELD = "Nats-Server-Xkey"
# The limit for waiting requests; half of it is the limit for those about one address.
WAITING_MAX = 8192
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

Admit = Callable[[UserClaims, Credentials], Identity | Rejection | PendingLogin]


class CalloutService(msgspec.Struct, frozen=True):
    """The service to ask: its account, and the key that must sign its response."""

    account: str
    issuer: str
    xkey: str = ""


class _PendingCallout(msgspec.Struct, eq=False):
    """A pending request; `claims` are those of its response, while an account is fetched."""

    question: CalloutQuestion
    credentials: Credentials
    admit: Admit
    decided: Callable[[Identity | Rejection], None]
    claims: UserClaims | None = None


class CalloutClient:
    """The pending requests of one server; used in the event loop only. `broker` is set before the
    first login.
    """

    def __init__(self) -> None:
        self.server_key = nkeys.KeyPair.create(nkeys.SERVER)
        self.curve_key = nkeys.CurveKeyPair.create()
        self.broker: Broker | None = None
        self._room = Room(WAITING_MAX)
        self._guests: Guests[str] = Guests(self._room)
        self._waiting: dict[str, _PendingCallout] = {}
        self._heard: set[str] = set()
        self._inbox = ""

    def now_ns(self) -> int:
        """The wall clock of the server."""
        assert self.broker is not None
        return self.broker.now_ns()

    @property
    def waiting(self) -> int:
        """The number of pending requests."""
        return len(self._waiting)

    def consultation(
        self,
        service: CalloutService,
        credentials: Credentials,
        claimed: ClaimedUser,
        is_issuer: Callable[[str, str], bool],
        admit: Admit,
        key: object,
    ) -> Consultation:
        """Ask a service about a login; `admit` decides about the user that the service accepts."""

        def start(
            session: Session, decided: Callable[[Identity | Rejection], None]
        ) -> Callable[[], None] | Rejection:
            return self._ask(service, session, credentials, claimed, is_issuer, admit, decided)

        text = f'Authorization callout response not received in time on account "{service.account}"'
        return Consultation(start, Rejection(text, told_account=service.account), key)

    def _ask(
        self,
        service: CalloutService,
        session: Session,
        credentials: Credentials,
        claimed: ClaimedUser,
        is_issuer: Callable[[str, str], bool],
        admit: Admit,
        decided: Callable[[Identity | Rejection], None],
    ) -> Callable[[], None] | Rejection:
        broker = self.broker
        assert broker is not None
        account = broker.accounts.get(service.account)
        if account is None:
            return self._refusal(
                f'No valid account "{service.account}" for auth callout request: account missing',
                service.account,
            )
        if not account.has_interest(SUBJECT):
            # Without subscribers there is nothing to wait for.
            return self._refusal(
                f'No auth callout service is connected in account "{service.account}"',
                service.account,
            )
        if not self._room.has_place_for(session.remote_ip):
            return self._refusal("too many logins wait for a service", service.account)
        question = CalloutQuestion(
            nkeys.encode_public(nkeys.USER, os.urandom(nkeys.KEY_BYTES)),
            service.account,
            service.xkey,
            broker.server_id,
            is_issuer,
        )
        claims = request_claims(
            broker,
            session,
            credentials,
            claimed,
            user_key=question.user_key,
            issuer=service.issuer,
            xkey=self.curve_key.public if service.xkey else "",
        )
        payload = encode(claims, self.server_key, broker.now_ns() // SECOND_NS).encode()
        header = b""
        if service.xkey:
            payload = self.curve_key.seal(payload, service.xkey)
            header = f"NATS/1.0\r\n{XKEY_FIELD}: {self.curve_key.public}\r\n\r\n".encode()
        number = _random_text()
        self._hear(service.account)
        self._waiting[number] = _PendingCallout(question, credentials, admit, decided)
        self._guests.add(number, session.remote_ip)
        account.publish(SUBJECT, payload, self._inbox + number, header)
        return lambda: self._forget(number)

    def _hear(self, account_name: str) -> None:
        """Subscribe to the responses in an account; one subscription receives all of them."""
        assert self.broker is not None
        if not self._inbox:
            self._inbox = f"$SYS._INBOX.{server_hash(self.broker.server_name)}."
        if account_name not in self._heard:
            self._heard.add(account_name)
            self.broker.accounts[account_name].subscribe(self._inbox + "*", self._answered)

    def _forget(self, number: str) -> None:
        self._waiting.pop(number, None)
        self._guests.discard(number)

    def _answered(self, message: InternalMessage) -> None:
        number = message.subject.rpartition(".")[2]
        waiting = self._waiting.get(number)
        if (
            waiting is None
            or waiting.claims is not None
            or waiting.question.account != message.account.name
        ):
            return  # too late, or never requested
        assert self.broker is not None
        try:
            waiting.claims = read_answer(
                waiting.question, message.payload, self.curve_key, self.broker.now_ns()
            )
        except CalloutError as error:
            self._decide(number, waiting, Rejection(str(error)))
            return
        self._admit(number)

    def _admit(self, number: str) -> None:
        """Called when a valid response has arrived: admit the user, or first fetch its account."""
        waiting = self._waiting.get(number)
        if waiting is None or waiting.claims is None:
            return  # cancelled meanwhile
        decision = waiting.admit(waiting.claims, waiting.credentials)
        if not isinstance(decision, PendingLogin):
            self._decide(number, waiting, decision)
        elif not decision.start(lambda: self._admit(number)):
            self._decide(number, waiting, Rejection("too many logins wait for their accounts"))

    def _decide(
        self, number: str, waiting: _PendingCallout, decision: Identity | Rejection
    ) -> None:
        self._forget(number)
        if isinstance(decision, Rejection):
            decision = self._refusal(decision.reason, waiting.question.account)
        waiting.decided(decision)

    def _refusal(self, reason: str, account: str) -> Rejection:
        assert self.broker is not None
        self.broker.log.warn(reason)
        return Rejection(reason, told_account=account)


def without_questions(identity: Identity, account: str) -> Identity:
    """The identity without permission to publish requests, for members of the account that is
    asked: the service would believe them.
    """
    if identity.account != account:
        return identity
    rules = identity.permissions or PermissionRules()
    denied = (*rules.publish_deny, SUBJECT)
    return msgspec.structs.replace(
        identity, permissions=msgspec.structs.replace(rules, publish_deny=denied)
    )


def shown_name(claims: UserClaims, credentials: Credentials) -> str:
    """The name that monitoring shows: the one from the service, else the one the client claims."""
    claimed = credentials.nkey or credentials.user
    return claims.name or claimed or ("[REDACTED]" if credentials.token else "")


def _random_text() -> str:
    number = int.from_bytes(os.urandom(8), "big")
    digits = []
    for _ in range(8):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(digits)
