"""Attempts of a sink that are killed, repeated, reordered or overtaken: each row is stored once.

No Spark is needed for this: an attempt is a process that is killed with the ninth signal.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import random
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import kill_table
import tradewind.sync
from harness import ServerProcess
from jetstream_servers import add_empty_stream
from sink_attempts import attempt
from tradewind.spark.contract.filters import RowFilter
from tradewind.spark.options.source_options import SourceOptions
from tradewind.spark.providers.network import RangeTask, ReadAddress

COLUMNS = ("subject", "data")
KV_COLUMNS = ("key", "value")
MINUTES_2 = 120.0
SHORT = 0.1
OUTCOME_SECONDS = 60
# Each with three kills of attempts and one of the server.
EPOCHS = int(os.environ.get("TRADEWIND_SINK_KILLS", "12")) // 4


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that have everything imported; the one that makes them needs to find it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sink_attempts"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    # Not longer: servers could not be forked in other surroundings.
    return context


@pytest.fixture(params=["official", "tradewind"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    made = Place(request.param, tmp_path / "store")
    try:
        yield made
    finally:
        made.close()


class Place:
    """A server with the stream OUT, which can be killed."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self._port = "-1"
        self.start()
        self.connection = tradewind.sync.connect(self.url, reconnect_wait=0.01)
        self.streams = self.connection.jetstream_manager().streams
        self.streams.add(name="OUT", subjects=["out.>"], duplicate_window=MINUTES_2)

    def start(self) -> None:
        arguments = ["-js", "-sd", str(self._folder), "-a", "127.0.0.1", "-p", self._port]
        arguments += ["-m", "-1"]
        self.process = ServerProcess(self._kind, arguments).wait_ready()
        self._port = str(self.process.port)
        self.url = self.process.url

    def kill(self) -> None:
        self.process.process.kill()
        self.process.wait()
        self.start()

    def close(self) -> None:
        self.connection.close()
        self.process.stop()

    def forget_ids(self, then: float = MINUTES_2) -> None:
        """Let the duplicate window pass, in no time.

        nats-server may look through its ids before it knows the new window, and then only when the
        old one has passed; so it is given another one until it has looked.
        """
        self.streams.update("OUT", duplicate_window=SHORT)
        js = self.connection.jetstream()
        js.publish("out.probe", b"", msg_id="probe")
        for window in itertools.cycle((SHORT + 0.000_001, SHORT)):
            if not js.publish("out.probe", b"", msg_id="probe").duplicate:
                break
            self.streams.update("OUT", duplicate_window=window)
        self.streams.update("OUT", duplicate_window=then)

    def wait_for(self, count: int) -> None:
        """Until there are so many messages, which can be read."""
        while self.streams.info("OUT").state.messages < count:
            pass
        self.connection.jetstream().publish("out.probe")

    def connections(self) -> set[int]:
        """The numbers of those that the server reads from."""
        port = self.process.wait_for_log(r"http monitor on \S+:(\d+)")[1]
        url = f"http://127.0.0.1:{port}/connz"
        with urllib.request.urlopen(url, timeout=OUTCOME_SECONDS) as answer:
            return {one["cid"] for one in json.load(answer)["connections"]}

    def wait_for_rows(self, before: set[int]) -> None:
        """Until all is stored that was sent over others than these connections, which are dead."""
        while self.connections() - before:
            pass
        self.connection.jetstream().publish("out.probe")

    def stored(self) -> Counter[str]:
        address = ReadAddress(SourceOptions(servers=(self.url,)))
        task = RangeTask(address, "OUT", RowFilter(), by_direct=False, ahead=1000)
        return Counter(
            row["data"].decode()
            for batch in task.batches(("subject", "data"))
            for row in batch.to_pylist()
            if row["subject"] != "out.probe"
        )


class Attempt:
    """One attempt, which has got as many batches as it was given."""

    def __init__(
        self,
        context: ForkServerContext,
        place: Place,
        epoch: int,
        batches: list[dict[str, list[str]]],
        **options: str,
    ) -> None:
        self.pipe, other = context.Pipe()
        target = {} if "bucket" in options else {"stream": "OUT"}
        given = {"servers": place.url, **target, **options}
        names = KV_COLUMNS if "bucket" in options else COLUMNS
        self.process: BaseProcess = context.Process(
            target=attempt, args=(other, given, names, ("query", epoch, 0), batches)
        )
        self.process.start()
        other.close()

    def give(self, count: int) -> None:
        for _ in range(count):
            assert self.receive() == "ask"
            self.pipe.send("go")

    def receive(self) -> object:
        assert self.pipe.poll(OUTCOME_SECONDS), "the attempt does not go on"
        return self.pipe.recv()

    def finish(self) -> object:
        while (said := self.receive()) == "ask":
            self.pipe.send("go")
        self.process.join(OUTCOME_SECONDS)
        self.pipe.close()
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.join(OUTCOME_SECONDS)
        self.pipe.close()


