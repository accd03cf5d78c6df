"""Truncating streams against a naive list, and taking it back: exactly, whatever fails."""

from __future__ import annotations

import base64
import errno
import json
from itertools import count
from typing import Any

import pytest
from engine_kit import Peer
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.api.times import format_time, parse_time
from tradewind.store.files.disk import Operation
from tradewind.store.folder.shelf import put_back
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import PowerLoss, SimulatedDisk

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
# (sequence, time, subject, header, payload)
Found = tuple[int, int, str, bytes, bytes]


class World:
    """A server with the stream S, which can lose its power."""

    def __init__(self, disk: SimulatedDisk | None = None, **config: Any) -> None:
        self.disk = disk or SimulatedDisk()
        self.server = InProcessServer(disk=self.disk)
        self.peer = Peer(self.server)
        if disk is None:
            self.peer.create("S", **config)

    def own(self, name: str, **body: Any) -> dict[str, Any]:
        ((_, _, data),) = self.peer.ask(f"$TW.API.STREAM.{name}.S", body or b"")
        document: dict[str, Any] = json.loads(data)
        return document

    def publish(self, subject: str, kind: str = "", payload: bytes = b"x") -> None:
        self.server.clock.advance_ns(SECOND)
        header = b"NATS/1.0\r\nKind: %s\r\n\r\n" % kind.encode() if kind else b""
        sizes = f"{len(header)} {len(header + payload)}" if header else str(len(payload))
        line = f"{'HPUB' if header else 'PUB'} {subject} inbox.p {sizes}\r\n".encode()
        self.peer.connection.send(line + header + payload + b"\r\n")
        assert b"seq" in self.peer.take()[0][2]

    def fill(self, count: int = 12) -> None:
        for number in range(count):
            self.publish(f"S.{number % 3}", ("red", "", "blue")[number % 3], b"%d" % number)

    def found(self) -> list[Found]:
        state = self.state()
        answers = [
            self.peer.api("STREAM.MSG.GET.S", {"seq": seq})
            for seq in range(state["first_seq"], state["last_seq"] + 1)
        ]
        return [
            (
                each["message"]["seq"],
                parse_time(each["message"]["time"]),
                each["message"]["subject"],
                base64.b64decode(each["message"].get("hdrs", "")),
                base64.b64decode(each["message"].get("data", "")),
            )
            for each in answers
            if "message" in each
        ]

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.peer.api("STREAM.INFO.S")["state"]
        return state

    def after_a_crash(self) -> World:
        return World(self.disk.crash_losing_unsynced())


def used(world: World) -> int:
    """What the account says that it stores."""
    engine = world.server.engine
    assert engine is not None
    storage: int = world.peer.api("INFO")["storage"]
    assert storage == engine.accounts["$G"].usage.storage == engine.usage.storage
    return storage


def on_disk(world: World) -> int:
    """The bytes in the folders of removed messages."""
    tree = world.disk.snapshot_tree()
    return sum(len(data or b"") for path, data in tree.items() if "/tradewind.purged." in path)


def limit(world: World, max_storage: int) -> None:
    assert world.server.engine is not None
    tenant = world.server.engine.accounts["$G"]
    tenant.limits = type(tenant.limits)(max_storage=max_storage)
    for hosted in tenant.streams.values():
        hosted.recount()


def streams_bytes(world: World) -> int:
    size: int = world.state()["bytes"]
    return size


def naive(messages: list[Found], request: dict[str, Any]) -> list[Found]:
    """What a request means, by looking at every message."""
    chosen = [
        message
        for message in messages
        if ("before" not in request or message[1] < parse_time(request["before"]))
        and ("after" not in request or message[1] > parse_time(request["after"]))
        and (not request.get("subjects") or message[2] in request["subjects"])
        and ("header" not in request or _has(message[3], request["header"]))
    ]
    return chosen[-request["newest"] :] if request.get("newest") else chosen


def _has(header: bytes, wanted: dict[str, str]) -> bool:
    lines = header.decode().split("\r\n")
    if "value" in wanted:
        return f"{wanted['name']}: {wanted['value']}" in lines
    return any(line.startswith(f"{wanted['name']}:") for line in lines)


def summary(messages: list[Found]) -> dict[str, Any]:
    if not messages:
        return {"messages": 0, "first_seq": 0, "last_seq": 0}
    return {
        "messages": len(messages),
        "first_seq": messages[0][0],
        "last_seq": messages[-1][0],
        "first_time": format_time(messages[0][1]),
        "last_time": format_time(messages[-1][1]),
    }


