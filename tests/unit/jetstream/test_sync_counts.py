"""How often each operation syncs before it is answered, and how often it waits for that.

A table that DURABILITY.md repeats: an operation that begins to sync more fails here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from engine_kit import Peer

from tradewind.options import JetStreamOptions, ServerOptions
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

MINUTES_NS = 120_000_000_000
CONSUMER = {"durable_name": "C", "ack_policy": "explicit"}


class Cost(NamedTuple):
    """Syncs of files and folders, and how many of them follow each other."""

    syncs: int
    waits: int


class CountingDisk(SimulatedDisk):
    """Calls that are made together wait as long as the longest of them."""

    waits = 0

    def together(self, calls: Sequence[Callable[[], object]]) -> None:
        before, longest = self.waits, self.waits
        for call in calls:
            self.waits = before
            call()
            longest = max(longest, self.waits)
        self.waits = longest

    def begin(self, operation: Any, path: str, *, is_step: bool = False) -> Any:
        if operation in ("sync", "sync_directory"):
            self.waits += 1
        return super().begin(operation, path, is_step=is_step)

    def cost(self) -> Cost:
        return Cost(self.calls["sync"] + self.calls["sync_directory"], self.waits)


class Bench:
    """A server whose operations are counted."""

    def __init__(self, mode: str) -> None:
        self.disk = CountingDisk()
        interval_ns = MINUTES_NS if mode == "interval" else 0
        options = ServerOptions(
            jetstream=JetStreamOptions(enabled=True, sync_interval_ns=interval_ns)
        )
        self.server = InProcessServer(options, disk=self.disk)
        self.peer = Peer(self.server)
        self._more = {"persist_mode": "async"} if mode == "async" else {}
        self.peer.create("FIRST", **self._more)
        self.peer.create("S", **self._more)
        for _ in range(5):
            self.peer.ask("S.a", b"x")
        self.consumer("FIRST_ONE")

    def create(self, name: str, **config: Any) -> dict[str, Any]:
        return self.peer.create(name, **self._more, **config)

    def consumer(self, name: str, **config: Any) -> dict[str, Any]:
        wanted = {"durable_name": name, "ack_policy": "explicit", **config}
        body = {"stream_name": "S", "config": wanted}
        return self.peer.api(f"CONSUMER.CREATE.S.{name}", body)

    def ask(self, name: str, body: Any = b"") -> dict[str, Any]:
        return self.peer.api(name, body)

    def fetched(self) -> str:
        self.peer.connection.send(b"SUB next 9\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C next 0\r\n\r\n")
        lines = self.peer.connection.take().decode().split("\r\n")
        return next(line for line in lines if line.startswith("MSG S.a")).split()[3]

    def pass_interval(self) -> None:
        self.server.advance(MINUTES_NS / 1e9 + 1)
        self.server.syncer.tick(self.server.clock.monotonic_ns())
        self.server.run_until_idle()

    def remove(self) -> bool:
        self.server.advance(1.0)
        self.server.run_until_idle()
        return True

    def stop(self) -> None:
        engine = self.server.engine
        assert engine is not None
        engine.begin_stop()
        self.server.syncer.run_all()
        engine.close()

    def counted(self, operation: Callable[[], Any]) -> Cost:
        before = self.disk.cost()
        answer = operation()
        assert answer is not None
        assert not isinstance(answer, dict) or "error" not in answer, answer
        after = self.disk.cost()
        return Cost(after.syncs - before.syncs, after.waits - before.waits)


def operations(bench: Bench) -> dict[str, Callable[[], Any]]:
    """In the order in which they are made."""
    bucket = {"max_msgs_per_subject": 1, "allow_rollup_hdrs": True, "deny_delete": True}
    update = {"name": "S", "subjects": ["S.>"], "max_msgs": 1000, **bench._more}
    return {
        "create a stream": lambda: bench.create("N"),
        "create a bucket": lambda: bench.create("KV_B", **bucket),
        "put a value": lambda: bench.peer.publish("KV_B.k"),
        "replace a value": lambda: bench.peer.publish("KV_B.k"),
        "publish": lambda: bench.peer.publish("S.a"),
        "update a stream": lambda: bench.ask("STREAM.UPDATE.S", update),
        "create a pull consumer": lambda: bench.consumer("C"),
        "create a push consumer": lambda: bench.consumer("P", deliver_subject="to"),
        "update a consumer": lambda: bench.consumer("C", description="d"),
        "delete a consumer": lambda: bench.ask("CONSUMER.DELETE.S.P"),
        "delete a message": lambda: bench.ask("STREAM.MSG.DELETE.S", {"seq": 2, "no_erase": True}),
        "delete a stream": lambda: bench.ask("STREAM.DELETE.N"),
    }


NOTHING = Cost(0, 0)
ALWAYS = {
    "create a stream": Cost(7, 2),
    "create a bucket": Cost(7, 2),
    "put a value": Cost(1, 1),
    "replace a value": Cost(1, 1),
    "publish": Cost(1, 1),
    "update a stream": Cost(4, 2),
    "create a pull consumer": Cost(6, 2),
    "create a push consumer": Cost(6, 2),
    "update a consumer": Cost(4, 2),
    "delete a consumer": Cost(1, 1),
    "delete a message": Cost(1, 1),
    "delete a stream": Cost(1, 1),
}
RELAXED = dict.fromkeys(ALWAYS, NOTHING) | {
    # An old configuration must not be lost for a new one that never arrives.
    "update a stream": Cost(3, 1),
    "update a consumer": Cost(3, 1),
}


@pytest.mark.parametrize(
    ("mode", "expected"), [("always", ALWAYS), ("interval", RELAXED), ("async", RELAXED)]
)
def test_operations_sync_what_they_promise_and_no_more(
    mode: str, expected: dict[str, Cost]
) -> None:
    bench = Bench(mode)
    found = {name: bench.counted(call) for name, call in operations(bench).items()}
    assert found == expected


@pytest.mark.parametrize(
    ("mode", "first", "second"),
    [
        ("always", Cost(2, 1), Cost(1, 1)),
        ("interval", NOTHING, NOTHING),
        ("async", NOTHING, NOTHING),
    ],
)
def test_an_answered_acknowledgement_waits_once(mode: str, first: Cost, second: Cost) -> None:
    bench = Bench(mode)
    bench.consumer("C")
    # The first record makes a log; a state that was never written as a whole is, before that.
    subjects = [bench.fetched() for _ in range(4)]
    bench.server.advance(1.0)
    found = [bench.counted(lambda to=to: bench.peer.ask(to, b"+ACK")) for to in subjects]
    assert found[0] == first
    assert found[2:] == [second, second]


def test_each_creation_is_on_disk_when_it_is_answered() -> None:
    bench = Bench("always")
    for name in ("S", "FIRST", "NEW"):
        bench.create(name)
        bench.peer.publish(f"{name}.a")
        restarted = Peer(InProcessServer(disk=bench.disk.crash_losing_unsynced()))
        assert name in restarted.api("STREAM.NAMES")["streams"]
        assert restarted.api(f"STREAM.INFO.{name}")["state"]["messages"] > 0
    for name in ("C", "D"):
        bench.consumer(name)
        restarted = Peer(InProcessServer(disk=bench.disk.crash_losing_unsynced()))
        assert name in restarted.api("CONSUMER.NAMES.S")["consumers"]
    bench.consumer("C", description="new")
    restarted = Peer(InProcessServer(disk=bench.disk.crash_losing_unsynced()))
    assert restarted.api("CONSUMER.INFO.S.C")["config"]["description"] == "new"


@pytest.mark.parametrize("mode", ["interval", "async"])
def test_what_nobody_waited_for_is_on_disk_after_the_interval(mode: str) -> None:
    bench = Bench(mode)
    bench.consumer("C")
    disk = bench.disk.crash_losing_unsynced()
    assert not Peer(InProcessServer(disk=disk)).api("STREAM.NAMES")["streams"]
    bench.pass_interval()
    restarted = Peer(InProcessServer(disk=bench.disk.crash_losing_unsynced()))
    assert restarted.api("STREAM.NAMES")["streams"] == ["FIRST", "S"]
    assert restarted.api("STREAM.INFO.S")["state"]["messages"] == 5
    assert set(restarted.api("CONSUMER.NAMES.S")["consumers"]) == {"FIRST_ONE", "C"}


@pytest.mark.parametrize("mode", ["interval", "async"])
def test_a_consumer_that_goes_before_it_was_synced_holds_up_no_commit(mode: str) -> None:
    bench = Bench(mode)
    bench.consumer("C")
    bench.ask("CONSUMER.DELETE.S.C")
    bench.pass_interval()
    restarted = Peer(InProcessServer(disk=bench.disk.crash_losing_unsynced()))
    assert restarted.api("CONSUMER.NAMES.S")["consumers"] == ["FIRST_ONE"]
    assert restarted.api("STREAM.INFO.S")["state"]["messages"] == 5


@pytest.mark.parametrize("mode", ["interval", "async"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_deletions_nobody_waited_for_are_synced_before_their_files_go(
    mode: str, is_stopped: bool
) -> None:
    bench = Bench(mode)
    bench.consumer("C")
    bench.pass_interval()
    bench.ask("CONSUMER.DELETE.S.C")
    bench.ask("STREAM.DELETE.FIRST")
    killed = Peer(InProcessServer(disk=bench.disk.crash_keeping_unsynced()))
    if is_stopped:
        bench.stop()
    else:
        assert bench.counted(bench.remove) == Cost(2, 2)
    cut = Peer(InProcessServer(disk=bench.disk.crash_losing_unsynced()))
    for restarted in (killed, cut):
        assert restarted.api("CONSUMER.NAMES.S")["consumers"] == ["FIRST_ONE"]
        assert restarted.api("STREAM.NAMES")["streams"] == ["S"]


@pytest.mark.parametrize("mode", ["interval", "async"])
def test_a_changed_configuration_is_on_disk_after_the_interval(mode: str) -> None:
    bench = Bench(mode)
    bench.consumer("C")
    bench.pass_interval()
    update = {"name": "S", "subjects": ["S.>"], "max_msgs": 77, **bench._more}
    bench.ask("STREAM.UPDATE.S", update)
    bench.consumer("C", description="new")
    killed = Peer(InProcessServer(disk=bench.disk.crash_keeping_unsynced()))
    bench.pass_interval()
    cut = Peer(InProcessServer(disk=bench.disk.crash_losing_unsynced()))
    for restarted in (killed, cut):
        assert restarted.api("STREAM.INFO.S")["config"]["max_msgs"] == 77
        assert restarted.api("CONSUMER.INFO.S.C")["config"]["description"] == "new"


@pytest.mark.parametrize("mode", ["interval", "async"])
def test_creations_survive_a_kill_although_nothing_was_synced(mode: str) -> None:
    bench = Bench(mode)
    bench.consumer("C")
    restarted = Peer(InProcessServer(disk=bench.disk.crash_keeping_unsynced()))
    assert restarted.api("STREAM.NAMES")["streams"] == ["FIRST", "S"]
    assert set(restarted.api("CONSUMER.NAMES.S")["consumers"]) == {"FIRST_ONE", "C"}
