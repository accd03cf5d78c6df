"""Files that rot below a server: only what was hit is lost, and everybody who looks is told."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from random import Random

import pytest

from harness import ServerProcess, wait_for
from server_disk_kit import STREAMS, check_content, consumer, fill, page, publish, running, take
from server_kill_streams import Wire

NAME = "ROTTEN"
COUNT = 200  # four blocks of 32000 bytes
HIT = (5, 6, 70, 130)


def make(wire: Wire) -> None:
    config = {"name": NAME, "subjects": [f"{NAME}.*"], "max_bytes": 127_900}
    wire.api(f"STREAM.CREATE.{NAME}", config)
    fill(wire, NAME, COUNT)
    consumer(wire, NAME, "reader")


def block_of(folder: Path, seq: int) -> tuple[Path, int]:
    """Where the payload of a message is."""
    for path in sorted((folder / STREAMS / NAME / "msgs").glob("*.blk")):
        if (place := path.read_bytes().find(b"%08d " % seq)) >= 0:
            return path, place
    raise AssertionError(f"{seq} is in no block")


def flip(folder: Path, *sequences: int) -> None:
    """One bit in the payload of each of these, in place."""
    random = Random(1)
    for seq in sequences:
        path, place = block_of(folder, seq)
        with path.open("r+b") as file:
            offset = place + random.randrange(20, 400)
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1 << random.randrange(8)]))


def check_told(
    folder: Path, server: ServerProcess, wire: Wire, lost: tuple[int, ...], count: int = COUNT
) -> None:
    """The log, stream info, the monitoring page and the folder `damage` name what is lost."""
    listed = ", ".join(map(str, lost))
    server.wait_for_log(rf"\[ERR\] .*{NAME}.*(lost messages|messages are lost:) {listed}$")
    state = wire.api(f"STREAM.INFO.{NAME}")["state"]
    assert state["lost"]["msgs"] == list(lost)
    assert state["lost"]["bytes"] >= 500 * len(lost)
    assert state["messages"] == count - len(lost)
    shown = page(server, "/jsz?streams=1")[1]["account_details"][0]["stream_detail"][0]
    assert shown["state"]["lost"]["msgs"] == list(lost)
    damage = folder / STREAMS / NAME / "damage"
    reports = [json.loads(path.read_bytes()) for path in damage.glob("*.json")]
    assert sorted({seq for report in reports for seq in report["lost"]}) == list(lost)
    evidence = b"".join(path.read_bytes() for path in damage.glob("*.bin"))
    assert all(b"%08d " % seq in evidence for seq in lost)


@pytest.mark.parametrize("ending", ["stopped", "stopped without index.db", "killed"])
def test_damage_at_rest_costs_what_was_hit_and_is_told(tmp_path: Path, ending: str) -> None:
    with running(tmp_path) as (server, wire):
        make(wire)
        assert take(wire, NAME, "reader", 3) == [1, 2, 3]
        server.signal(signal.SIGKILL if ending == "killed" else signal.SIGTERM)
        server.wait()
    if ending == "stopped without index.db":
        (tmp_path / STREAMS / NAME / "msgs/index.db").unlink()
    flip(tmp_path, *HIT)
    with running(tmp_path) as (server, wire):
        check_content(wire, NAME, COUNT, HIT)
        check_told(tmp_path, server, wire, HIT)
        # A consumer passes over them, and numbers go on.
        first = 4 if ending != "killed" else take(wire, NAME, "reader", 1)[0] + 1
        wanted = [seq for seq in range(first, COUNT + 1) if seq not in HIT]
        assert take(wire, NAME, "reader", len(wanted)) == wanted
        assert wire.api(f"CONSUMER.INFO.{NAME}.reader")["num_pending"] == 0
        assert publish(wire, f"{NAME}.x", b"new")["seq"] == COUNT + 1
    # The next start finds a whole store, and still knows what is missing.
    with running(tmp_path) as (server, wire):
        assert not [line for line in server.lines if "[ERR]" in line]
        assert wire.api(f"STREAM.INFO.{NAME}")["state"]["lost"]["msgs"] == list(HIT)
        check_content(wire, NAME, COUNT, HIT)


@pytest.mark.parametrize("is_read_before", [False, True])
def test_damage_under_a_running_server_is_never_given_out(
    tmp_path: Path, is_read_before: bool
) -> None:
    with running(tmp_path) as (_, wire):
        make(wire)
    with running(tmp_path) as (server, wire):
        if is_read_before:
            check_content(wire, NAME, COUNT)
        flip(tmp_path, *HIT)
        # The consumer is not held up by what it cannot have, and gets nothing else for it.
        wanted = [seq for seq in range(1, COUNT + 1) if seq not in HIT]
        assert take(wire, NAME, "reader", len(wanted)) == wanted
        check_content(wire, NAME, COUNT, HIT)
        check_told(tmp_path, server, wire, HIT)
        assert publish(wire, f"{NAME}.x", b"new")["seq"] == COUNT + 1
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    with running(tmp_path) as (server, wire):
        assert not [line for line in server.lines if "[ERR]" in line]
        check_content(wire, NAME, COUNT, HIT)


def test_damage_in_the_block_that_is_written_is_repaired_while_running(tmp_path: Path) -> None:
    lost = (COUNT - 1,)
    with running(tmp_path) as (server, wire):
        make(wire)
        flip(tmp_path, *lost)
        check_content(wire, NAME, COUNT, lost)
        assert publish(wire, f"{NAME}.x", b"new")["seq"] == COUNT + 1
        check_told(tmp_path, server, wire, lost, COUNT + 1)
        assert len(re.findall(r"\[ERR\]", server.log)) == 1
        server.signal(signal.SIGKILL)
        server.wait()
    with running(tmp_path) as (server, wire):
        assert not [line for line in server.lines if "[ERR]" in line]
        assert wire.api(f"STREAM.INFO.{NAME}")["state"]["lost"]["msgs"] == list(lost)
        check_content(wire, NAME, COUNT, lost)


def test_damaged_configuration_keeps_one_stream_closed_and_its_files_as_they_are(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as (_, wire):
        make(wire)
        wire.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["OTHER.*"]})
        fill(wire, "OTHER", 3)
    folder = tmp_path / STREAMS / NAME
    meta = folder / "meta.inf"
    meta.write_bytes(re.sub(rb"127900", b"127901", meta.read_bytes()))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with running(tmp_path) as (server, wire):
        server.wait_for_log(rf"\[ERR\] JetStream cannot open stream '\$G > {NAME}'")
        (answer,) = wire.api_all([(f"STREAM.INFO.{NAME}", {})])
        assert "error" in answer
        (answer,) = wire.api_all([(f"STREAM.CREATE.{NAME}", {"name": NAME, "subjects": ["n"]})])
        assert "error" in answer
        status, health = page(server, "/healthz")
        assert status == 503
        assert NAME in health["error"]
        fill(wire, "OTHER", 3, first=4)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_files_that_are_cut_below_a_running_server_cost_what_was_cut(tmp_path: Path) -> None:
    """The pages that are gone raise SIGBUS in whoever reads them; nobody else notices."""
    with running(tmp_path) as (_, wire):
        make(wire)
        wire.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["OTHER.*"]})
        fill(wire, "OTHER", 100)
    with running(tmp_path) as (server, wire):
        check_content(wire, NAME, COUNT)
        lost: list[int] = []
        blocks = sorted((tmp_path / STREAMS / NAME / "msgs").glob("*.blk"), key=_number)
        for path in blocks[1], blocks[-1]:
            content = path.read_bytes()
            os.truncate(path, 8192)
            lost += [
                seq
                for seq in range(1, COUNT + 1)
                if content.find(b"%08d " % seq) >= 8192 - 500  # the payload, and 8 of checksum
            ]
        wanted = [seq for seq in range(1, COUNT + 1) if seq not in lost]
        assert take(wire, NAME, "reader", len(wanted)) == wanted
        check_content(wire, NAME, COUNT, lost)
        check_content(wire, "OTHER", 100)
        assert publish(wire, "OTHER.x", b"new")["seq"] == 101
        assert publish(wire, f"{NAME}.x", b"new")["seq"] == COUNT + 1
        wait_for(
            lambda: wire.api(f"STREAM.INFO.{NAME}")["state"].get("lost", {}).get("msgs") == lost,
            "all of it to be found",
        )
        server.wait_for_log(rf"\[ERR\] .*{NAME}.*messages are lost")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    with running(tmp_path) as (server, wire):
        assert not [line for line in server.lines if "[ERR]" in line]
        check_content(wire, NAME, COUNT, lost)
        assert wire.api(f"STREAM.INFO.{NAME}")["state"]["lost"]["msgs"] == lost


def _number(path: Path) -> int:
    return int(path.stem)
