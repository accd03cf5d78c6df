"""The nats-py client on both servers: what an application does with streams and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

from harness import ServerProcess

WAIT_SECONDS = 20
SHORT_SECONDS = 0.2


@pytest.fixture
async def client(js_server: ServerProcess) -> AsyncIterator[Client]:
    connection = await nats.connect(
        js_server.url, allow_reconnect=False, connect_timeout=WAIT_SECONDS
    )
    yield connection
    await connection.close()


@pytest.fixture
def js(client: Client) -> JetStreamContext:
    return client.jetstream(timeout=WAIT_SECONDS)


@pytest.fixture
async def stream(js: JetStreamContext, subject: str) -> AsyncIterator[str]:
    """A stream of this name that takes `<name>.>`."""
    await js.add_stream(name=subject, subjects=[f"{subject}.>"])
    yield subject
    with suppress(nats.js.errors.NotFoundError):  # the test may have deleted it
        await js.delete_stream(subject)


async def fill(js: JetStreamContext, stream: str, count: int, **options: Any) -> None:
    for number in range(count):
        await js.publish(f"{stream}.{number % 3}", b"%d" % number, **options)


async def payloads(subscription: JetStreamContext.PullSubscription, count: int) -> list[bytes]:
    """The payloads of the next messages, each acknowledged."""
    found: list[bytes] = []
    while len(found) < count:
        for message in await subscription.fetch(count - len(found), timeout=WAIT_SECONDS):
            found.append(message.data)
            await message.ack()
    return found


# ---------------------------------------------------------------- streams


async def test_stream_is_created_found_changed_and_deleted(
    js: JetStreamContext, subject: str
) -> None:
    created = await js.add_stream(name=subject, subjects=[f"{subject}.*"], max_msgs=5)
    assert created.config.subjects == [f"{subject}.*"]
    assert created.config.max_msgs == 5
    assert created.state.messages == 0
    assert await js.find_stream_name_by_subject(f"{subject}.x") == subject
    changed = await js.update_stream(
        name=subject, subjects=[f"{subject}.*"], max_msgs=2, description="smaller"
    )
    assert (changed.config.max_msgs, changed.config.description) == (2, "smaller")
    assert subject in [info.config.name for info in await js.streams_info()]
    assert await js.delete_stream(subject)
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.stream_info(subject)


async def test_stream_with_overlapping_subjects_is_refused(
    js: JetStreamContext, stream: str
) -> None:
    with pytest.raises(nats.js.errors.BadRequestError) as caught:
        await js.add_stream(name=f"{stream}-other", subjects=[f"{stream}.x"])
    assert caught.value.err_code == 10065


async def test_limits_keep_the_newest_messages(js: JetStreamContext, subject: str) -> None:
    await js.add_stream(name=subject, subjects=[f"{subject}.>"], max_msgs=2)
    await fill(js, subject, 5)
    state = (await js.stream_info(subject)).state
    assert (state.messages, state.first_seq, state.last_seq) == (2, 4, 5)


async def test_info_lists_subjects_that_match_a_filter(js: JetStreamContext, stream: str) -> None:
    await fill(js, stream, 4)
    info = await js.stream_info(stream, subjects_filter=f"{stream}.*")
    assert info.state.subjects == {f"{stream}.0": 2, f"{stream}.1": 1, f"{stream}.2": 1}


async def test_purge_by_subject_and_as_a_whole(js: JetStreamContext, stream: str) -> None:
    await fill(js, stream, 6)
    assert await js.purge_stream(stream, subject=f"{stream}.0")
    assert (await js.stream_info(stream)).state.messages == 4
    assert await js.purge_stream(stream, keep=1)
    assert (await js.stream_info(stream)).state.messages == 1
    assert await js.purge_stream(stream)
    state = (await js.stream_info(stream)).state
    assert (state.messages, state.first_seq, state.last_seq) == (0, 7, 6)


async def test_single_messages_are_read_and_deleted(js: JetStreamContext, stream: str) -> None:
    await js.publish(f"{stream}.a", b"one", headers={"Color": "red"})
    await js.publish(f"{stream}.a", b"two")
    first = await js.get_msg(stream, 1)
    assert (first.subject, first.data, first.headers) == (f"{stream}.a", b"one", {"Color": "red"})
    assert (await js.get_last_msg(stream, f"{stream}.a")).data == b"two"
    assert await js.delete_msg(stream, 1)
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.get_msg(stream, 1)
    assert (await js.get_msg(stream, seq=1, subject=f"{stream}.a", next=True)).seq == 2


async def test_direct_get_reads_without_the_api(js: JetStreamContext, subject: str) -> None:
    await js.add_stream(name=subject, subjects=[f"{subject}.>"], allow_direct=True)
    await js.publish(f"{subject}.a", b"one")
    await js.publish(f"{subject}.b", b"two")
    found = await js.get_msg(subject, 1, direct=True)
    assert (found.subject, found.data, found.seq) == (f"{subject}.a", b"one", 1)
    assert (await js.get_last_msg(subject, f"{subject}.b", direct=True)).data == b"two"


# ---------------------------------------------------------------- publish


async def test_publish_is_acknowledged_in_order(js: JetStreamContext, stream: str) -> None:
    acks = [await js.publish(f"{stream}.x", b"") for _ in range(3)]
    assert [ack.seq for ack in acks] == [1, 2, 3]
    assert {ack.stream for ack in acks} == {stream}


async def test_message_id_is_stored_once(js: JetStreamContext, stream: str) -> None:
    header = {"Nats-Msg-Id": "same"}
    first = await js.publish(f"{stream}.x", b"1", headers=header)
    second = await js.publish(f"{stream}.x", b"2", headers=header)
    assert not first.duplicate
    assert second.duplicate
    assert second.seq == first.seq
    assert (await js.stream_info(stream)).state.messages == 1


async def test_wrong_expectation_is_refused(js: JetStreamContext, stream: str) -> None:
    await js.publish(f"{stream}.x", b"")
    with pytest.raises(nats.js.errors.APIError) as caught:
        await js.publish(f"{stream}.x", b"", headers={"Nats-Expected-Last-Sequence": "7"})
    assert caught.value.err_code == 10071
    with pytest.raises(nats.js.errors.APIError) as caught:
        await js.publish(f"{stream}.x", b"", stream="another")
    assert caught.value.err_code == 10060


async def test_publish_without_a_stream_finds_nobody(js: JetStreamContext, subject: str) -> None:
    with pytest.raises(nats.js.errors.NoStreamResponseError):
        await js.publish(subject, b"")


async def test_many_publishes_at_once_are_all_acknowledged(
    js: JetStreamContext, stream: str
) -> None:
    futures = [await js.publish_async(f"{stream}.{number % 7}", b"x") for number in range(500)]
    await asyncio.wait_for(js.publish_async_completed(), WAIT_SECONDS)
    assert [future.result().seq for future in futures] == list(range(1, 501))


# ---------------------------------------------------------------- pull


async def test_pull_delivers_in_order_and_acks_are_counted(
    js: JetStreamContext, stream: str
) -> None:
    await fill(js, stream, 10)
    subscription = await js.pull_subscribe(f"{stream}.>", durable="worker")
    assert await payloads(subscription, 10) == [b"%d" % number for number in range(10)]
    info = await wait_until_acked(js, stream, "worker", 10)
    assert (info.num_pending, info.num_ack_pending) == (0, 0)


async def wait_until_acked(
    js: JetStreamContext, stream: str, consumer: str, count: int
) -> api.ConsumerInfo:
    """Acks are not answered: ask until the server has counted them."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            info = await js.consumer_info(stream, consumer)
            if info.ack_floor is not None and info.ack_floor.consumer_seq >= count:
                return info


