"""A fault of the server in one piece of work ends that one: whoever else is there notices nothing.

At each border an exception is raised where nobody expects one. Another session, another consumer of
the same stream, another stream and another account go on, the fault is counted and said once, what
failed is not tried again at once, and the engine stops as always.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.broker import broker as broker_module
from tradewind.broker.accounts import AccountLimits
from tradewind.broker.session import Session
from tradewind.consumer.consumer import ServerConsumer
from tradewind.consumer.inactivity import Inactivity
from tradewind.consumer.pull_intake import PullIntake
from tradewind.jetstream import store_opening
from tradewind.jetstream.consumer_catalog import open_consumer
from tradewind.jetstream.engine import JetStreamEngine
from tradewind.jetstream.handlers import HANDLERS
from tradewind.jetstream.hosted import HostedStream
from tradewind.monitor.system_answers import SystemServices
from tradewind.options import AccountOptions, JetStreamOptions, ServerOptions
from tradewind.store.backup.restore import BackupRestore
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk
from tradewind.testing.gates import User, UserGate

Patch = pytest.MonkeyPatch
INTERNAL = b"NATS/1.0 500 Internal Server Error\r\n\r\n"


class Broken(Exception):  # noqa: N818 - what a program never raises on purpose
    """What is injected."""


def fail(*_: object, **__: object) -> Any:
    raise Broken("injected")


def failing_steps() -> Generator[Any, None, None]:
    yield from ()
    raise Broken("injected")


class World:
    """Account A with the streams S (consumers c and d), M and T, and account B with U.

    `victim` is whose work fails, `friend` another client of its account.
    """

    def __init__(self, disk: SimulatedDisk | None = None, *, is_new: bool = True) -> None:
        self.disk = disk or SimulatedDisk()
        self.server = InProcessServer(
            ServerOptions(
                server_name="in-process",
                accounts={name: AccountOptions(name, jetstream=True) for name in "AB"},
                jetstream=JetStreamOptions(enabled=True),
            ),
            gate=UserGate([User("a", "x", "A"), User("b", "x", "B"), User("s", "x", "$SYS")]),
            accounts={name: AccountLimits() for name in ("A", "B", "$SYS")},
            disk=self.disk,
        )
        self.server.expects_faults = True
        self.victim = Peer(self.server, "a", "x")
        self.friend = Peer(self.server, "a", "x", inbox="friend")
        self.other = Peer(self.server, "b", "x")
        if is_new:
            self._make()

    def _make(self) -> None:
        for stream, storage in (("S", "file"), ("M", "memory"), ("T", "file")):
            self.friend.create(stream, storage=storage, allow_direct=True)
        self.other.create("U")
        for peer, stream, name in (
            (self.friend, "S", "c"),
            (self.friend, "S", "d"),
            (self.friend, "M", "m"),
            (self.friend, "T", "e"),
            (self.other, "U", "f"),
        ):
            config = {"durable_name": name, "ack_policy": "explicit"}
            request = {"stream_name": stream, "config": config}
            assert "error" not in peer.api(f"CONSUMER.CREATE.{stream}.{name}", request)

    @property
    def engine(self) -> JetStreamEngine:
        assert self.server.engine is not None
        return self.server.engine

    def stream(self, name: str) -> HostedStream:
        return self.engine.accounts["A"].streams[name]

    def consumer(self, name: str = "c", stream: str = "S") -> ServerConsumer:
        return self.stream(stream).consumers[name]

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.server.broker.faults.counts)

    @property
    def said(self) -> list[str]:
        return [line for line in self.server.log.texts("error") if "Internal error in" in line]

    def check_bystanders(self) -> None:
        """Others publish and are acknowledged, pull and get their messages."""
        for peer, stream, consumer in ((self.friend, "T", "e"), (self.other, "U", "f")):
            acknowledgement = peer.publish(f"{stream}.x", b"theirs")
            assert acknowledgement is not None
            assert acknowledgement["stream"] == stream
            assert [payload for *_, payload in pull(peer, stream, consumer)] == [b"theirs"]
        self.friend.connection.send(b"SUB core 7\r\nPUB core 2\r\nhi\r\nUNSUB 7\r\n")
        assert [payload for *_, payload in self.friend.take()] == [b"hi"]
        assert self.friend.connection.is_open
        assert self.other.connection.is_open

    def stop(self) -> None:
        """The engine ends."""
        self.engine.begin_stop()
        self.server.run_until_idle()
        self.server.syncer.begin_drain(self.server.clock.monotonic_ns())
        self.server.syncer.run_all()
        self.engine.close()
        assert self.engine.root is not None
        self.engine.root.close()

    def check_stop(self) -> None:
        """The engine ends, and all that was acknowledged is there at the next start."""
        self.stop()
        again = InProcessServer(
            self.server.broker.options,
            gate=UserGate([User("b", "x", "B")]),
            accounts={name: AccountLimits() for name in ("A", "B", "$SYS")},
            disk=self.disk,
        )
        assert Peer(again, "b", "x").api("STREAM.INFO.U")["state"]["messages"] == 1


def pull(peer: Peer, stream: str, consumer: str) -> list[tuple[str, bytes, bytes]]:
    return peer.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", {"batch": 1, "no_wait": True})


def wait_for_a_message(world: World) -> None:
    """The victim has asked the consumer c."""
    assert world.victim.ask("$JS.API.CONSUMER.MSG.NEXT.S.c", {"batch": 1, "expires": 10**11}) == []


# ---------------------------------------------------------------- the borders


def a_consumer(world: World, patch: Patch) -> None:
    wait_for_a_message(world)
    patch.setattr(world.consumer(), "_fill", fail)
    world.victim.publish("S.x", b"for both")
    assert [payload for *_, payload in pull(world.friend, "S", "d")] == [b"for both"]


def a_consumer_that_cannot_say_its_deadline(world: World, patch: Patch) -> None:
    wait_for_a_message(world)
    faulty, real = world.consumer().inactivity, Inactivity.deadline_ns

    def deadline_ns(inactivity: Inactivity, *arguments: Any) -> Any:
        return fail() if inactivity is faulty else real(inactivity, *arguments)

    patch.setattr(Inactivity, "deadline_ns", deadline_ns)
    world.victim.publish("S.x", b"for both")
    assert [payload for *_, payload in pull(world.friend, "S", "d")] == [b"for both"]


def a_pull_request(world: World, patch: Patch) -> None:
    real = PullIntake._enter

    def enter(intake: PullIntake, reply: bytes, header: bytes, payload: bytes) -> None:
        if b"poison" in payload:
            raise Broken("injected")
        real(intake, reply, header, payload)

    patch.setattr(PullIntake, "_enter", enter)
    world.friend.publish("S.x", b"for the next")
    subject = b"$JS.API.CONSUMER.MSG.NEXT.S.c"
    world.victim.connection.send(
        b"PUB %b inbox.p 9\r\n{poison: \r\nPUB %b inbox.q 0\r\n\r\n" % (subject, subject)
    )
    answers = world.victim.take()
    assert ("inbox.p", INTERNAL, b"") in answers
    assert b"for the next" in [payload for *_, payload in answers]


def a_stream_in_memory(world: World, patch: Patch) -> None:
    patch.setattr(world.stream("M"), "wake_consumers", fail)
    world.victim.publish("M.x")


def a_stream_whose_commit_ends(world: World, patch: Patch) -> None:
    patch.setattr(world.stream("S"), "wake_consumers", fail)
    world.victim.publish("S.x")


def a_commit_of_states(world: World, patch: Patch) -> None:
    patch.setattr(world.consumer(), "encode_whole", fail)
    patch.setattr(world.consumer(), "take_changes", fail)
    world.victim.publish("S.x")
    pull(world.victim, "S", "c")
    world.server.advance(0.5)


def a_publish_that_needs_a_closer_look(world: World, patch: Patch) -> None:
    patch.setattr(world.stream("S").stream.slow_path, "publish", fail)
    header = b"NATS/1.0\r\nNats-Expected-Stream: S\r\n\r\n"
    world.victim.connection.send(
        b"HPUB S.x inbox.p %d %d\r\n%b\r\n" % (len(header), len(header), header)
    )
    [(_, _, body)] = world.victim.take()
    assert json.loads(body)["error"] == {
        "code": 503,
        "err_code": 10077,
        "description": "internal error, see the server's log; what was published"
        " and not acknowledged may be stored",
    }


def an_acknowledgement(world: World, patch: Patch) -> None:
    world.victim.publish("S.x")
    [(_, _, _)] = pull(world.victim, "S", "c")
    patch.setattr(world.consumer(), "other_ack", fail)
    world.victim.connection.send(b"PUB $JS.ACK.S.c.1.1.1.1.0 4\r\n-NAK\r\nPING\r\n")
    assert b"PONG" in world.victim.connection.take()


def a_deferred_message(world: World, patch: Patch) -> None:
    turn = world.engine.turn
    turn.defer(fail, b"first", b"", b"", b"")
    kept: list[bytes] = []
    turn.defer(lambda subject, *_: kept.append(subject), b"second", b"", b"", b"")
    world.server.run_until_idle()
    assert kept == [b"second"]


def a_listener_to_interest(world: World, patch: Patch) -> None:
    account = world.server.broker.accounts["A"]
    account.watch(b"watched", b"", fail)
    heard: list[bool] = []
    account.watch(b"watched", b"", lambda: heard.append(True))
    world.victim.connection.send(b"SUB watched 5\r\n")
    assert heard == [True]


def a_timer_of_a_consumer(world: World, patch: Patch) -> None:
    world.victim.publish("S.x")
    pull(world.victim, "S", "c")
    patch.setattr(world.consumer(), "tick", fail)
    world.server.advance(0.5)


def a_timer_of_a_stream(world: World, patch: Patch) -> None:
    world.victim.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "max_age": 10**9})
    world.victim.publish("S.x")
    patch.setattr(world.stream("S").stream, "tick", fail)
    world.server.advance(1.5)


def a_service(world: World, patch: Patch) -> None:
    world.server.broker.accounts["A"].subscribe("svc", fail)
    world.victim.connection.send(b"PUB svc 0\r\n\r\n")


def a_request_to_the_system_account(world: World, patch: Patch) -> None:
    system = SystemServices(world.server.broker, fail, fail, fail)
    system.start()
    patch.setattr(system.events, "statsz", fail)
    admin = Peer(world.server, "s", "x")
    [(_, _, body)] = admin.ask("$SYS.REQ.SERVER.PING")
    assert json.loads(body)["error"] == {
        "code": 500,
        "description": "internal error, see the server's log",
    }


# Requests that are not answered without their handler, see `prompt_answers`.
HANDLED = {"offset": 1}


def a_request_to_the_api(world: World, patch: Patch) -> None:
    patch.setitem(HANDLERS, "stream_info", fail)
    assert world.victim.api("STREAM.INFO.S", HANDLED)["error"] == {
        "code": 500,
        "err_code": 10051,
        "description": "internal error, see the server's log",
    }
    patch.undo()
    assert "error" not in world.victim.api("STREAM.INFO.S")


def an_answer_that_cannot_be_written(world: World, patch: Patch) -> None:
    patch.setitem(HANDLERS, "stream_info", lambda _: object())
    assert world.victim.api("STREAM.INFO.S", HANDLED)["error"]["err_code"] == 10051
    patch.undo()


def an_answer_without_a_handler(world: World, patch: Patch) -> None:
    patch.setattr(world.engine.accounts["A"].streams["S"], "info_head", 7)
    assert "error" not in world.victim.api("STREAM.INFO.S")
    patch.setitem(HANDLERS, "stream_info", fail)
    assert world.victim.api("STREAM.INFO.S")["error"]["err_code"] == 10051
    patch.undo()


def a_task_of_an_account(world: World, patch: Patch) -> None:
    world.engine.accounts["A"].lane.add(failing_steps())
    assert "error" not in world.victim.api("STREAM.INFO.S")


def a_worker_that_takes_nothing(world: World, patch: Patch) -> None:
    patch.setattr(world.server.workers, "submit", fail)
    answer = world.victim.api("STREAM.CREATE.N", {"name": "N", "subjects": ["n"]})
    assert answer["error"]["code"] == 500
    patch.undo()
    assert "error" not in world.victim.create("N")


def a_direct_get(world: World, patch: Patch) -> None:
    patch.setattr("tradewind.stream.direct_gets.decode_lenient", fail)
    answers = world.victim.ask("$JS.API.DIRECT.GET.S", b'{"seq":1,"unknown":{}}')
    assert [header for _, header, _ in answers] == [INTERNAL]


def a_timer_of_a_session(world: World, patch: Patch) -> None:
    real = broker_module._DUE["ping"]

    def due(broker: Any, session: Session) -> None:
        if session is world.victim.connection.session:
            raise Broken("injected")
        real(broker, session)

    patch.setitem(broker_module._DUE, "ping", due)
    world.server.advance(5)
    assert not world.victim.connection.is_open


def a_session_that_has_to_go(world: World, patch: Patch) -> None:
    patch.setattr(world.server.broker, "close_doomed", fail)
    world.victim.connection.stop_reading()
    world.victim.connection.send(b"SUB flood 9\r\n")
    size = world.server.broker.options.max_payload_bytes
    message = b"PUB flood %d\r\n%b\r\n" % (size, bytes(size))
    for _ in range(world.server.broker.options.max_pending_bytes // size + 2):
        world.friend.connection.send(message)
        world.server.advance(0.01)
    assert world.victim.connection.session.is_closed
    assert world.victim.connection.session.cid not in world.server.broker.sessions


def an_observer(world: World, patch: Patch) -> None:
    class Observer:
        on_connect = on_disconnect = on_auth_error = fail

    world.server.broker.observers.append(Observer())
    assert Peer(world.server, "a", "x").api("STREAM.INFO.S")["config"]["name"] == "S"
    world.server.broker.observers.clear()


def a_backup(world: World, patch: Patch) -> None:
    world.victim.publish("S.x")
    patch.setattr("tradewind.jetstream.snapshots.pack_messages", fail)
    world.victim.connection.send(b"SUB chunks 3\r\n")
    answers = world.victim.ask("$JS.API.STREAM.SNAPSHOT.S", {"deliver_subject": "chunks"})
    ends = [header for subject, header, _ in answers if subject == "chunks"]
    assert ends == [b"NATS/1.0 500 internal error, see the server's log\r\n\r\n"]
    assert not world.engine.snapshots._running


def a_restore(world: World, patch: Patch) -> None:
    request = {"config": {"name": "R", "subjects": ["r"]}, "state": {}}
    subject = world.victim.api("STREAM.RESTORE.R", request)["deliver_subject"]
    patch.setattr(BackupRestore, "feed", fail)
    assert len(world.victim.ask(subject, b"a chunk")) == 1
    [(_, _, body)] = world.victim.ask(subject)
    assert json.loads(body)["error"]["description"].endswith("internal error, see the server's log")
    assert not world.engine.restores._running


def a_restore_that_no_worker_takes(world: World, patch: Patch) -> None:
    request = {"config": {"name": "R", "subjects": ["r"]}, "state": {}}
    subject = world.victim.api("STREAM.RESTORE.R", request)["deliver_subject"]
    submit = world.server.workers.submit
    patch.setattr(world.server.workers, "submit", fail)
    assert len(world.victim.ask(subject, b"a chunk")) == 1
    patch.setattr(world.server.workers, "submit", submit)
    [(_, _, body)] = world.victim.ask(subject)
    assert json.loads(body)["error"]["description"].endswith("internal error, see the server's log")


BORDERS: tuple[tuple[Callable[[World, Patch], None], str], ...] = (
    (a_consumer, "consumer"),
    (a_consumer_that_cannot_say_its_deadline, "consumer"),
    (a_pull_request, "pull request"),
    (a_stream_in_memory, "stream"),
    (a_stream_whose_commit_ends, "syncer"),
    (a_commit_of_states, "syncer"),
    (a_publish_that_needs_a_closer_look, "publish"),
    (an_acknowledgement, "hook"),
    (a_deferred_message, "deferred message"),
    (a_listener_to_interest, "listener to interest"),
    (a_timer_of_a_consumer, "timer"),
    (a_timer_of_a_stream, "timer"),
    (a_service, "service"),
    (a_request_to_the_system_account, "service"),
    (a_request_to_the_api, "request"),
    (an_answer_that_cannot_be_written, "request"),
    (an_answer_without_a_handler, "request"),
    (a_task_of_an_account, "request"),
    (a_worker_that_takes_nothing, "request"),
    (a_direct_get, "direct get"),
    (a_backup, "backup"),
    (a_restore, "restore"),
    (a_restore_that_no_worker_takes, "restore"),
    (a_timer_of_a_session, "session"),
    (a_session_that_has_to_go, "session"),
    (an_observer, "observer"),
)


@pytest.mark.parametrize(
    ("border", "place"), BORDERS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_fault_reaches_nobody_else(
    border: Callable[[World, Patch], None], place: str, monkeypatch: Patch
) -> None:
    world = World()
    border(world, monkeypatch)
    assert set(world.counts) == {place}, world.said
    assert len(world.said) == len({line.partition("[")[2] for line in world.said})
    assert world.said[0].startswith(f"Internal error in {place}")
    assert "Broken('injected')" in world.said[0] or "TypeError" in world.said[0]
    world.check_bystanders()
    world.check_stop()


def test_a_consumer_goes_on_when_the_fault_is_over(monkeypatch: Patch) -> None:
    world = World()
    a_consumer(world, monkeypatch)
    world.server.advance(5.5)
    # It was tried again, but not all the time, and the log was told of the first one only.
    assert 2 <= world.counts["consumer"] <= 12
    assert len(world.said) <= 2
    world.victim.take()
    monkeypatch.undo()
    world.server.advance(1.1)
    assert [payload for *_, payload in world.victim.take()] == [b"for both"]


def test_a_stream_takes_messages_again_when_the_fault_is_over(monkeypatch: Patch) -> None:
    world = World()
    monkeypatch.setattr(world.stream("S"), "wake_consumers", fail)
    world.victim.publish("S.x")
    monkeypatch.undo()
    world.server.advance(1.1)
    world.server.syncer.tick(world.server.clock.monotonic_ns())
    world.server.run_until_idle()
    world.victim.take()
    acknowledgement = world.victim.publish("S.x")
    assert acknowledgement is not None
    assert acknowledgement["stream"] == "S"


@pytest.mark.parametrize("what", ["stream", "consumer"])
def test_a_fault_at_the_start_keeps_one_stream_or_consumer_closed(
    what: str, monkeypatch: Patch
) -> None:
    world = World()
    world.check_bystanders()
    world.victim.publish("S.x")
    disk = world.disk
    world.stop()
    if what == "stream":
        real = store_opening.open_stream

        def open_stream(context: Any, folder: Any, *rest: Any, **settings: Any) -> Any:
            return fail() if folder.stream == "S" else real(context, folder, *rest, **settings)

        monkeypatch.setattr(store_opening, "open_stream", open_stream)
    else:
        monkeypatch.setattr(
            store_opening,
            "open_consumer",
            lambda engine, hosted, stored: (
                fail() if stored.meta.name == "c" else open_consumer(engine, hosted, stored)
            ),
        )
    again = World(disk, is_new=False)
    assert again.counts == {"start": 1}
    name = "STREAM.INFO.S" if what == "stream" else "CONSUMER.INFO.S.c"
    answer = again.victim.api(name)["error"]["description"]
    assert answer.endswith("internal error, see the server's log")
    if what == "consumer":
        assert [payload for *_, payload in pull(again.friend, "S", "d")] == [b"x"]
    assert again.friend.api("STREAM.INFO.T")["state"]["messages"] == 1
    assert again.other.api("STREAM.INFO.U")["state"]["messages"] == 1


def a_stream_that_cannot_stop(world: World, patch: Patch) -> None:
    patch.setattr(world.stream("S"), "begin_stop", fail)


def a_stream_that_cannot_be_closed(world: World, patch: Patch) -> None:
    patch.setattr(world.stream("S"), "close", fail)


def a_consumer_that_cannot_be_closed(world: World, patch: Patch) -> None:
    patch.setattr(world.consumer(), "close", fail)


def services_that_cannot_be_withdrawn(world: World, patch: Patch) -> None:
    patch.setattr(world.engine._dispatcher, "stop_listening", fail)


def backups_that_cannot_stop(world: World, patch: Patch) -> None:
    patch.setattr(world.engine.snapshots, "stop", fail)


@pytest.mark.parametrize(
    "obstacle",
    [
        a_stream_that_cannot_stop,
        a_stream_that_cannot_be_closed,
        a_consumer_that_cannot_be_closed,
        services_that_cannot_be_withdrawn,
        backups_that_cannot_stop,
    ],
)
def test_a_fault_does_not_keep_the_engine_from_stopping(
    obstacle: Callable[[World, Patch], None], monkeypatch: Patch
) -> None:
    world = World()
    world.check_bystanders()
    obstacle(world, monkeypatch)
    world.check_stop()
    assert world.server.broker.faults.total > 0
