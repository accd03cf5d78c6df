"""Auth callout services, which decide who may connect, for Tradewind and nats-server.

    from tradewind.callout import Allow, Callout, LoginRequest

    def decide(login: LoginRequest) -> Allow | str:
        if login.user == "ann" and login.password == "secret":
            return Allow("APP", publish=["orders.>"])
        return "unknown user"

    callout = Callout("SA...")                            # the seed of the issuer
    async with tradewind.connect(url, user="auth", password="pwd") as connection:
        await callout.serve(connection, decide)
        await asyncio.Event().wait()

Owns turning a server's request into a `LoginRequest`, and `Allow` or a refusal into the response:
decrypting, verifying, signing, encrypting. The given function makes the decisions. A
request that cannot come from a server is not answered, and is logged.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind import nkeys
from tradewind.errors import TradewindError
from tradewind.jwt import JwtError, UserClaims, decode_as, encode
from tradewind.jwt.claim_rules import issues
from tradewind.jwt.claims import (
    AuthorizationRequest,
    AuthorizationResponse,
    AuthorizationResponseFields,
    ResponseClaims,
    SubjectClaims,
    new_user,
)

if TYPE_CHECKING:
    import tradewind
    import tradewind.sync
    from tradewind.client.core.message import Msg
    from tradewind.client.core.subscription import Subscription

SUBJECT = "$SYS.REQ.USER.AUTH"
XKEY_HEADER = "Nats-Server-Xkey"
AUDIENCE = "nats-authorization-request"
# The limit for concurrent decisions of a service, if its function waits for something.
AT_ONCE_MAX = 256

_log = logging.getLogger(__name__)


class CalloutQuestionError(TradewindError):
    """A request that this service cannot read, or that does not come from a server."""


class LoginRequest(msgspec.Struct, frozen=True):
    """A client that wants to connect: its credentials and its address.

    Only the address and the certificates are proven: the server has verified them. `has_signed`
    says whether a client with an nkey has its seed.
    """

    user: str
    password: str
    token: str
    nkey: str
    jwt: str
    name: str
    lang: str
    version: str
    address: str
    client_id: int
    kind: str  # of connection: nats or websocket
    certificates: tuple[str, ...]  # PEM, the client's own first
    server: dict[str, Any]
    nonce: str
    signature: str
    claims: AuthorizationRequest

    def has_signed(self, public_key: str) -> bool:
        """Whether the client has proved that it has the seed of this nkey."""
        signature = nkeys.decode_signature(self.signature)
        if signature is None or not self.nonce or not nkeys.is_public(public_key):
            return False
        key = nkeys.decode_public(public_key)[1]
        return nkeys.verify(key, self.nonce.encode(), signature)

    def __repr__(self) -> str:
        return f"LoginRequest(user={self.user!r}, nkey={self.nkey!r}, address={self.address!r})"


class Allow(msgspec.Struct, frozen=True):
    """The decision that the client may enter `account`: its name, or in operator mode its public
    key.

    `publish` and `subscribe` are the subjects that the client may use; None allows all, unless
    denied. `responses` is the number of responses it may publish to each request. After `expires`
    seconds the server ends the connection. In operator mode `signer` is the key of the account, or
    a signing key of it, if that is not the key of the service.
    """

    account: str
    name: str = ""
    publish: Sequence[str] | None = None
    publish_deny: Sequence[str] = ()
    subscribe: Sequence[str] | None = None
    subscribe_deny: Sequence[str] = ()
    responses: int = 0
    expires: float = 0.0
    signer: nkeys.KeyPair | None = None


Decision = Allow | str
Decide = Callable[[LoginRequest], Decision | Awaitable[Decision]]


class Callout:
    """A service for one issuer. `issuer` and `xkey` are seeds ("SA...", "SX..."), or keys.

    In operator mode the issuer is the key of the service's account; for a signing key of it,
    `issuer_account` names the account.
    """

    def __init__(
        self,
        issuer: str | nkeys.KeyPair,
        *,
        xkey: str | nkeys.CurveKeyPair | None = None,
        issuer_account: str = "",
    ) -> None:
        self.issuer = nkeys.KeyPair.from_seed(issuer) if isinstance(issuer, str) else issuer
        if self.issuer.kind != nkeys.ACCOUNT:
            kind = nkeys.KINDS[self.issuer.kind]
            raise nkeys.NkeyError(f"an issuer is the key of an account (SA...), not of a {kind}")
        self.xkey = nkeys.CurveKeyPair.from_seed(xkey) if isinstance(xkey, str) else xkey
        self._issuer_account = issuer_account

    # ---------------------------------------------------------------- questions and answers

    def read(self, payload: bytes, server_xkey: str = "") -> LoginRequest:
        """The login that a request is about; CalloutQuestionError if no server has sent it."""
        try:
            if self.xkey is not None:
                # A sender that could omit the encryption could ask about any client.
                payload = self.xkey.open(payload, server_xkey)
            claims = decode_as(AuthorizationRequest, payload.decode("utf-8", "replace"))
        except (JwtError, nkeys.NkeyError) as error:
            raise CalloutQuestionError(str(error)) from None
        problems = issues(claims, int(time.time()))
        if problems:
            raise CalloutQuestionError(problems[0].text)
        server = claims.nats.server_id
        if claims.aud != AUDIENCE or claims.iss != server.get("id"):
            raise CalloutQuestionError("it is not signed by the server that it names")
        if self.xkey is not None and server.get("xkey") != server_xkey:
            raise CalloutQuestionError("it is not encrypted by the server that it names")
        return _login(claims)

    def answer(self, login: LoginRequest, decision: Decision) -> bytes:
        """The response with a decision."""
        fields = AuthorizationResponseFields(issuer_account=self._issuer_account)
        if isinstance(decision, Allow):
            fields.jwt = self._user(login, decision)
        else:
            fields.error = decision or "refused"
        response = AuthorizationResponse(
            sub=login.claims.nats.user_nkey, aud=str(login.server["id"]), nats=fields
        )
        answer = encode(response, self.issuer, int(time.time())).encode()
        if self.xkey is not None:
            return self.xkey.seal(answer, str(login.server["xkey"]))
        return answer

    def _user(self, login: LoginRequest, allow: Allow) -> str:
        signer = allow.signer or self.issuer
        claims: UserClaims = new_user(login.claims.nats.user_nkey, allow.name)
        if nkeys.is_public(allow.account, nkeys.ACCOUNT):
            if allow.account != signer.public:
                claims.nats.issuer_account = allow.account
        else:
            claims.aud = allow.account
        claims.nats.pub = _rules(allow.publish, allow.publish_deny)
        claims.nats.sub = _rules(allow.subscribe, allow.subscribe_deny)
        if allow.responses:
            claims.nats.resp = ResponseClaims(max=allow.responses, ttl=0)
        if allow.expires:
            claims.exp = int(time.time() + allow.expires)
        return encode(claims, signer, int(time.time()))

    # ---------------------------------------------------------------- services

    async def serve(
        self, connection: tradewind.Connection, decide: Decide, *, queue: str = ""
    ) -> Subscription:
        """Start responding; `decide` may be a coroutine function. Several services share the logins
        if they use the same `queue`.
        """
        limit = asyncio.Semaphore(AT_ONCE_MAX)
        running: set[asyncio.Task[None]] = set()

        async def work(message: Msg) -> None:
            try:
                answer = await self._decided(message, decide)
                if answer is not None:
                    await message.respond(answer)
            finally:
                limit.release()

        async def heard(message: Msg) -> None:
            # A decision that waits for a database must not delay the others.
            await limit.acquire()
            task = asyncio.create_task(work(message))
            running.add(task)
            task.add_done_callback(running.discard)

        return await connection.subscribe(SUBJECT, queue=queue, callback=heard)

    def serve_blocking(
        self,
        connection: tradewind.sync.Connection,
        decide: Callable[[LoginRequest], Decision],
        *,
        queue: str = "",
    ) -> tradewind.sync.Subscription:
        """Start responding on a connection of `tradewind.sync`; `decide` runs in its thread, for
        one login after the other.
        """

        def heard(message: Any) -> None:
            login = self._login_of(message)
            if login is None:
                return
            try:
                decision = decide(login)
            except Exception as error:
                decision = _failed(login, error)
            message.respond(self._safe_answer(login, decision))

        return connection.subscribe(SUBJECT, queue=queue, callback=heard)

    async def _decided(self, message: Msg, decide: Decide) -> bytes | None:
        login = self._login_of(message)
        if login is None:
            return None
        try:
            decision = decide(login)
            if inspect.isawaitable(decision):
                decision = await decision
        except Exception as error:
            decision = _failed(login, error)
        return self._safe_answer(login, decision)

    def _login_of(self, message: Any) -> LoginRequest | None:
        try:
            return self.read(message.data, message.headers.get(XKEY_HEADER, ""))
        except CalloutQuestionError as error:
            _log.warning("an authorization request was not answered: %s", error)
            return None

    def _safe_answer(self, login: LoginRequest, decision: Any) -> bytes:
        """The response with a decision of the function: everything that is not an Allow refuses the
        login.
        """
        if isinstance(decision, Allow):
            try:
                return self.answer(login, decision)
            except (TradewindError, TypeError, ValueError) as error:
                decision = _failed(login, error)
        if not isinstance(decision, str):
            _log.error("%r: a decision is Allow or a text, not %s", login, type(decision).__name__)
            decision = "the service failed"
        return self.answer(login, decision)


def _failed(login: LoginRequest, error: Exception) -> str:
    _log.error("%r: the service failed", login, exc_info=error)
    return "the service failed"


def _rules(allow: Sequence[str] | None, deny: Sequence[str]) -> SubjectClaims:
    if allow is not None and not allow:
        return SubjectClaims(deny=[">"])  # an empty list means everything in a JWT
    return SubjectClaims(allow=list(allow) if allow else None, deny=list(deny) or None)


def _login(claims: AuthorizationRequest) -> LoginRequest:
    fields = claims.nats
    shown, client, tls = fields.connect_opts, fields.client_info, fields.client_tls or {}

    def text(of: dict[str, Any], name: str) -> str:
        value = of.get(name)
        return value if isinstance(value, str) else ""

    chains = tls.get("verified_chains") or [tls.get("certs") or []]
    client_id = client.get("id")
    return LoginRequest(
        user=text(shown, "user"),
        password=text(shown, "pass"),
        token=text(shown, "auth_token"),
        nkey=text(shown, "nkey"),
        jwt=text(shown, "jwt"),
        name=text(shown, "name"),
        lang=text(shown, "lang"),
        version=text(shown, "version"),
        address=text(client, "host"),
        client_id=client_id if isinstance(client_id, int) else 0,
        kind=text(client, "type"),
        certificates=tuple(chains[0]),
        server=fields.server_id,
        nonce=text(client, "nonce"),
        signature=text(shown, "sig"),
        claims=claims,
    )


__all__ = ["Allow", "Callout", "CalloutQuestionError", "Decision", "LoginRequest"]