times = st.integers(-1, 14).map(lambda number: format_time((1_700_000_000 + number) * SECOND))
requests = st.fixed_dictionaries(
    {},
    optional={
        "before": times,
        "after": times,
        "newest": st.integers(1, 14),
        "subjects": st.lists(st.sampled_from(["S.0", "S.1", "S.9"]), min_size=1, unique=True),
        "header": st.sampled_from(
            [{"name": "Kind"}, {"name": "Kind", "value": "red"}, {"name": "ind", "value": "red"}]
        ),
    },
).filter(
    lambda request: (
        request and not ("before" in request and request.get("after", "") >= request["before"])
    )
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(requests, min_size=1, max_size=3), st.booleans(), st.booleans())
def test_what_goes_and_comes_back_is_what_the_naive_model_says(
    wanted: list[dict[str, Any]], crashes: bool, publishes: bool
) -> None:
    world = World()
    world.fill()
    everything = left = world.found()
    ids = []
    for request in wanted:
        going = naive(left, request)
        tried = world.own("TRUNCATE", **request, dry_run=True)
        assert world.found() == left
        done = world.own("TRUNCATE", **request, keep_for=HOUR)
        for answer in (tried, done):
            assert answer.items() >= summary(going).items()
        assert tried["bytes"] == done["bytes"]
        left = [message for message in left if message not in going]
        assert world.found() == left
        if going:
            ids.append(done["undo_id"])
        if publishes:
            world.publish("S.1", payload=b"later")
            everything = [*everything, world.found()[-1]]
            left = [*left, everything[-1]]
        if crashes:
            world = world.after_a_crash()
            assert world.found() == left
    for undo_id in ids:
        answer = world.own("UNDO", id=undo_id)
        assert answer["success"], answer
    assert world.found() == everything
    assert world.own("UNDO")["error"]["err_code"] == 10062
    assert world.after_a_crash().found() == everything
    world.publish("S.0")
    assert world.state()["last_seq"] == everything[-1][0] + 1


