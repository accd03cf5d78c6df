"""The subjects of a stream that is closed for a while: its publishers get the reason.

Owns the subscriptions that stand in for the stream while it is recreated. Without them a publisher
would get the status for no responders, and conclude that the stream was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tradewind.api import errors

if TYPE_CHECKING:
    from tradewind.broker.accounts import Account, InternalMessage
    from tradewind.stream.reply_bodies import ReplyBodies


class ClosedSubjects:
    """Refuses every message on `subjects` with `reason`, until `end`."""

    def __init__(
        self, account: Account, bodies: ReplyBodies, subjects: Iterable[str], reason: str
    ) -> None:
        self._account = account
        self._body = bodies.refused(errors.STREAM_STORE_FAILED(err=reason))
        self._tokens = [account.subscribe(subject, self._refuse) for subject in subjects]

    def _refuse(self, message: InternalMessage) -> None:
        if message.reply:
            self._account.publish(message.reply, self._body)

    def end(self) -> None:
        """End the subscriptions. A second call does nothing."""
        tokens, self._tokens = self._tokens, []
        for token in tokens:
            self._account.unsubscribe(token)
