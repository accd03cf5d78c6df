"""The guide of the clients, program by program, in Python and, where there is one, in Node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from walkthrough_kit import SLOWEST_SECONDS, follow

import tradewind

PROGRAM = Path(__file__).parent / "document_001.cjs"
PRINTED = """\
streams: 0
mystream 100
message 1
deleted true
purged 88
purged 6
purged 5
consumer me
removed true
a 1 false
last 106
next: 1 a.c
fetch: 2 a.c
fetch: 3 a.c
fetch: 4 a.c
fetch: 5 a.c
fetch: 6 a.a
consumed 100
ordered 1
value for get world
key hello.world
history: hello.world: PUT hi
history: hello.world: PUT world
after delete DEL
destroyed true
hello entry exists? false
object size: 11 number of chunks: 11
read hello world
list: hello
bucket: 'testing' sealed: true
destroyed: true
"""


@pytest.mark.timeout(SLOWEST_SECONDS)
def test_guide_of_the_client_can_be_followed(tmp_path: Path) -> None:
    follow("001-client.md", tmp_path)


def node_with_nats() -> tuple[str, dict[str, str]]:
    """Node and an environment in which it finds the package; skips where there is none."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node: the programs of document 001 are not run in JavaScript")
    places = [os.environ.get("NODE_PATH", ""), "/usr/lib/node_modules", "/usr/share/nodejs"]
    environment = {**os.environ, "NODE_PATH": ":".join(place for place in places if place)}
    found = subprocess.run(
        [node, "-e", "require.resolve('nats')"], env=environment, capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip("no npm package nats: npm install nats@2, and its node_modules in NODE_PATH")
    return node, environment


@pytest.mark.timeout(SLOWEST_SECONDS)
def test_the_programs_of_the_guide_run_in_javascript(tmp_path: Path) -> None:
    node, environment = node_with_nats()
    with tradewind.serve(port=0, jetstream=str(tmp_path)) as server:
        done = subprocess.run(
            [node, str(PROGRAM), server.url],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SLOWEST_SECONDS,
            check=False,
        )
    assert (done.stdout, done.stderr, done.returncode) == (PRINTED, "", 0)
