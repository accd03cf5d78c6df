"""Messages of kombu in headers and payloads; what strangers publish; settings of the transport."""

from __future__ import annotations

import datetime
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps import sweep
from tradewind.client.core.headers import Headers
from tradewind.client.errors import OptionsError
from tradewind.contrib.kombu.broker_settings import (
    masked_url,
    server_of_parts,
    server_url,
    settings_of,
    stream_of,
    tls_options,
)
from tradewind.contrib.kombu.task_inbox import TaskInbox
from tradewind.contrib.kombu.task_messages import UnreadableTaskError, decode_task, encode_task

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def payload(**changes: Any) -> dict[str, Any]:
    made = {
        "body": b"x",
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {},
        "properties": {"delivery_info": {"exchange": "", "routing_key": "q"}, "priority": 0},
    }
    return made | changes


@given(st.binary(max_size=50) | st.text(max_size=50), st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_sent_is_what_arrives(body: bytes | str, headers: dict[str, Any]) -> None:
    sent = encode_task(payload(body=body, headers=headers), 9)
    for name, value in sent.headers.items():
        assert "\n" not in value, name
        assert value.isascii(), name
    found = decode_task(sent.body, Headers(sent.headers), "7", redelivered=True)
    assert found["body"] == (body.encode() if isinstance(body, str) else body)
    assert found["headers"] == headers
    assert found["content-type"] == "application/json"
    assert found["properties"]["delivery_tag"] == "7"
    info = {"exchange": "", "routing_key": "q", "redelivered": True}
    assert found["properties"]["delivery_info"] == info


def test_a_message_of_another_program_is_a_plain_body() -> None:
    found = decode_task(b"\x00raw", Headers(), "1", redelivered=False)
    assert (found["body"], found["headers"]) == (b"\x00raw", {})
    assert (found["content-type"], found["content-encoding"]) == ("application/data", "binary")


@sweep(
    "text",
    ["{", "[]", "17", '"text"', "{" * 100_000, '{"__type__": "datetime", "__value__": 5}', "\x00"],
)
def test_damaged_headers_are_one_kind_of_error(text: str) -> None:
    with pytest.raises(UnreadableTaskError, match="header Kombu-Headers: a JSON object"):
        decode_task(b"", Headers({"Kombu-Headers": text}), "1", redelivered=False)


def test_a_huge_header_is_not_even_read() -> None:
    headers = Headers({"Kombu-Properties": "[" * ((1 << 20) + 1)})
    with pytest.raises(UnreadableTaskError, match="at most 1048576 characters"):
        decode_task(b"", headers, "1", redelivered=False)


@sweep("value", ["soon", -1, "nan", "inf", 1e16, [5]])
def test_an_expiration_that_is_no_time_is_refused(value: object) -> None:
    properties = payload()["properties"] | {"expiration": value}
    with pytest.raises(OptionsError, match="expiration: milliseconds from 0 on"):
        encode_task(payload(properties=properties), 9)


@sweep(
    ("value", "wanted"),
    [
        ("2030-01-02T03:04:05+00:00", datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
        ("2030-01-02T03:04:05", None),  # whose clock? only the worker knows
        ("tomorrow", None),
        (17, None),
        (None, None),
    ],
)
def test_only_a_time_with_a_zone_delays_a_message(value: object, wanted: object) -> None:
    assert encode_task(payload(headers={"eta": value}), 9).eta == wanted


@sweep(("value", "wanted"), [(None, 0), (5, 5), (99, 9), (-3, 0), (True, 1)])
def test_priorities_are_brought_into_their_range(value: object, wanted: int) -> None:
    properties = payload()["properties"] | {"priority": value}
    assert encode_task(payload(properties=properties), 9).priority == wanted


# ---------------------------------------------------------------------- settings


@sweep(
    ("options", "text"),
    [
        ({"visibility": 5}, "unknown option 'visibility'; did you mean 'visibility_timeout'?"),
        ({"visibility_timeout": 0.5}, "visibility_timeout: at least 1 second, not 0.5"),
        ({"visibility_timeout": "x"}, "transport_options: Expected `float`, got `str`"),
        ({"priority_steps": [3, 0]}, "priority_steps: 0 and then rising numbers up to 9"),
        ({"priority_steps": [0, 10]}, "priority_steps: 0 and then rising numbers up to 9"),
        ({"priority_steps": []}, "priority_steps: 0 and then rising numbers up to 9"),
        ({"max_deliver": 0}, "max_deliver: at least 1, or -1, not 0"),
        ({"stream": "a.b"}, "stream 'a.b' (the path of the URL): 1 to 64 letters"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError) as raised:
        settings_of("", options)
    assert text in str(raised.value)


def test_options_of_kombu_itself_are_left_to_it() -> None:
    assert settings_of("", {"max_retries": 3, "polling_interval": 1}).stream == "KOMBU"
    assert settings_of("JOBS", {"visibility_timeout": 6}).heartbeat_seconds == 2


@sweep(
    ("url", "servers", "stream"),
    [
        ("tradewind://h:4222", "nats://h:4222", ""),
        ("nats://u:p@h:4222/JOBS", "nats://u:p@h:4222", "JOBS"),
        ("tls://a:1,tls://b:2/JOBS", "tls://a:1,tls://b:2", "JOBS"),
        ("tradewind://", "nats://127.0.0.1:4222", ""),
        ("", "nats://127.0.0.1:4222", ""),
    ],
)
def test_urls_name_servers_and_a_stream(url: str, servers: str, stream: str) -> None:
    assert (server_url(url), stream_of(url)) == (servers, stream)


@sweep(
    ("host", "port", "server"),
    [
        ("h", 1, "nats://h:1"),
        (None, None, "nats://127.0.0.1:4222"),
        ("::1", 5, "nats://[::1]:5"),
    ],
)
def test_a_url_in_parts_names_a_server(host: str | None, port: int | None, server: str) -> None:
    assert server_of_parts(host, port) == server


def test_another_scheme_is_refused() -> None:
    with pytest.raises(OptionsError, match="scheme 'redis' is none of tradewind, nats, tls"):
        server_url("redis://h")


@sweep(
    ("url", "masked"),
    [
        ("nats://ada:secret@h:1/S", "nats://ada:**@h:1/S"),
        ("nats://token@h", "nats://**@h"),
        ("nats://a:x@h,nats://b:y@i", "nats://a:**@h,nats://b:**@i"),
        ("nats://h:1", "nats://h:1"),
    ],
)
def test_logs_show_no_password(url: str, masked: str) -> None:
    assert masked_url(url, "**") == masked


def test_tls_options_of_celery_become_those_of_the_client() -> None:
    assert tls_options(None) == {}
    assert tls_options({"ca_certs": "ca.pem", "ssl_keyfile": "k"}) == {
        "tls": True, "tls_ca_file": "ca.pem", "tls_key_file": "k",
    }  # fmt: skip
    with pytest.raises(OptionsError, match="cert_reqs must be CERT_REQUIRED"):
        tls_options({"cert_reqs": "none"})
    with pytest.raises(OptionsError, match="'ciphers' is none of"):
        tls_options({"ciphers": "x"})


# ---------------------------------------------------------------------- the inbox


def test_the_inbox_wakes_its_reader_for_every_item() -> None:
    inbox: TaskInbox[int] = TaskInbox()
    assert inbox.take(0) is None
    writer = threading.Thread(target=lambda: [inbox.put(number) for number in range(5_000)])
    writer.start()
    assert [inbox.take(20) for _ in range(5_000)] == list(range(5_000))
    writer.join()
    assert inbox.take(0) is None
    inbox.close()
    inbox.put(1)  # from a thread that does not know yet
    inbox.close()


def test_what_is_removed_from_the_inbox_leaves_the_rest_in_order() -> None:
    inbox: TaskInbox[int] = TaskInbox()
    for number in range(6):
        inbox.put(number)
    assert inbox.remove(lambda number: number % 2 == 0) == [0, 2, 4]
    assert [inbox.take(0) for _ in range(4)] == [1, 3, 5, None]
    inbox.close()
