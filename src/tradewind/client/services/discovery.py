"""Discovers and calls services: `connection.services`.

Owns the requests on `$SRV` and parsing the responses; running a service is in `services.py`. A
response that cannot be parsed is reported as an event, so that one broken service never hides
another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tradewind.client.core.message import Msg
from tradewind.client.core.openings import opening
from tradewind.client.errors import NoRespondersError, OptionsError, ServiceError
from tradewind.client.events import ErrorEvent
from tradewind.client.services.service_types import ServiceInfo, ServicePing, ServiceStats
from tradewind.client.services.services import (
    DEFAULT_QUEUE_GROUP,
    ERROR_CODE_HEADER,
    ERROR_HEADER,
    INTERNAL_ERROR,
    PREFIX,
    Service,
    StatsHandler,
)
from tradewind.errors import JSON_ERRORS

if TYPE_CHECKING:
    from tradewind.client.connection import Connection, HeaderInput, Payload

# How long `ping` and the others listen in all, and after the last answer.
ANSWERS_SECONDS = 3.0
STALL_SECONDS = 1.0

Answer = TypeVar("Answer", ServicePing, ServiceInfo, ServiceStats)


class Services:
    """Services on a connection: `add` runs one, the other methods find and ask those of anybody.

    >>> async for found in connection.services.ping():
    ...     print(found.name, found.version, found.id)

    `prefix` is the beginning of the subjects of discovery, if an account maps them elsewhere.
    """

    prefix: str

    def __init__(self, connection: Connection, prefix: str = PREFIX) -> None:
        self.prefix = prefix
        self._connection = connection

    @opening
    async def add(
        self,
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue_group: str = DEFAULT_QUEUE_GROUP,
        stats_handler: StatsHandler | None = None,
        show_errors: bool = False,
    ) -> Service:
        """Run a service: it can be found when this returns, and gets endpoints then.

        Instances of one `name` share its requests through `queue_group`. `stats_handler` gets the
        statistics of an endpoint and returns what to add to them (`data`, anything for JSON).

        A requester whose handler raised gets the error 500 "internal error", and the exception is
        logged here; with `show_errors` the requester also gets its class and text.
        """
        service = Service(
            self._connection,
            name,
            version,
            description=description,
            metadata=metadata,
            queue_group=queue_group,
            stats_handler=stats_handler,
            show_errors=show_errors,
            prefix=self.prefix,
        )
        await service._start()
        return service

    async def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: float | None = None,
        headers: HeaderInput | None = None,
    ) -> Msg:
        """Like `Connection.request`, but an error response raises a ServiceError."""
        message = await self._connection.request(subject, payload, timeout=timeout, headers=headers)
        if (error := service_error(message)) is not None:
            raise error
        return message

    def ping(
        self,
        name: str = "",
        service_id: str = "",
        *,
        timeout: float = ANSWERS_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> AsyncIterator[ServicePing]:
        """List the running instances: all, those with a name, or a single one.

        Ends `stall` seconds after the last response, and after `timeout` seconds in any case.
        """
        return self._ask("PING", ServicePing, name, service_id, timeout, stall)

    def info(
        self,
        name: str = "",
        service_id: str = "",
        *,
        timeout: float = ANSWERS_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> AsyncIterator[ServiceInfo]:
        """List the instances, as `ping` does, with their endpoints."""
        return self._ask("INFO", ServiceInfo, name, service_id, timeout, stall)

    def stats(
        self,
        name: str = "",
        service_id: str = "",
        *,
        timeout: float = ANSWERS_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> AsyncIterator[ServiceStats]:
        """List the instances, as `ping` does, with the statistics of their endpoints."""
        return self._ask("STATS", ServiceStats, name, service_id, timeout, stall)

    async def _ask(
        self,
        verb: str,
        kind: type[Answer],
        name: str,
        service_id: str,
        timeout: float,
        stall: float,
    ) -> AsyncIterator[Answer]:
        if service_id and not name:
            raise OptionsError("service_id: specify the name of the service too")
        subject = ".".join(filter(None, (self.prefix, verb, name, service_id)))
        replies = self._connection.request_many(
            subject, timeout=timeout, stall=stall, max_messages=1 if service_id else 0
        )
        try:
            async for message in replies:
                try:
                    answer = msgspec.json.decode(message.data, type=kind)
                except JSON_ERRORS as error:
                    text = f"a service's reply to {subject} is not a {kind.__name__}: {error}"
                    self._connection._emit(ErrorEvent(service_error(message) or _bad(text)))
                else:
                    yield answer
        except NoRespondersError:
            return


def service_error(message: Msg) -> ServiceError | None:
    """The error that a service answered with; None if the answer is none."""
    headers = message.headers
    if ERROR_HEADER not in headers and ERROR_CODE_HEADER not in headers:
        return None
    return ServiceError(
        headers.get(ERROR_CODE_HEADER, INTERNAL_ERROR), headers.get(ERROR_HEADER, "")
    )


def _bad(text: str) -> ServiceError:
    return ServiceError(INTERNAL_ERROR, text)
