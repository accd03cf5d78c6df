"""Files that the server has read do not stay in its memory, which a container may limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness import ServerProcess
from turn_budget_kit import Client

STREAMS = 40
MESSAGES = 300
PAYLOAD = 4096
STORED = STREAMS * MESSAGES * PAYLOAD

pytestmark = pytest.mark.slow


def resident_file_bytes(server: ServerProcess) -> int:
    """How much of its memory the process has from files, its own code included."""
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) * 1024
    pytest.skip("the system does not say what of the memory is from files")


class Started:
    """A server on a folder, with a client."""

    def __init__(self, folder: Path) -> None:
        self.server = ServerProcess("tradewind", ["-p", "-1", "-js", "-sd", str(folder)])
        self.server.wait_ready()
        self.client = Client(self.server.port)
        self.client.connect()
        self.client.send("SUB r 1\r\n")

    def close(self) -> None:
        self.client.close()
        self.server.stop()


def fill(client: Client, name: str, count: int) -> None:
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name.lower()]})
    line = f"PUB {name.lower()} {PAYLOAD}\r\n" + "x" * PAYLOAD + "\r\n"
    for _ in range(count // MESSAGES):
        client.send(line * MESSAGES)
        client.ping()


def wait_until_durable(client: Client, number: int) -> None:
    """Publish one more message; its acknowledgement covers all messages before it."""
    client.send(f"PUB s{number} r 1\r\nx\r\n")
    assert b"error" not in client.read_message()[2]


def messages(client: Client, number: int) -> int:
    count: int = client.api(f"STREAM.INFO.S{number}")["state"]["messages"]
    return count


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_start_with_many_streams_leaves_no_files_in_memory(
    tmp_path: Path, *, is_killed: bool
) -> None:
    started = Started(tmp_path)
    try:
        needed = resident_file_bytes(started.server)
        for number in range(STREAMS):
            fill(started.client, f"S{number}", MESSAGES)
        for number in range(STREAMS):
            while messages(started.client, number) < MESSAGES:
                started.client.ping()
        if is_killed:
            for number in range(STREAMS):
                wait_until_durable(started.client, number)
            started.server.process.kill()
    finally:
        started.close()
    started = Started(tmp_path)
    try:
        assert messages(started.client, STREAMS - 1) == MESSAGES + is_killed
        assert resident_file_bytes(started.server) < needed + STORED // 4
    finally:
        started.close()


def test_replay_leaves_few_files_in_memory(tmp_path: Path) -> None:
    started = Started(tmp_path)
    try:
        needed = resident_file_bytes(started.server)
        fill(started.client, "S", STREAMS * MESSAGES)
        started.client.send("SUB got 2\r\n")
        config = {"name": "C", "deliver_subject": "got", "ack_policy": "none"}
        started.client.send(replay_request(config))
        for _ in range(STREAMS * MESSAGES + 1):
            started.client.read_message()
        assert resident_file_bytes(started.server) < needed + STORED // 2
    finally:
        started.close()


def replay_request(config: dict[str, str]) -> str:
    body = json.dumps({"stream_name": "S", "config": config})
    return f"PUB $JS.API.CONSUMER.CREATE.S.C r {len(body)}\r\n{body}\r\n"
