"""Somebody removes, moves or replaces a block under a server: nothing is acknowledged into it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from server_disk_kit import (
    STORE_FAILED,
    STREAMS,
    check_content,
    fill,
    payload_of,
    running,
)
from server_kill_streams import Wire

pytestmark = pytest.mark.slow
BURST = 50


def remove(block: Path) -> None:
    block.unlink()


def move_away(block: Path) -> None:
    block.rename(block.parents[3] / "elsewhere")


def replace(block: Path) -> None:
    """As an editor or a restored copy does it: the same bytes under the same name."""
    copy = block.with_name("copy")
    shutil.copy(block, copy)
    copy.rename(block)


def remove_stream(block: Path) -> None:
    shutil.rmtree(block.parents[1])


def move_stream(block: Path) -> None:
    block.parents[1].rename(block.parents[3] / "moved")


def create(wire: Wire, name: str) -> None:
    wire.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"]})


def answers_to_burst(wire: Wire, name: str, first: int) -> list[dict[str, object]]:
    """What so many publishers get that do not wait for each other."""
    for seq in range(first, first + BURST):
        payload = payload_of(seq)
        head = f"PUB {name}.x {wire.answer_to(seq)} {len(payload)}\r\n"
        wire.send(head.encode() + payload + b"\r\n")
    return [json.loads(wire.next_message()[3]) for _ in range(BURST)]


@pytest.mark.parametrize("lose", [remove, move_away, replace, remove_stream, move_stream])
def test_nothing_is_acknowledged_that_the_next_start_cannot_find(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    with running(tmp_path) as (server, wire):
        for name in ("LOST", "GOOD"):
            create(wire, name)
            fill(wire, name, 10)
        lose(tmp_path / STREAMS / "LOST/msgs/1.blk")
        refused = answers_to_burst(wire, "LOST", 11)
        codes = [answer.get("error", {}).get("err_code") for answer in refused]
        assert codes == [STORE_FAILED] * BURST, refused
        log = server.wait_for_log(r"\[ERR\] JetStream stream 'LOST' takes no messages: (.*)")[1]
        reason = "another file has taken its place" if lose is replace else "removed or moved away"
        assert reason in log
        # What was read before is still there, and nobody else notices.
        check_content(wire, "LOST", 10)
        fill(wire, "GOOD", 5, first=11)
    with running(tmp_path) as (_, wire):
        check_content(wire, "GOOD", 15)
