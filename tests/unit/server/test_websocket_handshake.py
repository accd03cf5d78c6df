"""The HTTP upgrade: what it accepts, how it refuses, and what it learns of the peer."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import some
from tradewind.errors import ConfigError
from tradewind.options import WebsocketOptions
from tradewind.server.websocket.websocket_handshake import (
    REQUEST_BYTES_MAX,
    Handshake,
    HandshakeResult,
)
from websocket_frames import KEY_ANSWER, parse_response, request

PLAIN = WebsocketOptions()
DEFLATE = WebsocketOptions(compression=True)
DEFLATE_ANSWER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"


def shake(raw: bytes, options: WebsocketOptions = PLAIN, *, tls: bool = False) -> HandshakeResult:
    result = Handshake(options, tls).feed(raw)
    assert result is not None
    return result


def accept(raw: bytes, options: WebsocketOptions = PLAIN, *, tls: bool = False) -> HandshakeResult:
    result = shake(raw, options, tls=tls)
    assert result.accepted, result.error
    return result


def refuse(raw: bytes, options: WebsocketOptions = PLAIN, *, tls: bool = False) -> tuple[int, str]:
    result = shake(raw, options, tls=tls)
    assert not result.accepted
    head, _, _ = result.response.partition(b"\r\n\r\n")
    return parse_response(head).status, result.error


def test_valid_request_is_answered_with_the_exact_bytes_of_the_official_server() -> None:
    assert accept(request()).response == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + KEY_ANSWER.encode() + b"\r\n\r\n"
    )


def test_everything_that_can_be_agreed_is_in_the_answer_in_order() -> None:
    options = WebsocketOptions(compression=True, headers={"X-B": "1", "X-A": "two words"})
    raw = request(Sec_WebSocket_Extensions="permessage-deflate", Nats_No_Masking="true")
    assert accept(raw, options).response.decode().split("\r\n")[4:] == [
        f"Sec-WebSocket-Extensions: {DEFLATE_ANSWER}",
        "Nats-No-Masking: true",
        "X-B: 1",
        "X-A: two words",
        "",
        "",
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 50])
def test_request_in_pieces_is_accepted_at_its_last_byte(chunk_bytes: int) -> None:
    handshake = Handshake(PLAIN, False)
    raw = request(path="/x", Cookie="a=b")
    results = [
        handshake.feed(raw[start : start + chunk_bytes])
        for start in range(0, len(raw), chunk_bytes)
    ]
    assert results[:-1] == [None] * (len(results) - 1)
    assert results[-1] == accept(raw)


def test_lines_may_end_in_lf_alone() -> None:
    assert accept(request().replace(b"\r\n", b"\n")).response == accept(request()).response


def test_tokens_are_compared_in_any_case_and_in_lists() -> None:
    accept(request(Upgrade="h2c, WebSocket", Connection="keep-alive,\tUPGRADE"))


def test_folded_header_is_joined() -> None:
    accept(request(Connection="keep-alive,\r\n Upgrade"))


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.2"])
def test_every_minor_version_of_http_1_is_accepted(version: str) -> None:
    accept(request(version=version))


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", "/"),
        ("/a/b?c=/mqtt", "/a/b"),
        ("/a%2Fb", "/a%2Fb"),
        ("/leafnodex", "/leafnodex"),
        ("/xmqtt", "/xmqtt"),
        ("/mqtt/", "/mqtt/"),
        ("http://host/x?y", "/x"),
        ("ws://host", "/"),
        ("//a", "//a"),
    ],
)
def test_any_other_path_is_a_client(target: str, path: str) -> None:
    assert accept(request(path=target)).path == path


# --- refusals


@pytest.mark.parametrize(
    ("raw", "status", "error"),
    [
        (request(method="POST"), 405, "request method must be GET"),
        (request(method="get"), 405, "request method must be GET"),
        (request(Host=""), 400, "'Host' missing in request"),
        (request(version="HTTP/1.0", Host=None), 400, "'Host' missing in request"),
        (request(Upgrade=None), 400, "invalid value for header 'Upgrade'"),
        (request(Upgrade="websockets"), 400, "invalid value for header 'Upgrade'"),
        (request(Connection=None), 400, "invalid value for header 'Connection'"),
        (request(Connection="close"), 400, "invalid value for header 'Connection'"),
        (request(Sec_WebSocket_Key=None), 400, "key missing"),
        (request(Sec_WebSocket_Key="xx"), 400, "invalid websocket key"),
        (request(Sec_WebSocket_Key="AAECAwQFBgcICQoLDA0ODw"), 400, "invalid websocket key"),
        (request(Sec_WebSocket_Key="\xe9" * 24), 400, "invalid websocket key"),
        (request(Sec_WebSocket_Version=None), 400, "invalid version"),
        (request(Sec_WebSocket_Version="8"), 400, "invalid version"),
        (request(path="/mqtt"), 404, "mqtt websocket endpoint not enabled"),
        (request(path="/a/mqtt?x=1"), 404, "mqtt websocket endpoint not enabled"),
        (request(path="http://h/mqtt"), 404, "mqtt websocket endpoint not enabled"),
        (request(path="/leafnode"), 404, "leafnode websocket endpoint not enabled"),
        (
            request(method="POST", path="/a/leafnode"),
            404,
            "leafnode websocket endpoint not enabled",
        ),
        (request() + b"\x82", 400, "client sent data before handshake is complete"),
    ],
)
def test_wrong_upgrade_is_refused_with_status_and_reason(
    raw: bytes, status: int, error: str
) -> None:
    assert refuse(raw) == (status, error)


def test_refusal_has_the_headers_and_body_of_the_official_server() -> None:
    assert shake(request(method="POST")).response == (
        b"HTTP/1.1 405 Method Not Allowed\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\n"
        b"Sec-Websocket-Version: 13\r\n"
        b"X-Content-Type-Options: nosniff\r\n"
        b"Content-Length: 19\r\n"
        b"Connection: close\r\n\r\n"
        b"Method Not Allowed\n"
    )


def test_refusal_of_head_has_no_body() -> None:
    response = shake(request(method="HEAD")).response
    assert b"Content-Length: 19\r\n" in response
    assert response.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("raw", "status_line"),
    [
        (request(Host=None), "400 Bad Request: missing required Host header"),
        (request(path="http://h/", Host=None), "400 Bad Request: missing required Host header"),
        (request(Host="a b"), "400 Bad Request: malformed Host header"),
        (request(Host="a/b"), "400 Bad Request: malformed Host header"),
        (request(host="second"), "400 Bad Request"),
        (
            request(version="HTTP/2.0"),
            "505 HTTP Version Not Supported: unsupported protocol version",
        ),
        (
            request(version="HTTP/0.9"),
            "505 HTTP Version Not Supported: unsupported protocol version",
        ),
        (request(version="HTTP/1.1x"), "400 Bad Request"),
        (request(version="http/1.1"), "400 Bad Request"),
        (request(path="x"), "400 Bad Request"),
        (request(path="*"), "400 Bad Request"),
        (request(path="/a b"), "400 Bad Request"),
        (request(path="/a%zz"), "400 Bad Request"),
        (request(path="/a\x01"), "400 Bad Request"),
        (request(method="G@T"), "400 Bad Request"),
        (request(Foo="a\x01b"), "400 Bad Request"),
        (request(Foo="a\rb"), "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nNoColon\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\n: empty\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\n folded: first\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nF(oo: x\r\n\r\n", "400 Bad Request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nFoo : x\r\n\r\n", "400 Bad Request: invalid header name"),
        (b"\r\n" + request(), "400 Bad Request"),
        (b"\n\n", "400 Bad Request"),
    ],
)
def test_malformed_request_is_refused_with_the_bytes_of_the_official_server(
    raw: bytes, status_line: str
) -> None:
    result = shake(raw)
    assert not result.accepted
    assert result.error
    assert result.response.decode() == (
        f"HTTP/1.1 {status_line}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Connection: close\r\n\r\n{status_line}"
    )


@pytest.mark.parametrize("start", [b"hello\r\n", b"\x16\x03\x01", b"\x00", b"INFO {}\r\n", b" GET"])
def test_what_cannot_become_a_request_is_refused_at_once(start: bytes) -> None:
    assert refuse(start)[0] == 400


@pytest.mark.parametrize("start", [b"", b"G", b"GET / HT", b"GET / HTTP/1.1\r\n", request()[:-1]])
def test_what_can_become_a_request_is_waited_for(start: bytes) -> None:
    assert Handshake(PLAIN, False).feed(start) is None


def test_request_of_the_largest_size_is_accepted_and_one_byte_more_is_not() -> None:
    fixed_bytes = len(request(X=""))
    accept(request(X="a" * (REQUEST_BYTES_MAX - fixed_bytes)))
    assert refuse(request(X="a" * (REQUEST_BYTES_MAX - fixed_bytes + 1)))[0] == 431


def test_endless_request_is_refused_before_its_end_and_not_held() -> None:
    handshake = Handshake(PLAIN, False)
    assert handshake.feed(b"GET /" + b"a" * (REQUEST_BYTES_MAX - 5)) is None
    result = handshake.feed(b"a" * 10_000_000)
    assert result is not None
    assert result.response.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert result.error == f"the request has more than {REQUEST_BYTES_MAX} bytes"


def test_timeout_in_the_middle_of_a_request_is_answered_and_before_it_is_not() -> None:
    handshake = Handshake(PLAIN, False)
    assert handshake.expire() == b""
    handshake.feed(b"GET / HT")
    assert handshake.expire().startswith(b"HTTP/1.1 400 Bad Request\r\n")


# --- origins

SAME = WebsocketOptions(same_origin=True)
LISTED = WebsocketOptions(
    allowed_origins=("http://a.com", "http://a.com:8080", "https://b.com:444")
)


@pytest.mark.parametrize(
    ("host", "origin", "tls", "passes"),
    [
        ("localhost:8080", "http://localhost:8080", False, True),
        ("localhost:8080", "http://LOCALHOST:8080/page", False, True),
        ("localhost:8080", "http://user@localhost:8080", False, True),
        ("localhost", "http://localhost:80", False, True),
        ("localhost:80", "http://localhost", False, True),
        ("localhost", "https://localhost", True, True),
        ("[::1]:8080", "http://[::1]:8080", False, True),
        ("localhost:8080", "https://localhost:8080", False, False),
        ("localhost:8080", "http://localhost", False, False),
        ("localhost", "https://localhost", False, False),
        ("localhost:8080", "http://other:8080", False, False),
        ("localhost:8080", "//localhost:8080", False, False),
        ("localhost:8080", "http://localhost:8080x", False, False),
        ("localhost:8080", "http://localhost:99999", False, False),
        ("localhost:8080", "http://[::1", False, False),
        ("localhost:8080", "null", False, False),
        ("localhost:8080", "file:///x", False, False),
        ("local[host", "http://localhost", False, False),
    ],
)
def test_same_origin_compares_scheme_host_and_port(
    host: str, origin: str, tls: bool, passes: bool
) -> None:
    raw = request(Host=host, Origin=origin)
    if passes:
        accept(raw, SAME, tls=tls)
    else:
        status, error = refuse(raw, SAME, tls=tls)
        assert status == 403
        assert error.startswith("origin not allowed: ")


@pytest.mark.parametrize(
    ("origin", "passes"),
    [
        ("http://a.com", True),
        ("http://A.com:80", True),
        ("http://a.com:8080", True),
        ("https://b.com:444", True),
        ("https://a.com", False),
        ("http://b.com:444", False),
        ("https://b.com", False),
        ("http://a.com.evil.org", False),
        ("null", False),
    ],
)
def test_allowed_origins_compare_scheme_host_and_port(origin: str, passes: bool) -> None:
    assert shake(request(Origin=origin), LISTED).accepted is passes


@pytest.mark.parametrize("options", [SAME, LISTED])
def test_request_without_origin_passes(options: WebsocketOptions) -> None:
    accept(request(), options)


def test_old_name_of_the_origin_header_counts_too() -> None:
    assert refuse(request(Sec_WebSocket_Origin="http://evil.org"), SAME)[0] == 403


def test_both_rules_must_hold_when_both_are_set() -> None:
    options = WebsocketOptions(same_origin=True, allowed_origins=("http://a.com",))
    accept(request(Host="a.com", Origin="http://a.com"), options)
    assert refuse(request(Host="b.com", Origin="http://a.com"), options)[0] == 403
    assert refuse(request(Host="b.com", Origin="http://b.com"), options)[0] == 403


def test_no_rule_lets_every_origin_pass() -> None:
    accept(request(Origin="null"))


@pytest.mark.parametrize("origin", ["a.com", "http://a.com:port", "http://[::1"])
def test_allowed_origin_that_is_no_url_is_a_config_error(origin: str) -> None:
    with pytest.raises(ConfigError, match="allowed origin"):
        Handshake(WebsocketOptions(allowed_origins=(origin,)), False)


# --- what is negotiated and learnt


@pytest.mark.parametrize(
    ("offer", "window_bits", "answer"),
    [
        ("permessage-deflate", 15, DEFLATE_ANSWER),
        ("foo, Permessage-Deflate; client_max_window_bits", 15, DEFLATE_ANSWER),
        (
            "permessage-deflate; server_max_window_bits=10",
            10,
            DEFLATE_ANSWER + "; server_max_window_bits=10",
        ),
        (
            'permessage-deflate; server_max_window_bits="12"',
            12,
            DEFLATE_ANSWER + "; server_max_window_bits=12",
        ),
        (
            "permessage-deflate; server_max_window_bits=8, permessage-deflate",
            15,
            DEFLATE_ANSWER,
        ),
    ],
)
def test_compression_is_agreed_with_the_first_offer_that_can_be_served(
    offer: str, window_bits: int, answer: str
) -> None:
    result = accept(request(Sec_WebSocket_Extensions=offer), DEFLATE)
    assert result.compression
    assert result.window_bits == window_bits
    assert f"\r\nSec-WebSocket-Extensions: {answer}\r\n".encode() in result.response


@pytest.mark.parametrize(
    ("offer", "options"),
    [
        (None, DEFLATE),
        ("x-webkit-deflate-frame", DEFLATE),
        ("permessage-deflate; server_max_window_bits=8", DEFLATE),
        ("permessage-deflate; server_max_window_bits=99", DEFLATE),
        ("permessage-deflate; server_max_window_bits", DEFLATE),
        ("permessage-deflate", PLAIN),
    ],
)
def test_compression_needs_an_offer_that_can_be_served_and_the_option(
    offer: str | None, options: WebsocketOptions
) -> None:
    result = accept(request(Sec_WebSocket_Extensions=offer), options)
    assert not result.compression
    assert b"Extensions" not in result.response


@pytest.mark.parametrize(("value", "agreed"), [("true", True), ("True", False), (None, False)])
def test_masking_is_left_out_only_when_asked_for(value: str | None, agreed: bool) -> None:
    result = accept(request(Nats_No_Masking=value))
    assert result.no_masking is agreed
    assert (b"\r\nNats-No-Masking: true\r\n" in result.response) is agreed


CHROME = "Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36"
SAFARI = "Mozilla/5.0 (Macintosh) AppleWebKit/605.1 (KHTML, like Gecko) Version/17.0 Safari/605.1"


@pytest.mark.parametrize(
    ("user_agent", "is_browser", "fragment_compressed"),
    [
        (CHROME, True, True),
        (SAFARI, True, False),
        ("nats.ws/1.0 Mozilla/", False, True),
        (None, False, True),
    ],
)
def test_browser_is_known_by_its_user_agent(
    user_agent: str | None, is_browser: bool, fragment_compressed: bool
) -> None:
    result = accept(request(User_Agent=user_agent))
    assert result.is_browser is is_browser
    assert result.fragment_compressed is fragment_compressed


@pytest.mark.parametrize(
    ("value", "client_ip"),
    [
        ("1.2.3.4", "1.2.3.4"),
        (" ::1 ", "::1"),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
        ("1.2.3.4, 5.6.7.8", ""),
        ("1.2.3.4:80", ""),
        ("01.2.3.4", ""),
        ("[::1]", ""),
        ("fe80::1%eth0", ""),
        ("bogus", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_forwarded_address_is_used_only_when_it_is_one_address(
    value: str | None, client_ip: str
) -> None:
    assert accept(request(X_Forwarded_For=value)).client_ip == client_ip


@pytest.mark.parametrize(
    ("value", "cookies"),
    [
        ("u=joe; p=pw", {"u": "joe", "p": "pw"}),
        ("u=joe;p=pw", {"u": "joe", "p": "pw"}),
        ('u="joe"; p=a=b', {"u": "joe", "p": "a=b"}),
        ("u=first; u=last; U=other", {"u": "last", "U": "other"}),
        ("u=good; u=jo\\e; junk; x y=1; =2", {"u": "good"}),
        ('u="; p=""', {"p": ""}),
        ("u= joe ", {"u": " joe"}),
        (None, {}),
    ],
)
def test_cookies_are_read(value: str | None, cookies: dict[str, str]) -> None:
    assert accept(request(Cookie=value)).cookies == cookies


def test_cookies_are_not_in_the_repr() -> None:
    assert "hunter2" not in repr(accept(request(Cookie="pass=hunter2")))


@pytest.mark.parametrize(
    "headers", [{"X Y": "a"}, {"": "a"}, {"X": "a\r\nSet-Cookie: b"}, {"X\n": "a"}, {"X": "a\0"}]
)
def test_extra_header_that_would_break_the_response_is_a_config_error(
    headers: dict[str, str],
) -> None:
    with pytest.raises(ConfigError, match="websocket: header"):
        Handshake(WebsocketOptions(headers=headers), False)


# --- any input


def check_any(raw: bytes, cuts: list[int]) -> None:
    """Any input leads to one result or to waiting, never to another exception."""
    options = WebsocketOptions(
        compression=True, same_origin=True, allowed_origins=("http://a.com",)
    )
    handshake = Handshake(options, False)
    result = None
    places = [0, *sorted(cuts), len(raw)]
    for start, end in pairwise(places):
        result = result or handshake.feed(raw[start:end])
    if result is None:
        assert bool(handshake.expire()) is bool(raw)
        return
    assert result.response.startswith(b"HTTP/1.1 ")
    assert result.accepted is result.response.startswith(b"HTTP/1.1 101 ")
    assert bool(result.error) is not result.accepted


@settings(max_examples=some(100, 300), deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_arbitrary_bytes_are_refused_or_waited_for(raw: bytes, cuts: list[int]) -> None:
    check_any(raw, cuts)


@pytest.mark.slow
@settings(max_examples=some(150, 500), deadline=None)
@given(
    st.integers(0, 400),
    st.integers(0, 20),
    st.binary(max_size=20),
    st.lists(st.integers(0, 400), max_size=5),
)
def test_damaged_request_is_answered_or_waited_for(
    place: int, removed: int, added: bytes, cuts: list[int]
) -> None:
    raw = request(
        Origin="http://a.com",
        Cookie="a=b",
        X_Forwarded_For="1.2.3.4",
        Sec_WebSocket_Extensions="permessage-deflate; server_max_window_bits=12",
        Host="a.com",
    )
    check_any(raw[:place] + added + raw[place + removed :], cuts)
