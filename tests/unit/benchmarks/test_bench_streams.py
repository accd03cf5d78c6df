"""The workloads of streams run on both servers, and their load generator notices every fault."""

import json
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.build import ensure_loadgen
from benchmarks.cli import installed
from benchmarks.measure import METRICS, Scale, Workload
from benchmarks.servers import Server
from benchmarks.start_workloads import START_WORKLOADS
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import DURABLE, RELAXED, STREAM_WORKLOADS
from benchmarks.waiting_workloads import WAITING_WORKLOADS
from misbehaving_broker import Broker

from jetstream_servers import keep_streams_folder

COUNT = 60
SPOILED = 30
OFFICIAL = Path(sys.executable).parent / "nats-server"
PROGRAMS = [
    "tradewind-server",
    pytest.param(
        "nats-server",
        marks=pytest.mark.skipif(shutil.which(OFFICIAL) is None, reason="no nats-server"),
    ),
]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    ensure_loadgen()


@pytest.fixture(scope="module", params=PROGRAMS)
def servers(request: pytest.FixtureRequest) -> Iterator[dict[str, Server]]:
    """A server for each configuration; the workloads of a test find it without streams."""
    template = installed(request.param)
    with Server(template, RELAXED) as relaxed, Server(template, DURABLE) as durable:
        for each in (relaxed, durable):
            keep_streams_folder(each._folder / "store")
        yield {RELAXED: relaxed, DURABLE: durable}


def remove_streams(server: Server) -> None:
    with StreamApi(server) as api:
        while names := api.request("STREAM.NAMES")["streams"]:
            api.request_all((f"STREAM.DELETE.{name}", {}) for name in names)


@pytest.mark.parametrize(
    "workload",
    [*STREAM_WORKLOADS, *WAITING_WORKLOADS, *START_WORKLOADS],
    ids=lambda workload: workload.name,
)
def test_workload_passes(servers: dict[str, Server], workload: Workload) -> None:
    server = servers[workload.config]
    try:
        result = workload.run(server, Scale(quick=True))
    finally:
        remove_streams(server)
    assert result.figures
    assert set(result.figures) <= set(METRICS)


class FakeStream(Broker):
    """Acknowledges publishes and answers pull requests; `spoil` changes what leaves."""

    def _publish(
        self, link: socket.socket, subject: bytes, reply: list[bytes], payload: bytes
    ) -> None:
        if subject.startswith(b"$JS.API."):
            for number in range(json.loads(payload)["batch"]):
                self._answer(link, self._delivery(number))
        else:
            ack = b'{"stream":"BENCH","seq":%d}' % (self._delivery_count + 1)
            self._answer(link, b"MSG %b 1 %d\r\n%b\r\n" % (reply[0], len(ack), ack))

    def _delivery(self, number: int) -> bytes:
        payload = number.to_bytes(8, sys.byteorder) + b"x" * 8
        line = b"MSG bench.%d 1 $JS.ACK.BENCH.C.1 16\r\n" % (number % 4)
        return line + payload + b"\r\n"

    def _answer(self, link: socket.socket, message: bytes) -> None:
        for part in self._spoil(self._delivery_count, message):
            self._send(link, part)
        self._delivery_count += 1


def publish(broker: FakeStream) -> None:
    from benchmarks.loadgen.stream import Publisher

    load = Publisher(b"127.0.0.1", broker.port, stream=b"BENCH", payload_size=16, subject_count=4)
    try:
        assert load.publish(COUNT, window=8) == COUNT
        assert len(load.latencies_ns()) == COUNT
    finally:
        load.close()


def pull(broker: FakeStream) -> None:
    from benchmarks.loadgen.stream import Reader

    load = Reader(b"127.0.0.1", broker.port, payload_size=16, subject_count=4)
    try:
        load.subscribe(b"_INBOX.reader.*")
        load.pull(b"BENCH.C", COUNT, batch=COUNT, outstanding=1, acknowledge=False)
        assert load.received == COUNT
    finally:
        load.close()


