"""A login is the same in one piece and in several, whoever decides and whatever it goes through.

Every login is followed by operations in the same bytes. In one piece or in more, they must have the
same answers, and run exactly once: what decides about a login may do so inside of the session's own
CONNECT, in a later turn, or not at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from login_kit import (
    CERTIFIED,
    GATES,
    WAYS,
    Gatekeeping,
    Outcome,
    Papers,
    RememberedUrls,
    Served,
    log_in,
    served,
)

from thoroughness import IS_THOROUGH, some
from tradewind.server.operators import operator_mode

# A thorough run cuts every login at every byte. Otherwise that is done for two; of the others, the
# bytes inside of the JSON, which nobody looks at before its end is there, are shared out among all.
ALWAYS = {("bcrypt", "websocket"), ("nkey", "leaf_s2_fast")}
# Handshakes take long, and the other strengths of compression are those of the output.
DEAR = {"tls", "tls_first", "wss", "leaf_tls", "leaf_s2_better", "leaf_s2_best", "leaf_s2_auto"}
BEGIN_BYTES, END_BYTES, STRIDE = 4, 36, 29
# Whoever waits for something does so in the same way: these four stand for all ways in.
WAITING = {"bcrypt", "jwt_folder", "jwt_url", "callout"}
FOUR_WAYS = {"plain", "websocket", "leaf", "leaf_s2_fast"}


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(autouse=True)
def _urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_mode, "UrlResolver", RememberedUrls)


def ways_of(gate: Gatekeeping) -> list[str]:
    if "certified" in gate.is_for:
        return list(CERTIFIED)
    return [name for name, way in WAYS.items() if way.side in gate.is_for]


PAIRS = [(gate.name, way) for gate in GATES.values() for way in ways_of(gate)]


def places(gate: str, way: str, size: int) -> list[int]:
    """Where to cut so many bytes."""
    everywhere = range(1, size)
    if IS_THOROUGH or (gate, way) in ALWAYS:
        return list(everywhere)
    share = PAIRS.index((gate, way)) % STRIDE
    is_dear = way in DEAR or (gate in WAITING and way not in FOUR_WAYS)
    edges = set() if is_dear else {*everywhere[:BEGIN_BYTES], *everywhere[-END_BYTES:]}
    return [place for place in everywhere if place in edges or place % STRIDE == share]


async def cut_at(
    server: Served, way: str, *cuts: int, is_right: bool = True
) -> tuple[Outcome, int]:
    def choose(_: int) -> Sequence[int]:
        return cuts

    return await log_in(server, WAYS[way], choose, is_right=is_right)


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
async def test_a_login_in_two_pieces_is_the_login(
    gate: str, papers: Papers, tmp_path: Path
) -> None:
    async with served(GATES[gate], tmp_path, papers) as server:
        for way in ways_of(GATES[gate]):
            whole, size = await cut_at(server, way)
            assert whole.is_open, way
            assert (whole.published, whole.subscribed, whole.left_bytes) == (1, 1, 0), way
            for place in places(gate, way, size):
                assert (await cut_at(server, way, place))[0] == whole, (way, place)


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
async def test_a_login_in_three_pieces_is_the_login(
    gate: str, papers: Papers, tmp_path: Path
) -> None:
    async with served(GATES[gate], tmp_path, papers) as server:
        for way in ways_of(GATES[gate]):
            chance = random.Random(f"{gate} {way}")
            whole, size = await cut_at(server, way)
            for _ in range(some(6, 200)):
                cuts = chance.sample(range(1, size), 2)
                assert (await cut_at(server, way, *cuts))[0] == whole, (way, cuts)


@pytest.mark.slow
@pytest.mark.parametrize("gate", [name for name, gate in GATES.items() if gate.has_wrong])
async def test_a_login_that_is_refused_is_refused_in_pieces(
    gate: str, papers: Papers, tmp_path: Path
) -> None:
    """The session closes inside of its own CONNECT, or while it waits; nothing behind that is run,
    and nothing of it is kept.
    """
    async with served(GATES[gate], tmp_path, papers) as server:
        for way in ways_of(GATES[gate]):
            chance = random.Random(f"{gate} {way}")
            whole, size = await cut_at(server, way, is_right=False)
            assert not whole.is_open, way
            assert (whole.published, whole.subscribed, whole.left_bytes) == (0, 0, 0), way
            for place in [*chance.sample(range(1, size), some(4, 100)), size - len("PING\r\n")]:
                outcome, _ = await cut_at(server, way, place, is_right=False)
                assert outcome == whole, (way, place)
