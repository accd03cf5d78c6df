"""Consumers that a server makes on the origin of a mirror or source, as any client may ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.helpers_publish import Publisher
from harness import wait_for

LEVEL = b"Nats-Required-Api-Level: 5"


def sourcing(name: str, deliver: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "deliver_policy": "all",
        "ack_policy": "none",
        "ack_wait": 79_200_000_000_000,
        "max_deliver": 1,
        "flow_control": True,
        "deliver_subject": deliver,
        "idle_heartbeat": 1_000_000_000,
        "inactive_threshold": 10_000_000_000,
        "direct": True,
        "sourcing": True,
        **changes,
    }


def ask(
    peer: Publisher, stream: str, config: dict[str, Any], identity: str = ""
) -> tuple[str, dict[str, Any]]:
    """The identity in the header of the answer, and the answer."""
    body = json.dumps({"stream_name": stream, "config": config}).encode()
    header = LEVEL + b"\r\nNats-Stream-Identity: " + identity.encode()
    peer.send(f"$JS.API.CONSUMER.CREATE.{stream}", body, header)
    line, block, payload = peer.client.read_message()
    while line.split(" ")[2] != "1":  # a heartbeat or a question of the consumer
        line, block, payload = peer.client.read_message()
    line = block.decode().partition("Nats-Stream-Identity: ")[2]
    return line.partition("\r\n")[0], json.loads(payload)


def user(peer: Publisher, stream: str, name: str) -> dict[str, Any]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit"}
    body = {"stream_name": stream, "config": config}
    return dict(peer.api(f"CONSUMER.CREATE.{stream}.{name}", body))


def test_one_of_a_limits_stream_is_hidden_and_gets_a_name_of_its_own(peer: Publisher) -> None:
    stream = peer.create(max_consumers=1, storage="memory")
    identity, answer = ask(peer, stream, sourcing("one", "there"))
    assert len(identity) == 8
    name = answer["name"]
    assert name.startswith("one-")
    assert len(name) == len("one-") + 8
    assert answer["config"]["direct"]
    again = ask(peer, stream, sourcing("one", "there"))
    assert again[0] == identity
    assert again[1]["name"] != name
    assert peer.api(f"CONSUMER.NAMES.{stream}")["consumers"] in (None, [])
    assert peer.state(stream)["consumer_count"] == 0
    # They do not count against the limit of the stream.
    assert "error" not in user(peer, stream, "mine")
    assert user(peer, stream, "another")["error"]["err_code"] == 10026
    assert peer.api(f"CONSUMER.INFO.{stream}.{name}")["name"] == name


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_one_of_a_stream_that_keeps_messages_is_a_durable(peer: Publisher, retention: str) -> None:
    name = peer.create(retention=retention, max_consumers=1, storage="memory")
    _, answer = ask(peer, name, sourcing("one", "there"))
    wanted = {
        "name": "one",
        "durable_name": "one",
        "ack_policy": "flow_control",
        "max_deliver": -1,
        "max_ack_pending": 1000,
        "sourcing": True,
        "deliver_subject": "there",
    }
    config = answer["config"]
    assert {key: config.get(key) for key in wanted} == wanted
    assert not {"direct", "ack_wait", "inactive_threshold"} & config.keys()
    assert config["metadata"]["_nats.req.level"] == "4"
    assert peer.api(f"CONSUMER.NAMES.{name}")["consumers"] == ["one"]
    assert peer.state(name)["consumer_count"] == 1
    # It may stand beside others, and begin where it likes.
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": 4}
    assert "error" not in ask(peer, name, sourcing("two", "elsewhere", **start))[1]
    assert "error" not in user(peer, name, "mine")
    assert user(peer, name, "another")["error"]["err_code"] == 10026


def test_a_message_of_a_work_queue_goes_when_both_have_taken_it(peer: Publisher) -> None:
    stream = peer.create(retention="workqueue", storage="memory")
    assert "error" not in user(peer, stream, "mine")
    assert "error" not in ask(peer, stream, sourcing("one", "nobody.listens"))[1]
    for _ in range(2):
        peer.publish(f"{stream.lower()}.a", b"x")
    # The user acknowledges the first; the copy has not even been sent.
    peer.send(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.mine", b"1")
    line, _, _ = peer.client.read_message()
    peer.publish(line.split(" ")[3], b"+ACK")
    wait_for(lambda: peer.api(f"CONSUMER.INFO.{stream}.mine")["ack_floor"]["stream_seq"] == 1)
    assert peer.state(stream)["messages"] == 2
    assert peer.api(f"CONSUMER.DELETE.{stream}.one")["success"]


def test_its_reader_comes_again_with_another_subject(peer: Publisher) -> None:
    stream = peer.create(retention="workqueue", storage="memory")
    peer.publish(f"{stream.lower()}.a", b"1")
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": 1}
    assert "error" not in ask(peer, stream, sourcing("one", "first", **start))[1]
    peer.client.send("SUB first 7\r\n")
    line, _, payload = peer.client.read_message()
    assert payload == b"1"
    assert line.split(" ")[3].startswith(f"$JS.ACK.{stream}.one.1.1.1.")
    # While somebody listens to the old one it is in use.
    taken = sourcing("one", "second", deliver_policy="by_start_sequence", opt_start_seq=9)
    answers: list[dict[str, Any]] = []

    def is_let() -> bool:
        answers.append(ask(peer, stream, taken)[1])
        return "error" not in answers[-1]

    assert not is_let()
    assert answers[0]["error"]["err_code"] == 10013
    peer.client.send("UNSUB 7\r\n")
    wait_for(is_let)
    assert answers[-1]["config"]["opt_start_seq"] == 1
    assert answers[-1]["delivered"]["consumer_seq"] == 0
    peer.client.send("SUB second 8\r\n")
    line, _, payload = peer.client.read_message()
    assert (payload, line.split(" ")[1]) == (b"1", f"{stream.lower()}.a")
    assert line.split(" ")[3].startswith(f"$JS.ACK.{stream}.one.1.1.1.")
    peer.client.send("UNSUB 8\r\n")


def test_another_stream_of_the_same_name_is_refused(peer: Publisher) -> None:
    stream = peer.create(storage="memory")
    identity, _ = ask(peer, stream, sourcing("one", "there"))
    assert "error" not in ask(peer, stream, sourcing("one", "there"), identity)[1]
    _, answer = ask(peer, stream, sourcing("one", "there"), "otherone")
    assert answer["error"] == {
        "code": 400,
        "err_code": 10225,
        "description": f"consumer's stream identity does not match: {identity}",
    }
