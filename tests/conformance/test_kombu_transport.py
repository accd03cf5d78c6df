"""The transport of kombu on both servers: what a program of kombu sees."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers_client import Restartable
from kombu import Connection, Consumer, Exchange, Queue
from kombu.asynchronous.hub import Hub
from kombu.exceptions import ChannelError, OperationalError

import tradewind.contrib.kombu
import tradewind.sync
from harness import ServerProcess, StartServer, wait_for
from tradewind.client.errors import OptionsError
from tradewind.contrib.kombu.kombu_transport import TradewindTransport

SECONDS = 20.0
QUIET = 0.15
_numbers = itertools.count(1)
Connect = Callable[..., Any]


@pytest.fixture
def connect(js_server: ServerProcess) -> Iterator[Connect]:
    """connect(**transport_options) gives a connection; all of a test use the same stream."""
    stream = f"KOMBU{next(_numbers)}"
    made: list[Any] = []

    def _connect(**options: Any) -> Any:
        url = js_server.url.replace("nats://", "tradewind://")
        made.append(Connection(f"{url}/{stream}", transport_options=options))
        return made[-1]

    yield _connect
    for connection in made:
        connection.release()
    with tradewind.sync.connect(js_server.url) as client:
        client.jetstream().manager.streams.delete(stream)


class Reader:
    """Consumes from queues on a channel of its own."""

    def __init__(self, connection: Any, *queues: Any, prefetch: int = 0, **options: Any) -> None:
        self.connection = connection
        self.channel = connection.channel()
        self.messages: list[Any] = []
        self.consumer = Consumer(
            self.channel, list(queues), on_message=self.messages.append,
            prefetch_count=prefetch or None, accept=["json"], **options,
        )  # fmt: skip
        self.consumer.consume()

    def read(self, count: int) -> list[Any]:
        """The bodies of the next messages."""
        before = len(self.messages)
        while len(self.messages) < before + count:
            self.connection.drain_events(timeout=SECONDS)
        return [message.payload for message in self.messages[before:]]

    def is_quiet(self) -> bool:
        """Whether nothing comes."""
        try:
            self.connection.drain_events(timeout=QUIET)
        except TimeoutError:
            return True
        return False


def publish(connection: Any, body: object, queue: str, **options: Any) -> None:
    connection.Producer(serializer="json").publish(body, routing_key=queue, **options)


def declare(connection: Any, *queues: Any) -> None:
    for queue in queues:
        queue(connection.default_channel).declare()


# ---------------------------------------------------------------------- routing


def test_exchanges_route_to_the_queues_of_other_connections(connect: Connect) -> None:
    news, jobs, all_of_it = (
        Exchange("news", "topic"), Exchange("jobs", "direct"), Exchange("all", "fanout"),
    )  # fmt: skip
    queues = {
        "de": Queue("de", news, "news.de.#"),
        "sport": Queue("sport", news, "#.sport.*"),  # wider at the server, narrowed by the client
        "mail": Queue("mail", jobs, "mail"),
        "one": Queue("one", all_of_it),
        "two": Queue("two", all_of_it),
    }
    reading, writing = connect(), connect()
    readers = {name: Reader(reading, queue) for name, queue in queues.items()}
    producer = writing.Producer(serializer="json")
    for exchange, key in [
        (news, "news.de"), (news, "news.de.sport.ski"), (news, "news.fr.sport.ski"),
        (news, "news.fr"), (jobs, "mail"), (jobs, "other"), (all_of_it, "whatever"),
    ]:  # fmt: skip
        producer.publish(key, exchange=exchange, routing_key=key)
    wanted = {
        "de": ["news.de", "news.de.sport.ski"],
        "sport": ["news.de.sport.ski", "news.fr.sport.ski"],
        "mail": ["mail"],
        "one": ["whatever"],
        "two": ["whatever"],
    }
    for _ in range(sum(map(len, wanted.values()))):
        reading.drain_events(timeout=SECONDS)
    assert readers["one"].is_quiet()
    found = {name: [each.payload for each in reader.messages] for name, reader in readers.items()}
    assert found == wanted
    info = readers["mail"].messages[0].delivery_info
    assert (info["exchange"], info["routing_key"], info["redelivered"]) == ("jobs", "mail", False)


def test_a_queue_that_is_unbound_gets_nothing_more_by_that_binding(connect: Connect) -> None:
    connection = connect()
    exchange = Exchange("e", "direct")
    bound = Queue("q", exchange, "k")(connection.default_channel)
    bound.declare()
    bound.bind_to(exchange, "other")
    publish(connection, 1, "other", exchange=exchange)
    publish(connection, 2, "q")
    bound.unbind_from(exchange, "k")
    publish(connection, 3, "k", exchange=exchange)
    publish(connection, 4, "other", exchange=exchange)
    reader = Reader(connection, Queue("q", no_declare=True))
    assert reader.read(3) == [1, 2, 4]
    exchange(connection.default_channel).delete()
    publish(connection, 5, "other", exchange=exchange)
    publish(connection, 6, "q")
    assert reader.read(1) == [6]


def test_headers_bodies_and_properties_arrive_unchanged(connect: Connect) -> None:
    connection = connect()
    declare(connection, Queue("a.b c/ü"))
    body = bytes(range(256)) * 40
    connection.Producer().publish(
        body, routing_key="a.b c/ü", content_type="application/data", content_encoding="binary",
        headers={"text": "line\r\nNats-Msg-Id: x", "list": [1, None]}, correlation_id="c",
        reply_to="r", priority=7, message_id="m",
    )  # fmt: skip
    message = connection.default_channel.basic_get("a.b c/ü")
    assert bytes(message.body) == body
    assert message.headers == {"text": "line\r\nNats-Msg-Id: x", "list": [1, None]}
    names = ("correlation_id", "reply_to", "priority", "message_id")
    assert [message.properties[name] for name in names] == ["c", "r", 7, "m"]
    message.ack()


# ---------------------------------------------------------------------- settling


def test_prefetch_bounds_what_is_held_over_all_queues(connect: Connect) -> None:
    first, second = connect(), connect()
    queues = [Queue("a"), Queue("b")]
    declare(first, *queues)
    for number in range(6):
        publish(first, number, "ab"[number % 2])
    greedy = Reader(first, *queues, prefetch=3)
    held = greedy.read(3)
    assert greedy.is_quiet()
    other = Reader(second, *queues)
    assert sorted(held + other.read(3)) == list(range(6))
    publish(first, 6, "b")
    assert other.read(1) == [6]
    other.consumer.cancel()
    publish(first, 7, "a")
    publish(first, 8, "b")
    assert greedy.is_quiet()
    greedy.messages[0].ack()
    taken = greedy.read(1)
    assert greedy.is_quiet()
    greedy.messages[1].ack()
    assert sorted(taken + greedy.read(1)) == [7, 8]


def test_a_rejected_message_comes_again_or_never(connect: Connect) -> None:
    connection = connect()
    queue = Queue("q")
    declare(connection, queue)
    publish(connection, 1, "q")
    publish(connection, 2, "q")
    reader = Reader(connection, queue, prefetch=1)
    assert reader.read(1) == [1]
    reader.messages[0].reject()
    assert reader.read(1) == [2]
    reader.messages[1].requeue()
    assert reader.read(1) == [2]
    assert reader.messages[2].delivery_info["redelivered"] is True
    reader.messages[2].ack()
    assert reader.is_quiet()
    assert connection.default_channel.queue_delete("q", if_empty=True) is None
    with pytest.raises(ChannelError, match="no queue 'q'"):
        Queue("q")(connection.default_channel).queue_declare(passive=True)


def test_closing_gives_back_at_once_what_is_not_settled(connect: Connect) -> None:
    # Long before the visibility timeout of a minute.
    first, second = connect(), connect()
    queue = Queue("q")
    declare(first, queue)
    for number in range(20):
        publish(first, number, "q")
    reader = Reader(first, queue)
    reader.read(5)
    wait_for(lambda: len(reader.channel._reader.held_tags()) == 20)
    reader.messages[0].ack()
    first.release()
    begun = time.monotonic()
    assert sorted(Reader(second, queue).read(19)) == list(range(1, 20))
    assert time.monotonic() - begun < 30


def test_a_held_message_stays_with_its_client_as_long_as_that_lives(connect: Connect) -> None:
    options = {"visibility_timeout": 1}
    first, second = connect(**options), connect(**options)
    queue = Queue("q")
    declare(first, queue)
    publish(first, 1, "q")
    reader = Reader(first, queue, prefetch=1)
    assert reader.read(1) == [1]
    other = Reader(second, queue)
    begun = time.monotonic()
    wait_for(lambda: not other.is_quiet() or time.monotonic() - begun > 2.5)
    assert other.messages == []
    # Its heartbeats end, as if it were killed; nothing is given back.
    reader.connection.transport.session.run(reader.channel._reader.close())
    assert other.read(1) == [1]
    assert other.messages[0].delivery_info["redelivered"] is True


def test_without_acknowledgements_a_message_is_gone_when_it_is_delivered(connect: Connect) -> None:
    first, second = connect(), connect()
    queue = Queue("q")
    declare(first, queue)
    for number in range(3):
        publish(first, number, "q")
    reader = Reader(first, queue, no_ack=True)
    assert reader.read(2) == [0, 1]
    first.release()
    # The third was not handed over, and is not lost.
    assert Reader(second, queue).read(1) == [2]


# ---------------------------------------------------------------------- order and time


def test_urgent_messages_come_first(connect: Connect) -> None:
    connection = connect()
    queue = Queue("q", max_priority=10)
    declare(connection, queue)
    for number in range(10):
        publish(connection, number, "q", priority=number)
    reader = Reader(connection, queue, prefetch=1)
    found = []
    for _ in range(10):
        found += reader.read(1)
        reader.messages[-1].ack()
    assert found == [9, 6, 7, 8, 3, 4, 5, 0, 1, 2]
    with pytest.raises(ChannelError, match="queue 'q' exists with steps of priority"):
        declare(connection, Queue("q"))


def test_a_delayed_message_waits_at_the_server(connect: Connect) -> None:
    connection, without = connect(), connect(server_delays=False)
    queue = Queue("q")
    declare(connection, queue)
    now = time.time()
    eta = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(now + 3))
    publish(connection, "later", "q", headers={"eta": eta})
    publish(connection, "now", "q")
    reader = Reader(connection, queue)
    assert reader.read(1) == ["now"]
    assert reader.is_quiet()
    publish(without, "held by the worker", "q", headers={"eta": eta})
    assert reader.read(1) == ["held by the worker"]
    assert reader.read(1) == ["later"]
    assert time.time() - now > 1.9  # eta has whole seconds


def test_expired_messages_are_not_delivered(connect: Connect) -> None:
    connection = connect()
    declare(connection, Queue("q"), Queue("short", message_ttl=0.2))
    publish(connection, "old", "q", expiration=1)
    publish(connection, "old", "short")
    publish(connection, "never", "q", expiration=3600)
    channel = connection.default_channel
    wait_for(lambda: channel._size("q") == 1)  # the server has removed it
    assert [Reader(connection, Queue("q", no_declare=True)).read(1)] == [["never"]]
    assert channel.basic_get("short") is None


# ---------------------------------------------------------------------- queues


def test_queues_are_counted_purged_and_deleted(connect: Connect) -> None:
    connection = connect()
    queue = Queue("q", max_priority=5)(connection.default_channel)
    queue.declare()
    for number in range(25):
        publish(connection, number, "q", priority=number % 10)
    assert queue.queue_declare(passive=True).message_count == 25
    assert queue.purge() == 25
    assert queue.queue_declare(passive=True).message_count == 0
    publish(connection, 1, "q")
    assert queue.get().payload == 1
    queue.delete()
    with pytest.raises(ChannelError, match="no queue 'q'"):
        queue.queue_declare(passive=True)
    with pytest.raises(ChannelError, match="no queue 'q'"):
        Reader(connection, Queue("q", no_declare=True))
    queue.delete()  # as in AMQP, no error


def test_a_reader_learns_that_its_queue_was_deleted(connect: Connect) -> None:
    first, second = connect(), connect()
    reader = Reader(first, Queue("q"))
    assert reader.is_quiet()
    second.default_channel.queue_delete("q")
    with pytest.raises(first.connection_errors, match="q"):
        first.drain_events(timeout=SECONDS)


def test_arguments_without_effect_are_named(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect()
    with caplog.at_level(logging.WARNING):
        declare(connection, Queue("q", max_length=5))
    assert "queue 'q': argument x-max-length has no effect here" in caplog.text
    with pytest.raises(ChannelError, match="exchange 'h': type direct, topic or fanout"):
        declare(connection, Queue("h", Exchange("h", "headers")))


def test_an_unreadable_message_is_given_up_and_the_next_one_delivered(
    connect: Connect, js_server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect()
    queue = Queue("q")
    declare(connection, queue)
    stream = connection.transport.settings.stream
    with tradewind.sync.connect(js_server.url) as stranger:
        js = stranger.jetstream()
        js.publish(f"{stream}.q.0.q", b"bad", headers={"Kombu-Headers": "{"})
        js.publish(f"{stream}.q.0.q", b"plain")
    reader = Reader(connection, queue)
    connection.drain_events(timeout=SECONDS)
    assert [bytes(message.body) for message in reader.messages] == [b"plain"]
    assert "header Kombu-Headers: a JSON object, not '{'" in caplog.text


# ---------------------------------------------------------------------- connections


def test_the_event_loop_of_kombu_delivers_what_arrives(connect: Connect) -> None:
    connection = connect()
    reader = Reader(connection, Queue("q"))
    hub = Hub()
    connection.register_with_event_loop(hub)
    for number in range(250):
        publish(connection, number, "q")
    loop = hub.create_loop()
    while len(reader.messages) < 250:
        next(loop)
    assert [message.payload for message in reader.messages] == list(range(250))
    connection.transport.unregister_from_event_loop(connection.connection, hub)
    hub.close()


@pytest.mark.slow
def test_a_restart_of_the_server_loses_and_repeats_nothing(
    start: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    restartable = Restartable(start, tmp_path_factory.mktemp("jetstream"))
    url = restartable.server.url
    with Connection(url, transport_options={"connect": {"reconnect_wait": 0.05}}) as connection:
        queue = Queue("q")
        declare(connection, queue)
        for number in range(4):
            publish(connection, number, "q")
        reader = Reader(connection, queue, prefetch=2)
        assert reader.read(2) == [0, 1]
        asyncio.run(restartable.restart(signal.SIGTERM))
        # Acknowledgements of messages that came before are valid.
        connection.transport.session.run(_connected(connection))
        for message in reader.messages:
            message.ack()
        assert reader.read(2) == [2, 3]
        publish(connection, 4, "q")
        for message in reader.messages[2:]:
            message.ack()
        assert reader.read(1) == [4]
        assert not any(message.delivery_info["redelivered"] for message in reader.messages)


async def _connected(connection: Any) -> None:
    await connection.transport.session.js.connection.wait_connected(60)


def test_no_server_and_no_jetstream_are_errors_of_one_line(server: ServerProcess) -> None:
    for url, text in [
        ("nats://127.0.0.1:1", r"127\.0\.0\.1:1"),
        (server.url, "start the server with JetStream"),
    ]:
        connection = Connection(url, connect_timeout=1)
        with pytest.raises(OperationalError, match=text):
            connection.ensure_connection(max_retries=1, interval_start=0)
        connection.release()


def test_a_stream_of_another_kind_is_refused(js_server: ServerProcess) -> None:
    with tradewind.sync.connect(js_server.url) as client:
        streams = client.jetstream().manager.streams
        streams.add(name="PLAIN", subjects=["PLAIN.>"])
        connection = Connection(f"{js_server.url}/PLAIN")
        with pytest.raises(OptionsError, match="has retention 'limits', and queues need"):
            connection.connect()
        streams.delete("PLAIN")


def test_the_package_registers_its_schemes() -> None:
    assert Connection("tradewind://h/X").transport_cls == "tradewind"
    assert isinstance(Connection("nats://h/X").transport, TradewindTransport)
    assert tradewind.contrib.kombu.PATH == "tradewind.contrib.kombu:TradewindTransport"
    assert "secret" not in Connection("nats://ada:secret@h/X").as_uri()