async def test_pull_waits_for_messages_that_come_later(js: JetStreamContext, stream: str) -> None:
    subscription = await js.pull_subscribe(f"{stream}.>", durable="worker")
    waiting = asyncio.ensure_future(subscription.fetch(1, timeout=WAIT_SECONDS))
    async with asyncio.timeout(WAIT_SECONDS):
        while not (await js.consumer_info(stream, "worker")).num_waiting:
            pass
    await js.publish(f"{stream}.late", b"here")
    assert [message.data for message in await waiting] == [b"here"]


async def test_pull_without_messages_times_out(js: JetStreamContext, stream: str) -> None:
    subscription = await js.pull_subscribe(f"{stream}.>", durable="worker")
    with pytest.raises(nats.errors.TimeoutError):
        await subscription.fetch(1, timeout=SHORT_SECONDS)


async def test_naked_message_comes_again(js: JetStreamContext, stream: str) -> None:
    await js.publish(f"{stream}.x", b"again")
    subscription = await js.pull_subscribe(f"{stream}.>", durable="worker")
    first = (await subscription.fetch(1, timeout=WAIT_SECONDS))[0]
    await first.nak()
    second = (await subscription.fetch(1, timeout=WAIT_SECONDS))[0]
    assert (first.metadata.num_delivered, second.metadata.num_delivered) == (1, 2)
    assert second.metadata.sequence.stream == 1
    assert second.metadata.sequence.consumer == 2
    await second.ack_sync(timeout=WAIT_SECONDS)


