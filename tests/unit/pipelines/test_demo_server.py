"""The server of the demo, without Spark."""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import tradewind
from tradewind.pipelines.demo.demo_server import DemoSettings, Screen, start_server


@pytest.mark.parametrize("is_taken", [False, True])
def test_no_other_program_can_have_its_free_monitoring_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    real, said = tradewind.serve, list[str]()
    with ExitStack() as opened:
        asked = 0
        if is_taken:
            other = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            asked = other.getsockname()[1]

        def serve(**settings: Any) -> AbstractContextManager[Any]:
            """Another program is faster, if it can be."""
            if settings["http_port"] > 0:
                opened.enter_context(socket.create_server(("127.0.0.1", settings["http_port"])))
            return real(**settings)

        monkeypatch.setattr(tradewind, "serve", serve)
        screen = Screen(said.append, lambda _moment: None)
        server = start_server(DemoSettings(tmp_path, 0, asked), opened, screen)
        assert f"monitoring is on {server.monitor_url}," in said[-1]
        with urlopen(f"{server.monitor_url}/healthz") as answer:
            assert answer.status == 200
