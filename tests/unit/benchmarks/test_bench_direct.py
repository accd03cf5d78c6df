"""The workloads of direct gets run on both servers; their load generator notices every fault."""

import json
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.build import ensure_loadgen
from benchmarks.cli import installed
from benchmarks.direct_workloads import DIRECT_WORKLOADS
from benchmarks.measure import METRICS, Scale, Workload
from benchmarks.servers import Server
from benchmarks.stream_api import StreamApi
from benchmarks.stream_workloads import RELAXED
from misbehaving_broker import Broker

from jetstream_servers import keep_streams_folder

TOTAL = 40
SPOILED = 12
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
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(installed(request.param), RELAXED) as started:
        keep_streams_folder(started._folder / "store")
        yield started


@pytest.mark.parametrize("workload", DIRECT_WORKLOADS, ids=lambda workload: workload.name)
def test_workload_passes(server: Server, workload: Workload) -> None:
    try:
        result = workload.run(server, Scale(quick=True))
    finally:
        with StreamApi(server) as api:
            names = api.request("STREAM.NAMES")["streams"]
            api.request_all((f"STREAM.DELETE.{name}", {}) for name in names)
    assert result.figures
    assert set(result.figures) <= set(METRICS)


class FakeStream(Broker):
    """Answers direct gets by sequence, alone or in batches; `spoil` changes what leaves."""

    def _publish(
        self, link: socket.socket, subject: bytes, reply: list[bytes], payload: bytes
    ) -> None:
        request = json.loads(payload)
        first, batch = request["seq"], request.get("batch", 0)
        for seq in range(first, first + max(batch, 1)):
            self._answer(link, reply[0], b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % seq, seq)
        if batch:
            self._answer(link, reply[0], b"NATS/1.0 204 EOB\r\n\r\n", 0)

    def _answer(self, link: socket.socket, reply: bytes, header: bytes, seq: int) -> None:
        payload = (seq - 1).to_bytes(8, sys.byteorder) + b"x" * 8 if seq else b""
        sizes = b"%d %d" % (len(header), len(header) + len(payload))
        message = b"HMSG %b 1 %b\r\n%b%b\r\n" % (reply, sizes, header, payload)
        for part in self._spoil(self._delivery_count, message):
            self._send(link, part)
        self._delivery_count += 1


def get(broker: FakeStream, kind: str) -> None:
    from benchmarks.loadgen.direct import Getter

    load = Getter(
        b"127.0.0.1",
        broker.port,
        stream=b"BENCH",
        prefix=b"bench.",
        payload_size=16,
        subject_count=4,
        total=TOTAL,
    )
    try:
        if kind == "batch":
            assert load.get("batch", 6, outstanding=2, batch=5) == 30
            assert len(load.latencies_ns()) == 6
        else:
            assert load.get("sequence", TOTAL, outstanding=4) == TOTAL
            assert len(load.latencies_ns()) == TOTAL
    finally:
        load.close()


@pytest.mark.parametrize("kind", ["sequence", "batch"])
def test_faithful_stream_passes(kind: str) -> None:
    with FakeStream() as broker:
        get(broker, kind)


@pytest.mark.parametrize(
    ("kind", "change", "text"),
    [
        ("sequence", lambda message: [message] * 2, "not open"),
        ("sequence", lambda message: [message[:-3] + b"y\r\n"], "altered"),
        (
            "sequence",
            lambda message: [b"HMSG _INBOX.getter.12 1 4 4\r\n\r\n\r\n\r\n"],
            "wrong size",
        ),
        ("sequence", lambda message: [message.replace(b"getter.", b"getter.9")], "not open"),
        ("sequence", lambda message: [message.replace(b"_INBOX", b"_OTHER")], "nothing"),
        ("batch", lambda message: [], "another message|wrong size"),
        ("batch", lambda message: [message] * 2, "another message|no end"),
        ("batch", lambda message: [message[:-3] + b"y\r\n"], "altered"),
    ],
)
def test_fault_is_noticed(kind: str, change: Callable[[bytes], list[bytes]], text: str) -> None:
    from benchmarks.loadgen.link import LoadError

    def spoil(number: int, message: bytes) -> list[bytes]:
        return change(message) if number == SPOILED else [message]

    with FakeStream(spoil) as broker, pytest.raises(LoadError, match=text):
        get(broker, kind)


def test_sequence_in_the_header_must_be_that_of_the_message() -> None:
    from benchmarks.loadgen.link import LoadError

    def spoil(number: int, message: bytes) -> list[bytes]:
        return [message.replace(b"Nats-Sequence:", b"Nats-SeXuence:")]

    with FakeStream(spoil) as broker, pytest.raises(LoadError, match="wrong sequence"):
        get(broker, "sequence")
