"""Mirrors and sources that read through a consumer which somebody has made for them."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import Peer
from origin_kit import EXTERNAL, Pair

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

GIVEN = {"name": "c", "deliver_subject": "deliver.c"}
RETRY_SECONDS = 31


def make_consumer(peer: Peer, **changes: Any) -> None:
    config = {
        "name": "c",
        "durable_name": "c",
        "ack_policy": "flow_control",
        "deliver_subject": "deliver.c",
        "flow_control": True,
        "idle_heartbeat": 1_000_000_000,
        **changes,
    }
    peer.take()
    answer = peer.api("CONSUMER.CREATE.O.c", {"stream_name": "O", "config": config})
    assert "error" not in answer, answer


@pytest.fixture(params=["elsewhere", "here"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """With the origin on another server, and on the same."""
    pair = Pair()
    if request.param == "here":
        pair.here = pair.there
    return pair


def given(pair: Pair) -> dict[str, Any]:
    """The source in a configuration."""
    source: dict[str, Any] = {"name": "O", "consumer": GIVEN}
    return source if pair.here is pair.there else {**source, "external": EXTERNAL}


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_each_message_is_copied_and_acknowledged(pair: Pair, retention: str) -> None:
    pair.origin(retention=retention)
    make_consumer(pair.here)
    pair.fill("1", "2")
    pair.copy("S", sources=[given(pair)])
    pair.fill("3")
    assert pair.payloads("S") == ["1", "2", "3"]
    pair.advance(3)
    info = pair.here.api("CONSUMER.INFO.O.c")
    assert info["ack_floor"]["stream_seq"] == 3
    assert pair.held() == (3 if retention == "limits" else 0)
    assert pair.problem("S") == ""


def test_it_begins_where_the_consumer_does_and_outlives_the_mirror(pair: Pair) -> None:
    pair.origin()
    pair.fill("1", "2", "3", "4")
    make_consumer(pair.here, deliver_policy="by_start_sequence", opt_start_seq=3)
    pair.copy("M", mirror=given(pair))
    assert pair.stored("M") == [(3, "3"), (4, "4")]
    pair.there.take()
    assert pair.there.api("STREAM.DELETE.M")["success"]
    pair.run()
    pair.here.take()
    assert pair.here.api("CONSUMER.NAMES.O")["consumers"] == ["c"]


def test_a_reset_by_somebody_else_copies_nothing_twice(pair: Pair) -> None:
    pair.origin()
    make_consumer(pair.here)
    pair.copy("S", sources=[given(pair)])
    pair.fill("1", "2", "3")
    pair.advance(2)
    pair.here.take()
    pair.here.ask("$JS.API.CONSUMER.RESET.O.c", {"seq": 1})
    pair.run()
    pair.fill("4")
    pair.advance(RETRY_SECONDS)
    assert pair.payloads("S") == ["1", "2", "3", "4"]
    assert pair.problem("S") == ""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("mirror", "stream mirror consumer requires flow control ack policy"),
        ("sources", "stream source consumer requires flow control ack policy"),
    ],
)
def test_another_ack_policy_is_told(pair: Pair, kind: str, text: str) -> None:
    pair.origin()
    make_consumer(pair.here, ack_policy="none", flow_control=False, idle_heartbeat=0)
    source = given(pair)
    pair.copy("S", **{kind: source if kind == "mirror" else [source]})
    assert pair.problem("S") == text


def test_a_consumer_that_is_missing_is_told_and_found_later(pair: Pair) -> None:
    pair.origin()
    pair.fill("1")
    pair.copy("S", sources=[given(pair)])
    assert pair.problem("S") == "consumer not found"
    make_consumer(pair.here)
    pair.advance(RETRY_SECONDS)
    assert pair.payloads("S") == ["1"]
    assert pair.problem("S") == ""


def test_another_deliver_subject_is_told(pair: Pair) -> None:
    pair.origin()
    make_consumer(pair.here, deliver_subject="other")
    pair.copy("S", sources=[given(pair)])
    assert pair.problem("S") == "consumer 'c' delivers to 'other', not to 'deliver.c'"


def test_a_killed_server_goes_on_with_its_given_consumer() -> None:
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = Peer(server)
    peer.create("O", retention="workqueue")
    make_consumer(peer)
    peer.create("S", subjects=[], sources=[{"name": "O", "consumer": GIVEN}])
    for number in range(5):
        peer.publish("O.a", b"%d" % number)
    server = InProcessServer(disk=disk.crash_losing_unsynced())
    server.advance(3)
    peer = Peer(server)
    peer.publish("O.a", b"5")
    server.advance(3)
    peer.take()
    assert peer.api("STREAM.INFO.S")["state"]["messages"] == 6
    assert peer.api("STREAM.INFO.O")["state"]["messages"] == 0
