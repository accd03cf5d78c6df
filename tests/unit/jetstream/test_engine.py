"""The engine on a simulated disk: turns, commits, power failures, recovery, time."""

from __future__ import annotations

import json

import pytest
from engine_kit import Peer

from tradewind.monitor.jsz import JetStreamMonitor
from tradewind.monitor.page_options import HealthzOptions
from tradewind.options import AccountOptions, JetStreamOptions, ServerOptions
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk


def open_server(disk: SimulatedDisk, **options: object) -> tuple[InProcessServer, Peer]:
    server = InProcessServer(disk=disk, **options)  # type: ignore[arg-type]
    return server, Peer(server)


def pull(peer: Peer, name: str, **request: object) -> list[bytes]:
    answers = peer.ask(f"$JS.API.CONSUMER.MSG.NEXT.{name}", {"batch": 10, **request})
    return [payload for _, _, payload in answers if payload]


def test_publish_is_acknowledged_only_when_it_is_synced() -> None:
    server, peer = open_server(SimulatedDisk(), manual_sync=True)
    peer.create("S")
    server.syncer.run_all()
    assert peer.publish("S.a") is None
    server.syncer.run_all()
    server.run_until_idle()
    assert [payload for *_, payload in peer.take()] == [b'{"stream":"S","seq":1}']


def test_consumer_sees_nothing_that_a_power_cut_could_take_back() -> None:
    server, peer = open_server(SimulatedDisk(), manual_sync=True)
    peer.create("S")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    peer.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    peer.publish("S.a", b"early")
    assert pull(peer, "S.c", expires=10**9) == []
    server.syncer.run_all()
    server.run_until_idle()
    assert b"early" in [payload for *_, payload in peer.take()]


@pytest.mark.parametrize("seed", range(20))
def test_acknowledged_messages_survive_a_power_cut(seed: int) -> None:
    disk = SimulatedDisk(seed)
    server, peer = open_server(disk, manual_sync=True)
    peer.create("S")
    server.syncer.run_all()
    acknowledged = 0
    for number in range(30):
        peer.publish("S.a", b"%d" % number)
        if number % (seed % 5 + 2) == 0:
            server.syncer.run_all()
            server.run_until_idle()
        acknowledged += len(peer.take())
    _, peer = open_server(disk.crash(seed))
    state = peer.api("STREAM.INFO.S")["state"]
    assert state["messages"] >= acknowledged
    for seq in range(1, state["last_seq"] + 1):
        assert "message" in peer.api("STREAM.MSG.GET.S", {"seq": seq}), seq


def test_restart_keeps_streams_messages_and_consumers() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    peer.create("S")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    peer.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    for number in range(3):
        peer.publish("S.a", b"%d" % number)
    assert pull(peer, "S.c", no_wait=True) == [b"0", b"1", b"2"]
    assert server.engine is not None
    server.engine.begin_stop()
    server.syncer.run_all()
    server.engine.close()
    _, peer = open_server(disk.crash_losing_unsynced())
    assert peer.api("STREAM.INFO.S")["state"]["messages"] == 3
    info = peer.api("CONSUMER.INFO.S.c")
    assert info["num_ack_pending"] == 3
    assert info["delivered"]["stream_seq"] == 3


def test_damaged_stream_is_named_and_does_not_stop_the_others() -> None:
    disk = SimulatedDisk()
    _, peer = open_server(disk)
    for name in ("good", "bad"):
        peer.create(name)
        peer.publish(f"{name}.x")
    disk = disk.crash_keeping_unsynced()
    path = f"{disk.root}/jetstream/$G/streams/bad/meta.inf"
    with disk.open(path, writes=True) as file:
        file.write(b"#", 0)
        file.sync()
    server, peer = open_server(disk)
    assert peer.api("STREAM.INFO.good")["state"]["messages"] == 1
    error = peer.api("STREAM.INFO.bad")["error"]
    assert (error["code"], error["err_code"]) == (500, 10194)
    assert peer.create("bad")["error"]["err_code"] == 10194
    assert "bad" in peer.api("STREAM.LIST")["offline"]
    assert any("bad" in line for line in server.log.texts("error"))
    assert disk.exists(path)


def test_ephemeral_consumer_goes_when_nobody_uses_it() -> None:
    server, peer = open_server(SimulatedDisk())
    peer.create("S")
    name = peer.api("CONSUMER.CREATE.S", {"stream_name": "S", "config": {}})["name"]
    server.advance(4)
    assert peer.api("CONSUMER.INFO.S." + name)["name"] == name
    server.advance(8)
    assert peer.api("CONSUMER.INFO.S." + name)["error"]["err_code"] == 10014


def test_deleted_stream_takes_its_files_and_consumers_along() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    peer.create("S")
    peer.publish("S.a")
    peer.api("CONSUMER.CREATE.S", {"stream_name": "S", "config": {}})
    assert peer.api("STREAM.DELETE.S")["success"]
    server.advance(1.0)
    assert disk.list_directory(f"{disk.root}/jetstream/$G/streams") == []
    assert server.engine is not None
    assert not server.engine.hosts
    assert not server.engine.consumer_hosts
    assert (server.engine.usage.storage, server.engine.usage.memory) == (0, 0)
    peer.create("S")
    assert peer.api("STREAM.INFO.S")["state"]["last_seq"] == 0


