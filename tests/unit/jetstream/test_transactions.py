"""$TW.API.COMMIT: what happens together, what is refused, and what others notice of it."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from engine_kit import Peer
from transaction_kit import ack_of, add_consumer, commit, message, pull, stored

from tradewind.options import JetStreamOptions, LeafOptions, ServerOptions
from tradewind.route.permission_rules import PermissionRules
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk
from tradewind.testing.gates import User, UserGate

NOBODY_KNOWS = 20008
FOR_EVER = 1 << 30


def new_peer(**config: Any) -> tuple[InProcessServer, Peer]:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    peer.create("A")
    peer.create("B", **config)
    add_consumer(peer, "B")
    return server, peer


def pending(peer: Peer, stream: str = "B") -> int:
    return int(peer.api(f"CONSUMER.INFO.{stream}.c")["num_ack_pending"])


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_messages_and_acknowledgements_happen_together(retention: str, storage: str) -> None:
    _, peer = new_peer(retention=retention, storage=storage)
    peer.publish("B.in", b"1")
    assert pull(peer, "B", 1) == [b"1"]
    answer = commit(peer, [message("A.x", b"one"), message("A.y", b"two")], [ack_of("B", 1)])
    assert answer == {
        "type": "io.tradewind.api.v1.commit_response",
        "publishes": [{"stream": "A", "seq": 1}, {"stream": "A", "seq": 2}],
        "acks": 1,
        "deletes": 0,
    }
    assert stored(peer, "A") == [(1, "A.x", b"one"), (2, "A.y", b"two")]
    assert pending(peer) == 0
    assert len(stored(peer, "B")) == (1 if retention == "limits" else 0)


def test_several_streams_get_their_parts_in_order() -> None:
    _, peer = new_peer()
    answer = commit(peer, [message("A.1"), message("B.1"), message("A.2"), message("B.2")])
    places = [(one["stream"], one["seq"]) for one in answer["publishes"]]
    assert places == [("A", 1), ("B", 1), ("A", 2), ("B", 2)]


def test_headers_are_stored_and_ids_are_remembered() -> None:
    _, peer = new_peer()
    commit(peer, [message("A.x", b"1", Nats_Msg_Id="7", Colour="blue")])
    found = peer.ask("$JS.API.STREAM.MSG.GET.A", {"seq": 1})[0][2]
    assert b"Q29sb3VyOiBibHVl" in found or b"hdrs" in found
    again = commit(peer, [message("A.x", b"1", Nats_Msg_Id="7")])
    assert again["error"]["err_code"] == 10201
    assert again["error"]["description"].startswith("publishes[0]: ")


REFUSED: dict[str, tuple[list[dict[str, Any]], list[str], str]] = {
    "no stream": ([message("A.x"), message("Z.x")], [], "publishes[1]: no stream stores subject"),
    "wildcard": ([message("A.*")], [], "publishes[0]: subject 'A.*' is not one"),
    "expectation": (
        [message("A.x"), message("B.x", Nats_Expected_Last_Sequence="7")],
        [],
        "publishes[1]: wrong last sequence: 1",
    ),
    "header name": ([message("A.x", **{"a b": "c"})], [], "publishes[0]: 'a b' cannot be"),
    "header value": ([message("A.x", Name="a\r\nb")], [], "publishes[0]: the value of header"),
    "batch": (
        [message("A.x", Nats_Batch_Id="b")],
        [],
        "publishes[0]: a transaction cannot contain",
    ),
    "no ack subject": ([message("A.x")], ["B.c.1"], "acks[0]: 'B.c.1' is not the reply subject"),
    "ack numbers": ([message("A.x")], ["$JS.ACK.B.c.1.x.1.0.0"], "acks[0]: '$JS.ACK.B.c.1.x"),
    "no consumer": ([message("A.x")], [ack_of("B", 1, consumer="d")], "acks[0]: consumer not"),
    "not delivered": ([message("A.x")], [ack_of("B", 2)], "acks[0]: message 2 is not waiting"),
    "old delivery": (
        [message("A.x")],
        [ack_of("B", 1, deliveries=2)],
        "acks[0]: message 1 was delivered again",
    ),
    "twice": ([message("A.x")], [ack_of("B", 1)] * 2, "acks[1]: message 1 is acknowledged twice"),
    "nothing": ([], [], "there is nothing to do"),
    "too many": ([message("A.x")] * 1001, [], "there are 1001 publishes, at most 1000"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_member_and_changes_nothing(case: str) -> None:
    publishes, acks, text = REFUSED[case]
    _, peer = new_peer()
    peer.publish("B.in")
    pull(peer, "B", 1)
    answer = commit(peer, publishes, acks)
    assert answer["error"]["description"].startswith(text), answer
    assert stored(peer, "A") == []
    assert len(stored(peer, "B")) == 1
    assert pending(peer) == 1
    assert commit(peer, [message("A.x")], [ack_of("B", 1)])["acks"] == 1


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b'{"publish":[]}',
    b'{"publishes":[{"subject":"A.x","payload":"?"}]}',
    b'{"publishes":[{"subject":7}]}',
    b'{"acks":[1]}',
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_what_is_not_a_request_is_refused_with_the_place(body: bytes) -> None:
    _, peer = new_peer()
    answer = json.loads(peer.ask("$TW.API.COMMIT", body)[0][2])
    assert answer["error"]["err_code"] == 10025


def test_a_redelivered_message_can_only_be_acknowledged_by_its_last_delivery() -> None:
    """The first worker was too slow: what it made of the message must not count."""
    server, peer = new_peer()
    peer.publish("B.in")
    pull(peer, "B", 1)
    server.advance(31)
    pull(peer, "B", 1)
    late = commit(peer, [message("A.x", b"late")], [ack_of("B", 1)])
    assert late["error"]["err_code"] == 20005
    subject = "$JS.ACK.B.c.2.1.2.0.0"
    assert commit(peer, [message("A.x", b"right")], [subject])["acks"] == 1
    assert [payload for _, _, payload in stored(peer, "A")] == [b"right"]


@pytest.mark.parametrize(
    "limits", [{"max_msgs": 1}, {"max_msg_size": 3}, {"max_bytes": 60}, {"sealed": True}]
)
def test_a_stream_without_room_refuses_all_of_it(limits: dict[str, Any]) -> None:
    _, peer = new_peer()
    sealed = limits.pop("sealed", False)
    peer.create("F", discard="new", **limits)
    if sealed:
        config = peer.api("STREAM.INFO.F")["config"]
        assert "error" not in peer.api("STREAM.UPDATE.F", {**config, "sealed": True})
    answer = commit(peer, [message("A.x"), message("F.1", b"1234"), message("F.2", b"5678")])
    assert "error" in answer
    assert stored(peer, "A") == []
    assert stored(peer, "F") == []


def test_the_rules_of_the_publisher_apply_to_each_subject_and_acknowledgement() -> None:
    allowed = ("$TW.API.COMMIT", "A.open", "$JS.API.>")
    limited = User("limited", "secret", permissions=PermissionRules(publish_allow=allowed))
    gate = UserGate([User("admin"), limited], stranger="admin")
    server = InProcessServer(disk=SimulatedDisk(), gate=gate)
    admin = Peer(server)
    admin.create("A")
    add_consumer(admin, "A")
    admin.publish("A.in")
    peer = Peer(server, "limited", "secret", inbox="limited")
    pull(peer, "A", 1)
    assert commit(peer, [message("A.open"), message("A.shut")])["error"] == {
        "code": 403,
        "err_code": 20003,
        "description": "publishes[1]: publishing to A.shut is not allowed",
    }
    assert commit(peer, [message("A.open")], [ack_of("A", 1)])["error"]["err_code"] == 20003
    assert commit(peer, [message("A.open")])["publishes"] == [{"stream": "A", "seq": 2}]
    assert commit(admin, [message("A.shut")], [ack_of("A", 1)])["acks"] == 1


def test_accounts_without_jetstream_are_refused() -> None:
    server = InProcessServer(disk=SimulatedDisk(), accounts=["other"])
    assert server.engine is not None
    account = server.broker.accounts["other"]
    found: list[bytes] = []
    account.subscribe("answer", lambda one: found.append(one.payload))
    account.ask("$TW.API.COMMIT", b"{}", "answer")
    server.run_until_idle()
    assert json.loads(found[0])["error"]["err_code"] == 10039


# ------------------------------------------------------------------ the disk


def test_a_full_disk_refuses_and_the_next_one_succeeds() -> None:
    server, peer = new_peer()
    disk = server.engine.root.disk  # type: ignore[union-attr]
    peer.publish("B.in")
    pull(peer, "B", 1)
    disk.fail("write", "*tradewind.commits*", times=FOR_EVER, error=errno.ENOSPC)
    answer = commit(peer, [message("A.x")], [ack_of("B", 1)])
    assert answer["error"]["err_code"] == 10077
    assert pending(peer) == 1
    disk.clear_faults()
    assert commit(peer, [message("A.x")], [ack_of("B", 1)])["acks"] == 1


def test_a_part_that_the_disk_refuses_takes_back_the_others() -> None:
    """The second stream cannot begin a block: the first one forgets its part."""
    server, peer = new_peer()
    disk = server.engine.root.disk  # type: ignore[union-attr]
    big = b"x" * 600_000
    for _ in range(13):
        assert "error" not in commit(peer, [message("B.fill", big)])
    disk.fail("create", "*.blk", times=FOR_EVER, error=errno.ENOSPC)
    answer = commit(peer, [message("A.x"), message("B.fill", big)])
    assert "error" in answer, answer
    disk.clear_faults()
    server.advance(2)
    server.syncer.tick(server.clock.monotonic_ns())  # there is room again
    server.run_until_idle()
    assert stored(peer, "A") == []
    assert "error" not in commit(peer, [message("A.x", b"again"), message("B.fill")])
    assert [payload for _, _, payload in stored(peer, "A")] == [b"again"]
    again = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert [payload for _, _, payload in stored(again, "A")] == [b"again"]


@pytest.mark.slow
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_any_call_to_the_disk_that_fails_leaves_all_of_it_or_nothing(error: int) -> None:
    server, peer = new_peer()
    peer.create("C")
    peer.publish("B.in")
    pull(peer, "B", 1)
    server.advance(2)
    start = server.engine.root.disk.crash_keeping_unsynced()  # type: ignore[union-attr]
    codes = set()
    for nth in count(1):
        disk = start.crash_keeping_unsynced()
        server = InProcessServer(disk=disk)
        fault = disk.fail("*", nth=nth, error=error)
        answer = commit(Peer(server), [message("A.x"), message("C.x")], [ack_of("B", 1)])
        for _ in range(3):
            server.advance(1.2)
            server.syncer.tick(server.clock.monotonic_ns())
            server.run_until_idle()
        if not fault.hits:
            break
        disk.clear_faults()
        codes.add(code := answer.get("error", {}).get("err_code", 0))
        for outcome in (disk.crash_losing_unsynced(), disk.crash(nth)):
            started = InProcessServer(disk=outcome)
            after = Peer(started)
            started.advance(32)  # until it is due again, if it was delivered
            done = {bool(stored(after, "A")), bool(stored(after, "C")), not pull(after, "B", 1)}
            assert len(done) == 1, f"call {nth}: {answer}"
            if code != NOBODY_KNOWS:
                assert done == {code == 0}, f"call {nth}: {answer}"
    assert codes == {0, 10077, NOBODY_KNOWS}


def test_a_journal_that_cannot_be_synced_leaves_all_of_it_or_nothing() -> None:
    server, peer = new_peer()
    disk = server.engine.root.disk  # type: ignore[union-attr]
    peer.publish("B.in")
    pull(peer, "B", 1)
    disk.fail("sync", "*tradewind.commits*", times=1, error=errno.EIO)
    assert commit(peer, [message("A.x")], [ack_of("B", 1)])["error"]["err_code"] == 20008
    # The streams take no changes until the next start, and say so.
    assert peer.publish("A.y") is not None
    assert "error" in (peer.publish("A.y") or {})
    peer.create("C")
    server.advance(1.5)
    server.syncer.tick(server.clock.monotonic_ns())
    assert "error" not in commit(peer, [message("C.x")])
    for outcome in (disk.crash_losing_unsynced(), disk.crash_keeping_unsynced()):
        started = InProcessServer(disk=outcome)
        after = Peer(started)
        started.advance(32)  # until it is due again, if it was delivered
        assert len(stored(after, "A")) + len(pull(after, "B", 1)) == 1
        assert len(stored(after, "C")) == 1


def test_the_journal_goes_when_all_is_on_disk() -> None:
    server, peer = new_peer()
    disk = server.engine.root.disk  # type: ignore[union-attr]
    folder = f"{disk.root}/jetstream/$G"
    commit(peer, [message("A.x")])
    assert [name for name in disk.list_directory(folder) if "commits" in name]
    server.advance(5)
    assert disk.list_directory(folder) == ["streams"]
    commit(peer, [message("A.x")])
    server.engine.begin_stop()  # type: ignore[union-attr]
    server.run_until_idle()
    server.engine.close()  # type: ignore[union-attr]
    assert disk.list_directory(folder) == ["streams"]


def test_a_stream_made_anew_does_not_get_what_the_old_one_had() -> None:
    server, peer = new_peer()
    disk = server.engine.root.disk  # type: ignore[union-attr]
    commit(peer, [message("A.x", b"old"), message("B.x")])
    peer.api("STREAM.DELETE.A")
    peer.create("A")
    after = Peer(InProcessServer(disk=disk.crash_keeping_unsynced()))
    assert stored(after, "A") == []
    assert len(stored(after, "B")) == 1


def test_a_consumer_that_starts_over_is_not_acknowledged_again_by_the_journal() -> None:
    server, peer = new_peer()
    disk = server.engine.root.disk  # type: ignore[union-attr]
    peer.publish("B.in", b"1")
    pull(peer, "B", 1)
    commit(peer, [message("A.x")], [ack_of("B", 1)])
    assert "error" not in peer.api("CONSUMER.RESET.B.c", {"seq": 1})
    after = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert pull(after, "B", 1) == [b"1"]


def test_nobody_sees_a_part_before_the_journal_is_on_disk() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    peer.create("A", allow_direct=True)
    add_consumer(peer, "A")
    server.manual_sync = True
    assert peer.ask("$TW.API.COMMIT", {"publishes": [message("A.x", b"1")]}) == []
    assert len(server.syncer.waiting) == 1  # the journal
    # Somebody else publishes behind it, and waits for it as well.
    assert peer.ask("A.y", b"2") == []
    assert pull(peer, "A", 2) == []
    disk = server.engine.root.disk  # type: ignore[union-attr]
    crashed = Peer(InProcessServer(disk=disk.crash_keeping_unsynced()))
    assert stored(crashed, "A") in ([], [(1, "A.x", b"1")])
    assert len(server.syncer.waiting) == 1
    server.manual_sync = False
    server.run_until_idle()
    assert {found[2][:9] for found in peer.take()} == {b'{"stream"', b'{"type":"', b"1", b"2"}


def test_others_are_not_held_up_by_a_transaction_on_its_way() -> None:
    server, peer = new_peer()
    peer.create("C")
    server.manual_sync = True
    assert peer.ask("$TW.API.COMMIT", {"publishes": [message("A.x", b"1")]}) == []
    assert peer.publish("C.x") is None
    server.syncer.run_next(1)  # not the journal, which takes its time
    server.syncer.complete_next()
    server.run_until_idle()
    assert json.loads(peer.take()[0][2]) == {"stream": "C", "seq": 1}


def test_an_undo_lets_a_transaction_on_its_way_end() -> None:
    server, peer = new_peer()
    for number in range(4):
        peer.publish("A.x", b"%d" % number)
    peer.ask("$TW.API.STREAM.TRUNCATE.A", {"newest": 2, "keep_for": 3600 * 10**9})
    server.manual_sync = server.workers.is_held = True
    assert peer.ask("$TW.API.COMMIT", {"publishes": [message("A.t", b"t")]}) == []
    assert peer.ask("A.y", b"y") == []
    assert peer.ask("$TW.API.STREAM.UNDO.A") == []
    for _ in range(3):  # it asks again and again whether the transaction has ended
        assert server.workers.waiting_count == 1
        server.workers.run_next()
    # Others cannot keep it waiting: the stream takes nothing more.
    assert peer.ask("$TW.API.COMMIT", {"deletes": [{"stream": "A", "seq": 1}]}) == []
    server.manual_sync = server.workers.is_held = False
    server.run_until_idle()
    server.workers.run_all()
    server.run_until_idle()
    answers = [json.loads(payload) for _, _, payload in peer.take()]
    assert sorted(len(answer.get("publishes", ())) for answer in answers) == [0, 0, 0, 1]
    (refused,) = (answer["error"]["description"] for answer in answers if "error" in answer)
    assert "being closed" in refused
    wanted = [b"0", b"1", b"2", b"3", b"t", b"y"]
    assert [payload for _, _, payload in stored(peer, "A")] == wanted
    disk = server.engine.root.disk  # type: ignore[union-attr]
    after = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert [payload for _, _, payload in stored(after, "A")] == wanted


def test_a_stream_that_is_closed_behind_its_fence_acknowledges_nothing() -> None:
    server, peer = new_peer()
    server.manual_sync = True
    assert peer.ask("$TW.API.COMMIT", {"publishes": [message("A.t", b"t")]}) == []
    assert peer.ask("A.y", b"y") == []
    assert server.engine is not None
    server.engine.accounts["$G"].streams["A"].close()
    server.run_until_idle()
    (refused,) = peer.take()
    assert b"closed during a transaction" in refused[2]
    # When its journal is on disk, that alone has the message: its file must stay.
    server.syncer.run_all()
    server.manual_sync = False
    server.run_until_idle()
    server.advance(60)
    disk = server.engine.root.disk  # type: ignore[union-attr]
    after = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert [payload for _, _, payload in stored(after, "A")] == [b"t"]


@pytest.mark.parametrize("mode", ["interval", "async"])
def test_streams_that_promise_less_take_part_and_survive_a_kill(mode: str) -> None:
    interval_ns = 120 * 10**9 if mode == "interval" else 0
    options = ServerOptions(
        server_name="in-process", jetstream=JetStreamOptions(sync_interval_ns=interval_ns)
    )
    disk = SimulatedDisk()
    server = InProcessServer(options, disk=disk)
    peer = Peer(server)
    for name in "AB":
        peer.create(name, **({"persist_mode": "async"} if mode == "async" else {}))
    add_consumer(peer, "B")
    peer.publish("B.in")
    # The streams themselves are durable from their first commit on.
    server.advance(121)
    server.syncer.tick(server.clock.monotonic_ns())
    server.run_until_idle()
    pull(peer, "B", 1)
    assert commit(peer, [message("A.x")], [ack_of("B", 1)])["acks"] == 1
    for outcome in (disk.crash_keeping_unsynced(), disk.crash_losing_unsynced()):
        after = Peer(InProcessServer(options, disk=outcome))
        assert len(stored(after, "A")) == 1


# ------------------------------------------------------------------ deletes


def test_a_message_moves_from_one_stream_to_another() -> None:
    _, peer = new_peer()
    peer.publish("A.x", b"1")
    body = {"publishes": [message("B.x", b"1")], "deletes": [{"stream": "A", "seq": 1}]}
    answer = json.loads(peer.ask("$TW.API.COMMIT", body)[0][2])
    assert (answer["deletes"], answer["publishes"]) == (1, [{"stream": "B", "seq": 1}])
    assert (stored(peer, "A"), len(stored(peer, "B"))) == ([], 1)
    again = json.loads(peer.ask("$TW.API.COMMIT", body)[0][2])
    assert again["error"]["description"] == "deletes[0]: sequence 1 not found"
    assert len(stored(peer, "B")) == 1


@pytest.mark.parametrize("config", [{"deny_delete": True}, {"sealed": True}])
def test_a_stream_that_deletes_nothing_refuses_all_of_it(config: dict[str, Any]) -> None:
    _, peer = new_peer()
    peer.create("K")
    peer.publish("K.x")
    known = peer.api("STREAM.INFO.K")["config"]
    assert "error" not in peer.api("STREAM.UPDATE.K", {**known, **config})
    body = {"publishes": [message("A.x")], "deletes": [{"stream": "K", "seq": 1}]}
    answer = json.loads(peer.ask("$TW.API.COMMIT", body)[0][2])
    assert answer["error"]["description"].startswith("deletes[0]: ")
    assert stored(peer, "A") == []


def test_a_power_failure_at_any_step_of_a_move_leaves_the_message_in_one_place() -> None:
    for step in range(1, 100):
        server, peer = new_peer()
        disk = server.engine.root.disk  # type: ignore[union-attr]
        peer.publish("A.x", b"1")
        first = disk.steps
        disk.stop_at = first + step
        body = {"publishes": [message("B.x", b"1")], "deletes": [{"stream": "A", "seq": 1}]}
        is_done = False
        with suppress(PowerLoss):
            answers = peer.ask("$TW.API.COMMIT", body)
            # A thread that loses power tells that nobody knows.
            is_done = bool(answers) and b"error" not in answers[0][2]
            disk.stop_at = None
        for outcome in (
            disk.crash_losing_unsynced(),
            disk.crash_keeping_unsynced(),
            disk.crash(step),
        ):
            after = Peer(InProcessServer(disk=outcome))
            found = [name for name in "AB" if stored(after, name)]
            assert found == ["B"] or (len(found) == 1 and not is_done)
        if is_done:
            return
    pytest.fail("it never came to an end")


# ------------------------------------------------------------------ other servers


def test_a_server_behind_a_leaf_connection_is_refused() -> None:
    """Its rules are not those of the client that asks."""
    options = ServerOptions(server_name="hub", leafnodes=LeafOptions(port=1))
    server = InProcessServer(options, disk=SimulatedDisk())
    peer = Peer(server)
    peer.create("A")
    leaf = server.connect_leaf(name="spoke", server_id="SPOKE")
    leaf.send(b"LS+ answer\r\n")
    leaf.take()
    body = json.dumps({"publishes": [message("A.x")]}).encode()
    leaf.send(b"LMSG $TW.API.COMMIT answer %d\r\n%b\r\n" % (len(body), body))
    assert b"the client must be connected to this server" in leaf.take()
    assert stored(peer, "A") == []


def test_requests_do_not_cross_leaf_connections() -> None:
    """A server at the other end has transactions of its own."""
    options = ServerOptions(server_name="hub", leafnodes=LeafOptions(port=1))
    server = InProcessServer(options, disk=SimulatedDisk())
    peer = Peer(server)
    peer.create("A")
    leaf = server.connect_leaf(name="spoke", server_id="SPOKE")
    leaf.send(b"LS+ $TW.API.COMMIT\r\n")
    leaf.take()
    assert "error" not in commit(peer, [message("A.x")])
    assert b"LMSG" not in leaf.take()
