"""Durations as long as 64 bits can say, and requests that no client sends: what then happens.

A wait of 292 years is one that never ends, not one that is over. A request that cannot be read is
refused, and whoever else uses the server does not notice it.
"""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from helpers_js import ApiClient, api_login

from harness import ServerProcess, StartServer, wait_for

LONGEST = 2**63 - 1
DEEP = 50_000
ACCOUNTS = """
jetstream {{ store_dir: "{folder}" }}
accounts {{
    A {{ jetstream: enabled, users: [ {{ user: anna, password: hush }} ] }}
    B {{ jetstream: enabled, users: [ {{ user: bert, password: hush }} ] }}
}}
"""


def make(js: ApiClient, consumer: dict[str, Any], **stream: Any) -> None:
    """A stream S in memory, and its consumer c."""
    js.done("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory", **stream})
    config = {"name": "c", "ack_policy": "explicit", "mem_storage": True}
    config |= {"inactive_threshold": 3600 * 10**9, **consumer}
    js.done("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})


def publish(js: ApiClient, header: bytes = b"") -> dict[str, Any]:
    block = b"NATS/1.0\r\n%s\r\n\r\n" % header if header else b""
    verb, sizes = (b"HPUB", b"%d %d" % (len(block), len(block))) if block else (b"PUB", b"0")
    js.raw.send(b"%s s answers %s\r\n%s\r\n" % (verb, sizes, block))
    return dict(json.loads(js.raw.read_message()[2]))


def publish_for_pull(js: ApiClient, header: bytes = b"", seq: int = 1) -> None:
    """Publish, and wait until the consumer knows of it: nats-server tells it a moment later."""
    assert publish(js, header) == {"stream": "S", "seq": seq}
    wait_for(lambda: js.done("CONSUMER.INFO.S.c")["num_pending"] == seq, "its message")


def pull(js: ApiClient, **request: Any) -> tuple[str, bytes]:
    """The ack subject of the first message, or the status, of a pull request."""
    body = json.dumps({"batch": 1, "no_wait": True, **request}).encode()
    js.raw.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c answers %d\r\n%s\r\n" % (len(body), body))
    line, header, _ = js.raw.read_message()
    words = line.split()
    return (words[3] if words[1] == "s" else ""), header


# ---------------------------------------------------------------- durations


@pytest.mark.parametrize(
    "config",
    [
        {"ack_wait": LONGEST},
        {"ack_wait": LONGEST - 1},
        {"backoff": [LONGEST], "max_deliver": 3},
        {"inactive_threshold": LONGEST},
        {"max_expires": LONGEST},
    ],
)
def test_a_message_is_not_due_again_for_the_longest_wait(js: ApiClient, config: dict) -> None:
    make(js, config)
    publish_for_pull(js)
    assert pull(js)[0].startswith("$JS.ACK.S.c.1.1.1.")
    for _ in range(3):
        assert pull(js)[1].startswith(b"NATS/1.0 404 No Messages")
    info = js.done("CONSUMER.INFO.S.c")
    assert (info["num_ack_pending"], info["num_redelivered"]) == (1, 0)


def test_an_acknowledgement_can_be_put_off_within_the_longest_wait(js: ApiClient) -> None:
    make(js, {"ack_wait": LONGEST})
    publish_for_pull(js)
    subject, _ = pull(js)
    js.raw.send(f"PUB {subject} answers 4\r\n+WPI\r\n")
    js.raw.read_message()
    assert pull(js)[1].startswith(b"NATS/1.0 404 No Messages")
    js.raw.send(f"PUB {subject} answers 4\r\n-NAK\r\n")
    js.raw.read_message()
    assert pull(js)[0].startswith("$JS.ACK.S.c.2.1.2.")


@pytest.mark.parametrize(
    "window", [10**11, 235 * 365 * 86400 * 10**9, 250 * 365 * 86400 * 10**9, LONGEST]
)
def test_duplicates_are_found_within_any_window(js: ApiClient, window: int) -> None:
    make(js, {}, duplicate_window=window)
    assert publish(js, b"Nats-Msg-Id: a") == {"stream": "S", "seq": 1}
    assert publish(js, b"Nats-Msg-Id: a") == {"stream": "S", "seq": 1, "duplicate": True}


def test_messages_stay_for_the_longest_age(js: ApiClient) -> None:
    make(js, {}, max_age=LONGEST)
    publish(js)
    assert js.done("STREAM.INFO.S")["state"]["messages"] == 1


def test_a_consumer_with_the_longest_heartbeat_sends_messages(js: ApiClient) -> None:
    js.raw.send("SUB push 5\r\n")
    make(js, {"deliver_subject": "push", "idle_heartbeat": LONGEST})
    js.raw.send("PUB s 5\r\nhello\r\n")
    assert js.raw.read_message()[2] == b"hello"


def test_the_longest_pin_is_kept(js: ApiClient) -> None:
    groups = {"priority_groups": ["A"], "priority_policy": "pinned_client"}
    make(js, {**groups, "priority_timeout": LONGEST})
    for seq in (1, 2):
        publish_for_pull(js, seq=seq)
    _, header = pull(js, group="A")
    pin = header.partition(b"Nats-Pin-Id: ")[2].partition(b"\r\n")[0].decode()
    assert pin
    assert pull(js, group="A", id=pin)[0].startswith("$JS.ACK.S.c.1.2.2.")


@pytest.mark.parametrize("request_fields", [{"expires": LONGEST}, {"batch": LONGEST}])
def test_the_longest_request_waits_for_a_message(js: ApiClient, request_fields: dict) -> None:
    make(js, {})
    body = json.dumps({"batch": 1, "expires": 10**11, **request_fields}).encode()
    js.raw.send("SUB longest 8\r\n")
    js.raw.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c longest %d\r\n%s\r\n" % (len(body), body))
    js.raw.send("PUB s 5\r\nhello\r\n")
    assert js.raw.read_message()[2] == b"hello"
    js.raw.send("UNSUB 8\r\n")


# ---------------------------------------------------------------- requests that cannot be read


def hostile_pulls() -> dict[str, tuple[bytes, bytes, bytes]]:
    """Header, body and the beginning of the answer."""
    level = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n"
    nested = b"[" * DEEP + b"]" * DEEP
    return {
        "batch": (b"", b'{"batch":9223372036854775808}', b"NATS/1.0 400 Bad Request - json: "),
        "expires": (b"", b'{"expires":-9223372036854775809}', b"NATS/1.0 400 Bad Request - json: "),
        "digits": (b"", b'{"batch":1%b}' % (b"0" * 5000), b"NATS/1.0 400 Bad Request - json: "),
        "nested": (b"", b'{"x":%b}' % nested, b"NATS/1.0 400 Bad Request - exceeded max depth"),
        "level": (level % (b"9" * 5000), b"", b"NATS/1.0 412 Required Api Level"),
        "no level": (level % b"five", b"", b"NATS/1.0 412 Required Api Level"),
    }


def send_pull(js: ApiClient, header: bytes, body: bytes, consumer: str = "S.c") -> bytes:
    """The bytes of a request."""
    if not header:
        line = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b answers %d\r\n" % (consumer.encode(), len(body))
    else:
        sizes = (consumer.encode(), len(header), len(header) + len(body))
        line = b"HPUB $JS.API.CONSUMER.MSG.NEXT.%b answers %d %d\r\n" % sizes
    return line + header + body + b"\r\n"


@pytest.mark.parametrize("name", hostile_pulls())
def test_a_pull_request_that_cannot_be_read_is_refused(js: ApiClient, name: str) -> None:
    make(js, {})
    header, body, answer = hostile_pulls()[name]
    js.raw.send(send_pull(js, header, body))
    assert js.raw.read_message()[1].startswith(answer)


def test_nobody_else_notices_requests_that_cannot_be_read(
    start: StartServer, tmp_path: Any
) -> None:
    server = start(ACCOUNTS.format(folder=tmp_path))
    with api_login(server, "anna") as anna, api_login(server, "bert") as bert:
        for js in (anna, bert):
            make(js, {})
        # All in one packet, twice, beside somebody who waits.
        waiting = json.dumps({"batch": 1, "expires": 10**11}).encode()
        bert.raw.send(send_pull(bert, b"", waiting))
        pulls = [send_pull(anna, header, body) for header, body, _ in hostile_pulls().values()]
        pulls.append(send_pull(anna, b"", json.dumps({"batch": 1, "expires": LONGEST}).encode()))
        anna.raw.send(b"".join(pulls * 2))
        for _ in range(2 * len(hostile_pulls())):
            assert anna.raw.read_message()[1].startswith(b"NATS/1.0 4")
        bert.raw.send("PUB s 5\r\nhello\r\n")
        assert bert.raw.read_message()[2] == b"hello"
        anna.raw.send("PUB s 5\r\nhello\r\n")
        assert anna.raw.read_message()[2] == b"hello"
        assert ends(server)


def ends(server: ServerProcess) -> bool:
    server.signal(signal.SIGTERM)
    return server.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_the_server_ends_while_the_longest_requests_wait(
    start: StartServer, tmp_path: Any, number: signal.Signals
) -> None:
    config = (
        ACCOUNTS.format(folder=tmp_path) + "lame_duck_duration: 30s\nlame_duck_grace_period: 1s\n"
    )
    server = start(config)
    with api_login(server, "anna") as anna:
        make(anna, {"ack_wait": LONGEST, "inactive_threshold": LONGEST})
        body = json.dumps({"batch": LONGEST, "expires": LONGEST}).encode()
        anna.raw.send(send_pull(anna, b"", body) * 2)
        anna.raw.ping()
        server.signal(number)
        assert server.wait(30) == 0


LARGEST = """
ping_interval: "2562047h"
ping_max: 2147483647
write_deadline: "2562047h"
lame_duck_duration: "2562047h"
lame_duck_grace_period: "2562046h"
max_pending: 9223372036854775807
max_connections: 9223372036854775807
max_subscriptions: 9223372036854775807
authorization {{
    timeout: 9223372036
    users: [ {{
        user: anna, password: hush
        permissions: {{
            publish: ">", subscribe: ">"
            allow_responses: {{ max: 9223372036854775807, expires: "2562047h" }}
        }}
    }} ]
}}
jetstream {{
    store_dir: "{folder}"
    sync_interval: "2562047h"
    max_mem: 9223372036854775807
    max_file: 9223372036854775807
    limits {{
        max_ack_pending: 9223372036854775807
        max_request_batch: 9223372036854775807
        duplicate_window: "2562047h"
    }}
}}
"""


def test_a_server_with_the_largest_settings_works(start: StartServer, tmp_path: Any) -> None:
    server = start(LARGEST.format(folder=tmp_path))
    with api_login(server, "anna") as anna:
        make(anna, {})
        anna.done("STREAM.CREATE.F", {"name": "F", "subjects": ["f"]})
        anna.raw.send("PUB f answers 0\r\n\r\n")
        assert json.loads(anna.raw.read_message()[2]) == {"stream": "F", "seq": 1}
        publish_for_pull(anna, b"Nats-Msg-Id: a")
        assert pull(anna)[0].startswith("$JS.ACK.S.c.1.1.1.")
        assert ends(server)
