"""Runs of handlers on both servers: retries, dead letters, order, stops, losses, and kills."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from helpers_client import SECONDS, Events, connected, eventually, jetstream

import tradewind
import tradewind.sync
from chaos_proxy import ChaosProxy
from harness import ServerProcess, wait_for
from tradewind import GiveUp, Retry
from tradewind.client.api_errors import ConsumerNotFoundError, StreamNotFoundError
from tradewind.client.core.message import Msg
from tradewind.client.errors import ConsumerGoneError
from tradewind.client.events import Reconnected
from tradewind.client.jetstream import JetStream
from tradewind.client.running.consumer_run import ConsumerRun
from tradewind.client.streams.consumers import Consumer

FAST = {"reconnect_wait": 0.02, "reconnect_wait_max": 0.2}
AT_ONCE = Retry(attempts=3, delay=0)


async def make(js: JetStream, count: int, **settings: Any) -> Consumer:
    """A stream S with numbered messages on s.0, s.1, s.2, and its consumer c."""
    await js.manager.streams.add(name="S", subjects=["s.>"], storage="memory")
    await js.manager.consumers.add(
        "S", **{"durable_name": "c", "ack_policy": "explicit", **settings}
    )
    for number in range(count):
        await js.publish_async(f"s.{number % 3}", b"%d" % number)
    await js.publish_async_completed()
    return await js.consumers.get("S", "c")


async def all_settled(consumer: Consumer) -> None:
    async with asyncio.timeout(SECONDS):
        while (info := await consumer.info()).num_ack_pending or info.num_pending:
            pass


async def run_until_settled(consumer: Consumer, runner: ConsumerRun) -> None:
    """Run until the server has nothing more to deliver."""
    task = asyncio.create_task(runner.run())
    try:
        await all_settled(consumer)
    finally:
        runner.stop()
        await task


async def test_each_message_is_handled_and_acknowledged(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 500)
        seen: list[bytes] = []

        async def handle(message: Msg) -> None:
            await asyncio.sleep(0)
            seen.append(message.data)

        runner = consumer.runner(handle)
        await run_until_settled(consumer, runner)
        assert sorted(seen) == sorted(b"%d" % number for number in range(500))
        assert (runner.stats.received, runner.stats.succeeded) == (500, 500)


async def test_no_more_is_pulled_than_the_run_has_room_for(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 100)
        release = asyncio.Event()

        async def handle(message: Msg) -> None:
            await release.wait()

        runner = consumer.runner(handle, concurrency=3, buffer=4)
        task = asyncio.create_task(runner.run())
        await eventually(lambda: runner.stats.held == 7, "a full window")
        info = await consumer.info()
        assert (info.num_ack_pending, info.num_pending) == (7, 93)
        release.set()
        await all_settled(consumer)
        runner.stop()
        assert (await task).succeeded == 100


async def test_the_server_is_told_of_work_on_all_messages_in_hand(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 2, ack_wait=timedelta(seconds=1))
        acks = await js.connection.subscribe("$JS.ACK.S.c.>")
        release = asyncio.Event()

        async def handle(message: Msg) -> None:
            await release.wait()

        runner = consumer.runner(handle, concurrency=1, buffer=1)
        task = asyncio.create_task(runner.run())
        working: set[str] = set()
        while working != {"1", "2"}:
            answer = await acks.next(SECONDS)
            assert answer.data == b"+WPI"
            working.add(answer.subject.split(".")[5])
        release.set()
        await all_settled(consumer)
        runner.stop()
        await task


async def test_failures_are_delivered_again_and_given_up(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 9)
        attempts: Counter[str] = Counter()

        def handle(message: Msg) -> None:
            attempts[message.data.decode()] += 1
            if message.subject == "s.1":
                raise ValueError("never")
            if message.subject == "s.2" and message.metadata.delivered_count == 1:
                raise OSError("once")

        runner = consumer.runner(handle, retry=AT_ONCE)
        await run_until_settled(consumer, runner)
        assert attempts == {
            "0": 1,
            "3": 1,
            "6": 1,
            "1": 3,
            "4": 3,
            "7": 3,
            "2": 2,
            "5": 2,
            "8": 2,
        }
        stats = runner.stats
        assert (stats.succeeded, stats.retried, stats.given_up) == (6, 9, 3)


async def test_what_is_given_up_has_its_reason(js_server: ServerProcess) -> None:
    """The advisory of both servers has it, and the dead letter of ours."""
    async with jetstream(js_server) as js:
        await js.manager.streams.add(name="DEAD", subjects=["dead.>"], storage="memory")
        consumer = await make(js, 2, metadata={"tradewind.dead_letter.stream": "DEAD"})
        terminated = await js.connection.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c")

        def handle(value: object, message: Msg) -> None:
            raise GiveUp("bad address")

        class Zeros:
            def decode(self, data: bytes) -> bytes:
                if data != b"0":
                    raise TypeError("only zeros")
                return data

        runner = consumer.runner(handle, codec=Zeros(), retry=AT_ONCE)
        await run_until_settled(consumer, runner)
        texts = [(await terminated.next(SECONDS)).data for _ in range(2)]
        assert sum(b"bad address" in text for text in texts) == 1
        assert sum(b"the payload cannot be decoded: TypeError" in text for text in texts) == 1
        assert (runner.stats.given_up, runner.stats.undecodable) == (1, 1)
        if js_server.kind == "tradewind":
            letters = [letter async for letter in js.dead_letters.letters("DEAD")]
            assert {letter.detail[:11] for letter in letters} == {"bad address", "the payload"}


async def test_keys_keep_their_order_while_one_is_retried(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 60)
        seen: dict[str, list[int]] = {}
        failed: set[bytes] = set()

        async def handle(message: Msg) -> None:
            if int(message.data) % 7 == 0 and message.data not in failed:
                failed.add(message.data)
                raise ValueError("once")
            await asyncio.sleep(0.001)
            seen.setdefault(message.subject, []).append(int(message.data))

        runner = consumer.runner(
            handle, order_by=2, concurrency=4, buffer=4, retry=Retry(delay=0.01)
        )
        await run_until_settled(consumer, runner)
        assert seen == {f"s.{key}": list(range(key, 60, 3)) for key in range(3)}
        assert runner.stats.retried == len(failed) == 9


async def test_stopping_gives_the_rest_back_at_once(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 50)
        handled: list[int] = []
        release = asyncio.Event()

        async def handle(message: Msg) -> None:
            await release.wait()
            handled.append(message.metadata.stream_sequence)

        runner = consumer.runner(handle, concurrency=3)
        task = asyncio.create_task(runner.run())
        await eventually(lambda: runner.stats.held == 6, "a full window")
        runner.stop()
        await eventually(lambda: runner.stats.held == 3, "only handlers")
        release.set()
        stats = await task
        assert sorted(handled) == [1, 2, 3]
        assert stats.succeeded == 3
        # Far sooner than after the ack wait of 30 s.
        rest = [message async for message in await consumer.fetch(47, expires=SECONDS)]
        assert {message.metadata.stream_sequence for message in rest} == set(range(4, 51))


@pytest.mark.parametrize("what", ["consumer", "stream"])
async def test_a_deleted_consumer_or_stream_ends_the_run(
    js_server: ServerProcess, what: str
) -> None:
    async with jetstream(js_server) as js:
        consumer = await make(js, 3)
        runner = consumer.runner(lambda message: None)
        task = asyncio.create_task(runner.run())
        await eventually(lambda: runner.stats.succeeded == 3, "all messages")
        if what == "consumer":
            await consumer.delete()
        else:
            await js.manager.streams.delete("S")
        with pytest.raises((ConsumerGoneError, ConsumerNotFoundError, StreamNotFoundError)):
            await asyncio.wait_for(task, SECONDS)
        with pytest.raises((ConsumerNotFoundError, StreamNotFoundError)):
            await consumer.run(lambda message: None)


async def test_a_run_goes_on_after_a_reconnect(js_server: ServerProcess) -> None:
    async with jetstream(js_server) as js, ChaosProxy(js_server.port) as proxy:
        await make(js, 200, ack_wait=timedelta(seconds=2))
        events = Events()
        seen: Counter[bytes] = Counter()

        async def handle(message: Msg) -> None:
            seen[message.data] += 1
            if len(seen) in (50, 120):
                proxy.cut()
            await asyncio.sleep(0.002)

        async with connected(proxy.url, on_event=events, **FAST) as other:
            consumer = await other.jetstream(timeout=SECONDS).consumers.get("S", "c")
            runner = consumer.runner(handle)
            task = asyncio.create_task(runner.run())
            await all_settled(await js.consumers.get("S", "c"))
            runner.stop()
            await task
            assert events.of(Reconnected)
        assert len(seen) == 200
        assert runner.stats.held == 0


# ---------------------------------------------------------------------- without an event loop


def blocking_stream(js: Any, count: int) -> Any:
    js.manager.streams.add(name="S", subjects=["s"], storage="memory")
    js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
    for number in range(count):
        js.publish_async("s", b"%d" % number)
    js.publish_async_completed()
    return js.consumers.get("S", "c")


def test_a_blocking_run_handles_in_threads(js_server: ServerProcess) -> None:
    with tradewind.sync.connect(js_server.url, timeout=SECONDS) as connection:
        js = connection.jetstream()
        try:
            consumer = blocking_stream(js, 40)
            together = threading.Barrier(20, timeout=SECONDS)
            seen: list[int] = []

            def handle(value: int, message: Msg) -> None:
                together.wait()  # more at a time than callbacks have threads
                seen.append(value)
                if len(seen) == 40:
                    runner.stop()

            runner = consumer.runner(handle, codec=int | str, concurrency=20)
            stats = runner.run()
            assert sorted(seen) == list(range(40))
            assert stats.succeeded == runner.stats.succeeded == 40
        finally:
            js.manager.streams.delete("S")


# ---------------------------------------------------------------------- processes

PROGRAM = """
import asyncio, os, sys
import tradewind, tradewind.sync

