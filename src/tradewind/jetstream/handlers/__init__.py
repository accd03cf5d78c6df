"""What each request of the API does: one function per endpoint, as the API's table names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tradewind.api.endpoints import ENDPOINTS
from tradewind.jetstream.handlers import account, backups, consumers, messages, streams
from tradewind.jetstream.lanes import Steps
from tradewind.jetstream.requests import Answer, Request

Handler = Callable[[Request], Answer | Steps[Answer]]
_MODULES: Final = {
    module.__name__.rpartition(".")[2]: module
    for module in (account, backups, consumers, messages, streams)
}


def _handler(name: str) -> Handler:
    module, _, function = name.partition(".")
    found: Handler = getattr(_MODULES[module], function)
    return found


HANDLERS: Final[Mapping[str, Handler]] = {
    endpoint.name: _handler(endpoint.handler) for endpoint in ENDPOINTS if endpoint.handler
}
