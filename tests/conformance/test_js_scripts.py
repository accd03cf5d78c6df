"""Random histories of streams and consumers give the same answers on both servers.

Each script is played step by step on both at once, so the first step that differs is named. The
official server decides what is right.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from conformance.helpers_random import Script
from conformance.helpers_script import Player, play_both
from harness import ServerProcess
from jetstream_servers import keep_streams_folder

STEPS = 80
SEEDS = 300 if os.environ.get("TRADEWIND_THOROUGH") == "1" else 8


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    servers = []
    try:
        folders = [tmp_path_factory.mktemp(kind) for kind in ("official", "tradewind")]
        for kind, folder in zip(("official", "tradewind"), folders, strict=True):
            flags = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder)]
            servers.append(ServerProcess(kind, flags))
        ready = [server.wait_ready() for server in servers]
        keep_streams_folder(folders[0])
        yield ready
    finally:
        for server in servers:
            server.stop()


@pytest.fixture
def players(both: list[ServerProcess]) -> Iterator[list[Player]]:
    players = [Player(server) for server in both]
    yield players
    for player in players:
        for name in player.request("STREAM.NAMES")["streams"] or []:
            player.request(f"STREAM.DELETE.{name}")
        player.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_scripts_give_the_same_answers(players: list[Player], seed: int) -> None:
    for number, step in enumerate(Script(seed, f"T{seed}").steps(STEPS)):
        official, ours = play_both(players, step)
        assert ours == official, (number, step)
