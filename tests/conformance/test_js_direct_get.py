"""Direct gets that no good client sends: every kind of number, text and JSON; and many at once."""

from __future__ import annotations

import json
from itertools import product

import pytest
from helpers_reading import short, six_messages

from conformance.helpers_publish import Publisher

MALFORMED = ["408 Malformed Request"]
EMPTY = ["408 Empty Request"]
BAD = ["408 Bad Request"]
MISSING = ["404 Message Not Found"]
NOTHING = ["404 No Results"]
FIRST_TWO = ["1 p4 l0 m1", "3 p3 l1 m3", "EOB p3 l3"]
LAST_TWO = ["5 p1 l0 m5", "6 p0 l5 m6", "EOB p0 l6"]
# "x." is the prefix of the subjects of the stream.
BODIES: list[tuple[bytes, list[str]]] = [
    # Sequences.
    (b'{"seq":0}', EMPTY),
    (b'{"seq":null}', EMPTY),
    (b'{"seq":9223372036854775807}', MISSING),
    (b'{"seq":9223372036854775808}', MISSING),
    (b'{"seq":9999999999999999999}', MISSING),
    (b'{"seq":18446744073709551615}', MISSING),
    (b'{"seq":18446744073709551616}', MALFORMED),
    (b'{"seq":99999999999999999999999}', MALFORMED),
    (b'{"seq":-1}', MALFORMED),
    (b'{"seq":1.0}', MALFORMED),
    (b'{"seq":1e0}', MALFORMED),
    (b'{"seq":01}', MALFORMED),
    (b'{"seq":+1}', MALFORMED),
    (b'{"seq":- 1}', MALFORMED),
    (b'{"seq":0x1}', MALFORMED),
    (b'{"seq":"1"}', MALFORMED),
    (b'{"seq":true}', MALFORMED),
    (b'{"seq":[1]}', MALFORMED),
    # Batches.
    (b'{"seq":1,"batch":0}', ["1 m1"]),
    (b'{"seq":1,"batch":-5}', ["EOB p5 l0"]),
    (b'{"seq":1,"batch":-9223372036854775808}', ["EOB p5 l0"]),
    (b'{"seq":5,"batch":9223372036854775807}', LAST_TWO),
    (b'{"seq":5,"batch":9223372036854775808}', MALFORMED),
    (b'{"seq":5,"batch":2.0}', MALFORMED),
    (b'{"seq":0,"batch":2}', EMPTY),
    (b'{"seq":18446744073709551615,"batch":2}', MISSING),
    (b'{"seq":5,"batch":2,"max_bytes":9223372036854775807}', LAST_TWO),
    (b'{"seq":5,"batch":3,"max_bytes":-9223372036854775808}', ["5 p1 l0 m5", "EOB p1 l5"]),
    (b'{"seq":1,"batch":2,"next_by_subj":""}', FIRST_TWO),
    (b'{"next_by_subj":"x.1","batch":-1}', ["EOB p2 l0"]),
    (b'{"next_by_subj":"x..1","batch":-1}', ["EOB p0 l0"]),
    (b'{"next_by_subj":"zz","batch":-1}', ["EOB p0 l0"]),
    (b'{"next_by_subj":"x..1","batch":1}', MISSING),
    (b'{"seq":18446744073709551615,"next_by_subj":"x.1"}', MISSING),
    # Many last ones.
    (b'{"multi_last":["x.1"],"up_to_seq":18446744073709551615}', NOTHING),
    (b'{"multi_last":["x.1"],"seq":18446744073709551615}', ["EOB p0 l0 u6"]),
    (b'{"multi_last":["x.1"],"batch":-1}', ["4 p0 l0 m4", "EOB p0 l4 u6"]),
    (b'{"multi_last":["x.1"],"batch":9223372036854775807}', ["4 p0 l0 m4", "EOB p0 l4 u6"]),
    (b'{"multi_last":["x.*"],"max_bytes":-1}', ["4 p2 l0 m4", "EOB p2 l4 u6"]),
    (b'{"multi_last":["x.1"],"no_hdr":true}', ["4 p0 l0 m4", "EOB p0 l4 u6"]),
    (b'{"seq":2,"multi_last":["x.*"],"batch":1}', ["4 p2 l0 m4", "EOB p2 l4 u6"]),
    (b'{"multi_last":[""]}', NOTHING),
    (b'{"multi_last":[null]}', NOTHING),
    (b'{"multi_last":[1]}', MALFORMED),
    (b'{"multi_last":"x.1"}', MALFORMED),
    (b'{"multi_last":null,"seq":1}', ["1 m1"]),
    (b'{"seq":1,"batch":2,"multi_last":[]}', FIRST_TWO),
    (b'{"seq":1,"up_to_seq":5}', ["1 m1"]),
    (b'{"seq":1,"up_to_seq":1,"up_to_time":"2020-01-01T00:00:00Z"}', BAD),
    # Subjects.
    (b'{"last_by_subj":""}', EMPTY),
    (b'{"last_by_subj":">"}', ["6 m6"]),
    (b'{"last_by_subj":"*"}', MISSING),
    (b'{"last_by_subj":"x.>"}', ["6 m6"]),
    (b'{"last_by_subj":"x.>.1"}', MISSING),
    (b'{"last_by_subj":" "}', MISSING),
    (b'{"last_by_subj":"x.1 "}', MISSING),
    (b'{"last_by_subj":"x.\\u0031"}', ["4 m4"]),
    (b'{"last_by_subj":"x.\xff"}', MISSING),
    (b'{"last_by_subj":"x.1","batch":1}', BAD),
    (b'{"last_by_subj":"x.1","seq":1}', BAD),
    (b'{"last_by_subj":1}', MALFORMED),
    (b'{"next_by_subj":">"}', ["1 m1"]),
    (b'{"next_by_subj":"x.1","seq":0}', ["1 m1"]),
    (b'{"next_by_subj":"x.1 "}', MISSING),
    # Times.
    (b'{"start_time":"0001-01-01T00:00:00Z"}', ["1 m1"]),
    (b'{"start_time":"0001-01-01T00:00:00Z","batch":1}', ["1 p4 l0 m1", "EOB p4 l1"]),
    (b'{"multi_last":["x.1"],"up_to_time":"0001-01-01T00:00:00Z"}', NOTHING),
    (b'{"start_time":"x"}', MALFORMED),
    (b'{"start_time":1}', MALFORMED),
    (b'{"start_time":null}', EMPTY),
    # Names and syntax.
    (b'{"seq":1,"seq":3}', ["3 m3"]),
    (b'{"seq":3,"seq":null}', ["3 m3"]),
    (b'{"seq":1,"batch":1,"batch":2}', FIRST_TWO),
    (b'{"Seq":1}', ["1 m1"]),
    (b'{"seq":1,"\\u0062atch":2}', FIRST_TWO),
    (b'{"seq":1,"":2}', ["1 m1"]),
    (b'{"seq":1,"x":{"y":[1,{}]}}', ["1 m1"]),
    (b'{"seq":1,"x":' + b"[" * 50 + b"]" * 50 + b"}", ["1 m1"]),
    (b'{"seq":1,"x":"' + b"y" * 5000 + b'"}', ["1 m1"]),
    (b'{"seq":1,"no_hdr":1}', MALFORMED),
    (b'{"seq":1,"no_hdr":false}', ["1 m1"]),
    (b'{"no_hdr":true}', EMPTY),
    (b'{"max_bytes":1}', EMPTY),
    (b' \r\n{"seq" :\t1 }\n', ["1 m1"]),
    (b'{"seq":1', MALFORMED),
    (b'{"seq":1}x', MALFORMED),
    (b'{"seq":1,}', MALFORMED),
    (b'{,"seq":1}', MALFORMED),
    (b'{"seq":1 "batch":2}', MALFORMED),
    (b'{"seq":1}{"seq":3}', MALFORMED),
    (b"{'seq':1}", MALFORMED),
    (b'[{"seq":1}]', MALFORMED),
    (b'"seq"', MALFORMED),
    (b"1", MALFORMED),
    (b"true", MALFORMED),
    (b" ", MALFORMED),
    (b"\x00", MALFORMED),
    (b'{"seq":1\x00}', MALFORMED),
    (b"\xff\xfe", MALFORMED),
    (b'\xef\xbb\xbf{"seq":1}', MALFORMED),
    (b'{\xc2\xa0"seq":1}', MALFORMED),
]
BODIES_WITH_SUBJECT: list[tuple[bytes, list[str]]] = [
    (b"", ["4 m4"]),
    (b"{}", ["4 m4"]),
    (b"null", ["4 m4"]),
    (b" ", MALFORMED),
    (b"[]", MALFORMED),
    (b"\xff", MALFORMED),
    (b'{"no_hdr":false}', ["4 m4"]),
    (b'{"NO_HDR":true}', ["m4"]),
    (b'{"seq":0}', ["4 m4"]),
    (b'{"seq":1}', BAD),
    (b'{"batch":0}', ["4 m4"]),
    (b'{"batch":-1}', BAD),
    (b'{"max_bytes":1}', ["4 m4"]),
    (b'{"multi_last":[]}', ["4 m4"]),
    (b'{"multi_last":["x.1"]}', BAD),
    (b'{"up_to_seq":1}', BAD),
    (b'{"start_time":null}', ["4 m4"]),
    (b'{"start_time":"2020-01-01T00:00:00Z"}', BAD),
    (b'{"up_to_time":"2020-01-01T00:00:00Z"}', BAD),
    (b'{"last_by_subj":""}', ["4 m4"]),
    (b'{"last_by_subj":"x.1"}', BAD),
    (b'{"next_by_subj":"x.1"}', BAD),
    (b'{"x":1}', ["4 m4"]),
]
SUBJECTS = [
    ("x.1", "4 m4"),
    ("x.*", "6 m6"),
    ("x.>", "6 m6"),
    (">", "6 m6"),
    ("*", MISSING[0]),
    ("x", MISSING[0]),
    ("x.1.2", MISSING[0]),
    ("x.>.1", MISSING[0]),
    ("x.**", MISSING[0]),
    ("x..1", "503"),
    ("x.1.", "503"),
]


