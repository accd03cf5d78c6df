"""Mirrors and sources inside one server: origins come, go and change; crashes; full streams."""

from __future__ import annotations

import json
from base64 import b64decode
from functools import partial
from typing import Any

import pytest
from engine_kit import Peer
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.jetstream.lanes import let_others_go_first
from tradewind.store.format.side_files import SourcePosition, encode_sources
from tradewind.stream.message_ids import MessageIds
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

SEEKING_SECONDS = 0.01
RETRY_SECONDS = 2
SAVE_SECONDS = 6


def open_server(disk: SimulatedDisk, *, manual_sync: bool = False) -> tuple[InProcessServer, Peer]:
    server = InProcessServer(disk=disk, manual_sync=manual_sync)
    server.advance(SEEKING_SECONDS)
    return server, Peer(server)


def stop(server: InProcessServer, disk: SimulatedDisk) -> SimulatedDisk:
    """The disk of a server that was stopped."""
    assert server.engine is not None
    server.engine.begin_stop()
    server.syncer.run_all()
    server.engine.close()
    return disk.crash_losing_unsynced()


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def server(disk: SimulatedDisk) -> InProcessServer:
    return InProcessServer(disk=disk)


@pytest.fixture
def peer(server: InProcessServer) -> Peer:
    return Peer(server)


def fill(peer: Peer, subject: str, *payloads: str) -> None:
    for payload in payloads:
        assert "error" not in (peer.publish(subject, payload.encode()) or {})


def mirror_of(peer: Peer, origin: str, name: str = "M", **config: Any) -> dict[str, Any]:
    answer = peer.create(name, subjects=[], mirror={"name": origin}, **config)
    assert "error" not in answer, answer
    return answer


def sourcing(peer: Peer, *origins: str, name: str = "S", **config: Any) -> dict[str, Any]:
    sources = [{"name": origin} for origin in origins]
    answer = peer.create(name, **{"subjects": [], "sources": sources, **config})
    assert "error" not in answer, answer
    return answer


def state(peer: Peer, name: str) -> dict[str, Any]:
    peer.take()
    return dict(peer.api(f"STREAM.INFO.{name}", {"deleted_details": True})["state"])


def stored(peer: Peer, name: str) -> list[tuple[int, str]]:
    """Sequences and payloads."""
    found, bounds = [], state(peer, name)
    for seq in range(max(bounds["first_seq"], 1), bounds["last_seq"] + 1):
        answer = peer.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
        if "message" in answer:
            found.append((seq, b64decode(answer["message"].get("data", "")).decode()))
    return found


def problem(peer: Peer, name: str) -> str:
    """The error that the information about a stream has of its mirror or first source."""
    info = peer.api(f"STREAM.INFO.{name}")
    replica = info.get("mirror") or info["sources"][0]
    return str(replica.get("error", {}).get("description", ""))


def test_a_mirror_that_stands_in_never_hides_what_the_origin_has_promised(
    disk: SimulatedDisk,
) -> None:
    server, peer = open_server(disk)
    peer.create("O", allow_direct=True)
    mirror_of(peer, "O", mirror_direct=True)
    fill(peer, "O.a", "old")
    names = set()
    for _ in range(50):
        ((_, header, payload),) = peer.ask("$JS.API.DIRECT.GET.O", {"last_by_subj": "O.a"})
        names.add(header.split(b"Nats-Stream: ")[1].split(b"\r\n")[0])
        assert payload == b"old"
    assert names == {b"O", b"M"}
    server.manual_sync = True
    peer.connection.send(b"PUB O.a inbox.x 3\r\nnew\r\n")
    server.syncer.run_all()
    server.run_until_idle()
    assert b'"seq":2' in peer.connection.take()  # promised, while its copy is on the way to disk
    for _ in range(50):
        ((_, _, payload),) = peer.ask("$JS.API.DIRECT.GET.O", {"last_by_subj": "O.a"})
        assert payload == b"new"
    server.manual_sync = False
    server.run_until_idle()
    peer.api("STREAM.DELETE.O")
    ((_, header, payload),) = peer.ask("$JS.API.DIRECT.GET.O", {"last_by_subj": "O.a"})
    assert (payload, b"Nats-Stream: M" in header) == (b"new", True)


# -------------------------------------------------------------------- origins that come and go


