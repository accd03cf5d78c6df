"""The whole server, killed while clients use it: what was acknowledged is there, and goes on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness import ServerProcess
from server_kill_kit import Cycles
from server_kill_streams import Wire
from tradewind.store.format.consumer_file import (
    ConsumerState,
    PendingDelivery,
    SequencePair,
    encode_consumer_state,
)

CYCLES = 100 if os.environ.get("TRADEWIND_THOROUGH") == "1" else 6
STREAMS = "jetstream/$G/streams"


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path, seed: int) -> None:
    cycles = Cycles(tmp_path, seed)
    for _ in range(CYCLES):
        assert cycles.run_one() == []
    assert cycles.finish() == []
    assert cycles.kills == CYCLES
    assert cycles.acks > 10 * CYCLES


def test_a_block_that_somebody_removed_would_be_noticed(tmp_path: Path) -> None:
    """The check of the check: it must be able to fail."""
    cycles = Cycles(tmp_path, 3)
    while not cycles.lanes["PLAIN"].acked:
        assert cycles.run_one() == []
    block = max((tmp_path / STREAMS / "PLAIN/msgs").glob("*.blk"))
    block.unlink()
    assert any("PLAIN" in problem for problem in cycles.run_one())


def start(folder: Path) -> ServerProcess:
    flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
    return ServerProcess("tradewind", flags).wait_ready()


@pytest.mark.parametrize(
    ("retention", "gone"), [("workqueue", [1, 2, 5]), ("interest", [1, 2, 4, 5])]
)
def test_acknowledged_message_whose_removal_was_cut_off_goes_at_the_start(
    tmp_path: Path, retention: str, gone: list[int]
) -> None:
    """The state of the consumer is on disk, the removal is not; 4 and 8 are of another subject."""
    server = start(tmp_path)
    with Wire(server.port) as wire:
        wire.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "retention": retention})
        filters = {"workqueue": ["s.a"], "interest": ["s.a", "s.*"]}[retention]
        for number, subject in enumerate(filters):
            config = {"durable_name": f"c{number}", "filter_subject": subject}
            request = {"stream_name": "S", "config": {**config, "ack_policy": "explicit"}}
            wire.api(f"CONSUMER.CREATE.S.c{number}", request)
        for number in range(1, 11):
            subject = "s.a" if number % 4 else "s.b"
            wire.send(f"PUB {subject} {wire.answer_to(number)} 1\r\nx\r\n")
            wire.next_message()
    server.stop()
    now_ns = time.time_ns()
    pending = {3: PendingDelivery(3, now_ns), 6: PendingDelivery(5, now_ns)}
    state = ConsumerState(SequencePair(5, 6), SequencePair(1, 1), pending)
    for path in tmp_path.glob(f"{STREAMS}/S/obs/*/o.dat"):
        path.write_bytes(encode_consumer_state(state, now_ns))
    server = start(tmp_path)
    with Wire(server.port) as wire:
        found = wire.api("STREAM.INFO.S", {"deleted_details": True})["state"]
        assert found["messages"] == 10 - len(gone)
        assert found["first_seq"] == 3
        assert found["deleted"] == [seq for seq in gone if seq > 3]
        info = wire.api("CONSUMER.INFO.S.c0")
        assert (info["num_ack_pending"], info["num_pending"]) == (2, 3)
    server.wait_for_log(f"Removed {len(gone)} acknowledged messages of stream '\\$G > S'")
    server.stop()
