"""Getting, deleting and purging the messages of a stream, by the API and directly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.helpers_publish import Publisher


def six_messages(peer: Publisher, **config: Any) -> str:
    """Messages 1 to 6 on x.1, x.2, x.0, x.1, ..., of which 2 is deleted; gives the stream."""
    name = peer.create(allow_direct=True, **config)
    for number in range(1, 7):
        header = b"H: v" if number % 2 else b""
        peer.publish(f"{name.lower()}.{number % 3}", b"m%d" % number, header)
    assert peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 2})["success"]
    return name


def fitted(request: dict[str, Any], name: str, third: str = "") -> dict[str, Any]:
    """A request for stream `name`: "x" in it is its prefix, "T" the time of message 3."""
    text = json.dumps(request).replace('"x.', f'"{name.lower()}.').replace('"T"', f'"{third}"')
    found: dict[str, Any] = json.loads(text)
    return found


GETS: list[tuple[dict[str, Any], int]] = [
    ({"seq": 1}, 1),
    ({"last_by_subj": "x.1"}, 4),
    ({"last_by_subj": "x.*"}, 6),
    ({"next_by_subj": "x.0"}, 3),
    ({"seq": 4, "next_by_subj": "x.0"}, 6),
    ({"seq": 2, "next_by_subj": ">"}, 3),
    ({"start_time": "T"}, 3),
    ({"start_time": "T", "next_by_subj": "x.2"}, 5),
    ({"start_time": "1990-01-01T00:00:00Z"}, 1),
    ({"seq": 1, "no_hdr": True}, 1),
    ({"seq": 2}, -10037),
    ({"seq": 99}, -10037),
    ({"last_by_subj": "zz"}, -10037),
    ({"last_by_subj": "x..b"}, -10037),
    ({"next_by_subj": "x..b"}, -10037),
    ({"seq": 7, "next_by_subj": "x.*"}, -10037),
    ({"start_time": "2040-01-01T00:00:00Z"}, -10037),
    ({"seq": 0}, -10003),
    ({"multi_last": ["x.1"]}, -10003),
    ({"seq": 1, "last_by_subj": "x.1"}, -10003),
    ({"next_by_subj": "x.1", "last_by_subj": "x.1"}, -10003),
    ({"start_time": "T", "seq": 1}, -10003),
    ({"start_time": "T", "last_by_subj": "x.1"}, -10003),
    ({"seq": 1, "batch": 1}, -10003),
    ({"seq": 1, "max_bytes": 1}, -10003),
]


def test_get_finds_what_a_request_names(peer: Publisher) -> None:
    name = six_messages(peer)
    message = peer.api(f"STREAM.MSG.GET.{name}", {"seq": 3})["message"]
    assert message["subject"] == f"{name.lower()}.0"
    assert message["hdrs"] == "TkFUUy8xLjANCkg6IHYNCg0K"
    assert message["data"] == "bTM="
    for request, expected in GETS:
        answer = peer.api(f"STREAM.MSG.GET.{name}", fitted(request, name, message["time"]))
        found = answer["message"]["seq"] if "message" in answer else -answer["error"]["err_code"]
        assert found == expected, request


DIRECT: list[tuple[dict[str, Any] | bytes, list[str]]] = [
    (b"", ["408 Empty Request"]),
    (b"{}", ["408 Empty Request"]),
    (b"null", ["408 Empty Request"]),
    ({"batch": 2}, ["408 Empty Request"]),
    ({"up_to_seq": 2}, ["408 Empty Request"]),
    ({"multi_last": []}, ["408 Empty Request"]),
    (b"{bad", ["408 Malformed Request"]),
    (b"[]", ["408 Malformed Request"]),
    ({"seq": "x"}, ["408 Malformed Request"]),
    ({"seq": -1}, ["408 Malformed Request"]),
    ({"seq": 1, "last_by_subj": "x.1"}, ["408 Bad Request"]),
    ({"seq": 1, "start_time": "T"}, ["408 Bad Request"]),
    ({"last_by_subj": "x.1", "start_time": "T"}, ["408 Bad Request"]),
    ({"last_by_subj": "x.1", "next_by_subj": "x.1"}, ["408 Bad Request"]),
    ({"last_by_subj": "x.1", "batch": 2}, ["408 Bad Request"]),
    ({"last_by_subj": "x.1", "multi_last": ["x.1"]}, ["408 Bad Request"]),
    ({"next_by_subj": "x.1", "multi_last": ["x.1"]}, ["408 Bad Request"]),
    ({"multi_last": ["x.1"], "up_to_seq": 2, "up_to_time": "T"}, ["408 Bad Request"]),
    ({"seq": 2}, ["404 Message Not Found"]),
    ({"seq": 99, "batch": 2}, ["404 Message Not Found"]),
    ({"last_by_subj": "x..1"}, ["404 Message Not Found"]),
    ({"start_time": "2040-01-01T00:00:00Z", "batch": 2}, ["404 Message Not Found"]),
    ({"seq": 1}, ["1 m1"]),
    ({"SEQ": 1, "unknown": 1}, ["1 m1"]),
    ({"seq": 1, "no_hdr": True}, ["m1"]),
    ({"seq": 1, "max_bytes": 1}, ["1 m1"]),
    ({"last_by_subj": "x.*"}, ["6 m6"]),
    ({"start_time": "T", "next_by_subj": "x.2"}, ["5 m5"]),
    ({"seq": 1, "batch": 2}, ["1 p4 l0 m1", "3 p3 l1 m3", "EOB p3 l3"]),
    ({"seq": 2, "batch": 1}, ["3 p3 l0 m3", "EOB p3 l3"]),
    ({"seq": 1, "batch": -1}, ["EOB p5 l0"]),
    ({"last_by_subj": "x.1", "batch": -1}, ["EOB p5 l0"]),
    ({"seq": 99, "batch": -1}, ["EOB p0 l0"]),
    ({"start_time": "T", "batch": 1}, ["3 p3 l0 m3", "EOB p3 l3"]),
    ({"next_by_subj": "x.1", "batch": 5}, ["1 p1 l0 m1", "4 p0 l1 m4", "EOB p0 l4"]),
    ({"seq": 5, "batch": 5}, ["5 p1 l0 m5", "6 p0 l5 m6", "EOB p0 l6"]),
    ({"seq": 1, "batch": 9, "max_bytes": -1}, ["1 p4 l0 m1", "EOB p4 l1"]),
    ({"multi_last": ["x.*"]}, ["4 p2 l0 m4", "5 p1 l4 m5", "6 p0 l5 m6", "EOB p0 l6 u6"]),
    ({"multi_last": ["x.1", "x.1"]}, ["4 p0 l0 m4", "EOB p0 l4 u6"]),
    ({"multi_last": ["x.*"], "batch": 1}, ["4 p2 l0 m4", "EOB p2 l4 u6"]),
    ({"multi_last": ["x.*"], "seq": 6}, ["6 p0 l0 m6", "EOB p0 l6 u6"]),
    ({"multi_last": ["x.*"], "seq": 7}, ["EOB p0 l0 u6"]),
    ({"multi_last": ["x.*"], "up_to_seq": 4}, ["3 p1 l0 m3", "4 p0 l3 m4", "EOB p0 l4 u4"]),
    ({"multi_last": ["x.*"], "up_to_time": "T"}, ["1 p0 l0 m1", "EOB p0 l1 u2"]),
    ({"multi_last": ["x.*"], "up_to_seq": 7}, ["404 No Results"]),
    ({"multi_last": ["x.*"], "up_to_time": "1999-01-01T00:00:00Z"}, ["404 No Results"]),
    ({"multi_last": ["zz"]}, ["404 No Results"]),
    ({"multi_last": ["x..1"]}, ["404 No Results"]),
]
_SHORT = {
    "Nats-Sequence": "",
    "Nats-Num-Pending": "p",
    "Nats-Last-Sequence": "l",
    "Nats-UpTo-Sequence": "u",
}


def short(answer: list[str]) -> str:
    """A reply in one line: sequence or status, pending, last and up-to sequence, payload."""
    *lines, payload = answer
    words = []
    if lines and lines[0] != "NATS/1.0":
        words.append(lines[0].removeprefix("NATS/1.0 ").removeprefix("204 "))
    for line in lines[1:]:
        name, _, value = line.partition(": ")
        if name in _SHORT:
            words.append(_SHORT[name] + value)
    return " ".join([*words, payload] if payload else words)


def test_direct_get_answers(peer: Publisher) -> None:
    name = six_messages(peer)
    third = peer.api(f"STREAM.MSG.GET.{name}", {"seq": 3})["message"]["time"]
    for request, expected in DIRECT:
        body = (
            request
            if isinstance(request, bytes)
            else json.dumps(fitted(request, name, third)).encode()
        )
        answers = peer.answers(f"$JS.API.DIRECT.GET.{name}", body)
        assert [short(answer) for answer in answers] == expected, request


def test_direct_get_reply_is_the_message_with_its_origin(peer: Publisher) -> None:
    name = six_messages(peer)
    peer.send(f"$JS.API.DIRECT.GET.{name}", b'{"seq":1}')
    _, header, payload = peer.client.read_message()
    lines = header.decode().split("\r\n")
    assert lines[:5] == [
        "NATS/1.0",
        "H: v",
        f"Nats-Stream: {name}",
        f"Nats-Subject: {name.lower()}.1",
        "Nats-Sequence: 1",
    ]
    assert lines[5].startswith("Nats-Time-Stamp: ")
    assert lines[6:] == ["", ""]
    assert payload == b"m1"


def test_direct_get_by_subject(peer: Publisher) -> None:
    name = six_messages(peer)
    subject = f"$JS.API.DIRECT.GET.{name}.{name.lower()}"

    def answers(last: str, body: bytes = b"") -> list[str]:
        return [short(answer) for answer in peer.answers(f"{subject}.{last}", body)]

    assert answers("1") == ["4 m4"]
    assert answers("1", b"{}") == ["4 m4"]
    assert answers("1", b'{"no_hdr":true}') == ["m4"]
    assert answers("1", b'{"seq":1}') == ["408 Bad Request"]
    assert answers("1", b'{"batch":1}') == ["408 Bad Request"]
    assert answers("1", b"{bad") == ["408 Malformed Request"]
    assert answers("zz") == ["404 Message Not Found"]


def test_direct_get_of_a_higher_api_level(peer: Publisher) -> None:
    name = six_messages(peer)
    for level, expected in (
        (b"99", "412 Required Api Level"),
        (b"x", "412 Required Api Level"),
        (b"1", "1 m1"),
    ):
        header = b"Nats-Required-Api-Level: " + level
        answers = peer.answers(f"$JS.API.DIRECT.GET.{name}", b'{"seq":1}', header)
        assert [short(answer) for answer in answers] == [expected]


def test_direct_get_is_allowed_by_the_configuration(peer: Publisher) -> None:
    name = peer.create()
    peer.publish(f"{name.lower()}.1", b"x")
    assert peer.publish(f"$JS.API.DIRECT.GET.{name}", b'{"seq":1}').startswith(b"NATS/1.0 503")
    peer.update(name, allow_direct=True)
    assert peer.publish(f"$JS.API.DIRECT.GET.{name}", b'{"seq":1}').endswith(b"\r\n\r\nx")
    peer.update(name, allow_direct=False)
    assert peer.publish(f"$JS.API.DIRECT.GET.{name}", b'{"seq":1}').startswith(b"NATS/1.0 503")


def test_direct_get_of_too_many_last_messages(peer: Publisher) -> None:
    name = peer.create(allow_direct=True)
    for number in range(1025):
        peer.client.send(f"PUB {name.lower()}.{number} 0\r\n\r\n")
    assert b'"seq":1026}' in peer.publish(f"{name.lower()}.0")
    body = json.dumps({"multi_last": [f"{name.lower()}.*"]}).encode()
    answers = peer.answers(f"$JS.API.DIRECT.GET.{name}", body)
    assert [short(answer) for answer in answers] == ["413 Too Many Results"]
    body = json.dumps({"multi_last": [f"{name.lower()}.*"], "up_to_seq": 1024}).encode()
    assert len(peer.answers(f"$JS.API.DIRECT.GET.{name}", body)) == 1025


PURGES: list[tuple[dict[str, Any], int, list[int], int]] = [
    ({}, 5, [], 6),
    ({"seq": 3}, 1, [3, 4, 5, 6], 6),
    ({"seq": 100}, 5, [], 99),
    ({"keep": 2}, 3, [5, 6], 6),
    ({"keep": 9}, 0, [1, 3, 4, 5, 6], 6),
    ({"filter": "x.1"}, 2, [3, 5, 6], 6),
    ({"filter": "x.1", "seq": 3}, 1, [3, 4, 5, 6], 6),
    ({"filter": "x.*", "keep": 1}, 4, [6], 6),
    ({"filter": "zz"}, 0, [1, 3, 4, 5, 6], 6),
    ({"filter": "x..1"}, 0, [1, 3, 4, 5, 6], 6),
]


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize(("request_", "purged", "left", "last_seq"), PURGES)
def test_purge(
    peer: Publisher,
    storage: str,
    request_: dict[str, Any],
    purged: int,
    left: list[int],
    last_seq: int,
) -> None:
    name = six_messages(peer, storage=storage)
    answer = peer.api(f"STREAM.PURGE.{name}", fitted(request_, name))
    assert (answer["success"], answer["purged"]) == (True, purged)
    assert peer.sequences(name) == left
    state = peer.state(name)
    assert state["last_seq"] == last_seq
    assert left or state["first_seq"] == last_seq + 1


def test_purge_by_sequence_and_number_is_a_bad_request(peer: Publisher) -> None:
    name = six_messages(peer)
    assert peer.api(f"STREAM.PURGE.{name}", {"seq": 1, "keep": 1})["error"]["err_code"] == 10003


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_purge_can_name_the_stream_by_the_time_of_its_creation(
    peer: Publisher, storage: str
) -> None:
    """nats-server ignores the header."""
    name = six_messages(peer, storage=storage)
    created = peer.api(f"STREAM.INFO.{name}")["created"]

    def purge(header: str, seq: int) -> dict[str, Any]:
        answer = peer.publish(f"$JS.API.STREAM.PURGE.{name}", b'{"seq": %d}' % seq, header.encode())
        document: dict[str, Any] = json.loads(answer)
        return document

    assert purge(f"Tradewind-Expected-Created: {created}", 2)["purged"] == 1
    earlier = purge("tradewind-expected-created: 2020-01-01T00:00:00Z", 4)
    wrong = purge("Tradewind-Expected-Created: yesterday", 5)
    if peer.kind == "official":
        assert (earlier["purged"], wrong["purged"]) == (1, 1)
        return
    assert earlier["error"] == {
        "code": 409,
        "err_code": 20601,
        "description": f"stream {name} was created at {created}, not at 2020-01-01T00:00:00Z",
    }
    assert wrong["error"]["err_code"] == 20602
    assert wrong["error"]["description"].endswith("2026-01-31T12:00:00Z, not 'yesterday'")
    assert peer.state(name)["messages"] == 4


def test_deleting_what_is_not_there(peer: Publisher) -> None:
    name = six_messages(peer)
    peer.api(f"STREAM.PURGE.{name}", {"seq": 2})
    peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 4})
    for seq, code, text in (
        (1, 10057, "no message found"),
        (4, 10043, "sequence 4 not found"),
        (9, 10057, "stream store EOF"),
    ):
        error = peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})["error"]
        assert (error["err_code"], error["description"]) == (code, text)
    name = six_messages(peer, storage="memory")
    for seq in (2, 9):
        error = peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": seq})["error"]
        assert (error["err_code"], error["description"]) == (10043, f"sequence {seq} not found")


def test_denied_and_sealed_streams(peer: Publisher) -> None:
    name = peer.create(deny_delete=True, deny_purge=True)
    peer.publish(f"{name.lower()}.1", b"x")

    def errors() -> list[tuple[int, str]]:
        answers = (
            peer.api(f"STREAM.MSG.DELETE.{name}", {"seq": 1}),
            peer.api(f"STREAM.PURGE.{name}"),
        )
        return [(item["error"]["err_code"], item["error"]["description"]) for item in answers]

    assert errors() == [
        (10057, "message delete not permitted"),
        (10110, "stream purge not permitted"),
    ]
    peer.update(name, sealed=True)
    assert errors() == [(10109, "invalid operation on sealed stream")] * 2
    assert peer.api(f"STREAM.MSG.GET.{name}", {"seq": 1})["message"]["data"] == "eA=="
