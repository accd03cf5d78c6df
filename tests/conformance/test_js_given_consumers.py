"""Mirrors and sources that read through a durable which somebody has made for them."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.helpers_publish import Publisher
from conformance.helpers_replicas import messages, source_fields, wait_for_last
from harness import wait_for


def make_consumer(peer: Publisher, origin: str, **changes: Any) -> dict[str, Any]:
    """A durable that is acknowledged by flow control; gives what names it in a source."""
    deliver = f"deliver.{origin}"
    config = {
        "name": "given",
        "durable_name": "given",
        "ack_policy": "flow_control",
        "deliver_subject": deliver,
        **changes,
    }
    body = {"stream_name": origin, "config": config}
    answer = peer.api(f"CONSUMER.CREATE.{origin}.given", body)
    assert "error" not in answer, answer
    return {"name": "given", "deliver_subject": deliver}


def fill(peer: Publisher, name: str, *payloads: str) -> None:
    for payload in payloads:
        assert b'"seq"' in peer.publish(f"{name.lower()}.a", payload.encode())


def replica(peer: Publisher, name: str) -> dict[str, Any]:
    info = peer.api(f"STREAM.INFO.{name}")
    found: dict[str, Any] = info.get("mirror") or info["sources"][0]
    return found


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_source_copies_and_acknowledges(peer: Publisher, retention: str) -> None:
    origin = peer.create(retention=retention, storage="memory")
    given = make_consumer(peer, origin)
    fill(peer, origin, "1", "2")
    copy = peer.create(subjects=[], sources=[{"name": origin, "consumer": given}], storage="memory")
    wait_for_last(peer, copy, 2)
    fill(peer, origin, "3")
    wait_for_last(peer, copy, 3)
    assert [each["data"] for each in messages(peer, copy)] == ["1", "2", "3"]
    fields = source_fields(messages(peer, copy)[0])
    assert fields[0].startswith(f"{origin}:C=")
    assert fields[1:4] == ["1", ">", ">"]
    info = f"CONSUMER.INFO.{origin}.given"
    wait_for(lambda: peer.api(info)["ack_floor"]["stream_seq"] == 3)
    left = 3 if retention == "limits" else 0
    wait_for(lambda: peer.state(origin)["messages"] == left)
    assert "error" not in replica(peer, copy)
    # It is not theirs to delete.
    peer.api(f"STREAM.DELETE.{copy}")
    assert peer.api(f"CONSUMER.NAMES.{origin}")["consumers"] == ["given"]


def test_mirror_begins_where_the_consumer_begins(peer: Publisher) -> None:
    origin = peer.create(storage="memory")
    fill(peer, origin, "1", "2", "3", "4")
    given = make_consumer(peer, origin, deliver_policy="by_start_sequence", opt_start_seq=3)
    mirror = peer.create(subjects=[], mirror={"name": origin, "consumer": given}, storage="memory")
    state = wait_for_last(peer, mirror, 4)
    assert (state["first_seq"], state["messages"]) == (3, 2)


@pytest.mark.parametrize(("kind", "code"), [("mirror", 10214), ("sources", 10217)])
def test_another_ack_policy_is_told(peer: Publisher, kind: str, code: int) -> None:
    origin = peer.create(storage="memory")
    given = make_consumer(peer, origin, ack_policy="none")
    source = {"name": origin, "consumer": given}
    copy = peer.create(
        subjects=[], **{kind: source if kind == "mirror" else [source]}, storage="memory"
    )
    wait_for(lambda: replica(peer, copy).get("error", {}).get("err_code") == code)


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"consumer": {"name": "a.b", "deliver_subject": "d"}}, (10213, 10215)),
        ({"consumer": {"name": "a", "deliver_subject": "d.*"}}, (10213, 10215)),
        ({"consumer": {"name": "a", "deliver_subject": "d"}, "opt_start_seq": 2}, (10213, 10215)),
    ],
)
def test_what_a_given_consumer_cannot_be_is_refused(
    peer: Publisher, changes: dict[str, Any], codes: tuple[int, int]
) -> None:
    source = {"name": "ORIGIN", **changes}
    for config, code in zip(({"mirror": source}, {"sources": [source]}), codes, strict=True):
        answer = peer.api("STREAM.CREATE.GIVEN", {"name": "GIVEN", **config})
        assert answer["error"]["err_code"] == code


def test_one_consumer_serves_one_source(peer: Publisher) -> None:
    given = {"name": "a", "deliver_subject": "d"}
    sources = [
        {"name": "ORIGIN", "consumer": given, "subject_transforms": [{"src": src, "dest": ""}]}
        for src in ("a", "b")
    ]
    answer = peer.api("STREAM.CREATE.GIVEN", {"name": "GIVEN", "sources": sources})
    assert answer["error"]["err_code"] == 10216
