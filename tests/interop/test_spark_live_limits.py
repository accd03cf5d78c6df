"""Messages that a running nats-server has, although its files do not say so, are read from files.

nats-server forgets or postpones tombstones when whole blocks are deleted, so its files alone give
too few of the oldest messages of a stream that is at its limits.
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tradewind.sync
from harness import ServerProcess, wait_for
from tradewind.client.api_errors import JetStreamApiError
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.providers.blocks import BlocksProvider

MAX_BYTES = 127_900
ROUNDS = 30
# With these, the files of nats-server alone lack messages that it has.
SEEDS = (8, 23)
pytestmark = pytest.mark.timeout(300)


def read(folder: Path, stream: str, *servers: str) -> list[int]:
    options = SourceOptions(stream=(stream,), store_dir=str(folder), servers=servers)
    provider = BlocksProvider(options)
    provider.states()
    return [
        seq
        for task in provider.tasks(stream, RowFilter(), 3)
        for batch in task.batches(("seq",))
        for seq in batch.column(0).to_pylist()
    ]


def fill(connection: Any, name: str, chance: random.Random) -> None:
    """Messages of about a kilobyte at the limit, with single and whole ranges of them deleted."""
    streams, js = connection.jetstream_manager().streams, connection.jetstream()

    def delete(seq: int) -> None:
        with suppress(JetStreamApiError):  # it is gone already
            streams.delete_message(name, seq=seq, erase=chance.random() < 0.5)

    for _ in range(ROUNDS):
        for number in range(chance.randrange(1, 60)):
            js.publish_async(f"{name}.{number % 3}", b"x" * chance.randrange(1500))
        js.publish_async_completed()
        state = streams.info(name).state
        for _ in range(chance.randrange(12)):
            delete(chance.randint(state.first_seq, state.last_seq))
        state = streams.info(name).state
        if chance.random() < 0.5 and state.messages > 40:
            first = chance.randint(state.first_seq, state.last_seq - 30)
            last = min(first + chance.randrange(20, 90), state.last_seq - chance.choice([0, 1, 5]))
            for seq in range(first, last + 1):
                delete(seq)


def truth_of(connection: Any, name: str) -> list[int]:
    state = connection.jetstream_manager().streams.info(name, deleted_details=True).state
    gone = set(state.deleted or ())
    return [seq for seq in range(state.first_seq, state.last_seq + 1) if seq not in gone]


@pytest.mark.parametrize("kind", ["official", "tradewind"])
def test_a_running_server_is_asked_what_its_limits_have_left(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store"
    flags = ["-js", "-sd", str(store), "-a", "127.0.0.1", "-p", "-1"]
    process = ServerProcess(kind, flags).wait_ready()
    missing: set[int] = set()
    try:
        with tradewind.sync.connect(process.url) as connection:
            for seed in SEEDS:
                name = f"S{seed}"
                connection.jetstream_manager().streams.add(
                    name=name, subjects=[f"{name}.*"], max_bytes=MAX_BYTES
                )
                fill(connection, name, random.Random(seed))
                truth = truth_of(connection, name)
                # nats-server writes what it has acknowledged a little later.
                wait_for(lambda name=name, truth=truth: read(store, name, process.url) == truth)
                assert not caplog.records
                missing |= set(truth) - set(read(store, name))
                if kind == "official":
                    assert "some of them may be missing here, as no server" in caplog.text
                caplog.clear()
            # Another stream of this name, or no server, says nothing.
            config = connection.jetstream_manager().streams.info("S8").config
        lone = tmp_path / "lone"
        flags = ["-js", "-sd", str(lone), "-a", "127.0.0.1", "-p", "-1"]
        other = ServerProcess("tradewind", flags).wait_ready()
        try:
            with tradewind.sync.connect(other.url) as connection:
                connection.jetstream_manager().streams.add(config)
            alone = read(store, "S8")
            caplog.clear()
            assert read(store, "S8", other.url) == alone
            if kind == "official":
                assert "another stream of this name" in caplog.text
        finally:
            other.stop()
        caplog.clear()
        assert read(store, "S8", other.url) == alone
        if kind == "official":
            assert "the server does not answer" in caplog.text
    finally:
        process.stop()
    # If this fails for nats-server, its files say everything, and it need not be asked any more.
    assert bool(missing) == (kind == "official")
