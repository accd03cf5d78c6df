"""A fixture for modules whose tests need the URL of either server with JetStream, and streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import ServerProcess


def keep_streams_folder(store: Path) -> None:
    """Keep nats-server, which runs on this store, from removing the folder of its streams.

    It removes it when it is empty, some time after the last stream is deleted, and so may take it
    away from under the next one.
    """
    streams = store / "jetstream" / "$G" / "streams"
    streams.mkdir(parents=True, exist_ok=True)
    (streams / ".keep").touch()


def add_empty_stream(streams: Any, **config: Any) -> Any:
    """Add a stream that may have been deleted just now.

    nats-server may find the files again that it is still removing.
    """
    while (info := streams.add(**config)).state.last_seq:
        streams.delete(config["name"])
    return info


def jetstream_on_both() -> Any:
    """One server of each kind for all tests of a module."""

    @pytest.fixture(scope="module", params=["official", "tradewind"])
    def fixture(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[str]:
        folder = tmp_path_factory.mktemp(request.param) / "store"
        flags = ["-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", "-1"]
        process = ServerProcess(request.param, flags).wait_ready()
        try:
            keep_streams_folder(folder)
            yield process.url
        finally:
            process.stop()

    return fixture
