"""Services: named, versioned instances that answer requests and can be discovered and monitored.

Owns a running service: its endpoints, their counters, and the responses on `$SRV`. Discovering
services is in `discovery.py`. It never retries a request, which is up to the requester.

    $SRV.PING | INFO | STATS [.<name> [.<id>]]      answered by every instance that is meant
    <group>.<subject>                               an endpoint, shared by its queue group
"""

from __future__ import annotations

import asyncio
import datetime
import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from tradewind.client.core.headers import Headers
from tradewind.client.core.message import Msg
from tradewind.client.core.replies import nuid
from tradewind.client.errors import BadSubjectError, OptionsError, ServiceError
from tradewind.client.services.service_types import (
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
)
from tradewind.subjects import is_valid_literal, is_valid_subject

if TYPE_CHECKING:
    from tradewind.client.connection import Connection, HeaderInput, Payload
    from tradewind.client.core.subscription import Subscription

PREFIX: Final = "$SRV"
DEFAULT_QUEUE_GROUP: Final = "q"
ERROR_HEADER: Final = "Nats-Service-Error"
ERROR_CODE_HEADER: Final = "Nats-Service-Error-Code"
INTERNAL_ERROR: Final = "500"
INTERNAL_TEXT: Final = "internal error"
_log = logging.getLogger("tradewind.client")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_IDENTIFIER = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}"
    rf"(?:-{_IDENTIFIER}(?:\.{_IDENTIFIER})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

StatsHandler = Callable[[EndpointStats], Any]


