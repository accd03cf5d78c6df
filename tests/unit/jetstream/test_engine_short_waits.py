"""A consumer that waits nanoseconds for acknowledgements is named in the log, once."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import Peer

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

MS = 1_000_000


@pytest.fixture
def server() -> InProcessServer:
    return InProcessServer(disk=SimulatedDisk())


@pytest.fixture
def peer(server: InProcessServer) -> Peer:
    peer = Peer(server)
    peer.create("S", storage="memory")
    return peer


def create(peer: Peer, name: str, **config: Any) -> None:
    body = {"stream_name": "S", "config": {"name": name, "ack_policy": "explicit", **config}}
    assert "error" not in peer.api(f"CONSUMER.CREATE.S.{name}", body)


def warnings(server: InProcessServer) -> list[str]:
    return [text for text in server.log.texts("warn") if "for an acknowledgement" in text]


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"ack_wait": 30}, "30ns"),
        ({"ack_wait": 100 * MS - 1}, "99.999999ms"),
        ({"backoff": [1000 * MS, 5 * MS], "max_deliver": 5}, "5ms"),
        ({"backoff": [30], "max_deliver": 5}, "30ns"),
    ],
)
def test_a_short_wait_is_logged_with_its_consumer(
    server: InProcessServer, peer: Peer, config: dict[str, Any], shown: str
) -> None:
    create(peer, "c", **config)
    (warning,) = warnings(server)
    assert warning == (
        f"JetStream consumer '$G > S > c' waits only {shown} for an acknowledgement (ack_wait or "
        "backoff), less than 100ms: durations of the API are nanoseconds"
    )


@pytest.mark.parametrize(
    "config", [{}, {"ack_wait": 100 * MS}, {"ack_wait": 30, "ack_policy": "none"}]
)
def test_other_waits_are_not(server: InProcessServer, peer: Peer, config: dict[str, Any]) -> None:
    create(peer, "c", **config)
    assert warnings(server) == []


def test_only_a_change_is_logged_again(server: InProcessServer, peer: Peer) -> None:
    for _ in range(3):
        create(peer, "c", ack_wait=30)
    assert len(warnings(server)) == 1
    create(peer, "c", ack_wait=30, description="the same wait")
    assert len(warnings(server)) == 1
    create(peer, "c", ack_wait=31)
    assert len(warnings(server)) == 2
    create(peer, "c", ack_wait=1000 * MS)
    assert len(warnings(server)) == 2