@pytest.mark.parametrize("make", [mirror_of, sourcing])
def test_origin_that_comes_later_is_copied_at_once(peer: Peer, make: Any) -> None:
    name = make(peer, "O")["config"]["name"]
    assert problem(peer, name) == "stream not found"
    peer.create("O")
    fill(peer, "O.a", "1", "2")
    assert stored(peer, name) == [(1, "1"), (2, "2")]
    assert problem(peer, name) == ""


def test_mirror_of_a_stream_that_was_created_again_stops_and_says_so(
    server: InProcessServer, peer: Peer
) -> None:
    peer.create("O")
    mirror_of(peer, "O")
    fill(peer, "O.a", "1", "2")
    peer.api("STREAM.DELETE.O")
    assert problem(peer, "M") == "stream not found"
    server.advance(1)
    peer.create("O")
    fill(peer, "O.a", "3", "4", "5")
    assert "is not the one that was mirrored: it was created after" in problem(peer, "M")
    assert stored(peer, "M") == [(1, "1"), (2, "2")]


def test_source_of_a_stream_that_was_created_again_starts_over(
    server: InProcessServer, peer: Peer
) -> None:
    peer.create("O")
    sourcing(peer, "O")
    fill(peer, "O.a", "1", "2")
    peer.api("STREAM.DELETE.O")
    server.advance(1)
    peer.create("O")
    fill(peer, "O.a", "3")
    assert [payload for _, payload in stored(peer, "S")] == ["1", "2", "3"]
    assert any(
        "was recreated, resetting source state" in text for text in server.log.texts("notice")
    )


def test_source_that_is_added_after_a_purge_copies_all_of_its_origin(peer: Peer) -> None:
    peer.create("O")
    fill(peer, "O.a", "1", "2")
    peer.create("S")
    fill(peer, "S.a", "own")
    peer.api("STREAM.PURGE.S")
    answer = peer.api(
        "STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "sources": [{"name": "O"}]}
    )
    assert "error" not in answer, answer
    assert stored(peer, "S") == [(2, "1"), (3, "2")]


def test_only_what_is_safe_in_the_origin_is_copied(disk: SimulatedDisk) -> None:
    server, peer = open_server(disk)
    peer.create("O")
    mirror_of(peer, "O", storage="memory")
    server.manual_sync = True
    peer.publish("O.a", b"1")
    assert state(peer, "O")["last_seq"] == 1
    assert state(peer, "M")["last_seq"] == 0
    server.syncer.run_all()
    server.run_until_idle()
    assert state(peer, "M")["last_seq"] == 1


def test_promoted_mirror_answers_direct_gets_for_its_origin_no_more(peer: Peer) -> None:
    peer.create("O", allow_direct=True)
    mirror_of(peer, "O", mirror_direct=True)
    fill(peer, "O.a", "1")
    peer.api("STREAM.DELETE.O")
    [(_, header, _)] = peer.ask("$JS.API.DIRECT.GET.O", b'{"seq":1}')
    assert b"Nats-Stream: M\r\n" in header
    config = peer.api("STREAM.UPDATE.M", {"name": "M", "mirror_direct": True})["config"]
    assert config["mirror_direct"] is False
    [(_, header, _)] = peer.ask("$JS.API.DIRECT.GET.O", b'{"seq":1}')
    assert header.startswith(b"NATS/1.0 503")


def identified(peer: Peer, subject: str, numbers: range, reply: str = "") -> None:
    """Messages with ids, all at once."""
    headers = [f"NATS/1.0\r\nNats-Msg-Id: n{number}\r\n\r\n" for number in numbers]
    sizes = [f"{len(header)} {len(header)}" for header in headers]
    frames = zip(sizes, headers, strict=True)
    text = "".join(f"HPUB {subject} {reply} {size}\r\n{header}\r\n" for size, header in frames)
    peer.connection.send(text.encode())


