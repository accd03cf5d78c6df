"""A subscriber that does not read is cut off when too much waits for it; everybody else goes on."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest

from harness import (
    REPLY_SECONDS,
    RawClient,
    ServerProcess,
    StartServer,
    wait_until_nobody_listens,
)

# A write may take longer than all of a test: what waits is too much, not too old.
PATIENT = 'write_deadline: "2m"\n'
CONFIG = PATIENT + 'max_pending: 1MB\nmax_payload: 200KB\nhttp: "127.0.0.1:-1"\n'
PAYLOAD = b"x" * 100_000
FRAME = b"MSG flood 1 100000\r\n" + PAYLOAD + b"\r\n"
FLOOD_MESSAGES_MAX = 1000


@pytest.fixture
def small(start: StartServer) -> ServerProcess:
    return start(CONFIG)


@pytest.fixture
def slow(small: ServerProcess) -> Iterator[RawClient]:
    """A client that subscribes to the flood and to `slow.here`, and then never reads."""
    with RawClient(small.port) as client:
        client.connect(protocol=0)
        client.send("SUB flood 1\r\nSUB slow.here 2\r\n")
        client.ping()
        yield client


def flood(server: ServerProcess, publisher: RawClient) -> None:
    """Publish until the server reports a slow consumer."""
    for _ in range(FLOOD_MESSAGES_MAX):
        publisher.send(b"PUB flood 100000\r\n" + PAYLOAD + b"\r\n")
        publisher.ping()
        if "Slow Consumer" in server.log:
            return
    pytest.fail("the server never reported a slow consumer")


def test_slow_consumer_is_cut_and_the_others_go_on(small: ServerProcess, slow: RawClient) -> None:
    with RawClient(small.port) as publisher, RawClient(small.port) as healthy:
        publisher.connect(protocol=0, no_responders=True)
        healthy.connect(protocol=0)
        healthy.send("SUB calm 1\r\n")
        healthy.ping()
        flood(small, publisher)
        wait_until_nobody_listens(publisher, "slow.here")
        publisher.send("PUB calm 2\r\nhi\r\n")
        healthy.expect_bytes("MSG calm 1 2\r\nhi\r\n")
        publisher.ping()
    received = slow.read_to_end().replace(b"PING\r\n", b"")  # it comes when 2 s have passed
    assert received == (FRAME * (len(received) // len(FRAME) + 1))[: len(received)]


def test_slow_consumer_is_logged_and_counted(small: ServerProcess, slow: RawClient) -> None:
    with RawClient(small.port) as publisher:
        publisher.connect(protocol=0)
        flood(small, publisher)
    small.wait_for_log(
        rf"127\.0\.0\.1:\d+ - cid:{slow.info['client_id']} - "
        r"Slow Consumer Detected: MaxPending of 1048576 Exceeded"
    )
    port = small.wait_for_log(r"Starting http monitor on 127\.0\.0\.1:(\d+)")[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/varz", timeout=REPLY_SECONDS) as response:
        varz = json.load(response)
    assert varz["slow_consumers"] == 1
    assert varz["slow_consumer_stats"]["clients"] == 1


def test_late_reader_within_the_limit_gets_everything(start: StartServer) -> None:
    server = start(PATIENT)
    count = 200
    with RawClient(server.port) as late, RawClient(server.port) as publisher:
        late.connect(protocol=0)
        late.send("SUB flood 1\r\n")
        late.ping()
        publisher.connect(protocol=0)
        for _ in range(count):
            publisher.send(b"PUB flood 100000\r\n" + PAYLOAD + b"\r\n")
        publisher.ping()
        for _ in range(count):
            late.expect_bytes(FRAME)
        late.ping()
