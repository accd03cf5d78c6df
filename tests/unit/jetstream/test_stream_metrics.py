"""Metrics of streams and consumers: the lag against a naive model, labels and bounded series."""

from __future__ import annotations

import random
import re

import pytest
from engine_kit import Peer

from tradewind.monitor.jsz import JetStreamMonitor
from tradewind.monitor.page_options import MetricsOptions, metrics_from_query
from tradewind.monitor.parameters import PageError
from tradewind.monitor.stepping import at_once
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

SAMPLE = re.compile(r"tradewind_(\w+)\{(.*)\} (\S+)")


def scrape(monitor: JetStreamMonitor, limit: int = 1000) -> dict[tuple[str, str], float]:
    """The values by metric and labels; each series is there once."""
    text = b"".join(at_once(monitor.stream_metrics(MetricsOptions(limit=limit)))).decode()
    found: dict[tuple[str, str], float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            assert (match[1], match[2]) not in found, line
            found[match[1], match[2]] = float(match[3])
    return found


class Ground:
    """A server with a stream, a filtered consumer, and what the model knows of both."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.server = InProcessServer(disk=SimulatedDisk(seed))
        self.peer = Peer(self.server)
        self.peer.create("S", allow_direct=True)
        config = {
            "durable_name": "c",
            "ack_policy": "explicit",
            "filter_subject": "S.a",
            "ack_wait": 10**15,
        }
        self.peer.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
        assert self.server.engine is not None
        self.monitor = JetStreamMonitor(self.server.engine)
        self.times: dict[int, float] = {}  # of messages that pass the filter
        self.undelivered: list[int] = []
        self.pending: dict[int, str] = {}  # sequence to the subject of its acknowledgement
        self.now = 0.0
        self.seq = 0

    def publish(self) -> None:
        subject = self.random.choice(["S.a", "S.b"])
        self.peer.publish(subject)
        self.seq += 1
        if subject == "S.a":
            self.times[self.seq] = self.now
            self.undelivered.append(self.seq)

    def pull(self) -> None:
        count = self.random.randrange(1, 4)
        request = {"batch": count, "no_wait": True}
        reply = "inbox.pull"
        body = str(request).replace("'", '"').replace("True", "true").encode()
        head = f"PUB $JS.API.CONSUMER.MSG.NEXT.S.c {reply} {len(body)}\r\n".encode()
        self.peer.connection.send(head + body + b"\r\n")
        data = self.peer.connection.take()
        for found in re.finditer(rb"MSG S\.a 1 (\$JS\.ACK\.\S+) ", data):
            seq = int(found[1].split(b".")[5])
            assert seq == self.undelivered.pop(0)
            self.pending[seq] = found[1].decode()

    def acknowledge(self) -> None:
        if self.pending:
            seq = self.random.choice(list(self.pending))
            self.peer.ask(self.pending.pop(seq), b"+ACK")
            self.times.pop(seq)

    def remove(self) -> None:
        if self.undelivered:
            seq = self.random.choice(self.undelivered)
            self.peer.api("STREAM.MSG.DELETE.S", {"seq": seq})
            self.undelivered.remove(seq)
            self.times.pop(seq)

    def wait(self) -> None:
        seconds = self.random.choice([0.25, 1.5, 60.0])
        self.server.advance(seconds)
        self.now += seconds

    def check(self) -> None:
        found = scrape(self.monitor)
        labels = 'account="$G",stream="S",consumer="c"'
        undelivered = self.now - self.times[self.undelivered[0]] if self.undelivered else 0
        pending = self.now - self.times[min(self.pending)] if self.pending else 0
        expected = {
            "consumer_lag_seconds": max(undelivered, pending),
            "consumer_undelivered_age_seconds": undelivered,
            "consumer_unacknowledged_age_seconds": pending,
            "consumer_pending_messages": len(self.undelivered),
            "consumer_ack_pending_messages": len(self.pending),
        }
        shown = {name: found[name, labels] for name in expected}
        assert shown == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("seed", range(15))
def test_lag_is_the_age_of_the_oldest_message_that_is_not_done(seed: int) -> None:
    ground = Ground(seed)
    steps = [ground.publish] * 4 + [ground.pull, ground.acknowledge, ground.acknowledge]
    for _ in range(60):
        ground.random.choice([*steps, ground.remove, ground.wait, ground.check])()
    ground.check()


def test_looking_at_the_lag_changes_no_delivery() -> None:
    watched, unwatched = Ground(7), Ground(7)
    for ground in (watched, unwatched):
        ground.random.seed(1)
        for _ in range(40):
            ground.publish()
            if ground is watched:
                ground.check()
        ground.pull()
    assert list(watched.pending) == list(unwatched.pending)


def test_figures_of_a_stream() -> None:
    ground = Ground(1)
    empty = scrape(ground.monitor)
    labels = 'account="$G",stream="S"'
    assert empty["stream_messages", labels] == empty["stream_first_age_seconds", labels] == 0
    for _ in range(3):
        ground.peer.publish("S.a", b"12345")
        ground.server.advance(10)
    found = scrape(ground.monitor)
    assert found["stream_messages", labels] == found["stream_stored_total", labels] == 3
    assert found["stream_consumers", labels] == found["stream_subjects", labels] == 1
    assert found["stream_bytes", labels] > 15
    assert found["stream_first_age_seconds", labels] == pytest.approx(30, abs=0.01)
    assert found["stream_last_age_seconds", labels] == pytest.approx(10, abs=0.01)


def test_assets_beyond_the_limit_and_nameless_consumers_are_combined() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    for number in range(5):
        peer.create(f"S{number}")
        for name in ("one", "two"):
            body = {"stream_name": f"S{number}", "config": {"durable_name": name}}
            peer.api(f"CONSUMER.CREATE.S{number}.{name}", body)
        for _ in range(2):
            body = {"stream_name": f"S{number}", "config": {"ack_policy": "none"}}
            peer.api(f"CONSUMER.CREATE.S{number}", body)
        peer.publish(f"S{number}.x")
    assert server.engine is not None
    monitor = JetStreamMonitor(server.engine)
    found = scrape(monitor, limit=3)
    streams = {
        labels: value for (name, labels), value in found.items() if name == "stream_messages"
    }
    assert len(streams) == 4
    assert streams['account="(other)",stream="(other)"'] == 2
    pending = "consumer_pending_messages"
    consumers = {labels: value for (name, labels), value in found.items() if name == pending}
    assert len(consumers) == 4
    assert sum(consumers.values()) == 20
    assert scrape(monitor, limit=3).keys() == found.keys()
    whole = scrape(monitor)
    assert whole[pending, 'account="$G",stream="S1",consumer="(ephemeral)"'] == 2
    assert len([1 for name, _ in whole if name == pending]) == 5 * 3
    assert len([1 for name, _ in scrape(monitor, limit=0) if name == pending]) == 1


def test_streams_that_go_during_a_scrape_are_left_out() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    for name in ("A", "B", "C"):
        peer.create(name)
    assert server.engine is not None
    steps = JetStreamMonitor(server.engine).stream_metrics(MetricsOptions())
    next(steps)
    next(steps)
    peer.api("STREAM.DELETE.B")
    text = b"".join(at_once(steps)).decode()
    assert 'stream="A"' in text
    assert 'stream="B"' not in text
    assert 'stream="C"' in text


def test_query_of_the_page_is_checked() -> None:
    assert metrics_from_query({}) == MetricsOptions()
    assert not metrics_from_query({"streams": "false"}).streams
    assert metrics_from_query({"limit": "5"}).limit == 5
    assert metrics_from_query({"limit": "99999999999"}).limit == 10_000
    with pytest.raises(PageError):
        metrics_from_query({"limit": "many"})
    with pytest.raises(PageError):
        metrics_from_query({"streams": "perhaps"})