def is_duplicate(peer: Peer, subject: str, number: int) -> bool:
    """Whether the server knows an id."""
    peer.take()
    identified(peer, subject, range(number, number + 1), reply="inbox.id")
    [(_, _, answer)] = peer.take()
    return bool(json.loads(answer).get("duplicate"))


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_ids_of_a_promoted_mirror_are_read_in_steps_while_others_are_served(
    server: InProcessServer, peer: Peer, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.stream.stream.IDS_PER_STEP", 10)
    peer.create("O")
    mirror_of(peer, "O", storage=storage)
    identified(peer, "O.a", range(35))
    assert state(peer, "M")["last_seq"] == 35
    served: list[int] = []
    assert server.engine is not None
    submit = server.engine.workers.submit

    def between(work: Any, done: Any) -> None:
        # Still a mirror: what its origin takes now belongs to it, and its id to what is known.
        if work is let_others_go_first:
            number = 35 + len(served)
            served.append(number)
            identified(peer, "O.a", range(number, number + 1))
        submit(work, done)

    monkeypatch.setattr(server.engine.workers, "submit", between)
    config = {"name": "M", "subjects": ["M.>"], "storage": storage}
    answer = peer.api("STREAM.UPDATE.M", config)
    assert "error" not in answer, answer
    assert len(served) >= 3, "35 messages take four steps"
    last = state(peer, "M")["last_seq"]
    assert last == state(peer, "O")["last_seq"] == 35 + len(served)
    numbers = (0, 9, 10, 34, last - 1)
    assert [n for n in numbers if not is_duplicate(peer, "M.x", n)] == []
    assert not is_duplicate(peer, "M.x", last)


def test_a_promoted_mirror_knows_the_newest_ids_that_its_memory_holds(
    server: InProcessServer, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer.create("O")
    small = partial(MessageIds, bytes_max=2000)
    monkeypatch.setattr("tradewind.stream.stream.MessageIds", small)
    mirror_of(peer, "O")
    identified(peer, "O.a", range(100))
    peer.api("STREAM.UPDATE.M", {"name": "M", "subjects": ["M.>"]})
    assert server.engine is not None
    [ids] = [h.stream.ids for h in server.engine.hosts.values() if h.name == "M"]
    assert [seq for _, seq, _ in ids.items()] == list(range(101 - ids.count, 101))
    assert 10 < ids.count < 50


# -------------------------------------------------------------------- limits


@pytest.mark.parametrize("make", [mirror_of, sourcing])
def test_full_stream_goes_on_when_there_is_room(
    server: InProcessServer, peer: Peer, make: Any
) -> None:
    peer.create("O")
    name = make(peer, "O", max_msgs=2, discard="new")["config"]["name"]
    fill(peer, "O.a", "1", "2", "3")
    assert state(peer, name)["messages"] == 2
    assert problem(peer, name) == "maximum messages exceeded"
    peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 1})
    server.advance(RETRY_SECONDS)
    assert stored(peer, name) == [(2, "2"), (3, "3")]
    assert problem(peer, name) == ""


def test_many_messages_are_copied_in_turns(peer: Peer) -> None:
    peer.create("O", storage="memory")
    count = 10_000
    peer.connection.send(b"PUB O.a 1\r\nx\r\n" * count)
    mirror_of(peer, "O", storage="memory")
    sourcing(peer, "O", storage="memory")
    for name in ("M", "S"):
        found = state(peer, name)
        assert (found["messages"], found["last_seq"]) == (count, count)


# -------------------------------------------------------------------- work queues and interest


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_origin_keeps_messages_until_their_copies_are_safe(
    disk: SimulatedDisk, retention: str
) -> None:
    server, peer = open_server(disk)
    peer.create("O", retention=retention, storage="memory")
    sourcing(peer, "O")
    server.manual_sync = True
    peer.publish("O.a", b"1")
    assert state(peer, "O")["messages"] == 1
    assert state(peer, "S")["messages"] == 1
    server.syncer.run_all()
    server.run_until_idle()
    assert state(peer, "O")["messages"] == 0
    assert state(peer, "S")["messages"] == 1


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
@pytest.mark.parametrize("is_copied_first", [True, False])
def test_message_of_a_queue_goes_to_a_consumer_and_to_a_source(
    disk: SimulatedDisk, retention: str, is_copied_first: bool
) -> None:
    server, peer = open_server(disk)
    peer.create("O", retention=retention, storage="memory")
    consumer = {"durable_name": "c", "ack_policy": "explicit"}
    body = {"stream_name": "O", "config": consumer}
    assert "error" not in peer.api("CONSUMER.DURABLE.CREATE.O.c", body)
    sourcing(peer, "O")
    server.manual_sync = True
    peer.publish("O.a", b"1")

    def acknowledge() -> None:
        subject = peer.connection
        peer.ask("$JS.API.CONSUMER.MSG.NEXT.O.c", b"1")
        subject.send(b"PUB $JS.ACK.O.c.1.1.1.0.0 4\r\n+ACK\r\n")

    def copy() -> None:
        server.syncer.run_all()
        server.run_until_idle()

    steps = [copy, acknowledge] if is_copied_first else [acknowledge, copy]
    steps[0]()
    assert state(peer, "O")["messages"] == 1
    steps[1]()
    assert state(peer, "O")["messages"] == 0


