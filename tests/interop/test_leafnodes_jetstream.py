"""JetStream over leaf connections: domains, streams of the other side, mirrors and sources."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import RawClient, wait_for
from leaf_kit import PAIRINGS, Node, joined

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("kinds", PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]),
]
Kinds = tuple[str, str]
_numbers = itertools.count(1)
# nats-server asks for the requests of its domain one by one, of which tests use these.
API_ENDS = ("INFO", "STREAM.>", "CONSUMER.>", "$KV.>")
COPY_SECONDS = 60


class Api:
    """Requests of one client."""

    def __init__(self, node: Node) -> None:
        self.client: RawClient = node.client()
        # Of its own: both sides hear what is sent to an inbox.
        self._inbox = f"answers.{next(_numbers)}"
        self.client.send(f"SUB {self._inbox}.* 1\r\n")
        self._number = 0

    def ask(self, subject: str, body: object = None) -> dict[str, Any]:
        """The answer as JSON; a 503 is {"status": 503}."""
        self._number += 1
        data = b"" if body is None else json.dumps(body).encode()
        head = f"PUB {subject} {self._inbox}.{self._number} {len(data)}\r\n"
        self.client.send(head.encode() + data + b"\r\n")
        while True:
            line, header, payload = self.client.read_message()
            if line.split()[1] == f"{self._inbox}.{self._number}":
                break
        if header.startswith(b"NATS/1.0 503"):
            return {"status": 503}
        answer: dict[str, Any] = json.loads(payload)
        return answer


@contextmanager
def domains(
    kinds: Kinds, folder: Path, hub: str = "core", leaf: str = "edge"
) -> Iterator[tuple[Node, Node]]:
    def jetstream(name: str, domain: str) -> str:
        shown = f", domain: {domain}" if domain else ""
        return f'jetstream {{ store_dir: "{folder / name}", max_mem: 64MB, max_file: 64MB{shown} }}'

    with joined(
        kinds, folder, around_hub=jetstream("h", hub), around_leaf=jetstream("l", leaf)
    ) as nodes:
        if hub:
            wait_for_api(nodes[1], kinds[0], hub)
            wait_for_api(nodes[0], kinds[1], leaf)
        yield nodes


def wait_for_api(node: Node, kind: str, domain: str) -> None:
    """Wait until a node knows the API of the domain at the other end, which is of this kind.

    A link is there a moment before what its other end asks for.
    """
    for end in {"tradewind": (">",), "official": API_ENDS}[kind]:
        node.wait_asked(f"$JS.{domain}.API.{end}")


def test_each_domain_answers_under_its_name(kinds: Kinds, tmp_path: Path) -> None:
    with domains(kinds, tmp_path) as (hub, leaf):
        below, above = Api(leaf), Api(hub)
        for api in (below, above):
            for domain in ("core", "edge"):
                answer = api.ask(f"$JS.{domain}.API.INFO")
                assert answer["domain"] == domain, answer
        assert below.ask("$JS.API.INFO")["domain"] == "edge"
        assert above.ask("$JS.API.INFO")["domain"] == "core"
        assert below.ask("$JS.none.API.INFO") == {"status": 503}


def test_without_domains_each_api_stays_at_home(kinds: Kinds, tmp_path: Path) -> None:
    with domains(kinds, tmp_path, "", "") as (hub, leaf):
        below, above = Api(leaf), Api(hub)
        assert "error" not in above.ask("$JS.API.STREAM.CREATE.A", {"name": "A", "subjects": ["a"]})
        assert below.ask("$JS.API.STREAM.NAMES")["total"] == 0
        assert above.ask("$JS.API.STREAM.NAMES")["total"] == 1


def test_stream_of_the_other_side_is_written_and_read(kinds: Kinds, tmp_path: Path) -> None:
    with domains(kinds, tmp_path) as (hub, leaf):
        below = Api(leaf)
        made = below.ask("$JS.core.API.STREAM.CREATE.ORD", {"name": "ORD", "subjects": ["ord.>"]})
        assert "error" not in made, made
        leaf.wait_asked("ord.>")
        ack = below.ask("ord.a", {"n": 1})
        assert (ack["stream"], ack["seq"], ack["domain"]) == ("ORD", 1, "core")
        consumer = {"durable_name": "c", "ack_policy": "explicit"}
        made = below.ask(
            "$JS.core.API.CONSUMER.CREATE.ORD.c", {"stream_name": "ORD", "config": consumer}
        )
        assert "error" not in made, made
        below.client.send(
            "SUB inbox 9\r\nPUB $JS.core.API.CONSUMER.MSG.NEXT.ORD.c inbox 1\r\n1\r\n"
        )
        line, _, payload = below.client.read_message()
        words = line.split()
        assert (words[1], words[2], payload) == ("ord.a", "9", b'{"n": 1}')
        assert words[3].startswith("$JS.ACK.")
        below.client.send(f"PUB {words[3]} 4\r\n+ACK\r\n")
        above = Api(hub)

        def floor() -> int:
            seq: int = above.ask("$JS.API.CONSUMER.INFO.ORD.c")["ack_floor"]["stream_seq"]
            return seq

        wait_for(lambda: floor() == 1)


@pytest.mark.parametrize("kind", ["mirror", "source"])
@pytest.mark.parametrize("way", ["down", "up"])
def test_copy_of_a_stream_in_the_other_domain(
    kinds: Kinds, tmp_path: Path, way: str, kind: str
) -> None:
    with domains(kinds, tmp_path) as (hub, leaf):
        origin, copy = (hub, leaf) if way == "down" else (leaf, hub)
        domain = "core" if way == "down" else "edge"
        there, here = Api(origin), Api(copy)
        made = there.ask("$JS.API.STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
        assert "error" not in made, made
        for number in range(50):
            there.ask("o.x", number)
        source = {"name": "O", "external": {"api": f"$JS.{domain}.API", "deliver": ""}}
        config: dict[str, Any] = {"name": "C"}
        config.update({"mirror": source} if kind == "mirror" else {"sources": [source]})
        made = here.ask("$JS.API.STREAM.CREATE.C", config)
        assert "error" not in made, made

        def last() -> int:
            seq: int = here.ask("$JS.API.STREAM.INFO.C")["state"]["last_seq"]
            return seq

        wait_for(lambda: last() == 50, lambda: str(here.ask("$JS.API.STREAM.INFO.C")), COPY_SECONDS)
        there.ask("o.y", "later")

        def subject() -> str:
            answer = here.ask("$JS.API.STREAM.MSG.GET.C", {"seq": 51})
            return str(answer.get("message", {}).get("subject", ""))

        wait_for(lambda: subject() == "o.y", seconds=COPY_SECONDS)


def test_kv_requests_of_another_domain_need_its_prefix(kinds: Kinds, tmp_path: Path) -> None:
    with domains(kinds, tmp_path) as (hub, leaf):
        above, below = Api(hub), Api(leaf)
        config = {"name": "KV_b", "subjects": ["$KV.b.>"], "max_msgs_per_subject": 1}
        assert "error" not in above.ask("$JS.API.STREAM.CREATE.KV_b", config)
        assert below.ask("$KV.b.k", 1) == {"status": 503}
        assert below.ask("$JS.core.API.$KV.b.k", 1)["seq"] == 1


@pytest.mark.parametrize("domain", ["core", ""])
def test_leaf_node_without_jetstream_uses_that_of_its_hub(
    kinds: Kinds, tmp_path: Path, domain: str
) -> None:
    shown = f", domain: {domain}" if domain else ""
    with joined(
        kinds,
        tmp_path,
        around_hub=f'jetstream {{ store_dir: "{tmp_path / "h"}"{shown} }}',
        around_leaf=f'default_js_domain {{ "$G": "{domain}" }}',
    ) as (hub, leaf):
        if domain:
            wait_for_api(leaf, kinds[0], domain)
        else:
            leaf.wait_asked("$JS.API.>")
        above, below = Api(hub), Api(leaf)
        made = below.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        assert "error" not in made, made
        assert above.ask("$JS.API.STREAM.NAMES")["streams"] == ["S"]
        leaf.wait_asked("s")
        assert below.ask("s", 1)["seq"] == 1
