"""Subjects of acknowledgements and flow control that name domain and account: `js_ack_fc_v2`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.helpers_consumer import SECOND, Peer
from conformance.helpers_js import ApiClient
from harness import ServerProcess


@pytest.fixture(params=["official", "tradewind"])
def peer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Peer]:
    config = tmp_path / "server.conf"
    config.write_text(
        'listen: "127.0.0.1:-1"\nfeature_flags { js_ack_fc_v2: true }\n'
        f'jetstream {{ domain: hub, store_dir: "{tmp_path}" }}\n'
    )
    process = ServerProcess(request.param, ["-c", str(config)])
    try:
        process.wait_ready()
        with ApiClient(process) as js:
            peer = Peer(process, js)
            yield peer
            peer.raw.close()
    finally:
        process.stop()


def test_replies_name_domain_and_account_and_both_forms_are_taken(peer: Peer) -> None:
    peer.stream("a", "b", "c")
    peer.consumer()
    peer.subscribe("inbox")
    first, second, third = peer.fetch(3)
    words = first.reply.split(".")
    assert words[:2] == ["$JS", "ACK"]
    assert words[2] == "hub"
    assert words[4:9] == ["S", "C", "1", "1", "1"]
    peer.ack(first)
    short = ".".join(["$JS", "ACK", *second.reply.split(".")[4:]])
    peer.ack(replace(second, reply=short))
    peer.ack(replace(third, reply=f"{third.reply}.more"))
    assert peer.info()["num_ack_pending"] == 0


def test_questions_of_flow_control_name_domain_and_account(peer: Peer) -> None:
    peer.stream("a", "b")
    peer.consumer(
        ack_policy="flow_control",
        deliver_subject="out",
        idle_heartbeat=60 * SECOND,
        max_ack_pending=1,
    )
    peer.subscribe("out")
    message, question = peer.take(2)
    ack_words, flow_words = message.reply.split("."), question.reply.split(".")
    assert flow_words[:6] == ["$JS", "FC", *ack_words[2:6]]
    assert len(flow_words) == 7
    size = len(header := "NATS/1.0\r\nNats-Last-Stream: 1\r\nNats-Last-Consumer: 1\r\n\r\n")
    peer.raw.send(f"HPUB {question.reply} {size} {size}\r\n{header}\r\n")
    assert peer.next().subject == "s.b"
