"""The handlers of the API: one function per endpoint, as named in the table of the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tradewind.api.endpoints import ENDPOINTS, ApiEndpoint
from tradewind.jetstream.api_request import Answer, ApiRequest
from tradewind.jetstream.handlers import (
    account_handlers,
    backup_handlers,
    consumer_handlers,
    message_handlers,
    stream_handlers,
)
from tradewind.jetstream.lanes import Steps

Handler = Callable[[ApiRequest], Answer | Steps[Answer]]
_MODULES: Final = {
    "account": account_handlers,
    "backups": backup_handlers,
    "consumers": consumer_handlers,
    "messages": message_handlers,
    "streams": stream_handlers,
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
    from tradewind.jetstream.handlers import chain_handlers, template_handlers, truncation_handlers

    module, _, function = endpoint.handler.partition(".")
    modules = {
        "chains": chain_handlers,
        "templates": template_handlers,
        "truncation": truncation_handlers,
    }
    found: Handler = getattr(modules[module], function)
    return found
