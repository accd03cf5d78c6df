"""The blocking client: every coroutine becomes a blocking call, without an event loop in user code.

Owns the background thread and event loop that all blocking connections of a process share, and the
rules that turn asynchronous objects into blocking ones. It never repeats logic of the client: a
blocking object can do everything that its asynchronous counterpart can.

    coroutine                    runs in the loop, the caller waits; Ctrl-C cancels it
    async iterator, generator    blocking iterator
    async context manager        context manager
    callback arguments           run in worker threads, never in the loop
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from tradewind.client.connection import Connection, connect
from tradewind.client.errors import ClientError
from tradewind.platform_calls import after_fork_in_child

WORKERS_MAX = 16
BATCH_MAX = 256
_CALLBACKS = ("callback", "handler", "on_event", "on_status", "progress")


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.workers = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="tradewind-callback")
        self.thread = threading.Thread(
            target=self.loop.run_forever, name="tradewind-client", daemon=True
        )
        self.thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of a coroutine; the caller waits, and an interrupt cancels it."""
        if threading.current_thread() is self.thread or os.getpid() != self.process:
            coroutine.close()
            raise ClientError(
                "a blocking call in the client's own thread would wait for itself: use tradewind."
                "connect there"
                if os.getpid() == self.process
                else "this connection was made before a fork: connect again in this process"
            )
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