def test_account_limit_refuses_what_does_not_fit() -> None:
    limits = {"max_memory": 1000}
    options = ServerOptions(
        jetstream=JetStreamOptions(enabled=True),
        accounts={"$G": AccountOptions("$G", jetstream=True, jetstream_limits=limits)},
    )
    _, peer = open_server(SimulatedDisk(), options=options)
    peer.create("M", storage="memory")
    for _ in range(4):
        peer.publish("M.a", b"x" * 200)
    refused = peer.publish("M.a", b"x" * 200)
    assert refused is not None
    assert refused["error"]["err_code"] == 10002
    peer.api("STREAM.PURGE.M")
    accepted = peer.publish("M.a", b"x" * 200)
    assert accepted is not None
    assert accepted["seq"] == 5


def test_fault_of_ours_is_answered_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    server, peer = open_server(SimulatedDisk())
    server.expects_faults = True
    peer.create("S")
    assert server.engine is not None
    hosted = server.engine.accounts["$G"].streams["S"]
    monkeypatch.setattr(hosted, "stream", None)
    assert peer.api("STREAM.INFO.S")["error"]["err_code"] == 10051
    assert any("STREAM.INFO.S" in line for line in server.log.texts("error"))


def test_requests_in_a_domain_are_those_without_it() -> None:
    options = ServerOptions(jetstream=JetStreamOptions(enabled=True, domain="hub"))
    _, peer = open_server(SimulatedDisk(), options=options)
    peer.create("S")
    assert peer.publish("S.a") == {"stream": "S", "domain": "hub", "seq": 1}
    answer = json.loads(peer.ask("$JS.hub.API.STREAM.INFO.S")[0][2])
    assert answer["domain"] == "hub"
    config = {"durable_name": "c", "ack_policy": "explicit"}
    peer.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    found = peer.ask("$JS.hub.API.CONSUMER.MSG.NEXT.S.c", {"batch": 1, "no_wait": True})
    assert [payload for *_, payload in found] == [b"x"]
    missing = peer.ask("$JS.hub.API.CONSUMER.MSG.NEXT.S.nobody")
    subject = b"$JS.API.CONSUMER.MSG.NEXT.S.nobody"
    assert [header for _, header, _ in missing] == [
        b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
    ]


def test_stop_tells_waiting_requests_how_much_they_did_not_get() -> None:
    server, peer = open_server(SimulatedDisk())
    peer.create("S")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    peer.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    peer.publish("S.a")
    request = {"batch": 5, "max_bytes": 1000, "expires": 10**10}
    delivered = peer.ask("$JS.API.CONSUMER.MSG.NEXT.S.c", request)
    assert [payload for *_, payload in delivered] == [b"x"]
    assert server.engine is not None
    server.engine.begin_stop()
    server.run_until_idle()
    ((_, header, payload),) = peer.take()
    lines = header.split(b"\r\n")
    assert lines[:2] == [b"NATS/1.0 409 Server Shutdown", b"Nats-Pending-Messages: 4"]
    assert lines[2].startswith(b"Nats-Pending-Bytes: 9")
    assert payload == b""


def test_metrics_show_how_commits_go() -> None:
    server, peer = open_server(SimulatedDisk(), manual_sync=True)
    peer.create("S")
    server.syncer.run_all()
    before = _metrics(server)
    peer.publish("S.a")
    assert _metrics(server)["tradewind_jetstream_commits_running"] == 1
    server.syncer.run_all()
    after = _metrics(server)
    assert after["tradewind_jetstream_commits_running"] == 0
    assert after["tradewind_jetstream_commits_total"] > before["tradewind_jetstream_commits_total"]
    rounds = "tradewind_jetstream_commit_rounds_total"
    assert after[rounds] == before[rounds] + 1


def _metrics(server: InProcessServer) -> dict[str, float]:
    assert server.engine is not None
    families = JetStreamMonitor(server.engine).families()
    return {family.name: family.samples[0].value for family in families}


def test_health_names_a_stream_whose_disk_has_failed() -> None:
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    peer.create("S")
    peer.create("WELL")
    assert server.engine is not None
    monitor = JetStreamMonitor(server.engine)
    assert list(monitor.health(HealthzOptions())) == []
    disk.fail("sync", "*/S/msgs/*")
    peer.publish("S.a")
    (problem,) = monitor.health(HealthzOptions())
    assert (problem.account, problem.stream) == ("$G", "S")
    assert "'$G > S' is read-only: " in problem.text


def test_accounts_that_change_while_a_reload_walks_on_stay_as_they_are_then() -> None:
    names = ("A", "B", "C", "D")
    accounts = {name: AccountOptions(name, jetstream=True) for name in names}
    options = ServerOptions(server_name="here", accounts=accounts)
    server = InProcessServer(options, accounts=names, disk=SimulatedDisk())
    engine = server.engine
    assert engine is not None
    accounts["A"] = AccountOptions("A")
    accounts["B"] = AccountOptions("B")
    steps = engine.reload(options)
    next(steps)
    for name, limits in (("B", None), ("C", None), ("D", {"max_streams": 7})):
        accounts[name] = AccountOptions(
            name, jetstream=limits is not None, jetstream_limits=limits or {}
        )
        engine.set_account(name)
    for _ in steps:
        pass
    assert list(engine.accounts) == ["D"]
    assert engine.accounts["D"].limits.max_streams == 7
