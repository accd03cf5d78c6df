"""Streams and consumers that are created, changed or deleted together share the syncs, and nothing
else.
"""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from engine_kit import Peer
from hypothesis import given
from hypothesis import strategies as st

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
    answers = ask_at_once(server, peer, requests, early_max=0)
    return [document for _, document in answers]


def ask_at_once(
    server: InProcessServer,
    peer: Peer,
    requests: list[tuple[str, Any]],
    early_max: int | None = None,
) -> list[tuple[str, dict[str, Any]]]:
    """The answers with their subjects, in their order; some may need no disk."""
    server.workers.is_held = True
    found = []
    for subject, body in requests:
        found += peer.ask(f"$JS.API.{subject}", body)
    assert early_max is None or len(found) <= early_max
    server.workers.is_held = False
    server.workers.run_all()
    server.run_until_idle()
    found += peer.take()
    return [(subject, json.loads(payload)) for subject, _, payload in found]


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


# ------------------------------------------------------------------ changes and deletions


def update_request(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    return f"STREAM.UPDATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config}


def prepared() -> tuple[SimulatedDisk, InProcessServer, Peer]:
    """A server with streams N0 and so on, and consumers of S with the same names."""
    disk = SimulatedDisk()
    server = InProcessServer(disk=disk)
    peer = Peer(server)
    peer.create("S")
    for number in range(COUNT):
        peer.create(f"N{number}")
        peer.api(*consumer_request(f"N{number}"))
    return disk, server, peer


@pytest.mark.parametrize("kind", ["CONSUMER.DELETE.S", "STREAM.DELETE"])
def test_deletions_share_one_sync(kind: str) -> None:
    disk, server, peer = prepared()
    requests: list[tuple[str, Any]] = [(f"{kind}.N{number}", b"") for number in range(COUNT)]
    before = disk.calls["sync_directory"]
    answers = ask_all(server, peer, requests)
    assert all(answer["success"] for answer in answers)
    assert disk.calls["sync_directory"] - before <= 2  # the first one was on its way alone
    again = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert again.api("STREAM.NAMES")["total"] == (1 if kind == "STREAM.DELETE" else COUNT + 1)
    assert again.api("CONSUMER.NAMES.S")["total"] == (COUNT if kind == "STREAM.DELETE" else 0)
    server.advance(1.0)
    account = "/disk/jetstream/$G/streams"
    assert not [name for name in disk.list_directory(account) if name.startswith(".")]


def test_deletion_that_comes_twice_is_refused_the_second_time() -> None:
    _, server, peer = prepared()
    names = ("N1", "N2", "N1", "N3", "N2")
    answers = ask_all(server, peer, [(f"CONSUMER.DELETE.S.{name}", b"") for name in names])
    codes = [answer.get("error", {}).get("err_code") for answer in answers]
    assert codes == [None, None, 10014, None, 10014]
    answers = ask_all(server, peer, [(f"STREAM.DELETE.{name}", b"") for name in names])
    codes = [answer.get("error", {}).get("err_code") for answer in answers]
    assert codes == [None, None, 10059, None, 10059]


def test_deletion_that_fails_leaves_the_others_alone() -> None:
    disk, server, peer = prepared()
    disk.fail("rename", "*/obs/N1", error=errno.EIO)
    names = ("N0", "N1", "N2")
    answers = ask_all(server, peer, [(f"CONSUMER.DELETE.S.{name}", b"") for name in names])
    assert ["error" in answer for answer in answers] == [False, True, False]
    disk.clear_faults()
    assert peer.api("CONSUMER.DELETE.S.N1")["success"]  # it was offline
    again = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert again.api("CONSUMER.NAMES.S")["total"] == COUNT - 3


def test_a_consumer_can_be_created_while_the_files_of_the_last_one_are_being_removed() -> None:
    disk, server, peer = prepared()
    disk.fail("remove_tree", "*/.S-c*", error=errno.EIO)
    assert peer.api("CONSUMER.DELETE.S.N0")["success"]
    assert peer.api(*consumer_request("N0", description="new"))["created"]
    server.advance(1.0)
    assert server.log.texts("error")
    again = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    assert again.api("CONSUMER.INFO.S.N0")["config"]["description"] == "new"


def test_updates_are_written_together() -> None:
    disk, server, peer = prepared()
    requests = [update_request(f"N{number}", max_msgs=number + 1) for number in range(COUNT)]
    server.workers.is_held = True
    for subject, body in requests:
        assert peer.ask(f"$JS.API.{subject}", body) == []
    jobs = 0
    while server.workers.waiting_count:
        server.workers.run_next()
        jobs += 1
    server.workers.is_held = False
    server.run_until_idle()
    assert jobs == 2  # the first one was on its way alone
    answers = [json.loads(payload) for *_, payload in peer.take()]
    assert [answer["config"]["max_msgs"] for answer in answers] == list(range(1, COUNT + 1))
    again = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    for number in range(COUNT):
        assert again.api(f"STREAM.INFO.N{number}")["config"]["max_msgs"] == number + 1


def test_an_update_sees_the_subjects_that_those_before_it_have_taken() -> None:
    _, server, peer = prepared()
    answers = ask_all(
        server,
        peer,
        [
            update_request("N0", description="first"),
            update_request("N1", subjects=["N1.>", "taken"]),
            update_request("N2", subjects=["N2.>", "taken"]),
            update_request("N3", max_msgs=3),
            update_request("N3", max_msgs=4),
        ],
    )
    codes = [answer.get("error", {}).get("err_code") for answer in answers]
    assert codes == [None, None, 10065, None, None]
    assert peer.api("STREAM.INFO.N3")["config"]["max_msgs"] == 4


def test_an_update_that_fails_leaves_the_others_and_its_old_configuration() -> None:
    disk, server, peer = prepared()
    disk.fail("sync", "*/N1/meta.inf.tmp", error=errno.EIO)
    requests = [update_request(f"N{number}", max_msgs=7) for number in range(3)]
    answers = ask_all(server, peer, requests)
    assert ["error" in answer for answer in answers] == [False, True, False]
    disk.clear_faults()
    again = Peer(InProcessServer(disk=disk.crash_losing_unsynced()))
    found = [again.api(f"STREAM.INFO.N{number}")["config"]["max_msgs"] for number in range(3)]
    assert found == [7, -1, 7]
    assert peer.api(*requests[1])["config"]["max_msgs"] == 7


NAMES = st.sampled_from("ABC")
REQUESTS = st.one_of(
    st.builds(stream_request, NAMES, max_msgs=st.sampled_from([5, 6])),
    st.builds(update_request, NAMES, max_msgs=st.sampled_from([5, 6])),
    st.builds(
        update_request, NAMES, subjects=st.sampled_from([["A.>"], ["B.>", "x"], ["C.>", "x"]])
    ),
    st.builds(update_request, NAMES, max_bytes=st.sampled_from([600, 100_000])),
    st.builds(lambda name: (f"STREAM.DELETE.{name}", b""), NAMES),
    st.builds(consumer_request, NAMES, filter_subject=st.sampled_from(["S.1", "S.2"])),
    st.builds(lambda name: (f"CONSUMER.DELETE.S.{name}", b""), NAMES),
    st.just(("STREAM.NAMES", b"")),
    st.just(("CONSUMER.NAMES.S", b"")),
)


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("created", "ts")}


