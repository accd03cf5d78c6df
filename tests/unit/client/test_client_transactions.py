"""Transactions in the client, with and without an event loop, on a server in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import tradewind
import tradewind.sync
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.core.message import Msg
from tradewind.client.errors import OptionsError
from tradewind.client.jetstream import JetStream


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("store")
    with tradewind.serve(jetstream=folder) as server:
        yield server.url


class StopError(Exception):
    """Something goes wrong in the block."""


async def fail_within(js: JetStream, message: Msg) -> None:
    async with js.transaction() as transaction:
        transaction.publish("b.never", b"x")
        transaction.ack(message)
        raise StopError


def fail_blocking(js: tradewind.sync.JetStream, message: Msg) -> None:
    with js.transaction() as transaction:
        transaction.ack(message)
        raise StopError


def test_a_block_commits_at_its_end_and_an_exception_cancels_it(url: str) -> None:
    async def run() -> None:
        async with await tradewind.connect(url) as connection:
            js = connection.jetstream()
            await js.manager.streams.add(name="A", subjects=["a.>"])
            await js.manager.streams.add(name="B", subjects=["b.>"])
            await js.manager.consumers.add("A", durable_name="c", ack_policy="explicit")
            await js.publish("a.1", b"one")
            consumer = await js.consumers.get("A", "c")
            message = await consumer.next()
            with pytest.raises(StopError):
                await fail_within(js, message)
            async with js.transaction() as transaction:
                transaction.publish("b.1", "text", headers={"Colour": "blue"}, msg_id="id-1")
                transaction.publish("b.2", b"bytes")
                transaction.ack(message)
                assert transaction.count == 3
                assert transaction.result is None
            assert transaction.result is not None
            assert [place.seq for place in transaction.result.publishes] == [1, 2]
            found = await js.manager.streams.get_message("B", seq=1)
            assert (found.data, found.headers["Colour"]) == (b"text", "blue")
            assert (await consumer.info()).num_ack_pending == 0
            with pytest.raises(OptionsError, match="committed or cancelled"):
                transaction.publish("b.3")
            with pytest.raises(JetStreamApiError, match=r"publishes\[0\]: no stream") as refused:
                async with js.transaction() as transaction:
                    transaction.publish("nobody")
            assert refused.value.err_code == 20002

    asyncio.run(run())


def test_what_cannot_be_right_is_refused_before_anything_is_sent(url: str) -> None:
    with tradewind.sync.connect(url) as connection:
        js = connection.jetstream()
        transaction = js.transaction()
        with pytest.raises(OptionsError, match="subject 'a b'"):
            transaction.publish("a b")
        with pytest.raises(OptionsError, match="a mapping"):
            transaction.publish("a", headers=b"NATS/1.0\r\n\r\n")
        assert transaction.commit().publishes == []
        with pytest.raises(OptionsError, match="only without domain"):
            connection.jetstream(domain="hub").transaction()


def test_the_same_without_an_event_loop(url: str) -> None:
    with tradewind.sync.connect(url) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="S", subjects=["s.>"], retention="workqueue")
        js.manager.consumers.add("S", durable_name="c", ack_policy="explicit")
        js.publish("s.in", b"7")
        message = js.consumers.get("S", "c").next()
        with pytest.raises(StopError):
            fail_blocking(js, message)
        with js.transaction() as transaction:
            transaction.publish("s.out", b"8")
            transaction.ack(message)
        assert transaction.result is not None
        assert transaction.result.acks == 1
        assert js.manager.streams.info("S").state.messages == 1


def test_dead_letters_are_found_changed_and_sent_back(url: str) -> None:
    """One that is terminated, one that is sent back changed, and one that is removed."""
    with tradewind.sync.connect(url) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="WORK", subjects=["work.>"], retention="workqueue")
        js.manager.streams.add(name="DEAD", subjects=["dead.>"])
        js.manager.consumers.add(
            "WORK",
            durable_name="w",
            ack_policy="explicit",
            metadata={"tradewind.dead_letter.stream": "DEAD"},
        )
        consumer = js.consumers.get("WORK", "w")
        for number in range(4):
            js.publish(f"work.{number % 2}", str(number), headers={"Kind": "k"}, msg_id=str(number))
            consumer.next().term(f"bad number {number}")
        letters = js.dead_letters
        while len(found := list(letters.letters("DEAD"))) < 4:
            pass
        assert [letter.data for letter in found] == [b"0", b"1", b"2", b"3"]
        first = found[0]
        assert (first.origin_stream, first.origin_consumer) == ("WORK", "w")
        assert (first.origin_subject, first.origin_seq, first.deliveries) == ("work.0", 1, 1)
        assert (first.reason, first.detail, first.redriven) == ("term", "bad number 0", 0)
        assert dict(first.own_headers()) == {"Kind": "k"}
        assert [one.data for one in letters.letters("DEAD", subject="dead.*.*.work.1")] == [
            b"1",
            b"3",
        ]
        assert list(letters.letters("DEAD", reason="max_deliver")) == []
        edited = letters.edit(first, data=b"zero")
        assert (edited.data, edited.origin_seq, edited.detail) == (b"zero", 1, "bad number 0")
        assert letters.redrive(edited) == 5
        again = consumer.next()
        assert (again.data, again.subject) == (b"zero", "work.0")
        assert (again.headers["Kind"], again.headers["Tradewind-Redriven"]) == ("k", "1")
        assert "Tradewind-Dead-Letter-Reason" not in again.headers
        again.ack_sync()
        letters.remove(found[1])
        assert letters.redrive_all("DEAD", consumer="w", rate=1000.0, limit=1) == 1
        assert letters.redrive_all("DEAD", to="work.other") == 1
        assert [consumer.next().subject for _ in range(2)] == ["work.0", "work.other"]
        assert js.manager.streams.info("DEAD").state.messages == 0
        with pytest.raises(OptionsError, match="limit: 0 or more"):
            letters.redrive_all("DEAD", rate=-1)
        js.manager.streams.update("DEAD", max_msgs=1, discard="new")
        js.publish("dead.other", b"not a dead letter")
        js.publish("work.more", b"stays")
        consumer.next().term()
        reason = js.why.consumer("WORK", "w", seconds=0)
        assert "because stream DEAD is full and discards new messages" in reason.text
        with pytest.raises(OptionsError, match="is not a dead letter"):
            letters.get("DEAD", js.manager.streams.info("DEAD").state.last_seq)
        assert list(letters.letters("DEAD")) == []


def test_a_dead_letter_goes_back_to_its_consumer_only(url: str) -> None:
    with tradewind.sync.connect(url) as connection:
        js = connection.jetstream()
        js.manager.streams.add(name="ONLY", subjects=["only.>"])
        js.manager.streams.add(name="ONLYDEAD", subjects=["given.>"])
        metadata = {
            "tradewind.dead_letter.stream": "ONLYDEAD",
            "tradewind.dead_letter.subject": "given.{consumer}",
        }
        for name in ("w", "other"):
            js.manager.consumers.add(
                "ONLY", durable_name=name, ack_policy="explicit", metadata=metadata
            )
        js.publish("only.1", b"x")
        consumer, other = js.consumers.get("ONLY", "w"), js.consumers.get("ONLY", "other")
        other.next().ack_sync()
        letters = js.dead_letters
        for _ in range(2):
            consumer.next().term("bad")
            found = []
            while not found:
                found = list(letters.letters("ONLYDEAD"))
            assert found[0].clients[0].partition("/")[0].isdigit()
            assert letters.redrive(found[0], consumer=True) == 1
        consumer.next().term("bad")
        found = []
        while not found:
            found = list(letters.letters("ONLYDEAD"))
        assert letters.redrive_all("ONLYDEAD", to_consumer=True) == 1
        assert consumer.next().data == b"x"
        assert list(other.fetch(1, no_wait=True)) == []
        with pytest.raises(OptionsError, match="cannot be combined with `to`"):
            letters.redrive(found[0], to="only.2", consumer=True)
        js.publish("only.2", b"y")
        other.next().term("bad")
        found = []
        while not found:
            found = list(letters.letters("ONLYDEAD", consumer="other"))
        edited = letters.edit(found[0], data=b"z")
        with pytest.raises(OptionsError, match="was changed"):
            letters.redrive(edited, consumer=True)
