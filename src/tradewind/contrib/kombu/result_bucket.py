"""The result backend of Celery: results in a key-value bucket, chords counted by a counter.

Owns the keys and their lifetime; Celery owns what the values mean. Waiting for a result watches its
key instead of asking again and again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from celery import states
from celery.backends.base import KeyValueStoreBackend
from celery.exceptions import ImproperlyConfigured
from celery.exceptions import TimeoutError as ResultTimeoutError

from tradewind.client.errors import (
    BucketExistsError,
    BucketNotFoundError,
    ClientError,
    ConnectionClosedError,
    DisconnectedError,
    JetStreamUnavailableError,
    KeyNotFoundError,
    NoServersError,
    OperationTimeoutError,
    OptionsError,
)
from tradewind.client.jetstream import JetStream
from tradewind.client.kv.kv import KeyValue
from tradewind.client.kv.watch import Watcher
from tradewind.contrib.kombu.broker_session import BrokerSession
from tradewind.contrib.kombu.broker_settings import masked_url, server_url, stream_of
from tradewind.contrib.kombu.queue_subjects import to_token

DEFAULT_BUCKET: Final = "CELERY"
OPTIONS: Final = ("bucket", "connect", "global_keyprefix", "replicas")
WATCHED_KEYS_MAX: Final = 100  # more are asked for at intervals
MARKER_SECONDS: Final = 60  # how long a deleted key leaves a marker for watchers
COUNTER_API_LEVEL: Final = 2
COUNTED_SECONDS: Final = 3600  # a part of a chord that comes again so late counts twice
DAY_SECONDS: Final = 86_400
_PASSING = (
    ConnectionClosedError,
    DisconnectedError,
    JetStreamUnavailableError,
    NoServersError,
    OperationTimeoutError,
)


class KvResultBackend(KeyValueStoreBackend):
    """Results of tasks as values of a bucket, which the path of the URL names."""

    supports_autoexpire = True
    supports_native_join = True
    implements_incr = True

    def __init__(self, app: Any, url: str | None = None, **kwargs: Any) -> None:
        super().__init__(app, url=url, expires_type=int, **kwargs)
        options = dict(self.app.conf.get("result_backend_transport_options") or {})
        for name in options:
            if name not in OPTIONS:
                raise ImproperlyConfigured(
                    f"result_backend_transport_options: {name!r} is none of {', '.join(OPTIONS)}"
                )
        self._bucket_name = stream_of(url or "") or options.get("bucket") or DEFAULT_BUCKET
        self._replicas = options.get("replicas", 1)
        self._connect = {"name": "celery results", **(options.get("connect") or {})}
        self._lock = threading.Lock()
        self._part = threading.local()
        self._session: BrokerSession | None = None
        self._bucket: KeyValue
        self._has_ttl = False
        self._has_counters = False

    def as_uri(self, include_password: bool = False) -> str:
        """The URL for logs."""
        url = self.url or "tradewind://"
        return url if include_password else masked_url(url, "**")

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """Whether the same operation may succeed later."""
        return isinstance(exc, _PASSING)

    # ------------------------------------------------------------------ keys and values

    def get(self, key: str | bytes) -> bytes | None:
        """The value of a key; None if it has none."""
        entry = self._run(lambda: self._bucket.get(_name(key)))
        return None if entry is None else bytes(entry.value)

    def mget(self, keys: Sequence[str | bytes]) -> list[bytes | None]:
        """The values of several keys."""

        async def get_all() -> list[Any]:
            return await asyncio.gather(*(self._bucket.get(_name(key)) for key in keys))

        entries = self._run(get_all)
        return [None if entry is None else bytes(entry.value) for entry in entries]

    def set(self, key: str | bytes, value: str | bytes) -> None:
        """Store a value, for as long as `result_expires` says."""
        self._run(lambda: self._bucket.put(_name(key), value, ttl=self._ttl(self.expires)))

    def delete(self, key: str | bytes) -> None:
        """Remove a key."""

        async def remove() -> None:
            if self._has_counters and self._is_chord(key):
                streams = self._js.manager.streams
                await streams.purge(self._counters, filter=self._counter(key))
                return
            ttl = MARKER_SECONDS if self._has_ttl else None
            await self._bucket.purge(_name(key), ttl=ttl)

        self._run(remove)

    def expire(self, key: str | bytes, value: float | None) -> None:
        """Let a key live for `value` seconds from now on, if it exists and keys can expire."""
        if not value or (self._open() and not self._has_ttl):
            return
        if self._has_counters and self._is_chord(key):
            return
        with suppress(KeyNotFoundError):
            self._run(lambda: self._bucket.touch(_name(key), max(1, int(value))))

    def incr(self, key: str | bytes) -> int:
        """Count one more part of a chord. The same part counts once, also if it runs again."""
        part = getattr(self._part, "id", "")  # of this thread, not of the client's
        message_id = f"{_name(key)}.{part}" if part else ""

        async def count() -> int:
            if not self._has_counters:
                return await self._bucket.increment(_name(key), ttl=self._ttl(self.chord_expires))
            return await self._js.increment(self._counter(key), msg_id=message_id)

        return int(self._run(count))

    def on_chord_part_return(self, request: Any, state: Any, result: Any, **kwargs: Any) -> None:
        """Called in the worker when a part of a chord has ended."""
        self._part.id = request.id
        try:
            super().on_chord_part_return(request, state, result, **kwargs)
        finally:
            self._part.id = ""

    # ------------------------------------------------------------------ waiting

    def wait_for(
        self,
        task_id: str,
        timeout: float | None = None,
        interval: float = 0.5,
        no_ack: bool = True,
        on_interval: Any = None,
    ) -> Any:
        """The result of a task as soon as it is there; celery's TimeoutError after `timeout`."""
        self._ensure_not_eager()
        for _, meta in self._ready([task_id], timeout, interval, on_interval):
            return meta
        raise AssertionError("the result came, or an error")

    def get_many(
        self,
        task_ids: Iterable[str],
        timeout: float | None = None,
        interval: float | None = 0.5,
        no_ack: bool = True,
        on_message: Any = None,
        on_interval: Any = None,
        max_iterations: int | None = None,
        **kwargs: Any,
    ) -> Iterator[tuple[str, Any]]:
        """The results of several tasks, each as soon as it is there."""
        ids = list(dict.fromkeys(task_ids))
        if len(ids) > WATCHED_KEYS_MAX or max_iterations is not None:
            yield from super().get_many(
                ids, timeout, interval, no_ack, on_message, on_interval, max_iterations, **kwargs
            )
            return
        for task_id, meta in self._ready(ids, timeout, interval or 0.5, on_interval):
            if on_message is not None:
                on_message(meta)
            yield task_id, meta

    def _ready(
        self, ids: list[str], timeout: float | None, interval: float, on_interval: Any
    ) -> Iterator[tuple[str, Any]]:
        """Each result when its task has ended: first those that are there, then by a watch."""
        until = None if timeout is None else time.monotonic() + timeout
        waiting = {_name(self.get_key_for_task(task_id)): task_id for task_id in ids}
        yield from self._take_ready(waiting)
        if not waiting:
            return
        watcher: Watcher[Any] = self._run(lambda: self._bucket.watch(*waiting))
        try:
            while True:
                yield from self._take_ready(waiting)
                if not waiting:
                    return
                left = interval if until is None else min(interval, until - time.monotonic())
                if left <= 0:
                    raise ResultTimeoutError("The operation timed out.")
                self._run(lambda: _wait_for_change(watcher, left))  # noqa: B023 - runs at once
                if on_interval is not None:
                    on_interval()
        finally:
            with suppress(ClientError):
                self._run(watcher.stop)

    def _take_ready(self, waiting: dict[str, str]) -> Iterator[tuple[str, Any]]:
        """The results that are there, which no longer wait then."""
        for key, task_id in list(waiting.items()):
            meta = self.get_task_meta(task_id)
            if meta["status"] in states.READY_STATES:
                del waiting[key]
                yield task_id, meta

    # ------------------------------------------------------------------ the bucket

    @property
    def _js(self) -> JetStream:
        assert self._session is not None, "opened before it is used"
        return self._session.js

    @property
    def _counters(self) -> str:
        return f"{self._bucket_name}_CHORDS"

    def _counter(self, key: str | bytes) -> str:
        return f"{self._counters}.{_name(key).replace('.', '=2E')}"

    def _is_chord(self, key: str | bytes) -> bool:
        return _text(key).startswith(_text(self.chord_keyprefix))

    def _ttl(self, seconds: float | None) -> int | None:
        return max(1, int(seconds)) if seconds and self._has_ttl else None

    def _run(self, make: Any) -> Any:
        """The result of a coroutine that `make` gives once the bucket is open."""
        return self._open().run(make())

    def _open(self) -> BrokerSession:
        """The connection of this process: made at first use, after a fork, and when it closed."""
        with self._lock:
            if self._session is None or not self._session.is_usable:
                session = BrokerSession(server_url(self.url or ""), self._connect)
                try:
                    session.run(self._find_bucket(session.js))
                except BaseException:
                    session.close()
                    raise
                self._session = session
            return self._session

    async def _find_bucket(self, js: JetStream) -> None:
        seconds = int(self.expires or 0)
        try:
            self._bucket = await js.kv.open(self._bucket_name)
        except BucketNotFoundError:
            self._bucket = await self._create_bucket(js, seconds)
        self._has_ttl = (await self._bucket.status()).info.config.allow_msg_ttl
        level = (await js.manager.account_info()).api.level
        self._has_counters = level >= COUNTER_API_LEVEL
        if self._has_counters:
            await js.manager.streams.add(
                name=self._counters,
                description="parts of Celery's chords that have ended",
                subjects=[f"{self._counters}.*"],
                max_msgs_per_subject=1,
                max_age=max(DAY_SECONDS, seconds),
                duplicate_window=COUNTED_SECONDS,
                num_replicas=self._replicas,
                allow_msg_counter=True,
                allow_direct=True,
            )

    async def _create_bucket(self, js: JetStream, seconds: int) -> KeyValue:
        common: dict[str, Any] = {
            "description": "results of Celery", "replicas": self._replicas,
        }  # fmt: skip
        try:
            return await js.kv.create(self._bucket_name, allow_ttl=True, **common)
        except BucketExistsError:  # another process was faster
            return await js.kv.open(self._bucket_name)
        except OptionsError:
            # Before 2.11 values cannot expire one by one: the bucket's age limit has to do.
            return await js.kv.create(self._bucket_name, ttl=seconds, **common)


async def _wait_for_change(watcher: Watcher[Any], seconds: float) -> None:
    """Wait until a watched key changes, but not longer than this."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await watcher.take_some(WATCHED_KEYS_MAX)


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key


def _name(key: str | bytes) -> str:
    """A key as a bucket accepts it."""
    return to_token(_text(key))