@pytest.mark.parametrize("run", [publish, pull])
def test_faithful_stream_passes(run: Callable[[FakeStream], None]) -> None:
    with FakeStream() as broker:
        run(broker)


def wrong_sequence(message: bytes) -> list[bytes]:
    line, body, _ = message.split(b"\r\n")
    return [line + b"\r\n" + body.replace(b'"seq":31', b'"seq":99') + b"\r\n"]


def refusal(message: bytes) -> list[bytes]:
    words = message.split(b"\r\n")[0].split(b" ")
    return [b"MSG %b 1 12\r\n" % words[1] + b'{"error":{}}\r\n']


@pytest.mark.parametrize(
    ("run", "change", "text"),
    [
        (publish, lambda message: [], "lost, repeated or out of order"),
        (publish, lambda message: [message] * 2, "lost, repeated or out of order"),
        (publish, wrong_sequence, "wrong sequence"),
        (publish, refusal, "not an acknowledgement"),
        (publish, lambda message: [message.replace(b"publisher.30", b"publisher.99")], "nothing"),
        (pull, lambda message: [], "lost, repeated or out of order"),
        (pull, lambda message: [message] * 2, "lost, repeated or out of order"),
        (pull, lambda message: [message.replace(b"bench.2", b"bench.1")], "altered"),
        (pull, lambda message: [message.replace(b"bench.2", b"bench.9")], "wrong subject"),
        (pull, lambda message: [message[:-3] + b"y\r\n"], "altered"),
        (pull, lambda message: [b"MSG bench.2 1 0\r\n\r\n"], "not a delivery"),
    ],
)
def test_fault_is_noticed(
    run: Callable[[FakeStream], None], change: Callable[[bytes], list[bytes]], text: str
) -> None:
    from benchmarks.loadgen.link import LoadError

    def spoil(number: int, message: bytes) -> list[bytes]:
        return change(message) if number == SPOILED else [message]

    with FakeStream(spoil) as broker, pytest.raises(LoadError, match=text):
        run(broker)


def test_duplicate_that_was_not_expected_is_noticed() -> None:
    from benchmarks.loadgen.link import LoadError

    def spoil(number: int, message: bytes) -> list[bytes]:
        return [message.replace(b"}", b',"duplicate": true}').replace(b" 26\r", b" 44\r")]

    with FakeStream(spoil) as broker, pytest.raises(LoadError, match="about a duplicate"):
        publish(broker)


def test_each_api_connection_gets_its_own_answers_only() -> None:
    with (
        Server(installed("tradewind-server"), RELAXED) as server,
        StreamApi(server) as one,
        StreamApi(server) as other,
    ):
        assert "streams" in one.request("STREAM.NAMES")
        assert "memory" in other.request("INFO")


def test_a_probe_is_repeated_until_somebody_hears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.loadgen.link import LoadError

    with Server(installed("tradewind-server"), RELAXED) as server, StreamApi(server) as api:
        with monkeypatch.context() as patched, StreamApi(server) as listener:
            patched.setattr(
                "time.sleep",
                lambda _seconds: listener.request("STREAM.CREATE.S", {"name": "S"}),
            )
            api.wait_until_heard("S", "Nats-Expected-Stream: none")
        assert api.request("STREAM.INFO.S")["state"]["messages"] == 0
        monkeypatch.setattr("benchmarks.stream_api.TIMEOUT_S", 0.1)
        with pytest.raises(LoadError, match="nobody has answered on nowhere"):
            api.wait_until_heard("nowhere")


def test_api_error_fails_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.loadgen.link import LoadError

    with Server(installed("tradewind-server"), RELAXED) as server:
        with StreamApi(server) as api, pytest.raises(LoadError, match="stream not found"):
            api.request("STREAM.INFO.NONE")
        # This answer does not come, however long one waits.
        monkeypatch.setattr("benchmarks.stream_api.TIMEOUT_S", 1.0)
        with StreamApi(server) as api, pytest.raises(LoadError, match="no answer of the API"):
            api.request("NO.SUCH.ENDPOINT")
