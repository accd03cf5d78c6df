"""The byte-level grammar: verbs, white space, line ends, and bytes that belong to no operation."""

from __future__ import annotations

import pytest

from harness import Connect

UNKNOWN = b"-ERR 'Unknown Protocol Operation'\r\n"

TOLERATED = {
    "lower-case": ("ping\r\n", "PONG\r\n"),
    "mixed-case": ("pInG\r\n", "PONG\r\n"),
    "line-feed-only": ("PING\nPING\n", "PONG\r\nPONG\r\n"),
    "ping-trailing-space": ("PING \r\n", "PONG\r\n"),
    "ping-with-words": ("PING foo bar\r\n", "PONG\r\n"),
    "ping-with-glued-letters": ("PINGX\r\n", "PONG\r\n"),
    "ping-with-very-long-tail": ("PING" + "x" * 100_000 + "\r\n", "PONG\r\n"),
    "pong": ("PONG\r\n", ""),
    "pong-with-words": ("PONG foo\r\n", ""),
    "ok-from-client": ("+OK\r\n", ""),
    "ok-in-lower-case": ("+ok\r\n", ""),
    "info-from-client": ('INFO {"a":1}\r\n', ""),
    "sub-lower-case": ("sub a 1\r\npub a 1\r\nx\r\nunsub 1\r\n", "MSG a 1 1\r\nx\r\n"),
    "hpub-mixed-case": (
        "Sub a 1\r\nhPub a 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
        "HMSG a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    ),
    "pub-tabs": ("SUB\ta\t1\r\nPUB\ta\tb\t1\r\nx\r\n", "MSG a 1 b 1\r\nx\r\n"),
    "pub-many-spaces": ("SUB   a  \t 1 \t\r\nPUB \t a \t 1  \r\nx\r\n", "MSG a 1 1\r\nx\r\n"),
    "hpub-many-spaces": (
        "SUB a 1\r\nHPUB  a\tr  12 \t13 \r\nNATS/1.0\r\n\r\nx\r\n",
        "HMSG a 1 r 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
    ),
    "unsub-many-spaces": ("SUB a 1\r\nUNSUB \t 1 \t 5 \r\nPUB a 0\r\n\r\n", "MSG a 1 0\r\n\r\n"),
    "all-line-feeds": ("SUB a 1\nPUB a 1\nx\r\nUNSUB 1\n", "MSG a 1 1\r\nx\r\n"),
    "carriage-return-separates-sub-words": ("SUB a\r1\r\nPUB a 0\r\n\r\n", "MSG a 1 0\r\n\r\n"),
}

# Each is refused when its last byte arrives: none of them ends a line.
REFUSED_BEFORE_THE_LINE_ENDS = [
    "X", "\x00", "\xff", " ", "\t", "1", "PX", "PIX", "PINX", "POX", "PONX", "PUX", "PUBX", "HX",
    "HPX", "HPUX", "HPUBX", "SX", "SUX", "SUBX", "UX", "UN1", "UNSX", "UNSUX", "UNSUBX", "CX",
    "COX", "CONX", "CONNX", "CONNEX", "CONNECX", "+X", "+OX", "-X", "-EX", "-ERX", "IX", "INX",
    "INFX", "MSG", "RS+", "LS+", "A+", "GET", "{",
]  # fmt: skip

REFUSED_LINES = [
    "\r\n",
    "\n",
    " PING\r\n",
    "\tPING\r\n",
    "PIN\r\n",
    "PI NG\r\n",
    "P\r\n",
    "PUB\r\n",
    "PUB\n",
    "SUB\r\n",
    "UNSUB\r\n",
    "HPUB\r\n",
    "PUBfoo 2\r\n",
    "SUBfoo 1\r\n",
    "UNSUB1\r\n",
    "HMSG foo 1 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    "-ERR\r\n",
    "+O\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]

CLOSED_WITHOUT_A_WORD = ["-ERR foo\r\n", "-ERR 'x'\r\n", "INFO\r\n", "INFO []\r\n", "INFO nope\r\n"]


@pytest.mark.parametrize(("data", "answer"), TOLERATED.values(), ids=TOLERATED)
def test_tolerated_spelling(wire: Connect, data: str, answer: str) -> None:
    client = wire()
    client.send(data + "PING\r\n")
    client.expect_bytes(answer + "PONG\r\n")


@pytest.mark.parametrize("data", REFUSED_BEFORE_THE_LINE_ENDS, ids=ascii)
def test_unknown_byte_is_refused_before_the_line_ends(wire: Connect, data: str) -> None:
    client = wire()
    client.send(data.encode("latin-1"))
    client.expect_closed(UNKNOWN)


@pytest.mark.parametrize("data", REFUSED_LINES, ids=ascii)
def test_unknown_line_is_refused(wire: Connect, data: str) -> None:
    client = wire()
    client.send(data.encode("latin-1"))
    client.expect_closed(UNKNOWN)


@pytest.mark.parametrize("data", CLOSED_WITHOUT_A_WORD, ids=ascii)
def test_server_line_from_a_client_closes_without_a_word(wire: Connect, data: str) -> None:
    client = wire()
    client.send(data)
    client.expect_closed()


def test_unknown_verb_as_the_very_first_bytes_is_refused(raw: Connect) -> None:
    client = raw()
    client.send("HELO example.org\r\n")
    client.expect_closed(UNKNOWN)


def test_answers_before_the_bad_byte_are_still_sent(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"PING\r\nSUB {subject} 1\r\nPUB {subject} 2\r\nhi\r\nX")
    client.expect_closed(f"PONG\r\nMSG {subject} 1 2\r\nhi\r\n".encode() + UNKNOWN)


def test_nothing_after_the_bad_byte_is_processed(wire: Connect, subject: str) -> None:
    watcher = wire()
    watcher.send(f"SUB {subject} 1\r\n")
    watcher.ping()
    client = wire()
    client.send(f"PUB {subject} 1\r\na\r\nX\r\nPUB {subject} 1\r\nb\r\n")
    client.expect_closed(UNKNOWN)
    watcher.send("PING\r\n")
    watcher.expect_bytes(f"MSG {subject} 1 1\r\na\r\nPONG\r\n")


PAYLOAD_ENDS = {
    "one-byte-too-many": "PUB a 2\r\nhix",
    "line-feed-only": "PUB a 2\r\nhi\n",
    "carriage-return-only": "PUB a 2\r\nhi\rX",
    "next-verb-at-once": "PUB a 0\r\nPING\r\n",
    "empty-payload-line-feed": "PUB a 0\r\n\n",
    "header-block-too-long": "HPUB a 12 14\r\nNATS/1.0\r\n\r\nhix",
}


@pytest.mark.parametrize("data", PAYLOAD_ENDS.values(), ids=PAYLOAD_ENDS)
def test_payload_must_be_followed_by_crlf(wire: Connect, data: str) -> None:
    client = wire()
    client.send(data)
    client.expect_closed(UNKNOWN)


def test_half_closed_client_still_gets_its_answers(wire: Connect, subject: str) -> None:
    client = wire()
    client.send(f"SUB {subject} 1\r\nPUB {subject} 2\r\nhi\r\nPING\r\n")
    client.socket.shutdown(1)
    client.expect_closed(f"MSG {subject} 1 2\r\nhi\r\nPONG\r\n")


def test_connection_ending_inside_a_payload_delivers_nothing(wire: Connect, subject: str) -> None:
    watcher = wire()
    watcher.send(f"SUB {subject} 1\r\n")
    watcher.ping()
    client = wire()
    client.send(f"PUB {subject} 5\r\nhi")
    client.socket.shutdown(1)
    client.expect_closed()
    watcher.ping()