class Request:
    """A request to an endpoint. Answer it once, with `respond` or `respond_error`."""

    __slots__ = ("_endpoint", "message")

    def __init__(self, message: Msg, endpoint: Endpoint) -> None:
        self.message = message
        self._endpoint = endpoint

    @property
    def subject(self) -> str:
        """The subject that the request was sent to."""
        return self.message.subject

    @property
    def data(self) -> bytes:
        """The payload of the request."""
        return self.message.data

    @property
    def headers(self) -> Headers:
        """The headers of the request; empty if it has none."""
        return self.message.headers

    @property
    def reply(self) -> str:
        """Where the answer goes; empty if none is wanted."""
        return self.message.reply

    def respond(
        self, payload: Payload = b"", *, headers: HeaderInput | None = None
    ) -> Awaitable[None]:
        """Answer; awaitable like `Connection.publish`."""
        return self.message.respond(payload, headers=headers)

    def respond_error(
        self,
        code: int | str,
        description: str,
        payload: Payload = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Awaitable[None]:
        """Answer with an error; it counts in the statistics of the endpoint."""
        self._endpoint.count_error(f"{code}:{description}")
        fields = Headers(headers)
        fields[ERROR_HEADER] = " ".join(description.split())
        fields[ERROR_CODE_HEADER] = str(code)
        return self.message.respond(payload, headers=fields)

    def __repr__(self) -> str:
        return f"Request({self.subject!r}, {len(self.data)} bytes)"


RequestHandler = Callable[[Request], Awaitable[Any] | Any]


class Endpoint:
    """A subject on which a service answers; made by `add_endpoint`."""

    def __init__(
        self, info: EndpointInfo, handler: RequestHandler, *, show_errors: bool = False
    ) -> None:
        self.info = info
        self._handler = handler
        self._shows_errors = show_errors
        self._subscription: Subscription | None = None
        self.reset()

    def reset(self) -> None:
        """Set all counters to 0."""
        self._requests = 0
        self._errors = 0
        self._last_error = ""
        self._busy_ns = 0

    def count_error(self, text: str) -> None:
        """Remember that a request failed, and why."""
        self._errors += 1
        self._last_error = text

    def stats(self, stats_handler: StatsHandler | None = None) -> EndpointStats:
        """The counters as they are now."""
        stats = EndpointStats(
            name=self.info.name,
            subject=self.info.subject,
            queue_group=self.info.queue_group,
            num_requests=self._requests,
            num_errors=self._errors,
            last_error=self._last_error,
            processing_time=self._busy_ns,
            average_processing_time=self._busy_ns // self._requests if self._requests else 0,
        )
        if stats_handler is None:
            return stats
        return msgspec.structs.replace(stats, data=stats_handler(stats))

    async def _start(self, connection: Connection) -> None:
        self._subscription = await connection.subscribe(
            self.info.subject, queue=self.info.queue_group, callback=self._on_message
        )

    async def _on_message(self, message: Msg) -> None:
        start_ns = time.perf_counter_ns()
        request = Request(message, self)
        self._requests += 1
        try:
            result = self._handler(request)
            if inspect.isawaitable(result):
                await result
        except ServiceError as error:
            self._fail(request, error.code, error.description)
        except Exception as error:
            _log.exception("the handler of endpoint %r failed", self.info.name)
            # The text may be confidential, and all clients can read the statistics.
            text = f"{type(error).__name__}: {error}" if self._shows_errors else INTERNAL_TEXT
            self._fail(request, INTERNAL_ERROR, text)
        finally:
            self._busy_ns += time.perf_counter_ns() - start_ns

    def _fail(self, request: Request, code: str, description: str) -> None:
        if request.reply:
            request.respond_error(code, description)
        else:
            self.count_error(f"{code}:{description}")


class Group:
    """A common beginning of subjects; made by `add_group`."""

    prefix: str
    queue_group: str

    def __init__(self, service: Service, prefix: str, queue_group: str) -> None:
        self.prefix = prefix
        self.queue_group = queue_group
        self._service = service

    def add_group(self, name: str, *, queue_group: str | None = None) -> Group:
        """Create a group inside this one: its subjects begin with both names."""
        if name and not is_valid_literal(name):
            raise BadSubjectError(f"group {name!r}: tokens joined by dots, without wildcards")
        prefix = ".".join(filter(None, (self.prefix, name)))
        return Group(self._service, prefix, self._queue(queue_group))

    async def add_endpoint(
        self,
        name: str,
        handler: RequestHandler,
        *,
        subject: str = "",
        queue_group: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Endpoint:
        """Answer requests to `subject` (the name, if not given) below this group.

        The handler, plain or async, gets one request after the other. A ServiceError that it raises
        is sent to the requester; any other exception is logged, and the requester gets an error 500
        without its text (see `show_errors` of `services.add`). `queue_group` "" is none: then every
        instance gets each request.
        """
        if not _NAME.fullmatch(name):
            raise OptionsError(f"endpoint {name!r}: letters, digits, '-' and '_'")
        full = ".".join(filter(None, (self.prefix, subject or name)))
        if not is_valid_subject(full):
            raise BadSubjectError(f"endpoint {name!r}: {full!r} is not a subject")
        info = EndpointInfo(
            name=name,
            subject=full,
            queue_group=self._queue(queue_group),
            metadata=dict(metadata or {}),
        )
        endpoint = Endpoint(info, handler, show_errors=self._service._shows_errors)
        await self._service._add(endpoint)
        return endpoint

    def _queue(self, queue_group: str | None) -> str:
        return self.queue_group if queue_group is None else queue_group


class Service(Group):
    """A running instance of a service; made by `connection.services.add`.

    >>> async with connection.services.add("shop", version="1.0.0") as service:
    ...     await service.add_endpoint("price", lambda request: request.respond(b"3"))
    """

    id: str
    name: str
    version: str
    description: str
    metadata: dict[str, str]
    endpoints: list[Endpoint]

    def __init__(
        self,
        connection: Connection,
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue_group: str = DEFAULT_QUEUE_GROUP,
        stats_handler: StatsHandler | None = None,
        show_errors: bool = False,
        prefix: str = PREFIX,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise OptionsError(f"service {name!r}: letters, digits, '-' and '_'")
        if not _VERSION.fullmatch(version):
            raise OptionsError(f"service {name!r}: version {version!r} is not like 1.2.3 (semver)")
        super().__init__(self, "", queue_group)
        self.id = nuid.next()
        self.name = name
        self.version = version
        self.description = description
        self.metadata = dict(metadata or {})
        self.endpoints = []
        self._connection = connection
        self._stats_handler = stats_handler
        self._shows_errors = show_errors
        self._control_prefix = prefix
        self._started = datetime.datetime.now(datetime.UTC)
        self._controls: list[Subscription] = []
        self._stopping = False
        self._stopped = asyncio.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` has begun, or the connection is closed."""
        return self._stopping or self._connection.is_closed

    def ping(self) -> ServicePing:
        """The response of the service to a ping."""
        return ServicePing(name=self.name, id=self.id, version=self.version, metadata=self.metadata)

    def info(self) -> ServiceInfo:
        """The description of the service, and all its endpoints."""
        return ServiceInfo(
            name=self.name,
            id=self.id,
            version=self.version,
            metadata=self.metadata,
            description=self.description,
            endpoints=[endpoint.info for endpoint in self.endpoints],
        )

    def stats(self) -> ServiceStats:
        """The statistics of all endpoints."""
        return ServiceStats(
            name=self.name,
            id=self.id,
            version=self.version,
            metadata=self.metadata,
            started=self._started,
            endpoints=[endpoint.stats(self._stats_handler) for endpoint in self.endpoints],
        )

    def reset(self) -> None:
        """Reset the counters of all endpoints to 0, as if the service had just started."""
        self._started = datetime.datetime.now(datetime.UTC)
        for endpoint in self.endpoints:
            endpoint.reset()

    async def stop(self) -> None:
        """Accept no new requests, finish those that have arrived, and stop."""
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        try:
            subscriptions = [endpoint._subscription for endpoint in self.endpoints]
            for subscription in (*subscriptions, *self._controls):
                if subscription is not None and not self._connection.is_closed:
                    await subscription.drain()
        finally:
            self._stopped.set()

    async def wait_stopped(self) -> None:
        """Wait until the service has stopped or the connection is closed; raises the error that
        closed it.
        """
        stopped = asyncio.ensure_future(self._stopped.wait())
        closed = asyncio.ensure_future(self._connection.wait_closed())
        try:
            await asyncio.wait({stopped, closed}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                await closed
        finally:
            for task in (stopped, closed):
                task.cancel()
            await asyncio.gather(stopped, closed, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        return f"Service({self.name!r}, {self.version}, {len(self.endpoints)} endpoints)"

    async def _start(self) -> None:
        answers: dict[str, Callable[[], object]] = {
            "PING": self.ping,
            "INFO": self.info,
            "STATS": self.stats,
        }
        for verb, answer in answers.items():
            subject = f"{self._control_prefix}.{verb}"
            for wanted in (subject, f"{subject}.{self.name}", f"{subject}.{self.name}.{self.id}"):
                self._controls.append(
                    await self._connection.subscribe(wanted, callback=_responder(answer))
                )
        await self._connection.flush()

    async def _add(self, endpoint: Endpoint) -> None:
        if self.is_stopped:
            raise OptionsError(f"service {self.name!r} has stopped: it takes no new endpoints")
        await endpoint._start(self._connection)
        self.endpoints.append(endpoint)
        await self._connection.flush()


def _responder(answer: Callable[[], object]) -> Callable[[Msg], Awaitable[None] | None]:
    def respond(message: Msg) -> Awaitable[None] | None:
        if not message.reply:
            return None
        return message.respond(msgspec.json.encode(answer()))

    return respond
