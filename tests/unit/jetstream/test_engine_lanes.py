"""Requests that wait for the disk: who waits with them, and what is durable when they answer."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.broker.turn_watch import TurnWatch
from tradewind.jetstream.lanes import TURN_NS_MAX, Lane, Steps
from tradewind.options import AccountOptions, JetStreamOptions, ServerOptions
from tradewind.stream import upkeep
from tradewind.testing import FakeClock, InProcessServer, MemoryLog, User, UserGate
from tradewind.testing.fake_disk import SimulatedDisk
from tradewind.testing.fake_workers import InlineWorkers


def open_server(disk: SimulatedDisk, **options: Any) -> tuple[InProcessServer, Peer]:
    server = InProcessServer(disk=disk, **options)
    return server, Peer(server)


def answers(peer: Peer) -> list[dict[str, Any]]:
    return [json.loads(payload) for *_, payload in peer.take()]


def request(name: str) -> dict[str, Any]:
    return {"name": name, "subjects": [f"{name}.>"]}


def run_workers(server: InProcessServer) -> None:
    server.workers.run_all()
    server.run_until_idle()


def test_messages_go_on_while_a_request_waits_for_the_disk() -> None:
    server, peer = open_server(SimulatedDisk())
    peer.create("S")
    server.workers.is_held = True
    assert peer.ask("$JS.API.STREAM.CREATE.T", request("T")) == []
    assert peer.publish("S.a") == {"stream": "S", "seq": 1}
    assert peer.ask("nobody.listens")[0][1].startswith(b"NATS/1.0 503")
    run_workers(server)
    assert [answer["config"]["name"] for answer in answers(peer)] == ["T"]


def test_requests_of_an_account_are_answered_in_their_order() -> None:
    server, peer = open_server(SimulatedDisk())
    server.workers.is_held = True
    assert peer.ask("$JS.API.STREAM.CREATE.A", request("A")) == []
    assert peer.ask("$JS.API.STREAM.INFO.A") == []
    assert peer.ask("$JS.API.STREAM.DELETE.A") == []
    assert peer.ask("$JS.API.STREAM.NAMES") == []
    run_workers(server)
    kinds = [answer["type"].rpartition(".")[2] for answer in answers(peer)]
    assert kinds == [
        "stream_create_response",
        "stream_info_response",
        "stream_delete_response",
        "stream_names_response",
    ]


def test_another_account_does_not_wait() -> None:
    accounts = {name: AccountOptions(name, jetstream=True) for name in ("A", "B")}
    options = ServerOptions(jetstream=JetStreamOptions(enabled=True), accounts=accounts)
    gate = UserGate([User(name, name, name) for name in ("A", "B")])
    server = InProcessServer(options, disk=SimulatedDisk(), gate=gate, accounts=["A", "B"])
    one, other = (Peer(server, user=name, password=name) for name in ("A", "B"))
    server.workers.is_held = True
    assert one.ask("$JS.API.STREAM.CREATE.S", request("S")) == []
    assert other.api("STREAM.NAMES")["total"] == 0
    assert one.ask("$JS.API.STREAM.NAMES") == []


def test_failure_of_the_disk_is_answered_and_the_next_request_runs() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    disk.fail("create", error=errno.ENOSPC)
    assert peer.create("S")["error"]["err_code"] == 10049
    disk.clear_faults()
    assert peer.create("S")["did_create"]
    assert not server.log.texts("error")


@pytest.mark.parametrize("kind", ["DELETE", "PURGE"])
def test_removal_is_answered_when_a_power_cut_cannot_undo_it(kind: str) -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk, manual_sync=True)
    peer.create("S")
    for _ in range(3):
        peer.publish("S.a")
    server.syncer.run_all()
    server.run_until_idle()
    peer.take()
    subject, body = ("MSG.DELETE", {"seq": 2}) if kind == "DELETE" else ("PURGE", {"seq": 3})
    assert peer.ask(f"$JS.API.STREAM.{subject}.S", body) == []
    server.syncer.run_all()
    server.run_until_idle()
    assert [answer["success"] for answer in answers(peer)] == [True]
    _, peer = open_server(disk.crash_losing_unsynced())
    state = peer.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    assert state["messages"] == (2 if kind == "DELETE" else 1)


def test_removals_share_a_sync() -> None:
    server, peer = open_server(SimulatedDisk(), manual_sync=True)
    peer.create("S")
    for _ in range(20):
        peer.publish("S.a")
    server.syncer.run_all()
    server.run_until_idle()
    peer.take()
    before = server.syncer.statistics.commits
    for seq in range(1, 20):
        assert peer.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True}) == []
    server.syncer.run_all()
    server.run_until_idle()
    assert [answer["success"] for answer in answers(peer)] == [True] * 19
    assert server.syncer.statistics.commits - before <= 4


def test_failed_sync_refuses_the_removal() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk, manual_sync=True)
    peer.create("S")
    peer.publish("S.a")
    server.syncer.run_all()
    server.run_until_idle()
    peer.take()
    assert peer.ask("$JS.API.STREAM.MSG.DELETE.S", {"seq": 1}) == []
    disk.fail("sync", error=errno.EIO)
    server.syncer.run_all()
    server.run_until_idle()
    assert [answer["error"]["err_code"] for answer in answers(peer)] == [10057]


def test_large_purge_lets_others_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "REMOVED_PER_STEP", 10)
    server, peer = open_server(SimulatedDisk())
    peer.create("S")
    for number in range(50):
        peer.publish(f"S.{number % 2}")
    server.workers.is_held = True
    assert peer.ask("$JS.API.STREAM.PURGE.S", {"filter": "S.0"}) == []
    assert peer.publish("S.0") == {"stream": "S", "seq": 51}
    run_workers(server)
    assert [answer["purged"] for answer in answers(peer)] == [25]
    server.workers.is_held = False
    assert peer.api("STREAM.INFO.S")["state"]["messages"] == 26


def test_space_of_a_deleted_stream_is_given_back_behind_the_answer() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    peer.create("S")
    peer.publish("S.a")
    server.workers.is_held = True
    assert peer.ask("$JS.API.STREAM.DELETE.S") == []
    server.workers.run_next()  # whether the disk takes changes
    server.workers.run_next()
    server.run_until_idle()
    assert [answer["success"] for answer in answers(peer)] == [True]
    folder = f"{disk.root}/jetstream/$G/streams"
    assert disk.list_directory(folder) == [".S"]
    server.advance(1.0)
    run_workers(server)
    assert disk.list_directory(folder) == []


def test_stop_finishes_the_task_under_way_and_forgets_the_others() -> None:
    server, peer = open_server(SimulatedDisk())
    server.workers.is_held = True
    peer.ask("$JS.API.STREAM.CREATE.A", request("A"))
    peer.ask("$JS.API.STREAM.CREATE.B", request("B"))
    assert server.engine is not None
    server.engine.begin_stop()
    run_workers(server)
    assert [answer["config"]["name"] for answer in answers(peer)] == ["A"]
    assert list(server.engine.accounts["$G"].streams) == ["A"]


def test_fault_in_a_task_does_not_stop_the_lane() -> None:
    faults: list[Exception] = []
    done: list[str] = []

    def broken() -> Steps[None]:
        yield _nothing
        raise ZeroDivisionError

    def good() -> Steps[None]:
        yield _nothing
        done.append("good")

    lane = Lane(InlineWorkers(), _nothing, faults.append, watch())
    lane.add(broken())
    lane.add(good())
    assert [type(fault) for fault in faults] == [ZeroDivisionError]
    assert done == ["good"]
    assert lane.is_idle


def test_error_of_a_worker_comes_out_of_the_step() -> None:
    caught: list[Exception] = []

    def task() -> Steps[None]:
        try:
            yield _broken
        except ValueError as error:
            caught.append(error)
        yield _nothing
        caught.append(KeyError("afterwards"))

    Lane(InlineWorkers(), _nothing, caught.append, watch()).add(task())
    assert [type(error) for error in caught] == [ValueError, KeyError]


LARGE = {"name": "L", "subjects": [f"l.{number}" for number in range(2000)]}


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("STREAM.CREATE.L", LARGE),
        ("STREAM.CREATE.L", {**LARGE, "unknown": 1}),
        ("STREAM.UPDATE.S", {**LARGE, "name": "S"}),
        (
            "CONSUMER.CREATE.S.c",
            {"stream_name": "S", "config": {"name": "c", "filter_subjects": LARGE["subjects"]}},
        ),
    ],
)
def test_large_requests_leave_the_loop_to_others_and_keep_their_order(
    endpoint: str, body: dict[str, Any]
) -> None:
    expected_server, expected_peer = open_server(SimulatedDisk())
    server, peer = open_server(SimulatedDisk())
    for one in (expected_peer, peer):
        one.create("S")
    expected = [expected_peer.api(endpoint, body), expected_peer.api("STREAM.NAMES")]
    server.workers.is_held = True
    assert peer.ask(f"$JS.API.{endpoint}", body) == []
    assert peer.ask("$JS.API.STREAM.NAMES") == []
    assert server.workers.waiting_count == 1
    publisher = Peer(server)
    publisher.connection.send(b"SUB other 7\r\nPUB other 2\r\nhi\r\n")
    assert [payload for *_, payload in publisher.take()] == [b"hi"]
    run_workers(server)
    found = answers(peer)
    for document in (*expected, *found):
        document.pop("created", None)
        document.pop("ts", None)
    assert found == expected
    assert expected_server.workers.waiting_count == 0


def test_small_requests_are_decoded_and_checked_at_once() -> None:
    server, peer = open_server(SimulatedDisk())
    server.workers.is_held = True
    answer = peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory"})
    assert "error" not in answer
    assert server.workers.waiting_count == 0


def test_tasks_that_have_waited_together_let_the_loop_go_on_between_them() -> None:
    clock, workers, done = FakeClock(), InlineWorkers(), []
    watch = TurnWatch(clock, MemoryLog())

    def first() -> Steps[None]:
        yield _nothing

    def busy(number: int) -> Steps[None]:
        clock.work_ns(TURN_NS_MAX // 2 + 1)
        done.append(number)
        yield from ()

    lane = Lane(workers, _nothing, _raise, watch)
    workers.is_held = True
    lane.add(first())
    for number in range(5):
        lane.add(busy(number))
    workers.run_next()
    assert done == [0, 1]
    workers.run_next()
    assert done == [0, 1, 2, 3]
    workers.run_next()
    assert done == [0, 1, 2, 3, 4]
    assert lane.is_idle
    assert workers.waiting_count == 0


def watch() -> TurnWatch:
    return TurnWatch(FakeClock(), MemoryLog())


def _raise(error: Exception) -> None:
    raise error


def _nothing() -> None:
    pass


def _broken() -> None:
    raise ValueError
