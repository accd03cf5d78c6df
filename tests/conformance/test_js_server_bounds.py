"""JetStream with settings of its own: domains, bounds of publishes, streams stored by others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.helpers_js import ApiClient
from conformance.helpers_ops import shared_server
from harness import ServerProcess, StartServer
from tradewind.store.format.meta import meta_sum

MIB = 1024 * 1024
BUSY_HEADER = b"NATS/1.0 429 Too Many Requests\r\n\r\n"


def refusal(code: int, err_code: int, description: str) -> bytes:
    """The answer to a publish to S that is refused."""
    error = f'{{"code":{code},"err_code":{err_code},"description":"{description}"}}'
    return f'{{"error":{error},"stream":"S","seq":0}}'.encode()


BUSY = refusal(429, 10167, "too many requests")
TOO_LARGE = refusal(503, 10077, "message too large")
domain_server = shared_server("""
max_payload: 34MB
jetstream { store_dir: "STORE", domain: HUB }
""")


@pytest.fixture
def js(domain_server: ServerProcess) -> Iterator[ApiClient]:
    with ApiClient(domain_server) as client:
        client.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        yield client
        client.delete_streams()


def publish(js: ApiClient, payload: bytes = b"x", header: bytes = b"") -> bytes:
    """The body of the answer to a publish."""
    block = b"NATS/1.0\r\n%s\r\n\r\n" % header if header else b""
    sizes = b"%d %d" % (len(block), len(block) + len(payload)) if header else b"%d" % len(payload)
    verb = b"HPUB" if header else b"PUB"
    js.raw.send(b"%s s.a answers %s\r\n%s%s\r\n" % (verb, sizes, block, payload))
    return js.raw.read_message()[2]


# ---------------------------------------------------------------- domains


def test_acknowledgements_name_the_domain(js: ApiClient) -> None:
    assert publish(js) == b'{"stream":"S","domain":"HUB","seq":1}'
    assert publish(js, header=b"Nats-Msg-Id: a") == b'{"stream":"S","domain":"HUB","seq":2}'
    assert publish(js, header=b"Nats-Msg-Id: a") == (
        b'{"stream":"S","domain":"HUB","seq":2,"duplicate": true}'
    )
    other = publish(js, header=b"Nats-Expected-Stream: OTHER")
    assert other == refusal(400, 10060, "expected stream does not match")


def test_answers_name_the_domain_but_not_when_a_stream_is_made(js: ApiClient) -> None:
    assert "domain" not in js.done("STREAM.CREATE.T", {"name": "T"})
    assert js.done("INFO")["domain"] == "HUB"
    for prefix in ("$JS.API", "$JS.HUB.API"):
        js.raw.send(f"PUB {prefix}.STREAM.INFO.S answers 0\r\n\r\n")
        assert json.loads(js.raw.read_message()[2])["domain"] == "HUB"
    js.raw.send("PUB $JS.OTHER.API.STREAM.INFO.S answers 0\r\n\r\n")
    assert js.raw.read_message()[1].startswith(b"NATS/1.0 503")


# ---------------------------------------------------------------- what a file cannot hold


def test_a_record_above_32_mib_is_refused_before_anything_else(js: ApiClient) -> None:
    # 30 bytes around it, 3 for the subject, and 4 and its size for a header.
    room = 32 * MIB - 33
    assert publish(js, b"x" * (room + 1)) == TOO_LARGE
    header = b"Nats-Expected-Stream: OTHER"
    assert publish(js, b"x" * (room - 4), header) == TOO_LARGE
    assert b'"err_code":10174' in publish(js, b"x" * room, b"Nats-Batch-Id: b")
    assert publish(js, b"x" * room) == b'{"stream":"S","domain":"HUB","seq":1}'


def test_memory_takes_a_message_as_large_as_a_connection_may_send(js: ApiClient) -> None:
    config = {"name": "M", "subjects": ["m.>"], "storage": "memory", "allow_direct": True}
    js.done("STREAM.CREATE.M", config)
    size = js.raw.info["max_payload"]
    assert size > 32 * MIB
    js.raw.send(b"PUB m.a answers %d\r\n%s\r\n" % (size, b"y" * size))
    assert js.raw.read_message()[2] == b'{"stream":"M","domain":"HUB","seq":1}'
    assert js.done("STREAM.INFO.M")["state"]["bytes"] == size + 16 + len("m.a")
    js.raw.send("PUB $JS.API.DIRECT.GET.M.m.a answers 0\r\n\r\n")
    assert js.raw.read_message()[2] == b"y" * size


# ---------------------------------------------------------------- too much at once


@pytest.mark.parametrize("setting", ["max_buffered_msgs: 5", "max_buffered_size: 100"])
def test_publishes_that_come_too_fast_are_told_so(
    start: StartServer, tmp_path: Path, setting: str
) -> None:
    server = start(f'jetstream {{ store_dir: "{tmp_path}", {setting} }}')
    count = 3000
    with ApiClient(server) as js:
        js.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        js.raw.send("SUB acks.* 2\r\n")
        js.raw.send(b"".join(b"PUB s.a acks.%d 1\r\nx\r\n" % number for number in range(count)))
        sequences = []
        refused = 0
        for _ in range(count):
            _, header, body = js.raw.read_message()
            if b'"error"' in body:
                assert (header, body) == (BUSY_HEADER, BUSY)
                refused += 1
            else:
                sequences.append(json.loads(body)["seq"])
        state = js.done("STREAM.INFO.S")["state"]
    assert sequences == list(range(1, count - refused + 1))
    assert refused > 0
    assert state["messages"] == len(sequences)


# ---------------------------------------------------------------- made by another version


def change_meta(folder: Path, key_text: str, **fields: Any) -> None:
    """Change a stored configuration as another server might have written it."""
    path = folder / "meta.inf"
    document = json.loads(path.read_bytes())
    metadata = {**document.get("metadata", {}), **fields.pop("metadata", {})}
    data = json.dumps({**document, **fields, "metadata": metadata}).encode()
    path.write_bytes(data)
    (folder / "meta.sum").write_bytes(meta_sum(data, key_text))


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "LEVEL": (
        {"metadata": {"_nats.req.level": "6"}},
        "unsupported - required API level: 6, current API level: 5",
    ),
    "TEXT": (
        {"metadata": {"_nats.req.level": "abc"}},
        "unsupported - required API level: abc, current API level: 5",
    ),
    "FIELD": ({"future": 1}, 'decoding error: json: unknown field "future"'),
    "BOTH": (
        {"future": 1, "metadata": {"_nats.req.level": "6"}},
        'unsupported - config error: unknown field "future"',
    ),
}


def test_what_this_version_cannot_run_is_offline(start: StartServer, tmp_path: Path) -> None:
    flags = ("-js", "-sd", str(tmp_path / "store"))
    server = start("", *flags)
    streams = tmp_path / "store/jetstream/$G/streams"
    with ApiClient(server) as js:
        for name in (*CHANGES, "HOST", "SAME"):
            js.done(f"STREAM.CREATE.{name}", {"name": name})
        for name in CHANGES:
            body = {"stream_name": "HOST", "config": {"durable_name": name}}
            js.done(f"CONSUMER.CREATE.HOST.{name}", body)
    server.stop()
    for name, (fields, _) in CHANGES.items():
        change_meta(streams / name, name, **fields)
        change_meta(streams / "HOST/obs" / name, f"HOST/{name}", **fields)
    change_meta(streams / "SAME", "SAME", metadata={"_nats.req.level": "5"})
    server = start("", *flags)
    with ApiClient(server) as js:
        # The official server takes half a second for each of these answers.
        for name, (_, reason) in CHANGES.items():
            assert js.error(f"STREAM.INFO.{name}") == [500, 10194, f"stream is offline: {reason}"]
        for name in ("LEVEL", "FIELD"):
            reason = CHANGES[name][1]
            offline = [500, 10195, f"consumer is offline: {reason}"]
            assert js.error(f"CONSUMER.INFO.HOST.{name}") == offline
        assert js.error("STREAM.INFO.SAME") is None
        js.done("STREAM.DELETE.BOTH")
        assert js.error("STREAM.INFO.BOTH") == [404, 10059, "stream not found"]
        js.done("STREAM.CREATE.BOTH", {"name": "BOTH"})