def replies(peer: Publisher, subject: str, body: bytes, name: str) -> list[str]:
    prefix = f'"{name.lower()}.'.encode()
    found = peer.answers(f"$JS.API.DIRECT.GET.{subject}", body.replace(b'"x.', prefix))
    return [short(answer) for answer in found]


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_unusual_requests(peer: Publisher, storage: str) -> None:
    name = six_messages(peer, storage=storage)
    for body, expected in BODIES:
        if storage == "memory" and b'"up_to_seq":18446744073709551615' in body:
            expected = ["4 p0 l0 m4", "EOB p0 l4 u18446744073709551615"]
        assert replies(peer, name, body, name) == expected, body


def test_unusual_requests_with_a_subject(peer: Publisher) -> None:
    name = six_messages(peer)
    low = name.lower()
    for body, expected in BODIES_WITH_SUBJECT:
        assert replies(peer, f"{name}.{low}.1", body, name) == expected, body
    for subject, reply in SUBJECTS:
        asked = subject.replace("x.", f"{low}.")
        assert replies(peer, f"{name}.{asked}", b"", name) == [reply], subject


def test_last_messages_of_many_patterns_that_overlap(peer: Publisher) -> None:
    name = six_messages(peer)
    low = name.lower()
    rows = [".".join(row) for row in product("1*", repeat=9)]
    nothing = [f"{low}.1.{row}" for row in rows]
    body = json.dumps({"multi_last": nothing}).encode()
    assert replies(peer, name, body, name) == NOTHING
    body = json.dumps({"multi_last": [*nothing, f"{low}.1", f"{low}.*", f"{low}.1"]}).encode()
    everything = replies(peer, name, b'{"multi_last":["%s.>"]}' % low.encode(), name)
    assert len(everything) == 4
    assert replies(peer, name, body, name) == everything


