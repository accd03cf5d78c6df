"""Mirrors and sources of streams on another server: everything that can happen to the way there."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from engine_kit import Peer
from hypothesis import given, settings
from hypothesis import strategies as st
from origin_kit import EXTERNAL, Pair, Wire, header_of

from tradewind.jetstream.replication.feed import RETRY_NS_MAX
from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

STALL_SECONDS = 12
RETRY_SECONDS = 31


@pytest.fixture
def pair() -> Pair:
    return Pair()


# -------------------------------------------------------------------- what is copied


def test_mirror_has_the_sequences_times_and_headers_of_its_origin(pair: Pair) -> None:
    pair.origin(first_seq=5)
    pair.fill("1", "2")
    block = b"NATS/1.0\r\nNats-Expected-Stream: O\r\nNats-Msg-Id: 7\r\nA: b\r\n\r\n"
    line = b"HPUB O.h %d %d\r\n" % (len(block), len(block) + 1)
    pair.here.connection.send(line + block + b"3\r\n")
    pair.mirror()
    pair.fill("4")
    assert pair.stored("M") == [(5, "1"), (6, "2"), (7, "3"), (8, "4")]
    pair.here.take()
    for seq, _, message in pair.records("M"):
        origin = pair.here.api("STREAM.MSG.GET.O", {"seq": seq})["message"]
        assert (message["time"], message["subject"]) == (origin["time"], origin["subject"])
    assert header_of(pair.records("M")[2][2]) == "NATS/1.0\r\nNats-Msg-Id: 7\r\nA: b\r\n\r\n"


def test_copies_of_a_source_say_where_they_came_from(pair: Pair) -> None:
    pair.origin()
    pair.fill("1")
    pair.source()
    header = header_of(pair.records("S")[0][2])
    # The second part stands for the prefix of the API, the last for the time of creation.
    assert header.startswith("NATS/1.0\r\nNats-Stream-Source: O:")
    assert header.split(" ")[2:5] == ["1", ">", ">"]
    info = pair.replica("S")
    assert (info["lag"], info["seq"], info["active"]) == (0, 1, 0)
    assert info["external"] == EXTERNAL


def test_filters_starts_and_transforms_hold_on_the_way(pair: Pair) -> None:
    pair.origin()
    for number in range(1, 7):
        pair.fill(str(number), subject=f"O.{number % 3}")
    pair.mirror(filter_subject="O.1")
    pair.mirror("LATE", opt_start_seq=5)
    transforms = [{"src": "O.1", "dest": "one"}, {"src": "O.2", "dest": ""}]
    pair.source(subject_transforms=transforms)
    assert pair.stored("M") == [(1, "1"), (4, "4")]
    assert pair.stored("LATE") == [(5, "5"), (6, "6")]
    found = [(text, message["subject"]) for _, text, message in pair.records("S")]
    assert found == [("1", "one"), ("2", "O.2"), ("4", "one"), ("5", "O.2")]
    pair.source("T", opt_start_time="2031-01-01T00:00:00Z")
    assert pair.payloads("T") == []


def test_lag_tells_what_is_not_copied_yet(pair: Pair) -> None:
    pair.origin()
    pair.fill(*"12345")
    pair.wire.lost = lambda _subject: True
    pair.mirror()
    assert pair.replica("M")["lag"] == 5


# -------------------------------------------------------------------- what keeps messages


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_an_origin_lets_go_when_the_copy_is_on_disk(retention: str) -> None:
    pair = Pair(manual_sync=True)
    pair.origin(retention=retention)
    pair.source()
    pair.spoke.syncer.run_all()
    pair.spoke.run_until_idle()
    pair.run()
    pair.fill("1", "2")
    pair.advance(3)
    assert pair.held() == 2
    while pair.spoke.syncer.waiting:
        pair.spoke.syncer.run_all()
        pair.spoke.run_until_idle()
    pair.advance(3)
    assert pair.held() == 0
    assert pair.payloads("S") == ["1", "2"]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_the_consumer_on_such_an_origin_is_visible_and_goes_with_its_stream(
    pair: Pair, retention: str
) -> None:
    pair.origin(retention=retention)
    pair.source()
    (name,) = pair.here.api("CONSUMER.NAMES.O")["consumers"]
    config = pair.here.api(f"CONSUMER.INFO.O.{name}")["config"]
    assert (config["ack_policy"], config["sourcing"]) == ("flow_control", True)
    assert config["metadata"]["_nats.src.stream"] == "S"
    pair.there.take()
    pair.there.api("STREAM.DELETE.S")
    pair.run()
    pair.here.take()
    assert not pair.here.api("CONSUMER.NAMES.O")["consumers"]


def test_two_streams_of_the_same_name_do_not_share_a_consumer() -> None:
    names = set()
    for _ in range(2):
        pair = Pair()
        pair.advance(len(names) + 1)
        pair.origin(retention="workqueue")
        pair.source()
        names |= set(pair.here.api("CONSUMER.NAMES.O")["consumers"])
    assert len(names) == 2


def test_a_work_queue_gives_each_message_to_its_copy_and_to_its_user(pair: Pair) -> None:
    pair.origin(retention="workqueue")
    pair.source()
    config = {"durable_name": "u", "name": "u", "ack_policy": "explicit"}
    pair.here.api("CONSUMER.CREATE.O.u", {"stream_name": "O", "config": config})
    pair.fill("1")
    pair.advance(2)
    assert pair.payloads("S") == ["1"]
    assert pair.held() == 1
    (message,) = pair.here.ask("$JS.API.CONSUMER.MSG.NEXT.O.u", b"1")
    pair.here.take()
    pair.here.connection.send(b"PUB $JS.ACK.O.u.1.1.1.1.0 4\r\n+ACK\r\n")
    assert message[2] == b"1"
    assert pair.held() == 0


# -------------------------------------------------------------------- the way is lost


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_a_lost_connection_costs_nothing_and_is_told(pair: Pair, retention: str) -> None:
    pair.origin(retention=retention)
    pair.source()
    pair.fill("1", "2")
    pair.wire.cut()
    pair.fill("3")
    pair.spoke.advance(3)
    assert pair.problem("S") == "remote 'hub': the connection was lost"
    assert pair.replica("S")["active"] >= 3_000_000_000
    pair.wire.plug(pair.hub)
    pair.advance(STALL_SECONDS)
    pair.fill("4")
    assert pair.payloads("S") == ["1", "2", "3", "4"]
    assert pair.problem("S") == ""


@pytest.mark.parametrize("side", ["spoke", "hub"])
@pytest.mark.parametrize("make", [Pair.mirror, Pair.source])
def test_a_killed_server_goes_on_where_it_was(pair: Pair, make: Any, side: str) -> None:
    pair.origin()
    name = make(pair)["config"]["name"]
    pair.fill("1", "2")
    getattr(pair, f"kill_{side}")()
    pair.fill("3")
    pair.advance(1)
    assert pair.payloads(name) == ["1", "2", "3"]


def test_a_message_that_does_not_come_is_fetched_again(pair: Pair) -> None:
    pair.origin()
    pair.mirror()
    pair.fill("1")
    pair.wire.lost = lambda subject: subject == b"O.lost"
    pair.fill("2", subject="O.lost")
    pair.wire.lost = lambda _subject: False
    pair.fill("3")
    assert pair.problem("M") == "message 2 of its consumer did not come"
    pair.advance(2)
    assert pair.stored("M") == [(1, "1"), (2, "2"), (3, "3")]
    assert pair.problem("M") == ""


def test_the_last_message_that_does_not_come_is_noticed_by_a_heartbeat(pair: Pair) -> None:
    pair.origin()
    pair.mirror()
    pair.wire.lost = lambda subject: subject == b"O.a"
    pair.fill("1")
    pair.wire.lost = lambda _subject: False
    pair.advance(4)
    assert pair.stored("M") == [(1, "1")]


def test_silence_is_noticed_and_ends(pair: Pair) -> None:
    pair.origin()
    pair.source()
    pair.fill("1")
    pair.wire.is_deaf = True
    pair.fill("2")
    pair.advance(STALL_SECONDS)
    assert pair.problem("S") == "nothing has arrived from remote 'hub' for 10 seconds"
    pair.advance(6)
    assert pair.problem("S") == "remote 'hub' does not answer"
    pair.wire.is_deaf = False
    pair.advance(RETRY_SECONDS)
    assert pair.payloads("S") == ["1", "2"]
    assert pair.problem("S") == ""


def test_attempts_become_rarer_up_to_a_bound(pair: Pair) -> None:
    pair.mirror()
    assert pair.problem("M") == "stream not found"
    times = []
    for _ in range(400):
        pair.wire.asked.clear()
        pair.advance(0.5)
        if pair.wire.asked:
            times.append(pair.elapsed_ns)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] <= 3_000_000_000
    assert max(gaps) <= RETRY_NS_MAX + 1_000_000_000
    assert gaps[-1] >= RETRY_NS_MAX // 2
    pair.origin()
    pair.fill("1")
    pair.advance(RETRY_SECONDS)
    assert pair.stored("M") == [(1, "1")]


def test_a_remote_that_answers_nonsense_is_named(pair: Pair) -> None:
    pair.origin()
    pair.mirror()
    assert pair.problem("M") == ""
    pair.wire.cut()
    pair.wire.plug(pair.hub)
    answered = next(iter(pair.wire._answers.values()))
    answered(b"", b"[]", "")
    assert pair.problem("M") == "the response is not JSON: b'[]'"


# -------------------------------------------------------------------- the origin is another one


def test_origin_that_was_created_again_is_not_mixed_into_a_mirror(pair: Pair) -> None:
    pair.origin()
    pair.mirror()
    pair.source()
    pair.fill("1", "2")
    pair.here.api("STREAM.DELETE.O")
    pair.advance(RETRY_SECONDS)
    assert pair.problem("M") == "stream not found"
    pair.origin()
    pair.fill("3", "4", "5")
    pair.advance(RETRY_SECONDS)
    assert "is not the one that was mirrored: it was created after" in pair.problem("M")
    assert pair.payloads("M") == ["1", "2"]
    assert pair.payloads("S") == ["1", "2", "3", "4", "5"]
    notices = pair.spoke.log.texts("notice")
    assert any("was recreated, resetting source state" in text for text in notices)


def test_origin_that_went_back_is_not_mixed_into_a_mirror(pair: Pair) -> None:
    pair.origin()
    pair.mirror()
    pair.source()
    pair.fill("1", "2")
    backup = pair.disks["hub"].crash_losing_unsynced()
    pair.fill("3", "4")
    pair.disks["hub"] = backup
    pair.kill_hub()
    assert "its last sequence is 2, that of this mirror 4" in pair.problem("M")
    pair.advance(0.1)
    pair.fill("x", "y", "z")
    pair.advance(RETRY_SECONDS)
    assert "its message 4 has another time" in pair.problem("M")
    assert pair.payloads("M") == ["1", "2", "3", "4"]
    assert pair.payloads("S") == ["1", "2", "3", "4", "x", "y", "z"]


def test_purged_messages_are_passed_over(pair: Pair) -> None:
    pair.origin()
    pair.mirror()
    pair.fill("1")
    pair.wire.cut()
    pair.fill("2", "3")
    pair.here.api("STREAM.PURGE.O")
    pair.fill("4")
    pair.wire.plug(pair.hub)
    pair.run()
    assert pair.stored("M") == [(1, "1"), (4, "4")]


# -------------------------------------------------------------------- the stream takes nothing


def test_a_full_stream_is_told_and_filled_up_when_it_has_room(pair: Pair) -> None:
    pair.origin()
    pair.copy(
        "S", sources=[{"name": "O", "external": EXTERNAL}], max_msgs=2, discard="new", subjects=[]
    )
    pair.fill(*"1234")
    assert pair.problem("S") == "maximum messages exceeded"
    pair.there.api("STREAM.PURGE.S")
    pair.advance(3)
    assert pair.payloads("S") == ["3", "4"]
    assert pair.problem("S") == ""


# -------------------------------------------------------------------- who is meant


def test_prefix_that_leads_nowhere_is_taken_and_told(pair: Pair) -> None:
    external = {"api": "$JS.nowhere.API", "deliver": ""}
    answer = pair.there.create("M", subjects=[], mirror={"name": "O", "external": external})
    assert answer["mirror"]["active"] == -1
    assert pair.problem("M") == (
        "external.api '$JS.nowhere.API' leads nowhere: no import and no leaf connection of account"
        " '$G' takes CONSUMER.CREATE.O, and no remote in jetstream.remotes has this prefix"
        " (known: $JS.hub.API)"
    )


def test_the_own_domain_is_this_server(pair: Pair) -> None:
    own = {"api": "$JS.spoke.API", "deliver": ""}
    pair.there.create("O")
    pair.copy("M", mirror={"name": "O", "external": own})
    pair.there.publish("O.a", b"1")
    assert pair.stored("M") == [(1, "1")]
    assert not pair.wire.asked


def test_a_mirror_of_another_server_answers_for_no_stream_of_this_one(pair: Pair) -> None:
    pair.origin(allow_direct=True)
    pair.fill("far")
    pair.mirror()
    pair.there.create("D", subjects=["D.>"])
    answer = pair.there.api(
        "STREAM.UPDATE.M",
        {"name": "M", "mirror": {"name": "O", "external": EXTERNAL}, "mirror_direct": True},
    )
    assert answer["config"]["mirror_direct"]
    pair.there.create("O", subjects=["O.>"], allow_direct=True)
    pair.there.publish("O.a", b"near")
    pair.fill("far again")
    for _ in range(20):
        ((_, _, payload),) = pair.there.ask("$JS.API.DIRECT.GET.O", {"seq": 1})
        assert payload == b"near"


@pytest.mark.parametrize("name", ["A", "B"])
@pytest.mark.parametrize("is_mirror", [True, False])
def test_cycles_through_the_own_domain_are_refused(
    pair: Pair, name: str, *, is_mirror: bool
) -> None:
    pair.copy("B", sources=[{"name": "A"}])
    origin = {"name": name, "external": {"api": "$JS.spoke.API", "deliver": ""}}
    config = {"mirror": origin} if is_mirror else {"sources": [origin]}
    answer = pair.there.create("A", subjects=[], **config)
    assert answer["error"]["description"] == "detected cycle"


def test_a_remote_that_leads_to_the_stream_itself_is_refused() -> None:
    wire = Wire()
    options = ServerOptions(server_name="spoke", jetstream=JetStreamOptions())
    server = InProcessServer(options, disk=SimulatedDisk(), remotes=wire)
    wire.spoke = server
    wire.plug(server)
    peer = Peer(server)
    peer.create("O", sources=[{"name": "O", "external": EXTERNAL}])
    while wire.carry():
        server.run_until_idle()
    info = peer.api("STREAM.INFO.O")["sources"][0]
    assert info["error"]["description"] == (
        "detected cycle: remote 'hub' leads to this stream itself"
    )


# -------------------------------------------------------------------- all of it at random


STEPS = st.sampled_from(
    ["publish", "publish", "publish", "cut", "plug", "kill_hub", "kill_spoke", "advance", "lose"]
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=25), st.sampled_from(["limits", "workqueue", "interest"]))
def test_whatever_happens_each_message_is_copied_once(steps: list[str], retention: str) -> None:
    pair = Pair()
    pair.origin(retention=retention)
    pair.source()
    names = ["S"]
    if retention == "limits":
        pair.mirror()
        names.append("M")
    published = []
    for step in steps:
        if step == "publish":
            published.append(str(len(published)))
            pair.fill(published[-1])
        elif step == "lose":
            published.append(str(len(published)))
            pair.wire.lost = lambda subject: subject == b"O.a"
            pair.fill(published[-1])
            pair.wire.lost = lambda _subject: False
        elif step == "plug":
            pair.wire.cut()
            pair.wire.plug(pair.hub)
            pair.run()
        elif step == "cut":
            pair.wire.cut()
        elif step == "advance":
            pair.advance(1.5)
        else:
            getattr(pair, step)()
    pair.wire.cut()
    pair.wire.plug(pair.hub)
    pair.advance(40, step=2)
    for name in names:
        assert pair.payloads(name) == published
    if retention != "limits":
        assert pair.held() == 0