def cut(rows: list[tuple[str, str]], size: int, names: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {
            name: [row[index] for row in rows[start : start + size]]
            for index, name in enumerate(names)
        }
        for start in range(0, len(rows), size)
    ]


def rows_of(epoch: int, count: int) -> list[tuple[str, str]]:
    """Some rows are equal."""
    return [(f"out.{number % 3}", f"{epoch}-{number // 2}") for number in range(count)]


def batches_of(epoch: int, count: int, seed: int) -> list[dict[str, Any]]:
    """The same rows each time, in an order and in pieces that depend on the seed."""
    rows = rows_of(epoch, count)
    order = random.Random(seed)
    order.shuffle(rows)
    return cut(rows, order.randint(20, 60), COLUMNS)


@pytest.mark.timeout(60 * max(EPOCHS, 2))
def test_killed_attempts_store_each_row_once(processes: ForkServerContext, place: Place) -> None:
    chance = random.Random(7)
    expected: Counter[str] = Counter()
    for epoch in range(EPOCHS):
        expected.update(data for _, data in rows_of(epoch, 300))
        for number in range(3):
            batches = batches_of(epoch, 300, chance.randrange(1000))
            killed = Attempt(processes, place, epoch, batches)
            killed.give(chance.randint(0, len(batches)))
            killed.kill()
            if number == epoch % 3:
                place.kill()
            if number == 1:
                place.forget_ids()
        assert Attempt(processes, place, epoch, batches_of(epoch, 300, epoch)).finish() == 300
        # The driver may have been killed before it knew.
        place.forget_ids()
        assert Attempt(processes, place, epoch, batches_of(epoch, 300, epoch + 1)).finish() == 300
    stored = place.stored()
    kind = "attempts without Spark: three processes, then the server"
    kill_table.note(kind, 4 * EPOCHS, expected, stored)
    assert stored == expected


def test_a_server_that_is_killed_is_waited_for(processes: ForkServerContext, place: Place) -> None:
    batches = batches_of(0, 300, 1)
    running = Attempt(processes, place, 0, batches)
    for _ in range(3):
        running.give(1)
        place.kill()
    assert running.finish() == 300
    assert place.stored() == Counter(data for _, data in rows_of(0, 300))


def test_of_two_attempts_one_stops_and_no_row_is_twice(
    processes: ForkServerContext, place: Place
) -> None:
    slow = Attempt(processes, place, 0, batches_of(0, 200, 1))
    slow.give(2)
    assert Attempt(processes, place, 0, batches_of(0, 200, 2)).finish() == 200
    assert "another attempt at epoch 0 has taken over" in str(slow.finish())
    assert place.stored() == Counter(data for _, data in rows_of(0, 200))


def change(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**batch, "data": ["x" + text for text in batch["data"]]} for batch in batches]


@pytest.mark.parametrize("is_done", [True, False])
def test_other_rows_in_a_repeated_epoch_are_an_error(
    processes: ForkServerContext, place: Place, is_done: bool
) -> None:
    batches = batches_of(0, 200, 1)
    connections = place.connections()
    first = Attempt(processes, place, 0, batches)
    if is_done:
        assert first.finish() == 200
    else:
        first.give(len(batches) - 1)
        place.wait_for(20)
        first.kill()
        place.wait_for_rows(connections)
    before = place.stored()
    text = str(Attempt(processes, place, 0, change(batches)).finish())
    assert "was repeated with 200 rows, but without" in text
    assert place.stored() == before


@pytest.mark.parametrize("fails", ["true", "false"])
def test_rows_behind_the_end_of_an_input_that_was_cut_off_are_written(
    processes: ForkServerContext, place: Place, fails: str
) -> None:
    """Whose driver is killed sees the end of its input, and takes it for that of the data."""
    batches = batches_of(0, 200, 1)
    cut_off = Attempt(processes, place, 0, batches[:2], failOnUnknown=fails)
    assert cut_off.finish() == sum(len(batch["data"]) for batch in batches[:2])
    assert Attempt(processes, place, 0, batches, failOnUnknown=fails).finish() == 200
    expected = Counter(data for _, data in rows_of(0, 200))
    assert place.stored() == expected
    # One that is cut off in a later attempt takes nothing back, nor what is known.
    place.forget_ids()
    Attempt(processes, place, 0, batches[:1], failOnUnknown=fails).finish()
    place.streams.delete_message("OUT", 1)
    taken = expected - place.stored()
    assert Attempt(processes, place, 0, batches, failOnUnknown=fails).finish() == 200
    assert place.stored() == expected - taken


