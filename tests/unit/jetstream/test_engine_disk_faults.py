"""A disk that refuses one call of a request: a clear answer, nothing half made, others go on."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from engine_kit import Peer

from tradewind.store.files.disk import DiskError, Operation
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

CHANGING: tuple[Operation, ...] = ("write", "sync", "sync_directory", "create", "rename", "remove")
READING: tuple[Operation, ...] = ("open", "read", "size", "map", "exists", "list_directory")
OPERATIONS: tuple[Operation, ...] = (*CHANGING, *READING, "truncate", "make_directory")
FOR_EVER = 1 << 30
NAMES = {errno.EIO: "EIO", errno.ENOSPC: "ENOSPC"}
# What a state looks like from outside: configurations of streams and consumers.
Seen = dict[str, tuple[str, dict[str, str]]]
Everything = dict[str, tuple[str, dict[str, str], int]]
Ask = Callable[[Peer], dict[str, Any]]


def create_stream(peer: Peer) -> dict[str, Any]:
    return peer.create("NEW", description="made")


def update_stream(peer: Peer) -> dict[str, Any]:
    config = {"name": "S", "subjects": ["S.>"], "description": "changed"}
    return peer.api("STREAM.UPDATE.S", config)


def delete_stream(peer: Peer) -> dict[str, Any]:
    return peer.api("STREAM.DELETE.S")


def consumer(peer: Peer, name: str, description: str) -> dict[str, Any]:
    config = {"durable_name": name, "ack_policy": "explicit", "description": description}
    return peer.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})


def create_consumer(peer: Peer) -> dict[str, Any]:
    return consumer(peer, "new", "made")


def update_consumer(peer: Peer) -> dict[str, Any]:
    return consumer(peer, "old", "changed")


def delete_consumer(peer: Peer) -> dict[str, Any]:
    return peer.api("CONSUMER.DELETE.S.old")


REQUESTS: tuple[Ask, ...] = (
    create_stream,
    update_stream,
    delete_stream,
    create_consumer,
    update_consumer,
    delete_consumer,
)


def started(disk: SimulatedDisk) -> tuple[InProcessServer, Peer]:
    server = InProcessServer(disk=disk)
    return server, Peer(server)


def prepared() -> SimulatedDisk:
    disk = SimulatedDisk()
    _, peer = started(disk)
    peer.create("S")
    peer.create("OTHER")
    consumer(peer, "old", "made")
    for name in ("S", "OTHER"):
        peer.publish(f"{name}.a", b"before")
    return disk.crash_losing_unsynced()


def seen(peer: Peer) -> Seen:
    """Every stream and consumer that the server shows; all of them can be asked."""
    found: Seen = {}
    for name in peer.api("STREAM.NAMES")["streams"] or []:
        info = peer.api(f"STREAM.INFO.{name}")
        consumers = {}
        for each in peer.api(f"CONSUMER.NAMES.{name}")["consumers"] or []:
            answer = peer.api(f"CONSUMER.INFO.{name}.{each}")
            consumers[each] = answer["config"].get("description", "")
        found[name] = info["config"].get("description", ""), consumers
    return found


def calls(disk: SimulatedDisk, ask: Ask, operation: Operation) -> int:
    copy = disk.crash_keeping_unsynced()
    _, peer = started(copy)
    watch = copy.fail(operation, nth=FOR_EVER)
    assert "error" not in ask(peer)
    return watch.seen


def check_others(peer: Peer) -> None:
    """Another stream takes messages and gives them out."""
    answer = peer.publish("OTHER.a", b"meanwhile")
    assert answer is not None
    assert "error" not in answer
    found = peer.api("STREAM.MSG.GET.OTHER", {"seq": answer["seq"]})
    assert found["message"]["subject"] == "OTHER.a"


@pytest.mark.slow
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("ask", REQUESTS, ids=lambda ask: ask.__name__)
def test_refused_call_leaves_the_old_state_or_the_new_one(ask: Ask, error: int) -> None:
    start = prepared()
    _, peer = started(start.crash_keeping_unsynced())
    before = seen(peer)
    ask(peer)
    after = seen(peer)
    assert before != after
    refused = 0
    for operation in OPERATIONS:
        for nth in range(1, calls(start, ask, operation) + 1):
            place = f"{operation} {nth}"
            disk = start.crash_keeping_unsynced()
            server, peer = started(disk)
            disk.fail(operation, nth=nth, error=error, after_bytes=nth % 20)
            answer = ask(peer)
            disk.clear_faults()
            if "error" in answer:
                refused += 1
                text = answer["error"]["description"]
                assert NAMES[error] in text, f"{place}: {text}"
            check_others(peer)
            shown = seen(peer)
            assert shown in (before, after), place
            if "error" not in answer:
                assert shown == after, place
            for crashed in (disk.crash_losing_unsynced(), disk.crash_keeping_unsynced()):
                again, restarted = started(crashed)
                state = seen(restarted)
                assert state in (before, after), f"{place}: {state}"
                if "error" not in answer:
                    assert state == after, place
                assert not again.log.texts("error"), place
            # With the disk well again the same request does what it is asked for.
            assert "error" not in ask(peer) or shown == after, place
            assert seen(peer) == after, place
            assert not server.log.texts("fatal")
    assert refused >= 2


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_directory", "rename"])
def test_state_of_a_consumer_is_written_when_the_disk_is_well_again(
    operation: Operation, error: int
) -> None:
    """Nobody is refused meanwhile: a state that is not on disk lets a message come again."""
    for nth in range(1, 4):
        disk = prepared()
        server, peer = started(disk)
        fault = disk.fail(operation, "*/obs/*", nth=nth, error=error)
        assert peer.ask("$JS.API.CONSUMER.MSG.NEXT.S.old", {"batch": 1, "no_wait": True})
        pass_time(server)
        check_others(peer)
        if not fault.hits:
            assert nth > 1
            continue
        disk.clear_faults()
        pass_time(server)
        lines = server.log.texts("error")
        assert any(NAMES[error] in line and "S" in line for line in lines), lines
        _, again = started(disk.crash_losing_unsynced())
        info = again.api("CONSUMER.INFO.S.old")
        assert info["delivered"]["stream_seq"] == 1
        assert info["num_ack_pending"] == 1


def pass_time(server: InProcessServer) -> None:
    """Enough for what is tried again."""
    for _ in range(4):
        server.advance(1.0)
        server.syncer.tick(server.clock.monotonic_ns())
        server.run_until_idle()


def everything(peer: Peer) -> Everything:
    """What is there, with the number of messages."""
    return {
        name: (*found, peer.api(f"STREAM.INFO.{name}")["state"]["messages"])
        for name, found in seen(peer).items()
    }


def hindered(server: InProcessServer, peer: Peer, expected: Everything) -> list[str]:
    """The streams that a start could not open, or only for reading; each with its reason."""
    found = everything(peer)
    missing = [name for name in expected if found.get(name) != expected[name]]
    if missing:
        assert any("EIO" in line for line in server.log.texts("error"))
    for name in set(expected) - set(missing):
        answer = peer.publish(f"{name}.later")
        assert answer is not None
        if "error" in answer:
            assert "EIO" in answer["error"]["description"]
            missing.append(name)
    return missing


@pytest.mark.slow
def test_start_in_which_any_call_to_the_disk_fails_says_what_is_closed_and_harms_nothing() -> None:
    """What cannot be opened now is there at the next start, with all that it had."""
    start = prepared()
    _, peer = started(start.crash_keeping_unsynced())
    expected = everything(peer)
    assert set(expected) == {"S", "OTHER"}
    counts: Counter[int] = Counter()
    for nth in count(1):
        disk = start.crash_keeping_unsynced()
        fault = disk.fail("*", nth=nth)
        with suppress(DiskError):  # without its folder there is no server
            server, peer = started(disk)
            disk.clear_faults()
            closed = len(hindered(server, peer, expected))
            counts[closed] += 1
            if closed == len(expected):
                # Nobody could look: the health check says so, for no stream is named.
                assert "EIO" in server.engine.accounts["$G"].problems["account $G"]
        if not fault.hits:
            break
        disk.clear_faults()
        for after in (disk.crash_losing_unsynced(), disk.crash(nth)):
            _, again = started(after)
            state = everything(again)
            for name, (description, consumers, messages) in expected.items():
                assert state[name][:2] == (description, consumers), f"call {nth}"
                assert state[name][2] >= messages, f"call {nth}"
    assert counts[1] > 20
    assert 0 < counts[2] < 10


def sequences(peer: Peer) -> list[int]:
    """Of the messages of S that can be read."""
    asked = (peer.api("STREAM.MSG.GET.S", {"seq": seq}) for seq in range(1, 13))
    return [answer["message"]["seq"] for answer in asked if "message" in answer]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_name", "body"),
    [
        ("STREAM.PURGE.S", {}),
        ("STREAM.PURGE.S", {"keep": 3}),
        ("STREAM.PURGE.S", {"filter": "S.1"}),
        ("STREAM.MSG.DELETE.S", {"seq": 5}),
    ],
)
def test_removal_is_durable_when_it_is_answered_and_harms_no_other_message(
    request_name: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "tradewind.store.folder.stream_folder"
    monkeypatch.setattr(f"{folder}.block_bytes_max", lambda *_: 400)  # so that blocks go
    start = SimulatedDisk()
    _, peer = started(start)
    peer.create("S")
    peer.create("OTHER")
    for number in range(12):
        peer.publish(f"S.{number % 3}", b"x" * 80)
    start = start.crash_losing_unsynced()
    _, peer = started(start.crash_keeping_unsynced())
    peer.api(request_name, body)
    kept = sequences(peer)
    refused = 0
    for nth in count(1):
        disk = start.crash_keeping_unsynced()
        server, peer = started(disk)
        fault = disk.fail("*", nth=nth)
        answer = peer.api(request_name, body)
        pass_time(server)
        if not fault.hits:
            break
        disk.clear_faults()
        check_others(peer)
        if "error" in answer:
            refused += 1
            assert "EIO" in answer["error"]["description"], f"call {nth}: {answer}"
        for after in (disk.crash_losing_unsynced(), disk.crash(nth)):
            again, restarted = started(after)
            found = sequences(restarted)
            assert set(kept) <= set(found), f"call {nth}"
            if "error" not in answer:
                assert found == kept, f"call {nth}"
            assert not again.log.texts("error")
    assert refused > 1
