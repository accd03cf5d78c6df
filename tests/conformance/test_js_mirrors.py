"""Mirrors: the same sequences and times as the origin, whatever happens to it."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.helpers_publish import Publisher
from conformance.helpers_replicas import message, messages, wait_for_last
from harness import ServerProcess, wait_for

STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])


def mirror_of(peer: Publisher, origin: str, storage: str = "file", **config: Any) -> str:
    mirror = {"name": origin, **config.pop("how", {})}
    return peer.create(subjects=[], mirror=mirror, storage=storage, **config)


def fill(peer: Publisher, name: str, *subjects: str, header: bytes = b"") -> None:
    for subject in subjects:
        reply = peer.publish(f"{name.lower()}.{subject}", subject.encode(), header)
        assert b'"seq"' in reply, reply


@STORAGES
def test_mirror_has_sequences_times_headers_and_gaps_of_the_origin(
    peer: Publisher, storage: str
) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b", "c", "d")
    fill(peer, origin, "e", header=b"Nats-Msg-Id: 7\r\nColour: red")
    peer.api(f"STREAM.MSG.DELETE.{origin}", {"seq": 3})
    mirror = mirror_of(peer, origin, storage)
    state = wait_for_last(peer, mirror, 5)
    assert state["deleted"] == [3]
    assert messages(peer, mirror) == messages(peer, origin)
    fill(peer, origin, "f")
    wait_for_last(peer, mirror, 6)
    assert message(peer, mirror, 6) == message(peer, origin, 6)


def test_mirror_answers_no_publishes_and_stores_none(peer: Publisher) -> None:
    origin = peer.create()
    mirror = mirror_of(peer, origin)
    assert peer.publish(f"{mirror.lower()}.a").startswith(b"NATS/1.0 503")
    assert peer.state(mirror)["messages"] == 0


def test_mirror_of_a_trimmed_origin_begins_where_it_begins(peer: Publisher) -> None:
    origin = peer.create(first_seq=1000)
    mirror = mirror_of(peer, origin)
    state = wait_for_last(peer, mirror, 999)
    assert state["first_seq"] == 1000
    fill(peer, origin, "a")
    assert wait_for_last(peer, mirror, 1000)["first_seq"] == 1000


def test_mirror_starts_at_a_sequence_or_behind_the_end(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b", "c", "d")
    mirror = mirror_of(peer, origin, how={"opt_start_seq": 3})
    assert wait_for_last(peer, mirror, 4)["first_seq"] == 3
    behind = mirror_of(peer, origin, how={"opt_start_seq": 100})
    state = wait_for_last(peer, behind, 99)
    assert (state["first_seq"], state["messages"]) == (100, 0)


def test_mirror_starts_at_a_time(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b", "c")
    start = message(peer, origin, 2)["time"]
    mirror = mirror_of(peer, origin, how={"opt_start_time": start})
    assert wait_for_last(peer, mirror, 3)["first_seq"] == 2


def test_filtered_mirror_keeps_sequences(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a.1", "b.1", "a.2", "b.2", "a.3", "b.3")
    mirror = mirror_of(peer, origin, how={"filter_subject": f"{origin.lower()}.b.*"})
    state = wait_for_last(peer, mirror, 6)
    assert (state["first_seq"], state["messages"], state["deleted"]) == (2, 3, [3, 5])


def test_mirror_transforms_subjects_by_the_first_that_matches(peer: Publisher) -> None:
    origin = peer.create()
    lower = origin.lower()
    fill(peer, origin, "a.1", "b.1", "c.1")
    transforms = [
        {"src": f"{lower}.a.*", "dest": "first.$1"},
        {"src": f"{lower}.c.*", "dest": ""},
    ]
    mirror = mirror_of(
        peer,
        origin,
        how={"subject_transforms": transforms},
        subject_transform={"src": "first.*", "dest": "second.$1"},
    )
    wait_for_last(peer, mirror, 3)
    found = [(each["seq"], each["subject"]) for each in messages(peer, mirror)]
    assert found == [(1, "second.1"), (3, f"{lower}.c.1")]


def test_fields_about_the_publish_are_left_out(peer: Publisher) -> None:
    origin = peer.create(allow_atomic=True)
    fill(peer, origin, "a", header=b"Nats-Expected-Last-Sequence: 0\r\nColour: red")
    fill(peer, origin, "b", header=b"Nats-Expected-Last-Sequence: 1")
    mirror = mirror_of(peer, origin)
    wait_for_last(peer, mirror, 2)
    assert message(peer, mirror, 1)["hdrs"] == "NATS/1.0\r\nColour: red\r\n\r\n"
    assert "hdrs" not in message(peer, mirror, 2)


def test_purge_of_the_origin_leaves_the_mirror_and_new_messages_follow(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b")
    mirror = mirror_of(peer, origin)
    wait_for_last(peer, mirror, 2)
    peer.api(f"STREAM.PURGE.{origin}", {"seq": 0})
    fill(peer, origin, "c")
    state = wait_for_last(peer, mirror, 3)
    assert (state["first_seq"], state["messages"]) == (1, 3)


def test_messages_may_be_removed_from_a_mirror(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b", "c")
    mirror = mirror_of(peer, origin)
    wait_for_last(peer, mirror, 3)
    peer.api(f"STREAM.MSG.DELETE.{mirror}", {"seq": 2})
    assert peer.sequences(mirror) == [1, 3]
    peer.api(f"STREAM.PURGE.{mirror}")
    fill(peer, origin, "d")
    state = wait_for_last(peer, mirror, 4)
    assert (state["first_seq"], state["messages"]) == (4, 1)


def test_limits_of_the_mirror_are_its_own(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b", "c", "d")
    mirror = mirror_of(peer, origin, max_msgs=2)
    state = wait_for_last(peer, mirror, 4)
    assert (state["first_seq"], state["messages"]) == (3, 2)


def test_roll_up_happens_where_it_is_allowed(peer: Publisher) -> None:
    origin = peer.create(allow_rollup_hdrs=True)
    rolling = mirror_of(peer, origin, allow_rollup_hdrs=True)
    keeping = mirror_of(peer, origin)
    fill(peer, origin, "a", "b", "a")
    for mirror in (rolling, keeping):
        wait_for_last(peer, mirror, 3)
    fill(peer, origin, "a", header=b"Nats-Rollup: sub")
    assert wait_for_last(peer, keeping, 4)["messages"] == 4
    wait_for_last(peer, rolling, 4)
    wait_for(lambda: peer.state(rolling)["messages"] == 2)
    assert "Nats-Rollup: sub" in message(peer, keeping, 4)["hdrs"]


def test_mirror_for_interest_without_consumers_keeps_nothing(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b")
    mirror = mirror_of(peer, origin, retention="interest")
    state = wait_for_last(peer, mirror, 2)
    assert (state["first_seq"], state["messages"]) == (3, 0)


def test_mirror_of_a_mirror(peer: Publisher) -> None:
    origin = peer.create()
    first = mirror_of(peer, origin)
    second = mirror_of(peer, first)
    fill(peer, origin, "a", "b")
    wait_for_last(peer, second, 2)
    assert messages(peer, second) == messages(peer, origin)


def test_information_names_the_origin_and_its_filters(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b")
    filter_subject = f"{origin.lower()}.a"
    mirror = mirror_of(peer, origin, how={"filter_subject": filter_subject})
    wait_for(lambda: peer.api(f"STREAM.INFO.{mirror}")["mirror"]["active"] >= 0)
    wait_for_last(peer, mirror, 1)
    info = peer.api(f"STREAM.INFO.{mirror}")["mirror"]
    assert 0 <= info.pop("active") < 10_000_000_000
    assert info == {"name": origin, "lag": 0, "filter_subject": filter_subject}
    assert "sources" not in peer.api(f"STREAM.INFO.{mirror}")
    assert "mirror" not in peer.api(f"STREAM.INFO.{origin}")


def test_origin_that_is_not_there_is_an_error_in_the_information(peer: Publisher) -> None:
    mirror = mirror_of(peer, "NOBODY")
    info = wait_for(
        lambda: (found := peer.api(f"STREAM.INFO.{mirror}")["mirror"]).get("error") and found
    )
    assert info == {
        "name": "NOBODY",
        "lag": 0,
        "active": -1,
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
    }


def test_mirror_is_promoted_and_goes_on_behind_its_last_sequence(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b")
    mirror = mirror_of(peer, origin)
    wait_for_last(peer, mirror, 2)
    answer = peer.api(f"STREAM.UPDATE.{mirror}", {"name": mirror, "subjects": ["promoted.>"]})
    assert "mirror" not in answer
    assert answer["config"]["duplicate_window"] == 120_000_000_000
    assert b'"seq":3' in peer.publish("promoted.a")
    fill(peer, origin, "c", "d")
    assert peer.state(mirror)["last_seq"] == 3


@STORAGES
def test_a_promoted_mirror_refuses_what_its_origin_has_taken(
    peer: Publisher, storage: str, js_server: ServerProcess
) -> None:
    """nats-server stores it again: it looks for no ids when a mirror is promoted."""
    origin = peer.create()
    fill(peer, origin, "a", header=b"Nats-Msg-Id: 7")
    mirror = mirror_of(peer, origin, storage)
    wait_for_last(peer, mirror, 1)
    subject = f"again{mirror.lower()}"
    peer.api(f"STREAM.UPDATE.{mirror}", {"name": mirror, "subjects": [subject], "storage": storage})
    again = peer.publish(subject, b"a", b"Nats-Msg-Id: 7")
    if js_server.kind == "official":
        assert b'"seq":2' in again
        assert b"duplicate" not in again
    else:
        assert b'"seq":1' in again
        assert b'"duplicate": true' in again
    # From now on both know.
    fresh = [peer.publish(subject, b"b", b"Nats-Msg-Id: 8") for _ in range(2)]
    assert [b"duplicate" in answer for answer in fresh] == [False, True]


def test_what_a_mirror_is_of_cannot_be_changed(peer: Publisher) -> None:
    origin, other = peer.create(), peer.create()
    mirror = mirror_of(peer, origin)
    for name, config in (
        (mirror, {"mirror": {"name": other}}),
        (mirror, {"mirror": {"name": origin, "filter_subject": "a"}}),
        (other, {"mirror": {"name": origin}}),
    ):
        error = peer.api(f"STREAM.UPDATE.{name}", {"name": name, **config})["error"]
        assert (error["code"], error["err_code"]) == (400, 10055), error


@pytest.mark.parametrize(("allows", "expected"), [(True, True), (False, False)])
def test_mirror_direct_is_what_the_origin_allows(
    peer: Publisher, allows: bool, expected: bool
) -> None:
    origin = peer.create(allow_direct=allows)
    mirror = mirror_of(peer, origin, mirror_direct=not allows)
    assert peer.api(f"STREAM.INFO.{mirror}")["config"]["mirror_direct"] is expected


def test_mirror_answers_direct_gets_for_its_origin(peer: Publisher) -> None:
    origin = peer.create(allow_direct=True)
    fill(peer, origin, "a")
    mirror = mirror_of(peer, origin, mirror_direct=True)
    wait_for_last(peer, mirror, 1)
    assert peer.api(f"STREAM.DELETE.{origin}")["success"]
    request = b'{"seq":1}'

    def answer() -> bytes:
        return peer.publish(f"$JS.API.DIRECT.GET.{origin}", request)

    assert f"Nats-Stream: {mirror}\r\n".encode() in wait_for(
        lambda: found if b"503" not in (found := answer())[:20] else b""
    )
    peer.api(f"STREAM.DELETE.{mirror}")
    wait_for(lambda: b"503" in answer()[:20])
