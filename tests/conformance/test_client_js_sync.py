"""JetStream in programs without an event loop, on both servers."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from helpers_client import SECONDS

import tradewind.sync
from harness import ServerProcess, wait_for
from tradewind.client.api_errors import (
    ConsumerNotFoundError,
    StreamInvalidConfigError,
    StreamPurgeFailedError,
    StreamWrongLastSequenceError,
)
from tradewind.client.core.message import Msg
from tradewind.client.errors import ConsumerGoneError, NotTradewindError, PublishError
from tradewind.client.streams.consumer_events import ConsumerDeleted, ConsumerEvent

if TYPE_CHECKING:
    from tradewind.sync import JetStream


@contextmanager
def jetstream(server: ServerProcess) -> Iterator[JetStream]:
    """JetStream on a server with no streams; those that the test makes are removed."""
    with tradewind.sync.connect(server.url, timeout=SECONDS) as connection:
        js = connection.jetstream()
        try:
            yield js
        finally:
            for name in js.manager.streams.names():
                js.manager.streams.delete(name)


def fill(js: JetStream, count: int) -> None:
    js.manager.streams.add(name="S", subjects=["s"], storage="memory")
    js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
    for number in range(count):
        js.publish_async("s", b"%d" % number)
    js.publish_async_completed()


def test_streams_and_consumers_are_managed(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        fill(js, 3)
        streams, consumers = js.manager.streams, js.manager.consumers
        assert [info.state.messages for info in streams.list()] == [3]
        assert streams.names().all() == ["S"]
        assert streams.update("S", max_msgs=7).config.max_msgs == 7
        assert streams.get_message("S", seq=2).data == b"1"
        assert [info.name for info in consumers.list("S")] == ["c"]
        with pytest.raises(ConsumerNotFoundError):
            js.consumers.get("S", "d")


def test_publishing_blocks_or_waits_for_all_at_once(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        fill(js, 0)
        assert js.publish("s", b"1", msg_id="a").seq == 1
        assert js.publish("s", b"1", msg_id="a").duplicate
        with pytest.raises(StreamWrongLastSequenceError):
            js.publish("s", b"2", expect_last_sequence=5)
        pending = [js.publish_async("s", b"%d" % number) for number in range(10)]
        js.publish_async_completed()
        assert [item.wait().seq for item in pending] == list(range(2, 12))
        js.publish_async("s", b"2", expect_last_sequence=5)
        with pytest.raises(PublishError, match="1 messages were not stored"):
            js.publish_async_completed()


def test_several_threads_publish_into_one_window(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        fill(js, 0)

        def work() -> None:
            for _ in range(50):
                js.publish("s")
            for _ in range(50):
                js.publish_async("s")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        js.publish_async_completed()
        assert js.manager.streams.info("S").state.messages == 400


def test_a_full_window_makes_threads_wait(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        fill(js, 0)
        narrow = js.connection.jetstream(publish_window=8)

        def work() -> None:
            for number in range(200):
                narrow.publish_async("s", bytearray(b"%d" % number), headers={"N": "1"})
                # Each thread may have looked before the others sent theirs.
                assert narrow.publish_async_pending <= 8 + 4

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        narrow.publish_async_completed()
        assert js.manager.streams.info("S").state.messages == 800


def test_messages_are_read_in_every_way(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        fill(js, 30)
        consumer = js.consumers.get("S", "c")
        message = consumer.next(timeout=SECONDS)
        assert message is not None
        message.ack_sync()
        seen = [message.data]
        for message in consumer.fetch(4):
            message.ack()
            seen.append(message.data)
        with consumer.consume(max_messages=10) as messages:
            for message in messages:
                message.ack()
                seen.append(message.data)
                if message.metadata.pending_count == 0:
                    break
        assert seen == [b"%d" % number for number in range(30)]
        assert consumer.next(timeout=0.1) is None

        ordered = js.consumers.ordered("S")
        assert [message.data for message in ordered.fetch(3)] == seen[:3]
        following = ordered.next(SECONDS)
        assert following is not None
        assert following.data == b"3"
        ordered.stop()
        with ordered.consume() as rest:
            assert next(iter(rest)).data == b"4"
        with js.subscribe_push("S", ack_policy="none") as pushed:
            assert [next(pushed).data for _ in range(30)] == seen


def test_next_needs_no_timeout_and_takes_the_options_of_groups(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        fill(js, 2)
        first = js.consumers.get("S", "c").next()
        assert first is not None
        assert first.data == b"0"
        js.manager.consumers.add(
            "S",
            durable_name="g",
            ack_policy="explicit",
            priority_groups=["jobs"],
            priority_policy="overflow",
        )
        grouped = js.consumers.get("S", "g").next(SECONDS, group="jobs")
        assert grouped is not None
        assert grouped.data == b"0"


def test_callbacks_run_in_threads_and_may_block(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        fill(js, 5)
        consumer = js.consumers.get("S", "c")
        done = threading.Event()
        seen: list[bytes] = []
        told: list[ConsumerEvent] = []

        def handle(message: Msg) -> None:
            assert threading.current_thread().name.startswith("tradewind-callback")
            message.ack_sync()
            seen.append(message.data)
            if len(seen) == 5:
                done.set()

        messages = consumer.consume(callback=handle, on_status=told.append)
        assert done.wait(SECONDS)
        assert seen == [b"0", b"1", b"2", b"3", b"4"]
        statuses = messages.status()
        assert consumer.delete()
        with pytest.raises((ConsumerGoneError, ConsumerNotFoundError)):
            messages.wait_ended()
        assert any(isinstance(event, ConsumerDeleted) for event in statuses)


def test_what_was_taken_but_not_used_is_given_back(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        fill(js, 10)
        consumer = js.consumers.get("S", "c")
        with consumer.consume() as messages:
            first = next(messages)
            first.ack_sync()
            # What is delivered just when the reader stops comes again after the ack wait.
            wait_for(lambda: messages.received_messages == 10, "all messages")
        again = {message.data for message in consumer.fetch(9, expires=SECONDS)}
        assert again == {b"%d" % number for number in range(1, 10)}


def test_a_truncation_is_tried_done_and_taken_back(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        streams = js.manager.streams
        streams.add(name="T", subjects=["t.*"])
        for number in range(6):
            headers = {"Kind": "odd"} if number % 2 else None
            js.publish(f"t.{number % 3}", b"%d" % number, headers=headers)
        if js_server.kind == "official":
            with pytest.raises(NotTradewindError, match="requires a tradewind-server"):
                streams.truncate("T", newest=2)
            return
        would = streams.truncate("T", newest=2, header="Kind", dry_run=True)
        assert (would.messages, would.first_seq, would.last_seq) == (2, 4, 6)
        assert streams.info("T").state.messages == 6
        assert streams.truncate("T", subjects=["t.0"], header=("Kind", "even")).messages == 0
        hour = datetime.timedelta(hours=1)
        second = streams.get_message("T", seq=2).time + datetime.timedelta(microseconds=1)
        done = streams.truncate("T", after=second, keep_for=hour)
        assert (done.messages, done.first_seq, done.last_seq) == (4, 3, 6)
        (window,) = streams.undo_windows("T")
        assert (window.id, window.messages) == (done.undo_id, 4)
        assert streams.undo("T") == 4
        assert [streams.get_message("T", seq=seq).data for seq in (1, 6)] == [b"0", b"5"]
        assert streams.undo_windows("T") == []
        assert js.publish("t.0", b"6").seq == 7
        with pytest.raises(StreamPurgeFailedError, match="specify before, after"):
            streams.truncate("T")


def test_a_first_publish_makes_a_stream(js_server: ServerProcess) -> None:
    with jetstream(js_server) as js:
        templates = js.manager.templates
        hour = datetime.timedelta(hours=1)
        if js_server.kind == "official":
            with pytest.raises(NotTradewindError, match="requires a tradewind-server"):
                templates.list()
            return
        templates.put("k", match="k.*.>", stream="k_{1}", idle=hour, max_age=hour, max_msgs=7)
        try:
            (status,) = templates.list()
            assert (status.template.config.max_msgs, status.streams) == (7, 0)
            would = templates.try_subject("k.web.pods")
            assert (would.would_create, would.stream) == (True, "k_web")
            assert js.publish("k.web.pods", b"x").stream == "k_web"
            assert js.manager.streams.info("k_web").config.max_msgs == 7
            with pytest.raises(StreamInvalidConfigError, match="begin with a plain token"):
                templates.put("l", match="*.>", stream="k_{1}", dry_run=True)
        finally:
            templates.delete("k")
        assert list(templates.list()) == []
