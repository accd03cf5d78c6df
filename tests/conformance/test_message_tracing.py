"""Message tracing: who may have a trace, and what it tells of the way of a message.

Every event is compared field by field, on both servers; times and ids of connections are checked
for their form. Messages that are only traced are also in test_trace_only.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from helpers_ops import next_message, replies, shared_server
from helpers_sharing import Crowd, crowd
from helpers_tracing import DEST, ONLY, SAMPLED, Listener, plain, told, traced

from harness import RawClient

server = shared_server("""
server_name: here
max_payload: 1000
accounts {
  A {
    users: [
      {user: a, password: pw}
      {user: denied, password: pw, permissions: {
        publish: {deny: ["no.>"]}, subscribe: {deny: ["sd.x"]} }}
      {user: polite, password: pw, permissions: {publish: {allow: ["q"]}, allow_responses: true}}
    ]
    mappings: { "m.*": "mapped.$1", "m2": "no.mapped", "same": "same" }
    exports: [ {stream: "ex.>"}, {stream: "ey.>"} ]
    imports: [
      {service: {account: S, subject: "svc.t"}}
      {service: {account: S, subject: "svc.u"}, to: "my.u"}
      {service: {account: S, subject: "chain"}}
    ]
  }
  B {
    users: [ {user: b, password: pw} ]
    imports: [
      {stream: {account: A, subject: "ex.>"}, prefix: "p", allow_trace: true}
      {stream: {account: A, subject: "ey.>"}}
    ]
  }
  S {
    users: [ {user: s, password: pw} ]
    mappings: { "svc.t": "svc.mapped" }
    exports: [
      {service: "svc.t", allow_trace: true}, {service: "svc.u"}
      {service: "chain", allow_trace: true}
    ]
    imports: [ {service: {account: S2, subject: "last"}, to: "chain"} ]
  }
  S2 { users: [ {user: s2, password: pw} ], exports: [ {service: "last", allow_trace: true} ] }
  T { users: [ {user: t, password: pw} ], msg_trace: {dest: "acc.traces", sampling: 100} }
  ONE { users: [ {user: one, password: pw} ], trace_dest: "acc.traces" }
  RARE { users: [ {user: rare, password: pw} ], msg_trace: {dest: "acc.traces", sampling: "1%"} }
  BARE { users: [
    {user: bare, password: pw, permissions: {publish: {deny: ["acc.>"]}}}
    {user: other, password: pw}
  ], msg_trace: {dest: "acc.traces"} }
}
""")
__all__ = ["crowd"]

STAND_IN = re.compile(r"_R_\.[0-9A-Za-z]{6}\.[0-9A-Za-z]{6}")
NOT_DELIVERED = "Not delivered because "


@pytest.fixture
def traces(server: Any) -> Iterator[Listener]:
    listener = Listener(server, "a")
    yield listener
    listener.close()


def came(subject: str, account: str = "A", name: str = "", error: str = "") -> dict[str, Any]:
    """The event that every trace begins with."""
    return {
        "type": "in",
        "kind": 0,
        **({"name": name} if name else {}),
        "acc": account,
        "subj": subject,
        **({"error": error} if error else {}),
    }


def went(sub: str, **fields: Any) -> dict[str, Any]:
    """The event of a delivery to a client."""
    return {"type": "eg", "kind": 0, "sub": sub, **fields}


def block(client: RawClient) -> bytes:
    """The header of the next message."""
    return next_message(client)[1]


# ---------------------------------------------------------------------- one account


def test_a_trace_tells_of_the_server_the_message_and_its_way(
    crowd: Crowd, traces: Listener
) -> None:
    client = crowd.join("a", "heard", name="publisher")
    told(client, traced("heard", DEST, "A: 1", "b:x", "A: \t2 ", "Empty:", "Nats-Trace-Hop: 3"))
    document = traces.next()
    assert document.keys() == {"server", "request", "events", "encoding"}
    server = document["server"]
    assert (server["name"], server["ver"], server["jetstream"]) == ("here", "2.15.1", False)
    assert server.keys() == {
        "name", "host", "id", "ver", "feature_flags", "jetstream", "flags", "seq", "time",
    }  # fmt: skip
    header = {"Nats-Trace-Dest": ["traces"], "A": ["1", "2"], "b": ["x"], "Nats-Trace-Hop": ["3"]}
    assert document["request"]["header"] == header
    body = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\nA: 1\r\nb:x\r\nA: \t2 \r\nEmpty:\r\n"
    assert document["request"]["msgsize"] == len(body + b"Nats-Trace-Hop: 3\r\n\r\np")
    names = [event.pop("name") for event in document["events"]]
    assert names == ["publisher", "publisher"]
    assert [plain(event) for event in document["events"]] == [came("heard"), went("heard")]


@pytest.mark.parametrize("lines", [(DEST,), (DEST, ONLY)], ids=["delivered", "only"])
class TestWays:
    """What does not depend on whether the message is delivered."""

    def test_nobody(self, crowd: Crowd, traces: Listener, lines: tuple[str, ...]) -> None:
        told(crowd.join("a"), traced("nobody", *lines))
        assert traces.events() == [came("nobody")]

    def test_all_receivers(self, crowd: Crowd, traces: Listener, lines: tuple[str, ...]) -> None:
        crowd.join("a", "heard", "*")
        crowd.join("a", "heard workers", "heard workers", "heard others")
        told(crowd.join("a"), traced("heard", *lines))
        events = traces.events()
        assert events[0] == came("heard")
        assert sorted(map(json.dumps, events[1:])) == sorted(
            map(
                json.dumps,
                [
                    went("*"),
                    went("heard"),
                    went("heard", queue="others"),
                    went("heard", queue="workers"),
                ],
            )
        )

    def test_mapping(self, crowd: Crowd, traces: Listener, lines: tuple[str, ...]) -> None:
        client = crowd.join("a", "mapped.>", "same")
        told(client, traced("m.x", *lines))
        assert traces.events() == [
            came("m.x"),
            {"type": "sm", "to": "mapped.x"},
            went("mapped.>"),
        ]

    def test_no_echo(self, crowd: Crowd, traces: Listener, lines: tuple[str, ...]) -> None:
        client = crowd.join("a", "echo", "echo group", echo=False)
        told(client, traced("echo", *lines))
        error = NOT_DELIVERED + "of no echo"
        assert traces.events() == [
            came("echo"),
            went("echo", error=error),
            went("echo", queue="group", error=error),
        ]

    def test_denied_receiver(self, crowd: Crowd, traces: Listener, lines: tuple[str, ...]) -> None:
        crowd.join("denied", "sd.*")
        told(crowd.join("a"), traced("sd.x", *lines))
        error = NOT_DELIVERED + "subscription denies this subject"
        assert traces.events() == [came("sd.x"), went("sd.*", error=error)]

    @pytest.mark.parametrize(
        ("user", "subject", "mapped", "reply"),
        [
            ("denied", "no.x", "", ""),
            ("denied", "m2", "no.mapped", ""),
            ("a", "heard", "", "$JS.ACK.x.y"),
            ("a", "heard", "", "_R_.x.y"),
            ("a", "$NRG.xx", "", ""),
            ("a", "_GR_.xx", "", ""),
        ],
    )
    def test_refused_publish(
        self,
        crowd: Crowd,
        traces: Listener,
        lines: tuple[str, ...],
        user: str,
        subject: str,
        mapped: str,
        reply: str,
    ) -> None:
        crowd.join("a", "heard")
        error = f'Permissions Violation for Publish to "{mapped or subject}"'
        if reply:
            error = f'Permissions Violation for Publish with Reply of "{reply}"'
        found = told(crowd.join(user), traced(subject, *lines, reply=reply))
        assert found == [f"-ERR '{error}'".encode()]
        ways = [{"type": "sm", "to": mapped}] if mapped else []
        assert traces.events() == [came(subject, error=error), *ways]

    @pytest.mark.parametrize("destination", ["no.dest", "$NRG.x", "_GR_.x"])
    def test_refused_destination(
        self, crowd: Crowd, traces: Listener, lines: tuple[str, ...], destination: str
    ) -> None:
        crowd.join("a", "heard")
        header = [line.replace("traces", destination) for line in lines]
        found = told(crowd.join("denied"), traced("heard", *header))
        assert found == [f"-ERR 'Permissions Violation for Publish to \"{destination}\"'".encode()]
        assert traces.nothing_came()


def test_what_a_client_may_answer_is_no_destination(crowd: Crowd) -> None:
    polite = crowd.join("polite", "ask")
    told(crowd.join("a"), b"PUB ask inbox.7 1\r\nq\r\n")
    next_message(polite)
    assert told(polite, traced("q", "Nats-Trace-Dest: inbox.7")) == [
        b"-ERR 'Permissions Violation for Publish to \"inbox.7\"'"
    ]


def test_a_traced_message_is_delivered_with_its_header(crowd: Crowd, traces: Listener) -> None:
    listener = crowd.join("a", "heard")
    client = crowd.join("a", "inbox")
    header = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\nA: 1\r\n\r\n"
    told(client, traced("heard", DEST, "A: 1"))
    assert block(listener) == header
    found = told(client, traced("nobody", DEST, reply="inbox"))
    assert found[0].startswith(b"HMSG inbox 1 ")
    told(client, b"")
    # Traces are sent behind the messages, so the next test could meet one that nobody has read.
    assert [traces.next()["events"][0]["subj"] for _ in range(2)] == ["heard", "nobody"]


def test_a_subscription_that_has_had_its_last_message_is_in_no_trace(
    crowd: Crowd, traces: Listener
) -> None:
    listener = crowd.join("a", "once")
    assert replies(listener, "UNSUB 1 1\r\n") == []
    client = crowd.join("a")
    told(client, traced("once", DEST, ONLY))
    assert traces.events() == [came("once"), went("once")]
    told(client, traced("once", DEST))
    assert traces.events() == [came("once"), went("once")]
    told(client, traced("once", DEST))
    assert traces.events() == [came("once")]


@pytest.mark.parametrize(
    ("line", "encoding"),
    [
        ("Accept-Encoding: gzip", "gzip"),
        ("Accept-Encoding: GZIP", "gzip"),
        ("Accept-Encoding: br, gzip;q=0.5", "gzip"),
        ("Accept-Encoding: snappy", "snappy"),
        ("Accept-Encoding: s2", "snappy"),
        ("Accept-Encoding: gzip, snappy", "snappy"),
        ("Accept-Encoding: br", "identity"),
        ("Accept-Encoding: \t", ""),
        ("accept-encoding: gzip", ""),
    ],
)
def test_a_trace_can_be_compressed(
    crowd: Crowd, traces: Listener, line: str, encoding: str
) -> None:
    told(crowd.join("a", "heard"), traced("heard", DEST, line))
    document = traces.next()
    assert document["encoding"] == encoding
    assert [plain(event) for event in document["events"]] == [came("heard"), went("heard")]


def test_a_long_trace_can_be_compressed(crowd: Crowd, traces: Listener) -> None:
    crowd.join("a", *["many"] * 1000)
    for encoding in ("gzip", "snappy"):
        told(crowd.join("a"), traced("many", DEST, ONLY, f"Accept-Encoding: {encoding}"))
        document = traces.next()
        assert (document["encoding"], len(document["events"])) == (encoding, 1001)


def test_header_values_of_all_kinds_are_told(crowd: Crowd, traces: Listener) -> None:
    lines = [
        b"A\xff\xe2\x82: \xff\xe2\x82<&\xc3\xa9",
        b'B: \x01"\\\x7f\xe2\x80\xa8\xed\xa0\x80',
        b":value without a name",
        b"Nats-Trace-Dest: elsewhere",
        b"no colon",
        b"C: after it",
        b"Traceparent: x",
    ]
    told(crowd.join("a"), traced("x", DEST, *lines))
    document = traces.next()
    bad = "\ufffd"
    assert document["request"]["header"] == {
        "Nats-Trace-Dest": ["traces", "elsewhere"],
        f"A{bad}{bad}{bad}": [f"{bad}{bad}{bad}<&é"],
        "B": [f'\x01"\\\x7f\u2028{bad}{bad}{bad}'],
        "no colon\r\nC": ["after it"],
        "Traceparent": ["x"],
    }


@pytest.mark.parametrize(
    "lines",
    [
        ("Nats-Trace-Dest: a.*",),
        ("Nats-Trace-Dest: a..b",),
        ("Nats-Trace-Dest: .",),
        ("Nats-Trace-Dest: trace disabled", SAMPLED),
        ("nats-trace-dest: traces",),
        (SAMPLED,),
        (SAMPLED, ONLY),
    ],
)
def test_without_a_good_destination_there_is_no_trace(
    crowd: Crowd, traces: Listener, lines: tuple[str, ...]
) -> None:
    listener = crowd.join("a", "heard", "a.>")
    told(crowd.join("a"), traced("heard", *lines))
    assert block(listener) == traced("heard", *lines).partition(b"\r\n")[2][:-3]
    assert replies(listener, "") == []


def test_a_message_that_names_an_origin_is_delivered_without_a_trace(
    crowd: Crowd, traces: Listener
) -> None:
    listener = crowd.join("a", "heard")
    client = crowd.join("a")
    told(client, traced("heard", DEST, "Nats-Trace-Origin-Account: Z", "C: d"))
    disabled = b"Nats-Trace-Dest: trace disabled\r\n\r\n"
    assert block(listener) == (b"NATS/1.0\r\nNats-Trace-Origin-Account: Z\r\nC: d\r\n" + disabled)
    told(client, traced("heard", DEST, ONLY, "Nats-Trace-Origin-Account: Z"))
    assert replies(listener, "") == []
    assert traces.nothing_came()


def test_a_message_that_is_too_large_is_traced_as_far_as_it_has_come(
    crowd: Crowd, traces: Listener
) -> None:
    client = crowd.join("a")
    client.send(traced("heard", DEST, "A: b", body="x" * 2000))
    assert b"Maximum Payload Violation" in client.read_to_end()
    document = traces.next()
    assert document["request"]["header"] == {"Nats-Trace-Dest": ["traces"], "A": ["b"]}
    assert [plain(event) for event in document["events"]] == [
        came("heard", error="maximum payload exceeded")
    ]
    for lines in ((), ("A: b",), ("Nats-Trace-Dest: no.*",)):
        client = crowd.join("a")
        client.send(traced("heard", *lines, body="x" * 2000))
        assert b"Maximum Payload Violation" in client.read_to_end()
    client = crowd.join("a")
    client.send(traced("heard", DEST, body="x" * 2000).partition(b"\n")[0] + b"\n")
    assert b"Maximum Payload Violation" in client.read_to_end()
    assert traces.nothing_came()


# ---------------------------------------------------------------------- several accounts


@pytest.mark.parametrize("is_only", [False, True], ids=["delivered", "only"])
class TestAccounts:
    """Stream imports and service imports, with and without `allow_trace`."""

    def test_stream_import_that_allows_it(
        self, crowd: Crowd, traces: Listener, is_only: bool
    ) -> None:
        importer = crowd.join("b", "p.ex.*", "p.ex.one group")
        told(crowd.join("a"), traced("ex.one", DEST, *([ONLY] if is_only else [])))
        export = {"type": "se", "acc": "B", "to": "p.ex.one"}
        assert traces.events() == [
            came("ex.one"),
            export,
            went("ex.*", acc="B"),
            export,
            went("ex.one", acc="B", queue="group"),
        ]
        if not is_only:
            header = b"NATS/1.0\r\nNats-Trace-Dest: traces\r\n\r\n"
            assert [block(importer) for _ in range(2)] == [header] * 2
        assert replies(importer, "") == []

    def test_stream_import_that_does_not(
        self, crowd: Crowd, traces: Listener, is_only: bool
    ) -> None:
        importer = crowd.join("b", "ey.*")
        client = crowd.join("a", "inbox")
        lines = (DEST, ONLY) if is_only else (DEST,)
        assert told(client, traced("ey.one", *lines, reply="inbox")) == []
        assert traces.events() == [came("ey.one"), {"type": "se", "acc": "B", "to": "ey.one"}]
        if not is_only:
            assert block(importer) == b"NATS/1.0\r\nNats-Trace-Dest: traces\r\n\r\n"
        assert replies(importer, "") == []

    def test_service_import_that_allows_it(
        self, crowd: Crowd, traces: Listener, is_only: bool
    ) -> None:
        service = crowd.join("s", "svc.>")
        client = crowd.join("a", "inbox")
        lines = (DEST, ONLY) if is_only else (DEST,)
        assert told(client, traced("svc.t", *lines, reply="inbox")) == []
        crossing = {"type": "si", "acc": "S", "from": "svc.t", "to": "svc.mapped"}
        assert traces.events() == [came("svc.t"), crossing, went("svc.>", acc="S")]
        if not is_only:
            header = block(service)
            # It is not told where the trace goes, and what it sends there is lost.
            stand_in = header.partition(b"Nats-Trace-Dest: ")[2].partition(b"\r\n")[0].decode()
            assert STAND_IN.fullmatch(stand_in)
            assert header.endswith(f"\r\nNats-Trace-Dest: {stand_in}\r\n\r\n".encode())
            told(service, traced("nobody", f"Nats-Trace-Dest: {stand_in}"))
            assert traces.nothing_came()
        assert replies(service, "") == []

    def test_service_import_that_does_not(
        self, crowd: Crowd, traces: Listener, is_only: bool
    ) -> None:
        service = crowd.join("s", "svc.>", "traces")
        client = crowd.join("a", "inbox")
        lines = (DEST, ONLY) if is_only else (DEST,)
        found = told(client, traced("my.u", *lines, reply="inbox"))
        crossing = {"type": "si", "acc": "S", "from": "my.u", "to": "svc.u"}
        assert traces.events() == [came("my.u"), crossing]
        if is_only:
            assert found[0].startswith(b"HMSG inbox 1 ")  # no responders
        else:
            assert block(service).endswith(b"\r\nNats-Trace-Dest: trace disabled\r\n\r\n")
        assert replies(service, "") == []

    def test_service_without_listeners(self, crowd: Crowd, traces: Listener, is_only: bool) -> None:
        lines = (DEST, ONLY) if is_only else (DEST,)
        found = told(crowd.join("a", "inbox"), traced("svc.t", *lines, reply="inbox"))
        assert found[0].startswith(b"HMSG inbox 1 ")
        crossing = {"type": "si", "acc": "S", "from": "svc.t", "to": "svc.mapped"}
        assert traces.events() == [came("svc.t"), crossing]

    def test_service_behind_a_service(self, crowd: Crowd, traces: Listener, is_only: bool) -> None:
        last = crowd.join("s2", "last")
        lines = (DEST, ONLY) if is_only else (DEST,)
        assert told(crowd.join("a", "inbox"), traced("chain", *lines, reply="inbox")) == []
        assert traces.events() == [
            came("chain"),
            {"type": "si", "acc": "S", "from": "chain", "to": "chain"},
            {"type": "si", "acc": "S2", "from": "chain", "to": "last"},
            went("last", acc="S2"),
        ]
        if not is_only:
            assert b"\r\nNats-Trace-Dest: _R_." in block(last)
        assert replies(last, "") == []

    def test_answer_that_is_traced(self, crowd: Crowd, traces: Listener, is_only: bool) -> None:
        service = crowd.join("s", "svc.>")
        own = Listener(crowd.server, "s")
        client = crowd.join("a", "inbox")
        told(client, b"PUB svc.t inbox 1\r\nq\r\n")
        reply = next_message(service)[0][3]
        told(service, traced(reply, DEST, *([ONLY] if is_only else [])))
        crossing = {"type": "si", "acc": "A", "from": reply, "to": "inbox"}
        assert own.events() == [came(reply, "S"), crossing]
        own.close()
        if not is_only:
            assert block(client) == b"NATS/1.0\r\nNats-Trace-Dest: trace disabled\r\n\r\n"
        assert replies(client, "") == []
        assert traces.nothing_came()


def test_a_destination_may_be_exported(crowd: Crowd) -> None:
    importer = crowd.join("b", "p.ex.traces")
    told(crowd.join("a"), traced("nobody", "Nats-Trace-Dest: ex.traces"))
    words, _, payload = next_message(importer)
    assert (words[1], json.loads(payload)["events"][0]["acc"]) == ("p.ex.traces", "A")


def test_services_of_the_server_are_imports_of_the_system_account(
    crowd: Crowd, traces: Listener
) -> None:
    client = crowd.join("a")
    for subject, target in (
        ("$SYS.REQ.USER.INFO", "$SYS.REQ.USER.A.INFO"),
        ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.A.CONNZ"),
        ("$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT.A.STATZ"),
        ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.A.CONNZ"),
    ):
        told(client, traced(subject, DEST, body=""))
        crossing = {"type": "si", "acc": "$SYS", "from": subject, "to": target}
        assert traces.events() == [came(subject), crossing]


# ---------------------------------------------------------------------- traceparent


@pytest.mark.parametrize(
    ("line", "is_traced"),
    [
        (SAMPLED, True),
        (SAMPLED.replace("traceparent", "TraceParent"), True),
        ("traceparent: 1-2-3-01", True),
        ("traceparent: ---7F", True),
        ("traceparent: a-b-c-+1", True),
        ("traceparent:\ta-b-c-0b ", True),
        ("traceparent: a-b-c-0a", False),
        ("traceparent: a-b-c-00", False),
        ("traceparent: a-b-c-81", False),
        ("traceparent: a-b-c-1", False),
        ("traceparent: a-b-c-001", False),
        ("traceparent: a-b-01", False),
        ("traceparent: a-b-c-d-01", False),
        ("traceparent: a-b-c-0x", False),
        ("traceparent: a-b-c-_1", False),
        ("traceparent:", False),
        ("traceparents: a-b-c-01", False),
        ("xtraceparent: a-b-c-01", False),
    ],
)
def test_what_is_a_sampled_traceparent(crowd: Crowd, line: str, is_traced: bool) -> None:
    listener = crowd.join("t", "heard")
    traces = Listener(crowd.server, "t", "acc.traces")
    # A destination of its own is needed for a message to be only traced.
    told(crowd.join("t"), traced("heard", line, ONLY))
    assert block(listener) == f"NATS/1.0\r\n{line}\r\n{ONLY}\r\n\r\n".encode()
    if is_traced:
        assert traces.events() == [came("heard", "T"), went("heard")]
    assert traces.nothing_came()
    traces.close()


def test_any_sampled_traceparent_will_do(crowd: Crowd) -> None:
    traces = Listener(crowd.server, "one", "acc.traces")
    told(crowd.join("one"), traced("x", "traceparent: a-b-c-00", "traceparent: a-b-c-01"))
    header = traces.next()["request"]["header"]
    assert header == {"traceparent": ["a-b-c-00", "a-b-c-01"]}
    traces.close()


def test_a_destination_of_the_message_goes_before_that_of_the_account(crowd: Crowd) -> None:
    traces = Listener(crowd.server, "t", "acc.traces")
    own = Listener(crowd.server, "t")
    told(crowd.join("t"), traced("x", SAMPLED, DEST))
    assert own.events() == [came("x", "T")]
    assert traces.nothing_came()
    traces.close()
    own.close()


def test_the_destination_of_the_account_needs_a_permission_too(crowd: Crowd) -> None:
    listener = crowd.join("other", "heard")
    assert told(crowd.join("bare"), traced("heard", SAMPLED)) == [
        b"-ERR 'Permissions Violation for Publish to \"acc.traces\"'"
    ]
    assert replies(listener, "") == []


def test_messages_that_are_not_sampled_say_so(crowd: Crowd) -> None:
    """Of a hundred messages at 1 % some are not traced, or a run in 10^100 is unlucky."""
    listener = crowd.join("rare", "heard")
    traces = Listener(crowd.server, "rare", "acc.traces")
    client = crowd.join("rare")
    for _ in range(100):
        told(client, traced("heard", SAMPLED))
    headers = [block(listener) for _ in range(100)]
    plain_header = f"NATS/1.0\r\n{SAMPLED}\r\n\r\n".encode()
    disabled = plain_header[:-2] + b"Nats-Trace-Dest: trace disabled\r\n\r\n"
    assert set(headers) <= {plain_header, disabled}
    assert headers.count(disabled) > 50
    for _ in range(headers.count(plain_header)):
        assert traces.events() == [came("heard", "RARE"), went("heard")]
    assert traces.nothing_came()
    traces.close()
