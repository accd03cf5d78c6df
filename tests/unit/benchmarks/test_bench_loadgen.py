"""The load generator must notice every way in which a server can fail a workload."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from benchmarks.build import ensure_loadgen
from misbehaving_broker import Broker, Spoil, faithful

COUNT = 200
SPOILED = 100
STALL_SECONDS = 3  # longer than a busy machine keeps the broker from its work


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    ensure_loadgen()


@pytest.fixture
def short_stall() -> Iterator[None]:
    from benchmarks.loadgen.link import set_stall_s

    set_stall_s(STALL_SECONDS)
    yield
    set_stall_s(10.0)


def run_flow(broker: Broker, **overrides: Any) -> None:
    from benchmarks.loadgen.flow import Flow

    options: dict[str, Any] = {
        "publishers": 1,
        "subscribers": 1,
        "payload_size": 16,
        "inflight_max": 64,
    }
    delivered = overrides.pop("delivered", True)
    flow = Flow(b"127.0.0.1", broker.port, **{**options, **overrides})
    try:
        flow.subscribe(b"SUB core.> 1\r\n")
        flow.set_subjects([b"core.a", b"core.bb", b"core.ccc"], delivered=delivered)
        flow.run(COUNT)
        flow.finish()
    finally:
        flow.close()


def spoiling_one(change: Any) -> Spoil:
    def spoil(number: int, message: bytes) -> list[bytes]:
        spoiled: list[bytes] = change(message) if number == SPOILED else [message]
        return spoiled

    return spoil


def expect_failure(text: str, spoil: Spoil, **overrides: Any) -> None:
    from benchmarks.loadgen.link import LoadError

    with Broker(spoil) as broker, pytest.raises(LoadError, match=text):
        run_flow(broker, **overrides)


@pytest.mark.parametrize(("publishers", "subscribers"), [(1, 1), (1, 3), (4, 1), (2, 2)])
def test_faithful_server_passes(publishers: int, subscribers: int) -> None:
    with Broker() as broker:
        run_flow(broker, publishers=publishers, subscribers=subscribers)


def test_publishing_without_subscribers_ends_when_the_last_pong_has_come() -> None:
    with Broker() as broker:
        run_flow(broker, subscribers=0, delivered=False)


def test_deliveries_split_at_every_byte_are_understood() -> None:
    def one_byte_at_a_time(number: int, message: bytes) -> list[bytes]:
        return [message[index : index + 1] for index in range(len(message))]

    with Broker(one_byte_at_a_time) as broker:
        run_flow(broker)


def test_lost_message_fails() -> None:
    expect_failure("lost, repeated or out of order", spoiling_one(lambda message: []))


def test_repeated_message_fails() -> None:
    expect_failure("lost, repeated or out of order", spoiling_one(lambda message: [message] * 2))


def test_repetition_of_the_last_message_fails() -> None:
    def spoil(number: int, message: bytes) -> list[bytes]:
        return [message] * (2 if number == COUNT - 1 else 1)

    expect_failure("lost, repeated or out of order|unexpected extra message", spoil)


def test_reordered_messages_fail() -> None:
    held: list[bytes] = []

    def spoil(number: int, message: bytes) -> list[bytes]:
        if number == SPOILED:
            held.append(message)
            return []
        return [message, *held] if number == SPOILED + 1 else [message]

    expect_failure("lost, repeated or out of order", spoil)


def test_altered_payload_fails() -> None:
    altered = spoiling_one(lambda message: [message[:-3] + b"y\r\n"])
    expect_failure("payload was altered", altered)


def test_wrong_payload_size_fails() -> None:
    shorter = spoiling_one(lambda message: [message.replace(b" 16\r\n", b" 15\r\n")[:-3] + b"\r\n"])
    expect_failure("wrong size", shorter)


def test_wrong_subject_fails() -> None:
    expect_failure(
        "wrong subject", spoiling_one(lambda message: [message.replace(b"core.", b"cord.")])
    )


def test_subject_longer_than_the_published_one_fails() -> None:
    longer = spoiling_one(lambda message: [message.replace(b"core.", b"core." + b"z" * 500)])
    expect_failure("wrong subject", longer)


def test_payload_without_line_end_fails() -> None:
    expect_failure("not followed by CR LF", spoiling_one(lambda message: [message[:-2] + b"??"]))


def test_malformed_line_fails() -> None:
    expect_failure("malformed message line", spoiling_one(lambda message: [b"MSG core.a 1\r\n"]))


def test_unknown_operation_fails() -> None:
    expect_failure("unknown operation: BOGUS", spoiling_one(lambda message: [b"BOGUS\r\n"]))


def test_delivery_to_nobody_fails() -> None:
    # While messages are counted, or between the last of them and the answer to PING.
    expect_failure("nobody subscribed|unexpected extra message", faithful, delivered=False)


def test_queue_group_that_delivers_twice_fails() -> None:
    expect_failure("repeated or out of order", faithful, subscribers=2, queue=True)


def test_queue_group_of_one_passes() -> None:
    with Broker() as broker:
        run_flow(broker, subscribers=1, queue=True)


def test_error_line_is_quoted() -> None:
    from benchmarks.loadgen.link import LoadError

    broker = Broker(answer_to_pub=b"-ERR 'Permissions Violation'\r\n")
    with broker, pytest.raises(LoadError, match="Permissions Violation"):
        run_flow(broker)


@pytest.mark.usefixtures("short_stall")
def test_server_that_falls_silent_fails_in_bounded_time() -> None:
    def silent(number: int, message: bytes) -> list[bytes]:
        return [message] if number < SPOILED else []

    expect_failure(f"no progress for {STALL_SECONDS} s: 100 of 200 arrived", silent)


def test_payload_too_small_for_the_sequence_is_refused() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="at least 12"):
        run_flow(broker, payload_size=11)


def request_reply(broker: Broker, requesters: int, outstanding: int) -> list[int]:
    from benchmarks.loadgen.request import RequestReply

    load = RequestReply(
        b"127.0.0.1",
        broker.port,
        requesters=requesters,
        outstanding=outstanding,
        payload_size=16,
    )
    try:
        latencies_ns = load.run(COUNT)
        load.finish()
        return latencies_ns
    finally:
        load.close()


@pytest.mark.parametrize("outstanding", [1, 7])
def test_every_request_has_a_latency(outstanding: int) -> None:
    with Broker() as broker:
        latencies_ns = request_reply(broker, requesters=1, outstanding=outstanding)
    assert len(latencies_ns) == COUNT
    assert all(0 < latency_ns < 10_000_000_000 for latency_ns in latencies_ns)


def test_reply_on_a_wrong_inbox_fails() -> None:
    from benchmarks.loadgen.link import LoadError

    # The broker ignores all but the first token, so every requester gets every reply.
    with Broker() as broker, pytest.raises(LoadError, match="expected it on"):
        request_reply(broker, requesters=2, outstanding=1)


def test_altered_reply_fails() -> None:
    from benchmarks.loadgen.link import LoadError

    altered = spoiling_one(lambda message: [message[:-3] + b"y\r\n"])
    with Broker(altered) as broker, pytest.raises(LoadError, match="payload of its request"):
        request_reply(broker, requesters=1, outstanding=1)


def test_idle_connections_are_opened_and_answer_nothing_but_ping() -> None:
    from benchmarks.loadgen.idle import IdleConnections

    with Broker() as broker:
        load = IdleConnections(b"127.0.0.1", broker.port, count_max=50)
        load.open(30, handshakes_max=8)
        load.open(20, handshakes_max=8)
        load.hold(0.05)
        with pytest.raises(ValueError, match="exceed count_max 50"):
            load.open(1, handshakes_max=8)
        load.close()


def test_refused_idle_connection_fails() -> None:
    from benchmarks.loadgen.idle import IdleConnections
    from benchmarks.loadgen.link import LoadError

    with socket.socket() as taken:  # nobody listens here, and nobody else can either
        taken.bind(("127.0.0.1", 0))
        load = IdleConnections(b"127.0.0.1", taken.getsockname()[1], count_max=1)
        with pytest.raises(LoadError, match="refused"):
            load.open(1, handshakes_max=1)


def run_clients(broker: Broker, subscribers: int = 1, payload_size: int = 16) -> None:
    from benchmarks.loadgen.clients import Clients

    clients = Clients(b"127.0.0.1", broker.port, subscribers=subscribers, payload_size=payload_size)
    try:
        with ThreadPoolExecutor(subscribers) as threads:
            receiving = [threads.submit(clients.receive, n, COUNT) for n in range(subscribers)]
            clients.publish(COUNT)
            for one in receiving:
                one.result()
        clients.finish()
    finally:
        clients.close()


@pytest.mark.parametrize("subscribers", [1, 3])
@pytest.mark.parametrize("payload_size", [8, 9, 16])
def test_independent_clients_pass_a_faithful_server(subscribers: int, payload_size: int) -> None:
    with Broker() as broker:
        run_clients(broker, subscribers, payload_size)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("lost, repeated or out of order", lambda message: []),
        ("lost, repeated or out of order", lambda message: [message] * 2),
        ("payload was altered", lambda message: [message[:-3] + b"y\r\n"]),
        ("wrong subject", lambda message: [message.replace(b"clients.", b"clientz.")]),
        ("wrong size", lambda message: [message.replace(b" 16\r\n", b" 15\r\n")[:-3] + b"\r\n"]),
    ],
)
def test_independent_clients_notice_a_server_that_fails(text: str, change: Any) -> None:
    from benchmarks.loadgen.link import LoadError

    with Broker(spoiling_one(change)) as broker, pytest.raises(LoadError, match=text):
        run_clients(broker)


def test_independent_clients_need_room_for_the_sequence() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="at least 8"):
        run_clients(broker, payload_size=7)
