"""What an acknowledgement promises about the copies that a stream publishes (republish)."""

from __future__ import annotations

import json
from typing import Any

from engine_kit import Peer

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk


class Streams:
    """A server whose commits run when the test says so, with A copying to B."""

    def __init__(self, **second: Any) -> None:
        self.disk = SimulatedDisk()
        self.server = InProcessServer(disk=self.disk, manual_sync=True)
        self.peer = Peer(self.server)
        self.copying("A", "B")
        if second.pop("exists", True):
            self.peer.create("B", **second)
        self.finish()

    def copying(self, name: str, to: str, **config: Any) -> None:
        """A stream that republishes everything to another."""
        republish = {"src": f"{name}.>", "dest": f"{to}.>"}
        answer = self.peer.create(name, republish=republish, **config)
        assert "error" not in answer, answer

    def finish(self) -> None:
        """Until every disk has answered."""
        while self.server.syncer.waiting:
            self.server.syncer.run_all()
            self.server.run_until_idle()

    def commit(self, name: str) -> None:
        """The commit under way of one stream ends."""
        waiting = self.server.syncer.waiting
        names = [getattr(job.entry.target, "name", "") for job in waiting]
        self.server.syncer.run_next(names.index(name))
        self.server.syncer.complete_next()
        self.server.run_until_idle()

    def under_way(self) -> list[str]:
        """The streams that have a commit under way."""
        return [job.entry.target.name for job in self.server.syncer.waiting]

    def answers(self) -> list[dict[str, Any]]:
        """To the publishes."""
        return [json.loads(payload) for *_, payload in self.peer.take()]

    def count(self, name: str) -> int:
        """The messages of a stream after a power cut."""
        peer = Peer(InProcessServer(disk=self.disk.crash_losing_unsynced()))
        found: int = peer.api(f"STREAM.INFO.{name}")["state"]["messages"]
        return found


def test_acknowledgement_waits_until_the_copy_is_durable() -> None:
    streams = Streams()
    assert streams.peer.publish("A.x") is None
    assert streams.under_way() == ["A"]
    streams.commit("A")
    # The copy was sent, but who reads it now could lose it.
    assert (streams.answers(), streams.under_way()) == ([], ["B"])
    streams.commit("B")
    assert streams.answers() == [{"stream": "A", "seq": 1}]
    assert (streams.count("A"), streams.count("B")) == (1, 1)


def test_acknowledgement_of_a_message_in_memory_waits_for_the_copy_on_disk() -> None:
    streams = Streams(exists=False)
    streams.peer.api("STREAM.DELETE.A")
    streams.copying("A", "B", storage="memory")
    streams.peer.create("B")
    streams.finish()
    assert streams.peer.publish("A.x") is None
    assert streams.under_way() == ["B"]
    streams.commit("B")
    assert streams.answers() == [{"stream": "A", "seq": 1}]


def test_copy_in_memory_does_not_wait() -> None:
    streams = Streams(storage="memory")
    assert streams.peer.publish("A.x") is None
    streams.commit("A")
    assert streams.answers() == [{"stream": "A", "seq": 1}]
    assert streams.peer.api("STREAM.INFO.B")["state"]["messages"] == 1


def test_copy_for_subscribers_only_does_not_hold_up_the_acknowledgement() -> None:
    streams = Streams(exists=False)
    streams.peer.connection.send(b"SUB B.> 2\r\n")
    assert streams.peer.publish("A.x") is None
    streams.commit("A")
    assert [subject for subject, *_ in streams.peer.take()] == ["B.x", "inbox.2"]


def test_copy_that_is_refused_does_not_hold_up_the_acknowledgement() -> None:
    streams = Streams(max_msgs=1, discard="new")
    streams.peer.publish("A.1")
    streams.finish()
    assert streams.answers() == [{"stream": "A", "seq": 1}]
    streams.peer.publish("A.2")
    streams.commit("A")
    assert streams.answers() == [{"stream": "A", "seq": 2}]
    assert streams.peer.api("STREAM.INFO.B")["state"]["messages"] == 1


def test_second_stream_whose_disk_fails_does_not_hold_up_the_acknowledgement() -> None:
    streams = Streams()
    streams.disk.fail("sync", "*/B/msgs/*")
    streams.peer.publish("A.1")
    streams.commit("A")
    assert streams.answers() == []
    streams.commit("B")
    # Its own stream has the message; the copy is lost, as the log and /healthz say of B.
    assert streams.answers() == [{"stream": "A", "seq": 1}]
    streams.peer.publish("A.2")
    streams.commit("A")
    assert streams.answers() == [{"stream": "A", "seq": 2}]
    assert (streams.count("A"), streams.count("B")) == (2, 0)


def test_first_stream_whose_disk_fails_sends_no_copy() -> None:
    streams = Streams()
    streams.disk.fail("sync", "*/A/msgs/*")
    streams.peer.publish("A.1")
    streams.commit("A")
    (answer,) = streams.answers()
    assert answer["error"]["err_code"] == 10077
    streams.finish()
    assert streams.peer.api("STREAM.INFO.B")["state"]["messages"] == 0


def test_second_stream_that_is_deleted_does_not_hold_up_the_acknowledgement() -> None:
    streams = Streams()
    streams.peer.publish("A.1")
    streams.commit("A")
    assert streams.under_way() == ["B"]
    answers = streams.peer.ask("$JS.API.STREAM.DELETE.B")
    assert json.loads(answers[0][2]) == {"stream": "A", "seq": 1}
    streams.finish()
    assert streams.answers() == []


def test_acknowledgement_goes_through_a_chain_of_copies() -> None:
    streams = Streams(exists=False)
    streams.copying("B", "C")
    streams.peer.create("C")
    streams.finish()
    streams.peer.publish("A.x")
    for name in "ABC":
        assert (streams.answers(), streams.under_way()) == ([], [name])
        streams.commit(name)
    assert streams.answers() == [{"stream": "A", "seq": 1}]
    assert [streams.count(name) for name in "ABC"] == [1, 1, 1]


def test_acknowledgement_leaves_a_circle_of_copies() -> None:
    streams = Streams(exists=False)
    streams.copying("B", "A")
    streams.finish()
    streams.peer.publish("A.x")
    rounds = 0
    while not (answers := streams.answers()):
        streams.commit(streams.under_way()[0])
        rounds += 1
        assert rounds < 20
    assert answers == [{"stream": "A", "seq": 1}]


def test_acknowledgements_keep_the_order_of_their_messages() -> None:
    streams = Streams()
    for number in range(5):
        streams.peer.connection.send(b"PUB A.%d inbox.n.%d 1\r\nx\r\n" % (number, number))
    streams.finish()
    assert [answer["seq"] for answer in streams.answers()] == [1, 2, 3, 4, 5]
    assert streams.count("B") == 5


def test_publishers_of_a_deleted_stream_are_told() -> None:
    streams = Streams()
    assert streams.peer.publish("B.x") is None
    told = [json.loads(answer[2]) for answer in streams.peer.ask("$JS.API.STREAM.DELETE.B")]
    assert told[0]["error"]["err_code"] == 10059
    streams.finish()