def test_keys_behind_the_end_of_an_input_that_was_cut_off_are_written(
    processes: ForkServerContext, place: Place
) -> None:
    bucket = place.connection.jetstream().kv.create("PRICES", history=1)
    rows = [(f"key{number % 70}", str(number)) for number in range(200)]
    batches = cut(rows, 40, KV_COLUMNS)
    assert Attempt(processes, place, 0, batches[:1], bucket="PRICES").finish() == 40
    assert Attempt(processes, place, 0, batches, bucket="PRICES").finish() == 200
    values = {key: bucket.get(key).value for key in bucket.keys()}  # noqa: SIM118
    assert values == {key: value.encode() for key, value in rows}


def test_a_target_that_was_made_again_gets_the_rows(
    processes: ForkServerContext, place: Place
) -> None:
    batches = batches_of(0, 200, 1)
    assert Attempt(processes, place, 0, batches).finish() == 200
    place.streams.delete("OUT")
    add_empty_stream(place.streams, name="OUT", subjects=["out.>"], duplicate_window=MINUTES_2)
    for _ in range(2):
        assert Attempt(processes, place, 0, batches).finish() == 200
        assert place.stored() == Counter(data for _, data in rows_of(0, 200))


def test_an_epoch_behind_one_that_was_written_is_an_error(
    processes: ForkServerContext, place: Place
) -> None:
    """A checkpoint that was put back plans other rows; to skip them would lose them."""
    assert Attempt(processes, place, 5, batches_of(5, 100, 1)).finish() == 100
    before = place.stored()
    outcome = Attempt(processes, place, 4, batches_of(4, 100, 1)).finish()
    assert "epoch 4 comes after epoch 5 was written" in str(outcome)
    assert place.stored() == before
    goes_on = Attempt(processes, place, 4, batches_of(4, 100, 1), failOnUnknown="false")
    assert goes_on.finish() == 100
    assert place.stored() == before + Counter(data for _, data in rows_of(4, 100))


def test_rows_that_were_taken_away_are_not_written_again_in_silence(
    processes: ForkServerContext, place: Place
) -> None:
    batches = batches_of(0, 200, 1)
    connections = place.connections()
    first = Attempt(processes, place, 0, batches)
    first.give(3)
    place.wait_for(2)
    first.kill()
    place.wait_for_rows(connections)
    place.streams.delete_message("OUT", 1)
    before = place.stored()
    place.forget_ids(SHORT)
    second = Attempt(processes, place, 0, batches)
    assert "1 messages behind sequence 0 are gone" in str(second.finish())
    assert place.stored() == before


def test_rows_that_were_taken_away_are_known_while_the_window_lasts(
    processes: ForkServerContext, place: Place
) -> None:
    batches = batches_of(0, 200, 1)
    first = Attempt(processes, place, 0, batches)
    first.give(3)
    place.wait_for(2)
    first.kill()
    taken = place.streams.get_message("OUT", seq=1).data.decode()
    place.streams.delete_message("OUT", 1)
    assert Attempt(processes, place, 0, batches).finish() == 200
    expected = Counter(data for _, data in rows_of(0, 200))
    assert place.stored() == expected - Counter([taken])


@pytest.mark.timeout(60 * max(EPOCHS, 2))
def test_keys_end_with_their_last_value(processes: ForkServerContext, place: Place) -> None:
    js = place.connection.jetstream()
    bucket = js.kv.create("PRICES", history=1)
    rows = [(f"key{number % 7}", str(number)) for number in range(400)]
    chance = random.Random(3)
    for epoch in range(EPOCHS):
        for _ in range(3):
            batches = cut(rows, chance.randint(20, 60), KV_COLUMNS)
            killed = Attempt(processes, place, epoch, batches, bucket="PRICES")
            killed.give(chance.randint(1, len(batches)))
            killed.kill()
        batches = cut(rows, 50, KV_COLUMNS)
        assert Attempt(processes, place, epoch, batches, bucket="PRICES").finish() == 400
        values = {key: bucket.get(key).value for key in bucket.keys()}  # noqa: SIM118
        assert values == {key: value.encode() for key, value in rows}
