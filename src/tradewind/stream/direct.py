"""Direct gets of a stream: when they are heard, and what is rare about them.

Owns the subscriptions on `$JS.API.DIRECT.GET.<stream>`. Everything that happens for each request is
in `direct_core`; this reads the bodies that are not as clients write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tradewind.api.errors import ApiError
from tradewind.api.request_types import MsgGetRequest
from tradewind.api.requests import decode_lenient
from tradewind.api.versioning import is_level_known
from tradewind.stream.direct_core import DirectCore

if TYPE_CHECKING:
    from collections.abc import Callable

    from tradewind.broker.accounts import Account
    from tradewind.broker.router import Router
    from tradewind.stream.ingest import Ingest


class DirectGet(DirectCore):
    """Answers for one stream. `on_deadline` is called when `next_deadline_ns` was set."""

    def __init__(
        self,
        name: str,
        ingest: Ingest,
        account: Account,
        router: Router,
        bytes_max: int,
        on_deadline: Callable[[], None],
    ) -> None:
        super().__init__(name, ingest, account, router, bytes_max, on_deadline)
        self._account = account
        self._tokens: list[int] = []

    def activate(self, prefixes: tuple[str, ...]) -> None:
        """Listen, once for each prefix of the API."""
        if self._tokens:
            return
        for prefix in prefixes:
            self._tokens += self.attach(prefix)

    def deactivate(self) -> None:
        """Listen no more, answer what was asked before, and forget what is under way."""
        for token in self._tokens:
            self._account.unsubscribe(token)
        self._tokens.clear()
        self.end()

    def decode(self, body: bytes) -> MsgGetRequest | None:
        """Any body; None if it is no request."""
        try:
            return decode_lenient(MsgGetRequest, body)
        except ApiError:
            return None

    def is_level_known(self, header: bytes) -> bool:
        """Whether a request asks for no more than this server's version of the API."""
        return is_level_known(header)
