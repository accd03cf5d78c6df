"""`tradewind.Worker`: a worker, declared in a module of the user.

Owns the declaration and one run of it on a connection. It never starts a process and never reads
the command line; `tradewind worker module:app` does both.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast

from tradewind.client.api_errors import ConsumerNotFoundError
from tradewind.client.connection import Connection
from tradewind.client.errors import OptionsError
from tradewind.client.running.consumer_run import ConsumerRun
from tradewind.client.running.run_settings import Handler, RunSettings, make_plan
from tradewind.client.running.run_stats import RunStats
from tradewind.client.streams.consumers import Consumer

Function = TypeVar("Function", bound=Callable[..., Any])
Lifespan = Callable[[Connection], AbstractAsyncContextManager[Any]]


class Worker:
    """A handler for the messages of a consumer, for `tradewind worker module:app`.

    >>> app = tradewind.Worker(stream="ORDERS", consumer="packer", codec="json")
    >>> @app.handler
    ... async def pack(order, message):
    ...     print(order["id"])

    `create`: create the consumer if it does not exist; True, or its settings as `consumers.add`
    takes them. `lifespan` is a function that takes the connection and returns an async context
    manager, which is entered before the first message and left after the last one of each process.
    All other settings are those of `consumer.run`.
    """

    def __init__(
        self,
        stream: str,
        consumer: str,
        *,
        create: bool | Mapping[str, Any] = False,
        lifespan: Lifespan | None = None,
        **settings: Unpack[RunSettings],
    ) -> None:
        for name, value in (("stream", stream), ("consumer", consumer)):
            if not isinstance(value, str) or not value:
                raise OptionsError(f"{name} must be the name of a {name}, not {value!r}")
        if not isinstance(create, bool | Mapping):
            raise OptionsError(
                f"create must be True, or the settings of the consumer, not {create!r}"
            )
        if lifespan is not None and not callable(lifespan):
            raise OptionsError(
                f"lifespan must be a function that takes a connection, not {lifespan!r}"
            )
        self.stream = stream
        self.consumer = consumer
        self._create = create
        self._lifespan = lifespan
        self._settings = settings
        self._handler: Handler | None = None
        make_plan(_any_handler, settings)  # a wrong setting fails where it is declared

    @property
    def settings(self) -> RunSettings:
        """The declared settings of its runs."""
        return self._settings.copy()

    def handler(self, function: Function) -> Function:
        """Declare the function that is called for each message; a decorator."""
        if self._handler is not None:
            raise OptionsError(
                f"handler must be declared only once: it is {_name(self._handler)} already"
            )
        make_plan(function, self._settings)
        self._handler = function
        return function

    async def runner(self, connection: Connection, **settings: Unpack[RunSettings]) -> ConsumerRun:
        """A run on a connection, not started yet; settings given here override the declared ones.

        The lifespan is not part of the run.
        """
        if self._handler is None:
            raise OptionsError("handler must be declared: decorate a function with @app.handler")
        consumer = await self._find(connection)
        merged = cast("RunSettings", {**self._settings, **settings})
        return consumer.runner(self._handler, **merged)

    async def run(self, connection: Connection, **settings: Unpack[RunSettings]) -> RunStats:
        """Handle messages until the task is cancelled, or a signal if that is set."""
        async with self.entered(connection):
            return await (await self.runner(connection, **settings)).run()

    def entered(self, connection: Connection) -> AbstractAsyncContextManager[Any]:
        """The lifespan of a run on a connection."""
        return nullcontext() if self._lifespan is None else self._lifespan(connection)

    async def _find(self, connection: Connection) -> Consumer:
        js = connection.jetstream()
        try:
            return await js.consumers.get(self.stream, self.consumer)
        except ConsumerNotFoundError:
            if self._create is False:
                raise
        wanted = self._create if isinstance(self._create, Mapping) else {}
        made = {"durable_name": self.consumer, "ack_policy": "explicit", **wanted}
        await js.manager.consumers.add(self.stream, **made)
        return await js.consumers.get(self.stream, self.consumer)

    def __repr__(self) -> str:
        return f"Worker({self.stream!r}, {self.consumer!r})"


def load_worker(place: str) -> Worker:
    """The worker named by "package.module:name"; the name defaults to `app`.

    Modules of the current folder are found first, as with `python -m`.
    """
    module_name, _, name = place.partition(":")
    name = name or "app"
    if not all(part.isidentifier() for part in module_name.split(".")) or not name.isidentifier():
        raise OptionsError(f'a worker must be named as "package.module:app", not {place!r}')
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise OptionsError(
                f"there is no module {module_name!r} in {folder} or on the Python path"
            ) from None
        raise
    found = getattr(module, name, None)
    if not isinstance(found, Worker):
        kind = "nothing" if found is None else f"a {type(found).__name__}"
        raise OptionsError(
            f"{module_name}:{name} is {kind}, not a worker: {name} = tradewind.Worker(...)"
        )
    if found._handler is None:
        raise OptionsError(
            f"{module_name}:{name} has no handler: decorate one with @{name}.handler"
        )
    return found


def _any_handler(*values: object) -> None:
    """Stands for a handler that is not known yet."""


def _name(handler: object) -> str:
    return str(getattr(handler, "__name__", repr(handler)))
