"""Pages of messages: by sequence, by time, the newest, by subject or by text.

Owns finding a page without reading the stream: a batch of direct gets, or single gets if a stream
does not allow direct ones. A text search examines a limited number of messages and reports where it
stopped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from tradewind.api.times import format_time, parse_time
from tradewind.client.api_errors import NoMessageFoundError
from tradewind.client.core.headers import Headers
from tradewind.client.streams.direct import DirectMessage, read_batch
from tradewind.dashboard.data.message_filters import has_text
from tradewind.subjects import is_valid_subject

if TYPE_CHECKING:
    from tradewind.api.stream_types import StreamInfo
    from tradewind.client.jetstream import JetStream

PAGE_ROWS: Final = 30
PAGE_BYTES: Final = 2 << 20
# A text search covers this many messages before the page says where it stopped.
LOOKED_AT_MAX: Final = 2000
LOOKED_AT_SINGLY_MAX: Final = 200
# Messages of a batch that is read message by message.
SINGLE_GETS_MAX: Final = 64
# The part of a payload shown in a list, and on the page of one message.
EXCERPT_BYTES: Final = 160
SHOWN_BYTES_MAX: Final = 256 * 1024
HEX_BYTES_MAX: Final = 16 * 1024
OWN_HEADERS: Final = frozenset(
    (
        "Nats-Stream",
        "Nats-Subject",
        "Nats-Sequence",
        "Nats-Time-Stamp",
        "Nats-Num-Pending",
        "Nats-Last-Sequence",
        "Nats-UpTo-Sequence",
    )
)
SEQUENCE_MAX: Final = 2**64 - 1
TIME_NS_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """A message as stored in its stream."""

    sequence: int
    subject: str
    time_ns: int
    headers: list[tuple[str, str]]
    data: bytes


@dataclass(frozen=True, slots=True)
class Search:
    """The selection of a page. `start` 0 means the newest."""

    start: int = 0
    start_time_ns: int = 0
    subject: str = ""
    text: str = ""

    @property
    def pattern(self) -> str:
        """The pattern of the selected subjects."""
        return self.subject or ">"

    def takes(self, message: ListedMessage) -> bool:
        """Whether the text is in the payload, the subject or a header; case is ignored."""
        return not self.text or has_text(message, self.text)


@dataclass(slots=True)
class MessagePage:
    """Messages in the order of the stream; `next_start` continues after them, 0 at the end.

    `is_cut` says that a search stopped there, and that there may be more.
    """

    messages: list[ListedMessage] = field(default_factory=list)
    next_start: int = 0
    is_cut: bool = False
    looked_at: int = 0


class MessageReader:
    """Reads pages of one stream."""

    def __init__(self, jetstream: JetStream, info: StreamInfo) -> None:
        self._js = jetstream
        self._info = info
        self._name = info.config.name

    async def page(self, search: Search) -> MessagePage:
        """The page for a search."""
        if search.subject and not is_valid_subject(search.subject):
            return MessagePage()
        start = search.start
        if search.start_time_ns:
            start = await self._at_time(search)
            if not start:
                return MessagePage()
        if not start:
            return await self._newest(search)
        return await self._forward(search, start)

    async def one(self, sequence: int) -> ListedMessage | None:
        """One message; None if it does not exist."""
        try:
            found = await self._js.manager.streams.get_message(self._name, seq=sequence)
        except NoMessageFoundError:
            return None
        return ListedMessage(
            found.seq, found.subject, found.time_ns, _fields(found.headers), found.data
        )

    async def sequence_at(self, time_ns: int) -> int:
        """The first sequence that is not older than a time; 0 if there is none."""
        return await self._at_time(Search(start_time_ns=time_ns))

    async def _forward(self, search: Search, start: int) -> MessagePage:
        page = MessagePage()
        most = LOOKED_AT_MAX if self._info.config.allow_direct else LOOKED_AT_SINGLY_MAX
        async for message in self._read(search.pattern, max(start, self._info.state.first_seq)):
            if len(page.messages) == PAGE_ROWS or page.looked_at == most:
                page.next_start = message.sequence
                page.is_cut = len(page.messages) < PAGE_ROWS
                return page
            page.looked_at += 1
            if search.takes(message):
                page.messages.append(message)
        return page

    async def _newest(self, search: Search) -> MessagePage:
        """The last messages: start further and further before the end until there are enough.

        The messages of a window are read once at most, so a rare subject costs as many messages as
        it has, not as many as the stream has.
        """
        last, first = self._info.state.last_seq, max(self._info.state.first_seq, 1)
        window = PAGE_ROWS * 8 if search.text else PAGE_ROWS
        while True:
            start = max(first, last - window + 1)
            page = await self._window(search, start)
            if len(page.messages) >= PAGE_ROWS or start == first or page.looked_at >= LOOKED_AT_MAX:
                page.messages = page.messages[-PAGE_ROWS:]
                page.is_cut = start > first and len(page.messages) < PAGE_ROWS
                return page
            window *= 8

    async def _window(self, search: Search, start: int) -> MessagePage:
        page = MessagePage()
        kept: list[ListedMessage] = []
        async for message in self._read(search.pattern, start):
            page.looked_at += 1
            if search.takes(message):
                kept.append(message)
                del kept[:-PAGE_ROWS]
            if page.looked_at >= LOOKED_AT_MAX:
                break
        page.messages = kept
        return page

    async def _read(self, pattern: str, start: int) -> AsyncIterator[ListedMessage]:
        """The messages of a subject from a sequence on, at most a few thousand."""
        if self._info.config.allow_direct:
            while True:
                batch = await read_batch(
                    self._js.api,
                    self._name,
                    pattern,
                    start=start,
                    messages_max=PAGE_ROWS * 4,
                    bytes_max=PAGE_BYTES,
                )
                for item in batch.messages:
                    yield _listed(item)
                if not batch.pending or not batch.messages:
                    return
                start = batch.messages[-1].sequence + 1
        while start <= SEQUENCE_MAX:
            found = await self._next(pattern, start)
            if found is None:
                return
            yield found
            start = found.sequence + 1

    async def batch(
        self, pattern: str, start: int, messages_max: int, bytes_max: int
    ) -> list[ListedMessage]:
        """Some messages of a subject from a sequence on; none at the end of the stream."""
        if self._info.config.allow_direct:
            try:
                found = await read_batch(
                    self._js.api,
                    self._name,
                    pattern,
                    start=start,
                    messages_max=messages_max,
                    bytes_max=bytes_max,
                )
            except NoMessageFoundError:
                return []
            return [_listed(item) for item in found.messages]
        messages: list[ListedMessage] = []
        size = 0
        while len(messages) < min(messages_max, SINGLE_GETS_MAX) and size < bytes_max:
            one = await self._next(pattern, start)
            if one is None:
                break
            messages.append(one)
            size += len(one.data)
            start = one.sequence + 1
        return messages

    async def _next(self, pattern: str, start: int) -> ListedMessage | None:
        try:
            found = await self._js.manager.streams.get_message(
                self._name, seq=start, next_by_subject=pattern
            )
        except NoMessageFoundError:
            return None
        return ListedMessage(
            found.seq, found.subject, found.time_ns, _fields(found.headers), found.data
        )

    async def _at_time(self, search: Search) -> int:
        if search.start_time_ns > TIME_NS_MAX:
            return 0
        # A server holds times in 64 bits, and misinterprets larger ones.
        start_ns = max(search.start_time_ns, 0)
        body = {"start_time": format_time(start_ns), "next_by_subj": search.pattern}
        try:
            answer = await self._js.api.call_raw("stream_msg_get", self._name, body=body)
        except NoMessageFoundError:
            return 0
        found = msgspec.json.decode(answer, type=_GetAnswer)
        return found.message.seq if found.message is not None else 0


class _FoundMessage(msgspec.Struct):
    """The part of a message with its location."""

    seq: int = 0


class _GetAnswer(msgspec.Struct):
    """The answer to a get of which only the sequence is used."""

    message: _FoundMessage | None = None


def _listed(item: DirectMessage) -> ListedMessage:
    return ListedMessage(
        item.sequence,
        item.subject,
        parse_time(item.time),
        _fields(item.message.headers),
        item.message.data,
    )


def _fields(headers: Headers) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name in headers
        if name not in OWN_HEADERS
        for value in headers.get_all(name)
    ]


# ---------------------------------------------------------------------- payloads as text


def excerpt(data: bytes) -> str:
    """The beginning of a payload in one line."""
    text = data[:EXCERPT_BYTES].decode(errors="replace")
    return " ".join(text.split()) + ("..." if len(data) > EXCERPT_BYTES else "")


def as_text(data: bytes) -> str:
    """A payload as text; bytes that are not UTF-8 are marked."""
    return data[:SHOWN_BYTES_MAX].decode(errors="replace")


def as_json(data: bytes) -> str | None:
    """A payload's JSON, indented; None if it is not JSON, or too large to be shown."""
    if len(data) > SHOWN_BYTES_MAX or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        # Members stay in order, and numbers as they are written.
        return msgspec.json.format(data, indent=2).decode(errors="replace")
    except (msgspec.DecodeError, RecursionError):
        return None


def as_hex(data: bytes) -> str:
    """The beginning of a payload in hex, sixteen bytes per line with their characters."""
    lines = []
    for offset in range(0, min(len(data), HEX_BYTES_MAX), 16):
        row = data[offset : offset + 16]
        digits = " ".join(f"{byte:02x}" for byte in row)
        characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{offset:08x}  {digits:<47}  {characters}")
    if len(data) > HEX_BYTES_MAX:
        lines.append(f"... {len(data) - HEX_BYTES_MAX} more bytes")
    return "\n".join(lines)
