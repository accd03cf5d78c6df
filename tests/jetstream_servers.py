"""A fixture for modules whose tests need the URL of either server with JetStream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness import ServerProcess


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
            yield process.url
        finally:
            process.stop()

    return fixture
