"""Random work on a store on disk: its block files give the messages that the store has.

They are read by the code that Spark's executors run, while the store is open and after it was
closed, whole, in parts and with conditions.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import some
from tradewind.spark.columnar.columns import MESSAGES
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.contract.provider_contract import ReadState
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.providers.blocks import BlocksProvider
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.filestore import FileStore
from tradewind.store.folder.stream_folder import StoreRoot, StreamFolder
from tradewind.store.format.meta import StreamMeta

SUBJECTS = (b"a", b"b", b"a.b", b"a.b.c", b"long." + b"x" * 60)
HEADER = b"NATS/1.0\r\nK: v\r\n\r\n"
configs = st.fixed_dictionaries(
    {
        "max_msgs": st.sampled_from((0, 0, 3, 20)),
        "max_bytes": st.sampled_from((0, 0, 400, 3000)),
        "max_msgs_per_subject": st.sampled_from((0, 0, 1, 3)),
        "compression": st.sampled_from(("none", "s2")),
    }
)
adds = st.tuples(st.just("add"), st.sampled_from(SUBJECTS), st.integers(0, 120), st.integers(1, 9))
removals = st.tuples(st.just("remove"), st.integers(0, 30), st.booleans())
others = st.tuples(
    st.sampled_from(("purge", "purge_subject", "compact", "commit", "reopen", "skip")),
    st.integers(0, 12),
)
steps = st.lists(st.one_of(adds, adds, removals, others), min_size=1, max_size=40)


class Run:
    """One store in a folder of its own."""

    def __init__(self, base: Path, config: dict[str, Any], block_bytes_max: int) -> None:
        self.base = base
        self.settings = {"block_bytes_max": block_bytes_max, "compact_bytes_min": 200}
        self.root = StoreRoot(OsDisk(str(base)), str(base))
        folder: StreamFolder = self.root.stream("$G", "S")
        folder.create(StreamMeta({"name": "S", "subjects": [">"], **config}, time.time_ns()))
        self.folder = folder
        self.store: FileStore = self.open()
        self.now_ns = 1000

    def open(self) -> FileStore:
        return self.folder.open(1000, **self.settings)[1]

    def do(self, name: str, *arguments: Any) -> None:
        store = self.store
        if name == "add":
            subject, size, count = arguments
            for _ in range(count):
                self.now_ns += 777
                header = HEADER if size % 3 == 0 else b""
                store.table.store(subject, header, b"p" * size, self.now_ns)
        elif name == "remove":
            store.table.remove(max(store.table.last_seq - arguments[0], 0), erase=arguments[1])
        elif name == "purge":
            store.table.purge()
        elif name == "purge_subject":
            store.table.purge(SUBJECTS[arguments[0] % len(SUBJECTS)])
        elif name == "compact":
            store.table.compact(max(store.table.last_seq - arguments[0], 1))
        elif name == "skip":
            store.table.skip(store.table.last_seq + arguments[0], self.now_ns)
        elif name == "commit":
            store.commit()
        else:
            store.close()
            self.store = self.open()

    def truth(self) -> dict[int, tuple[int, bytes, bool, bytes]]:
        return {
            message.seq: (
                message.timestamp_ns // 1000,
                message.subject,
                bool(message.header),
                message.payload,
            )
            for message in self.store.table.messages()
        }


def read(
    provider: BlocksProvider, rows: RowFilter, parts: int
) -> dict[int, tuple[int, bytes, bool, bytes]]:
    found = {}
    for task in provider.tasks("S", rows, parts):
        for batch in task.batches(tuple(MESSAGES)):
            batch.validate(full=True)
            for row in batch.to_pylist():
                assert row["seq"] not in found
                assert row["headers"] in (None, [("K", ["v"])])
                found[row["seq"]] = (
                    int(row["time"].timestamp() * 1_000_000 + 0.5),
                    row["subject"].encode(),
                    row["headers"] is not None,
                    row["data"],
                )
    return found


@pytest.mark.slow
@settings(max_examples=some(50, 120))
@given(
    config=configs,
    block_bytes_max=st.sampled_from((300, 700, 100_000)),
    steps=steps,
    parts=st.integers(0, 5),
    low=st.integers(0, 40),
    high=st.integers(0, 40),
)
def test_files_give_the_messages_of_the_store(
    config: dict[str, Any],
    block_bytes_max: int,
    steps: list[tuple[Any, ...]],
    parts: int,
    low: int,
    high: int,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Run(Path(name), config, block_bytes_max)
        provider = BlocksProvider(SourceOptions(stream=("S",), store_dir=name))
        try:
            for step in steps:
                run.do(*step)
            run.store.commit()
            truth = run.truth()
            assert read(provider, RowFilter(), parts) == truth
            chosen = RowFilter(first_seq=low, last_seq=high, patterns=((b"a.>", b"b"),))
            assert read(provider, chosen, parts) == {
                seq: row
                for seq, row in truth.items()
                if low <= seq <= high and (row[1] == b"b" or row[1].startswith(b"a."))
            }
            check_state(provider.states()[0], run.store)
            check_limits(provider, truth, low)
            run.store.close()
            assert read(provider, RowFilter(), parts) == truth
            assert read(BlocksProvider(provider._options), RowFilter(), parts) == truth
        finally:
            run.root.close()


def check_state(state: ReadState, store: FileStore) -> None:
    """The end is exact; the begin is not behind the first message."""
    assert state.last_seq == store.table.last_seq
    assert state.first_seq <= max(store.table.state.first_seq, 1)


def check_limits(provider: BlocksProvider, truth: dict[int, Any], after: int) -> None:
    """Batches of at most three messages cover everything once."""
    last_seq = provider.states()[0].last_seq
    found: list[int] = []
    while after < last_seq:
        reached, messages, _ = provider.advance("S", after, last_seq, 3, 1 << 40)
        batch = [seq for seq in truth if after < seq <= reached]
        assert reached > after
        assert len(batch) == messages <= 3
        assert len(batch) == 3 or reached == last_seq
        found += batch
        after = reached