url, path, kind = sys.argv[1:4]

def note(message):
    with open(path, "a") as file:
        file.write(f"{message.metadata.stream_sequence}\\n")

async def handle(message):
    await asyncio.sleep(0.001)
    note(message)

async def main():
    async with await tradewind.connect(url) as connection:
        consumer = await connection.jetstream().consumers.get("S", "c")
        print("ready", flush=True)
        stats = await consumer.run(handle, signals=True)
        print("stopped", stats.held, flush=True)

def blocking():
    with tradewind.sync.connect(url) as connection:
        consumer = connection.jetstream().consumers.get("S", "c")
        print("ready", flush=True)
        stats = consumer.run(note, signals=True)
        print("stopped", stats.held, flush=True)

blocking() if kind == "blocking" else asyncio.run(main())
"""


def start_program(url: str, path: Path, kind: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), url, str(path), kind]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def noted(path: Path) -> list[int]:
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [int(line) for line in lines if line.endswith("\n")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["asynchronous", "blocking"])
def test_a_killed_process_loses_nothing(
    js_server: ServerProcess, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "handled"
    count = 1500
    with tradewind.sync.connect(js_server.url, timeout=SECONDS) as connection:
        js = connection.jetstream()
        processes: list[subprocess.Popen[str]] = []
        try:
            consumer = blocking_stream(js, count)
            js.manager.consumers.update("S", "c", ack_wait=timedelta(seconds=1))
            for least in (100, 500):
                processes.append(start_program(js_server.url, path, kind))
                wait_for(lambda least=least: len(noted(path)) >= least, seconds=60)
                processes[-1].kill()
                processes[-1].wait()
            processes.append(start_program(js_server.url, path, kind))
            wait_for(lambda: len(set(noted(path))) == count, seconds=60)
            wait_for(lambda: not consumer.info().num_ack_pending, seconds=60)
            processes[-1].send_signal(signal.SIGTERM)
            assert processes[-1].communicate(timeout=60)[0] == "stopped 0\n"
            assert processes[-1].returncode == 0
            assert set(noted(path)) == set(range(1, count + 1))
        finally:
            for process in processes:
                process.kill()
                process.communicate()
            js.manager.streams.delete("S")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number"), list(itertools.product(["asynchronous", "blocking"], ["INT", "TERM"]))
)
def test_a_signal_ends_a_process_that_has_nothing_left_in_hand(
    js_server: ServerProcess, tmp_path: Path, kind: str, number: str
) -> None:
    path = tmp_path / "handled"
    with tradewind.sync.connect(js_server.url, timeout=SECONDS) as connection:
        js = connection.jetstream()
        process = None
        try:
            consumer = blocking_stream(js, 3000)
            process = start_program(js_server.url, path, kind)
            wait_for(lambda: len(noted(path)) >= 50, seconds=60)
            process.send_signal(signal.Signals[f"SIG{number}"])
            assert process.communicate(timeout=60)[0] == "stopped 0\n"
            assert process.returncode == 0
            handled = len(noted(path))
            left = set()
            for message in consumer.fetch(3000 - handled):
                left.add(message.metadata.stream_sequence)
                message.ack()
            assert left | set(noted(path)) == set(range(1, 3001))
            assert not left & set(noted(path))
        finally:
            if process is not None:
                process.kill()
                process.communicate()
            js.manager.streams.delete("S")
