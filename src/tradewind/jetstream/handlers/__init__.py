"""The handlers of the API: one function per endpoint, as named in the table of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tradewind.api.endpoints import ENDPOINTS, ApiEndpoint
from tradewind.jetstream.api_request import Answer, ApiRequest
from tradewind.jetstream.handlers import account, backups, consumers, messages, streams
from tradewind.jetstream.lanes import Steps

Handler = Callable[[ApiRequest], Answer | Steps[Answer]]
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


def handler_of(endpoint: ApiEndpoint) -> Handler:
    """Whoever runs a request; those of our own API are loaded when they are needed."""
    if (known := HANDLERS.get(endpoint.name)) is not None:
        return known
    from tradewind.jetstream.handlers import chains, templates, truncation

    module, _, function = endpoint.handler.partition(".")
    modules = {"chains": chains, "templates": templates, "truncation": truncation}
    found: Handler = getattr(modules[module], function)
    return found
