"""What an export with `latency` tells of the requests that others send to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harness import RawClient, ServerProcess, StartServer

TRACEPARENT = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"


def configuration(latency: str, threshold: str = "1m") -> str:
    return (
        "accounts {\n"
        "  E { users: [ {user: e, password: p} ], exports: [\n"
        f'    {{service: "svc.>", response_threshold: "{threshold}", latency: {latency}}} ] }}\n'
        "  I { users: [ {user: i, password: p} ], imports: [\n"
        '    {service: {account: E, subject: "svc.>"}, to: "my.>"} ] }\n'
        "  S { users: [ {user: s, password: p} ], imports: [\n"
        '    {service: {account: E, subject: "svc.>"}, share: true} ] }\n'
        "}\n"
    )


class Stage:
    """A service that answers `svc.*`, and who hears its measurements on `lat`."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self.watcher = self.connect("e")
        self.watcher.send("SUB lat 1\r\n")
        self.service = self.connect("e", name="answers")
        self.service.send("SUB svc.* 1\r\n")
        self.watcher.ping()
        self.service.ping()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc: object) -> None:
        self.watcher.close()
        self.service.close()

    def connect(self, user: str, **fields: Any) -> RawClient:
        return RawClient(self._server.port).connect(user=user, **{"pass": "p"}, **fields)

    def asker(self, user: str) -> RawClient:
        client = self.connect(user, name="asks")
        client.send("SUB in 1\r\n")
        client.ping()
        return client

    def answer(self) -> str:
        """Answer the next request; gives the subject that stands for its reply."""
        reply = self.service.read_message()[0].split(" ")[3]
        self.service.send(f"PUB {reply} 2\r\nok\r\n")
        return reply

    def metric(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.watcher.read_message()[2])
        return document


@pytest.fixture
def stage(start: StartServer) -> Iterator[Stage]:
    with Stage(start(configuration('{sampling: 100, subject: "lat"}'))) as made:
        yield made


def test_answered_request_is_told_with_all_its_times(stage: Stage) -> None:
    with stage.asker("i") as asker:
        asker.send("PUB my.a in 2\r\nhi\r\n")
        reply = stage.answer()
        asker.expect("MSG in 1 2", "ok")
        metric = stage.metric()
        assert list(metric) == [
            *("type", "id", "timestamp", "status", "requestor", "responder"),
            *("start", "service", "system", "total"),
        ]
        assert metric["type"] == "io.nats.server.metric.v1.service_latency"
        assert len(metric["id"]) == 22
        assert metric["status"] == 200
        assert reply.startswith("_R_.")
        assert reply.endswith(".T")
        assert sorted(metric["requestor"]) == ["acc", "rtt"]
        assert metric["requestor"]["acc"] == "I"
        responder = metric["responder"]
        assert (responder["acc"], responder["user"], responder["name"]) == ("E", "e", "answers")
        assert responder["kind"] == "Client"
        total = metric["total"]
        assert total >= metric["requestor"]["rtt"] + metric["service"] + metric["system"]
        assert metric["start"] < metric["timestamp"]


def test_import_that_shares_tells_who_asked(stage: Stage) -> None:
    with stage.asker("s") as asker:
        asker.send("PUB svc.a in 2\r\nhi\r\n")
        stage.answer()
        asker.expect("MSG in 1 2", "ok")
        requestor = stage.metric()["requestor"]
        assert (requestor["acc"], requestor["user"], requestor["name"]) == ("S", "s", "asks")


def failure(stage: Stage) -> tuple[int, str, tuple[int, int, int]]:
    metric = stage.metric()
    assert "responder" not in metric
    times = metric["service"], metric["system"], metric["total"]
    return metric["status"], metric["description"], times


NONE = (0, 0, 0)


def test_request_without_a_reply_is_a_bad_one(stage: Stage) -> None:
    with stage.asker("i") as asker:
        asker.send("PUB my.a 2\r\nhi\r\n")
        assert failure(stage) == (400, "Bad Request", NONE)


def test_request_that_nobody_hears(stage: Stage) -> None:
    with stage.asker("i") as asker:
        asker.send("PUB my.a.b in 2\r\nhi\r\n")
        assert failure(stage) == (503, "Service Unavailable", NONE)


def test_request_whose_asker_does_not_wait_any_more(stage: Stage) -> None:
    with stage.asker("i") as asker:
        asker.send("SUB gone 2\r\nPUB my.a gone 2\r\nhi\r\n")
        stage.service.read_message()
        asker.send("UNSUB 2\r\n")
        assert failure(stage) == (408, "Request Timeout", NONE)
        asker.send("SUB gone 3\r\nPUB my.a gone 2\r\nhi\r\n")
        stage.service.read_message()
    assert failure(stage) == (408, "Request Timeout", NONE)


