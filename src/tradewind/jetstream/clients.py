"""Who sent a request, as the events of nats-server describe a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tradewind.api.times import format_time

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.session import Session


def client_info(server_name: str, account: Account, session: Session | None) -> dict[str, Any]:
    """The members that have a value; none for a request that no client sent."""
    if session is None:
        return {}
    fields: dict[str, Any] = {
        "start": format_time(session.start_ns),
        "host": session.remote_ip,
        "id": session.cid,
        "acc": account.name,
        "user": session.user,
        "name": session.name,
        "lang": session.lang,
        "ver": session.version,
        "rtt": session.rtt_ns,
        "server": server_name,
        "kind": "Client",
        "client_type": "nats" if session.connection_type == "STANDARD" else "websocket",
    }
    return {name: value for name, value in fields.items() if value}
