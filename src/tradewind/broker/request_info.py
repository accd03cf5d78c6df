"""The header field Nats-Request-Info: the details of a requester for a service in another account.

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
    """The field without details, as the bytes before and after the round trip time; `server` may be
    empty.
    """
    start = b'{"acc":%b' % msgspec.json.encode(account)
    end = b',"server":%b}' % msgspec.json.encode(server) if server else b"}"
    return FIELD + start, end


def shared_info(session: Session, server: str) -> bytes:
    """The field with all known details of a client."""
    return FIELD + msgspec.json.encode(client_info(session, server))


def client_info(session: Session, server: str) -> ClientInfo:
    """All known details of a client."""
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
    """The field that the previous account has set, with `account` as the account that requests on
    its behalf; with `server`, the server is named, too.
    """
    info = told_info(header)
    info.svc = account
    if server and not info.server:
        info.server = server
    return FIELD + msgspec.json.encode(info)


def told_info(header: bytes) -> ClientInfo:
    """The content of the field. A message that has crossed accounts can be trusted in this, because
    the server set the field; it is the last one in that case.
    """
    at = header.rfind(b"\r\n" + FIELD) + 2
    if at < 2:
        return ClientInfo()
    value = header[at + len(FIELD) : header.index(b"\r\n", at)]
    return msgspec.json.decode(value, type=ClientInfo)


def _text(value: str) -> str:
    """The value as valid text: CONNECT carries bytes, which need not be UTF-8. Line ends would end
    the field, but JSON escapes them.
    """
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
