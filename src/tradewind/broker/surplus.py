"""Connections above a limit that was lowered while they were open.

Owns which of them are closed: the newest, until the others are within the limit. nats-server closes
random ones if the limit is in its configuration, and the newest if it is in a JWT. Connections are
closed in steps: new ones are refused meanwhile, and those that leave by themselves count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account
    from tradewind.broker.broker import Broker
    from tradewind.broker.session import Session


def close_server_surplus(broker: Broker) -> Iterator[None]:
    """Close the connections above `max_connections` of the server."""
    closed = 0
    for session in _above(broker.sessions, lambda: max(broker.options.max_connections, 0)):
        broker.close_session(session, ops.CLOSED_MAX_CONNECTIONS, ops.ERROR_MAX_CONNECTIONS)
        closed += 1
        yield
    if closed:
        broker.log.notice(f"Closed {closed} connections to fall within max_connections")


def close_account_surplus(broker: Broker, account: Account) -> Iterator[None]:
    """Close the connections above the limit of an account."""
    closed = 0
    for session in _above(account.sessions, lambda: account.limits.connections_max):
        reason, error = ops.CLOSED_MAX_ACCOUNT_CONNECTIONS, ops.ERROR_MAX_ACCOUNT_CONNECTIONS
        broker.close_session(session, reason, error)
        closed += 1
        yield
    if closed:
        broker.log.notice(
            f"Closed {closed} connections of account {account.name} to fall within its"
            " max_connections"
        )


def _above(sessions: dict[int, Session], limit: Callable[[], int]) -> Iterator[Session]:
    """The newest sessions, as long as there are more than the current limit; a negative limit is
    none.
    """
    if not 0 <= limit() < len(sessions):
        return
    for cid in sorted(sessions, reverse=True):
        if not 0 <= limit() < len(sessions):
            return
        session = sessions.get(cid)
        if session is not None:
            yield session
