"""Managing streams and consumers: create, list, update, purge, delete.

Owns the management calls of the JetStream API; messages are read and written through
`jetstream.py`. An update never drops settings of a newer server that this client does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec

from tradewind.api.base import ApiStruct
from tradewind.api.configs import consumer_config_to_dict, stream_config_to_dict
from tradewind.api.consumer_types import ConsumerConfig, ConsumerInfo
from tradewind.api.purge_condition import EXPECTED_CREATED_HEADER
from tradewind.api.request_types import ConsumerAction, StreamInfoRequest
from tradewind.api.responses import (
    AccountInfo,
    ConsumerListResponse,
    ConsumerNamesResponse,
    ConsumerPauseResponse,
    ConsumerUnpinResponse,
    MsgGetResponse,
    StreamInfoResponse,
    StreamListResponse,
    StreamNamesResponse,
    StreamPurgeResponse,
)
from tradewind.api.stream_types import StreamConfig, StreamInfo, StreamState
from tradewind.api.times import parse_time
from tradewind.api.truncation_types import (
    HeaderMatch,
    StreamTruncateRequest,
    StreamTruncateResponse,
    StreamUndoResponse,
    UndoWindow,
)
from tradewind.client.api_errors import NoMessageFoundError, StreamNotFoundError
from tradewind.client.core.duration_input import DurationInput, duration_ns
from tradewind.client.core.headers import Headers, decode_headers
from tradewind.client.errors import BadAnswerError, OptionsError
from tradewind.client.streams.api_requests import (
    ApiRequests,
    Pages,
    check_answer,
    decode_answer,
    first,
    to_time,
)
from tradewind.client.streams.config_settings import config_of, make_config
from tradewind.client.streams.setting_types import ConsumerSettings, StreamSettings
from tradewind.client.streams.templates import StreamTemplates
from tradewind.status_codes import NOT_FOUND

if TYPE_CHECKING:
    from tradewind.client.connection import Connection
    from tradewind.client.core.message import Msg
    from tradewind.client.streams.delivery_lag import DeliveryLag

# A million messages take some seconds.
TRUNCATE_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class StoredMsg:
    """A message as a stream holds it, read without a consumer."""

    stream: str
    subject: str
    seq: int
    data: bytes
    headers: Headers
    time_ns: int

    @property
    def time(self) -> datetime:
        """When it was stored, in UTC (to the microsecond; `time_ns` is exact)."""
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return epoch + timedelta(microseconds=self.time_ns // 1000)


class _SuccessAnswer(ApiStruct, frozen=True, kw_only=True):
    """The answer to a request that is only granted or refused."""

    success: bool = False


class _RawConfig(ApiStruct, frozen=True, kw_only=True):
    """An info of which only the configuration is wanted, with all its members."""

    config: dict[str, Any] = {}


class JetStreamManager:
    """Manages the streams and consumers of an account. Made by `Connection.jetstream_manager`.

    >>> manager = connection.jetstream_manager()
    >>> await manager.streams.add(name="ORDERS", subjects=["orders.>"])
    >>> await manager.consumers.add("ORDERS", durable_name="packer", ack_policy="explicit")
    """

    streams: Streams
    consumers: Consumers
    templates: StreamTemplates

    def __init__(
        self,
        connection: Connection,
        *,
        domain: str = "",
        api_prefix: str = "",
        timeout: float | None = None,
    ) -> None:
        self.api = ApiRequests(connection, domain=domain, api_prefix=api_prefix, timeout=timeout)
        self.streams = Streams(self.api)
        self.consumers = Consumers(self.api)
        self.templates = StreamTemplates(self.api)

    async def account_info(self) -> AccountInfo:
        """Return the usage and the limits of the account."""
        return await self.api.call(AccountInfo, "account_info")


class Streams:
    """The streams of an account."""

    def __init__(self, api: ApiRequests) -> None:
        self._api = api

    def list(self, subject: str = "") -> Pages[StreamInfo]:
        """All streams, or those that store a subject; an async iterator that reads page by page."""
        fields = {"subject": subject} if subject else {}
        return self._api.pages(
            StreamListResponse, lambda page: page.streams, "stream_list", **fields
        )

    def names(self, subject: str = "") -> Pages[str]:
        """The names of all streams, or of those that store a subject."""
        fields = {"subject": subject} if subject else {}
        return self._api.pages(
            StreamNamesResponse, lambda page: page.streams or [], "stream_names", **fields
        )

    async def add(
        self,
        config: StreamConfig | Mapping[str, Any] | None = None,
        **settings: Unpack[StreamSettings],
    ) -> StreamInfo:
        """Create a stream; repeating the call with the same configuration changes nothing.

        Numbers for durations are seconds. `config` is a complete configuration as in JSON, where
        durations are nanoseconds; settings override its members.

        >>> await streams.add(name="ORDERS", subjects=["orders.>"], max_age="7d")
        """
        made = make_config(config_of(StreamConfig, config), settings)
        _check_named(made.name)
        return await self._api.call(StreamInfo, "stream_create", made.name, body=made)

    async def update(
        self, config: StreamConfig | str, **settings: Unpack[StreamSettings]
    ) -> StreamInfo:
        """Change the configuration of a stream: all of it, or (with the name) some members.

        >>> await streams.update("ORDERS", max_msgs=1_000_000)
        """
        name = config if isinstance(config, str) else config.name
        _check_named(name)
        answer = await self._api.call_raw("stream_info", name)
        current = decode_answer(answer, _RawConfig).config
        if isinstance(config, str):
            config = decode_answer(answer, StreamInfo).config
        body = stream_config_to_dict(make_config(config, settings), current)
        return await self._api.call(StreamInfo, "stream_update", name, body=body)

    async def info(
        self, stream: str, *, deleted_details: bool = False, subjects_filter: str = ""
    ) -> StreamInfo:
        """The configuration and state of a stream.

        `deleted_details` adds the sequences of removed messages, `subjects_filter` (">" for all)
        the number of messages per subject.
        """
        subjects: dict[str, int] = {}
        while True:
            request = StreamInfoRequest(
                offset=len(subjects),
                deleted_details=deleted_details,
                subjects_filter=subjects_filter,
            )
            body = request if deleted_details or subjects_filter else None
            answer = await self._api.call_raw("stream_info", stream, body=body)
            page = decode_answer(answer, StreamInfoResponse)
            subjects |= page.state.subjects
            if not page.state.subjects or len(subjects) >= page.total:
                break
        info = decode_answer(answer, StreamInfo)
        if not subjects:
            return info
        state: StreamState = msgspec.structs.replace(info.state, subjects=subjects)
        return msgspec.structs.replace(info, state=state)

    async def delete(self, stream: str) -> bool:
        """Delete a stream with its messages and consumers."""
        return (await self._api.call(_SuccessAnswer, "stream_delete", stream)).success

    async def purge(
        self,
        stream: str,
        *,
        filter: str = "",  # noqa: A002 - the name that the API and all clients have
        keep: int = 0,
        seq: int = 0,
        created: str = "",
    ) -> int:
        """Remove messages and return how many: all, those of a subject, all but the newest `keep`,
        or those below a sequence.

        With `created` (from `info`), a tradewind-server refuses the request if the stream was
        created at another time: deleted and created again. nats-server does not check that.
        """
        if keep and seq:
            raise OptionsError("purge: use keep or seq, not both")
        fields = {"filter": filter, "keep": keep, "seq": seq}
        body = {name: value for name, value in fields.items() if value} or None
        headers = {EXPECTED_CREATED_HEADER: created} if created else None
        answer = await self._api.call(
            StreamPurgeResponse, "stream_purge", stream, body=body, headers=headers
        )
        return answer.purged

    async def truncate(
        self,
        stream: str,
        *,
        before: datetime | None = None,
        after: datetime | None = None,
        newest: int = 0,
        subjects: Sequence[str] = (),
        header: str | tuple[str, str] | None = None,
        keep_for: DurationInput | None = None,
        dry_run: bool = False,
        timeout: float = TRUNCATE_SECONDS,
    ) -> StreamTruncateResponse:
        """Remove the messages that match all given conditions, and report which.

        `newest`: only this many of the newest messages. `header`: a name, or a name and a value.
        `keep_for`: how long `undo` can restore them. `dry_run` only reports what would be removed.
        Requires a tradewind-server.
        """
        match = (header, None) if isinstance(header, str) else header
        request = StreamTruncateRequest(
            before=None if before is None else to_time(before),
            after=None if after is None else to_time(after),
            newest=newest,
            subjects=list(subjects),
            header=None if match is None else HeaderMatch(name=match[0], value=match[1]),
            keep_for=0 if keep_for is None else duration_ns("keep_for", keep_for),
            dry_run=dry_run,
        )
        return await self._api.call(
            StreamTruncateResponse, "stream_truncate", stream, body=request, timeout=timeout
        )

    async def undo(
        self,
        stream: str,
        truncation: str = "",
        *,
        timeout: float = TRUNCATE_SECONDS,
    ) -> int:
        """Restore the messages that the latest truncation removed, or the one with this id; returns
        how many. The stream accepts no messages meanwhile.
        """
        answer = await self._api.call(
            StreamUndoResponse, "stream_undo", stream, body={"id": truncation}, timeout=timeout
        )
        return answer.messages

    async def undo_windows(self, stream: str) -> Sequence[UndoWindow]:
        """The truncations of a stream that can be undone, oldest first."""
        answer = await self._api.call(
            StreamUndoResponse, "stream_undo", stream, body={"dry_run": True}
        )
        return answer.windows

    async def find(self, subject: str) -> str:
        """The name of the stream that stores a subject; StreamNotFoundError if none does."""
        name = await first(self.names(subject))
        if name is None:
            raise StreamNotFoundError(NOT_FOUND, 10059, f"no stream stores subject {subject!r}")
        return name

    async def get_message(
        self,
        stream: str,
        *,
        seq: int = 0,
        last_by_subject: str = "",
        next_by_subject: str = "",
        direct: bool = False,
    ) -> StoredMsg:
        """One message of a stream: by sequence, the last of a subject, or the next of a subject at
        or after `seq`. NoMessageFoundError if there is none.

        `direct` asks whichever server has a copy (the stream needs allow_direct).
        """
        if not (seq or last_by_subject or next_by_subject):
            raise OptionsError("get_message: specify seq, last_by_subject or next_by_subject")
        fields = {"seq": seq, "last_by_subj": last_by_subject, "next_by_subj": next_by_subject}
        body = {name: value for name, value in fields.items() if value}
        if direct:
            return await self._get_direct(stream, body)
        answer = await self._api.call(MsgGetResponse, "stream_msg_get", stream, body=body)
        found = answer.message
        if found is None:
            raise BadAnswerError("the response to get_message contains no message")
        headers = decode_headers(found.hdrs) if found.hdrs else Headers()
        return StoredMsg(
            stream, found.subject, found.seq, found.data, headers, parse_time(found.time)
        )

    async def delete_message(self, stream: str, seq: int, *, erase: bool = True) -> bool:
        """Remove one message; its data is overwritten unless `erase` is false."""
        body = {"seq": seq} if erase else {"seq": seq, "no_erase": True}
        return (
            await self._api.call(_SuccessAnswer, "stream_msg_delete", stream, body=body)
        ).success

    async def _get_direct(self, stream: str, body: dict[str, Any]) -> StoredMsg:
        last = body.get("last_by_subj", "")
        api = self._api
        if last and len(body) == 1:
            subject = api.subject("direct_get_last", stream, rest=last)
            message = await api.connection.request(subject, timeout=api.timeout)
        else:
            payload = msgspec.json.encode(body)
            subject = api.subject("direct_get", stream)
            message = await api.connection.request(subject, payload, timeout=api.timeout)
        return decode_direct(message)


class Consumers:
    """The consumers of streams."""

    def __init__(self, api: ApiRequests) -> None:
        self._api = api

    def list(self, stream: str) -> Pages[ConsumerInfo]:
        """All consumers of a stream; an async iterator that reads page by page."""
        return self._api.pages(
            ConsumerListResponse, lambda page: page.consumers, "consumer_list", stream
        )

    def names(self, stream: str) -> Pages[str]:
        """The names of all consumers of a stream."""
        return self._api.pages(
            ConsumerNamesResponse, lambda page: page.consumers, "consumer_names", stream
        )

    async def add(
        self,
        stream: str,
        config: ConsumerConfig | Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> ConsumerInfo:
        """Create a consumer; repeating the call with the same configuration changes nothing.

        A consumer without a name is ephemeral, and the server names it.

        >>> await consumers.add("ORDERS", durable_name="packer", ack_policy="explicit")
        """
        made = make_config(config_of(ConsumerConfig, config), settings)
        return await self._create(stream, made, ConsumerAction.CREATE)

    async def update(
        self, stream: str, config: ConsumerConfig | str, **settings: Unpack[ConsumerSettings]
    ) -> ConsumerInfo:
        """Change the configuration of a consumer: all of it, or (with the name) some members.

        >>> await consumers.update("ORDERS", "packer", max_ack_pending=10)
        """
        name = config if isinstance(config, str) else config.name or config.durable_name
        _check_named(name)
        answer = await self._api.call_raw("consumer_info", stream, name)
        current = decode_answer(answer, _RawConfig).config
        if isinstance(config, str):
            config = decode_answer(answer, ConsumerInfo).config
        made = make_config(config, settings)
        return await self._create(stream, made, ConsumerAction.UPDATE, current)

    async def info(self, stream: str, consumer: str) -> ConsumerInfo:
        """The configuration and state of a consumer."""
        return await self._api.call(ConsumerInfo, "consumer_info", stream, consumer)

    async def lag(self, stream: str, consumer: str) -> DeliveryLag:
        """How far a consumer is behind, in messages and in seconds; also of any nats-server.

        >>> lag = await manager.consumers.lag("ORDERS", "packer")
        >>> print(lag.messages, lag.seconds)
        """
        from tradewind.client.streams.delivery_lag import lag_of

        return await lag_of(Streams(self._api), await self.info(stream, consumer))

    async def lags(self, infos: Sequence[ConsumerInfo]) -> Mapping[str, DeliveryLag]:
        """The lags of consumers of one stream, by name; of the first 256 of them."""
        from tradewind.client.streams.delivery_lag import lags_of

        return await lags_of(Streams(self._api), infos)

    async def delete(self, stream: str, consumer: str) -> bool:
        """Delete a consumer."""
        return (await self._api.call(_SuccessAnswer, "consumer_delete", stream, consumer)).success

    async def pause(
        self, stream: str, consumer: str, until: datetime | DurationInput
    ) -> ConsumerPauseResponse:
        """Pause delivery until a time, or for a duration: seconds, a timedelta or a text."""
        if not isinstance(until, datetime):
            microseconds = duration_ns("until", until) // 1000
            until = datetime.now(UTC) + timedelta(microseconds=microseconds)
        return await self._pause(stream, consumer, {"pause_until": to_time(until)})

    async def resume(self, stream: str, consumer: str) -> ConsumerPauseResponse:
        """End a pause."""
        return await self._pause(stream, consumer, None)

    async def unpin(self, stream: str, consumer: str, group: str) -> None:
        """Let another reader take over a priority group that is pinned to one."""
        await self._api.call(
            ConsumerUnpinResponse, "consumer_unpin", stream, consumer, body={"group": group}
        )

    async def reset(self, stream: str, consumer: str, *, seq: int = 0) -> ConsumerInfo:
        """Redeliver all unacknowledged messages, or everything from a sequence on."""
        body = {"seq": seq} if seq else None
        return await self._api.call(ConsumerInfo, "consumer_reset", stream, consumer, body=body)

    async def _pause(
        self, stream: str, consumer: str, body: dict[str, str] | None
    ) -> ConsumerPauseResponse:
        return await self._api.call(
            ConsumerPauseResponse, "consumer_pause", stream, consumer, body=body
        )

    async def _create(
        self,
        stream: str,
        config: ConsumerConfig,
        action: ConsumerAction,
        current: dict[str, Any] | None = None,
    ) -> ConsumerInfo:
        name = config.name or config.durable_name
        _check_named(stream)
        endpoint = "consumer_create_ephemeral"
        if name:
            endpoint = "consumer_create_filtered" if config.filter_subject else "consumer_create"
        body = {
            "stream_name": stream,
            "config": consumer_config_to_dict(config, current),
            "action": action,
        }
        return await self._api.call(
            ConsumerInfo, endpoint, stream, name, config.filter_subject, body=body
        )


def decode_direct(message: Msg) -> StoredMsg:
    """The message in an answer to DIRECT.GET; NoMessageFoundError if there is none."""
    if message.status == NOT_FOUND:
        raise NoMessageFoundError(NOT_FOUND, 10037, "no message found")
    if message.status:
        raise BadAnswerError(f"direct get: the server says {message.status} {message.description}")
    headers = message.headers
    try:
        return StoredMsg(
            stream=headers["Nats-Stream"],
            subject=headers["Nats-Subject"],
            seq=int(headers["Nats-Sequence"]),
            data=message.data,
            headers=headers,
            time_ns=parse_time(headers["Nats-Time-Stamp"]),
        )
    except (KeyError, ValueError) as error:
        if not headers:
            check_answer(message.data)
        raise BadAnswerError(f"direct get: the response lacks a header: {error}") from None


def _check_named(name: str) -> None:
    if not name:
        raise OptionsError("a name is needed: name=... for a stream, name=... for a consumer")
