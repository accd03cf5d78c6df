"""Consumers across a leaf connection whose user has permissions.

What the user may not publish to must not keep a consumer from delivering, nor its receiver from
acknowledging.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.helpers_ops import publish, request
from harness import RawClient, wait_for
from leaf_kit import PAIRINGS, Node, joined

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("kinds", PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]),
]
Kinds = tuple[str, str]
STREAM = {"name": "ORD", "subjects": ["ord.>"], "storage": "memory", "retention": "workqueue"}


@contextmanager
def restricted(kinds: Kinds, folder: Path, publishes: str) -> Iterator[tuple[Node, Node]]:
    """A hub that lets its leaf node publish these subjects, each with JetStream of its own."""
    users = (
        "accounts { A { jetstream: enabled, users: [ {user: hub, password: pw}, "
        f"{{user: leaf, password: pw, permissions: {{publish: {publishes}}}}} ] }} }}"
    )
    with joined(
        kinds,
        folder,
        around_hub=f'jetstream {{ store_dir: "{folder}/h", domain: core }}\n{users}',
        around_leaf=f'jetstream {{ store_dir: "{folder}/l", domain: edge }}',
        login="leaf:pw@",
    ) as nodes:
        yield nodes


def ask(client: RawClient, call: str, body: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(request(client, f"$JS.API.{call}", json.dumps(body))[1])
    assert "error" not in answer, answer
    return answer


def deliver(owner: RawClient, subject: str) -> None:
    """A stream with a message, and a consumer that delivers it to a subject."""
    ask(owner, "STREAM.CREATE.ORD", STREAM)
    config = {"durable_name": "C", "deliver_subject": subject, "ack_policy": "explicit"}
    ask(owner, "CONSUMER.CREATE.ORD.C", {"stream_name": "ORD", "config": config})
    request(owner, "ord.1", "x")


def acknowledge(receiver: RawClient, owner: RawClient) -> None:
    """The receiver sees the subject of the stream, and its acknowledgement arrives."""
    line, _, _ = receiver.read_message()
    words = line.split()
    assert words[1] == "ord.1"
    receiver.send(publish(words[3], "+ACK"))

    def is_empty() -> bool:
        return not ask(owner, "STREAM.INFO.ORD", {})["state"]["messages"]

    wait_for(is_empty)


def test_consumer_of_the_leaf_node_delivers_what_its_user_may_not_publish(
    kinds: Kinds, tmp_path: Path
) -> None:
    with restricted(kinds, tmp_path, '"dlv.>"') as (hub, leaf):
        receiver, owner = hub.client(user="hub", **{"pass": "pw"}), leaf.client()
        receiver.send("SUB dlv.x 1\r\n")
        leaf.wait_asked("dlv.x")
        deliver(owner, "dlv.x")
        acknowledge(receiver, owner)


def test_messages_of_the_hub_are_acknowledged_by_a_user_that_may_do_only_that(
    kinds: Kinds, tmp_path: Path
) -> None:
    with restricted(kinds, tmp_path, '"$JS.ACK.>"') as (hub, leaf):
        receiver, owner = leaf.client(), hub.client(user="hub", **{"pass": "pw"})
        receiver.send("SUB dlv.x 1\r\n")
        hub.wait_asked("dlv.x")
        deliver(owner, "dlv.x")
        acknowledge(receiver, owner)
