"""Encrypted folders under two running servers: either opens what the other has left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from journey_kit import NAMES, WAYS, Journey, make_journey
from server_truth import differences

pytestmark = [pytest.mark.xdist_group("interop_encrypted"), pytest.mark.timeout(300)]
# Each cipher with each server first, stopped and killed.
JOURNEYS = [(*way, cipher) for way, cipher in zip(WAYS * 2, ["chacha", "aes"] * 4, strict=True)]
JOURNEYS = sorted(set(JOURNEYS) | {(kind, "stopped", "aes") for kind, _ in WAYS})


@pytest.fixture(scope="module", params=JOURNEYS, ids=" ".join)
def journey(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    kind, end, cipher = request.param
    base = tmp_path_factory.mktemp("journey")
    settings = f'key: "a secret of the tests", cipher: {cipher}'
    return asyncio.run(make_journey(kind, end, base, settings))


@pytest.mark.parametrize("name", NAMES)
def test_the_other_server_says_the_same(journey: Journey, name: str) -> None:
    assert differences(journey.first[name], journey.other[name]) == []


@pytest.mark.parametrize("name", NAMES)
def test_what_the_other_server_has_changed_comes_back(journey: Journey, name: str) -> None:
    assert differences(journey.left[name], journey.back[name]) == []


def readable(folder: Path) -> list[str]:
    """Files that hold a subject or a payload of the streams in clear."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".conf" and b"PLAIN.after" in path.read_bytes()
    ]