def test_consumers_keep_their_place_and_see_what_they_had_not_got() -> None:
    world = World()
    durable = {"durable_name": "c", "ack_policy": "explicit"}
    fleeting = {"name": "m", "ack_policy": "explicit", "mem_storage": True}
    fleeting["inactive_threshold"] = HOUR
    for config in (durable, fleeting):
        name = config.get("durable_name", "m")
        body = {"stream_name": "S", "config": config}
        assert "error" not in world.peer.api(f"CONSUMER.CREATE.S.{name}", body)
    world.fill()
    for name in ("c", "m"):
        got = world.peer.ask(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", {"batch": 4, "no_wait": True})
        assert len([each for each in got if not each[1].startswith(b"NATS/1.0 4")]) == 4
    world.own("TRUNCATE", newest=10, keep_for=HOUR)
    for name in ("c", "m"):
        info = world.peer.api(f"CONSUMER.INFO.S.{name}")
        assert (info["num_pending"], info["num_ack_pending"]) == (0, 2)
    assert world.own("UNDO")["messages"] == 10
    for name in ("c", "m"):
        info = world.peer.api(f"CONSUMER.INFO.S.{name}")
        assert (info["num_pending"], info["num_ack_pending"]) == (8, 2), name


def test_ids_are_known_after_an_undo() -> None:
    world = World()
    header = b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n"
    line = b"HPUB S.a inbox.p %d %d\r\n%sx\r\n" % (len(header), len(header) + 1, header)
    world.peer.connection.send(line)
    assert json.loads(world.peer.take()[0][2])["seq"] == 1
    world.own("TRUNCATE", newest=1, keep_for=HOUR)
    world.own("UNDO")
    world.peer.connection.send(line)
    answer = json.loads(world.peer.take()[0][2])
    assert (answer["seq"], answer["duplicate"]) == (1, True)


def test_limits_count_for_what_comes_back() -> None:
    world = World(max_msgs=6)
    world.fill()
    world.own("TRUNCATE", newest=6, keep_for=HOUR)
    for _ in range(4):
        world.publish("S.1", payload=b"later")
    assert world.own("UNDO")["messages"] == 2
    assert [message[0] for message in world.found()] == [11, 12, 13, 14, 15, 16]


def test_what_was_removed_goes_for_good_when_its_time_is_over() -> None:
    world = World()
    world.fill()
    world.own("TRUNCATE", newest=3, keep_for=60 * SECOND)
    world.server.advance(59)
    assert len(world.own("UNDO", dry_run=True)["windows"]) == 1
    world.server.advance(2)
    assert "windows" not in world.own("UNDO", dry_run=True)
    assert not [path for path in world.disk.snapshot_tree() if "tradewind.purged" in path]


def test_the_time_goes_on_over_a_restart() -> None:
    world = World()
    world.fill()
    world.own("TRUNCATE", newest=3, keep_for=60 * SECOND)
    world = world.after_a_crash()
    world.server.advance(80)
    assert "windows" not in world.own("UNDO", dry_run=True)
    assert len(world.found()) == 9


@pytest.mark.parametrize(
    ("config", "body", "text"),
    [
        ({}, {}, "specify before, after, newest, subjects or header"),
        ({}, {"before": "yesterday"}, 'parsing time "yesterday"'),
        ({}, {"subjects": ["a..b"]}, "subjects: 'a..b' is neither a subject nor a pattern"),
        ({}, {"subjects": ["a"] * 101}, "subjects must be at most 100, not 101"),
        ({}, {"header": {"name": ""}}, "header must be a name without colons"),
        ({}, {"header": {"name": "a", "value": "v" * 2000}}, "header: a value of at most 1024"),
        ({}, {"newest": 1, "keep_for": -1}, "keep_for: from 0 to 90 days"),
        ({}, {"newest": 1, "keep_for": 2**63 - 1}, "keep_for: from 0 to 90 days"),
        (
            {},
            {"after": "2024-01-01T00:00:00Z", "before": "2023-01-01T00:00:00Z"},
            "after must be earlier than before",
        ),
        ({"deny_purge": True}, {"newest": 1}, "the configuration of the stream has deny_purge"),
        ({"deny_delete": True}, {"newest": 1}, "the configuration of the stream has deny_delete"),
        ({"storage": "memory"}, {"newest": 1, "keep_for": 1}, "requires a stream with file"),
        ({"retention": "workqueue"}, {"newest": 1, "keep_for": 1}, "only with limits retention"),
    ],
    ids=range(13),
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_what_cannot_be_is_refused_with_the_reason(
    config: dict[str, Any], body: dict[str, Any], text: str, dry_run: bool
) -> None:
    world = World(**config)
    world.fill(3)
    answer = world.own("TRUNCATE", **body, dry_run=dry_run)
    assert text in answer["error"]["description"]
    assert len(world.found()) == 3


def test_a_sealed_stream_stays_as_it_is() -> None:
    world = World()
    world.fill(3)
    world.own("TRUNCATE", newest=1, keep_for=HOUR)
    config = {"name": "S", "subjects": ["S.>"], "sealed": True}
    assert "error" not in world.peer.api("STREAM.UPDATE.S", config)
    assert world.own("TRUNCATE", newest=1)["error"]["err_code"] == 10109
    assert world.own("UNDO")["error"]["err_code"] == 10109
    assert len(world.found()) == 2


def test_streams_in_memory_and_work_queues_are_truncated_for_good() -> None:
    for config in ({"storage": "memory"}, {"retention": "workqueue"}):
        world = World(**config)
        world.fill(5)
        assert world.own("TRUNCATE", newest=2)["messages"] == 2
        assert [message[0] for message in world.found()] == [1, 2, 3]
        assert "error" in world.own("UNDO")


def test_as_many_windows_as_may_be_and_no_more() -> None:
    world = World()
    world.fill(20)
    for _ in range(16):
        assert world.own("TRUNCATE", newest=1, keep_for=HOUR)["messages"] == 1
    answer = world.own("TRUNCATE", newest=1, keep_for=HOUR)
    assert "at most 16 truncations can be undone at a time" in answer["error"]["description"]
    assert len(world.own("UNDO", dry_run=True)["windows"]) == 16
    assert world.own("TRUNCATE", newest=1)["messages"] == 1


def test_a_deleted_stream_takes_its_shelves_along() -> None:
    world = World()
    world.fill(3)
    world.own("TRUNCATE", newest=1, keep_for=HOUR)
    world.peer.api("STREAM.DELETE.S")
    world.server.advance(1.0)
    assert not [path for path in world.disk.snapshot_tree() if "tradewind.purged" in path]
    world.server.advance(2 * 3600)


def test_a_clock_that_is_ahead_for_a_moment_ends_no_undo() -> None:
    world = World()
    world.fill(3)
    world.own("TRUNCATE", newest=1, keep_for=HOUR)
    world.server.clock.jump_ns(24 * HOUR)
    world.server.advance(20)
    assert len(world.own("UNDO", dry_run=True)["windows"]) == 1
    world.server.clock.jump_ns(-24 * HOUR)
    world.server.advance(120)
    assert len(world.own("UNDO", dry_run=True)["windows"]) == 1


# ------------------------------------------------------------------ what can fail


def everything_is_somewhere(world: World, everything: list[Found]) -> None:
    """No message is lost: what is not in the stream can be brought back, and is the same."""
    live = world.found()
    assert all(message in everything for message in live)
    if len(live) < len(everything):
        answer = world.own("UNDO")
        assert answer.get("success"), answer
    assert world.found() == everything
    world.publish("S.1")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TRUNCATE", "UNDO"])
def test_power_failure_at_any_step_loses_nothing(kind: str) -> None:
    base = World()
    base.fill(6)
    everything = base.found()
    if kind == "UNDO":
        base.own("TRUNCATE", newest=4, keep_for=HOUR)
    before = base.disk.crash_losing_unsynced()
    lefts = set()
    for step in range(1, 300):
        world = World(before.crash_losing_unsynced())
        world.disk.stop_at = world.disk.steps + step
        try:
            body = {"newest": 4, "keep_for": HOUR} if kind == "TRUNCATE" else {}
            world.own(kind, **body)
        except PowerLoss:
            pass
        else:
            break
        for after in (world.disk.crash_losing_unsynced(), world.disk.crash(seed=step)):
            again = World(after)
            lefts.add(len(again.found()))
            # Also if it ended between keeping messages and removing them: they are there twice.
            assert used(again) == streams_bytes(again) + on_disk(again)
            everything_is_somewhere(again, everything)
            assert used(again) == streams_bytes(again) + on_disk(again)
            assert not [path for path in after.snapshot_tree() if "__new_msgs__" in path]
    else:
        raise AssertionError("it never came to its end")
    assert step > 20
    assert lefts >= {6} if kind == "TRUNCATE" else lefts == {2, 6}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["TRUNCATE", "UNDO"])
def test_any_call_to_the_disk_that_fails_is_told_and_loses_nothing(kind: str) -> None:
    base = World()
    base.fill(6)
    everything = base.found()
    if kind == "UNDO":
        base.own("TRUNCATE", newest=4, keep_for=HOUR)
    before = base.disk.crash_losing_unsynced()
    failed = 0
    for nth in count(1):
        world = World(before.crash_losing_unsynced())
        fault = world.disk.fail("*", nth=nth)
        body = {"newest": 4, "keep_for": HOUR} if kind == "TRUNCATE" else {}
        answer = world.own(kind, **body)
        if not fault.hits:
            break
        world.disk.clear_faults()
        if "error" in answer:
            failed += 1
            assert "EIO" in answer["error"]["description"], f"call {nth}: {answer}"
        again = World(world.disk.crash(seed=nth))
        everything_is_somewhere(again, everything)
    assert failed > 20


def test_a_full_disk_changes_nothing() -> None:
    world = World()
    world.fill(6)
    everything = world.found()
    world.disk.fail("write", "*tradewind.purged*", error=errno.ENOSPC, times=1 << 30)
    assert "error" in world.own("TRUNCATE", newest=4, keep_for=HOUR)
    assert world.found() == everything
    assert not [path for path in world.disk.snapshot_tree() if "tradewind.purged" in path]
    world.disk.clear_faults()
    world.own("TRUNCATE", newest=4, keep_for=HOUR)
    world.disk.fail("write", "*__snapshots__*", error=errno.ENOSPC, times=1 << 30)
    answer = world.own("UNDO")
    assert "not restored" in answer["error"]["description"]
    assert world.found() == everything[:2]
    world.publish("S.1")
    world.disk.clear_faults()
    assert world.own("UNDO")["messages"] == 4
    assert world.found()[:-1] == everything


def test_a_failure_in_the_middle_says_what_can_be_brought_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tradewind.stream.truncation.LOOKED_AT_PER_STEP", 2)
    world = World()
    world.fill(6)
    everything = world.found()
    world.disk.fail("write", "*tradewind.purged*/msgs/*.blk", 3, errno.EIO, times=1 << 30)
    answer = world.own("TRUNCATE", after="2020-01-01T00:00:00Z", keep_for=HOUR)
    text = answer["error"]["description"]
    removed = 6 - len(world.found())
    assert 0 < removed < 6
    assert f"{removed} messages were removed; undo" in text
    assert world.own("UNDO", id=text.split()[-3])["messages"] == removed
    assert world.found() == everything


# ---------------------------------------------------------------- what is kept counts


def test_messages_that_are_kept_count_until_they_are_gone_for_good() -> None:
    world = World()
    world.fill()
    whole = used(world)
    assert whole == streams_bytes(world)
    assert world.own("TRUNCATE", subjects=["S.1"], keep_for=HOUR)["messages"] == 4
    assert used(world) == streams_bytes(world) + on_disk(world) > whole
    assert world.own("TRUNCATE", subjects=["S.2"], keep_for=2 * HOUR)["messages"] == 4
    assert used(world) == streams_bytes(world) + on_disk(world)
    again = World(world.disk.crash_keeping_unsynced())
    assert used(again) == used(world)
    again = World(world.disk.crash_losing_unsynced())
    assert used(again) == streams_bytes(again) + on_disk(again)
    again.server.advance(3700)
    again.peer = Peer(again.server)  # the other one has answered no PING
    assert len(again.own("UNDO", dry_run=True)["windows"]) == 1
    assert used(again) == streams_bytes(again) + on_disk(again) < used(world)
    assert again.own("UNDO")["messages"] == 4
    assert used(again) == streams_bytes(again)
    assert on_disk(again) == 0


def test_account_cannot_hold_more_than_its_limit_by_truncating() -> None:
    world = World()
    limit(world, 100_000)
    refused = 0
    for _ in range(30):
        answer = json.loads(world.peer.ask("S.a", bytes(20_000))[0][2])
        if "error" in answer:
            refused += 1
        world.own("TRUNCATE", subjects=["S.a"], keep_for=HOUR)
        assert used(world) == streams_bytes(world) + on_disk(world) <= 100_000
    assert refused == 26
    assert len(world.own("UNDO", dry_run=True)["windows"]) == 4


def test_truncation_without_room_for_what_is_kept_changes_nothing() -> None:
    world = World()
    world.fill()
    before = world.found()
    limit(world, used(world) + 5000)
    answer = world.own("TRUNCATE", subjects=["S.1"], keep_for=HOUR)
    assert "keep_for: the account or the server has no storage left" in str(answer["error"])
    assert (world.found(), on_disk(world)) == (before, 0)
    assert used(world) == streams_bytes(world)
    assert world.own("TRUNCATE", subjects=["S.1"])["messages"] == 4


@pytest.mark.slow
def test_undo_that_would_exceed_the_limit_is_refused_and_changes_nothing() -> None:
    world = World(compression="s2")
    for _ in range(12):
        world.publish("S.a", payload=bytes(900_000))
    whole = used(world)
    world.own("TRUNCATE", subjects=["S.a"], keep_for=HOUR)
    kept = used(world)
    assert kept < whole // 2
    limit(world, whole - 1)
    answer = world.own("UNDO")
    assert answer["error"]["err_code"] == 10002
    assert used(world) == kept
    limit(world, whole)
    assert world.own("UNDO")["messages"] == 12
    assert used(world) == whole


def test_nobody_takes_the_room_of_a_stream_during_its_undo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.peer.create("O")
    world.fill()
    world.own("TRUNCATE", subjects=["S.1"], keep_for=HOUR)
    before = used(world)
    seen = []

    def watched(*arguments: Any) -> None:
        assert world.server.engine is not None
        seen.append(world.server.engine.accounts["$G"].usage.storage)
        put_back(*arguments)

    monkeypatch.setattr("tradewind.jetstream.undo.put_back", watched)
    assert world.own("UNDO")["messages"] == 4
    assert seen == [before]


@pytest.mark.parametrize("fault", [None, "create"])
def test_publishers_are_told_at_every_step_of_an_undo_what_becomes_of_their_messages(
    fault: Operation | None,
) -> None:
    world = World()
    world.fill()
    world.own("TRUNCATE", subjects=["S.1"], keep_for=HOUR)
    workers = world.server.workers
    workers.is_held = True
    assert world.peer.ask("$TW.API.STREAM.UNDO.S") == []
    if fault is not None:
        world.disk.fail(fault, "*/snap-*", times=100)
    refused, stored = 0, {}
    while workers.waiting_count:
        answers = world.peer.ask("S.new", b"%d" % refused)
        for _, header, body in answers:
            assert b"503" not in header, "there is a stream, so nobody is told that nobody listens"
            answer = json.loads(body)
            if "error" in answer:
                assert answer["error"]["err_code"] == 10077
                assert "publish again" in answer["error"]["description"]
                refused += 1
            elif "seq" in answer:
                stored[answer["seq"]] = b"%d" % refused
        workers.run_next()
    workers.is_held = False
    assert refused
    world.disk.clear_faults()
    world.server.run_until_idle()
    world.peer.take()
    world.publish("S.new")
    found = {seq: payload for seq, _, _, _, payload in world.found()}
    assert stored.items() <= found.items()
    assert sum(
        payload.isdigit() and subject == "S.new" for _, _, subject, _, payload in world.found()
    ) == len(stored)