def test_source_that_is_removed_needs_nothing_any_more(server: InProcessServer, peer: Peer) -> None:
    peer.create("O", retention="interest", storage="memory")
    sourcing(peer, "O", max_msgs=1, discard="new", subjects=["own"])
    fill(peer, "O.a", "1", "2")
    assert state(peer, "O")["messages"] == 1
    answer = peer.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["own"]})
    assert "error" not in answer, answer
    server.advance(SEEKING_SECONDS)
    assert state(peer, "O")["messages"] == 0


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_restart_removes_nothing_that_a_source_needs(disk: SimulatedDisk, retention: str) -> None:
    server, peer = open_server(disk)
    peer.create("A", retention=retention)
    body = {"stream_name": "A", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    peer.api("CONSUMER.DURABLE.CREATE.A.c", body)
    sourcing(peer, "A", max_msgs=1, discard="new")
    fill(peer, "A.a", "1", "2", "3")
    peer.ask("$JS.API.CONSUMER.MSG.NEXT.A.c", b"3")
    for seq in (1, 2, 3):
        peer.connection.send(b"PUB $JS.ACK.A.c.1.%d.%d.0.0 4\r\n+ACK\r\n" % (seq, seq))
    assert stored(peer, "A") == [(2, "2"), (3, "3")]
    disk = stop(server, disk)
    server, peer = open_server(disk)
    assert stored(peer, "A") == [(2, "2"), (3, "3")]
    peer.api("STREAM.PURGE.S")
    server.advance(RETRY_SECONDS)
    assert stored(peer, "S") == [(2, "2")]
    assert stored(peer, "A") == [(3, "3")]


# -------------------------------------------------------------------- restarts


@pytest.mark.parametrize("is_killed", [True, False])
def test_restart_goes_on_behind_the_last_copy(disk: SimulatedDisk, is_killed: bool) -> None:
    server, peer = open_server(disk)
    peer.create("O")
    mirror_of(peer, "O")
    sourcing(peer, "O")
    fill(peer, "O.a", "1", "2")
    disk = disk.crash_losing_unsynced() if is_killed else stop(server, disk)
    server, peer = open_server(disk)
    fill(peer, "O.a", "3")
    for name in ("M", "S"):
        assert stored(peer, name) == [(1, "1"), (2, "2"), (3, "3")]


def test_position_outlives_a_purge_and_a_restart(disk: SimulatedDisk) -> None:
    server, peer = open_server(disk)
    peer.create("O")
    sourcing(peer, "O")
    fill(peer, "O.a", "1", "2")
    peer.api("STREAM.PURGE.S")
    disk = stop(server, disk)
    _, peer = open_server(disk)
    assert stored(peer, "S") == []
    fill(peer, "O.a", "3")
    assert stored(peer, "S") == [(3, "3")]


def test_position_of_a_source_whose_copies_are_gone_outlives_a_kill(disk: SimulatedDisk) -> None:
    server, peer = open_server(disk)
    for origin in ("QUIET", "BUSY"):
        peer.create(origin)
    sourcing(peer, "QUIET", "BUSY", max_msgs=2)
    fill(peer, "QUIET.a", "1")
    server.advance(SAVE_SECONDS)
    fill(peer, "BUSY.a", "2", "3", "4")
    assert stored(peer, "S") == [(3, "3"), (4, "4")]
    server, peer = open_server(disk.crash_losing_unsynced())
    fill(peer, "QUIET.a", "5")
    assert stored(peer, "S") == [(4, "4"), (5, "5")]


def test_positions_of_another_time_are_not_used(disk: SimulatedDisk) -> None:
    server, peer = open_server(disk)
    peer.create("O")
    sourcing(peer, "O")
    fill(peer, "O.a", "1", "2")
    disk = stop(server, disk)
    path = f"{disk.root}/jetstream/$G/streams/S/sources.db"
    ahead = [SourcePosition(b"O > >", 7, b"")]
    disk.write_file_atomically(path, encode_sources(ahead, 8))
    _, peer = open_server(disk)
    fill(peer, "O.a", "3")
    assert stored(peer, "S") == [(1, "1"), (2, "2"), (3, "3")]
    assert not disk.exists(path)


def test_damaged_file_of_positions_is_named_and_not_needed(disk: SimulatedDisk) -> None:
    server, peer = open_server(disk)
    peer.create("O")
    sourcing(peer, "O")
    fill(peer, "O.a", "1", "2")
    disk = stop(server, disk)
    path = f"{disk.root}/jetstream/$G/streams/S/sources.db"
    assert disk.exists(path)
    disk.write_file_atomically(path, b"\x07nonsense")
    server, peer = open_server(disk)
    fill(peer, "O.a", "3")
    assert stored(peer, "S") == [(1, "1"), (2, "2"), (3, "3")]
    assert any("sources.db" in text for text in server.log.texts("error"))


ORIGINS = ("A", "B")
Step = tuple[str, str]
steps = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "publish", "sync", "kill", "stop", "delete"]),
        st.sampled_from(ORIGINS),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(taken=steps, seed=st.integers(0, 2**32))
