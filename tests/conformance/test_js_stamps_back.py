"""A store whose stamps go back, as a clock that was wrong leaves it: both servers go on with it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from helpers_js import ApiClient

from harness import ServerProcess, StartServer
from tradewind.api.times import format_time, parse_time
from tradewind.store.files.disk import OsDisk
from tradewind.store.folder.stream_folder import StoreRoot
from tradewind.store.format.meta import StreamMeta

SECOND = 1_000_000_000
YEAR = 365 * 24 * 3600 * SECOND
CONFIG = {"name": "S", "subjects": ["s"], "storage": "file", "retention": "limits", "max_age": 0}
# Before now: a clock that is a year ahead twice, then far behind, then right.
AGES = [60, 50, -YEAR // SECOND, -YEAR // SECOND - 5, 40, 30, -YEAR // SECOND, 10**9, 20, 10]


def write_store(folder: Path) -> list[int]:
    """A stream S with these stamps; gives them."""
    now_ns = time.time_ns()
    stamps = [now_ns - age * SECOND for age in AGES]
    root = StoreRoot(OsDisk(str(folder)), str(folder))
    place = root.stream("$G", "S")
    place.create(StreamMeta({**CONFIG, "metadata": {"_nats.req.level": "0"}}, now_ns - YEAR))
    _, store, _ = place.open(now_ns)
    for stamp in stamps:
        store.table.store(b"s", b"", b"x", stamp)
    store.commit()
    store.close()
    root.close()
    return stamps


@pytest.fixture
def served(start: StartServer, tmp_path: Path) -> tuple[ServerProcess, list[int]]:
    folder = tmp_path / "js"
    stamps = write_store(folder)
    return start("", "-js", "-sd", str(folder)), stamps


def first_from(js: ApiClient, time_ns: int) -> int:
    """Where a consumer begins that starts at a time: the sequence, one too high if nowhere."""
    config = {
        "deliver_policy": "by_start_time",
        "opt_start_time": format_time(time_ns),
        "ack_policy": "none",
        "mem_storage": True,
        "inactive_threshold": 60 * SECOND,
    }
    answer = js.done("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
    return len(AGES) + 1 - int(answer["num_pending"])


def test_start_time_is_where_the_first_message_is_that_is_not_older(
    served: tuple[ServerProcess, list[int]],
) -> None:
    server, stamps = served
    times = {stamp + shift for stamp in stamps for shift in (-SECOND, 0, SECOND)}
    with ApiClient(server) as js:
        # Of times ahead of the clock nats-server does not find all that blocks have.
        for wanted in sorted(one for one in times if one < time.time_ns()):
            expected = next(seq for seq, stamp in enumerate(stamps, 1) if stamp >= wanted)
            assert first_from(js, wanted) == expected, (wanted, stamps)


def test_new_messages_have_the_time_of_the_clock(start: StartServer, tmp_path: Path) -> None:
    folder = tmp_path / "js"
    now_ns = time.time_ns()
    root = StoreRoot(OsDisk(str(folder)), str(folder))
    place = root.stream("$G", "S")
    place.create(StreamMeta({**CONFIG, "metadata": {"_nats.req.level": "0"}}, now_ns))
    _, store, _ = place.open(now_ns)
    store.table.store(b"s", b"", b"x", now_ns + YEAR)
    store.commit()
    store.close()
    root.close()
    with ApiClient(start("", "-js", "-sd", str(folder))) as js:
        js.raw.send(b"PUB s answers 1\r\nx\r\n")
        assert json.loads(js.raw.read_message()[2]) == {"stream": "S", "seq": 2}
        stored = js.done("STREAM.MSG.GET.S", {"seq": 2})["message"]["time"]
        assert abs(parse_time(stored) - time.time_ns()) < 3600 * SECOND
