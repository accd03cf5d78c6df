"""Every file that the official server leaves behind is read to the byte, and it reads ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from harness import ServerProcess
from subject_tables import subject_table
from tradewind.store.format.ack_log import decode_with_trailer
from tradewind.store.format.consumer_file import encode_consumer_state
from tradewind.store.format.index_file import decode_index, encode_index
from tradewind.store.format.layout import (
    CONSUMERS_FOLDER,
    account_folder,
    block_bytes_max,
    block_numbers,
    consumer_key_text,
    name_problem,
    stream_folder,
    stream_key_text,
)
from tradewind.store.format.meta import (
    check_meta_sum,
    decode_consumer_meta,
    decode_stream_meta,
    encode_consumer_meta,
    encode_stream_meta,
    meta_sum,
)
from tradewind.store.format.sequence_set import SequenceSet
from tradewind.store.format.side_files import (
    decode_schedules,
    decode_sources,
    encode_schedules,
    encode_sources,
)
from tradewind.store.format.timing_wheel import TimingWheel
from tradewind.store.format.varint import ByteReader

SECOND = 1_000_000_000
ODD_TEXT = 'quote " slash \\ tag <b>&</b> bell \x07 \b\f\n\r\t \x7f é \u2028\u2029 \U0001f300'
# They go on reading from other streams, so what the API said of them need not be their last state.
COPIES = ("MIRROR", "SOURCES")
STREAMS: list[dict[str, Any]] = [
    {"name": "EMPTY", "subjects": ["empty.>"]},
    {
        "name": "PLAIN",
        "subjects": ["plain.>", "other.*"],
        "description": ODD_TEXT,
        "metadata": {"zebra": "1", "apple": ODD_TEXT, "Äpfel": "<>"},
        "max_msg_size": 5000,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
    },
    {"name": "DELETES", "subjects": ["deletes.*"], "retention": "limits"},
    {"name": "PURGED", "subjects": ["purged"]},
    {
        "name": "SMALL",
        "subjects": ["small.*"],
        "max_bytes": 100_000,
        "discard": "new",
        "consumer_limits": {"inactive_threshold": 3600 * SECOND, "max_ack_pending": 5000},
    },
    {
        "name": "LAST",
        "subjects": ["last.*"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "discard_new_per_subject": False,
        "deny_purge": True,
        "compression": "s2",
    },
    {"name": "FIRST", "subjects": ["first"], "first_seq": 1000, "max_msgs": 3},
    {"name": "QUEUE", "subjects": ["queue"], "retention": "workqueue", "no_ack": False},
    {"name": "INTEREST", "subjects": ["interest"], "retention": "interest"},
    {
        "name": "TTL",
        "subjects": ["ttl.*"],
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 60 * SECOND,
        "max_age": 86400 * SECOND,
    },
    {"name": "SCHEDULES", "subjects": ["schedules.*"], "allow_msg_schedules": True},
    {
        "name": "SHAPED",
        "subjects": ["shaped.*"],
        "subject_transform": {"src": "shaped.*", "dest": "formed.{{wildcard(1)}}"},
        "republish": {"src": "formed.>", "dest": "again.>", "headers_only": True},
        "allow_atomic": True,
        "allow_batched": True,
        "duplicate_window": 5 * SECOND,
    },
    {"name": "COUNTER", "subjects": ["counter.*"], "allow_msg_counter": True},
    {"name": "ASYNC", "subjects": ["async"], "persist_mode": "async"},
    {"name": "MIRROR", "mirror": {"name": "PLAIN", "opt_start_seq": 2}, "mirror_direct": True},
    {
        "name": "SOURCES",
        "sources": [
            {"name": "PLAIN", "filter_subject": "plain.a"},
            {
                "name": "LAST",
                "opt_start_time": "2026-01-01T00:00:00.500Z",
                "subject_transforms": [{"src": "last.*", "dest": "from.{{wildcard(1)}}"}],
            },
            {"name": "AWAY", "external": {"api": "$JS.away.API", "deliver": "away.deliver"}},
        ],
    },
]
CONSUMERS: list[tuple[str, dict[str, Any]]] = [
    ("PLAIN", {"durable_name": "explicit", "ack_policy": "explicit", "description": ODD_TEXT}),
    ("PLAIN", {"durable_name": "all", "ack_policy": "all", "filter_subject": "plain.>"}),
    ("PLAIN", {"durable_name": "none", "ack_policy": "none"}),
    (
        "PLAIN",
        {
            "durable_name": "backoff",
            "ack_policy": "explicit",
            "backoff": [SECOND, 2 * SECOND],
            "max_deliver": 3,
            "filter_subjects": ["plain.a", "plain.b"],
            "sample_freq": "100%",
            "headers_only": True,
            "max_batch": 10,
            "max_expires": 60 * SECOND,
            "max_bytes": 10_000,
            "metadata": {"b": "2", "a": "1"},
            "pause_until": "2099-01-01T00:00:00.120Z",
        },
    ),
    (
        "PLAIN",
        {
            "durable_name": "push",
            "ack_policy": "explicit",
            "deliver_policy": "by_start_time",
            "opt_start_time": "2026-01-01T00:00:00Z",
            "deliver_subject": "pushed.here",
            "deliver_group": "workers",
            "flow_control": True,
            "idle_heartbeat": 5 * SECOND,
            "rate_limit_bps": 1_000_000,
            "replay_policy": "original",
        },
    ),
    ("PLAIN", {"name": "ephemeral", "ack_policy": "explicit", "inactive_threshold": 600 * SECOND}),
    ("PLAIN", {"durable_name": "new", "ack_policy": "explicit", "deliver_policy": "new"}),
    (
        "PLAIN",
        {
            "durable_name": "pinned",
            "ack_policy": "explicit",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": 2,
            "priority_groups": ["jobs"],
            "priority_policy": "pinned_client",
            "priority_timeout": 30 * SECOND,
        },
    ),
    ("QUEUE", {"durable_name": "worker", "ack_policy": "explicit"}),
    ("INTEREST", {"durable_name": "keeper", "ack_policy": "explicit"}),
    ("PLAIN", {"durable_name": "memory", "ack_policy": "explicit", "mem_storage": True}),
]


@dataclass
class Store:
    """A folder that the official server wrote and closed, and what its API said before."""

    folder: Path
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    consumers: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def stream(self, name: str) -> Path:
        return self.folder / stream_folder("$G", name)

    def consumer(self, stream: str, name: str) -> Path:
        return self.stream(stream) / CONSUMERS_FOLDER / name


def start(folder: Path) -> ServerProcess:
    arguments = ["-js", "-sd", str(folder), "-p", "-1", "-a", "127.0.0.1"]
    return ServerProcess("official", arguments).wait_ready()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Client, ServerProcess]]:
    """The official server on this folder and a client of it; both are gone afterwards."""
    server = start(folder)
    try:
        client = await nats.connect(server.url)
        try:
            yield client, server
        finally:
            await client.close()
    finally:
        server.stop()


async def api(client: Client, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await client.request(f"$JS.API.{subject}", payload, timeout=10)
    answer: dict[str, Any] = json.loads(reply.data)
    assert "error" not in answer, (subject, answer["error"])
    return answer


async def publish(
    client: Client, subject: str, payload: bytes, headers: dict[str, str] | None = None
) -> None:
    """Publish and wait until it is stored, and so all that was published before."""
    reply = await client.request(subject, payload, headers=headers, timeout=10)
    assert "error" not in json.loads(reply.data), reply.data


async def fill(client: Client) -> None:
    for number in range(20):
        headers = {"Nats-Msg-Id": str(number)} if number % 3 == 0 else None
        await publish(client, f"plain.{'abc'[number % 3]}", b"x" * number, headers)
        await publish(client, f"ttl.{number}", b"t", {"Nats-TTL": f"{300 + number}s"})
        for subject in ("first", "queue", "interest", "purged", "async", "shaped.x"):
            await publish(client, subject, b"payload")
    for number in range(4):
        await publish(client, f"last.{number}", b"y" * 2000)
        await publish(client, "counter.x", b"", {"Nats-Incr": "+1"})
        schedule = {"Nats-Schedule": "@at 2099-01-01T00:00:00Z"}
        schedule["Nats-Schedule-Target"] = "schedules.target"
        await publish(client, f"schedules.{number}", b"z", schedule)
    for number in range(30_000):
        await client.publish(f"deletes.{number % 2 if number < 20_000 else number % 7}", b"")
    await publish(client, "deletes.0", b"")
    for number in range(2000):
        await client.publish(f"small.{number % 9}", b"")
    await publish(client, "small.0", b"")
    await until_sourced(client)
    await api(client, "STREAM.PURGE.DELETES", {"filter": "deletes.1"})
    await api(client, "STREAM.PURGE.SMALL", {"filter": "small.3"})
    await api(client, "STREAM.PURGE.PURGED")
    for seq, no_erase in ((4, True), (5, False), (9, False)):
        await api(client, "STREAM.MSG.DELETE.PLAIN", {"seq": seq, "no_erase": no_erase})


async def until_sourced(client: Client) -> None:
    """Wait until something was sourced, so that there is a sources.db."""
    async with asyncio.timeout(30):
        while not (await api(client, "STREAM.INFO.SOURCES"))["state"]["messages"]:
            pass


async def deliver(client: Client) -> None:
    """Deliver, acknowledge some out of order, have some redelivered."""
    js = client.jetstream()
    for stream, name in (("PLAIN", "explicit"), ("PLAIN", "all"), ("QUEUE", "worker")):
        subscription = await js.pull_subscribe_bind(name, stream)
        messages = await subscription.fetch(10, timeout=5)
        assert len(messages) == 10
        for index in (0, 1, 4, 7):
            await messages[index].ack_sync()
        # As a request, so that it has been processed before the next pull.
        await client.request(messages[8].reply, b"-NAK", timeout=5)
        again = (await subscription.fetch(1, timeout=5))[0]
        assert again.metadata.num_delivered == 2
    subscription = await js.pull_subscribe_bind("none", "PLAIN")
    assert len(await subscription.fetch(5, timeout=5)) == 5


async def write_store(store: Store) -> None:
    async with serving(store.folder) as (client, _):
        for config in STREAMS:
            await api(client, f"STREAM.CREATE.{config['name']}", config)
        for stream, config in CONSUMERS:
            name = config.get("durable_name") or config["name"]
            body = {"stream_name": stream, "config": {"name": name, **config}}
            await api(client, f"CONSUMER.CREATE.{stream}.{name}", body)
        await fill(client)
        await deliver(client)
        await read_answers(client, store)


async def read_answers(client: Client, store: Store) -> None:
    for config in STREAMS:
        name = config["name"]
        info = await api(client, f"STREAM.INFO.{name}", {"deleted_details": True})
        store.streams[name] = info
    for stream, config in CONSUMERS:
        name = config.get("durable_name") or config["name"]
        info = await api(client, f"CONSUMER.INFO.{stream}.{name}")
        store.consumers[stream, name] = info


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    result = Store(tmp_path_factory.mktemp("official"))
    asyncio.run(write_store(result))
    return result


async def test_the_name_rule_is_that_of_the_official_server(tmp_path: Path) -> None:
    names = ["a", "a b", "a.b", "a*b", "a>b", "a/b", "a\\b", "a\tb", "a\nb", "a\rb", "a\fb", "a\0b"]
    names += [
        "a\x01b",
        "a\x0bb",
        "a\x7fb",
        "a\x85b",
        "é",
        "a\u2003b",
        "..",
        "-",
        "x" * 255,
        "x" * 256,
    ]
    names += ["é" * 127, "é" * 128]
    async with serving(tmp_path) as (client, _):
        await api(client, "STREAM.CREATE.S", {"name": "S"})
        for name in names:
            body = {"stream_name": "S", "config": {"name": name, "ack_policy": "none"}}
            reply = await client.request("$JS.API.CONSUMER.CREATE.S", json.dumps(body).encode())
            assert ("error" not in json.loads(reply.data)) == (not name_problem(name)), name


@pytest.mark.slow
def test_blocks_are_rolled_at_our_block_size(store: Store) -> None:
    config = decode_stream_meta((store.stream("SMALL") / "meta.inf").read_bytes()).config
    numbers = block_numbers(path.name for path in (store.stream("SMALL") / "msgs").iterdir())
    sizes = [(store.stream("SMALL") / f"msgs/{number}.blk").stat().st_size for number in numbers]
    limit = block_bytes_max(config)
    assert len(numbers) > 2
    assert all(limit - 100 < size <= limit for size in sizes[:2])


def stored_config(info: dict[str, Any]) -> dict[str, Any]:
    """The configuration of an API answer without what the server adds to answers."""
    config: dict[str, Any] = info["config"]
    for name in ("_nats.ver", "_nats.level"):
        config["metadata"].pop(name, None)
    return config


def test_the_layout_names_every_stream_and_consumer_folder(store: Store) -> None:
    streams = {path.name for path in (store.folder / account_folder("$G") / "streams").iterdir()}
    assert streams == set(store.streams)
    on_disk = {path.name for path in (store.stream("PLAIN") / "obs").iterdir()}
    expected = {name for stream, name in store.consumers if stream == "PLAIN"}
    # Mirrors and sources read through ephemeral consumers of their own, which leave nothing here.
    assert on_disk == expected - {"memory"}
    for name in store.streams:
        assert block_numbers(path.name for path in (store.stream(name) / "msgs").iterdir())


def test_stream_meta_is_read_and_written_to_the_byte(store: Store) -> None:
    for name, info in store.streams.items():
        data = (store.stream(name) / "meta.inf").read_bytes()
        check_meta_sum(data, (store.stream(name) / "meta.sum").read_bytes(), stream_key_text(name))
        meta = decode_stream_meta(data)
        assert meta.unknown_fields == ()
        assert meta.config == stored_config(info)
        assert encode_stream_meta(meta) == data


def test_consumer_meta_is_read_and_written_to_the_byte(store: Store) -> None:
    for (stream, name), info in store.consumers.items():
        if name == "memory":
            continue
        folder = store.consumer(stream, name)
        data = (folder / "meta.inf").read_bytes()
        key_text = consumer_key_text(stream, name)
        check_meta_sum(data, (folder / "meta.sum").read_bytes(), key_text)
        meta = decode_consumer_meta(data)
        assert meta.unknown_fields == ()
        assert (meta.name, meta.config) == (name, stored_config(info))
        assert encode_consumer_meta(meta) == data


def test_our_order_of_fields_does_not_depend_on_the_order_of_the_config(store: Store) -> None:
    for name in store.streams:
        data = (store.stream(name) / "meta.inf").read_bytes()
        meta = decode_stream_meta(data)
        shuffled = dict(reversed(meta.config.items()))
        assert encode_stream_meta(type(meta)(shuffled, meta.created_ns)) == data


def test_indexes_are_read_and_written_to_the_byte(store: Store) -> None:
    largest_set = 0
    for name, info in store.streams.items():
        data = (store.stream(name) / "msgs/index.db").read_bytes()
        index = decode_index(data, name)
        assert encode_index(index, name) == data
        if name in COPIES:
            continue
        state = info["state"]
        assert (index.messages, index.live_bytes) == (state["messages"], state["bytes"])
        assert (index.first_seq, index.last_seq) == (state["first_seq"], state["last_seq"])
        assert len(index.subjects) == state.get("num_subjects", 0)
        assert sum(index.subjects.totals) == index.messages
        deleted = [seq for block in index.blocks for seq in block.deleted]
        gaps = state.get("deleted", [])
        assert set(deleted) <= set(gaps)
        for block in index.blocks:
            block.deleted.check()
            largest_set = max(largest_set, block.deleted.node_count)
        last = store.stream(name) / f"msgs/{index.blocks[-1].number}.blk"
        assert index.last_checksum == (last.read_bytes()[-8:] or bytes(8))
    assert largest_set > 8


def test_timers_are_read_and_written_to_the_byte(store: Store) -> None:
    data = (store.stream("TTL") / "msgs/thw.db").read_bytes()
    wheel, stamp = TimingWheel.decode(data)
    assert stamp == store.streams["TTL"]["state"]["last_seq"] + 1
    assert wheel.count == 20
    encoded = wheel.encode(stamp)
    assert len(encoded) == len(data)
    assert timer_entries(encoded) == timer_entries(data)
    taken = wheel.take_expired(1 << 62, 100)
    assert [seq for seq, _ in taken] == list(range(1, 21))


def timer_entries(data: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    reader = ByteReader(data, "thw.db", 17)
    entries = []
    while reader.left:
        entries.append((reader.varint("expiry"), reader.uvarint("sequence")))
    return data[:17], sorted(entries)


def test_schedules_and_sources_are_read_and_written_to_the_byte(store: Store) -> None:
    data = (store.stream("SCHEDULES") / "msgs/sched.db").read_bytes()
    schedules, stamp = decode_schedules(data)
    assert encode_schedules(schedules, stamp) == data
    assert stamp == 5
    assert {(entry.subject, entry.fire_ns) for entry in schedules} == {
        (b"schedules.%d" % number, 4070908800 * SECOND) for number in range(4)
    }
    data = (store.stream("SOURCES") / "sources.db").read_bytes()
    sources, stamp = decode_sources(data)
    assert encode_sources(sources, stamp) == data
    assert {source.name.split(b" ")[0] for source in sources} & {b"PLAIN", b"LAST"}


def test_consumer_states_are_read_and_written_to_the_byte(store: Store) -> None:
    pending_seen = redelivered_seen = 0
    for (stream, name), info in store.consumers.items():
        if name == "memory":
            continue
        data = (store.consumer(stream, name) / "o.dat").read_bytes()
        state = decode_with_trailer(data)[0]
        assert state.delivered == pair(info["delivered"]), name
        assert state.ack_floor == pair(info["ack_floor"]), name
        assert len(state.pending) == info["num_ack_pending"]
        assert len(state.redelivered) == info["num_redelivered"]
        pending_seen += len(state.pending)
        redelivered_seen += len(state.redelivered)
        assert encode_consumer_state(state, base_seconds(data) * SECOND) == data
    assert pending_seen > 10
    assert redelivered_seen == 3


def pair(answer: dict[str, int]) -> tuple[int, int]:
    return answer["consumer_seq"], answer["stream_seq"]


def base_seconds(data: bytes) -> int:
    reader = ByteReader(data, "o.dat", 2)
    *_, pending = (reader.uvarint("head") for _ in range(5))
    return reader.varint("base") if pending else 0


def rebalanced(sequences: SequenceSet) -> SequenceSet:
    result = SequenceSet()
    for seq in sequences:
        result.insert(seq)
    return result


def rewrite(store: Store) -> None:
    """Replace every file by one of ours that means the same in other bytes where it may."""
    for name in store.streams:
        folder = store.stream(name)
        path = folder / "meta.inf"
        path.write_bytes(encode_stream_meta(decode_stream_meta(path.read_bytes())))
        (folder / "meta.sum").write_bytes(meta_sum(path.read_bytes(), stream_key_text(name)))
        path = folder / "msgs/index.db"
        index = decode_index(path.read_bytes(), name)
        index.subjects = subject_table(sorted(index.subjects.rows(), reverse=True))
        for block in index.blocks:
            block.deleted = rebalanced(block.deleted)
        path.write_bytes(encode_index(index, name))
    path = store.stream("TTL") / "msgs/thw.db"
    wheel, stamp = TimingWheel.decode(path.read_bytes())
    path.write_bytes(wheel.encode(stamp))
    for stream, name in store.consumers:
        if name != "memory":
            path = store.consumer(stream, name) / "o.dat"
            state = decode_with_trailer(path.read_bytes())[0]
            path.write_bytes(encode_consumer_state(state, base_seconds(path.read_bytes()) * SECOND))
            meta_path = store.consumer(stream, name) / "meta.inf"
            meta = decode_consumer_meta(meta_path.read_bytes())
            meta_path.write_bytes(encode_consumer_meta(meta))


async def test_the_official_server_takes_our_files_without_a_warning(store: Store) -> None:
    rewrite(store)
    async with serving(store.folder) as (client, server):
        for name, info in store.streams.items():
            if name not in COPIES:
                again = await api(client, f"STREAM.INFO.{name}", {"deleted_details": True})
                assert {**again["state"], "consumer_count": 0} == {
                    **info["state"],
                    "consumer_count": 0,
                }
        for (stream, name), info in store.consumers.items():
            if name != "memory":
                again = await api(client, f"CONSUMER.INFO.{stream}.{name}")
                assert pair(again["delivered"]) == pair(info["delivered"])
                assert pair(again["ack_floor"]) == pair(info["ack_floor"])
                assert again["num_ack_pending"] == info["num_ack_pending"]
        warnings = [line for line in server.lines if "[WRN]" in line or "[ERR]" in line]
        assert not [line for line in warnings if "tream" in line or "onsumer" in line], warnings
