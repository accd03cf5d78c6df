"""The header field Nats-Request-Info: what a service in another account learns about the requester.

Owns the document. It never sends it: `broker.bridges` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tradewind.broker.session import Session

FIELD = b"Nats-Request-Info: "


class ClientInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A client as services and the system account see it; fields in the order of nats-server."""

    start: str = ""
    host: str = ""
    id: int = 0
    acc: str = ""
    svc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: int = 0
    server: str = ""
    cluster: str = ""
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = msgspec.field(default_factory=list)
    kind: str = ""
    client_type: str = ""


def plain_info(account: str, server: str) -> tuple[bytes, bytes]:
    """The field without details, before and behind the round trip time; `server` may be empty."""
    start = b'{"acc":%b' % msgspec.json.encode(account)
    end = b',"server":%b}' % msgspec.json.encode(server) if server else b"}"
    return FIELD + start, end


def shared_info(session: Session, server: str) -> bytes:
    """The field with all that is known of a client."""
    return FIELD + msgspec.json.encode(client_info(session, server))


def client_info(session: Session, server: str) -> ClientInfo:
    """All that is known of a client."""
    from tradewind.api.times import format_time  # a server without such imports starts without it

    return ClientInfo(
        start=format_time(session.start_ns),
        host=session.remote_ip,
        id=session.cid,
        acc=session.account.name,
        user=_text(session.user),
        name=_text(session.name),
        lang=_text(session.lang),
        ver=_text(session.version),
        rtt=session.rtt_ns,
        server=server,
        kind=session.kind,
        client_type=session.client_type,
    )


def chained_info(header: bytes, account: str, server: str) -> bytes:
    """The field that the account before has set, with `account` as the one that asks on behalf of
    it; with a `server` that is named, too.
    """
    info = told_info(header)
    info.svc = account
    if server and not info.server:
        info.server = server
    return FIELD + msgspec.json.encode(info)


def told_info(header: bytes) -> ClientInfo:
    """What the field says. It can be trusted in what has crossed accounts, where the server set it;
    it is the last one then.
    """
    at = header.rfind(b"\r\n" + FIELD) + 2
    if at < 2:
        return ClientInfo()
    value = header[at + len(FIELD) : header.index(b"\r\n", at)]
    return msgspec.json.decode(value, type=ClientInfo)


def _text(value: str) -> str:
    """What CONNECT says is bytes, and need not be text. Line ends would end the field; JSON has
    them escaped.
    """
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