def test_more_than_1024_last_messages_are_too_many(peer: Publisher) -> None:
    name = six_messages(peer)
    low = name.lower()
    subjects = [f"{low}.n.{number}" for number in range(1025)]
    peer.client.send("".join(f"PUB {subject} 1\r\nx\r\n" for subject in subjects[2:]))
    # It is stored behind the others.
    peer.publish(subjects[1], b"x", b"")
    wanted = json.dumps({"multi_last": [f"{low}.n.*", f"{low}.*.1", *subjects[:600]]}).encode()
    assert len(replies(peer, name, wanted, name)) == 1025
    peer.publish(subjects[0], b"x", b"")
    assert replies(peer, name, wanted, name) == ["413 Too Many Results"]


def test_batch_without_headers(peer: Publisher) -> None:
    name = six_messages(peer)
    peer.send(f"$JS.API.DIRECT.GET.{name}", b'{"seq":1,"batch":2,"no_hdr":true}')
    found = [peer.client.read_message()[1:] for _ in range(3)]
    assert found[:2] == [(b"", b"m1"), (b"", b"m3")]
    assert found[2][0].startswith(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 5\r\n")


def test_many_requests_at_once_are_answered_in_order(peer: Publisher) -> None:
    name = six_messages(peer)
    count = 1000
    request = b"PUB $JS.API.DIRECT.GET.%s %%s 9\r\n" % name.encode()
    peer.client.send(b"SUB many.* 7\r\n")
    peer.client.send(
        b"".join(request % b"many.%d" % n + b'{"seq":%d}\r\n' % (n % 6 + 1) for n in range(count))
    )
    for number in range(count):
        subject, header, payload = peer.client.read_message()
        assert subject.split()[1] == f"many.{number}"
        seq = number % 6 + 1
        assert payload == (b"" if seq == 2 else b"m%d" % seq)
        assert header.startswith(b"NATS/1.0 404" if seq == 2 else b"NATS/1.0\r\n")


def test_replies_reach_everybody_who_listens(peer: Publisher) -> None:
    name = six_messages(peer)
    peer.client.send(b"SUB all.> 7\r\nSUB all.* 8\r\nSUB all.1 workers 9\r\nUNSUB 8 1\r\n")
    body = b'{"seq":5,"batch":2}'
    peer.client.send(
        b"PUB $JS.API.DIRECT.GET.%s all.1 %d\r\n%s\r\n" % (name.encode(), len(body), body)
    )
    got: dict[str, list[bytes]] = {"7": [], "8": [], "9": []}
    for _ in range(7):
        line, _, payload = peer.client.read_message()
        got[line.split()[2]].append(payload)
    assert got == {"7": [b"m5", b"m6", b""], "8": [b"m5"], "9": [b"m5", b"m6", b""]}


def test_direct_gets_are_no_requests_of_the_api(peer: Publisher) -> None:
    name = six_messages(peer)
    audited: list[str] = []

    def counts() -> tuple[int, int]:
        """Requests and errors; what is audited is noted, until it is the question for these."""
        audited.clear()
        api: dict[str, int] = {}
        peer.send("$JS.API.INFO")
        while not api or audited[-1:] != ["$JS.API.INFO"]:
            line, _, body = peer.client.read_message()
            if line.split(" ")[2] == "7":
                audited.append(json.loads(body)["subject"])
            else:
                api = json.loads(body)["api"]
        return api["total"], api["errors"]

    peer.client.send(b"SUB $JS.EVENT.ADVISORY.API 7\r\n")
    before = counts()
    for body in (b'{"seq":1}', b'{"seq":2}', b"{bad", b'{"seq":5,"batch":2}'):
        peer.answers(f"$JS.API.DIRECT.GET.{name}", body)
    assert counts() == (before[0] + 1, before[1])
    assert audited == ["$JS.API.INFO"]
