"""The client beside a cluster whose leaders are killed: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import tradewind
import tradewind.sync
from cluster_kit import LocalCluster, patiently, replicated_stream
from harness import wait_for
from tradewind.client.errors import ClientError, NoLeaderError, OperationTimeoutError

COUNT = 1500
KILL_AT = 500


def stored(connection: Any, stream: str) -> list[int]:
    """The numbers that a stream holds, in its order."""
    found = []
    streams = connection.jetstream_manager().streams
    for seq in range(1, patiently(lambda: streams.info(stream)).state.last_seq + 1):
        message = patiently(lambda seq=seq: streams.get_message(stream, seq=seq))
        found.append(int(message.data))
    return found


async def publish_all(url: str, kill: threading.Event) -> None:
    """Publish numbers with ids, each again until it is acknowledged."""
    async with await tradewind.connect(url, timeout=30) as connection:
        js = connection.jetstream()

        async def publish(number: int) -> None:
            while True:
                try:
                    await js.publish(
                        "kills.number", str(number).encode(), msg_id=f"number-{number}", timeout=10
                    )
                except ClientError:
                    continue
                return

        for begin in range(0, COUNT, 50):
            if begin == KILL_AT:
                kill.set()
            await asyncio.gather(*(publish(number) for number in range(begin, begin + 50)))


def test_publishes_with_ids_survive_a_killed_leader(cluster: LocalCluster) -> None:
    with replicated_stream(cluster, "KILLS", "kills.>") as connection:
        kill = threading.Event()
        leader = cluster.leader_of(connection, "KILLS")
        publisher = threading.Thread(target=asyncio.run, args=(publish_all(cluster.url, kill),))
        publisher.start()
        assert kill.wait(60)
        assert leader.kill()
        publisher.join(120)
        assert not publisher.is_alive()
        cluster.start()
        assert sorted(stored(connection, "KILLS")) == list(range(COUNT))


def test_a_single_publish_waits_for_the_new_leader(cluster: LocalCluster) -> None:
    """nats-server refuses with 503 while it elects; refused is not stored, so the client repeats
    the message until its deadline.
    """
    with replicated_stream(cluster, "PATIENT", "patient.>") as connection:
        leader = cluster.leader_of(connection, "PATIENT")
        leader.kill()
        ack = connection.jetstream().publish("patient.1", b"1", msg_id="one", timeout=60)
        assert ack.seq == 1
        assert stored(connection, "PATIENT") == [1]


async def consume_all(url: str, count: int, kill: Callable[[], object]) -> set[int]:
    """Consume with confirmed acknowledgements; `kill` is called after a third of the messages.

    Without a confirmation a message comes again, or it was acknowledged and only the answer is
    lost: so it is asked for again.
    """
    acknowledged: set[int] = set()
    unconfirmed: dict[int, Any] = {}
    is_killed = False

    async def confirm(number: int, message: Any) -> None:
        with contextlib.suppress(ClientError):
            await message.ack_sync(timeout=2)
            acknowledged.add(number)
            del unconfirmed[number]

    async with await tradewind.connect(url, timeout=30) as connection:
        consumer = await connection.jetstream().consumers.get("WORK", "worker")
        async with await consumer.consume(idle_heartbeat=0.5) as messages:
            while len(acknowledged) < count:
                with contextlib.suppress(OperationTimeoutError):
                    message = await messages.next(1)
                    unconfirmed[int(message.data)] = message
                await asyncio.gather(*(confirm(*each) for each in unconfirmed.items()))
                if not is_killed and len(acknowledged) >= count // 3:
                    is_killed = True
                    await asyncio.to_thread(kill)
    return acknowledged


def test_a_durable_consumer_goes_on_after_its_leader_was_killed(cluster: LocalCluster) -> None:
    with replicated_stream(cluster, "WORK", "work.>") as connection:
        js = connection.jetstream()
        for number in range(300):
            js.publish("work.item", str(number).encode(), msg_id=str(number))
        consumers = connection.jetstream_manager().consumers
        config = {"ack_policy": "explicit", "ack_wait": timedelta(seconds=5)}
        info = patiently(lambda: consumers.add("WORK", durable_name="worker", **config))
        kill = cluster.named(info.cluster.leader).kill
        acknowledged = asyncio.run(consume_all(cluster.url, 300, kill))
        assert acknowledged == set(range(300))
        cluster.start()
        assert patiently(lambda: consumers.info("WORK", "worker")).num_pending == 0


def test_without_a_majority_errors_say_that_there_is_no_leader(cluster: LocalCluster) -> None:
    with replicated_stream(cluster, "ALONE", "alone.>") as connection:
        leader = cluster.leader_of(connection, "ALONE")
        for node in cluster.nodes:
            if node is not leader:
                node.kill()
        with pytest.raises(NoLeaderError, match="no leader at the moment"):
            connection.jetstream().publish("alone.1", b"1", msg_id="a", timeout=2)
        cluster.start()
        # It was not acknowledged, and the same id makes sure that it is there once in any case.
        connection.jetstream().publish("alone.1", b"1", msg_id="a", timeout=60)
        assert stored(connection, "ALONE") == [1]


def test_keys_and_objects_are_there_after_a_killed_leader(cluster: LocalCluster) -> None:
    with tradewind.sync.connect(cluster.url, timeout=60) as connection:
        js = connection.jetstream()
        bucket = js.kv.create("settings", replicas=3)
        bucket.put("colour", b"red")
        store = js.objects.create("files", replicas=3)
        store.put("report", b"x" * 500_000)
        cluster.leader_of(connection, "KV_settings").kill()
        assert bucket.get("colour").value == b"red"
        assert store.get("report").read() == b"x" * 500_000
        bucket.put("colour", b"blue")
        # A member of the cluster that is behind may answer a direct get.
        wait_for(lambda: bucket.get("colour").value == b"blue")
        cluster.start()
        js.kv.delete("settings")
        js.objects.delete("files")