def test_request_that_is_not_answered_in_time(start: StartServer) -> None:
    brief = configuration('{sampling: 100, subject: "lat"}', threshold="3s")
    with Stage(start(brief)) as stage, stage.asker("i") as asker:
        asker.send("PUB my.a in 2\r\nhi\r\n")
        reply = stage.service.read_message()[0].split(" ")[3]
        assert failure(stage) == (504, "Service Timeout", NONE)
        # An answer after it is nobody's.
        stage.service.send(f"PUB {reply} 2\r\nok\r\n")
        stage.service.ping()
        asker.ping()
        asker.send("PUB my.a in 2\r\nhi\r\n")
        stage.answer()
        assert stage.metric()["status"] == 200


SAMPLED: dict[str, tuple[list[str], dict[str, list[str]] | None]] = {
    "nothing": (["x: y"], None),
    "traceparent": (
        [TRACEPARENT + "01", "tracestate: a=b", "x: y"],
        {"Traceparent": [TRACEPARENT[13:] + "01"], "Tracestate": ["a=b"]},
    ),
    "traceparent that is not sampled": ([TRACEPARENT + "00"], None),
    "traceparent with more flags": (
        [TRACEPARENT + "03"],
        {"Traceparent": [TRACEPARENT[13:] + "03"]},
    ),
    "traceparent with a high flag": ([TRACEPARENT + "81"], None),
    "traceparent that is short": (["traceparent: a-b-c-1"], None),
    "jaeger": (
        ["uber-trace-id: a:b:c:1", "uberctx-foo: bar"],
        {"Uber-Trace-Id": ["a:b:c:1"], "Uberctx-Foo": ["bar"]},
    ),
    "jaeger that is not sampled": (["uber-trace-id: a:b:c:2", TRACEPARENT + "01"], None),
    "jaeger that is short": (["uber-trace-id: a:b:1"], None),
    "zipkin": (["x-b3-sampled: 1"], {"X-B3-Sampled": ["1"]}),
    "zipkin that is not sampled": (["X-B3-Sampled: 0", TRACEPARENT + "01"], None),
    "zipkin by its trace": (
        ["X-B3-TraceId: abc", "X-B3-SpanId: d", "X-B3-Flags: 1"],
        {"X-B3-Traceid": ["abc"], "X-B3-Spanid": ["d"]},
    ),
    "zipkin that says something else": (
        ["x-b3-sampled: d", TRACEPARENT + "01"],
        {"Traceparent": [TRACEPARENT[13:] + "01"]},
    ),
    "b3": (["b3: a-b-1-c"], {"B3": ["a-b-1-c"]}),
    "b3 that defers": (["b3: a-b"], {"B3": ["a-b"]}),
    "b3 that is not sampled": (["b3: a-b-0"], None),
    "b3 that is 0": (["b3: 0"], None),
}


def test_headers_decide_which_requests_are_measured(start: StartServer) -> None:
    told: list[tuple[str, Any]] = []
    headers = configuration('{sampling: headers, subject: "lat"}')
    with Stage(start(headers)) as stage, stage.asker("i") as asker:
        for name, (lines, wanted) in SAMPLED.items():
            header = "".join(f"{line}\r\n" for line in ["NATS/1.0", *lines, ""])
            asker.send(f"HPUB my.a in {len(header)} {len(header)}\r\n{header}\r\n")
            reply = stage.answer()
            asker.expect("MSG in 1 2", "ok")
            assert reply.endswith(".T") == (wanted is not None), name
            if wanted is not None:
                told.append((name, stage.metric()["header"]))
    assert told == [(name, wanted) for name, (_, wanted) in SAMPLED.items() if wanted is not None]


def test_every_request_is_measured_without_its_headers(stage: Stage) -> None:
    header = f"NATS/1.0\r\n{TRACEPARENT}01\r\n\r\n"
    with stage.asker("i") as asker:
        asker.send(f"HPUB my.a in {len(header)} {len(header)}\r\n{header}\r\n")
        stage.answer()
        assert "header" not in stage.metric()


def test_short_form_measures_every_request(start: StartServer) -> None:
    with Stage(start(configuration('"lat"'))) as stage, stage.asker("i") as asker:
        asker.send("PUB my.a in 2\r\nhi\r\n")
        stage.answer()
        assert stage.metric()["status"] == 200
