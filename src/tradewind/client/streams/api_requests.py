"""Requests to the JetStream API: subject, JSON body, response or error.

Owns the prefix of the API (domain or import), and decoding responses and pages. Unknown fields in
responses are ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import msgspec

from tradewind.api.base import ApiStruct, encode
from tradewind.api.endpoint_row import OWN_PREFIX, PREFIX
from tradewind.api.endpoints import ENDPOINT_BY_NAME, ENDPOINTS
from tradewind.api.names import is_valid_name
from tradewind.api.responses import PagedResponse
from tradewind.api.stream_types import ErrorDetail
from tradewind.api.times import format_time
from tradewind.client.api_errors import make_api_error
from tradewind.client.core.payloads import payload_bytes
from tradewind.client.errors import (
    BadAnswerError,
    ClientError,
    JetStreamUnavailableError,
    NoLeaderError,
    NoRespondersError,
    NotTradewindError,
    OperationTimeoutError,
    OptionsError,
)
from tradewind.durations import SECOND_NS
from tradewind.errors import JSON_ERRORS
from tradewind.status_codes import NO_RESPONDERS
from tradewind.subjects import is_valid_literal

if TYPE_CHECKING:
    from tradewind.client.connection import Connection, HeaderInput, Payload
    from tradewind.client.core.message import Msg

Answer = TypeVar("Answer", bound=ApiStruct)
Item = TypeVar("Item")
Page = TypeVar("Page", bound=PagedResponse)
# Between attempts while a cluster elects a leader.
LEADER_WAIT = 0.25
# Requests that a killed leader has not answered are lost without an error.
RESEND_SECONDS = 3.0
# Requests that change nothing, so that they may be repeated.
READS = frozenset(each.name for each in ENDPOINTS if each.is_read)


class _Refusal(msgspec.Struct):
    """The part of an answer that says whether the request was refused."""

    error: ErrorDetail | None = None


_REFUSALS = msgspec.json.Decoder(_Refusal)


class PublishCheck(Protocol):
    """A check of payloads before they are published."""

    def check(self, subject: str, payload: bytes, headers: HeaderInput | None = None) -> None:
        """Raise an error if a payload must not be published on a subject."""


class ApiRequests:
    """Sends requests to the API of one account or domain.

    `prefix` ends with a dot. `timeout` is in seconds and can be given per request.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        domain: str = "",
        api_prefix: str = "",
        timeout: float | None = None,
    ) -> None:
        options = connection.options
        if not domain and not api_prefix:
            domain, api_prefix = options.jetstream_domain, options.jetstream_api_prefix
        if domain and api_prefix:
            raise OptionsError("domain and api_prefix: use only one of them")
        for name, value in (("domain", domain), ("api_prefix", api_prefix)):
            if value and not is_valid_literal(value.rstrip(".")):
                raise OptionsError(f"{name}: tokens without wildcards and blanks, not {value!r}")
        self.connection = connection
        self.domain = domain
        self.prefix = PREFIX
        if domain:
            self.prefix = f"$JS.{domain}.API."
        elif api_prefix:
            self.prefix = api_prefix.rstrip(".") + "."
        self.timeout = options.timeout if timeout is None else timeout
        # Payloads are checked before they are sent, once a program has asked for it.
        self.schemas: PublishCheck | None = None

    def check_payload(self, subject: str, payload: Payload, headers: HeaderInput | None) -> None:
        """SchemaViolationError if payloads are checked, and this one is wrong."""
        if self.schemas is not None:
            self.schemas.check(subject, payload_bytes(payload), headers)

    def subject(self, endpoint: str, stream: str = "", consumer: str = "", rest: str = "") -> str:
        """The subject of an endpoint of `tradewind.api.endpoints`, with this prefix."""
        for kind, name in (("stream", stream), ("consumer", consumer)):
            if name and not is_valid_name(name):
                raise OptionsError(f"{kind} name {name!r}: no blanks, dots, slashes or wildcards")
        row = ENDPOINT_BY_NAME[endpoint]
        full = row.subject_for(stream, consumer, rest)
        if row.prefix == PREFIX:
            return self.prefix + full.removeprefix(PREFIX)
        if self.prefix != PREFIX:
            raise OptionsError(f"{endpoint}: only without domain and api_prefix")
        return full

    async def call(
        self,
        answer: type[Answer],
        endpoint: str,
        stream: str = "",
        consumer: str = "",
        rest: str = "",
        *,
        body: object = None,
        timeout: float | None = None,
        headers: HeaderInput | None = None,
    ) -> Answer:
        """Send a request and decode its answer; JetStreamApiError if it is refused."""
        return decode_answer(
            await self.call_raw(
                endpoint, stream, consumer, rest, body=body, timeout=timeout, headers=headers
            ),
            answer,
        )

    async def call_raw(
        self,
        endpoint: str,
        stream: str = "",
        consumer: str = "",
        rest: str = "",
        *,
        body: object = None,
        timeout: float | None = None,
        headers: HeaderInput | None = None,
    ) -> bytes:
        """Send a request; the JSON of the answer as it came."""
        subject = self.subject(endpoint, stream, consumer, rest)
        payload = b"" if body is None else encode(body)
        seconds = self.timeout if timeout is None else timeout
        try:
            if endpoint in READS:
                message = await self._read(subject, payload, seconds)
            else:
                message = await self.connection.request(
                    subject, payload, timeout=seconds, headers=headers
                )
        except NoRespondersError:
            if subject.startswith(OWN_PREFIX):
                raise NotTradewindError(
                    f"no response on {subject}: it requires a tradewind-server with JetStream (-js)"
                ) from None
            raise JetStreamUnavailableError(
                f"no response on {self.prefix}>: start the server with JetStream (-js), or "
                "check account and domain"
            ) from None
        except OperationTimeoutError as error:
            if self.connection.info.cluster:
                raise NoLeaderError(f"no leader at the moment: {error}") from None
            raise
        observer = self.connection.options.on_api_call
        if observer is not None:
            observer(subject, payload, message.data)
        return message.data

    async def _read(self, subject: str, payload: bytes, seconds: float) -> Msg:
        """A request that changes nothing: it is sent again after a reconnect, and in a cluster
        also while no answer comes, for its leader may have been killed with it.
        """
        connection = self.connection
        connection._check_open()
        question = connection.replies.ask(subject, payload, None, seconds)

        def send_again() -> None:
            if connection.is_connected:
                with contextlib.suppress(ClientError):
                    connection.publish(subject, payload, reply=question.reply)

        connection._link_watchers.add(send_again)
        try:
            while connection.info.cluster and not question.future.done():
                await asyncio.wait((question.future,), timeout=RESEND_SECONDS)
                if not question.future.done():
                    send_again()
            message = await question.future
        finally:
            connection._link_watchers.discard(send_again)
            connection.replies.forget(question)
        if message.status == NO_RESPONDERS and not message.data:
            raise NoRespondersError(subject)
        return message

    def pages(
        self,
        page: type[Page],
        items: Callable[[Page], list[Item]],
        endpoint: str,
        stream: str = "",
        **fields: Any,
    ) -> Pages[Item]:
        """All items of an answer that comes in pages."""

        async def load(offset: int) -> tuple[list[Item], int]:
            body = {**fields, "offset": offset}
            answer = await self.call(page, endpoint, stream, body=body)
            pages._missing += [*getattr(answer, "missing", ()), *getattr(answer, "offline", ())]
            return items(answer), answer.total

        pages: Pages[Item] = Pages(load)
        return pages


