"""When a mirror or source last heard of its origin: `active`, in answers and on pages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_ops import fetch, running

from conformance.helpers_publish import Publisher
from conformance.helpers_replicas import wait_for_last
from harness import ServerProcess, wait_for

HEARTBEAT_NS = 1_000_000_000


@pytest.fixture
def server(kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    with running(kind, tmp_path, 'jetstream { store_dir: "STORE" }', "-m", "-1") as process:
        yield process


@pytest.fixture
def peer(server: ServerProcess) -> Iterator[Publisher]:
    publisher = Publisher(server)
    yield publisher
    publisher.close()


def copies(peer: Publisher, origin: str) -> tuple[str, str]:
    """A mirror and a stream with a source."""
    mirror = peer.create(subjects=[], mirror={"name": origin}, storage="memory")
    return mirror, peer.create(subjects=[], sources=[{"name": origin}], storage="memory")


def shown(peer: Publisher, name: str) -> dict[str, Any]:
    info = peer.api(f"STREAM.INFO.{name}")
    found: dict[str, Any] = info.get("mirror") or info["sources"][0]
    return found


def test_a_copy_of_a_stream_that_is_not_there_was_never_active(peer: Publisher) -> None:
    name = peer.create(subjects=[], sources=[{"name": "MISSING"}], storage="memory")
    error = wait_for(lambda: shown(peer, name).get("error"))
    assert error["err_code"] == 10059
    assert (shown(peer, name)["active"], shown(peer, name)["lag"]) == (-1, 0)


def test_idle_copies_hear_of_their_origin_every_second(peer: Publisher) -> None:
    before = time.monotonic_ns()
    names = copies(peer, peer.create(storage="memory"))
    for name in names:
        wait_for(lambda name=name: shown(peer, name)["active"] > 0)
        # As long as nothing is heard it would be the time since then.
        wait_for(lambda name=name: shown(peer, name)["active"] < _passed(before) - HEARTBEAT_NS)


def _passed(before: int) -> int:
    return time.monotonic_ns() - before


def test_pages_show_what_answers_show(server: ServerProcess, peer: Publisher) -> None:
    origin = peer.create(storage="memory")
    peer.publish(f"{origin.lower()}.a", b"x")
    mirror, sourcing = copies(peer, origin)
    wait_for_last(peer, mirror, 1)
    wait_for_last(peer, sourcing, 1)
    page = fetch(server, "/jsz?streams=1&accounts=1").json()
    details = {one["name"]: one for one in page["account_details"][0]["stream_detail"]}
    assert not {"mirror", "sources"} & details[origin].keys()
    for name, found in (
        (mirror, details[mirror]["mirror"]),
        (sourcing, *details[sourcing]["sources"]),
    ):
        expected = shown(peer, name)
        assert found.pop("active") > 0
        del expected["active"]
        assert found == expected


def test_without_its_origin_a_copy_is_no_longer_active(peer: Publisher) -> None:
    origin = peer.create(storage="memory")
    names = copies(peer, origin)
    for name in names:
        wait_for(lambda name=name: shown(peer, name)["active"] > 0)
    peer.api(f"STREAM.DELETE.{origin}")
    for name in names:
        wait_for(lambda name=name: shown(peer, name)["active"] > 1.5 * HEARTBEAT_NS)
