"""A run: calls a handler for each message of a consumer, until it is stopped.

Owns which messages are held, which of them are being handled, and how each one ends.

    window -> reader -> held -> ready -> workers -> settled
                         |        ^
                         +-> KeyOrder (only with order_by)

Invariants. A message is in `_held` from its arrival until it is settled, and during that time the
run reports to the server that work goes on. At most `window` messages are requested or held. At
most `concurrency` handlers run, including threads that were given up. At most one message of a key
has its turn, also while it waits for its retry; the others of that key wait in `KeyOrder`.

Everything here happens in one event loop; only plain handlers run in threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import random
import signal
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tradewind.api.consumer_types import AckPolicy, ConsumerConfig, ConsumerInfo
from tradewind.client.core.message import Msg
from tradewind.client.errors import ClientError, OptionsError
from tradewind.client.running.key_order import KeyOrder
from tradewind.client.running.payload_codecs import PayloadError, decode_payload, one_line
from tradewind.client.running.retries import (
    ATTEMPTS_MAX,
    GiveUp,
    HandlerTimeoutError,
    RetryLater,
    Skip,
)
from tradewind.client.running.run_settings import RunPlan
from tradewind.client.running.run_stats import (
    MessageFailed,
    NotSettled,
    RunEvent,
    RunStats,
    RunStopping,
)
from tradewind.durations import SECOND_NS

_log = logging.getLogger("tradewind.client")
# A message is touched at most twice this share of its ack wait after its arrival.
TOUCH_SHARE: Final = 0.25
TOUCH_SECONDS_MIN: Final = 0.02
# Handlers that were cancelled may clean up for this long.
CANCEL_SECONDS_MAX: Final = 5.0
# Until a retry inside the process, if the policy leaves the delay to the consumer.
ORDERED_DELAY_SECONDS: Final = 1.0


class MessageWindow(Protocol):
    """Messages that are pulled while there is room; a taken one takes room until its release."""

    @property
    def is_connected(self) -> bool:
        """Whether acknowledgements reach the server at the moment."""

    async def take_some(self, count_max: int) -> list[Msg]:
        """Messages that have arrived, or the next one; empty at the end."""
        ...

    def release(self, count: int) -> None:
        """Free the room of this many messages."""

    async def stop(self) -> None:
        """Ask for nothing more, and give back what was not taken."""

    async def settle(self) -> None:
        """Wait until acknowledgements have reached the server, if it is there."""


class HandledConsumer(Protocol):
    """A consumer as a run sees it."""

    @property
    def stream(self) -> str:
        """The name of the stream."""
        ...

    @property
    def name(self) -> str:
        """The name of the consumer."""
        ...

    async def info(self) -> ConsumerInfo:
        """Configuration and state now."""
        ...

    def _open_window(self, size: int, batch: int, on_resumed: Callable[[], None]) -> MessageWindow:
        """Begin to pull; `on_resumed` is called after each reconnect."""


class HeldMessage:
    """A message in hand; `tick` is when it arrived, `attempt` counts this one too."""

    __slots__ = ("attempt", "key", "key_error", "message", "sequence", "tick", "timer")

    def __init__(self, message: Msg, tick: int) -> None:
        metadata = message.metadata
        self.message = message
        self.sequence = metadata.stream_sequence
        self.attempt = metadata.delivered_count
        self.tick = tick
        self.key: Hashable = None
        self.key_error: Exception | None = None
        self.timer: asyncio.TimerHandle | None = None  # while it waits for a retry in this process


class ConsumerRun:
    """A handler and the messages it is called for. Made by `consumer.runner`.

    >>> runner = consumer.runner(handle, concurrency=8)
    >>> await runner.run()          # until runner.stop() is called
    """

    stats: RunStats

    def __init__(self, consumer: HandledConsumer, plan: RunPlan) -> None:
        self.stats = RunStats()
        self._consumer = consumer
        self._plan = plan
        self._is_started = False
        self._stops = 0
        self._is_stopping = False
        self._stop_changed = asyncio.Event()
        self._held: dict[int, HeldMessage] = {}
        self._in_flight: set[int] = set()
        self._order: KeyOrder[HeldMessage] = KeyOrder()
        self._tick = 0
        self._attempts_max = plan.retry.attempts
        self._deliveries_max: int | None = None
        self._window: MessageWindow
        self._ready: asyncio.Queue[HeldMessage | None] = asyncio.Queue()
        self._threads: ThreadPoolExecutor | None = None

    # ------------------------------------------------------------------ for users

    def stop(self) -> None:
        """Request no more messages, let handlers finish, and return; a second call cancels them."""
        self._stops += 1
        self._stop_changed.set()

    async def run(self) -> RunStats:
        """Handle messages until `stop`; raises the error that ended the consumer or the connection.

        Cancelling the call cancels the handlers; their messages return to the consumer.
        """
        if not self._plan.signals:
            return await self._run()
        with signals_as(self.stop):
            return await self._run()

    async def _run(self) -> RunStats:
        """Without regard to signals, which only the main thread has."""
        if self._is_started:
            raise OptionsError("a runner runs once: make another one with consumer.runner")
        self._is_started = True
        info = await self._consumer.info()
        check_runnable(info)
        if info.config.max_deliver > 0:
            self._deliveries_max = info.config.max_deliver
            self._attempts_max = min(self._attempts_max or ATTEMPTS_MAX, self._deliveries_max)
        plan = self._plan
        batch = max(1, plan.buffer // 2)
        self._window = self._consumer._open_window(plan.window, batch, self._touch_all)
        try:
            await self._serve(touch_interval(info.config))
        finally:
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)
        return self.stats

    @property
    def wants_signals(self) -> bool:
        """Whether SIGINT and SIGTERM stop the run."""
        return self._plan.signals

    # ------------------------------------------------------------------ phases

    async def _serve(self, interval: float) -> None:
        reader = asyncio.create_task(self._read())
        beat = asyncio.create_task(self._keep_touching(interval))
        workers = [asyncio.create_task(self._work()) for _ in range(self._plan.concurrency)]
        try:
            await self._wait_for_stop({reader, *workers})
            self._is_stopping = True
            self._tell(RunStopping(len(self._in_flight)))
            await self._stop_reading(reader)
            self._give_back()
            await self._finish(workers)
        finally:
            await _cancel([reader, *workers], CANCEL_SECONDS_MAX)
            await _cancel([beat], CANCEL_SECONDS_MAX)
            self._in_flight.clear()
            self._give_back()  # those whose handlers were cancelled, or all if this run was
            await self._window.stop()
            await self._window.settle()
        for task in (reader, *workers):
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _wait_for_stop(self, tasks: set[asyncio.Task[None]]) -> None:
        """Wait until `stop` is called, or the messages end, with or without an error."""
        stopped = asyncio.create_task(self._stop_changed.wait())
        try:
            await asyncio.wait({stopped, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel([stopped], CANCEL_SECONDS_MAX)

    async def _stop_reading(self, reader: asyncio.Task[None]) -> None:
        await _cancel([reader], CANCEL_SECONDS_MAX)
        await self._window.stop()

    async def _finish(self, workers: list[asyncio.Task[None]]) -> None:
        """Let handlers finish, for as long as they may."""
        for _ in workers:
            self._ready.put_nowait(None)
        is_impatient = self._stops > 1
        loop = asyncio.get_running_loop()
        until = loop.time() + self._plan.grace
        left: set[asyncio.Task[Any]] = {worker for worker in workers if not worker.done()}
        while left and not is_impatient and loop.time() < until:
            self._stop_changed.clear()
            stopped: asyncio.Task[Any] = asyncio.create_task(self._stop_changed.wait())
            done, _ = await asyncio.wait(
                {stopped, *left},
                timeout=until - loop.time(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            await _cancel([stopped], CANCEL_SECONDS_MAX)
            left -= done
            is_impatient = self._stops > 1

    def _give_back(self) -> None:
        """Return everything that no handler works on, in the order of the stream."""
        for sequence in sorted(self._held.keys() - self._in_flight):
            held = self._held[sequence]
            delay = 0.0
            if held.timer is not None:
                delay = max(held.timer.when() - asyncio.get_running_loop().time(), 0)
                held.timer.cancel()
            self.stats.given_back += 1
            self._settle(held, functools.partial(held.message.nak, delay))
        while not self._ready.empty():
            self._ready.get_nowait()

    # ------------------------------------------------------------------ arrivals

    async def _read(self) -> None:
        while messages := await self._window.take_some(self._plan.window):
            for message in messages:
                self._arrived(message)

    def _arrived(self, message: Msg) -> None:
        self.stats.received += 1
        held = HeldMessage(message, self._tick)
        if held.sequence in self._held:
            # Its ack wait passed while the connection was lost; the first copy settles it.
            self.stats.duplicates += 1
            self._window.release(1)
            return
        self._held[held.sequence] = held
        self.stats.held = len(self._held)
        if self._plan.key_of is None or self._may_start(held, self._plan.key_of):
            self._ready.put_nowait(held)

    def _may_start(self, held: HeldMessage, key_of: Callable[[Msg], Any]) -> bool:
        try:
            held.key = key_of(held.message)
            return self._order.enter(held.key, held.sequence, held)
        except Exception as error:
            # The same as a handler that fails, in no order.
            held.key_error = error
            held.key = held
            return self._order.enter(held.key, held.sequence, held)

    async def _keep_touching(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            if self._window.is_connected:
                self._touch(self._tick)
            self._tick += 1

    def _touch_all(self) -> None:
        """The connection is back: the ack waits may be nearly over."""
        self._touch(self._tick + 1)

    def _touch(self, before: int) -> None:
        """Tell the server that there is work on all messages that arrived before a tick."""
        for held in self._held.values():
            if held.tick < before and not held.message.is_settled:
                try:
                    held.message.working()
                except ClientError as error:
                    self._tell(NotSettled(held.message.subject, held.sequence, error))
                    return

    # ------------------------------------------------------------------ handling

    async def _work(self) -> None:
        while (held := await self._ready.get()) is not None:
            self._in_flight.add(held.sequence)
            self.stats.in_flight = len(self._in_flight)
            try:
                await self._handle(held)
            finally:
                self._in_flight.discard(held.sequence)
                self.stats.in_flight = len(self._in_flight)
            if held.timer is None and self._plan.key_of is not None:
                following = self._order.leave(held.key)
                if following is not None and following.sequence in self._held:
                    self._ready.put_nowait(following)

    async def _handle(self, held: HeldMessage) -> None:
        """Call the handler and settle the message; raises only if this task is cancelled."""
        loop = asyncio.get_running_loop()
        held.timer = None
        thread: asyncio.Future[Any] | None = None
        began = loop.time()
        try:
            arguments = self._arguments(held)
            if self._plan.is_async:
                await self._call(arguments)
            else:
                thread = self._start_thread(arguments)
                await self._wait_for_thread(thread)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                if thread is not None:
                    thread.cancel()  # the thread itself cannot be ended
                raise
            # Something that the handler waited for was cancelled, not the handler.
            self._failed(held, HandlerCancelled(error))
        except Skip:
            self.stats.skipped += 1
            self._settle(held, held.message.ack)
        except Exception as error:
            self._failed(held, error)
        else:
            self.stats.succeeded += 1
            self._settle(held, held.message.ack)
        if thread is not None and not thread.done():
            await asyncio.wait({thread})  # it still counts as one of those that run
        self.stats.took(loop.time() - began)

    def _arguments(self, held: HeldMessage) -> tuple[Any, ...]:
        """For the handler."""
        if held.key_error is not None:
            raise held.key_error
        if self._plan.decode is None:
            return (held.message,)
        return (decode_payload(self._plan.decode, held.message.data), held.message)

    async def _call(self, arguments: tuple[Any, ...]) -> None:
        limit = self._plan.timeout
        try:
            async with asyncio.timeout(limit) as deadline:
                await self._plan.handler(*arguments)
        except TimeoutError:
            if deadline.expired():
                raise HandlerTimeoutError(f"the handler took longer than {limit:g} s") from None
            raise

    def _start_thread(self, arguments: tuple[Any, ...]) -> asyncio.Future[Any]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                self._plan.concurrency, thread_name_prefix="tradewind-handler"
            )
        call = functools.partial(contextvars.copy_context().run, self._plan.handler, *arguments)
        thread = asyncio.get_running_loop().run_in_executor(self._threads, call)
        thread.add_done_callback(_forget_result)  # in case it was given up
        return thread

    async def _wait_for_thread(self, thread: asyncio.Future[Any]) -> None:
        """A thread cannot be ended: it goes on after the timeout, and keeps its place."""
        limit = self._plan.timeout
        done, _ = await asyncio.wait({thread}, timeout=limit)
        if not done:
            raise HandlerTimeoutError(f"the handler took longer than {limit:g} s")
        result = thread.result()
        if inspect.isawaitable(result):
            await result

    # ------------------------------------------------------------------ ends

    def _failed(self, held: HeldMessage, error: Exception) -> None:
        """Decide about a message whose handler did not return."""
        if isinstance(error, PayloadError):
            self.stats.undecodable += 1
            self._finally_failed(held, error, str(error))
            return
        self.stats.failed += 1
        self.stats.timed_out += isinstance(error, HandlerTimeoutError)
        if (verdict := self._verdict(held, error)) is not None:
            self.stats.given_up += 1
            self._finally_failed(held, error, verdict)
            return
        reason = ""
        if isinstance(error, RetryLater):
            delay, reason = error.delay, error.reason
        else:
            chance = random.random()  # noqa: S311 - spreads load, keeps no secret
            delay = self._plan.retry.delay_after(held.attempt, chance)
        self.stats.retried += 1
        self._tell(
            MessageFailed(
                held.message.subject,
                held.sequence,
                held.attempt,
                error,
                given_up=False,
                delay=delay,
            )
        )
        if self._plan.key_of is None or self._is_stopping or held.message.is_settled:
            self._settle(held, lambda: held.message.nak(delay, reason=reason))
        else:
            self._wait_here(held, ORDERED_DELAY_SECONDS if delay is None else delay)

    def _verdict(self, held: HeldMessage, error: Exception) -> str | None:
        """Why a message is given up; None if it is delivered again."""
        if isinstance(error, GiveUp):
            return str(error)
        chosen = isinstance(error, RetryLater)
        if not chosen and not self._plan.retry.covers(error):
            return one_line(error)
        limit = self._deliveries_max if chosen else self._attempts_max
        if limit is not None and held.attempt >= limit:
            return f"attempt {held.attempt}: {one_line(error)}"
        return None

    def _wait_here(self, held: HeldMessage, seconds: float) -> None:
        """Retry in this process: the server would deliver later messages of the key first."""
        held.attempt += 1
        loop = asyncio.get_running_loop()
        held.timer = loop.call_later(seconds, self._ready.put_nowait, held)

    def _finally_failed(self, held: HeldMessage, error: Exception, reason: str) -> None:
        self._tell_failure(held, error, given_up=True, delay=None)
        self._settle(held, lambda: held.message.term(" ".join(reason.split())))

    def _settle(self, held: HeldMessage, action: Callable[[], None]) -> None:
        """Acknowledge in some way, unless the handler has done so itself."""
        self._held.pop(held.sequence, None)
        self.stats.held = len(self._held)
        self._window.release(1)
        if held.message.is_settled:
            return
        try:
            action()
        except ClientError as error:
            self._tell(NotSettled(held.message.subject, held.sequence, error))

    def _tell_failure(
        self, held: HeldMessage, error: Exception, *, given_up: bool, delay: float | None
    ) -> None:
        subject, attempt = held.message.subject, held.attempt
        self._tell(MessageFailed(subject, held.sequence, attempt, error, given_up, delay))

    def _tell(self, event: RunEvent) -> None:
        handler = self._plan.on_event
        if handler is None:
            level = logging.INFO if isinstance(event, RunStopping) else logging.WARNING
            _log.log(level, "%s of %s: %s", self._consumer.name, self._consumer.stream, event)
            return
        try:
            handler(event)
        except Exception:
            _log.exception("on_event of a run failed")


class HandlerCancelled(ClientError):  # noqa: N818 - it names what happened
    """An operation that a handler awaited was cancelled, but not the handler itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the handler was cancelled from inside: {error!r}")