class LeaderWait:
    """Waits between attempts on a stream without a leader, since one may be elected soon."""

    def __init__(self, api: ApiRequests, stream: str) -> None:
        self._stream = stream
        self._seconds = api.timeout
        self._deadline = 0.0

    async def pause(self) -> None:
        """Wait a moment before the next attempt; NoLeaderError when the time is over."""
        now = asyncio.get_running_loop().time()
        self._deadline = self._deadline or now + self._seconds
        if now >= self._deadline:
            raise NoLeaderError(
                f"stream {self._stream!r}: no leader at the moment, or it was removed; nobody "
                f"answered within {self._seconds:g} s"
            )
        await asyncio.sleep(LEADER_WAIT)


class Pages(Generic[Item]):
    """An async iterator over items that the server gives out in pages.

    >>> async for info in manager.streams.list():
    ...     print(info.config.name)

    `next_page` returns a whole page, empty at the end; `all` everything that is left.
    """

    def __init__(self, load: Callable[[int], Any]) -> None:
        self._load = load
        self._offset = 0
        self._ready: list[Item] = []
        self._ended = False
        self.total = 0  # how many the server had at the last page
        self._missing: list[str] = []

    @property
    def missing(self) -> list[str]:
        """The names for which no server of a cluster has answered, up to the last page read."""
        return list(self._missing)

    async def next_page(self) -> list[Item]:
        """Request the next page; an empty list at the end."""
        if self._ready:
            ready, self._ready = self._ready[::-1], []
            return ready
        if self._ended:
            return []
        items, self.total = await self._load(self._offset)
        self._offset += len(items)
        self._ended = not items or self._offset >= self.total
        page: list[Item] = items
        return page

    async def all(self) -> list[Item]:
        """All remaining items."""
        found: list[Item] = []
        while page := await self.next_page():
            found += page
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        if not self._ready:
            self._ready = (await self.next_page())[::-1]
            if not self._ready:
                raise StopAsyncIteration
        return self._ready.pop()


async def first(items: AsyncIterator[Item] | Pages[Item]) -> Item | None:
    """The first item, or None if there is none."""
    async for item in items:
        return item
    return None


def decode_answer(data: bytes, answer: type[Answer]) -> Answer:
    """The answer in its JSON; JetStreamApiError if it is a refusal."""
    check_answer(data)
    try:
        return msgspec.json.decode(data, type=answer)
    except JSON_ERRORS as error:
        raise BadAnswerError(f"the server's {answer.__name__}: {error}") from None


def check_answer(data: bytes) -> None:
    """Raise the error that an answer holds, if it is a refusal."""
    try:
        refusal = _REFUSALS.decode(data).error
    except JSON_ERRORS as error:
        raise BadAnswerError(f"the server's response is not JSON: {error}") from None
    if refusal is not None:
        raise make_api_error(refusal.code, refusal.err_code, refusal.description)


def to_ns(duration: float | datetime.timedelta) -> int:
    """Nanoseconds of a number of seconds or a timedelta."""
    if isinstance(duration, datetime.timedelta):
        return duration // datetime.timedelta(microseconds=1) * 1000
    return round(duration * SECOND_NS)


def to_time(moment: datetime.datetime, name: str = "time") -> str:
    """RFC 3339 of a moment; one without a time zone is an error, not a guess."""
    if moment.tzinfo is None:
        raise OptionsError(
            f"{name} must have a time zone, for example datetime.now(UTC), and {moment} has none"
        )
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return format_time(to_ns(since))
