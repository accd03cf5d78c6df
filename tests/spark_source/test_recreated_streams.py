"""Tasks on block files give no row of a later stream that has the name of the planned one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tradewind.spark.columnar.rows import RowDecoder
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.errors import DataLossError
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.providers import blocks
from tradewind.spark.providers.block_proof import BlockProof
from tradewind.spark.providers.blocks import BlocksProvider, BlockTask
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.meta import StreamMeta

MESSAGES = 40


class Store:
    """A stream in a folder, with several blocks."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = StoreRoot(OsDisk(str(base)), str(base))

    def create(self, payload: bytes, created_ns: int) -> None:
        folder = self.root.stream("$G", "S")
        folder.create(StreamMeta({"name": "S", "subjects": [">"]}, created_ns))
        store = folder.open(1000, block_bytes_max=400)[1]
        for number in range(MESSAGES):
            store.table.store(b"a", b"", payload, 1000 + number)
        store.close()

    def delete(self) -> None:
        shutil.rmtree(self.base / "jetstream" / "$G" / "streams" / "S")

    def recreate(self) -> None:
        self.delete()
        self.create(b"new", 2)

    def tasks(self, *, fails: bool) -> list[BlockTask]:
        options = SourceOptions(stream=("S",), store_dir=str(self.base), fails_on_data_loss=fails)
        return BlocksProvider(options).tasks("S", RowFilter(), 1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.create(b"old", 1)
    return made


def payloads(task: BlockTask) -> list[bytes]:
    return [
        bytes(row["data"]) for batch in task.batches(("seq", "data")) for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("change", [Store.recreate, Store.delete])
def test_a_task_of_a_stream_that_is_gone_before_it_runs_is_a_loss(
    store: Store, change: Callable[[Store], None], caplog: pytest.LogCaptureFixture
) -> None:
    (failing,), (patient,) = store.tasks(fails=True), store.tasks(fails=False)
    assert payloads(failing) == [b"old"] * MESSAGES
    change(store)
    text = "stream S was deleted, or deleted and recreated, after the read of its sequences 1 to 40"
    with pytest.raises(DataLossError, match=text):
        payloads(failing)
    assert payloads(patient) == []
    assert text in caplog.text


@pytest.mark.parametrize("at_block", [2, 3])
@pytest.mark.parametrize("rows_min", [1, 16_384])
def test_a_stream_that_is_recreated_while_its_blocks_are_read_gives_no_new_row(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_block: int, rows_min: int
) -> None:
    monkeypatch.setattr(blocks, "ROWS_PER_BATCH_MIN", rows_min)
    real = BlockTask._take

    def take(task: BlockTask, decoder: RowDecoder, proof: BlockProof, place: int) -> int:
        if task.part[place][0] == at_block:
            store.recreate()
        return real(task, decoder, proof, place)

    (failing,), (patient,) = store.tasks(fails=True), store.tasks(fails=False)
    monkeypatch.setattr(BlockTask, "_take", take)
    with pytest.raises(DataLossError, match="deleted and recreated"):
        payloads(failing)
    store.delete()
    store.create(b"old", 1)
    found = payloads(patient)
    assert found == [b"old"] * (10 * (at_block - 1) if rows_min == 1 else 0)
