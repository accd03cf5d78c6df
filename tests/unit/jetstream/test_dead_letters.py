"""What consumers give up goes to the stream that they name: once, or it stays with them."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from dead_letter_kit import header_of, info
from engine_kit import Peer
from transaction_kit import add_consumer, pull, stored

from tradewind.jetstream.transactions.given_up_letters import DeadLetterSender
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

FOR_EVER = 1 << 30
ACK_WAIT = 10


class World:
    """Stream S with consumer c, whose dead letters go to D."""

    def __init__(self, retention: str = "limits", **config: Any) -> None:
        self.disk = SimulatedDisk()
        self.server = InProcessServer(disk=self.disk)
        self.peer = Peer(self.server)
        self.peer.create("S", retention=retention)
        self.peer.create("D", subjects=["dead.>"], **config)
        add_consumer(self.peer, "S", **settings())

    def give_up(self, payload: bytes = b"x", header: bytes = b"") -> None:
        """Publish a message, and let its two deliveries go unanswered."""
        size = len(header) + len(payload)
        self.peer.connection.send(
            b"HPUB S.a %d %d\r\n" % (len(header), size) + header + payload + b"\r\n"
            if header
            else b"PUB S.a %d\r\n%b\r\n" % (size, payload)
        )
        for _ in range(2):
            assert pull(self.peer, "S", 1) == [payload]
            self.server.advance(ACK_WAIT + 1)

    def dead(self) -> list[bytes]:
        return [payload for _, _, payload in stored(self.peer, "D")]


def settings(**metadata: str) -> dict[str, Any]:
    found = {f"tradewind.dead_letter.{name}": value for name, value in metadata.items()}
    return {
        "max_deliver": 2,
        "ack_wait": ACK_WAIT * 10**9,
        "metadata": {"tradewind.dead_letter.stream": "D", **found},
    }


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_a_message_that_nobody_acknowledges_goes_to_the_dead_letters(retention: str) -> None:
    world = World(retention)
    world.give_up(b"bad", b"NATS/1.0\r\nColour: blue\r\nNats-Msg-Id: 7\r\n\r\n")
    assert stored(world.peer, "D") == [(1, "dead.S.c.S.a", b"bad")]
    header = header_of(world.peer, "D", 1)
    assert header["Colour"] == "blue"
    assert header["Tradewind-Original-Nats-Msg-Id"] == "7"
    named = {
        name.removeprefix("Tradewind-Dead-Letter-"): value
        for name, value in header.items()
        if name.startswith("Tradewind-Dead-Letter-")
    }
    assert {name: named[name] for name in ("Reason", "Stream", "Consumer", "Subject")} == {
        "Reason": "max_deliver",
        "Stream": "S",
        "Consumer": "c",
        "Subject": "S.a",
    }
    assert (named["Sequence"], named["Deliveries"], named["Path"]) == ("1", "2", "S/c")
    attempts = named["Attempts"].split(",")
    assert [named["Stored"], *attempts, named["Given-Up"]] == sorted(
        [named["Stored"], *attempts, named["Given-Up"]]
    )
    assert len(attempts) == 2
    found = info(world.peer)
    assert (found["num_ack_pending"], found["ack_floor"]["stream_seq"]) == (0, 1)
    assert len(stored(world.peer, "S")) == (1 if retention == "limits" else 0)
    world.server.advance(60)
    assert world.dead() == [b"bad"]


def test_a_terminated_message_goes_there_and_the_answer_waits_for_it() -> None:
    world = World()
    world.peer.publish("S.a", b"poison")
    pull(world.peer, "S", 1)
    world.server.manual_sync = True
    body = b"+TERM cannot be read"
    assert world.peer.ask("$JS.ACK.S.c.1.1.1.0.0", body) == []
    world.server.manual_sync = False
    world.server.run_until_idle()
    assert [payload for _, _, payload in world.peer.take()] == [b""]
    header = header_of(world.peer, "D", 1)
    assert header["Tradewind-Dead-Letter-Reason"] == "term"
    assert header["Tradewind-Dead-Letter-Detail"] == "cannot be read"
    assert info(world.peer)["num_ack_pending"] == 0


def test_the_connections_that_got_it_are_named() -> None:
    world = World()
    other = world.server.connect()
    other.send(b'CONNECT {"name": "second, client\\n"}\r\nSUB _I 1\r\n')
    world.peer.publish("S.a", b"x")
    assert pull(world.peer, "S", 1) == [b"x"]
    world.server.advance(ACK_WAIT + 1)
    other.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c _I 1\r\n1\r\n")
    world.server.advance(ACK_WAIT + 1)
    clients = header_of(world.peer, "D", 1)["Tradewind-Dead-Letter-Clients"].split(",")
    assert len(clients) == 2
    assert clients[0].isdigit()
    assert clients[1].endswith("/second_client_")


def test_only_what_was_asked_for_goes_there() -> None:
    world = World()
    add_consumer(world.peer, "S", **settings(on="term"))
    world.give_up(b"1")
    assert world.dead() == []
    assert info(world.peer)["num_ack_pending"] == 0


def test_the_subject_follows_its_template() -> None:
    world = World()
    add_consumer(world.peer, "S", **settings(subject="dead.{reason}.{consumer}"))
    world.give_up()
    assert stored(world.peer, "D")[0][1] == "dead.max_deliver.c"


BAD_SETTINGS: dict[str, tuple[dict[str, str], str]] = {
    "no stream": ({"stream": "NONE"}, "stream NONE does not exist; create it first"),
    "itself": ({"stream": "S"}, "cannot go to the stream itself"),
    "name": ({"stream": "a b"}, "'a b' is not the name of a stream"),
    "place": ({"subject": "dead.{who}"}, "{who} is not one of {stream}"),
    "not taken": ({"subject": "other.{subject}"}, "stream D does not store subject other.>"),
    "order": ({"subject": "dead.{subject}.x"}, "{subject} must be its last token"),
    "reason": ({"on": "bored"}, "'bored' is not a list of max_deliver, term, expired"),
    "key": ({"steam": "D"}, "unknown key"),
}


@pytest.mark.parametrize("case", BAD_SETTINGS)
def test_wrong_settings_are_refused_when_the_consumer_is_made(case: str) -> None:
    metadata, text = BAD_SETTINGS[case]
    world = World()
    config = {"durable_name": "d", "ack_policy": "explicit", **settings(**metadata)}
    body = {"stream_name": "S", "config": config}
    answer = world.peer.api("CONSUMER.CREATE.S.d", body)
    assert text in answer["error"]["description"], answer
    assert answer["error"]["err_code"] == 20101


def test_the_ack_policy_must_be_explicit() -> None:
    world = World()
    config = {"durable_name": "d", "ack_policy": "all", **settings()}
    answer = world.peer.api("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": config})
    assert "must be explicit" in answer["error"]["description"]


# ------------------------------------------------------------------ refusals


def test_a_full_stream_leaves_the_message_with_its_consumer_until_there_is_room() -> None:
    world = World(max_msgs=1, discard="new")
    events = Peer(world.server, inbox="$TW.EVENT.ADVISORY.CONSUMER.DEAD_LETTER.S")
    world.give_up(b"1")
    world.give_up(b"2")
    assert world.dead() == [b"1"]
    assert info(world.peer)["num_ack_pending"] == 1
    told = [json.loads(payload) for _, _, payload in events.take()]
    assert [one.get("dead_letter_seq", 0) for one in told] == [1, 0]
    assert "maximum messages exceeded" in told[1]["error"]
    # Others are served meanwhile.
    world.peer.publish("S.a", b"3")
    assert pull(world.peer, "S", 5) == [b"3"]
    world.peer.api("STREAM.MSG.DELETE.D", {"seq": 1})
    world.server.advance(70)
    assert world.dead() == [b"2"]


def test_a_stream_that_is_gone_is_waited_for() -> None:
    world = World()
    world.peer.api("STREAM.DELETE.D")
    world.give_up()
    assert info(world.peer)["num_ack_pending"] == 1
    world.peer.create("D", subjects=["dead.>"])
    world.server.advance(70)
    assert world.dead() == [b"x"]


def test_a_full_disk_loses_nothing() -> None:
    world = World()
    world.disk.fail("write", "*tradewind.commits*", times=FOR_EVER, error=errno.ENOSPC)
    world.give_up()
    assert info(world.peer)["num_ack_pending"] == 1
    world.disk.clear_faults()
    world.server.advance(70)
    assert (world.dead(), info(world.peer)["num_ack_pending"]) == ([b"x"], 0)


def test_a_message_that_is_too_large_with_its_headers_stays() -> None:
    world = World(max_msg_size=100)
    world.give_up(b"x" * 90)
    assert (world.dead(), info(world.peer)["num_ack_pending"]) == ([], 1)


def test_switching_it_off_lets_go_of_what_waits() -> None:
    world = World(max_msgs=1, discard="new")
    world.give_up(b"1")
    world.give_up(b"2")
    plain = settings()
    plain["metadata"] = {}
    add_consumer(world.peer, "S", **plain)
    world.server.advance(70)
    assert (world.dead(), info(world.peer)["num_ack_pending"]) == ([b"1"], 0)


def test_an_acknowledgement_that_comes_late_wins() -> None:
    world = World(max_msgs=1, discard="new")
    world.give_up(b"1")
    world.give_up(b"2")
    world.peer.ask("$JS.ACK.S.c.2.2.4.0.0", b"+ACK")
    world.peer.api("STREAM.MSG.DELETE.D", {"seq": 1})
    world.server.advance(70)
    assert (world.dead(), info(world.peer)["num_ack_pending"]) == ([], 0)


@pytest.mark.parametrize("answer", [b"-NAK", b'-NAK {"delay": 1}', b"+WPI"])
@pytest.mark.parametrize("reason", ["max_deliver", "term"])
def test_what_waits_for_its_dead_letter_is_not_delivered_again(reason: str, answer: bytes) -> None:
    world = World(max_msgs=1, discard="new")
    world.give_up(b"1")
    deliveries = 2
    if reason == "term":
        world.peer.publish("S.a", b"2")
        assert pull(world.peer, "S", 1) == [b"2"]
        world.peer.ask("$JS.ACK.S.c.1.2.3.0.0", b"+TERM")
        deliveries = 1
    else:
        world.give_up(b"2")
    world.peer.ask(f"$JS.ACK.S.c.{deliveries}.2.{2 + deliveries}.0.0", answer)
    world.server.advance(2 * ACK_WAIT)
    assert pull(world.peer, "S", 5) == []
    assert info(world.peer)["num_ack_pending"] == 1
    world.peer.api("STREAM.MSG.DELETE.D", {"seq": 1})
    world.server.advance(70)
    # The answer to a TERM comes when the letter is safe.
    assert len(world.peer.take()) == (1 if reason == "term" else 0)
    assert (world.dead(), info(world.peer)["num_ack_pending"]) == ([b"2"], 0)


def test_a_loop_ends() -> None:
    """Dead letters of D go to a stream whose own dead letters go to D."""
    world = World()
    world.peer.create("E", subjects=["again.>"])
    again = {**settings(subject="again.{consumer}"), "max_deliver": 1}
    again["metadata"] = {**again["metadata"], "tradewind.dead_letter.stream": "E"}
    add_consumer(world.peer, "D", **again)
    back = {**settings(subject="dead.back"), "max_deliver": 1}
    add_consumer(world.peer, "E", **back)
    world.give_up()
    for _ in range(6):
        for stream in "DE":
            pull(world.peer, stream, 10)
            world.server.advance(ACK_WAIT + 1)
    assert len(stored(world.peer, "D")) == 2
    assert len(stored(world.peer, "E")) == 1
    assert header_of(world.peer, "D", 2)["Tradewind-Dead-Letter-Path"] == "S/c,D/c,E/c"


def test_path_that_a_publisher_writes_is_not_believed() -> None:
    world = World()
    world.give_up(b"poison", b"NATS/1.0\r\nTradewind-Dead-Letter-Path: S/c\r\n\r\n")
    assert world.dead() == [b"poison"]
    assert header_of(world.peer, "D", 1)["Tradewind-Dead-Letter-Path"] == "S/c"


def test_path_of_one_letter_is_not_believed_for_other_content() -> None:
    world = World()
    world.give_up(b"harmless")
    letter = header_of(world.peer, "D", 1)
    fields = (f"Tradewind-Dead-Letter-{name}" for name in ("Path", "Seal"))
    lines = "".join(f"{name}: {letter[name]}\r\n" for name in fields)
    world.give_up(b"poison", f"NATS/1.0\r\n{lines}\r\n".encode())
    assert world.dead() == [b"harmless", b"poison"]


def test_path_of_another_account_or_key_is_not_believed() -> None:
    world = World()
    assert world.server.engine is not None
    sender, other = DeadLetterSender(world.server.engine), DeadLetterSender(world.server.engine)
    seal = sender.seal("A", "S/c", b"x")
    assert seal == sender.seal("A", "S/c", b"x")
    changed = [
        sender.seal("B", "S/c", b"x"),
        sender.seal("A", "S/d", b"x"),
        sender.seal("A", "S/c", b"y"),
        sender.seal("AS", "/c", b"x"),
        other.seal("A", "S/c", b"x"),
    ]
    assert seal not in changed


# ------------------------------------------------------------------ back to one consumer


def revive(peer: Peer, seq: int = 1, letter: int = 1, **changes: Any) -> dict[str, Any]:
    wanted = {"stream": "S", "consumer": "c", "seq": seq, **changes}
    body = {"revivals": [wanted], "deletes": [{"stream": "D", "seq": letter}]}
    ((_, _, data),) = peer.ask("$TW.API.COMMIT", body)
    document: dict[str, Any] = json.loads(data)
    return document


def test_a_revived_message_goes_to_its_consumer_and_to_nobody_else() -> None:
    world = World()
    add_consumer(world.peer, "S", "other")
    world.give_up(b"x")
    assert pull(world.peer, "S", 5, "other") == [b"x"]
    world.peer.ask("$JS.ACK.S.other.1.1.1.0.0", b"+ACK")
    assert revive(world.peer)["revivals"] == 1
    assert world.dead() == []
    assert pull(world.peer, "S", 5) == [b"x"]
    assert pull(world.peer, "S", 5, "other") == []
    # It is given up again if it fails again.
    world.server.advance(ACK_WAIT + 1)
    assert world.dead() == [b"x"]
    assert header_of(world.peer, "D", 2)["Tradewind-Dead-Letter-Deliveries"] == "2"
    assert revive(world.peer, letter=2)["revivals"] == 1
    assert pull(world.peer, "S", 5) == [b"x"]
    consumer_seq = info(world.peer)["delivered"]["consumer_seq"]
    world.peer.ask(f"$JS.ACK.S.c.2.1.{consumer_seq}.0.0", b"+ACK")
    found = info(world.peer)
    assert (found["num_ack_pending"], found["ack_floor"]["stream_seq"]) == (0, 1)


def test_what_cannot_be_revived_is_refused_and_the_letter_stays() -> None:
    world = World()
    world.give_up(b"x")
    world.peer.publish("S.a", b"unseen")
    add_consumer(world.peer, "S", "filtered", filter_subject="S.other")
    add_consumer(world.peer, "S", "once", max_deliver=1)
    for changes, text in (
        ({"seq": 2}, "is not done with it"),
        ({"seq": 7}, "no longer has it"),
        ({"seq": -1}, "revivals[0]"),
        ({"seq": 1 << 70}, "revivals[0]"),
        ({"consumer": "filtered"}, "its filter does not match"),
        ({"consumer": "once"}, "max_deliver is 1"),
        ({"consumer": "none"}, "consumer not found"),
        ({"stream": "none"}, "stream not found"),
    ):
        answer = revive(world.peer, **changes)
        assert text in answer["error"]["description"], (changes, answer)
    assert world.dead() == [b"x"]
    world.peer.api("STREAM.MSG.DELETE.S", {"seq": 1})
    assert "no longer has it" in revive(world.peer)["error"]["description"]


@pytest.mark.slow
def test_a_power_failure_at_any_step_of_a_revival_leaves_it_in_one_place() -> None:
    from contextlib import suppress

    from tradewind.testing.fake_disk import PowerLoss

    for step in range(1, 200):
        world = World()
        world.give_up(b"x")
        world.server.advance(3)
        first = world.disk.steps
        world.disk.stop_at = first + step
        with suppress(PowerLoss, ValueError):
            revive(world.peer)
            world.server.advance(2)
        is_over = world.disk.steps + 1 < first + step
        world.disk.stop_at = None
        for outcome in (
            world.disk.crash_losing_unsynced(),
            world.disk.crash_keeping_unsynced(),
            world.disk.crash(step),
        ):
            server = InProcessServer(disk=outcome)
            peer = Peer(server)
            letters = len(stored(peer, "D"))
            delivered = []
            for _ in range(6):  # the clock of this server is behind
                server.advance(ACK_WAIT + 1)
                delivered += pull(peer, "S", 5)
            assert len(delivered) == 1 - letters
            assert [payload for _, _, payload in stored(peer, "D")] == [b"x"]
        if is_over:
            return
    pytest.fail("it never came to an end")


# ------------------------------------------------------------------ crashes


@pytest.mark.slow
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_a_power_failure_at_any_step_leaves_it_in_one_place(retention: str) -> None:
    """In the dead letters, or with the consumer: never in both, never nowhere."""
    from contextlib import suppress

    from tradewind.testing.fake_disk import PowerLoss

    for step in range(1, 200):
        world = World(retention)
        world.peer.publish("S.a", b"x")
        pull(world.peer, "S", 1)
        world.server.advance(ACK_WAIT + 1)
        pull(world.peer, "S", 1)
        world.server.advance(ACK_WAIT - 1)
        first = world.disk.steps
        world.disk.stop_at = first + step
        with suppress(PowerLoss):
            world.server.advance(2)
        # A thread that loses power does not end the test.
        is_over = world.disk.steps + 1 < first + step
        world.disk.stop_at = None
        for outcome in (
            world.disk.crash_losing_unsynced(),
            world.disk.crash_keeping_unsynced(),
            world.disk.crash(step),
        ):
            server = InProcessServer(disk=outcome)
            peer = Peer(server)
            found = len(stored(peer, "D"))
            assert found in (0, 1)
            for _ in range(3):
                server.advance(ACK_WAIT + 1)
                pull(peer, "S", 1)
            assert [payload for _, _, payload in stored(peer, "D")] == [b"x"]
            assert info(peer)["num_ack_pending"] == 0
        if is_over:
            return
    pytest.fail("it never came to an end")
