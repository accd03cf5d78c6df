"""How the process starts: who else may use its folder, what it loads, when it can be ended."""

from __future__ import annotations

from pathlib import Path

from harness import RawClient, ServerProcess

LOOPBACK = ["-a", "127.0.0.1", "-p", "-1"]


def test_a_second_server_on_the_same_folder_is_refused_and_told_what_to_do(tmp_path: Path) -> None:
    flags = [*LOOPBACK, "-js", "-sd", str(tmp_path)]
    first = ServerProcess("tradewind", flags).wait_ready()
    try:
        second = ServerProcess("tradewind", flags)
        assert second.wait() == 1
        assert second.lines[-1].endswith(
            f"[FTL] Can't start JetStream: {tmp_path}/jetstream: the folder is in use by process "
            f"{first.process.pid}; stop that server or use another folder"
        )
        with RawClient(first.port) as client:
            client.connect()
    finally:
        first.stop()
    third = ServerProcess("tradewind", flags)
    try:
        third.wait_ready()
    finally:
        third.stop()
