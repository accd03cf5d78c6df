"""What lives beside a stream: the list that it knows, whatever the kinds are."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_kit import Peer
from transaction_kit import add_consumer

from tradewind.consumer.consumer import ServerConsumer
from tradewind.jetstream import hosted as hosted_module
from tradewind.jetstream.companions import CompanionKind, Companions, Wanted
from tradewind.jetstream.hosted import HostedStream
from tradewind.store.format.meta import StreamMeta
from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk


class Notes:
    """Shared by all companions of the kind below."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.is_saved = False

    def save(self) -> None:
        self.is_saved = True


class Scribe:
    """A companion that notes what it is told."""

    next_deadline_ns = 0

    def __init__(self, hosted: HostedStream) -> None:
        self._notes = hosted.companions.shared(Notes, Notes)

    def attach(self) -> None:
        self._notes.lines.append("attach")

    def changed(self) -> None:
        self._notes.lines.append("changed")

    def kept(self) -> None:
        self._notes.lines.append("kept")

    def tick(self) -> None:
        self._notes.lines.append("tick")

    def close(self, *, for_good: bool) -> None:
        self._notes.lines.append(f"close {for_good}")

    def describe(self) -> Mapping[str, Any]:
        return {"sources": []}


def wanted(hosted: HostedStream) -> Wanted:
    return {"scribe": lambda: Scribe(hosted)} if hosted.config.description else {}


def configure(hosted: HostedStream, meta: StreamMeta) -> None:
    notes = hosted.companions.shared(Notes, Notes)
    notes.lines.append(f"configure {meta.config.get('description', '')}".strip())


def consumer_changed(hosted: HostedStream, consumer: ServerConsumer, /, *, is_there: bool) -> None:
    notes = hosted.companions.shared(Notes, Notes)
    notes.lines.append(f"consumer {consumer.name} {is_there}")


def test_a_kind_that_no_stream_knows_is_told_of_all_that_happens_to_one() -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = Peer(server)
    peer.create("S")
    assert server.engine is not None
    hosted = server.engine.accounts["$G"].streams["S"]
    kind = CompanionKind(wanted, configure=configure, consumer_changed=consumer_changed)
    hosted.companions = Companions(hosted, (kind,))
    notes = hosted.companions.shared(Notes, Notes)

    def happens() -> list[str]:
        lines, notes.lines = notes.lines, []
        return lines

    def update(**more: Any) -> None:
        answer = peer.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], **more})
        assert "error" not in answer

    update(description="a")
    assert happens()[:2] == ["configure a", "attach"]
    update(description="b")
    assert happens()[:2] == ["configure b", "changed"]
    peer.publish("S.a")
    assert "kept" in happens()
    assert hosted.companions.describe() == {"sources": []}
    add_consumer(peer, "S")
    assert "consumer c True" in happens()
    peer.api("CONSUMER.DELETE.S.c")
    assert "consumer c False" in happens()
    update()
    assert happens()[:2] == ["configure", "close True"]
    server.engine.close()
    assert notes.is_saved


def test_a_stream_names_no_kind_of_companion() -> None:
    tree = ast.parse(Path(hosted_module.__file__).read_text())
    named = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    kinds = ("replication", "transactions", "chain", "undo", "shelf", "letters")
    assert not [module for module in named if module and any(word in module for word in kinds)]
