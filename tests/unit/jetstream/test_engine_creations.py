"""Streams and consumers that are created together share the syncs, and nothing else."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.options import AccountOptions, JetStreamOptions, ServerOptions
from tradewind.testing import InProcessServer, User, UserGate
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

COUNT = 12
CRASHES = 3


def stream_request(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    return f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config}


def consumer_request(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    config = {"durable_name": name, "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}


def ask_all(
    server: InProcessServer, peer: Peer, requests: list[tuple[str, Any]]
) -> list[dict[str, Any]]:
    """The answers to requests that all wait before the first one reaches the disk."""
    server.workers.is_held = True
    for subject, body in requests:
        assert peer.ask(f"$JS.API.{subject}", body) == []
    server.workers.is_held = False
    server.workers.run_all()
    server.run_until_idle()
    return [json.loads(payload) for *_, payload in peer.take()]


def ask_each(peer: Peer, requests: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [peer.api(*one) for one in requests]


def syncs_of(requests: list[tuple[str, Any]], *, together: bool) -> tuple[int, int]:
    """How often files and folders are synced for these."""
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = Peer(server)
    peer.create("S")
    files, folders = disk.calls["sync"], disk.calls["sync_directory"]
    ask = partial(ask_all, server, peer) if together else partial(ask_each, peer)
    answers = ask(requests)
    assert not any("error" in answer for answer in answers)
    return disk.calls["sync"] - files, disk.calls["sync_directory"] - folders


@pytest.mark.parametrize("kind", ["stream", "consumer"])
def test_creations_share_the_sync_of_the_folder_around_them(kind: str) -> None:
    make = stream_request if kind == "stream" else consumer_request
    requests = [make(f"N{number}") for number in range(COUNT)]
    files, folders = syncs_of(requests, together=False)
    files_together, folders_together = syncs_of(requests, together=True)
    assert files_together == files == 3 * COUNT
    # The first one is on its way before the others come; they are one group.
    assert folders - folders_together >= COUNT - 2


def test_answers_come_in_the_order_of_the_requests_and_see_those_before() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    requests: list[tuple[str, Any]] = [stream_request(f"N{number}") for number in range(COUNT)]
    requests.insert(6, ("STREAM.NAMES", b""))
    requests.append(("STREAM.NAMES", b""))
    answers = ask_all(server, peer, requests)
    names = [answer["config"]["name"] for answer in answers if "config" in answer]
    assert names == [f"N{number}" for number in range(COUNT)]
    assert answers[6]["total"] == 6
    assert answers[-1]["total"] == COUNT


def test_name_or_subject_that_another_creation_has_taken_is_refused() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    answers = ask_all(
        server,
        peer,
        [
            stream_request("A"),
            stream_request("B"),
            stream_request("B"),
            stream_request("B", max_msgs=5),
            stream_request("C", subjects=["B.x"]),
            stream_request("D"),
        ],
    )
    codes = [answer.get("error", {}).get("err_code") for answer in answers]
    assert codes == [None, None, None, 10058, 10065, None]


def test_limits_of_an_account_count_what_is_being_created() -> None:
    accounts = {"A": AccountOptions("A", jetstream=True, jetstream_limits={"max_streams": 3})}
    options = ServerOptions(jetstream=JetStreamOptions(enabled=True), accounts=accounts)
    gate = UserGate([User("A", "A", "A")])
    server = InProcessServer(options, disk=SimulatedDisk(), gate=gate, accounts=["A"])
    peer = Peer(server, user="A", password="A")
    answers = ask_all(server, peer, [stream_request(f"N{number}") for number in range(5)])
    assert [answer.get("error", {}).get("err_code") for answer in answers] == [
        None,
        None,
        None,
        10027,
        10027,
    ]


def test_reserved_bytes_are_given_back_when_a_creation_fails() -> None:
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = Peer(server)
    disk.fail("create", "*/N1/*", error=errno.ENOSPC)
    requests = [stream_request(f"N{number}", max_bytes=1000) for number in range(4)]
    answers = ask_all(server, peer, requests)
    assert ["error" in answer for answer in answers] == [False, True, False, False]
    assert peer.api("INFO")["reserved_storage"] == 3000
    disk.clear_faults()
    assert peer.api(*requests[1])["did_create"]
    assert peer.api("INFO")["reserved_storage"] == 4000
    assert peer.publish("N1.a") == {"stream": "N1", "seq": 1}


def test_failure_of_a_shared_folder_fails_all_that_need_it() -> None:
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = Peer(server)
    peer.create("S")
    disk.fail("sync_directory", "*/obs", nth=2)
    answers = ask_all(server, peer, [consumer_request(f"C{number}") for number in range(4)])
    assert ["error" in answer for answer in answers] == [False, True, True, True]
    assert peer.api("CONSUMER.NAMES.S")["consumers"] == ["C0"]
    again = InProcessServer(disk=disk.crash_keeping_unsynced())
    assert Peer(again).api("CONSUMER.NAMES.S")["consumers"] == ["C0"]


def test_consumers_of_one_work_queue_that_want_the_same_are_refused() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    peer.create("S", retention="workqueue")
    answers = ask_all(
        server,
        peer,
        [
            consumer_request("C0", filter_subject="S.0"),
            consumer_request("C1", filter_subject="S.1"),
            consumer_request("C2", filter_subject="S.1"),
            consumer_request("C1", filter_subject="S.1"),
        ],
    )
    assert [answer.get("error", {}).get("err_code") for answer in answers] == [
        None,
        None,
        10100,
        None,
    ]


@pytest.mark.slow
def test_power_cut_leaves_every_creation_entirely_or_not_at_all() -> None:
    """Whatever was answered is there; the rest is there or can be created again."""

    def create_all(disk: SimulatedDisk) -> list[str]:
        made: list[str] = []
        server = InProcessServer(disk=disk)
        peer = Peer(server)
        with suppress(PowerLoss):
            answers = ask_all(server, peer, [stream_request(name) for name in "ABCDEF"])
            made += [answer["config"]["name"] for answer in answers]
            peer.create("S")
            answers = ask_all(server, peer, [consumer_request(name) for name in "XYZ"])
            made += [answer["name"] for answer in answers]
        return made

    whole = SimulatedDisk()
    assert len(create_all(whole)) == 9
    for stop_at in range(1, whole.steps + 1, 5):
        disk = SimulatedDisk()
        disk.stop_at = stop_at
        try:
            made = create_all(disk)
        except PowerLoss:
            continue  # before the server was there
        for seed in range(CRASHES):
            server = InProcessServer(disk=disk.crash(seed))
            peer = Peer(server)
            assert not server.log.texts("error")
            streams = peer.api("STREAM.NAMES")["streams"] or []
            assert set(made) & set("ABCDEF") <= set(streams)
            for name in "ABCDEFS":
                assert "error" not in peer.create(name)
                assert peer.publish(f"{name}.a") == {"stream": name, "seq": 1}
            consumers = peer.api("CONSUMER.NAMES.S")["consumers"] or []
            assert set(made) & set("XYZ") <= set(consumers)
            for name in "XYZ":
                assert "error" not in peer.api(*consumer_request(name))
