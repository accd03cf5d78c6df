"""Whatever is answered is true: the power fails right after each answer, and nothing is undone."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

FOR_EVER = 1 << 30
Message = tuple[str, bytes, bytes]


class World:
    """A server whose syncs wait for the test, with a stream S and a consumer c of it."""

    def __init__(self, messages: int = 3, *, interval_s: int = 0, **config: Any) -> None:
        self.disk = SimulatedDisk()
        jetstream = JetStreamOptions(sync_interval_ns=interval_s * 1_000_000_000)
        options = ServerOptions(server_name="in-process", jetstream=jetstream)
        self.server = InProcessServer(options, disk=self.disk, manual_sync=True)
        self.peer = Peer(self.server)
        self.ask_api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], **config})
        self.ask_api("CONSUMER.CREATE.S.c", create("c", max_ack_pending=5000))
        for _ in range(messages):
            assert self.ask("S.a", b"x")
        if messages:
            assert len(self.pull(messages)) == messages

    def sync(self) -> None:
        """Until nothing is left to sync."""
        while self.server.syncer.waiting:
            self.server.syncer.run_all()
            self.server.run_until_idle()

    def rest(self) -> None:
        """Let all be written that is written by and by, and forget what was answered."""
        self.server.advance(2.0)
        self.server.syncer.tick(self.server.clock.monotonic_ns())
        self.sync()
        self.peer.take()

    def ask(self, subject: str, body: Any = b"") -> list[Message]:
        found = self.peer.ask(subject, body)
        self.sync()
        return found + self.peer.take()

    def ask_api(self, name: str, body: Any = b"") -> dict[str, Any]:
        """The answer, at the moment at which it leaves: nothing more is synced than it needs."""
        answers = self.peer.ask(f"$JS.API.{name}", body)
        while not answers:
            assert self.server.syncer.waiting or self.server.syncer.synced
            self.step()
            answers = self.peer.take()
        document: dict[str, Any] = json.loads(answers[0][2])
        assert "error" not in document, document
        return document

    def step(self) -> None:
        if self.server.syncer.waiting:
            self.server.syncer.run_next()
        else:
            self.server.syncer.complete_next()
        self.server.run_until_idle()

    def pull(self, batch: int, consumer: str = "c") -> list[Message]:
        request = {"batch": batch, "no_wait": True}
        found = self.ask(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", request)
        return [message for message in found if not message[1]]

    def ack(self, seq: int, kind: bytes = b"+ACK", consumer: str = "c") -> None:
        """An ack with a reply subject; the answer is still to be waited for."""
        subject = f"$JS.ACK.S.{consumer}.1.{seq}.{seq}.1.0"
        self.peer.connection.send(
            f"PUB {subject} inbox.ack.{seq} {len(kind)}\r\n".encode() + kind + b"\r\n"
        )

    def answers(self) -> set[int]:
        """The sequences whose acks are answered."""
        found = [subject.split(".") for subject, _, _ in self.peer.take()]
        return {int(words[2]) for words in found if words[1] == "ack"}

    def answers_when_kept(self, seq: int) -> None:
        """Sync as much as it takes for the answer, and not more."""
        while seq not in self.answers():
            assert self.server.syncer.waiting or self.server.syncer.synced, "nothing more happens"
            self.step()

    def restarted(self, disk: SimulatedDisk | None = None) -> Peer:
        """After the power has failed just now, and taken what was not synced."""
        server = InProcessServer(disk=disk or self.disk.crash_losing_unsynced())
        return Peer(server)


def create(name: str, **config: Any) -> dict[str, Any]:
    config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 30 * 10**9, **config}
    return {"stream_name": "S", "config": config}


def info(peer: Peer, consumer: str = "c") -> dict[str, Any]:
    return peer.api(f"CONSUMER.INFO.S.{consumer}")


def sequences(peer: Peer) -> list[int]:
    found = [peer.api("STREAM.MSG.GET.S", {"seq": seq}) for seq in range(1, 7)]
    return [answer["message"]["seq"] for answer in found if "message" in answer]


# ------------------------------------------------------------------ acks with a reply


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_an_ack_that_was_answered_survives_a_power_failure(retention: str) -> None:
    world = World(retention=retention)
    world.ack(2)
    world.answers_when_kept(2)
    peer = world.restarted()
    found = info(peer)
    assert found["num_ack_pending"] == 2
    assert found["ack_floor"]["stream_seq"] == 0
    assert sequences(peer) == ([1, 2, 3] if retention == "limits" else [1, 3])


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_an_ack_is_not_answered_before_it_is_on_disk(retention: str) -> None:
    world = World(retention=retention)
    world.ack(2)
    assert world.answers() == set()
    world.answers_when_kept(2)


def test_an_answer_says_that_the_removal_is_on_disk_too() -> None:
    """By the store alone, without what the start removes by the state of the consumer."""
    world = World(retention="workqueue")
    world.ack(2)
    world.answers_when_kept(2)
    disk = world.disk.crash_losing_unsynced()
    disk.remove_tree(f"{disk.root}/jetstream/$G/streams/S/obs")
    assert sequences(world.restarted(disk)) == [1, 3]


def test_acks_of_a_consumer_in_memory_wait_for_the_removal_only() -> None:
    world = World(0, retention="workqueue")
    world.ask_api("CONSUMER.DELETE.S.c")
    world.ask_api("CONSUMER.CREATE.S.c", create("c", mem_storage=True))
    for _ in range(3):
        world.ask("S.a", b"x")
    assert len(world.pull(3)) == 3
    world.ack(2)
    assert world.answers() == set()
    world.answers_when_kept(2)
    assert sequences(world.restarted()) == [1, 3]


@pytest.mark.parametrize("kind", [b"+TERM", b"-NAK", b"+WPI", b'-NAK {"delay": 1000000000}'])
def test_other_acks_are_answered_when_they_are_kept(kind: bytes) -> None:
    world = World()
    world.ack(2, kind)
    assert world.answers() == set()
    world.answers_when_kept(2)
    found = info(world.restarted())
    assert found["num_ack_pending"] == (2 if kind == b"+TERM" else 3)


def test_acks_that_come_while_a_sync_runs_share_the_next_one() -> None:
    world = World(40)
    for seq in (1, 2):
        world.ack(seq)
        world.sync()
    assert world.answers() == {1, 2}
    syncer = world.server.syncer
    before = syncer.statistics.syncs
    world.ack(3)
    assert len(syncer.waiting) == 1
    for seq in range(4, 41):
        world.ack(seq)
        assert len(syncer.waiting) == 1
    assert world.answers() == set()
    syncer.run_next()
    syncer.complete_next()
    world.server.run_until_idle()
    assert world.answers() == {3}
    syncer.run_next()
    syncer.complete_next()
    world.server.run_until_idle()
    assert world.answers() == set(range(4, 41))
    assert syncer.statistics.syncs - before == 2


def test_an_ack_again_is_answered_when_the_first_one_is_kept() -> None:
    world = World()
    world.ack(2)
    world.ack(2)
    assert world.answers() == set()
    world.answers_when_kept(2)
    assert info(world.restarted())["num_ack_pending"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("pending", [10, 2000])
def test_acks_of_few_and_of_many_pending_messages_are_kept(pending: int) -> None:
    world = World(pending)
    world.rest()
    for count, seq in enumerate((1, 2, pending // 2, pending), start=1):
        world.ack(seq)
        world.answers_when_kept(seq)
        assert info(world.restarted())["num_ack_pending"] == pending - count
    # What is not urgent is written too, and a start after a start finds it.
    world.peer.connection.send(b"PUB $JS.ACK.S.c.1.3.3.1.0 0\r\n\r\n")
    world.rest()
    server = InProcessServer(disk=world.disk.crash_losing_unsynced())
    assert info(Peer(server))["num_ack_pending"] == pending - 5
    assert info(Peer(server))["ack_floor"]["stream_seq"] == 3


def test_nobody_is_answered_while_the_state_cannot_be_written_and_everybody_later() -> None:
    world = World()
    world.rest()
    world.disk.fail("write", "*/tradewind.acks.*", error=errno.ENOSPC, times=FOR_EVER)
    world.disk.fail("write", "*/obs/c/*", error=errno.ENOSPC, times=FOR_EVER)
    world.ack(1)
    world.sync()
    world.ack(2)
    world.sync()
    assert world.answers() == set()
    world.disk.clear_faults()
    world.server.advance(2.0)
    world.server.syncer.tick(world.server.clock.monotonic_ns())
    world.sync()
    assert world.answers() == set()  # those who asked have given up
    world.ack(1)
    world.answers_when_kept(1)
    assert info(world.restarted())["num_ack_pending"] == 1


@pytest.mark.slow
def test_answers_that_wait_for_a_disk_that_hangs_are_bounded() -> None:
    world = World(10)
    reply = "inbox.ack.%d." + "x" * 4000
    count = 2500
    for number in range(count):
        seq = number % 10 + 1
        subject = f"$JS.ACK.S.c.1.{seq}.{seq}.1.0"
        world.peer.connection.send(f"PUB {subject} {reply % number} 4\r\n+ACK\r\n".encode())
    assert world.peer.connection.is_open
    assert world.answers() == set()
    world.sync()
    answered = [subject for subject, _, _ in world.peer.take() if ".ack." in subject]
    assert 2000 < len(answered) < count
    world.ack(3)
    world.answers_when_kept(3)
    assert info(world.restarted())["num_ack_pending"] == 0


def test_a_sync_that_fails_is_no_answer() -> None:
    world = World()
    world.rest()
    world.disk.fail("sync", "*/tradewind.acks.*")
    world.ack(1)
    world.sync()
    assert world.answers() == set()
    world.rest()
    world.ack(1)
    world.answers_when_kept(1)
    assert info(world.restarted())["num_ack_pending"] == 2


def test_a_stream_that_takes_no_changes_still_keeps_acks() -> None:
    world = World(retention="workqueue")
    world.disk.fail("write", "*/msgs/*.blk", error=errno.EIO, times=FOR_EVER)
    world.ack(2)
    world.answers_when_kept(2)
    assert sequences(world.restarted()) == [1, 3]


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_with_an_interval_an_ack_is_answered_when_the_system_has_it(retention: str) -> None:
    world = World(interval_s=120, retention=retention)
    world.rest()
    world.ack(2)
    assert world.answers() == {2}
    assert not world.server.syncer.waiting
    killed = world.restarted(world.disk.crash_keeping_unsynced())
    assert info(killed)["num_ack_pending"] == 2
    assert sequences(killed) == ([1, 2, 3] if retention == "limits" else [1, 3])


def test_with_async_persistence_an_ack_is_answered_at_once() -> None:
    world = World(persist_mode="async")
    world.ack(2)
    assert world.answers() == {2}


def test_acks_of_a_stream_in_memory_are_answered_at_once() -> None:
    world = World(storage="memory")
    world.ack(2)
    assert world.answers() == {2}


def test_a_consumer_that_is_deleted_leaves_its_acks_unanswered() -> None:
    world = World()
    world.ack(2)
    world.ask_api("CONSUMER.DELETE.S.c")
    world.sync()
    assert world.answers() == set()
    world.ask_api("CONSUMER.CREATE.S.c", create("c"))
    assert len(world.pull(3)) == 3
    world.ack(2)
    world.answers_when_kept(2)


# ------------------------------------------------------------------ requests


def reset(world: World) -> None:
    world.ack(1)
    world.ack(2)
    world.rest()
    assert world.ask_api("CONSUMER.RESET.S.c", {"seq": 2})["reset_seq"] == 2


def is_reset(peer: Peer) -> bool:
    found = info(peer)
    return bool(
        found["delivered"] == {"consumer_seq": 0, "stream_seq": 1} and found["num_ack_pending"] == 0
    )


def is_paused(peer: Peer) -> bool:
    return info(peer).get("paused", False) is True


def has_stream(name: str) -> Callable[[Peer], bool]:
    return lambda peer: "config" in peer.api(f"STREAM.INFO.{name}")


REQUESTS: dict[str, tuple[Callable[[World], object], Callable[[Peer], bool]]] = {
    "STREAM.CREATE": (
        lambda world: world.ask_api("STREAM.CREATE.T", {"name": "T", "subjects": ["T"]}),
        has_stream("T"),
    ),
    "STREAM.UPDATE": (
        lambda world: world.ask_api(
            "STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "max_msgs": 2}
        ),
        lambda peer: sequences(peer) == [2, 3],
    ),
    "STREAM.DELETE": (
        lambda world: world.ask_api("STREAM.DELETE.S"),
        lambda peer: not has_stream("S")(peer),
    ),
    "STREAM.PURGE": (
        lambda world: world.ask_api("STREAM.PURGE.S", {"keep": 1}),
        lambda peer: sequences(peer) == [3],
    ),
    "STREAM.MSG.DELETE": (
        lambda world: world.ask_api("STREAM.MSG.DELETE.S", {"seq": 2}),
        lambda peer: sequences(peer) == [1, 3],
    ),
    "CONSUMER.CREATE": (
        lambda world: world.ask_api("CONSUMER.CREATE.S.d", create("d")),
        lambda peer: info(peer, "d").get("name") == "d",
    ),
    "CONSUMER.CREATE (change)": (
        lambda world: world.ask_api(
            "CONSUMER.CREATE.S.c", create("c", max_ack_pending=5000, description="new")
        ),
        lambda peer: info(peer)["config"].get("description") == "new",
    ),
    "CONSUMER.DELETE": (
        lambda world: world.ask_api("CONSUMER.DELETE.S.c"),
        lambda peer: "error" in info(peer),
    ),
    "CONSUMER.PAUSE": (
        lambda world: world.ask_api("CONSUMER.PAUSE.S.c", {"pause_until": "2099-01-01T00:00:00Z"}),
        is_paused,
    ),
    "CONSUMER.RESET": (reset, is_reset),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_a_request_has_done_survives_a_power_failure_right_after_its_answer(name: str) -> None:
    act, is_done = REQUESTS[name]
    world = World()
    assert not is_done(world.restarted())
    act(world)
    assert is_done(world.restarted())


def test_a_reset_that_cannot_be_written_is_answered_with_the_error() -> None:
    world = World()
    world.rest()
    world.disk.fail("create", "*/obs/c/*", error=errno.ENOSPC, times=FOR_EVER)
    [(_, _, payload)] = world.ask("$JS.API.CONSUMER.RESET.S.c", {"seq": 2})
    assert "No space left" in json.loads(payload)["error"]["description"]


def test_acks_are_answered_while_a_hidden_consumer_reads_for_a_mirror() -> None:
    """Such a consumer ends with the server and has no place on disk: its state is not written, and
    so cannot fail the states of the others.
    """
    world = World()
    world.peer.connection.send(b"SUB copy.S 9\r\n")
    config = {
        "name": "mirror", "deliver_subject": "copy.S", "ack_policy": "none", "direct": True,
        "flow_control": True, "idle_heartbeat": 1_000_000_000, "max_deliver": 1,
    }  # fmt: skip
    world.ask_api("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
    world.ask("S.a", b"y")
    world.rest()
    world.ack(1)
    world.server.run_until_idle()
    world.sync()
    assert world.answers() == {1}


@pytest.mark.parametrize("is_logged", [True, False])
def test_messages_that_a_consumer_was_given_are_lost_by_name_if_the_last_block_is_cut(
    is_logged: bool,
) -> None:
    """Its state file knows of them, or the log of its acks."""
    world = World(6)
    if is_logged:
        world.ack(6)
        world.answers_when_kept(6)
    else:
        world.rest()
    disk = world.disk.crash_keeping_unsynced()
    path = next(path for path in disk.file_contents() if path.endswith("msgs/1.blk"))
    content = disk.content_of(path)
    start = content.index((4).to_bytes(8, "little"), 30) - 4
    disk.put_durable_file(path, content[:start])
    peer = world.restarted(disk)
    state = peer.api("STREAM.INFO.S")["state"]
    assert state["lost"]["msgs"] == [4, 5, 6]
    assert sequences(peer) == [1, 2, 3]
    assert state["last_seq"] > 6
    assert info(peer)["delivered"]["stream_seq"] >= 6
