"""The request that an auth callout service receives about a login.

Owns the field names. The request contains everything the client presented, including passwords. The
server signs it, and encrypts it if the service has a curve key.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import msgspec

from tradewind.durations import SECOND_NS
from tradewind.jwt.claims import AuthorizationRequest, AuthorizationRequestFields
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker
    from tradewind.broker.identity import Credentials
    from tradewind.broker.session import Session

AUDIENCE = "nats-authorization-request"


class ClaimedUser(msgspec.Struct, frozen=True):
    """The user that a login claims to be, and its JWT in operator mode."""

    user: str
    jwt: str = ""
    name: str = ""
    tags: tuple[str, ...] = ()


def request_claims(
    broker: Broker,
    session: Session,
    credentials: Credentials,
    claimed: ClaimedUser,
    *,
    user_key: str,
    issuer: str,
    xkey: str,
) -> AuthorizationRequest:
    """The claims of the request about one login; `issuer` is the key that must sign the answer."""
    ends_ns = broker.now_ns() + broker.options.auth_timeout_ns
    fields = AuthorizationRequestFields(
        server_id=_present(
            name=broker.server_name,
            host=broker.info.listener("STANDARD").host,
            id=broker.server_id,
            version=ops.NATS_VERSION,
            tags=list(broker.options.server_tags),
            xkey=xkey,
        ),
        user_nkey=user_key,
        client_info=_client_info(session, credentials, claimed),
        connect_opts=_connect_options(session, credentials, claimed),
        client_tls=_tls(session),
    )
    return AuthorizationRequest(sub=issuer, aud=AUDIENCE, exp=ends_ns // SECOND_NS, nats=fields)


def _client_info(
    session: Session, credentials: Credentials, claimed: ClaimedUser
) -> dict[str, Any]:
    return _present(
        host=session.remote_ip,
        id=session.cid,
        user=claimed.user,
        name=session.options.name,
        tags=list(claimed.tags),
        name_tag=claimed.name,
        kind=session.kind,
        type="" if session.kind == "Leafnode" else session.client_type,
        nonce=session.nonce.decode() if credentials.signature else "",
    )


def _connect_options(
    session: Session, credentials: Credentials, claimed: ClaimedUser
) -> dict[str, Any]:
    options = session.options
    shown = _present(
        jwt=claimed.jwt,
        nkey=credentials.nkey,
        sig=credentials.signature,
        auth_token=credentials.token,
        user=credentials.user,
        name=options.name,
        lang=options.lang,
        version=options.version,
    )
    shown["pass"] = _text(credentials.password)
    if not shown["pass"]:
        del shown["pass"]
    return {**shown, "protocol": options.protocol}


def _tls(session: Session) -> dict[str, Any] | None:
    facts = session.tls
    if facts is None:
        return None
    tls: dict[str, Any] = {"version": facts.version, "cipher": facts.cipher}
    if facts.certificate is not None:
        # A requested certificate is always verified; the service does not receive the authority.
        tls["verified_chains"] = [[ssl.DER_cert_to_PEM_cert(facts.certificate)]]
    return tls


def _present(**fields: Any) -> dict[str, Any]:
    """The fields that are not empty."""
    shown = {
        name: _text(value) if isinstance(value, str) else value for name, value in fields.items()
    }
    return {name: value for name, value in shown.items() if value or name == "id"}


def _text(value: str) -> str:
    """The value as valid text: clients may send bytes that are not UTF-8."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
