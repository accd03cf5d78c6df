"""HPUB and HMSG: header bytes go through untouched, or are cut off for clients without headers."""

from __future__ import annotations

import pytest

from harness import Connect

EMPTY = b"NATS/1.0\r\n\r\n"
BLOCKS = {
    "empty": EMPTY,
    "one-key": b"NATS/1.0\r\nKey: value\r\n\r\n",
    "many-keys": b"NATS/1.0\r\n" + b"".join(b"K%d: v%d\r\n" % (n, n) for n in range(100)) + b"\r\n",
    "repeated-key": b"NATS/1.0\r\nA: 1\r\nA: 2\r\na: 3\r\n\r\n",
    "no-space": b"NATS/1.0\r\nA:b\r\nB:\r\n\r\n",
    "spaces": b"NATS/1.0\r\nA:   b  \r\n : \r\n\r\n",
    "status": b"NATS/1.0 503\r\n\r\n",
    "status-and-description": b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
    "unicode": "NATS/1.0\r\nSchlüssel: 漢字\r\n\r\n".encode(),
    "large": b"NATS/1.0\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
    "no-version": b"hello world!",
    "no-final-blank-line": b"NATS/1.0\r\nA: b\r\n",
    "binary": b"\x00\xff\r\n\r\nMSG x 1 0\r\n",
    "protocol-inside": b"NATS/1.0\r\nA: b\r\n\r\n\r\nPING\r\nPUB a 0\r\n\r\n",
    "one-byte": b"x",
}


def hpub(subject: str, headers: bytes, payload: bytes = b"", reply: str = "") -> bytes:
    sizes = f"{len(headers)} {len(headers) + len(payload)}"
    words = f"HPUB {subject} {reply} {sizes}\r\n" if reply else f"HPUB {subject} {sizes}\r\n"
    return words.encode() + headers + payload + b"\r\n"


def hmsg(subject: str, sid: str, headers: bytes, payload: bytes = b"", reply: str = "") -> bytes:
    sizes = f"{len(headers)} {len(headers) + len(payload)}"
    words = f"HMSG {subject} {sid} {reply} {sizes}" if reply else f"HMSG {subject} {sid} {sizes}"
    return words.encode() + b"\r\n" + headers + payload + b"\r\n"


@pytest.mark.parametrize("payload", [b"", b"hi", b"\r\n\x00\r\n"], ids=["none", "text", "binary"])
@pytest.mark.parametrize("reply", ["", "reply.to"])
@pytest.mark.parametrize("headers", BLOCKS.values(), ids=BLOCKS)
def test_header_block_goes_through_untouched(
    wire: Connect, subject: str, headers: bytes, reply: str, payload: bytes
) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\n".encode() + hpub(subject, headers, payload, reply))
    client.send("PING\r\n")
    client.expect_bytes(hmsg(subject, "1", headers, payload, reply) + b"PONG\r\n")


@pytest.mark.parametrize("payload", [b"", b"hi", b"\r\n\x00\r\n"], ids=["none", "text", "binary"])
@pytest.mark.parametrize("reply", ["", "reply.to"])
@pytest.mark.parametrize("headers", BLOCKS.values(), ids=BLOCKS)
def test_header_block_is_cut_off_for_a_client_without_headers(
    wire: Connect, subject: str, headers: bytes, reply: str, payload: bytes
) -> None:
    plain, publisher = wire(headers=False), wire()
    plain.send(f"SUB {subject} 1\r\n")
    plain.ping()
    publisher.send(hpub(subject, headers, payload, reply))
    words = (
        f"MSG {subject} 1 {reply} {len(payload)}" if reply else f"MSG {subject} 1 {len(payload)}"
    )
    plain.expect_bytes(words.encode() + b"\r\n" + payload + b"\r\n")
    plain.ping()


def test_telnet_client_gets_no_headers(raw: Connect, wire: Connect, subject: str) -> None:
    telnet, publisher = raw(), wire()
    telnet.send(f"SUB {subject} 1\r\n")
    telnet.expect_bytes("+OK\r\n")
    publisher.send(hpub(subject, EMPTY, b"hi"))
    telnet.expect_bytes(f"MSG {subject} 1 2\r\nhi\r\n")


@pytest.mark.parametrize("payload", ["", "hi"])
def test_hpub_with_an_empty_block_is_an_ordinary_message(
    wire: Connect, subject: str, payload: str
) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\nHPUB {subject} 0 {len(payload)}\r\n{payload}\r\nPING\r\n")
    client.expect_bytes(f"MSG {subject} 1 {len(payload)}\r\n{payload}\r\nPONG\r\n")


def test_pub_reaches_a_header_client_as_msg(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\nPUB {subject} 2\r\nhi\r\nPING\r\n")
    client.expect_bytes(f"MSG {subject} 1 2\r\nhi\r\nPONG\r\n")


def test_each_kind_of_client_gets_its_form_of_one_message(wire: Connect, subject: str) -> None:
    with_headers, without = [wire() for _ in range(3)], [wire(headers=False) for _ in range(3)]
    for client in with_headers + without:
        client.send(f"SUB {subject} 1\r\n")
        client.ping()
    wire().send(hpub(subject, BLOCKS["one-key"], b"hello", "r") * 2)
    for client in with_headers:
        client.expect_bytes(hmsg(subject, "1", BLOCKS["one-key"], b"hello", "r") * 2)
    for client in without:
        client.expect_bytes(f"MSG {subject} 1 r 5\r\nhello\r\n" * 2)


def test_headers_and_plain_messages_in_one_batch(wire: Connect, subject: str) -> None:
    client = wire()
    batch = wanted = b""
    for number in range(200):
        payload = b"p" * number
        if number % 2:
            batch += hpub(subject, BLOCKS["one-key"], payload)
            wanted += hmsg(subject, "1", BLOCKS["one-key"], payload)
        else:
            batch += f"PUB {subject} {number}\r\n".encode() + payload + b"\r\n"
            wanted += f"MSG {subject} 1 {number}\r\n".encode() + payload + b"\r\n"
    client.send(f"SUB {subject} 1\r\n".encode() + batch + b"PING\r\n")
    client.expect_bytes(wanted + b"PONG\r\n")


def test_queue_members_with_and_without_headers_get_their_own_form(
    wire: Connect, subject: str
) -> None:
    modern, plain, publisher = wire(), wire(headers=False), wire()
    for client in (modern, plain):
        client.send(f"SUB {subject} workers 1\r\n")
        client.ping()
    publisher.send(hpub(subject, EMPTY, b"hi") * 60)
    publisher.ping()
    got = {"HMSG": 0, "MSG": 0}
    for client, size in ((modern, 16), (plain, 4)):
        client.send("PING\r\n")
        while (line := client.read_line()) != b"PONG":
            assert len(client.read_exact(size)) == size
            got[line.split(b" ")[0].decode()] += 1
    assert got["HMSG"] + got["MSG"] == 60
    assert min(got.values()) > 0


def test_header_bytes_count_towards_max_payload(wire: Connect, subject: str) -> None:
    client = wire()
    payload = b"z" * (1048576 - len(EMPTY))
    client.send(f"SUB {subject} 1\r\n".encode() + hpub(subject, EMPTY, payload))
    client.expect_bytes(hmsg(subject, "1", EMPTY, payload))
    client.send(f"HPUB {subject} {len(EMPTY)} 1048577\r\n")
    client.expect_closed("-ERR 'Maximum Payload Violation'\r\n")
