"""Removals of many messages at once: others have their turn, and answers wait until it is true.

Nothing is timed. Steps are made small, and counted: what a step removes is what everybody else has
to wait for.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.api.base import encode
from tradewind.jetstream.hosted import HostedStream
from tradewind.stream import upkeep
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

STEP = 10
ROLL_UP = b"NATS/1.0\r\nNats-Rollup: %s\r\n\r\n"


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "REMOVED_PER_STEP", STEP)


def open_server(disk: SimulatedDisk, **options: Any) -> tuple[InProcessServer, Peer]:
    server = InProcessServer(disk=disk, **options)
    return server, Peer(server)


def filled(count: int, subjects: int, **config: Any) -> tuple[InProcessServer, Peer]:
    server, peer = open_server(SimulatedDisk())
    assert "error" not in peer.create("S", **config)
    for number in range(count):
        assert peer.publish(f"S.{number % subjects}") is not None
    return server, peer


def hosted(server: InProcessServer) -> HostedStream:
    assert server.engine is not None
    return server.engine.accounts["$G"].streams["S"]


def messages(server: InProcessServer) -> int:
    return hosted(server).stream.store.msgs


def answers(peer: Peer) -> list[dict[str, Any]]:
    return [json.loads(payload) for *_, payload in peer.take()]


def roll_up(peer: Peer, subject: str, kind: bytes, reply: str = "inbox.roll") -> None:
    header = ROLL_UP % kind
    line = f"HPUB {subject} {reply} {len(header)} {len(header) + 1}\r\n".encode()
    peer.connection.send(line + header + b"r\r\n")


def update(peer: Peer, config: dict[str, Any]) -> list[Any]:
    body = {"name": "S", "subjects": ["S.>"], **config}
    return peer.ask("$JS.API.STREAM.UPDATE.S", body)


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("config", "left"),
    [
        ({"max_msgs_per_subject": 1}, 5),
        ({"max_msgs": 7}, 7),
        ({"max_bytes": 300}, 8),
        ({"max_msgs_per_subject": 2, "max_msgs": 7}, 7),
    ],
)
def test_lowered_limits_are_applied_in_steps_before_the_answer(
    config: dict[str, Any], left: int
) -> None:
    server, peer = filled(200, 5)
    server.workers.is_held = True
    assert update(peer, config) == []
    server.workers.run_next()  # the configuration is on disk
    steps, before = 0, messages(server)
    while server.workers.waiting_count:
        assert answers(peer) == []
        server.workers.run_next()
        assert before - messages(server) <= STEP
        steps, before = steps + 1, messages(server)
    server.run_until_idle()
    (answer,) = answers(peer)
    assert steps >= (200 - left) // STEP
    assert answer["state"]["messages"] == messages(server) == left


def test_age_that_was_lowered_is_applied_in_steps_before_the_answer() -> None:
    server, peer = filled(100, 5)
    server.clock.advance_ns(5_000_000_000)
    server.workers.is_held = True
    second = 1_000_000_000
    assert update(peer, {"max_age": second, "duplicate_window": second}) == []
    while server.workers.waiting_count:
        before = messages(server)
        server.workers.run_next()
        assert before - messages(server) <= STEP
    server.run_until_idle()
    assert [answer["state"]["messages"] for answer in answers(peer)] == [0]


def test_publishes_between_the_steps_are_kept_and_answered() -> None:
    server, peer = filled(200, 5)
    server.workers.is_held = True
    assert update(peer, {"max_msgs_per_subject": 1, "max_msgs": 3}) == []
    server.workers.run_next()
    server.workers.run_next()
    for number in range(5):
        assert peer.publish(f"S.{number}") == {"stream": "S", "seq": 201 + number}
    server.workers.run_all()
    server.run_until_idle()
    assert [answer["state"]["messages"] for answer in answers(peer)] == [3]
    store = hosted(server).stream.store
    assert [message.seq for message in store.messages()] == [203, 204, 205]


def test_one_publish_does_not_remove_all_that_lowered_limits_do_not_allow() -> None:
    server, peer = filled(200, 1)
    server.workers.is_held = True
    assert update(peer, {"max_msgs_per_subject": 1, "max_msgs": 1}) == []
    server.workers.run_next()
    before = messages(server)
    peer.publish("S.0")
    assert before - messages(server) <= STEP


def test_limits_that_a_stop_has_interrupted_are_applied_by_the_next_start() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    peer.create("S")
    for number in range(50):
        peer.publish(f"S.{number % 5}")
    server.workers.is_held = True
    update(peer, {"max_msgs_per_subject": 1})
    server.workers.run_next()
    server, peer = open_server(disk.crash_losing_unsynced())
    assert peer.api("STREAM.INFO.S")["state"]["messages"] == 5


def test_removals_that_many_consumers_are_told_of_go_in_smaller_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "REMOVED_PER_STEP_MIN", 2)
    server, peer = filled(1, 1)
    assert hosted(server).stream.upkeep.step_size == STEP
    for number in range(upkeep.CONSUMERS_PER_COST):
        config = {"durable_name": f"c{number}", "ack_policy": "explicit"}
        body = {"stream_name": "S", "config": config}
        assert "error" not in peer.api(f"CONSUMER.CREATE.S.c{number}", body)
    assert hosted(server).stream.upkeep.step_size == STEP // 2


# ---------------------------------------------------------------- roll-ups


@pytest.mark.parametrize(("kind", "left"), [(b"all", 1), (b"sub", 101)])
def test_message_that_replaces_many_is_answered_when_they_are_gone(kind: bytes, left: int) -> None:
    server, peer = filled(200, 2, allow_rollup_hdrs=True)
    roll_up(peer, "S.0", kind)
    assert answers(peer) == []
    steps = 0
    while not (found := answers(peer)):
        before = messages(server)
        assert server.engine is not None
        server.engine.tick()
        assert before - messages(server) <= STEP
        server.run_until_idle()
        steps += 1
    assert found == [{"stream": "S", "seq": 201}]
    assert steps >= 100 // STEP - 1
    assert messages(server) == left


def test_nobody_sees_a_message_beside_those_that_it_replaces() -> None:
    server, peer = filled(200, 1, allow_rollup_hdrs=True, allow_direct=True)
    roll_up(peer, "S.0", b"sub")
    assert peer.publish("S.1") is None
    _, header, _ = peer.ask("$JS.API.DIRECT.GET.S.S.0")[0]
    assert b"Nats-Sequence: 200\r\n" in header
    assert peer.ask("$JS.API.DIRECT.GET.S.S.1") == []
    server.advance(0.001)
    *acks, (_, header, _) = peer.take()
    assert [json.loads(body)["seq"] for _, _, body in acks] == [201, 202]
    assert b"Nats-Sequence: 202\r\n" in header
    _, header, _ = peer.ask("$JS.API.DIRECT.GET.S.S.0")[0]
    assert b"Nats-Sequence: 201\r\n" in header


def test_message_that_replaces_few_is_answered_at_once() -> None:
    _, peer = filled(8, 2, allow_rollup_hdrs=True)
    roll_up(peer, "S.0", b"sub")
    assert answers(peer) == [{"stream": "S", "seq": 9}]


def test_roll_ups_of_one_turn_share_what_a_turn_may_remove() -> None:
    server, peer = filled(90, 30, allow_rollup_hdrs=True)
    before = messages(server)
    header = ROLL_UP % b"sub"
    head = f"{len(header)} {len(header) + 1}\r\n".encode() + header + b"r\r\n"
    peer.connection.send(b"".join(b"HPUB S.%d inbox.r %s" % (n, head) for n in range(30)))
    assert before + 30 - messages(server) <= 2 * STEP
    server.advance(0.001)
    assert [answer["seq"] for answer in answers(peer)] == list(range(91, 121))
    assert messages(server) == 30


def test_acknowledged_roll_up_survives_a_power_cut_with_all_its_removals() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk, manual_sync=True)
    peer.create("S", allow_rollup_hdrs=True)
    for _ in range(60):
        peer.publish("S.0")
    server.syncer.run_all()
    server.run_until_idle()
    peer.take()
    roll_up(peer, "S.0", b"sub")
    crashes = 0
    while not answers(peer):
        copy = disk.crash_losing_unsynced()
        _, reader = open_server(copy)
        assert reader.api("STREAM.INFO.S")["state"]["last_seq"] in (60, 61)
        crashes += 1
        if server.syncer.waiting:
            server.syncer.run_next()
            server.syncer.complete_next()
        else:
            server.advance(0.0001)
        server.run_until_idle()
    assert crashes > 60 // STEP // 2
    _, peer = open_server(disk.crash_losing_unsynced())
    state = peer.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (1, 61, 61)


def test_roll_up_that_a_stop_interrupts_is_finished_before_the_files_are_closed() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    peer.create("S", allow_rollup_hdrs=True)
    for _ in range(60):
        peer.publish("S.0")
    roll_up(peer, "S.0", b"all")
    assert messages(server) > 1
    assert server.engine is not None
    server.engine.begin_stop()
    server.engine.close()
    _, peer = open_server(disk.crash_losing_unsynced())
    assert peer.api("STREAM.INFO.S")["state"]["messages"] == 1


# ---------------------------------------------------------------- age


def test_messages_that_expire_together_go_in_steps() -> None:
    server, peer = filled(100, 3, max_age=1_000_000_000, duplicate_window=1_000_000_000)
    server.clock.advance_ns(3_000_000_000)
    assert server.engine is not None
    while before := messages(server):
        server.engine.tick()
        assert 0 < before - messages(server) <= STEP
        server.run_until_idle()
    assert peer.api("STREAM.INFO.S")["state"]["messages"] == 0


# ---------------------------------------------------------------- last messages


def test_consumer_of_last_messages_lets_others_go_first_after_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tradewind.jetstream.consumer_catalog.LOOKED_AT_PER_STEP", 1)
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    peer.create("S")
    store = hosted(server).stream.store
    for number in range(200):
        peer.publish(f"S.{number % 100}", b"x" * 1000)
        if number % 50 == 49:
            store.add_block()
    assert server.engine is not None
    server.engine.begin_stop()
    server.engine.close()
    disk = disk.crash_losing_unsynced()
    server, peer = open_server(disk)
    server.workers.is_held = True
    policy = {"deliver_policy": "last_per_subject", "filter_subject": "S.*"}
    body = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "none", **policy}}
    assert peer.ask("$JS.API.CONSUMER.CREATE.S.c", body) == []
    walks = [hosted(server).stream.store.end_walks]
    while server.workers.waiting_count:
        server.workers.run_next()
        walks.append(hosted(server).stream.store.end_walks)
    server.run_until_idle()
    (answer,) = answers(peer)
    assert answer["num_pending"] == 100
    assert walks[-1] >= 2
    assert max(after - before for before, after in pairwise(walks)) <= 1


# ---------------------------------------------------------------- interest


def consumer(peer: Peer, name: str, **config: Any) -> dict[str, Any]:
    full = {"durable_name": name, "ack_policy": "explicit", **config}
    return peer.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": full})


def kept(*consumers: tuple[str, str]) -> tuple[InProcessServer, Peer]:
    """90 messages on 3 subjects that these consumers (name, filter) are to get."""
    server, peer = open_server(SimulatedDisk())
    peer.create("S", retention="interest")
    for name, pattern in consumers:
        assert "error" not in consumer(peer, name, filter_subject=pattern)
    for number in range(90):
        assert peer.publish(f"S.{number % 3}") is not None
    return server, peer


def run_counting(server: InProcessServer) -> list[int]:
    """How many messages went with each of the steps that wait for others."""
    removed = []
    while server.workers.waiting_count:
        before = messages(server)
        server.workers.run_next()
        removed.append(before - messages(server))
    server.run_until_idle()
    return removed


def test_deleted_consumer_releases_in_steps_what_only_it_wanted() -> None:
    server, peer = kept(("a", "S.0"), ("b", "S.*"), ("c", "S.1"))
    assert messages(server) == 90
    server.workers.is_held = True
    assert peer.ask("$JS.API.CONSUMER.DELETE.S.b") == []
    removed = run_counting(server)
    assert [answer["success"] for answer in answers(peer)] == [True]
    assert messages(server) == 60
    assert max(removed) <= STEP
    assert len(removed) >= 90 // STEP  # so many were looked at


def test_last_consumer_takes_all_messages_along_at_once() -> None:
    server, peer = kept(("a", "S.*"))
    server.workers.is_held = True
    assert peer.ask("$JS.API.CONSUMER.DELETE.S.a") == []
    assert len(run_counting(server)) <= 5
    assert [answer["success"] for answer in answers(peer)] == [True]
    assert messages(server) == 0
    server.workers.is_held = False
    assert peer.publish("S.0") == {"stream": "S", "seq": 91}
    assert consumer(peer, "again")["num_pending"] == 0


def test_nothing_is_looked_at_that_somebody_wants_all_of() -> None:
    server, peer = kept(("a", ""), ("b", "S.*"))
    server.workers.is_held = True
    assert peer.ask("$JS.API.CONSUMER.DELETE.S.b") == []
    assert len(run_counting(server)) <= 5
    assert messages(server) == 90


def test_narrower_filter_releases_in_steps_what_nobody_wants() -> None:
    server, peer = kept(("a", "S.*"))
    server.workers.is_held = True
    config = {"durable_name": "a", "ack_policy": "explicit", "filter_subject": "S.1"}
    body = {"stream_name": "S", "config": config}
    assert peer.ask("$JS.API.CONSUMER.CREATE.S.a", body) == []
    removed = run_counting(server)
    assert max(removed) <= STEP
    assert messages(server) == 30
    assert [answer["num_pending"] for answer in answers(peer)] == [30]


def test_consumer_that_nobody_used_releases_in_steps() -> None:
    server, peer = open_server(SimulatedDisk())
    peer.create("S", retention="interest")
    consumer(peer, "a", filter_subject="S.0")
    consumer(peer, "b", filter_subject="S.*", inactive_threshold=1_000_000_000)
    for number in range(90):
        peer.publish(f"S.{number % 3}")
    server.advance(5)
    assert messages(server) == 30


def test_change_to_interest_releases_in_steps_what_nobody_wants() -> None:
    server, peer = filled(90, 3)
    consumer(peer, "a", filter_subject="S.0")
    server.workers.is_held = True
    assert update(peer, {"retention": "interest"}) == []
    removed = run_counting(server)
    assert max(removed) <= STEP
    (answer,) = answers(peer)
    assert answer["state"]["messages"] == messages(server) == 30


def test_stream_with_many_consumers_is_deleted_without_a_look_at_its_messages() -> None:
    names = [(f"c{number}", f"S.{number % 3}") for number in range(9)]
    server, peer = kept(*names)
    before = hosted(server)
    server.workers.is_held = True
    assert peer.ask("$JS.API.STREAM.DELETE.S") == []
    assert before.stream.store.msgs == 90
    server.workers.run_all()
    server.run_until_idle()
    assert [answer["success"] for answer in answers(peer)] == [True]


# ---------------------------------------------------------------- subjects


def test_many_subjects_are_collected_in_steps_and_sorted_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tradewind.jetstream.handlers.stream_handlers.SUBJECTS_PER_STEP", 10)
    monkeypatch.setattr("tradewind.jetstream.handlers.stream_handlers.SUBJECTS_SORTED_MAX", 20)
    monkeypatch.setattr("tradewind.jetstream.handlers.stream_handlers.SUBJECTS_PAGE", 30)
    server, peer = filled(120, 60)
    names = sorted(f"S.{number}" for number in range(60))
    server.workers.is_held = True
    for offset in (0, 30, 55, 60, 2**31):
        request = {"subjects_filter": "S.*", "offset": offset}
        assert peer.ask("$JS.API.STREAM.INFO.S", request) == []
        steps = 0
        while server.workers.waiting_count:
            server.workers.run_next()
            steps += 1
        server.run_until_idle()
        (answer,) = answers(peer)
        assert steps == 60 // 10 - 1 + 1
        assert (answer["total"], answer["offset"], answer["limit"]) == (60, offset, 30)
        assert answer["state"].get("subjects", {}) == dict.fromkeys(names[offset : offset + 30], 2)


def test_stream_that_goes_while_its_subjects_are_sorted_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tradewind.jetstream.handlers.stream_handlers.SUBJECTS_SORTED_MAX", 2)
    server, peer = filled(10, 5)
    server.workers.is_held = True
    assert peer.ask("$JS.API.STREAM.INFO.S", {"subjects_filter": ">"}) == []
    hosted(server).detach()
    server.workers.run_all()
    server.run_until_idle()
    assert [answer["error"]["err_code"] for answer in answers(peer)] == [10059]


def test_unusual_subjects_are_written_as_the_api_writes_text() -> None:
    server, peer = open_server(SimulatedDisk())
    peer.create("S")
    names = ['S.a"b', "S.a\\b", "S.<&>", "S.\u00fcber", "S.\u2028", "S.\x7f", "S.plain"]
    for name in names:
        raw = name.encode()
        peer.connection.send(b"PUB %s 1\r\nx\r\n" % raw)
    peer.connection.send(b"PUB S.\xff 1\r\nx\r\n")
    ((_, _, payload),) = peer.ask("$JS.API.STREAM.INFO.S", {"subjects_filter": ">"})
    expected = dict.fromkeys([*names, "S.\ufffd"], 1)
    assert json.loads(payload)["state"]["subjects"] == expected
    for name in expected:
        assert encode(name) + b":1" in payload
    assert server.log.texts("error") == []


def test_many_deleted_sequences_are_listed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.jetstream.handlers.stream_handlers.DELETED_PER_STEP", 7)
    server, peer = filled(60, 60)
    store = hosted(server).stream.store
    gone = [3, 4, 5, *range(20, 50), 59]
    for seq in gone:
        store.remove(seq)
        if seq == 30:
            store.add_block()
    server.workers.is_held = True
    assert peer.ask("$JS.API.STREAM.INFO.S", {"deleted_details": True}) == []
    steps = 0
    while server.workers.waiting_count:
        server.workers.run_next()
        steps += 1
    server.run_until_idle()
    assert [answer["state"]["deleted"] for answer in answers(peer)] == [gone]
    assert steps == len(gone) // 7