async def test_unacknowledged_message_comes_again_after_ack_wait(
    js: JetStreamContext, stream: str
) -> None:
    await js.publish(f"{stream}.x", b"again")
    config = api.ConsumerConfig(ack_wait=SHORT_SECONDS)
    subscription = await js.pull_subscribe(f"{stream}.>", durable="worker", config=config)
    await subscription.fetch(1, timeout=WAIT_SECONDS)
    second = (await subscription.fetch(1, timeout=WAIT_SECONDS))[0]
    assert second.metadata.num_delivered == 2


async def test_terminated_message_does_not_come_again(js: JetStreamContext, stream: str) -> None:
    await js.publish(f"{stream}.x", b"never")
    config = api.ConsumerConfig(ack_wait=SHORT_SECONDS)
    subscription = await js.pull_subscribe(f"{stream}.>", durable="worker", config=config)
    message = (await subscription.fetch(1, timeout=WAIT_SECONDS))[0]
    await message.term()
    async with asyncio.timeout(WAIT_SECONDS):
        while (await js.consumer_info(stream, "worker")).num_ack_pending:
            pass
    with pytest.raises(nats.errors.TimeoutError):
        await subscription.fetch(1, timeout=3 * SHORT_SECONDS)
    assert (await js.consumer_info(stream, "worker")).num_ack_pending == 0


async def test_metadata_says_where_a_message_is(js: JetStreamContext, stream: str) -> None:
    await fill(js, stream, 3)
    subscription = await js.pull_subscribe(f"{stream}.1", durable="worker")
    metadata = (await subscription.fetch(1, timeout=WAIT_SECONDS))[0].metadata
    assert (metadata.stream, metadata.consumer) == (stream, "worker")
    assert (metadata.sequence.stream, metadata.sequence.consumer) == (2, 1)
    assert metadata.num_pending == 0


async def test_two_pullers_of_one_consumer_share_the_messages(
    js: JetStreamContext, stream: str
) -> None:
    await fill(js, stream, 20)
    one = await js.pull_subscribe(f"{stream}.>", durable="shared")
    two = await js.pull_subscribe(f"{stream}.>", durable="shared")
    found = await asyncio.gather(payloads(one, 10), payloads(two, 10))
    assert sorted(found[0] + found[1], key=int) == [b"%d" % number for number in range(20)]


# ---------------------------------------------------------------- push


async def test_push_delivers_what_is_stored_and_what_follows(
    js: JetStreamContext, stream: str
) -> None:
    await fill(js, stream, 3)
    subscription = await js.subscribe(f"{stream}.>", durable="pushed")
    for number in range(3):
        message = await subscription.next_msg(WAIT_SECONDS)
        assert message.data == b"%d" % number
        await message.ack()
    await js.publish(f"{stream}.x", b"later")
    assert (await subscription.next_msg(WAIT_SECONDS)).data == b"later"
    await subscription.unsubscribe()


async def test_push_queue_group_shares_the_messages(
    js: JetStreamContext, client: Client, stream: str
) -> None:
    seen: list[bytes] = []
    complete = asyncio.Event()

    async def collect(message: Msg) -> None:
        seen.append(message.data)
        await message.ack()
        if len(seen) == 20:
            complete.set()

    for _ in range(2):
        await js.subscribe(f"{stream}.>", queue="workers", durable="workers", cb=collect)
    await fill(js, stream, 20)
    await asyncio.wait_for(complete.wait(), WAIT_SECONDS)
    assert sorted(seen, key=int) == [b"%d" % number for number in range(20)]


async def test_ordered_consumer_sees_every_message_once(js: JetStreamContext, stream: str) -> None:
    await fill(js, stream, 50)
    subscription = await js.subscribe(f"{stream}.>", ordered_consumer=True)
    found = [(await subscription.next_msg(WAIT_SECONDS)).data for _ in range(50)]
    assert found == [b"%d" % number for number in range(50)]


async def test_deliver_policies_choose_the_first_message(js: JetStreamContext, stream: str) -> None:
    await fill(js, stream, 6)
    expected = {
        api.DeliverPolicy.ALL: b"0",
        api.DeliverPolicy.LAST: b"5",
        api.DeliverPolicy.LAST_PER_SUBJECT: b"3",
        api.DeliverPolicy.BY_START_SEQUENCE: b"4",
    }
    for policy, payload in expected.items():
        start = 5 if policy == api.DeliverPolicy.BY_START_SEQUENCE else None
        config = api.ConsumerConfig(deliver_policy=policy, opt_start_seq=start)
        subscription = await js.subscribe(f"{stream}.>", config=config)
        assert (await subscription.next_msg(WAIT_SECONDS)).data == payload, policy
        await subscription.unsubscribe()


