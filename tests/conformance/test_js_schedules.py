"""Messages that a stream publishes later, once or again and again."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from conformance.helpers_publish import Publisher
from harness import ServerProcess, wait_for

SECOND = 1_000_000_000


@pytest.fixture(params=["file", "memory"])
def planner(request: pytest.FixtureRequest, peer: Publisher) -> str:
    """The name of a stream with schedules; its subjects begin with the same in small letters."""
    return create_planner(peer, request.param)


def create_planner(peer: Publisher, storage: str) -> str:
    return peer.create(
        allow_msg_schedules=True, allow_msg_ttl=True, allow_atomic=True, storage=storage
    )


def put(peer: Publisher, name: str, key: str, *header: str, payload: bytes = b"x") -> int:
    """Publish; gives the sequence, or the code of the error."""
    subject = f"{name.lower()}.{key}"
    answer = json.loads(peer.publish(subject, payload, "\r\n".join(header).encode()))
    if "error" in answer:
        return int(answer["error"]["err_code"])
    return int(answer["seq"])


def schedule(name: str, pattern: str, *more: str, target: str = "out") -> tuple[str, ...]:
    target = f"Nats-Schedule-Target: {name.lower()}.{target}"
    return (f"Nats-Schedule: {pattern}", target, *more)


def messages(peer: Publisher, name: str, key: str) -> list[tuple[int, str, bytes]]:
    """Sequence, header block and payload of the messages of a subject."""
    found: list[tuple[int, str, bytes]] = []
    seq = 1
    while True:
        query = {"next_by_subj": f"{name.lower()}.{key}", "seq": seq}
        answer = peer.api(f"STREAM.MSG.GET.{name}", query)
        if "error" in answer:
            return found
        message = answer["message"]
        seq = message["seq"] + 1
        header = b64decode(message.get("hdrs", "")).decode()
        found.append((message["seq"], header, b64decode(message.get("data", ""))))


def until(peer: Publisher, name: str, key: str, count: int = 1) -> list[tuple[int, str, bytes]]:
    """The messages of a subject as soon as there are so many."""
    found: list[tuple[int, str, bytes]] = wait_for(
        lambda: there if len(there := messages(peer, name, key)) >= count else None,
        lambda: messages(peer, name, key),
    )
    return found


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def test_schedule_runs_once_and_goes(peer: Publisher, planner: str) -> None:
    more = ("A: b", "Nats-Msg-Id: one", "Nats-TTL: 1h")
    far = schedule(planner, "@at 2100-01-01T00:00:00Z", *more, target="never")
    assert put(peer, planner, "far", *far) == 1
    ((_, stored, _),) = messages(peer, planner, "far")
    assert stored.endswith("Nats-TTL: 1h\r\nNats-Rollup: sub\r\n\r\n")
    more = ("A: b", "Nats-Msg-Id: two", "Nats-TTL: 1h")
    header = schedule(planner, f"@at {in_seconds(0.5)}", *more)
    assert put(peer, planner, "plan", *header, payload=b"now") == 2
    ((seq, block, payload),) = until(peer, planner, "out")
    assert (seq, payload) == (3, b"now")
    subject = f"{planner.lower()}.plan"
    assert block == (
        f"NATS/1.0\r\nA: b\r\nNats-Scheduler: {subject}\r\nNats-Schedule-Next: purge\r\n\r\n"
    )
    wait_for(lambda: messages(peer, planner, "plan") == [])
    assert peer.api(f"STREAM.INFO.{planner}")["state"]["messages"] == 2


def test_time_that_has_passed_is_now(peer: Publisher, planner: str) -> None:
    put(peer, planner, "plan", *schedule(planner, "@at 2001-01-01T00:00:00+05:30"))
    until(peer, planner, "out")


def test_interval_goes_on_and_says_when(peer: Publisher, planner: str) -> None:
    put(peer, planner, "plan", *schedule(planner, "@every 1s", "Nats-Schedule-TTL: 5s"))

    def next_times() -> list[datetime]:
        times = []
        for _, block, _ in messages(peer, planner, "out"):
            lines = block.split("\r\n")
            assert lines[1] == f"Nats-Scheduler: {planner.lower()}.plan"
            assert lines[3:] == ["Nats-TTL: 5s", "", ""]
            times.append(datetime.fromisoformat(lines[2].removeprefix("Nats-Schedule-Next: ")))
            assert times[-1].microsecond == 0
        return times

    # A server that was stopped for a while passes over what it has missed.
    second = timedelta(seconds=1)
    wait_for(lambda: second in [after - before for before, after in pairwise(next_times())])
    assert len(messages(peer, planner, "plan")) == 1


def test_cron_in_a_time_zone(peer: Publisher, planner: str) -> None:
    zone = "Nats-Schedule-Time-Zone: Asia/Kolkata"
    put(peer, planner, "plan", *schedule(planner, "* * * * * *", zone))
    _, block, _ = until(peer, planner, "out")[0]
    (line,) = [line for line in block.split("\r\n") if line.startswith("Nats-Schedule-Next")]
    assert line.endswith("+05:30")


def test_rollup_keeps_the_last_run(peer: Publisher, planner: str) -> None:
    put(peer, planner, "plan", *schedule(planner, "@every 1s", "Nats-Schedule-Rollup: sub"))
    first = until(peer, planner, "out")[0][0]

    def only_a_later_one() -> str:
        # The next run may come between the questions for one message and the one behind it.
        found = messages(peer, planner, "out")
        return found[0][1] if len(found) == 1 and found[0][0] != first else ""

    assert wait_for(only_a_later_one).endswith("Nats-Rollup: sub\r\n\r\n")


def test_content_comes_from_another_subject(peer: Publisher, planner: str) -> None:
    put(peer, planner, "from", "C: d", "Nats-Msg-Id: x", payload=b"old")
    put(peer, planner, "from", "C: e", payload=b"new")
    source = f"Nats-Schedule-Source: {planner.lower()}.from"
    put(peer, planner, "plan", *schedule(planner, f"@at {in_seconds(0.3)}", source, "A: b"))
    ((_, block, payload),) = until(peer, planner, "out")
    assert payload == b"new"
    assert block.startswith("NATS/1.0\r\nC: e\r\nNats-Scheduler: ")
    source = f"Nats-Schedule-Source: {planner.lower()}.none"
    put(peer, planner, "plan", *schedule(planner, f"@at {in_seconds(0.3)}", source, "A: b"))
    _, block, payload = until(peer, planner, "out", 2)[1]
    assert (payload, "A: b" in block) == (b"x", True)


def end_schedule(peer: Publisher, planner: str, how: str) -> None:
    subject = f"{planner.lower()}.plan"
    if how == "message":
        put(peer, planner, "plan")
    elif how == "delete":
        peer.api(f"STREAM.MSG.DELETE.{planner}", {"seq": 1})
    elif how == "purge":
        peer.api(f"STREAM.PURGE.{planner}", {"filter": subject})
    elif how == "again":
        put(peer, planner, "plan", *schedule(planner, "@at 2100-01-01T00:00:00Z"))
    else:
        ends = (f"Nats-Scheduler: {subject}", "Nats-Schedule-Next: purge")
        put(peer, planner, "other", *ends)


@pytest.mark.parametrize("how", ["message", "delete", "purge", "again", "next"])
def test_schedule_ends(peer: Publisher, planner: str, how: str) -> None:
    while True:
        begin = time.monotonic()
        put(peer, planner, "plan", *schedule(planner, f"@at {in_seconds(1)}"))
        end_schedule(peer, planner, how)
        if time.monotonic() - begin < 1:
            break
        # It took so long that the schedule may have run before.
        planner = create_planner(peer, peer.api(f"STREAM.INFO.{planner}")["config"]["storage"])
    if how == "again":
        assert [seq for seq, _, _ in messages(peer, planner, "plan")] == [2]
    elif how == "next":
        assert [seq for seq, _, _ in messages(peer, planner, "other")] == [2]
        assert messages(peer, planner, "plan") == []
    # One that is due a little later runs, so the other one would have.
    put(peer, planner, "second", *schedule(planner, f"@at {in_seconds(1.3)}", target="late"))
    until(peer, planner, "late")
    assert messages(peer, planner, "out") == []


def test_schedules_in_a_batch(peer: Publisher, planner: str) -> None:
    header = schedule(planner, f"@at {in_seconds(0.3)}")
    put_part = ("Nats-Batch-Id: b", "Nats-Batch-Sequence: 1", "Nats-Batch-Commit: 1")
    assert put(peer, planner, "plan", *header, *put_part) == 1
    until(peer, planner, "out")


def test_runs_are_mapped_and_published_again(peer: Publisher) -> None:
    name = peer.create(
        allow_msg_schedules=True,
        subject_transform={"src": "*.out", "dest": "$1.mapped"},
        republish={"src": "*.mapped", "dest": "copies.$1"},
    )
    peer.client.send("SUB copies.> 9\r\n")
    peer.send(
        f"{name.lower()}.plan",
        b"x",
        "\r\n".join(schedule(name, "@at 2001-01-01T00:00:00Z")).encode(),
    )
    seen = [peer.client.read_message()[1] for _ in range(2)]
    assert any(b"Nats-Scheduler" in block for block in seen)


ERRORS: list[tuple[int, tuple[str, ...]]] = [
    (10189, ("Nats-Schedule: 5 * * * *",)),
    (10189, ("Nats-Schedule: 0 0 0 31 2 *",)),
    (10189, ("Nats-Schedule: @every 1s", "Nats-Schedule-Time-Zone: UTC")),
    (10189, ("Nats-Schedule: @at soon",)),
    (10223, ("Nats-Schedule: @daily", "Nats-Schedule-Time-Zone: Mars/North")),
    (10223, ("Nats-Schedule-Time-Zone:",)),
    (10190, ("Nats-Schedule: @daily",)),
    (10190, ("Nats-Schedule: @daily", "Nats-Schedule-Target: {0}.plan")),
    (10190, ("Nats-Schedule: @daily", "Nats-Schedule-Target: {0}.*")),
    (10190, ("Nats-Schedule: @daily", "Nats-Schedule-Target: elsewhere")),
    (10191, ("Nats-Schedule: @daily", "Nats-Schedule-Target: {0}.x", "Nats-Schedule-TTL: 1ms")),
    (10192, ("Nats-Schedule: @daily", "Nats-Schedule-Target: {0}.x", "Nats-Schedule-Rollup: all")),
    (10192, ("Nats-Schedule: @daily", "Nats-Schedule-Target: {0}.x", "Nats-Rollup: all")),
    (
        10203,
        ("Nats-Schedule: @daily", "Nats-Schedule-Target: {0}.x", "Nats-Schedule-Source: {0}.x"),
    ),
    (10203, ("Nats-Schedule: @daily", "Nats-Schedule-Target: {0}.x", "Nats-Schedule-Source: y")),
    (10212, ("Nats-Schedule-Next: purge",)),
    (10212, ("Nats-Schedule-Next: 2026-01-01T00:00:00Z", "Nats-Scheduler: {0}.x")),
    (10212, ("Nats-Scheduler: {0}.x",)),
    (10071, ("Nats-Schedule: bad", "Nats-Expected-Last-Sequence: 77")),
]


@pytest.mark.parametrize(("code", "header"), ERRORS)
def test_schedules_that_cannot_be(
    peer: Publisher, planner: str, code: int, header: tuple[str, ...]
) -> None:
    lines = [line.format(planner.lower()) for line in header]
    assert put(peer, planner, "plan", *lines) == code


def test_other_streams_have_no_schedules(peer: Publisher) -> None:
    name = peer.create()
    assert put(peer, name, "plan", *schedule(name, "@daily")) == 10188
    assert put(peer, name, "plan", "Nats-Schedule: bad") == 10188
    assert put(peer, name, "plan", "Nats-Schedule-Time-Zone: bad") == 10188
    assert put(peer, name, "plan", "Nats-Schedule:") == 1


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"discard": "new"}, "message scheduling cannot use discard new"),
        ({"allow_msg_counter": True}, "counter stream cannot use message schedules"),
    ],
)
def test_configurations_that_cannot_be(peer: Publisher, config: dict[str, Any], text: str) -> None:
    error = peer.api("STREAM.CREATE.NOT", {"name": "NOT", "allow_msg_schedules": True, **config})
    assert error["error"]["description"] == text


def test_schedules_cannot_be_switched_off(peer: Publisher, planner: str) -> None:
    config = peer.api(f"STREAM.INFO.{planner}")["config"]
    assert config["allow_rollup_hdrs"]
    answer = peer.api(f"STREAM.UPDATE.{planner}", {**config, "allow_msg_schedules": False})
    assert answer["error"]["description"] == "message schedules can not be disabled"


@pytest.mark.parametrize(
    ("first", "second"), [("official", "tradewind"), ("tradewind", "official")]
)
def test_schedules_go_on_under_the_other_server(first: str, second: str, tmp_path: Any) -> None:
    flags = ["-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p", "-1"]
    server = ServerProcess(first, flags).wait_ready()
    peer = Publisher(server)
    name = peer.create(allow_msg_schedules=True, allow_msg_ttl=True)
    put(peer, name, "soon", *schedule(name, f"@at {in_seconds(1)}"))
    put(peer, name, "often", *schedule(name, "@every 1s", target="tick"))
    put(peer, name, "far", *schedule(name, "@at 2100-01-01T00:00:00Z", target="never"))
    peer.client.close()
    server.stop()
    server = ServerProcess(second, flags).wait_ready()
    try:
        peer = Publisher(server)
        until(peer, name, "out")
        until(peer, name, "tick")
        assert len(messages(peer, name, "out")) == 1
        assert messages(peer, name, "soon") == []
        assert len(messages(peer, name, "far")) == 1
        peer.client.close()
    finally:
        server.stop()


@pytest.mark.parametrize("kind", ["official", "tradewind"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_run_that_was_missed_is_made_once(kind: str, is_killed: bool, tmp_path: Any) -> None:
    flags = ["-js", "-sd", str(tmp_path), "-a", "127.0.0.1", "-p", "-1"]
    server = ServerProcess(kind, flags).wait_ready()
    peer = Publisher(server)
    name = peer.create(allow_msg_schedules=True)
    put(peer, name, "once", *schedule(name, f"@at {in_seconds(0.8)}"))
    put(peer, name, "far", *schedule(name, "@at 2100-01-01T00:00:00Z", target="never"))
    due = time.monotonic() + 1.2
    peer.client.close()
    if is_killed:
        server.process.kill()
        server.process.wait()
    else:
        server.stop()
    wait_for(lambda: time.monotonic() >= due)
    server = ServerProcess(kind, flags).wait_ready()
    try:
        peer = Publisher(server)
        until(peer, name, "out")
        second = schedule(name, f"@at {in_seconds(0.5)}", target="late")
        put(peer, name, "second", *second)
        until(peer, name, "late")
        assert len(messages(peer, name, "out")) == 1
        assert len(messages(peer, name, "far")) == 1
        assert messages(peer, name, "never") == []
        peer.client.close()
    finally:
        server.stop()
