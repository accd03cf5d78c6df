"""Backups that come as they should, and all others, from a server that is made up."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tradewind.client.connection import Connection
from tradewind.client.errors import OperationTimeoutError
from tradewind.spark.contract.data_loss import rule_of
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.providers import backup_reads
from tradewind.spark.providers.backup_reads import BackupStoppedError, StreamBackup
from tradewind.spark.providers.proof import PlannedRead, RangeProof
from tradewind.store.backup.archive import MAGIC, append_entry
from tradewind.store.format.s2 import Compressor

CHUNK = 700


@dataclass
class Message:
    data: bytes = b""
    reply: str = ""
    status: int = 0
    description: str = ""


class Server:
    """Sends these messages to whoever asks for a backup; is a connection, too."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = iter(messages)
        self.answered: list[str] = []
        self.is_heard = False
        self.is_connected = True
        self.stats = SimpleNamespace(reconnects=3)

    def on_silence(self) -> None:
        """Nothing happens."""

    def new_inbox(self) -> str:
        return "_INBOX.1"

    def jetstream_manager(self) -> Server:
        return self

    @property
    def api(self) -> Server:
        return self

    async def call(self, *_: object, body: Any) -> None:
        assert body.deliver_subject == "_INBOX.1"
        assert self.is_heard

    async def publish(self, subject: str) -> None:
        self.answered.append(subject)

    def subscribe(self, _subject: str) -> Any:
        @asynccontextmanager
        async def heard() -> AsyncIterator[Server]:
            self.is_heard = True
            yield self
            self.is_heard = False

        return heard()

    async def next(self, _seconds: float) -> Message:
        message = next(self._messages, None)
        if message is None:
            self.on_silence()
            raise OperationTimeoutError("no message arrived")
        return message


def archive(seqs: list[int], *, magic: bytes = MAGIC, has_end: bool = True) -> bytes:
    """A backup of messages that cannot be compressed."""
    noise = Random(1)
    plain = bytearray(magic)
    append_entry(plain, b"state.json", 1, 0, b"", b"{}")
    for seq in seqs:
        append_entry(plain, b"orders.x", seq * 1000, seq, b"", noise.randbytes(100))
    if has_end:
        append_entry(plain, b"", 0, 0, b"", b"")
    compressor = Compressor()
    return compressor.write(bytes(plain)) + compressor.flush()


def sent(data: bytes) -> list[Message]:
    """Full chunks have a reply, the last one has none, and an empty message ends it."""
    chunks = [data[place : place + CHUNK] for place in range(0, len(data), CHUNK)]
    messages = [Message(chunk, f"ack.{len(chunk)}.{n}") for n, chunk in enumerate(chunks, 1)]
    messages[-1].reply = ""
    return [*messages, Message(status=204)]


def read(server: Server, first_seq: int = 1, last_seq: int = 50) -> list[int]:
    """The sequences that arrive, and the proof of them."""
    decoder = RowFilter(first_seq, last_seq).decoder()
    rule = rule_of(SourceOptions(fails_on_data_loss=True), "ORDERS", replaces=False)
    planned = PlannedRead("", 0, array("Q", [7]), rule)
    proof = RangeProof("ORDERS", first_seq, last_seq, planned)
    backup = StreamBackup(cast(Connection, server), "ORDERS", last_seq, decoder, proof)
    found: list[int] = []

    async def all_of_it() -> None:
        pieces = backup.pieces()
        try:
            more = True
            while more:
                try:
                    more = await backup.collect(pieces)
                finally:
                    seqs = decoder.seqs(0, decoder.row_count)
                    found.extend(memoryview(seqs).cast("q"))
                    decoder.clear()
        finally:
            await pieces.aclose()

    asyncio.run(all_of_it())
    assert proof.after_seq == last_seq
    return found


def test_all_messages_arrive_and_all_full_chunks_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backup_reads, "ROWS_PER_BATCH", 10)
    messages = sent(archive(list(range(1, 51))))
    server = Server(messages)
    assert read(server) == list(range(1, 51))
    assert server.answered == [one.reply for one in messages if one.reply]
    assert not server.is_heard


def test_what_is_not_in_the_range_is_passed_over() -> None:
    assert read(Server(sent(archive(list(range(1, 90))))), 20, 50) == list(range(20, 51))


def test_a_stream_that_has_grown_far_beyond_the_plan_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backup_reads, "REST_BYTES_MAX", 3 * CHUNK)
    # What is behind the last wanted message is not even looked at.
    rest = [bytes(CHUNK)] * 100
    chunks = [one.data for one in sent(archive(list(range(1, 51)))) if one.data] + rest
    messages = [Message(chunk, f"ack.{n}") for n, chunk in enumerate(chunks, 1)]
    server = Server(messages)
    assert read(server) == list(range(1, 51))
    assert len(server.answered) <= len(chunks) - len(rest) + 4
    assert not server.is_heard


@pytest.mark.parametrize("lost", [2, 3])
def test_a_chunk_that_is_lost_stops_the_backup(lost: int) -> None:
    messages = sent(archive(list(range(1, 51))))
    del messages[lost - 1]
    with pytest.raises(BackupStoppedError, match=rf"received chunk {lost + 1} instead of {lost}"):
        read(Server(messages))


def test_a_last_chunk_that_is_lost_stops_the_backup() -> None:
    messages = sent(archive(list(range(1, 51))))
    del messages[-2]
    with pytest.raises(BackupStoppedError, match="it has no end mark"):
        read(Server(messages), last_seq=60)


def test_bytes_that_were_changed_stop_the_backup() -> None:
    messages = sent(archive(list(range(1, 51))))
    messages[2].data = messages[2].data[:-1] + bytes([messages[2].data[-1] ^ 1])
    with pytest.raises(BackupStoppedError, match="it cannot be unpacked"):
        read(Server(messages))


def test_a_backup_of_block_files_is_not_taken_for_messages() -> None:
    with pytest.raises(BackupStoppedError, match="this server makes them of block files"):
        read(Server(sent(archive([1], magic=b"msgs/1.blk" + bytes(500)))))


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ([Message(status=408, description="No Flow Response")], "408 No Flow Response"),
        ([Message(status=500, description="store closed")], "500 store closed"),
        ([], "no data for 15 s"),
    ],
    ids=["flow", "store", "silence"],
)
def test_a_backup_that_the_server_ends_says_why(last: list[Message], why: str) -> None:
    messages = [*sent(archive(list(range(1, 51))))[:4], *last]
    with pytest.raises(BackupStoppedError, match=why):
        read(Server(messages))


def test_a_backup_without_its_end_mark_has_stopped() -> None:
    with pytest.raises(BackupStoppedError, match="it has no end mark"):
        read(Server(sent(archive(list(range(1, 51)), has_end=False))), last_seq=60)


@pytest.mark.parametrize("is_back", [False, True])
def test_a_connection_that_was_lost_is_not_waited_for(is_back: bool) -> None:
    class Lost(Server):
        empty_waits = 0

        def on_silence(self) -> None:
            self.empty_waits += 1
            self.is_connected = is_back
            self.stats.reconnects += is_back

    server = Lost(sent(archive(list(range(1, 51))))[:4])
    with pytest.raises(BackupStoppedError, match="the connection was lost"):
        read(server)
    assert server.empty_waits == 1