class BorrowedLoop(LoopThread):
    """The running loop of a program, for blocking code that its worker threads execute."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.process = os.getpid()
        self.loop = loop
        self.workers = ThreadPoolExecutor(WORKERS_MAX, thread_name_prefix="tradewind-callback")
        self.thread = threading.current_thread()


_lock = threading.Lock()
_shared: list[LoopThread] = []
_asynchronous: dict[type, bool] = {}


def shared_thread() -> LoopThread:
    """The thread of this process; made at first use, and again after a fork."""
    with _lock:
        if not _shared:
            _shared.append(LoopThread())
        return _shared[0]


def _forget_thread() -> None:
    """In the child of a fork the thread does not exist."""
    global _lock
    # The old one may be held by a thread that is gone.
    _lock = threading.Lock()
    _shared.clear()


after_fork_in_child(_forget_thread)


class BlockingTwin:
    """The blocking twin of an asynchronous object."""

    def __init__(self, inner: Any, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread
        self._batch: deque[Any] = deque()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._inner, name)
        if name == "stop":
            self._give_back()
        if not callable(value) or inspect.isclass(value):
            return _wrap(value, self._thread)

        @functools.wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(value, args, kwargs)

        return call

    def publish(self, *args: Any, **kwargs: Any) -> Any:
        """As the asynchronous one; core messages are encoded at once, without a thread switch."""
        method = self._inner.publish
        if not isinstance(self._inner, Connection):
            return self._call(method, args, kwargs)
        method(*args, **kwargs)
        if self._inner.is_crowded:
            self._thread.run(self._inner.wait_for_room())
        return None

    def publish_async(self, *args: Any, **kwargs: Any) -> Any:
        """As the asynchronous one; without a thread switch if there is room."""
        pending = self._inner._publish_if_ready(*args, **kwargs)
        if pending is not None:
            return pending
        return self._call(self._inner.publish_async, args, kwargs)

    def runner(self, *args: Any, **kwargs: Any) -> Any:
        """As the asynchronous one; plain handlers have threads of their own, so none is wrapped."""
        return _wrap(self._inner.runner(*args, **kwargs), self._thread)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """`run` of a consumer or its runner; signals arrive in this thread, not in the loop's."""
        inner = self._inner
        from tradewind.client.running.consumer_run import ConsumerRun, signals_as

        running = inner if isinstance(inner, ConsumerRun) else inner.runner(*args, **kwargs)
        if not running.wants_signals:
            return self._thread.run(running._run())
        loop = self._thread.loop
        with signals_as(lambda: loop.call_soon_threadsafe(running.stop)):
            return self._thread.run(running._run())

    def __iter__(self) -> Iterator[Any]:
        if not hasattr(self._inner, "__anext__"):
            return iter(_wrap(aiter(self._inner), self._thread))
        return self

    def __next__(self) -> Any:
        if self._batch:
            return self._batch.popleft()
        take_some = getattr(self._inner, "take_some", None)
        if take_some is None:
            try:
                return _wrap(self._thread.run(_next(self._inner)), self._thread)
            except StopAsyncIteration:
                raise StopIteration from None
        self._batch.extend(self._thread.run(take_some(BATCH_MAX)))
        if not self._batch:
            raise StopIteration
        return self._batch.popleft()

    def next(self, *args: Any, **kwargs: Any) -> Any:
        """The next message; see the asynchronous class."""
        if self._batch:
            return self._batch.popleft()
        return self._call(self._inner.next, args, kwargs)

    def __enter__(self) -> Self:
        self._thread.run(_enter(self._inner))
        return self

    def __exit__(self, *exc: object) -> None:
        self._give_back()
        self._thread.run(_exit(self._inner, exc))

    def __repr__(self) -> str:
        return f"blocking {self._inner!r}"

    def _give_back(self) -> None:
        """Messages that were taken for the next iterations are no longer needed."""
        give_back = getattr(self._inner, "give_back", None)
        if give_back is not None and self._batch:
            give_back(list(self._batch))
            self._batch.clear()

    def _call(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arguments = [
            _in_worker(value, self._thread) if inspect.isroutine(value) else _unwrap(value)
            for value in args
        ]
        for name, value in kwargs.items():
            kwargs[name] = _in_worker(value, self._thread) if name in _CALLBACKS else _unwrap(value)
        return _wrap(self._thread.run(_run(method, arguments, kwargs)), self._thread)


async def _run(method: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    result = method(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def _next(iterator: Any) -> Any:
    return await anext(iterator)


async def _enter(manager: Any) -> Any:
    return await manager.__aenter__()


async def _exit(manager: Any, exc: tuple[object, ...]) -> None:
    await manager.__aexit__(*exc)


def _in_worker(function: Callable[..., Any] | None, thread: LoopThread) -> Any:
    """A callback as the asynchronous client wants it; a coroutine function stays as it is."""
    if function is None or inspect.iscoroutinefunction(function):
        return function

    async def call(*args: Any) -> Any:
        values = [_wrap(value, thread) for value in args]
        return await thread.loop.run_in_executor(thread.workers, function, *values)

    return call


def _is_asynchronous(kind: type) -> bool:
    """Whether objects of this class have anything to wait for; looked at once per class."""
    if kind not in _asynchronous:
        _asynchronous[kind] = _has_something_to_await(kind)
    return _asynchronous[kind]


def _has_something_to_await(kind: type) -> bool:
    if not kind.__module__.startswith("tradewind.client."):
        return kind.__name__ in ("async_generator", "async_generator_object")
    return any(
        name in ("__anext__", "__aiter__", "__aenter__")
        or (
            not name.startswith("_")
            and (inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member))
        )
        for owner in kind.__mro__
        for name, member in vars(owner).items()
    )


def _wrap(value: Any, thread: LoopThread) -> Any:
    return BlockingTwin(value, thread) if _is_asynchronous(type(value)) else value


def _unwrap(value: Any) -> Any:
    return value._inner if isinstance(value, BlockingTwin) else value


def connect_blocking(*args: Any, **kwargs: Any) -> BlockingTwin:
    """`tradewind.connect` for programs without an event loop."""
    thread = shared_thread()
    if "on_event" in kwargs:
        kwargs["on_event"] = _in_worker(kwargs["on_event"], thread)
    connection = thread.run(_run(connect, list(args), kwargs))
    connection._set_runner(thread.run)
    return BlockingTwin(connection, thread)


def with_blocking(function: Callable[..., Any], target: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the asynchronous client with a target; wait for it if that is blocking."""
    if isinstance(target, BlockingTwin):
        return target._call(function, (target, *args), kwargs)
    return function(target, *args, **kwargs)
