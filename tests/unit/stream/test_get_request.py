"""Bodies of direct gets: what is read in place says the same as the decoder for everything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.api.errors import ApiError
from tradewind.api.request_types import MsgGetRequest
from tradewind.api.requests import decode_lenient
from tradewind.stream.get_request import plain_request, read_decoded, read_plain

NAMES = (
    "seq",
    "last_by_subj",
    "next_by_subj",
    "batch",
    "max_bytes",
    "start_time",
    "multi_last",
    "up_to_seq",
    "up_to_time",
    "no_hdr",
)
TYPICAL: list[dict[str, Any]] = [
    {},
    {"seq": 1},
    {"seq": 2**63 - 1},
    {"last_by_subj": "orders.1"},
    {"next_by_subj": "orders.*", "seq": 7},
    {"seq": 1, "batch": 500},
    {"seq": 1, "batch": 500, "max_bytes": 65536, "next_by_subj": "orders.>"},
    {"batch": 2**63 - 1, "seq": 1},
    {"multi_last": []},
    {"multi_last": ["orders.1", "orders.*"], "up_to_seq": 9, "batch": 2},
    {"no_hdr": True},
    {"no_hdr": False, "seq": 3},
    {"last_by_subj": ""},
]
UNUSUAL = [
    b"",
    b"null",
    b"[]",
    b"{",
    b'{"seq":1',
    b'{"seq":1,}',
    b'{"seq":1}x',
    b'{"seq":1}{}',
    b'{"seq":-1}',
    b'{"seq":01}',
    b'{"seq":1.0}',
    b'{"seq":1e1}',
    b'{"seq":1E1}',
    b'{"seq":18446744073709551616}',
    b'{"batch":9223372036854775808}',
    b'{"max_bytes":-1}',
    b'{"seq":"1"}',
    b'{"seq":null}',
    b'{"seq":1,"seq":2}',
    b'{"SEQ":1}',
    b'{"unknown":1}',
    b'{"last_by_subj":"a\\u0062"}',
    b'{"last_by_subj":"\xc3\xa4"}',
    b'{"last_by_subj":"\xff"}',
    b'{"last_by_subj":"a\tb"}',
    b'{"last_by_subj":"a',
    b'{"multi_last":["a",]}',
    b'{"multi_last":["a"',
    b'{"multi_last":[1]}',
    b'{"multi_last":"a"}',
    b'{"start_time":"2026-01-31T12:00:00Z"}',
    b'{"no_hdr":1}',
    b'{"no_hdr":tru}',
    b"\xef\xbb\xbf{}",
]


def decoded(body: bytes) -> dict[str, Any] | None:
    """What the decoder for everything says; None: it is not a request."""
    try:
        return read_decoded(decode_lenient(MsgGetRequest, body))
    except ApiError:
        return None


@pytest.mark.parametrize("request_", TYPICAL, ids=json.dumps)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), ("\t,\r\n", " :\n")])
def test_body_as_clients_write_it_is_plain(
    request_: dict[str, Any], separators: tuple[str, str]
) -> None:
    body = json.dumps(request_, separators=separators).encode()
    assert read_plain(body) == decoded(body)
    assert decoded(body) is not None


@pytest.mark.parametrize("body", UNUSUAL)
def test_unusual_body_is_left_to_the_decoder(body: bytes) -> None:
    assert read_plain(body) is None


WORDS = st.sampled_from(
    [
        *(f'"{name}"' for name in NAMES),
        *'{}[]:,"\\ -.',
        "\n",
        "true",
        "false",
        "null",
        "0",
        "1",
        "18446744073709551615",
        "9223372036854775807",
        "9999999999999999999",
        "1e3",
        '"a.*"',
        '"\\u0061"',
        '"\u00e4"',
        '"SEQ"',
        '"2026-01-31T12:00:00.5+01:00"',
        '"9999-12-31T00:00:00Z"',
    ]
)
VALUES = st.one_of(
    st.integers(-(2**65), 2**65),
    st.integers(0, 9),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
    st.sampled_from(["a.b", "a.*", ">", "2026-01-31T12:00:00Z", "0001-01-01T00:00:00Z"]),
    st.lists(st.one_of(st.sampled_from(["a", "b.*"]), st.text(max_size=3), st.integers(0, 2))),
    st.floats(allow_nan=False),
)
OBJECTS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4).map(
    lambda members: (
        "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members) + "}"
    ).encode()
)
BODIES = st.one_of(
    OBJECTS,
    st.lists(WORDS, max_size=12).map(lambda words: "".join(words).encode()),
    st.tuples(OBJECTS, st.integers(0, 60), st.binary(max_size=2)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :]
    ),
    st.binary(max_size=20),
)


@given(BODIES)
def test_plain_body_says_what_the_decoder_says(body: bytes) -> None:
    plain = read_plain(body)
    assert plain is None or plain == decoded(body)
    request = plain_request(body)
    assert request is None or request == decode_lenient(MsgGetRequest, body)


def test_plain_request_names_messages() -> None:
    assert plain_request(b'{"seq":7}') == MsgGetRequest(seq=7)
    assert plain_request(b'{"multi_last":["a","b.*"]}') == MsgGetRequest(multi_last=["a", "b.*"])
    assert plain_request(b"{}") is None
    assert plain_request(b'{"batch":1}') is None
