"""Verifying running streams: what is there, what changes meanwhile, and servers that lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

import tradewind
from chain_answers import ChainAnswers, chain_of_stream
from chain_kit import KEY, OTHER_KEY, ReferenceChain
from harness import ServerProcess
from tradewind.api.chain import ChainEntries, ChainProof
from tradewind.chain import checkpoints, proofs
from tradewind.chain.chain_entries import ChainError
from tradewind.client.api_errors import JetStreamApiError
from tradewind.client.errors import BadAnswerError, OptionsError
from tradewind.client.jetstream import JetStream
from tradewind.client.streams import chain_verifying


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("chains")
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
    process = ServerProcess("tradewind", flags).wait_ready()
    try:
        yield process.url
    finally:
        process.stop()


@pytest.fixture
async def js(url: str) -> AsyncIterator[JetStream]:
    async with await tradewind.connect(url) as connection:
        stream = connection.jetstream()
        yield stream
        for name in await stream.manager.streams.names().all():
            await stream.manager.streams.delete(name)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> ChainAnswers:
    return ChainAnswers(monkeypatch)


async def filled(js: JetStream, name: str = "S", count: int = 25, **config: Any) -> None:
    """A stream with messages of all forms, of which 5 and 6 are gone."""
    await js.manager.streams.add(name=name, subjects=[f"{name}.>"], **config)
    for number in range(1, count + 1):
        headers = {"Number": str(number), "Nats-Stream": "x"} if number % 3 == 0 else None
        await js.publish(f"{name}.{number % 4}", b"payload %d" % number, headers=headers)
    await js.manager.streams.delete_message(name, 5)
    await js.manager.streams.delete_message(name, 6)


@pytest.mark.slow
@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
async def test_streams_of_every_kind_are_read_as_they_are_stored(
    js: JetStream, answers: ChainAnswers, retention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_verifying, "BATCH_MESSAGES", 4)
    monkeypatch.setattr(chain_verifying, "GETS_MAX", 3)
    await js.manager.streams.add(name="S", subjects=["S.>"], retention=retention)
    await js.manager.consumers.add("S", durable_name="holder", ack_policy="explicit")
    await filled(js, retention=retention)
    answers.chains["S"] = await chain_of_stream(js, "S")
    done: list[tuple[int, int]] = []
    report = await js.chains.verify("S", on_progress=lambda *at: done.append(at))
    assert report.faults == []
    assert (report.messages, report.removed) == (23, {"deleted": 2})
    assert report.proved_sequence == 25
    assert report.signers == [KEY.public]
    assert done[-1] == (27, 27)
    assert (await js.manager.streams.info("S")).state.consumer_count == 1


async def test_a_stream_that_was_changed_is_named_through_the_server(
    js: JetStream, answers: ChainAnswers
) -> None:
    await filled(js)
    chain = await chain_of_stream(js, "S")
    other = ReferenceChain(stream="S", created=chain.created)
    for sequence, message in sorted({**chain.live, **chain.gone}.items()):
        other.add(replace(message, payload=b"as it was") if sequence == 12 else message)
    other.remove((5, 6))
    other.checkpoint()
    answers.chains["S"] = other
    report = await js.chains.verify("S")
    assert [(fault.kind, fault.sequence) for fault in report.faults] == [("changed", 12)]
    assert report.proved_sequence == 11


async def test_what_is_removed_while_it_is_read_is_not_missing(
    js: JetStream, answers: ChainAnswers
) -> None:
    await filled(js)
    chain = answers.chains["S"] = await chain_of_stream(js, "S")
    removed = False
    plain = answers.entries

    async def remove() -> None:
        await js.manager.streams.delete_message("S", 20)

    def entries(which: ReferenceChain, request: Any) -> ChainEntries:
        nonlocal removed
        if not removed and request.index:
            removed = True
            chain.remove((20, 20))
        return plain(which, request)

    await remove()
    answers.entries = entries  # type: ignore[method-assign]
    report = await js.chains.verify("S")
    assert removed
    assert report.faults == []


async def test_only_the_end_of_a_stream_is_verified_by_the_link_of_the_checkpoint(
    js: JetStream, answers: ChainAnswers
) -> None:
    await filled(js)
    answers.chains["S"] = await chain_of_stream(js, "S")
    answers.asked.clear()
    report = await js.chains.verify("S", last=9)
    assert report.faults == []
    assert (report.messages, report.size, report.covered_size) == (7, 27, 27)
    assert report.proved_sequence == 25
    assert answers.asked.count("stream_chain_entries") == 3
    # More than there are is all of them.
    assert (await js.chains.verify("S", last=1000)).messages == 23
    # An old checkpoint cannot be compared with the end alone.
    old = checkpoints.decode(answers.chains["S"].lines[0])
    report = await js.chains.verify("S", last=9, checkpoints=[old])
    assert report.is_intact
    assert "which were not checked" in report.notes[0]


async def test_a_mirror_is_held_against_the_chain_of_its_origin(
    js: JetStream, answers: ChainAnswers
) -> None:
    await filled(js)
    chain = answers.chains["S"] = await chain_of_stream(js, "S")
    await js.manager.streams.add(name="COPY", mirror={"name": "S"})
    async with asyncio.timeout(60):
        while (await js.manager.streams.info("COPY")).state.last_seq < 25:
            await js.connection.flush()
    report = await js.chains.verify("COPY", origin_stream="S")
    assert report.faults == []
    assert report.messages == 23
    # A copy that somebody made with another payload.
    await js.manager.streams.add(name="OTHER", subjects=["OTHER.>"])
    for sequence in (1, 2):
        await js.publish("OTHER.x", b"payload %d" % sequence)
    report = await js.chains.verify("OTHER", origin=js, origin_stream="S")
    assert [(fault.kind, fault.parts) for fault in report.faults] == [
        ("changed", ("time", "subject")),
        ("changed", ("time", "subject")),
    ]
    assert report.not_copied == 21
    assert chain.live


async def test_a_message_is_proved_in_one_document(js: JetStream, answers: ChainAnswers) -> None:
    await filled(js)
    answers.chains["S"] = await chain_of_stream(js, "S")
    proof = await js.chains.prove("S", 12)
    document = msgspec.json.encode(proof)
    again = proofs.decode_proof(document)
    proofs.check_proof(again, [KEY.public])
    assert again.payload == b"payload 12"
    with pytest.raises(ChainError, match="signed by another key"):
        proofs.check_proof(again, [OTHER_KEY.public])
    for change in (
        {"payload": b"payload 13"},
        {"sequence": 13},
        {"time_ns": 5},
        {"subject": "S.9"},
        {"header": b""},
        {"index": 3},
        {"before": "00" * 32},
        {"path": again.path[:-1]},
    ):
        if getattr(again, next(iter(change))) == next(iter(change.values())):
            continue
        with pytest.raises(ChainError, match="not the one that was chained"):
            proofs.check_proof(msgspec.structs.replace(again, **change))
    forged = msgspec.structs.replace(again.checkpoint, messages=1)
    with pytest.raises(ChainError, match="forged"):
        proofs.check_proof(msgspec.structs.replace(again, checkpoint=forged))
    for wrong in ({"sequence": -1}, {"sequence": 1 << 64}, {"time_ns": 1 << 63}):
        with pytest.raises(ChainError, match="no stream has such a message"):
            proofs.check_proof(msgspec.structs.replace(again, **wrong))
    with pytest.raises(ChainError, match="before must be a hash of 64"):
        proofs.check_proof(msgspec.structs.replace(again, before="xyz"))
    with pytest.raises(ChainError, match="not a proof of a message"):
        proofs.decode_proof(b"[]")
    with pytest.raises(OptionsError, match="has no message 5"):
        await js.chains.prove("S", 5)


async def test_pages_that_are_not_what_was_asked_for_are_refused(
    js: JetStream, answers: ChainAnswers
) -> None:
    await filled(js)
    answers.chains["S"] = await chain_of_stream(js, "S")
    plain = answers.entries
    for change, error in (
        ({"first_index": 3}, "are not those from 0 on"),
        ({"records": b""}, "sends none from 0 on"),
        ({"records": b"\x01abc"}, "are not those from 0 on"),
        ({"records": b"\x09"}, "byte 0: a record must have a kind"),
    ):

        def entries(
            which: ReferenceChain, request: Any, change: dict[str, Any] = change
        ) -> ChainEntries:
            return msgspec.structs.replace(plain(which, request), **change)

        answers.entries = entries  # type: ignore[method-assign]
        with pytest.raises(BadAnswerError, match=error):
            await js.chains.verify("S")


async def test_a_proof_that_proves_nothing_is_refused(js: JetStream, answers: ChainAnswers) -> None:
    await filled(js)
    chain = answers.chains["S"] = await chain_of_stream(js, "S")
    plain = answers.proof
    found = await js.chains.inclusion_proof("S", seq=3, size=20)
    assert (found.index, found.size, found.link) == (2, 20, chain.records[2].link.hex())

    def proof(which: ReferenceChain, request: Any) -> ChainProof:
        return msgspec.structs.replace(plain(which, request), link="00" * 32)

    answers.proof = proof  # type: ignore[method-assign]
    with pytest.raises(BadAnswerError, match="proves nothing"):
        await js.chains.inclusion_proof("S", seq=3, size=20)
    with pytest.raises(OptionsError, match="specify seq or index"):
        await js.chains.inclusion_proof("S")
    with pytest.raises(OptionsError, match="first_size is 1 or more"):
        await js.chains.consistency_proof("S", 0)
    with pytest.raises(OptionsError, match="count is from 1 to 10000"):
        await js.chains.entries("S", 0, 10_001)
    with pytest.raises(OptionsError, match="last: 0 or more"):
        await js.chains.verify("S", last=-1)


async def test_a_stream_without_a_chain_says_how_to_get_one(js: JetStream) -> None:
    await filled(js)
    with pytest.raises(JetStreamApiError, match=r"metadata tradewind\.chain"):
        await js.chains.verify("S")