# ---------------------------------------------------------------- consumers


async def test_consumers_are_listed_and_deleted(js: JetStreamContext, stream: str) -> None:
    for name in ("a", "b"):
        await js.add_consumer(stream, durable_name=name, ack_policy=api.AckPolicy.EXPLICIT)
    assert sorted(info.name for info in await js.consumers_info(stream)) == ["a", "b"]
    assert (await js.stream_info(stream)).state.consumer_count == 2
    assert await js.delete_consumer(stream, "a")
    with pytest.raises(nats.js.errors.NotFoundError):
        await js.consumer_info(stream, "a")


async def test_paused_consumer_delivers_nothing_until_it_is_resumed(
    js: JetStreamContext, stream: str
) -> None:
    await js.publish(f"{stream}.x", b"held")
    subscription = await js.pull_subscribe(f"{stream}.>", durable="worker")
    paused = await js.pause_consumer(stream, "worker", "2099-01-01T00:00:00Z")
    assert paused.paused
    with pytest.raises(nats.errors.TimeoutError):
        await subscription.fetch(1, timeout=SHORT_SECONDS)
    assert not (await js.resume_consumer(stream, "worker")).paused
    assert (await subscription.fetch(1, timeout=WAIT_SECONDS))[0].data == b"held"


async def test_deleting_a_stream_ends_the_requests_that_wait(
    client: Client, js: JetStreamContext, stream: str
) -> None:
    await js.add_consumer(stream, durable_name="worker", ack_policy=api.AckPolicy.EXPLICIT)
    inbox = await client.subscribe(client.new_inbox())
    request = b'{"batch":1,"expires":60000000000}'
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.worker", request, inbox.subject)
    async with asyncio.timeout(WAIT_SECONDS):
        while not (await js.consumer_info(stream, "worker")).num_waiting:
            pass
    await js.delete_stream(stream)
    status = await inbox.next_msg(WAIT_SECONDS)
    assert status.headers is not None
    assert status.headers["Status"] == "409"
    assert status.headers["Description"] == "Consumer Deleted"


# ---------------------------------------------------------------- retention


async def test_workqueue_forgets_what_was_acknowledged(js: JetStreamContext, subject: str) -> None:
    await js.add_stream(
        name=subject, subjects=[f"{subject}.>"], retention=api.RetentionPolicy.WORK_QUEUE
    )
    await fill(js, subject, 3)
    subscription = await js.pull_subscribe(f"{subject}.>", durable="worker")
    for message in await subscription.fetch(3, timeout=WAIT_SECONDS):
        await message.ack_sync(timeout=WAIT_SECONDS)
    assert (await js.stream_info(subject)).state.messages == 0


async def test_interest_keeps_messages_until_all_consumers_have_them(
    js: JetStreamContext, subject: str
) -> None:
    await js.add_stream(
        name=subject, subjects=[f"{subject}.>"], retention=api.RetentionPolicy.INTEREST
    )
    await js.publish(f"{subject}.x", b"nobody")
    assert (await js.stream_info(subject)).state.messages == 0
    subscriptions = [
        await js.pull_subscribe(f"{subject}.>", durable=name) for name in ("one", "two")
    ]
    await js.publish(f"{subject}.x", b"both")
    for left, subscription in zip((1, 0), subscriptions, strict=True):
        message = (await subscription.fetch(1, timeout=WAIT_SECONDS))[0]
        await message.ack_sync(timeout=WAIT_SECONDS)
        assert (await js.stream_info(subject)).state.messages == left


async def test_account_info_counts_what_is_there(js: JetStreamContext, stream: str) -> None:
    before = await js.account_info()
    await js.add_consumer(stream, durable_name="counted", ack_policy=api.AckPolicy.EXPLICIT)
    await js.publish(f"{stream}.x", b"12345")
    after = await js.account_info()
    assert after.consumers == before.consumers + 1
    assert after.storage > before.storage
    assert after.streams == before.streams


async def test_fetch_of_more_than_may_be_pending(js: JetStreamContext, stream: str) -> None:
    await fill(js, stream, 20)
    config = api.ConsumerConfig(max_ack_pending=5)
    subscription = await js.pull_subscribe(f"{stream}.>", "worker", config=config)
    messages = await subscription.fetch(20, timeout=WAIT_SECONDS, heartbeat=0.2)
    assert [message.data for message in messages] == [b"%d" % number for number in range(5)]
