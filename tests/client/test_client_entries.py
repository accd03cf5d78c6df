"""Entries and acknowledgements from bytes: what servers send, and what they never should."""

from __future__ import annotations

import json
import re

import pytest
from client_probe import Probe
from hypothesis import given
from hypothesis import strategies as st

from tradewind.client.core.message import Msg
from tradewind.client.errors import BadAnswerError, BadKeyError
from tradewind.client.kv.entries import (
    Entry,
    ack_sequence,
    check_key,
    entry_from_delivery,
    entry_from_direct,
)
from tradewind.client.kv.kv_types import Operation

TIME = "2026-11-16T01:02:03.000000004Z"
TIME_NS = 1794790923_000000004
OWN = (
    f"Nats-Stream: KV_b\r\nNats-Subject: $KV.b.k.1\r\nNats-Sequence: 17\r\nNats-Time-Stamp: {TIME}"
)
PREFIX_SIZE = len("$KV.b.")


def message(fields: str, data: bytes = b"value", subject: str = "s", reply: str = "") -> Msg:
    """A message as the parser makes it."""
    probe = Probe()
    queue = probe.add()
    block = f"NATS/1.0\r\n{fields}\r\n\r\n".encode() if fields else b""
    names = f"{subject} {queue.sid} {reply}".strip()
    sizes = f"{len(block)} {len(block) + len(data)}" if block else f"{len(data)}"
    probe.wire.feed(
        f"{'HMSG' if block else 'MSG'} {names} {sizes}\r\n".encode() + block + data + b"\r\n"
    )
    found = queue.take()
    assert found is not None
    return found


def test_direct_get_gives_an_entry() -> None:
    entry = entry_from_direct("b", "k.1", PREFIX_SIZE, message(OWN))
    assert entry is not None
    assert (entry.bucket, entry.key, entry.value, entry.revision) == ("b", "k.1", b"value", 17)
    assert (entry.created_ns, entry.operation, entry.delta, entry.size) == (TIME_NS, "PUT", 0, 5)
    assert entry.created.isoformat() == "2026-11-16T01:02:03+00:00"
    assert entry == Entry("b", "k.1", b"value", 17, TIME_NS)
    assert hash(entry) == hash(Entry("b", "k.1", b"value", 17, TIME_NS))
    assert entry != Entry("b", "k.1", b"value", 18, TIME_NS)
    assert entry != "entry"
    assert repr(entry) == f"Entry('b', 'k.1', PUT, 5 bytes, revision=17, created={TIME})"


def test_stored_headers_cannot_pose_as_those_of_the_server() -> None:
    stored = "Nats-Sequence: 99\r\nNats-Subject: $KV.b.other\r\nNats-Time-Stamp: never\r\nX: 1"
    entry = entry_from_direct("b", "k.1", PREFIX_SIZE, message(f"{stored}\r\n{OWN}"))
    assert entry is not None
    assert (entry.key, entry.revision, entry.created_ns) == ("k.1", 17, TIME_NS)


@pytest.mark.parametrize("key", ["k.2", "k", "k.11", "1", "", "k.1.$KV.b.k.1"])
def test_an_answer_about_another_key_is_none(key: str) -> None:
    assert entry_from_direct("b", key, PREFIX_SIZE, message(OWN)) is None


@pytest.mark.parametrize(
    ("field", "operation"),
    [
        ("KV-Operation: DEL", Operation.DELETE),
        ("KV-Operation: PURGE", Operation.PURGE),
        ("KV-Operation: PUT", Operation.PUT),
        ("Nats-Marker-Reason: MaxAge", Operation.EXPIRED),
        ("Nats-Marker-Reason: Purge", Operation.PURGE),
        ("Nats-Marker-Reason: Remove", Operation.DELETE),
        ("Nats-Marker-Reason: Unheard-Of", Operation.PURGE),
        ("Note: KV-Operation", Operation.PUT),
    ],
)
def test_markers_are_known_by_their_headers(field: str, operation: Operation) -> None:
    direct = entry_from_direct("b", "k.1", PREFIX_SIZE, message(f"{field}\r\n{OWN}", b""))
    reply = "$JS.ACK.KV_b.c.1.17.4.1794790923000000004.3"
    delivered = entry_from_delivery(
        "b", PREFIX_SIZE, message(field, b"", subject="$KV.b.k.1", reply=reply)
    )
    assert direct is not None
    for entry in (direct, delivered):
        assert (entry.operation, entry.key, entry.revision) == (operation, "k.1", 17)
        assert entry.is_deleted == (operation is not Operation.PUT)
        assert entry.created_ns == TIME_NS
    assert delivered.delta == 3


def test_delivery_without_a_value_tells_its_size() -> None:
    reply = "$JS.ACK.KV_b.c.1.17.4.1794790923000000004.0"
    found = message("Nats-Msg-Size: 1234", b"", subject="$KV.b.k", reply=reply)
    assert entry_from_delivery("b", PREFIX_SIZE, found).size == 1234


@pytest.mark.parametrize(
    "fields",
    ["", "Nats-Stream: KV_b", OWN.replace("17", "x"), OWN.replace("Nats-Subject", "Subject")],
)
def test_answers_that_lack_something_are_refused(fields: str) -> None:
    with pytest.raises(BadAnswerError, match="direct get"):
        entry_from_direct("b", "k.1", PREFIX_SIZE, message(fields))


@given(st.integers(1, 2**63), st.sampled_from(["", '"domain":"hub",']), st.sampled_from(["", " "]))
def test_sequence_of_an_acknowledgement(sequence: int, domain: str, blank: str) -> None:
    text = f'{{"stream":"KV_b",{domain}{blank}"seq":{blank}{sequence}}}'
    assert json.loads(text)["seq"] == ack_sequence(text.encode()) == sequence


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b'{"stream":"S"}',
        b'{"stream":"S","seq":}',
        b'{"stream":"S","seq":0}',
        b'{"stream":"S","seq":-1}',
        b'{"stream":"S","seq":1.5}',
        b'{"stream":"S","seq":7',
        b'{"stream":"S","seq":7,"duplicate": true}',
        b'{"error":{"code":400},"stream":"S","seq":7}',
        b'{"stream":"' + b"S" * 256 + b'","seq":7}',
    ],
)
def test_what_is_no_plain_acknowledgement_is_left_to_the_decoder(answer: bytes) -> None:
    assert ack_sequence(answer) == -1


@given(st.text(alphabet="ab.-/_=*> \u00e4\r", max_size=8))
def test_keys_are_parts_joined_by_single_dots(key: str) -> None:
    if re.fullmatch(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*", key):
        check_key(key)
    else:
        with pytest.raises(BadKeyError):
            check_key(key)
