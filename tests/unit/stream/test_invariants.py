"""Broken invariants are caught at the borders where they would do harm, where that is asked for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from stream_kit import StreamKit

from tradewind import invariants
from tradewind.consumer.ack_codec import encode_whole
from tradewind.consumer.cursor import Cursor
from tradewind.consumer.pending import AckState
from tradewind.jetstream.usage import Usage, UsageShare
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.recover import open_store
from tradewind.store.format.consumer_file import ConsumerState, SequencePair
from tradewind.store.table.message_store import MessageStore
from tradewind.store.table.totals_audit import verify_totals
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

GIVEN_TWICE = """
from tradewind import invariants
from tradewind.consumer.cursor import Cursor
from tradewind.store.table.message_store import MessageStore

store = MessageStore("S")
store.store(b"a", b"", b"", 1)
cursor = Cursor(store)
cursor.advance(1)
try:
    cursor.advance(1)
except AssertionError:
    print(invariants.are_checked(), "caught")
else:
    print(invariants.are_checked(), "not looked at")
"""


def file_store() -> FileStore:
    disk = SimulatedDisk()
    disk.make_directory(f"{disk.root}/S")
    store, _ = open_store(disk, f"{disk.root}/S", "S", now_ns=0)
    store.table.store(b"a", b"", b"one", 1)
    return store


def test_invariants_are_checked_in_every_test() -> None:
    assert invariants.are_checked()


@pytest.mark.parametrize(("value", "outcome"), [("1", "True caught"), ("0", "False not looked at")])
def test_only_the_environment_decides_whether_they_are_checked(value: str, outcome: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", GIVEN_TWICE],
        env=os.environ | {"TRADEWIND_INVARIANTS": value},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == outcome


def test_a_commit_does_not_begin_on_totals_that_are_not_those_of_the_blocks() -> None:
    store = file_store()
    written = store.table.last.written
    store.table.synced_seq = 7
    with pytest.raises(AssertionError, match=r"\(7, 1\)"):
        store.begin_commit()
    assert store.table.last.written == written < store.table.last.size


def test_a_commit_does_not_promise_more_than_was_written() -> None:
    store = file_store()
    commit = store.begin_commit()
    assert commit is not None
    commit.run()
    number, offset = commit.position
    commit.marked = (number, offset + 1)
    with pytest.raises(AssertionError):
        store.finish_commit(commit)
    assert store.table.synced_seq == 0


def test_totals_of_a_store_are_those_of_its_blocks() -> None:
    store = MessageStore("S", block_bytes_max=300)
    for number in range(1, 50):
        store.store(b"a", b"", b"", number)
    verify_totals(store)
    del store.blocks[0]
    with pytest.raises(AssertionError):
        verify_totals(store)


def test_a_message_is_given_out_once() -> None:
    store = MessageStore("S")
    for number in (1, 2):
        store.store(b"a", b"", b"", number)
    cursor = Cursor(store)
    cursor.advance(1)
    with pytest.raises(AssertionError, match=r"\(2, 1, 2\)"):
        cursor.advance(1)
    with pytest.raises(AssertionError, match=r"\(2, 3, 2\)"):
        cursor.advance(3)
    assert cursor.pending() == 1


def test_a_consumer_state_whose_floor_is_above_what_was_delivered_is_not_written() -> None:
    acks = AckState("explicit")
    impossible = ConsumerState(SequencePair(1, 1), SequencePair(2, 2), {}, {})
    with pytest.raises(AssertionError, match=r"\(2, 1\)"):
        acks.restore(impossible)
    with pytest.raises(AssertionError, match=r"\(2, 1\)"):
        encode_whole(acks, 0, 0)


def test_what_is_not_synced_is_not_acknowledged() -> None:
    kit = StreamKit()
    kit.engine.auto_sync = False
    stream = kit.create(storage="file")
    kit.peer.send(b"PUB s.1 inbox.1 1\r\nx\r\n")
    assert kit.peer.take() == b""
    with pytest.raises(AssertionError, match=r"\(1, 0, 0\)"):
        stream.ingest.acknowledge_through(1)
    with pytest.raises(AssertionError, match=r"\(2, 1\)"):
        stream.ingest.acknowledge_through(2)
    assert kit.peer.take() == b""


def test_nobody_uses_less_than_nothing() -> None:
    kit = StreamKit()
    share = UsageShare(kit.create().ingest, Usage(), Usage(), lambda: 1)
    with pytest.raises(AssertionError):
        share.count(Usage(storage=-1))


def test_a_session_is_listed_once_in_a_turn() -> None:
    session = InProcessServer().connect(b"CONNECT {}\r\n").session
    with pytest.raises(AssertionError, match="listed once"):
        session.mark_clean()
