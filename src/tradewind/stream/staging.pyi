import builtins
from collections.abc import Callable, Iterator, Mapping

from tradewind.stream.publish_checks import Publish

ID_BYTES_MAX: int

class BatchLimits:
    msgs_max: int
    per_stream_max: int
    total_max: int
    rest_ns: int
    open_count: int
    bytes: int
    bytes_max: int
    fast_per_stream_max: int
    fast_total_max: int
    fast_open_count: int
    def __init__(
        self,
        *,
        msgs_max: int = 1000,
        per_stream_max: int = 50,
        total_max: int = 1000,
        rest_ns: int = 10_000_000_000,
        fast_per_stream_max: int = 1000,
        fast_total_max: int = 50_000,
        bytes_max: int = 268435456,
    ) -> None: ...

def batch_limits(given: Mapping[str, int]) -> BatchLimits: ...

class OpenBatch:
    def __init__(self, batch_id: builtins.bytes, rests_until_ns: int) -> None: ...
    @property
    def id(self) -> builtins.bytes: ...
    @property
    def count(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def record_bytes(self) -> int: ...
    @property
    def is_simple(self) -> bool: ...
    @property
    def tail(self) -> builtins.bytes: ...
    def messages(self) -> Iterator[Publish]: ...

class Staging:
    def __init__(
        self,
        limits: BatchLimits,
        abandoned: Callable[[bytes, str], None],
        stream: bytes,
        seed: int,
    ) -> None: ...
    def add(self, message: Publish, now_ns: int) -> OpenBatch | None: ...
    def drop(self, batch_id: builtins.bytes) -> bool: ...
    def clear(self) -> None: ...
    @property
    def next_deadline_ns(self) -> int: ...
    def tick(self, now_ns: int) -> None: ...
