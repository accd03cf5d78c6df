"""Requests of strangers and users that once kept everybody waiting, each asked of both servers.

Owns what `bystander` does beside the heavy requests of `bystander_kinds`: here little is asked, and
it is the form of it that was expensive. The sizes are those of the attacks; a server that stands
answers or refuses each within milliseconds, so `act` waits for the answer only for a while.
"""

import contextlib
import io
import itertools
import json
import socket
import ssl
import tarfile
from collections.abc import Callable

from benchmarks.bystander_kinds import HTTP, READ_BYTES, STREAM, Kind, Stage, nothing, round_trip
from benchmarks.stream_workloads import consumer_request, create_stream

SECURE = HTTP + (
    'tls { cert_file: "{folder}/ec.pem", key_file: "{folder}/ec.key" }\nallow_non_tls: true\n'
)
WEBSOCKET = HTTP + 'websocket { listen: "127.0.0.1:{websocket_port}", no_tls: true }\n'
ANSWER_S_MAX = 30.0
INBOX = b"_INBOX.hostile"
TARGET_BYTES = 60_000
TRANSFORM_BYTES = 100_000
PAX_BYTES = 100_000
SUBJECTS = 20_000
PATTERN_WILDCARDS = 13
# More tokens would go beyond the line of a protocol message, 4 KB, or beyond our default limit; the
# patterns part at each of so many of them.
LONG, MANY = (2_000, 11), (254, 13)
LONG_PUBLISHES = 32
HELLOS = 2_000


def ask(stage: Stage, subject: bytes, body: bytes, end: bytes = b"MSG " + INBOX) -> bytes:
    """Send one request as it is and wait for something like its answer, but not for ever."""
    peer = stage.connect()
    peer.settimeout(ANSWER_S_MAX)
    peer.sendall(b"SUB %b 9\r\nPUB %b %b %d\r\n%b\r\n" % (INBOX, subject, INBOX, len(body), body))
    received = b""
    with contextlib.suppress(TimeoutError):
        while end not in received:
            data = peer.recv(READ_BYTES)
            if not data:
                break
            received += data
    return received