@given(st.lists(REQUESTS, max_size=14))
def test_requests_that_share_their_syncs_are_answered_as_if_they_came_one_by_one(
    requests: list[tuple[str, Any]],
) -> None:
    found: list[Any] = []
    for is_at_once in (True, False):
        limits = {"max_streams": 3, "max_file": 1000}
        accounts = {"A": AccountOptions("A", jetstream=True, jetstream_limits=limits)}
        options = ServerOptions(jetstream=JetStreamOptions(enabled=True), accounts=accounts)
        gate = UserGate([User("A", "A", "A")])
        disk = SimulatedDisk()
        server = InProcessServer(options, disk=disk, gate=gate, accounts=["A"])
        peer = Peer(server, user="A", password="A")
        peer.create("S", retention="workqueue")
        if is_at_once:
            pairs = ask_at_once(server, peer, requests)
            numbers = [int(subject.rpartition(".")[2]) for subject, _ in pairs]
            assert numbers == sorted(numbers)
            given_answers = [answer for _, answer in pairs]
        else:
            given_answers = ask_each(peer, requests)
        answers = [without_times(answer) for answer in given_answers]
        after = InProcessServer(
            options, disk=disk.crash_losing_unsynced(), gate=gate, accounts=["A"]
        )
        again = Peer(after, user="A", password="A")
        assert not after.log.texts("error")
        left = [again.api("STREAM.LIST")["streams"], again.api("CONSUMER.LIST.S")["consumers"]]
        found.append((answers, [[without_times(one) for one in each] for each in left]))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("is_lazy", [False, True])
def test_power_cut_leaves_every_change_and_deletion_entirely_or_not_at_all(is_lazy: bool) -> None:
    """Whatever was answered is so, unless nobody waits for the disk; the rest is old or new."""
    interval_ns = 120_000_000_000 if is_lazy else 0
    jetstream = JetStreamOptions(enabled=True, sync_interval_ns=interval_ns)
    options = ServerOptions(jetstream=jetstream)

    def change_all(disk: SimulatedDisk) -> list[str]:
        done: list[str] = []
        server = InProcessServer(options, disk=disk)
        peer = Peer(server)
        peer.create("S")
        for name in "ABC":
            peer.create(name)
            peer.api(*consumer_request(name))
        server.advance(interval_ns / 1e9 + 1)
        server.syncer.tick(server.clock.monotonic_ns())
        server.run_until_idle()
        begun.append(disk.steps)
        with suppress(PowerLoss):
            for number in (1, 2):
                ask_all(server, peer, [update_request(name, max_msgs=number) for name in "ABC"])
                done.append(f"updated {number}")
            ask_all(server, peer, [(f"CONSUMER.DELETE.S.{name}", b"") for name in "AB"])
            done.append("consumers")
            ask_all(server, peer, [(f"STREAM.DELETE.{name}", b"") for name in "AB"])
            done.append("streams")
        return done

    begun: list[int] = []
    whole = SimulatedDisk()
    assert len(change_all(whole)) == 4
    for stop_at in range(begun[0] + 1, whole.steps + 1):
        disk = SimulatedDisk()
        disk.stop_at = stop_at
        done = change_all(disk)
        for seed in range(CRASHES):
            server = InProcessServer(disk=disk.crash(seed))
            peer = Peer(server)
            assert not server.log.texts("error"), stop_at
            streams = peer.api("STREAM.NAMES")["streams"]
            consumers = peer.api("CONSUMER.NAMES.S")["consumers"]
            assert {"C", "S"} <= set(streams)
            assert "C" in consumers
            limits = [peer.api(f"STREAM.INFO.{name}")["config"]["max_msgs"] for name in "C"]
            if not is_lazy:
                assert max(limits[0], 0) >= sum(step.startswith("updated") for step in done)
                assert "consumers" not in done or consumers == ["C"]
                assert "streams" not in done or streams == ["C", "S"]
            for name in "AB":
                assert "error" not in peer.create(name, max_msgs=9) or name in streams
                assert "error" not in peer.api(*consumer_request(name))
