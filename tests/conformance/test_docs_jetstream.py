"""The programs, requests and pages that the documentation shows for JetStream, on both servers."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest

from harness import ServerProcess

ROOT = Path(__file__).parent.parent.parent
PAGES = ("README.md", "docs/reference/JETSTREAM.md")
ADDRESS = "nats://127.0.0.1:4222"
MONITOR = "http://127.0.0.1:8222"
SECONDS = 20
PROGRAM = re.compile(
    r"```python\n(.*?)```\n\n(?:prints\n\n```\n|```console\n\$ python \S+\n)(.*?)```", re.DOTALL
)
JETSTREAM = (ROOT / "docs/reference/JETSTREAM.md").read_text()


def programs() -> list[tuple[str, str, str]]:
    """(page, code, what it prints) of every program that uses streams."""
    return [
        (page, code, output)
        for page in PAGES
        for code, output in PROGRAM.findall((ROOT / page).read_text())
    ]


@pytest.fixture
def server(kind: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with the configuration that the page begins with, on ports of its own."""
    found = re.search(r"```conf\n(.*?)```", JETSTREAM, re.DOTALL)
    assert found
    config = found[1].replace(":4222", ":-1").replace(":8222", ":-1").replace("data", str(tmp_path))
    (tmp_path / "server.conf").write_text(config)
    process = ServerProcess(kind, ["-c", str(tmp_path / "server.conf")])
    try:
        yield process.wait_ready()
    finally:
        process.stop()


@pytest.mark.parametrize(("page", "code", "output"), programs())
def test_program_prints_what_the_page_says(
    server: ServerProcess, page: str, code: str, output: str
) -> None:
    assert code.count(ADDRESS) == 1
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code.replace(ADDRESS, server.url)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.stdout, result.stderr) == (output, "")


def test_all_programs_of_the_page_are_run() -> None:
    assert len([page for page, _, _ in programs() if page == "docs/reference/JETSTREAM.md"]) == (
        JETSTREAM.count("```python")
    )
    assert "README.md" in {page for page, _, _ in programs()}


def test_flags_of_the_page_start_a_server(kind: str, tmp_path: Path) -> None:
    (command,) = re.findall(r"^\.venv/bin/tradewind-server (.*)$", JETSTREAM, re.MULTILINE)
    flags = [word.replace("data", str(tmp_path)) for word in shlex.split(command)]
    process = ServerProcess(kind, [*flags, "-a", "127.0.0.1", "-p", "-1"])
    try:
        process.wait_ready().wait_for_log(r"Starting JetStream")
    finally:
        process.stop()
    assert (tmp_path / "jetstream").is_dir()


def requests() -> list[list[str]]:
    """The words of every line with the `nats` command, without its name."""
    return [shlex.split(line)[1:] for line in re.findall(r"^nats .*$", JETSTREAM, re.MULTILINE)]


async def send(url: str) -> list[bytes]:
    """What the requests of the page are answered; `pub` is answered by the stream."""
    client = await nats.connect(url, connect_timeout=SECONDS)
    try:
        return [
            (await client.request(subject, body.encode(), timeout=SECONDS)).data
            for _, subject, body in requests()
        ]
    finally:
        await client.close()


def test_requests_of_the_page_are_granted(server: ServerProcess) -> None:
    assert {verb for verb, _, _ in requests()} == {"req", "pub"}
    answers = [json.loads(answer) for answer in asyncio.run(send(server.url))]
    assert len(answers) >= 8
    assert [answer["error"] for answer in answers if "error" in answer] == []


def test_pages_that_are_named_are_there(server: ServerProcess) -> None:
    port = server.wait_for_log(r"Starting http monitor on 127\.0\.0\.1:(\d+)")[1]
    paths = re.findall(rf"^curl '?{MONITOR}([^\s']+)'?$", JETSTREAM, re.MULTILINE)
    assert [path.partition("?")[0] for path in paths] == ["/jsz", "/healthz", "/metrics"]
    for path in paths:
        if path == "/metrics" and server.kind == "official":
            continue
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as answer:
            text = answer.read().decode()
        assert answer.status == 200
        assert path != "/metrics" or "tradewind_jetstream_streams 0" in text
