"""Applies a changed account JWT to open connections.

Owns the walk over the connections of an account, a few at a time so that other clients do not wait,
and the two limits that concern several connections or existing subscriptions. It never decides
which connections stay, which is up to the gate, and never closes them itself: admission does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from tradewind.broker.identity import Identity
from tradewind.broker.surplus import close_account_surplus
from tradewind.wire import ops

if TYPE_CHECKING:
    from tradewind.broker.broker import Broker
    from tradewind.broker.session import Session
    from tradewind.server.operators.operator_gate import OperatorGate

SESSIONS_PER_STEP = 200


class LiveConnections:
    """Checks the connections of changed accounts; `gate` returns the current gate, which a reload
    may replace.
    """

    def __init__(
        self, broker: Broker, gate: Callable[[], OperatorGate], turn_needed: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._gate = gate
        self._turn_needed = turn_needed
        # Accounts whose connections are being checked, and those still to be checked; a change in
        # the middle starts over.
        self._left: dict[str, list[int]] = {}

    def account_changed(self, key: str) -> None:
        """Check all connections of an account again."""
        account = self._broker.accounts.get(key)
        members = [] if account is None else account.members()
        if not members:
            return
        is_running = key in self._left
        self._left[key] = sorted((one.cid for one in members), reverse=True)
        if not is_running:
            self._step(key)

    def _step(self, key: str) -> None:
        left = self._left[key]
        for _ in range(min(SESSIONS_PER_STEP, len(left))):
            session = self._broker.session_of(left.pop())
            if session is not None and session.account.name == key:
                try:
                    self._look_at(session)
                except Exception as error:
                    self._broker.session_failed(session, error)
        self._turn_needed()
        if left:
            asyncio.get_running_loop().call_soon(self._step, key)
            return
        del self._left[key]
        account = self._broker.accounts[key]
        self._close_surplus(close_account_surplus(self._broker, account))

    def _look_at(self, session: Session) -> None:
        admission = self._broker.admission
        identity = admission.identity_of(session.cid)
        if identity is None:
            return
        decision = self._gate().check_again(identity, admission.credentials(session))
        if decision is None:
            return
        admission.decide_again(session, decision)
        if isinstance(decision, Identity) and decision.limits is not None:
            self._check_subscriptions(session, identity, decision.limits.subscriptions_max)

    def _check_subscriptions(self, session: Session, before: Identity, limit: int) -> None:
        """Close a session that exceeds a lowered subscription limit; no other change closes it
        here.
        """
        if limit < 0 or session.is_closed:
            return
        was_limit = before.limits.subscriptions_max if before.limits is not None else -1
        count = session.subscription_count
        if count > limit or (limit != was_limit and count >= limit):
            session.close(ops.CLOSED_MAX_SUBSCRIPTIONS, ops.ERROR_MAX_SUBSCRIPTIONS)

    def _close_surplus(self, surplus: Iterator[None]) -> None:
        """Close some of the sessions above the account's limit, and the others in later turns."""
        closed = sum(1 for _ in islice(surplus, SESSIONS_PER_STEP))
        if closed == SESSIONS_PER_STEP:
            asyncio.get_running_loop().call_soon(self._close_surplus, surplus)
        self._turn_needed()
