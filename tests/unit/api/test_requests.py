"""Requests from JSON. `cases/requests.jsonl` is what nats-server 2.15.1 says to them."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from js_cases import BodyCase, body_cases
from sweeps import sweep
from tradewind.api import go_json, requests
from tradewind.api.consumer_types import ConsumerConfig
from tradewind.api.endpoint_row import OWN_PREFIX, PREFIX, EndpointCall
from tradewind.api.endpoints import (
    ENDPOINT_BY_NAME,
    ENDPOINTS,
    NATS_ENDPOINTS,
    heard_subjects,
    parse_subject,
    subjects_by_word,
)
from tradewind.api.errors import ApiError
from tradewind.api.field_shapes import shapes_of
from tradewind.api.go_json import JsonError, Scanner
from tradewind.api.plain_json import read_plainly
from tradewind.api.request_types import (
    ConsumerCreateRequest,
    ConsumerUnpinRequest,
    NextRequest,
    StreamConfigRequest,
    StreamNamesRequest,
)
from tradewind.api.requests import decode_lenient, decode_request
from tradewind.api.stream_types import RetentionPolicy
from tradewind.subjects import is_subset

# Errors that the decoding of a body can find.
FOUND_BY_DECODING = (10003, 10025, 10038)
# The official server finds these after decoding, in the values.
OF_VALUES = {
    ("STREAM.PURGE.S", b'{"seq":1,"keep":1}'),
    ("STREAM.MSG.GET.S", b'{"seq":1,"batch":2}'),
    ("CONSUMER.UNPIN.S.c", b'{"x":1}'),
}


@sweep("case", body_cases(), ids=str)
def test_a_body_is_taken_or_refused_as_by_the_official_server(case: BodyCase) -> None:
    call = parse_subject(PREFIX + case.subject)
    assert call is not None
    if not case.error or case.error[1] not in FOUND_BY_DECODING:
        call.endpoint.decode(case.body)
    elif (case.subject, case.body) not in OF_VALUES:
        with pytest.raises(ApiError) as refusal:
            call.endpoint.decode(case.body)
        assert list(refusal.value.as_dict().values()) == case.error


def test_a_request_has_the_values_of_its_body() -> None:
    request = decode_request(
        ConsumerCreateRequest,
        b'{"stream_name":"S","CONFIG":{"ack_policy":"all","backoff":[1,2],"metadata":{"a":"b"},'
        b'"opt_start_time":"2026-01-01T0:00:00,500+00:00","ack_wait":1,"ack_wait":2}}',
    )
    assert request.config == ConsumerConfig(
        ack_policy=request.config.ack_policy.ALL,
        backoff=[1, 2],
        metadata={"a": "b"},
        opt_start_time="2026-01-01T00:00:00.5Z",
        ack_wait=2,
    )


def test_equal_names_are_merged_and_null_unsets() -> None:
    body = (
        b'{"mirror":{"name":"x"},"mirror":{"filter_subject":"y"},"subjects":["a"],"subjects":null}'
    )
    request = decode_request(StreamConfigRequest, body)
    assert request.mirror is not None
    assert (request.mirror.name, request.mirror.filter_subject) == ("x", "y")
    assert request.subjects == []
    assert decode_request(StreamConfigRequest, b'{"mirror":{},"mirror":null}').mirror is None
    assert decode_request(StreamConfigRequest, b'{"max_msgs":5} {"max_bytes":6}').max_msgs == 5


def test_text_that_is_broken_is_mended_as_by_go() -> None:
    body = b'{"name":"\xffx\xe2\x82\\ud800\\udc00z\\udc00\\ud800","description":"\\ud83d\xff"}'
    request = decode_request(StreamConfigRequest, body)
    assert request.name == "\ufffdx\ufffd\ufffd\U00010000z\ufffd\ufffd"
    assert request.description == "\ufffd\ufffd"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"name":"S","x":1', "unexpected end of JSON input"),
        (b'{"name":"S"} x', "invalid character 'x' after top-level value"),
        (b"x", "invalid character 'x' looking for beginning of value"),
    ],
)
def test_without_strictness_the_texts_are_those_of_unmarshal(body: bytes, text: str) -> None:
    with pytest.raises(ApiError) as refusal:
        decode_request(StreamConfigRequest, body, strict=False)
    assert refusal.value.description == f"invalid JSON: {text}"


def test_without_strictness_unknown_members_are_ignored() -> None:
    body = b'{"name":"S","bogus":{"name":1},"retention":"interest"}'
    request = decode_request(StreamConfigRequest, body, strict=False)
    assert (request.name, request.retention) == ("S", RetentionPolicy.INTEREST)


def test_a_lenient_body_must_be_there() -> None:
    assert decode_lenient(ConsumerUnpinRequest, b'{"group":"g","bogus":1}').group == "g"
    with pytest.raises(ApiError, match="unexpected end of JSON input"):
        decode_lenient(ConsumerUnpinRequest, b"")


@pytest.mark.slow
def test_depth_and_number_of_values_are_bounded() -> None:
    with pytest.raises(ApiError, match="exceeded max depth at offset 65"):
        decode_request(StreamNamesRequest, b"[" * 100_000)
    with pytest.raises(ApiError, match="more than 100000 values"):
        decode_request(StreamNamesRequest, b"[" + b"1," * 200_000 + b"1]")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=20,
)


def plain(node: go_json.JsonNode) -> object:
    if node.kind == "object":
        assert isinstance(node.value, list)
        return {name: plain(child) for name, child in node.value}
    if node.kind == "array":
        assert isinstance(node.value, list)
        return [plain(child) for child in node.value]
    return msgspec.json.decode(str(node.value)) if node.kind == "number" else node.value


@pytest.mark.slow
@given(JSON)
def test_the_scanner_reads_what_others_write(document: object) -> None:
    text = json.dumps(document)
    scanner = Scanner(f" {text}\n".encode())
    assert plain(scanner.next_document()) == json.loads(text)
    assert scanner.at_end()


@pytest.mark.slow
@given(JSON, st.data())
def test_the_scanner_never_fails_otherwise_than_by_its_error(
    document: object, data: st.DataObject
) -> None:
    text = bytearray(json.dumps(document).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        text[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    scanner = Scanner(bytes(text))
    with contextlib.suppress(JsonError):
        while not scanner.at_end():
            scanner.next_document()


def test_every_endpoint_is_found_by_its_subject() -> None:
    for endpoint in (each for each in ENDPOINTS if each.subject):
        subject = endpoint.subject_for("ORDERS", "worker", "orders.*.new")
        call = parse_subject(subject, is_system=endpoint.is_system)
        assert call is not None
        assert call.endpoint is endpoint
        assert call.stream == ("ORDERS" if "$s" in endpoint.subject else "")
        assert call.consumer == ("worker" if "$c" in endpoint.subject else "")
        assert call.rest == ("orders.*.new" if "$rest" in endpoint.subject else "")


@pytest.mark.parametrize(
    "subject",
    [
        "STREAM.INFO.a.b",
        "STREAM.INFO",
        "STREAM.INFO.",
        "CONSUMER.INFO.S",
        "CONSUMER.CREATE",
        "CONSUMER.DURABLE.CREATE.S",
        "STREAM.FOO",
        "STREAM",
        "INFO.x",
        "",
    ],
)
def test_other_subjects_are_no_endpoint(subject: str) -> None:
    assert parse_subject(PREFIX + subject) is None
    assert parse_subject(f"$JSC.{subject}") is None


def test_the_system_account_has_endpoints_of_its_own() -> None:
    for endpoint in (each for each in ENDPOINTS if each.subject):
        subject = endpoint.subject_for("S", "C", "x")
        assert parse_subject(subject, is_system=not endpoint.is_system) is None


def test_heard_subjects_are_few_and_leave_out_what_streams_and_consumers_hear() -> None:
    assert set(heard_subjects(PREFIX)) == {
        PREFIX + rest
        for rest in (
            "INFO",
            "STREAM.>",
            "ACCOUNT.>",
            "META.>",
            "SERVER.>",
            "CONSUMER.CREATE.>",
            "CONSUMER.DELETE.>",
            "CONSUMER.DURABLE.>",
            "CONSUMER.INFO.>",
            "CONSUMER.LEADER.>",
            "CONSUMER.LIST.>",
            "CONSUMER.NAMES.>",
            "CONSUMER.PAUSE.>",
            "CONSUMER.RESET.>",
            "CONSUMER.UNPIN.>",
        )
    }
    assert set(heard_subjects(OWN_PREFIX)) == {
        "$TW.API.BACKUP.>",
        "$TW.API.STREAM.>",
        "$TW.API.TEMPLATE.>",
    }


def test_what_is_dispatched_is_heard_once_and_nothing_else_is() -> None:
    for endpoint in (each for each in ENDPOINTS if each.subject):
        subject = endpoint.subject_for("S", "C", "x.y")
        heard = [each for each in heard_subjects(endpoint.prefix) if is_subset(subject, each)]
        assert len(heard) == endpoint.is_dispatched, (subject, heard)


def test_a_domain_has_every_word_of_the_api() -> None:
    assert set(subjects_by_word(PREFIX)) == {
        *("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>")
    }


def test_names_of_endpoints_are_unique_and_have_a_help() -> None:
    assert len(ENDPOINT_BY_NAME) == len(ENDPOINTS)
    assert all(endpoint.help.endswith(".") for endpoint in ENDPOINTS)
    assert parse_subject("$JS.API.INFO") == EndpointCall(ENDPOINT_BY_NAME["account_info"])


# -------------------------------------------------------------------- the quick way

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(["file", "FILE", "explicit", "limits", "2026-01-01T00:00:00Z", "é", "\ud800"]),
)


@st.composite
def objects(draw: st.DrawFn, struct: type[msgspec.Struct], depth: int = 3) -> str:
    """The text of an object with fields of a type, mostly of the right kind, some of them twice."""
    members = []
    names = draw(st.lists(st.sampled_from(struct.__struct_fields__), max_size=5))
    hints = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for name in names:
        inner = [
            argument
            for argument in (hints[name], *getattr(hints[name], "__args__", ()))
            if isinstance(argument, type) and issubclass(argument, msgspec.Struct)
        ]
        if inner and depth and draw(st.booleans()):
            text = draw(objects(inner[0], depth - 1))
        elif draw(st.booleans()):
            text = json.dumps(draw(SCALARS))
        else:
            nested = st.one_of(
                st.lists(SCALARS, max_size=3),
                st.lists(st.text(max_size=3), max_size=3),
                st.dictionaries(st.text(max_size=3), SCALARS, max_size=3),
                st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
            )
            text = json.dumps(draw(nested), ensure_ascii=draw(st.booleans()))
        written = draw(st.sampled_from([name, name, name.upper(), name + "x"]))
        members.append(f"{json.dumps(written)}:{text}")
    return "{" + ", ".join(members) + "}"


REQUESTS = sorted(
    {endpoint.request for endpoint in NATS_ENDPOINTS if endpoint.request is not None},
    key=lambda request: request.__name__,
)


@pytest.mark.slow
@given(st.data())
def test_the_quick_way_reads_what_the_slow_one_does_or_leaves_it_alone(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(REQUESTS))
    body = data.draw(objects(kind)).encode("utf-8", "surrogatepass")
    values = read_plainly(shapes_of(kind), body)
    if values is not None:
        assert msgspec.convert(values, kind) == requests._decode_documents(kind, body)
        assert msgspec.convert(values, kind) == requests._unmarshal(kind, body)
    values = read_plainly(shapes_of(kind), body, allow_unknown=True)
    if values is not None:
        assert msgspec.convert(values, kind) == requests._unmarshal(kind, body)


@pytest.mark.parametrize(
    "member",
    [
        b"1",
        b"1.5e3",
        b'"x"',
        b'{"batch":5}',
        b"[[[1,{}],null],true]",
        b"[" * 62 + b"]" * 62,
        b"[" + b",".join([b"1"] * (go_json.VALUES_MAX - 4)) + b"]",
        b'{"a":' * 62 + b"1" + b"}" * 62,
    ],
)
def test_unknown_members_are_ignored_the_quick_way(member: bytes) -> None:
    body = b'{"Batch":7,"other":' + member + b"}"
    values = read_plainly(shapes_of(NextRequest), body, allow_unknown=True)
    assert values == {"batch": 7}
    assert requests._unmarshal(NextRequest, body).batch == 7


@pytest.mark.parametrize(
    "member",
    [
        b"[" * 64 + b"]" * 64,
        b'{"a":' * 64 + b"1" + b"}" * 64,
        b"[" + b",".join([b"[]"] * go_json.VALUES_MAX) + b"]",
        b"NaN",
    ],
)
def test_unknown_members_count_for_the_size_of_a_request(member: bytes) -> None:
    body = b'{"batch":7,"other":' + member + b"}"
    assert read_plainly(shapes_of(NextRequest), body, allow_unknown=True) is None
    with pytest.raises(ApiError):
        requests.decode_lenient(NextRequest, body)


def test_long_request_that_is_not_plain_is_not_looked_at_closely() -> None:
    body = b'{"batch":7,' + b" " * 100 + b'"x":NaN}'
    with pytest.raises(ApiError, match="not plain JSON, and longer than 64 bytes"):
        requests.decode_lenient(NextRequest, body, closely_max=64)
    with pytest.raises(ApiError, match="invalid character 'N'"):
        requests.decode_lenient(NextRequest, body, closely_max=len(body))
    with pytest.raises(ApiError, match="invalid character 'N'"):
        requests.decode_lenient(NextRequest, body + b" " * 1000, closely_max=len(body))


def test_error_in_the_beginning_of_a_long_request_is_found() -> None:
    nested = b'{"x":' + b"[" * 100_000
    assert requests.error_in_beginning(nested[:1000]) == "exceeded max depth"
    body = '{"batch":12,"id":"\\u0041ü","x":[null,true,1.5e-3,{}],"y":""}'.encode()
    # Wherever it is cut off, it is right so far.
    assert {requests.error_in_beginning(body[:size]) for size in range(len(body) + 1)} == {None}


@pytest.mark.parametrize(
    "body",
    [
        b'{"name":"S","subjects":["a","b"],"max_msgs":5,"metadata":{"a":"\\"b\\n"}}',
        b' {"NAME":"S","storage":"file","subjects":null,"max_age":-0} ',
        '{"name":"ü","sources":[{"name":"x"}],"sources":[]}'.encode(),
        b'{"name":"\\u0053","metadata":{"\\ud83d\\ude00\\ud800":"\\udc00\\ud83d"}}',
        b'{"name":"\xff\xed\xa0\x80","metadata":{"\\ud800\x80":"\xe2\x82"}}',
    ],
)
def test_a_plain_request_goes_the_quick_way(body: bytes) -> None:
    values = read_plainly(shapes_of(StreamConfigRequest), body)
    assert values is not None
    expected = requests._decode_documents(StreamConfigRequest, body)
    assert msgspec.convert(values, StreamConfigRequest) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}{}",
        b'{"storage":"\\u0066ile"}',
        b'{"max_msgs":1.0}',
        b'{"max_msgs":NaN}',
        b'{"max_msgs":9223372036854775808}',
        b'{"storage":"FILE"}',
        b'{"storage":null}',
        b'{"unknown":1}',
        b'{"max_msgs":' + b"1" * 5000 + b"}",
        b'{"subjects":' + b"[" * 100_000 + b"}",
        b'{"subjects":[' + b",".join([b'"s"'] * go_json.VALUES_MAX) + b"]}",
    ],
)
def test_what_is_not_plain_goes_the_slow_way(body: bytes) -> None:
    assert read_plainly(shapes_of(StreamConfigRequest), body) is None
