"""Sources: messages of other streams with new sequences; a header says where they are from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.helpers_publish import Publisher
from conformance.helpers_replicas import message, messages, source_fields, wait_for_last
from harness import ServerProcess, wait_for


def fill(peer: Publisher, name: str, *subjects: str, header: bytes = b"") -> None:
    for subject in subjects:
        reply = peer.publish(f"{name.lower()}.{subject}", subject.encode(), header)
        assert b'"seq"' in reply, reply


def sourcing(peer: Publisher, *sources: dict[str, Any] | str, **config: Any) -> str:
    listed = [{"name": each} if isinstance(each, str) else each for each in sources]
    return peer.create(**{"subjects": [], "sources": listed, **config})


def info_of(peer: Publisher, name: str, origin: str) -> dict[str, Any]:
    found = peer.api(f"STREAM.INFO.{name}")["sources"]
    [info] = [each for each in found if each["name"] == origin]
    return dict(info)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_copies_say_where_they_are_from(peer: Publisher, storage: str) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b")
    fill(peer, origin, "c", header=b"Colour: red")
    name = sourcing(peer, origin, storage=storage)
    wait_for_last(peer, name, 3)
    copies = messages(peer, name)
    lower = origin.lower()
    assert [source_fields(each) for each in copies] == [
        [origin, str(seq), ">", ">", f"{lower}.{subject}"]
        for seq, subject in ((1, "a"), (2, "b"), (3, "c"))
    ]
    assert [each["data"] for each in copies] == ["a", "b", "c"]
    assert copies[2]["hdrs"].startswith("NATS/1.0\r\nColour: red\r\nNats-Stream-Source: ")


def test_stream_takes_messages_of_its_own_beside_those_of_its_sources(peer: Publisher) -> None:
    one, two = peer.create(), peer.create()
    name = sourcing(peer, one, two, subjects=["own.>"])
    fill(peer, one, "a")
    wait_for_last(peer, name, 1)
    assert b'"seq":2' in peer.publish("own.a")
    fill(peer, two, "b", "c")
    wait_for_last(peer, name, 4)
    copies = messages(peer, name)
    assert [each["data"] for each in copies if each["seq"] > 2] == ["b", "c"]
    assert "hdrs" not in copies[1]


def test_filters_and_transforms_are_named_in_the_header(peer: Publisher) -> None:
    origin = peer.create()
    lower = origin.lower()
    fill(peer, origin, "a.1", "b.1", "c.1")
    filtered = sourcing(peer, {"name": origin, "filter_subject": f"{lower}.b.*"})
    wait_for_last(peer, filtered, 1)
    fields = source_fields(message(peer, filtered, 1))
    assert fields == [origin, "2", f"{lower}.b.*", ">", f"{lower}.b.1"]
    transforms = [
        {"src": f"{lower}.a.*", "dest": "moved.$1"},
        {"src": f"{lower}.c.*", "dest": ""},
    ]
    moved = sourcing(peer, {"name": origin, "subject_transforms": transforms})
    wait_for_last(peer, moved, 2)
    first, second = messages(peer, moved)
    filters, destinations = f"{lower}.a.*\x0c{lower}.c.*", "moved.$1\x0c>"
    assert first["subject"] == "moved.1"
    assert source_fields(first) == [origin, "1", filters, destinations, f"{lower}.a.1"]
    assert second["subject"] == f"{lower}.c.1"
    assert source_fields(second) == [origin, "3", filters, destinations, f"{lower}.c.1"]


def test_one_origin_twice_with_different_filters(peer: Publisher) -> None:
    origin = peer.create()
    lower = origin.lower()
    fill(peer, origin, "a", "b", "c")
    listed = [{"name": origin, "filter_subject": f"{lower}.{each}"} for each in "ac"]
    name = sourcing(peer, *listed)
    wait_for_last(peer, name, 2)
    assert sorted(each["subject"] for each in messages(peer, name)) == [f"{lower}.a", f"{lower}.c"]


def test_chain_names_the_stream_in_front(peer: Publisher) -> None:
    origin = peer.create()
    middle = sourcing(peer, origin)
    end = sourcing(peer, middle)
    fill(peer, origin, "a")
    wait_for_last(peer, end, 1)
    fields = source_fields(message(peer, end, 1))
    assert fields == [middle, "1", ">", ">", f"{origin.lower()}.a"]


def test_fields_about_the_publish_are_left_out(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", header=b"Nats-Expected-Last-Sequence: 0")
    name = sourcing(peer, origin)
    wait_for_last(peer, name, 1)
    assert "Expected" not in message(peer, name, 1)["hdrs"]


def test_duplicates_are_passed_over_within_the_window(peer: Publisher) -> None:
    one, two = peer.create(), peer.create()
    name = sourcing(peer, one, two, duplicate_window=120_000_000_000)
    fill(peer, one, "a", header=b"Nats-Msg-Id: 1")
    wait_for_last(peer, name, 1)
    fill(peer, two, "b", header=b"Nats-Msg-Id: 1")
    fill(peer, two, "c", header=b"Nats-Msg-Id: 2")
    wait_for_last(peer, name, 2)
    assert [each["data"] for each in messages(peer, name)] == ["a", "c"]
    assert wait_for(lambda: info_of(peer, name, two).get("seq") == 2)


def test_without_a_window_nothing_is_a_duplicate(peer: Publisher) -> None:
    one, two = peer.create(), peer.create()
    name = sourcing(peer, one, two)
    for origin in (one, two):
        fill(peer, origin, "a", header=b"Nats-Msg-Id: 1")
    wait_for_last(peer, name, 2)


def test_source_starts_at_a_sequence(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b", "c")
    name = sourcing(peer, {"name": origin, "opt_start_seq": 2})
    wait_for_last(peer, name, 2)
    assert [each["data"] for each in messages(peer, name)] == ["b", "c"]


def test_source_that_is_removed_and_added_again_goes_on(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b")
    name = sourcing(peer, origin, subjects=["again.>"])
    wait_for_last(peer, name, 2)
    peer.update(name, sources=[])
    fill(peer, origin, "c")
    peer.update(name, sources=[{"name": origin}])
    wait_for_last(peer, name, 3)
    assert [each["data"] for each in messages(peer, name)] == ["a", "b", "c"]


def test_source_is_added_by_an_update(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a")
    name = peer.create()
    fill(peer, name, "own")
    peer.update(name, sources=[{"name": origin}])
    wait_for_last(peer, name, 2)
    assert [each["data"] for each in messages(peer, name)] == ["own", "a"]


def test_source_whose_filter_is_no_subject_brings_nothing(
    peer: Publisher, js_server: ServerProcess
) -> None:
    """It is refused when a stream is created, but not when it is changed."""
    origin, stream = peer.create(), peer.create()
    wrong = {"name": origin, "filter_subject": f"{origin.lower()}..a"}
    peer.update(stream, sources=[wrong])
    peer.publish(f"{origin.lower()}.a", b"x")
    info = peer.api(f"STREAM.INFO.{stream}")
    assert info["config"]["sources"] == [wrong]
    assert info["state"]["messages"] == 0
    if js_server.kind == "tradewind":  # nats-server does not say why
        assert "is no subject" in info["sources"][0]["error"]["description"]
    peer.update(stream, sources=[{"name": origin}])
    wait_for(lambda: peer.state(stream)["messages"] == 1, "the copy")


def test_full_stream_loses_nothing_and_goes_on(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b", "c")
    name = sourcing(peer, origin, max_msgs=2, discard="new")
    wait_for_last(peer, name, 2)
    peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 1})
    wait_for_last(peer, name, 3)
    assert [each["data"] for each in messages(peer, name)] == ["b", "c"]


def test_information_names_position_lag_and_filters(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b", "c")
    filter_subject = f"{origin.lower()}.b"
    name = sourcing(peer, {"name": origin, "filter_subject": filter_subject}, "NOBODY")
    wait_for_last(peer, name, 1)
    info = info_of(peer, name, origin)
    assert 0 <= info.pop("active") < 10_000_000_000
    assert info == {"name": origin, "lag": 0, "seq": 2, "filter_subject": filter_subject}
    missing = wait_for(lambda: (found := info_of(peer, name, "NOBODY")).get("error") and found)
    error = {"code": 404, "err_code": 10059, "description": "stream not found"}
    assert missing == {"name": "NOBODY", "lag": 0, "active": -1, "error": error}


def test_purged_stream_gets_only_what_is_new(peer: Publisher) -> None:
    origin = peer.create()
    fill(peer, origin, "a", "b")
    name = sourcing(peer, origin)
    wait_for_last(peer, name, 2)
    peer.api(f"STREAM.PURGE.{name}")
    fill(peer, origin, "c")
    wait_for_last(peer, name, 3)
    assert peer.sequences(name) == [3]


def test_publishers_may_not_claim_to_be_a_source(peer: Publisher) -> None:
    name = peer.create()
    code, _ = peer.refusal(f"{name.lower()}.a", b"", b"Nats-Stream-Source: O 1 > > o.1")
    assert code == 10227


def test_cycles_are_refused(peer: Publisher) -> None:
    one = peer.create()
    two = sourcing(peer, one)
    for name in (one, two):
        answer = peer.api(
            f"STREAM.UPDATE.{one}",
            {"name": one, "subjects": [f"{one.lower()}.>"], "sources": [{"name": name}]},
        )
        assert answer["error"]["err_code"] == 10052
        assert answer["error"]["description"] == "detected cycle"


def test_cycle_through_an_empty_prefix(peer: Publisher, js_server: ServerProcess) -> None:
    """nats-server accepts it."""
    name = peer.create()
    source = {"name": name, "external": {"api": "", "deliver": "x"}}
    config = {"name": name, "subjects": [f"{name.lower()}.>"], "sources": [source]}
    answer = peer.api(f"STREAM.UPDATE.{name}", config)
    description = answer.get("error", {}).get("description")
    assert description == ("detected cycle" if js_server.kind == "tradewind" else None)


def test_counters_of_several_streams_become_one_sum(peer: Publisher) -> None:
    one, two = peer.create(allow_msg_counter=True), peer.create(allow_msg_counter=True)
    name = sourcing(
        peer,
        {"name": one, "subject_transforms": [{"src": f"{one.lower()}.*", "dest": "sum.$1"}]},
        {"name": two, "subject_transforms": [{"src": f"{two.lower()}.*", "dest": "sum.$1"}]},
        allow_msg_counter=True,
    )
    for number, (origin, increment) in enumerate([(one, "5"), (two, "+7"), (one, "-2")], 1):
        reply = peer.publish(f"{origin.lower()}.a", b"", f"Nats-Incr: {increment}".encode())
        assert b'"val"' in reply, reply
        wait_for_last(peer, name, number)
    copies = messages(peer, name)
    assert [each["data"] for each in copies] == ['{"val":"5"}', '{"val":"12"}', '{"val":"10"}']
    fields = [
        dict(line.split(": ", 1) for line in each["hdrs"].split("\r\n")[1:] if line)
        for each in copies
    ]
    assert [each["Nats-Incr"] for each in fields] == ["5", "7", "-2"]
    first, second = f"{one.lower()}.a", f"{two.lower()}.a"
    assert [json.loads(each["Nats-Counter-Sources"]) for each in fields] == [
        {one: {first: "5"}},
        {one: {first: "5"}, two: {second: "7"}},
        {one: {first: "3"}, two: {second: "7"}},
    ]
    assert [list(each) for each in fields] == [
        ["Nats-Incr", "Nats-Stream-Source", "Nats-Counter-Sources"]
    ] * 3
