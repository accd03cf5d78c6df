"""The subjects of a stream that is closed for a while: publishers are told so.

Owns the subscriptions that stand in for the stream while it is made anew. Without them a publisher
would be told that nobody listens, and take the stream for deleted.
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
        """Stand in no more. A second call does nothing."""
        tokens, self._tokens = self._tokens, []
        for token in tokens:
            self._account.unsubscribe(token)