def check_runnable(info: ConsumerInfo) -> None:
    """A run settles each message by itself."""
    policy = info.config.ack_policy
    if policy is not AckPolicy.EXPLICIT:
        raise OptionsError(
            f"consumer {info.name!r} of stream {info.stream_name!r} has the ack policy "
            f'"{policy.value}": a run needs a consumer with ack_policy="explicit"'
        )


def touch_interval(config: ConsumerConfig) -> float:
    """Seconds between the signs of life for messages that are being handled."""
    waits = [wait for wait in (config.ack_wait, *config.backoff) if wait > 0]
    shortest = min(waits, default=30 * SECOND_NS)
    return max(shortest / SECOND_NS * TOUCH_SHARE, TOUCH_SECONDS_MIN)


@contextmanager
def signals_as(stop: Callable[[], object]) -> Iterator[None]:
    """SIGINT and SIGTERM call `stop`, in the main thread or its event loop."""
    if threading.current_thread() is not threading.main_thread():
        raise OptionsError("signals: only a run in the main thread can be stopped by signals")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        if loop is None:
            signal.signal(number, lambda *_: stop())
        else:
            loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            if loop is not None:
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


async def _cancel(tasks: list[asyncio.Task[Any]], seconds: float) -> None:
    """Cancel tasks and wait for their end; their results are not looked at."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=seconds)


def _forget_result(thread: asyncio.Future[Any]) -> None:
    if not thread.cancelled():
        thread.exception()