def test_no_copy_is_lost_or_doubled_whenever_the_server_dies(taken: list[Step], seed: int) -> None:
    """A naive model: what every origin has acknowledged is in the copies once, in its order."""
    disk = SimulatedDisk()
    server, peer = open_server(disk)
    for origin in ORIGINS:
        peer.create(origin)
    mirror_of(peer, "A")
    sourcing(peer, *ORIGINS)
    server.manual_sync = True
    number = 0
    for action, origin in taken:
        if action == "publish":
            number += 1
            peer.publish(f"{origin}.a", str(number).encode())
        elif action == "delete":
            last = state(peer, origin)["last_seq"]
            peer.connection.send(
                b'PUB $JS.API.STREAM.MSG.DELETE.%s 14\r\n{"seq":%6d}\r\n' % (origin.encode(), last)
            )
        elif action == "sync":
            server.syncer.run_all()
            server.run_until_idle()
        else:
            seed += 1
            disk = stop(server, disk) if action == "stop" else disk.crash(seed)
            server, peer = open_server(disk)
            server.manual_sync = True
    server.manual_sync = False
    server.run_until_idle()
    originals = {origin: stored(peer, origin) for origin in ORIGINS}
    copies: dict[str, list[tuple[int, str]]] = {origin: [] for origin in ORIGINS}
    last_seq = state(peer, "S")["last_seq"]
    for seq in range(1, last_seq + 1):
        copy = peer.api("STREAM.MSG.GET.S", {"seq": seq})["message"]
        header = b64decode(copy["hdrs"]).decode()
        fields = header.partition("Nats-Stream-Source: ")[2].split(" ")
        payload = b64decode(copy.get("data", "")).decode()
        copies[fields[0]].append((int(fields[1]), payload))
    mirrored = stored(peer, "M")
    for origin, copied in [*copies.items(), ("A", mirrored)]:
        sequences = [seq for seq, _ in copied]
        assert sequences == sorted(set(sequences)), "doubled, or out of order"
        missing = set(originals[origin]) - set(copied)
        assert not missing, "lost"


# -------------------------------------------------------------------- activity


def test_active_counts_from_the_last_copy_or_the_last_second(
    server: InProcessServer, peer: Peer
) -> None:
    def active() -> list[float]:
        infos = [peer.api(f"STREAM.INFO.{name}") for name in "MS"]
        shown = [info.get("mirror") or info["sources"][0] for info in infos]
        return [one["active"] / 1e9 if one["active"] > 1 else one["active"] for one in shown]

    mirror_of(peer, "O")
    sourcing(peer, "O")
    server.advance(SEEKING_SECONDS)
    assert active() == [-1, -1]
    peer.create("O")
    assert active() == [1, 1]  # a nanosecond, because 0 reads as never
    server.advance(2.5)
    assert active() == [0.5, 0.5]
    fill(peer, "O.a", "1")
    server.advance(0.7)
    assert active() == [0.7, 0.7]
    server.advance(0.7)
    assert active() == pytest.approx([0.4, 0.4])
    peer.api("STREAM.DELETE.O")
    server.advance(5)
    assert active() == pytest.approx([5.4, 5.4])
    peer.create("O")
    server.advance(0.2)
    assert active()[1] == 0.2