def long_target(stage: Stage) -> None:
    """A WebSocket handshake whose target is very long, by somebody who has not logged in."""
    address = (stage.server.host, stage.server.websocket_port)
    with socket.create_connection(address, ANSWER_S_MAX) as peer:
        peer.sendall(b"GET /" + b"a" * TARGET_BYTES + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        with contextlib.suppress(OSError):
            while peer.recv(READ_BYTES):
                pass


def hellos(stage: Stage) -> None:
    """Strangers that all begin a TLS handshake at once, and leave when they are answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    hello = outgoing.read()
    address = (stage.server.host, stage.server.port)
    with contextlib.ExitStack() as stack:
        peers = []
        for _ in range(stage.count(HELLOS)):
            peer = stack.enter_context(socket.create_connection(address, ANSWER_S_MAX))
            peer.sendall(hello)
            peers.append(peer)
        for peer in peers:
            received = b""
            while b"\x16\x03" not in received:  # behind INFO, the server's hello
                data = peer.recv(READ_BYTES)
                if not data:
                    break
                received += data


def pax_archive() -> bytes:
    """An archive whose extended header is nothing but digits, compressed to a few bytes."""
    from tradewind.store.format.s2 import compress

    text = b"1" * PAX_BYTES
    archive = io.BytesIO()
    header = tarfile.TarInfo("meta.inf")
    header.type = tarfile.XHDTYPE
    header.size = len(text)
    archive.write(header.tobuf(tarfile.USTAR_FORMAT))
    archive.write(text + bytes(-len(text) % tarfile.BLOCKSIZE))
    archive.write(tarfile.TarInfo("meta.inf").tobuf(tarfile.USTAR_FORMAT) + bytes(1024))
    return bytes(compress(archive.getvalue()))


def restore(stage: Stage) -> None:
    """A backup in the old form whose archive is hostile."""
    config = {"name": "R", "subjects": ["r"], "storage": "file", "retention": "limits"}
    state = {"messages": 1, "bytes": 1, "first_seq": 1, "last_seq": 1, "consumer_count": 0}
    opened = stage.api.request("STREAM.RESTORE.R", {"config": config, "state": state})
    place = opened["deliver_subject"].encode()
    ask(stage, place, pax_archive())
    ask(stage, place, b"")


def transform(stage: Stage) -> None:
    """A stream whose transform opens functions and never closes them."""
    destination = "{{wildcard(" * (TRANSFORM_BYTES // len("{{wildcard(")) + "}}"
    config = {
        "name": "T",
        "subjects": ["t.*"],
        "subject_transform": {"src": "t.*", "dest": destination},
    }
    ask(stage, b"$JS.API.STREAM.CREATE.T", json.dumps(config).encode())


def dotted(tokens: tuple[int, ...]) -> bytes:
    """Tokens of one byte each as a subject."""
    return b".".join(bytes([token]) for token in tokens)


def subjects_20k(stage: Stage) -> None:
    create_stream(stage.api, subjects=["m.>"], allow_direct=True)
    peer = stage.connect()
    prefix = b"m" + b".a" * PATTERN_WILDCARDS
    for number in range(stage.count(SUBJECTS)):
        peer.sendall(b"PUB %b.%d 1\r\nx\r\n" % (prefix, number))
    round_trip(peer)


def every_pattern(stage: Stage) -> None:
    """Direct get with 8,192 patterns, all of which only the last token keeps from a subject."""
    patterns = [
        b"m.%b.x" % dotted(one) for one in itertools.product(b"a*", repeat=PATTERN_WILDCARDS)
    ]
    body = {"multi_last": [pattern.decode() for pattern in patterns], "batch": 10}
    ask(stage, f"$JS.API.DIRECT.GET.{STREAM}".encode(), json.dumps(body).encode())


def odd(size: int) -> bytes:
    """A document of many values with one that does not fit, which has to be looked at closely."""
    value = b"1" if size < 200_000 else b'"aaaaaaaaaaaa"'
    return b'{"x":[' + b",".join([value] * (size // (len(value) + 1))) + b'],"batch":"x"}'


def consumer(stage: Stage) -> None:
    stage.store(1, allow_direct=True)
    stage.api.request(*consumer_request("C", durable_name="C"))


def odd_pulls(stage: Stage) -> None:
    for size in (198_000, 979_000):
        ask(stage, f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.C".encode(), odd(size))


def odd_direct_gets(stage: Stage) -> None:
    for size in (198_000, 979_000):
        ask(stage, f"$JS.API.DIRECT.GET.{STREAM}".encode(), odd(size))


def subscribed(tokens: int, parting: int) -> Callable[[Stage], None]:
    """Have patterns of so many tokens that part at each of the first ones."""

    def prepare(stage: Stage) -> None:
        rest = b".a.*" * ((tokens - parting) // 2)
        for number, one in enumerate(itertools.product(b"a*", repeat=parting)):
            stage.peer.sendall(b"SUB %b%b %d\r\n" % (dotted(one), rest, number))
        round_trip(stage.peer)

    return prepare


def published(tokens: int, parting: int) -> Callable[[Stage], None]:
    """Messages that only their end keeps from all those patterns, sent at once."""

    def act(stage: Stage) -> None:
        count = parting + (tokens - parting) // 2 * 2
        lines = (
            b"PUB %b.b%d.a 0\r\n\r\n" % (b".".join([b"a"] * (count - 2)), number)
            for number in range(LONG_PUBLISHES)
        )
        stage.peer.sendall(b"".join(lines))
        round_trip(stage.peer)

    return act


HOSTILE = (
    Kind(
        "hostile-target",
        "a WebSocket handshake for a target of 60,000 bytes",
        nothing,
        long_target,
        WEBSOCKET,
    ),
    Kind("hostile-hellos", "2,000 TLS hellos of strangers at once", nothing, hellos, SECURE),
    Kind("hostile-restore", "an archive with a header of digits", nothing, restore),
    Kind("hostile-transform", "a transform of 100 KB", nothing, transform),
    Kind("hostile-patterns", "8,192 patterns on 20,000 subjects", subjects_20k, every_pattern),
    Kind("hostile-pulls", "odd pull requests of 198 and 979 KB", consumer, odd_pulls),
    Kind("hostile-gets", "odd direct gets of 198 and 979 KB", consumer, odd_direct_gets),
    Kind(
        "hostile-subjects",
        "messages beside 2,048 subscriptions, all of 2,000 tokens",
        subscribed(*LONG),
        published(*LONG),
    ),
    Kind(
        "hostile-subjects-255",
        "messages beside 8,192 subscriptions, all of 253 tokens",
        subscribed(*MANY),
        published(*MANY),
    ),
)
