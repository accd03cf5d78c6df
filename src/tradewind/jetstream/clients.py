"""The sender of a request, as nats-server's events describe a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import convert, to_builtins

from tradewind.api.event_types import EventClient
from tradewind.api.times import format_time
from tradewind.broker.request_info import told_info

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.session import Session


def client_info(
    server_name: str, account: Account, session: Session | None, header: bytes = b""
) -> EventClient:
    """The sender of a request; without members if this server sent it for the same account.

    For a member of another account, and for that account's mirrors and sources, the result has only
    what the import lets the header of the request reveal.
    """
    if session is None or session.account is not account:
        told = told_info(header)
        if session is None and not told.acc:
            return EventClient()
        told.svc, told.server = _text(account.name), server_name
        return convert(to_builtins(told), EventClient)
    return EventClient(
        start=format_time(session.start_ns),
        host=session.remote_ip,
        id=session.cid,
        acc=_text(account.name),
        user=_text(session.user),
        name=_text(session.name),
        lang=_text(session.lang),
        ver=_text(session.version),
        rtt=session.rtt_ns,
        server=server_name,
        kind="Client",
        client_type="nats" if session.connection_type == "STANDARD" else "websocket",
    )


def _text(value: str) -> str:
    """Replace bytes that are not UTF-8: the fields of CONNECT need not be text."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
