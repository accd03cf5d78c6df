"""The handlers of the API: one function per endpoint, as named in the table of the API.

Owns finding the function of a row. Its module is loaded with the first request for it, or, for the
JetStream API, as soon as a server that has started has nothing else to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final

from tradewind.api.endpoint_row import ApiEndpoint
from tradewind.api.endpoints import NATS_ENDPOINTS
from tradewind.jetstream.api_request import Answer, ApiRequest
from tradewind.jetstream.lanes import Steps

Handler = Callable[[ApiRequest], Answer | Steps[Answer]]


@cache
def load_handler(name: str) -> Any:
    """The function of this name, `module:function`; loads the module if necessary."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


# By the names of the endpoints, as far as they are loaded.
HANDLERS: Final[dict[str, Handler]] = {}


def handler_of(endpoint: ApiEndpoint) -> Handler:
    """The function that runs the requests of an endpoint."""
    if (known := HANDLERS.get(endpoint.name)) is not None:
        return known
    return HANDLERS.setdefault(endpoint.name, load_handler(endpoint.handler))


def load_handlers() -> Iterator[None]:
    """Load the functions of the JetStream API, in steps of one module."""
    for name in {endpoint.handler: None for endpoint in NATS_ENDPOINTS if endpoint.handler}:
        load_handler(name)
        yield
