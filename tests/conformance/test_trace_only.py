"""Messages that are only to be traced: they reach no subscriber, stream or service.

Nobody listens to the traces here; what they tell is in test_message_tracing.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.helpers_consumer import Peer
from conformance.helpers_js import ApiClient
from harness import RawClient, ServerProcess, StartServer

DEST = "Nats-Trace-Dest: traces\r\n"
ONLY = "Nats-Trace-Only: true\r\n"
TRACED = f"NATS/1.0\r\n{DEST}{ONLY}\r\n"
NOBODY = b"NATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n"


def send(raw: RawClient, subject: str, header: str, reply: str = "inbox", body: str = "p") -> None:
    size = len(header)
    raw.send(f"HPUB {subject} {reply} {size} {size + len(body)}\r\n{header}{body}\r\n")


@pytest.fixture
def peer(js_server: ServerProcess, js: ApiClient) -> Iterator[Peer]:
    """Listens to `heard` and `inbox`; stream S takes all that is below `s`."""
    peer = Peer(js_server, js)
    peer.subscribe("inbox")
    peer.subscribe("heard", "heard")
    peer.stream()
    yield peer
    peer.raw.close()


def stored(peer: Peer) -> int:
    return int(peer.js.done("STREAM.INFO.S")["state"]["messages"])


# What the lines of a header say, and what becomes of the message: "reaches" everybody, is "traced"
# only (nobody gets it, and who asks is told if nobody would have got it), or is "dropped".
HEADERS = {
    "only, without a destination": (ONLY, "reaches"),
    "only a destination": (DEST, "reaches"),
    "both": (DEST + ONLY, "traced"),
    "both, the other way round": (ONLY + DEST, "traced"),
    "1": (DEST + "Nats-Trace-Only: 1\r\n", "traced"),
    "on": (DEST + "Nats-Trace-Only: oN\r\n", "traced"),
    "any case": (DEST + "Nats-Trace-Only: tRuE\r\n", "traced"),
    "blanks": ("Nats-Trace-Dest:\t traces \r\nNats-Trace-Only: \ttrue\t \r\n", "traced"),
    "no blank": ("Nats-Trace-Dest:traces\r\nNats-Trace-Only:true\r\n", "traced"),
    "yes": (DEST + "Nats-Trace-Only: yes\r\n", "reaches"),
    "0": (DEST + "Nats-Trace-Only: 0\r\n", "reaches"),
    "10": (DEST + "Nats-Trace-Only: 10\r\n", "reaches"),
    "empty": (DEST + "Nats-Trace-Only: \r\n", "reaches"),
    "another case of a name": (DEST + "nats-trace-only: true\r\n", "reaches"),
    "another case of the destination": ("nats-trace-dest: traces\r\n" + ONLY, "reaches"),
    "an empty destination": ("Nats-Trace-Dest: \r\n" + ONLY, "reaches"),
    "an empty destination first": ("Nats-Trace-Dest:\r\n" + DEST + ONLY, "traced"),
    "switched off": ("Nats-Trace-Dest: trace disabled\r\n" + DEST + ONLY, "reaches"),
    "switched off later": (DEST + "Nats-Trace-Dest: trace disabled\r\n" + ONLY, "traced"),
    "the first value is true": (DEST + ONLY + "Nats-Trace-Only: false\r\n", "traced"),
    "the first value is false": (DEST + "Nats-Trace-Only: false\r\n" + ONLY, "reaches"),
    "a destination with a wildcard": ("Nats-Trace-Dest: a.*\r\n" + ONLY, "dropped"),
    "a destination with a blank": ("Nats-Trace-Dest: a b\r\n" + ONLY, "dropped"),
    "a wildcard, not only": ("Nats-Trace-Dest: a.*\r\n", "reaches"),
    "an origin": ("Nats-Trace-Origin-Account: Z\r\n" + DEST + ONLY, "dropped"),
    "an origin alone": ("Nats-Trace-Origin-Account: Z\r\n" + ONLY, "reaches"),
    "a hop": ("Nats-Trace-Hop: 1\r\n" + DEST + ONLY, "traced"),
    "a line without colon": ("junk\r\n" + DEST + ONLY, "reaches"),
    "a line without colon between": (DEST + "junk\r\n" + ONLY, "reaches"),
    "a line without colon behind": (DEST + ONLY + "junk\r\n", "traced"),
    "a colon alone": (":\r\n" + DEST + ONLY, "traced"),
    "an empty value": ("A:\r\n" + DEST + ONLY, "traced"),
    "a continued line": (DEST + " more\r\n" + ONLY, "reaches"),
    "a blank in front of the colon": ("Nats-Trace-Dest : traces\r\n" + ONLY, "reaches"),
    "an empty line between": (DEST + "\r\n" + ONLY, "reaches"),
    "the name in a value": ("A: Nats-Trace-Dest: traces\r\n" + ONLY, "reaches"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_what_makes_a_message_trace_only(peer: Peer, name: str) -> None:
    lines, outcome = HEADERS[name]
    for subject in ("heard", "s.a", "nobody"):
        send(peer.raw, subject, f"NATS/1.0\r\n{lines}\r\n")
    expected = {
        "reaches": {"heard", '{"stream":"S","seq":1}', NOBODY.decode()},
        "traced": {NOBODY.decode()},
        "dropped": set(),
    }[outcome]
    came = {_told(peer) for _ in expected}
    assert came == expected
    assert peer.nothing_came()
    assert stored(peer) == (1 if outcome == "reaches" else 0)


def _told(peer: Peer) -> str:
    frame = peer.next()
    if frame.sid == "heard":
        return "heard"
    return (frame.header if frame.status else frame.payload).decode()


@pytest.mark.parametrize(
    ("header", "reaches"),
    [
        (f"NATS/1.0 100 x\r\n{DEST}{ONLY}\r\n", True),
        (f"NATS/2.0\r\n{DEST}{ONLY}\r\n", True),
        (f"NATS/1.0\n{DEST}{ONLY}\r\n", True),
        (f"NATS/1.0\r\n{DEST}{ONLY}", False),
        (f"NATS/1.0\r\n{DEST}{ONLY}".removesuffix("\r\n"), True),
        (TRACED.replace("\r\n", "\n") + "\r\n\r\n", True),
        ("NATS/1.0\r\n\r\n", True),
    ],
)
def test_headers_that_are_not_quite_headers(peer: Peer, header: str, reaches: bool) -> None:
    send(peer.raw, "heard", header)
    if reaches:
        assert peer.next().subject == "heard"
    assert peer.nothing_came()


def test_a_message_that_is_only_traced_counts_as_received(peer: Peer) -> None:
    peer.raw.send("SUB group workers 5\r\nSUB once 6\r\nUNSUB 6 1\r\n")
    for subject in ("heard", "group", "once", "s.a"):
        send(peer.raw, subject, TRACED)
    assert peer.nothing_came()
    # It does not use up what a subscription may still get.
    peer.publish("once", b"now")
    assert (peer.next().payload, stored(peer)) == (b"now", 0)


def test_one_who_hears_no_echo_is_no_receiver(js_server: ServerProcess, js: ApiClient) -> None:
    with RawClient(js_server.port).connect(no_responders=True, echo=False) as raw:
        raw.send("SUB alone 1\r\nSUB inbox 2\r\n")
        send(raw, "alone", TRACED)
        assert raw.read_message()[1] == b"NATS/1.0 503\r\nNats-Subject: alone\r\n\r\n"


def test_nothing_is_republished(peer: Peer) -> None:
    republish = {"src": ">", "dest": "again.>"}
    stream = {"name": "R", "subjects": ["r"], "storage": "memory", "republish": republish}
    peer.js.done("STREAM.CREATE.R", stream)
    peer.subscribe("again.>", "again")
    send(peer.raw, "r", TRACED)
    assert peer.nothing_came()
    peer.publish("r", b"now")
    assert peer.next().subject == "again.r"


@pytest.mark.parametrize(
    "subject",
    ["$JS.API.STREAM.PURGE.S", "$JS.API.STREAM.DELETE.S", "$JS.API.NOPE", "$SYS.REQ.USER.INFO"],
)
def test_services_of_the_server_are_not_asked(peer: Peer, subject: str) -> None:
    peer.store("a")
    send(peer.raw, subject, TRACED, body="")
    assert peer.next().header == f"NATS/1.0 503\r\nNats-Subject: {subject}\r\n\r\n".encode()
    assert peer.nothing_came()
    assert stored(peer) == 1


def test_consumers_and_direct_gets_answer_all_the_same(peer: Peer) -> None:
    """As nats-server does."""
    peer.js.done(
        "STREAM.CREATE.D",
        {"name": "D", "subjects": ["d"], "storage": "memory", "allow_direct": True},
    )
    peer.publish("d", b"x", "inbox")
    peer.next()
    peer.store("a")
    peer.consumer()
    send(peer.raw, "$JS.API.CONSUMER.MSG.NEXT.S.C", TRACED, body="1")
    frame = peer.next()
    assert frame.subject == "s.a"
    send(peer.raw, frame.reply, TRACED, body="")
    assert peer.next().payload == b""
    assert peer.info()["ack_floor"]["stream_seq"] == 1
    send(peer.raw, "$JS.API.DIRECT.GET.D", TRACED, body='{"seq":1}')
    assert peer.next().payload == b"x"


def test_2026_15_who_may_not_publish_to_the_destination_may_not_trace(start: StartServer) -> None:
    server = start(
        """
        authorization { users: [
          { user: u, password: p, permissions: { publish: { deny: ["traces", "denied"] } } }
        ] }
        """
    )
    login = {"user": "u", "pass": "p", "no_responders": True}
    with RawClient(server.port).connect(**login) as raw:
        raw.send("SUB heard 1\r\nSUB inbox 2\r\n")
        violation = "-ERR 'Permissions Violation for Publish to \"{}\"'"
        send(raw, "heard", TRACED)
        raw.expect(violation.format("traces"))
        send(raw, "heard", f"NATS/1.0\r\n{DEST}\r\n")
        raw.expect(violation.format("traces"))
        send(raw, "denied", TRACED)
        raw.expect(violation.format("traces"))
        send(raw, "denied", TRACED.replace("traces", "elsewhere"))
        raw.expect(violation.format("denied"))
        send(raw, "heard", TRACED.replace("traces", "elsewhere"))
        raw.ping()


def test_an_ok_is_for_messages_that_are_not_dropped(start: StartServer) -> None:
    server = start()
    with RawClient(server.port) as raw:
        raw.send('CONNECT {"verbose":true,"headers":true}\r\nPING\r\n')
        raw.expect("+OK", "PONG")
        send(raw, "x", TRACED)
        send(raw, "x", TRACED.replace("traces", "a.*"))
        raw.send("PING\r\n")
        raw.expect("+OK", "PONG")
