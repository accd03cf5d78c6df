"""A run without a server: concurrency, retries, order, timeouts, ends. Time is virtual."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from run_kit import FakeConsumer, run_to_end, run_virtually
from tradewind import GiveUp, Retry, RetryLater, Skip
from tradewind.api.consumer_types import AckPolicy
from tradewind.client.errors import ConsumerGoneError, OptionsError
from tradewind.client.running.consumer_run import ConsumerRun
from tradewind.client.running.run_stats import MessageFailed, RunEvent

Handler = Callable[[Any], Any]
STEADY = Retry(attempts=3, delay="10s", jitter=0)


def run_all(consumer: FakeConsumer, handler: Callable[..., Any], **settings: Any) -> ConsumerRun:
    async def main() -> ConsumerRun:
        return await run_to_end(consumer, consumer.run(handler, **settings))

    return run_virtually(main())


async def succeed(message: Any) -> None:
    await asyncio.sleep(0.5)


def test_every_message_is_acknowledged_once() -> None:
    consumer = FakeConsumer(["a"] * 100)
    stats = run_all(consumer, succeed).stats
    assert Counter(how for _, how in consumer.log) == {"ack": 100}
    assert (stats.received, stats.succeeded, stats.held, stats.in_flight) == (100, 100, 0, 0)
    assert stats.duration(0.99) == pytest.approx(0.5)
    assert stats.handled_seconds == pytest.approx(50)


@pytest.mark.parametrize("concurrency", [1, 3, 8])
@pytest.mark.parametrize("buffer", [0, 5])
def test_no_more_handlers_and_messages_than_allowed(concurrency: int, buffer: int) -> None:
    consumer = FakeConsumer(["a"] * 60)
    running, most = 0, 0

    async def handle(message: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(message.metadata.stream_sequence % 7)
        running -= 1

    run_all(consumer, handle, concurrency=concurrency, buffer=buffer)
    assert most == concurrency
    assert consumer.held_max == concurrency + buffer


def test_a_message_that_waits_or_is_handled_for_long_is_not_delivered_again() -> None:
    consumer = FakeConsumer(["a"] * 8, ack_wait=2.0)

    async def handle(message: Any) -> None:
        await asyncio.sleep(60)

    run_all(consumer, handle, concurrency=1, buffer=3)
    assert consumer.expired == []
    assert set(consumer.deliveries.values()) == {1}
    assert consumer.touches > 8 * 60 / 2


def test_short_handlers_send_no_signs_of_life() -> None:
    consumer = FakeConsumer(["a"] * 50)
    run_all(consumer, succeed)
    assert consumer.touches == 0


def test_a_failure_is_retried_with_growing_delays_and_given_up_in_the_end() -> None:
    consumer = FakeConsumer(["a"])
    events: list[RunEvent] = []

    async def handle(message: Any) -> None:
        raise ValueError("no such\nfruit")

    retry = Retry(attempts=4, delay="1s", factor=3, max_delay="5s", jitter=0)
    stats = run_all(consumer, handle, retry=retry, on_event=events.append).stats
    assert consumer.delays == [1, 3, 5]
    assert consumer.log == [*[(1, "nak")] * 3, (1, "term attempt 4: ValueError: no such fruit")]
    assert (stats.failed, stats.retried, stats.given_up) == (4, 3, 1)
    failures = [event for event in events if isinstance(event, MessageFailed)]
    assert [failure.given_up for failure in failures] == [False, False, False, True]
    assert str(failures[0]) == (
        "message 1 on 'a', attempt 1: ValueError: no such\nfruit; to be delivered again in 1 s"
    )


def test_delays_may_be_listed_and_are_shortened_by_jitter() -> None:
    policy = Retry(delay=["1s", 10, timedelta(minutes=1)], jitter=0.5)
    assert [policy.delay_after(attempt, 0.0) for attempt in (1, 2, 3, 4)] == [1, 10, 60, 60]
    assert policy.delay_after(2, 1.0) == 5
    assert Retry(delay=None).delay_after(1, 0.0) is None
    assert Retry(delay=1, jitter=0).delay_after(1_000_000, 0.0) == 300


def test_an_error_that_the_policy_does_not_cover_is_given_up_at_once() -> None:
    consumer = FakeConsumer(["a"])

    async def handle(message: Any) -> None:
        raise KeyError("x")

    run_all(consumer, handle, retry=Retry(on=(OSError, TimeoutError)))
    assert consumer.log == [(1, "term KeyError: 'x'")]


def test_the_last_delivery_of_the_consumer_is_given_up_with_the_reason() -> None:
    consumer = FakeConsumer(["a"], max_deliver=2)

    async def handle(message: Any) -> None:
        raise ValueError("no")

    run_all(consumer, handle, retry=STEADY)
    assert consumer.log == [(1, "nak"), (1, "term attempt 2: ValueError: no")]


@pytest.mark.parametrize("order_by", [None, "subject"])
def test_a_handler_may_choose_how_its_message_ends(order_by: str | None) -> None:
    consumer = FakeConsumer(["later", "never", "skip", "self"])
    attempts: Counter[str] = Counter()

    async def handle(message: Any) -> None:
        attempts[message.subject] += 1
        if message.subject == "later" and attempts["later"] < 10:
            raise RetryLater("30s", reason="busy")
        if message.subject == "never":
            raise GiveUp("bad address")
        if message.subject == "skip":
            raise Skip
        if message.subject == "self":
            message.term("by hand")

    stats = run_all(consumer, handle, retry=STEADY, order_by=order_by).stats
    assert consumer.ends() == {1: "ack", 2: "term bad address", 3: "ack", 4: "term by hand"}
    assert attempts["later"] == 10
    assert (stats.succeeded, stats.skipped, stats.given_up, stats.retried) == (2, 1, 1, 9)


def test_a_timeout_is_a_failure_and_that_of_the_handler_itself_another() -> None:
    consumer = FakeConsumer(["slow", "own"])
    errors: list[Exception] = []

    async def handle(message: Any) -> None:
        if message.subject == "own":
            raise TimeoutError("of a database")
        await asyncio.sleep(100)

    def note(event: RunEvent) -> None:
        if isinstance(event, MessageFailed):
            errors.append(event.error)

    stats = run_all(consumer, handle, timeout="5s", retry=Retry(attempts=1), on_event=note).stats
    assert sorted(str(error) for error in errors) == [
        "of a database",
        "the handler took longer than 5 s",
    ]
    assert (stats.timed_out, stats.given_up) == (1, 2)


def test_a_cancellation_inside_a_handler_is_a_failure_of_that_handler_only() -> None:
    consumer = FakeConsumer(["a", "b"])

    async def handle(message: Any) -> None:
        if message.subject == "a":
            raise asyncio.CancelledError

    run_all(consumer, handle, retry=Retry(attempts=1))
    assert consumer.ends()[1].startswith("term HandlerCancelled") or consumer.ends()[1].startswith(
        "term attempt 1: HandlerCancelled"
    )
    assert consumer.ends()[2] == "ack"


# ---------------------------------------------------------------------- order


@pytest.mark.parametrize(
    ("order_by", "header"),
    [("subject", ""), (2, ""), (-1, ""), ("Key", "Key"), (lambda m: m.subject[-1], "")],
)
def test_one_message_of_a_key_is_handled_at_a_time_and_in_order(order_by: Any, header: str) -> None:
    keys = [f"{number % 3}" for number in range(30)]
    headers = [{header: key} if header else {} for key in keys]
    consumer = FakeConsumer([f"orders.{key}" for key in keys], headers=headers)
    running: Counter[str] = Counter()
    seen: dict[str, list[int]] = {}
    together: list[int] = []
    most = 0

    async def handle(message: Any) -> None:
        nonlocal most
        key = message.subject[-1]
        running[key] += 1
        together.append(running[key])
        most = max(most, running.total())
        await asyncio.sleep(1)
        running[key] -= 1
        seen.setdefault(key, []).append(message.metadata.stream_sequence)

    run_all(consumer, handle, order_by=order_by)
    assert most == 3
    assert set(together) == {1}
    assert all(sequences == sorted(sequences) for sequences in seen.values())
    assert sorted(itertools.chain(*seen.values())) == list(range(1, 31))


def test_a_key_waits_for_the_retry_of_its_message_and_others_do_not() -> None:
    consumer = FakeConsumer(["a", "a", "b", "b"])
    handled: list[int] = []

    async def handle(message: Any) -> None:
        handled.append(message.metadata.stream_sequence)
        if handled.count(1) < 3 and message.metadata.stream_sequence == 1:
            raise ValueError("not yet")

    stats = run_all(consumer, handle, order_by="subject", retry=STEADY).stats
    assert handled == [1, 3, 4, 1, 1, 2]
    assert consumer.log == [(3, "ack"), (4, "ack"), (1, "ack"), (2, "ack")]
    assert (stats.failed, stats.retried, stats.succeeded) == (2, 2, 4)


def test_the_retry_of_an_order_goes_on_although_a_key_fills_the_window() -> None:
    consumer = FakeConsumer(["a"] * 50, ack_wait=1.0)
    first: list[int] = []

    async def handle(message: Any) -> None:
        first.append(message.metadata.stream_sequence)
        if len(first) < 3:
            raise ValueError("not yet")

    run_all(consumer, handle, order_by="subject", concurrency=2, buffer=2, retry=STEADY)
    assert first == [1, 1, *range(1, 51)]
    assert consumer.expired == []


def test_attempts_of_an_order_end_too() -> None:
    consumer = FakeConsumer(["a", "a"])

    async def handle(message: Any) -> None:
        raise ValueError("no")

    run_all(consumer, handle, order_by="subject", retry=STEADY)
    assert consumer.log == [
        (1, "term attempt 3: ValueError: no"),
        (2, "term attempt 3: ValueError: no"),
    ]


def test_a_key_that_cannot_be_told_is_a_failure_of_that_message() -> None:
    consumer = FakeConsumer(["a", "b"])

    def key(message: Any) -> Any:
        return [] if message.subject == "a" else "b"

    run_all(consumer, succeed, order_by=key, retry=STEADY)
    assert consumer.ends()[1].startswith("term attempt 3: TypeError: unhashable")
    assert consumer.ends()[2] == "ack"


# ---------------------------------------------------------------------- codecs


class Order(msgspec.Struct):
    fruit: str
    count: int = 1


class Backwards:
    def decode(self, data: bytes) -> bytes:
        return data[::-1]


@pytest.mark.parametrize(
    ("codec", "data", "value"),
    [
        ("json", b'{"fruit": "fig"}', {"fruit": "fig"}),
        ("text", "süß".encode(), "süß"),
        (Order, b'{"fruit": "fig"}', Order("fig")),
        (list[int], b"[1, 2]", [1, 2]),
        (Backwards(), b"abc", b"cba"),
        (msgspec.msgpack.Decoder(), msgspec.msgpack.encode([7]), [7]),
    ],
)
def test_a_codec_makes_the_value_of_the_handler(codec: Any, data: bytes, value: Any) -> None:
    consumer = FakeConsumer(["a"], data=data)
    seen: list[Any] = []

    async def handle(got: Any, message: Any) -> None:
        seen.append((got, message.data))

    run_all(consumer, handle, codec=codec)
    assert seen == [(value, data)]


@pytest.mark.parametrize("codec", ["json", "text", Order])
@pytest.mark.parametrize("order_by", [None, "subject"])
def test_a_payload_that_does_not_decode_is_given_up_without_a_retry(
    codec: Any, order_by: str | None
) -> None:
    consumer = FakeConsumer(["a", "a"], data=b"\xff{")
    stats = run_all(
        consumer, lambda value, message: None, codec=codec, order_by=order_by, retry=STEADY
    ).stats
    assert [how.startswith("term the payload cannot be decoded: ") for _, how in consumer.log] == [
        True,
        True,
    ]
    assert (stats.undecodable, stats.failed, stats.given_up) == (2, 0, 0)


def test_a_pydantic_model_is_a_codec() -> None:
    pydantic = pytest.importorskip("pydantic")
    parcel = pydantic.create_model("Parcel", fruit=(str, ...))
    for data, end in ((b'{"fruit": "fig"}', "ack"), (b"{}", "term the payload cannot be decoded")):
        consumer = FakeConsumer(["a"], data=data)
        seen: list[Any] = []
        run_all(consumer, lambda value, message, seen=seen: seen.append(value.fruit), codec=parcel)
        assert consumer.log[0][1].startswith(end)
        assert seen == (["fig"] if end == "ack" else [])


# ---------------------------------------------------------------------- ends


async def started(consumer: FakeConsumer, runner: ConsumerRun) -> asyncio.Task[Any]:
    task = asyncio.create_task(runner.run())
    await until(lambda: runner.stats.in_flight)
    return task


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("waited in vain")


@pytest.mark.parametrize("order_by", [None, "subject"])
def test_stopping_finishes_handlers_and_gives_the_rest_back(order_by: str | None) -> None:
    async def main() -> None:
        consumer = FakeConsumer(["a", "b"] * 10)

        async def handle(message: Any) -> None:
            await asyncio.sleep(20)

        runner = consumer.run(handle, concurrency=2, buffer=3, grace="30s", order_by=order_by)
        task = await started(consumer, runner)
        runner.stop()
        stats = await task
        assert consumer.log == [*((n, "nak") for n in (3, 4, 5)), (1, "ack"), (2, "ack")]
        assert (stats.given_back, stats.succeeded, stats.held) == (3, 2, 0)

    run_virtually(main())


@pytest.mark.parametrize("second_stop", [False, True])
def test_handlers_that_take_longer_than_the_grace_are_cancelled(second_stop: bool) -> None:
    async def main() -> None:
        consumer = FakeConsumer(["a"])
        cancelled = asyncio.Event()

        async def handle(message: Any) -> None:
            try:
                await asyncio.sleep(10_000)
            finally:
                cancelled.set()

        runner = consumer.run(handle, grace=5)
        task = await started(consumer, runner)
        began = asyncio.get_running_loop().time()
        runner.stop()
        if second_stop:
            await asyncio.sleep(1)
            runner.stop()
        await task
        took = asyncio.get_running_loop().time() - began
        assert took == pytest.approx(1 if second_stop else 5, abs=0.5)
        assert cancelled.is_set()
        assert consumer.log == [(1, "nak")]
        assert consumer.delays == [0]

    run_virtually(main())


def test_a_cancelled_run_gives_everything_back() -> None:
    async def main() -> None:
        consumer = FakeConsumer(["a"] * 4)

        async def handle(message: Any) -> None:
            await asyncio.sleep(100)

        runner = consumer.run(handle, concurrency=2)
        task = await started(consumer, runner)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(consumer.log) == [(n, "nak") for n in (1, 2, 3, 4)]

    run_virtually(main())


def test_a_message_that_waits_for_its_retry_is_given_back_with_what_is_left_of_it() -> None:
    async def main() -> None:
        consumer = FakeConsumer(["a"])

        async def handle(message: Any) -> None:
            raise ValueError("no")

        runner = consumer.run(handle, order_by="subject", retry=Retry(delay="100s", jitter=0))
        task = asyncio.create_task(runner.run())
        await asyncio.sleep(40)
        runner.stop()
        await task
        assert consumer.log == [(1, "nak")]
        assert consumer.delays == [pytest.approx(60, abs=1)]

    run_virtually(main())


def test_the_end_of_the_consumer_ends_the_run_with_its_error_when_handlers_are_done() -> None:
    async def main() -> None:
        consumer = FakeConsumer(["a"])
        runner = consumer.run(succeed)
        task = await started(consumer, runner)
        consumer.window.error = ConsumerGoneError("deleted")
        consumer.window.changed.set()
        with pytest.raises(ConsumerGoneError, match="deleted"):
            await task
        assert consumer.log == [(1, "ack")]

    run_virtually(main())


def test_a_copy_of_a_message_that_is_still_handled_is_dropped() -> None:
    """As after a connection that was lost for longer than the ack wait."""
    consumer = FakeConsumer(["a", "b"], ack_wait=2.0)

    async def handle(message: Any) -> None:
        consumer.window.is_connected = False
        await asyncio.sleep(5)
        consumer.window.is_connected = True
        consumer.window.on_resumed()
        await asyncio.sleep(5)

    stats = run_all(consumer, handle).stats
    assert stats.succeeded == 2
    assert stats.duplicates >= 2
    assert stats.held == 0


def test_a_runner_runs_once() -> None:
    async def main() -> None:
        runner = FakeConsumer(["a"]).run(succeed)
        runner.stop()
        await runner.run()
        with pytest.raises(OptionsError, match="runs once"):
            await runner.run()

    run_virtually(main())


# ---------------------------------------------------------------------- threads


async def test_plain_functions_run_in_threads_at_the_same_time() -> None:
    consumer = FakeConsumer(["a"] * 6)
    together = threading.Barrier(3, timeout=60)
    names: set[str] = set()

    def handle(message: Any) -> None:
        names.add(threading.current_thread().name.rpartition("_")[0])
        together.wait()

    runner = await run_to_end(consumer, consumer.run(handle, concurrency=3))
    assert runner.stats.succeeded == 6
    assert names == {"tradewind-handler"}


async def test_a_thread_that_takes_too_long_keeps_its_place_until_it_ends() -> None:
    consumer = FakeConsumer(["a", "b"])
    release = threading.Event()
    seen: list[str] = []

    def handle(message: Any) -> None:
        seen.append(message.subject)
        if message.subject == "a":
            assert release.wait(60)

    runner = consumer.run(handle, concurrency=1, timeout=0.01, retry=Retry(attempts=1))
    task = asyncio.create_task(runner.run())
    await until(lambda: consumer.log)
    assert consumer.log[0][1].startswith("term attempt 1: HandlerTimeoutError")
    assert seen == ["a"]
    release.set()
    await until(lambda: len(consumer.log) == 2)
    runner.stop()
    await task
    assert seen == ["a", "b"]


async def test_a_thread_that_does_not_end_does_not_keep_the_run() -> None:
    consumer = FakeConsumer(["a"])
    release = threading.Event()
    runner = consumer.run(lambda message: release.wait(60) and None, grace=0)
    try:
        task = await started(consumer, runner)
        runner.stop()
        await task
        assert consumer.log == [(1, "nak")]
    finally:
        release.set()


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"concurrency": 0}, "concurrency: a number from 1 to 10000, not 0"),
        ({"concurrency": True}, "concurrency: a number from 1"),
        ({"buffer": -1}, "buffer: a number from 0"),
        ({"concurency": 3}, "no setting 'concurency'; did you mean 'concurrency'"),
        ({"retry": 3}, "retry: a tradewind.Retry, not 3"),
        ({"timeout": 0}, "timeout: more than 0"),
        ({"timeout": "soon"}, r"timeout must be a duration .*not 'soon'"),
        ({"grace": -1}, "grace must not be negative, not -1"),
        ({"grace": float("nan")}, "grace must be a duration"),
        ({"codec": "yaml"}, 'codec: "json", "text", a type of msgspec'),
        ({"codec": 7}, 'codec: "json"'),
        ({"order_by": 0}, 'order_by: "subject", the number of a token'),
        ({"order_by": ""}, "order_by"),
        ({"order_by": True}, "order_by"),
        ({"on_event": 1}, "on_event: a function"),
    ],
)
def test_a_wrong_setting_is_named_before_anything_happens(
    settings: dict[str, Any], text: str
) -> None:
    handler: Any = succeed
    if "codec" in settings:
        handler = lambda value, message: None  # noqa: E731
    with pytest.raises(OptionsError, match="^" + text if ":" in text[:20] else text):
        FakeConsumer([]).run(handler, **settings)


@pytest.mark.parametrize(
    ("handler", "settings", "text"),
    [
        (None, {}, "handler: a function or coroutine function, not None"),
        (
            lambda: None,
            {},
            r"without a codec it is called as <lambda>\(message\), but it takes \(\)",
        ),
        (lambda m: None, {"codec": "json"}, r"it is called as <lambda>\(value, message\)"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused(
    handler: Any, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(OptionsError, match=text):
        FakeConsumer([]).run(handler, **settings)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"attempts": 0}, "attempts: None, or 1 to"),
        ({"attempts": True}, "attempts"),
        ({"delay": []}, "delay: a duration, or a list of 1 to 100, not 0"),
        ({"delay": ["1s", "x"]}, r"delay\[1\] must be a duration .*, not 'x'"),
        ({"factor": 0.5}, "factor: 1 to 100, not 0.5"),
        ({"jitter": 2}, "jitter: a share from 0 to 1"),
        ({"on": ValueError("x")}, "on: an exception class"),
        ({"on": (ValueError, KeyboardInterrupt)}, "on: an exception class"),
    ],
)
def test_a_wrong_retry_policy_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        Retry(**arguments)


@pytest.mark.parametrize("policy", [AckPolicy.NONE, AckPolicy.ALL])
def test_a_consumer_without_explicit_acks_is_refused(policy: AckPolicy) -> None:
    consumer = FakeConsumer(["a"], ack_policy=policy)
    with pytest.raises(OptionsError, match=f'has the ack policy "{policy.value}": a run needs'):
        run_virtually(consumer.run(succeed).run())
