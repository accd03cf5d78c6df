"""Whatever has happened to a stream: its backup gives the same stream again, in files or memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from backup_kit import BackupPeer
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.testing import InProcessServer
from tradewind.testing.fake_disk import SimulatedDisk

INFO = {"deleted_details": True, "subjects_filter": ">"}
steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3), st.integers(0, 2000)),
        st.tuples(st.just("delete"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("purge"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("purge all"), st.just(0), st.just(0)),
        st.tuples(st.just("fetch"), st.integers(1, 4), st.integers(0, 4)),
    ),
    max_size=40,
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "max_msgs": st.integers(1, 12),
        "max_bytes": st.integers(2000, 30_000),
        "max_msgs_per_subject": st.integers(1, 4),
        "first_seq": st.integers(2, 50),
        "compression": st.just("s2"),
    },
)


def run(peer: BackupPeer, action: str, one: int, two: int) -> None:
    if action == "publish":
        peer.ask_plain(f"S.{one}", bytes([65 + one]) * two)
    elif action == "delete":
        peer.ask_plain("$JS.API.STREAM.MSG.DELETE.S", {"seq": one})
    elif action == "purge":
        peer.ask_plain("$JS.API.STREAM.PURGE.S", {"filter": f"S.{one}", "keep": two})
    elif action == "purge all":
        peer.ask_plain("$JS.API.STREAM.PURGE.S")
    else:
        request = {"batch": one, "no_wait": True}
        peer.connection.take()
        body = json.dumps(request).encode()
        head = f"PUB $JS.API.CONSUMER.MSG.NEXT.S.c backup.fetched {len(body)}\r\n".encode()
        peer.connection.send(b"SUB backup.fetched 9\r\n" + head + body + b"\r\nUNSUB 9\r\n")
        lines = peer.connection.take().split(b"\r\n")
        replies = [
            line.split()[3] for line in lines if line.startswith(b"MSG") and b"$JS.ACK" in line
        ]
        for reply in replies[:two]:
            peer.connection.send(b"PUB " + reply + b" 0\r\n\r\n")


def document(peer: BackupPeer, subject: str, body: Any = b"") -> dict[str, Any]:
    (answer,) = peer.ask_plain(f"$JS.API.{subject}", body)
    found: dict[str, Any] = json.loads(answer)
    assert "error" not in found, found
    return found


def truth(peer: BackupPeer) -> dict[str, Any]:
    """All that a client can see, except when it was made and what differs between storages."""
    info = document(peer, "STREAM.INFO.S", INFO)
    state = info["state"]
    del state["bytes"]
    consumer = document(peer, "CONSUMER.INFO.S.c")
    for name in ("created", "ts", "config"):
        del consumer[name]
    for pair in (consumer["delivered"], consumer["ack_floor"]):
        pair.pop("last_active", None)
    deleted = set(state.get("deleted") or ())
    live = set(range(max(state["first_seq"], 1), state["last_seq"] + 1)) - deleted
    messages = [document(peer, "STREAM.MSG.GET.S", {"seq": seq})["message"] for seq in sorted(live)]
    return {"state": state, "consumer": consumer, "messages": messages}


@pytest.mark.slow
@pytest.mark.parametrize(("storage", "other"), [("file", "memory"), ("memory", "file")])
@settings(max_examples=20)
@given(config=limits, history=steps)
def test_a_backup_gives_the_same_stream(
    storage: str, other: str, config: dict[str, Any], history: list[tuple[str, int, int]]
) -> None:
    server = InProcessServer(disk=SimulatedDisk())
    peer = BackupPeer(server)
    peer.create("S", storage=storage, **config)
    consumer = {"durable_name": "c", "ack_policy": "explicit"}
    document(peer, "CONSUMER.CREATE.S.c", {"stream_name": "S", "config": consumer})
    for step in history:
        run(peer, *step)
    before, data = truth(peer), peer.backup("S", chunk_size=1024, window_size=2048)
    for target in (storage, other):
        document(peer, "STREAM.DELETE.S")
        # What counts as bytes differs between storages, so the other one has no such limit.
        wanted = {**config, "max_bytes": -1} if target != storage else config
        answer = peer.upload(peer.begin_restore("S", storage=target, **wanted), data, 700)
        assert "error" not in answer, answer
        assert truth(peer) == before
