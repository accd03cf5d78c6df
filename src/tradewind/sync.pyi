"""Types of the blocking client; written by tools/sync_stub.py, never by hand."""

from collections.abc import Callable, Iterator, Mapping
from typing import Self, Unpack

from tradewind.client.connection import HeaderInput, Payload
from tradewind.client.discovery import ANSWERS_SECONDS, STALL_SECONDS
from tradewind.client.login import ServerInfo
from tradewind.client.message import Msg
from tradewind.client.options import ConnectOptions, ConnectSettings
from tradewind.client.publisher import _HeaderInput, _Payload
from tradewind.client.service_types import ServiceInfo, ServicePing, ServiceStats
from tradewind.client.services import DEFAULT_QUEUE_GROUP, Endpoint, RequestHandler, StatsHandler
from tradewind.client.stats import Stats
from tradewind.client.subscription import MessageHandler

def connect(
    servers: str | list[str] | None = None,
    *,
    context: str | None = None,
    **settings: Unpack[ConnectSettings],
) -> Connection: ...

class Connection:
    services: Services
    def new_inbox(self) -> str: ...
    def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        callback: MessageHandler | None = None,
        max_msgs: int = 0,
        pending_messages_max: int | None = None,
        pending_bytes_max: int | None = None,
    ) -> Subscription: ...
    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: float | None = None,
        headers: HeaderInput | None = None,
    ) -> Msg: ...
    def request_many(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: float | None = None,
        max_messages: int = 0,
        stall: float | None = None,
        sentinel: Callable[[Msg], bool] | None = None,
        headers: HeaderInput | None = None,
    ) -> Iterator[Msg]: ...
    def drain(self, timeout: float | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    options: ConnectOptions
    info: ServerInfo
    @property
    def is_connected(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_draining(self) -> bool: ...
    @property
    def url(self) -> str: ...
    @property
    def servers(self) -> list[str]: ...
    @property
    def closed_error(self) -> Exception | None: ...
    @property
    def stats(self) -> Stats: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def rtt(self, timeout: float | None = None) -> float: ...
    def wait_connected(self, timeout: float | None = None) -> None: ...
    def wait_for_room(self) -> None: ...
    def wait_closed(self) -> None: ...
    def close(self) -> None: ...
    in_messages: int
    in_bytes: int
    out_messages: int
    out_bytes: int
    def publish(
        self,
        subject: str,
        payload: _Payload = b"",
        *,
        reply: str | None = None,
        headers: _HeaderInput | None = None,
    ) -> None: ...
    @property
    def max_payload(self) -> int: ...
    @property
    def is_crowded(self) -> bool: ...
    @property
    def pending_bytes(self) -> int: ...

class Subscription:
    def next(self, timeout: float | None = None) -> Msg: ...
    def take_some(self, count_max: int) -> list[Msg]: ...
    def unsubscribe(self) -> None: ...
    def drain(self, timeout: float | None = None) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    @property
    def sid(self) -> int: ...
    @property
    def subject(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def pending_messages(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def pending_messages_max(self) -> int: ...
    @property
    def pending_bytes_max(self) -> int: ...
    @property
    def delivered_count(self) -> int: ...
    @property
    def dropped_count(self) -> int: ...
    @property
    def messages_max(self) -> int: ...
    @property
    def is_ended(self) -> bool: ...
    def take(self) -> Msg | None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Msg: ...

class Services:
    prefix: str
    def add(
        self,
        name: str,
        version: str,
        *,
        description: str = "",
        metadata: Mapping[str, str] | None = None,
        queue_group: str = DEFAULT_QUEUE_GROUP,
        stats_handler: StatsHandler | None = None,
    ) -> Service: ...
    def request(
        self,
        subject: str,
        payload: Payload = b"",
        *,
        timeout: float | None = None,
        headers: HeaderInput | None = None,
    ) -> Msg: ...
    def ping(
        self,
        name: str = "",
        service_id: str = "",
        *,
        timeout: float = ANSWERS_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> Iterator[ServicePing]: ...
    def info(
        self,
        name: str = "",
        service_id: str = "",
        *,
        timeout: float = ANSWERS_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> Iterator[ServiceInfo]: ...
    def stats(
        self,
        name: str = "",
        service_id: str = "",
        *,
        timeout: float = ANSWERS_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> Iterator[ServiceStats]: ...

class Service:
    id: str
    name: str
    version: str
    description: str
    metadata: dict[str, str]
    endpoints: list[Endpoint]
    @property
    def is_stopped(self) -> bool: ...
    def ping(self) -> ServicePing: ...
    def info(self) -> ServiceInfo: ...
    def stats(self) -> ServiceStats: ...
    def reset(self) -> None: ...
    def stop(self) -> None: ...
    def wait_stopped(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    prefix: str
    queue_group: str
    def add_group(self, name: str, *, queue_group: str | None = None) -> Group: ...
    def add_endpoint(
        self,
        name: str,
        handler: RequestHandler,
        *,
        subject: str = "",
        queue_group: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Endpoint: ...

class Group:
    prefix: str
    queue_group: str
    def add_group(self, name: str, *, queue_group: str | None = None) -> Group: ...
    def add_endpoint(
        self,
        name: str,
        handler: RequestHandler,
        *,
        subject: str = "",
        queue_group: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Endpoint: ...
